//! `Retention::Compressed`: nobody can tell, but by the memory it takes.
//!
//! > The bytes, compressed with a dictionary that is learnt from the first objects; a typed view lives as long as somebody holds it.
//!
//! A store of compressed entries is held against one of plain ones; what is learnt, from what and when; rewriting; typed views in both
//! forms. Damage is tested beside the code.
#![cfg(feature = "compressed")]
#![allow(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

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
