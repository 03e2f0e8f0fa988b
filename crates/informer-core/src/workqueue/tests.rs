//! The queue: every rule of client-go's by its number, and random operations against a naive twin.

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
    queue.take(at(0)).expect("there is a key to take")
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
fn wq_2_adding_twice_is_adding_once() {
    let mut queue = queue();
    assert!(queue.add(at(0), "a", NORMAL));
    assert!(!queue.add(at(0), "a", NORMAL));
    assert_eq!(keys(&mut queue, at(0)), ["a"]);
    assert_eq!(queue.metrics(at(0)).adds, 1);
}

#[test]
fn wq_3_what_is_queued_is_taken_also_while_shutting_down() {
    let mut queue = queue();
    queue.add(at(0), "a", NORMAL);
    queue.shutdown();
    assert!(!queue.is_over());
    assert!(!queue.add(at(0), "b", NORMAL), "nothing new is taken in");
    assert_eq!(keys(&mut queue, at(0)), ["a"]);
    assert!(queue.is_over() && queue.take(at(0)).is_none());
}

#[test]
fn wq_4_a_turn_ends_once() {
    let mut queue = queue();
    queue.add(at(0), "a", NORMAL);
    let first = take(&mut queue);
    queue.done(at(0), first.token).unwrap();
    assert_eq!(queue.done(at(0), first.token), Err(StaleToken));
    queue.add(at(0), "a", NORMAL);
    assert_eq!(queue.done(at(0), first.token), Err(StaleToken), "it is queued, and held by nobody");
    let second = take(&mut queue);
    assert_eq!(queue.retry(at(0), first.token), Err(StaleToken), "an old ticket is not the new one");
    queue.done(at(0), second.token).unwrap();
}

// C14
#[test]
fn wq_5_one_holder_and_one_more_turn_for_all_adds_meanwhile() {
    let mut queue = queue();
    queue.add(at(0), "a", NORMAL);
    let held = take(&mut queue);
    for _ in 0..3 {
        assert!(!queue.add(at(0), "a", NORMAL));
    }
    assert!(queue.take(at(0)).is_none(), "two workers never hold the same key");
    queue.add(at(0), "b", NORMAL);
    queue.done(at(0), held.token).unwrap();
    assert_eq!(keys(&mut queue, at(0)), ["b", "a"], "it goes to the end, once");
}

#[test]
fn wq_6_the_length_counts_what_can_be_taken() {
    let mut queue = queue();
    queue.add(at(0), "a", NORMAL);
    let held = take(&mut queue);
    queue.add(at(0), "a", NORMAL);
    queue.add(at(0), "b", NORMAL);
    queue.add_after(at(0), "c", Duration::from_secs(1), NORMAL);
    assert_eq!(queue.len(), 1);
    assert_eq!(queue.metrics(at(0)).depth, 2, "client-go's gauge counts what was added again too (WM-2)");
    queue.done(at(0), held.token).unwrap();
    assert_eq!(queue.len(), 2);
}

#[test]
fn wq_7_a_shutdown_waits_for_nobody_and_drops_what_is_delayed() {
    let mut queue = queue();
    queue.add(at(0), "a", NORMAL);
    let held = take(&mut queue);
    queue.add_after(at(0), "b", Duration::from_secs(1), NORMAL);
    queue.shutdown();
    assert!(queue.is_over() && !queue.is_drained(), "one key is still held");
    assert_eq!(queue.next_deadline(), None);
    queue.retry(at(0), held.token).unwrap();
    assert!(queue.is_drained(), "what fails now is not tried again");
    assert_eq!(queue.metrics(at(0)).dropped, 2);
}

/// client-go's drain looks at what is held only: with keys queued and no worker holding one it returns at once (W-34).
#[test]
fn wq_8_a_queue_is_drained_when_nothing_is_queued_held_or_to_come() {
    let mut queue = queue();
    queue.add(at(0), "a", NORMAL);
    queue.add_after(at(0), "b", Duration::from_millis(5), NORMAL);
    queue.shutdown_including_delayed();
    assert!(!queue.is_drained() && !queue.is_over());
    let held = take(&mut queue);
    assert!(!queue.is_drained());
    queue.retry(at(0), held.token).unwrap();
    assert!(!queue.is_over(), "both are still to come");
    assert_eq!(queue.next_deadline(), Some(at(5)));
    assert_eq!(keys(&mut queue, at(20)), ["b", "a"]);
    assert!(queue.is_drained() && queue.is_over());
}

#[test]
fn wq_8_what_was_added_again_before_a_shutdown_gets_its_turn() {
    let mut queue = queue();
    queue.add(at(0), "a", NORMAL);
    let held = take(&mut queue);
    queue.add(at(0), "a", NORMAL);
    queue.shutdown();
    assert!(!queue.is_over());
    queue.done(at(0), held.token).unwrap();
    assert_eq!(keys(&mut queue, at(0)), ["a"]);
}

#[test]
fn a_shutdown_at_once_drops_what_nobody_holds() {
    let mut queue = queue();
    for key in ["a", "b", "c"] {
        queue.add(at(0), key, NORMAL);
    }
    let held = take(&mut queue);
    queue.add(at(0), "a", NORMAL);
    queue.shutdown_now();
    assert!(queue.is_over() && queue.take(at(0)).is_none());
    queue.done(at(0), held.token).unwrap();
    assert!(queue.is_drained());
    assert_eq!(queue.metrics(at(0)).dropped, 3);
}

#[test]
fn wq_9_priorities_come_first_and_levels_keep_their_order() {
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
    assert!(!queue.add(at(0), "old 2", NORMAL), "it is raised, not added");
    assert!(!queue.add(at(0), "new 1", Priority::INITIAL), "and never lowered");
    assert_eq!(queue.queued().copied().collect::<Vec<_>>(), ["urgent", "new 1", "new 2", "old 2", "old 1"]);
    assert_eq!(keys(&mut queue, at(0)), ["urgent", "new 1", "new 2", "old 2", "old 1"]);
}

/// What was there at the start of a controller never got a turn while three keys asked for one all the time.
#[test]
fn what_is_below_the_usual_priority_is_not_kept_waiting_for_ever() {
    let mut queue = queue();
    queue.add(at(0), "old 1", Priority::INITIAL);
    queue.add(at(0), "old 2", Priority::INITIAL);
    let mut taken = Vec::new();
    for _ in 0..33 {
        queue.add(at(0), "busy", NORMAL);
        let turn = take(&mut queue);
        taken.push(turn.key);
        queue.done(at(0), turn.token).unwrap();
    }
    let old: Vec<usize> = (0..33).filter(|turn| taken[*turn] != "busy").collect();
    assert_eq!((old, taken[15], taken[31]), (vec![15, 31], "old 1", "old 2"));
}

/// WQ-1: whatever happens, a key is queued only if somebody asked for it and nobody holds it.
#[test]
fn wq_1_what_is_queued_is_wanted_and_not_held() {
    let mut queue = queue();
    queue.add(at(0), "a", NORMAL);
    assert_eq!((queue.len(), queue.processing().count()), (1, 0));
    let turn = take(&mut queue);
    queue.add(at(0), "a", NORMAL);
    assert_eq!((queue.len(), queue.processing().count(), queue.metrics(at(0)).depth), (0, 1, 1));
    queue.done(at(0), turn.token).unwrap();
    assert_eq!((queue.len(), queue.processing().count()), (1, 0));
}

#[test]
fn wq_10_what_is_dealt_with_is_let_go() {
    let mut queue = Queue::new(ExponentialBackoff::default());
    let key = std::sync::Arc::new(());
    queue.add(at(0), key.clone(), NORMAL);
    let first = queue.take(at(0)).unwrap().token;
    queue.retry(at(0), first).unwrap();
    let second = queue.take(at(50)).unwrap().token;
    queue.done(at(50), second).unwrap();
    assert_eq!(std::sync::Arc::strong_count(&key), 1, "neither queue nor limiter keeps it (RL-7)");
}

#[test]
fn dq_1_no_delay_is_an_add_and_every_delay_counts_as_a_retry() {
    let mut queue = queue();
    assert!(queue.add_after(at(0), "a", Duration::ZERO, NORMAL));
    assert!(!queue.add_after(at(0), "b", Duration::from_millis(1), NORMAL));
    assert_eq!((queue.len(), queue.metrics(at(0)).retries), (1, 2));
    queue.shutdown();
    assert!(!queue.add_after(at(0), "c", Duration::ZERO, NORMAL));
    assert_eq!(queue.metrics(at(0)).retries, 2);
}

#[test]
fn dq_2_the_earlier_moment_counts() {
    let mut queue = queue();
    queue.add_after(at(0), "a", Duration::from_millis(50), NORMAL);
    queue.add_after(at(0), "a", Duration::from_millis(80), NORMAL);
    assert_eq!(queue.next_deadline(), Some(at(50)), "a delay is never put off");
    queue.add_after(at(0), "a", Duration::from_millis(20), NORMAL);
    assert_eq!(queue.next_deadline(), Some(at(20)));
    assert_eq!(keys(&mut queue, at(100)), ["a"], "and it comes once");
    assert_eq!(keys(&mut queue, at(100)), [""; 0]);
}

#[test]
fn dq_3_the_earliest_comes_first_and_equal_ones_in_their_order() {
    let mut queue = queue();
    for (key, millis) in [("d", 30), ("a", 10), ("b", 20), ("c", 20)] {
        queue.add_after(at(0), key, Duration::from_millis(millis), NORMAL);
    }
    assert_eq!(queue.handle_timeout(at(9)), 0);
    assert_eq!(keys(&mut queue, at(10)), ["a"]);
    assert_eq!(keys(&mut queue, at(30)), ["b", "c", "d"]);
}

#[test]
fn dq_3_what_is_due_while_it_is_held_or_queued_collapses_with_that() {
    let mut queue = queue();
    queue.add(at(0), "a", NORMAL);
    queue.add_after(at(0), "a", Duration::from_millis(5), NORMAL);
    assert_eq!(queue.handle_timeout(at(5)), 0, "it is queued already");
    let held = queue.take(at(5)).unwrap();
    queue.add_after(at(5), "a", Duration::from_millis(5), NORMAL);
    assert!(queue.take(at(10)).is_none());
    queue.done(at(10), held.token).unwrap();
    assert_eq!(keys(&mut queue, at(10)), ["a"]);
}

#[test]
fn dq_4_an_add_leaves_a_delay_alone_and_it_can_be_cancelled() {
    let mut queue = queue();
    queue.add_after(at(0), "a", Duration::from_millis(5), NORMAL);
    queue.add(at(0), "a", NORMAL);
    assert_eq!(keys(&mut queue, at(0)), ["a"]);
    assert_eq!(keys(&mut queue, at(5)), ["a"]);
    queue.add_after(at(5), "a", Duration::from_millis(5), NORMAL);
    queue.add_after(at(5), "b", Duration::from_millis(9), NORMAL);
    let mut delayed: Vec<_> = queue.delayed().collect();
    delayed.sort();
    assert_eq!(delayed, [(&"a", at(10)), (&"b", at(14))], "what is to come can be seen (W-36)");
    assert!(queue.cancel(&"a") && !queue.cancel(&"a") && !queue.cancel(&"z"));
    assert_eq!(keys(&mut queue, at(20)), ["b"]);
}

#[test]
fn dq_6_a_shutdown_drops_delays_and_none_come_afterwards() {
    let mut queue = queue();
    queue.add_after(at(0), "a", Duration::from_millis(5), NORMAL);
    queue.shutdown();
    assert_eq!((queue.next_deadline(), queue.take(at(100)).map(|taken| taken.key)), (None, None));
    queue.shutdown_including_delayed();
    assert!(queue.is_drained(), "what was dropped does not come back");
}

#[test]
fn rl_1_a_retry_waits_and_being_done_forgets() {
    let mut queue = queue();
    queue.add(at(0), "a", NORMAL);
    for (retries, wait, now) in [(1, 10, 0), (2, 20, 10), (3, 40, 30)] {
        let taken = queue.take(at(now)).expect("it is due");
        assert_eq!(queue.retry(at(now), taken.token), Ok(Duration::from_millis(wait)));
        assert_eq!(queue.retries(&"a"), retries);
        assert!(queue.take(at(now + wait - 1)).is_none());
    }
    let taken = queue.take(at(70)).unwrap();
    queue.done(at(70), taken.token).unwrap();
    assert_eq!(queue.retries(&"a"), 0);
    queue.add_rate_limited(at(70), "a", NORMAL);
    assert_eq!(queue.next_deadline(), Some(at(80)));
}

#[test]
fn a_turn_that_nobody_ended_is_tried_again_and_counted() {
    let mut queue = queue();
    queue.add(at(0), "a", NORMAL);
    let taken = take(&mut queue);
    assert_eq!(queue.abandon(at(0), taken.token), Ok(Duration::from_millis(10)));
    assert_eq!(queue.metrics(at(0)).abandoned, 1);
    assert_eq!(keys(&mut queue, at(10)), ["a"]);
}

#[test]
fn wm_2_times_run_from_the_first_add_and_from_the_take() {
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

/// A limiter of somebody's panicked, and its key was held for ever.
#[test]
fn a_limiter_that_panics_keeps_no_key() {
    #[derive(Debug)]
    struct Bad;
    impl RateLimiter<u8> for Bad {
        fn when(&mut self, _: Moment, _: &u8) -> Duration {
            panic!("on purpose")
        }
        fn forget(&mut self, _: &u8) {}
        fn retries(&self, _: &u8) -> u32 {
            0
        }
    }
    let mut queue = Queue::new(Bad);
    queue.add(at(0), 1, NORMAL);
    let turn = queue.take(at(0)).unwrap();
    assert_eq!(queue.retry(at(0), turn.token), Ok(Duration::from_secs(1)));
    assert!(queue.take(at(999)).is_none());
    assert_eq!(queue.take(at(1_000)).unwrap().key, 1);
}

/// RL-6: 5 ms to 1,000 s, each key for itself.
#[test]
fn rl_6_the_default_has_no_bucket_for_all_keys_together() {
    let mut limiter = ExponentialBackoff::default();
    for key in 0..1_000 {
        assert_eq!(limiter.when(at(0), &key), Duration::from_millis(5));
    }
    let waits: Vec<Duration> = (0..30).map(|_| limiter.when(at(0), &0)).collect();
    assert!(waits.is_sorted());
    assert_eq!((waits[0], waits[29]), (Duration::from_millis(10), Duration::from_secs(1_000)));
}

/// What a naive queue knows: everything about every key, and an order.
#[derive(Debug, Default)]
struct Twin {
    waiting: Vec<(u8, i32)>,
    held: BTreeMap<u8, Option<i32>>,
    delayed: Vec<(u64, u64, u8, i32)>,
    count: u64,
    open: bool,
    keeps_delayed: bool,
    passed: u32,
}

impl Twin {
    fn ask(&mut self, key: u8, priority: i32) {
        if let Some(again) = self.held.get_mut(&key) {
            *again = Some(again.map_or(priority, |known| known.max(priority)));
        } else if let Some(place) = self.waiting.iter().position(|(known, _)| *known == key) {
            if self.waiting[place].1 < priority {
                self.waiting.remove(place);
                self.waiting.push((key, priority));
            }
        } else {
            self.waiting.push((key, priority));
        }
    }

    fn delay(&mut self, key: u8, due: u64, priority: i32) {
        self.count += 1;
        let other = if self.held.contains_key(&key) || self.waiting.iter().any(|(known, _)| *known == key) {
            None
        } else {
            Some(priority)
        };
        match self.delayed.iter_mut().find(|(_, _, known, _)| *known == key) {
            Some(known) => {
                if due < known.0 {
                    (known.0, known.1) = (due, self.count);
                }
                if let Some(priority) = other {
                    known.3 = known.3.max(priority);
                }
            }
            None => self.delayed.push((due, self.count, key, priority)),
        }
    }

    fn fire(&mut self, now: u64) {
        self.delayed.sort_unstable();
        while self.delayed.first().is_some_and(|(due, ..)| *due <= now) {
            let (_, _, key, priority) = self.delayed.remove(0);
            self.ask(key, priority);
        }
    }

    fn take(&mut self, now: u64) -> Option<u8> {
        self.fire(now);
        let mut best = self.waiting.iter().map(|(_, priority)| *priority).max()?;
        if let Some(below) = self.waiting.iter().map(|(_, priority)| *priority).filter(|low| *low < 0).max() {
            self.passed += 1;
            if best == below || self.passed == 16 {
                (best, self.passed) = (below, 0);
            }
        }
        let place = self.waiting.iter().position(|(_, priority)| *priority == best)?;
        let (key, _) = self.waiting.remove(place);
        self.held.insert(key, None);
        Some(key)
    }

    fn release(&mut self, key: u8) {
        if let Some(Some(priority)) = self.held.remove(&key) {
            self.waiting.push((key, priority));
        }
    }
}

/// The queue, its twin, and who holds what. Priorities of delayed keys are equal here, so that the twin stays simple.
struct Both {
    seed: u64,
    random: Random,
    queue: Queue<u8>,
    twin: Twin,
    tickets: BTreeMap<u8, WorkToken>,
    now: u64,
}

impl Both {
    fn new(seed: u64) -> Self {
        let limiter = ExponentialBackoff::new(Duration::from_millis(3), Duration::from_millis(20));
        let twin = Twin { open: true, ..Twin::default() };
        let queue = Queue::new(limiter);
        Both { seed, random: Random::new(seed), queue, twin, tickets: BTreeMap::new(), now: 0 }
    }

    fn step(&mut self, late: bool) {
        let key = u8::try_from(self.random.below(6)).unwrap();
        match self.random.below(12) {
            0..4 => {
                self.queue.add(at(self.now), key, NORMAL);
                if self.twin.open {
                    self.twin.ask(key, 0);
                }
            }
            4..6 => self.delay(key),
            6..8 => {
                let taken = self.queue.take(at(self.now));
                assert_eq!(
                    taken.as_ref().map(|taken| taken.key),
                    self.twin.take(self.now),
                    "seed {}",
                    self.seed
                );
                if let Some(taken) = taken {
                    let twice = self.tickets.insert(taken.key, taken.token);
                    assert!(twice.is_none(), "seed {}: {} is held twice", self.seed, taken.key);
                }
            }
            8 => {
                if let Some((key, ticket)) = self.tickets.pop_first() {
                    self.queue.done(at(self.now), ticket).unwrap();
                    self.twin.release(key);
                }
            }
            9 => self.retry(),
            10 => self.pass(key),
            _ if late && self.random.below(10) == 0 => self.shut_down(),
            _ => {}
        }
    }

    fn delay(&mut self, key: u8) {
        let delay = self.random.below(12);
        self.queue.add_after(at(self.now), key, Duration::from_millis(delay), NORMAL);
        match (self.twin.open, delay) {
            (false, _) => {}
            (true, 0) => self.twin.ask(key, 0),
            (true, _) => self.twin.delay(key, self.now + delay, 0),
        }
    }

    fn retry(&mut self) {
        let Some((key, ticket)) = self.tickets.pop_last() else { return };
        let delay = self.queue.retry(at(self.now), ticket).unwrap();
        if self.twin.open || self.twin.keeps_delayed {
            self.twin.delay(key, self.now + u64::try_from(delay.as_millis()).unwrap(), 0);
        }
        self.twin.release(key);
    }

    /// Time passes, and perhaps something is cancelled.
    fn pass(&mut self, key: u8) {
        self.now += self.random.below(8);
        self.queue.handle_timeout(at(self.now));
        self.twin.fire(self.now);
        if self.random.below(4) == 0 {
            let there = self.twin.delayed.iter().any(|(_, _, known, _)| *known == key);
            assert_eq!(self.queue.cancel(&key), there, "seed {}", self.seed);
            self.twin.delayed.retain(|(_, _, known, _)| *known != key);
        }
    }

    fn shut_down(&mut self) {
        if self.random.below(2) == 0 {
            self.queue.shutdown_including_delayed();
            self.twin.keeps_delayed |= self.twin.open;
        } else {
            self.queue.shutdown();
            self.twin.keeps_delayed = false;
            self.twin.delayed.clear();
        }
        self.twin.open = false;
    }

    fn check(&self) {
        let (queue, twin, seed) = (&self.queue, &self.twin, self.seed);
        queue.check_invariants();
        assert_eq!(queue.len(), twin.waiting.len(), "seed {seed}");
        let next = twin.delayed.iter().map(|(due, ..)| at(*due)).min();
        assert_eq!(queue.next_deadline(), next, "seed {seed}");
        let empty = twin.waiting.is_empty() && twin.held.is_empty() && twin.delayed.is_empty();
        assert_eq!(queue.is_drained(), !twin.open && empty, "seed {seed}");
    }
}

#[test]
fn random_operations_do_what_a_naive_queue_does() {
    for seed in 0..2_000 {
        let mut both = Both::new(seed);
        for step in 0..120 {
            both.step(step > 90);
            both.check();
        }
    }
}

/// Keys of any priority are each taken once, the highest first, whatever is raised on the way.
#[test]
fn random_priorities_are_taken_in_order() {
    for seed in 0..500 {
        let mut random = Random::new(seed);
        let mut queue: Queue<u8> = Queue::new(ExponentialBackoff::default());
        let mut twin = Twin { open: true, ..Twin::default() };
        for _ in 0..60 {
            let key = u8::try_from(random.below(20)).unwrap();
            let priority = i32::try_from(random.below(12)).unwrap() - 6;
            queue.add(at(0), key, Priority(priority));
            twin.ask(key, priority);
            if random.below(4) == 0 {
                let taken = queue.take(at(0));
                let expected = twin.take(0);
                assert_eq!(taken.as_ref().map(|taken| taken.key), expected, "seed {seed}");
                if let (Some(taken), Some(key)) = (taken, expected) {
                    queue.add(at(0), key, Priority(priority));
                    twin.ask(key, priority);
                    queue.done(at(0), taken.token).unwrap();
                    twin.release(key);
                }
            }
            queue.check_invariants();
        }
        while let Some(key) = twin.take(0) {
            let taken = queue.take(at(0)).unwrap();
            assert_eq!(taken.key, key, "seed {seed}");
            queue.done(at(0), taken.token).unwrap();
            twin.release(key);
        }
        assert!(queue.take(at(0)).is_none());
    }
}
