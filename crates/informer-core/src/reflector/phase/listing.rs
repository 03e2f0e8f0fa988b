//! A list that is being received, page by page. It must not know which request is next.

use super::response::ResponseState;
use crate::key::Key;
use crate::object::Entry;
use crate::reflector::config::Config;
use crate::reflector::failure::{ErrorResponse, Failure, ResponseHead};
use crate::reflector::request::{Consistency, ListRequest, StreamId};
use crate::reflector::state::InformerState;
use crate::time::Moment;
use crate::version::ResourceVersion;
use crate::wire::{ListBody, ListMeta, UnreadableObject};
use std::collections::{BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

/// The time within which a server must respond to the probe that replaces a silent watch.
pub(in crate::reflector) const CHECK_TIMEOUT: Duration = Duration::from_secs(20);
/// Number of consecutive pages without a new key that are accepted.
const MAX_UNPRODUCTIVE_PAGES: u32 = 3;
/// Number of pages after which the average page must have a tenth of the requested size.
const MAX_TINY_PAGES: u64 = 20;
/// The average page size that a server must have that pages a list on its own.
const MIN_PAGE_SIZE: u64 = 10;
/// Number of bytes that count as progress of a list.
const PROGRESS_BYTES: u64 = 16 * 1024;

/// The purpose of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::reflector) enum ListKind {
    /// The full list, which replaces the cache.
    Full,
    /// A list of one object before a watch resumes after a failure, of which only the version is used.
    Probe,
    /// A probe that replaces a silent watch. The cache counts as live meanwhile.
    Check,
    /// A list of one object that tells which version a saved state has to reach.
    Confirmation,
}

/// A list that is being received.
#[derive(Debug)]
pub(in crate::reflector) struct Listing {
    pub(in crate::reflector) id: StreamId,
    pub(in crate::reflector) kind: ListKind,
    /// The request of the current page.
    pub(in crate::reflector) request: ListRequest,
    pub(in crate::reflector) response: ResponseState<ListBody>,
    /// The metadata of the current page.
    pub(in crate::reflector) meta: Option<ListMeta>,
    /// The version of the first page. Later pages repeat it. If a later page has a newer version, a watch
    /// from the version of the first page still misses no change.
    pub(in crate::reflector) version: Option<ResourceVersion>,
    /// The continue tokens received so far.
    pub(in crate::reflector) tokens: BTreeSet<Box<str>>,
    /// Hashes of the keys received so far, by which pages that repeat objects are recognised.
    pub(in crate::reflector) keys: HashSet<u64>,
    /// Number of keys received before the current page.
    pub(in crate::reflector) keys_before_page: usize,
    /// Number of consecutive pages without a new key.
    pub(in crate::reflector) unproductive_pages: u32,
    /// Number of pages received so far.
    pub(in crate::reflector) pages: u64,
    /// Number of bytes received of the current page.
    pub(in crate::reflector) bytes: u64,
    /// Start of the current progress window, and the number of bytes at that moment.
    window: (Moment, u64),
    /// Number of bytes received at the end of the last item.
    item_end: u64,
    /// Whether the whole list was requested without pages, because paging failed.
    pub(in crate::reflector) unpaged: bool,
    /// Number of objects in total. The server may report it with each page but the last.
    pub(in crate::reflector) total: Option<u64>,
    pub(in crate::reflector) entries: Vec<Arc<Entry>>,
    pub(in crate::reflector) unreadable: Vec<UnreadableObject>,
}

impl Listing {
    pub(in crate::reflector) fn new(id: StreamId, kind: ListKind, request: ListRequest) -> Self {
        Self {
            id,
            kind,
            request,
            response: ResponseState::Pending,
            meta: None,
            version: None,
            tokens: BTreeSet::new(),
            keys: HashSet::new(),
            keys_before_page: 0,
            unproductive_pages: 0,
            pages: 0,
            bytes: 0,
            window: (Moment::default(), 0),
            item_end: 0,
            unpaged: false,
            total: None,
            entries: Vec::new(),
            unreadable: Vec::new(),
        }
    }

    pub(in crate::reflector) fn receive_head(&mut self, now: Moment, head: ResponseHead, config: &Config) {
        let body = head.is_success().then(|| config.list_body(&head)).flatten();
        self.response =
            body.map_or_else(|| ResponseState::Error(ErrorResponse::new(now, head)), ResponseState::Body);
        (self.bytes, self.item_end, self.window) = (0, 0, (now, 0));
    }

    /// Records a part of the body.
    pub(in crate::reflector) fn receive_bytes(&mut self, now: Moment, count: usize) {
        self.bytes += count as u64;
        if self.bytes - self.window.1 >= PROGRESS_BYTES {
            self.window = (now, self.bytes);
        }
    }

    /// Records the end of an item or of the list's metadata.
    pub(in crate::reflector) fn receive_item(&mut self, key: Option<&Key>) {
        self.item_end = self.bytes;
        if let Some(key) = key {
            let mut hasher = DefaultHasher::new();
            key.hash(&mut hasher);
            self.keys.insert(hasher.finish());
        }
    }

    /// Returns the number of bytes received since the end of the last item.
    pub(in crate::reflector) fn bytes_since_item(&self) -> u64 {
        self.bytes - self.item_end
    }

    /// Records the end of a page; returns whether the pages bring enough new objects.
    ///
    /// C11: pages that repeat objects, are empty or are tiny would be requested forever without a delay.
    pub(in crate::reflector) fn finish_page(&mut self) -> bool {
        let before = std::mem::replace(&mut self.keys_before_page, self.keys.len());
        self.unproductive_pages = if self.keys.len() == before { self.unproductive_pages + 1 } else { 0 };
        self.pages += 1;
        // A server that pages a list although no pages were requested has its own page size.
        let page_size = u64::from(self.request.limit.unwrap_or(u32::MAX));
        let min_page_size = if self.unpaged { MIN_PAGE_SIZE } else { page_size / 10 };
        let min_keys = self.pages.saturating_sub(MAX_TINY_PAGES) * min_page_size;
        self.unproductive_pages <= MAX_UNPRODUCTIVE_PAGES && self.keys.len() as u64 >= min_keys
    }

    /// Returns the failure of a list that made no notable progress within `timeout`.
    pub(in crate::reflector) fn stalled(&self, timeout: Duration) -> Failure {
        let (bytes, objects) = (self.bytes, self.received());
        let text =
            format!("too little received within {timeout:?}: {bytes} bytes of this page, {objects} objects");
        Failure::timeout(text)
    }

    pub(in crate::reflector) fn error_response(&self) -> Option<&ErrorResponse> {
        self.response.error_response()
    }

    /// Returns the moment at which more data must have arrived; `None` while the headers are pending.
    pub(in crate::reflector) fn deadline(&self, config: &Config) -> Option<Moment> {
        (!self.is_pending()).then_some(self.window.0 + config.list_progress_timeout)
    }

    /// Returns whether no response headers have been received.
    pub(in crate::reflector) fn is_pending(&self) -> bool {
        matches!(self.response, ResponseState::Pending)
    }

    pub(in crate::reflector) fn state(&self) -> InformerState {
        match self.received() {
            0 if !matches!(self.response, ResponseState::Body(_)) => InformerState::Connecting,
            received => InformerState::Listing { received, total: self.total },
        }
    }

    pub(in crate::reflector) fn version(&self) -> Option<&ResourceVersion> {
        self.version.as_ref()
    }

    /// Returns whether this is an audit. Only audits request an exact version.
    pub(in crate::reflector) fn is_audit(&self) -> bool {
        matches!(self.request.consistency, Consistency::Exact(_))
    }

    /// Returns the number of objects received so far, readable or not.
    pub(in crate::reflector) fn received(&self) -> u64 {
        (self.entries.len() + self.unreadable.len()) as u64
    }
}
