//! The end of a run: when it is over, what must hold then, and the limits of every run.

use std::sync::PoisonError;
use std::time::Duration;

use informer_actors::ActorKind;
use informer_virtual::Misuse;

use crate::check::{self, Check};
use crate::normal::NormalState;
use crate::panics;
use crate::state::State;

use super::{Run, lock};

impl Run<'_> {
    /// Returns the next time at which the run may be over.
    pub(super) fn deadline(&self) -> Duration {
        let limits = &self.definition.limits;
        match self.settling_since() {
            None => limits.scenario,
            Some(since) => {
                let quiet = self.quiet_since().max(since) + limits.quiet;
                if quiet > self.now { quiet } else { since + limits.settle }
            }
        }
    }

    /// Returns since when the scenario and all faults are over. Faults that wait for a request do not count.
    fn settling_since(&self) -> Option<Duration> {
        Some(self.scenario_end?.max(self.injection.over_since()?))
    }

    /// Returns since when nothing has changed, and the program has not been started again.
    fn quiet_since(&self) -> Duration {
        self.last_change.max(self.last_write).max(self.last_start)
    }

    /// Returns whether the program has settled. Fails if it has not in time.
    pub(super) fn is_finished(&mut self) -> bool {
        if let Some(Err(error)) = &*lock(&self.scenario.clone()) {
            self.fail("scenario".to_owned(), format!("the scenario failed: {error}"));
            return true;
        }
        if self.scenario_end.is_none() && lock(&self.scenario).is_some() {
            self.scenario_end = Some(self.now);
        }
        let Some(since) = self.settling_since() else {
            self.check_scenario_time();
            return false;
        };
        let quiet = self.quiet_since().max(since) + self.definition.limits.quiet;
        let is_late = self.now >= since + self.definition.limits.settle;
        let is_down = self.running.is_empty() || self.starting > 0;
        if (self.now < quiet || is_down) && !is_late {
            return false;
        }
        if self.now < quiet {
            let message =
                format!("something still changes {:?} after the last fault", self.definition.limits.settle);
            self.fail_check(Check::WritesStop, message);
        }
        match self.final_problem() {
            None => {
                self.result.extent.active = self.last_change.max(self.last_write);
                true
            }
            Some((check, problem)) if is_late => {
                self.fail(check, problem);
                true
            }
            Some(_) => false,
        }
    }

    fn check_scenario_time(&mut self) {
        let timeout = self.definition.limits.scenario;
        if self.now < timeout {
            return;
        }
        let progress = self.world.progress.lock().unwrap_or_else(PoisonError::into_inner);
        let last = progress.steps.last().map_or("no step", String::as_str).to_owned();
        drop(progress);
        let message = match self.scenario_end {
            None => format!("it has not ended after {timeout:?}; its last step: {last}"),
            Some(_) => format!("a fault has not ended after {timeout:?}"),
        };
        self.fail("scenario".to_owned(), message);
    }

    /// Returns the first condition that the settled state does not meet.
    fn final_problem(&self) -> Option<(String, String)> {
        let state = lock(&self.state);
        let enabled = |check: Check| !self.definition.without_checks.contains(&check);
        let found = |check: Check, problem: Option<String>| {
            problem.filter(|_| enabled(check)).map(|problem| (check.name().to_owned(), problem))
        };
        let collects = !self.definition.without_actors.contains(&ActorKind::GarbageCollector);
        for (name, condition) in &self.definition.eventually {
            if let Some(problem) = evaluate(condition.as_ref(), &state) {
                return Some((name.clone(), problem));
            }
        }
        found(Check::Finalizers, check::terminating(&state))
            .or_else(|| found(Check::Orphans, check::orphan(&state).filter(|_| collects)))
            .or_else(|| {
                let expected = self.expected.filter(|_| enabled(Check::FinalState))?;
                found(
                    Check::FinalState,
                    NormalState::of(&state, &self.definition.ignored_fields).difference(expected),
                )
            })
            .or_else(|| {
                let queues = self.running.values().filter_map(|running| running.factories.longest_queue());
                let (pending, name) = queues.max().filter(|(pending, _)| *pending > 0)?;
                found(
                    Check::Queues,
                    Some(format!("{pending} events wait for the handler {name}, although nothing changes")),
                )
            })
    }

    pub(super) fn check_queues(&mut self) {
        let queues = self.running.values().filter_map(|running| running.factories.longest_queue());
        if let Some((pending, name)) = queues.max()
            && pending > self.definition.limits.queue
        {
            self.fail_check(Check::Queues, format!("{pending} events wait for the handler {name}"));
        }
    }

    pub(super) fn check_panics(&mut self) {
        for panic in panics::take() {
            self.fail_check(Check::Panics, panic);
        }
    }

    pub(super) fn check_limits(&mut self) {
        if let Some(Misuse::Slept(time)) = informer_virtual::take_misuse().first() {
            let message = format!(
                "the program blocks its thread with a sleep of {time:?}; tokio::time::sleep does not"
            );
            self.fail("blocked thread".to_owned(), message);
        }
        let most = self.definition.limits.requests;
        if self.result.extent.requests > most {
            let message = format!("more than {most} requests: the program never waits");
            self.fail("limits".to_owned(), message);
        }
    }
}

/// Returns what a condition objects to; a condition that panics objects.
pub(super) fn evaluate(
    condition: &(dyn Fn(&State) -> Option<String> + Send + Sync),
    state: &State,
) -> Option<String> {
    let evaluated = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| condition(state)));
    evaluated.unwrap_or_else(|_| Some(format!("the check panicked: {}", panics::take().join("; "))))
}
