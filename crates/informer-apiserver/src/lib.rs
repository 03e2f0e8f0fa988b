//! An embedded Kubernetes API server, for tests and demos: in process, without sockets, with faults on request.
//!
//! [`ApiServer`] is the handle. [`ApiServer::client`] gives a [`kube::Client`] that talks to it, and its own methods write to it
//! directly, by the same rules. Its measure is a kube-apiserver 1.36: versions, pages, selectors, watches and errors are
//! those that were recorded from one.
//!
//! ```
//! use informer_apiserver::ApiServer;
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube::Api;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = ApiServer::new();
//! server.create(&serde_json::json!({
//!     "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"},
//! }))?;
//!
//! let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
//! assert_eq!(maps.get("a").await?.metadata.name.as_deref(), Some("a"));
//! # Ok(())
//! # }
//! ```
//!
//! Rooms: `model` decides and is pure, `http` speaks HTTP, [`faults`] makes it fail. Not here yet: patches and apply, deletion of
//! collections, dry runs, subresources other than `status` and a namespace's `finalize`, validation and defaults of specs, grace periods (a
//! deleted pod is gone at once, on a node or not), tables, protobuf, sockets.

pub mod faults;
mod http;
mod log;
mod model;
mod server;
mod shared;

pub use http::{AnswerBody, ApiService, BodyError};
pub use log::{Seen, Verb};
pub use model::{Cause, Details, Status};
pub use server::{ApiServer, Backup, Builder};
