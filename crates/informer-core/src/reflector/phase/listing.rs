//! A list that is coming in, page by page. It must not know what is asked for next.

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

/// A list that is coming in.
#[derive(Debug)]
pub(in crate::reflector) struct Listing {
    pub(in crate::reflector) id: StreamId,
    /// The request of the current page.
    pub(in crate::reflector) request: ListRequest,
    pub(in crate::reflector) response: ResponseState<ListBody>,
    /// The metadata of the current page.
    pub(in crate::reflector) meta: Option<ListMeta>,
    /// The version of the first page: later pages repeat it, and if one should not, the earlier loses nothing.
    pub(in crate::reflector) version: Option<ResourceVersion>,
    /// The tokens of the pages so far.
    pub(in crate::reflector) tokens: BTreeSet<Box<str>>,
    /// Items so far, of whatever kind; those before the current page; and pages in a row that brought none.
    pub(in crate::reflector) items: u64,
    pub(in crate::reflector) before_page: u64,
    pub(in crate::reflector) empty_pages: u32,
    /// The pages took too long once: everything was asked for at once instead.
    pub(in crate::reflector) unpaged: bool,
    /// It is asked for its version alone.
    pub(in crate::reflector) probe: bool,
    /// How many objects there are in all; the server says it with each page but the last.
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
            before_page: 0,
            empty_pages: 0,
            unpaged: false,
            probe: false,
            total: None,
            entries: Vec::new(),
            unreadable: Vec::new(),
        }
    }

    pub(in crate::reflector) fn open(&mut self, now: Moment, head: ResponseHead, config: &Config) {
        let body = head.is_success().then(|| config.list_body(&head)).flatten();
        self.response =
            body.map_or_else(|| ResponseState::Rejected(ErrorResponse::new(now, head)), ResponseState::Body);
    }

    pub(in crate::reflector) fn refused(&self) -> Option<&ErrorResponse> {
        self.response.rejected()
    }

    /// A body that has begun must go on.
    pub(in crate::reflector) fn deadline(&self, config: &Config, last_contact: Moment) -> Option<Moment> {
        (!self.is_awaited()).then(|| last_contact + config.list_idle_timeout)
    }

    pub(in crate::reflector) fn is_awaited(&self) -> bool {
        matches!(self.response, ResponseState::Pending)
    }

    pub(in crate::reflector) fn state(&self) -> InformerState {
        match self.done() {
            0 => InformerState::Connecting,
            done => InformerState::Listing { received: done, total: self.total },
        }
    }

    /// One that is asked for its version alone.
    pub(in crate::reflector) fn probe(id: StreamId, request: ListRequest) -> Self {
        Self { probe: true, ..Self::new(id, request) }
    }

    pub(in crate::reflector) fn version(&self) -> Option<&ResourceVersion> {
        self.version.as_ref()
    }

    pub(in crate::reflector) fn is_audit(&self) -> bool {
        matches!(self.request.consistency, Consistency::Exact(_))
    }

    /// Objects so far, readable or not.
    pub(in crate::reflector) fn done(&self) -> u64 {
        (self.entries.len() + self.unreadable.len()) as u64
    }
}
