//! The readers against their reference model: any body in any pieces, complete or damaged.

use super::bytes::{Read, data, frame, list, object, opened, read_list, read_watch, scanned};
use super::model::{self, Model};
use super::reference_model::{Recording, recordings, type_of};
use informer_core::wire::{Frame, FrameKind, ListItem, ScannedObject, TypeMeta};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use std::sync::LazyLock;

const LIMIT: usize = 8 << 20;

fn config() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::default() }
}

static OBJECTS: LazyLock<Vec<Recording>> =
    LazyLock::new(|| recordings().into_iter().filter(Recording::is_object).collect());

/// Splits `body` at each of `cuts`.
fn cut<'a>(body: &'a [u8], cuts: &[Index]) -> Vec<&'a [u8]> {
    let mut ends: Vec<usize> =
        cuts.iter().map(|cut| cut.index(body.len() + 1)).chain([0, body.len()]).collect();
    ends.sort_unstable();
    ends.windows(2).map(|ends| &body[ends[0]..ends[1]]).collect()
}

/// Reads `body` whole, split at `cuts`, and byte by byte: the results must be equal.
#[track_caller]
fn read_in_all_splits<T: PartialEq + std::fmt::Debug>(
    body: &[u8],
    cuts: &[Index],
    read: impl Fn(&[&[u8]]) -> Read<T>,
) -> Read<T> {
    let whole = read(&[body]);
    assert_eq!(read(&cut(body, cuts)), whole, "split");
    assert_eq!(read(&body.chunks(1).collect::<Vec<_>>()), whole, "byte by byte");
    whole
}

fn as_model(scanned: &ScannedObject) -> Model {
    Model::Object(scanned.head.key.clone(), scanned.head.version.clone(), scanned.bytes.to_vec())
}

/// Result of the reader in the form of the model.
fn list_as_model((items, end): &Read<ListItem>) -> Option<Vec<Model>> {
    let found = items.iter().filter_map(|item| match item {
        ListItem::Meta(_) => None,
        ListItem::Object(scanned) => Some(as_model(scanned)),
        ListItem::Unreadable(_) => Some(Model::Unreadable),
    });
    end.is_ok().then(|| found.collect())
}

fn watch_as_model((frames, end): &Read<Frame>) -> Vec<Model> {
    let found = frames.iter().filter_map(|frame| match frame {
        Frame::Bookmark { .. } | Frame::Error(_) | Frame::Unreadable(FrameKind::Bookmark, _) => None,
        Frame::Added(scanned) | Frame::Modified(scanned) | Frame::Deleted(scanned) => Some(as_model(scanned)),
        Frame::Unreadable(..) => Some(Model::Unreadable),
    });
    found.chain(end.is_err().then_some(Model::End)).collect()
}

/// Heads are stricter than the model: labels, owners and times must be valid too.
fn agrees(reader: &[Model], model: &[Model]) -> bool {
    let same = |(reader, model): (&Model, &Model)| reader == model || *reader == Model::Unreadable;
    reader.len() == model.len() && reader.iter().zip(model).all(same)
}

/// Recorded objects of one kind, the same one several times.
fn objects() -> impl Strategy<Value = (TypeMeta, Vec<Vec<u8>>)> {
    (0..OBJECTS.len(), 1..4_usize).prop_map(|(which, count)| {
        let model = &OBJECTS[which];
        (type_of(&model.value()), vec![opened(&model.protobuf); count])
    })
}

fn changes() -> impl Strategy<Value = Vec<(Index, u8)>> {
    proptest::collection::vec((any::<Index>(), any::<u8>()), 0..6)
}

fn damage(body: &mut Vec<u8>, changes: &[(Index, u8)], end: Option<Index>) {
    for (position, byte) in changes {
        let position = position.index(body.len());
        body[position] = *byte;
    }
    if let Some(end) = end {
        body.truncate(end.index(body.len()));
    }
}

fn stream(types: &TypeMeta, objects: &[Vec<u8>], kinds: &[&str]) -> Vec<u8> {
    let frames = objects.iter().zip(kinds.iter().cycle());
    frames.flat_map(|(object, kind)| frame(kind, &super::bytes::envelope(types, object))).collect()
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn lists_are_read_as_the_model_does(
        (types, objects) in objects(), changes in changes(), end in proptest::option::weighted(0.2, any::<Index>()),
        cuts in proptest::collection::vec(any::<Index>(), 0..8),
    ) {
        let mut body = list(&types, &objects);
        damage(&mut body, &changes, end);
        let read = read_in_all_splits(&body, &cuts, |pieces| read_list(&types, LIMIT, pieces));
        let (reader, model) = (list_as_model(&read), model::list(&types, &body));
        match (reader, model) {
            (Some(reader), Some(model)) => prop_assert!(agrees(&reader, &model), "{reader:?} {model:?}"),
            // The model does not know the list's metadata.
            (None, _) => prop_assert!(!changes.is_empty() || end.is_some()),
            (Some(reader), None) => prop_assert!(false, "{reader:?}"),
        }
    }

    #[test]
    fn watches_are_read_as_the_model_does(
        (types, objects) in objects(), changes in changes(), end in proptest::option::weighted(0.2, any::<Index>()),
        cuts in proptest::collection::vec(any::<Index>(), 0..8),
        kinds in proptest::collection::vec(select(vec!["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR", "OTHER"]), 3),
    ) {
        let mut body = stream(&types, &objects, &kinds);
        damage(&mut body, &changes, end);
        let read = read_in_all_splits(&body, &cuts, |pieces| read_watch(&types, LIMIT, pieces));
        let (reader, model) = (watch_as_model(&read), model::watch(&types, &body));
        // After the first malformed frame, only the reader continues to the end of that frame.
        prop_assert!(agrees(&reader, &model), "{reader:?} {model:?}");
    }

    /// Whatever is returned can be decoded or returns an error.
    #[test]
    fn damaged_objects_do_not_panic((types, objects) in objects(), changes in changes()) {
        let mut bytes = objects[0].clone();
        damage(&mut bytes, &changes, None);
        let body = list(&types, &[bytes]);
        for item in read_list(&types, LIMIT, &[&body]).0 {
            if let ListItem::Object(scanned) = item {
                let object = object::<serde_json::Value>(scanned);
                let _ = object.typed().map_err(|error| error.to_string());
                let _ = object.metadata::<serde_json::Value>();
            }
        }
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..300), cuts in proptest::collection::vec(any::<Index>(), 0..4),
    ) {
        let types = TypeMeta::new("v1", "Pod");
        for body in [bytes.clone(), [b"k8s\0".to_vec(), bytes.clone()].concat(), list(&types, std::slice::from_ref(&bytes))] {
            let _ = read_in_all_splits(&body, &cuts, |pieces| read_list(&types, LIMIT, pieces));
        }
        for body in [bytes.clone(), frame("ADDED", &bytes), stream(&types, std::slice::from_ref(&bytes), &["ADDED"])] {
            let _ = read_in_all_splits(&body, &cuts, |pieces| read_watch(&types, LIMIT, pieces));
        }
    }

    /// An object over the limit is reported with the known parts of its head, and the next one is read.
    #[test]
    fn size_limit_is_enforced((types, objects) in objects(), limit in 1..4000_usize, cuts in proptest::collection::vec(any::<Index>(), 0..8)) {
        let body = list(&types, &objects);
        let (items, end) = read_in_all_splits(&body, &cuts, |pieces| read_list(&types, limit, pieces));
        prop_assert!(end.is_ok());
        let whole = scanned(&types, &objects[0]);
        for item in &items[1..] {
            match item {
                ListItem::Object(found) => prop_assert!(found == &whole && found.bytes.len() <= limit),
                ListItem::Unreadable(found) => {
                    prop_assert!(whole.bytes.len() > limit);
                    prop_assert!(found.key.is_none() || found.key.as_ref() == Some(&whole.head.key));
                    prop_assert_eq!(found.error.to_string(), format!("larger than {limit} bytes"));
                }
                ListItem::Meta(_) => prop_assert!(false),
            }
        }
    }
}

/// Unknown fields stay in the bytes and do not affect decoding.
#[test]
fn unknown_fields_are_kept() {
    let types = TypeMeta::new("v1", "ConfigMap");
    let metadata = [data(1, b"a"), data(3, b"b"), data(6, b"7"), data(99, b"new")].concat();
    let message =
        [data(1, &metadata), data(2, &[data(1, b"k"), data(2, b"v")].concat()), data(99, b"more")].concat();
    let found = scanned(&types, &message);
    assert_eq!(*found.bytes, *message);
    let view = object::<serde_json::Value>(found);
    let expected = serde_json::json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "v"},
        "metadata": {"name": "a", "namespace": "b", "resourceVersion": "7"},
    });
    assert_eq!(*view.typed().unwrap(), expected);
}

/// Enumerations are transferred as text, so a value added in a newer version is an ordinary text.
#[test]
fn unknown_values_of_enumerations_are_kept() {
    let types = TypeMeta::new("v1", "Pod");
    let metadata = [data(1, b"a"), data(3, b"b"), data(6, b"7")].concat();
    let spec = [data(2, &data(1, b"app")), data(3, b"Sometimes")].concat();
    let message = [data(1, &metadata), data(2, &spec)].concat();
    let found = scanned(&types, &message);
    assert_eq!(*found.bytes, *message);
    let view = object::<serde_json::Value>(found);
    assert_eq!(view.typed().unwrap()["spec"]["restartPolicy"], "Sometimes");
}

#[test]
fn frame_of_another_type_is_reported() {
    let types = TypeMeta::new("v1", "Pod");
    let other = super::bytes::envelope(&TypeMeta::new("v1", "ConfigMap"), &[]);
    let (frames, end) =
        read_watch(&types, LIMIT, &[&[frame("ADDED", &other), frame("NEW", &other)].concat()]);
    assert_eq!(end, Ok(()));
    let shown: Vec<String> = frames
        .iter()
        .map(|frame| match frame {
            Frame::Unreadable(kind, unreadable) => format!("{kind:?}: {unreadable}"),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        shown,
        [
            "Added: object ? (#0 at byte 0) is unreadable: unexpected kind: v1 ConfigMap",
            "Unknown(\"NEW\"): object ? (#1 at byte 42) is unreadable: unexpected kind: v1 ConfigMap",
        ]
    );
    assert!(matches!(&frames[1], Frame::Unreadable(FrameKind::Unknown(kind), _) if &**kind == "NEW"));
}
