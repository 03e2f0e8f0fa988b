//! The contents of `/healthz`, `/readyz` and `/metrics`.

use crate::controller::{ControllerState, RunnableController};
use crate::election::Leadership;
use crate::factory::SharedInformerFactory;
use crate::metrics::{self, Collect, Encoder};
use crate::recorder::EventRecorder;
use crate::shard::ShardGroup;
use crate::shard_view::ShardHandle;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long the end of a leadership term may go unnoticed before the process counts as unhealthy.
const LEADERSHIP_OVERDUE_LIMIT: Duration = Duration::from_secs(20);

/// A check that the application added.
pub(super) struct Check {
    name: Box<str>,
    /// Whether the check belongs to `/healthz` instead of `/readyz`.
    affects_liveness: bool,
    run: Box<dyn Fn() -> Result<(), String> + Send + Sync>,
}

impl Check {
    pub(super) fn new(
        name: Box<str>,
        affects_liveness: bool,
        run: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        Self { name, affects_liveness, run: Box::new(run) }
    }
}

/// The parts of a program whose state and metrics the endpoints report.
pub(super) struct Health {
    pub(super) factories: Vec<SharedInformerFactory>,
    pub(super) controllers: Vec<RunnableController>,
    pub(super) election: Option<(String, Leadership)>,
    /// Whether the informers start only when this process becomes the leader.
    pub(super) delayed_caches: bool,
    pub(super) shard_groups: Vec<ShardGroup>,
    pub(super) recorders: Vec<EventRecorder>,
    pub(super) checks: Vec<Check>,
    pub(super) collectors: Vec<Box<dyn Collect + Send + Sync>>,
    pub(super) stopping: AtomicBool,
}

impl Health {
    pub(super) fn set_stopping(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Returns the reasons why the process must be restarted; empty if it is healthy.
    pub(super) fn health_failures(&self) -> Vec<String> {
        let affects_liveness = true;
        let mut reasons = self.failed_checks(affects_liveness);
        if let Some((name, leadership)) = &self.election
            && let Some(overdue) = leadership.overdue().filter(|overdue| *overdue > LEADERSHIP_OVERDUE_LIMIT)
        {
            reasons.push(format!(
                "election {name}: the term expired {overdue:.0?} ago, unnoticed (is the elector's task blocked?)"
            ));
        }
        reasons
    }

    /// Returns the reasons why the program is not ready; empty if it is.
    pub(super) fn readiness_failures(&self) -> Vec<String> {
        if self.is_stopping() {
            return vec!["stopping".to_owned()];
        }
        let affects_liveness = false;
        let mut reasons = self.failed_checks(affects_liveness);
        reasons.extend(self.shard_groups.iter().filter_map(ShardGroup::readiness_failure));
        for factory in &self.factories {
            // A standby without caches is ready.
            if self.delayed_caches && !factory.is_started() {
                continue;
            }
            for (engine, reason) in factory.not_synced() {
                let required = self.controllers.iter().any(|controller| controller.requires(&engine));
                let optional = self.controllers.iter().any(|controller| controller.runs_without(&engine));
                // A controller without this source is ready, unless another one requires it.
                if required || !optional {
                    reasons.push(format!("informer: {reason}"));
                }
            }
        }
        // A group of the manager has reasons of its own.
        let is_idle = |group: &&ShardHandle| {
            let mut known = self.shard_groups.iter().map(ShardGroup::handle);
            group.view().number == 0 && known.all(|known| known.id() != group.id())
        };
        for controller in &self.controllers {
            if let Some(group) = controller.shard_group().filter(is_idle) {
                reasons.push(format!(
                    "controller {}: the shard group {} has no ranges (is it run, for example with \
                     Manager::add_shard_group?)",
                    controller.name(),
                    group.name()
                ));
            }
            if let ControllerState::Waiting { reasons: waiting_for, .. } = controller.state() {
                let name = controller.name();
                reasons.extend(
                    waiting_for.iter().map(|reason| format!("controller {name}: waits for {reason}")),
                );
            }
        }
        reasons
    }

    /// Returns a line for each shard group: what this process does in it.
    pub(super) fn shard_groups(&self) -> Vec<String> {
        self.shard_groups.iter().map(ShardGroup::summary).collect()
    }

    /// Returns the metrics of everything the manager runs and of the collectors added to it.
    pub(super) fn metrics(&self) -> String {
        metrics::encode([self as &dyn Collect])
    }

    fn failed_checks(&self, affects_liveness: bool) -> Vec<String> {
        let checks = self.checks.iter().filter(|check| check.affects_liveness == affects_liveness);
        checks
            .filter_map(|check| (check.run)().err().map(|reason| format!("{}: {reason}", check.name)))
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
        self.shard_groups.iter().for_each(|group| group.collect(encoder));
        self.recorders.iter().for_each(|recorder| recorder.collect(encoder));
        self.collectors.iter().for_each(|collector| collector.collect(encoder));
    }
}
