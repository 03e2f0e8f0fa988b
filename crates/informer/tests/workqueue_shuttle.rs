//! The work queue under a model checker: many interleavings of workers that wait, are cancelled, and receive
//! keys. Run with `cargo test -p informer --features shuttle --test workqueue_shuttle`.
#![cfg(feature = "shuttle")]
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use informer::workqueue::{FastSlow, RetryLimit, WorkQueue};
use shuttle::{future, thread};

const RUNS: usize = 3_000;

// C14: every added key is processed, by one worker at a time, and every worker ends.
#[test]
fn two_workers_and_two_adders_lose_no_key() {
    shuttle::check_random(
        || {
            let queue: WorkQueue<usize> = WorkQueue::new();
            let done = Arc::new(AtomicUsize::new(0));
            let workers: Vec<_> = (0..2)
                .map(|_| {
                    let (queue, done) = (queue.clone(), done.clone());
                    thread::spawn(move || {
                        future::block_on(async {
                            while let Some(item) = queue.get().await {
                                done.fetch_or(1 << *item, Ordering::SeqCst);
                                item.done();
                            }
                        });
                    })
                })
                .collect();
            let adders: Vec<_> = (0..2)
                .map(|adder| {
                    let queue = queue.clone();
                    thread::spawn(move || {
                        queue.add(adder * 2);
                        queue.add(adder * 2 + 1);
                    })
                })
                .collect();
            adders.into_iter().for_each(|adder| adder.join().unwrap());
            queue.shutdown();
            workers.into_iter().for_each(|worker| worker.join().unwrap());
            assert_eq!(done.load(Ordering::SeqCst), 0b1111);
        },
        RUNS,
    );
}

/// A worker that was woken for a key and is cancelled has to wake another one.
#[test]
fn cancelled_worker_passes_its_wakeup_on() {
    shuttle::check_random(
        || {
            let queue: WorkQueue<usize> = WorkQueue::new();
            let fickle = {
                let queue = queue.clone();
                thread::spawn(move || {
                    future::block_on(async {
                        let mut getting = std::pin::pin!(queue.get());
                        // Polls once, may be woken, and is dropped.
                        let polled = std::future::poll_fn(|context| {
                            std::task::Poll::Ready(getting.as_mut().poll(context))
                        });
                        if let std::task::Poll::Ready(Some(item)) = polled.await {
                            item.retry_after(std::time::Duration::ZERO);
                        }
                    });
                })
            };
            let waiting = {
                let queue = queue.clone();
                thread::spawn(move || future::block_on(async { queue.get().await.unwrap().done() }))
            };
            queue.add(1);
            fickle.join().unwrap();
            waiting.join().unwrap();
            assert!(queue.is_empty());
        },
        RUNS,
    );
}

/// A retry that the limit holds is taken when the running one ends, whichever worker waits.
#[test]
fn held_retry_is_taken_after_the_running_one_ends() {
    shuttle::check_random(
        || {
            let limit = RetryLimit::new(f64::INFINITY, 1).max_processing(1);
            let immediately = FastSlow::new(Duration::ZERO, Duration::ZERO, 0);
            let queue: WorkQueue<usize> = WorkQueue::with_limits(immediately, limit);
            let running = Arc::new(AtomicUsize::new(0));
            let workers: Vec<_> = (0..2)
                .map(|_| {
                    let (queue, running) = (queue.clone(), running.clone());
                    thread::spawn(move || {
                        future::block_on(async {
                            for _ in 0..2 {
                                let Some(item) = queue.get().await else { return };
                                if item.retries() == 0 {
                                    item.retry();
                                    continue;
                                }
                                assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0, "one at a time");
                                running.fetch_sub(1, Ordering::SeqCst);
                                item.done();
                            }
                        });
                    })
                })
                .collect();
            queue.add(1);
            queue.add(2);
            workers.into_iter().for_each(|worker| worker.join().unwrap());
            assert!(queue.is_empty() && queue.delayed().is_empty());
        },
        RUNS,
    );
}

/// Both concurrent drains return.
#[test]
fn concurrent_drains_both_return() {
    shuttle::check_random(
        || {
            let queue: WorkQueue<usize> = WorkQueue::new();
            queue.add(1);
            let worker = {
                let queue = queue.clone();
                thread::spawn(move || {
                    future::block_on(async {
                        while let Some(item) = queue.get().await {
                            item.done();
                        }
                    });
                })
            };
            let drains: Vec<_> = (0..2)
                .map(|_| {
                    let queue = queue.clone();
                    thread::spawn(move || future::block_on(queue.drained()))
                })
                .collect();
            queue.shutdown();
            worker.join().unwrap();
            drains.into_iter().for_each(|drain| drain.join().unwrap());
        },
        RUNS,
    );
}
