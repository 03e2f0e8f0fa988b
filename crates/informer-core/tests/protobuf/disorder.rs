//! What protobuf allows and no server sends: fields in any order, split messages, repeated values.

use super::bytes::{data, field, number, object, scanned};
use super::encode;
use super::generator::{KINDS, Maker, types_of};
use informer_core::wire::{ScannedObject, TypeMeta};
use informer_schema::{Message, Wire};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Reorders a message: fields at random positions with the order per number preserved, messages split in two,
/// and values preceded by others that are overridden.
fn disorder(of: &'static Message, bytes: &[u8], maker: &mut Maker) -> Vec<u8> {
    let mut pieces: Vec<(u32, Vec<u8>)> = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let (own, value, behind) = field(rest);
        let whole = rest[..rest.len() - behind.len()].to_vec();
        rest = behind;
        let part = of.part(u64::from(own)).unwrap();
        match (part.wire, value) {
            (Wire::Message(inner), Some(value)) => {
                let value = disorder(inner.get(), value, maker);
                let (first, second) = halves(&value, maker);
                pieces.push((own, data(own, first)));
                pieces.push((own, data(own, second)));
            }
            (Wire::List(Wire::Message(inner)), Some(value)) => {
                pieces.push((own, data(own, &disorder(inner.get(), value, maker))));
            }
            (Wire::String, Some(_)) => pieces.extend([(own, data(own, b"overridden")), (own, whole)]),
            (Wire::Int32 | Wire::Int64 | Wire::Boolean, None) => {
                pieces.extend([(own, number(own, 99)), (own, whole)]);
            }
            _ => pieces.push((own, whole)),
        }
    }
    let mut out = Vec::new();
    while !pieces.is_empty() {
        let any = usize::try_from(maker.below(pieces.len() as u64)).unwrap();
        let own = pieces[any].0;
        let first = pieces.iter().position(|(number, _)| *number == own).unwrap();
        out.extend(pieces.remove(first).1);
    }
    out
}

/// Splits a message in two.
fn halves<'a>(bytes: &'a [u8], maker: &mut Maker) -> (&'a [u8], &'a [u8]) {
    let mut rest = bytes;
    while !rest.is_empty() && maker.below(3) > 0 {
        rest = field(rest).2;
    }
    bytes.split_at(bytes.len() - rest.len())
}

/// An object with these bytes and the head of another.
fn with_bytes(types: &TypeMeta, like: &[u8], bytes: Vec<u8>) -> informer_core::Object<Value> {
    object(ScannedObject { bytes: bytes.into(), ..scanned(types, like) })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn field_order_does_not_matter(which in any::<prop::sample::Index>(), seed in any::<u64>()) {
        let of = KINDS[which.index(KINDS.len())];
        let mut maker = Maker::new(seed);
        let made = maker.object(of);
        let bytes = encode::message(of, &made);
        let mixed = disorder(of, &bytes, &mut maker);
        let read = with_bytes(&types_of(of), &bytes, mixed);
        prop_assert_eq!(&*read.typed().unwrap(), &made, "{} {}", of.name, seed);
    }
}

/// Numbers may be packed into one field or several.
#[test]
fn packed_lists_are_read() {
    let types = TypeMeta::new("v1", "Pod");
    let metadata = [data(1, b"a"), data(6, b"7")].concat();
    let groups = [data(4, &[1, 2]), number(4, 3), data(4, &[])].concat();
    let message = [data(1, &metadata), data(2, &data(14, &groups))].concat();
    let read = object::<Value>(scanned(&types, &message));
    assert_eq!(read.typed().unwrap()["spec"]["securityContext"]["supplementalGroups"], json!([1, 2, 3]));
}

/// A tag may use more bytes than necessary.
#[test]
fn long_tags_are_read() {
    let types = TypeMeta::new("v1", "ConfigMap");
    let metadata = data(1, &[data(1, b"a"), data(6, b"7")].concat());
    let entry = |key: &[u8]| [data(1, key), data(2, b"v")].concat();
    // Field 2, and the unknown field 18: both begin with the same byte.
    let long = |number: u8, bytes: &[u8]| [&[0x92, number >> 4][..], &data(1, bytes)[1..]].concat();
    let message = [metadata, long(2, &entry(b"k")), long(2, &entry(b"l")), long(18, &entry(b"m"))].concat();
    let like = scanned(&types, &message);
    let read = object::<Value>(ScannedObject { bytes: message.into(), ..like });
    assert_eq!(read.typed().unwrap()["data"], json!({"k": "v", "l": "v"}));
}

/// A schema may contain schemas without limit, in any order.
#[test]
fn depth_is_limited() {
    let types = TypeMeta::new("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    let of = informer_core::wire::message_of(&types).unwrap().get();
    let schema = informer_schema::MESSAGES.iter().find(|of| of.name.ends_with(".JSONSchemaProps")).unwrap();
    let inner = |of: &'static Message, name: &str| {
        u32::from(of.parts.iter().find(|part| part.name == name).unwrap().number)
    };
    let read = |depth: usize, disordered: bool| {
        let mut nested = Vec::new();
        for _ in 0..depth {
            nested = data(inner(schema, "not"), &nested);
            if disordered {
                nested.extend(data(1, b"id"));
            }
        }
        let message_named =
            |name: &str| informer_schema::MESSAGES.iter().find(|of| of.name.ends_with(name)).unwrap();
        let version = message_named("apiextensions.v1.CustomResourceDefinitionVersion");
        let validation = message_named("apiextensions.v1.CustomResourceValidation");
        let spec = message_named("apiextensions.v1.CustomResourceDefinitionSpec");
        let nested = data(inner(validation, "openAPIV3Schema"), &nested);
        let nested = data(inner(spec, "versions"), &data(inner(version, "schema"), &nested));
        let metadata = data(1, &[data(1, b"a"), data(6, b"7")].concat());
        let message = [metadata, data(inner(of, "spec"), &nested)].concat();
        object::<Value>(scanned(&types, &message)).typed().map(|_| ()).map_err(|error| error.message)
    };
    for disordered in [false, true] {
        assert_eq!(read(100, disordered), Ok(()));
        assert_eq!(read(100_000, disordered), Err("recursion limit exceeded".into()));
    }
}

/// An index stops at the requested field: of a repeated string it returns the first value, while the object
/// has the last. No server sends such a string. Fields out of order that occur once are found at any
/// position.
#[test]
fn index_values_are_found_in_any_order() {
    let types = TypeMeta::new("v1", "Pod");
    let metadata = data(1, &[data(1, b"a"), data(6, b"7")].concat());
    let found = |spec: &[Vec<u8>]| {
        let message = [metadata.clone(), data(2, &spec.concat())].concat();
        let read = object::<Value>(scanned(&types, &message));
        let values = read.entry().values_at(&"spec.nodeName".parse().unwrap());
        (values, read.typed().unwrap()["spec"]["nodeName"].clone())
    };
    let (node, other, host) = (data(10, b"one"), data(10, b"two"), number(11, 1));
    let one = vec!["one".to_owned()];
    assert_eq!(found(&[node.clone(), host.clone()]), (one.clone(), json!("one")));
    assert_eq!(found(&[host.clone(), node.clone()]), (one.clone(), json!("one")));
    assert_eq!(found(&[node.clone(), other.clone()]), (vec!["two".to_owned()], json!("two")));
    assert_eq!(found(&[node, host, other]), (one, json!("two")));
}
