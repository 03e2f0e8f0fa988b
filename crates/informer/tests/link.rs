//! How sets are asked for follows from how fast the last ones came: as streams, or as compressed lists where the connection is slow.
#![allow(clippy::unwrap_used)]

#[path = "common/cluster.rs"]
mod cluster;

use cluster::{LONG, pod, with};
use futures::stream::StreamExt as _;
use http_body_util::{BodyDataStream, StreamBody};
use informer::{Options, SharedInformerFactory, WatchListPolicy};
use informer_apiserver::ApiServer;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::client::Body;
use serde_json::json;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tower::ServiceExt as _;

const PIECE: usize = 16 << 10;

/// The resource, whether its set is asked for as a stream, and which compression is allowed.
type Asked = (String, bool, String);

/// A client over a connection that brings a kilobyte in so much time, and what it asked for.
fn connected(server: &ApiServer, kilobyte: Duration) -> (kube::Client, Arc<Mutex<Vec<Asked>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&asked);
    let service = server.service().map_request(move |request: http::Request<Body>| {
        let query = request.uri().query().unwrap_or_default();
        let stream = query.contains("sendInitialEvents=true");
        if stream || !query.contains("watch=1") {
            let resource = request.uri().path().rsplit('/').next().unwrap().to_owned();
            let compression = request.headers()["accept-encoding"].to_str().unwrap().to_owned();
            notes.lock().unwrap().push((resource, stream, compression));
        }
        request
    });
    let service = service.map_response(move |response: http::Response<_>| {
        response.map(|body| {
            // As they come over a network: in small pieces.
            let pieces = BodyDataStream::new(body).flat_map(|chunk| {
                let pieces: Vec<_> = match chunk {
                    Ok(chunk) => (0..chunk.len())
                        .step_by(PIECE)
                        .map(|at| Ok(chunk.slice(at..chunk.len().min(at + PIECE))))
                        .collect(),
                    Err(error) => vec![Err(error)],
                };
                futures::stream::iter(pieces)
            });
            let pieces = pieces.then(move |piece| async move {
                let size = piece.as_ref().map_or(0, bytes::Bytes::len);
                let takes = kilobyte * u32::try_from(size / 1024).unwrap();
                if !takes.is_zero() {
                    let mut clock = tokio::time::interval_at(tokio::time::Instant::now() + takes, LONG);
                    clock.tick().await;
                }
                piece.map(hyper::body::Frame::data)
            });
            StreamBody::new(pieces)
        })
    });
    (kube::Client::new(service, "default"), asked)
}

/// How the second kind of a factory is asked for, after the first brought two megabytes.
async fn second_set(kilobyte: Duration, options: Options) -> Asked {
    let server = ApiServer::new();
    for number in 0..250 {
        let pod = pod("default", &format!("p{number}"));
        server.create(&with(pod, "/metadata/annotations", json!({"big": "x".repeat(8192)}))).unwrap();
    }
    let (client, asked) = connected(&server, kilobyte);
    let factory = SharedInformerFactory::with_options(client, options);
    let pods = factory.informer::<Pod>();
    pods.start();
    pods.wait_for_sync(LONG).await.unwrap();
    assert_eq!(pods.lister().len(), 250);
    let maps = factory.informer::<ConfigMap>();
    maps.start();
    maps.wait_for_sync(LONG).await.unwrap();
    let asked = asked.lock().unwrap();
    asked.iter().find(|(resource, ..)| resource == "configmaps").unwrap().clone()
}

#[track_caller]
fn check((_, stream, compression): &Asked, expected: (bool, &str)) {
    assert_eq!((*stream, &**compression), expected);
}

#[tokio::test(start_paused = true)]
async fn over_a_fast_connection_sets_are_streams() {
    check(&second_set(Duration::ZERO, Options::default()).await, (true, "identity"));
}

#[tokio::test(start_paused = true)]
async fn over_a_slow_connection_sets_are_compressed_lists() {
    check(&second_set(Duration::from_millis(1), Options::default()).await, (false, "gzip"));
}

#[tokio::test(start_paused = true)]
async fn whoever_says_how_has_it_so() {
    let slow = Duration::from_millis(1);
    let options = Options::default();
    check(&second_set(slow, options.clone().compress_lists(false)).await, (true, "identity"));
    check(&second_set(slow, options.clone().watch_list(WatchListPolicy::Always)).await, (true, "identity"));
    check(&second_set(slow, options.clone().watch_list(WatchListPolicy::Never)).await, (false, "gzip"));
    let never = options.watch_list(WatchListPolicy::Never);
    check(&second_set(slow, never.clone().compress_lists(false)).await, (false, "identity"));
    let fast = Duration::ZERO;
    check(&second_set(fast, never.compress_lists(true)).await, (false, "gzip"));
}
