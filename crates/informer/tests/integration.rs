//! Most integration tests of the crate, in one program: linking a program takes longer than compiling a file.
//!
//! Tests with an allocator of their own, with the model checker or with their own runner, and the simulation, are
//! separate programs.

#![allow(clippy::unwrap_used, reason = "a failing test panics")]

#[path = "common/cluster.rs"]
mod cluster;
#[path = "common/loopback.rs"]
mod loopback;
#[path = "common/prometheus.rs"]
mod prometheus;
#[path = "common/script.rs"]
mod script;
#[path = "common/types.rs"]
mod types;

mod accessors;
#[path = "cache/main.rs"]
mod cache;
mod compressed;
#[path = "controller/main.rs"]
mod controller;
mod decoded;
mod discovery;
mod election;
mod factory;
mod finalizer;
mod freshness;
mod handlers;
mod informer;
mod managed_fields;
#[path = "manager/main.rs"]
mod manager;
mod metrics;
mod namespaces;
mod owner;
mod peer_regressions;
#[cfg(feature = "persistence")]
#[path = "persistence/main.rs"]
mod persistence;
mod projections;
mod protobuf;
mod recorder;
mod regressions;
mod resync;
mod sockets;
mod source;
mod throughput;
mod transform;
mod wait_for;
mod workqueue;
