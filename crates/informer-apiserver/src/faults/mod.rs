//! Fault injection: rules that make the server misbehave as real servers, networks and proxies do.
//!
//! A [`FaultRule`] describes what goes wrong and, through its builder methods, for which requests. Pass it to
//! [`ApiServer::inject`](crate::ApiServer::inject); it is active until the returned [`FaultGuard`] is
//! dropped.
//!
//! ```
//! use informer_apiserver::{ApiServer, Verb, faults};
//!
//! let server = ApiServer::new();
//! let busy = server.inject(faults::respond(429).retry_after(2).for_verb(Verb::List).for_resource("pods").max_hits(3));
//! assert_eq!(busy.hits(), 0);
//! drop(busy); // lists of pods work again
//! ```
//!
//! Several rules can apply to one request, in the order in which they were injected: a [`delay`] followed by
//! a [`respond`] is a slow error response. The first rule that responds to the request, breaks its connection
//! or exempts it is the last one that applies. On an open watch all matching rules are active at the same
//! time, and each counts frames on its own. Rules work with every encoding: JSON, YAML, protobuf, tables and
//! gzip.
//!
//! Rules apply to requests for objects and collections, including those that the server would reject later,
//! for example because the object does not exist. Only an [`outage`] also applies to requests that access
//! control rejects (401, 403), and to other paths, such as discovery, schemas (`/openapi`) and probes
//! (`/healthz`).
//!
//! # Open watches
//!
//! A watch that is open when a rule is injected is affected as follows. All other rules affect it only when
//! the client opens it again.
//!
//! | rule | effect on an open watch |
//! |---|---|
//! | [`break_watch`], [`outage`] | breaks immediately, even if it is idle |
//! | [`gone`] | gets an ERROR frame with 410 and ends immediately, even if it is idle |
//! | [`half_open`] | is silent from now on; removing the rule does not change that |
//! | [`lagging_cache`] | gets no changes until the rule is removed; then the changes since are sent |
//! | [`stall_watch`] | is silent until the rule is removed; then the changes since are sent |
//! | [`raw_frame`], [`frame_without_object`] | gets the frame immediately, even if it is idle |
//! | [`break_mid_frame`], [`drop_frame`], [`duplicate_frame`] | at its next frame, which may be a bookmark |
//! | [`malformed_object`] | at its next frame with an object |
//!
//! After a broken watch, a client resumes from the version that it has reached; it lists again only after a
//! 410. While a rule is active, watches that are opened again are affected too, so a rule that should act
//! once needs [`max_hits`](FaultRule::max_hits).
//!
//! # Examples
//!
//! A slow error response:
//!
//! ```
//! use std::time::Duration;
//!
//! use informer_apiserver::{ApiServer, faults};
//! use k8s_openapi::api::core::v1::Pod;
//! use kube::{Api, api::ListParams};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! let server = ApiServer::new();
//! let _slow = server.inject(faults::delay(Duration::from_secs(20)).for_resource("pods"));
//! let _refused = server.inject(faults::respond(504).for_resource("pods"));
//!
//! let started = tokio::time::Instant::now();
//! let pods: Api<Pod> = Api::all(server.client());
//! assert!(pods.list(&ListParams::default()).await.is_err());
//! assert_eq!(started.elapsed().as_secs(), 20);
//! # }
//! ```
//!
//! [`Schedule`] is a random sequence of rules, reproducible from a seed.

mod library;
mod registry;
mod schedule;

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use crate::log::{RecordedRequest, Verb};
use crate::random::Random;

pub use library::{
    break_mid_frame, break_watch, delay, drop_connection, drop_frame, duplicate_frame, endless_watch_list,
    error_frame, exempt, forbid, frame_without_object, gone, half_open, lagging_cache, malformed_object,
    outage, raw_frame, refuse_watch_list, respond, respond_with, stale_read, stall_request, stall_watch,
    too_many_requests, truncate,
};
pub use registry::FaultGuard;
pub(crate) use registry::{Active, Registry};
pub use schedule::{Schedule, ScheduledFault};

/// A rule that makes the server misbehave: an effect, and conditions on requests.
///
/// Created by the functions of the module [`faults`](self). A rule without conditions applies to every
/// request that its effect can apply to.
#[derive(Debug, Clone)]
#[must_use = "a rule has no effect until it is passed to `ApiServer::inject`"]
pub struct FaultRule {
    pub(crate) action: Action,
    verb: Option<Verb>,
    plural: Option<String>,
    namespace: Option<String>,
    user: Option<String>,
    page: Option<u32>,
    probability: Option<Probability>,
    max_hits: Option<u64>,
    skip_first: u64,
    /// Number of frames that a watch sends before the rule applies.
    pub(crate) after_frames: usize,
    /// Number of frames per watch that a rule changes, if its effect is to change frames.
    pub(crate) frames: usize,
    pub(crate) end: End,
    pub(crate) retry_after: Option<u32>,
    /// Number of writes by which a stale read or a cache lags.
    pub(crate) lag_writes: u64,
    /// The version of a lagging cache, which is known when the rule is injected.
    pub(crate) cache_version: u64,
}

/// The effect of a rule. `library` documents the effects; most variants are named after their function.
#[derive(Debug, Clone)]
pub(crate) enum Action {
    Exempt,
    Delay(Duration),
    Respond(u16, Option<Bytes>),
    Gone,
    Forbid,
    StallRequest,
    Drop,
    Outage,
    Truncate(usize),
    StaleRead,
    LaggingCache,
    RefuseWatchList,
    EndlessWatchList,
    ErrorFrame(u16),
    BreakWatch,
    BreakMidFrame,
    StallWatch,
    RawFrame(Bytes),
    FrameWithoutObject,
    DropFrame,
    DuplicateFrame,
    MalformedObject,
}

/// The end of a body that is cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The connection breaks.
    Broken,
    /// The body ends normally.
    Clean,
    /// The body stays open and nothing more is sent.
    Silent,
}

#[derive(Debug, Clone, Copy)]
struct Probability {
    percent: u8,
    seed: u64,
}

impl FaultRule {
    fn new(action: Action) -> Self {
        FaultRule {
            action,
            verb: None,
            plural: None,
            namespace: None,
            user: None,
            page: None,
            probability: None,
            max_hits: None,
            skip_first: 0,
            after_frames: 0,
            frames: 1,
            end: End::Broken,
            retry_after: None,
            lag_writes: 5,
            cache_version: 0,
        }
    }

    /// Applies the rule only to requests with this verb.
    pub fn for_verb(self, verb: Verb) -> Self {
        FaultRule { verb: Some(verb), ..self }
    }

    /// Applies the rule only to this resource, given by its plural name.
    pub fn for_resource(self, plural: &str) -> Self {
        FaultRule { plural: Some(plural.to_owned()), ..self }
    }

    /// Applies the rule only to requests for this namespace.
    pub fn in_namespace(self, namespace: &str) -> Self {
        FaultRule { namespace: Some(namespace.to_owned()), ..self }
    }

    /// Applies the rule only to requests of this user, for example of an
    /// [`ApiServer::client_as`](crate::ApiServer::client_as).
    pub fn for_user(self, user: &str) -> Self {
        FaultRule { user: Some(user.to_owned()), ..self }
    }

    /// Applies the rule only to first pages of lists (1), or only to all later pages (2 or more).
    ///
    /// Every request without a continue token counts as a first page.
    pub fn page(self, page: u32) -> Self {
        FaultRule { page: Some(page), ..self }
    }

    /// Applies the rule at most this many times.
    pub fn max_hits(self, times: u64) -> Self {
        FaultRule { max_hits: Some(times), ..self }
    }

    /// Skips this many matching requests before the rule applies.
    pub fn skip_first(self, requests: u64) -> Self {
        FaultRule { skip_first: requests, ..self }
    }

    /// Applies the rule to this percentage of the matching requests.
    ///
    /// The selection is determined by `seed` and the order of the requests.
    pub fn probability_percent(self, percent: u8, seed: u64) -> Self {
        FaultRule { probability: Some(Probability { percent, seed }), ..self }
    }

    /// Lets this many frames of each watch pass before the rule applies. For rules that act on open watches.
    ///
    /// Frames are counted from the start of the watch, or from the injection if the watch is open already.
    /// Bookmarks count. Has no effect on a [`lagging_cache`].
    pub fn after_frames(self, frames: usize) -> Self {
        FaultRule { after_frames: frames, ..self }
    }

    /// Changes this many consecutive frames of each watch. For rules that change frames. Defaults to 1.
    pub fn frames(self, frames: usize) -> Self {
        FaultRule { frames, ..self }
    }

    /// Ends the body normally instead of breaking the connection.
    ///
    /// For [`break_watch`], [`break_mid_frame`] and [`truncate`].
    pub fn with_clean_end(self) -> Self {
        FaultRule { end: End::Clean, ..self }
    }

    /// Leaves the body open and sends nothing more instead of breaking the connection.
    ///
    /// For [`break_watch`], [`break_mid_frame`] and [`truncate`].
    pub fn without_end(self) -> Self {
        FaultRule { end: End::Silent, ..self }
    }

    /// Adds a `Retry-After` header of this many seconds. For [`respond`] and [`respond_with`].
    pub fn retry_after(self, seconds: u32) -> Self {
        FaultRule { retry_after: Some(seconds), ..self }
    }

    /// Sets the number of writes, of any resource, by which reads lag. For [`stale_read`] and
    /// [`lagging_cache`]. Defaults to 5.
    pub fn lag_writes(self, writes: u64) -> Self {
        FaultRule { lag_writes: writes, ..self }
    }

    pub(crate) fn matches(&self, request: &RecordedRequest) -> bool {
        // A request does not show the number of its page, only whether it is the first.
        let page =
            || if request.parameter("continue").is_some_and(|token| !token.is_empty()) { 2 } else { 1 };
        self.verb.is_none_or(|verb| verb == request.verb)
            && self.plural.as_ref().is_none_or(|plural| *plural == request.plural)
            && self.namespace.as_ref().is_none_or(|namespace| Some(namespace) == request.namespace.as_ref())
            && self.user.as_ref().is_none_or(|user| *user == request.user)
            && self.page.is_none_or(|expected| expected.min(2) == page())
            && self.action.can_apply_to(request)
    }

    /// Returns whether the conditions let an outage, or an exemption from it, apply to a user's requests for
    /// paths without a resource.
    fn applies_to_other_paths(&self, user: &str) -> bool {
        let is_unconditional = self.verb.is_none() && self.plural.is_none() && self.namespace.is_none();
        is_unconditional && self.user.as_deref().is_none_or(|expected| expected == user)
    }

    /// Returns whether the rule's probability selects the matching request with this number.
    fn is_selected(&self, number: u64) -> bool {
        // Each number has its own generator, so the selection needs no state. The factor makes the seeds of
        // consecutive numbers differ in many bits.
        self.probability.is_none_or(|Probability { percent, seed }| {
            Random::new(seed ^ number.wrapping_mul(0x2545_f491_4f6c_dd1d)).below(100) < u64::from(percent)
        })
    }
}

impl Action {
    /// Returns whether the effect can apply to a request with this verb and these parameters.
    fn can_apply_to(&self, request: &RecordedRequest) -> bool {
        match self {
            Action::RefuseWatchList | Action::EndlessWatchList => {
                request.parameter("sendInitialEvents").is_some()
            }
            Action::LaggingCache => reads_cache(request),
            Action::Gone | Action::MalformedObject => matches!(request.verb, Verb::List | Verb::Watch),
            // A read without a version requires the newest state, which every server returns.
            Action::StaleRead => {
                matches!(request.verb, Verb::List | Verb::Get)
                    && request.parameter("resourceVersion").is_some_and(|version| !version.is_empty())
            }
            _ => true,
        }
    }

    /// Returns whether a hit can be counted only once the response is known.
    fn is_counted_by_response(&self) -> bool {
        matches!(self, Action::MalformedObject)
    }

    /// Returns whether the effect applies to a request before it is handled, or to its response.
    pub(crate) fn applies_to_request(&self, request: &RecordedRequest) -> bool {
        matches!(self, Action::Outage) || !self.applies_to_stream(request)
    }

    /// Returns whether the effect applies to an open watch, between or in its frames.
    pub(crate) fn applies_to_stream(&self, request: &RecordedRequest) -> bool {
        match self {
            Action::BreakWatch
            | Action::BreakMidFrame
            | Action::StallWatch
            | Action::RawFrame(_)
            | Action::FrameWithoutObject
            | Action::DropFrame
            | Action::DuplicateFrame => true,
            Action::Gone | Action::MalformedObject | Action::Outage | Action::LaggingCache => {
                request.verb == Verb::Watch
            }
            _ => false,
        }
    }
}

/// Returns whether kube-apiserver serves a request from its watch cache. Other reads go to the storage: gets without a
/// version, later pages, and lists at an exact version.
fn reads_cache(request: &RecordedRequest) -> bool {
    let is_set =
        |name: &str| request.parameter(name).is_some_and(|value| !matches!(value.as_str(), "" | "0"));
    match request.verb {
        Verb::Get => request.parameter("resourceVersion").is_some_and(|version| !version.is_empty()),
        Verb::List => {
            let is_exact = match request.parameter("resourceVersionMatch").as_deref() {
                // Without a match rule, pages at a version are exact.
                None | Some("") => is_set("resourceVersion") && is_set("limit"),
                Some(rule) => rule == "Exact",
            };
            !is_set("continue") && !is_exact
        }
        verb => verb == Verb::Watch,
    }
}

/// Writes the effect and the main conditions, for logs: `respond 429 for list pods, at most 3 times`.
impl fmt::Display for FaultRule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.action {
            Action::Respond(code, _) => write!(out, "respond {code}")?,
            Action::ErrorFrame(code) => write!(out, "error frame {code}")?,
            Action::Delay(delay) => write!(out, "delay {delay:?}")?,
            Action::Truncate(bytes) => write!(out, "truncate {bytes}")?,
            Action::RawFrame(bytes) => write!(out, "raw frame of {} bytes", bytes.len())?,
            action => write!(out, "{action:?}")?,
        }
        if self.end != End::Broken {
            write!(out, " {:?}", self.end)?;
        }
        let conditions = [self.verb.map(Verb::name), self.plural.as_deref(), self.namespace.as_deref()];
        for (index, word) in conditions.into_iter().flatten().enumerate() {
            write!(out, "{} {word}", if index == 0 { " for" } else { "" })?;
        }
        if let Some(Probability { percent, .. }) = self.probability {
            write!(out, ", {percent}%")?;
        }
        if self.after_frames > 0 {
            write!(out, ", after {} frames", self.after_frames)?;
        }
        self.max_hits.map_or(Ok(()), |times| write!(out, ", at most {times} times"))
    }
}
