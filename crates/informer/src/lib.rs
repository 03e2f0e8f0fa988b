//! Kubernetes informers for Rust: a local, indexed, always current copy of what an API server has, and handlers that are told
//! what changes.
//!
//! ```no_run
//! use informer::{Event, Index, SharedInformer};
//! use k8s_openapi::api::core::v1::Pod;
//! use std::time::Duration;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = informer::client(kube::Config::infer().await?)?;
//! let pods = SharedInformer::<Pod>::new(client);
//!
//! let by_node = pods.add_index(Index::field("spec.nodeName"))?;
//! let _watching = pods.on(|event| match event {
//!     Event::Added { object, initial, .. } => println!("+ {} (initial: {initial})", object.key()),
//!     Event::Updated { old, new, .. } => println!("~ {} {} -> {}", new.key(), old.version(), new.version()),
//!     Event::Deleted { last, observed, .. } => println!("- {} (observed: {observed})", last.key()),
//! });
//!
//! pods.start();
//! pods.wait_for_sync(Duration::from_secs(30)).await?;
//!
//! for pod in pods.lister().by(&by_node, "node-0042") {
//!     println!("{} {:?}", pod.name(), pod.typed()?.status); // decoded here, and only here
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Promises
//!
//! The numbers are quoted by the tests.
//!
//! - **C1 Order.** A handler sees the states of one object in the server's order. From a watch a comparable version never goes
//!   back. A consistent relist is the truth even when its versions are lower (a restored etcd); that is counted as a rewind.
//! - **C2 No loss.** Everything that exists at sync is `Added`; every later change, or a newer one of the same key, reaches
//!   every handler; every deletion reaches every handler that saw the object, also when it happened during a gap.
//! - **C3 Legal sequences.** Per handler and key: Added, Updated…, Deleted, Added… A delete and re-create inside a gap is told as
//!   Deleted, then Added.
//! - **C4 Store first.** When a handler runs, the cache already holds that change or a newer one.
//! - **C5 Snapshots.** A read answers from one published state; readers and the writer never wait for each other.
//! - **C6 Late handlers.** A handler added at any time gets the current set (flagged as initial), then what follows. Removing it is
//!   awaitable: no call after removal returns.
//! - **C7 Sync ends.** An informer is always in a named [`State`]; [`SharedInformer::wait_for_sync`] fails at once where waiting
//!   is useless, and at its deadline says why.
//! - **C8 Bounded.** A slow handler costs at most one pending transition per key, and delays nobody else. The queue in front of the cache is
//!   bounded, and slows the socket down when it is full.
//! - **C9 Failure domains.** A bad object, a panicking handler or a broken index function hurts only itself, and is counted.
//! - **C10 Shutdown.** Drains until a deadline, ends every task, calls no handler afterwards.
//! - **C11 Good citizen.** No hot loop whatever the server does; `Retry-After` is honoured; a dead connection is noticed.
//! - **C13 Read-only.** Cached objects cannot be changed: the type forbids it.
//!
//! # Features
//!
//! `rustls-tls` builds TLS with rustls and ring. An application that chooses TLS by features of `kube` itself does not
//! need it. The version of the Kubernetes types is chosen by the application, as a feature of `k8s-openapi`.

mod client;
mod clock;
mod event;
mod lister;
mod queue;
mod reflector;
mod shared;
pub mod source;
mod status;

pub use client::client;
pub use event::{Cause, Event};
pub use informer_core::reflector::{
    Consistency, Counters, ListRequest, State, WatchListPolicy, WatchRequest, WatchStart,
};
pub use informer_core::{
    DecodeError, Entry, FieldPathError, FieldSelector, Index, IndexHandle, Key, LabelSelector, Labels,
    Moment, Object, OwnerReference, ParseKeyError, ResourceVersion, Retention, SelectorError, Typed,
};
pub use lister::{Lister, NamespaceLister};
pub use shared::{AddIndexError, Options, Registration, SharedInformer, ShutdownError, SyncError};
pub use status::Status;
