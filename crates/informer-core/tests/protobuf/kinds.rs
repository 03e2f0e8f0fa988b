//! Types of users, decoded from both encodings. (The tests of `informer` compare those of all kinds; they
//! take long to build.)

use super::bytes::{frame, object, read_watch};
use super::reference_model::{json_object, json_watch, recordings, type_of};
use informer_core::wire::Frame;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// Decodes a recorded object from both encodings as a `K`.
#[track_caller]
fn check<K>(name: &str)
where
    K: DeserializeOwned + PartialEq + Debug + Send + Sync + 'static,
{
    let recording = recordings().into_iter().find(|recording| recording.name == name).unwrap();
    let types = type_of(&recording.value());
    let mut json = json_watch(&types, &format!(r#"{{"type":"ADDED","object":{}}}"#, recording.json));
    let (mut frames, end) = read_watch(&types, usize::MAX, &[&frame("ADDED", &recording.protobuf)]);
    assert_eq!(end, Ok(()));
    let (Some(Frame::Added(json)), Some(Frame::Added(scanned))) = (json.pop(), frames.pop()) else {
        panic!("{name}")
    };
    let (json, scanned) = (json_object::<K>(json), object::<K>(scanned));
    assert_eq!(*scanned.typed().unwrap(), *json.typed().unwrap(), "{name}");
    assert_eq!(scanned.metadata::<ObjectMeta>().unwrap(), json.metadata::<ObjectMeta>().unwrap(), "{name}");
    assert_eq!(scanned.annotations().unwrap(), json.annotations().unwrap(), "{name}");
}

#[test]
fn types_decode_equally_from_both_encodings() {
    check::<Secret>("core_v1_Secret");
    check::<ControllerRevision>("apps_v1_ControllerRevision");
    check::<Event>("events.k8s.io_v1_Event");
}
