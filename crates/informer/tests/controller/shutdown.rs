//! Stopping a controller and running it again.

use super::{Running, event_log};
use crate::cluster::{advance_time, create_pods, until};
use informer::SharedInformerFactory;
use informer::controller::{Controller, ControllerState, Outcome};
use informer::error::ControllerError;
use informer_apiserver::ApiServer;
use k8s_openapi::api::core::v1::Pod;
use std::convert::Infallible;
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn stop_starts_no_reconcile_and_waits_for_active_ones() {
    let server = ApiServer::new();
    create_pods(&server, &["a", "b"]);
    let (sender, mut log) = event_log();
    let factory = SharedInformerFactory::new(server.client());
    let mut running = Running::start(Controller::new::<Pod>(&factory).reconcile(move |key, ctx| {
        let sender = sender.clone();
        let _ = sender.send(format!("{} begins", key.name()));
        async move {
            ctx.stop_requested().await;
            advance_time(Duration::from_secs(20)).await;
            let _ = sender.send(format!("{} ends, stopping: {}", key.name(), ctx.is_stop_requested()));
            Ok::<_, Infallible>(Outcome::Done)
        }
    }));
    log.expect(&["a begins"]).await;
    drop(running.stop.take());
    until(|| running.reconciler.state() == ControllerState::Stopping).await;
    create_pods(&server, &["c"]);
    let reconciler = running.reconciler.clone();
    running.end().await.unwrap();
    assert_eq!(log.take(), ["a ends, stopping: true"]);
    assert_eq!(reconciler.state(), ControllerState::Idle);
}

#[tokio::test(start_paused = true)]
async fn reconciles_exceeding_the_shutdown_timeout_are_dropped_and_named() {
    struct DropNotice(tokio::sync::mpsc::UnboundedSender<String>);
    impl Drop for DropNotice {
        fn drop(&mut self) {
            let _ = self.0.send("dropped".to_owned());
        }
    }
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let (sender, mut reconciles) = event_log();
    let factory = SharedInformerFactory::new(server.client());
    let controller = Controller::new::<Pod>(&factory)
        .name("slow")
        .shutdown_timeout(Duration::from_secs(3))
        .reconcile_timeout(Duration::MAX);
    let running = Running::start(controller.reconcile(move |_, _| {
        let notice = DropNotice(sender.clone());
        let _ = sender.send("begins".to_owned());
        async move {
            let _notice = notice;
            std::future::pending::<Result<Outcome, Infallible>>().await
        }
    }));
    reconciles.expect(&["begins"]).await;
    let began = tokio::time::Instant::now();
    let error = running.stop().await.unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(reconciles.take(), ["dropped"]);
    assert_eq!(error.to_string(), "controller slow: 1 reconciles aborted after 3s: default/a");
}

/// A reconcile that never yields cannot be aborted: the stop reports it, and the next run does not start
/// until it has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn blocking_reconcile_is_reported_and_delays_the_next_run() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let (sender, mut reconciles) = event_log();
    let factory = SharedInformerFactory::new(server.client());
    let (let_go, gate) = std::sync::mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(gate);
    let blocks = std::sync::Arc::new((sender, gate));
    let controller =
        Controller::new::<Pod>(&factory).shutdown_timeout(Duration::ZERO).reconcile(move |_, _| {
            let blocks = std::sync::Arc::clone(&blocks);
            async move {
                let _ = blocks.0.send("begins".to_owned());
                // Blocks the thread until the test sends a message or ends.
                let _over = blocks.1.lock().unwrap().recv().is_err();
                let _ = blocks.0.send("ends".to_owned());
                Ok::<_, Infallible>(Outcome::Done)
            }
        });
    let running = Running::start(controller.clone());
    reconciles.expect(&["begins"]).await;
    let error = running.stop().await.unwrap_err();
    assert!(matches!(error, ControllerError::ReconcilesAborted { blocked: true, .. }), "{error}");
    assert!(error.to_string().ends_with("(some still run: does one block its thread?)"), "{error}");
    let again = Running::start(controller.clone());
    let waits = |state: &ControllerState| matches!(state, ControllerState::Waiting { reasons, .. } if reasons[0].contains("earlier run"));
    until(|| waits(&controller.state())).await;
    assert!(reconciles.is_empty());
    let_go.send(()).unwrap();
    reconciles.expect(&["ends", "begins"]).await;
    drop(let_go);
    reconciles.expect(&["ends"]).await;
    // The shutdown timeout is zero, so a reconcile that has not returned yet would be aborted.
    until(|| controller.active_reconciles().is_empty()).await;
    again.stop().await.unwrap();
}

/// Leadership is lost without notice: the future is dropped, and every reconcile with it.
#[tokio::test(start_paused = true)]
async fn dropped_run_aborts_its_reconciles_and_can_be_run_again() {
    let server = ApiServer::new();
    create_pods(&server, &["a", "b"]);
    let (sender, mut reconciles) = event_log();
    let factory = SharedInformerFactory::new(server.client());
    let controller = Controller::new::<Pod>(&factory).concurrency(4).reconcile(move |key, ctx| {
        let sender = sender.clone();
        let _ = sender.send(key.name().to_owned());
        async move {
            ctx.stop_requested().await;
            advance_time(Duration::from_secs(1)).await;
            let _ = sender.send(format!("{} continued", key.name()));
            Ok::<_, Infallible>(Outcome::Done)
        }
    });
    let running = Running::start(controller.clone());
    reconciles.expect(&["a", "b"]).await;
    assert!(matches!(controller.run().await, Err(ControllerError::AlreadyRunning { .. })));
    running.task.abort();
    until(|| controller.state() == ControllerState::Idle).await;
    advance_time(Duration::from_secs(60)).await;
    assert!(reconciles.is_empty());
    // A new run reconciles everything.
    let again = Running::start(controller);
    reconciles.expect(&["a", "b"]).await;
    again.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn stopped_informer_ends_the_controller_with_an_error() {
    let server = ApiServer::new();
    let factory = SharedInformerFactory::new(server.client());
    let controller = Controller::new::<Pod>(&factory);
    let running = Running::start(controller.reconcile(|_, _| async { Ok::<_, Infallible>(Outcome::Done) }));
    running.reconciler.wait_until_running().await;
    factory.shutdown(Duration::from_secs(1)).await.unwrap();
    let error = running.end().await.unwrap_err();
    assert!(error.to_string().contains("informer pods in all namespaces has stopped"), "{error}");
    // A controller whose informer has already stopped does not start.
    let late =
        Controller::new::<Pod>(&factory).reconcile(|_, _| async { Ok::<_, Infallible>(Outcome::Done) });
    assert!(matches!(late.run().await, Err(ControllerError::InformerStopped { .. })));
}

#[tokio::test(start_paused = true)]
async fn keys_can_be_enqueued_while_running() {
    let server = ApiServer::new();
    let (sender, mut reconciles) = event_log();
    let factory = SharedInformerFactory::new(server.client());
    let controller = Controller::new::<Pod>(&factory).reconcile(move |key, _| {
        let _ = sender.send(key.to_string());
        async { Ok::<_, Infallible>(Outcome::Done) }
    });
    controller.enqueue(informer::Key::new("default", "early"));
    let running = Running::start(controller);
    running.reconciler.wait_until_running().await;
    running.reconciler.enqueue(informer::Key::new("default", "x"));
    reconciles.expect(&["default/x"]).await;
    running.stop().await.unwrap();
}
