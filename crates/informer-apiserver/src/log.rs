//! The log of received requests for resources, for tests that inspect traffic.
//!
//! Entries describe requests as the server interpreted them. The log holds the last `MAX_REQUESTS`
//! requests, or fewer if they take more than `MAX_BYTES`.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The operation that a request performs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Verb {
    /// Reads one object or one of its subresources.
    Get,
    /// Reads a collection.
    List,
    /// Watches a collection, or one object.
    Watch,
    /// Creates an object or a subresource, for example an eviction.
    Create,
    /// Replaces an object or one of its subresources.
    Update,
    /// Changes some fields of an object or of one of its subresources.
    Patch,
    /// Deletes an object.
    Delete,
    /// Deletes a collection.
    DeleteCollection,
}

impl Verb {
    /// Returns the verb as RBAC rules spell it.
    pub fn name(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Watch => "watch",
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
        }
    }
}

/// A request for a resource, including requests that the server rejected.
///
/// Two kinds of rejected requests are not recorded: those whose method has no meaning for the path, and those
/// whose body is too large or cannot be received.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordedRequest {
    /// The operation.
    pub verb: Verb,
    /// The API group; empty for the core group.
    pub group: String,
    /// The version in the path.
    pub version: String,
    /// The plural name of the resource.
    pub plural: String,
    /// The namespace in the path.
    pub namespace: Option<String>,
    /// The object's name in the path.
    pub name: Option<String>,
    /// The subresource in the path.
    pub subresource: Option<String>,
    /// The query string as received.
    pub query: String,
    /// The name of the user who sent the request, or of the user whom the request impersonates.
    ///
    /// Without access control, the sender is `admin`. Empty if the request was rejected with 401.
    pub user: String,
    /// The `Accept` header as received.
    pub accept: String,
}

impl RecordedRequest {
    /// Returns the decoded value of a query parameter.
    pub fn parameter(&self, name: &str) -> Option<String> {
        let mut pairs = form_urlencoded::parse(self.query.as_bytes());
        pairs.find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
    }
}

/// The most recent requests, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Log(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    requests: VecDeque<RecordedRequest>,
    /// Total size of `requests`.
    bytes: usize,
}

/// Number of requests that the log retains.
const MAX_REQUESTS: usize = 10_000;

/// Upper bound on the size of the log: query and headers of a request may take a megabyte.
const MAX_BYTES: usize = 16 * 1024 * 1024;

impl Log {
    pub(crate) fn push(&self, request: RecordedRequest) {
        let mut log = self.lock();
        log.bytes += size(&request);
        log.requests.push_back(request);
        while (log.requests.len() > MAX_REQUESTS || log.bytes > MAX_BYTES)
            && let Some(oldest) = log.requests.pop_front()
        {
            log.bytes -= size(&oldest);
        }
    }

    pub(crate) fn all(&self) -> Vec<RecordedRequest> {
        self.lock().requests.iter().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the approximate memory that an entry takes.
fn size(request: &RecordedRequest) -> usize {
    let RecordedRequest {
        verb: _,
        group,
        version,
        plural,
        namespace,
        name,
        subresource,
        query,
        user,
        accept,
    } = request;
    let optional = [namespace, name, subresource].into_iter().flatten();
    let texts = [group, version, plural, query, user, accept].into_iter().chain(optional);
    size_of::<RecordedRequest>() + texts.map(String::capacity).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bug: the log was limited by the number of requests only. With queries and `Accept` headers of a
    /// megabyte it would have taken 10 GB. No test sent large requests.
    #[test]
    fn log_is_limited_by_number_and_size() {
        let push = |log: &Log, number: usize, query: usize| {
            log.push(RecordedRequest {
                verb: Verb::Get,
                group: String::new(),
                version: "v1".to_owned(),
                plural: "pods".to_owned(),
                namespace: None,
                name: Some(number.to_string()),
                subresource: None,
                query: "q".repeat(query),
                user: String::new(),
                accept: String::new(),
            });
        };
        for (requests, query, expected) in [(12_000, 0, MAX_REQUESTS), (40, 1_000_000, 16)] {
            let log = Log::default();
            (0..requests).for_each(|number| push(&log, number, query));
            let all = log.all();
            assert_eq!(all.len(), expected);
            let newest = (requests - 1).to_string();
            assert_eq!(all.last().and_then(|request| request.name.as_deref()), Some(newest.as_str()));
        }
    }
}
