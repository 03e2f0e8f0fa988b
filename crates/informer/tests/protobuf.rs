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

/// Reads it as a `K`: the two are equal, or neither is a `K`. Whether they are.
impl Visit for Both<'_> {
    type Found = bool;

    fn visit<K: DeserializeOwned + PartialEq + Debug + Send + Sync + 'static>(self) -> bool {
        let Self { name, types, json, protobuf } = self;
        let mut json = json_watch(types, &format!(r#"{{"type":"ADDED","object":{json}}}"#));
        let (mut frames, end) = read_watch(types, usize::MAX, &[&frame("ADDED", protobuf)]);
        assert_eq!(end, Ok(()));
        let (Some(Frame::Added(json)), Some(Frame::Added(scanned))) = (json.pop(), frames.pop()) else {
            panic!("{name}")
        };
        let (json, scanned) = (json_object::<K>(json), object::<K>(types, scanned));
        let metadata = (scanned.metadata::<ObjectMeta>().ok(), json.metadata::<ObjectMeta>().ok());
        assert_eq!(metadata.0, metadata.1, "{name}");
        match (scanned.typed(), json.typed()) {
            (Ok(scanned), Ok(json)) => {
                assert_eq!(*scanned, *json, "{name}");
                true
            }
            (Err(_), Err(_)) => false,
            (scanned, json) => panic!("{name}: {scanned:?}, but {json:?}"),
        }
    }
}

#[test]
fn every_type_is_the_same_from_both_forms() {
    let mut count = 0;
    for twin in twins().iter().filter(|twin| twin.is_object()) {
        let types = type_of(&twin.value());
        let both = Both { name: &twin.name, types: &types, json: &twin.json, protobuf: &twin.protobuf };
        let read = if &*types.kind == "PartialObjectMetadata" {
            Some(both.visit::<PartialObjectMetadata>())
        } else {
            with_type(&types.api_version, &types.kind, both)
        };
        assert_eq!(read, Some(true), "{} has no type, or is none: {types:?}", twin.name);
        assert!(both.visit::<DynamicObject>(), "{}", twin.name);
        count += 1;
    }
    assert_eq!(count, 75);
}

/// Makes an object of a kind and reads it in both forms as the type there is for it, if there is one. Whether it is one.
fn check_made(which: usize, seed: u64) -> Option<bool> {
    let of = KINDS[which];
    let (made, types) = (Maker::new(seed).object(of), types_of(of));
    let (json, protobuf) = (made.to_string(), envelope(&types, &encode::message(of, &made)));
    let name = format!("{} {seed}", of.name);
    let both = Both { name: &name, types: &types, json: &json, protobuf: &protobuf };
    with_type(&types.api_version, &types.kind, both)
}

#[test]
fn made_objects_of_every_type_are_the_same_from_both_forms() {
    let mut known = 0;
    for which in 0..KINDS.len() {
        let rounds: Option<Vec<bool>> =
            (0..8).map(|round| check_made(which, which as u64 * 11 + round)).collect();
        let Some(rounds) = rounds else { continue };
        assert!(rounds.contains(&true), "nothing that was made is a {}", KINDS[which].name);
        known += 1;
    }
    assert_eq!(known, 61);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn made_objects_are_the_same_from_both_forms(which in any::<prop::sample::Index>(), seed in any::<u64>()) {
        check_made(which.index(KINDS.len()), seed);
    }
}
