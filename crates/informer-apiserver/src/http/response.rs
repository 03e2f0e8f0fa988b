//! Responses: bodies, statuses and streamed lists.
//!
//! [`list`] encodes a list one chunk at a time, from a snapshot of its objects, while it is sent.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use http::{Response, StatusCode, header};
use http_body::{Body, Frame, SizeHint};
use informer_objects::status::Status;

use crate::model::{Filter, Listing, ObjectShape, Page, Resource, View, states_after};

/// Size at which a chunk of a list or a watch ends. The last object may exceed it.
pub(crate) const CHUNK_BYTES: usize = 64 * 1024;

/// The body of a response.
pub struct ResponseBody(Kind);

enum Kind {
    Once(Option<Bytes>),
    Stream(BoxStream<'static, Result<Bytes, BodyError>>),
    /// The connection breaks before headers are sent.
    Cut,
}

impl ResponseBody {
    pub(crate) fn whole(bytes: Bytes) -> Self {
        ResponseBody(Kind::Once(Some(bytes)))
    }

    pub(crate) fn chunks(stream: BoxStream<'static, Result<Bytes, BodyError>>) -> Self {
        // A body may be polled after its end; a plain stream may not.
        ResponseBody(Kind::Stream(stream.fuse().boxed()))
    }

    /// Returns whether the connection breaks before headers are sent.
    pub(crate) fn is_cut(&self) -> bool {
        matches!(self.0, Kind::Cut)
    }
}

/// The error of a body that ended early, because of a fault rule, a restore or a restart.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the connection was interrupted")]
#[non_exhaustive]
pub struct BodyError;

/// A response of the server.
pub(crate) type ServerResponse = Response<ResponseBody>;

impl ResponseBody {
    pub(crate) fn empty() -> Self {
        ResponseBody(Kind::Once(None))
    }
}

impl std::fmt::Debug for ResponseBody {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self.0 {
            Kind::Once(_) => "ResponseBody(once)",
            Kind::Stream(_) => "ResponseBody(stream)",
            Kind::Cut => "ResponseBody(cut)",
        })
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.0 {
            Kind::Once(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Kind::Stream(chunks) => {
                chunks.poll_next_unpin(context).map(|chunk| chunk.map(|chunk| chunk.map(Frame::data)))
            }
            Kind::Cut => Poll::Ready(Some(Err(BodyError))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.0, Kind::Once(None))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Once(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Kind::Stream(_) | Kind::Cut => SizeHint::default(),
        }
    }
}

/// Returns a JSON response, with the trailing newline of kube-apiserver.
pub(crate) fn json(code: u16, mut body: Vec<u8>) -> ServerResponse {
    body.push(b'\n');
    build(code, "application/json", Kind::Once(Some(Bytes::from(body))))
}

/// Returns a response of exactly these bytes, with the given content type.
pub(crate) fn bytes(code: u16, content_type: &'static str, body: Bytes) -> ServerResponse {
    build(code, content_type, Kind::Once(Some(body)))
}

/// Returns a response of exactly these bytes, without a newline added. The content type is JSON until the
/// caller replaces it.
pub(crate) fn raw(code: u16, body: Bytes) -> ServerResponse {
    build(code, "application/json", Kind::Once(Some(body)))
}

pub(crate) fn text(code: u16, body: &'static str) -> ServerResponse {
    let kind = Kind::Once(Some(Bytes::from_static(body.as_bytes())));
    build(code, "text/plain; charset=utf-8", kind)
}

/// Returns the plain text 404 of kube-apiserver, for unknown paths and unknown groups.
pub(crate) fn page_not_found() -> ServerResponse {
    let mut response = text(404, "404 page not found\n");
    response
        .headers_mut()
        .insert(header::X_CONTENT_TYPE_OPTIONS, header::HeaderValue::from_static("nosniff"));
    response
}

pub(crate) fn status(status: &Status) -> ServerResponse {
    let mut response = json(status.code, status.to_json());
    if let Some(seconds) = status.retry_after() {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

pub(crate) fn chunks(stream: BoxStream<'static, Result<Bytes, BodyError>>) -> ServerResponse {
    build(200, "application/json", ResponseBody::chunks(stream).0)
}

/// Returns a response that breaks the connection before headers are sent.
pub(crate) fn cut() -> ServerResponse {
    Response::new(ResponseBody(Kind::Cut))
}

/// Encodes a page of a list as JSON.
pub(crate) fn page(resource: &Resource, list: &ListHead, view: &View, page: &Page) -> Vec<u8> {
    let (head, tail) = list.around(resource, page.items.is_empty());
    let length: usize = page.items.iter().map(|state| state.len() + 1).sum();
    let mut out = Vec::with_capacity(length + 256);
    out.extend_from_slice(&head);
    for (index, state) in page.items.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        state.write(view, state.version, &mut out);
    }
    out.extend_from_slice(&tail);
    out
}

/// Returns a complete list, encoded while it is sent.
pub(crate) fn list(
    resource: &Resource,
    head: &ListHead,
    view: View,
    listing: Listing,
    filter: Filter,
) -> ServerResponse {
    let empty = listing.states(&filter).next().is_none();
    let (head, mut tail) = head.around(resource, empty);
    if empty {
        return json(200, [head, tail].concat());
    }
    tail.push(b'\n');
    let writer = ListWriter { listing, filter, view, tail: Some(tail), pending: head, first: true };
    let stream = stream::unfold(writer, |mut writer| async move {
        let chunk = writer.next_chunk()?;
        Some((Ok(chunk), writer))
    });
    chunks(stream.boxed())
}

/// The fields of a list besides its items.
pub(crate) struct ListHead {
    pub(crate) metadata_only: bool,
    pub(crate) api_version: String,
    pub(crate) version: u64,
    /// The continue token.
    pub(crate) next: Option<String>,
    pub(crate) remaining: Option<usize>,
    /// The shard selector of the list.
    pub(crate) shard: Option<String>,
}

impl ListHead {
    /// Returns the metadata of the list as JSON.
    pub(crate) fn metadata(&self) -> serde_json::Value {
        let mut metadata = serde_json::json!({"resourceVersion": self.version.to_string()});
        if let Some(next) = &self.next {
            metadata["continue"] = serde_json::json!(next);
        }
        if let Some(remaining) = self.remaining {
            metadata["remainingItemCount"] = serde_json::json!(remaining);
        }
        metadata
    }

    /// Returns the text before and after the items, as kube-apiserver writes it: in a list of custom objects
    /// keys are sorted and `continue` is never omitted; the items of an empty metadata list are `null`.
    fn around(&self, resource: &Resource, empty: bool) -> (Vec<u8>, Vec<u8>) {
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let version = format!(r#""resourceVersion":"{}""#, self.version);
        let next = self.next.as_ref().map(|next| format!(r#""continue":{}"#, quoted(next)));
        let remaining = self.remaining.map(|count| format!(r#""remainingItemCount":{count}"#));
        let shard =
            self.shard.as_ref().map(|shard| format!(r#""shardInfo":{{"selector":{}}}"#, quoted(shard)));
        if resource.custom && !self.metadata_only {
            let next = next.unwrap_or_else(|| r#""continue":"""#.to_owned());
            let metadata = [Some(next), remaining, Some(version), shard];
            let metadata = metadata.into_iter().flatten().collect::<Vec<_>>().join(",");
            let head = format!(r#"{{"apiVersion":{},"items":["#, quoted(&self.api_version));
            let tail = format!(r#"],"kind":{},"metadata":{{{metadata}}}}}"#, quoted(&resource.list_kind));
            return (head.into_bytes(), tail.into_bytes());
        }
        let metadata = [Some(version), next, remaining, shard];
        let metadata = metadata.into_iter().flatten().collect::<Vec<_>>().join(",");
        let (kind, api_version) = if self.metadata_only {
            ("PartialObjectMetadataList", "meta.k8s.io/v1")
        } else {
            (resource.list_kind.as_str(), self.api_version.as_str())
        };
        let head = format!(
            r#"{{"kind":{},"apiVersion":{},"metadata":{{{metadata}}},"items":"#,
            quoted(kind),
            quoted(api_version)
        );
        if self.metadata_only && empty {
            return (head.into_bytes(), b"null}".to_vec());
        }
        (format!("{head}[").into_bytes(), b"]}".to_vec())
    }
}

struct ListWriter {
    listing: Listing,
    filter: Filter,
    view: View,
    /// Taken when the last item is written.
    tail: Option<Vec<u8>>,
    /// The start of the list, until the first chunk is written.
    pending: Vec<u8>,
    /// Whether no item was written yet.
    first: bool,
}

impl ListWriter {
    fn next_chunk(&mut self) -> Option<Bytes> {
        self.tail.as_ref()?;
        let mut out = std::mem::take(&mut self.pending);
        out.reserve(CHUNK_BYTES);
        let mut last = None;
        for state in states_after(&self.listing.objects, self.listing.after.as_deref(), &self.filter) {
            if !std::mem::take(&mut self.first) {
                out.push(b',');
            }
            state.write(&self.view, state.version, &mut out);
            if out.len() >= CHUNK_BYTES {
                last = Some(state);
                break;
            }
        }
        match last {
            Some(last) => self.listing.after = Some(last.key()),
            None => out.extend_from_slice(&self.tail.take()?),
        }
        Some(Bytes::from(out))
    }
}

/// Returns the parts of its items that a list shows.
pub(crate) fn item_shape(resource: &Resource, metadata_only: bool) -> ObjectShape {
    match (metadata_only, resource.custom) {
        (true, _) => ObjectShape::Metadata,
        (false, true) => ObjectShape::Whole,
        (false, false) => ObjectShape::Item,
    }
}

fn build(code: u16, content_type: &'static str, kind: Kind) -> ServerResponse {
    let mut response = Response::new(ResponseBody(kind));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-cache, private"));
    response
}
