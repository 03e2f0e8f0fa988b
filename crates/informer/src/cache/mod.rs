//! The parts of an informer, each for use on its own, and how the cache stores objects.
//!
//! An informer is a pipeline. A reflector lists and watches a source and puts deltas into a queue; a store applies
//! them and publishes snapshots; handlers receive the changes. Most programs need only the whole, a
//! [`SharedInformer`](crate::SharedInformer). Its parts are here for programs that fill a store themselves, keep
//! objects elsewhere, or watch something that is not an API server. They correspond to the parts of client-go's
//! package `tools/cache`.
//!
//! | part | client-go | |
//! |---|---|---|
//! | [`Store`] | `NewStore`, `NewIndexer` | objects by key, with indexes and snapshots |
//! | [`TtlStore`] | `NewTTLStore` | objects that expire |
//! | [`DeltaFifo`] | `DeltaFIFO`, `RealFIFO` | a bounded queue of [`Delta`]s |
//! | [`source::ListWatch`](crate::source::ListWatch) | `ListWatch` | a source made of two async functions |
//! | [`Reflector`] | `NewReflector` | list and watch, for a sink of the program |
//! | [`SharedInformer::new`](crate::SharedInformer::new) | `NewInformer`, `NewSharedIndexInformer` | an informer without a factory |
//!
//! # A store
//!
//! A [`Store`] takes typed objects and returns what changed. Its [`Lister`](crate::Lister) and
//! [`Snapshot`](crate::Snapshot) are those of an informer, so that code which reads a cache works with both.
//!
//! ```
//! use informer::cache::Store;
//! use informer::{Event, Object};
//! use k8s_openapi::api::core::v1::ConfigMap;
//!
//! fn map(name: &str, team: &str) -> Object<ConfigMap> {
//!     let mut map = ConfigMap::default();
//!     map.metadata.name = Some(name.to_owned());
//!     map.metadata.labels = Some([("team".to_owned(), team.to_owned())].into());
//!     Object::from_typed(map).unwrap() // an error if the object has no name
//! }
//!
//! let store = Store::new();
//! store.insert([map("a", "red"), map("b", "blue")]);
//! let events = store.replace([map("a", "red"), map("c", "red")]);
//! assert!(matches!(&events[..], [Event::Deleted { .. }, Event::Added { .. }]));
//! assert_eq!(store.lister().len(), 2);
//!
//! // An index finds objects by a label, a field, or the values that a closure returns.
//! let by_team = store.add_index(informer::Index::label("team"))?;
//! assert_eq!(store.snapshot().by_index(&by_team, "red").count(), 2);
//! # Ok::<(), informer::error::ParseError>(())
//! ```
//!
//! # A delta FIFO
//!
//! A [`Delta`] is what a server reports; an event is what became different in a store. A [`DeltaFifo`] connects
//! a producer of deltas with one consumer, and makes the producer wait if the consumer is slow.
//!
//! ```
//! use informer::cache::{Delta, DeltaFifo, Store};
//! use informer::{Object, ResourceVersion};
//! # use k8s_openapi::api::core::v1::ConfigMap;
//! # fn map(name: &str, version: &str) -> Object<ConfigMap> {
//! #     let mut map = ConfigMap::default();
//! #     map.metadata.name = Some(name.to_owned());
//! #     map.metadata.resource_version = Some(version.to_owned());
//! #     Object::from_typed(map).unwrap()
//! # }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), informer::cache::QueueClosed> {
//! let fifo = DeltaFifo::new();
//! fifo.push([Delta::replaced(vec![map("a", "1")], ResourceVersion::new("1"))]).await?;
//! fifo.push([Delta::Updated(map("a", "2")), Delta::deleted(map("a", "3"))]).await?;
//! fifo.close();
//!
//! let (store, mut events) = (Store::new(), Vec::new());
//! while let Some(deltas) = fifo.pop(100).await {
//!     events.extend(store.apply(deltas));
//! }
//! assert_eq!(events.len(), 3); // added, updated, deleted: the queue merges nothing
//! # Ok(())
//! # }
//! ```
//!
//! # A source and a reflector
//!
//! A [`Reflector`] keeps a sink equal to a source, whatever fails in between. The source is an API server, or a
//! [`ListWatch`](crate::source::ListWatch): a function that returns all objects, and one that returns a stream of
//! changes.
//!
//! ```
//! use futures::StreamExt as _;
//! use informer::cache::{Reflector, Store};
//! use informer::source::{ListWatch, WatchEvent};
//! use informer::{InformerOptions, ResourceVersion};
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use std::time::Duration;
//! # fn map(name: &str, version: &str) -> ConfigMap {
//! #     let mut map = ConfigMap::default();
//! #     map.metadata.name = Some(name.to_owned());
//! #     map.metadata.resource_version = Some(version.to_owned());
//! #     map
//! # }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let source = ListWatch::new(
//!     || async { Ok((vec![map("a", "1")], ResourceVersion::new("1"))) },
//!     |_after| async { Ok(futures::stream::iter([Ok(WatchEvent::Added(map("b", "2")))])
//!         .chain(futures::stream::pending())) },
//! );
//! let reflector = Reflector::<ConfigMap>::with_source(source, InformerOptions::default());
//! let store = Store::new();
//! // A sink that is slow makes the source wait, and one that fails ends the run.
//! let stopped = reflector.run(|deltas| {
//!     store.apply(deltas);
//!     let is_complete = store.snapshot().len() == 2;
//!     async move { if is_complete { Err("enough") } else { Ok(()) } }
//! });
//! assert_eq!(tokio::time::timeout(Duration::from_secs(10), stopped).await?, Err("enough"));
//! # Ok(())
//! # }
//! ```
//!
//! # An informer without a factory
//!
//! All of it together, for one kind: [`SharedInformer::new`](crate::SharedInformer::new) needs neither a factory nor
//! a handler. Without handlers it is a cache that is kept up to date. A factory adds sharing: one informer per kind,
//! started and stopped together.
//!
//! ```
//! use informer::SharedInformer;
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let server = informer_apiserver::ApiServer::new();
//! # server.create(&serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap",
//! #     "metadata": {"name": "settings", "namespace": "default"}}))?;
//! # let client = server.client();
//! let maps = SharedInformer::<ConfigMap>::new(client); // or with_options, with_source, dynamic
//! maps.start();
//! maps.wait_for_sync(Duration::from_secs(10)).await?;
//! assert!(maps.lister().get("default", "settings").is_some());
//! maps.shutdown(Duration::from_secs(5)).await?; // or drop all its handles
//! # Ok(())
//! # }
//! ```

mod delta;
mod fifo;
mod reflector;
mod store;
mod ttl;

pub use delta::Delta;
pub use fifo::{DeltaFifo, Deltas};
pub use informer_core::wire::{BodyEncoding as Encoding, Head, Uid};
pub use informer_core::{Entry, FieldPath, Labels, Owner, Owners, QueueClosed, Retention, TransformFallback};
pub use reflector::Reflector;
pub use store::Store;
pub use ttl::TtlStore;
