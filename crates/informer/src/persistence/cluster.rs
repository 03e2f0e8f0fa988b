//! The uid of the namespace `kube-system`, by which a cluster that was set up again is recognised.

use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use std::time::Duration;

/// The timeout of the request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Upper bound on the size of the response.
const MAX_BODY_BYTES: usize = 1 << 20;

/// The uid of a cluster, as far as it can be known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ClusterUid {
    Known(String),
    /// The user may not read the namespace, or it does not exist.
    Unknown,
    /// The server did not respond, or cannot respond now.
    NoResponse(String),
}

/// Requests the namespace `kube-system`.
pub(crate) async fn fetch_cluster_uid(client: &kube::Client) -> ClusterUid {
    match tokio::time::timeout(TIMEOUT, fetch(client)).await {
        Ok(Ok(uid)) => uid,
        Ok(Err(error)) => ClusterUid::NoResponse(crate::source::error_chain(&error)),
        Err(_) => ClusterUid::NoResponse(format!("no response within {TIMEOUT:?}")),
    }
}

async fn fetch(client: &kube::Client) -> Result<ClusterUid, kube::Error> {
    #[derive(serde::Deserialize)]
    struct Namespace {
        metadata: Metadata,
    }
    #[derive(serde::Deserialize)]
    struct Metadata {
        uid: String,
    }
    let request = Request::get("/api/v1/namespaces/kube-system").header("Accept", "application/json");
    let request = request.body(kube::client::Body::empty()).map_err(kube::Error::HttpError)?;
    let response = client.send(request).await?;
    let status = response.status();
    if !status.is_success() {
        let is_final = status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS;
        // A client whose credentials have expired gets other ones and can then read the namespace.
        let is_final = is_final && status != StatusCode::UNAUTHORIZED;
        return Ok(if is_final { ClusterUid::Unknown } else { ClusterUid::NoResponse(status.to_string()) });
    }
    let body = http_body_util::Limited::new(response.into_body(), MAX_BODY_BYTES).collect().await;
    let namespace = body.ok().and_then(|body| serde_json::from_slice::<Namespace>(&body.to_bytes()).ok());
    Ok(namespace.map_or(ClusterUid::Unknown, |namespace| ClusterUid::Known(namespace.metadata.uid)))
}
