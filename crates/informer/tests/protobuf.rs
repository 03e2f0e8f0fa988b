//! Types of users for every built-in kind: JSON and protobuf recorded from a real server decode to equal
//! values, and so do objects generated from the message table.

#![allow(clippy::unwrap_used, reason = "a failing test panics")]

#[path = "../../informer-core/tests/protobuf/bytes.rs"]
mod bytes;
#[path = "../../informer-core/tests/protobuf/encode.rs"]
mod encode;
#[path = "../../informer-core/tests/protobuf/generator.rs"]
mod generator;
#[path = "../../informer-core/tests/protobuf/reference_model.rs"]
mod reference_model;

use crate::types::{Visit, with_type};
use bytes::{envelope, frame, object, read_watch};
use generator::{KINDS, Maker, types_of};
use informer_core::wire::{Frame, TypeMeta};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DynamicObject;
use proptest::prelude::*;
use reference_model::{json_object, json_watch, recordings, type_of};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// Metadata only.
#[derive(Debug, PartialEq, Deserialize)]
struct PartialObjectMetadata {
    metadata: ObjectMeta,
}

/// An object in both encodings.
#[derive(Clone, Copy)]
struct Both<'a> {
    name: &'a str,
    types: &'a TypeMeta,
    json: &'a str,
    protobuf: &'a [u8],
}

/// Decodes the object as a `K` from both encodings. Returns whether both are a `K`; fails if the values
/// differ.
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
        let (json, scanned) = (json_object::<K>(json), object::<K>(scanned));
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
fn every_type_decodes_equally_from_both_encodings() {
    let mut count = 0;
    for recording in recordings().iter().filter(|recording| recording.is_object()) {
        let types = type_of(&recording.value());
        let both = Both {
            name: &recording.name,
            types: &types,
            json: &recording.json,
            protobuf: &recording.protobuf,
        };
        let read = if &*types.kind == "PartialObjectMetadata" {
            Some(both.visit::<PartialObjectMetadata>())
        } else {
            with_type(&types.api_version, &types.kind, both)
        };
        assert_eq!(read, Some(true), "{} has no type or does not decode as one: {types:?}", recording.name);
        assert!(both.visit::<DynamicObject>(), "{}", recording.name);
        count += 1;
    }
    assert_eq!(count, 75);
}

/// Generates an object of a kind and decodes both encodings as its type. Returns `None` if there is no type
/// for the kind.
fn check_generated(which: usize, seed: u64) -> Option<bool> {
    let of = KINDS[which];
    let (made, types) = (Maker::new(seed).object(of), types_of(of));
    let (json, protobuf) = (made.to_string(), envelope(&types, &encode::message(of, &made)));
    let name = format!("{} {seed}", of.name);
    let both = Both { name: &name, types: &types, json: &json, protobuf: &protobuf };
    with_type(&types.api_version, &types.kind, both)
}

#[test]
fn generated_objects_of_every_type_decode_equally() {
    let mut known = 0;
    for which in 0..KINDS.len() {
        let rounds: Option<Vec<bool>> =
            (0..8).map(|round| check_generated(which, which as u64 * 11 + round)).collect();
        let Some(rounds) = rounds else { continue };
        assert!(rounds.contains(&true), "no generated object decodes as {}", KINDS[which].name);
        known += 1;
    }
    assert_eq!(known, 61);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_generated_objects_decode_equally(which in any::<prop::sample::Index>(), seed in any::<u64>()) {
        check_generated(which.index(KINDS.len()), seed);
    }
}
