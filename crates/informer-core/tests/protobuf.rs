//! The protobuf readers and the typed access to what they read, compared with JSON: recordings of a real
//! server in both encodings, generated objects, a reference model of the readers, and malformed bytes.
//!
//! `bytes` writes protobuf by hand, `reference_model` contains the recordings, `model` is the reference model, `generator`
//! generates objects and `encode` encodes them.

#![allow(clippy::unwrap_used, reason = "a failing test panics")]

#[path = "protobuf/bytes.rs"]
mod bytes;
#[path = "protobuf/disorder.rs"]
mod disorder;
#[path = "protobuf/encode.rs"]
mod encode;
#[path = "protobuf/filtered.rs"]
mod filtered;
#[path = "protobuf/generated.rs"]
mod generated;
#[path = "protobuf/generator.rs"]
mod generator;
#[path = "protobuf/kinds.rs"]
mod kinds;
#[path = "protobuf/malformed.rs"]
mod malformed;
#[path = "protobuf/model.rs"]
mod model;
#[path = "protobuf/readers.rs"]
mod readers;
#[path = "protobuf/recorded.rs"]
mod recorded;
#[path = "protobuf/reference_model.rs"]
mod reference_model;
