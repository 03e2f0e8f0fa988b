//! Runs plans on threads of their own, with a watchdog, and compares runs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};

use crate::check::Check;
use crate::coverage::Coverage;
use crate::definition::Definition;
use crate::fault::{self, Extent};
use crate::normal::NormalState;
use crate::panics;
use crate::report::SimulationFailure;
use crate::run::{self, Activity, Failure, Plan, RunResult};

/// The result of the run without faults, which others are compared with.
pub(crate) struct Reference {
    pub(crate) extent: Extent,
    /// The final state, unless it depends on the seed.
    state: Option<Arc<NormalState>>,
}

/// A run that failed.
pub(crate) type Failed = RunResult;

/// The stack of the thread of a run. Debug builds of futures need more than the default.
const STACK_BYTES: usize = 16 * 1024 * 1024;

/// Runs without faults, always with the same seed: what is compared, and where the faults of a seed are placed, must
/// not depend on which other seeds are run. Fails if the program fails even without faults.
pub(crate) fn reference(definition: &Arc<Definition>) -> Result<Reference, Box<SimulationFailure>> {
    let plan = Plan { is_detailed: true, ..Plan::default() };
    let result = run_plan(definition, plan.clone(), None);
    if result.failure.is_some() {
        return Err(Box::new(SimulationFailure::new(&plan, result, plan.faults.len())));
    }
    let state = (!result.used_random).then(|| Arc::new(result.final_state));
    Ok(Reference { extent: result.extent, state })
}

/// Runs the faults of a seed.
pub(crate) fn run_seed(
    definition: &Arc<Definition>,
    reference: &Reference,
    seed: u64,
    check_determinism: bool,
) -> Result<Coverage, Box<(Plan, Failed)>> {
    let mut plan = plan_of(definition, reference, seed);
    plan.is_detailed = check_determinism;
    let result = run_with_reference(definition, reference, plan.clone());
    if result.failure.is_some() {
        return Err(Box::new((plan, result)));
    }
    if check_determinism {
        let again = run_with_reference(definition, reference, plan.clone());
        if let Some(difference) = difference(&result, &again) {
            let failure = Failure { check: DETERMINISM.to_owned(), message: difference };
            return Err(Box::new((plan, RunResult { failure: Some(failure), ..again })));
        }
    }
    Ok(result.coverage)
}

/// Chooses the plan of a seed.
fn plan_of(definition: &Definition, reference: &Reference, seed: u64) -> Plan {
    let faults = fault::choose(seed, &definition.faults, reference.extent);
    Plan { seed, faults, ..Plan::default() }
}

/// The name of the check that two runs of one plan are equal.
pub(crate) const DETERMINISM: &str = "two runs of one seed are equal";

/// Returns the first line that differs between two runs.
fn difference(first: &RunResult, second: &RunResult) -> Option<String> {
    let lines = first.trace.iter().zip(&second.trace).enumerate();
    let differing = lines.into_iter().find(|(_, (left, right))| left != right);
    if let Some((number, (left, right))) = differing {
        return Some(format!(
            "line {number} of the timeline differs. The program uses its own randomness, the time of the system or \
             threads.\n  first run:  {left}\n  second run: {right}"
        ));
    }
    (first.trace.len() != second.trace.len())
        .then(|| format!("one run has {} lines, the other {}", first.trace.len(), second.trace.len()))
}

/// Runs a plan, and compares the final state with that of a run without faults.
pub(crate) fn run_with_reference(
    definition: &Arc<Definition>,
    reference: &Reference,
    plan: Plan,
) -> RunResult {
    let expected = match &reference.state {
        // Without some of its steps, the scenario has another result.
        Some(state) if plan.skipped.is_empty() => state.clone(),
        _ => {
            let calm = Plan { faults: Vec::new(), is_detailed: false, ..plan.clone() };
            let result = run_plan(definition, calm, None);
            if result.failure.is_some() {
                // Without these steps, the conditions do not hold even without faults: such a run shows nothing.
                let failure = result.failure.filter(|_| plan.skipped.is_empty());
                return RunResult { failure, ..result };
            }
            Arc::new(result.final_state)
        }
    };
    run_plan(definition, plan, Some(expected))
}

/// Runs a plan on a new thread: keys of hash maps and other state are kept per thread.
fn run_plan(definition: &Arc<Definition>, plan: Plan, expected: Option<Arc<NormalState>>) -> RunResult {
    let (sender, receiver) = mpsc::channel();
    let (definition, limit, activity) =
        (definition.clone(), definition.limits.real, Arc::new(Activity::default()));
    let thread = std::thread::Builder::new().name(format!("seed {}", plan.seed)).stack_size(STACK_BYTES);
    let watched = activity.clone();
    let started = thread.spawn(move || {
        let run = || run::run(&definition, plan, expected.as_deref(), &activity);
        // The setup, or the function that creates the program, has panicked.
        let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
            let (check, message) = (Check::Panics.name().to_owned(), panics::take().join("; "));
            RunResult { failure: Some(Failure { check, message }), ..RunResult::default() }
        });
        // The receiver is gone if the run has taken too long.
        let _late = sender.send(result);
    });
    let failed = |message: String| {
        let failure = Failure { check: "watchdog".to_owned(), message };
        RunResult { failure: Some(failure), trace: watched.timeline(), ..RunResult::default() }
    };
    let thread = match started {
        Ok(thread) => thread,
        Err(error) => return failed(format!("no thread for a run: {error}")),
    };
    match receiver.recv_timeout(limit) {
        Ok(result) => result,
        // The thread is left behind: a blocked thread cannot be stopped.
        Err(RecvTimeoutError::Timeout) => failed(format!("the run has not ended after {limit:?}. {watched}")),
        Err(RecvTimeoutError::Disconnected) => match thread.join() {
            Ok(()) => failed("the run has ended without a result".to_owned()),
            Err(_) => failed(format!("the run has panicked. {watched}")),
        },
    }
}

/// Prints the timeline of a seed that does not fail.
pub(crate) fn print_run(definition: &Arc<Definition>, reference: &Reference, seed: u64) {
    let plan = Plan { is_detailed: true, ..plan_of(definition, reference, seed) };
    let result = run_with_reference(definition, reference, plan.clone());
    println!("seed {seed} does not fail. Its faults:");
    for fault in &plan.faults {
        println!("  {fault}");
    }
    for entry in &result.trace {
        println!("{entry}");
    }
}
