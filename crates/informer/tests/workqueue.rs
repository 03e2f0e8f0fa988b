//! The work queue as workers meet it (C14): waiting, waking, leases, delays, drains.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use informer::{Exponential, Lease, Priority, WorkQueue};
use informer_core::reflector::Random;
use tokio::time::{Instant, timeout};

const MILLI: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_hours(1);

fn queue() -> WorkQueue<&'static str> {
    WorkQueue::with_limiter(Exponential::new(10 * MILLI, Duration::from_secs(1)))
}

async fn get(queue: &WorkQueue<&'static str>) -> Lease<&'static str> {
    timeout(LONG, queue.get()).await.expect("a key comes").expect("the queue is open")
}

/// Lets every task that is ready run.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_is_given_what_comes() {
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
async fn wq_5_a_key_is_in_one_pair_of_hands() {
    let queue = queue();
    queue.add("a");
    let held = get(&queue).await;
    queue.add("a");
    assert!(queue.try_get().is_none());
    assert_eq!((queue.len(), queue.metrics().depth), (0, 1));
    held.done();
    assert_eq!(*get(&queue).await, "a");
}

// C14: a worker that is cancelled, or that panics, does not take its key along.
#[tokio::test(start_paused = true)]
async fn a_lease_that_is_lost_gives_its_key_back_and_is_counted() {
    let queue = queue();
    queue.add("a");
    drop(get(&queue).await);
    assert_eq!((queue.len(), queue.retries(&"a"), queue.metrics().abandoned), (0, 1, 1));

    let worker = tokio::spawn({
        let queue = queue.clone();
        async move {
            let _lease = get(&queue).await;
            panic!("a reconciler's bug");
        }
    });
    assert!(worker.await.unwrap_err().is_panic());
    let cancelled = async {
        let _lease = get(&queue).await;
        std::future::pending::<()>().await;
    };
    assert!(timeout(Duration::from_secs(5), cancelled).await.is_err());
    assert_eq!((queue.retries(&"a"), queue.metrics().abandoned), (3, 3));
    let lease = get(&queue).await;
    assert_eq!((lease.retries(), lease.priority()), (3, Priority::NORMAL));
    lease.done();
    assert_eq!(queue.retries(&"a"), 0, "what is done is forgotten");
}

#[tokio::test(start_paused = true)]
async fn rl_1_failures_wait_longer_each_time() {
    let queue = queue();
    queue.add("a");
    let begun = Instant::now();
    for expected in [0, 10, 30, 70, 150] {
        let lease = get(&queue).await;
        assert_eq!(begun.elapsed().as_millis(), expected);
        lease.retry();
    }
    get(&queue).await.retry_after(Duration::from_mins(1));
    let begun = Instant::now();
    let lease = get(&queue).await;
    assert_eq!((begun.elapsed(), lease.retries()), (Duration::from_mins(1), 5));
}

#[tokio::test(start_paused = true)]
async fn dq_2_a_shorter_delay_is_noticed_by_whoever_minds_the_clock() {
    let queue = queue();
    queue.add_after("late", Duration::from_mins(1));
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
    assert_eq!(queue.delayed(), [again, ("late", Duration::from_secs(29))], "its lease was dropped");
}

/// Only one of those who wait minds the clock. When it goes away, somebody else has to.
#[tokio::test(start_paused = true)]
async fn the_clock_is_minded_whoever_goes_away() {
    let queue = queue();
    queue.add_after("a", Duration::from_secs(10));
    let begun = Instant::now();
    let keeper = timeout(Duration::from_secs(3), queue.get());
    let other = async {
        settle().await;
        *get(&queue).await
    };
    let (gone, got) = tokio::join!(keeper, other);
    assert!(gone.is_err());
    assert_eq!((got, begun.elapsed()), ("a", Duration::from_secs(10)));
}

/// Where keys come fast, a worker that finds none looks again before it waits, and nobody else is woken meanwhile. When it goes away
/// instead, somebody else has to be.
#[tokio::test(start_paused = true)]
async fn a_worker_that_was_about_to_look_again_does_not_take_the_news_along() {
    let queue = queue();
    for _ in 0..100 {
        queue.add("warm");
        queue.try_get().unwrap().done();
    }
    let mut about_to_look = Box::pin(queue.get());
    assert!(futures::poll!(about_to_look.as_mut()).is_pending());
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move { *get(&queue).await }
    });
    settle().await;
    queue.add("a");
    settle().await;
    assert!(!waiting.is_finished(), "one that looks anyway is enough for one key");
    drop(about_to_look);
    assert_eq!(waiting.await.unwrap(), "a");
}

/// A task that was woken may be held up by the thread it is to run on: the more keys lie there, the more are woken.
#[tokio::test(start_paused = true)]
async fn a_worker_that_is_held_up_on_its_way_does_not_hold_up_the_others() {
    let queue = queue();
    let mut held_up = Box::pin(queue.get());
    assert!(futures::poll!(held_up.as_mut()).is_pending());
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
    assert_eq!(timeout(LONG, waiting).await.unwrap().unwrap(), "a", "three of four were not polled");
}

#[tokio::test(start_paused = true)]
async fn what_is_to_come_can_be_seen_and_taken_back() {
    let queue = queue();
    queue.add_after("a", Duration::from_secs(1));
    queue.add_after("b", Duration::from_secs(2));
    assert_eq!(queue.delayed(), [("a", Duration::from_secs(1)), ("b", Duration::from_secs(2))]);
    assert!(queue.cancel(&"a"));
    let begun = Instant::now();
    let lease = get(&queue).await;
    assert_eq!((*lease, begun.elapsed()), ("b", Duration::from_secs(2)));
    tokio::time::advance(Duration::from_secs(5)).await;
    assert_eq!(queue.held(), [("b", Duration::from_secs(5))]);
    assert_eq!(queue.metrics().longest_running, Duration::from_secs(5));
}

// A restart's initial list never starves fresh changes.
#[tokio::test(start_paused = true)]
async fn wq_9_fresh_changes_come_before_what_was_there() {
    let queue = WorkQueue::new();
    for number in 0..1_000 {
        queue.add_with(number, Priority::INITIAL);
    }
    queue.add(5_000);
    queue.add(7);
    let first: Vec<i32> = std::iter::from_fn(|| queue.try_get())
        .take(4)
        .map(|lease| {
            let key = *lease;
            lease.done();
            key
        })
        .collect();
    assert_eq!(first, [5_000, 7, 0, 1]);
}

#[tokio::test(start_paused = true)]
async fn wq_7_a_shutdown_ends_those_who_wait() {
    let queue = queue();
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.get().await.is_none() })
        })
        .collect();
    settle().await;
    queue.shut_down();
    for worker in waiting {
        assert!(worker.await.unwrap());
    }
    queue.add("late");
    assert!(queue.get().await.is_none());
}

/// client-go's drain ignores what is queued, and of two who wait for it one may wait for ever (W-34).
#[tokio::test(start_paused = true)]
async fn wq_8_a_drain_waits_for_all_and_wakes_all_who_wait_for_it() {
    let queue = queue();
    for key in ["a", "b", "c"] {
        queue.add(key);
    }
    queue.add_after("later", Duration::from_secs(1));
    let held = get(&queue).await;
    let drains: Vec<_> = (0..2)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.drain(LONG).await })
        })
        .collect();
    settle().await;
    assert!(drains.iter().all(|drain| !drain.is_finished()));
    held.retry();
    while let Some(lease) = queue.get().await {
        assert!(drains.iter().all(|drain| !drain.is_finished()), "{} is still being worked on", *lease);
        settle().await;
        lease.done();
    }
    for drain in drains {
        assert_eq!(drain.await.unwrap(), Ok(()));
    }
    assert_eq!(queue.metrics().dropped, 2, "what failed and what was to come later");
}

#[tokio::test(start_paused = true)]
async fn a_drain_may_wait_for_delays_too_and_says_what_is_left_at_its_deadline() {
    let queue = queue();
    queue.add("a");
    queue.add("b");
    queue.add_after("later", Duration::from_mins(1));
    let held = get(&queue).await;
    let error = queue.drain_with_delays(Duration::from_secs(5)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the work queue is not drained after 5s: 1 queued, 1 being worked on, 1 to come"
    );
    held.retry();
    let worker = async {
        let mut keys = Vec::new();
        while let Some(lease) = queue.get().await {
            keys.push(*lease);
            lease.done();
        }
        keys
    };
    let (drained, keys) = tokio::join!(queue.drain_with_delays(LONG), worker);
    assert_eq!((drained, keys), (Ok(()), vec!["b", "a", "later"]));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_at_once_leaves_the_rest() {
    let queue = queue();
    queue.add("a");
    queue.add("b");
    let held = get(&queue).await;
    queue.shut_down_now();
    assert!(queue.get().await.is_none());
    assert_eq!(queue.drain(Duration::ZERO).await.unwrap_err().held, 1);
    held.done();
    assert_eq!(queue.drain(Duration::ZERO).await, Ok(()));
}

/// What every key went through: how often it was added when its last turn began, and who holds it.
#[derive(Debug, Default, Clone)]
struct Seen {
    adds: u64,
    begun_at: u64,
    held: bool,
}

// C14: random workers that finish, fail, are cancelled and hang for a while; random adds and delays. Nobody shares a key, and after the
// last add of each key there is a turn.
#[tokio::test(start_paused = true)]
async fn random_workers_lose_no_key_and_share_none() {
    for seed in 0..60 {
        let queue: WorkQueue<u64> = WorkQueue::with_limiter(Exponential::new(MILLI, 20 * MILLI));
        let seen: Arc<Mutex<BTreeMap<u64, Seen>>> = Arc::default();
        let workers: Vec<_> = (0..4)
            .map(|worker| {
                let (queue, seen) = (queue.clone(), seen.clone());
                let mut random = Random::new(seed * 10 + worker);
                tokio::spawn(async move {
                    loop {
                        // Waiting is given up at random: a key that was on its way must not be lost.
                        let patience = MILLI * u32::try_from(random.below(5)).unwrap();
                        let lease = match timeout(patience, queue.get()).await {
                            Err(_) => continue,
                            Ok(None) => return,
                            Ok(Some(lease)) => lease,
                        };
                        {
                            let mut seen = seen.lock().unwrap();
                            let seen = seen.entry(*lease).or_default();
                            assert!(!seen.held, "seed {seed}: two hold {}", *lease);
                            (seen.held, seen.begun_at) = (true, seen.adds);
                        }
                        tokio::time::advance(MILLI * u32::try_from(random.below(4)).unwrap()).await;
                        seen.lock().unwrap().entry(*lease).or_default().held = false;
                        match random.below(6) {
                            0 => drop(lease),
                            1 => {
                                lease.retry();
                            }
                            2 => lease.retry_after(MILLI),
                            _ => lease.done(),
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
                1 => queue.add_with(key, Priority(-1)),
                _ => queue.add(key),
            }
            if random.below(4) == 0 {
                tokio::time::advance(MILLI).await;
            }
            tokio::task::yield_now().await;
        }
        queue.drain_with_delays(LONG).await.unwrap();
        for worker in workers {
            worker.await.unwrap();
        }
        for (key, seen) in seen.lock().unwrap().iter() {
            assert_eq!(
                (seen.begun_at, seen.held),
                (seen.adds, false),
                "seed {seed}: no turn after the last add of {key}"
            );
        }
    }
}
