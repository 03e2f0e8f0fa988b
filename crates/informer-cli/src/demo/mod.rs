//! A simulated demo cluster: deployments roll and scale, pods start, crash and are replaced, nodes fail and return,
//! jobs complete.
//!
//! The controllers, the scheduler and the kubelets are those of `informer-actors`. The demo adds the objects of the
//! cluster (`catalogue`, `objects`) and three actors: `nodes` renews the Leases of nodes and registers deleted nodes
//! again, `events` records what happens as Event objects, and `incidents` changes the cluster at random. Changes by
//! users are carried out like those of incidents. Equal seeds and times give equal objects. [`start`] runs the demo on
//! a server.

mod catalogue;
mod driver;
mod events;
mod incidents;
mod nodes;
mod objects;
#[cfg(test)]
mod tests;

pub(crate) use driver::{Running, any_seed, start};

use events::Recorder;
use incidents::Incidents;
use informer_actors::{Actors, Random};
use informer_apiserver::ApiServer;
use jiff::Timestamp;
use nodes::Nodes;
use serde_json::Value;

/// Length of the delays of actors, in percent: changes should be slow enough to be watched.
const DELAY_PERCENT: u32 = 200;

/// Number of deployments that are built at once.
const DEPLOYMENTS_PER_STEP: usize = 10;

/// The settings of a demo cluster.
#[derive(Debug, Clone, Copy)]
struct Settings {
    seed: u64,
    /// The approximate number of pods.
    pods: usize,
    /// The time after which there are no incidents.
    last_incident: Timestamp,
}

/// A complete demo cluster on a server.
#[derive(Debug)]
struct Demo {
    actors: Actors,
}

impl Demo {
    /// Builds a cluster. While it is being built, actors act immediately, and there are neither incidents nor events.
    fn build(server: &ApiServer, settings: Settings) -> Self {
        let Settings { seed, pods, last_incident } = settings;
        let now = server.now();
        let plan = catalogue::plan(pods);
        let nodes = catalogue::nodes(pods);
        let actors = Actors::new(server.clone(), seed).container_creation(true).delay_percent(0);
        let mut demo = Self { actors };
        demo.create(objects::of_cluster(nodes, now));
        let mut random = Random::new(seed);
        // The actors keep all changes of a step in memory.
        for planned in plan.chunks(DEPLOYMENTS_PER_STEP) {
            demo.create(planned.iter().flat_map(|planned| objects::of_app(planned, &mut random)));
            demo.step(now);
        }
        demo.actors.set_delay_percent(DELAY_PERCENT);
        demo.actors.add(Box::new(Nodes::new(nodes)));
        demo.actors.add(Box::new(Recorder::new(pods)));
        demo.actors.add(Box::new(Incidents::new(plan, pods, last_incident)));
        demo
    }

    /// Creates objects. A server that already has objects with these names keeps them.
    fn create(&self, objects: impl IntoIterator<Item = Value>) {
        for object in objects {
            drop(self.actors.server().create_value(object));
        }
    }

    /// Does what is due at `now`; returns when something is due next, as far as this is known.
    fn step(&mut self, now: Timestamp) -> Option<Timestamp> {
        // Actors that are still busy continue with the next step.
        let due = self.actors.step(now).unwrap_or(Some(now));
        drop(self.actors.take_actions());
        due
    }
}

/// Returns the text at a JSON pointer; empty if there is none.
fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the status of a condition; empty if there is no such condition.
fn condition<'a>(object: &'a Value, kind: &str) -> &'a str {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.find(|condition| condition["type"] == kind).map_or("", |condition| text(condition, "/status"))
}
