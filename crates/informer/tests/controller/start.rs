//! When turns begin: not before everything that was there has been seen, and then whatever happens to a source.

use crate::cluster::{config_map, create_pods, cut_and, pass, until};
use crate::{Running, diary};
use informer::{Controller, ControllerState, Key, Outcome, SharedInformerFactory};
use informer_apiserver::{ApiServer, faults};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn no_turn_begins_before_every_source_has_told_what_is_there() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    server.create(&config_map("default", "c", "1")).unwrap();
    let slow = server.fault(faults::hold().of("secrets"));
    let (sender, mut turns) = diary();
    let factory = SharedInformerFactory::new(server.client());
    let controller = Controller::new::<Pod>(&factory)
        .watches::<ConfigMap>(|_| vec![Key::new("default", "a")])
        .reads::<Secret>();
    let running = Running::start(controller.reconcile(move |key, ctx| {
        let seen = (ctx.lister::<Pod>().len(), ctx.lister::<ConfigMap>().len());
        let _ = sender.send(format!("{key} {seen:?} {}", ctx.lister::<Secret>().has_synced()));
        async { Ok::<_, Infallible>(Outcome::Done) }
    }));
    // Long enough for everything else, and shorter than anybody waits for an answer.
    pass(Duration::from_secs(5)).await;
    assert!(turns.is_empty());
    let ControllerState::Waiting { reasons, .. } = running.reconciler.state() else { panic!("it runs") };
    assert_eq!(reasons, ["secrets in all namespaces: connecting"]);
    drop(slow);
    turns.expect(&["default/a (1, 1) true"]).await;
    assert_eq!(running.reconciler.state(), ControllerState::Running);
    running.stop().await.unwrap();
    assert!(turns.is_empty(), "two events before the first turn are one turn");
}

/// That an informer is synced does not say that its handlers have seen everything.
#[tokio::test(start_paused = true)]
async fn no_turn_begins_before_the_handlers_have_seen_what_is_there() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    for number in 0..2_000 {
        server.create(&config_map("default", &format!("c{number}"), "1")).unwrap();
    }
    let mapped = Arc::new(AtomicUsize::new(0));
    let (sender, mut turns) = diary();
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
    turns.expect(&["default/a 2000"]).await;
    running.stop().await.unwrap();
}

/// Optional means that it may be missing, not that it may be late.
#[tokio::test(start_paused = true)]
async fn an_optional_source_that_is_only_slow_is_waited_for() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let slow = server.fault(faults::hold().of("secrets"));
    let (sender, mut turns) = diary();
    let factory = SharedInformerFactory::new(server.client());
    let running = Running::start(Controller::new::<Pod>(&factory).reads::<Secret>().optional().reconcile(
        move |key, _| {
            let _ = sender.send(key.to_string());
            async { Ok::<_, Infallible>(Outcome::Done) }
        },
    ));
    pass(Duration::from_secs(5)).await;
    assert!(turns.is_empty());
    drop(slow);
    turns.expect(&["default/a"]).await;
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_forbidden_source_holds_the_start_and_says_so() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let forbidden = server.fault(faults::forbid("secrets"));
    let (sender, mut turns) = diary();
    let factory = SharedInformerFactory::new(server.client());
    let running =
        Running::start(Controller::new::<Pod>(&factory).owns::<Secret>().reconcile(move |key, _| {
            let _ = sender.send(key.to_string());
            async { Ok::<_, Infallible>(Outcome::Done) }
        }));
    pass(Duration::from_mins(2)).await;
    assert!(turns.is_empty());
    let ControllerState::Waiting { reasons, .. } = running.reconciler.state() else { panic!("it runs") };
    assert!(
        matches!(&reasons[..], [one] if one.starts_with("secrets in all namespaces: forbidden")),
        "{reasons:?}"
    );
    // As soon as it is allowed, it goes on by itself.
    drop(forbidden);
    turns.expect(&["default/a"]).await;
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_optional_source_may_be_forbidden_or_not_there_and_come_later() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let forbidden = server.fault(faults::forbid("secrets"));
    let _missing = server.fault(faults::status(404).of("configmaps"));
    let (sender, mut turns) = diary();
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
    turns.expect(&["default/a"]).await;
    drop(forbidden);
    let secret = serde_json::json!(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "default", "name": "s"}});
    server.create(&secret).unwrap();
    turns.expect(&["default/s"]).await;
    running.stop().await.unwrap();
}

/// P2: all sources of a controller shared one back-off, so that one forbidden kind let 6 of 429 changes through.
#[tokio::test(start_paused = true)]
async fn p2_once_it_runs_no_source_delays_another() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let turns = Arc::new(AtomicUsize::new(0));
    let factory = SharedInformerFactory::new(server.client());
    let counted = Arc::clone(&turns);
    let running = Running::start(Controller::new::<Pod>(&factory).owns::<Secret>().reconcile(move |_, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        async { Ok::<_, Infallible>(Outcome::Done) }
    }));
    running.reconciler.running().await;
    let forbidden = cut_and(&server, faults::forbid("secrets"));
    until(|| forbidden.hits() > 0).await;
    let (before, began) = (turns.load(Ordering::Relaxed), tokio::time::Instant::now());
    for change in 0..500 {
        let image = format!("image-{change}");
        let pod =
            crate::cluster::with(crate::cluster::pod("default", "a"), "/spec/containers/0/image", image);
        server.update(&pod).unwrap();
        let wanted = before + change + 1;
        until(|| turns.load(Ordering::Relaxed) >= wanted).await;
    }
    // Looking takes up to 5 ms of this clock each time; waiting for the forbidden kind would take minutes.
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    running.stop().await.unwrap();
}

/// A restart finds ten thousand objects; a change that comes then does not wait for all of them.
#[tokio::test(start_paused = true)]
async fn what_was_there_does_not_keep_changes_waiting() {
    let server = ApiServer::new();
    for number in 0..100 {
        server.create(&config_map("default", &format!("c{number:03}"), "1")).unwrap();
    }
    let (sender, mut turns) = diary();
    let factory = SharedInformerFactory::new(server.client());
    let running = Running::start(Controller::new::<ConfigMap>(&factory).reconcile(move |key, _| {
        let _ = sender.send(key.to_string());
        async {
            pass(Duration::from_secs(1)).await;
            Ok::<_, Infallible>(Outcome::Done)
        }
    }));
    turns.expect(&["default/c000", "default/c001"]).await;
    server.update(&config_map("default", "c090", "2")).unwrap();
    server.update(&config_map("default", "c080", "2")).unwrap();
    turns.expect(&["default/c090", "default/c080", "default/c002", "default/c003"]).await;
    running.stop().await.unwrap();
}

/// The server is gone for a minute: what changes meanwhile gets its turn.
#[tokio::test(start_paused = true)]
async fn a_server_that_is_gone_for_a_minute_costs_no_key() {
    let server = ApiServer::new();
    create_pods(&server, &["a", "b"]);
    let (sender, mut turns) = diary();
    let factory = SharedInformerFactory::new(server.client());
    let running = Running::start(Controller::new::<Pod>(&factory).reconcile(move |key, _| {
        let _ = sender.send(key.to_string());
        async { Ok::<_, Infallible>(Outcome::Done) }
    }));
    turns.expect(&["default/a", "default/b"]).await;
    let gone = cut_and(&server, faults::drop_connection());
    create_pods(&server, &["c"]);
    server.delete("v1", "pods", Some("default"), "b").unwrap();
    server.compact();
    pass(Duration::from_mins(1)).await;
    assert!(turns.is_empty());
    drop(gone);
    let mut late = vec![turns.0.recv().await.unwrap(), turns.0.recv().await.unwrap()];
    late.sort();
    assert_eq!(late, ["default/b", "default/c"]);
    running.stop().await.unwrap();
    assert!(turns.is_empty());
}
