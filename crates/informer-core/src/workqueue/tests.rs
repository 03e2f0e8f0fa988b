//! Tests of the queue: each numbered rule of client-go's queue, and random operations compared with a
//! reference model.

use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::random::Random;
use crate::time::Moment;

const NORMAL: Priority = Priority::NORMAL;

fn at(millis: u64) -> Moment {
    Moment::at(Duration::from_millis(millis))
}

fn queue() -> Queue<&'static str> {
    Queue::new(ExponentialBackoff::new(Duration::from_millis(10), Duration::from_secs(1)))
}

fn take(queue: &mut Queue<&'static str>) -> TakenKey<&'static str> {
    queue.take(at(0)).expect("a key is queued")
}

fn keys(queue: &mut Queue<&'static str>, now: Moment) -> Vec<&'static str> {
    let mut keys = Vec::new();
    while let Some(taken) = queue.take(now) {
        keys.push(taken.key);
        queue.done(now, taken.token).unwrap();
    }
    keys
}

#[test]
fn wq_2_repeated_adds_are_coalesced() {
    let mut queue = queue();
    assert!(queue.add(at(0), "a", NORMAL));
    assert!(!queue.add(at(0), "a", NORMAL));
    assert_eq!(keys(&mut queue, at(0)), ["a"]);
    assert_eq!(queue.metrics(at(0)).adds, 1);
}

#[test]
fn wq_3_queued_keys_can_be_taken_during_shutdown() {
    let mut queue = queue();
    queue.add(at(0), "a", NORMAL);
    queue.shutdown();
    assert!(!queue.is_over());
    assert!(!queue.add(at(0), "b", NORMAL), "new keys are rejected");
    assert_eq!(keys(&mut queue, at(0)), ["a"]);
    assert!(queue.is_over() && queue.take(at(0)).is_none());
}

#[test]
fn wq_4_processing_is_finished_once() {
    let mut queue = queue();
    queue.add(at(0), "a", NORMAL);
    let first = take(&mut queue);
    queue.done(at(0), first.token).unwrap();
    assert_eq!(queue.done(at(0), first.token), Err(StaleToken));
    queue.add(at(0), "a", NORMAL);
    assert_eq!(queue.done(at(0), first.token), Err(StaleToken), "the key is queued, not processing");
    let second = take(&mut queue);
    assert_eq!(queue.retry(at(0), first.token), Err(StaleToken), "an old token is stale");
    queue.done(at(0), second.token).unwrap();
}

// C14
#[test]
fn wq_5_adds_during_processing_cause_one_more_processing() {
    let mut queue = queue();
    queue.add(at(0), "a", NORMAL);
    let item = take(&mut queue);
    for _ in 0..3 {
        assert!(!queue.add(at(0), "a", NORMAL));
    }
    assert!(queue.take(at(0)).is_none(), "a key is processed by one worker at a time");
    queue.add(at(0), "b", NORMAL);
    queue.done(at(0), item.token).unwrap();
    assert_eq!(keys(&mut queue, at(0)), ["b", "a"], "the key is queued once, at the end");
}

#[test]
fn wq_6_length_counts_keys_that_can_be_taken() {
    let mut queue = queue();
    queue.add(at(0), "a", NORMAL);
    let item = take(&mut queue);
    queue.add(at(0), "a", NORMAL);
    queue.add(at(0), "b", NORMAL);
    queue.add_after(at(0), "c", Duration::from_secs(1), NORMAL);
    assert_eq!(queue.len(), 1);
    assert_eq!(queue.metrics(at(0)).depth, 2, "client-go's gauge also counts keys added again (WM-2)");
    queue.done(at(0), item.token).unwrap();
    assert_eq!(queue.len(), 2);
}

#[test]
fn wq_7_shutdown_does_not_wait_and_drops_delayed_keys() {
    let mut queue = queue();
    queue.add(at(0), "a", NORMAL);
    let item = take(&mut queue);
    queue.add_after(at(0), "b", Duration::from_secs(1), NORMAL);
    queue.shutdown();
    assert!(queue.is_over() && !queue.is_drained(), "one key is still processing");
    assert_eq!(queue.next_deadline(), None);
    queue.retry(at(0), item.token).unwrap();
    assert!(queue.is_drained(), "a failure during shutdown is not retried");
    assert_eq!(queue.metrics(at(0)).dropped, 2);
}

/// client-go's drain waits only for processing keys: if keys are queued and none is processing, it returns
/// immediately.
#[test]
fn wq_8_queue_is_drained_when_no_key_is_queued_processing_or_delayed() {
    let mut queue = queue();
    queue.add(at(0), "a", NORMAL);
    queue.add_after(at(0), "b", Duration::from_millis(5), NORMAL);
    queue.shutdown_including_delayed();
    assert!(!queue.is_drained() && !queue.is_over());
    let item = take(&mut queue);
    assert!(!queue.is_drained());
    queue.retry(at(0), item.token).unwrap();
    assert!(!queue.is_over(), "both keys are delayed");
    assert_eq!(queue.next_deadline(), Some(at(5)));
    assert_eq!(keys(&mut queue, at(20)), ["b", "a"]);
    assert!(queue.is_drained() && queue.is_over());
}

#[test]
fn wq_8_key_added_again_before_a_shutdown_is_processed_once_more() {
    let mut queue = queue();
    queue.add(at(0), "a", NORMAL);
    let item = take(&mut queue);
    queue.add(at(0), "a", NORMAL);
    queue.shutdown();
    assert!(!queue.is_over());
    queue.done(at(0), item.token).unwrap();
    assert_eq!(keys(&mut queue, at(0)), ["a"]);
}

#[test]
fn shutdown_now_drops_keys_that_are_not_processing() {
    let mut queue = queue();
    for key in ["a", "b", "c"] {
        queue.add(at(0), key, NORMAL);
    }
    let item = take(&mut queue);
    queue.add(at(0), "a", NORMAL);
    queue.shutdown_now();
    assert!(queue.is_over() && queue.take(at(0)).is_none());
    queue.done(at(0), item.token).unwrap();
    assert!(queue.is_drained());
    assert_eq!(queue.metrics(at(0)).dropped, 3);
}

#[test]
fn wq_9_higher_priorities_are_taken_first_and_equal_ones_in_order() {
    let mut queue = queue();
    for (key, priority) in [
        ("old 1", Priority::INITIAL),
        ("new 1", NORMAL),
        ("old 2", Priority::INITIAL),
        ("urgent", Priority(5)),
        ("new 2", NORMAL),
    ] {
        queue.add(at(0), key, priority);
    }
    assert!(!queue.add(at(0), "old 2", NORMAL), "the priority is raised and no key is added");
    assert!(!queue.add(at(0), "new 1", Priority::INITIAL), "the priority is never lowered");
    assert_eq!(queue.queued().copied().collect::<Vec<_>>(), ["urgent", "new 1", "new 2", "old 2", "old 1"]);
    assert_eq!(keys(&mut queue, at(0)), ["urgent", "new 1", "new 2", "old 2", "old 1"]);
}

/// Regression: initial objects of a controller were never processed while three keys were added continuously.
#[test]
fn low_priority_keys_are_not_starved() {
    let mut queue = queue();
    queue.add(at(0), "old 1", Priority::INITIAL);
    queue.add(at(0), "old 2", Priority::INITIAL);
    let mut taken = Vec::new();
    for _ in 0..33 {
        queue.add(at(0), "busy", NORMAL);
        let item = take(&mut queue);
        taken.push(item.key);
        queue.done(at(0), item.token).unwrap();
    }
    let old: Vec<usize> = (0..33).filter(|index| taken[*index] != "busy").collect();
    assert_eq!((old, taken[15], taken[31]), (vec![15, 31], "old 1", "old 2"));
}

/// WQ-1: a key is queued only if it was added and is not processing.
#[test]
fn wq_1_queued_key_was_added_and_is_not_processing() {
    let mut queue = queue();
    queue.add(at(0), "a", NORMAL);
    assert_eq!((queue.len(), queue.processing().count()), (1, 0));
    let item = take(&mut queue);
    queue.add(at(0), "a", NORMAL);
    assert_eq!((queue.len(), queue.processing().count(), queue.metrics(at(0)).depth), (0, 1, 1));
    queue.done(at(0), item.token).unwrap();
    assert_eq!((queue.len(), queue.processing().count()), (1, 0));
}

#[test]
fn wq_10_finished_key_is_released() {
    let mut queue = Queue::new(ExponentialBackoff::default());
    let key = std::sync::Arc::new(());
    queue.add(at(0), key.clone(), NORMAL);
    let first = queue.take(at(0)).unwrap().token;
    queue.retry(at(0), first).unwrap();
    let second = queue.take(at(50)).unwrap().token;
    queue.done(at(50), second).unwrap();
    assert_eq!(std::sync::Arc::strong_count(&key), 1, "neither queue nor limiter keeps the key (RL-7)");
}

#[test]
fn dq_1_zero_delay_is_an_add_and_each_delay_counts_as_a_retry() {
    let mut queue = queue();
    assert!(queue.add_after(at(0), "a", Duration::ZERO, NORMAL));
    assert!(!queue.add_after(at(0), "b", Duration::from_millis(1), NORMAL));
    assert_eq!((queue.len(), queue.metrics(at(0)).retries), (1, 2));
    queue.shutdown();
    assert!(!queue.add_after(at(0), "c", Duration::ZERO, NORMAL));
    assert_eq!(queue.metrics(at(0)).retries, 2);
}

#[test]
fn dq_2_earlier_moment_is_used() {
    let mut queue = queue();
    queue.add_after(at(0), "a", Duration::from_millis(50), NORMAL);
    queue.add_after(at(0), "a", Duration::from_millis(80), NORMAL);
    assert_eq!(queue.next_deadline(), Some(at(50)), "a delay is never extended");
    queue.add_after(at(0), "a", Duration::from_millis(20), NORMAL);
    assert_eq!(queue.next_deadline(), Some(at(20)));
    assert_eq!(keys(&mut queue, at(100)), ["a"], "the key is queued once");
    assert_eq!(keys(&mut queue, at(100)), [""; 0]);
}

#[test]
fn dq_3_delayed_keys_are_queued_by_due_time_then_in_order() {
    let mut queue = queue();
    for (key, millis) in [("d", 30), ("a", 10), ("b", 20), ("c", 20)] {
        queue.add_after(at(0), key, Duration::from_millis(millis), NORMAL);
    }
    assert_eq!(queue.handle_timeout(at(9)), 0);
    assert_eq!(keys(&mut queue, at(10)), ["a"]);
    assert_eq!(keys(&mut queue, at(30)), ["b", "c", "d"]);
}

#[test]
fn dq_3_due_key_is_coalesced_with_its_queued_or_processing_state() {
    let mut queue = queue();
    queue.add(at(0), "a", NORMAL);
    queue.add_after(at(0), "a", Duration::from_millis(5), NORMAL);
    assert_eq!(queue.handle_timeout(at(5)), 0, "the key is already queued");
    let item = queue.take(at(5)).unwrap();
    queue.add_after(at(5), "a", Duration::from_millis(5), NORMAL);
    assert!(queue.take(at(10)).is_none());
    queue.done(at(10), item.token).unwrap();
    assert_eq!(keys(&mut queue, at(10)), ["a"]);
}

#[test]
fn dq_4_add_keeps_a_delay_and_cancel_removes_it() {
    let mut queue = queue();
    queue.add_after(at(0), "a", Duration::from_millis(5), NORMAL);
    queue.add(at(0), "a", NORMAL);
    assert_eq!(keys(&mut queue, at(0)), ["a"]);
    assert_eq!(keys(&mut queue, at(5)), ["a"]);
    queue.add_after(at(5), "a", Duration::from_millis(5), NORMAL);
    queue.add_after(at(5), "b", Duration::from_millis(9), NORMAL);
    let mut delayed: Vec<_> = queue.delayed().collect();
    delayed.sort();
    assert_eq!(delayed, [(&"a", at(10)), (&"b", at(14))], "delayed keys can be listed");
    assert!(queue.cancel(&"a") && !queue.cancel(&"a") && !queue.cancel(&"z"));
    assert_eq!(keys(&mut queue, at(20)), ["b"]);
}

#[test]
fn dq_6_shutdown_drops_delayed_keys_for_good() {
    let mut queue = queue();
    queue.add_after(at(0), "a", Duration::from_millis(5), NORMAL);
    queue.shutdown();
    assert_eq!((queue.next_deadline(), queue.take(at(100)).map(|taken| taken.key)), (None, None));
    queue.shutdown_including_delayed();
    assert!(queue.is_drained(), "dropped keys are not restored");
}

#[test]
fn rl_1_retry_is_delayed_and_done_resets_failures() {
    let mut queue = queue();
    queue.add(at(0), "a", NORMAL);
    for (retries, delay, now) in [(1, 10, 0), (2, 20, 10), (3, 40, 30)] {
        let taken = queue.take(at(now)).expect("the key is due");
        assert_eq!(queue.retry(at(now), taken.token), Ok(Duration::from_millis(delay)));
        assert_eq!(queue.retries(&"a"), retries);
        assert!(queue.take(at(now + delay - 1)).is_none());
    }
    let taken = queue.take(at(70)).unwrap();
    queue.done(at(70), taken.token).unwrap();
    assert_eq!(queue.retries(&"a"), 0);
    queue.add_rate_limited(at(70), "a", NORMAL);
    assert_eq!(queue.next_deadline(), Some(at(80)));
}

/// Regression (kubernetes/kubernetes#132805): a key whose object changed every 100 ms while its reconciles
/// failed had a delay of 1,000 s after two seconds, as if it had failed for half an hour. Every failure
/// counted, also of attempts that an event had caused before the delay had passed. The tests of retries
/// always took a key when it was due.
#[test]
fn early_trigger_does_not_extend_the_delay() {
    let mut queue = queue();
    queue.add(at(0), "a", NORMAL);
    let fail = |queue: &mut Queue<&str>, now: u64| {
        let taken = queue.take(at(now)).expect("the key is queued");
        // As a controller does: the attempt replaces the delayed one.
        queue.cancel(&"a");
        queue.retry(at(now), taken.token).unwrap()
    };
    assert_eq!(fail(&mut queue, 0), Duration::from_millis(10));
    for now in [1, 3, 9] {
        queue.add(at(now), "a", NORMAL);
        assert_eq!(fail(&mut queue, now), Duration::from_millis(10 - now), "due at 10 as before");
        assert_eq!(queue.retries(&"a"), 1, "the failure does not count");
    }
    queue.add_rate_limited(at(9), "a", NORMAL);
    assert_eq!((queue.retries(&"a"), queue.next_deadline()), (1, Some(at(10))));
    assert!(queue.take(at(9)).is_none());
    assert_eq!(fail(&mut queue, 10), Duration::from_millis(20), "the retry itself counts");
    queue.add(at(11), "a", NORMAL);
    let taken = queue.take(at(11)).unwrap();
    assert_eq!(queue.retry(at(30), taken.token), Ok(Duration::from_millis(40)), "it failed after the delay");
    queue.forget(&"a");
    queue.add(at(31), "a", NORMAL);
    assert_eq!(fail(&mut queue, 31), Duration::from_millis(10), "forgetting also ends the delay");
}

/// With an event every 100 ms for ten minutes, the delays are those of a key without events.
#[test]
fn events_do_not_change_the_delays_of_a_failing_key() {
    let delays = |event_period: Option<u64>| {
        let mut queue: Queue<u8> = Queue::new(ExponentialBackoff::default());
        queue.add(at(0), 0, NORMAL);
        let mut delays = Vec::new();
        for now in 0..600_000 {
            if event_period.is_some_and(|period| now % period == 0) {
                queue.add(at(now), 0, NORMAL);
            }
            while let Some(taken) = queue.take(at(now)) {
                let before = queue.retries(&0);
                queue.cancel(&0);
                let delay = queue.retry(at(now), taken.token).unwrap();
                if queue.retries(&0) > before {
                    delays.push(delay);
                }
            }
        }
        delays
    };
    let expected = delays(None);
    assert_eq!((expected.len(), delays(Some(100)), delays(Some(7))), (17, expected.clone(), expected));
}

#[test]
fn abandoned_key_is_retried_and_counted() {
    let mut queue = queue();
    queue.add(at(0), "a", NORMAL);
    let taken = take(&mut queue);
    assert_eq!(queue.abandon(at(0), taken.token), Ok(Duration::from_millis(10)));
    assert_eq!(queue.metrics(at(0)).abandoned, 1);
    assert_eq!(keys(&mut queue, at(10)), ["a"]);
}

#[test]
fn wm_2_durations_start_at_the_first_add_and_at_the_take() {
    let mut queue = queue();
    queue.add(at(0), "a", NORMAL);
    queue.add(at(5), "a", NORMAL);
    queue.add(at(10), "b", NORMAL);
    let a = queue.take(at(20)).unwrap();
    let _b = queue.take(at(30)).unwrap();
    let metrics = queue.metrics(at(50));
    assert_eq!(metrics.queue_duration.sum(), Duration::from_millis(40));
    assert_eq!(
        (metrics.unfinished_work, metrics.longest_running),
        (Duration::from_millis(50), Duration::from_millis(30))
    );
    assert_eq!(queue.processing().next(), Some((&"a", at(20))));
    queue.done(at(60), a.token).unwrap();
    let metrics = queue.metrics(at(60));
    assert_eq!((metrics.work_duration.sum(), metrics.work_duration.count()), (Duration::from_millis(40), 1));
    assert_eq!(metrics.unfinished_work, Duration::from_millis(30));
    let below = |millis: u64| {
        metrics.work_duration.buckets().find(|(bound, _)| *bound == Duration::from_millis(millis)).unwrap().1
    };
    assert_eq!((below(10), below(100)), (0, 1));
}

/// Regression: when a user's limiter panicked, its key stayed processing forever.
#[test]
fn panicking_limiter_does_not_lose_the_key() {
    #[derive(Debug)]
    struct PanickingLimiter;
    impl RateLimiter<u8> for PanickingLimiter {
        fn when(&mut self, _: Moment, _: &u8) -> Duration {
            panic!("deliberate panic")
        }
        fn forget(&mut self, _: &u8) {}
        fn retries(&self, _: &u8) -> u32 {
            0
        }
    }
    let mut queue = Queue::new(PanickingLimiter);
    queue.add(at(0), 1, NORMAL);
    let item = queue.take(at(0)).unwrap();
    assert_eq!(queue.retry(at(0), item.token), Ok(Duration::from_secs(1)));
    assert!(queue.take(at(999)).is_none());
    assert_eq!(queue.take(at(1_000)).unwrap().key, 1);
}

/// RL-6: 5 ms to 1,000 s, for each key separately.
#[test]
fn rl_6_default_limiter_has_no_bucket_shared_by_all_keys() {
    let mut limiter = ExponentialBackoff::default();
    for key in 0..1_000 {
        assert_eq!(limiter.when(at(0), &key), Duration::from_millis(5));
    }
    let delays: Vec<Duration> = (0..30).map(|_| limiter.when(at(0), &0)).collect();
    assert!(delays.is_sorted());
    assert_eq!((delays[0], delays[29]), (Duration::from_millis(10), Duration::from_secs(1_000)));
}

/// The reference model: a simple queue that stores each key in plain vectors and maps.
#[derive(Debug, Default)]
struct ReferenceModel {
    /// Key and priority, in the order in which the keys were added.
    queued: Vec<(u8, i32)>,
    /// The processing keys, with the priority of the key if it was added again.
    processing: BTreeMap<u8, Option<i32>>,
    /// Due time, number of the delay, key, priority, and whether it is a retry.
    delayed: Vec<(u64, u64, u8, i32, bool)>,
    count: u64,
    open: bool,
    keeps_delayed: bool,
    takes_without_low: u32,
    /// Number of counted failures of each key, and when it is due after the last one.
    failures: BTreeMap<u8, (u32, u64)>,
    limit: Option<LimitModel>,
}

/// The model of a limit of 100 retries per second after a burst of two, at most two of them at a time.
#[derive(Debug, Default)]
struct LimitModel {
    /// Retries that are due, in order.
    held: Vec<u8>,
    /// Keys that are queued or processing as retries.
    active: Vec<u8>,
    /// Time until the bucket is full, as of `last`; one token takes 10 ms.
    missing: u64,
    last: u64,
}

impl LimitModel {
    fn limit() -> RetryLimit {
        RetryLimit::new(100.0, 2).max_processing(2)
    }

    fn refill(&mut self, now: u64) {
        self.missing = self.missing.saturating_sub(now - self.last);
        self.last = now;
    }

    fn next_start(&self) -> Option<u64> {
        let waits = !self.held.is_empty() && self.active.len() < 2;
        waits.then(|| self.last + self.missing.saturating_sub(10))
    }

    fn end(&mut self, key: u8, now: u64, succeeded: bool) {
        let before = self.active.len();
        self.active.retain(|active| *active != key);
        if succeeded && self.active.len() < before {
            self.refill(now);
            self.missing = self.missing.saturating_sub(20);
        }
    }
}

impl ReferenceModel {
    /// Records a failure; returns the delay. Delays are 3, 6, 12 and then 20 ms.
    fn fail(&mut self, key: u8, now: u64) -> u64 {
        let (count, due) = self.failures.get(&key).copied().unwrap_or_default();
        if now < due {
            return due - now;
        }
        let delay = (3 << count.min(3)).min(20);
        self.failures.insert(key, (count + 1, now + delay));
        delay
    }

    fn enqueue(&mut self, key: u8, priority: i32) {
        if let Some(limit) = &mut self.limit {
            limit.held.retain(|held| *held != key);
        }
        if let Some(readded) = self.processing.get_mut(&key) {
            *readded = Some(readded.map_or(priority, |known| known.max(priority)));
        } else if let Some(position) = self.queued.iter().position(|(known, _)| *known == key) {
            if self.queued[position].1 < priority {
                self.queued.remove(position);
                self.queued.push((key, priority));
            }
        } else {
            self.queued.push((key, priority));
        }
    }

    fn delay(&mut self, key: u8, due: u64, priority: i32, is_retry: bool) {
        self.count += 1;
        let idle_priority =
            if self.processing.contains_key(&key) || self.queued.iter().any(|(known, _)| *known == key) {
                None
            } else {
                Some(priority)
            };
        match self.delayed.iter_mut().find(|(_, _, known, ..)| *known == key) {
            Some(known) => {
                if due < known.0 {
                    (known.0, known.1, known.4) = (due, self.count, is_retry);
                }
                if let Some(priority) = idle_priority {
                    known.3 = known.3.max(priority);
                }
            }
            None => self.delayed.push((due, self.count, key, priority, is_retry)),
        }
    }

    fn queue_due(&mut self, now: u64) {
        self.delayed.sort_unstable();
        while self.delayed.first().is_some_and(|(due, ..)| *due <= now) {
            let (_, _, key, priority, is_retry) = self.delayed.remove(0);
            let is_known =
                self.processing.contains_key(&key) || self.queued.iter().any(|(known, _)| *known == key);
            match &mut self.limit {
                Some(limit) if is_retry && !is_known => {
                    if !limit.held.contains(&key) {
                        limit.held.push(key);
                    }
                }
                _ => self.enqueue(key, priority),
            }
        }
        self.release_held(now);
    }

    fn release_held(&mut self, now: u64) {
        while let Some(limit) = &mut self.limit
            && let Some(key) = limit.held.first().copied()
        {
            limit.refill(now);
            if limit.active.len() == 2 || limit.missing > 10 {
                return;
            }
            limit.missing += 10;
            limit.active.push(key);
            self.enqueue(key, 0);
        }
    }

    fn take(&mut self, now: u64) -> Option<u8> {
        self.queue_due(now);
        let mut best = self.queued.iter().map(|(_, priority)| *priority).max()?;
        if let Some(below) = self.queued.iter().map(|(_, priority)| *priority).filter(|low| *low < 0).max() {
            self.takes_without_low += 1;
            if best == below || self.takes_without_low == 16 {
                (best, self.takes_without_low) = (below, 0);
            }
        }
        let position = self.queued.iter().position(|(_, priority)| *priority == best)?;
        let (key, _) = self.queued.remove(position);
        self.processing.insert(key, None);
        Some(key)
    }

    fn release(&mut self, key: u8, now: u64, succeeded: bool) {
        if let Some(limit) = &mut self.limit {
            limit.end(key, now, succeeded);
        }
        if let Some(Some(priority)) = self.processing.remove(&key) {
            self.queued.push((key, priority));
        }
        self.release_held(now);
    }
}

/// The queue, its reference model, and the tokens of the processing keys. Delayed keys have equal priorities,
/// which keeps the model simple.
struct Comparison {
    seed: u64,
    random: Random,
    queue: Queue<u8>,
    model: ReferenceModel,
    tokens: BTreeMap<u8, WorkToken>,
    now: u64,
}

impl Comparison {
    fn new(seed: u64) -> Self {
        let limiter = ExponentialBackoff::new(Duration::from_millis(3), Duration::from_millis(20));
        let mut model = ReferenceModel { open: true, ..ReferenceModel::default() };
        let mut queue = Queue::new(limiter);
        if seed % 2 == 1 {
            model.limit = Some(LimitModel::default());
            queue = queue.with_retry_limit(LimitModel::limit());
        }
        Comparison { seed, random: Random::new(seed), queue, model, tokens: BTreeMap::new(), now: 0 }
    }

    fn step(&mut self, late: bool) {
        let key = u8::try_from(self.random.below(6)).unwrap();
        match self.random.below(12) {
            0..4 => {
                self.queue.add(at(self.now), key, NORMAL);
                if self.model.open {
                    self.model.enqueue(key, 0);
                }
            }
            4..6 => self.delay(key),
            6..8 => {
                let taken = self.queue.take(at(self.now));
                assert_eq!(
                    taken.as_ref().map(|taken| taken.key),
                    self.model.take(self.now),
                    "seed {}",
                    self.seed
                );
                if let Some(taken) = taken {
                    let previous = self.tokens.insert(taken.key, taken.token);
                    assert!(previous.is_none(), "seed {}: {} is processing twice", self.seed, taken.key);
                }
            }
            8 => {
                if let Some((key, token)) = self.tokens.pop_first() {
                    let succeeded = self.random.below(4) > 0;
                    let end = if succeeded { Queue::done } else { Queue::give_up };
                    end(&mut self.queue, at(self.now), token).unwrap();
                    self.model.failures.remove(&key);
                    self.model.release(key, self.now, succeeded);
                }
            }
            9 => self.retry(),
            10 => self.advance(key),
            _ if late && self.random.below(10) == 0 => self.shutdown(),
            _ => {}
        }
    }

    fn delay(&mut self, key: u8) {
        if self.random.below(4) == 0 {
            self.queue.add_rate_limited(at(self.now), key, NORMAL);
            if self.model.open {
                let delay = self.model.fail(key, self.now);
                self.model.delay(key, self.now + delay, 0, true);
            }
            return;
        }
        let delay = self.random.below(12);
        self.queue.add_after(at(self.now), key, Duration::from_millis(delay), NORMAL);
        match (self.model.open, delay) {
            (false, _) => {}
            (true, 0) => self.model.enqueue(key, 0),
            (true, _) => self.model.delay(key, self.now + delay, 0, false),
        }
    }

    fn retry(&mut self) {
        let Some((key, token)) = self.tokens.pop_last() else { return };
        let delay = self.model.fail(key, self.now);
        let seed = self.seed;
        assert_eq!(self.queue.retry(at(self.now), token), Ok(Duration::from_millis(delay)), "seed {seed}");
        if self.model.open || self.model.keeps_delayed {
            self.model.delay(key, self.now + delay, 0, true);
        }
        self.model.release(key, self.now, false);
    }

    /// Advances the time and sometimes cancels a delay.
    fn advance(&mut self, key: u8) {
        self.now += self.random.below(8);
        self.queue.handle_timeout(at(self.now));
        self.model.queue_due(self.now);
        if self.random.below(4) == 0 {
            let is_held = self.model.limit.as_ref().is_some_and(|limit| limit.held.contains(&key));
            let is_delayed = self.model.delayed.iter().any(|(_, _, known, ..)| *known == key);
            assert_eq!(self.queue.cancel(&key), is_delayed || is_held, "seed {}", self.seed);
            self.model.delayed.retain(|(_, _, known, ..)| *known != key);
            self.model.limit.iter_mut().for_each(|limit| limit.held.retain(|held| *held != key));
        }
    }

    fn shutdown(&mut self) {
        if self.random.below(2) == 0 {
            self.queue.shutdown_including_delayed();
            self.model.keeps_delayed |= self.model.open;
        } else {
            self.queue.shutdown();
            self.model.keeps_delayed = false;
            self.model.delayed.clear();
            self.model.limit.iter_mut().for_each(|limit| limit.held.clear());
        }
        self.model.open = false;
    }

    fn check(&self) {
        let (queue, model, seed) = (&self.queue, &self.model, self.seed);
        queue.check_invariants();
        assert_eq!(queue.len(), model.queued.len(), "seed {seed}");
        let next_held = model.limit.as_ref().and_then(LimitModel::next_start);
        let next = model.delayed.iter().map(|(due, ..)| *due).chain(next_held).min();
        assert_eq!(queue.next_deadline(), next.map(at), "seed {seed}");
        let held = model.limit.as_ref().map_or(0, |limit| limit.held.len());
        assert_eq!(queue.metrics(at(self.now)).delayed, model.delayed.len() + held, "seed {seed}");
        for key in 0..6 {
            let failures = model.failures.get(&key).map_or(0, |(count, _)| *count);
            assert_eq!(queue.retries(&key), failures, "seed {seed}");
        }
        let unfinished = model.queued.len() + model.processing.len() + model.delayed.len() + held;
        let empty = unfinished == 0;
        assert_eq!(queue.is_drained(), !model.open && empty, "seed {seed}");
    }
}

#[test]
fn random_operations_match_the_reference_model() {
    for seed in 0..2_000 {
        let mut comparison = Comparison::new(seed);
        for step in 0..120 {
            comparison.step(step > 90);
            comparison.check();
        }
    }
}

/// Each key is taken once, highest priority first, even if priorities are raised in between.
#[test]
fn random_priorities_are_taken_in_order() {
    for seed in 0..500 {
        let mut random = Random::new(seed);
        let mut queue: Queue<u8> = Queue::new(ExponentialBackoff::default());
        let mut model = ReferenceModel { open: true, ..ReferenceModel::default() };
        for _ in 0..60 {
            let key = u8::try_from(random.below(20)).unwrap();
            let priority = i32::try_from(random.below(12)).unwrap() - 6;
            queue.add(at(0), key, Priority(priority));
            model.enqueue(key, priority);
            if random.below(4) == 0 {
                let taken = queue.take(at(0));
                let expected = model.take(0);
                assert_eq!(taken.as_ref().map(|taken| taken.key), expected, "seed {seed}");
                if let (Some(taken), Some(key)) = (taken, expected) {
                    queue.add(at(0), key, Priority(priority));
                    model.enqueue(key, priority);
                    queue.done(at(0), taken.token).unwrap();
                    model.release(key, 0, true);
                }
            }
            queue.check_invariants();
        }
        while let Some(key) = model.take(0) {
            let taken = queue.take(at(0)).unwrap();
            assert_eq!(taken.key, key, "seed {seed}");
            queue.done(at(0), taken.token).unwrap();
            model.release(key, 0, true);
        }
        assert!(queue.take(at(0)).is_none());
    }
}
