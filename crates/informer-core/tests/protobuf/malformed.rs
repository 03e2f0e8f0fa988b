//! Malformed bytes of every kind, and the errors they cause.

use super::bytes::{data, envelope, frame, list, number, object, read_list, read_watch, scanned, varint};
use informer_core::wire::{Frame, Limits, ListItem, ProtobufWatchReader, TypeMeta};
use serde::Deserialize;
use serde_json::Value;

const LIMIT: usize = 8 << 20;

fn types() -> TypeMeta {
    TypeMeta::new("v1", "ConfigMap")
}

fn metadata(name: &str) -> Vec<u8> {
    data(1, &[data(1, name.as_bytes()), data(3, b"ns"), data(6, b"7")].concat())
}

/// Reads a list; one line per result.
fn read(body: &[u8]) -> Vec<String> {
    let (items, end) = read_list(&types(), LIMIT, &[body]);
    let items = items.iter().map(|item| match item {
        ListItem::Meta(meta) => format!("list {}", meta.version),
        ListItem::Object(scanned) => format!("object {}", scanned.head.key),
        ListItem::Unreadable(unreadable) => unreadable.to_string(),
    });
    items.chain(end.err().map(|error| error.to_string())).collect()
}

#[track_caller]
fn check_body(body: &[u8], expected: &str) {
    assert_eq!(read(body), [expected]);
}

#[test]
fn body_that_is_not_a_list_is_an_error() {
    check_body(b"", "list at byte 0: the body ends too early");
    check_body(b"k8s", "list at byte 3: the body ends too early");
    check_body(
        b"{\"kind\":\"List\"}",
        "list at byte 0: not protobuf: no Kubernetes magic number at the start",
    );
    check_body(b"k8s\0", "list at byte 4: the body ends too early");
    check_body(b"k8s\0\x0f", "list at byte 5: not protobuf: a field has the unknown wire type 7");
    check_body(b"k8s\0\x00", "list at byte 5: not protobuf: a field number is out of range");
    check_body(b"k8s\0\x0b", "list at byte 5: not protobuf: a field is a group");
    check_body(
        &[b"k8s\0".to_vec(), vec![0xff; 12]].concat(),
        "list at byte 15: not protobuf: a varint has more than 64 bits",
    );
    let no_kind = [b"k8s\0".to_vec(), data(2, b"")].concat();
    check_body(&no_kind, "list at byte 6: not a list but a body without a kind");
    check_body(&envelope(&TypeMeta::new("v1", "Status"), b""), "list at byte 20: not a list but a Status");
    check_body(&envelope(&types(), b""), "list at byte 23: not a list but a ConfigMap");
    let other = envelope(&TypeMeta::new("apps/v1", "ConfigMapList"), b"");
    check_body(&other, "list at byte 32: unexpected kind: ConfigMapList of apps/v1");
    let list_type = TypeMeta::new("v1", "ConfigMapList");
    check_body(&envelope(&list_type, b""), "list at byte 31: invalid list metadata: missing");
    check_body(
        &envelope(&list_type, &data(1, b"")),
        "list at byte 29: invalid list metadata: no resourceVersion",
    );
    check_body(
        &envelope(&list_type, &data(1, &number(2, 7))),
        "list at byte 31: invalid list metadata: a field has the wrong type",
    );
}

#[test]
fn envelope_of_a_list_is_checked() {
    let twice = |tail: Vec<u8>| [list(&types(), &[metadata("a")]), tail].concat();
    let expected = ["list 9", "object ns/a"];
    assert_eq!(read(&twice(Vec::new())), expected);
    for (tail, problem) in [
        (data(2, b""), "a singular field occurs twice"),
        (data(4, b"application/json"), "the envelope declares a content encoding or content type"),
        (data(3, b"gzip"), "the envelope declares a content encoding or content type"),
    ] {
        let found = read(&twice(tail));
        assert_eq!(found[..2], expected);
        assert!(found[2].ends_with(problem), "{found:?}");
    }
    // The list's length is larger than the body, or smaller than an item.
    let whole = list(&types(), &[metadata("a")]);
    assert!(read(&whole[..whole.len() - 5]).last().unwrap().ends_with("the body ends too early"));
    let of = TypeMeta::new("v1", "ConfigMapList");
    let mut item = vec![0x12];
    varint(&mut item, 1 << 40);
    let lying = envelope(&of, &[data(1, &data(2, b"9")), item].concat());
    let found = read(&lying);
    assert_eq!(found[0], "list 9");
    assert!(found[1].ends_with("not protobuf: a length exceeds the enclosing message"), "{found:?}");
}

#[test]
fn malformed_item_is_skipped() {
    let broken = |tail: &[u8]| [&metadata("a")[..], tail].concat();
    for (item, problem) in [
        (broken(&[0x12, 0x7f]), "malformed protobuf: a length exceeds the enclosing message"),
        (broken(&[0x12, 0x80]), "malformed protobuf: ends inside a field"),
        (broken(&[0x16]), "malformed protobuf: a field has the unknown wire type 6"),
        (broken(&[0x13, 0x14]), "malformed protobuf: a field is a group"),
        (broken(&metadata("b")), "malformed protobuf: a singular field occurs twice"),
        (broken(&[0xff; 20]), "malformed protobuf: a varint has more than 64 bits"),
    ] {
        let found = read(&list(&types(), &[item, metadata("b")]));
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[1].starts_with("object ns/a (#0 at byte ") && found[1].ends_with(problem), "{found:?}");
        assert_eq!(found[2], "object ns/b");
    }
}

#[test]
fn unreadable_head_is_reported() {
    let meta = |fields: &[Vec<u8>]| data(1, &fields.concat());
    let (name, version) = (data(1, b"a"), data(6, b"7"));
    for (item, problem) in [
        (meta(&[]), "metadata.name is missing"),
        (Vec::new(), "metadata.name is missing"),
        (number(1, 1), "metadata.name is missing"),
        (meta(std::slice::from_ref(&name)), "metadata.resourceVersion is missing"),
        (meta(&[number(1, 1), version.clone()]), "metadata.name is not a string"),
        (meta(&[data(1, b"\xff"), version.clone()]), "metadata.name is not a string"),
        (meta(&[data(1, b"a/b"), version.clone()]), "metadata.name is not an object name"),
        (meta(&[name.clone(), version.clone(), data(7, b"")]), "metadata.generation is not an integer"),
        (
            meta(&[name.clone(), version.clone(), data(8, &number(1, 1 << 62))]),
            "metadata.creationTimestamp is not a time",
        ),
        (
            meta(&[name.clone(), version.clone(), data(11, &number(1, 1))]),
            "metadata.labels is not a map of strings",
        ),
        (
            meta(&[name.clone(), version.clone(), data(13, &number(1, 1))]),
            "metadata.ownerReferences is not a list of owner references",
        ),
    ] {
        let found = read(&list(&types(), &[item]));
        assert!(found[1].ends_with(problem), "{found:?}");
    }
    let odd = [data(1, &data(2, b"9")), number(2, 7)].concat();
    let found = read(&envelope(&TypeMeta::new("v1", "ConfigMapList"), &odd));
    assert!(found[1].ends_with("not an object"), "{found:?}");
}

/// Reads a watch; one line per result.
fn watch(body: &[u8]) -> Vec<String> {
    let (frames, end) = read_watch(&types(), LIMIT, &[body]);
    let frames = frames.iter().map(|frame| match frame {
        Frame::Added(scanned) => format!("added {}", scanned.head.key),
        Frame::Unreadable(kind, unreadable) => format!("{kind:?} {}", unreadable.error),
        other => format!("{other:?}"),
    });
    frames.chain(end.err().map(|error| error.to_string())).collect()
}

#[test]
fn malformed_frame_is_skipped() {
    let good = frame("ADDED", &envelope(&types(), &metadata("b")));
    let status = envelope(&TypeMeta::new("v1", "Status"), &number(6, 410));
    for (malformed, expected) in [
        (frame("ADDED", b"{}"), "Added malformed protobuf: no Kubernetes magic number at the start"),
        (frame("ADDED", b""), "Added malformed protobuf: no Kubernetes magic number at the start"),
        (
            frame("ADDED", b"k8s\0\x12\x05"),
            "Added malformed protobuf: a length exceeds the enclosing message",
        ),
        (
            frame("ADDED", &envelope(&types(), b"\x16")),
            "Added malformed protobuf: a field has the unknown wire type 6",
        ),
        (frame("ADDED", &envelope(&types(), b"")), "Added metadata.name is missing"),
        (frame("ADDED", &status), "Added unexpected kind: v1 Status"),
        (frame("", &envelope(&types(), &metadata("a"))), "Unknown(\"\") unknown frame type"),
        (vec![0, 0, 0, 0], "Unknown(\"\") not an object"),
        ([&[0, 0, 0, 7][..], &data(1, b"ADDED")].concat(), "Added not an object"),
    ] {
        assert_eq!(watch(&[malformed, good.clone()].concat()), [expected, "added ns/b"]);
    }
}

#[test]
fn body_without_frame_ends_the_stream() {
    let good = frame("ADDED", &envelope(&types(), &metadata("a")));
    for (malformed, problem) in [
        (b"{\"type\":\"ADDED\"}".to_vec(), "not protobuf: a frame of 2065855609 bytes exceeds the limit"),
        (vec![0, 0, 0, 2, 0x0a, 0x7f], "not protobuf: a length exceeds the enclosing message"),
        (vec![0, 0, 0, 1, 0], "not protobuf: a field number is out of range"),
        (vec![0, 0, 0, 2, 0x80, 0x80], "not protobuf: ends inside a field"),
        (good[..good.len() - 1].to_vec(), "the body ends too early"),
        (vec![0, 0], "the body ends too early"),
    ] {
        let found = watch(&[good.clone(), malformed].concat());
        assert_eq!((found.len(), &*found[0]), (2, "added ns/a"), "{found:?}");
        assert!(found[1].starts_with("frame #1 at byte ") && found[1].ends_with(problem), "{found:?}");
    }
}

/// The type may follow the object.
#[test]
fn parts_of_a_frame_may_have_any_order() {
    let event = [data(2, &data(1, &envelope(&types(), &metadata("a")))), data(1, b"ADDED")].concat();
    let body = [&u32::try_from(event.len()).unwrap().to_be_bytes()[..], &event].concat();
    assert_eq!(watch(&body), ["added ns/a"]);
}

#[derive(Debug, Deserialize)]
struct Wrong {
    #[expect(dead_code, reason = "only its type matters")]
    data: std::collections::BTreeMap<String, u8>,
}

/// A decode error names the field, as for JSON, and does not contain more of the object.
#[test]
fn decode_error_names_the_field() {
    let entry = [data(1, b"key"), data(2, b"text")].concat();
    let message = [metadata("a"), data(2, &entry)].concat();
    let read = object::<Wrong>(scanned(&types(), &message));
    let error = read.typed().unwrap_err();
    assert_eq!(
        (&*error.field_path, &*error.message),
        ("data.key", "invalid type: string \"text\", expected u8")
    );
    // A value with another wire type: a varint where a map is expected.
    let message = [metadata("a"), number(2, 7)].concat();
    let error = object::<Value>(scanned(&types(), &message)).typed().unwrap_err();
    assert_eq!(
        error.to_string(),
        "ns/a at version 7 does not decode as serde_json::value::Value, at data: the wire type does not match the type of the field"
    );
    let pods = TypeMeta::new("v1", "Pod");
    let containers = [data(2, &data(1, b"one")), data(2, &number(1, 1))].concat();
    let message = [metadata("a"), data(2, &containers)].concat();
    let error = object::<Value>(scanned(&pods, &message)).typed().unwrap_err();
    assert_eq!(&*error.field_path, "spec.containers[1].name");
}

/// Regression, found by fuzzing: objects exceeded the size limit by some bytes. A field was accepted if its
/// value fitted into the remaining size, and an empty field fitted into zero bytes: so did every varint,
/// which has no length, and an object of varints was accepted at any size. The tests of the limit used only
/// fields with contents.
#[test]
fn varint_fields_count_towards_the_size_limit() {
    for field in [number(9, 1), data(9, b"")] {
        let item = [metadata("a"), field.repeat(1000)].concat();
        let (items, end) = read_list(&types(), 64, &[&list(&types(), &[item, metadata("b")])]);
        assert_eq!(end, Ok(()));
        let problem = |item: &ListItem| match item {
            ListItem::Unreadable(unreadable) => unreadable.error.to_string(),
            _ => "none".to_owned(),
        };
        assert_eq!(problem(&items[1]), "larger than 64 bytes");
        assert!(matches!(&items[2], ListItem::Object(_)));
    }
}

/// Regression: the object of an earlier part of the frame was assigned to the kind that a later part did not
/// name.
#[test]
fn repeated_object_in_a_frame_discards_the_first() {
    let other = envelope(&TypeMeta::new("v1", "Secret"), &metadata("a"));
    let parts = [data(1, &other), data(1, b"k8s\0")].concat();
    let event = [data(1, b"ADDED"), data(2, &parts)].concat();
    let frame = [&u32::try_from(event.len()).unwrap().to_be_bytes()[..], &event].concat();
    let (frames, end) = read_watch(&types(), LIMIT, &[&frame]);
    assert_eq!(end, Ok(()));
    let [Frame::Unreadable(_, unreadable)] = &frames[..] else { panic!("{frames:?}") };
    assert_eq!(unreadable.key, None);
}

/// Regression: a reader that received bytes after an error read beyond the four bytes of a length and later
/// returned the previous frame again.
#[test]
fn failed_reader_returns_nothing_more() {
    let good = frame("ADDED", &envelope(&types(), &metadata("a")));
    let mut reader = ProtobufWatchReader::new(types(), Limits::new(LIMIT)).unwrap();
    let mut frames = 0;
    let mut read = |chunk: &[u8]| reader.read(chunk, |_| frames += 1);
    assert_eq!(read(&good), Ok(()));
    let failed = read(&[0xff; 4]).unwrap_err();
    for chunk in [&[0xff; 9][..], &good, &good] {
        assert_eq!(read(chunk), Err(failed.clone()));
    }
    assert_eq!(frames, 1);
}
