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
    pub(super) fn run_incident(&mut self) {
        let wait = self.incident_delay();
        self.schedule_after(wait, ScheduledAction::Incident);
        let Some(incident) = self.draw_incident() else { return };
        let app_index = self.rng.below(self.apps.len());
        match incident {
            Incident::Scale => self.scale(app_index),
            Incident::RollOut => {
                let healthy = true;
                self.roll_out_if_calm(app_index, healthy);
            }
            Incident::BadRollOut => {
                let healthy = false;
                self.roll_out_if_calm(app_index, healthy);
            }
            Incident::Crash => self.crash_one(Crash::Error, 0),
            Incident::CrashLoop => self.crash_one(Crash::Error, 3),
            Incident::OutOfMemory => self.crash_one(Crash::OutOfMemory, 0),
            Incident::Evict => {
                if let Some(pod) = self.some_pod() {
                    self.evict(pod);
                }
            }
            Incident::Job => self.start_job(),
            Incident::Reconfigure => self.reconfigure(app_index),
            Incident::LoseNode => {
                if let Some(node) = self.some_node() {
                    self.lose_node(node);
                }
            }
            Incident::Cordon => {
                if let Some(node) = self.some_node() {
                    let cordoned = true;
                    self.cordon(node, cordoned);
                }
            }
        }
    }

    /// Returns the delay until the next incident, in milliseconds. Larger clusters have more incidents, but
    /// fewer per pod.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "a few seconds; precision is irrelevant"
    )]
    fn incident_delay(&mut self) -> i64 {
        let busy = (self.size.max(1) as f64 / REFERENCE_PODS).powf(0.75).max(0.2);
        let mean = (MEAN_INCIDENT_PERIOD_MS / busy) as i64;
        self.rng.between(mean / 3, mean * 5 / 3).max(10)
    }

    fn draw_incident(&mut self) -> Option<Incident> {
        let mut number = self.rng.below(INCIDENTS.iter().map(|(weight, _)| weight).sum());
        for (weight, incident) in INCIDENTS {
            if number < *weight {
                return Some(*incident);
            }
            number -= weight;
        }
        None
    }

    /// Starts a rolling update of a deployment, unless one is in progress.
    fn roll_out_if_calm(&mut self, app_index: usize, healthy: bool) {
        let calm =
            |app: &super::App| !app.stuck && app.sets.iter().filter(|set| !set.pods.is_empty()).count() <= 1;
        if self.apps.get(app_index).is_some_and(calm) {
            self.roll_out(app_index, healthy);
        }
    }

    /// Crashes a random pod, which crashes `repeats` more times after its restarts.
    fn crash_one(&mut self, crash: Crash, repeats: u32) {
        if let Some(pod) = self.some_pod() {
            self.set_crashes(pod, repeats);
            self.crash(pod, crash);
        }
    }

    /// Returns a random ready pod.
    fn some_pod(&mut self) -> Option<u64> {
        let ready = in_phase(&self.pods, Phase::Ready);
        let index = self.rng.below(ready.len());
        ready.get(index).copied()
    }

    /// Returns a random schedulable node; `None` unless more than half of the nodes are schedulable, so that
    /// the cluster stays usable.
    fn some_node(&mut self) -> Option<usize> {
        let nodes = self.nodes.iter().enumerate().filter(|(_, node)| node.takes_pods());
        let schedulable: Vec<usize> = nodes.map(|(index, _)| index).collect();
        let choice = self.rng.below(schedulable.len());
        schedulable.get(choice).copied().filter(|_| schedulable.len() * 2 > self.nodes.len())
    }
}
