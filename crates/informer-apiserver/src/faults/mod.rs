//! Faults on request: rules that make the server misbehave as servers do.
//!
//! A rule says what goes wrong and, narrowed step by step, for which requests. It works for as long as its guard lives.
//! Of the rules that answer a request the first that matches wins, in the order in which they were set; and so does the first of
//! those that disturb a running watch. Rules do not know what they disturb.
//!
//! ```
//! use informer_apiserver::{ApiServer, Verb, faults};
//!
//! let server = ApiServer::new();
//! let refused = server.fault(faults::answer(503).on(Verb::List).of("pods").times(2));
//! assert_eq!(refused.hits(), 0);
//! drop(refused); // lists of pods work again
//! ```

mod registry;

use bytes::Bytes;

use crate::log::{Seen, Verb};

pub use registry::Fault;
pub(crate) use registry::{Active, Registry};

/// What goes wrong, and when.
#[derive(Debug, Clone)]
#[must_use = "a rule does nothing until it is given to `ApiServer::fault`"]
pub struct Rule {
    pub(crate) action: Action,
    verb: Option<Verb>,
    plural: Option<String>,
    namespace: Option<String>,
    page: Option<u32>,
    pub(crate) times: Option<u64>,
    pub(crate) skip: u64,
    pub(crate) frames: usize,
    pub(crate) cleanly: bool,
    pub(crate) retry_after: Option<u32>,
}

#[derive(Debug, Clone)]
pub(crate) enum Action {
    Answer(u16, Option<Bytes>),
    Forbid,
    Hold,
    RefuseWatchList,
    EndlessWatchList,
    ErrorFrame(u16),
    CutWatch,
    StallWatch,
    RawFrame(Bytes),
}

/// Matching requests are answered with a `Status` of this code.
pub fn answer(code: u16) -> Rule {
    Rule::new(Action::Answer(code, None))
}

/// Matching requests are answered with this code and body.
pub fn answer_with(code: u16, body: impl Into<Bytes>) -> Rule {
    Rule::new(Action::Answer(code, Some(body.into())))
}

/// A user without rights to a resource: 403, as a real server words it.
pub fn forbid(plural: &str) -> Rule {
    Rule::new(Action::Forbid).of(plural)
}

/// Matching requests wait, before their headers, until the guard is dropped.
pub fn hold() -> Rule {
    Rule::new(Action::Hold)
}

/// Watches break: the body ends with an error, or [cleanly](Rule::cleanly).
pub fn cut_watch() -> Rule {
    Rule::new(Action::CutWatch).on(Verb::Watch)
}

/// Watches fall silent and stay open, until the guard is dropped.
pub fn stall_watch() -> Rule {
    Rule::new(Action::StallWatch).on(Verb::Watch)
}

/// Watches that ask for initial events are refused, as by a server that does not know them: 422.
pub fn refuse_watch_list() -> Rule {
    Rule::new(Action::RefuseWatchList).on(Verb::Watch)
}

/// Initial events are sent, and never said to be over.
pub fn endless_watch_list() -> Rule {
    Rule::new(Action::EndlessWatchList).on(Verb::Watch)
}

/// Watches open and bring one ERROR frame of this code.
pub fn error_frame(code: u16) -> Rule {
    Rule::new(Action::ErrorFrame(code)).on(Verb::Watch)
}

/// These bytes are put into matching watches, once into each.
pub fn raw_frame(bytes: impl Into<Bytes>) -> Rule {
    Rule::new(Action::RawFrame(bytes.into())).on(Verb::Watch)
}

impl Rule {
    fn new(action: Action) -> Self {
        Rule {
            action,
            verb: None,
            plural: None,
            namespace: None,
            page: None,
            times: None,
            skip: 0,
            frames: 0,
            cleanly: false,
            retry_after: None,
        }
    }

    /// Only for requests with this verb.
    pub fn on(self, verb: Verb) -> Self {
        Rule { verb: Some(verb), ..self }
    }

    /// Only for this resource.
    pub fn of(self, plural: &str) -> Self {
        Rule { plural: Some(plural.to_owned()), ..self }
    }

    /// Only for this namespace.
    pub fn in_namespace(self, namespace: &str) -> Self {
        Rule { namespace: Some(namespace.to_owned()), ..self }
    }

    /// Only for the first page of a list (1), or only for those that follow (2 and more).
    pub fn page(self, page: u32) -> Self {
        Rule { page: Some(page), ..self }
    }

    /// At most so many times.
    pub fn times(self, times: u64) -> Self {
        Rule { times: Some(times), ..self }
    }

    /// Not for the first so many matching requests.
    pub fn after(self, requests: u64) -> Self {
        Rule { skip: requests, ..self }
    }

    /// For what disturbs a watch: only after so many more frames of it.
    pub fn after_frames(self, frames: usize) -> Self {
        Rule { frames, ..self }
    }

    /// For [`cut_watch`]: the stream ends in good order instead of breaking.
    pub fn cleanly(self) -> Self {
        Rule { cleanly: true, ..self }
    }

    /// For answers: a `Retry-After` header of so many seconds.
    pub fn retry_after(self, seconds: u32) -> Self {
        Rule { retry_after: Some(seconds), ..self }
    }

    pub(crate) fn matches(&self, seen: &Seen) -> bool {
        let initial_events = || seen.parameter("sendInitialEvents").is_some();
        let page = || if seen.parameter("continue").is_some_and(|token| !token.is_empty()) { 2 } else { 1 };
        self.verb.is_none_or(|verb| verb == seen.verb)
            && self.plural.as_ref().is_none_or(|plural| *plural == seen.plural)
            && self.namespace.as_ref().is_none_or(|namespace| Some(namespace) == seen.namespace.as_ref())
            && self.page.is_none_or(|wanted| wanted.min(2) == page())
            && (!matches!(self.action, Action::RefuseWatchList | Action::EndlessWatchList)
                || initial_events())
    }

    /// Whether it works on running watches, and not on requests.
    pub(crate) fn disturbs_streams(&self) -> bool {
        matches!(self.action, Action::CutWatch | Action::StallWatch | Action::RawFrame(_))
    }
}
