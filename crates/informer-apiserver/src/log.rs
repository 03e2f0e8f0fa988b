//! What clients asked for: the requests as the server understood them, for tests that look at traffic.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Verb {
    /// Reads one object.
    Get,
    /// Reads a collection.
    List,
    /// Follows a collection.
    Watch,
    /// Creates an object.
    Create,
    /// Replaces an object, or its status.
    Update,
    /// Changes parts of an object.
    Patch,
    /// Deletes an object.
    Delete,
    /// Deletes a collection.
    DeleteCollection,
}

impl Verb {
    /// The verb as access rules spell it.
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

/// A request for a resource, as it came in; also those that were refused.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordedRequest {
    /// What it does.
    pub verb: Verb,
    /// The API group; empty for the core group.
    pub group: String,
    /// The version in the path.
    pub version: String,
    /// The resource.
    pub plural: String,
    /// The namespace in the path.
    pub namespace: Option<String>,
    /// The object's name in the path.
    pub name: Option<String>,
    /// The subresource in the path.
    pub subresource: Option<String>,
    /// The query, as it was sent.
    pub query: String,
    /// In whose name it was sent: `admin` where nobody is asked, and empty for a wrong token.
    pub user: String,
    /// The forms of an answer that it accepts, as it said.
    pub accept: String,
}

impl RecordedRequest {
    /// The value of a query parameter.
    pub fn parameter(&self, name: &str) -> Option<String> {
        let mut pairs = form_urlencoded::parse(self.query.as_bytes());
        pairs.find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
    }
}

/// The last requests.
#[derive(Debug, Default)]
pub(crate) struct Log(Mutex<VecDeque<RecordedRequest>>);

const KEPT: usize = 10_000;

impl Log {
    pub(crate) fn push(&self, seen: RecordedRequest) {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if log.len() == KEPT {
            log.pop_front();
        }
        log.push_back(seen);
    }

    pub(crate) fn all(&self) -> Vec<RecordedRequest> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}
