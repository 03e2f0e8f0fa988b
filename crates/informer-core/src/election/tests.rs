//! The election, rule by rule as client-go's contract numbers them.

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

fn held(by: &str, transitions: i32, renewed: u64) -> LeaseRecord {
    LeaseRecord {
        holder: by.to_owned(),
        lease_duration_seconds: 15,
        acquired: Some(wall(0)),
        renewed: Some(wall(renewed)),
        transitions,
    }
}

fn ask(election: &mut Election, seconds: u64) -> LeaseRequest {
    election.poll_request(at(seconds), wall(seconds)).expect("it asks")
}

fn events(election: &mut Election) -> Vec<Event> {
    std::iter::from_fn(|| election.poll_event()).collect()
}

/// A leader whose lease has this version.
fn leader() -> Election {
    let mut election = election();
    assert_eq!(ask(&mut election, 0), LeaseRequest::Read);
    election.handle_response(at(0), LeaseResponse::Missing);
    let LeaseRequest::Create(record) = ask(&mut election, 0) else { panic!("it creates one") };
    election.handle_response(at(0), LeaseResponse::Lease(record, "1".to_owned()));
    assert!(election.is_leader(at(0)));
    events(&mut election);
    election
}

#[test]
fn le_1_times_are_checked() {
    let seconds = Duration::from_secs;
    let check = |lease, renew, retry| {
        ElectionConfig::new(lease, renew, retry).check().map_err(|error| error.to_string())
    };
    assert_eq!(check(seconds(15), seconds(10), seconds(2)), Ok(()));
    let renew = "a leader that acts for 15s without renewing does not fit a lease of 15s: it must be shorter";
    assert_eq!(check(seconds(15), seconds(15), seconds(2)).unwrap_err(), renew);
    let retry = "tries every 9s do not fit into 10s: it must be more than 1.2 times as long";
    assert_eq!(check(seconds(15), seconds(10), seconds(9)).unwrap_err(), retry);
    assert!(check(seconds(15), seconds(10), Duration::ZERO).is_err());
    assert_eq!(Election::new("", ElectionConfig::default(), 1).unwrap_err(), ConfigError::NoIdentity);
}

/// client-go writes such a lease as nought seconds, which is never valid (LE-3).
#[test]
fn le_3_leases_below_a_second_are_refused_and_parts_of_one_do_not_count() {
    let millis = Duration::from_millis;
    let error = ElectionConfig::new(millis(900), millis(500), millis(100)).check().unwrap_err();
    assert_eq!(error, ConfigError::LeaseDurationTooShort { lease_duration: millis(900) });
    assert!(
        ElectionConfig::new(millis(1_900), millis(1_500), millis(100)).check().is_err(),
        "it is written as 1 s"
    );
}

#[test]
fn le_5_clocks_of_others_do_not_count() {
    let mut election = election();
    ask(&mut election, 100);
    // Renewed long ago by its own account.
    let record = LeaseRecord { renewed: Some(Timestamp::UNIX_EPOCH), ..held("other", 3, 0) };
    election.handle_response(at(100), LeaseResponse::Lease(record.clone(), "7".to_owned()));
    for seconds in [105, 110] {
        assert_eq!(ask(&mut election, seconds), LeaseRequest::Read);
        election.handle_response(at(seconds), LeaseResponse::Lease(record.clone(), "7".to_owned()));
        assert!(!election.is_leader(at(seconds)));
    }
    assert_eq!(ask(&mut election, 120), LeaseRequest::Read);
    election.handle_response(at(120), LeaseResponse::Lease(record, "7".to_owned()));
    let LeaseRequest::Update(claim, version) = ask(&mut election, 120) else {
        panic!("it has not changed for 20 s")
    };
    assert_eq!((version.as_str(), claim.transitions, claim.acquired), ("7", 4, Some(wall(120))));
}

#[test]
fn le_6_a_candidate_tries_again_after_a_while_and_some_more() {
    let mut election = election();
    ask(&mut election, 0);
    election.handle_response(at(0), LeaseResponse::Lease(held("other", 0, 0), "1".to_owned()));
    let next = election.next_deadline().unwrap();
    assert!(next >= at(2) && next < Moment::at(Duration::from_millis(4_400)), "{next:?}");
    assert_eq!(election.poll_request(at(1), wall(1)), None);
}

#[test]
fn le_7_a_renewal_keeps_what_it_has() {
    let mut election = leader();
    let LeaseRequest::Update(renewal, version) = ask(&mut election, 2) else { panic!("it renews") };
    assert_eq!(
        (version.as_str(), renewal.acquired, renewal.renewed, renewal.transitions),
        ("1", Some(wall(0)), Some(wall(2)), 0)
    );
}

#[test]
fn le_8_whoever_is_faster_wins() {
    let mut election = election();
    ask(&mut election, 0);
    election.handle_response(at(0), LeaseResponse::Missing);
    assert!(matches!(ask(&mut election, 0), LeaseRequest::Create(_)));
    election.handle_response(at(0), LeaseResponse::Conflict);
    assert!(!election.is_leader(at(0)) && election.next_deadline().unwrap() >= at(2));
}

#[test]
fn le_9_what_was_given_back_is_free_at_once() {
    let mut election = election();
    ask(&mut election, 0);
    let free = LeaseRecord { holder: String::new(), lease_duration_seconds: 1, ..held("", 3, 0) };
    election.handle_response(at(0), LeaseResponse::Lease(free, "9".to_owned()));
    let LeaseRequest::Update(claim, _) = ask(&mut election, 0) else { panic!("it is free") };
    election.handle_response(at(0), LeaseResponse::Lease(claim, "10".to_owned()));
    let fence = election.fencing_token().unwrap();
    assert_eq!((fence.version.as_str(), fence.transitions), ("10", 4));
}

/// client-go counts from the answer, so that a slow one eats into the margin (W-39).
#[test]
fn le_10_le_12_a_leader_counts_from_when_it_asked() {
    let mut election = leader();
    let LeaseRequest::Update(renewal, _) = ask(&mut election, 4) else { panic!() };
    election.handle_response(at(9), LeaseResponse::Lease(renewal, "2".to_owned()));
    assert!(election.is_leader(at(13)) && !election.is_leader(at(14)), "ten seconds after it asked");
    let LeaseRequest::Update(_, _) = ask(&mut election, 11) else { panic!() };
    assert_eq!(election.request_deadline(), Some(at(14)), "later answers are of no use");
    election.handle_response(at(12), LeaseResponse::Failed("503".to_owned()));
    election.handle_timeout(at(14));
    assert_eq!(events(&mut election), [Event::LeadershipLost(LossReason::NotRenewed("503".to_owned()))]);
}

#[test]
fn le_14_new_leaders_are_told_once() {
    let mut election = election();
    for (seconds, holder) in [(0, "a"), (5, "a"), (10, "b")] {
        ask(&mut election, seconds);
        election.handle_response(
            at(seconds),
            LeaseResponse::Lease(held(holder, 0, seconds), seconds.to_string()),
        );
    }
    assert_eq!(
        events(&mut election),
        [Event::LeaderChanged("a".to_owned()), Event::LeaderChanged("b".to_owned())]
    );
    assert_eq!(election.holder(), "b", "LE-15: what was last seen");
}

#[test]
fn le_16_the_lease_is_given_back_after_the_work_has_ended() {
    let mut election = leader();
    election.stop();
    assert_eq!(events(&mut election), [Event::LeadershipLost(LossReason::StopRequested)]);
    assert_eq!(
        (election.poll_request(at(1), wall(1)), election.is_leader(at(1))),
        (None, false),
        "the work may still be ending"
    );
    election.stopped();
    let LeaseRequest::Update(free, version) = ask(&mut election, 3) else { panic!("it is given back") };
    assert_eq!((free.holder.as_str(), free.lease_duration_seconds, version.as_str()), ("", 1, "1"));
    election.handle_response(at(3), LeaseResponse::Lease(free, "2".to_owned()));
    assert!(election.is_over() && election.poll_request(at(9), wall(9)).is_none());
}

/// client-go looks at what it remembers and not at what it reads, and may overwrite the lease of somebody else (LE-17 b).
#[test]
fn le_17_what_somebody_else_holds_is_not_given_back() {
    let mut election = leader();
    election.stop();
    election.stopped();
    ask(&mut election, 1);
    election.handle_response(at(1), LeaseResponse::Conflict);
    assert_eq!(ask(&mut election, 1), LeaseRequest::Read);
    election.handle_response(at(1), LeaseResponse::Lease(held("other", 1, 1), "5".to_owned()));
    assert_eq!(election.poll_request(at(1), wall(1)), None);
    assert!(election.is_over());
}

#[test]
fn a_lost_answer_is_found_again_by_reading() {
    let mut election = election();
    ask(&mut election, 0);
    election.handle_response(at(0), LeaseResponse::Missing);
    let LeaseRequest::Create(record) = ask(&mut election, 0) else { panic!() };
    election.handle_response(at(5), LeaseResponse::Failed("timeout".to_owned()));
    assert_eq!(ask(&mut election, 10), LeaseRequest::Read);
    election.handle_response(at(10), LeaseResponse::Lease(record, "1".to_owned()));
    assert!(!election.is_leader(at(10)), "how old it is, is not known");
    let LeaseRequest::Update(renewal, _) = ask(&mut election, 10) else { panic!("it is its own") };
    election.handle_response(at(10), LeaseResponse::Lease(renewal, "2".to_owned()));
    assert!(election.is_leader(at(10)));
}

/// Two managers were configured with the same identity, and each took the other's lease for its own.
#[test]
fn a_lease_under_its_own_name_that_it_did_not_write_is_foreign() {
    let mut election = election();
    ask(&mut election, 0);
    election.handle_response(at(0), LeaseResponse::Lease(held("me", 0, 0), "1".to_owned()));
    assert_eq!(ask(&mut election, 5), LeaseRequest::Read, "it waits like everybody else");
    let mut leading = leader();
    ask(&mut leading, 2);
    leading.handle_response(at(2), LeaseResponse::Conflict);
    assert_eq!(ask(&mut leading, 2), LeaseRequest::Read, "it looks at once");
    leading.handle_response(at(2), LeaseResponse::Lease(held("me", 1, 2), "3".to_owned()));
    assert_eq!(events(&mut leading), [Event::LeadershipLost(LossReason::HeldByOther("me".to_owned()))]);
}

#[test]
fn a_lease_that_is_deleted_ends_leadership_and_others_wait_for_whoever_may_not_know() {
    let mut leading = leader();
    ask(&mut leading, 2);
    leading.handle_response(at(2), LeaseResponse::Missing);
    assert!(!leading.is_leader(at(2)));
    let mut other = election();
    ask(&mut other, 0);
    other.handle_response(at(0), LeaseResponse::Lease(held("me too", 0, 0), "1".to_owned()));
    ask(&mut other, 5);
    other.handle_response(at(5), LeaseResponse::Missing);
    assert_eq!(ask(&mut other, 10), LeaseRequest::Read, "its holder may still act");
    other.handle_response(at(15), LeaseResponse::Missing);
    assert!(matches!(ask(&mut other, 15), LeaseRequest::Create(_)));
}
