//! Informers against the embedded server under random faults: one thread, virtual time, one seed per run.
//!
//! Each seed creates a server, informers with handlers of all kinds, a writer, and a schedule of the server's
//! faults with compactions, restarts and restores. Then the faults end, and every cache must converge to the
//! server; the events delivered to each handler must satisfy the guarantees C1 to C12. `INFORMER_SEEDS=50000`
//! runs more seeds; a failing one prints the command that replays it with its trace.

#![allow(clippy::unwrap_used, reason = "a failing test panics")]

mod checks;
mod fault_schedule;
mod handlers;
mod log;
mod oracle;
mod run;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use log::Trace;
use run::{RunResult, run};

/// Totals of many runs.
#[derive(Debug, Default)]
struct Total {
    delivered: u64,
    rewinds: u64,
    samples: u64,
    hits: BTreeMap<String, u64>,
    longest_recovery: Duration,
    busiest: usize,
}

impl Total {
    fn add(&mut self, done: RunResult) {
        self.delivered += done.delivered;
        self.rewinds += done.rewinds;
        self.samples += done.samples;
        self.longest_recovery = self.longest_recovery.max(done.recovery);
        self.busiest = self.busiest.max(done.busiest);
        for (fault, hits) in done.hits {
            *self.hits.entry(fault).or_default() += hits;
        }
    }
}

fn number_from(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap())
}

/// Runs every second seed from `first` on.
fn run_some(first: u64, count: u64) -> Total {
    let mut total = Total::default();
    for seed in (first..count).step_by(2) {
        match catch_unwind(AssertUnwindSafe(|| run(seed, Trace::Off))) {
            Ok(done) => total.add(done),
            Err(panic) => {
                eprintln!(
                    "seed {seed} failed. Replay it with its trace:\n  INFORMER_SEED={seed} cargo test -p informer --test simulation \
                     replay -- --nocapture"
                );
                std::panic::resume_unwind(panic);
            }
        }
    }
    total
}

#[test]
fn informers_converge_after_random_faults() {
    let count = number_from("INFORMER_SEEDS").unwrap_or(2_000);
    let began = std::time::Instant::now();
    let totals = std::thread::scope(|scope| {
        let threads = [0, 1].map(|first| scope.spawn(move || run_some(first, count)));
        threads.map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let [mut total, other] = totals;
    let Total { delivered, rewinds, samples, hits, longest_recovery, busiest } = other;
    total.add(RunResult {
        delivered,
        rewinds,
        samples,
        hits,
        recovery: longest_recovery,
        busiest,
        ..RunResult::default()
    });
    println!("{count} seeds in {:?}: {total:#?}", began.elapsed());
    // A check that is never reached proves nothing; few seeds do not reach all of them.
    if count < 1_000 {
        return;
    }
    assert!(
        total.delivered >= 50 * count && total.samples >= 10 * count && total.rewinds >= count / 50,
        "{total:?}"
    );
    assert!(total.hits.len() >= 20, "{:?}", total.hits);
    for (fault, hits) in &total.hits {
        assert!(*hits >= count / 50, "{fault} was applied only {hits} times in {count} seeds");
    }
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
        assert!(traces[0].len() > 1_000, "seed {seed}");
        let differ = traces[0].lines().zip(traces[1].lines()).find(|(left, right)| left != right);
        assert_eq!((differ, traces[0].len()), (None, traces[1].len()), "seed {seed}");
    }
}

/// Advances virtual time and runs all other tasks.
async fn advance_time(time: std::time::Duration) {
    let _ = tokio::time::timeout(time, std::future::pending::<()>()).await;
}
