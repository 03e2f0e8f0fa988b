//! Tests of the election, by the numbers of client-go's rules.

use crate::error::ConfigError;
use std::time::Duration;

use jiff::Timestamp;

use super::*;
use crate::time::Moment;

fn at(seconds: u64) -> Moment {
    Moment::at(Duration::from_secs(seconds))
}

fn wall(seconds: u64) -> Timestamp {
    Timestamp::from_second(i64::try_from(1_000_000 + seconds).unwrap()).unwrap()
}

fn election() -> Election {
    Election::new("me", ElectionConfig::default(), 1).unwrap()
}

fn lease_of(holder: &str, transitions: i32, renewed: u64) -> LeaseRecord {
    LeaseRecord {
        holder: holder.to_owned(),
        lease_duration_seconds: 15,
        acquired: Some(wall(0)),
        renewed: Some(wall(renewed)),
        transitions,
    }
}

fn request(election: &mut Election, seconds: u64) -> LeaseRequest {
    election.poll_request(at(seconds), wall(seconds)).expect("a request is due")
}

fn events(election: &mut Election) -> Vec<Event> {
    std::iter::from_fn(|| election.poll_event()).collect()
}

/// Returns a leader whose lease has version 1.
fn leader() -> Election {
    let mut election = election();
    assert_eq!(request(&mut election, 0), LeaseRequest::Read);
    election.handle_response(at(0), LeaseResponse::Missing);
    let LeaseRequest::Create(record) = request(&mut election, 0) else { panic!("expected a create request") };
    election.handle_response(at(0), LeaseResponse::Lease(record, "1".to_owned()));
    assert!(election.is_leader(at(0)));
    events(&mut election);
    election
}

#[test]
fn le_1_invalid_durations_are_rejected() {
    let seconds = Duration::from_secs;
    let check = |lease, renew, retry| {
        ElectionConfig::new(lease, renew, retry).check().map_err(|error| error.to_string())
    };
    assert_eq!(check(seconds(15), seconds(10), seconds(2)), Ok(()));
    let renew = "renew deadline 15s must be shorter than the lease duration 15s";
    assert_eq!(check(seconds(15), seconds(15), seconds(2)).unwrap_err(), renew);
    let retry = "renew deadline 10s must be more than 1.2 times the retry period 9s";
    assert_eq!(check(seconds(15), seconds(10), seconds(9)).unwrap_err(), retry);
    assert!(check(seconds(15), seconds(10), Duration::ZERO).is_err());
    assert_eq!(Election::new("", ElectionConfig::default(), 1).unwrap_err(), ConfigError::NoIdentity);
}

/// client-go writes such a lease with a duration of zero seconds, which is never valid (LE-3).
#[test]
fn le_3_lease_below_a_second_is_rejected_and_fractions_are_ignored() {
    let millis = Duration::from_millis;
    let error = ElectionConfig::new(millis(900), millis(500), millis(100)).check().unwrap_err();
    assert_eq!(error, ConfigError::LeaseDurationTooShort { lease_duration: millis(900) });
    assert!(
        ElectionConfig::new(millis(1_900), millis(1_500), millis(100)).check().is_err(),
        "the lease is written as 1 s"
    );
}

#[test]
fn le_5_clocks_of_other_processes_are_ignored() {
    let mut election = election();
    request(&mut election, 100);
    // Renewed long ago according to its own timestamp.
    let record = LeaseRecord { renewed: Some(Timestamp::UNIX_EPOCH), ..lease_of("other", 3, 0) };
    election.handle_response(at(100), LeaseResponse::Lease(record.clone(), "7".to_owned()));
    for seconds in [105, 110] {
        assert_eq!(request(&mut election, seconds), LeaseRequest::Read);
        election.handle_response(at(seconds), LeaseResponse::Lease(record.clone(), "7".to_owned()));
        assert!(!election.is_leader(at(seconds)));
    }
    assert_eq!(request(&mut election, 120), LeaseRequest::Read);
    election.handle_response(at(120), LeaseResponse::Lease(record, "7".to_owned()));
    let LeaseRequest::Update(claim, version) = request(&mut election, 120) else {
        panic!("expected an update: the lease has not changed for 20 s")
    };
    assert_eq!((version.as_str(), claim.transitions, claim.acquired), ("7", 4, Some(wall(120))));
}

#[test]
fn le_6_candidate_retries_after_the_period_plus_jitter() {
    let mut election = election();
    request(&mut election, 0);
    election.handle_response(at(0), LeaseResponse::Lease(lease_of("other", 0, 0), "1".to_owned()));
    let next = election.next_deadline().unwrap();
    assert!(next >= at(2) && next < Moment::at(Duration::from_millis(4_400)), "{next:?}");
    assert_eq!(election.poll_request(at(1), wall(1)), None);
}

#[test]
fn le_7_renewal_keeps_acquire_time_and_transitions() {
    let mut election = leader();
    let LeaseRequest::Update(renewal, version) = request(&mut election, 2) else {
        panic!("expected a renewal")
    };
    assert_eq!(
        (version.as_str(), renewal.acquired, renewal.renewed, renewal.transitions),
        ("1", Some(wall(0)), Some(wall(2)), 0)
    );
}

#[test]
fn le_8_conflict_on_create_leaves_the_lease_to_the_other_candidate() {
    let mut election = election();
    request(&mut election, 0);
    election.handle_response(at(0), LeaseResponse::Missing);
    assert!(matches!(request(&mut election, 0), LeaseRequest::Create(_)));
    election.handle_response(at(0), LeaseResponse::Conflict);
    assert!(!election.is_leader(at(0)) && election.next_deadline().unwrap() >= at(2));
}

#[test]
fn le_9_released_lease_is_acquired_immediately() {
    let mut election = election();
    request(&mut election, 0);
    let free = LeaseRecord { holder: String::new(), lease_duration_seconds: 1, ..lease_of("", 3, 0) };
    election.handle_response(at(0), LeaseResponse::Lease(free, "9".to_owned()));
    let LeaseRequest::Update(claim, _) = request(&mut election, 0) else {
        panic!("expected an update: the lease is free")
    };
    election.handle_response(at(0), LeaseResponse::Lease(claim, "10".to_owned()));
    let token = election.fencing_token().unwrap();
    assert_eq!((token.version.as_str(), token.transitions), ("10", 4));
}

/// client-go counts from the response, so a slow response reduces the margin.
#[test]
fn le_10_le_12_term_is_counted_from_when_the_request_was_sent() {
    let mut election = leader();
    let LeaseRequest::Update(renewal, _) = request(&mut election, 4) else { panic!() };
    election.handle_response(at(9), LeaseResponse::Lease(renewal, "2".to_owned()));
    assert!(
        election.is_leader(at(13)) && !election.is_leader(at(14)),
        "the term ends ten seconds after the request"
    );
    let LeaseRequest::Update(_, _) = request(&mut election, 11) else { panic!() };
    assert_eq!(election.request_deadline(), Some(at(14)), "later responses are useless");
    election.handle_response(at(12), LeaseResponse::Failed("503".to_owned()));
    election.handle_timeout(at(14));
    assert_eq!(events(&mut election), [Event::LeadershipLost(LossReason::NotRenewed("503".to_owned()))]);
}

#[test]
fn le_14_new_leader_is_reported_once() {
    let mut election = election();
    for (seconds, holder) in [(0, "a"), (5, "a"), (10, "b")] {
        request(&mut election, seconds);
        election.handle_response(
            at(seconds),
            LeaseResponse::Lease(lease_of(holder, 0, seconds), seconds.to_string()),
        );
    }
    assert_eq!(
        events(&mut election),
        [Event::LeaderChanged("a".to_owned()), Event::LeaderChanged("b".to_owned())]
    );
    assert_eq!(election.holder(), "b", "LE-15: the last observed holder");
}

#[test]
fn le_16_lease_is_released_after_the_work_has_ended() {
    let mut election = leader();
    election.stop();
    assert_eq!(events(&mut election), [Event::LeadershipLost(LossReason::StopRequested)]);
    assert_eq!(
        (election.poll_request(at(1), wall(1)), election.is_leader(at(1))),
        (None, false),
        "the work may still be ending"
    );
    election.record_work_ended();
    let LeaseRequest::Update(free, version) = request(&mut election, 3) else { panic!("expected a release") };
    assert_eq!((free.holder.as_str(), free.lease_duration_seconds, version.as_str()), ("", 1, "1"));
    election.handle_response(at(3), LeaseResponse::Lease(free, "2".to_owned()));
    assert!(election.is_over() && election.poll_request(at(9), wall(9)).is_none());
}

/// Regression: a candidate whose create request got no response, and which was then stopped, neither read nor
/// released the lease that the request may have created. The next leader had to wait until it expired.
#[test]
fn le_16_lease_created_without_a_response_is_released() {
    let mut election = election();
    request(&mut election, 0);
    election.handle_response(at(0), LeaseResponse::Missing);
    let LeaseRequest::Create(record) = request(&mut election, 0) else { panic!("expected a create") };
    election.handle_response(at(5), LeaseResponse::Failed("timeout".to_owned()));
    election.stop();
    election.record_work_ended();
    assert_eq!(request(&mut election, 6), LeaseRequest::Read);
    election.handle_response(at(6), LeaseResponse::Lease(record, "1".to_owned()));
    let LeaseRequest::Update(free, version) = request(&mut election, 6) else { panic!("expected a release") };
    assert_eq!((free.holder.as_str(), version.as_str()), ("", "1"));
    election.handle_response(at(6), LeaseResponse::Lease(free, "2".to_owned()));
    assert!(election.is_over());
}

/// A create request without a response that did not take effect leaves nothing to release.
#[test]
fn le_16_lease_that_was_not_created_is_not_released() {
    let mut election = election();
    request(&mut election, 0);
    election.handle_response(at(0), LeaseResponse::Missing);
    request(&mut election, 0);
    election.handle_response(at(5), LeaseResponse::Failed("timeout".to_owned()));
    election.stop();
    election.record_work_ended();
    assert_eq!(request(&mut election, 6), LeaseRequest::Read);
    election.handle_response(at(6), LeaseResponse::Missing);
    assert!(election.poll_request(at(6), wall(6)).is_none() && election.is_over());
}

/// client-go compares with its cached record instead of the lease it reads, and may overwrite another
/// process's lease (LE-17 b).
#[test]
fn le_17_lease_of_another_process_is_not_released() {
    let mut election = leader();
    election.stop();
    election.record_work_ended();
    request(&mut election, 1);
    election.handle_response(at(1), LeaseResponse::Conflict);
    assert_eq!(request(&mut election, 1), LeaseRequest::Read);
    election.handle_response(at(1), LeaseResponse::Lease(lease_of("other", 1, 1), "5".to_owned()));
    assert_eq!(election.poll_request(at(1), wall(1)), None);
    assert!(election.is_over());
}

#[test]
fn lost_response_is_recovered_by_reading() {
    let mut election = election();
    request(&mut election, 0);
    election.handle_response(at(0), LeaseResponse::Missing);
    let LeaseRequest::Create(record) = request(&mut election, 0) else { panic!() };
    election.handle_response(at(5), LeaseResponse::Failed("timeout".to_owned()));
    assert_eq!(request(&mut election, 10), LeaseRequest::Read);
    election.handle_response(at(10), LeaseResponse::Lease(record, "1".to_owned()));
    assert!(!election.is_leader(at(10)), "the age of the record is unknown");
    let LeaseRequest::Update(renewal, _) = request(&mut election, 10) else {
        panic!("expected a renewal of its own record")
    };
    election.handle_response(at(10), LeaseResponse::Lease(renewal, "2".to_owned()));
    assert!(election.is_leader(at(10)));
}

/// Regression: two managers with the same identity each treated the other's lease as their own.
#[test]
fn lease_with_own_identity_that_it_did_not_write_is_foreign() {
    let mut election = election();
    request(&mut election, 0);
    election.handle_response(at(0), LeaseResponse::Lease(lease_of("me", 0, 0), "1".to_owned()));
    assert_eq!(request(&mut election, 5), LeaseRequest::Read, "it waits like any other candidate");
    let mut leading = leader();
    request(&mut leading, 2);
    leading.handle_response(at(2), LeaseResponse::Conflict);
    assert_eq!(request(&mut leading, 2), LeaseRequest::Read, "it reads immediately");
    leading.handle_response(at(2), LeaseResponse::Lease(lease_of("me", 1, 2), "3".to_owned()));
    assert_eq!(events(&mut leading), [Event::LeadershipLost(LossReason::HeldByOther("me".to_owned()))]);
}

#[test]
fn deleted_lease_ends_leadership_and_others_wait_until_it_would_have_expired() {
    let mut leading = leader();
    request(&mut leading, 2);
    leading.handle_response(at(2), LeaseResponse::Missing);
    assert!(!leading.is_leader(at(2)));
    let mut other = election();
    request(&mut other, 0);
    other.handle_response(at(0), LeaseResponse::Lease(lease_of("me too", 0, 0), "1".to_owned()));
    request(&mut other, 5);
    other.handle_response(at(5), LeaseResponse::Missing);
    assert_eq!(request(&mut other, 10), LeaseRequest::Read, "the holder may still act");
    other.handle_response(at(15), LeaseResponse::Missing);
    assert!(matches!(request(&mut other, 15), LeaseRequest::Create(_)));
}
