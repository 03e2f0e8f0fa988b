//! The listing phase: full lists, page by page, and audits.

use super::diagnostic::{ReflectorDiagnostic, RequestKind};
use super::failure::{Failure, FailureClass, FailureKind};
use super::machine::Reflector;
use super::phase::{ListKind, Listing, Phase, ResponseState, Resume};
use super::request::{Consistency, ListRequest};
use super::state::RelistReason;
use crate::delta::{Delta, Replaced};
use crate::time::Moment;
use crate::version::ResourceVersion;
use crate::wire::{ListItem, ListMeta};
use std::time::Duration;

/// The page size of lists that may reach the server's storage.
const PAGE_SIZE: u32 = 500;
/// Delay of an audit that is due while hash ranges are merged.
const AUDIT_RETRY_DELAY: Duration = Duration::from_secs(60);

impl Reflector {
    pub(super) fn begin_list(&mut self, now: Moment) {
        // A list of hash ranges must contain the writes of their previous owner.
        let initial = if self.config.shard.is_some() { Consistency::MostRecent } else { Consistency::Any };
        let consistency = self.position.consistency(initial);
        // kube-apiserver serves a list not older than a version from its watch cache.
        let may_reach_storage =
            self.server.pages_cached_lists || !matches!(consistency, Consistency::NotOlderThan(_));
        let limit = self.config.page_size.or(may_reach_storage.then_some(PAGE_SIZE));
        let unpaged = self.server.pages_do_not_end;
        self.send_first_page(now, ListRequest::new(consistency, limit.filter(|_| !unpaged)));
        if let Phase::Listing(listing) = &mut self.phase {
            listing.unpaged = unpaged;
        }
    }

    /// Starts an audit: compares the cache with a list at the same version.
    ///
    /// At the same version, every difference is drift. A newer list would also contain changes that the watch
    /// has not delivered.
    pub(super) fn begin_audit(&mut self, now: Moment) {
        let Some(position) = self.position.version().cloned() else { return };
        if !self.ranges.floors.is_empty() {
            // Some ranges are ahead of the position, which is soon past.
            return self.contact.schedule_audit(Some(now + AUDIT_RETRY_DELAY));
        }
        self.record_health(now);
        self.cancel_stream();
        self.out.counters.relists.count(RelistReason::Audit);
        // The next audit is scheduled even if this one fails.
        let next = self.next_audit(now);
        self.contact.schedule_audit(next);
        let limit = self.config.page_size.or(Some(PAGE_SIZE));
        self.send_first_page(now, ListRequest::new(Consistency::Exact(position), limit));
    }

    /// Returns the moment of the next audit: after the audit period and a jitter of up to a tenth of it.
    ///
    /// The jitter prevents the clients of one server, and the kinds of one client, from listing
    /// simultaneously.
    pub(super) fn next_audit(&mut self, now: Moment) -> Option<Moment> {
        let tenth = self.config.audit_period? / 10;
        Some(now + 9 * tenth + self.health.jittered(tenth))
    }

    /// Handles a failed audit: sends an ordinary list if the server cannot serve the version of the audit or
    /// rejects the request, otherwise backs off and resumes the watch.
    fn audit_failed(&mut self, now: Moment, failure: Failure) {
        if matches!(
            failure.class(),
            FailureClass::Expired | FailureClass::VersionTooLarge | FailureClass::Rejected
        ) {
            self.report_failure(RequestKind::List, failure, Duration::ZERO);
            return self.begin_list(now);
        }
        self.enter_backoff(now, RequestKind::List, Resume::Watch, failure);
    }

    fn send_first_page(&mut self, now: Moment, request: ListRequest) {
        let id = self.send_list(now, request.clone());
        self.phase = Phase::Listing(Listing::new(id, ListKind::Full, request));
    }

    pub(super) fn list_bytes(&mut self, now: Moment, mut chunk: &[u8]) {
        self.contact.record_contact(now);
        let Phase::Listing(listing) = &mut self.phase else { return };
        listing.receive_bytes(now, chunk.len());
        if let ResponseState::Error(response) = &mut listing.response {
            if response.read(chunk) {
                let failure = response.failure();
                self.cancel_stream();
                self.list_failed(now, failure);
            }
            return;
        }
        loop {
            let Phase::Listing(listing) = &mut self.phase else { return };
            let ResponseState::Body(reader) = &mut listing.response else { return };
            match reader.next(&mut chunk) {
                Ok(Some(item)) => self.list_item(item),
                Ok(None) if listing.bytes_since_item() <= self.config.max_item_bytes() => return,
                Ok(None) => {
                    self.cancel_stream();
                    return self.list_failed(now, Failure::malformed("an item does not end"));
                }
                Err(error) => {
                    self.record_malformed_body(&error);
                    self.cancel_stream();
                    return self.list_failed(now, Failure::from(&error));
                }
            }
        }
    }

    fn list_item(&mut self, item: ListItem) {
        if matches!(&self.phase, Phase::Listing(listing) if listing.kind != ListKind::Full)
            && !matches!(item, ListItem::Meta(_))
        {
            if let Phase::Listing(listing) = &mut self.phase {
                listing.receive_item(None);
            }
            return; // only the version of a probe is used
        }
        // An object is converted before the phase is borrowed; any other item is passed on as `Err`.
        let entry = match item {
            ListItem::Object(scanned) if !self.config.selects(&scanned.head) => {
                self.out.counters.foreign += 1;
                if let Phase::Listing(listing) = &mut self.phase {
                    listing.receive_item(Some(&scanned.head.key));
                }
                return;
            }
            ListItem::Object(scanned) => Ok(self.listed_entry(scanned)),
            item => Err(item),
        };
        let Phase::Listing(listing) = &mut self.phase else { return };
        match entry {
            Ok(entry) => {
                listing.receive_item(Some(entry.key()));
                listing.entries.push(entry);
            }
            Err(ListItem::Meta(meta)) => {
                listing.receive_item(None);
                listing.version.get_or_insert_with(|| meta.version.clone());
                listing.meta = Some(meta);
            }
            Err(ListItem::Unreadable(unreadable)) => {
                listing.receive_item(unreadable.key.as_ref());
                listing.unreadable.push(unreadable.clone());
                self.out.counters.unreadable += 1;
                self.report(ReflectorDiagnostic::ObjectSkipped(unreadable));
            }
            Err(ListItem::Object(_)) => {}
        }
    }

    pub(super) fn list_end(&mut self, now: Moment) {
        let Phase::Listing(listing) = &self.phase else { return };
        let outcome = match &listing.response {
            ResponseState::Pending => Err(Failure::interrupted("the response ended before its headers")),
            ResponseState::Error(response) => Err(response.failure()),
            ResponseState::Body(reader) => {
                reader.finish().map(|()| reader.encoding()).map_err(|error| Failure::from(&error))
            }
        };
        match outcome {
            Ok(encoding) => self.record_readable_body(encoding),
            Err(failure) => return self.list_failed(now, failure),
        }
        let Phase::Listing(listing) = &mut self.phase else { return };
        match listing.kind {
            ListKind::Full => {}
            ListKind::Probe | ListKind::Check => return self.probe_complete(now),
            ListKind::Confirmation => return self.confirmation_complete(now),
        }
        let Some(ListMeta { continue_token: Some(token), remaining, .. }) = listing.meta.take() else {
            return self.list_complete(now);
        };
        // `remainingItemCount` counts from the end of this page.
        // With hash ranges, it is the number of objects of all ranges.
        let remaining = remaining.filter(|_| self.config.shard.is_none());
        listing.total = remaining.map(|remaining| remaining + listing.received()).or(listing.total);
        let productive = listing.finish_page();
        // C11: tokens that repeat would be requested forever without a delay.
        if !listing.tokens.insert(token.clone()) {
            self.list_failed(now, Failure::malformed("the pages of the list repeat"));
        } else if productive {
            self.next_page(now, token);
        } else {
            self.server.pages_do_not_end = true;
            let failure = Failure::malformed("the pages of the list bring no new objects and do not end");
            if listing.unpaged { self.list_failed(now, failure) } else { self.list_unpaged(now, failure) }
        }
    }

    fn next_page(&mut self, now: Moment, token: Box<str>) {
        let Phase::Listing(listing) = &self.phase else { return };
        // The server may send pages although none were requested.
        let limit = listing.request.limit.or(Some(PAGE_SIZE));
        let request = ListRequest { continue_token: Some(token), limit, ..listing.request.clone() };
        self.server.pages_cached_lists |= request.consistency == Consistency::Any;
        let id = self.send_list(now, request.clone());
        if let Phase::Listing(listing) = &mut self.phase {
            listing.id = id;
            listing.request = request;
            listing.response = ResponseState::Pending;
        }
    }

    fn list_complete(&mut self, now: Moment) {
        let Phase::Listing(listing) = std::mem::replace(&mut self.phase, Phase::Idle) else { return };
        // A server without support for exact lists returns a newer one, whose differences are not drift.
        let audit = listing.is_audit() && listing.version.as_ref() == self.position.version();
        let Some(version) = listing.version else {
            return self.enter_backoff(
                now,
                RequestKind::List,
                Resume::Relist,
                Failure::malformed("the list has no resource version"),
            );
        };
        let consistent = listing.request.consistency == Consistency::MostRecent;
        if let Some(failure) = self.stale_list_failure(RequestKind::List, &version, consistent) {
            return self.relist_failed(now, RequestKind::List, consistent, failure);
        }
        if let Some(failure) = self.server.watch_list.rejected_this_relist.take() {
            self.disable_watch_list(failure);
        }
        let (mut entries, unreadable) = (listing.entries, listing.unreadable);
        entries.extend(self.cache.saved_entries(&unreadable));
        self.drop_released(&mut entries);
        self.record_undecided(&unreadable);
        self.record_full_list(now, version.clone(), consistent);
        let scope = self.config.scope.clone();
        self.push(Delta::Replaced(Replaced { scope, version, entries, unreadable, audit }));
        self.begin_watch(now);
    }

    /// Returns the failure of a list that is older than the position.
    ///
    /// C1: an older list is accepted, as a rewind, only if it is `consistent`: requested as the server's most
    /// recent state.
    pub(super) fn stale_list_failure(
        &self,
        request: RequestKind,
        version: &ResourceVersion,
        consistent: bool,
    ) -> Option<Failure> {
        let is_older = !consistent && self.position.ahead_of(version).is_some();
        let message = format!("the {request} is older than requested: {version}");
        is_older.then(|| Failure::new(FailureKind::VersionTooLarge, message))
    }

    pub(super) fn list_failed(&mut self, now: Moment, failure: Failure) {
        let Phase::Listing(listing) = &self.phase else { return };
        if listing.is_audit() {
            return self.audit_failed(now, failure);
        }
        match listing.kind {
            ListKind::Full => {}
            ListKind::Probe | ListKind::Check => return self.probe_failed(now, failure),
            ListKind::Confirmation => return self.confirmation_failed(now, failure),
        }
        let consistent = listing.request.consistency == Consistency::MostRecent;
        let token_expired =
            failure.class() == FailureClass::Expired && listing.request.continue_token.is_some();
        if token_expired && !listing.unpaged {
            self.out.counters.expired += 1;
            return self.list_unpaged(now, failure);
        }
        self.relist_failed(now, RequestKind::List, consistent, failure);
    }

    /// Requests the whole list without pages, with the consistency of the first page.
    ///
    /// Happens at most once per list, because a server that pages nevertheless could cause an endless loop.
    fn list_unpaged(&mut self, now: Moment, failure: Failure) {
        let Phase::Listing(listing) = &self.phase else { return };
        let request = ListRequest::new(listing.request.consistency.clone(), None);
        self.report_failure(RequestKind::List, failure, Duration::ZERO);
        self.send_first_page(now, request);
        if let Phase::Listing(listing) = &mut self.phase {
            listing.unpaged = true;
        }
    }

    /// Handles a failed list or watch-list.
    ///
    /// If the server cannot serve the version, the reflector repeats the request immediately, for the most
    /// recent state. Every other failure is followed by a backoff, as is every failure of a request that was
    /// already for the most recent state (`consistent`).
    pub(super) fn relist_failed(
        &mut self,
        now: Moment,
        request: RequestKind,
        consistent: bool,
        failure: Failure,
    ) {
        let is_version_failure =
            matches!(failure.class(), FailureClass::Expired | FailureClass::VersionTooLarge);
        self.out.counters.expired += u64::from(failure.class() == FailureClass::Expired);
        // A rejected version is treated like one that cannot be served, but the next request is delayed.
        let rejected = failure.class() == FailureClass::Rejected && !consistent;
        if is_version_failure || rejected {
            self.position.mark_unavailable();
        }
        if !is_version_failure || consistent {
            return self.enter_backoff(now, request, Resume::Relist, failure);
        }
        self.report_failure(request, failure, Duration::ZERO);
        match request {
            RequestKind::WatchList => self.begin_watch_list(now),
            RequestKind::List | RequestKind::Watch => self.begin_list(now),
        }
    }
}
