//! What a work queue costs: add, get and done by one, four and sixteen workers, and a million keys that come later.
//!
//! `cargo bench -p informer --bench workqueue`, `-- --quick` for a tenth of it. Keys are those of objects. Adders run beside the workers, as
//! handlers do; the time is from the first add until the last key is done.
#![allow(clippy::unwrap_used)]

use informer::{Exponential, Key, Priority, WorkQueue};
use std::time::{Duration, Instant};

const KEYS: usize = 1_000_000;

fn main() {
    let keys = if std::env::args().any(|argument| argument == "--quick") { KEYS / 10 } else { KEYS };
    let names: Vec<Key> = (0..keys).map(|number| Key::new("default", &format!("pod-{number:07}"))).collect();
    println!("{keys} keys");
    println!("{:<44}{:>12}{:>14}", "", "ns a key", "keys a second");
    row("add, then take and end, one thread, no tasks", keys, by_hand(&names));
    for workers in [1, 4, 16] {
        row(&format!("add beside {workers} workers, two threads"), keys, with_workers(&names, workers));
    }
    row("delay, all of them pending", keys, delay(&names).0);
    row("come due, take and end", keys, delay(&names).1);
    row("delay the same keys again, to come sooner", keys, delay(&names).2);
}

fn row(what: &str, keys: usize, took: Duration) {
    let nanos = took.as_nanos() / keys as u128;
    println!("{what:<44}{nanos:>12}{:>14}", 1_000_000_000 / nanos.max(1));
}

fn queue() -> WorkQueue<Key> {
    WorkQueue::with_limiter(Exponential::default())
}

fn by_hand(names: &[Key]) -> Duration {
    let queue = queue();
    let begun = Instant::now();
    for name in names {
        queue.add(name.clone());
        queue.try_get().unwrap().done();
    }
    begun.elapsed()
}

fn with_workers(names: &[Key], workers: usize) -> Duration {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let queue = queue();
    let begun = Instant::now();
    runtime.block_on(async {
        let tasks: Vec<_> = (0..workers)
            .map(|_| {
                let queue = queue.clone();
                tokio::spawn(async move {
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
        let mut turns = 0;
        for task in tasks {
            turns += task.await.unwrap();
        }
        assert_eq!(turns, names.len());
    });
    begun.elapsed()
}

/// How long delays take to set, to come due and to shorten.
fn delay(names: &[Key]) -> (Duration, Duration, Duration) {
    // Long enough that none is due before all are set: those that are looked at as due are so by the machine's own clock.
    let mut machine = informer_core::workqueue::Queue::new(Exponential::default());
    let start = informer::Moment::default();
    let spread = |number: usize| Duration::from_millis(1_000_000 + (number as u64 * 7_919) % 1_000_000);
    let begun = Instant::now();
    for (number, name) in names.iter().enumerate() {
        machine.add_after(start, name.clone(), spread(number), Priority::NORMAL);
    }
    let set = begun.elapsed();
    let begun = Instant::now();
    for (number, name) in names.iter().enumerate() {
        machine.add_after(start, name.clone(), spread(number) / 2, Priority::NORMAL);
    }
    let shortened = begun.elapsed();
    let begun = Instant::now();
    let end = start + Duration::from_secs(10_000);
    while let Some(taken) = machine.take(end) {
        machine.done(end, taken.ticket).unwrap();
    }
    (set, begun.elapsed(), shortened)
}
