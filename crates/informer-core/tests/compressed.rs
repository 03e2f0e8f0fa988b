//! `Retention::Compressed` is invisible except for the memory it uses.
//!
//! > The bytes, compressed with a dictionary trained on the first objects; a typed view lives while it is in
//! > use.
//!
//! A store of compressed entries is compared with an uncompressed one; training of dictionaries;
//! recompression; typed access in both encodings. Damaged bytes are tested next to the code.
#![cfg(feature = "compression")]
#![allow(clippy::unwrap_used, reason = "a failing test panics")]

#[path = "protobuf/encode.rs"]
mod encode;
#[path = "compressed/objects.rs"]
mod objects;
#[path = "compressed/recompression.rs"]
mod recompression;
#[path = "compressed/reference_model.rs"]
mod reference_model;
#[path = "compressed/training.rs"]
mod training;
#[path = "compressed/typed.rs"]
mod typed;
