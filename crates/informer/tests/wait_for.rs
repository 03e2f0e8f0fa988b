//! Waiting until a condition holds for a cache.
#![allow(clippy::unwrap_used)]

use crate::cluster::{TIMEOUT, advance_time, break_watches, config_map, create_pods, synced_informer};
use informer::error::ErrorKind;
use informer::status::InformerState;
use informer::{InformerOptions, Key, SharedInformer, Snapshot};
use informer_apiserver::{ApiServer, faults};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use std::time::Duration;

const NEVER: fn(&Snapshot<Pod>) -> Option<()> = |_| None;

#[tokio::test(start_paused = true)]
async fn c7_condition_that_holds_returns_its_value_immediately() {
    let server = ApiServer::new();
    create_pods(&server, &["a", "b"]);
    let pods = synced_informer::<Pod>(&server, InformerOptions::default()).await;
    let count = |pods: &Snapshot<Pod>| Some(pods.len());
    assert_eq!(pods.wait_for("pods", count, Duration::ZERO).await.unwrap(), 2);
    // The last state of a stopped informer counts too.
    pods.shutdown(TIMEOUT).await.unwrap();
    assert_eq!(pods.wait_for("pods", count, Duration::ZERO).await.unwrap(), 2);
}

/// The wait ends with the change, not with a later poll: no virtual time passes.
#[tokio::test(start_paused = true)]
async fn condition_is_checked_when_the_cache_changes() {
    let server = ApiServer::new();
    let maps = synced_informer::<ConfigMap>(&server, InformerOptions::default()).await;
    let key = Key::new("default", "a");
    let write = async {
        for version in ["1", "2", "3"] {
            advance_time(Duration::from_secs(10)).await;
            let map = config_map("default", "a", version);
            if version == "1" { server.create(&map) } else { server.update(&map) }.unwrap();
        }
    };
    let started = tokio::time::Instant::now();
    let third = |maps: &Snapshot<ConfigMap>| {
        maps.get(&key).filter(|map| map.field("data.v").as_deref() == Some("3")).cloned()
    };
    let (found, ()) = tokio::join!(maps.wait_for("version 3", third, TIMEOUT), write);
    assert_eq!(found.unwrap().name(), "a");
    assert_eq!(started.elapsed().as_secs(), 30);
}

/// A partial list must not count: it could lack the objects that a condition is about.
#[tokio::test(start_paused = true)]
async fn condition_is_not_checked_before_the_sync() {
    let server = ApiServer::new();
    create_pods(&server, &["a", "b", "c"]);
    let pods = SharedInformer::<Pod>::new(server.client());
    let mut lengths = Vec::new();
    let check = |pods: &Snapshot<Pod>| {
        lengths.push(pods.len());
        (!pods.is_empty()).then_some(())
    };
    let start = async { pods.start() };
    let (result, ()) = tokio::join!(pods.wait_for("pods", check, TIMEOUT), start);
    result.unwrap();
    assert_eq!(lengths, [3]);
}

#[tokio::test(start_paused = true)]
async fn c7_wait_ends_at_its_timeout_with_the_state() {
    let server = ApiServer::new();
    let pods = synced_informer::<Pod>(&server, InformerOptions::default()).await;
    let started = tokio::time::Instant::now();
    let error = pods.wait_for("pod shop/web to run", NEVER, Duration::from_secs(5)).await.unwrap_err();
    assert_eq!(started.elapsed(), Duration::from_secs(5));
    assert_eq!((error.kind(), error.state.clone()), (ErrorKind::Timeout, InformerState::Live));
    assert_eq!(
        error.to_string(),
        "wait for pod shop/web to run: pods in all namespaces: timed out after 5s: live"
    );
    assert_eq!(informer::Error::from(error).kind(), ErrorKind::Timeout);
}

#[tokio::test(start_paused = true)]
async fn c7_wait_ends_when_the_informer_stops() {
    let server = ApiServer::new();
    let pods = synced_informer::<Pod>(&server, InformerOptions::default()).await;
    let (error, stopped) = tokio::join!(pods.wait_for("a pod", NEVER, Duration::MAX), pods.shutdown(TIMEOUT));
    stopped.unwrap();
    let error = error.unwrap_err();
    assert_eq!((error.kind(), error.timeout), (ErrorKind::Stopped, None));
    assert_eq!(error.to_string(), "wait for a pod: pods in all namespaces: stopped");
}

#[tokio::test(start_paused = true)]
async fn c7_wait_for_a_forbidden_kind_ends_unless_it_has_synced() {
    let server = ApiServer::new();
    let forbidden = || server.inject(faults::respond(403).for_resource("pods"));
    let guard = forbidden();
    let pods = SharedInformer::<Pod>::new(server.client());
    pods.start();
    let error = pods.wait_for("a pod", NEVER, Duration::MAX).await.unwrap_err();
    assert_eq!((error.kind(), error.timeout), (ErrorKind::Forbidden, None));
    drop(guard);

    // The rights of a synced informer may be missing for a while only.
    let synced = synced_informer::<Pod>(&server, InformerOptions::default()).await;
    let _guard = forbidden();
    break_watches(&server);
    let error = synced.wait_for("a pod", NEVER, Duration::from_secs(60)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
}
