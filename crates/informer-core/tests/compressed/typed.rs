//! Typed access to compressed objects, in JSON and in protobuf.

use super::encode;
use super::objects::scanned;
use bench_data::pods::{Pod, Random};
use informer_core::wire::{Limits, ListItem, ProtobufListReader, ScannedObject, message_of};
use informer_core::{Compressor, Entry, Object, Retention, Scope, StoreWriter, TypeMeta};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;
use std::sync::Arc;

type K8sPod = k8s_openapi::api::core::v1::Pod;

fn types() -> TypeMeta {
    TypeMeta::new("v1", "Pod")
}

fn pods() -> Vec<String> {
    let mut random = Random::new(5);
    (0..600).map(|number| Pod::new(number, 1000).item(&mut random)).collect()
}

/// The pod as an item of a protobuf list.
fn from_protobuf(item: &str) -> ScannedObject {
    let message = encode::message(message_of(&types()).unwrap().get(), &serde_json::from_str(item).unwrap());
    let (mut metadata, mut body, mut kind, mut envelope) =
        (Vec::new(), Vec::new(), Vec::new(), b"k8s\0".to_vec());
    encode::data(&mut metadata, 2, b"9");
    encode::data(&mut body, 1, &metadata);
    encode::data(&mut body, 2, &message);
    encode::data(&mut kind, 1, b"v1");
    encode::data(&mut kind, 2, b"PodList");
    encode::data(&mut envelope, 1, &kind);
    encode::data(&mut envelope, 2, &body);
    let (mut reader, mut found) = (ProtobufListReader::new(types(), Limits::default()).unwrap(), None);
    let on = |item| {
        if let ListItem::Object(scanned) = item {
            found = Some(scanned);
        }
    };
    reader.read(&envelope, on).unwrap();
    found.unwrap()
}

/// Compresses the objects with a dictionary trained on them and compares all views with those of uncompressed
/// objects.
fn check(objects: &[ScannedObject]) {
    let compressor = Compressor::with_training();
    let entry = |scanned: &ScannedObject, retention| Entry::new(scanned.clone(), retention);
    for scanned in objects {
        compressor.compress(entry(scanned, Retention::Compressed));
    }
    assert!(compressor.train(&StoreWriter::new([Scope::All]).1.snapshot()));
    for scanned in objects {
        let plain = Object::<K8sPod>::new(Arc::new(entry(scanned, Retention::Bytes)));
        let compressed = compressor.compress(entry(scanned, Retention::Compressed));
        assert!(
            compressed.memory_size() < plain.entry().memory_size() - 1000,
            "{compressed:?} is compressed"
        );
        let compressed = Object::<K8sPod>::new(Arc::new(compressed));
        assert_eq!(compressed.raw_bytes(), plain.raw_bytes());
        assert_eq!(compressed.to_json(), plain.to_json());
        assert_eq!(*compressed.typed().unwrap(), *plain.typed().unwrap());
        assert_eq!(compressed.metadata::<ObjectMeta>(), plain.metadata::<ObjectMeta>());
        assert_eq!(*compressed.cast::<Value>().typed().unwrap(), *plain.cast::<Value>().typed().unwrap());
    }
}

#[test]
fn compressed_json_decodes_as_plain_json() {
    check(&pods().iter().map(|item| scanned(&types(), item)).collect::<Vec<_>>());
}

#[test]
fn compressed_protobuf_decodes_as_plain_protobuf() {
    check(&pods().iter().map(|item| from_protobuf(item)).collect::<Vec<_>>());
}
