//! The tests of the examples, in one program: linking a program takes longer than compiling a file. The tests of the
//! tutorial are a program as on its pages.

#![allow(clippy::unwrap_used, reason = "a failing test panics")]

mod common;
/// The examples.
#[allow(dead_code, reason = "nothing calls `main`")]
mod programs {
    #[path = "../../custom_resource.rs"]
    pub(crate) mod custom_resource;
    #[path = "../../custom_source.rs"]
    pub(crate) mod custom_source;
    #[path = "../../diagnostics.rs"]
    pub(crate) mod diagnostics;
    #[path = "../../dynamic.rs"]
    pub(crate) mod dynamic;
    #[path = "../../event_stream.rs"]
    pub(crate) mod event_stream;
    #[path = "../../filtering_handler.rs"]
    pub(crate) mod filtering_handler;
    #[path = "../../lister_index.rs"]
    pub(crate) mod lister_index;
    #[path = "../../memory.rs"]
    pub(crate) mod memory;
    #[path = "../../metadata_only.rs"]
    pub(crate) mod metadata_only;
    #[path = "../../namespaces.rs"]
    pub(crate) mod namespaces;
    #[path = "../../operator.rs"]
    pub(crate) mod operator;
    #[path = "../../pod_informer.rs"]
    pub(crate) mod pod_informer;
    #[path = "../../resync.rs"]
    pub(crate) mod resync;
    #[path = "../../scheduler.rs"]
    pub(crate) mod scheduler;
    #[path = "../../sharded_operator.rs"]
    pub(crate) mod sharded_operator;
    #[path = "../../shared_factory.rs"]
    pub(crate) mod shared_factory;
    #[path = "../../to_database.rs"]
    pub(crate) mod to_database;
    #[path = "../../workqueue.rs"]
    pub(crate) mod workqueue;
}
#[path = "../../crates/informer/tests/common/script.rs"]
mod script;

mod custom_resource;
mod custom_source;
mod diagnostics;
mod dynamic;
mod event_stream;
mod filtering_handler;
mod lister_index;
mod memory;
mod metadata_only;
mod namespaces;
mod operator;
mod operator_access;
mod operator_reconcile;
mod pod_informer;
mod resync;
mod scheduler;
mod sharded_operator;
mod shared_factory;
mod simulation;
mod to_database;
mod workqueue;
