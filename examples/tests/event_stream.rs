//! The event stream example against an embedded server.
#![allow(clippy::unwrap_used)]

use crate::common::cluster::{pod, until, with};
use crate::common::{Program, server};
use crate::programs::event_stream;
use informer::SharedInformer;
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::mpsc;

/// Starts the program with an output that buffers one line.
fn start(pods: &SharedInformer<Pod>) -> (Program, mpsc::Receiver<String>) {
    let (out, lines) = mpsc::channel(1);
    let pods = pods.clone();
    let program = Program::start(|stopped| async move {
        event_stream::run(&pods, out, async { drop(stopped.await) }).await
    });
    (program, lines)
}

#[tokio::test(start_paused = true)]
async fn every_state_is_printed_in_order() {
    let server = server();
    let mut versions = vec![version(&server.create(&pod("shop", "web")).unwrap())];
    let pods = SharedInformer::new(server.client());
    let (program, mut lines) = start(&pods);
    assert_eq!(lines.recv().await.unwrap(), format!("+ shop/web {}", versions[0]));
    // Faster than they are read, but within the capacity.
    for number in 0..50 {
        let changed = with(pod("shop", "web"), "/metadata/labels/app", number.to_string());
        versions.push(version(&server.update(&changed).unwrap()));
    }
    for step in versions.windows(2) {
        assert_eq!(lines.recv().await.unwrap(), format!("~ shop/web {} -> {}", step[0], step[1]));
    }
    // A pod is marked as deleted first, which is a separate state.
    server.delete("v1", "pods", Some("shop"), "web").unwrap();
    assert!(lines.recv().await.unwrap().starts_with("~ shop/web"));
    assert_eq!(lines.recv().await.unwrap(), "- shop/web");
    program.stop().await;
    assert_eq!(lines.recv().await, None);
    until(|| server.open_watches() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn slow_reader_is_notified_and_ends_at_the_newest_state() {
    let server = server();
    let mut newest = version(&server.create(&pod("shop", "web")).unwrap());
    let pods = SharedInformer::new(server.client());
    let (program, mut lines) = start(&pods);
    until(|| lines.len() == 1).await;
    for number in 0..1000 {
        let changed = with(pod("shop", "web"), "/metadata/labels/app", number.to_string());
        newest = version(&server.update(&changed).unwrap());
    }
    until(|| pods.resource_version().is_some_and(|version| version.as_str() == newest)).await;
    let (mut delivered, mut skipped) = (0, 0);
    loop {
        let line = lines.recv().await.unwrap();
        if let Some(lagged) = line.strip_prefix("… lagged: ") {
            skipped += lagged.split_once(' ').unwrap().0.parse::<u64>().unwrap();
        } else {
            delivered += 1;
        }
        if line.ends_with(&format!("-> {newest}")) {
            break;
        }
    }
    assert!(delivered < 200, "{delivered}");
    assert_eq!(delivered + skipped, 1001);
    program.stop().await;
}

#[tokio::test(start_paused = true)]
async fn stops_although_its_output_is_not_read() {
    let server = server();
    for number in 0..10 {
        server.create(&pod("shop", &format!("web-{number}"))).unwrap();
    }
    let (program, lines) = start(&SharedInformer::new(server.client()));
    until(|| lines.len() == 1).await;
    program.stop().await;
}

fn version(object: &serde_json::Value) -> String {
    object["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}
