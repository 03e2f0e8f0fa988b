//! Kubernetes informers for Rust: a local, indexed, always current copy of what an API server has, and handlers that are told
//! what changes.
//!
//! ```no_run
//! use informer::{Event, Index, SharedInformerFactory};
//! use k8s_openapi::api::core::v1::Pod;
//! use std::time::Duration;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = informer::client(kube::Config::infer().await?)?;
//! let factory = SharedInformerFactory::new(client);
//!
//! let pods = factory.informer::<Pod>();
//! let by_node = pods.add_index(Index::field("spec.nodeName"))?; // look-ups through the handle cannot fail
//! let _watching = pods.on(|event| match event {
//!     Event::Added { object, initial, .. } => println!("+ {} (initial: {initial})", object.key()),
//!     Event::Updated { old, new, .. } => println!("~ {} {} -> {}", new.key(), old.version(), new.version()),
//!     Event::Deleted { last, observed, .. } => println!("- {} (observed: {observed})", last.key()),
//! });
//!
//! factory.start();
//! factory.wait_for_sync(Duration::from_secs(30)).await?; // synced, or each kind's state and reason
//!
//! for pod in pods.lister().by(&by_node, "node-0042") {
//!     println!("{} {:?}", pod.name(), pod.typed()?.status); // decoded here, and only here
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Where to look
//!
//! | for | see |
//! |---|---|
//! | informers of many kinds, shared by a whole program | [`SharedInformerFactory`] |
//! | one kind: start, handlers, indexes, freshness | [`SharedInformer`] |
//! | settings: namespaces, selectors, resync, transforms… | [`InformerOptions`] |
//! | being told what changes | [`Handler`], [`SharedInformer::on_event`], [`EventStream`], [`HandlerBuilder`] |
//! | reading the cache | [`Lister`], [`Object`], [`Index`] |
//! | how it is doing | [`InformerStatus`], [`InformerState`], [`InformerMetrics`], [`Problem`] |
//! | keys that need work, and workers | [`WorkQueue`], [`WorkItem`], [`RateLimiter`] |
//! | reconciling: sources, retries, turns | [`Controller`], [`RunnableController`], [`predicates`] |
//! | which of several processes acts | [`LeaderElector`], [`Leadership`] |
//! | all of it as one program: start, stop, signals, `/readyz`, `/metrics` | [`Manager`] |
//! | cleaning up before an object goes | [`Finalizer`], [`FinalizerAction`] |
//! | owners and what they own | [`set_controller_reference`], [`controller_of`], [`is_controlled_by`] |
//! | telling users what a controller does | [`EventRecorder`] |
//! | lists and watches from elsewhere | [`source::Source`] |
//!
//! # Promises
//!
//! The numbers are quoted by the tests.
//!
//! - **C1 Order.** A handler sees the states of one object in the server's order. From a watch a comparable version never goes
//!   back. A consistent relist is the truth even when its versions are lower (a restored etcd); that is counted as a rewind, and fails
//!   those who wait for a version.
//! - **C2 No loss.** Everything that exists at sync is `Added`; every later change, or a newer one of the same key, reaches
//!   every handler; every deletion reaches every handler that saw the object, also when it happened during a gap.
//! - **C3 Legal sequences.** Per handler and key: Added, Updated…, Deleted, Added… A delete and re-create inside a gap is told as
//!   Deleted, then Added.
//! - **C4 Store first.** When a handler runs, the cache already holds that change or a newer one.
//! - **C5 Snapshots.** A read answers from one published state, with the version it stands for; readers and the writer never wait for
//!   each other. A relist is swapped in whole and speaks only for its namespace.
//! - **C6 Late handlers.** A handler added at any time gets the current set (flagged as initial), then what follows. Removing it is
//!   awaitable: no call after removal returns.
//! - **C7 Sync ends.** An informer is always in a named [`InformerState`]; [`SharedInformerFactory::wait_for_sync`] fails at once where waiting
//!   is useless, and at its deadline says why. Informer-synced and handler-synced ([`Registration::wait_for_sync`]) are two things.
//! - **C8 Bounded.** A slow handler costs at most one pending transition per key, and delays nobody else. The queue in front of the cache is
//!   bounded, and slows the socket down when it is full. Handlers run inline, and are named if they take long, or on threads that may block.
//! - **C9 Failure domains.** A bad object, a panicking handler, a forbidden kind or a broken index function hurts only itself, and is
//!   counted and reported.
//! - **C10 Shutdown.** Drains until a deadline, ends every task, calls no handler afterwards.
//! - **C11 Good citizen.** No hot loop whatever the server does; `Retry-After` is honoured; a dead connection is noticed. One watch per
//!   kind and choice of objects, shared by everybody who asks.
//! - **C12 Resync.** Per handler, kept across reconnects, spread over its period; never touches the server.
//! - **C13 Read-only.** Cached objects cannot be changed: the type forbids it.
//!
//!   ```compile_fail,E0594
//!   # use informer::Object;
//!   # use k8s_openapi::api::core::v1::Pod;
//!   fn spoil(pod: &Object<Pod>) -> Result<(), informer::DecodeError> {
//!       pod.typed()?.metadata.name = None; // C13: does not compile
//!       Ok(())
//!   }
//!   ```
//! - **C14 Queue.** One holder per key of a [`WorkQueue`]; at least one turn after each accepted add; what is added meanwhile is one more
//!   turn; a drain waits for what is queued and for what is held; a lease that is lost gives its key back.
//!
//! # Features
//!
//! `rustls-tls` builds TLS with rustls and ring. An application that chooses TLS by features of `kube` itself does not
//! need it. `accessors` adds the built-in kinds by name, as client-go has them: `factory.core().v1().pods()`. `compressed` adds
//! `Retention::Compressed`, for caches that keep their objects compressed; it builds the C library zstd. The version of the Kubernetes
//! types is chosen by the application, as a feature of `k8s-openapi`.

mod client;
mod clock;
mod controller;
mod coop;
mod delta_queue;
mod election;
mod error;
mod event;
mod factory;
mod finalizer;
mod handler;
mod host;
mod informer;
mod lister;
mod manager;
pub mod metrics;
mod owner;
#[cfg(doctest)]
mod pages;
mod recorder;
mod reference;
mod reflector;
mod resource;
mod shared;
pub mod source;
mod status;
#[cfg(test)]
mod test_support;
mod workqueue;

pub use client::client;
pub use controller::{Context, Controller, ControllerState, Outcome, RunnableController, predicates};
pub use election::{ElectionOutcome, LeaderElector, Leadership, Term};
pub use error::{
    AddIndexError, ConfigureError, ControllerError, ErrorKind, FinalizerError, InformerSync, ManagerError,
    OwnerError, ShutdownError, SyncError, Unfinished, VersionWaitError, VersionWaitReason,
};
pub use event::{Delivery, Event, UpdateCause};
pub use factory::SharedInformerFactory;
#[cfg(feature = "accessors")]
pub use factory::accessors;
pub use finalizer::{Cleanup, Finalizer, FinalizerAction};
pub use handler::{Deliverable, EventStream, FilteringHandler, Handler, HandlerBuilder};
pub use informer::SharedInformer;
pub use informer_core::election::{ElectionConfig, ElectionConfigError, FencingToken};
pub use informer_core::recorder::RecorderMetrics;
pub use informer_core::reflector::{
    Consistency, Failure, InformerState, ListRequest, ReflectorCounters, RelistCounters, Report, RequestKind,
    Trouble, WatchListPolicy, WatchRequest, WatchStart,
};
pub use informer_core::selector::{FieldRequirement, Requirement};
pub use informer_core::wire::{Head, ObjectError, Uid, UnreadableObject};
pub use informer_core::workqueue::{
    ExponentialBackoff, FastSlow, Histogram, MaxOf, Priority, QueueMetrics, RateLimiter, TokenBucket,
    WithMaxDelay,
};
pub use informer_core::{
    DecodeError, Entry, FieldPathError, FieldSelector, Index, IndexHandle, Key, LabelSelector, Labels,
    Moment, Object, Owner, OwnerReference, Owners, ParseKeyError, ProjectionError, ResourceVersion,
    Retention, Scope, SelectorError, TransformFallback, Typed,
};
pub use lister::{Iter, Lister, NamespaceLister, Snapshot};
pub use manager::{CacheStart, Manager, ManagerHandle};
pub use metrics::{ControllerMetrics, HandlerMetrics, InformerMetrics};
pub use owner::{controller_of, is_controlled_by, is_owned_by, set_controller_reference};
pub use recorder::{EventRecorder, EventType};
pub use reference::{ObjectReference, ToObjectReference};
pub use shared::{InformerOptions, Registration};
pub use status::{CacheCounters, InformerStatus, Problem, ScopeStatus};
pub use workqueue::{Drained, Get, WorkItem, WorkQueue};
