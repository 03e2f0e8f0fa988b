//! Tests of the correlator, rule by rule.

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

/// Records an event; its first letter is the subject, its second the partition.
fn record(machine: &mut Machine, seconds: u64, event: &'static str) {
    let subject = event.chars().next().unwrap();
    machine.handle_event(at(seconds), wall(seconds), reference_model::partition_of(event), subject, event);
    machine.check_invariants();
}

/// Returns the due writes, each completed with `response`: `+` for a new event, `~` for a series.
fn writes(machine: &mut Machine, seconds: u64, response: WriteResponse) -> Vec<String> {
    let mut texts = Vec::new();
    while let Some(write) = machine.poll_write(at(seconds)) {
        assert!(texts.len() < 10_000, "endless writes");
        texts.push(text(&write));
        machine.handle_response(at(seconds), response);
        machine.check_invariants();
    }
    texts
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
fn series_is_written_when_it_begins_at_each_period_and_when_it_ends() {
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
    assert_eq!(written(&mut machine, 46 * 60), ["+a1"], "a new event after the series");
}

#[test]
fn single_occurrence_is_forgotten_without_another_write() {
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
fn repeats_before_the_first_write_are_included_in_it() {
    let mut machine = machine();
    for second in [0, 1, 2] {
        record(&mut machine, second, "a1");
    }
    assert_eq!(written(&mut machine, 2), ["+a1 x3 until 2"]);
    // Also while a write is in flight: repeats that it does not include are written after it.
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
fn full_queue_drops_new_events_and_still_counts_repeats() {
    let config = RecorderConfig { max_queued: 2, ..RecorderConfig::default() };
    let mut machine = Correlator::new(config, 1);
    for event in ["a1", "b1", "c1", "a1"] {
        record(&mut machine, 0, event);
    }
    assert_eq!((machine.metrics().dropped, machine.metrics().waiting), (1, 2));
    assert_eq!(written(&mut machine, 0), ["+a1 x2 until 0", "+b1"]);
    record(&mut machine, 1, "c1");
    assert_eq!(written(&mut machine, 1), ["+c1"], "a dropped event is not tracked");
}

#[test]
fn remembered_events_are_bounded_and_evicted_series_are_written() {
    let config = RecorderConfig { max_remembered: 1, ..RecorderConfig::default() };
    let mut machine = Correlator::new(config, 1);
    for second in 0..3 {
        record(&mut machine, second, "a1");
        written(&mut machine, second);
    }
    record(&mut machine, 3, "b1");
    assert_eq!(written(&mut machine, 3), ["+b1", "~a1 x3 until 2"]);
    record(&mut machine, 4, "a1");
    assert_eq!(written(&mut machine, 4), ["+a1"], "the series was evicted, so this is a new event");
}

#[test]
fn failed_write_is_retried_after_the_others_with_growing_delays_until_the_limit() {
    let config = RecorderConfig { max_attempts: 3, ..RecorderConfig::default() };
    let mut machine = Correlator::new(config, 1);
    record(&mut machine, 0, "a1");
    record(&mut machine, 0, "b2");
    let mut delays = Vec::new();
    let mut now = at(0);
    for expected in ["+a1", "+b2", "+a1", "+b2", "+a1"] {
        assert_eq!(text(&machine.poll_write(now).unwrap()), expected);
        machine.handle_response(now, WriteResponse::Unavailable(None));
        machine.check_invariants();
        assert_eq!(machine.poll_write(now), None, "no hot loop");
        let next = machine.next_deadline().unwrap();
        delays.push(next - now);
        now = next;
    }
    assert!(delays.is_sorted() && delays[0] >= Duration::from_millis(800), "{delays:?}");
    assert_eq!(machine.metrics().failed, 1);
    record(&mut machine, 100, "c3");
    assert_eq!(text(&machine.poll_write(at(100)).unwrap()), "+b2");
    machine.handle_response(at(100), WriteResponse::Unavailable(Some(Duration::from_secs(120))));
    assert!(machine.next_deadline().unwrap() >= at(220), "the server's Retry-After is honoured");
    assert_eq!(writes(&mut machine, 219, WriteResponse::Written), [""; 0], "for all partitions");
}

/// Regression: while nothing could be written in the namespace `bad` (500), an event in `default` waited for
/// six minutes behind one of `bad`, because the head of the queue was retried until it was given up.
#[test]
fn failing_partition_does_not_delay_others() {
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
    // Delays grow per partition, not per event: a server that fails every write is not sent all events at
    // once.
    let (mut now, mut delays) = (at(0), Vec::new());
    for expected in ["+b1", "+a1", "+b1", "+a1"] {
        let next = machine.next_deadline().unwrap();
        delays.push(next - now);
        now = next;
        assert_eq!(text(&machine.poll_write(now).unwrap()), expected);
        machine.handle_response(now, WriteResponse::Failed);
        machine.check_invariants();
        assert_eq!(machine.poll_write(now), None, "no hot loop");
    }
    assert!(delays.is_sorted() && delays[0] >= Duration::from_millis(800), "{delays:?}");
    // A successful write resets the backoff of the partition.
    record(&mut machine, 100, "c2");
    assert_eq!(written(&mut machine, 100), ["+b1", "+a1", "+c2"]);
}

#[test]
fn failing_partition_does_not_fill_the_queue() {
    let config = RecorderConfig { max_queued: 2, ..RecorderConfig::default() };
    let mut machine = Correlator::new(config, 1);
    record(&mut machine, 0, "a1");
    record(&mut machine, 0, "b1");
    record(&mut machine, 0, "a2");
    assert_eq!(machine.metrics().dropped, 1, "no partition fails yet, so the new event is dropped");
    machine.poll_write(at(0)).unwrap();
    machine.handle_response(at(0), WriteResponse::Failed);
    record(&mut machine, 0, "c1");
    record(&mut machine, 0, "a2");
    assert_eq!(
        (machine.metrics().dropped, machine.metrics().waiting),
        (3, 2),
        "the oldest write of the failing partition is dropped for another partition"
    );
    assert_eq!(written(&mut machine, 0), ["+a2"]);
    // A write in flight is not dropped.
    let in_flight = machine.poll_write(at(100)).unwrap();
    record(&mut machine, 100, "b2");
    record(&mut machine, 100, "c2");
    assert_eq!(machine.metrics().dropped, 4);
    machine.handle_response(at(100), WriteResponse::Written);
    assert_eq!((text(&in_flight).as_str(), written(&mut machine, 100)), ("+a1", vec!["+b2".to_owned()]));
}

#[test]
fn rejected_event_is_not_sent_again_until_the_series_timeout() {
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
fn missing_event_is_created_again_and_existing_one_counts_as_written() {
    let mut machine = machine();
    record(&mut machine, 0, "a1");
    assert_eq!(writes(&mut machine, 0, WriteResponse::Exists), ["+a1"], "an earlier attempt succeeded");
    record(&mut machine, 1, "a1");
    let update = machine.poll_write(at(1)).unwrap();
    machine.handle_response(at(1), WriteResponse::Missing);
    assert_eq!(
        (text(&update).as_str(), written(&mut machine, 1)),
        ("~a1 x2 until 1", vec!["+a1 x2 until 1".to_owned()])
    );
    let metrics = machine.metrics();
    assert_eq!((metrics.sent, metrics.updated, metrics.aggregated), (1, 1, 1), "one event is counted once");
}

/// A server that alternates between `Missing` and `Exists` does not cause an endless loop.
#[test]
fn alternating_missing_and_exists_ends() {
    let mut machine = machine();
    record(&mut machine, 0, "a1");
    written(&mut machine, 0);
    record(&mut machine, 1, "a1");
    assert!(writes(&mut machine, 1, WriteResponse::Missing).len() <= 2, "the namespace does not exist");
    record(&mut machine, 2, "b1");
    written(&mut machine, 2);
    record(&mut machine, 3, "b1");
    let mut requests = 0;
    while let Some(write) = machine.poll_write(at(3)) {
        requests += 1;
        assert!(requests < 30, "a hot loop");
        let creates = matches!(write, Write::Create(_));
        machine.handle_response(at(3), if creates { WriteResponse::Exists } else { WriteResponse::Missing });
    }
}

#[test]
fn stop_writes_pending_series_and_rejects_new_events() {
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
fn abandoned_writes_are_counted() {
    let mut machine = machine();
    record(&mut machine, 0, "a1");
    record(&mut machine, 0, "a1");
    record(&mut machine, 0, "b1");
    machine.stop();
    assert_eq!((machine.abandon(), machine.is_over(), machine.metrics().dropped), (2, true, 2));
    machine.check_invariants();
}

/// Random occurrences, responses and times: the correlator and its reference model return the same writes,
/// and every call is counted once.
#[test]
fn random_operations_match_the_reference_model() {
    const EVENTS: [&str; 9] = ["a1", "a2", "a3", "a4", "b1", "b2", "b3", "c1", "c2"];
    for seed in 0..3_000_u64 {
        let mut random = Random::new(seed);
        let backoff = BackoffConfig::new(Duration::from_secs(1), Duration::from_secs(8));
        let config = RecorderConfig {
            burst: 3,
            max_queued: 1 + usize::try_from(random.below(5)).unwrap(),
            // At least the number of subjects, because the model never evicts their buckets.
            max_remembered: 3 + usize::try_from(random.below(4)).unwrap(),
            max_attempts: 3,
            backoff,
            ..RecorderConfig::default()
        };
        let (mut machine, mut model) =
            (Machine::new(config, seed), reference_model::ReferenceModel::new(config, seed));
        let (mut seconds, mut calls) = (0, 0);
        for step in 0..200 {
            let context = format!("seed {seed}, step {step}, second {seconds}");
            match random.below(10) {
                0..4 => {
                    let event = EVENTS[usize::try_from(random.below(9)).unwrap()];
                    record(&mut machine, seconds, event);
                    model.record(at(seconds), wall(seconds), event);
                    calls += 1;
                }
                4..7 => assert_eq!(machine.poll_write(at(seconds)), model.poll(at(seconds)), "{context}"),
                7..9 => {
                    let response = match random.below(11) {
                        0..4 => WriteResponse::Written,
                        4 => WriteResponse::Exists,
                        5 => WriteResponse::Missing,
                        6 => WriteResponse::Refused,
                        7 => WriteResponse::Unavailable(None),
                        8 => WriteResponse::Unavailable(Some(Duration::from_secs(30))),
                        _ => WriteResponse::Failed,
                    };
                    machine.handle_response(at(seconds), response);
                    model.handle_response(at(seconds), response);
                }
                _ => seconds += [1, 20, 100, 400, 2_000][usize::try_from(random.below(5)).unwrap()],
            }
            machine.check_invariants();
            assert_eq!(machine.metrics(), model.metrics(), "{context}");
            let m = machine.metrics();
            let unsent = model.unsent();
            assert_eq!(calls, m.sent + m.aggregated + m.limited + m.dropped + m.failed + unsent, "{context}");
        }
    }
}
