//! The protobuf readers and the typed views of what they read, beside JSON: what a real server sent in both forms, objects made from the table
//! of messages, a naive twin of the readers, and bytes that are wrong.
//!
//! `bytes` writes protobuf by hand, `twins` are the recordings, `naive` is the twin of the readers, `maker` makes objects and `encode` writes them.

#![allow(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

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
