//! The readers against their twin: any body in any pieces, whole or damaged.

use super::bytes::{Read, data, frame, list, object, opened, read_list, read_watch, scanned};
use super::naive::{self, Naive};
use super::twins::{Twin, twins, type_of};
use informer_core::wire::{Frame, FrameKind, ListItem, Scanned, TypeMeta};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use std::sync::LazyLock;

const LIMIT: usize = 8 << 20;

fn config() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::default() }
}

static OBJECTS: LazyLock<Vec<Twin>> = LazyLock::new(|| twins().into_iter().filter(Twin::is_object).collect());

/// `body` in pieces, cut at each of `cuts`.
fn cut<'a>(body: &'a [u8], cuts: &[Index]) -> Vec<&'a [u8]> {
    let mut ends: Vec<usize> =
        cuts.iter().map(|cut| cut.index(body.len() + 1)).chain([0, body.len()]).collect();
    ends.sort_unstable();
    ends.windows(2).map(|ends| &body[ends[0]..ends[1]]).collect()
}

/// Reads `body` whole, cut at `cuts`, and byte by byte: all must give the same.
#[track_caller]
fn however_cut<T: PartialEq + std::fmt::Debug>(
    body: &[u8],
    cuts: &[Index],
    read: impl Fn(&[&[u8]]) -> Read<T>,
) -> Read<T> {
    let whole = read(&[body]);
    assert_eq!(read(&cut(body, cuts)), whole, "cut");
    assert_eq!(read(&body.chunks(1).collect::<Vec<_>>()), whole, "byte by byte");
    whole
}

fn told(scanned: &Scanned) -> Naive {
    Naive::Object(scanned.head.key.clone(), scanned.head.version.clone(), scanned.bytes.to_vec())
}

/// What the twin would say of a list that the reader read.
fn list_as_told((items, end): &Read<ListItem>) -> Option<Vec<Naive>> {
    let found = items.iter().filter_map(|item| match item {
        ListItem::Meta(_) => None,
        ListItem::Object(scanned) => Some(told(scanned)),
        ListItem::Unreadable(_) => Some(Naive::Unreadable),
    });
    end.is_ok().then(|| found.collect())
}

fn watch_as_told((frames, end): &Read<Frame>) -> Vec<Naive> {
    let found = frames.iter().filter_map(|frame| match frame {
        Frame::Bookmark { .. } | Frame::Error(_) => None,
        Frame::Added(scanned) | Frame::Modified(scanned) | Frame::Deleted(scanned) => Some(told(scanned)),
        Frame::Unreadable(..) => Some(Naive::Unreadable),
    });
    found.chain(end.is_err().then_some(Naive::End)).collect()
}

/// Heads are stricter than the twin: labels, owners and times have to read, too.
fn agrees(reader: &[Naive], twin: &[Naive]) -> bool {
    let same = |(reader, twin): (&Naive, &Naive)| reader == twin || *reader == Naive::Unreadable;
    reader.len() == twin.len() && reader.iter().zip(twin).all(same)
}

/// Some recorded objects of one kind, the same one several times.
fn objects() -> impl Strategy<Value = (TypeMeta, Vec<Vec<u8>>)> {
    (0..OBJECTS.len(), 1..4_usize).prop_map(|(which, count)| {
        let twin = &OBJECTS[which];
        (type_of(&twin.value()), vec![opened(&twin.protobuf); count])
    })
}

fn changes() -> impl Strategy<Value = Vec<(Index, u8)>> {
    proptest::collection::vec((any::<Index>(), any::<u8>()), 0..6)
}

fn damage(body: &mut Vec<u8>, changes: &[(Index, u8)], end: Option<Index>) {
    for (place, byte) in changes {
        let place = place.index(body.len());
        body[place] = *byte;
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
    fn lists_read_as_the_twin_says(
        (types, objects) in objects(), changes in changes(), end in proptest::option::weighted(0.2, any::<Index>()),
        cuts in proptest::collection::vec(any::<Index>(), 0..8),
    ) {
        let mut body = list(&types, &objects);
        damage(&mut body, &changes, end);
        let read = however_cut(&body, &cuts, |pieces| read_list(&types, LIMIT, pieces));
        let (reader, twin) = (list_as_told(&read), naive::list(&types, &body));
        match (reader, twin) {
            (Some(reader), Some(twin)) => prop_assert!(agrees(&reader, &twin), "{reader:?} {twin:?}"),
            // Of the list's metadata the twin knows nothing.
            (None, _) => prop_assert!(!changes.is_empty() || end.is_some()),
            (Some(reader), None) => prop_assert!(false, "{reader:?}"),
        }
    }

    #[test]
    fn watches_read_as_the_twin_says(
        (types, objects) in objects(), changes in changes(), end in proptest::option::weighted(0.2, any::<Index>()),
        cuts in proptest::collection::vec(any::<Index>(), 0..8),
        kinds in proptest::collection::vec(select(vec!["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR", "OTHER"]), 3),
    ) {
        let mut body = stream(&types, &objects, &kinds);
        damage(&mut body, &changes, end);
        let read = however_cut(&body, &cuts, |pieces| read_watch(&types, LIMIT, pieces));
        let (reader, twin) = (watch_as_told(&read), naive::watch(&types, &body));
        // Behind the first frame that is none, only the reader goes on to the frame's own end.
        prop_assert!(agrees(&reader, &twin), "{reader:?} {twin:?}");
    }

    /// Whatever is handed out can be looked at: it decodes or says why not.
    #[test]
    fn damaged_objects_do_no_harm((types, objects) in objects(), changes in changes()) {
        let mut bytes = objects[0].clone();
        damage(&mut bytes, &changes, None);
        let body = list(&types, &[bytes]);
        for item in read_list(&types, LIMIT, &[&body]).0 {
            if let ListItem::Object(scanned) = item {
                let object = object::<serde_json::Value>(&types, scanned);
                let _ = object.typed().map_err(|error| error.to_string());
                let _ = object.metadata::<serde_json::Value>();
            }
        }
    }

    #[test]
    fn any_bytes_do_no_harm(
        bytes in proptest::collection::vec(any::<u8>(), 0..300), cuts in proptest::collection::vec(any::<Index>(), 0..4),
    ) {
        let types = TypeMeta::new("v1", "Pod");
        for body in [bytes.clone(), [b"k8s\0".to_vec(), bytes.clone()].concat(), list(&types, std::slice::from_ref(&bytes))] {
            let _ = however_cut(&body, &cuts, |pieces| read_list(&types, LIMIT, pieces));
        }
        for body in [bytes.clone(), frame("ADDED", &bytes), stream(&types, std::slice::from_ref(&bytes), &["ADDED"])] {
            let _ = however_cut(&body, &cuts, |pieces| read_watch(&types, LIMIT, pieces));
        }
    }

    /// An object over the limit is reported with what is known of it, and the next one is read.
    #[test]
    fn limits_hold((types, objects) in objects(), limit in 1..4000_usize, cuts in proptest::collection::vec(any::<Index>(), 0..8)) {
        let body = list(&types, &objects);
        let (items, end) = however_cut(&body, &cuts, |pieces| read_list(&types, limit, pieces));
        prop_assert!(end.is_ok());
        let whole = scanned(&types, &objects[0]);
        for item in &items[1..] {
            match item {
                ListItem::Object(found) => prop_assert!(found == &whole && found.bytes.len() <= limit),
                ListItem::Unreadable(found) => {
                    prop_assert!(whole.bytes.len() > limit);
                    prop_assert!(found.key.is_none() || found.key.as_ref() == Some(&whole.head.key));
                    prop_assert_eq!(found.problem.to_string(), format!("it is larger than {limit} bytes"));
                }
                ListItem::Meta(_) => prop_assert!(false),
            }
        }
    }
}

/// Fields that nobody knows stay in the bytes, and the views do not mind.
#[test]
fn unknown_fields_are_kept() {
    let types = TypeMeta::new("v1", "ConfigMap");
    let metadata = [data(1, b"a"), data(3, b"b"), data(6, b"7"), data(99, b"new")].concat();
    let message =
        [data(1, &metadata), data(2, &[data(1, b"k"), data(2, b"v")].concat()), data(99, b"more")].concat();
    let found = scanned(&types, &message);
    assert_eq!(*found.bytes, *message);
    let view = object::<serde_json::Value>(&types, found);
    let expected = serde_json::json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "v"},
        "metadata": {"name": "a", "namespace": "b", "resourceVersion": "7"},
    });
    assert_eq!(*view.typed().unwrap(), expected);
}

/// Enumerations travel as text, so a value that is younger than everybody here is text like any other.
#[test]
fn unknown_values_of_enumerations_are_kept() {
    let types = TypeMeta::new("v1", "Pod");
    let metadata = [data(1, b"a"), data(3, b"b"), data(6, b"7")].concat();
    let spec = [data(2, &data(1, b"app")), data(3, b"Sometimes")].concat();
    let message = [data(1, &metadata), data(2, &spec)].concat();
    let found = scanned(&types, &message);
    assert_eq!(*found.bytes, *message);
    let view = object::<serde_json::Value>(&types, found);
    assert_eq!(view.typed().unwrap()["spec"]["restartPolicy"], "Sometimes");
}

#[test]
fn a_frame_of_another_type_says_which() {
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
            "Added: object ? (#0 at byte 0) is unreadable: it is of another kind: v1 ConfigMap",
            "Unknown(\"NEW\"): object ? (#1 at byte 42) is unreadable: it is of another kind: v1 ConfigMap",
        ]
    );
    assert!(matches!(&frames[1], Frame::Unreadable(FrameKind::Unknown(kind), _) if &**kind == "NEW"));
}
