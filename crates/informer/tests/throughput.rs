//! Lists are requested depending on the speed of the previous ones: as streams, or as gzip lists over a slow
//! connection.
#![allow(clippy::unwrap_used)]

use crate::cluster::{TIMEOUT, pod, with};
use futures::stream::StreamExt as _;
use http_body_util::{BodyDataStream, StreamBody};
use informer::source::WatchListPolicy;
use informer::{InformerOptions, SharedInformerFactory};
use informer_apiserver::ApiServer;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::client::Body;
use serde_json::json;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tower::ServiceExt as _;

const PIECE_BYTES: usize = 16 << 10;

/// The resource, whether its list is requested as a stream, and the accepted content encoding.
type RequestedList = (String, bool, String);

/// A client over a connection that takes this long per kilobyte, and the requests it sent.
fn connected(server: &ApiServer, kilobyte: Duration) -> (kube::Client, Arc<Mutex<Vec<RequestedList>>>) {
    let requested = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&requested);
    let service = server.service().map_request(move |request: http::Request<Body>| {
        let query = request.uri().query().unwrap_or_default();
        let stream = query.contains("sendInitialEvents=true");
        if stream || !query.contains("watch=1") {
            let resource = request.uri().path().rsplit('/').next().unwrap().to_owned();
            let compression = request.headers()["accept-encoding"].to_str().unwrap().to_owned();
            recorded.lock().unwrap().push((resource, stream, compression));
        }
        request
    });
    let service = service.map_response(move |response: http::Response<_>| {
        response.map(|body| {
            // Small pieces, as over a network.
            let pieces = BodyDataStream::new(body).flat_map(|chunk| {
                let pieces: Vec<_> = match chunk {
                    Ok(chunk) => (0..chunk.len())
                        .step_by(PIECE_BYTES)
                        .map(|at| Ok(chunk.slice(at..chunk.len().min(at + PIECE_BYTES))))
                        .collect(),
                    Err(error) => vec![Err(error)],
                };
                futures::stream::iter(pieces)
            });
            let pieces = pieces.then(move |piece| async move {
                let size = piece.as_ref().map_or(0, bytes::Bytes::len);
                let takes = kilobyte * u32::try_from(size / 1024).unwrap();
                if !takes.is_zero() {
                    let mut clock = tokio::time::interval_at(tokio::time::Instant::now() + takes, TIMEOUT);
                    clock.tick().await;
                }
                piece.map(hyper::body::Frame::data)
            });
            StreamBody::new(pieces)
        })
    });
    (kube::Client::new(service, "default"), requested)
}

/// How the second kind of a factory is requested after the first one transferred two megabytes.
async fn second_list(kilobyte: Duration, options: InformerOptions) -> RequestedList {
    let server = ApiServer::new();
    for number in 0..250 {
        let pod = pod("default", &format!("p{number}"));
        server.create(&with(pod, "/metadata/annotations", json!({"big": "x".repeat(8192)}))).unwrap();
    }
    let (client, requested) = connected(&server, kilobyte);
    let factory = SharedInformerFactory::with_options(client, options);
    let pods = factory.informer::<Pod>();
    pods.start();
    pods.wait_for_sync(TIMEOUT).await.unwrap();
    assert_eq!(pods.lister().len(), 250);
    let maps = factory.informer::<ConfigMap>();
    maps.start();
    maps.wait_for_sync(TIMEOUT).await.unwrap();
    let requested = requested.lock().unwrap();
    requested.iter().find(|(resource, ..)| resource == "configmaps").unwrap().clone()
}

#[track_caller]
fn check((_, stream, compression): &RequestedList, expected: (bool, &str)) {
    assert_eq!((*stream, &**compression), expected);
}

#[tokio::test(start_paused = true)]
async fn lists_over_a_fast_connection_are_streams() {
    check(&second_list(Duration::ZERO, InformerOptions::default()).await, (true, "identity"));
}

#[tokio::test(start_paused = true)]
async fn lists_over_a_slow_connection_are_gzip_lists() {
    check(&second_list(Duration::from_millis(1), InformerOptions::default()).await, (false, "gzip"));
}

#[tokio::test(start_paused = true)]
async fn explicit_options_override_the_measured_speed() {
    let slow = Duration::from_millis(1);
    let options = InformerOptions::default();
    check(&second_list(slow, options.clone().gzip_lists(false)).await, (true, "identity"));
    check(&second_list(slow, options.clone().watch_list(WatchListPolicy::Always)).await, (true, "identity"));
    check(&second_list(slow, options.clone().watch_list(WatchListPolicy::Never)).await, (false, "gzip"));
    let never = options.watch_list(WatchListPolicy::Never);
    check(&second_list(slow, never.clone().gzip_lists(false)).await, (false, "identity"));
    let fast = Duration::ZERO;
    check(&second_list(fast, never.gzip_lists(true)).await, (false, "gzip"));
}
