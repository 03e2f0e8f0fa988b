//! How a controller ends, and begins again.

use crate::cluster::{create_pods, pass, until};
use crate::{Running, diary};
use informer::{Controller, ControllerError, ControllerState, Outcome, SharedInformerFactory};
use informer_apiserver::ApiServer;
use k8s_openapi::api::core::v1::Pod;
use std::convert::Infallible;
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn a_stop_begins_no_turn_and_waits_for_those_that_have_begun() {
    let server = ApiServer::new();
    create_pods(&server, &["a", "b"]);
    let (sender, mut turns) = diary();
    let factory = SharedInformerFactory::new(server.client());
    let mut running = Running::start(Controller::new::<Pod>(&factory).reconcile(move |key, ctx| {
        let sender = sender.clone();
        let _ = sender.send(format!("{} begins", key.name()));
        async move {
            ctx.stopping().await;
            pass(Duration::from_secs(20)).await;
            let _ = sender.send(format!("{} ends, stopping: {}", key.name(), ctx.is_stopping()));
            Ok::<_, Infallible>(Outcome::Done)
        }
    }));
    turns.expect(&["a begins"]).await;
    drop(running.stop.take());
    until(|| running.reconciler.state() == ControllerState::Stopping).await;
    create_pods(&server, &["c"]);
    let reconciler = running.reconciler.clone();
    running.end().await.unwrap();
    assert_eq!(turns.take(), ["a ends, stopping: true"]);
    assert_eq!(reconciler.state(), ControllerState::Idle);
}

#[tokio::test(start_paused = true)]
async fn turns_that_do_not_end_in_time_are_dropped_and_named() {
    struct Says(tokio::sync::mpsc::UnboundedSender<String>);
    impl Drop for Says {
        fn drop(&mut self) {
            let _ = self.0.send("dropped".to_owned());
        }
    }
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let (sender, mut turns) = diary();
    let factory = SharedInformerFactory::new(server.client());
    let controller =
        Controller::new::<Pod>(&factory).name("slow").grace(Duration::from_secs(3)).timeout(Duration::MAX);
    let running = Running::start(controller.reconcile(move |_, _| {
        let says = Says(sender.clone());
        let _ = sender.send("begins".to_owned());
        async move {
            let _says = says;
            std::future::pending::<Result<Outcome, Infallible>>().await
        }
    }));
    turns.expect(&["begins"]).await;
    let began = tokio::time::Instant::now();
    let error = running.stop().await.unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(turns.take(), ["dropped"]);
    assert_eq!(
        error.to_string(),
        "controller slow: 1 turns had not ended after 3s and were dropped: default/a"
    );
}

/// A turn that waits for nothing cannot be dropped: the stop says so, and the next run does not begin beside it.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_turn_that_does_not_let_go_is_reported_and_not_joined_by_another() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let (sender, mut turns) = diary();
    let factory = SharedInformerFactory::new(server.client());
    let (let_go, gate) = std::sync::mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(gate);
    let blocks = std::sync::Arc::new((sender, gate));
    let controller = Controller::new::<Pod>(&factory).grace(Duration::ZERO).reconcile(move |_, _| {
        let blocks = std::sync::Arc::clone(&blocks);
        async move {
            let _ = blocks.0.send("begins".to_owned());
            // The thread does nothing else until the test says so, or is over.
            let _over = blocks.1.lock().unwrap().recv().is_err();
            let _ = blocks.0.send("ends".to_owned());
            Ok::<_, Infallible>(Outcome::Done)
        }
    });
    let running = Running::start(controller.clone());
    turns.expect(&["begins"]).await;
    let error = running.stop().await.unwrap_err();
    assert!(matches!(error, ControllerError::TurnsDropped { stuck: true, .. }), "{error}");
    assert!(
        error.to_string().ends_with("not all of them let go (is something blocking its thread?)"),
        "{error}"
    );
    let again = Running::start(controller.clone());
    let waits = |state: &ControllerState| matches!(state, ControllerState::Waiting { reasons, .. } if reasons[0].contains("earlier run"));
    until(|| waits(&controller.state())).await;
    assert!(turns.is_empty());
    let_go.send(()).unwrap();
    turns.expect(&["ends", "begins"]).await;
    drop(let_go);
    turns.expect(&["ends"]).await;
    again.stop().await.unwrap();
}

/// Leadership is lost without a warning: the future is dropped, and so is every turn.
#[tokio::test(start_paused = true)]
async fn dropping_a_run_ends_its_turns_and_it_can_run_again() {
    let server = ApiServer::new();
    create_pods(&server, &["a", "b"]);
    let (sender, mut turns) = diary();
    let factory = SharedInformerFactory::new(server.client());
    let controller = Controller::new::<Pod>(&factory).concurrency(4).reconcile(move |key, ctx| {
        let sender = sender.clone();
        let _ = sender.send(key.name().to_owned());
        async move {
            ctx.stopping().await;
            pass(Duration::from_secs(1)).await;
            let _ = sender.send(format!("{} went on", key.name()));
            Ok::<_, Infallible>(Outcome::Done)
        }
    });
    let running = Running::start(controller.clone());
    turns.expect(&["a", "b"]).await;
    assert!(matches!(controller.run().await, Err(ControllerError::RunsAlready { .. })));
    running.task.abort();
    until(|| controller.state() == ControllerState::Idle).await;
    pass(Duration::from_mins(1)).await;
    assert!(turns.is_empty());
    // A new run begins with everything.
    let again = Running::start(controller);
    turns.expect(&["a", "b"]).await;
    again.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn informers_that_stop_end_the_controller_with_an_error() {
    let server = ApiServer::new();
    let factory = SharedInformerFactory::new(server.client());
    let controller = Controller::new::<Pod>(&factory);
    let running = Running::start(controller.reconcile(|_, _| async { Ok::<_, Infallible>(Outcome::Done) }));
    running.reconciler.running().await;
    factory.shutdown(Duration::from_secs(1)).await.unwrap();
    let error = running.end().await.unwrap_err();
    assert!(error.to_string().contains("the informer for pods in all namespaces has stopped"), "{error}");
    // One that has stopped before does not begin.
    let late =
        Controller::new::<Pod>(&factory).reconcile(|_, _| async { Ok::<_, Infallible>(Outcome::Done) });
    assert!(matches!(late.run().await, Err(ControllerError::SourceStopped { .. })));
}

#[tokio::test(start_paused = true)]
async fn keys_are_taken_by_hand_while_it_runs() {
    let server = ApiServer::new();
    let (sender, mut turns) = diary();
    let factory = SharedInformerFactory::new(server.client());
    let controller = Controller::new::<Pod>(&factory).reconcile(move |key, _| {
        let _ = sender.send(key.to_string());
        async { Ok::<_, Infallible>(Outcome::Done) }
    });
    controller.enqueue(informer::Key::new("default", "early"));
    let running = Running::start(controller);
    running.reconciler.running().await;
    running.reconciler.enqueue(informer::Key::new("default", "x"));
    turns.expect(&["default/x"]).await;
    running.stop().await.unwrap();
}
