//! Injects the faults of a plan into a run.

use std::collections::BTreeSet;
use std::time::Duration;

use informer_apiserver::faults::{self, FaultGuard};

use crate::fault::{Extent, Fault, FaultKind, FaultTime};
use crate::request::Operation;
use crate::trace::TraceKind;

use super::{Event, Run, program_name};

/// The state of the faults of a run.
#[derive(Debug, Default)]
pub(crate) struct Injection {
    /// Whether each fault has happened, or can no longer happen.
    done: Vec<bool>,
    /// Faults with a time that have not begun, or have begun and not ended.
    pending: usize,
    /// When the last fault ended.
    last_end: Duration,
    down_until: Duration,
    watches_delayed_until: Duration,
    /// A resource that is not served: API group, plural name and until when.
    unserved: Option<(String, String, Duration)>,
    /// Until when versions are too old, and the kinds of requests that have got this response.
    expired: Option<(Duration, BTreeSet<String>)>,
    /// The fault rules of the server, by fault.
    rules: Vec<(usize, FaultGuard)>,
}

impl Injection {
    pub(crate) fn new(faults: &[Fault]) -> Self {
        let timed = faults.iter().filter(|fault| matches!(fault.at, FaultTime::Elapsed(_)));
        Injection { done: vec![false; faults.len()], pending: timed.count(), ..Injection::default() }
    }

    /// Returns since when all faults are over; faults that wait for a request do not count.
    pub(crate) fn over_since(&self) -> Option<Duration> {
        (self.pending == 0).then_some(self.last_end)
    }

    pub(crate) fn is_down(&self, now: Duration) -> bool {
        now < self.down_until
    }

    pub(crate) fn watches_delayed_until(&self) -> Duration {
        self.watches_delayed_until
    }

    /// Returns whether a request gets the response that its version is too old: once for each kind of request.
    pub(crate) fn expires(&mut self, operation: &Operation, now: Duration) -> bool {
        let expired = self.expired.as_mut().filter(|(until, _)| operation.may_expire && now < *until);
        expired.is_some_and(|(_, done)| done.insert(operation.label()))
    }

    pub(crate) fn is_unserved(&self, operation: &Operation, now: Duration) -> bool {
        self.unserved.as_ref().is_some_and(|(group, plural, until)| {
            now < *until && *group == operation.group && *plural == operation.plural
        })
    }
}

impl Run<'_> {
    pub(crate) fn schedule_faults(&mut self) {
        for (index, fault) in self.plan.faults.iter().enumerate() {
            if let FaultTime::Elapsed(at) = fault.at {
                self.events.push(at, Event::FaultBegins(index));
            }
        }
    }

    /// Returns the fault that happens at this request, if any. `counted` are the requests before it.
    pub(crate) fn take_request_fault(&mut self, operation: &Operation, counted: Extent) -> Option<Fault> {
        let index = self.plan.faults.iter().enumerate().position(|(index, fault)| {
            let is_due = match fault.at {
                FaultTime::Request(number) => counted.requests >= number,
                FaultTime::Write(number) => operation.is_foreground_write() && counted.writes >= number,
                FaultTime::Elapsed(_) => false,
            };
            let is_done = self.injection.done.get(index).copied().unwrap_or(true);
            is_due && !is_done && fault.kind.applies_to(operation)
        })?;
        let fault = self.plan.faults.get(index)?.clone();
        self.begin(index, &fault, Some(operation));
        self.injection.last_end = self.injection.last_end.max(self.now + fault.duration);
        Some(fault)
    }

    /// Counts and logs a fault.
    fn begin(&mut self, index: usize, fault: &Fault, operation: Option<&Operation>) {
        if let Some(done) = self.injection.done.get_mut(index) {
            *done = true;
        }
        let lasts = if fault.duration.is_zero() { String::new() } else { format!(" ({:?})", fault.duration) };
        let at = operation.map(|operation| format!(": {operation}")).unwrap_or_default();
        self.trace.push(TraceKind::Fault, "fault", format!("{}{at}{lasts}", fault.kind));
        // These count when they have an effect.
        if !matches!(fault.kind, FaultKind::LaggingCache | FaultKind::Expired) {
            self.result.coverage.count_fault(fault.kind, operation);
        }
    }

    /// Begins a fault that happens at a time. A fault that is not possible now does not happen.
    pub(crate) fn begin_fault(&mut self, index: usize) {
        let Some(fault) = self.plan.faults.get(index).cloned() else { return };
        let newest = self.running.last_key_value().map(|(number, _)| *number);
        let Some(newest) = newest else { return self.end_timed() };
        let mut until = self.now + fault.duration;
        match fault.kind {
            FaultKind::UnservedDefinition => {
                let mut custom = self.server.served_resources();
                custom.retain(|resource| resource.custom);
                let choice = usize::try_from(fault.choice % custom.len().max(1) as u64).unwrap_or(0);
                let Some(resource) = custom.into_iter().nth(choice) else { return self.end_timed() };
                self.begin(index, &fault, None);
                let (group, plural) = (resource.group.clone(), resource.plural.clone());
                self.injection.unserved = Some((resource.group, resource.plural, until));
                self.break_watches(|operation| operation.group == group && operation.plural == plural);
            }
            _ => self.begin(index, &fault, None),
        }
        match fault.kind {
            FaultKind::Restart => {
                self.kill(newest, Some(fault.duration));
            }
            FaultKind::LaggingCache => {
                // The program is down for a moment. The cache of the server that its successor is connected to lags.
                let down = Duration::from_millis(10 + fault.choice % 1_000);
                self.kill(newest, None);
                self.starting += 1;
                until += down;
                let version = self.server.resource_version().saturating_sub(1 + fault.choice % 10);
                self.events.push(self.now + down, Event::StartWithLag(index, version));
            }
            FaultKind::DelayedWatch | FaultKind::SkippedEvents => {
                self.injection.watches_delayed_until = self.injection.watches_delayed_until.max(until);
            }
            FaultKind::Expired => {
                self.injection.expired = Some((until, BTreeSet::new()));
                self.break_watches(|_| true);
            }
            FaultKind::BrokenWatch => {
                self.break_watches(|_| true);
            }
            FaultKind::Outage => {
                self.injection.down_until = self.injection.down_until.max(until);
                self.break_connections();
            }
            FaultKind::SecondInstance => self.start_program(),
            FaultKind::StaleLeader => {
                if let Some(running) = self.running.get_mut(&newest) {
                    running.suspended_until = Some(until);
                }
                self.start_program();
            }
            FaultKind::ClockJump => {
                let nanoseconds = i64::try_from(fault.duration.as_nanos()).unwrap_or(i64::MAX);
                informer_virtual::jump_wall_clock(if fault.is_forward() {
                    nanoseconds
                } else {
                    -nanoseconds
                });
                return self.end_timed();
            }
            _ => {}
        }
        // The first of two instances is killed some time after it continues.
        let end = match fault.kind {
            FaultKind::StaleLeader => until + Duration::from_secs(20),
            _ => until,
        };
        self.events.push(end, Event::FaultEnds(index));
    }

    /// Starts the program with a server whose cache is at this version.
    pub(crate) fn start_with_lag(&mut self, index: usize, version: u64) {
        let lag = self.server.resource_version().saturating_sub(version);
        let user = program_name(self.instances + 1);
        let rule = faults::lagging_cache().lag_writes(lag).for_user(&user);
        self.injection.rules.push((index, self.server.inject(rule)));
        self.start_program();
    }

    pub(crate) fn end_fault(&mut self, index: usize) {
        let Some(fault) = self.plan.faults.get(index).cloned() else { return };
        match fault.kind {
            FaultKind::SkippedEvents => {
                self.break_watches(|_| true);
                self.server.compact();
            }
            FaultKind::SecondInstance | FaultKind::StaleLeader if self.running.len() + self.starting > 1 => {
                if let Some((first, _)) = self.running.first_key_value() {
                    self.kill(*first, None);
                }
            }
            _ => {}
        }
        let rules = self.injection.rules.extract_if(.., |(owner, _)| *owner == index);
        let hits: u64 = rules.map(|(_, rule)| rule.hits()).sum();
        if hits > 0 {
            self.result.coverage.count_fault(fault.kind, None);
        }
        let is_logged = !fault.duration.is_zero() && fault.kind != FaultKind::Restart;
        if is_logged {
            self.trace.push(TraceKind::Fault, "fault", format!("{} ends", fault.kind));
        }
        self.end_timed();
    }

    /// Counts the end of a fault that happened at a time, or did not happen.
    fn end_timed(&mut self) {
        self.injection.pending = self.injection.pending.saturating_sub(1);
        self.injection.last_end = self.injection.last_end.max(self.now);
    }
}
