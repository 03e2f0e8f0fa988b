//! The log of received requests for resources, for tests that inspect traffic.
//!
//! Entries describe requests as the server interpreted them. The log holds the last `MAX_REQUESTS`
//! requests.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

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
pub(crate) struct Log(Mutex<VecDeque<RecordedRequest>>);

/// Number of requests that the log retains.
const MAX_REQUESTS: usize = 10_000;

impl Log {
    pub(crate) fn push(&self, request: RecordedRequest) {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if log.len() == MAX_REQUESTS {
            log.pop_front();
        }
        log.push_back(request);
    }

    pub(crate) fn all(&self) -> Vec<RecordedRequest> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}
