//! Cost of a work queue: add, get and done with one, four and sixteen workers, and a million delayed keys.
//!
//! `cargo bench -p informer --bench workqueue`, `-- --quick` for a tenth of the keys, `-- one`, `workers` or
//! `delays` for a part. Every result is the best of five rounds; a round measures each row once. Keys are
//! those of objects, and shared strings for comparison. A separate thread adds keys while the workers, tasks
//! on one or two threads, process them; the time is from the first add until the last key is done. Delays run
//! under tokio's paused clock, so that all of them expire at the same time.
#![allow(clippy::unwrap_used)]

use informer::Key;
use informer::workqueue::{ExponentialBackoff, WorkQueue};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

const KEYS: usize = 1_000_000;
const ROUNDS: usize = 5;

/// Bounds of a key.
trait Name: Eq + Hash + Clone + Debug + Send + Sync + 'static {}
impl<T: Eq + Hash + Clone + Debug + Send + Sync + 'static> Name for T {}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let keys = if arguments.iter().any(|argument| argument == "--quick") { KEYS / 10 } else { KEYS };
    println!("{keys} keys, best of {ROUNDS} rounds, ns per key");
    let names: Vec<Key> = (0..keys).map(|number| Key::new("default", &format!("pod-{number:07}"))).collect();
    rows("keys of objects", names, &arguments);
    let names: Vec<Arc<str>> =
        (0..keys).map(|number| format!("default/pod-{number:07}").as_str().into()).collect();
    rows("shared strings", names, &arguments);
}

fn rows<T: Name>(what: &str, names: Vec<T>, arguments: &[String]) {
    let names: Arc<[T]> = names.into();
    let mut best: Vec<(String, Duration)> = Vec::new();
    for _ in 0..ROUNDS {
        for (place, (row, took)) in round(&names, arguments).into_iter().enumerate() {
            match best.get_mut(place) {
                Some(known) => known.1 = known.1.min(took),
                None => best.push((row, took)),
            }
        }
    }
    println!("\n{what}");
    for (row, took) in best {
        println!("{row:<48}{:>8}", took.as_nanos() / names.len() as u128);
    }
}

fn round<T: Name>(names: &Arc<[T]>, arguments: &[String]) -> Vec<(String, Duration)> {
    let mut rows = Vec::new();
    let is_selected = |part: &str| arguments.iter().all(|word| word.starts_with("--") || word == part);
    if is_selected("one") {
        rows.push(("add, get and done, one thread".to_owned(), one_thread(names)));
    }
    for workers in [1, 4, 16].into_iter().filter(|_| is_selected("workers")) {
        for threads in [1, 2] {
            let row = format!("add with {workers} workers on {threads} threads");
            rows.push((row, with_workers(names, workers, threads)));
        }
    }
    if is_selected("delays") {
        let [set, shortened, due] = delay(names);
        rows.push(("delay new keys".to_owned(), set));
        rows.push(("shorten the delay of the same keys".to_owned(), shortened));
        rows.push(("expire, get and done".to_owned(), due));
    }
    rows
}

fn queue<T: Name>() -> WorkQueue<T> {
    WorkQueue::with_rate_limiter(ExponentialBackoff::default())
}

fn one_thread<T: Name>(names: &[T]) -> Duration {
    let queue = queue();
    let begun = Instant::now();
    for name in names {
        queue.add(name.clone());
        queue.try_get().unwrap().done();
    }
    begun.elapsed()
}

fn with_workers<T: Name>(names: &[T], workers: usize, threads: usize) -> Duration {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build().unwrap();
    let queue = queue::<T>();
    let begun = Instant::now();
    let tasks: Vec<_> = (0..workers)
        .map(|_| {
            let queue = queue.clone();
            runtime.spawn(async move {
                let mut processed = 0;
                while let Some(item) = queue.get().await {
                    item.done();
                    processed += 1;
                }
                processed
            })
        })
        .collect();
    for name in names {
        queue.add(name.clone());
    }
    queue.shutdown();
    runtime.block_on(async {
        let mut processed = 0;
        for task in tasks {
            processed += task.await.unwrap();
        }
        assert_eq!(processed, names.len());
    });
    begun.elapsed()
}

/// Time to set delays, to shorten them, and until all keys are processed after they expired.
fn delay<T: Name>(names: &[T]) -> [Duration; 3] {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let queue = queue();
        let spread = |number: usize| Duration::from_millis(1_000_000 + (number as u64 * 7_919) % 1_000_000);
        let begun = Instant::now();
        for (number, name) in names.iter().enumerate() {
            queue.add_after(name.clone(), spread(number));
        }
        let set = begun.elapsed();
        let begun = Instant::now();
        for (number, name) in names.iter().enumerate() {
            queue.add_after(name.clone(), spread(number) / 2);
        }
        let shortened = begun.elapsed();
        tokio::time::advance(Duration::from_secs(10_000)).await;
        let begun = Instant::now();
        while let Some(item) = queue.try_get() {
            item.done();
        }
        [set, shortened, begun.elapsed()]
    })
}
