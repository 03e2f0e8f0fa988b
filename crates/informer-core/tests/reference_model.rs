//! The store and the delta queue against reference models: random operations from a seed, equal results after
//! each.
//!
//! The models are a sorted map and a queue that recompute every result from plain objects; they know nothing
//! about snapshots, postings or bytes. A failing seed is printed; `REFERENCE_MODEL_SEED=<seed> cargo test -p
//! informer-core --test reference_model` runs that one alone, and `REFERENCE_MODEL_SEEDS=<n>` sets the number of seeds.

#![allow(clippy::unwrap_used, reason = "a failing test panics")]

#[path = "reference_model/fifo.rs"]
mod fifo;
#[path = "reference_model/model.rs"]
mod model;
#[path = "reference_model/objects.rs"]
mod objects;
#[path = "reference_model/store.rs"]
mod store;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Runs `run` for each seed and prints the one that failed.
fn for_seeds(count: u64, run: impl Fn(u64)) {
    let seeds = match number("REFERENCE_MODEL_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("REFERENCE_MODEL_SEEDS").unwrap_or(count),
    };
    for seed in seeds {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(seed))) {
            eprintln!("failed with seed {seed}: replay with REFERENCE_MODEL_SEED={seed}");
            resume_unwind(panic);
        }
    }
}

#[test]
fn store_matches_its_model() {
    for_seeds(1_000, store::run);
}

#[test]
fn store_with_many_objects_matches_its_model() {
    for_seeds(6, store::run_large);
}

#[test]
fn delta_queue_matches_its_model() {
    for_seeds(2_000, fifo::run);
}
