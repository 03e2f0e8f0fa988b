//! What the reflector of one scope has applied of the decisions of its shard group.
//!
//! A view is confirmed when the store contains its result, and a range counts as complete when the store contains its
//! list. A range that is not held any more stops counting at once, but its objects stay in the store until the work of
//! the controllers for it has ended: it reads them, and would take them for deleted.

use crate::delta_queue::DeltaQueue;
use crate::shard_view::{Participant, ShardView};
use crate::status::CompleteRanges;
use informer_core::shard::HashRanges;

/// What the reflector of one scope has applied.
pub(super) struct ShardProgress {
    participant: Participant,
    /// What the status contains.
    published: CompleteRanges,
    /// The number of the view that the state machine has received last.
    view: u64,
    /// What the status will contain when the store has applied the delta with this number.
    pending: Option<(CompleteRanges, u64)>,
    /// The number of the last view that was confirmed.
    confirmed: u64,
    /// The ranges that the state machine has received last.
    cached: HashRanges,
    /// Whether these contain ranges that are being released. Then the view is not confirmed.
    keeps_released: bool,
}

impl ShardProgress {
    pub(super) fn new(participant: Participant) -> Self {
        let published = CompleteRanges { view: 0, ranges: HashRanges::default() };
        let cached = HashRanges::default();
        Self { participant, published, view: 0, pending: None, confirmed: 0, cached, keeps_released: false }
    }

    /// Returns the number of the view that the state machine has received last.
    pub(super) fn view(&self) -> u64 {
        self.view
    }

    /// Records the ranges that are complete in all deltas that were pushed, up to the one with the number `end`.
    pub(super) fn record_pushed(&mut self, ranges: Option<HashRanges>, end: u64) {
        let complete = CompleteRanges { view: self.view, ranges: ranges.unwrap_or_default() };
        let last = self.pending.as_ref().map_or(&self.published, |(pending, _)| pending);
        if *last != complete || (self.pending.is_none() && self.is_unconfirmed()) {
            self.pending = Some((complete, end));
        }
    }

    /// Confirms what the store has applied, and returns what it contains; `None` if that has not changed.
    pub(super) fn take_applied(&mut self, has_applied: impl Fn(u64) -> bool) -> Option<CompleteRanges> {
        let (complete, _) = self.pending.take_if(|(_, end)| has_applied(*end))?;
        if !self.keeps_released {
            self.confirmed = complete.view;
            self.participant.confirm(complete.view);
        }
        self.published = complete;
        Some(self.published.clone())
    }

    /// Returns the newest view if it is new, or if work has ended for which released ranges were kept.
    pub(super) fn new_view(&mut self) -> Option<ShardView> {
        let is_due = self.participant.has_changed()
            || (self.keeps_released && self.participant.has_work_ended(self.view));
        is_due.then(|| self.participant.view())
    }

    /// Returns the ranges that the store must contain: those that are held, and the released ones that it contains while
    /// work may read them. `kept` are the ranges for which the process has acted since the last view.
    pub(super) fn ranges_of(&mut self, view: &ShardView, kept: &HashRanges) -> &HashRanges {
        let released = view.releasing.intersection(&self.cached).intersection(kept);
        self.keeps_released = !released.is_empty() && !self.participant.has_work_ended(view.number);
        self.cached = HashRanges::clone(&view.held);
        if self.keeps_released {
            self.cached = self.cached.union(&released);
        }
        &self.cached
    }

    /// Returns whether the view is to be confirmed when the store contains its result.
    fn is_unconfirmed(&self) -> bool {
        self.confirmed < self.view && !self.keeps_released
    }

    /// Records that the state machine has received a view, after which only these ranges remain complete. Returns what
    /// the store contains of them.
    pub(super) fn begin_view(&mut self, number: u64, remaining: &HashRanges) -> CompleteRanges {
        self.view = number;
        self.pending = None;
        let ranges = self.published.ranges.intersection(remaining);
        self.published = CompleteRanges { view: number, ranges };
        self.published.clone()
    }
}

/// Waits until there is something to publish or a new view; without sharding, forever.
pub(super) async fn shard_change(shard: Option<&mut ShardProgress>, queue: &DeltaQueue, scope_index: usize) {
    let Some(ShardProgress { participant, pending, view, keeps_released, .. }) = shard else {
        return std::future::pending().await;
    };
    let work_ended = async {
        if *keeps_released {
            participant.work_ended(*view).await;
        } else {
            std::future::pending::<()>().await;
        }
    };
    let applied = async {
        match pending {
            Some((_, end)) => queue.wait_until_applied(scope_index, *end).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = participant.changed() => {}
        () = applied => {}
        () = work_ended => {}
    }
}
