//! Simulations of a controller whose server is down, in virtual time: the queue with and without the retry
//! limit, workers that take a fixed time per key, and a server that rejects everything for a while.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::*;
use crate::time::Moment;

fn at(millis: u64) -> Moment {
    Moment::at(Duration::from_millis(millis))
}

/// Workers in virtual time, in steps of a millisecond.
struct Simulation {
    queue: Queue<u32>,
    workers: usize,
    now: u64,
    /// The end of each running attempt, in order, with its key and token.
    running: VecDeque<(u64, u32, WorkToken)>,
    /// When each attempt of a key started.
    starts: BTreeMap<u32, Vec<u64>>,
    /// The starts of retries within the last second.
    recent_retries: VecDeque<u64>,
    max_retries_per_second: usize,
    /// When each key succeeded for the first time.
    succeeded: BTreeMap<u32, u64>,
}

impl Simulation {
    /// Without a limit, the queue that controllers had before. With one, the default of controllers.
    fn new(workers: usize, is_limited: bool) -> Self {
        let mut queue = Queue::new(ExponentialBackoff::default());
        if is_limited {
            queue = queue.with_retry_limit(RetryLimit::default().or_max_processing(workers / 2));
        }
        Simulation {
            queue,
            workers,
            now: 0,
            running: VecDeque::new(),
            starts: BTreeMap::new(),
            recent_retries: VecDeque::new(),
            max_retries_per_second: 0,
            succeeded: BTreeMap::new(),
        }
    }

    fn add(&mut self, keys: std::ops::Range<u32>) {
        keys.for_each(|key| {
            self.queue.add(at(self.now), key, Priority::NORMAL);
        });
    }

    /// Runs until a moment. `attempt` returns how long an attempt of a key takes that starts now, and `is_up`
    /// whether one that ends now succeeds.
    fn run(&mut self, until: u64, attempt: impl Fn(u32) -> u64, is_up: impl Fn(u32, u64) -> bool) {
        while self.now < until {
            let now = self.now;
            let running = std::mem::take(&mut self.running);
            for (end, key, token) in running {
                if end > now {
                    self.running.push_back((end, key, token));
                } else if is_up(key, now) {
                    self.queue.done(at(now), token).unwrap();
                    self.succeeded.entry(key).or_insert(now);
                } else {
                    self.queue.retry(at(now), token).unwrap();
                }
            }
            while self.running.len() < self.workers
                && let Some(taken) = self.queue.take(at(now))
            {
                self.starts.entry(taken.key).or_default().push(now);
                if self.queue.retries(&taken.key) > 0 {
                    self.recent_retries.push_back(now);
                }
                self.running.push_back((now + attempt(taken.key), taken.key, taken.token));
            }
            while self.recent_retries.front().is_some_and(|start| start + 1_000 <= now) {
                self.recent_retries.pop_front();
            }
            self.max_retries_per_second = self.max_retries_per_second.max(self.recent_retries.len());
            self.now += 1;
        }
    }

    /// When the last key succeeded, if `keys` have.
    fn all_succeeded_at(&self, keys: usize) -> Option<u64> {
        self.succeeded.values().max().copied().filter(|_| self.succeeded.len() == keys)
    }
}

/// Regression: 5,000 keys that failed while the server was down caused 3,000 requests per second in the first
/// ten seconds, because only each key was limited. Tests used few keys.
#[test]
fn thousands_of_failing_keys_are_limited_and_recover_quickly() {
    const OUTAGE: u64 = 300_000;
    for (workers, attempt, plain_rate) in [(1, 5, 190), (16, 20, 700), (64, 20, 2_500)] {
        let run = |is_limited| {
            let mut simulation = Simulation::new(workers, is_limited);
            simulation.add(0..5_000);
            simulation.run(OUTAGE, |_| attempt, |_, _| false);
            let retries = simulation.max_retries_per_second;
            simulation.run(OUTAGE + 60_000, |_| attempt, |_, _| true);
            (retries, simulation.all_succeeded_at(5_000))
        };
        let (retries, recovered_at) = run(true);
        assert!(retries <= 100, "{workers} workers: {retries} retries per second");
        let recovery = recovered_at.map(|at| at - OUTAGE);
        assert!(recovery.is_some_and(|recovery| recovery <= 60_000), "{workers} workers: {recovery:?} ms");
        let (retries, _) = run(false);
        assert!(retries >= plain_rate, "without the limit, {workers} workers: {retries} retries per second");
    }
}

/// Ten keys fail for a minute: with the limit, each attempt starts at most 100 ms later than without.
#[test]
fn few_failing_keys_are_hardly_delayed() {
    let starts = |is_limited| {
        let mut simulation = Simulation::new(4, is_limited);
        simulation.add(0..10);
        simulation.run(60_000, |_| 2, |_, _| false);
        simulation.starts
    };
    let (plain, limited) = (starts(false), starts(true));
    for (key, plain) in &plain {
        assert_eq!(limited[key].len(), plain.len(), "the same number of attempts");
        let delays = limited[key].iter().zip(plain).map(|(limited, plain)| limited.saturating_sub(*plain));
        assert!(delays.max() <= Some(100), "{key}: {plain:?}, limited {:?}", limited[key]);
    }
}

/// Keys that time out after five seconds occupy half of the workers, and others start immediately.
#[test]
fn healthy_keys_proceed_at_full_speed() {
    let max_delay = |is_limited| {
        let mut simulation = Simulation::new(8, is_limited);
        let attempt = |key| if key < 200 { 5_000 } else { 10 };
        simulation.add(0..200);
        // Until the first attempts, which are not limited, have ended.
        simulation.run(150_000, attempt, |_, _| false);
        let mut added = BTreeMap::new();
        for key in 200..5_200 {
            added.insert(key, simulation.now);
            simulation.add(key..key + 1);
            simulation.run(simulation.now + 10, attempt, |key, _| key >= 200);
        }
        simulation.run(simulation.now + 200_000, attempt, |key, _| key >= 200);
        assert_eq!(simulation.succeeded.len(), 5_000);
        added.iter().map(|(key, added)| simulation.starts[key][0] - added).max()
    };
    let limited = max_delay(true);
    assert!(limited <= Some(1), "{limited:?} ms");
    let plain = max_delay(false);
    assert!(plain > Some(5_000), "without the limit: {plain:?} ms");
}

/// After an outage of 15 minutes, keys have delays of up to ten minutes. All are retried within 30 s of the
/// first success. A key that fails for another reason is retried once more and keeps its next delay.
#[test]
fn remaining_delays_shrink_after_the_first_success() {
    const OUTAGE: u64 = 900_000;
    let mut simulation = Simulation::new(8, true);
    // At different times, so that the delays end at different times too.
    for key in 0..100 {
        simulation.add(key..key + 1);
        simulation.run(simulation.now + 3_000, |_| 5, |_, _| false);
    }
    simulation.run(OUTAGE, |_| 5, |_, _| false);
    let longest = simulation.queue.delayed().map(|(_, due)| due - at(OUTAGE)).max().unwrap();
    assert!(longest > Duration::from_secs(240), "{longest:?}");
    let (broken, due) =
        simulation.queue.delayed().max_by_key(|(_, due)| *due).map(|(key, due)| (*key, due)).unwrap();
    let failures = simulation.queue.retries(&broken);
    let is_up = |key, _| key != broken;
    while simulation.succeeded.is_empty() {
        simulation.run(simulation.now + 1, |_| 5, is_up);
    }
    simulation.run(simulation.now + 30_010, |_| 5, is_up);
    assert_eq!(simulation.succeeded.len(), 99);
    let attempts: Vec<u64> =
        simulation.starts[&broken].iter().copied().filter(|start| *start > OUTAGE).collect();
    assert_eq!(attempts.len(), 1, "{attempts:?}");
    assert_eq!(simulation.queue.retries(&broken), failures, "the failure before the delay does not count");
    assert_eq!(simulation.queue.delayed().collect::<Vec<_>>(), [(&broken, due)]);
}

/// Keys that fail permanently while others succeed are limited too, and do not profit from the others.
#[test]
fn successes_of_other_keys_do_not_raise_the_limit() {
    let mut simulation = Simulation::new(16, true);
    simulation.add(0..5_000);
    for key in 5_000..8_000 {
        simulation.add(key..key + 1);
        simulation.run(simulation.now + 10, |_| 5, |key, _| key >= 5_000);
    }
    assert_eq!(simulation.succeeded.len(), 3_000);
    assert!(simulation.max_retries_per_second <= 100, "{}", simulation.max_retries_per_second);
}

#[test]
fn due_retries_wait_for_the_limit_and_adds_do_not() {
    let limit = RetryLimit::new(10.0, 1).max_processing(1);
    let mut queue = Queue::new(FastSlow::new(Duration::ZERO, Duration::ZERO, 0)).with_retry_limit(limit);
    let taken = ["a", "b", "c"].map(|key| {
        queue.add(at(0), key, Priority::NORMAL);
        queue.take(at(0)).unwrap().token
    });
    for token in taken {
        queue.retry(at(0), token).unwrap();
    }
    let retry = queue.take(at(0)).unwrap();
    assert_eq!((retry.key, queue.take(at(1_000)).map(|taken| taken.key)), ("a", None), "one at a time");
    assert_eq!((queue.next_deadline(), queue.metrics(at(0)).delayed), (None, 2));
    queue.add(at(1_000), "b", Priority::NORMAL);
    let added = queue.take(at(1_000)).expect("an event is not limited");
    queue.done(at(1_000), added.token).unwrap();
    assert!(queue.take(at(1_000)).is_none(), "its success is not that of a retry");
    assert!(queue.cancel(&"c") && !queue.cancel(&"c"), "held retries can be cancelled");
    queue.add_rate_limited(at(1_000), "c", Priority::NORMAL);
    queue.retry(at(1_000), retry.token).unwrap();
    assert_eq!(queue.take(at(1_000)).unwrap().key, "c", "in the order in which they became due");
    queue.shutdown_now();
    assert_eq!(queue.metrics(at(1_000)).dropped, 1);
    queue.check_invariants();
}

/// Regression: a worker that gave up a key had to finish it as succeeded, so during an outage of the server the
/// first key that was given up ended the outage for the retry limit, and all delays were shortened. There was
/// no other way to forget the failures of a key, and tests gave up no key.
#[test]
fn key_that_is_given_up_is_no_success() {
    let check = |end: fn(&mut Queue<u32>, Moment, WorkToken) -> Result<(), StaleToken>| {
        let limiter = ExponentialBackoff::new(Duration::from_secs(6), Duration::from_secs(600));
        let mut queue = Queue::new(limiter).with_retry_limit(RetryLimit::default());
        // The delays are 6, 12, 24 and 48 seconds.
        for now in [0, 6_000, 18_000, 42_000] {
            queue.add(at(now), 1, Priority::NORMAL);
            let taken = queue.take(at(now)).unwrap();
            queue.retry(at(now), taken.token).unwrap();
        }
        queue.add(at(43_000), 2, Priority::NORMAL);
        queue.add_rate_limited(at(43_000), 2, Priority::NORMAL);
        let taken = queue.take(at(43_000)).unwrap();
        assert_eq!((taken.key, queue.retries(&2)), (2, 1));
        end(&mut queue, at(43_000), taken.token).unwrap();
        assert_eq!(queue.retries(&2), 0, "the failures are forgotten");
        let delay = queue.delayed().find(|(key, _)| **key == 1).map(|(_, due)| due - at(43_000));
        delay.expect("key 1 is delayed").as_secs()
    };
    assert_eq!(check(Queue::give_up), 47);
    assert_eq!(check(Queue::done), 30);
}
