//! The store and the delta queue against naive twins: random operations from a seed, equal answers after each.
//!
//! The twins are a sorted map and a queue that recompute every answer from the plain objects; they know nothing of snapshots, postings
//! or bytes. A failing seed is printed; `TWIN_SEED=<seed> cargo test -p informer-core --test twins` runs that one alone, and `TWIN_SEEDS=<n>` asks for
//! more of them.

#![allow(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

#[path = "twins/fifo.rs"]
mod fifo;
#[path = "twins/naive.rs"]
mod naive;
#[path = "twins/objects.rs"]
mod objects;
#[path = "twins/store.rs"]
mod store;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Runs `run` for each seed, and says which one failed.
fn for_seeds(count: u64, run: impl Fn(u64)) {
    let seeds = match number("TWIN_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("TWIN_SEEDS").unwrap_or(count),
    };
    for seed in seeds {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(seed))) {
            eprintln!("the seed is {seed}: run it alone with TWIN_SEED={seed}");
            resume_unwind(panic);
        }
    }
}

#[test]
fn the_store_answers_like_its_twin() {
    for_seeds(1_000, store::run);
}

#[test]
fn the_store_answers_like_its_twin_with_many_objects() {
    for_seeds(6, store::run_large);
}

#[test]
fn the_delta_queue_answers_like_its_twin() {
    for_seeds(2_000, fifo::run);
}
