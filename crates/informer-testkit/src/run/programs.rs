//! The instances of the program: running them side by side, starting and killing them.

use std::time::Duration;

use crate::definition::{Factories, ProgramContext};
use crate::instance::Instance;
use crate::network::{Outgoing, OutgoingRequest};
use crate::request::Operation;
use crate::trace::TraceKind;

use super::connection::Received;
use super::{Event, Run, program_name};

/// The longest time that several instances run side by side without being compared.
pub(super) const MAX_STEP: Duration = Duration::from_millis(64);

/// How long the program waits before it starts again after it has ended by itself, the first time.
pub(super) const FIRST_BACKOFF: Duration = Duration::from_secs(1);

/// A program that has run for so long starts again without a long wait.
const HEALTHY: Duration = Duration::from_secs(60);

/// An instance of the program that runs.
pub(crate) struct Running {
    pub(crate) instance: Instance,
    pub(crate) factories: Factories,
    started: Duration,
    /// The instance does not run before this time.
    pub(crate) suspended_until: Option<Duration>,
    /// What the instance sends is discarded: it is about to be killed.
    pub(crate) is_muted: bool,
}

impl Run<'_> {
    /// Runs the instances of the program until this time, or until one of them sends something.
    pub(super) fn run_programs(&mut self, next: Duration) {
        let mut limit = next;
        if self.running.len() > 1 {
            // An instance that is ahead receives the messages of the others late, by at most this step.
            limit = limit.min(self.now + self.step);
            self.step = (self.step * 2).min(MAX_STEP);
        }
        for number in self.running.keys().copied().collect::<Vec<_>>() {
            let Some(running) = self.running.get_mut(&number) else { continue };
            if running.suspended_until.is_some_and(|until| until > self.now) {
                continue;
            }
            if running.suspended_until.take().is_some() {
                running.instance.skip_to(self.now);
            }
            self.activity.set(u64::from(number) + 1, self.now);
            running.instance.set_clocks();
            let reached = running.instance.run_until(limit);
            while let Some(message) =
                self.running.get(&number).and_then(|running| running.instance.outbox.take())
            {
                self.send(number, message, reached.max(self.now));
                self.step = Duration::from_millis(2);
            }
            // An instance that has sent something has stopped before the limit.
            limit = limit.min(reached.max(self.now));
            self.check_ended(number);
        }
        self.check_panics();
        self.now = limit;
    }

    fn send(&mut self, number: u32, message: Outgoing, at: Duration) {
        if self.running.get(&number).is_none_or(|running| running.is_muted) {
            return;
        }
        match message {
            Outgoing::Closed(id) => {
                let at = at + self.latency();
                self.events.push(at, Event::Connection(Received::Closed((number, id))));
            }
            Outgoing::Request(request) => {
                self.clock.advance_to(at);
                self.now = at;
                self.send_request(number, *request);
            }
        }
    }

    fn send_request(&mut self, number: u32, request: OutgoingRequest) {
        let operation = Operation::parse(&request.head);
        self.trace.push(TraceKind::Request, program_name(number), operation.describe(&request.body));
        let counted = self.result.extent;
        self.result.extent.requests += 1;
        self.result.extent.writes += u64::from(operation.is_foreground_write());
        self.result.coverage.count_request(&operation, &self.definition.faults);
        self.open_connection(number, request, operation, counted);
    }

    /// Starts the program again if it has ended by itself.
    fn check_ended(&mut self, number: u32) {
        let Some(reason) = self.running.get(&number).and_then(|running| running.instance.ended()) else {
            return;
        };
        self.trace.push(TraceKind::Note, program_name(number), reason.clone());
        if self.plan.faults.is_empty() {
            return self.fail(
                "program".to_owned(),
                format!("the program has {reason}, although there were no faults"),
            );
        }
        let started = self.running.get(&number).map_or(self.now, |running| running.started);
        if self.now > started + HEALTHY {
            self.backoff = FIRST_BACKOFF;
        }
        let wait = self.backoff;
        self.backoff = (self.backoff * 2).min(Duration::from_secs(60));
        self.kill(number, Some(wait));
    }

    pub(crate) fn start_program(&mut self) {
        self.instances += 1;
        let number = self.instances;
        self.trace.push(TraceKind::Note, program_name(number), "starts");
        self.last_start = self.now;
        let (factories, program) = (Factories::default(), self.definition.program.clone());
        let (context, external) = (factories.clone(), self.external.clone());
        let started = Instance::start(self.now, move |client| {
            program(ProgramContext { client, instance: number, factories: context, external })
        });
        match started {
            Ok(instance) => {
                let (started, suspended_until, is_muted) = (self.now, None, false);
                let running = Running { instance, factories, started, suspended_until, is_muted };
                self.running.insert(number, running);
            }
            Err(error) => self.fail("start".to_owned(), format!("no runtime for the program: {error}")),
        }
    }

    /// Kills an instance with everything that it runs. Requests that it has sent still arrive.
    pub(crate) fn kill(&mut self, number: u32, restart: Option<Duration>) {
        let Some(running) = self.running.remove(&number) else { return };
        drop(running);
        self.close_connections(number);
        self.knowledge.forget(number);
        self.trace.push(TraceKind::Note, program_name(number), "is gone");
        if let Some(wait) = restart {
            self.start_after(wait);
        }
    }

    pub(super) fn start_after(&mut self, wait: Duration) {
        self.starting += 1;
        self.events.push(self.now + wait, Event::Start);
    }
}
