//! Lists and pages: which version is listed, where a page starts, and the token of the next page.
//!
//! A token contains a version and a key but neither resource nor selector, so clients can use it for another
//! resource or with another selector, as in kube-apiserver. Pages are computed from a copy of the objects
//! that shares structure with them, so without the lock of the model. The encoding of items is not known
//! here.

use std::ops::Bound;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use informer_objects::status::Status;
use serde::{Deserialize, Serialize};

use super::fields::Filter;
use super::kinds::VersionedResource;
use super::state::State;
use super::{Model, Objects};

/// The version to list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ReadVersion {
    Newest,
    Exact(u64),
    Token(Token),
}

/// Whether the pages of a list are requested one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Paging {
    /// The objects are not retained.
    Unpaged,
    /// The objects are retained for later pages.
    Paged,
}

/// A continue token. It is encoded as in kube-apiserver, which explains the names of its fields.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Token {
    /// The version of the format of tokens.
    v: String,
    /// The resource version; -1 for the newest.
    rv: i64,
    /// The key of the last item of the previous page, relative to the namespace: `/`, key, NUL.
    start: String,
}

/// The objects of a list, and where the requested page starts.
#[derive(Debug, Clone)]
pub(crate) struct Listing {
    pub(crate) version: u64,
    pub(crate) objects: Objects,
    /// The key after which the requested page starts; `None` for the first page.
    pub(crate) after: Option<String>,
}

/// One page of a list.
pub(crate) struct Page {
    pub(crate) items: Vec<Arc<State>>,
    pub(crate) next: Option<Token>,
    /// Number of items after this page; `None` if there are none, or if a selector makes the number unknown.
    pub(crate) remaining: Option<usize>,
}

impl Model {
    /// Returns the objects of a list.
    pub(crate) fn list(
        &mut self,
        gvr: VersionedResource,
        namespace: &str,
        at: &ReadVersion,
        paging: Paging,
    ) -> Result<Listing, Status> {
        let current = self.version;
        let storage_id = self.storage_id(gvr);
        let collection = self.collections.get_mut(&storage_id).ok_or_else(Status::no_such_resource)?;
        let (version, after) = match at {
            ReadVersion::Newest => (current, None),
            ReadVersion::Exact(version) => (*version, None),
            ReadVersion::Token(token) => {
                let version = u64::try_from(token.rv).unwrap_or(current);
                (version, Some(token.key(namespace)))
            }
        };
        // A token from before a restore may contain a version that the server has not reached since.
        let is_reached = version <= current;
        let objects = collection.objects_at(version).filter(|_| is_reached).ok_or_else(|| match at {
            ReadVersion::Token(token) => Status::token_expired(Token { rv: -1, ..token.clone() }.encode()),
            ReadVersion::Newest | ReadVersion::Exact(_) => Status::list_expired(),
        })?;
        if paging == Paging::Paged {
            collection.pin(version, &objects);
        }
        Ok(Listing { version, objects, after })
    }
}

impl Listing {
    /// Returns the requested page. `limit` is at least one.
    pub(crate) fn page(&self, filter: &Filter, limit: usize) -> Page {
        let mut states = self.states(filter);
        let items: Vec<Arc<State>> = states.by_ref().take(limit).collect();
        // With a selector, kube-apiserver does not report how many items remain, only that some do. With a shard
        // selector, it subtracts the items of the page from those of all shards.
        let remaining = if filter.has_selector() {
            usize::from(states.next().is_some())
        } else if filter.shard().is_some() && items.len() == limit {
            let all = filter.without_shard();
            self.states(&all).count() - items.len()
        } else {
            states.count()
        };
        let next = items.last().filter(|_| remaining > 0).map(|last| {
            let start = if filter.namespace.is_empty() { last.key() } else { last.name.clone() };
            Token {
                v: "meta.k8s.io/v1".to_owned(),
                rv: i64::try_from(self.version).unwrap_or(i64::MAX),
                start: format!("/{start}\0"),
            }
        });
        Page { items, next, remaining: (remaining > 0 && !filter.has_selector()).then_some(remaining) }
    }

    /// Returns all matching states from the start of the requested page to the end of the list.
    pub(crate) fn states<'a>(&'a self, filter: &'a Filter) -> impl Iterator<Item = Arc<State>> + 'a {
        states_after(&self.objects, self.after.as_deref(), filter)
    }
}

/// Returns the states after a key, in key order.
pub(crate) fn states_after<'a>(
    objects: &'a Objects,
    after: Option<&str>,
    filter: &'a Filter,
) -> impl Iterator<Item = Arc<State>> + 'a {
    let namespace = &filter.namespace;
    let first = format!("{namespace}/");
    let from = match after {
        Some(after) if namespace.is_empty() || after > first.as_str() => Bound::Excluded(after),
        _ if namespace.is_empty() => Bound::Unbounded,
        _ => Bound::Included(first.as_str()),
    };
    // '0' follows '/', so this is the first key after the namespace.
    let end = format!("{namespace}0");
    let to = if namespace.is_empty() { Bound::Unbounded } else { Bound::Excluded(end.as_str()) };
    let range = objects.range::<_, str>((from, to));
    range.map(|(_, state)| state).filter(move |state| filter.matches(state)).cloned()
}

impl Token {
    /// Parses a token. The error is the message of the 400 response.
    pub(crate) fn decode(text: &str) -> Result<Self, String> {
        let bytes = URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).map_err(|error| {
            let at = match error {
                base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => at,
                _ => text.len(),
            };
            format!(
                "invalid continue token: continue key is not valid: illegal base64 data at input byte {at}"
            )
        })?;
        let token: Token = serde_json::from_slice(&bytes).map_err(|_| {
            let found = char::from(bytes.first().copied().unwrap_or(b' '));
            format!(
                "invalid continue token: continue key is not valid: invalid character '{found}' looking for beginning \
                 of value"
            )
        })?;
        if token.v != "meta.k8s.io/v1" {
            return Err(format!(
                "invalid continue token: continue key is not valid: server does not recognize this encoded version \"{}\"",
                token.v
            ));
        }
        Ok(token)
    }

    pub(crate) fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).unwrap_or_default())
    }

    /// Returns the key after which the list continues. A token does not contain the namespace of its request.
    fn key(&self, namespace: &str) -> String {
        let start = self.start.trim_start_matches('/').trim_end_matches('\0');
        super::state::key(namespace, start)
    }
}
