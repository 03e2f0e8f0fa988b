//! Kubernetes informers for Rust: a local, indexed cache of API objects, kept up to date by list and watch,
//! with event handlers, listers, work queues, controllers and leader election.
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
//! let by_node = pods.add_index(Index::field("spec.nodeName"))?;
//! let _registration = pods.on_event(|event| match event { // dropping the registration removes the handler
//!     Event::Added { object, initial, .. } => println!("+ {} (initial: {initial})", object.key()),
//!     Event::Updated { new, .. } => println!("~ {} {}", new.key(), new.resource_version()),
//!     Event::Deleted { last, .. } => println!("- {}", last.key()),
//! });
//!
//! factory.start();
//! factory.wait_for_sync(Duration::from_secs(30)).await?; // the error lists the state of each informer
//!
//! for pod in pods.snapshot().by_index(&by_node, "node-0042") {
//!     println!("{} {:?}", pod.name(), pod.typed()?.status); // only this decodes the object
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Where to start
//!
//! - **Watch objects.** A [`SharedInformerFactory`] creates and shares one [`SharedInformer`] per kind and
//!   [`Selection`] (namespaces and selectors). [`SharedInformer::on_event`] adds a closure,
//!   [`SharedInformer::add_handler`] a [`Handler`], and [`SharedInformer::event_stream`] returns an
//!   [`EventStream`]. [`InformerOptions`] sets namespaces, selectors, transforms and how objects are stored
//!   ([`cache::Retention`]). [`SharedInformer::handler`] returns a builder for handlers with options: a filter, a
//!   resync period, or delivery of every state up to a capacity.
//!   [`resolve`] finds a kind that is named at run time, for [`SharedInformerFactory::dynamic_informer`].
//! - **Read the cache.** A [`Lister`] always reads the newest state and returns owned objects. A [`Snapshot`] is
//!   one state that never changes, and returns references. [`Index`] adds look-ups by label, field or function.
//!   [`Object::typed`] decodes an object. To read a few fields of many objects often, add a projection
//!   ([`SharedInformer::add_projection`]).
//! - **Write a controller.** [`controller::Controller`] calls a reconcile function for changed objects and
//!   retries failures with backoff. [`Context::apply`](controller::Context::apply) writes the objects that it
//!   owns, and [`Context::patch_status`](controller::Context::patch_status) the status; [`conditions`],
//!   [`finalizer`], [`owner`] and [`recorder`] cover conditions, cleanup, owner references and Kubernetes events.
//!   For your own worker loop, [`workqueue::WorkQueue`] corresponds to client-go's rate limiting queue.
//! - **Run it in production.** [`manager::Manager`] starts and stops informers, controllers and
//!   [leader election](election::LeaderElector) together: it stops on SIGINT and SIGTERM and, with `serve`,
//!   serves `/readyz`, `/healthz` and `/metrics`; [`add_task`](manager::Manager::add_task) adds parts of your
//!   own. [`status::InformerStatus`] and [`metrics::encode`] report the state of each informer. [`Error`] covers
//!   the errors of all operations.
//! - **Use a part on its own.** The module [`cache`] has the parts of an informer: a [store](cache::Store) that you
//!   fill yourself, a delta FIFO, and a [reflector](cache::Reflector) that feeds your own sink. A
//!   [`source::ListWatch`] makes a source of two async functions.
//! - **Test without a cluster.** The crate `informer-apiserver` is an API server in the same process, with
//!   fault injection. [`testing`] has objects, listers, events, a client and contexts for unit tests of
//!   handlers and reconcile functions. A [`source::Source`] replaces the API server altogether.
//!
//! # Guarantees
//!
//! Code and tests refer to the guarantees by number. The book (`docs/book` in the repository) lists the limits of
//! each guarantee and the tests that check it.
//!
//! - **C1 Order.** A handler sees the states of one object in the server's order.
//! - **C2 No loss.** Every object that exists at sync is delivered. Every later change, or a newer change of the
//!   same object, reaches every handler. Every deletion reaches every handler that received the object, even if
//!   it happened while no watch was open. In a [shard group](shard), a handler that has received `Released` for an
//!   object does not receive its later changes: the process that gains its range delivers the object if it still
//!   exists.
//! - **C3 Legal sequences.** Per handler and object: `Added`, any number of `Updated`, `Deleted`, then `Added`
//!   again. In a shard group, `Released` may take the place of `Deleted`: the object exists, and belongs to another
//!   process. A durable handler first receives `Deleted` for objects that it knows from an earlier process.
//! - **C4 Store first.** When a handler runs, the cache already contains that change or a newer one, and
//!   [`Object::projected`] returns the values of its objects.
//! - **C5 Snapshots.** A read uses one published snapshot. Readers and the writer never wait for each other.
//! - **C6 Late handlers.** A handler added at any time receives the current objects, marked as initial, then
//!   every later change or a newer one of the same object.
//! - **C7 Waiting ends.** An informer is always in a named [state](status::InformerState); `wait_for_sync`
//!   returns when the cache is complete, or an error with the reason: immediately if waiting cannot succeed,
//!   otherwise at its timeout.
//! - **C8 Bounded.** Pending changes of an object are coalesced into one event, or two if it was deleted and
//!   re-created, so the queue of a slow handler is bounded. A handler with `uncoalesced` queues every
//!   change up to its capacity; only changes beyond it are coalesced. No handler delays another.
//! - **C9 Isolated failures.** An unreadable object, a panicking handler, a forbidden kind, a panicking index
//!   function or an object that does not fit a projection affects nothing else; it is counted and reported.
//! - **C10 Shutdown.** Shutdown delivers pending events until its timeout, ends every task, and calls no
//!   handler afterwards.
//! - **C11 Server load.** No behaviour of the server causes a hot loop; `Retry-After` is honoured; a dead
//!   connection is detected; users of a factory share one watch per kind and selection, two while a
//!   shard group moves ranges.
//! - **C12 Resync.** Each handler has its own resync period, which reconnects do not reset. Deliveries are spread
//!   over the period, and no request is sent.
//! - **C13 Read-only.** Cached objects cannot be modified.
//!
//!   ```compile_fail,E0594
//!   # use informer::Object;
//!   # use k8s_openapi::api::core::v1::Pod;
//!   fn rename(pod: &Object<Pod>) -> Result<(), informer::error::DecodeError> {
//!       pod.typed()?.metadata.name = None; // C13: does not compile
//!       Ok(())
//!   }
//!   ```
//! - **C14 Work queue.** A key of a [`workqueue::WorkQueue`] is processed by one worker at a time, and at least
//!   once after every accepted add; the key of a dropped work item is queued again.
//!
//! # Features
//!
//! | feature | effect |
//! |---|---|
//! | `rustls-tls` | TLS with rustls and ring. Without it, TLS comes from the features of `kube`, and [`client`](fn@client) has no TCP keep-alive over `https`. |
//! | `accessors` | The built-in kinds by name, as in client-go: `factory.core().v1().pods()`. |
//! | `compression` | [`cache::Retention`] gets `Compressed`: cached objects are compressed. Builds the C library zstd. |
//! | `persistence` | [`persistence`]: caches survive their process, in files of the embedded database redb. |
//!
//! The version of the Kubernetes types is selected by the application, as a feature of `k8s-openapi`. Two more
//! features of other crates are needed now and then: `schemars` of `k8s-openapi` for custom resources with
//! Kubernetes types in their spec or status, such as `Condition`, and `test-util` of `tokio` for tests that
//! pause the clock (`#[tokio::test(start_paused = true)]`).

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod access;
pub mod cache;
mod client;
mod clock;
pub mod conditions;
pub mod controller;
mod coop;
mod delta_queue;
pub mod discovery;
pub mod election;
pub mod error;
mod event;
mod factory;
pub mod finalizer;
pub mod handler;
mod host;
mod informer;
pub mod lister;
pub mod manager;
pub mod metrics;
pub mod owner;
#[cfg(doctest)]
mod pages;
#[cfg(feature = "persistence")]
pub mod persistence;
pub mod recorder;
mod reference;
mod reflector;
mod resource;
mod retry;
pub mod selector;
pub mod shard;
#[cfg(test)]
mod shard_tests;
mod shard_view;
mod shared;
pub mod source;
pub mod status;
#[cfg(test)]
mod test_support;
pub mod testing;
pub mod workqueue;

pub use client::client;
pub use clock::now;
pub use discovery::resolve;
#[doc(inline)]
pub use error::Error;
pub use event::{Event, UpdateCause};
pub use factory::SharedInformerFactory;
#[cfg(feature = "accessors")]
pub use factory::accessors;
#[doc(inline)]
pub use handler::{EventStream, Handler};
pub use informer::SharedInformer;
pub use informer_core::{Index, Key, Object, Projection, ResourceVersion, Typed};
#[doc(no_inline)]
pub use jiff::Timestamp;
#[doc(inline)]
pub use lister::{IndexHandle, Lister, Snapshot};
pub use retry::retry_on_conflict;
pub use shared::{InformerOptions, Registration, Selection};
