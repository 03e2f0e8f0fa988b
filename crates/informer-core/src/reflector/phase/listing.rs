//! A list that is being received, page by page. It must not know which request is next.

use super::response::ResponseState;
use crate::object::Entry;
use crate::reflector::config::Config;
use crate::reflector::failure::{ErrorResponse, ResponseHead};
use crate::reflector::request::{Consistency, ListRequest, StreamId};
use crate::reflector::state::InformerState;
use crate::time::Moment;
use crate::version::ResourceVersion;
use crate::wire::{ListBody, ListMeta, UnreadableObject};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A list that is being received.
#[derive(Debug)]
pub(in crate::reflector) struct Listing {
    pub(in crate::reflector) id: StreamId,
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
    /// Number of items received so far, including unreadable ones and those of another kind.
    pub(in crate::reflector) items: u64,
    /// Number of items received before the current page.
    pub(in crate::reflector) items_before_page: u64,
    /// Number of consecutive pages without items.
    pub(in crate::reflector) empty_pages: u32,
    /// Whether paging failed and the whole list was requested instead. Happens at most once per list.
    pub(in crate::reflector) unpaged: bool,
    /// Whether this is a probe, of which only the version is used.
    pub(in crate::reflector) probe: bool,
    /// Number of objects in total. The server may report it with each page but the last.
    pub(in crate::reflector) total: Option<u64>,
    pub(in crate::reflector) entries: Vec<Arc<Entry>>,
    pub(in crate::reflector) unreadable: Vec<UnreadableObject>,
}

impl Listing {
    pub(in crate::reflector) fn new(id: StreamId, request: ListRequest) -> Self {
        Self {
            id,
            request,
            response: ResponseState::Pending,
            meta: None,
            version: None,
            tokens: BTreeSet::new(),
            items: 0,
            items_before_page: 0,
            empty_pages: 0,
            unpaged: false,
            probe: false,
            total: None,
            entries: Vec::new(),
            unreadable: Vec::new(),
        }
    }

    pub(in crate::reflector) fn receive_head(&mut self, now: Moment, head: ResponseHead, config: &Config) {
        let body = head.is_success().then(|| config.list_body(&head)).flatten();
        self.response =
            body.map_or_else(|| ResponseState::Error(ErrorResponse::new(now, head)), ResponseState::Body);
    }

    pub(in crate::reflector) fn error_response(&self) -> Option<&ErrorResponse> {
        self.response.error_response()
    }

    /// Returns the moment at which more data must have arrived; `None` while the headers are pending.
    pub(in crate::reflector) fn deadline(
        &self,
        config: &Config,
        last_contact: Option<Moment>,
    ) -> Option<Moment> {
        last_contact.filter(|_| !self.is_pending()).map(|last| last + config.list_idle_timeout)
    }

    /// Returns whether no response headers have been received.
    pub(in crate::reflector) fn is_pending(&self) -> bool {
        matches!(self.response, ResponseState::Pending)
    }

    pub(in crate::reflector) fn state(&self) -> InformerState {
        match self.received() {
            0 => InformerState::Connecting,
            received => InformerState::Listing { received, total: self.total },
        }
    }

    /// Creates a probe, of which only the version is used.
    pub(in crate::reflector) fn probe(id: StreamId, request: ListRequest) -> Self {
        Self { probe: true, ..Self::new(id, request) }
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
