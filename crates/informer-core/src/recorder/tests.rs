//! The correlator, rule by rule.

use std::time::Duration;

use jiff::Timestamp;

use super::*;
use crate::backoff::BackoffConfig;
use crate::random::Random;
use crate::time::Moment;

type Machine = Correlator<char, char, &'static str>;

fn at(seconds: u64) -> Moment {
    Moment::at(Duration::from_secs(seconds))
}

fn wall(seconds: u64) -> Timestamp {
    Timestamp::from_second(i64::try_from(seconds).unwrap()).unwrap()
}

fn machine() -> Machine {
    Correlator::new(RecorderConfig::default(), 1)
}

/// It happens; the first letter is the subject, the second the lane.
fn record(machine: &mut Machine, seconds: u64, event: &'static str) {
    let subject = event.chars().next().unwrap();
    machine.handle_event(at(seconds), wall(seconds), reference_model::partition_of(event), subject, event);
    machine.check_invariants();
}

/// The writes that are due, each answered the same, in short: `+` a new event, `~` a series.
fn writes(machine: &mut Machine, seconds: u64, answer: WriteResponse) -> Vec<String> {
    let mut told = Vec::new();
    while let Some(write) = machine.poll_write(at(seconds)) {
        assert!(told.len() < 10_000, "it does not end");
        told.push(text(&write));
        machine.handle_response(at(seconds), answer);
        machine.check_invariants();
    }
    told
}

fn text(write: &Write<&'static str>) -> String {
    match write {
        Write::Create(o) if o.count == 1 => format!("+{}", o.event),
        Write::Create(o) => format!("+{} x{} until {}", o.event, o.count, o.last.as_second()),
        Write::Update(o) => format!("~{} x{} until {}", o.event, o.count, o.last.as_second()),
    }
}

fn written(machine: &mut Machine, seconds: u64) -> Vec<String> {
    writes(machine, seconds, WriteResponse::Written)
}

#[test]
fn a_series_is_told_when_it_begins_at_each_heartbeat_and_when_it_ends() {
    let mut machine = machine();
    record(&mut machine, 0, "a1");
    assert_eq!(written(&mut machine, 0), ["+a1"]);
    record(&mut machine, 300, "a1");
    assert_eq!(written(&mut machine, 300), ["~a1 x2 until 300"]);
    for minute in 6..=40 {
        record(&mut machine, minute * 60, "a1");
        let expected: &[&str] = if minute == 35 { &["~a1 x32 until 2100"] } else { &[] };
        assert_eq!(written(&mut machine, minute * 60), expected, "minute {minute}");
    }
    assert_eq!(written(&mut machine, 46 * 60 - 1), [""; 0]);
    assert_eq!(machine.next_deadline(), Some(at(46 * 60)));
    assert_eq!(written(&mut machine, 46 * 60), ["~a1 x37 until 2400"]);
    assert_eq!((machine.next_deadline(), machine.metrics().aggregated), (None, 36));
    record(&mut machine, 46 * 60, "a1");
    assert_eq!(written(&mut machine, 46 * 60), ["+a1"], "another event");
}

#[test]
fn what_happens_once_is_forgotten_without_another_word() {
    let mut machine = machine();
    record(&mut machine, 0, "a1");
    written(&mut machine, 0);
    assert_eq!(written(&mut machine, 360), [""; 0]);
    assert_eq!(machine.next_deadline(), None);
    record(&mut machine, 360, "a1");
    record(&mut machine, 360, "a2");
    assert_eq!(written(&mut machine, 360), ["+a1", "+a2"]);
}

#[test]
fn repeats_before_the_first_write_are_in_it() {
    let mut machine = machine();
    for second in [0, 1, 2] {
        record(&mut machine, second, "a1");
    }
    assert_eq!(written(&mut machine, 2), ["+a1 x3 until 2"]);
    // While a write is on its way, too: what it did not tell comes after it.
    record(&mut machine, 3, "b1");
    let write = machine.poll_write(at(3)).unwrap();
    record(&mut machine, 4, "b1");
    assert_eq!((text(&write), machine.poll_write(at(4))), ("+b1".to_owned(), None));
    machine.handle_response(at(5), WriteResponse::Written);
    assert_eq!(written(&mut machine, 5), ["~b1 x2 until 4"]);
}

#[test]
fn new_events_about_one_subject_are_limited() {
    let config = RecorderConfig { burst: 2, ..RecorderConfig::default() };
    let mut machine = Correlator::new(config, 1);
    for event in ["a1", "a2", "a3", "a1", "b1"] {
        record(&mut machine, 0, event);
    }
    assert_eq!(written(&mut machine, 0), ["+a1 x2 until 0", "+a2", "+b1"], "repeats need no token");
    record(&mut machine, 300, "a3");
    record(&mut machine, 300, "a4");
    assert_eq!(written(&mut machine, 300), ["+a3"]);
    assert_eq!(machine.metrics().limited, 2);
}

#[test]
fn a_full_queue_drops_what_is_new_and_still_counts_repeats() {
    let config = RecorderConfig { max_queued: 2, ..RecorderConfig::default() };
    let mut machine = Correlator::new(config, 1);
    for event in ["a1", "b1", "c1", "a1"] {
        record(&mut machine, 0, event);
    }
    assert_eq!((machine.metrics().dropped, machine.metrics().waiting), (1, 2));
    assert_eq!(written(&mut machine, 0), ["+a1 x2 until 0", "+b1"]);
    record(&mut machine, 1, "c1");
    assert_eq!(written(&mut machine, 1), ["+c1"], "what was dropped is not known");
}

#[test]
fn what_is_remembered_is_bounded_and_what_was_not_told_is_told() {
    let config = RecorderConfig { max_remembered: 1, ..RecorderConfig::default() };
    let mut machine = Correlator::new(config, 1);
    for second in 0..3 {
        record(&mut machine, second, "a1");
        written(&mut machine, second);
    }
    record(&mut machine, 3, "b1");
    assert_eq!(written(&mut machine, 3), ["+b1", "~a1 x3 until 2"]);
    record(&mut machine, 4, "a1");
    assert_eq!(written(&mut machine, 4), ["+a1"], "forgotten, so it is another event");
}

#[test]
fn a_write_is_tried_so_often_with_growing_waits_behind_the_others() {
    let config = RecorderConfig { max_attempts: 3, ..RecorderConfig::default() };
    let mut machine = Correlator::new(config, 1);
    record(&mut machine, 0, "a1");
    record(&mut machine, 0, "b2");
    let mut waits = Vec::new();
    let mut now = at(0);
    for expected in ["+a1", "+b2", "+a1", "+b2", "+a1"] {
        assert_eq!(text(&machine.poll_write(now).unwrap()), expected);
        machine.handle_response(now, WriteResponse::Unavailable(None));
        machine.check_invariants();
        assert_eq!(machine.poll_write(now), None, "no hot loop");
        let next = machine.next_deadline().unwrap();
        waits.push(next - now);
        now = next;
    }
    assert!(waits.is_sorted() && waits[0] >= Duration::from_millis(800), "{waits:?}");
    assert_eq!(machine.metrics().failed, 1);
    record(&mut machine, 100, "c3");
    assert_eq!(text(&machine.poll_write(at(100)).unwrap()), "+b2");
    machine.handle_response(at(100), WriteResponse::Unavailable(Some(Duration::from_mins(2))));
    assert!(machine.next_deadline().unwrap() >= at(220), "the server said for how long");
    assert_eq!(writes(&mut machine, 219, WriteResponse::Written), [""; 0], "and of everything");
}

/// Seen in review: nothing could be written in the namespace `bad` (500), and an event in `default` waited for six minutes behind one of there. The
/// first of the queue was tried until it was given up. Every test had one server that was well or was not.
#[test]
fn a_lane_that_fails_waits_alone() {
    let mut machine = machine();
    for event in ["a1", "b1", "a2", "b2"] {
        record(&mut machine, 0, event);
    }
    let first = machine.poll_write(at(0)).unwrap();
    machine.handle_response(at(0), WriteResponse::Failed);
    machine.check_invariants();
    assert_eq!(
        (text(&first).as_str(), written(&mut machine, 0)),
        ("+a1", vec!["+a2".to_owned(), "+b2".to_owned()])
    );
    // In the lane, waits grow whoever is tried: a server in which nothing works is not asked for each event at once.
    let (mut now, mut waits) = (at(0), Vec::new());
    for expected in ["+b1", "+a1", "+b1", "+a1"] {
        let next = machine.next_deadline().unwrap();
        waits.push(next - now);
        now = next;
        assert_eq!(text(&machine.poll_write(now).unwrap()), expected);
        machine.handle_response(now, WriteResponse::Failed);
        machine.check_invariants();
        assert_eq!(machine.poll_write(now), None, "no hot loop");
    }
    assert!(waits.is_sorted() && waits[0] >= Duration::from_millis(800), "{waits:?}");
    // One that is written starts the waits over, for the lane.
    record(&mut machine, 100, "c2");
    assert_eq!(written(&mut machine, 100), ["+b1", "+a1", "+c2"]);
}

#[test]
fn a_lane_that_fails_does_not_fill_the_queue() {
    let config = RecorderConfig { max_queued: 2, ..RecorderConfig::default() };
    let mut machine = Correlator::new(config, 1);
    record(&mut machine, 0, "a1");
    record(&mut machine, 0, "b1");
    record(&mut machine, 0, "a2");
    assert_eq!(machine.metrics().dropped, 1, "nothing fails yet: first come, first served");
    machine.poll_write(at(0)).unwrap();
    machine.handle_response(at(0), WriteResponse::Failed);
    record(&mut machine, 0, "c1");
    record(&mut machine, 0, "a2");
    assert_eq!(
        (machine.metrics().dropped, machine.metrics().waiting),
        (3, 2),
        "the oldest gives way, to another lane"
    );
    assert_eq!(written(&mut machine, 0), ["+a2"]);
    // Not the one that is on its way.
    let away = machine.poll_write(at(100)).unwrap();
    record(&mut machine, 100, "b2");
    record(&mut machine, 100, "c2");
    assert_eq!(machine.metrics().dropped, 4);
    machine.handle_response(at(100), WriteResponse::Written);
    assert_eq!((text(&away).as_str(), written(&mut machine, 100)), ("+a1", vec!["+b2".to_owned()]));
}

#[test]
fn what_is_refused_is_not_asked_again_for_a_while() {
    let mut machine = machine();
    record(&mut machine, 0, "a1");
    assert_eq!(writes(&mut machine, 0, WriteResponse::Refused), ["+a1"]);
    for second in [1, 100, 359] {
        record(&mut machine, second, "a1");
    }
    assert_eq!((written(&mut machine, 359), machine.metrics().failed), (vec![], 4));
    record(&mut machine, 360, "a1");
    assert_eq!(written(&mut machine, 360), ["+a1"]);
}

#[test]
fn an_event_that_is_gone_is_made_again_and_one_that_is_there_was_written() {
    let mut machine = machine();
    record(&mut machine, 0, "a1");
    assert_eq!(writes(&mut machine, 0, WriteResponse::Exists), ["+a1"], "an earlier try arrived");
    record(&mut machine, 1, "a1");
    let update = machine.poll_write(at(1)).unwrap();
    machine.handle_response(at(1), WriteResponse::Missing);
    assert_eq!(
        (text(&update).as_str(), written(&mut machine, 1)),
        ("~a1 x2 until 1", vec!["+a1 x2 until 1".to_owned()])
    );
    let metrics = machine.metrics();
    assert_eq!(
        (metrics.sent, metrics.updated, metrics.aggregated),
        (1, 1, 1),
        "one event, whatever became of it"
    );
}

/// A server that has nothing and everything, by turns, is not asked for ever.
#[test]
fn missing_and_existing_by_turns_ends() {
    let mut machine = machine();
    record(&mut machine, 0, "a1");
    written(&mut machine, 0);
    record(&mut machine, 1, "a1");
    assert!(writes(&mut machine, 1, WriteResponse::Missing).len() <= 2, "without a place to create it in");
    record(&mut machine, 2, "b1");
    written(&mut machine, 2);
    record(&mut machine, 3, "b1");
    let mut asked = 0;
    while let Some(write) = machine.poll_write(at(3)) {
        asked += 1;
        assert!(asked < 30, "a hot loop");
        let there = matches!(write, Write::Create(_));
        machine.handle_response(at(3), if there { WriteResponse::Exists } else { WriteResponse::Missing });
    }
}

#[test]
fn the_end_tells_what_is_untold_and_takes_nothing_more() {
    let mut machine = machine();
    for second in 0..4 {
        record(&mut machine, second, "a1");
        written(&mut machine, second);
    }
    record(&mut machine, 4, "b1");
    machine.stop();
    record(&mut machine, 4, "c1");
    assert!(!machine.is_over());
    assert_eq!(written(&mut machine, 4), ["+b1", "~a1 x4 until 3"]);
    assert!(machine.is_over());
    assert_eq!((machine.metrics().dropped, machine.next_deadline()), (1, None));
}

#[test]
fn what_is_abandoned_is_counted() {
    let mut machine = machine();
    record(&mut machine, 0, "a1");
    record(&mut machine, 0, "a1");
    record(&mut machine, 0, "b1");
    machine.stop();
    assert_eq!((machine.abandon(), machine.is_over(), machine.metrics().dropped), (2, true, 2));
    machine.check_invariants();
}

/// Random calls, answers and times: the machine and its naive twin write the same, and account for every call.
#[test]
fn it_does_what_its_naive_twin_does() {
    const EVENTS: [&str; 9] = ["a1", "a2", "a3", "a4", "b1", "b2", "b3", "c1", "c2"];
    for seed in 0..3_000_u64 {
        let mut random = Random::new(seed);
        let backoff = BackoffConfig::new(Duration::from_secs(1), Duration::from_secs(8));
        let config = RecorderConfig {
            burst: 3,
            max_queued: 1 + usize::try_from(random.below(5)).unwrap(),
            // Never fewer than there are subjects, whose limits the twin does not forget.
            max_remembered: 3 + usize::try_from(random.below(4)).unwrap(),
            max_attempts: 3,
            backoff,
            ..RecorderConfig::default()
        };
        let (mut machine, mut twin) =
            (Machine::new(config, seed), reference_model::ReferenceModel::new(config, seed));
        let (mut seconds, mut calls) = (0, 0);
        for step in 0..200 {
            let place = format!("seed {seed}, step {step}, second {seconds}");
            match random.below(10) {
                0..4 => {
                    let event = EVENTS[usize::try_from(random.below(9)).unwrap()];
                    record(&mut machine, seconds, event);
                    twin.record(at(seconds), wall(seconds), event);
                    calls += 1;
                }
                4..7 => assert_eq!(machine.poll_write(at(seconds)), twin.poll(at(seconds)), "{place}"),
                7..9 => {
                    let answer = match random.below(11) {
                        0..4 => WriteResponse::Written,
                        4 => WriteResponse::Exists,
                        5 => WriteResponse::Missing,
                        6 => WriteResponse::Refused,
                        7 => WriteResponse::Unavailable(None),
                        8 => WriteResponse::Unavailable(Some(Duration::from_secs(30))),
                        _ => WriteResponse::Failed,
                    };
                    machine.handle_response(at(seconds), answer);
                    twin.answer(at(seconds), answer);
                }
                _ => seconds += [1, 20, 100, 400, 2_000][usize::try_from(random.below(5)).unwrap()],
            }
            machine.check_invariants();
            assert_eq!(machine.metrics(), twin.metrics(), "{place}");
            let m = machine.metrics();
            let unsent = twin.unsent();
            assert_eq!(calls, m.sent + m.aggregated + m.limited + m.dropped + m.failed + unsent, "{place}");
        }
    }
}
