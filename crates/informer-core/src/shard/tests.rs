//! Members and coordinators, step by step.

mod coordinator;
mod foreign_lease;
mod keys;
mod periods;
mod rolling_update;

use super::*;
use crate::election::ElectionConfig;
use crate::time::Moment;
use jiff::Timestamp;
use std::time::Duration;

fn at(seconds: u64) -> Moment {
    Moment::at(Duration::from_secs(seconds))
}

fn two() -> [HashRange; 2] {
    let ranges: Vec<HashRange> = RangeCount::new(2).unwrap().ranges().collect();
    [ranges[0], ranges[1]]
}

/// An assignment of two ranges.
fn assigned(owners: [Option<&str>; 2]) -> Assignment {
    let range = |owner: Option<&str>| RangeAssignment::new(owner.map(str::to_owned), 1, false);
    Assignment::new(owners.map(range).to_vec(), Vec::new(), Vec::new()).unwrap()
}

fn stored(assignment: Assignment) -> MemberResponse {
    MemberResponse::Assignment(Some(StoredAssignment {
        assignment: Some(assignment),
        version: "7".to_owned(),
    }))
}

/// A member that has created its Lease and has read an assignment, at 0 s.
struct Fixture {
    member: Member,
    version: u64,
}

impl Fixture {
    fn new(owners: [Option<&str>; 2]) -> Self {
        let member = Member::new("a", "1", ElectionConfig::default(), 1).unwrap();
        let mut fixture = Self { member, version: 0 };
        fixture.write(0);
        fixture.read_assignment(0, owners);
        fixture
    }

    fn request(&mut self, now: u64) -> Option<MemberRequest> {
        self.member.poll_request(at(now), Timestamp::UNIX_EPOCH)
    }

    fn respond(&mut self, now: u64, response: MemberResponse) {
        self.member.handle_response(at(now), response);
    }

    /// The next request writes the Lease, and succeeds. Returns the record.
    fn write(&mut self, now: u64) -> MemberRecord {
        let request = self.request(now);
        let Some(MemberRequest::CreateLease(record) | MemberRequest::UpdateLease(record, _)) = request else {
            panic!("{request:?}");
        };
        self.version += 1;
        self.respond(now, MemberResponse::Lease(record.clone(), self.version.to_string()));
        record
    }

    fn read_assignment(&mut self, now: u64, owners: [Option<&str>; 2]) {
        self.member.read_assignment();
        assert_eq!(self.request(now), Some(MemberRequest::ReadAssignment));
        self.respond(now, stored(assigned(owners)));
    }

    /// The next request lists the Leases: the own one and others with these claims.
    fn list(&mut self, now: u64, own: &MemberRecord, others: &[HashRange]) {
        assert_eq!(self.request(now), Some(MemberRequest::ListLeases));
        let other = |claim: &HashRange| {
            let mut record = MemberRecord::new("b", 0, "1");
            record.claims = [*claim].into_iter().collect();
            record
        };
        let leases = std::iter::once(own.clone()).chain(others.iter().map(other)).collect();
        self.respond(now, MemberResponse::Leases(leases));
    }

    fn acting(&self, now: u64) -> Vec<HashRange> {
        self.member.acting(at(now)).collect()
    }

    fn events(&mut self) -> Vec<MemberEvent> {
        std::iter::from_fn(|| self.member.poll_event()).collect()
    }

    /// A member that acts for the first range, since 0 s.
    fn acting_for_the_first_range() -> Self {
        let mut fixture = Self::new([Some("a"), Some("b")]);
        let own = fixture.write(0);
        fixture.list(0, &own, &[two()[1]]);
        assert_eq!(fixture.acting(0), [two()[0]]);
        assert!(matches!(fixture.events()[..], [MemberEvent::Gained(..)]));
        fixture
    }
}

#[test]
fn member_acts_after_its_claim_is_stored_and_no_other_member_claims_the_range() {
    let mut fixture = Fixture::new([Some("a"), Some("b")]);
    let [first, second] = two();
    assert_eq!(fixture.acting(0), []);
    let own = fixture.write(0);
    assert!(own.claims.covers(&first) && !own.claims.overlaps(&second));
    assert_eq!(fixture.acting(0), [], "others may have claimed it");
    fixture.list(0, &own, &[first]);
    assert_eq!(fixture.acting(0), []);
    // It asks again until the other claim is gone.
    let retry = 4;
    fixture.read_assignment(retry, [Some("a"), Some("b")]);
    fixture.list(retry, &own, &[second]);
    assert_eq!(fixture.acting(retry), [first]);
    let token = RangeToken { version: "2".to_owned(), epoch: 1 };
    assert_eq!(fixture.events(), [MemberEvent::Gained(first, token)]);
}

#[test]
fn member_releases_a_range_before_its_claim_is_removed() {
    let mut fixture = Fixture::acting_for_the_first_range();
    let [first, _] = two();
    fixture.read_assignment(1, [Some("b"), Some("b")]);
    assert_eq!(fixture.events(), [MemberEvent::ReleaseRequested(first)]);
    assert_eq!(fixture.acting(1), [first], "its work has not ended");
    assert!(fixture.write(5).claims.covers(&first));
    fixture.member.record_released(first);
    assert_eq!(fixture.acting(5), []);
    assert!(fixture.write(5).claims.is_empty(), "written at once");
    assert_eq!(fixture.events(), []);
}

#[test]
fn member_stops_when_its_lease_was_not_renewed_or_the_assignment_not_read_in_time() {
    for is_renewed in [false, true] {
        let mut fixture = Fixture::acting_for_the_first_range();
        if is_renewed {
            fixture.write(5);
        } else {
            fixture.read_assignment(5, [Some("a"), Some("b")]);
        }
        assert_eq!(fixture.acting(9), [two()[0]]);
        assert_eq!(fixture.acting(10), [], "exactly when the deadline is reached");
        fixture.member.handle_timeout(at(10));
        let reason = RangeLossReason::NotRenewed("no response".to_owned());
        assert_eq!(fixture.events(), [MemberEvent::Lost(two()[0], reason)]);
    }
}

/// The moment at which the request was sent counts: the server may have stored the record at any time since.
#[test]
fn time_to_act_begins_when_the_renewal_was_sent() {
    let mut fixture = Fixture::acting_for_the_first_range();
    fixture.read_assignment(2, [Some("a"), Some("b")]);
    let Some(MemberRequest::UpdateLease(record, _)) = fixture.request(5) else { panic!() };
    fixture.respond(6, MemberResponse::Lease(record, "9".to_owned()));
    assert_eq!(fixture.member.acts_until(), Some(at(12)), "the assignment was read earlier");
    fixture.read_assignment(6, [Some("a"), Some("b")]);
    assert_eq!(fixture.member.acts_until(), Some(at(15)));
}

#[test]
fn deleted_lease_ends_all_work_and_is_created_without_claims() {
    let mut fixture = Fixture::acting_for_the_first_range();
    assert!(matches!(fixture.request(5), Some(MemberRequest::UpdateLease(..))));
    fixture.respond(5, MemberResponse::Missing);
    assert_eq!(fixture.events(), [MemberEvent::Lost(two()[0], RangeLossReason::LeaseChanged)]);
    assert!(fixture.write(5).claims.is_empty());
}

/// The Lease was deleted, and then a request that had created it earlier arrived again: it does not contain the claim.
#[test]
fn lease_that_a_late_request_has_created_does_not_confirm_claims() {
    let mut fixture = Fixture::acting_for_the_first_range();
    assert!(matches!(fixture.request(5), Some(MemberRequest::UpdateLease(..))));
    fixture.respond(5, MemberResponse::Conflict);
    assert_eq!(fixture.request(5), Some(MemberRequest::ReadLease));
    let mut late = MemberRecord::new("a", 0, "1");
    // The number of the process is not public; it is in each of its records.
    late.instance = own_instance(&fixture);
    late.number = 1;
    fixture.respond(5, MemberResponse::Lease(late, "9".to_owned()));
    assert_eq!(fixture.acting(5), []);
    assert_eq!(fixture.events(), [MemberEvent::Lost(two()[0], RangeLossReason::LeaseChanged)]);
}

/// The random number of a member is the same for each one with the same seed.
fn own_instance(_: &Fixture) -> u64 {
    let mut member = Member::new("a", "1", ElectionConfig::default(), 1).unwrap();
    let Some(MemberRequest::CreateLease(record)) = member.poll_request(at(0), Timestamp::UNIX_EPOCH) else {
        panic!();
    };
    record.instance
}

/// A container that restarts has the name of the previous one, whose Lease is not deleted before it has expired.
#[test]
fn lease_of_another_process_with_the_same_name_is_not_overwritten() {
    let mut member = Member::new("a", "1", ElectionConfig::default(), 2).unwrap();
    assert!(matches!(member.poll_request(at(0), Timestamp::UNIX_EPOCH), Some(MemberRequest::CreateLease(_))));
    member.handle_response(at(0), MemberResponse::Conflict);
    let foreign = coordinator::lease("a", "1", &[]);
    let mut now = 0;
    for _ in 0..3 {
        let request = member.poll_request(at(now), Timestamp::UNIX_EPOCH);
        assert_eq!(request, Some(MemberRequest::ReadLease));
        member.handle_response(at(now), MemberResponse::Lease(foreign.clone(), "5".to_owned()));
        assert_eq!(member.poll_request(at(now), Timestamp::UNIX_EPOCH), None);
        now += 4;
    }
    assert_eq!(member.poll_request(at(now), Timestamp::UNIX_EPOCH), Some(MemberRequest::ReadLease));
    member.handle_response(at(now), MemberResponse::Missing);
    assert!(matches!(
        member.poll_request(at(now), Timestamp::UNIX_EPOCH),
        Some(MemberRequest::CreateLease(_))
    ));
}

/// "Losing the coordinator changes nothing": neither does an assignment that is missing or cannot be read.
#[test]
fn member_keeps_its_ranges_without_an_assignment() {
    let mut fixture = Fixture::acting_for_the_first_range();
    let unreadable = StoredAssignment { assignment: None, version: "8".to_owned() };
    for (now, response) in [(5, None), (10, Some(unreadable)), (15, None)] {
        fixture.write(now);
        fixture.member.read_assignment();
        assert_eq!(fixture.request(now), Some(MemberRequest::ReadAssignment));
        fixture.respond(now, MemberResponse::Assignment(response));
        assert_eq!(fixture.acting(now), [two()[0]]);
    }
    assert_eq!(fixture.events(), []);
}

#[test]
fn member_that_stops_deletes_its_lease_after_its_work_has_ended() {
    let mut fixture = Fixture::acting_for_the_first_range();
    fixture.member.stop(at(0));
    assert_eq!(fixture.events(), [MemberEvent::ReleaseRequested(two()[0])]);
    // The Lease is renewed while the work ends.
    fixture.write(2);
    fixture.read_assignment(2, [Some("a"), Some("b")]);
    assert_eq!(fixture.acting(11), [two()[0]]);
    fixture.member.record_released(two()[0]);
    assert_eq!(fixture.request(11), Some(MemberRequest::DeleteLease("3".to_owned())));
    fixture.respond(11, MemberResponse::Missing);
    assert!(fixture.member.is_over());
    assert_eq!(fixture.request(20), None);
}

/// The coordinator gives the ranges of a member that leaves to others while its work ends.
#[test]
fn member_that_stops_writes_at_once_that_it_leaves() {
    let mut fixture = Fixture::acting_for_the_first_range();
    fixture.member.stop(at(1));
    let record = fixture.write(1);
    assert!(record.is_leaving && record.claims.covers(&two()[0]));
    assert_eq!(fixture.request(1), None);
}

/// kube-apiserver responds with a conflict to an update that contains the uid of a deleted Lease.
#[test]
fn conflict_because_of_a_deleted_lease_ends_all_work() {
    let mut fixture = Fixture::acting_for_the_first_range();
    assert!(matches!(fixture.request(5), Some(MemberRequest::UpdateLease(..))));
    fixture.respond(5, MemberResponse::Conflict);
    assert_eq!(fixture.request(5), Some(MemberRequest::ReadLease));
    fixture.respond(5, MemberResponse::Missing);
    assert_eq!(fixture.acting(5), []);
    assert_eq!(fixture.events(), [MemberEvent::Lost(two()[0], RangeLossReason::LeaseChanged)]);
    let Some(MemberRequest::CreateLease(record)) = fixture.request(5) else { panic!() };
    assert!(record.claims.is_empty());
}

#[test]
fn member_is_considered_when_its_lease_is_stored_and_the_assignment_contains_it() {
    let mut fixture = Fixture::new([None, None]);
    let mut considered = |members: &[&str], lease: Option<MemberResponse>| {
        let ranges = vec![RangeAssignment::default(); 2];
        let members = members.iter().map(|name| (*name).to_owned()).collect();
        fixture.member.read_assignment();
        assert_eq!(fixture.request(5), Some(MemberRequest::ReadAssignment));
        fixture.respond(5, stored(Assignment::new(ranges, Vec::new(), members).unwrap()));
        if let Some(response) = lease {
            assert!(matches!(fixture.request(5), Some(MemberRequest::UpdateLease(..))));
            fixture.respond(5, response);
        }
        fixture.member.is_considered()
    };
    assert!(!considered(&[], None));
    assert!(!considered(&["b"], None));
    assert!(considered(&["b", "a"], None));
    assert!(!considered(&["b", "a"], Some(MemberResponse::Conflict)));
}

#[test]
fn claims_report_their_state() {
    let mut fixture = Fixture::new([Some("a"), Some("b")]);
    let states = |fixture: &Fixture| fixture.member.claims().collect::<Vec<_>>();
    let [first, _] = two();
    assert_eq!(states(&fixture), [(first, 1, ClaimState::Claimed)]);
    let own = fixture.write(0);
    assert_eq!(fixture.member.record(), &own);
    fixture.list(0, &own, &[]);
    assert_eq!(states(&fixture), [(first, 1, ClaimState::Held)]);
    fixture.read_assignment(1, [None, None]);
    assert_eq!(states(&fixture), [(first, 1, ClaimState::Releasing)]);
}

/// The record with a new claim may not be stored: a list does not confirm the claim before that is known.
#[test]
fn claim_whose_write_has_failed_is_not_confirmed() {
    let mut fixture = Fixture::new([Some("a"), Some("b")]);
    let [first, second] = two();
    let own = fixture.write(0);
    fixture.list(0, &own, &[first]);
    fixture.read_assignment(1, [Some("a"), Some("a")]);
    assert!(matches!(fixture.request(1), Some(MemberRequest::UpdateLease(..))));
    fixture.respond(1, MemberResponse::Failed("timeout".to_owned()));
    assert_eq!(fixture.request(5), Some(MemberRequest::ReadLease));
    fixture.respond(5, MemberResponse::Lease(own.clone(), "2".to_owned()));
    fixture.list(5, &own, &[]);
    assert_eq!(fixture.acting(5), [first]);
    let own = fixture.write(5);
    fixture.list(5, &own, &[]);
    assert_eq!(fixture.acting(5), [first, second]);
}

/// The work of an earlier time in which the member acted for the range ends late.
#[test]
fn end_of_work_that_was_not_to_be_released_is_ignored() {
    let mut fixture = Fixture::acting_for_the_first_range();
    fixture.member.record_released(two()[0]);
    fixture.member.record_released(two()[1]);
    assert_eq!(fixture.acting(1), [two()[0]]);
}
