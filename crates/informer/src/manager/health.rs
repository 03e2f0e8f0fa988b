//! What the pages say: whether a restart would help, whether it is ready and why not, and the figures.

use crate::controller::{ControllerState, RunnableController};
use crate::election::Leadership;
use crate::factory::SharedInformerFactory;
use crate::metrics::{self, Collect, Encoder};
use crate::recorder::EventRecorder;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long a leader may not have noticed that its time is over before only a restart can help.
const LEADERSHIP_OVERDUE_LIMIT: Duration = Duration::from_secs(20);

/// A condition that somebody added.
pub(super) struct Check {
    name: Box<str>,
    /// Of being healthy, and not only ready.
    affects_liveness: bool,
    holds: Box<dyn Fn() -> Result<(), String> + Send + Sync>,
}

impl Check {
    pub(super) fn new(
        name: Box<str>,
        vital: bool,
        holds: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        Self { name, affects_liveness: vital, holds: Box::new(holds) }
    }
}

pub(super) struct Health {
    pub(super) factories: Vec<SharedInformerFactory>,
    pub(super) controllers: Vec<RunnableController>,
    pub(super) election: Option<(String, Leadership)>,
    /// Caches are not there before it leads.
    pub(super) delayed_caches: bool,
    pub(super) recorders: Vec<EventRecorder>,
    pub(super) checks: Vec<Check>,
    pub(super) collectors: Vec<Box<dyn Collect + Send + Sync>>,
    pub(super) stopping: AtomicBool,
}

impl Health {
    pub(super) fn stops(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Why only a restart can help.
    pub(super) fn health_failures(&self) -> Vec<String> {
        let mut reasons = self.failed(true);
        if let Some((name, leadership)) = &self.election
            && let Some(overdue) = leadership.overdue().filter(|overdue| *overdue > LEADERSHIP_OVERDUE_LIMIT)
        {
            reasons.push(format!("election {name}: its end was due {overdue:.0?} ago, and nobody noticed"));
        }
        reasons
    }

    /// Why it is not ready.
    pub(super) fn readiness_failures(&self) -> Vec<String> {
        if self.stopping.load(Ordering::Relaxed) {
            return vec!["stopping".to_owned()];
        }
        let mut reasons = self.failed(false);
        for factory in &self.factories {
            // Whoever only stands by is ready to.
            if self.delayed_caches && !factory.is_started() {
                continue;
            }
            for (engine, reason) in factory.not_synced() {
                let needed = self.controllers.iter().any(|controller| controller.requires(&engine));
                let absent = self.controllers.iter().any(|controller| controller.runs_without(&engine));
                if needed || !absent {
                    reasons.push(format!("informer: {reason}"));
                }
            }
        }
        for controller in &self.controllers {
            if let ControllerState::Waiting { reasons: missing, .. } = controller.state() {
                let name = controller.name();
                reasons
                    .extend(missing.iter().map(|missing| format!("controller {name}: waits for {missing}")));
            }
        }
        reasons
    }

    /// The metrics of everything the manager runs, and of the collectors added to it.
    pub(super) fn metrics(&self) -> String {
        metrics::encode([self as &dyn Collect])
    }

    fn failed(&self, vital: bool) -> Vec<String> {
        let checks = self.checks.iter().filter(|check| check.affects_liveness == vital);
        checks
            .filter_map(|check| (check.holds)().err().map(|reason| format!("{}: {reason}", check.name)))
            .collect()
    }
}

impl Collect for Health {
    fn collect(&self, encoder: &mut Encoder) {
        self.factories.iter().for_each(|factory| factory.collect(encoder));
        self.controllers.iter().for_each(|controller| controller.collect(encoder));
        if let Some((name, leadership)) = &self.election {
            metrics::named(name.as_str(), leadership).collect(encoder);
        }
        self.recorders.iter().for_each(|recorder| recorder.collect(encoder));
        self.collectors.iter().for_each(|collector| collector.collect(encoder));
    }
}
