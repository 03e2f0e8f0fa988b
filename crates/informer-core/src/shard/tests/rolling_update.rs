//! Rolling updates of a Deployment that starts one new member before it stops an old one, with the coordinator and
//! members that do at once what the assignment contains.

use super::*;
use std::collections::BTreeMap;

const RANGES: u32 = 64;

/// A group without faults and delays.
struct Group {
    coordinator: Coordinator,
    members: BTreeMap<String, MemberRecord>,
    assignment: Option<StoredAssignment>,
    version: u64,
    /// How often the owner of each range has changed.
    moves: Vec<u32>,
}

impl Group {
    fn new() -> Self {
        Self {
            coordinator: Coordinator::new(RangeCount::new(RANGES).unwrap(), ElectionConfig::default()),
            members: BTreeMap::new(),
            assignment: None,
            version: 0,
            moves: vec![0; RANGES as usize],
        }
    }

    /// The coordinator and the members act in turn until nothing changes.
    fn settle(&mut self) {
        loop {
            self.version += 1;
            // The coordinator may write the assignment again.
            let (version, now) = (self.version.to_string(), at(self.version));
            let leases = self.members.values().map(|record| (record.clone(), version.clone()));
            self.coordinator.observe_leases(now, leases);
            self.coordinator.observe_assignment(self.assignment.clone());
            let Some(request) = self.coordinator.poll_request(now) else {
                if self.assignment.is_none() && self.version < 10 {
                    continue; // A new group is divided after a retry period.
                }
                break;
            };
            let (CoordinatorRequest::CreateAssignment(next) | CoordinatorRequest::UpdateAssignment(next, _)) =
                &request
            else {
                panic!("{request:?}");
            };
            if let Some(previous) = self.assignment.as_ref().and_then(|stored| stored.assignment.as_ref()) {
                for (index, (before, after)) in previous.ranges.iter().zip(&next.ranges).enumerate() {
                    self.moves[index] += u32::from(before.owner != after.owner);
                }
            }
            let stored = StoredAssignment { assignment: Some(next.clone()), version };
            for (name, record) in &mut self.members {
                let own = next.iter().filter(|(_, assigned)| assigned.owner.as_ref() == Some(name));
                let own = own.filter(|(_, assigned)| !assigned.is_releasing && !record.is_leaving);
                record.claims = own.map(|(range, _)| range).collect();
            }
            self.assignment = Some(stored.clone());
            let response = CoordinatorResponse::Assignment(Some(stored));
            self.coordinator.handle_response(now, &request, response);
        }
    }

    fn join(&mut self, revision: &str, index: usize) {
        let name = format!("{revision}-{index}");
        self.members.insert(name.clone(), lease(&name, revision, &[]));
        self.settle();
    }

    /// The member releases its ranges one assignment later, and then its Lease is deleted.
    fn leave(&mut self, revision: &str, index: usize) {
        let name = format!("{revision}-{index}");
        self.members.get_mut(&name).unwrap().is_leaving = true;
        self.settle();
        self.members.remove(&name);
        self.settle();
    }

    fn revisions(&self) -> &[String] {
        self.assignment.as_ref().unwrap().assignment.as_ref().unwrap().revisions()
    }

    fn check_moves(&self, limit: u32, text: &str) {
        assert!(self.moves.iter().all(|moves| *moves <= limit), "{text}: {:?}", self.moves);
    }
}

fn lease(identity: &str, revision: &str, claims: &[HashRange]) -> MemberRecord {
    super::coordinator::lease(identity, revision, claims)
}

/// Each range moves when its owner ends, to a member of the new revision, and once more to balance them.
#[test]
fn ranges_move_at_most_twice_in_a_rolling_update() {
    for members in 1..=9 {
        let mut group = Group::new();
        for index in 0..members {
            group.join("b", index);
        }
        group.moves.fill(0);
        // The name of the new revision is less than that of the old one: revisions are not ordered by name.
        for index in 0..members {
            group.join("a", index);
            assert_eq!(group.revisions(), ["b", "a"]);
            group.leave("b", index);
        }
        assert_eq!(group.revisions(), ["a"]);
        group.check_moves(2, &format!("{members} members"));
    }
}

/// The ranges that have moved to the new revision move back once, and at most once more to balance them.
#[test]
fn earlier_revision_is_the_newest_after_a_rollback() {
    for members in 2..=9 {
        for updated in 1..members {
            let mut group = Group::new();
            for index in 0..members {
                group.join("a", index);
            }
            for index in 0..updated {
                group.join("b", index);
                group.leave("a", index);
            }
            group.moves.fill(0);
            for index in 0..updated {
                group.join("a", members + index);
                assert_eq!(group.revisions(), ["b", "a"]);
                group.leave("b", index);
            }
            assert_eq!(group.revisions(), ["a"]);
            group.check_moves(2, &format!("{updated} of {members} members"));
        }
    }
}

/// A member of the old revision that is replaced during an update makes its revision the newest until the next member
/// of the new revision joins. Nothing moves because of that alone.
#[test]
fn replaced_member_of_the_old_revision_moves_only_its_ranges() {
    let mut group = Group::new();
    for index in 0..4 {
        group.join("a", index);
    }
    group.join("b", 0);
    group.leave("a", 0);
    group.moves.fill(0);
    // The member has crashed; its replacement joins before its Lease has expired.
    group.join("a", 10);
    assert_eq!(group.revisions(), ["b", "a"]);
    group.check_moves(0, "joined");
    group.members.remove("a-1");
    group.settle();
    assert_eq!(group.moves.iter().sum::<u32>(), 0, "it may act until its Lease would have expired");
    group.version += 15;
    group.settle();
    assert_eq!(group.moves.iter().sum::<u32>(), 16, "those of the member that has crashed");
    group.join("b", 1);
    assert_eq!(group.revisions(), ["a", "b"]);
    assert_eq!(group.moves.iter().sum::<u32>(), 16);
}
