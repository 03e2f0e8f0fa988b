//! When reconciles start: after all event sources have delivered their initial lists, whatever happens to a
//! source later.

use super::{Running, event_log};
use crate::cluster::{advance_time, break_watches_with, config_map, create_pods, until};
use informer::controller::{Controller, ControllerState, Outcome};
use informer::{Key, SharedInformerFactory};
use informer_apiserver::{ApiServer, faults};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn no_reconcile_starts_before_every_source_has_synced() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    server.create(&config_map("default", "c", "1")).unwrap();
    let slow = server.inject(faults::stall_request().for_resource("secrets"));
    let (sender, mut reconciles) = event_log();
    let factory = SharedInformerFactory::new(server.client());
    let controller = Controller::new::<Pod>(&factory)
        .watches::<ConfigMap>(|_| vec![Key::new("default", "a")])
        .reads::<Secret>();
    let running = Running::start(controller.reconcile(move |key, ctx| {
        let seen = (ctx.lister::<Pod>().len(), ctx.lister::<ConfigMap>().len());
        let _ = sender.send(format!("{key} {seen:?} {}", ctx.lister::<Secret>().has_synced()));
        async { Ok::<_, Infallible>(Outcome::Done) }
    }));
    // Long enough for everything else, and shorter than any request timeout.
    advance_time(Duration::from_secs(5)).await;
    assert!(reconciles.is_empty());
    let ControllerState::Waiting { reasons, .. } = running.reconciler.state() else {
        panic!("expected Waiting")
    };
    assert_eq!(reasons, ["secrets in all namespaces: connecting"]);
    drop(slow);
    reconciles.expect(&["default/a (1, 1) true"]).await;
    assert_eq!(running.reconciler.state(), ControllerState::Running);
    running.stop().await.unwrap();
    assert!(reconciles.is_empty(), "two events before the first reconcile are one reconcile");
}

/// A synced informer does not imply that its handlers have received the whole initial list.
#[tokio::test(start_paused = true)]
async fn no_reconcile_starts_before_handlers_received_the_initial_lists() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    for number in 0..2_000 {
        server.create(&config_map("default", &format!("c{number}"), "1")).unwrap();
    }
    let mapped = Arc::new(AtomicUsize::new(0));
    let (sender, mut reconciles) = event_log();
    let factory = SharedInformerFactory::new(server.client());
    let (maps, seen) = (Arc::clone(&mapped), Arc::clone(&mapped));
    let controller = Controller::new::<Pod>(&factory).watches::<ConfigMap>(move |_| {
        maps.fetch_add(1, Ordering::Relaxed);
        Vec::new()
    });
    let running = Running::start(controller.reconcile(move |key, _| {
        let _ = sender.send(format!("{key} {}", seen.load(Ordering::Relaxed)));
        async { Ok::<_, Infallible>(Outcome::Done) }
    }));
    reconciles.expect(&["default/a 2000"]).await;
    running.stop().await.unwrap();
}

/// Optional means that a kind may be missing, not that it may be late.
#[tokio::test(start_paused = true)]
async fn slow_optional_source_is_awaited() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let slow = server.inject(faults::stall_request().for_resource("secrets"));
    let (sender, mut reconciles) = event_log();
    let factory = SharedInformerFactory::new(server.client());
    let running = Running::start(Controller::new::<Pod>(&factory).reads::<Secret>().optional().reconcile(
        move |key, _| {
            let _ = sender.send(key.to_string());
            async { Ok::<_, Infallible>(Outcome::Done) }
        },
    ));
    advance_time(Duration::from_secs(5)).await;
    assert!(reconciles.is_empty());
    drop(slow);
    reconciles.expect(&["default/a"]).await;
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn forbidden_source_delays_the_start_and_is_reported() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let forbidden = server.inject(faults::forbid("secrets"));
    let (sender, mut reconciles) = event_log();
    let factory = SharedInformerFactory::new(server.client());
    let running =
        Running::start(Controller::new::<Pod>(&factory).owns::<Secret>().reconcile(move |key, _| {
            let _ = sender.send(key.to_string());
            async { Ok::<_, Infallible>(Outcome::Done) }
        }));
    advance_time(Duration::from_secs(120)).await;
    assert!(reconciles.is_empty());
    let ControllerState::Waiting { reasons, .. } = running.reconciler.state() else {
        panic!("expected Waiting")
    };
    assert!(
        matches!(&reasons[..], [one] if one.starts_with("secrets in all namespaces: forbidden")),
        "{reasons:?}"
    );
    // Once allowed, the controller starts by itself.
    drop(forbidden);
    reconciles.expect(&["default/a"]).await;
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn optional_source_may_be_forbidden_or_missing_at_first() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let forbidden = server.inject(faults::forbid("secrets"));
    let _missing = server.inject(faults::respond(404).for_resource("configmaps"));
    let (sender, mut reconciles) = event_log();
    let factory = SharedInformerFactory::new(server.client());
    let controller = Controller::new::<Pod>(&factory)
        .watches::<Secret>(|secret| vec![secret.key().clone()])
        .optional()
        .reads::<ConfigMap>()
        .optional();
    let running = Running::start(controller.reconcile(move |key, _| {
        let _ = sender.send(key.to_string());
        async { Ok::<_, Infallible>(Outcome::Done) }
    }));
    reconciles.expect(&["default/a"]).await;
    drop(forbidden);
    let secret = serde_json::json!(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "default", "name": "s"}});
    server.create(&secret).unwrap();
    reconciles.expect(&["default/s"]).await;
    running.stop().await.unwrap();
}

/// P2: all sources of a controller shared one backoff, so one forbidden kind let only 6 of 429 changes
/// through.
#[tokio::test(start_paused = true)]
async fn p2_sources_do_not_delay_each_other_once_running() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let reconciles = Arc::new(AtomicUsize::new(0));
    let factory = SharedInformerFactory::new(server.client());
    let counted = Arc::clone(&reconciles);
    let running = Running::start(Controller::new::<Pod>(&factory).owns::<Secret>().reconcile(move |_, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        async { Ok::<_, Infallible>(Outcome::Done) }
    }));
    running.reconciler.wait_until_running().await;
    let forbidden = break_watches_with(&server, faults::forbid("secrets"));
    until(|| forbidden.hits() > 0).await;
    let (before, began) = (reconciles.load(Ordering::Relaxed), tokio::time::Instant::now());
    for change in 0..500 {
        let image = format!("image-{change}");
        let pod =
            crate::cluster::with(crate::cluster::pod("default", "a"), "/spec/containers/0/image", image);
        server.update(&pod).unwrap();
        let wanted = before + change + 1;
        until(|| reconciles.load(Ordering::Relaxed) >= wanted).await;
    }
    // Each poll advances the clock by up to 5 ms; waiting for the forbidden kind would take minutes.
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    running.stop().await.unwrap();
}

/// A restart finds ten thousand objects; a change does not wait for all of them.
#[tokio::test(start_paused = true)]
async fn changes_do_not_wait_for_the_initial_list() {
    let server = ApiServer::new();
    for number in 0..100 {
        server.create(&config_map("default", &format!("c{number:03}"), "1")).unwrap();
    }
    let (sender, mut reconciles) = event_log();
    let factory = SharedInformerFactory::new(server.client());
    let running = Running::start(Controller::new::<ConfigMap>(&factory).reconcile(move |key, _| {
        let _ = sender.send(key.to_string());
        async {
            advance_time(Duration::from_secs(1)).await;
            Ok::<_, Infallible>(Outcome::Done)
        }
    }));
    reconciles.expect(&["default/c000", "default/c001"]).await;
    server.update(&config_map("default", "c090", "2")).unwrap();
    server.update(&config_map("default", "c080", "2")).unwrap();
    reconciles.expect(&["default/c090", "default/c080", "default/c002", "default/c003"]).await;
    running.stop().await.unwrap();
}

/// The server is unavailable for a minute: objects changed meanwhile are reconciled.
#[tokio::test(start_paused = true)]
async fn outage_of_a_minute_loses_no_key() {
    let server = ApiServer::new();
    create_pods(&server, &["a", "b"]);
    let (sender, mut reconciles) = event_log();
    let factory = SharedInformerFactory::new(server.client());
    let running = Running::start(Controller::new::<Pod>(&factory).reconcile(move |key, _| {
        let _ = sender.send(key.to_string());
        async { Ok::<_, Infallible>(Outcome::Done) }
    }));
    reconciles.expect(&["default/a", "default/b"]).await;
    let unavailable = break_watches_with(&server, faults::drop_connection());
    create_pods(&server, &["c"]);
    server.delete("v1", "pods", Some("default"), "b").unwrap();
    server.compact();
    advance_time(Duration::from_secs(60)).await;
    assert!(reconciles.is_empty());
    drop(unavailable);
    let mut late = vec![reconciles.0.recv().await.unwrap(), reconciles.0.recv().await.unwrap()];
    late.sort();
    assert_eq!(late, ["default/b", "default/c"]);
    running.stop().await.unwrap();
    assert!(reconciles.is_empty());
}
