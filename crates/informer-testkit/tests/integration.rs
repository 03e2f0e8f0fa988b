//! Tests of the simulation kit.

#![allow(clippy::unwrap_used, reason = "a failing test panics")]

mod bugs;
mod checks;
mod coverage;
mod determinism;
mod misuse;
mod programs;
mod reports;
mod sharded_simulation;
