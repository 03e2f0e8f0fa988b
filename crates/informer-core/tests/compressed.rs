//! `Retention::Compressed` is invisible except for the memory it uses.
//!
//! > The bytes, compressed with a dictionary trained on the first objects; a typed view lives while it is in
//! > use.
//!
//! A store of compressed entries is compared with an uncompressed one; training of dictionaries;
//! recompression; typed access in both encodings. Damaged bytes are tested next to the code.
#![cfg(feature = "compressed")]
#![allow(clippy::unwrap_used, reason = "a failing test panics")]

#[path = "protobuf/encode.rs"]
mod encode;
#[path = "compressed/learning.rs"]
mod learning;
#[path = "compressed/objects.rs"]
mod objects;
#[path = "compressed/rewriting.rs"]
mod rewriting;
#[path = "compressed/twin.rs"]
mod twin;
#[path = "compressed/typed.rs"]
mod typed;
