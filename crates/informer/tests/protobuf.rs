//! The types that users have, of every built-in kind: what a real server sent as JSON and as protobuf decodes to equal values, and so do objects that
//! are made from the table.

#![allow(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

#[path = "../../informer-core/tests/protobuf/bytes.rs"]
mod bytes;
#[path = "../../informer-core/tests/protobuf/encode.rs"]
mod encode;
#[path = "../../informer-core/tests/protobuf/maker.rs"]
mod maker;
#[path = "../../informer-core/tests/protobuf/twins.rs"]
mod twins;
#[path = "common/types.rs"]
mod types;

use bytes::{envelope, frame, object, read_watch};
use informer_core::wire::{Frame, TypeMeta};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DynamicObject;
use maker::{KINDS, Maker, types_of};
use proptest::prelude::*;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use twins::{json_object, json_watch, twins, type_of};
use types::{Visit, with_type};

/// Metadata alone.
#[derive(Debug, PartialEq, Deserialize)]
struct PartialObjectMetadata {
    metadata: ObjectMeta,
}

/// An object in both forms.
#[derive(Clone, Copy)]
struct Both<'a> {
    name: &'a str,
    types: &'a TypeMeta,
    json: &'a str,
    protobuf: &'a [u8],
}

/// Reads it as a `K`: the two are equal, or neither is a `K`.
impl Visit for (Both<'_>, &mut bool) {
    fn visit<K: DeserializeOwned + PartialEq + Debug + Send + Sync + 'static>(self) {
        let (Both { name, types, json, protobuf }, readable) = self;
        let mut json = json_watch(types, &format!(r#"{{"type":"ADDED","object":{json}}}"#));
        let (mut frames, end) = read_watch(types, usize::MAX, &[&frame("ADDED", protobuf)]);
        assert_eq!(end, Ok(()));
        let (Some(Frame::Added(json)), Some(Frame::Added(scanned))) = (json.pop(), frames.pop()) else {
            panic!("{name}")
        };
        let (json, scanned) = (json_object::<K>(json), object::<K>(types, scanned));
        match (scanned.typed(), json.typed()) {
            (Ok(scanned), Ok(json)) => assert_eq!(*scanned, *json, "{name}"),
            (Err(_), Err(_)) => *readable = false,
            (scanned, json) => panic!("{name}: {scanned:?}, but {json:?}"),
        }
        let metadata = (scanned.metadata::<ObjectMeta>().ok(), json.metadata::<ObjectMeta>().ok());
        assert_eq!(metadata.0, metadata.1, "{name}");
    }
}

#[test]
fn every_type_is_the_same_from_both_forms() {
    let mut count = 0;
    for twin in twins().iter().filter(|twin| twin.is_object()) {
        let (types, mut readable) = (type_of(&twin.value()), true);
        let both = Both { name: &twin.name, types: &types, json: &twin.json, protobuf: &twin.protobuf };
        if &*types.kind == "PartialObjectMetadata" {
            (both, &mut readable).visit::<PartialObjectMetadata>();
        } else {
            assert!(
                with_type(&types.api_version, &types.kind, (both, &mut readable)),
                "no type for {types:?}"
            );
        }
        (both, &mut readable).visit::<DynamicObject>();
        assert!(readable, "{}", twin.name);
        count += 1;
    }
    assert_eq!(count, 75);
}

/// Makes an object of a kind and reads it in both forms; whether there is a type for it, and it is one.
fn check_made(which: usize, seed: u64) -> (bool, bool) {
    let of = KINDS[which];
    let (made, types) = (Maker::new(seed).object(of), types_of(of));
    let (json, protobuf) = (made.to_string(), envelope(&types, &encode::message(of, &made)));
    let name = format!("{} {seed}", of.name);
    let (both, mut readable) = (Both { name: &name, types: &types, json: &json, protobuf: &protobuf }, true);
    let known = with_type(&types.api_version, &types.kind, (both, &mut readable));
    (known, readable)
}

#[test]
fn made_objects_of_every_type_are_the_same_from_both_forms() {
    let (mut known, mut readable) = (0, 0);
    for which in 0..KINDS.len() {
        let (mut is_known, mut reads) = (false, 0);
        for round in 0..8 {
            let (found, read) = check_made(which, which as u64 * 11 + round);
            is_known |= found;
            reads += usize::from(found && read);
        }
        known += usize::from(is_known);
        readable += usize::from(reads > 0);
    }
    assert_eq!((known, readable), (61, 61));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn made_objects_are_the_same_from_both_forms(which in any::<prop::sample::Index>(), seed in any::<u64>()) {
        check_made(which.index(KINDS.len()), seed);
    }
}
