//! The work queue under a model checker: many interleavings of workers that wait, give up, and are given keys.
//! Run with `cargo test -p informer --features shuttle --test workqueue_shuttle`.
#![cfg(feature = "shuttle")]
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use informer::WorkQueue;
use shuttle::{future, thread};

const RUNS: usize = 3_000;

// C14: every key that is added is worked on, by one worker at a time, and every worker ends.
#[test]
fn two_workers_and_two_adders_lose_nothing() {
    shuttle::check_random(
        || {
            let queue: WorkQueue<usize> = WorkQueue::new();
            let done = Arc::new(AtomicUsize::new(0));
            let workers: Vec<_> = (0..2)
                .map(|_| {
                    let (queue, done) = (queue.clone(), done.clone());
                    thread::spawn(move || {
                        future::block_on(async {
                            while let Some(lease) = queue.get().await {
                                done.fetch_or(1 << *lease, Ordering::SeqCst);
                                lease.done();
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
            queue.shut_down();
            workers.into_iter().for_each(|worker| worker.join().unwrap());
            assert_eq!(done.load(Ordering::SeqCst), 0b1111);
        },
        RUNS,
    );
}

/// A worker that was woken for a key and gives up has to pass the news on.
#[test]
fn a_worker_that_gives_up_does_not_take_the_news_along() {
    shuttle::check_random(
        || {
            let queue: WorkQueue<usize> = WorkQueue::new();
            let fickle = {
                let queue = queue.clone();
                thread::spawn(move || {
                    future::block_on(async {
                        let mut getting = std::pin::pin!(queue.get());
                        // Looks once, is woken perhaps, and goes.
                        let looked = std::future::poll_fn(|context| {
                            std::task::Poll::Ready(getting.as_mut().poll(context))
                        });
                        if let std::task::Poll::Ready(Some(lease)) = looked.await {
                            lease.retry_after(std::time::Duration::ZERO);
                        }
                    });
                })
            };
            let patient = {
                let queue = queue.clone();
                thread::spawn(move || future::block_on(async { queue.get().await.unwrap().done() }))
            };
            queue.add(1);
            fickle.join().unwrap();
            patient.join().unwrap();
            assert!(queue.is_empty());
        },
        RUNS,
    );
}

/// Both who wait for the end hear of it.
#[test]
fn two_drains_end() {
    shuttle::check_random(
        || {
            let queue: WorkQueue<usize> = WorkQueue::new();
            queue.add(1);
            let worker = {
                let queue = queue.clone();
                thread::spawn(move || {
                    future::block_on(async {
                        while let Some(lease) = queue.get().await {
                            lease.done();
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
            queue.shut_down();
            worker.join().unwrap();
            drains.into_iter().for_each(|drain| drain.join().unwrap());
        },
        RUNS,
    );
}
