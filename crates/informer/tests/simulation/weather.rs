//! What goes wrong in a run, and when: the server's own schedule of faults, and what operators do to a server.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::time::Duration;

use informer_apiserver::faults::{Fault, Rule, Schedule};
use informer_apiserver::{ApiServer, faults};
use informer_core::reflector::Random;

use crate::log::Log;

/// The faults of a run.
pub(crate) struct Weather {
    turns: Option<Peekable<Schedule>>,
    in_force: Vec<(Duration, String, Fault)>,
    /// Frames may be lost without a word.
    drops: bool,
    /// How often each fault struck.
    pub(crate) hits: BTreeMap<String, u64>,
}

impl Weather {
    /// Fair weather has no faults at all.
    pub(crate) fn new(seed: u64, fair: bool, drops: bool, random: &mut Random) -> Self {
        let pause = Duration::from_millis(500 + random.below(20_000));
        let schedule = Schedule::seeded(seed).of("pods").pause(pause).peekable();
        Self { turns: (!fair).then_some(schedule), in_force: Vec::new(), drops, hits: BTreeMap::new() }
    }

    /// Lets the rules come and go that are due.
    pub(crate) fn tick(&mut self, server: &ApiServer, log: &Log, random: &mut Random) {
        let now = log.now();
        while let Some(place) = self.in_force.iter().position(|(end, ..)| *end <= now) {
            let (_, rule, fault) = self.in_force.remove(place);
            self.clear(&rule, &fault, log);
        }
        while let Some(turn) = self.turns.as_mut().and_then(|turns| turns.next_if(|turn| turn.start <= now)) {
            self.begin(server, turn.rule, now + turn.lasts, log);
        }
        if self.drops && self.turns.is_some() && random.below(8) == 0 {
            let frames = usize::try_from(random.below(4)).unwrap();
            let rule = faults::drop_frame().of("pods").after_frames(frames);
            self.begin(server, rule, now + Duration::from_secs(5), log);
        }
    }

    /// No more faults.
    pub(crate) fn end(&mut self, log: &Log) {
        self.turns = None;
        for (_, rule, fault) in std::mem::take(&mut self.in_force) {
            self.clear(&rule, &fault, log);
        }
    }

    fn begin(&mut self, server: &ApiServer, rule: Rule, until: Duration, log: &Log) {
        log.note(format_args!("fault: {rule}"));
        let name = rule.to_string();
        self.in_force.push((until, name, server.fault(rule)));
    }

    fn clear(&mut self, rule: &str, fault: &Fault, log: &Log) {
        log.note(format_args!("over after {}: {rule}", fault.hits()));
        // What it does, without whom it does it to.
        let mut words = rule.split([' ', ',']);
        let name = match (words.next(), words.next()) {
            (Some("status"), Some(code)) => format!("status {code}"),
            (first, _) => first.unwrap_or_default().to_owned(),
        };
        *self.hits.entry(name).or_default() += fault.hits();
    }
}
