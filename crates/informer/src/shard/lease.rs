//! The encoding of a member's Lease.
//!
//! Invariants: fields that the group does not use are written back as they were read. A Lease that cannot be read counts
//! as one that claims all hashes, so that no member acts for a range that it may contain.

use informer_core::shard::{HashRanges, MemberRecord};
use jiff::Timestamp;
use kube::core::DynamicObject;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The label of all objects of a group; its value is the name of the group.
pub(super) const GROUP_LABEL: &str = "informer.rs/shard-group";
/// The random number of the process, in hexadecimal.
const INSTANCE: &str = "informer.rs/shard-instance";
const REVISION: &str = "informer.rs/shard-revision";
/// By what the member divides the objects.
const KEY: &str = "informer.rs/shard-key";
/// The number of the record.
const NUMBER: &str = "informer.rs/shard-number";
const CLAIMS: &str = "informer.rs/shard-claims";
/// The version of the assignment that the member has read last.
const ASSIGNMENT: &str = "informer.rs/shard-assignment";
/// Whether the member leaves the group.
const LEAVING: &str = "informer.rs/shard-leaving";

/// Reads the record of the member `identity` of `group`.
///
/// # Errors
///
/// A message if the Lease is not one that a member of this name has written.
pub(super) fn decode(lease: &DynamicObject, group: &str, identity: &str) -> Result<MemberRecord, String> {
    if !has_label(lease, group) {
        return Err(format!("label {GROUP_LABEL} is not {group:?} (does another program use the Lease?)"));
    }
    decode_contents(lease, identity)
}

/// Reads the record of the process `instance`, also if another client has removed the label of the group: then it has no
/// claims, because other members may have claimed the same hashes since.
///
/// # Errors
///
/// A message if the Lease is not one that a member of this name has written.
pub(super) fn decode_own(
    lease: &DynamicObject,
    group: &str,
    identity: &str,
    instance: u64,
) -> Result<MemberRecord, String> {
    match decode_contents(lease, identity) {
        Ok(mut record) if record.instance == instance && !has_label(lease, group) => {
            record.claims = HashRanges::default();
            Ok(record)
        }
        _ => decode(lease, group, identity),
    }
}

fn has_label(lease: &DynamicObject, group: &str) -> bool {
    let labels = lease.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get(GROUP_LABEL)).is_some_and(|label| label == group)
}

fn decode_contents(lease: &DynamicObject, identity: &str) -> Result<MemberRecord, String> {
    let empty = BTreeMap::new();
    let annotations = lease.metadata.annotations.as_ref().unwrap_or(&empty);
    let text = |name: &str| annotations.get(name).map(String::as_str).ok_or(format!("{name} is missing"));
    let spec = |field: &str| lease.data.get("spec").and_then(|spec| spec.get(field));
    if spec("holderIdentity").and_then(Value::as_str) != Some(identity) {
        return Err(format!("holderIdentity is not {identity:?}"));
    }
    let invalid = |name: &str| format!("{name} is invalid");
    let instance = u64::from_str_radix(text(INSTANCE)?, 16).map_err(|_| invalid(INSTANCE))?;
    let mut record = MemberRecord::new(identity, instance, text(REVISION)?);
    text(KEY)?.clone_into(&mut record.key);
    record.number = text(NUMBER)?.parse().map_err(|_| invalid(NUMBER))?;
    record.claims = text(CLAIMS)?.parse().map_err(|_| invalid(CLAIMS))?;
    record.is_leaving = text(LEAVING)?.parse().map_err(|_| invalid(LEAVING))?;
    text(ASSIGNMENT)?.clone_into(&mut record.assignment_version);
    record.lease_duration_seconds =
        lease_duration_seconds(lease).ok_or_else(|| invalid("leaseDurationSeconds"))?;
    // For display only.
    record.renewed = spec("renewTime").and_then(Value::as_str).and_then(|time| time.parse().ok());
    Ok(record)
}

fn lease_duration_seconds(lease: &DynamicObject) -> Option<u32> {
    let seconds = lease.data.get("spec")?.get("leaseDurationSeconds")?.as_u64()?;
    u32::try_from(seconds).ok().filter(|seconds| *seconds > 0)
}

/// Returns the record of a Lease that cannot be read: it claims all hashes and gets no ranges. It has the identity of a
/// member, but not the instance. It is valid for as long as the Lease contains, but at least for `min_seconds`.
pub(super) fn unreadable(lease: &DynamicObject, identity: &str, min_seconds: u32) -> MemberRecord {
    let mut record = MemberRecord::new(identity, 0, "");
    record.claims = HashRanges::all();
    record.lease_duration_seconds = lease_duration_seconds(lease).unwrap_or_default().max(min_seconds);
    record.is_leaving = true;
    record
}

/// Writes a record into a Lease.
pub(super) fn encode(lease: &mut DynamicObject, group: &str, record: &MemberRecord) {
    lease.metadata.labels.get_or_insert_default().insert(GROUP_LABEL.to_owned(), group.to_owned());
    let annotations = lease.metadata.annotations.get_or_insert_default();
    let values = [
        (INSTANCE, format!("{:016x}", record.instance)),
        (REVISION, record.revision.clone()),
        (KEY, record.key.clone()),
        (NUMBER, record.number.to_string()),
        (CLAIMS, record.claims.to_string()),
        (ASSIGNMENT, record.assignment_version.clone()),
        (LEAVING, record.is_leaving.to_string()),
    ];
    annotations.extend(values.map(|(name, value)| (name.to_owned(), value)));
    if !lease.data.is_object() {
        lease.data = Value::Object(Map::new());
    }
    let mut spec = lease.data.get("spec").and_then(Value::as_object).cloned().unwrap_or_default();
    let renewed = record.renewed.map_or(Value::Null, |time| json!(micro_time(time)));
    spec.entry("acquireTime").or_insert_with(|| renewed.clone());
    spec.insert("renewTime".to_owned(), renewed);
    spec.insert("holderIdentity".to_owned(), json!(record.identity));
    spec.insert("leaseDurationSeconds".to_owned(), json!(record.lease_duration_seconds));
    lease.data["spec"] = Value::Object(spec);
}

/// Returns a time in the format of the `MicroTime` of Kubernetes.
fn micro_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use informer_core::shard::{HashRange, RangeCount};
    use kube::core::ObjectMeta;
    use proptest::prelude::*;

    fn lease_of(record: &MemberRecord) -> DynamicObject {
        let mut lease = DynamicObject { types: None, metadata: ObjectMeta::default(), data: Value::Null };
        encode(&mut lease, "shop", record);
        lease
    }

    fn record() -> MemberRecord {
        let mut record = MemberRecord::new("web-1", 7, "a");
        record.lease_duration_seconds = 15;
        record
    }

    #[test]
    fn foreign_fields_stay_unchanged() {
        let mut lease = lease_of(&record());
        lease.data["spec"]["strategy"] = json!("x");
        lease.data["spec"]["acquireTime"] = json!("then");
        lease.metadata.annotations.get_or_insert_default().insert("team".to_owned(), "a".to_owned());
        encode(&mut lease, "shop", &record());
        assert_eq!(
            (&lease.data["spec"]["strategy"], &lease.data["spec"]["acquireTime"]),
            (&json!("x"), &json!("then"))
        );
        assert_eq!(lease.metadata.annotations.unwrap_or_default()["team"], "a");
    }

    #[test]
    fn edited_lease_is_an_error() {
        let edits: [fn(&mut DynamicObject); 9] = [
            |lease| lease.metadata.labels = None,
            |lease| lease.metadata.annotations = None,
            |lease| lease.data = Value::Null,
            |lease| lease.data["spec"]["holderIdentity"] = json!("web-2"),
            |lease| lease.data["spec"]["leaseDurationSeconds"] = json!(0),
            |lease| lease.data["spec"]["leaseDurationSeconds"] = json!(-1),
            |lease| lease.data["spec"] = json!([1]),
            |lease| set(lease, CLAIMS, "0-1"),
            |lease| set(lease, LEAVING, "no"),
        ];
        assert_eq!(decode(&lease_of(&record()), "shop", "web-1"), Ok(record()));
        for (index, edit) in edits.iter().enumerate() {
            let mut lease = lease_of(&record());
            edit(&mut lease);
            assert!(decode(&lease, "shop", "web-1").is_err(), "edit {index}");
        }
    }

    fn set(lease: &mut DynamicObject, annotation: &str, value: &str) {
        let annotations = lease.metadata.annotations.get_or_insert_default();
        annotations.insert(annotation.to_owned(), value.to_owned());
    }

    #[test]
    fn own_lease_without_label_has_no_claims() {
        let mut stored = record();
        stored.claims = HashRanges::all();
        let mut lease = lease_of(&stored);
        assert_eq!(decode_own(&lease, "shop", "web-1", 7), Ok(stored));
        lease.metadata.labels = None;
        assert_eq!(decode_own(&lease, "shop", "web-1", 7), Ok(record()));
        assert!(decode_own(&lease, "shop", "web-1", 8).is_err(), "of another process");
    }

    /// Bug: a Lease that could not be read counted for the duration of the reader, although its member may act longer.
    #[test]
    fn unreadable_lease_claims_all_hashes_for_its_duration() {
        let mut lease = lease_of(&record());
        for (stored, expected) in [(json!(60), 60), (json!(5), 15), (json!(-1), 15), (json!("60"), 15)] {
            lease.data["spec"]["leaseDurationSeconds"] = stored;
            let record = unreadable(&lease, "web-1", 15);
            assert!(record.claims.covers(&HashRange::ALL));
            assert_eq!(record.lease_duration_seconds, expected);
        }
    }

    proptest! {
        #[test]
        fn decoded_record_is_the_encoded_one(
            (instance, number, seconds) in (any::<u64>(), any::<u64>(), 1_u32..),
            (revision, version, key) in (".{0,20}", "[0-9]{0,9}", "[a-z]{0,9}"),
            ranges in prop::collection::vec(0_usize..256, 0..20),
            is_leaving in any::<bool>(),
            micros in 0..4_000_000_000_000_000_i64,
        ) {
            let all: Vec<HashRange> = RangeCount::default().ranges().collect();
            let mut record = MemberRecord::new("web-1", instance, &revision);
            (record.number, record.lease_duration_seconds, record.is_leaving) = (number, seconds, is_leaving);
            (record.assignment_version, record.key) = (version, key);
            record.claims = ranges.iter().map(|index| all[*index]).collect();
            record.renewed = Timestamp::from_microsecond(micros).ok();
            prop_assert_eq!(decode(&lease_of(&record), "shop", "web-1"), Ok(record));
        }

        #[test]
        fn any_annotation_is_read_or_rejected(which in 0_usize..7, value in ".{0,40}") {
            let name = [INSTANCE, REVISION, KEY, NUMBER, CLAIMS, ASSIGNMENT, LEAVING][which];
            let mut lease = lease_of(&record());
            set(&mut lease, name, &value);
            if let Ok(read) = decode(&lease, "shop", "web-1") {
                prop_assert_eq!(decode(&lease_of(&read), "shop", "web-1"), Ok(read));
            }
        }
    }
}
