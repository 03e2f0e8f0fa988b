//! [`ListWatch`]: a source made of two async functions.
//!
//! It encodes the objects as the JSON of an API server, so that the reflector reads them like any other
//! response: there is no second path into the cache, and the same guarantees hold. Invariant: what a function
//! returns, however wrong, becomes a body or a status, never a panic.

use super::{
    BoxError, Bytes, Consistency, ListRequest, Response, ResponseFuture, Source, WatchRequest, WatchStart,
};
use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::{self, BoxStream, Stream, StreamExt};
use informer_core::{FieldSelector, LabelSelector, ResourceVersion};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The size from which a chunk of a list is passed on.
const CHUNK_BYTES: usize = 64 << 10;

type Listed<K> = Result<(Vec<K>, ResourceVersion), ListWatchError>;
type Opened<K> = Result<Events<K>, ListWatchError>;
type Events<K> = BoxStream<'static, Result<WatchEvent<K>, ListWatchError>>;

/// A source made of two async functions, for objects that do not come from an API server; client-go's
/// `ListWatch`.
///
/// `list` returns all objects and the version of this state. `watch` is called with a version and returns a
/// stream of the changes after it, in the order of their versions. The objects are typed, or a
/// [`DynamicObject`](kube::core::DynamicObject) or JSON value with `metadata.name`. They are encoded as JSON, and
/// an informer or a [reflector](crate::cache::Reflector) reads them with the same guarantees as the responses of
/// an API server.
///
/// ```
/// use futures::stream;
/// use informer::source::{ListWatch, WatchEvent};
/// use informer::{InformerOptions, ResourceVersion, SharedInformer};
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use std::time::Duration;
///
/// fn map(name: &str, version: &str) -> ConfigMap {
///     let mut map = ConfigMap::default();
///     map.metadata.name = Some(name.to_owned());
///     map.metadata.resource_version = Some(version.to_owned());
///     map
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let source = ListWatch::new(
///     || async { Ok((vec![map("a", "1"), map("b", "2")], ResourceVersion::new("2"))) },
///     |version: ResourceVersion| async move {
///         // A real source returns the changes after `version`, or `ListWatchError::Expired` if it does not have
///         // them any more, or does not know `version`: then the informer lists again.
///         let changes = if version.as_str() == "2" { vec![Ok(WatchEvent::Added(map("c", "3")))] } else { vec![] };
///         Ok(futures::StreamExt::chain(stream::iter(changes), stream::pending()))
///     },
/// );
/// let maps = SharedInformer::<ConfigMap>::with_source(source, InformerOptions::default());
/// maps.start();
/// maps.wait_for_sync(Duration::from_secs(10)).await?;
/// maps.wait_for_resource_version(&ResourceVersion::new("3"), Duration::from_secs(10)).await?;
/// assert_eq!(maps.lister().len(), 3);
/// # Ok(())
/// # }
/// ```
///
/// # Versions
///
/// Versions are compared as numbers where they are numbers; others are only tested for equality. An object of a
/// list may have no `metadata.resourceVersion`. The object of an event needs one: it is the version from which
/// the next watch starts. An event without it ends the watch with an error.
///
/// `watch` must return [`Expired`](ListWatchError::Expired) for a version whose changes the source no longer has,
/// and also for one that is newer than its newest version. That happens after a restart in which the source lost
/// its counter: the version comes from the previous counter, and a stream of "the changes after it" would bring
/// nothing until the new counter has passed it. An event or a bookmark with a version below that of the watch ends
/// the watch as expired, too.
///
/// # Ends and errors
///
/// Each call is one attempt, and an error is reported and retried with backoff. A watch may end at any time; the
/// next one starts at the last version, after a delay if it ended early (C11). A stream without changes should
/// send a [bookmark](WatchEvent::Bookmark) about once a minute; otherwise `watch` is called again from time to
/// time, and now and then `list`, to notice a stream that hangs. The stream is dropped at the timeout of the
/// watch, after 5 to 10 minutes.
///
/// A call of `list`, or of `watch` until it returns its stream, is cancelled after two minutes: its future is
/// dropped, and the call is retried as a failed one. For a source that needs longer, set
/// [`response_header_timeout`](crate::InformerOptions::response_header_timeout): the limit is then twice this
/// timeout, and at least two minutes.
///
/// An object without a name is skipped and reported (C9). One that does not serialize has no name that could be
/// read: in a list, to skip it would look like its deletion, so the list fails; in a watch, its version is
/// unknown, so the watch ends with an error.
pub struct ListWatch<K> {
    list: Arc<dyn Fn() -> BoxFuture<'static, Listed<K>> + Send + Sync>,
    watch: Arc<dyn Fn(ResourceVersion) -> BoxFuture<'static, Opened<K>> + Send + Sync>,
    selectors: Arc<Selectors>,
}

/// A change in the stream of a [`ListWatch`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WatchEvent<K> {
    /// A new object. If it is known, it counts as modified.
    Added(K),
    /// A new state of an object. If it is not known, it counts as added.
    Modified(K),
    /// The last state of a deleted object, with the version of the deletion.
    Deleted(K),
    /// There are no further changes up to this version.
    Bookmark(ResourceVersion),
}

/// The error of a function of a [`ListWatch`], or of its stream.
///
/// Messages do not repeat their cause; print the chain of `source()`s to see it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListWatchError {
    /// The source cannot continue from the requested version: it is too old, or newer than the newest version
    /// of the source. The informer lists again.
    #[error("the requested version has expired")]
    Expired,
    /// The caller may not read the objects. Waiting for a sync ends; the request is retried after 30 to 60 s.
    #[error("the list or watch is forbidden")]
    Forbidden(#[source] BoxError),
    /// The source cannot respond now.
    #[error("the source is unavailable")]
    Unavailable {
        /// The minimum delay before the next request, in whole seconds; `None` leaves it to the backoff.
        retry_after: Option<Duration>,
        /// The cause.
        source: BoxError,
    },
    /// Any other error, retried with backoff.
    #[error("the list or watch failed")]
    Failed(#[source] BoxError),
}

impl ListWatchError {
    /// Creates an error that is retried with backoff, for `map_err`.
    pub fn failed(cause: impl Into<BoxError>) -> Self {
        Self::Failed(cause.into())
    }

    fn code(&self) -> (u16, &'static str) {
        match self {
            Self::Expired => (410, "Expired"),
            Self::Forbidden(_) => (403, "Forbidden"),
            Self::Unavailable { .. } => (503, "ServiceUnavailable"),
            Self::Failed(_) => (500, "InternalError"),
        }
    }

    /// Returns the error as an API server describes it.
    fn status(&self) -> Value {
        let (code, reason) = self.code();
        let retry_after = match self {
            Self::Unavailable { retry_after, .. } => retry_after.map(|delay| delay.as_secs()),
            _ => None,
        };
        json!({
            "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "reason": reason,
            "message": super::error_chain(self), "details": {"retryAfterSeconds": retry_after},
        })
    }

    fn into_response(self) -> Response {
        let (code, _) = self.code();
        Response::from_chunks(code, [self.status().to_string()]).with_content_type("application/json")
    }
}

impl<K: Serialize + Send + 'static> ListWatch<K> {
    /// Creates a source from two functions.
    ///
    /// `list` returns all objects and the version of this state; `watch` returns the changes after a version, or
    /// [`ListWatchError::Expired`] if the source no longer has them, or if the version is newer than its newest
    /// one. See [Versions](Self#versions).
    pub fn new<List, Watch, Changes>(
        list: impl Fn() -> List + Send + Sync + 'static,
        watch: impl Fn(ResourceVersion) -> Watch + Send + Sync + 'static,
    ) -> Self
    where
        List: Future<Output = Result<(Vec<K>, ResourceVersion), ListWatchError>> + Send + 'static,
        Watch: Future<Output = Result<Changes, ListWatchError>> + Send + 'static,
        Changes: Stream<Item = Result<WatchEvent<K>, ListWatchError>> + Send + 'static,
    {
        Self {
            list: Arc::new(move || list().boxed()),
            watch: Arc::new(move |version| watch(version).map(|opened| opened.map(StreamExt::boxed)).boxed()),
            selectors: Arc::default(),
        }
    }

    /// Selects objects by their labels, before they reach the reader of this source.
    ///
    /// As with an API server, an object that no longer matches is deleted for the reader. The `last` state of
    /// that [deletion](crate::Event::Deleted) is the new one, which no longer matches; kube-apiserver sends the
    /// last one that did.
    #[must_use]
    pub fn label_selector(mut self, selector: LabelSelector) -> Self {
        Arc::make_mut(&mut self.selectors).labels = selector;
        self
    }

    /// Selects objects by any of their fields, for example `spec.nodeName=node-1`.
    ///
    /// A field that is missing or not a scalar has the empty string as its value.
    #[must_use]
    pub fn field_selector(mut self, selector: FieldSelector) -> Self {
        Arc::make_mut(&mut self.selectors).fields = selector;
        self
    }
}

impl<K: Serialize + Send + 'static> Source for ListWatch<K> {
    fn list(&self, request: ListRequest) -> ResponseFuture {
        let (list, selectors) = (Arc::clone(&self.list), Arc::clone(&self.selectors));
        Box::pin(async move {
            // The probe asks whether the source still has the version. `watch` has answered that: it must return
            // `Expired` for a version that the source does not have, an old or a future one.
            if let (true, Consistency::NotOlderThan(version)) = (request.version_only, &request.consistency) {
                return Ok(Response::ok(list_start(version) + "]}"));
            }
            let (objects, version) = match list().await {
                Ok(listed) => listed,
                Err(error) => return Ok(error.into_response()),
            };
            Ok(match &request.consistency {
                // An audit compares two lists of one version.
                Consistency::Exact(exact) if *exact != version => ListWatchError::Expired.into_response(),
                _ => match list_body(objects, &version, &selectors).await {
                    Ok(chunks) => json_response(stream::iter(chunks).then(|chunk| async {
                        tokio::task::yield_now().await;
                        chunk
                    })),
                    Err(error) => error.into_response(),
                },
            })
        })
    }

    fn watch(&self, request: WatchRequest) -> ResponseFuture {
        let (watch, selectors) = (Arc::clone(&self.watch), Arc::clone(&self.selectors));
        Box::pin(async move {
            let WatchStart::After(version) = request.start else {
                let status = json!({"kind": "Status", "code": 422, "reason": "Invalid"});
                return Ok(Response::from_chunks(422, [status.to_string()]));
            };
            match watch(version.clone()).await {
                Ok(events) => {
                    let frames = events.map(move |event| frame(event, &version, &selectors));
                    Ok(json_response(frames.take_until(tokio::time::sleep(request.timeout))))
                }
                Err(error) => Ok(error.into_response()),
            }
        })
    }

    fn supports_watch_lists(&self) -> bool {
        false
    }
}

fn json_response(body: impl Stream<Item = String> + Send + 'static) -> Response {
    Response::new(200, body.map(|chunk| Ok(Bytes::from(chunk)))).with_content_type("application/json")
}

fn list_start(version: &ResourceVersion) -> String {
    format!(r#"{{"metadata":{},"items":["#, json!({"resourceVersion": version.as_str()}))
}

/// Returns the body of a list in chunks. Between them, its encoding and its reading yield, so that a long list does
/// not occupy the thread.
///
/// It is encoded before anything of it is sent, so that an object that does not serialize fails the list. Each
/// object is freed when it is encoded, so that a long list does not take its size twice.
async fn list_body<K: Serialize>(
    objects: Vec<K>,
    version: &ResourceVersion,
    selectors: &Selectors,
) -> Result<Vec<String>, ListWatchError> {
    let (mut chunks, mut chunk, mut separator) = (Vec::new(), list_start(version), "");
    for (index, object) in objects.into_iter().enumerate() {
        let mut item = to_json(&object, || format!("object {index} of the list"))?;
        if !selectors.match_object(&item) {
            continue;
        }
        if let Some(metadata) = item.get_mut("metadata").and_then(Value::as_object_mut)
            && !has_version(metadata)
        {
            metadata.insert("resourceVersion".to_owned(), "0".into());
        }
        chunk.push_str(separator);
        chunk.push_str(&item.to_string());
        separator = ",";
        if chunk.len() >= CHUNK_BYTES {
            chunks.push(std::mem::take(&mut chunk));
            tokio::task::yield_now().await;
        }
    }
    chunk.push_str("]}");
    chunks.push(chunk);
    Ok(chunks)
}

/// Returns a frame of a watch that started after `start`.
fn frame<K: Serialize>(
    event: Result<WatchEvent<K>, ListWatchError>,
    start: &ResourceVersion,
    selectors: &Selectors,
) -> String {
    let frame = event.and_then(|event| encode_event(&event, start, selectors));
    let (kind, object) = frame.unwrap_or_else(|error| ("ERROR", error.status()));
    format!("{}\n", json!({"type": kind, "object": object}))
}

/// Returns the type and the object of the frame for an event.
fn encode_event<K: Serialize>(
    event: &WatchEvent<K>,
    start: &ResourceVersion,
    selectors: &Selectors,
) -> Result<(&'static str, Value), ListWatchError> {
    let encode = |object| to_json(object, || "the object of an event".to_owned());
    let (kind, object) = match event {
        WatchEvent::Added(object) => ("ADDED", encode(object)?),
        WatchEvent::Modified(object) => ("MODIFIED", encode(object)?),
        WatchEvent::Deleted(object) => ("DELETED", encode(object)?),
        WatchEvent::Bookmark(version) => {
            ("BOOKMARK", json!({"metadata": {"resourceVersion": version.as_str()}}))
        }
    };
    let Some(metadata) = object.get("metadata").and_then(Value::as_object) else {
        return Ok((kind, object)); // its reader reports it
    };
    let text = |field: &str| metadata.get(field).and_then(Value::as_str).unwrap_or_default();
    if !has_version(metadata) {
        return Err(ListWatchError::failed(format!(
            "event of {}/{}: metadata.resourceVersion is missing (the next watch starts from it)",
            text("namespace"),
            text("name"),
        )));
    }
    // The source counts from the beginning again, so changes may be missing.
    if ResourceVersion::new(text("resourceVersion")).is_before(start) {
        return Err(ListWatchError::Expired);
    }
    // For the reader, an object that does not match (any more) does not exist.
    let is_deleted = kind != "BOOKMARK" && !selectors.match_object(&object);
    Ok((if is_deleted { "DELETED" } else { kind }, object))
}

/// Encodes an object; `describe` names it in the error.
fn to_json<K: Serialize>(object: &K, describe: impl FnOnce() -> String) -> Result<Value, ListWatchError> {
    serde_json::to_value(object)
        .map_err(|cause| ListWatchError::failed(NotSerialized { object: describe(), cause }))
}

/// An object that does not serialize.
#[derive(Debug, thiserror::Error)]
#[error("{object} does not serialize")]
struct NotSerialized {
    object: String,
    #[source]
    cause: serde_json::Error,
}

fn has_version(metadata: &Map<String, Value>) -> bool {
    metadata.get("resourceVersion").is_some_and(|version| !version.is_null() && version != "")
}

/// The selectors of a source, which it applies itself.
#[derive(Debug, Clone, Default)]
struct Selectors {
    labels: LabelSelector,
    fields: FieldSelector,
}

impl Selectors {
    fn match_object(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        let field = |path: &str| match path.split('.').fold(object, |value, name| &value[name]) {
            Value::String(text) => Some(text.clone()),
            value @ (Value::Bool(_) | Value::Number(_)) => Some(value.to_string()),
            _ => None,
        };
        // What is not an object matches, so that its reader reports it.
        !object.is_object()
            || (self.labels.matches(|name| labels[name].as_str())
                && self.fields.requirements().iter().all(|one| one.matches(field(one.field()).as_deref())))
    }
}

impl<K> Clone for ListWatch<K> {
    fn clone(&self) -> Self {
        let (list, watch) = (Arc::clone(&self.list), Arc::clone(&self.watch));
        Self { list, watch, selectors: Arc::clone(&self.selectors) }
    }
}

impl<K> fmt::Debug for ListWatch<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListWatch").field("selectors", &self.selectors).finish_non_exhaustive()
    }
}
