//! Reduces a failure to few faults and few steps of the scenario.
//!
//! A fault or step is left out if the same check still fails without it. This is repeated until nothing can be left
//! out.

use std::sync::Arc;

use crate::definition::Definition;
use crate::report::SimulationFailure;
use crate::run::{Plan, RunResult};
use crate::runner::{self, DETERMINISM, Reference};

/// The most runs that are spent on a failure.
const MAX_RUNS: usize = 200;

pub(crate) fn shrink(
    definition: &Arc<Definition>,
    reference: &Reference,
    plan: Plan,
    failed: RunResult,
) -> Box<SimulationFailure> {
    let count = plan.faults.len();
    let check = failed.failure.as_ref().map(|failure| failure.check.clone()).unwrap_or_default();
    // Runs that hang take too long to be repeated, and runs that differ cannot be compared.
    if check == "watchdog" || check == DETERMINISM {
        return Box::new(SimulationFailure::new(&plan, failed, count));
    }
    let mut search = Search { definition, reference, check, runs: 0 };
    let plan = Plan { is_detailed: true, ..plan };
    let Some(mut best) = search.fails(&plan) else {
        let mut failure = SimulationFailure::new(&plan, failed, count);
        failure.is_repeatable = false;
        return Box::new(failure);
    };
    let mut plan = plan;
    loop {
        let smaller = candidates(&plan, best.steps.len()).into_iter().find_map(|candidate| {
            let result = search.fails(&candidate)?;
            Some((candidate, result))
        });
        match smaller {
            Some((candidate, result)) => (plan, best) = (candidate, result),
            None => return Box::new(SimulationFailure::new(&plan, best, count)),
        }
    }
}

struct Search<'a> {
    definition: &'a Arc<Definition>,
    reference: &'a Reference,
    check: String,
    runs: usize,
}

impl Search<'_> {
    /// Runs a plan; returns the result if the same check fails.
    fn fails(&mut self, plan: &Plan) -> Option<RunResult> {
        self.runs += 1;
        if self.runs > MAX_RUNS {
            return None;
        }
        let result = runner::run_with_reference(self.definition, self.reference, plan.clone());
        result.failure.as_ref().is_some_and(|failure| failure.check == self.check).then_some(result)
    }
}

/// Returns the plans with one fault or one step less.
fn candidates(plan: &Plan, steps: usize) -> Vec<Plan> {
    let without_fault = (0..plan.faults.len()).map(|index| {
        let mut plan = plan.clone();
        plan.faults.remove(index);
        plan
    });
    // The last steps first: they depend on the earlier ones.
    let without_step = (0..steps).rev().filter(|step| !plan.skipped.contains(step)).map(|step| {
        let mut plan = plan.clone();
        plan.skipped.insert(step);
        plan
    });
    without_fault.chain(without_step).collect()
}
