//! Faults on request: rules that make the server misbehave as servers, networks and proxies do.
//!
//! A rule says what goes wrong and, narrowed step by step, for which requests. It works for as long as its guard lives.
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
//! Several rules may meet one request, in the order in which they were set: a [`delay`] and then a [`respond`] is a slow refusal.
//! The first that answers, lets pass or breaks a request is the last that it meets. A running watch has all that are meant
//! for it at once, each with its own count of frames. Rules do not know what they disturb, and work on every form in which objects
//! travel: JSON, YAML, protobuf, tables, gzip.
//!
//! Rules are about resources: they meet requests for objects and collections, also those that are refused afterwards because there is no such
//! thing. Discovery, schemas (`/openapi`), the server's version and its probes (`/healthz`, `/livez`, `/readyz`) never meet a rule, nor does whoever is turned away
//! at the door (401, 403).
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
//! let began = tokio::time::Instant::now();
//! let pods: Api<Pod> = Api::all(server.client());
//! assert!(pods.list(&ListParams::default()).await.is_err());
//! assert_eq!(began.elapsed().as_secs(), 20);
//! # }
//! ```
//!
//! [`Schedule`] strings rules together at random, from a seed.

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
    error_frame, exempt, forbid, frame_without_object, gone, half_open, malformed_object, raw_frame,
    refuse_watch_list, respond, respond_with, stale_read, stall_request, stall_watch, too_many_requests,
    truncate,
};
pub use registry::FaultGuard;
pub(crate) use registry::{Active, Registry};
pub use schedule::{Schedule, ScheduledFault};

/// What goes wrong, and when.
#[derive(Debug, Clone)]
#[must_use = "a rule does nothing until it is given to `ApiServer::fault`"]
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
    /// Of a watch, so many frames pass before anything happens.
    pub(crate) after_frames: usize,
    /// So many frames of a watch are changed.
    pub(crate) frames: usize,
    pub(crate) end: End,
    pub(crate) retry_after: Option<u32>,
    /// So many writes an old answer is behind.
    pub(crate) lag_writes: u64,
}

/// What a rule does. The names are those of the library.
#[derive(Debug, Clone)]
pub(crate) enum Action {
    Exempt,
    Delay(Duration),
    Respond(u16, Option<Bytes>),
    Gone,
    Forbid,
    StallRequest,
    Drop,
    Truncate(usize),
    StaleRead,
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

/// How a body ends that is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The connection breaks.
    Broken,
    /// In good order, as if that were all.
    Clean,
    /// It does not: nothing comes any more, and nobody says so.
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
        }
    }

    /// Only for requests with this verb.
    pub fn for_verb(self, verb: Verb) -> Self {
        FaultRule { verb: Some(verb), ..self }
    }

    /// Only for this resource.
    pub fn for_resource(self, plural: &str) -> Self {
        FaultRule { plural: Some(plural.to_owned()), ..self }
    }

    /// Only for this namespace.
    pub fn in_namespace(self, namespace: &str) -> Self {
        FaultRule { namespace: Some(namespace.to_owned()), ..self }
    }

    /// Only for requests of this user.
    pub fn for_user(self, user: &str) -> Self {
        FaultRule { user: Some(user.to_owned()), ..self }
    }

    /// Only for the first page of a list (1), or only for those that follow (2 and more).
    pub fn page(self, page: u32) -> Self {
        FaultRule { page: Some(page), ..self }
    }

    /// At most so many times.
    pub fn max_hits(self, times: u64) -> Self {
        FaultRule { max_hits: Some(times), ..self }
    }

    /// Not for the first so many matching requests.
    pub fn skip_first(self, requests: u64) -> Self {
        FaultRule { skip_first: requests, ..self }
    }

    /// Only for so many in a hundred of the matching requests. Which ones follows from the seed and their order.
    pub fn probability_percent(self, percent: u8, seed: u64) -> Self {
        FaultRule { probability: Some(Probability { percent, seed }), ..self }
    }

    /// For what disturbs a watch: only after so many more frames of it.
    pub fn after_frames(self, frames: usize) -> Self {
        FaultRule { after_frames: frames, ..self }
    }

    /// For what changes frames: so many of each watch, one after the other, instead of one.
    pub fn frames(self, frames: usize) -> Self {
        FaultRule { frames, ..self }
    }

    /// For [`break_watch`], [`break_mid_frame`] and [`truncate`]: the body ends in good order instead of breaking.
    pub fn with_clean_end(self) -> Self {
        FaultRule { end: End::Clean, ..self }
    }

    /// For [`break_watch`], [`break_mid_frame`] and [`truncate`]: the body does not end, and brings nothing more, ever.
    pub fn without_end(self) -> Self {
        FaultRule { end: End::Silent, ..self }
    }

    /// For answers: a `Retry-After` header of so many seconds.
    pub fn retry_after(self, seconds: u32) -> Self {
        FaultRule { retry_after: Some(seconds), ..self }
    }

    /// For [`stale_read`]: so many writes behind, of whatever kind they were.
    pub fn lag_writes(self, writes: u64) -> Self {
        FaultRule { lag_writes: writes, ..self }
    }

    pub(crate) fn matches(&self, seen: &RecordedRequest) -> bool {
        let page = || if seen.parameter("continue").is_some_and(|token| !token.is_empty()) { 2 } else { 1 };
        self.verb.is_none_or(|verb| verb == seen.verb)
            && self.plural.as_ref().is_none_or(|plural| *plural == seen.plural)
            && self.namespace.as_ref().is_none_or(|namespace| Some(namespace) == seen.namespace.as_ref())
            && self.user.as_ref().is_none_or(|user| *user == seen.user)
            && self.page.is_none_or(|wanted| wanted.min(2) == page())
            && self.action.concerns(seen)
    }

    /// Whether a matching request is one of those that chance picks; `number` counts them.
    fn is_picked(&self, number: u64) -> bool {
        self.probability.is_none_or(|Probability { percent, seed }| {
            Random::new(seed ^ number.wrapping_mul(0x2545_f491_4f6c_dd1d)).below(100) < u64::from(percent)
        })
    }
}

impl Action {
    /// Whether there is something in such a request that this could go wrong with.
    fn concerns(&self, seen: &RecordedRequest) -> bool {
        match self {
            Action::RefuseWatchList | Action::EndlessWatchList => {
                seen.parameter("sendInitialEvents").is_some()
            }
            Action::Gone | Action::MalformedObject => matches!(seen.verb, Verb::List | Verb::Watch),
            // A read without a version wants the newest, and gets it from any server.
            Action::StaleRead => {
                matches!(seen.verb, Verb::List | Verb::Get)
                    && seen.parameter("resourceVersion").is_some_and(|version| !version.is_empty())
            }
            _ => true,
        }
    }

    /// Whether only the answer shows if there is something to do; then it is counted.
    fn is_late(&self) -> bool {
        matches!(self, Action::MalformedObject)
    }

    /// Whether it works on the running watch that such a request began, and not on the request.
    pub(crate) fn disturbs_stream(&self, seen: &RecordedRequest) -> bool {
        match self {
            Action::BreakWatch
            | Action::BreakMidFrame
            | Action::StallWatch
            | Action::RawFrame(_)
            | Action::FrameWithoutObject
            | Action::DropFrame
            | Action::DuplicateFrame => true,
            Action::Gone | Action::MalformedObject => seen.verb == Verb::Watch,
            _ => false,
        }
    }
}

/// What it does and to whom, in short, for traces: `status 429 of list pods, 3 times`.
impl fmt::Display for FaultRule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.action {
            Action::Respond(code, _) => write!(out, "status {code}")?,
            Action::ErrorFrame(code) => write!(out, "error frame {code}")?,
            Action::Delay(time) => write!(out, "delay {time:?}")?,
            Action::Truncate(bytes) => write!(out, "truncate {bytes}")?,
            Action::FrameWithoutObject => write!(out, "undecodable frame")?,
            Action::RawFrame(bytes) => write!(out, "raw frame of {} bytes", bytes.len())?,
            action => write!(out, "{action:?}")?,
        }
        if self.end != End::Broken {
            write!(out, " {:?}", self.end)?;
        }
        let whom = [self.verb.map(Verb::name), self.plural.as_deref(), self.namespace.as_deref()];
        for (place, word) in whom.into_iter().flatten().enumerate() {
            write!(out, "{} {word}", if place == 0 { " of" } else { "" })?;
        }
        if let Some(Probability { percent, .. }) = self.probability {
            write!(out, ", {percent}%")?;
        }
        if self.after_frames > 0 {
            write!(out, ", after {} frames", self.after_frames)?;
        }
        self.max_hits.map_or(Ok(()), |times| write!(out, ", {times} times"))
    }
}
