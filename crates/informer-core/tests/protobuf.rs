//! The protobuf readers and the typed access to what they read, compared with JSON: recordings of a real
//! server in both encodings, generated objects, a reference model of the readers, and malformed bytes.
//!
//! `bytes` writes protobuf by hand, `twins` contains the recordings, `naive` is the reference model, `maker`
//! generates objects and `encode` encodes them.

#![allow(clippy::unwrap_used, reason = "a failing test panics")]

#[path = "protobuf/bytes.rs"]
mod bytes;
#[path = "protobuf/disorder.rs"]
mod disorder;
#[path = "protobuf/encode.rs"]
mod encode;
#[path = "protobuf/kinds.rs"]
mod kinds;
#[path = "protobuf/made.rs"]
mod made;
#[path = "protobuf/maker.rs"]
mod maker;
#[path = "protobuf/naive.rs"]
mod naive;
#[path = "protobuf/projected.rs"]
mod projected;
#[path = "protobuf/readers.rs"]
mod readers;
#[path = "protobuf/recorded.rs"]
mod recorded;
#[path = "protobuf/twins.rs"]
mod twins;
#[path = "protobuf/wrong.rs"]
mod wrong;
