//! The controllers of a cluster for the embedded API server: garbage collector, deployments, pods and others, as
//! plain state machines.
//!
//! `informer-apiserver` stores objects and runs no controllers: a deployment gets no pods, and the dependents of
//! a deleted object stay. [`Actors`] adds what a cluster does: see [`ActorKind`] for the list. All of it is
//! synchronous. There are no threads, clocks or sleeps: [`Actors::step`] gets the time as a parameter and returns when
//! something is due next, so that a test controls the time and an hour of cluster life takes milliseconds.
//!
//! ```
//! use informer_actors::Actors;
//! use informer_apiserver::ApiServer;
//! use serde_json::json;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = ApiServer::new();
//! server.create(&json!({
//!     "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
//!     "spec": {
//!         "replicas": 3, "selector": {"matchLabels": {"app": "web"}},
//!         "template": {
//!             "metadata": {"labels": {"app": "web"}},
//!             "spec": {"containers": [{"name": "web", "image": "web:1"}]},
//!         },
//!     },
//! }))?;
//!
//! let mut actors = Actors::new(server.clone(), 7);
//! let mut now = server.now();
//! while let Some(due) = actors.step(now)? {
//!     now = due;
//! }
//! let web = server.get("apps/v1", "deployments", Some("default"), "web").unwrap();
//! assert_eq!(web["status"]["readyReplicas"], 3);
//! assert!(actors.take_actions().iter().any(|action| action.actor.as_ref() == "scheduler"));
//!
//! // Nothing is left to do until something changes.
//! server.delete("apps/v1", "deployments", Some("default"), "web")?;
//! while let Some(due) = actors.step(now)? {
//!     now = due;
//! }
//! assert!(server.list("v1", "pods", None).is_empty(), "the garbage collector has deleted the dependents");
//! # Ok(())
//! # }
//! ```
//!
//! Delays are random, between 50 ms and 3 s, and depend on the seed only: equal seeds, times and writes of
//! others give equal [`Action`]s. Actors are level-triggered: they compare the objects with what they want, so
//! they work with objects that others create, scale or delete at any time. When the cluster is as they want it,
//! they write nothing.
//!
//! Pods fail if a test asks for it, see [`PodOutcome`] and [`Actors::failure_percent`]. Actors of your own
//! implement [`Actor`] and use a [`Cluster`] to read and write.
//!
//! Not supported: daemon sets, cron jobs, endpoints, volumes, quotas, Event objects, node leases, and eviction from
//! lost nodes.

mod action;
mod actors;
mod claim;
mod cluster;
mod deployment;
mod deployment_status;
mod garbage;
mod job;
mod kubelet;
mod mirror;
mod namespace;
mod node;
mod object;
mod outcome;
mod pod_status;
mod queue;
mod random;
mod replica_set;
mod rollout;
mod scheduler;
mod stateful_set;

pub use action::{Action, ActionVerb};
pub use actors::{ActorError, ActorKind, Actors};
pub use cluster::{Actor, Cluster};
pub use mirror::ObjectChange;
pub use outcome::{OUTCOME_ANNOTATION, PodOutcome};
pub use random::Random;

/// The README as a documentation test, so that its program compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
