//! Projections: values decoded once per object state and read by reference.
#![allow(clippy::unwrap_used)]

use informer_core::wire::{Limits, ListItem, ListReader};
use informer_core::{
    Delta, Entry, Object, ProjectionError, Projections, Replaced, ResourceVersion, Retention, Scope,
    StoreWriter, TypeMeta,
};
use serde::Deserialize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

#[derive(Debug, PartialEq, Deserialize)]
struct Lite {
    spec: Spec,
}

#[derive(Debug, PartialEq, Deserialize)]
struct Spec {
    node: String,
}

fn entry(name: &str, spec: &str) -> Entry {
    let item = format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"a","uid":"u-{name}","resourceVersion":"5"}},"spec":{spec}}}"#
    );
    let body = format!(r#"{{"metadata":{{"resourceVersion":"9"}},"items":[{item}]}}"#);
    let mut reader = ListReader::new(TypeMeta::new("example.com/v1", "Widget"), Limits::default());
    let mut found = None;
    reader.read(body.as_bytes(), |item| found = Some(item)).unwrap();
    let Some(ListItem::Object(scanned)) = found else { panic!("{body}") };
    Entry::new(scanned, Retention::Bytes)
}

fn object(entry: Entry) -> Object<()> {
    Object::new(Arc::new(entry))
}

#[test]
fn new_entries_are_decoded_once_and_old_ones_on_their_first_read() {
    static DECODED: AtomicUsize = AtomicUsize::new(0);
    struct Counted;
    impl<'de> Deserialize<'de> for Counted {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            DECODED.fetch_add(1, Ordering::Relaxed);
            serde::de::IgnoredAny::deserialize(deserializer).map(|_| Self)
        }
    }
    let projections = Projections::default();
    let old = object(entry("old", "{}"));
    let counted = projections.add::<Counted>(usize::MAX, || {});
    let new = entry("new", "{}");
    projections.prepare(&new);
    assert_eq!(DECODED.load(Ordering::Relaxed), 1);
    let new = object(new);
    let first: *const Counted = new.projected(&counted).unwrap();
    assert!(std::ptr::eq(first, new.projected(&counted).unwrap()));
    assert_eq!(DECODED.load(Ordering::Relaxed), 1);
    old.projected(&counted).unwrap();
    old.clone().projected(&counted).unwrap();
    assert_eq!(DECODED.load(Ordering::Relaxed), 2);
}

#[test]
fn several_projections_and_typed_values_coexist() {
    let projections = Projections::default();
    let (lite, value) =
        (projections.add::<Lite>(usize::MAX, || {}), projections.add::<serde_json::Value>(usize::MAX, || {}));
    let widget = object(entry("w", r#"{"node":"n1"}"#));
    assert_eq!(widget.projected(&value).unwrap()["spec"]["node"], "n1");
    assert_eq!(widget.cast::<Lite>().typed().unwrap().spec.node, "n1");
    assert_eq!(widget.projected(&lite).unwrap().spec.node, "n1");
    assert_eq!(widget.projected(&value).unwrap()["metadata"]["name"], "w");
}

/// C9: an object that does not fit has an error; it is counted, and the first one is reported.
#[test]
fn c9_objects_that_do_not_fit_are_counted_and_reported_once() {
    let reported = Arc::new(Mutex::new(Vec::new()));
    let reports = Arc::clone(&reported);
    let projections = Projections::new(move |error| reports.lock().unwrap().push(error.to_string()));
    let lite = projections.add::<Lite>(usize::MAX, || {});
    let good = object(entry("good", r#"{"node":"n1"}"#));
    for bad in ["b1", "b2"].map(|name| object(entry(name, r#"{"node":7}"#))) {
        for _ in 0..3 {
            let error = bad.projected(&lite).unwrap_err();
            assert!(error.to_string().starts_with("a/b"), "{error}");
        }
    }
    assert_eq!(good.projected(&lite).unwrap().spec.node, "n1");
    assert_eq!(lite.metrics().decode_errors, 2, "one error per object, not per read");
    let expected = "a/b1 at version 5 does not decode as integration::projections::Lite, at spec.node: \
                    invalid type: integer `7`, expected a string";
    let reported = reported.lock().unwrap();
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert!(reported[0].starts_with(expected), "{reported:?}");
}

/// C9: a type whose `Deserialize` panics affects nothing else, and does not flood the output.
#[test]
fn c9_panicking_type_is_an_error() {
    #[derive(Debug)]
    struct Panicking;
    impl<'de> Deserialize<'de> for Panicking {
        fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
            panic!("injected panic")
        }
    }
    let projections = Projections::default();
    let (panicking, lite) =
        (projections.add::<Panicking>(usize::MAX, || {}), projections.add::<Lite>(usize::MAX, || {}));
    let widget = entry("w", r#"{"node":"n1"}"#);
    projections.prepare(&widget);
    let widget = object(widget);
    let error = widget.projected(&panicking).unwrap_err().to_string();
    assert!(error.ends_with("its implementation of Deserialize panicked"), "{error}");
    // After ten panics, the type is not decoded any more: each one may print a message.
    for number in 1..20 {
        let error = object(entry(&format!("w{number}"), "{}")).projected(&panicking).unwrap_err().to_string();
        assert_eq!(error.ends_with("panicked for other objects"), number >= 10, "{error}");
    }
    assert_eq!(widget.projected(&lite).unwrap().spec.node, "n1");
}

#[test]
fn values_beyond_the_memory_limit_are_errors_until_others_are_dropped() {
    let projections = Projections::default();
    let widgets = ["w1", "w2", "w3"].map(|name| object(entry(name, r#"{"node":"node-1"}"#)));
    let unlimited = projections.add::<Lite>(usize::MAX, || {});
    widgets[0].projected(&unlimited).unwrap();
    let size = unlimited.metrics().bytes;
    assert!(size > size_of::<Lite>() + "node-1".len());
    drop(unlimited);

    // Values that are left count, and the new limit applies.
    let lite = projections.add::<Lite>(2 * size, || {});
    projections.prepare(widgets[1].entry());
    assert_eq!((lite.metrics().values, lite.metrics().bytes), (2, 2 * size));
    projections.prepare(widgets[2].entry());
    assert_eq!(lite.metrics().limit_errors, 0, "nobody has asked for the value");
    let error = widgets[2].projected(&lite).unwrap_err();
    assert!(matches!(error, ProjectionError::LimitReached { .. }), "{error}");
    assert_eq!(lite.metrics().limit_errors, 1);
    let [first, second, third] = widgets;
    drop(first);
    third.projected(&lite).unwrap();
    second.projected(&lite).unwrap();
    drop((second, third));
    assert_eq!((lite.metrics().values, lite.metrics().bytes), (0, 0));
}

/// Regression: values were prepared while the registry was locked, so a diagnostic hook that added a projection
/// waited forever.
#[test]
fn report_may_add_a_projection() {
    let shared: Arc<OnceLock<Projections>> = Arc::default();
    let registry = Arc::clone(&shared);
    let projections = shared.get_or_init(|| {
        Projections::new(move |_| {
            registry.get().unwrap().add::<u32>(usize::MAX, || {});
        })
    });
    let _lite = projections.add::<Lite>(usize::MAX, || {});
    projections.prepare(&entry("w", r#"{"node":7}"#));
}

#[test]
fn one_projection_per_type() {
    let released = Arc::new(AtomicUsize::new(0));
    let hook = || {
        let released = Arc::clone(&released);
        move || {
            released.fetch_add(1, Ordering::Relaxed);
        }
    };
    let projections = Projections::default();
    let (first, second) =
        (projections.add::<Lite>(usize::MAX, hook()), projections.add::<Lite>(usize::MAX, hook()));
    let widget = object(entry("w", r#"{"node":"n1"}"#));
    assert!(std::ptr::eq(widget.projected(&first).unwrap(), widget.projected(&second).unwrap()));
    drop(first);
    assert_eq!(released.load(Ordering::Relaxed), 0);
    drop(second);
    assert_eq!(released.load(Ordering::Relaxed), 1);

    // Values that are left are used again.
    let third = projections.add::<Lite>(usize::MAX, hook());
    assert_eq!(third.metrics().values, 1);
    assert!(projections.without_released(widget.entry()).is_none());
}

#[test]
fn released_values_are_removed_by_a_rewrite_and_snapshots_keep_theirs() {
    let projections = Projections::default();
    let (lite, value) =
        (projections.add::<Lite>(usize::MAX, || {}), projections.add::<serde_json::Value>(usize::MAX, || {}));
    let (mut writer, reader) = StoreWriter::new([Scope::All]);
    let entries: Vec<_> = (0..10)
        .map(|number| {
            let entry = entry(&format!("w{number}"), r#"{"node":"n1"}"#);
            projections.prepare(&entry);
            Arc::new(entry)
        })
        .collect();
    let (version, unreadable) = (ResourceVersion::new("9"), Vec::new());
    let list = Replaced { scope: Scope::All, version, entries, unreadable, audit: false };
    writer.apply(&Scope::All, [Delta::Replaced(list)]);
    let before = reader.snapshot();
    assert_eq!((lite.metrics().values, value.metrics().values), (10, 10));
    drop(lite);

    let release = |entry: &Arc<Entry>| projections.without_released(entry).map(Arc::new);
    let rewrite = reader.snapshot().rewrite(0, 256, release);
    assert_eq!(writer.install_rewritten(rewrite), 10);
    writer.check_invariants();
    assert!(reader.snapshot().rewrite(0, 256, release).is_empty());
    let values = || -> Vec<_> {
        let mut values: Vec<_> =
            projections.metrics().into_iter().map(|one| (one.type_name, one.values)).collect();
        values.sort_unstable();
        values
    };
    let (name, other) = (std::any::type_name::<Lite>(), std::any::type_name::<serde_json::Value>());
    assert_eq!(values(), [(name, 10), (other, 20)], "the snapshot keeps the old values");
    for (old, new) in before.list().zip(reader.snapshot().list()) {
        assert_eq!(old, new);
    }
    drop(before);
    writer.release();
    assert_eq!(values(), [(other, 10)]);
}

/// Several threads decode the value of an entry at the same time, and agree on one.
#[test]
fn threads_read_the_same_value() {
    let projections = Projections::default();
    let (lite, value) =
        (projections.add::<Lite>(usize::MAX, || {}), projections.add::<serde_json::Value>(usize::MAX, || {}));
    for number in 0..100 {
        let widget = object(entry(&format!("w{number}"), r#"{"node":"n1"}"#));
        let addresses = std::thread::scope(|scope| {
            let threads = [0, 1, 2, 3].map(|thread| {
                let (widget, lite, value) = (&widget, &lite, &value);
                scope.spawn(move || {
                    if thread % 2 == 0 {
                        widget.projected(value).unwrap();
                    }
                    std::ptr::from_ref(widget.projected(lite).unwrap()).addr()
                })
            });
            threads.map(|thread| thread.join().unwrap())
        });
        assert!(addresses.iter().all(|address| *address == addresses[0]), "{addresses:?}");
    }
    assert_eq!(
        (lite.metrics().values, lite.metrics().bytes),
        (0, 0),
        "values that lost a race are dropped too"
    );
}
