//! What the server has stored about a group: for tools that show it.

use super::client::{GroupClient, GroupName, is_status};
use informer_core::shard::{Assignment, HashRange, HashRanges};
use jiff::Timestamp;
use std::time::Duration;

/// What the server has stored about a shard group; see [`describe`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct GroupDescription {
    /// The name in the Lease of the election: the coordinator, or the one that was it last. `None` if there was none.
    pub coordinator: Option<String>,
    /// The members, in the order of their names.
    pub members: Vec<MemberDescription>,
    /// The ranges in ascending order; empty if there is no assignment, or if it cannot be read.
    pub ranges: Vec<RangeDescription>,
    /// The resource version of the assignment; `None` if there is none.
    pub assignment_version: Option<String>,
}

/// What the server has stored about a member of a shard group.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct MemberDescription {
    /// The name of the member.
    pub identity: String,
    /// The revision of its program.
    pub revision: String,
    /// By what it divides the objects: `namespace` or `uid`; empty if the Lease cannot be read. Members with different
    /// keys do not act at the same time.
    pub key: String,
    /// When the Lease was renewed, by the clock of the member; `None` if it cannot be read.
    pub renewed: Option<Timestamp>,
    /// Time without a renewal after which the member counts as ended.
    pub lease_duration: Duration,
    /// Whether the member is about to end, or its Lease cannot be read.
    pub is_leaving: bool,
    /// The hashes that it claims: for which it acts, or is about to.
    pub claims: HashRanges,
    /// Whether it has read the newest assignment.
    pub is_up_to_date: bool,
}

/// What the server has stored about a range of a shard group.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RangeDescription {
    /// The range.
    pub range: HashRange,
    /// The member that is to act for it.
    pub owner: Option<String>,
    /// How often it was assigned to another member.
    pub epoch: u64,
    /// Whether the owner is to release it.
    pub is_releasing: bool,
    /// The member that claims it; `None` if none does.
    pub claimed_by: Option<String>,
}

/// Reads what the server has stored about a shard group, without taking part in it.
///
/// The parts are read one after the other, so they may be of different moments. A group that does not exist has no
/// members and no assignment.
///
/// # Errors
///
/// Returns the error of the first request that fails.
pub async fn describe(
    client: kube::Client,
    namespace: &str,
    name: &str,
) -> Result<GroupDescription, kube::Error> {
    let group = GroupName { namespace: namespace.into(), name: name.into() };
    let (instance, lease_duration) = (0, 0);
    let client = GroupClient::new(client, group, "".into(), instance, lease_duration);
    let assignment = client.read_assignment().await?;
    let assignment_version = assignment.as_ref().map(|stored| stored.version.clone());
    let leases = client.list_leases().await?;
    let records: Vec<_> = client.records(&leases).into_iter().map(|(record, _)| record).collect();
    let coordinator = match client.read_coordinator().await {
        Err(error) if is_status(&error, 404) => None,
        coordinator => coordinator?,
    };
    let assignment = assignment.and_then(|stored| stored.assignment);
    let ranges = assignment.iter().flat_map(Assignment::iter).map(|(range, assigned)| {
        let claims = |range| records.iter().find(|record| record.claims.overlaps(&range));
        RangeDescription {
            range,
            owner: assigned.owner.clone(),
            epoch: assigned.epoch,
            is_releasing: assigned.is_releasing,
            claimed_by: claims(range).map(|record| record.identity.clone()),
        }
    });
    let ranges = ranges.collect();
    let mut members: Vec<MemberDescription> = records
        .iter()
        .map(|record| MemberDescription {
            identity: record.identity.clone(),
            revision: record.revision.clone(),
            key: record.key.clone(),
            renewed: record.renewed,
            lease_duration: Duration::from_secs(record.lease_duration_seconds.into()),
            is_leaving: record.is_leaving,
            claims: record.claims.clone(),
            is_up_to_date: Some(&record.assignment_version) == assignment_version.as_ref(),
        })
        .collect();
    members.sort_by(|left, right| left.identity.cmp(&right.identity));
    Ok(GroupDescription { coordinator, members, ranges, assignment_version })
}
