//! The work queue as seen by workers (C14): waiting, waking, work items, delays, drains.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use informer::workqueue::{ExponentialBackoff, Priority, WorkItem, WorkQueue};
use informer_core::random::Random;
use tokio::time::{Instant, timeout};

const MILLI: Duration = Duration::from_millis(1);
const TIMEOUT: Duration = Duration::from_secs(3600);

fn queue() -> WorkQueue<&'static str> {
    WorkQueue::with_rate_limiter(ExponentialBackoff::new(10 * MILLI, Duration::from_secs(1)))
}

async fn get(queue: &WorkQueue<&'static str>) -> WorkItem<&'static str> {
    timeout(TIMEOUT, queue.get()).await.expect("a key is returned").expect("the queue is open")
}

/// Runs every ready task.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_worker_receives_an_added_key() {
    let queue = queue();
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move { *get(&queue).await }
    });
    settle().await;
    queue.add("a");
    assert_eq!(waiting.await.unwrap(), "a");
}

// C14
#[tokio::test(start_paused = true)]
async fn wq_5_key_is_processed_by_one_worker_at_a_time() {
    let queue = queue();
    queue.add("a");
    let processing = get(&queue).await;
    queue.add("a");
    assert!(queue.try_get().is_none());
    assert_eq!((queue.len(), queue.metrics().depth), (0, 1));
    processing.done();
    assert_eq!(*get(&queue).await, "a");
}

// C14: a worker that is cancelled or panics does not lose its key.
#[tokio::test(start_paused = true)]
async fn dropped_work_item_requeues_its_key_and_is_counted() {
    let queue = queue();
    queue.add("a");
    drop(get(&queue).await);
    assert_eq!((queue.len(), queue.retries(&"a"), queue.metrics().abandoned), (0, 1, 1));

    let worker = tokio::spawn({
        let queue = queue.clone();
        async move {
            let _item = get(&queue).await;
            panic!("a bug in the reconcile function");
        }
    });
    assert!(worker.await.unwrap_err().is_panic());
    let cancelled = async {
        let _item = get(&queue).await;
        std::future::pending::<()>().await;
    };
    assert!(timeout(Duration::from_secs(5), cancelled).await.is_err());
    assert_eq!((queue.retries(&"a"), queue.metrics().abandoned), (3, 3));
    let item = get(&queue).await;
    assert_eq!((item.retries(), item.priority()), (3, Priority::NORMAL));
    item.done();
    assert_eq!(queue.retries(&"a"), 0, "done() resets the failures");
}

#[tokio::test(start_paused = true)]
async fn rl_1_delay_grows_with_each_failure() {
    let queue = queue();
    queue.add("a");
    let begun = Instant::now();
    for expected in [0, 10, 30, 70, 150] {
        let item = get(&queue).await;
        assert_eq!(begun.elapsed().as_millis(), expected);
        item.retry();
    }
    get(&queue).await.retry_after(Duration::from_secs(60));
    let begun = Instant::now();
    let item = get(&queue).await;
    assert_eq!((begun.elapsed(), item.retries()), (Duration::from_secs(60), 5));
}

#[tokio::test(start_paused = true)]
async fn dq_2_shorter_delay_wakes_the_worker_that_runs_the_timer() {
    let queue = queue();
    queue.add_after("late", Duration::from_secs(60));
    let begun = Instant::now();
    let (queue, waiting) = (&queue, async { *get(&queue).await });
    let sooner = async {
        settle().await;
        queue.add_after("soon", Duration::from_secs(1));
        queue.add_after("late", Duration::from_secs(30));
    };
    let (first, ()) = tokio::join!(waiting, sooner);
    assert_eq!((first, begun.elapsed()), ("soon", Duration::from_secs(1)));
    let again = ("soon", Duration::from_millis(10));
    assert_eq!(queue.delayed(), [again, ("late", Duration::from_secs(29))], "the work item was dropped");
}

/// Only one waiting worker runs the timer. When it is cancelled, another one has to take over.
#[tokio::test(start_paused = true)]
async fn timer_is_taken_over_when_its_worker_is_cancelled() {
    let queue = queue();
    queue.add_after("a", Duration::from_secs(10));
    let begun = Instant::now();
    let timer_worker = timeout(Duration::from_secs(3), queue.get());
    let other = async {
        settle().await;
        *get(&queue).await
    };
    let (cancelled, got) = tokio::join!(timer_worker, other);
    assert!(cancelled.is_err());
    assert_eq!((got, begun.elapsed()), ("a", Duration::from_secs(10)));
}

/// When keys arrive quickly, a worker that finds none polls again before it waits, and no other worker is
/// woken meanwhile. If it is cancelled instead, another one must be woken.
#[tokio::test(start_paused = true)]
async fn cancelled_worker_passes_its_wakeup_on() {
    let queue = queue();
    for _ in 0..100 {
        queue.add("warm");
        queue.try_get().unwrap().done();
    }
    let mut about_to_poll = Box::pin(queue.get());
    assert!(futures::poll!(about_to_poll.as_mut()).is_pending());
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move { *get(&queue).await }
    });
    settle().await;
    queue.add("a");
    settle().await;
    assert!(!waiting.is_finished(), "the worker that polls anyway is enough for one key");
    drop(about_to_poll);
    assert_eq!(waiting.await.unwrap(), "a");
}

/// A woken task may be delayed by the thread it is to run on: the more keys are queued, the more workers are
/// woken.
#[tokio::test(start_paused = true)]
async fn delayed_worker_does_not_delay_others() {
    let queue = queue();
    let mut delayed_worker = Box::pin(queue.get());
    assert!(futures::poll!(delayed_worker.as_mut()).is_pending());
    let mut others: Vec<_> = (0..2).map(|_| Box::pin(queue.get())).collect();
    for other in &mut others {
        assert!(futures::poll!(other.as_mut()).is_pending());
    }
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move { *get(&queue).await }
    });
    settle().await;
    for key in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        queue.add(key);
    }
    assert_eq!(timeout(TIMEOUT, waiting).await.unwrap().unwrap(), "a", "three of four were not polled");
}

#[tokio::test(start_paused = true)]
async fn delayed_keys_are_visible_and_can_be_removed() {
    let queue = queue();
    queue.add_after("a", Duration::from_secs(1));
    queue.add_after("b", Duration::from_secs(2));
    assert_eq!(queue.delayed(), [("a", Duration::from_secs(1)), ("b", Duration::from_secs(2))]);
    assert!(queue.cancel(&"a"));
    let begun = Instant::now();
    let item = get(&queue).await;
    assert_eq!((*item, begun.elapsed()), ("b", Duration::from_secs(2)));
    tokio::time::advance(Duration::from_secs(5)).await;
    assert_eq!(queue.processing(), [("b", Duration::from_secs(5))]);
    assert_eq!(queue.metrics().longest_running, Duration::from_secs(5));
}

// The initial list after a restart never starves new changes.
#[tokio::test(start_paused = true)]
async fn wq_9_new_changes_are_processed_before_the_initial_list() {
    let queue = WorkQueue::new();
    for number in 0..1_000 {
        queue.add_with_priority(number, Priority::INITIAL);
    }
    queue.add(5_000);
    queue.add(7);
    let first: Vec<i32> = std::iter::from_fn(|| queue.try_get())
        .take(4)
        .map(|item| {
            let key = *item;
            item.done();
            key
        })
        .collect();
    assert_eq!(first, [5_000, 7, 0, 1]);
}

#[tokio::test(start_paused = true)]
async fn wq_7_shutdown_wakes_waiting_workers() {
    let queue = queue();
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.get().await.is_none() })
        })
        .collect();
    settle().await;
    queue.shutdown();
    for worker in waiting {
        assert!(worker.await.unwrap());
    }
    queue.add("late");
    assert!(queue.get().await.is_none());
}

/// client-go's drain ignores queued keys, and of two concurrent drains one may wait forever.
#[tokio::test(start_paused = true)]
async fn wq_8_drain_waits_for_all_keys_and_wakes_all_callers() {
    let queue = queue();
    for key in ["a", "b", "c"] {
        queue.add(key);
    }
    queue.add_after("later", Duration::from_secs(1));
    let processing = get(&queue).await;
    let drains: Vec<_> = (0..2)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.drain(TIMEOUT).await })
        })
        .collect();
    settle().await;
    assert!(drains.iter().all(|drain| !drain.is_finished()));
    processing.retry();
    while let Some(item) = queue.get().await {
        assert!(drains.iter().all(|drain| !drain.is_finished()), "{} is still processing", *item);
        settle().await;
        item.done();
    }
    for drain in drains {
        assert_eq!(drain.await.unwrap(), Ok(()));
    }
    assert_eq!(queue.metrics().dropped, 2, "the failed key and the delayed key");
}

#[tokio::test(start_paused = true)]
async fn drain_can_include_delayed_keys_and_reports_the_rest_on_timeout() {
    let queue = queue();
    queue.add("a");
    queue.add("b");
    queue.add_after("later", Duration::from_secs(60));
    let processing = get(&queue).await;
    let error = queue.drain_including_delayed(Duration::from_secs(5)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "drain work queue: timed out after 5s with 1 keys queued, 1 processing, 1 delayed (a worker may be stuck)"
    );
    processing.retry();
    let worker = async {
        let mut keys = Vec::new();
        while let Some(item) = queue.get().await {
            keys.push(*item);
            item.done();
        }
        keys
    };
    let (drained, keys) = tokio::join!(queue.drain_including_delayed(TIMEOUT), worker);
    assert_eq!((drained, keys), (Ok(()), vec!["b", "a", "later"]));
}

#[tokio::test(start_paused = true)]
async fn immediate_shutdown_drops_queued_keys() {
    let queue = queue();
    queue.add("a");
    queue.add("b");
    let processing = get(&queue).await;
    queue.shutdown_now();
    assert!(queue.get().await.is_none());
    assert_eq!(
        queue.drain(Duration::ZERO).await.unwrap_err().to_string(),
        "drain work queue: timed out after 0ns with 0 keys queued, 1 processing, 0 delayed (a worker may be stuck)"
    );
    processing.done();
    assert_eq!(queue.drain(Duration::ZERO).await, Ok(()));
}

/// State of one key: its adds when its last reconcile began, and whether a worker is processing it.
#[derive(Debug, Default, Clone)]
struct KeyState {
    adds: u64,
    begun_at: u64,
    processing: bool,
}

// C14: random workers that finish, fail, are cancelled and hang for a while; random adds and delays. No key
// is processed twice at the same time, and each key is processed after its last add.
#[tokio::test(start_paused = true)]
async fn random_workers_lose_no_key_and_process_each_exclusively() {
    for seed in 0..60 {
        let queue: WorkQueue<u64> = WorkQueue::with_rate_limiter(ExponentialBackoff::new(MILLI, 20 * MILLI));
        let seen: Arc<Mutex<BTreeMap<u64, KeyState>>> = Arc::default();
        let workers: Vec<_> = (0..4)
            .map(|worker| {
                let (queue, seen) = (queue.clone(), seen.clone());
                let mut random = Random::new(seed * 10 + worker);
                tokio::spawn(async move {
                    loop {
                        // Waiting is cancelled at random: a key that was about to be returned must not be
                        // lost.
                        let wait = MILLI * u32::try_from(random.below(5)).unwrap();
                        let item = match timeout(wait, queue.get()).await {
                            Err(_) => continue,
                            Ok(None) => return,
                            Ok(Some(item)) => item,
                        };
                        {
                            let mut seen = seen.lock().unwrap();
                            let seen = seen.entry(*item).or_default();
                            assert!(!seen.processing, "seed {seed}: two workers process {}", *item);
                            (seen.processing, seen.begun_at) = (true, seen.adds);
                        }
                        tokio::time::advance(MILLI * u32::try_from(random.below(4)).unwrap()).await;
                        seen.lock().unwrap().entry(*item).or_default().processing = false;
                        match random.below(6) {
                            0 => drop(item),
                            1 => {
                                item.retry();
                            }
                            2 => item.retry_after(MILLI),
                            _ => item.done(),
                        }
                    }
                })
            })
            .collect();
        let mut random = Random::new(seed);
        for _ in 0..200 {
            let key = random.below(8);
            seen.lock().unwrap().entry(key).or_default().adds += 1;
            match random.below(3) {
                0 => queue.add_after(key, MILLI * u32::try_from(random.below(10)).unwrap()),
                1 => queue.add_with_priority(key, Priority(-1)),
                _ => queue.add(key),
            }
            if random.below(4) == 0 {
                tokio::time::advance(MILLI).await;
            }
            tokio::task::yield_now().await;
        }
        queue.drain_including_delayed(TIMEOUT).await.unwrap();
        for worker in workers {
            worker.await.unwrap();
        }
        for (key, seen) in seen.lock().unwrap().iter() {
            assert_eq!(
                (seen.begun_at, seen.processing),
                (seen.adds, false),
                "seed {seed}: {key} not processed after its last add"
            );
        }
    }
}
