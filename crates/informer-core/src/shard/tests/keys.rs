//! Members that divide the objects by different keys.

use super::coordinator::lease;
use super::*;

fn with_key(mut record: MemberRecord, key: &str) -> MemberRecord {
    key.clone_into(&mut record.key);
    record
}

/// Members with different keys acted at the same time: their ranges did not overlap, but they contain the same objects.
#[test]
fn claims_are_not_confirmed_while_a_member_with_another_key_has_claims() {
    let [first, second] = two();
    let mut fixture = Fixture::new([Some("a"), Some("b")]);
    let own = fixture.write(0);
    let other = |claims: &[HashRange]| with_key(lease("b", "", claims), "uid");
    let list = |fixture: &mut Fixture, now, claims: &[HashRange]| {
        assert_eq!(fixture.request(now), Some(MemberRequest::ListLeases));
        fixture.respond(now, MemberResponse::Leases(vec![own.clone(), other(claims)]));
    };
    list(&mut fixture, 0, &[second]);
    assert_eq!((fixture.acting(0), fixture.member.other_key()), (vec![], Some("uid")));
    fixture.read_assignment(4, [Some("a"), Some("b")]);
    // It must store claims and list before it acts.
    list(&mut fixture, 4, &[]);
    assert_eq!((fixture.acting(4), fixture.member.other_key()), (vec![first], None));
}

#[test]
fn member_with_another_key_than_the_assignment_releases_its_ranges() {
    let mut fixture = Fixture::acting_for_the_first_range();
    fixture.member.read_assignment();
    assert_eq!(fixture.request(1), Some(MemberRequest::ReadAssignment));
    fixture.respond(1, stored(assigned([Some("a"), Some("a")]).with_key("uid")));
    assert_eq!(fixture.events(), [MemberEvent::ReleaseRequested(two()[0])]);
    assert_eq!(fixture.member.other_key(), Some("uid"));
    fixture.member.record_released(two()[0]);
    assert!(fixture.write(1).claims.is_empty() && !fixture.member.is_considered());
}

#[test]
fn ranges_belong_to_the_members_with_the_known_key_while_there_are_some() {
    let [first, second] = two();
    let old = [lease("a", "", &[first]), lease("b", "", &[second])];
    let new = with_key(lease("c", "", &[]), "uid");
    let next = |leases: &[MemberRecord], current| {
        let mut coordinator = Coordinator::new(RangeCount::new(2).unwrap(), ElectionConfig::default());
        coordinator.observe_leases(at(0), leases.iter().map(|lease| (lease.clone(), "1".to_owned())));
        let stored = |assignment| StoredAssignment { assignment: Some(assignment), version: "7".to_owned() };
        coordinator.observe_assignment(Option::map(current, stored));
        match coordinator.poll_request(at(0)) {
            Some(
                CoordinatorRequest::CreateAssignment(next) | CoordinatorRequest::UpdateAssignment(next, _),
            ) => next,
            request => panic!("{request:?}"),
        }
    };
    let owners = |assignment: &Assignment| -> Vec<Option<String>> {
        assignment.iter().map(|(_, range)| range.owner.clone()).collect()
    };
    let both = next(&[old[0].clone(), old[1].clone(), new.clone()], Some(assigned([Some("a"), Some("b")])));
    assert_eq!((both.key(), both.members()), ("", &["a".to_owned(), "b".to_owned()][..]));
    assert_eq!(owners(&both), [Some("a".to_owned()), Some("b".to_owned())]);
    let restored = next(&[new.clone(), old[1].clone()], None);
    assert_eq!((restored.key(), owners(&restored)[1].as_deref()), ("", Some("b")));
    let only_new = next(&[new], Some(both));
    assert_eq!((only_new.key(), only_new.members()), ("uid", &["c".to_owned()][..]));
    assert_eq!(owners(&only_new), [Some("c".to_owned()), Some("c".to_owned())]);
}
