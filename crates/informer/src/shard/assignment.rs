//! The encoding of the assignment in a `ConfigMap`: runs of neighbouring ranges with equal assignments, as JSON.
//!
//! Invariant: an assignment is read only if its runs contain each range exactly once. Anything else counts as edited,
//! and the coordinator writes a new one.

use super::lease::GROUP_LABEL;
use informer_core::shard::{Assignment, RangeAssignment, RangeCount, StoredAssignment};
use kube::core::DynamicObject;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The key of the assignment in the `ConfigMap`.
const DATA_KEY: &str = "assignment";

#[derive(Serialize, Deserialize)]
struct Document {
    /// The number of ranges.
    ranges: u32,
    /// By what the members divide the objects.
    key: String,
    runs: Vec<Run>,
    revisions: Vec<String>,
    members: Vec<String>,
}

/// Neighbouring ranges with equal assignments.
#[derive(Serialize, Deserialize)]
struct Run {
    /// The index of the first range.
    first: u32,
    count: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
    epoch: u64,
    state: State,
}

#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The owner is to act, or there is none.
    Owned,
    /// The owner is to stop.
    Releasing,
}

/// Reads the assignment of a `ConfigMap`; its contents are `None` if they are not valid.
pub(super) fn decode(map: &DynamicObject) -> StoredAssignment {
    let text = map.data.get("data").and_then(|data| data.get(DATA_KEY)).and_then(Value::as_str);
    let version = map.metadata.resource_version.clone().unwrap_or_default();
    StoredAssignment { assignment: text.and_then(parse), version }
}

fn parse(text: &str) -> Option<Assignment> {
    let document: Document = serde_json::from_str(text).ok()?;
    // The number is checked before anything of its size is allocated.
    let count = RangeCount::new(document.ranges)?.get();
    let mut ranges = Vec::with_capacity(count);
    for Run { first, count: length, owner, epoch, state } in document.runs {
        let (first, length) = (usize::try_from(first).ok()?, usize::try_from(length).ok()?);
        let is_valid_owner = owner.as_ref().map_or(state == State::Owned, |owner| !owner.is_empty());
        if first != ranges.len() || length == 0 || length > count - first || !is_valid_owner {
            return None;
        }
        let assigned = RangeAssignment::new(owner, epoch, state == State::Releasing);
        ranges.extend(std::iter::repeat_n(assigned, length));
    }
    if ranges.len() != count {
        return None;
    }
    let assignment = Assignment::new(ranges, document.revisions, document.members)?;
    Some(assignment.with_key(&document.key))
}

fn format(assignment: &Assignment) -> String {
    let mut runs: Vec<Run> = Vec::new();
    for (index, (_, assigned)) in (0..).zip(assignment.iter()) {
        let is_releasing = assigned.is_releasing && assigned.owner.is_some();
        let state = if is_releasing { State::Releasing } else { State::Owned };
        match runs.last_mut() {
            Some(run) if (&run.owner, run.epoch, run.state) == (&assigned.owner, assigned.epoch, state) => {
                run.count += 1;
            }
            _ => {
                let (owner, epoch) = (assigned.owner.clone(), assigned.epoch);
                runs.push(Run { first: index, count: 1, owner, epoch, state });
            }
        }
    }
    let document = Document {
        ranges: runs.iter().map(|run| run.count).sum(),
        key: assignment.key().to_owned(),
        runs,
        revisions: assignment.revisions().to_vec(),
        members: assignment.members().to_vec(),
    };
    // Numbers and texts can always be written as JSON.
    serde_json::to_string(&document).unwrap_or_default()
}

/// Writes an assignment into a `ConfigMap`; its other fields stay unchanged.
pub(super) fn encode(map: &mut DynamicObject, group: &str, assignment: &Assignment) {
    map.metadata.labels.get_or_insert_default().insert(GROUP_LABEL.to_owned(), group.to_owned());
    if !map.data.is_object() {
        map.data = Value::Object(Map::new());
    }
    let mut data = map.data.get("data").and_then(Value::as_object).cloned().unwrap_or_default();
    data.insert(DATA_KEY.to_owned(), Value::String(format(assignment)));
    map.data["data"] = Value::Object(data);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_assignment() -> impl Strategy<Value = Assignment> {
        let owner = prop::option::of("[a-c]{1,2}");
        let assigned = (owner, 0..3_u64, any::<bool>()).prop_map(|(owner, epoch, releasing)| {
            let is_releasing = releasing && owner.is_some();
            RangeAssignment::new(owner, epoch, is_releasing)
        });
        let texts = || prop::collection::vec("[a-z\"\\\\é]{0,4}", 0..4);
        let ranges =
            (0_u32..6).prop_flat_map(move |power| prop::collection::vec(assigned.clone(), 1 << power));
        let new = |(ranges, revisions, members)| Assignment::new(ranges, revisions, members);
        (ranges, texts(), texts()).prop_filter_map("number of ranges", new)
    }

    #[test]
    fn equal_neighbours_are_one_run() {
        let owned = |owner: &str| RangeAssignment::new(Some(owner.to_owned()), 1, false);
        let ranges = [vec![owned("a"); 3], vec![owned("b"); 5]].concat();
        let assignment = Assignment::new(ranges, vec!["r1".to_owned()], vec!["a".to_owned()]).unwrap();
        let text = format(&assignment.with_key("uid"));
        let expected = concat!(
            r#"{"ranges":8,"key":"uid","runs":[{"first":0,"count":3,"owner":"a","epoch":1,"state":"Owned"},"#,
            r#"{"first":3,"count":5,"owner":"b","epoch":1,"state":"Owned"}],"revisions":["r1"],"members":["a"]}"#
        );
        assert_eq!(text, expected);
    }

    #[test]
    fn edited_assignments_are_rejected() {
        let document = |ranges: &str, runs: &str| {
            format!(r#"{{"ranges":{ranges},"key":"","runs":[{runs}],"revisions":[],"members":[]}}"#)
        };
        let run = |first: u64, count: u64, rest: &str| {
            format!(r#"{{"first":{first},"count":{count},"epoch":1,"state":{rest}}}"#)
        };
        let owned = r#""Owned""#;
        assert!(parse(&document("2", &run(0, 2, owned))).is_some());
        let invalid = [
            String::new(),
            "{}".to_owned(),
            document("2", ""),
            document("3", &run(0, 3, owned)),
            document("4294967296", &run(0, 2, owned)),
            document("2", &run(0, 1, owned)),
            document("2", &run(0, 3, owned)),
            document("2", &run(0, 4_294_967_295, owned)),
            document("2", &run(1, 1, owned)),
            document("2", &format!("{},{}", run(0, 2, owned), run(2, 0, owned))),
            document("2", &format!("{},{}", run(0, 1, owned), run(0, 1, owned))),
            document("2", &run(0, 2, r#""Releasing""#)),
            document("2", &run(0, 2, r#""Free""#)),
            document("2", &run(0, 2, r#""Owned","owner":"""#)),
            document("2", &run(0, 2, r#""Owned","owner":1"#)),
            document("2", &run(0, 2, owned)) + "x",
        ];
        for text in invalid {
            assert_eq!(parse(&text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn decoded_assignment_is_the_encoded_one(assignment in any_assignment()) {
            prop_assert_eq!(parse(&format(&assignment)), Some(assignment));
        }

        #[test]
        fn damaged_text_is_read_or_rejected(assignment in any_assignment(), at in any::<prop::sample::Index>(), new in any::<char>()) {
            let mut chars: Vec<char> = format(&assignment).chars().collect();
            let at = at.index(chars.len());
            chars[at] = new;
            if let Some(read) = parse(&chars.into_iter().collect::<String>()) {
                prop_assert_eq!(parse(&format(&read)), Some(read));
            }
        }
    }
}
