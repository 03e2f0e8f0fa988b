//! What the reflector of one scope has applied of the decisions of its shard group.
//!
//! A view is confirmed when the store contains its result, and a range counts as complete when the store contains its
//! list. A range that is not held any more stops counting at once, but its objects stay in the store until the work of
//! the controllers for it has ended: it reads them, and would take them for deleted. Until then, the view is not confirmed
//! for this range.

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
    /// Whether the last view is to be confirmed when the store contains its result.
    is_unconfirmed: bool,
    /// The ranges that the state machine has received last.
    cached: HashRanges,
    /// Those of them that are being released. The view is not confirmed for them.
    remaining: HashRanges,
}

impl ShardProgress {
    pub(super) fn new(participant: Participant) -> Self {
        Self {
            participant,
            published: CompleteRanges { view: 0, ranges: HashRanges::default() },
            view: 0,
            pending: None,
            is_unconfirmed: false,
            cached: HashRanges::default(),
            remaining: HashRanges::default(),
        }
    }

    /// Returns the number of the view that the state machine has received last.
    pub(super) fn view(&self) -> u64 {
        self.view
    }

    /// Records the ranges that are complete in all deltas that were pushed, up to the one with the number `end`.
    pub(super) fn record_pushed(&mut self, ranges: Option<HashRanges>, end: u64) {
        let complete = CompleteRanges { view: self.view, ranges: ranges.unwrap_or_default() };
        let last = self.pending.as_ref().map_or(&self.published, |(pending, _)| pending);
        if *last != complete || (self.pending.is_none() && self.is_unconfirmed) {
            self.pending = Some((complete, end));
        }
    }

    /// Confirms what the store has applied, and returns what it contains; `None` if that has not changed.
    pub(super) fn take_applied(&mut self, has_applied: impl Fn(u64) -> bool) -> Option<CompleteRanges> {
        let (complete, _) = self.pending.take_if(|(_, end)| has_applied(*end))?;
        self.is_unconfirmed = false;
        self.participant.confirm(complete.view, self.remaining.clone());
        self.published = complete;
        Some(self.published.clone())
    }

    /// Returns the newest view if it is new, or if work has ended for which released ranges were kept.
    pub(super) fn new_view(&mut self) -> Option<ShardView> {
        let has_work_ended = || !self.remaining.is_subset(&self.participant.remaining_work(self.view));
        let is_due = self.participant.has_changed() || has_work_ended();
        is_due.then(|| self.participant.view())
    }

    /// Returns the ranges that the store must contain: those that are held, and the released ones that it contains while
    /// work may read them. `kept` are the ranges for which the process has acted since the last view.
    pub(super) fn ranges_of(&mut self, view: &ShardView, kept: &HashRanges) -> &HashRanges {
        let released = view.releasing.intersection(&self.cached).intersection(kept);
        self.remaining = released.intersection(&self.participant.remaining_work(view.number));
        self.cached = view.held.union(&self.remaining);
        &self.cached
    }

    /// Records that the state machine has received a view, after which only these ranges remain complete. Returns what
    /// the store contains of them.
    pub(super) fn begin_view(&mut self, number: u64, remaining: &HashRanges) -> CompleteRanges {
        self.view = number;
        self.pending = None;
        self.is_unconfirmed = true;
        let ranges = self.published.ranges.intersection(remaining);
        self.published = CompleteRanges { view: number, ranges };
        self.published.clone()
    }
}

/// Waits until there is something to publish or a new view; without sharding, forever.
pub(super) async fn shard_change(shard: Option<&mut ShardProgress>, queue: &DeltaQueue, scope_index: usize) {
    let Some(ShardProgress { participant, pending, view, remaining, .. }) = shard else {
        return std::future::pending().await;
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
        // Forever, if no range remains.
        () = participant.work_ended(remaining, *view) => {}
    }
}
