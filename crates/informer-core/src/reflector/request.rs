//! The list and watch requests of the reflector, as data.
//!
//! A request contains what the reflector decides: the query parameters in their order, and whether protobuf
//! is excluded. Paths, selectors, headers and the timeout of the response headers belong to the source.

use crate::version::ResourceVersion;
use std::time::Duration;

/// The identity of one request, by which late parts of a cancelled request's response are recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub u64);

/// The states of the server from which a response may be served.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Consistency {
    /// Any state, usually that of the watch cache (`resourceVersion=0`).
    Any,
    /// The given version or a newer one (`resourceVersionMatch=NotOlderThan`).
    NotOlderThan(ResourceVersion),
    /// Exactly the given version (`resourceVersionMatch=Exact`).
    Exact(ResourceVersion),
    /// The most recent state, read consistently (no `resourceVersion`).
    ///
    /// It is authoritative, even if it is older than what was received before.
    MostRecent,
}

/// A request for a list, or for one page of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ListRequest {
    /// The states from which the first page may be served. On later pages the continue token decides instead.
    pub consistency: Consistency,
    /// The page size; `None` for the whole list.
    pub limit: Option<u32>,
    /// The continue token of the previous page; `None` for the first page.
    pub continue_token: Option<Box<str>>,
    /// Whether only JSON is accepted, because protobuf bodies arrive malformed. If not, the source decides
    /// whether it accepts protobuf too.
    pub json_only: bool,
    /// Whether only the version of the list is used: the request checks that the server has reached a version.
    pub version_only: bool,
    /// The hash ranges that are selected (`shardSelector`); `None` for all objects.
    pub shard_selector: Option<Box<str>>,
}

/// A request for a watch or a watch-list.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct WatchRequest {
    /// The start of the stream.
    pub start: WatchStart,
    /// The time after which the server ends the stream (`timeoutSeconds`).
    pub timeout: Duration,
    /// Whether only JSON is accepted, because protobuf bodies arrive malformed. If not, the source decides
    /// whether it accepts protobuf too.
    pub json_only: bool,
    /// The hash ranges that are selected (`shardSelector`); `None` for all objects.
    pub shard_selector: Option<Box<str>>,
}

/// The start of a watch.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WatchStart {
    /// The changes after this version.
    After(ResourceVersion),
    /// The current objects, ended by an annotated bookmark, then the changes (`sendInitialEvents`).
    InitialEvents(Consistency),
}

impl ListRequest {
    /// Creates a request for the first page.
    pub fn new(consistency: Consistency, limit: Option<u32>) -> Self {
        Self {
            consistency,
            limit,
            continue_token: None,
            json_only: false,
            version_only: false,
            shard_selector: None,
        }
    }

    /// Returns the query parameters in the order in which they are sent.
    ///
    /// `resourceVersionMatch=NotOlderThan` is always explicit, because without a match rule kube-apiserver
    /// takes a version with a limit as an exact one. A continue token excludes both the version and the match
    /// rule.
    pub fn query(&self) -> Vec<(&'static str, String)> {
        let mut query = Vec::new();
        if let Some(selector) = &self.shard_selector {
            query.push(("shardSelector", selector.to_string()));
        }
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
    /// Creates a request for a watch that the server ends after `timeout`.
    pub fn new(start: WatchStart, timeout: Duration) -> Self {
        Self { start, timeout, json_only: false, shard_selector: None }
    }

    /// Returns the query parameters in the order in which they are sent.
    pub fn query(&self) -> Vec<(&'static str, String)> {
        let mut query = vec![("watch", "1".to_owned()), ("allowWatchBookmarks", "true".to_owned())];
        query.push(("timeoutSeconds", self.timeout.as_secs().to_string()));
        if let Some(selector) = &self.shard_selector {
            query.push(("shardSelector", selector.to_string()));
        }
        match &self.start {
            WatchStart::After(version) => query.push(("resourceVersion", version.to_string())),
            WatchStart::InitialEvents(consistency) => {
                query.push(("sendInitialEvents", "true".to_owned()));
                query.push(("resourceVersionMatch", "NotOlderThan".to_owned()));
                let version = match consistency {
                    Consistency::Any => "0",
                    // A watch-list cannot be exact: it continues with later changes.
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
    fn version_of_a_list_is_sent_with_its_match_rule_unless_it_is_zero() {
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
    fn watch_requests_bookmarks_and_a_timeout() {
        let watch = WatchRequest::new(WatchStart::After(ResourceVersion::new("7")), Duration::from_secs(300));
        assert_eq!(
            text(watch.query()),
            "watch=1&allowWatchBookmarks=true&timeoutSeconds=300&resourceVersion=7"
        );
        let start = WatchStart::InitialEvents(Consistency::MostRecent);
        assert_eq!(
            text(WatchRequest::new(start, Duration::from_secs(300)).query()),
            "watch=1&allowWatchBookmarks=true&timeoutSeconds=300&sendInitialEvents=true&\
             resourceVersionMatch=NotOlderThan&resourceVersion="
        );
    }
}
