//! What the reflector asks a server: lists and watches, as data.
//!
//! A request says everything that decides the answer. How it travels (paths, headers, deadlines) is the source's
//! business; this module knows only the query parameters and the order in which they are written.

use crate::version::ResourceVersion;
use std::time::Duration;

/// Names one request for its whole life, so that what arrives late from an abandoned one is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub u64);

/// From which state of the server an answer may come.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Consistency {
    /// Whatever the server has at hand (`resourceVersion=0`).
    Any,
    /// The given version or a newer one.
    NotOlderThan(ResourceVersion),
    /// Exactly the given version.
    Exact(ResourceVersion),
    /// The newest state, read consistently (no version): the truth, also when it lies behind what was seen before.
    MostRecent,
}

/// One page of a list, or a whole one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ListRequest {
    /// From which state; on later pages the token decides instead.
    pub consistency: Consistency,
    /// The page size, `None` for everything at once.
    pub limit: Option<u32>,
    /// The token of the page before this one.
    pub continue_token: Option<Box<str>>,
    /// Whether the answer must be JSON, because protobuf comes broken. Otherwise it may be either.
    pub json_only: bool,
}

/// A watch, or a watch-list.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct WatchRequest {
    /// Where the stream begins.
    pub start: WatchStart,
    /// How long the server keeps the stream open (`timeoutSeconds`).
    pub timeout: Duration,
    /// Whether the answer must be JSON, because protobuf comes broken. Otherwise it may be either.
    pub json_only: bool,
}

/// Where a watch begins.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WatchStart {
    /// Changes after this version.
    After(ResourceVersion),
    /// The current set first, closed by an annotated bookmark, then changes (`sendInitialEvents`).
    InitialEvents(Consistency),
}

impl ListRequest {
    /// The first page at `consistency`.
    pub fn new(consistency: Consistency, limit: Option<u32>) -> Self {
        Self { consistency, limit, continue_token: None, json_only: false }
    }

    /// The query parameters, in the order in which they are sent.
    ///
    /// A version with a limit but no match rule would mean "exactly this version", so `NotOlderThan` is always spelt
    /// out; a token allows neither a version nor a match rule beside it.
    pub fn query(&self) -> Vec<(&'static str, String)> {
        let mut query = Vec::new();
        if let Some(limit) = self.limit {
            query.push(("limit", limit.to_string()));
        }
        if let Some(token) = &self.continue_token {
            query.push(("continue", token.to_string()));
            return query;
        }
        match &self.consistency {
            Consistency::Any => query.push(("resourceVersion", "0".to_owned())),
            Consistency::NotOlderThan(version) => {
                query.push(("resourceVersion", version.to_string()));
                query.push(("resourceVersionMatch", "NotOlderThan".to_owned()));
            }
            Consistency::Exact(version) => {
                query.push(("resourceVersion", version.to_string()));
                query.push(("resourceVersionMatch", "Exact".to_owned()));
            }
            Consistency::MostRecent => {}
        }
        query
    }
}

impl WatchRequest {
    /// A watch from `start`, to be ended by the server after `timeout`.
    pub fn new(start: WatchStart, timeout: Duration) -> Self {
        Self { start, timeout, json_only: false }
    }

    /// The query parameters, in the order in which they are sent.
    pub fn query(&self) -> Vec<(&'static str, String)> {
        let mut query = vec![("watch", "1".to_owned()), ("allowWatchBookmarks", "true".to_owned())];
        query.push(("timeoutSeconds", self.timeout.as_secs().to_string()));
        match &self.start {
            WatchStart::After(version) => query.push(("resourceVersion", version.to_string())),
            WatchStart::InitialEvents(consistency) => {
                query.push(("sendInitialEvents", "true".to_owned()));
                query.push(("resourceVersionMatch", "NotOlderThan".to_owned()));
                let version = match consistency {
                    Consistency::Any => "0",
                    // A stream has no exact form; it goes on behind the version anyway.
                    Consistency::NotOlderThan(version) | Consistency::Exact(version) => version.as_str(),
                    Consistency::MostRecent => "",
                };
                query.push(("resourceVersion", version.to_owned()));
            }
        }
        query
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(query: Vec<(&'static str, String)>) -> String {
        query.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
    }

    #[test]
    fn a_version_is_never_sent_without_its_match_rule() {
        // The trap: resourceVersion with limit and no match rule means Exact, and the client crate leaves out "0".
        let at_nine = Consistency::NotOlderThan(ResourceVersion::new("9"));
        let list = ListRequest::new(at_nine.clone(), Some(500));
        assert_eq!(text(list.query()), "limit=500&resourceVersion=9&resourceVersionMatch=NotOlderThan");
        assert_eq!(
            text(ListRequest::new(Consistency::Any, Some(500)).query()),
            "limit=500&resourceVersion=0"
        );
        assert_eq!(text(ListRequest::new(Consistency::MostRecent, None).query()), "");
        let exact = Consistency::Exact(ResourceVersion::new("9"));
        assert_eq!(
            text(ListRequest::new(exact, None).query()),
            "resourceVersion=9&resourceVersionMatch=Exact"
        );
        let next = ListRequest { continue_token: Some("abc".into()), ..list };
        assert_eq!(text(next.query()), "limit=500&continue=abc");
    }

    #[test]
    fn a_watch_asks_for_bookmarks_and_says_how_long() {
        let watch = WatchRequest::new(WatchStart::After(ResourceVersion::new("7")), Duration::from_mins(5));
        assert_eq!(
            text(watch.query()),
            "watch=1&allowWatchBookmarks=true&timeoutSeconds=300&resourceVersion=7"
        );
        let start = WatchStart::InitialEvents(Consistency::MostRecent);
        assert_eq!(
            text(WatchRequest::new(start, Duration::from_mins(5)).query()),
            "watch=1&allowWatchBookmarks=true&timeoutSeconds=300&sendInitialEvents=true&\
             resourceVersionMatch=NotOlderThan&resourceVersion="
        );
    }
}
