//! Random incidents and their frequency.

use super::pods::in_phase;
use super::status::{Crash, Phase};
use super::{Demo, ScheduledAction};

/// Mean time between incidents on a cluster of [`REFERENCE_PODS`] pods, in milliseconds.
const MEAN_INCIDENT_PERIOD_MS: f64 = 1200.0;
const REFERENCE_PODS: f64 = 40.0;

/// Incidents with their weights in percent.
const INCIDENTS: &[(usize, Incident)] = &[
    (24, Incident::Scale),
    (18, Incident::RollOut),
    (4, Incident::BadRollOut),
    (14, Incident::Crash),
    (5, Incident::CrashLoop),
    (7, Incident::OutOfMemory),
    (5, Incident::Evict),
    (10, Incident::Job),
    (7, Incident::Reconfigure),
    (3, Incident::LoseNode),
    (3, Incident::Cordon),
];

#[derive(Debug, Clone, Copy)]
enum Incident {
    Scale,
    RollOut,
    BadRollOut,
    Crash,
    CrashLoop,
    OutOfMemory,
    Evict,
    Job,
    Reconfigure,
    LoseNode,
    Cordon,
}

impl Demo {
    /// Executes a random incident and schedules the next.
    pub(super) fn incident(&mut self) {
        let wait = self.pause();
        self.after(wait, ScheduledAction::Incident);
        let Some(what) = self.draw() else { return };
        let app = self.rng.below(self.apps.len());
        match what {
            Incident::Scale => self.scale(app),
            Incident::RollOut => self.roll_out_if_calm(app, true),
            Incident::BadRollOut => self.roll_out_if_calm(app, false),
            Incident::Crash => self.crash_one(Crash::Error, 0),
            Incident::CrashLoop => self.crash_one(Crash::Error, 3),
            Incident::OutOfMemory => self.crash_one(Crash::OutOfMemory, 0),
            Incident::Evict => {
                if let Some(pod) = self.some_pod() {
                    self.evict(pod);
                }
            }
            Incident::Job => self.start_job(),
            Incident::Reconfigure => self.reconfigure(app),
            // At most a few nodes fail at a time, so that the cluster stays usable.
            Incident::LoseNode => {
                if let Some(node) = self.some_node() {
                    self.node_lost(node);
                }
            }
            Incident::Cordon => {
                if let Some(node) = self.some_node() {
                    self.cordon(node, true);
                }
            }
        }
    }

    /// Returns the delay until the next incident: larger clusters have more, but less than proportionally.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "a few seconds; precision is irrelevant"
    )]
    fn pause(&mut self) -> i64 {
        let busy = (self.size.max(1) as f64 / REFERENCE_PODS).powf(0.75).max(0.2);
        let mean = (MEAN_INCIDENT_PERIOD_MS / busy) as i64;
        self.rng.between(mean / 3, mean * 5 / 3).max(10)
    }

    fn draw(&mut self) -> Option<Incident> {
        let mut number = self.rng.below(INCIDENTS.iter().map(|(weight, _)| weight).sum());
        for (weight, incident) in INCIDENTS {
            if number < *weight {
                return Some(*incident);
            }
            number -= weight;
        }
        None
    }

    /// Starts at most one rolling update at a time.
    fn roll_out_if_calm(&mut self, at: usize, healthy: bool) {
        let calm =
            |app: &super::App| !app.stuck && app.sets.iter().filter(|set| !set.pods.is_empty()).count() <= 1;
        if self.apps.get(at).is_some_and(calm) {
            self.roll_out(at, healthy);
        }
    }

    fn crash_one(&mut self, crash: Crash, again: u32) {
        if let Some(pod) = self.some_pod() {
            self.set_crashes(pod, again);
            self.crash(pod, crash);
        }
    }

    fn some_pod(&mut self) -> Option<u64> {
        let ready = in_phase(&self.pods, Phase::Ready);
        let at = self.rng.below(ready.len());
        ready.get(at).copied()
    }

    fn some_node(&mut self) -> Option<usize> {
        let well: Vec<usize> =
            self.nodes.iter().enumerate().filter(|(_, node)| node.takes_pods()).map(|(at, _)| at).collect();
        let at = self.rng.below(well.len());
        well.get(at).copied().filter(|_| well.len() * 2 > self.nodes.len())
    }
}
