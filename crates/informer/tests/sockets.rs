//! An informer over real loopback sockets with the clients that users have: every failure becomes a named
//! state.
#![allow(clippy::unwrap_used)]

use crate::loopback::{Loopback, Reply};
use informer::source::WatchListPolicy;
use informer::status::InformerState;
use informer::{InformerOptions, SharedInformer};
use k8s_openapi::api::core::v1::Pod;
use kube::{Client, Config};
use std::io::Write as _;
use std::time::Duration;

const LIST: &str = r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},
    "items":[{"metadata":{"name":"a","namespace":"ns","uid":"u","resourceVersion":"3"}}]}"#;

fn config(server: &Loopback) -> Config {
    Config::new(server.url("http"))
}

fn options() -> InformerOptions {
    InformerOptions::default()
        .watch_list(WatchListPolicy::Never)
        .response_header_timeout(Duration::from_millis(300))
        .backoff(Duration::from_millis(20), Duration::from_millis(50))
}

/// Waits until the state of an unsynced informer contains `expected`.
async fn wait_for_state(pods: &SharedInformer<Pod>, expected: &str) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while !pods.status().state.to_string().contains(expected) {
        assert!(tokio::time::Instant::now() < deadline, "no `{expected}`, but {}", pods.status().state);
        let _ = pods.wait_for_sync(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn c7_throttling_hidden_by_the_default_client_is_a_named_state() {
    for status in ["429 Too Many Requests", "503 Service Unavailable", "504 Gateway Timeout"] {
        let server = Loopback::start([Reply::new(status, &[("retry-after", "1")], "")]).await;
        let client = Client::try_from(config(&server)).unwrap();
        let pods = SharedInformer::<Pod>::with_options(client, options());
        pods.start();
        wait_for_state(&pods, "no response headers within 300ms").await;
        assert!(matches!(pods.status().state, InformerState::BackingOff { .. } | InformerState::Connecting));
        pods.shutdown(Duration::from_secs(5)).await.unwrap();
    }
}

#[tokio::test]
async fn c7_c11_throttling_is_reported_and_retried_with_the_recommended_client() {
    let list = Reply::new("200 OK", &[("content-type", "application/json")], LIST);
    let watch = Reply::endless("200 OK", &[("content-type", "application/json")], [""; 0]);
    for status in ["429 Too Many Requests", "503 Service Unavailable", "504 Gateway Timeout"] {
        let refusal = Reply::new(status, &[], "");
        let server = Loopback::start([refusal.clone(), refusal, list.clone(), watch.clone()]).await;
        let client = informer::client(config(&server)).unwrap();
        let pods = SharedInformer::<Pod>::with_options(client, options());
        pods.start();
        pods.wait_for_sync(Duration::from_secs(30)).await.unwrap();
        let counters = pods.status().reflector;
        assert_eq!((counters.lists, counters.failures), (3, 2), "each rejection was counted");
        pods.shutdown(Duration::from_secs(5)).await.unwrap();
    }
}

#[tokio::test]
async fn gzip_list_is_read_through_the_default_client() {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(LIST.as_bytes()).unwrap();
    let headers = [("content-type", "application/json"), ("content-encoding", "gzip")];
    let list = Reply::new("200 OK", &headers, gzip.finish().unwrap());
    let watch = Reply::endless("200 OK", &[("content-type", "application/json")], [""; 0]);
    let server = Loopback::start([list, watch]).await;
    let pods = SharedInformer::<Pod>::with_options(Client::try_from(config(&server)).unwrap(), options());
    pods.start();
    pods.wait_for_sync(Duration::from_secs(30)).await.unwrap();
    assert_eq!(pods.lister().namespace("ns").get("a").unwrap().resource_version().as_str(), "3");
    pods.shutdown(Duration::from_secs(5)).await.unwrap();
}
