//! Saved caches: warm starts, starts with unusable files, and crashes.

mod bad_files;
mod clocks;
mod damage;
mod disk;
mod durable;
mod faults;
mod format;
mod full_disk;
mod resume;
mod warm_start;

use crate::cluster::{TIMEOUT, until};
use disk::Disk;
use informer::persistence::Persistence;
use informer::status::{ColdStartReason, StartKind};
use informer::{InformerOptions, SharedInformer};
use informer_apiserver::ApiServer;
use k8s_openapi::api::core::v1::ConfigMap;
use std::sync::Arc;

/// Options with a saved cache on this disk.
fn saved_on(disk: &Disk) -> InformerOptions {
    InformerOptions::default().persist(persistence(disk))
}

fn persistence(disk: &Disk) -> Persistence {
    Persistence::with_storage(Arc::new(disk.for_process()), "test")
}

/// A started informer.
fn start(server: &ApiServer, options: InformerOptions) -> SharedInformer<ConfigMap> {
    let informer = SharedInformer::with_options(server.client(), options);
    informer.start();
    informer
}

/// An informer that has synced.
async fn synced(server: &ApiServer, options: InformerOptions) -> SharedInformer<ConfigMap> {
    let informer = start(server, options);
    informer.wait_for_sync(TIMEOUT).await.unwrap();
    informer
}

/// Waits until the saved cache contains everything that the informer has.
async fn wait_for_save(informer: &SharedInformer<ConfigMap>) {
    let now = informer::now();
    until(|| {
        let persistence = informer.status().persistence.unwrap();
        persistence.saved_at.is_some_and(|saved| saved > now) || persistence.error.is_some()
    })
    .await;
}

/// Runs an informer until its cache is saved.
async fn save(server: &ApiServer, options: InformerOptions) {
    let informer = synced(server, options).await;
    until(|| informer.status().persistence.is_some_and(|status| status.saved_at.is_some())).await;
    informer.shutdown(TIMEOUT).await.unwrap();
}

/// The objects of the cache, as `name=value`.
fn contents(informer: &SharedInformer<ConfigMap>) -> Vec<String> {
    let objects = informer.lister().list();
    objects.iter().map(|object| format!("{}={}", object.name(), object.field("data.v").unwrap())).collect()
}

fn is_warm(informer: &SharedInformer<ConfigMap>) -> bool {
    matches!(informer.status().persistence.unwrap().start, StartKind::Warm { .. })
}

/// Why the start was cold.
fn cold_reason(informer: &SharedInformer<ConfigMap>) -> ColdStartReason {
    match informer.status().persistence.unwrap().start {
        StartKind::Cold(reason) => reason,
        other => panic!("the start was not cold: {other:?}"),
    }
}
