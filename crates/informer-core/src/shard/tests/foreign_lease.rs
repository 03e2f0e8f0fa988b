//! Leases of other processes with the name of the member.

use super::*;

fn read(member: &mut Member, now: u64, lease: &MemberRecord, version: &str) {
    assert_eq!(member.poll_request(at(now), Timestamp::UNIX_EPOCH), Some(MemberRequest::ReadLease));
    member.handle_response(at(now), MemberResponse::Lease(lease.clone(), version.to_owned()));
}

/// A member waited forever for the Lease of an earlier process with its name if the coordinator did not see that Lease,
/// because its label was removed.
#[test]
fn lease_of_another_process_is_deleted_when_it_has_expired() {
    let mut member = Member::new("a", "1", ElectionConfig::default(), 2).unwrap();
    assert!(matches!(member.poll_request(at(0), Timestamp::UNIX_EPOCH), Some(MemberRequest::CreateLease(_))));
    member.handle_response(at(0), MemberResponse::Conflict);
    let foreign = coordinator::lease("a", "1", &[HashRange::ALL]);
    for now in [0, 4, 8, 12] {
        // It was renewed once.
        read(&mut member, now, &foreign, if now == 0 { "5" } else { "6" });
    }
    let mut now = 16;
    let deletion = loop {
        match member.poll_request(at(now), Timestamp::UNIX_EPOCH) {
            Some(MemberRequest::ReadLease) => {
                member.handle_response(at(now), MemberResponse::Lease(foreign.clone(), "6".to_owned()));
            }
            Some(MemberRequest::ReadAssignment) => {
                member.handle_response(at(now), MemberResponse::Assignment(None));
            }
            Some(request) => break request,
            None => now += 1,
        }
    };
    assert_eq!(deletion, MemberRequest::DeleteLease("6".to_owned()));
    assert!((19..=23).contains(&now), "{now}: a lease duration after the renewal was observed");
    // It was renewed in the meantime.
    member.handle_response(at(now), MemberResponse::Conflict);
    read(&mut member, now, &foreign, "7");
    assert_eq!(member.poll_request(at(now), Timestamp::UNIX_EPOCH), None);
}
