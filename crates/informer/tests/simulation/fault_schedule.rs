//! The faults of a run: the server's random schedule, and operations such as compactions and restores.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::time::Duration;

use informer_apiserver::faults::{FaultGuard, FaultRule, Schedule};
use informer_apiserver::{ApiServer, faults};
use informer_core::random::Random;

use crate::log::Log;

/// The faults of a run.
pub(crate) struct FaultSchedule {
    pending: Option<Peekable<Schedule>>,
    active: Vec<(Duration, String, FaultGuard)>,
    /// Whether frames may be dropped silently.
    drops: bool,
    /// Number of times each fault was applied.
    pub(crate) hits: BTreeMap<String, u64>,
}

impl FaultSchedule {
    /// Creates the schedule; a fault-free run has no faults.
    pub(crate) fn new(seed: u64, fault_free: bool, drops: bool, random: &mut Random) -> Self {
        let pause = Duration::from_millis(500 + random.below(20_000));
        let schedule = Schedule::seeded(seed).for_resource("pods").max_gap(pause).peekable();
        Self { pending: (!fault_free).then_some(schedule), active: Vec::new(), drops, hits: BTreeMap::new() }
    }

    /// Starts and ends the faults that are due.
    pub(crate) fn tick(&mut self, server: &ApiServer, log: &Log, random: &mut Random) {
        let now = log.now();
        while let Some(index) = self.active.iter().position(|(end, ..)| *end <= now) {
            let (_, rule, fault) = self.active.remove(index);
            self.clear(&rule, &fault, log);
        }
        while let Some(fault) =
            self.pending.as_mut().and_then(|pending| pending.next_if(|fault| fault.start <= now))
        {
            self.begin(server, fault.rule, now + fault.duration, log);
        }
        if self.drops && self.pending.is_some() && random.below(8) == 0 {
            let frames = usize::try_from(random.below(4)).unwrap();
            let rule = faults::drop_frame().for_resource("pods").after_frames(frames);
            self.begin(server, rule, now + Duration::from_secs(5), log);
        }
    }

    /// Ends all faults.
    pub(crate) fn end(&mut self, log: &Log) {
        self.pending = None;
        for (_, rule, fault) in std::mem::take(&mut self.active) {
            self.clear(&rule, &fault, log);
        }
    }

    fn begin(&mut self, server: &ApiServer, rule: FaultRule, until: Duration, log: &Log) {
        log.note(format_args!("fault: {rule}"));
        let name = rule.to_string();
        self.active.push((until, name, server.inject(rule)));
    }

    fn clear(&mut self, rule: &str, fault: &FaultGuard, log: &Log) {
        log.note(format_args!("ended after {} hits: {rule}", fault.hits()));
        // What the rule does, without the requests it applies to.
        let mut words = rule.split([' ', ',']);
        let name = match (words.next(), words.next()) {
            (Some("respond"), Some(code)) => format!("respond {code}"),
            (first, _) => first.unwrap_or_default().to_owned(),
        };
        *self.hits.entry(name).or_default() += fault.hits();
    }
}
