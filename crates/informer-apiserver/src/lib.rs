//! An embedded Kubernetes API server for tests and demos, in process or on a socket, with fault injection.
//!
//! [`ApiServer`] is the handle. [`ApiServer::client`] returns a [`kube::Client`] that is connected to the
//! server. Other methods of [`ApiServer`] read and write without HTTP; the rules for objects are the same,
//! except for [`ApiServer::insert_unchecked`]. The reference is kube-apiserver 1.36: versions, pages,
//! selectors, watches and errors match its recorded responses.
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
//! Tests wait with [`ApiServer::wait_for`] and [`ApiServer::wait_until`]. The page "Test without a cluster" of
//! the book (`docs/book` in the repository) contains a complete test of a controller.
//!
//! Clients in other processes connect through [`ApiServer::listen`], with TLS and access control
//! ([`AccessControl`]). The module [`faults`] makes the server misbehave.
//!
//! The main internal modules: `model` holds the objects and makes all decisions about them, without I/O;
//! `shared` is the model behind its lock; `request` parses paths and queries; `access` authenticates and
//! authorizes; `http` serves requests; `listen` owns the sockets. The meaning of objects (types, defaults,
//! validation) is in the crate `informer-objects`.
//!
//! Not supported: controllers (see the crate `informer-actors`), most of admission, logs and exec, and storage
//! on disk. The complete list is in the book, on the page "The embedded API server".

mod access;
mod clock;
pub mod faults;
mod http;
mod listen;
mod log;
mod model;
mod random;
mod request;
mod server;
mod shared;
mod user;

pub use access::AccessControl;
pub use clock::ManualClock;
pub use http::{ApiService, BodyError, ResponseBody};
pub use informer_objects::{Status, StatusCause, StatusDetails};
pub use listen::{ListenError, ListenOptions, Overwrite, RunningServer};
pub use log::{RecordedRequest, Verb};
pub use model::EncodingCounters;
pub use server::{
    ApiServer, ApiServerBuilder, Backup, Change, ChangeReader, ChangedObject, DeleteParams, Propagation,
    ServedResource, WaitError,
};
pub use user::User;

/// The README as a documentation test, so that its program compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
