//! The faults that can be injected, one function each.
//!
//! The documentation of a function is the meaning of its fault; the documentation of
//! the module `faults` lists the effects on open watches; `http::request_faults` and
//! `http::stream_faults` apply the faults.

use std::time::Duration;

use bytes::Bytes;

use super::{Action, FaultRule};
use crate::log::Verb;

/// Responds to matching requests with a `Status` of this code and the message `injected fault`.
pub fn respond(code: u16) -> FaultRule {
    FaultRule::new(Action::Respond(code, None))
}

/// Responds to matching requests with this code and body.
pub fn respond_with(code: u16, body: impl Into<Bytes>) -> FaultRule {
    FaultRule::new(Action::Respond(code, Some(body.into())))
}

/// Responds with 429 and a `Retry-After` header of this many seconds, like an overloaded server.
pub fn too_many_requests(seconds: u32) -> FaultRule {
    respond(429).retry_after(seconds)
}

/// Expires the client's position: lists get 410; watches, including open and idle ones, get an ERROR frame with
/// 410 and end.
///
/// To make the client of one watch list again, use `faults::gone().for_verb(Verb::Watch).max_hits(1)`.
pub fn gone() -> FaultRule {
    FaultRule::new(Action::Gone)
}

/// Responds with 403 to requests for a resource, with the message of kube-apiserver for a user without
/// permission.
pub fn forbid(plural: &str) -> FaultRule {
    FaultRule::new(Action::Forbid).for_resource(plural)
}

/// Exempts matching requests from all rules that were injected later.
///
/// Rules that act on the frames of a watch still apply. Without conditions on verb, resource or namespace, also
/// exempts requests for discovery, schemas and probes from an [`outage`].
pub fn exempt() -> FaultRule {
    FaultRule::new(Action::Exempt)
}

/// Delays matching requests, before the rules that were injected later apply to them. Dropping the guard ends
/// the delay.
pub fn delay(delay: Duration) -> FaultRule {
    FaultRule::new(Action::Delay(delay))
}

/// Sends no response to matching requests, not even headers, until the guard is dropped.
pub fn stall_request() -> FaultRule {
    FaultRule::new(Action::StallRequest)
}

/// Breaks the connection before response headers are sent. Open watches continue; see [`outage`].
pub fn drop_connection() -> FaultRule {
    FaultRule::new(Action::Drop)
}

/// Makes the server unreachable: open watches break, also idle ones, and all requests fail without a response,
/// also those that access control would reject. A request without a valid token has no user: a rule with
/// [`for_user`](FaultRule::for_user) does not apply to it.
///
/// Without conditions on verb, resource or namespace, requests for discovery, schemas and probes fail too. On a
/// socket, connections and TLS handshakes still succeed, and requests on them are not answered. After the
/// outage, clients resume their watches from the versions that they have reached.
///
/// ```
/// use informer_apiserver::{ApiServer, faults};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let server = ApiServer::new();
/// let client = server.client();
/// let outage = server.inject(faults::outage());
/// assert!(client.apiserver_version().await.is_err());
/// drop(outage);
/// assert!(client.apiserver_version().await.is_ok());
/// # }
/// ```
pub fn outage() -> FaultRule {
    FaultRule::new(Action::Outage)
}

/// Truncates response bodies after this many bytes.
///
/// Applies to watches that are opened while the rule is active, not to open ones. By default the connection
/// breaks there. With [`with_clean_end`](FaultRule::with_clean_end) the body ends
/// normally, with [`without_end`](FaultRule::without_end) it never ends.
pub fn truncate(bytes: usize) -> FaultRule {
    FaultRule::new(Action::Truncate(bytes))
}

/// Serves old state, like a replica that lags.
///
/// Applies to lists and gets with a `resourceVersion`; without one, a read requires the newest state. They
/// return the state of five writes ago (see [`lag_writes`](FaultRule::lag_writes)), but never one older than
/// the requested version. If the history does not contain that state, they return the newest one. A list that
/// requires an exact version counts as a hit, but its response does not change.
pub fn stale_read() -> FaultRule {
    FaultRule::new(Action::StaleRead)
}

/// Makes the watch cache of the server lag behind: it stays at the state of five writes before the injection (see
/// [`lag_writes`](FaultRule::lag_writes)) until the guard is dropped, and then has every change at once.
///
/// Use [`for_user`](FaultRule::for_user) for one client: in a cluster with several API servers, the others are served by
/// servers that do not lag. Requests are handled as in kube-apiserver:
///
/// | request | response |
/// |---|---|
/// | list or get with `resourceVersion=0` | the state of the cache |
/// | list or get not older than a version | the state of the cache, or after 3 s without it the error "Too large resource version" (504) |
/// | list without a version | waits for the cache; after 3 s, the newest state from the storage |
/// | get without a version, list at an exact version, next page | from the storage: not affected |
/// | watch | changes up to the version of the cache; the others when the guard is dropped |
/// | watch with initial events | the objects in the cache; if it requires a newer version, waits, and gets the error after 3 s |
///
/// Resources without a watch cache, such as events, and the subresource `scale` are not affected, but their reads count
/// as hits. If the history no longer contains the state of
/// the cache, reads return the newest one.
///
/// ```
/// use informer_apiserver::{ApiServer, User, faults};
/// use serde_json::json;
///
/// let server = ApiServer::new();
/// server.create(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}}))?;
/// let lagging = server.inject(faults::lagging_cache().lag_writes(1).for_user("operator-2"));
/// let service = server.service_for(User::new("operator-2")); // reads a cache without the config map
/// drop(lagging); // the cache has caught up
/// # Ok::<(), informer_apiserver::Status>(())
/// ```
pub fn lagging_cache() -> FaultRule {
    FaultRule::new(Action::LaggingCache)
}

/// Puts a value that the type does not allow into one object: `spec` becomes a number.
///
/// In matching lists the first object is changed, in matching watches the object of one frame. An object
/// without `spec` gets one. In protobuf, which has no field names, the field with the number of `spec` is
/// changed (in a config map, the data). In a table the rows become a number. Empty lists and bookmarks are
/// not changed and not counted.
pub fn malformed_object() -> FaultRule {
    FaultRule::new(Action::MalformedObject)
}

/// Inserts one frame without an object into each matching watch, including open and idle ones. The frame is
/// valid JSON or protobuf.
pub fn frame_without_object() -> FaultRule {
    FaultRule::new(Action::FrameWithoutObject).for_verb(Verb::Watch)
}

/// Breaks watches, including open and idle ones: the body ends with an error, or normally with
/// [`with_clean_end`](FaultRule::with_clean_end).
///
/// While the rule is active, each new watch is accepted with 200 and broken at once. To break a watch once, use
/// [`max_hits(1)`](FaultRule::max_hits); to refuse new watches as well, use [`outage`].
pub fn break_watch() -> FaultRule {
    FaultRule::new(Action::BreakWatch).for_verb(Verb::Watch)
}

/// Breaks watches in the middle of a frame. An idle watch breaks at its next change or bookmark.
pub fn break_mid_frame() -> FaultRule {
    FaultRule::new(Action::BreakMidFrame).for_verb(Verb::Watch)
}

/// Makes watches, including open ones, silent forever without closing them, as if the peer had disappeared.
///
/// Affected watches stay silent after the guard is dropped, until the client closes them.
pub fn half_open() -> FaultRule {
    break_watch().without_end()
}

/// Makes watches, including open ones, silent until the guard is dropped, without closing them.
///
/// Then each watch sends the changes, bookmarks and the end that became due meanwhile.
pub fn stall_watch() -> FaultRule {
    FaultRule::new(Action::StallWatch).for_verb(Verb::Watch)
}

/// Responds with 422 to watches with the parameter `sendInitialEvents`, like a server that does not support
/// it.
pub fn refuse_watch_list() -> FaultRule {
    FaultRule::new(Action::RefuseWatchList).for_verb(Verb::Watch)
}

/// Never sends the bookmark that ends the initial events of a watch. Applies to watches with the parameter
/// `sendInitialEvents`.
pub fn endless_watch_list() -> FaultRule {
    FaultRule::new(Action::EndlessWatchList).for_verb(Verb::Watch)
}

/// Opens watches with 200, sends one ERROR frame with this code and ends them.
///
/// Acts on new watches; open ones continue. [`gone`] sends an ERROR frame with 410 to open ones.
pub fn error_frame(code: u16) -> FaultRule {
    FaultRule::new(Action::ErrorFrame(code)).for_verb(Verb::Watch)
}

/// Inserts these bytes once into each matching watch, including open and idle ones, unchanged.
pub fn raw_frame(bytes: impl Into<Bytes>) -> FaultRule {
    FaultRule::new(Action::RawFrame(bytes.into())).for_verb(Verb::Watch)
}

/// Omits one frame of each matching watch, the next one of an open watch.
///
/// No real server does this. A client can detect it only by comparing its cache with a list (audit).
pub fn drop_frame() -> FaultRule {
    FaultRule::new(Action::DropFrame).for_verb(Verb::Watch)
}

/// Sends one frame of each matching watch twice, the next one of an open watch.
pub fn duplicate_frame() -> FaultRule {
    FaultRule::new(Action::DuplicateFrame).for_verb(Verb::Watch)
}
