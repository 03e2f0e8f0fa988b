//! Generated objects of every kind: encoded as a server does it, they decode to the JSON that the server
//! would send.

use super::bytes::{object, scanned};
use super::encode;
use super::generator::{KINDS, Maker, types_of};
use informer_schema::Message;
use proptest::prelude::*;
use serde_json::Value;

/// Generates an object of a kind and decodes it from protobuf.
#[track_caller]
fn check(of: &'static Message, seed: u64) {
    let made = Maker::new(seed).object(of);
    let types = types_of(of);
    let read = scanned(&types, &encode::message(of, &made));
    assert_eq!(read.head.key.to_string(), "a/x");
    let read = object::<Value>(read);
    assert_eq!(*read.typed().unwrap(), made, "{} {seed}", of.name);
}

#[test]
fn every_kind_decodes_to_its_json() {
    for (seed, of) in KINDS.iter().enumerate() {
        for round in 0..3 {
            check(of, seed as u64 * 7 + round);
        }
    }
    assert!(KINDS.len() > 90, "{}", KINDS.len());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn objects_decode_to_their_json(which in any::<prop::sample::Index>(), seed in any::<u64>()) {
        check(KINDS[which.index(KINDS.len())], seed);
    }
}
