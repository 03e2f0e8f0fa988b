//! The shared factory example against an embedded server.
#![allow(clippy::unwrap_used)]

use crate::common::cluster::{pod, until};
use crate::common::{Program, output, rest, server};
use crate::programs::shared_factory;
use informer::SharedInformerFactory;
use informer_apiserver::{Verb, faults};

#[tokio::test(start_paused = true)]
async fn both_handlers_receive_events_of_one_watch() {
    let server = server();
    server.create(&pod("shop", "web-0")).unwrap();
    let factory = SharedInformerFactory::new(server.client());
    let (print, lines) = output();
    let running = factory.clone();
    let program = Program::start(|stopped| async move {
        shared_factory::run(&running, print, async { drop(stopped.await) }).await
    });
    until(|| server.open_watches() == 1 && lines.0.len() == 2).await;
    server.create(&pod("shop", "web-1")).unwrap();
    until(|| lines.0.len() == 4).await;
    server.delete("v1", "pods", Some("shop"), "web-0").unwrap();
    until(|| lines.0.len() >= 6).await;
    program.stop().await;

    // The handlers run concurrently: only the lines of each are ordered.
    let (counts, mut changes): (Vec<_>, Vec<_>) =
        rest(lines).await.into_iter().partition(|line| line.starts_with("pods in"));
    // A pod is marked as deleted first; whether that is a separate event depends on the speed of the handler.
    changes.retain(|line| !line.starts_with('~'));
    assert_eq!(changes, ["+ shop/web-0", "+ shop/web-1", "- shop/web-0"]);
    assert_eq!(counts, ["pods in shop: 1", "pods in shop: 2", "pods in shop: 1"]);
    let watches = server.recorded_requests().iter().filter(|seen| seen.verb == Verb::Watch).count();
    assert_eq!(watches, 1, "{:?}", server.recorded_requests());
    until(|| server.open_watches() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn fails_with_the_reason_if_pods_are_forbidden() {
    let server = server();
    let _forbidden = server.inject(faults::forbid("pods"));
    let factory = SharedInformerFactory::new(server.client());
    let error = shared_factory::run(&factory, |_| {}, std::future::pending()).await.unwrap_err().to_string();
    let start = "wait for sync: pods in all namespaces: forbidden: ";
    assert!(error.starts_with(start), "{error}");
}
