//! The ways to send requests: to the service in this process, or through a client and a socket.

use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt};
use http::Request;
use http_body_util::{BodyExt, BodyStream};
use informer_apiserver::ApiService;
use kube::client::Body;
use tower::ServiceExt;

pub(crate) enum Transport {
    Process(ApiService),
    Socket(kube::Client),
}

/// The chunks of a watch.
pub(crate) type Chunks = BoxStream<'static, Bytes>;

impl Transport {
    /// Opens a watch.
    pub(crate) async fn get(&self, path: &str, accept: &str) -> Chunks {
        let request = Request::get(path).header("accept", accept).body(Body::empty()).unwrap();
        match self {
            Transport::Process(service) => {
                let response = service.clone().oneshot(request).await.unwrap();
                assert_eq!(response.status(), 200, "{path}");
                let frames = BodyStream::new(response.into_body());
                frames.map(|frame| frame.unwrap().into_data().unwrap_or_default()).boxed()
            }
            Transport::Socket(client) => {
                let response = client.send(request).await.unwrap();
                assert_eq!(response.status(), 200, "{path}");
                let frames = BodyStream::new(response.into_body());
                frames.map(|frame| frame.unwrap().into_data().unwrap_or_default()).boxed()
            }
        }
    }

    /// Writes an object.
    pub(crate) async fn put(&self, path: &str, body: String) {
        let request =
            Request::put(path).header("content-type", "application/json").header("user-agent", "load/1");
        let request = request.body(Body::from(body.into_bytes())).unwrap();
        let (status, body) = match self {
            Transport::Process(service) => {
                let response = service.clone().oneshot(request).await.unwrap();
                (response.status(), response.into_body().collect().await.unwrap().to_bytes())
            }
            Transport::Socket(client) => {
                let response = client.send(request).await.unwrap();
                (response.status(), response.into_body().collect().await.unwrap().to_bytes())
            }
        };
        assert_eq!(status, 200, "{path}: {}", String::from_utf8_lossy(&body));
    }
}
