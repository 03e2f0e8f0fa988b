//! Write visibility: the next reconcile of a key sees the previous write.

use super::{Running, event_log};
use crate::cluster::{advance_time, break_watches, create_pods, inject_from_first_frame, until};
use informer::SharedInformerFactory;
use informer::controller::{Controller, Outcome};
use informer_apiserver::{ApiServer, faults};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use std::time::Duration;

/// A controller that increments a label of its object from the cached value. A reconcile that read a stale
/// object would write the same number twice.
fn counter(
    server: &ApiServer,
    factory: &SharedInformerFactory,
    reconciles: tokio::sync::mpsc::UnboundedSender<String>,
    concurrency: usize,
) -> informer::controller::RunnableController {
    let api: Api<Pod> = Api::default_namespaced(server.client());
    Controller::new::<Pod>(factory).reads::<ConfigMap>().concurrency(concurrency).reconcile(
        move |key, ctx| {
            let (api, reconciles) = (api.clone(), reconciles.clone());
            async move {
                let Some(pod) = ctx.lister::<Pod>().get_by_key(&key) else { return Ok(Outcome::Done) };
                let count = pod.labels().get("count").map_or(0, |count| count.parse::<u32>().unwrap());
                let _ = reconciles.send(format!("{} {count}", key.name()));
                if key.name() == "quiet" || count == 3 {
                    return Ok(Outcome::Done);
                }
                let patch = json!({"metadata": {"labels": {"count": (count + 1).to_string()}}});
                let params = PatchParams::default();
                let written = api.patch(key.name(), &params, &Patch::Merge(&patch)).await?;
                ctx.record_write(&written);
                // Immediately, long before the watch can have delivered the write.
                Ok::<_, kube::Error>(Outcome::RequeueAfter(Duration::ZERO))
            }
        },
    )
}

/// A counter whose first write does not become visible, because the watch is stalled from then on.
async fn with_invisible_write(
    server: &ApiServer,
    concurrency: usize,
) -> (Running, crate::cluster::EventLog, faults::FaultGuard) {
    let (sender, mut reconciles) = event_log();
    let factory = SharedInformerFactory::new(server.client());
    let running = Running::start(counter(server, &factory, sender, concurrency));
    running.reconciler.wait_until_running().await;
    let stalled =
        inject_from_first_frame(server, faults::stall_watch().for_resource("pods").after_frames(1)).await;
    create_pods(server, &["a"]);
    reconciles.expect(&["a 0"]).await;
    (running, reconciles, stalled)
}

#[tokio::test(start_paused = true)]
async fn reconcile_sees_the_previous_write() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let _slow =
        server.inject(faults::delay(Duration::from_secs(2)).for_verb(informer_apiserver::Verb::Watch));
    let (sender, mut reconciles) = event_log();
    let factory = SharedInformerFactory::new(server.client());
    let running = Running::start(counter(&server, &factory, sender, 2));
    reconciles.expect(&["a 0", "a 1", "a 2", "a 3"]).await;
    advance_time(Duration::from_secs(60)).await;
    running.stop().await.unwrap();
    assert_eq!(reconciles.take(), ["a 3"], "only the reconcile caused by the last write");
}

/// Regression: with a concurrency of one, the loop that waited for keys occupied the only slot, and a key
/// that waited for its write was not reconciled for a day.
#[tokio::test(start_paused = true)]
async fn key_with_a_visible_write_is_reconciled_without_other_keys() {
    for concurrency in [1, 2] {
        let server = ApiServer::new();
        let (running, mut reconciles, stalled) = with_invisible_write(&server, concurrency).await;
        advance_time(Duration::from_secs(5)).await;
        drop(stalled);
        break_watches(&server);
        reconciles.expect(&["a 1", "a 2", "a 3"]).await;
        assert_eq!(running.reconciler.metrics().invisible_writes, 0);
        running.stop().await.unwrap();
    }
}

/// Regression: a source that is not available never shows a write: every reconcile was 30 seconds late. And
/// each of ten invisible writes was given 30 seconds.
#[tokio::test(start_paused = true)]
async fn writes_to_unavailable_kinds_are_not_awaited_and_the_rest_share_one_timeout() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let _absent = server.inject(faults::forbid("secrets"));
    let (sender, mut reconciles) = event_log();
    let factory = SharedInformerFactory::new(server.client());
    let began = tokio::time::Instant::now();
    let controller = Controller::new::<Pod>(&factory).reads::<ConfigMap>().reads::<Secret>().optional();
    let running = Running::start(controller.reconcile(move |_, ctx| {
        let _ = log_elapsed(&sender, began);
        let mut secret = Secret::default();
        secret.metadata.resource_version = Some("1000000".to_owned());
        ctx.record_write(&secret);
        if ctx.retries() > 0 {
            for number in 0..10 {
                let mut map = ConfigMap::default();
                map.metadata.namespace = Some(format!("n{number}"));
                map.metadata.resource_version = Some("1000000".to_owned());
                ctx.record_write(&map);
            }
        }
        let ended = if ctx.retries() < 2 { Err("again") } else { Ok(Outcome::Done) };
        async move { ended }
    }));
    reconciles.expect(&["0", "0", "30"]).await;
    assert_eq!(running.reconciler.metrics().invisible_writes, 1, "a reconcile counts once");
    running.stop().await.unwrap();
}

fn log_elapsed(reconciles: &tokio::sync::mpsc::UnboundedSender<String>, began: tokio::time::Instant) -> bool {
    reconciles.send(began.elapsed().as_secs().to_string()).is_ok()
}

/// While the watch is stalled only keys with pending writes wait: others are reconciled, although the
/// concurrency is two.
#[tokio::test(start_paused = true)]
async fn waiting_for_a_write_does_not_block_other_keys() {
    let server = ApiServer::new();
    let (sender, mut reconciles) = event_log();
    let factory = SharedInformerFactory::new(server.client());
    let running = Running::start(counter(&server, &factory, sender, 2));
    running.reconciler.wait_until_running().await;
    let stalled =
        inject_from_first_frame(&server, faults::stall_watch().for_resource("pods").after_frames(3)).await;
    create_pods(&server, &["a", "b", "quiet"]);
    let mut first: Vec<String> = Vec::new();
    while first.len() < 3 {
        first.push(reconciles.0.recv().await.unwrap());
    }
    first.sort();
    assert_eq!(first, ["a 0", "b 0", "quiet 0"]);
    advance_time(Duration::from_secs(5)).await;
    assert!(reconciles.is_empty(), "the writes are not visible yet");
    running.reconciler.enqueue(informer::Key::new("default", "quiet"));
    reconciles.expect(&["quiet 0"]).await;
    drop(stalled);
    break_watches(&server);
    // No reconcile used a stale object: each number was written once.
    let mut rest = Vec::new();
    while !rest.contains(&"a 3".to_owned()) || !rest.contains(&"b 3".to_owned()) {
        rest.push(reconciles.0.recv().await.unwrap());
    }
    rest.retain(|reconcile| !reconcile.ends_with('3'));
    rest.sort();
    assert_eq!(rest, ["a 1", "a 2", "b 1", "b 2"]);
    assert_eq!(running.reconciler.metrics().invisible_writes, 0);
    running.stop().await.unwrap();
}

/// A write that never becomes visible delays its key for the configured timeout, and is counted.
#[tokio::test(start_paused = true)]
async fn invisible_write_does_not_block_a_key_forever() {
    let server = ApiServer::new();
    let (running, mut reconciles, _stalled) = with_invisible_write(&server, 2).await;
    advance_time(Duration::from_secs(29)).await;
    assert!(reconciles.is_empty());
    reconciles.expect(&["a 0"]).await;
    assert_eq!(running.reconciler.metrics().invisible_writes, 1);
    running.stop().await.unwrap();
}

/// A stop does not wait for the cache.
#[tokio::test(start_paused = true)]
async fn stop_does_not_wait_for_write_visibility() {
    let server = ApiServer::new();
    let (running, mut reconciles, _stalled) = with_invisible_write(&server, 2).await;
    until(|| !running.reconciler.active_reconciles().is_empty()).await;
    let began = tokio::time::Instant::now();
    running.stop().await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(1));
    assert!(reconciles.is_empty());
}
