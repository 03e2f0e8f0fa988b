//! The store's promises, one short story each.
//!
//! Objects are written as `namespace/name uid version value`, changes are printed as `+ a/x@1`, `~ a/x@1>2` and `- a/x@2 observed`.
//! Random operations against a naive twin are in `tests/reference_model.rs`.

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

// Writing and printing

/// `a/x u1 7 red`: namespace and name, uid (`-` for none), version, and what the object says.
fn to_json(text: &str) -> Value {
    let words: Vec<&str> = text.split(' ').collect();
    let [name, uid, version, value] = words[..] else { panic!("{text}: four words are expected") };
    let key: Key = name.parse().unwrap();
    let uid = Some(uid).filter(|uid| *uid != "-");
    // What says `?` has labels that are none, and cannot be read.
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

/// What a watch says: an upsert, or something unreadable.
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

fn told(applied: &BatchResult) -> Vec<String> {
    let print = |change: &Change| match change {
        Change::Added(entry) => format!("+ {entry:?}"),
        Change::Updated { old, new } => format!("~ {old:?}>{}", new.head().version),
        Change::Deleted { last, observed: true } => format!("- {last:?} observed"),
        Change::Deleted { last, observed: false } => format!("- {last:?} inferred"),
    };
    applied.changes.iter().map(print).collect()
}

/// A cache of everything that has taken in these deltas.
fn store(deltas: impl IntoIterator<Item = Delta>) -> (StoreWriter, StoreReader) {
    let (mut writer, reader) = StoreWriter::new([Scope::All]);
    writer.apply(&Scope::All, deltas);
    (writer, reader)
}

/// Applies one delta more.
fn apply(writer: &mut StoreWriter, delta: Delta) -> BatchResult {
    let applied = writer.apply(&Scope::All, [delta]);
    writer.check_invariants();
    applied
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
fn c1_from_a_watch_a_comparable_version_never_goes_back() {
    let (mut writer, reader) = store([watch("a/x u1 10 red")]);
    for old in ["a/x u1 9 old", "a/x u1 10 other", "a/x u2 9 other-life", "a/x u1 9 ?"] {
        let applied = apply(&mut writer, watch(old));
        assert_eq!((told(&applied).len(), applied.stale_deltas), (0, 1), "{old}");
    }
    let applied = apply(&mut writer, delete("a/x u1 9 old"));
    assert_eq!((told(&applied).len(), applied.stale_deltas), (0, 1), "a deletion from before");
    assert!(!get(&reader, "a/x").is_stale());
    assert_eq!(version(&reader.snapshot()), Some("10"));
    assert_eq!(told(&apply(&mut writer, watch("a/x u1 100 new"))), ["~ a/x@10>100"]);
}

#[test]
fn c1_a_bookmark_never_takes_the_version_back() {
    let (mut writer, reader) = store([watch("a/x u1 10 red")]);
    for (bookmark, expected) in [("9", "10"), ("11", "11")] {
        apply(&mut writer, Delta::Bookmark(ResourceVersion::new(bookmark)));
        assert_eq!(version(&reader.snapshot()), Some(expected));
    }
}

#[test]
fn c1_opaque_versions_never_drop_anything() {
    let (mut writer, _) = store([watch("a/x u1 xyz red")]);
    assert_eq!(told(&apply(&mut writer, watch("a/x u1 abc blue"))), ["~ a/x@xyz>abc"]);
    assert_eq!(told(&apply(&mut writer, watch("a/x u1 abc green"))), ["~ a/x@abc>abc"]);
    assert_eq!(told(&apply(&mut writer, watch("a/x u1 7 green"))), ["~ a/x@abc>7"]);
    assert_eq!(told(&apply(&mut writer, watch("a/x u1 06 green"))), ["~ a/x@7>06"]);
    assert_eq!(told(&apply(&mut writer, delete("a/x u1 05 green"))), ["- a/x@05 observed"]);
}

#[test]
fn c1_a_relist_with_lower_versions_is_the_truth_and_a_rewind() {
    let (mut writer, reader) = store([list("90", &["a/x u1 80 red", "a/y u1 85 red"])]);
    let applied = apply(&mut writer, list("50", &["a/x u1 40 blue"]));
    assert!(applied.server_rewound);
    assert_eq!(told(&applied), ["- a/y@85 inferred", "~ a/x@80>40"]);
    assert_eq!(version(&reader.snapshot()), Some("50"));
    assert_eq!(
        told(&apply(&mut writer, watch("a/x u1 51 green"))),
        ["~ a/x@40>51"],
        "the watch goes on from there"
    );
    assert!(
        !apply(&mut writer, list("51", &["a/x u1 51 green"])).server_rewound,
        "an equal version is no rewind"
    );
}

#[test]
fn c1_version_numbers_given_out_again_after_a_rewind_compare_by_bytes() {
    let (mut writer, reader) = store([list("90", &["a/x u1 80 red"])]);
    let applied = apply(&mut writer, list("85", &["a/x u1 80 blue"]));
    assert_eq!(told(&applied), ["~ a/x@80>80"]);
    assert_eq!(get(&reader, "a/x").head().labels.get("value"), Some("blue"));
}

// C2, C3

#[test]
fn c3_another_uid_in_a_watch_is_a_deletion_and_an_addition() {
    let (mut writer, _) = store([watch("a/x u1 10 red")]);
    assert_eq!(told(&apply(&mut writer, watch("a/x u2 11 red"))), ["- a/x@10 inferred", "+ a/x@11"]);
}

#[test]
fn c3_another_uid_in_a_list_is_a_deletion_and_an_addition() {
    let (mut writer, _) = store([list("10", &["a/x u1 5 red", "a/y u1 6 red"])]);
    let applied = apply(&mut writer, list("20", &["a/y u2 12 red", "a/x u1 15 red"]));
    assert_eq!(told(&applied), ["- a/y@6 inferred", "~ a/x@5>15", "+ a/y@12"]);
}

#[test]
fn c3_the_deletion_of_another_life_ends_the_one_that_is_known_unseen() {
    // A handler that had seen u1 was once given u2 as its last state.
    let (mut writer, _) = store([watch("a/x u1 10 red")]);
    assert_eq!(told(&apply(&mut writer, delete("a/x u2 12 red"))), ["- a/x@10 inferred"]);
}

#[test]
fn c3_an_unknown_uid_is_taken_for_equal() {
    let (mut writer, _) = store([watch("a/x u1 10 red")]);
    assert_eq!(told(&apply(&mut writer, watch("a/x - 11 red"))), ["~ a/x@10>11"]);
    assert_eq!(told(&apply(&mut writer, watch("a/x u2 12 red"))), ["~ a/x@11>12"]);
}

#[test]
fn c2_what_went_away_during_a_gap_is_told_as_inferred_with_its_last_state() {
    let (mut writer, reader) = store([list("10", &["a/x u1 5 red"])]);
    let last = get(&reader, "a/x");
    let applied = apply(&mut writer, list("20", &[]));
    assert!(
        matches!(&applied.changes[..], [Change::Deleted { last: found, observed: false }] if Arc::ptr_eq(found, &last))
    );
}

#[test]
fn c3_a_deletion_of_an_unknown_key_is_not_told() {
    let (mut writer, reader) = store([]);
    let applied = apply(&mut writer, delete("a/x u1 10 red"));
    assert_eq!((told(&applied).len(), applied.deletes_of_unknown), (0, 1));
    assert_eq!(version(&reader.snapshot()), Some("10"), "but the stream has come that far");
}

// C5

#[test]
fn c5_a_list_speaks_only_for_its_scope() {
    let (a, b) = (Scope::namespace("a"), Scope::namespace("a-b"));
    let (mut writer, reader) = StoreWriter::new([a.clone(), b.clone()]);
    writer.apply(&a, [list_of(a.clone(), "10", &["a/x u1 5 red", "a/y u1 6 red"])]);
    assert_eq!(version(&reader.snapshot()), None, "the other scope has not synced");
    writer.apply(&b, [list_of(b.clone(), "7", &["a-b/x u1 6 red"])]);
    assert_eq!(version(&reader.snapshot()), Some("7"), "the smallest of all scopes");
    let applied = writer.apply(&a, [list_of(a.clone(), "20", &["a/y u1 6 red"])]);
    assert_eq!(told(&applied), ["- a/x@5 inferred"]);
    assert!(!writer.apply(&b, [list_of(b.clone(), "8", &[])]).server_rewound, "other scopes are no measure");
    assert_eq!(contents(&reader.snapshot()), ["a/y@6"]);
    assert_eq!(version(&reader.snapshot()), Some("8"));
    assert_eq!(reader.snapshot().scope_version(&a), Some(&ResourceVersion::new("20")));
}

#[test]
fn c5_a_list_is_told_as_deletions_first_then_in_key_order() {
    let (mut writer, reader) =
        store([list("10", &["b/m u1 5 red", "a/z u1 5 red", "a/k u1 5 red", "a/same u1 5 red"])]);
    let same = get(&reader, "a/same");
    let applied =
        apply(&mut writer, list("20", &["c/n u1 5 red", "a/same u1 5 red", "a/k u1 6 red", "a/a u1 7 red"]));
    let expected = ["- a/z@5 inferred", "- b/m@5 inferred", "+ a/a@7", "~ a/k@5>6", "+ c/n@5"];
    assert_eq!(told(&applied), expected);
    assert!(Arc::ptr_eq(&same, &get(&reader, "a/same")), "what is identical stays the very same");
}

#[test]
fn c5_of_an_item_listed_twice_the_later_counts() {
    let (mut writer, reader) = store([]);
    let applied = apply(&mut writer, list("10", &["a/x u1 6 first", "a/y u1 5 red", "a/x u1 5 later"]));
    assert_eq!(told(&applied), ["+ a/x@5", "+ a/y@5"]);
    assert_eq!(applied.duplicates, 1);
    assert_eq!(get(&reader, "a/x").head().labels.get("value"), Some("later"));
}

#[test]
fn c5_a_held_snapshot_does_not_change() {
    let (mut writer, reader) = store([list("10", &["a/x u1 5 red", "a/y u1 6 blue"])]);
    let index = Index::label("value").build().unwrap();
    writer.add_index(index.clone());
    let held = reader.snapshot();
    apply(&mut writer, watch("a/x u1 11 blue"));
    apply(&mut writer, list("20", &[]));
    assert!(reader.snapshot().is_empty());
    assert_eq!(contents(&held), ["a/x@5", "a/y@6"]);
    assert_eq!(held.index_keys(&index, "blue"), [Key::new("a", "y")]);
    assert_eq!(version(&held), Some("10"));
}

#[test]
fn c5_an_index_built_from_an_old_snapshot_catches_up_when_installed() {
    let (mut writer, reader) =
        store([list("10", &["a/gone u1 5 red", "a/moved u1 6 red", "a/stays u1 7 red"])]);
    let index = Index::field("spec.value").build().unwrap();
    let built = reader.build_index(index.clone());
    writer.apply(
        &Scope::All,
        [delete("a/gone u1 11 red"), watch("a/moved u1 12 blue"), watch("a/new u1 13 red")],
    );
    assert!(!reader.snapshot().has_index(&index));
    let walked = reader.snapshot().index_keys(&index, "red");
    writer.install_index(built);
    writer.check_invariants();
    assert!(reader.snapshot().has_index(&index));
    assert_eq!(walked, [Key::new("a", "new"), Key::new("a", "stays")], "by walking");
    assert_eq!(reader.snapshot().index_keys(&index, "red"), walked, "by the index");
}

// C9

#[test]
fn an_index_follows_objects_that_gain_and_lose_values() {
    let words =
        |text: &str| text.split('.').filter(|word| *word != "none").map(String::from).collect::<Vec<_>>();
    let index = Index::from_fn("words", move |object: &Object<()>| {
        words(object.labels().get("value").unwrap_or("none"))
    });
    let index = index.build().unwrap();
    let (mut writer, reader) = store([]);
    writer.add_index(index.clone());
    // Values are shared, kept, left by their last object, and taken up again.
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
    let mut held = Vec::new();
    for (text, expected) in steps {
        apply(&mut writer, watch(text));
        held.push((reader.snapshot(), expected));
    }
    for gone in ["a/x u1 9 last", "a/y u1 10 last", "a/z u1 11 last"] {
        apply(&mut writer, delete(gone));
    }
    held.push((reader.snapshot(), ""));
    for (snapshot, expected) in held {
        assert_eq!(print(&snapshot), expected);
        assert_eq!(snapshot.index_keys(&index, "rea").len() + snapshot.index_keys(&index, "zebra").len(), 0);
    }
}

#[test]
fn c9_a_panicking_index_hurts_only_itself() {
    let (mut writer, reader) = store([]);
    let picky = Index::from_fn("picky", |object: &Object<()>| {
        // As a panic would, but without a message on the test's output.
        if object.name() == "bad" {
            std::panic::resume_unwind(Box::new("bad"))
        } else {
            [object.name().to_owned()]
        }
    });
    let (picky, label) = (picky.build().unwrap(), Index::label("value").build().unwrap());
    writer.add_index(picky.clone());
    writer.add_index(label.clone());
    let applied = writer.apply(&Scope::All, [watch("a/bad u1 10 red"), watch("a/good u1 11 red")]);
    assert_eq!(told(&applied), ["+ a/bad@10", "+ a/good@11"]);
    assert_eq!((picky.panics(), label.panics()), (1, 0));
    let snapshot = reader.snapshot();
    assert!(snapshot.index_values(&picky).eq(["good"]));
    assert_eq!(snapshot.index_keys(&label, "red").len(), 2);
    writer.check_invariants();
}

#[test]
fn c9_the_cached_state_of_an_unreadable_object_stays_and_is_stale() {
    let (mut writer, reader) = store([watch("a/x u1 10 red")]);
    let applied = apply(&mut writer, watch("a/x u1 12 ?"));
    assert_eq!((told(&applied).len(), applied.unreadable), (0, 1));
    assert!(get(&reader, "a/x").is_stale());
    let snapshot = reader.snapshot();
    let unreadable: Vec<_> = snapshot.unreadable().collect();
    assert_eq!(unreadable, [(&Key::new("a", "x"), "metadata.labels is not a map of strings")]);
    assert_eq!(version(&snapshot), Some("12"));
    let applied = apply(&mut writer, watch("a/x u1 11 between"));
    assert_eq!(applied.stale_deltas, 1, "older than what could not be read");
    assert_eq!(told(&apply(&mut writer, watch("a/x u1 13 blue"))), ["~ a/x@10>13"]);
    assert!(!get(&reader, "a/x").is_stale());
    assert_eq!(reader.snapshot().unreadable().count(), 0);
}

#[test]
fn c9_an_unreadable_item_of_a_list_is_no_deletion() {
    let (mut writer, reader) = store([list("10", &["a/x u1 5 red", "a/y u1 6 red"])]);
    let applied = apply(&mut writer, list("20", &["a/x u1 15 ?", "a/y u1 6 red", "a/never u1 3 ?"]));
    assert_eq!((told(&applied).len(), applied.unreadable), (0, 2));
    assert!(get(&reader, "a/x").is_stale() && !get(&reader, "a/y").is_stale());
    assert_eq!(reader.snapshot().unreadable().count(), 2, "also what is not in the cache");
    // The state from before is listed once more, readable: it is the same entry, and no longer stale.
    let before = get(&reader, "a/x");
    let applied = apply(&mut writer, list("30", &["a/x u1 5 red", "a/y u1 6 red"]));
    assert!(told(&applied).is_empty());
    assert!(Arc::ptr_eq(&before, &get(&reader, "a/x")) && !before.is_stale());
    assert_eq!(reader.snapshot().unreadable().count(), 0);
}

#[test]
fn c9_a_deletion_ends_an_unreadable_object() {
    let (mut writer, reader) = store([watch("a/x u1 10 red"), watch("a/x u1 11 ?"), watch("a/y u1 12 ?")]);
    assert_eq!(told(&apply(&mut writer, delete("a/x u1 13 last"))), ["- a/x@13 observed"]);
    assert_eq!(apply(&mut writer, delete("a/y u1 14 last")).deletes_of_unknown, 1);
    assert_eq!(reader.snapshot().unreadable().count(), 0);
}

#[test]
fn c1_after_a_rewind_what_is_unreadable_does_not_lend_its_old_version() {
    // The restored server's state of x cannot be read; what then comes has a lower version than the cached one, and counts.
    let (mut writer, _) = store([list("90", &["a/x u1 80 red"]), list("50", &["a/x u1 40 ?"])]);
    assert_eq!(told(&apply(&mut writer, watch("a/x u1 51 blue"))), ["~ a/x@80>51"]);
}
