//! Transforms and field filters in the reflector: applied once per object; a failure affects no other object.

use super::super::{Action, Config, Reflector, ReflectorDiagnostic, ResponseHead, StreamId, WatchListPolicy};
use crate::delta::{Delta, Replaced};
use crate::object::Entry;
use crate::store::StoreWriter;
use crate::time::Moment;
use crate::transform::{Transform, TransformFallback};
use crate::wire::{FieldFilter, Limits, TypeMeta};
use crate::{Key, Scope};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

const NOW: Moment = Moment::at(std::time::Duration::ZERO);

fn config() -> Config {
    Config::new(TypeMeta::new("v1", "Secret"), Scope::All)
}

/// A started reflector with its output.
struct Run {
    machine: Reflector,
    stream: StreamId,
    /// The entries of all deltas in order, including the last states of deleted objects.
    entries: Vec<Arc<Entry>>,
    diagnostics: Vec<ReflectorDiagnostic>,
}

impl Run {
    fn new(config: Config) -> Self {
        Self::with_store(config, None)
    }

    fn with_store(config: Config, store: Option<crate::StoreReader>) -> Self {
        let machine = Reflector::new(config, 1, store);
        let mut run = Self { machine, stream: StreamId(0), entries: Vec::new(), diagnostics: Vec::new() };
        run.machine.start(NOW);
        run.drain();
        run
    }

    /// Creates a reflector that has listed `items` and requested its watch.
    fn listed(config: Config, items: &[&str]) -> Self {
        let mut run = Self::new(Config { watch_list: WatchListPolicy::Never, ..config });
        run.list(items);
        run
    }

    fn list(&mut self, items: &[&str]) {
        self.open();
        let items = items.join(",");
        self.bytes(&format!(r#"{{"metadata":{{"resourceVersion":"9"}},"items":[{items}]}}"#));
        self.machine.handle_end(NOW, self.stream);
        self.drain();
    }

    fn open(&mut self) {
        self.machine.handle_response(NOW, self.stream, ResponseHead::new(200));
    }

    fn bytes(&mut self, bytes: &str) {
        self.machine.handle_bytes(NOW, self.stream, bytes.as_bytes());
        self.drain();
    }

    fn frame(&mut self, kind: &str, object: &str) {
        self.bytes(&format!(r#"{{"type":"{kind}","object":{object}}}"#));
    }

    fn drain(&mut self) {
        for delta in self.machine.deltas().drain(..) {
            match delta {
                Delta::Added(entry) | Delta::Updated(entry) => self.entries.push(entry),
                Delta::Deleted(deleted) => self.entries.extend(deleted.last),
                Delta::Replaced(replaced) => self.entries.extend(replaced.entries),
                _ => {}
            }
        }
        while let Some(action) = self.machine.poll_action() {
            match action {
                Action::List(id, _) | Action::Watch(id, _) => self.stream = id,
                Action::Report(diagnostic) => self.diagnostics.push(diagnostic),
                Action::Cancel(_) => {}
            }
        }
        self.machine.check_invariants();
    }

    fn bytes_of(&self, index: usize) -> String {
        String::from_utf8(self.entries[index].bytes().into_owned()).unwrap()
    }

    /// Checks the error of the transform on the only object, and the bytes that were cached.
    #[track_caller]
    fn check_failed(&self, message: &str, cached: &str) {
        let key = Key::new("ns", "a");
        assert_eq!(self.diagnostics, [ReflectorDiagnostic::TransformFailed { key, message: message.into() }]);
        assert_eq!(self.machine.counters().transform_errors, 1);
        assert_eq!(self.entries.len(), 1);
        assert_eq!(self.bytes_of(0), cached);
    }
}

fn object(name: &str, version: u32) -> String {
    format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"ns","uid":"u-{name}","resourceVersion":"{version}","annotations":{{"copy":"hunter2"}},"labels":{{"a":"b"}}}},"data":{{"password":"hunter2"}}}}"#
    )
}

fn received(name: &str, version: u32) -> String {
    object(name, version).replacen('{', r#"{"apiVersion":"v1","kind":"Secret","#, 1)
}

/// Returns a transform that replaces texts in the received bytes.
fn replacing(pairs: &'static [(&'static str, &'static str)]) -> Transform {
    Transform::new(|entry| {
        let text = String::from_utf8(entry.bytes().to_vec()).unwrap();
        Ok(pairs.iter().fold(text, |text, (old, new)| text.replace(old, new)).into_bytes())
    })
}

fn config_with(transform: Transform) -> Config {
    Config { transform: Some(transform), ..config() }
}

/// Returns a transform that changes nothing, and the objects it was called with.
fn recording_transform() -> (Transform, Arc<Mutex<Vec<String>>>) {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&calls);
    let transform = Transform::new(move |entry| {
        recorded.lock().unwrap().push(format!("{entry:?}"));
        Ok(entry.bytes().to_vec())
    });
    (transform, calls)
}

#[test]
fn each_object_is_transformed_exactly_once() {
    let (transform, calls) = recording_transform();
    let mut run = Run::listed(config_with(transform), &[&object("a", 1), &object("b", 2)]);
    assert_eq!(*calls.lock().unwrap(), ["ns/a@1", "ns/b@2"]);
    run.open();
    run.frame("ADDED", &object("c", 10));
    run.frame("MODIFIED", &object("a", 11));
    run.frame("DELETED", &object("b", 12));
    run.frame("BOOKMARK", r#"{"metadata":{"name":"x","resourceVersion":"13"}}"#);
    run.frame("ADDED", r#"{"metadata":{"name":"unreadable"}}"#);
    run.frame("ERROR", r#"{"kind":"Status","code":500}"#);
    assert_eq!(calls.lock().unwrap()[2..], ["ns/c@10", "ns/a@11", "ns/b@12"]);
    assert_eq!(run.entries.len(), 5);
    assert_eq!(run.machine.counters().transform_errors, 0);
}

#[test]
fn watch_list_transforms_each_object_once() {
    let (transform, calls) = recording_transform();
    let mut run = Run::new(config_with(transform));
    run.open();
    run.frame("ADDED", &object("a", 1));
    run.frame("ADDED", &object("b", 2));
    run.frame("DELETED", &object("b", 3)); // its last state is not delivered
    let end = r#"{"metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}}"#;
    run.frame("BOOKMARK", end);
    run.frame("MODIFIED", &object("a", 10));
    assert_eq!(*calls.lock().unwrap(), ["ns/a@1", "ns/b@2", "ns/a@10"]);
    assert_eq!(
        run.entries.iter().map(|entry| format!("{entry:?}")).collect::<Vec<_>>(),
        ["ns/a@1", "ns/a@10"]
    );
}

#[test]
fn transformed_object_is_cached_in_canonical_form_with_a_new_head() {
    let transform = Transform::new(|_| {
        Ok(br#" { "data" : {} , "metadata" : {"managedFields":[1],"resourceVersion":"1","name":"a","namespace":"ns",
            "labels":{"new":"yes"},"uid":"u-a"}, "kind":"Secret" } "#.to_vec())
    });
    let run = Run::listed(config_with(transform), &[&object("a", 1)]);
    assert_eq!(run.diagnostics, []);
    let expected = r#"{"apiVersion":"v1","kind":"Secret","data":{},"metadata":{"resourceVersion":"1","name":"a","namespace":"ns","labels":{"new":"yes"},"uid":"u-a"}}"#;
    assert_eq!(run.bytes_of(0), expected);
    assert_eq!(run.entries[0].head().labels.iter().collect::<Vec<_>>(), [("new", "yes")]);
}

#[test]
fn field_filter_is_applied_once_before_the_transform() {
    let filtered = Arc::new(AtomicUsize::new(0));
    let (counter, text) = (Arc::clone(&filtered), "hunter2");
    let transform = Transform::new(move |entry| {
        let bytes = String::from_utf8(entry.bytes().to_vec()).unwrap();
        counter.fetch_add(usize::from(!bytes.contains(text)), Ordering::Relaxed);
        // The transform may add a field that the filter drops.
        Ok(bytes.replacen(r#","metadata":"#, r#","data":{"n":1},"metadata":"#, 1).into_bytes())
    });
    let field_filter = Some(FieldFilter::drop(["data", "metadata.annotations"]).unwrap());
    let run = Run::listed(Config { field_filter, ..config_with(transform) }, &[&object("a", 1)]);
    assert_eq!((filtered.load(Ordering::Relaxed), run.diagnostics.len()), (1, 0));
    assert!(run.bytes_of(0).contains(r#""data":{"n":1}"#) && !run.bytes_of(0).contains(text));
}

#[test]
fn field_filter_applies_to_lists_and_watches() {
    let field_filter = Some(FieldFilter::keep(["data.password"]).unwrap());
    let mut run = Run::listed(Config { field_filter, ..config() }, &[&object("a", 1)]);
    run.open();
    run.frame("MODIFIED", &object("a", 10));
    let expected = |version| received("a", version).replace(r#""annotations":{"copy":"hunter2"},"#, "");
    assert_eq!((run.bytes_of(0), run.bytes_of(1)), (expected(1), expected(10)));
}

const METADATA: &str = r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a","namespace":"ns","uid":"u-a","resourceVersion":"1","labels":{"a":"b"}}}"#;

/// Checks the error of a failing transform, with both fallbacks.
#[track_caller]
fn check_fails(transform: &Transform, message: &str) {
    let config = || Config { limits: Limits::new(400), ..config_with(transform.clone()) };
    let run = Run::listed(config(), &[&object("a", 1)]);
    run.check_failed(message, &received("a", 1));

    let transform_fallback = TransformFallback::MetadataOnly;
    let run = Run::listed(Config { transform_fallback, ..config() }, &[&object("a", 1)]);
    run.check_failed(message, METADATA);
    let entry = &run.entries[0];
    assert_eq!((entry.head().labels.get("a"), &*entry.head().uid), (Some("b"), "u-a"));
    let range = entry.head().metadata.start as usize..entry.head().metadata.end as usize;
    let metadata = METADATA.split_once(r#""metadata":"#).unwrap().1.strip_suffix('}').unwrap();
    assert_eq!(std::str::from_utf8(&entry.bytes()[range]).unwrap(), metadata);
    assert!(!format!("{:?}", run.diagnostics).contains("hunter2"));
}

#[test]
fn failed_transform_is_reported_and_the_fallback_is_cached() {
    check_fails(&Transform::new(|_| Err("no such field".into())), "no such field");
    check_fails(&Transform::new(|_| panic!("hunter2")), "the transform panicked");
    let check_result = |result: &'static str, reason: &str| {
        let message = format!("the transform returned an unreadable object: {reason}");
        check_fails(&Transform::new(move |_| Ok(result.into())), &message);
    };
    check_result("", "invalid JSON at line 1, column 0");
    check_result("{\"hunter2\":\n hunter2}", "invalid JSON at line 2, column 2");
    check_result(r#"{"data":{"a":hunter2}}"#, "invalid JSON at line 1, column 14");
    check_result("{}{}", "invalid JSON at line 1, column 3");
    check_result(r#""hunter2""#, "not a JSON object");
    check_result("null", "not a JSON object");
    check_result("{}", "metadata.name is missing");
    check_result(r#"{"kind":"hunter2"}"#, "unexpected kind");
    check_result(
        r#"{"metadata":{"name":"a","resourceVersion":"1","labels":"hunter2"}}"#,
        "metadata.labels is not a map of strings",
    );
    let bytes = Transform::new(|_| Ok(b"{\"\xff\":1}".to_vec()));
    check_fails(&bytes, "the transform returned an unreadable object: invalid UTF-8 at byte 2");
    let larger = Transform::new(|entry| {
        let text = String::from_utf8(entry.bytes().to_vec()).unwrap();
        Ok(text.replace("hunter2", &"hunter2".repeat(100)).into_bytes())
    });
    check_fails(&larger, "the transform returned an unreadable object: larger than 400 bytes");
}

#[test]
fn transform_may_not_change_key_uid_or_version() {
    check_fails(&replacing(&[(r#""name":"a""#, r#""name":"b""#)]), "the transform changed the object's key");
    check_fails(&replacing(&[(r#""namespace":"ns","#, "")]), "the transform changed the object's key");
    check_fails(&replacing(&[("u-a", "u-b")]), "the transform changed the object's uid");
    check_fails(&replacing(&[(r#""uid":"u-a","#, "")]), "the transform changed the object's uid");
    let version = replacing(&[(r#""resourceVersion":"1""#, r#""resourceVersion":"2""#)]);
    check_fails(&version, "the transform changed the object's version");
}

// A controller that does not see its finalizer never completes a deletion, and one that does not see owners
// misses changes, so a transform may neither remove nor add them.
#[test]
fn transform_may_not_change_finalizers_owners_or_deletion() {
    let owned = object("a", 1).replace(
        r#""labels""#,
        r#""deletionTimestamp":"2026-11-15T01:40:30Z","deletionGracePeriodSeconds":0,"finalizers":["f","g"],"ownerReferences":[{"uid":"o"}],"labels""#,
    );
    let check = |transform: Transform, message: &str| {
        let run = Run::listed(config_with(transform), &[&owned]);
        let key = Key::new("ns", "a");
        assert_eq!(run.diagnostics, [ReflectorDiagnostic::TransformFailed { key, message: message.into() }]);
    };
    let finalizers = "the transform changed the object's finalizers";
    check(replacing(&[(r#""finalizers":["f","g"],"#, "")]), finalizers);
    check(replacing(&[(r#"["f","g"]"#, r#"["g"]"#)]), finalizers);
    check(replacing(&[(r#""deletionGracePeriodSeconds":0,"#, "")]), finalizers);
    check(replacing(&[(r#"[{"uid":"o"}]"#, "[]")]), "the transform changed the object's owners");
    check(replacing(&[("01:40:30", "01:40:31")]), "the transform changed the object's deletion");
    check_fails(&replacing(&[(r#""uid""#, r#""finalizers":["h"],"uid""#)]), finalizers);
    // Another notation is not a change, and neither is an empty list instead of a missing one.
    for pair in [
        [(r#"["f","g"]"#, r#" [ "f" , "\u0067" ] "#)],
        [(r#""uid":"u-b""#, r#""finalizers":[],"uid":"u-b""#)],
    ] {
        let transform = Transform::new(move |entry| {
            let text = String::from_utf8(entry.bytes().to_vec()).unwrap();
            Ok(pair.iter().fold(text, |text, (old, new)| text.replace(old, new)).into_bytes())
        });
        let run = Run::listed(config_with(transform), &[&owned, &object("b", 2)]);
        assert_eq!(run.diagnostics, []);
    }
}

#[test]
fn failed_transform_of_one_object_affects_no_other() {
    let transform = Transform::new(|entry| {
        if entry.key().name() == "b" { Err("not this one".into()) } else { Ok(entry.bytes().to_vec()) }
    });
    let run = Run::listed(config_with(transform), &[&object("a", 1), &object("b", 2), &object("c", 3)]);
    assert_eq!(run.entries.len(), 3);
    let (key, message) = (Key::new("ns", "b"), "not this one".into());
    assert_eq!(run.diagnostics, [ReflectorDiagnostic::TransformFailed { key, message }]);
    assert_eq!(run.machine.counters().transform_errors, 1);
}

#[test]
fn relist_reuses_entries_of_unchanged_transformed_objects() {
    let transform = replacing(&[("hunter2", "x")]);
    let config = || Config { watch_list: WatchListPolicy::Never, ..config_with(transform.clone()) };
    let (mut writer, reader) = StoreWriter::new([Scope::All]);
    let first = Run::listed(config(), &[&object("a", 1), &object("b", 2)]);
    let replaced = |entries: &[Arc<Entry>]| {
        let (scope, version) = (Scope::All, crate::ResourceVersion::new("9"));
        Delta::Replaced(Replaced {
            scope,
            version,
            entries: entries.to_vec(),
            unreadable: Vec::new(),
            audit: false,
        })
    };
    assert_eq!(writer.apply(&Scope::All, [replaced(&first.entries)]).changes.len(), 2);
    let mut second = Run::with_store(config(), Some(reader));
    second.list(&[&object("a", 1), &object("b", 3)]);
    let same: Vec<_> =
        first.entries.iter().zip(&second.entries).map(|(old, new)| Arc::ptr_eq(old, new)).collect();
    assert_eq!(same, [true, false]);
    assert_eq!(writer.apply(&Scope::All, [replaced(&second.entries)]).changes.len(), 1);
}

#[test]
fn transform_equals_its_clone_and_hides_its_function_in_debug() {
    let (one, other) = (replacing(&[]), replacing(&[]));
    assert!(Transform::ptr_eq(&one, &one.clone()) && !Transform::ptr_eq(&one, &other));
    assert_eq!(format!("{one:?}"), "Transform");
}
