//! An embedded Kubernetes API server, for tests and demos: in process or on a socket, with faults on request.
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
//! Clients in other processes reach it through [`ApiServer::listen`], over TLS and with access control ([`AccessControl`]).
//!
//! Modules: `model` decides and is pure; `access` says who may what; `http` speaks HTTP, `listen` has the sockets, [`faults`] makes it fail.
//! What objects mean is in the crate `informer-objects`. What it does not do: controllers, most of admission, logs and exec, and
//! whatever needs a disk. The whole list is in `docs/apiserver.md` of the repository.

#[cfg(doctest)]
mod pages {
    //! The page about the server, as a documentation test: its programs compile and run.
    #![doc = include_str!("../../../docs/apiserver.md")]
}

mod access;
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
pub use http::{ApiService, BodyError, ResponseBody};
pub use informer_objects::{Status, StatusCause, StatusDetails};
pub use listen::{ListenError, ListenOptions, Overwrite, RunningServer};
pub use log::{RecordedRequest, Verb};
pub use model::EncodingCounters;
pub use server::{ApiServer, ApiServerBuilder, Backup};
pub use user::User;
