//! Unit tests of the store's guarantees.
//!
//! Objects are written as `namespace/name uid version value`; changes are printed as `+ a/x@1`, `~ a/x@1>2`
//! and `- a/x@2 observed`. Random operations are compared with a reference model in `tests/reference_model`.

use super::*;
use crate::delta::{Deleted, Delta, Replaced};
use crate::key::Key;
use crate::object::{Entry, Object};
use crate::retention::Retention;
use crate::scope::Scope;
use crate::version::ResourceVersion;
use crate::wire::{Limits, ListItem, ListReader, TypeMeta, UnreadableObject};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::sync::Arc;

// Notation

/// Parses `a/x u1 7 red`: namespace and name, uid (`-` for none), version, and the value of the object.
fn to_json(text: &str) -> Value {
    let words: Vec<&str> = text.split(' ').collect();
    let [name, uid, version, value] = words[..] else { panic!("{text}: expected four words") };
    let key: Key = name.parse().unwrap();
    let uid = Some(uid).filter(|uid| *uid != "-");
    // Labels that are not a map make the object unreadable.
    let labels = if value == "?" { json!("?") } else { json!({ "value": value }) };
    json!({
        "metadata": {
            "name": key.name(), "namespace": key.namespace(), "uid": uid, "resourceVersion": version, "labels": labels,
        },
        "spec": { "value": value },
    })
}

fn read(texts: &[&str]) -> (Vec<Arc<Entry>>, Vec<UnreadableObject>) {
    let items: Vec<Value> = texts.iter().map(|text| to_json(text)).collect();
    let body = json!({ "metadata": { "resourceVersion": "1" }, "items": items }).to_string();
    let (mut entries, mut unreadable) = (Vec::new(), Vec::new());
    let mut reader = ListReader::new(TypeMeta::new("v1", "Thing"), Limits::default());
    let read = reader.read(body.as_bytes(), |item| match item {
        ListItem::Meta(_) => {}
        ListItem::Object(scanned) => {
            entries.push(Arc::new(Entry::new(scanned, Retention::Bytes)));
        }
        ListItem::Unreadable(item) => unreadable.push(item),
    });
    read.unwrap();
    (entries, unreadable)
}

/// Returns the delta of a watch frame: an upsert, or an unreadable object.
fn watch(text: &str) -> Delta {
    let (mut entries, mut unreadable) = read(&[text]);
    entries.pop().map(Delta::Updated).or(unreadable.pop().map(Delta::Unreadable)).unwrap()
}

fn delete(text: &str) -> Delta {
    let entry = read(&[text]).0.pop().unwrap();
    let (key, version) = (entry.key().clone(), Some(entry.head().version.clone()));
    Delta::Deleted(Deleted { key, version, last: Some(entry) })
}

fn list_of(scope: Scope, version: &str, texts: &[&str]) -> Delta {
    let (entries, unreadable) = read(texts);
    Delta::Replaced(Replaced {
        scope,
        version: ResourceVersion::new(version),
        entries,
        unreadable,
        audit: false,
    })
}

fn list(version: &str, texts: &[&str]) -> Delta {
    list_of(Scope::All, version, texts)
}

fn printed_changes(result: &BatchResult) -> Vec<String> {
    let print = |change: &Change| match change {
        Change::Added(entry) => format!("+ {entry:?}"),
        Change::Updated { old, new } => format!("~ {old:?}>{}", new.head().version),
        Change::Deleted { last, observed: true } => format!("- {last:?} observed"),
        Change::Deleted { last, observed: false } => format!("- {last:?} inferred"),
        Change::Released(entry) => format!("released {entry:?}"),
    };
    result.changes.iter().map(print).collect()
}

/// Returns a store to which these deltas were applied.
fn store(deltas: impl IntoIterator<Item = Delta>) -> (StoreWriter, StoreReader) {
    let (mut writer, reader) = StoreWriter::new([Scope::All]);
    writer.apply(&Scope::All, deltas);
    (writer, reader)
}

/// Applies a delta and checks the invariants.
fn apply(writer: &mut StoreWriter, delta: Delta) -> BatchResult {
    let result = writer.apply(&Scope::All, [delta]);
    writer.check_invariants();
    result
}

fn get(reader: &StoreReader, key: &str) -> Arc<Entry> {
    reader.get(&key.parse().unwrap()).unwrap()
}

fn contents(snapshot: &StoreSnapshot) -> Vec<String> {
    snapshot.list().map(|entry| format!("{entry:?}")).collect()
}

fn version(snapshot: &StoreSnapshot) -> Option<&str> {
    snapshot.resource_version().map(ResourceVersion::as_str)
}

// C1

#[test]
fn c1_watch_never_lowers_a_comparable_version() {
    let (mut writer, reader) = store([watch("a/x u1 10 red")]);
    for old in ["a/x u1 9 old", "a/x u1 10 other", "a/x u2 9 recreated", "a/x u1 9 ?"] {
        let result = apply(&mut writer, watch(old));
        assert_eq!((printed_changes(&result).len(), result.stale_deltas), (0, 1), "{old}");
    }
    let result = apply(&mut writer, delete("a/x u1 9 old"));
    assert_eq!((printed_changes(&result).len(), result.stale_deltas), (0, 1), "an older deletion");
    assert!(!get(&reader, "a/x").is_stale());
    assert_eq!(version(&reader.snapshot()), Some("10"));
    assert_eq!(printed_changes(&apply(&mut writer, watch("a/x u1 100 new"))), ["~ a/x@10>100"]);
}

#[test]
fn c1_bookmark_never_lowers_the_version() {
    let (mut writer, reader) = store([watch("a/x u1 10 red")]);
    for (bookmark, expected) in [("9", "10"), ("11", "11")] {
        apply(&mut writer, Delta::Bookmark(ResourceVersion::new(bookmark)));
        assert_eq!(version(&reader.snapshot()), Some(expected));
    }
}

#[test]
fn c1_deltas_with_opaque_versions_are_never_dropped() {
    let (mut writer, _) = store([watch("a/x u1 xyz red")]);
    assert_eq!(printed_changes(&apply(&mut writer, watch("a/x u1 abc blue"))), ["~ a/x@xyz>abc"]);
    assert_eq!(printed_changes(&apply(&mut writer, watch("a/x u1 abc green"))), ["~ a/x@abc>abc"]);
    assert_eq!(printed_changes(&apply(&mut writer, watch("a/x u1 7 green"))), ["~ a/x@abc>7"]);
    assert_eq!(printed_changes(&apply(&mut writer, watch("a/x u1 06 green"))), ["~ a/x@7>06"]);
    assert_eq!(printed_changes(&apply(&mut writer, delete("a/x u1 05 green"))), ["- a/x@05 observed"]);
}

#[test]
fn c1_relist_with_lower_versions_is_accepted_as_a_rewind() {
    let (mut writer, reader) = store([list("90", &["a/x u1 80 red", "a/y u1 85 red"])]);
    let result = apply(&mut writer, list("50", &["a/x u1 40 blue"]));
    assert!(result.server_rewound);
    assert_eq!(printed_changes(&result), ["- a/y@85 inferred", "~ a/x@80>40"]);
    assert_eq!(version(&reader.snapshot()), Some("50"));
    assert_eq!(
        printed_changes(&apply(&mut writer, watch("a/x u1 51 green"))),
        ["~ a/x@40>51"],
        "the watch resumes from the lower version"
    );
    assert!(
        !apply(&mut writer, list("51", &["a/x u1 51 green"])).server_rewound,
        "an equal version is not a rewind"
    );
}

#[test]
fn c1_equal_versions_after_a_rewind_are_compared_by_content() {
    let (mut writer, reader) = store([list("90", &["a/x u1 80 red"])]);
    let result = apply(&mut writer, list("85", &["a/x u1 80 blue"]));
    assert_eq!(printed_changes(&result), ["~ a/x@80>80"]);
    assert_eq!(get(&reader, "a/x").head().labels.get("value"), Some("blue"));
}

// C2, C3

#[test]
fn c3_new_uid_in_a_watch_is_a_deletion_and_an_addition() {
    let (mut writer, _) = store([watch("a/x u1 10 red")]);
    assert_eq!(
        printed_changes(&apply(&mut writer, watch("a/x u2 11 red"))),
        ["- a/x@10 inferred", "+ a/x@11"]
    );
}

#[test]
fn c3_new_uid_in_a_list_is_a_deletion_and_an_addition() {
    let (mut writer, _) = store([list("10", &["a/x u1 5 red", "a/y u1 6 red"])]);
    let result = apply(&mut writer, list("20", &["a/y u2 12 red", "a/x u1 15 red"]));
    assert_eq!(printed_changes(&result), ["- a/y@6 inferred", "~ a/x@5>15", "+ a/y@12"]);
}

#[test]
fn c3_deletion_of_another_incarnation_infers_the_deletion_of_the_cached_one() {
    // Regression: a handler that had received u1 received u2 as the last state.
    let (mut writer, _) = store([watch("a/x u1 10 red")]);
    assert_eq!(printed_changes(&apply(&mut writer, delete("a/x u2 12 red"))), ["- a/x@10 inferred"]);
}

#[test]
fn c3_missing_uid_is_treated_as_the_same_incarnation() {
    let (mut writer, _) = store([watch("a/x u1 10 red")]);
    assert_eq!(printed_changes(&apply(&mut writer, watch("a/x - 11 red"))), ["~ a/x@10>11"]);
    assert_eq!(printed_changes(&apply(&mut writer, watch("a/x u2 12 red"))), ["~ a/x@11>12"]);
}

#[test]
fn c2_object_deleted_during_a_gap_is_reported_as_inferred_with_its_last_state() {
    let (mut writer, reader) = store([list("10", &["a/x u1 5 red"])]);
    let last = get(&reader, "a/x");
    let result = apply(&mut writer, list("20", &[]));
    assert!(
        matches!(&result.changes[..], [Change::Deleted { last: found, observed: false }] if Arc::ptr_eq(found, &last))
    );
}

#[test]
fn c3_deletion_of_an_unknown_key_is_not_a_change() {
    let (mut writer, reader) = store([]);
    let result = apply(&mut writer, delete("a/x u1 10 red"));
    assert_eq!((printed_changes(&result).len(), result.deletes_of_unknown), (0, 1));
    assert_eq!(version(&reader.snapshot()), Some("10"), "the version advances anyway");
}

// C5

#[test]
fn c5_list_affects_only_its_scope() {
    let (a, b) = (Scope::namespace("a"), Scope::namespace("a-b"));
    let (mut writer, reader) = StoreWriter::new([a.clone(), b.clone()]);
    writer.apply(&a, [list_of(a.clone(), "10", &["a/x u1 5 red", "a/y u1 6 red"])]);
    assert_eq!(version(&reader.snapshot()), None, "the other scope has not synced");
    writer.apply(&b, [list_of(b.clone(), "7", &["a-b/x u1 6 red"])]);
    assert_eq!(version(&reader.snapshot()), Some("7"), "the lowest of all scopes");
    let result = writer.apply(&a, [list_of(a.clone(), "20", &["a/y u1 6 red"])]);
    assert_eq!(printed_changes(&result), ["- a/x@5 inferred"]);
    assert!(
        !writer.apply(&b, [list_of(b.clone(), "8", &[])]).server_rewound,
        "versions of other scopes are ignored"
    );
    assert_eq!(contents(&reader.snapshot()), ["a/y@6"]);
    assert_eq!(version(&reader.snapshot()), Some("8"));
    assert_eq!(reader.snapshot().scope_version(&a), Some(&ResourceVersion::new("20")));
}

#[test]
fn c5_list_reports_deletions_first_then_changes_in_key_order() {
    let (mut writer, reader) =
        store([list("10", &["b/m u1 5 red", "a/z u1 5 red", "a/k u1 5 red", "a/same u1 5 red"])]);
    let same = get(&reader, "a/same");
    let result =
        apply(&mut writer, list("20", &["c/n u1 5 red", "a/same u1 5 red", "a/k u1 6 red", "a/a u1 7 red"]));
    let expected = ["- a/z@5 inferred", "- b/m@5 inferred", "+ a/a@7", "~ a/k@5>6", "+ c/n@5"];
    assert_eq!(printed_changes(&result), expected);
    assert!(Arc::ptr_eq(&same, &get(&reader, "a/same")), "an identical object keeps its entry");
}

#[test]
fn c5_last_of_duplicate_items_in_a_list_is_kept() {
    let (mut writer, reader) = store([]);
    let result = apply(&mut writer, list("10", &["a/x u1 6 first", "a/y u1 5 red", "a/x u1 5 later"]));
    assert_eq!(printed_changes(&result), ["+ a/x@5", "+ a/y@5"]);
    assert_eq!(result.duplicates, 1);
    assert_eq!(get(&reader, "a/x").head().labels.get("value"), Some("later"));
}

#[test]
fn c5_snapshot_does_not_change() {
    let (mut writer, reader) = store([list("10", &["a/x u1 5 red", "a/y u1 6 blue"])]);
    let index = Index::label("value").build().unwrap();
    writer.add_index(index.clone());
    let snapshot = reader.snapshot();
    apply(&mut writer, watch("a/x u1 11 blue"));
    apply(&mut writer, list("20", &[]));
    assert!(reader.snapshot().is_empty());
    assert_eq!(contents(&snapshot), ["a/x@5", "a/y@6"]);
    assert_eq!(snapshot.index_keys(&index, "blue"), [Key::new("a", "y")]);
    assert_eq!(version(&snapshot), Some("10"));
}

#[test]
fn c5_index_built_from_an_old_snapshot_is_updated_on_installation() {
    let (mut writer, reader) =
        store([list("10", &["a/gone u1 5 red", "a/moved u1 6 red", "a/stays u1 7 red"])]);
    let index = Index::field("spec.value").build().unwrap();
    let built = reader.build_index(index.clone());
    writer.apply(
        &Scope::All,
        [delete("a/gone u1 11 red"), watch("a/moved u1 12 blue"), watch("a/new u1 13 red")],
    );
    assert!(!reader.snapshot().has_index(&index));
    let scanned = reader.snapshot().index_keys(&index, "red");
    writer.install_index(built);
    writer.check_invariants();
    assert!(reader.snapshot().has_index(&index));
    assert_eq!(scanned, [Key::new("a", "new"), Key::new("a", "stays")], "by scanning the objects");
    assert_eq!(reader.snapshot().index_keys(&index, "red"), scanned, "through the index");
}

// Indexes, C9

#[test]
fn index_is_updated_when_objects_gain_and_lose_values() {
    let words =
        |text: &str| text.split('.').filter(|word| *word != "none").map(String::from).collect::<Vec<_>>();
    let index = Index::from_fn("words", move |object: &Object<()>| {
        words(object.labels().get("value").unwrap_or("none"))
    });
    let index = index.build().unwrap();
    let (mut writer, reader) = store([]);
    writer.add_index(index.clone());
    // Values are shared by objects, kept, removed with their last object, and added again.
    let steps = [
        ("a/x u1 1 red", "red: x"),
        ("a/y u1 2 red.blue.red", "blue: y, red: x y"),
        ("a/x u1 3 none", "blue: y, red: y"),
        ("a/z u1 4 green.blue.red", "blue: y z, green: z, red: y z"),
        ("a/y u1 5 green", "blue: z, green: y z, red: z"),
        ("a/z u1 6 yellow.white", "green: y, white: z, yellow: z"),
        ("a/x u1 7 black.red", "black: x, green: y, red: x, white: z, yellow: z"),
        ("a/z u1 8 none", "black: x, green: y, red: x"),
    ];
    let print = |snapshot: &StoreSnapshot| {
        let line = |value: Cow<'_, str>| {
            let keys = snapshot.index_keys(&index, &value);
            let names: Vec<&str> = keys.iter().map(Key::name).collect();
            format!("{value}: {}", names.join(" "))
        };
        snapshot.index_values(&index).map(line).collect::<Vec<_>>().join(", ")
    };
    let mut snapshots = Vec::new();
    for (text, expected) in steps {
        apply(&mut writer, watch(text));
        snapshots.push((reader.snapshot(), expected));
    }
    for gone in ["a/x u1 9 last", "a/y u1 10 last", "a/z u1 11 last"] {
        apply(&mut writer, delete(gone));
    }
    snapshots.push((reader.snapshot(), ""));
    for (snapshot, expected) in snapshots {
        assert_eq!(print(&snapshot), expected);
        assert_eq!(snapshot.index_keys(&index, "rea").len() + snapshot.index_keys(&index, "zebra").len(), 0);
    }
}

#[test]
fn c9_panicking_index_affects_only_itself() {
    let (mut writer, reader) = store([]);
    let picky = Index::from_fn("picky", |object: &Object<()>| {
        // Unwinds like a panic, but prints no message.
        if object.name() == "bad" {
            std::panic::resume_unwind(Box::new("bad"))
        } else {
            [object.name().to_owned()]
        }
    });
    let (picky, label) = (picky.build().unwrap(), Index::label("value").build().unwrap());
    writer.add_index(picky.clone());
    writer.add_index(label.clone());
    let result = writer.apply(&Scope::All, [watch("a/bad u1 10 red"), watch("a/good u1 11 red")]);
    assert_eq!(printed_changes(&result), ["+ a/bad@10", "+ a/good@11"]);
    assert_eq!((picky.panics(), label.panics()), (1, 0));
    let snapshot = reader.snapshot();
    assert!(snapshot.index_values(&picky).eq(["good"]));
    assert_eq!(snapshot.index_keys(&label, "red").len(), 2);
    writer.check_invariants();
}

#[test]
fn c9_unreadable_object_keeps_its_entry_as_stale() {
    let (mut writer, reader) = store([watch("a/x u1 10 red")]);
    let result = apply(&mut writer, watch("a/x u1 12 ?"));
    assert_eq!((printed_changes(&result).len(), result.unreadable), (0, 1));
    assert!(get(&reader, "a/x").is_stale());
    let snapshot = reader.snapshot();
    let unreadable: Vec<_> = snapshot.unreadable().collect();
    assert_eq!(unreadable, [(&Key::new("a", "x"), "metadata.labels is not a map of strings")]);
    assert_eq!(version(&snapshot), Some("12"));
    let result = apply(&mut writer, watch("a/x u1 11 between"));
    assert_eq!(result.stale_deltas, 1, "older than the unreadable state");
    assert_eq!(printed_changes(&apply(&mut writer, watch("a/x u1 13 blue"))), ["~ a/x@10>13"]);
    assert!(!get(&reader, "a/x").is_stale());
    assert_eq!(reader.snapshot().unreadable().count(), 0);
}

#[test]
fn c9_unreadable_item_in_a_list_is_not_a_deletion() {
    let (mut writer, reader) = store([list("10", &["a/x u1 5 red", "a/y u1 6 red"])]);
    let result = apply(&mut writer, list("20", &["a/x u1 15 ?", "a/y u1 6 red", "a/never u1 3 ?"]));
    assert_eq!((printed_changes(&result).len(), result.unreadable), (0, 2));
    assert!(get(&reader, "a/x").is_stale() && !get(&reader, "a/y").is_stale());
    assert_eq!(reader.snapshot().unreadable().count(), 2, "including an object that was never cached");
    // The previous state is listed again, now readable: its entry is kept and no longer stale.
    let before = get(&reader, "a/x");
    let result = apply(&mut writer, list("30", &["a/x u1 5 red", "a/y u1 6 red"]));
    assert!(printed_changes(&result).is_empty());
    assert!(Arc::ptr_eq(&before, &get(&reader, "a/x")) && !before.is_stale());
    assert_eq!(reader.snapshot().unreadable().count(), 0);
}

#[test]
fn c9_deletion_removes_the_mark_of_an_unreadable_object() {
    let (mut writer, reader) = store([watch("a/x u1 10 red"), watch("a/x u1 11 ?"), watch("a/y u1 12 ?")]);
    assert_eq!(printed_changes(&apply(&mut writer, delete("a/x u1 13 last"))), ["- a/x@13 observed"]);
    assert_eq!(apply(&mut writer, delete("a/y u1 14 last")).deletes_of_unknown, 1);
    assert_eq!(reader.snapshot().unreadable().count(), 0);
}

#[test]
fn c1_unreadable_object_after_a_rewind_does_not_keep_its_old_version() {
    // The state of x on the restored server is unreadable. The next one is accepted although its version is
    // lower than that of the cached entry.
    let (mut writer, _) = store([list("90", &["a/x u1 80 red"]), list("50", &["a/x u1 40 ?"])]);
    assert_eq!(printed_changes(&apply(&mut writer, watch("a/x u1 51 blue"))), ["~ a/x@80>51"]);
}
