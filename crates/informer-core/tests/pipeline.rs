//! The pure pipeline (reflector, queue, store) against a model server with all faults: random schedules, one
//! seed each.
//!
//! Each seed builds a server, a network and a client with a third of all faults, runs some hundred random
//! steps in virtual time, and checks the guarantees C1 to C5, C7 and C11 after each. Then the faults end, and
//! the cache must converge to the server. `INFORMER_SEEDS=200000` runs more seeds; a failing one prints the
//! command that replays it with its trace.

#![allow(clippy::unwrap_used)]

#[path = "pipeline/checks.rs"]
mod checks;
#[path = "pipeline/faults.rs"]
mod faults;
#[path = "pipeline/json.rs"]
mod json;
#[path = "pipeline/net.rs"]
mod net;
#[path = "pipeline/regressions.rs"]
mod regressions;
#[path = "pipeline/run.rs"]
mod run;
#[path = "pipeline/server.rs"]
mod server;

use faults::FAULTS;
use run::{Trace, run};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// Totals of many runs.
#[derive(Debug, Default)]
struct Total {
    hits: Vec<u64>,
    reported: u64,
    rewinds: u64,
    widest: u64,
    longest_recovery: Duration,
}

impl Total {
    fn add(&mut self, hits: &[u64], reported: u64, rewinds: u64, widest: u64, recovery: Duration) {
        self.hits.resize(hits.len(), 0);
        self.hits.iter_mut().zip(hits).for_each(|(total, hits)| *total += hits);
        self.reported += reported;
        self.rewinds += rewinds;
        self.widest = self.widest.max(widest);
        self.longest_recovery = self.longest_recovery.max(recovery);
    }
}

fn number_from(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap())
}

/// Runs every `threads`-th seed from `first` on.
fn run_some(first: u64, count: u64, threads: usize) -> Total {
    let mut total = Total::default();
    for seed in (first..count).step_by(threads) {
        match catch_unwind(AssertUnwindSafe(|| run(seed, Trace::Off))) {
            Ok(done) => total.add(&done.hits, done.reported, done.rewinds, done.widest, done.recovery),
            Err(panic) => {
                eprintln!(
                    "seed {seed} failed. Replay it with its trace:\n  INFORMER_SEED={seed} cargo test -p informer-core --test pipeline \
                     replay -- --nocapture"
                );
                std::panic::resume_unwind(panic);
            }
        }
    }
    total
}

#[test]
fn cache_converges_after_random_faults() {
    const THREADS: usize = 2;
    let count = number_from("INFORMER_SEEDS").unwrap_or(20_000);
    let began = std::time::Instant::now();
    let totals = std::thread::scope(|scope| {
        let threads = [0, 1].map(|first| scope.spawn(move || run_some(first, count, THREADS)));
        threads.map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let mut total = Total::default();
    for part in totals {
        total.add(&part.hits, part.reported, part.rewinds, part.widest, part.longest_recovery);
    }
    println!("{count} seeds in {:?}: {total:?}", began.elapsed());
    // A check that is never reached proves nothing.
    for (fault, hits) in FAULTS.iter().zip(&total.hits) {
        assert!(*hits >= count / 100, "{fault:?} was applied only {hits} times in {count} seeds");
    }
    assert!(total.reported >= 10 * count && total.rewinds >= count / 100, "{total:?}");
}

/// Prints the trace of the seed in `INFORMER_SEED`.
#[test]
fn replay() {
    let Some(seed) = number_from("INFORMER_SEED") else { return };
    run(seed, Trace::Printed);
}

#[test]
fn equal_seeds_give_equal_traces() {
    for seed in 0..20 {
        let traces = [(); 2].map(|()| run(seed, Trace::Kept).trace);
        assert!(traces[0].len() > 1000 && traces[0] == traces[1], "seed {seed}");
    }
}
