//! What a work queue costs: add, get and done by one, four and sixteen workers, and a million keys that come later.
//!
//! `cargo bench -p informer --bench workqueue`, `-- --quick` for a tenth of it, `-- one`, `workers` or `delays` for a part. Every figure is the best of five rounds; a round measures each row
//! once. Keys are those of objects, and shared texts for comparison. A thread of its own adds beside the workers, who are tasks on one thread, and on
//! two; the time is from the first add until the last key is done. Delays are set by the real clock's rules, under tokio's paused
//! clock, so that all of them can come due at once.
#![allow(clippy::unwrap_used)]

use informer::{Exponential, Key, WorkQueue};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

const KEYS: usize = 1_000_000;
const ROUNDS: usize = 5;

/// What is asked of a key.
trait Name: Eq + Hash + Clone + Debug + Send + Sync + 'static {}
impl<T: Eq + Hash + Clone + Debug + Send + Sync + 'static> Name for T {}

fn main() {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    let keys = if asked.iter().any(|argument| argument == "--quick") { KEYS / 10 } else { KEYS };
    println!("{keys} keys, best of {ROUNDS} rounds, ns a key");
    let names: Vec<Key> = (0..keys).map(|number| Key::new("default", &format!("pod-{number:07}"))).collect();
    rows("keys of objects", names, &asked);
    let names: Vec<Arc<str>> =
        (0..keys).map(|number| format!("default/pod-{number:07}").as_str().into()).collect();
    rows("shared texts", names, &asked);
}

fn rows<T: Name>(what: &str, names: Vec<T>, asked: &[String]) {
    let names: Arc<[T]> = names.into();
    let mut best: Vec<(String, Duration)> = Vec::new();
    for _ in 0..ROUNDS {
        for (place, (row, took)) in round(&names, asked).into_iter().enumerate() {
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

fn round<T: Name>(names: &Arc<[T]>, asked: &[String]) -> Vec<(String, Duration)> {
    let mut rows = Vec::new();
    let is_asked = |part: &str| asked.iter().all(|word| word.starts_with("--") || word == part);
    if is_asked("one") {
        rows.push(("add, take and end, one thread".to_owned(), one_thread(names)));
    }
    for workers in [1, 4, 16].into_iter().filter(|_| is_asked("workers")) {
        for threads in [1, 2] {
            let row = format!("add beside {workers} workers on {threads} threads");
            rows.push((row, with_workers(names, workers, threads)));
        }
    }
    if is_asked("delays") {
        let [set, shortened, due] = delay(names);
        rows.push(("delay, all of them pending".to_owned(), set));
        rows.push(("delay the same keys again, to come sooner".to_owned(), shortened));
        rows.push(("come due, take and end".to_owned(), due));
    }
    rows
}

fn queue<T: Name>() -> WorkQueue<T> {
    WorkQueue::with_limiter(Exponential::default())
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
                let mut turns = 0;
                while let Some(lease) = queue.get().await {
                    lease.done();
                    turns += 1;
                }
                turns
            })
        })
        .collect();
    for name in names {
        queue.add(name.clone());
    }
    queue.shut_down();
    runtime.block_on(async {
        let mut turns = 0;
        for task in tasks {
            turns += task.await.unwrap();
        }
        assert_eq!(turns, names.len());
    });
    begun.elapsed()
}

/// How long delays take to set, to shorten, and to come due.
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
        while let Some(lease) = queue.try_get() {
            lease.done();
        }
        [set, shortened, begun.elapsed()]
    })
}
