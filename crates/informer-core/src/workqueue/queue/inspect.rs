//! Reading the state of a queue: keys by stage, metrics, and the check of the invariants. Nothing here changes a
//! queue.

use std::fmt;
use std::hash::Hash;

use super::{Phase, Queue};
use crate::time::Moment;
use crate::workqueue::metrics::QueueMetrics;
#[cfg(test)]
use crate::workqueue::{retry_limit::RetryThrottle, slot::Slot, slots::Stage};

impl<T: Eq + Hash + Clone> Queue<T> {
    /// Returns whether new keys are rejected.
    pub fn is_shutting_down(&self) -> bool {
        self.phase != Phase::Open
    }

    /// Returns whether no key will become available any more.
    pub fn is_over(&self) -> bool {
        match self.phase {
            Phase::Open => false,
            Phase::Closing { keeps_delayed: false } => self.queued.len() == 0 && self.counts.dirty == 0,
            Phase::Closing { keeps_delayed: true } => self.slots.len() == 0,
        }
    }

    /// Returns whether the queue is shut down and no key is queued, processing or delayed.
    pub fn is_drained(&self) -> bool {
        self.is_shutting_down() && self.slots.len() == 0
    }

    /// Returns the number of keys that can be taken.
    pub fn len(&self) -> usize {
        self.queued.len()
    }

    /// Returns whether no key can be taken.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the keys that can be taken, highest priority first.
    pub fn queued(&self) -> impl Iterator<Item = &T> {
        self.queued.iter(&self.slots.entries).filter_map(|slot| self.slots.key(slot))
    }

    /// Returns the keys that are processing and when they were taken, earliest first.
    pub fn processing(&self) -> impl Iterator<Item = (&T, Moment)> {
        let since = |slot| Moment::from(self.slots.entries[slot].taken_at);
        self.processing
            .iter(&self.slots.entries)
            .filter_map(move |slot| Some((self.slots.key(slot)?, since(slot))))
    }

    /// Returns the delayed keys and when they are due, in no particular order.
    ///
    /// Retries that wait for the retry limit are due already; their moment is the origin.
    pub fn delayed(&self) -> impl Iterator<Item = (&T, Moment)> {
        let held = self.held.iter(&self.slots.entries).map(|slot| (slot, Moment::default()));
        let delayed = self.delays.iter().map(|(slot, at)| (slot, at.into()));
        delayed.chain(held).filter_map(|(slot, at)| Some((self.slots.key(slot)?, at)))
    }

    /// Returns the metrics of the queue.
    pub fn metrics(&self, now: Moment) -> QueueMetrics {
        let processing = u32::try_from(self.processing.len()).unwrap_or(u32::MAX);
        let longest = self.processing().next().map(|(_, since)| now - since);
        QueueMetrics {
            adds: self.counts.adds,
            depth: self.queued.len() + self.counts.dirty,
            processing: self.processing.len(),
            delayed: self.delays.len() + self.held.len(),
            retries: self.counts.retries,
            abandoned: self.counts.abandoned,
            dropped: self.counts.dropped,
            queue_duration: self.counts.queue_duration.histogram.clone(),
            work_duration: self.counts.work_duration.histogram.clone(),
            unfinished_work: now.since_origin().saturating_mul(processing).saturating_sub(self.counts.taken),
            longest_running: longest.unwrap_or_default(),
        }
    }

    #[cfg(test)]
    pub(in crate::workqueue) fn check_invariants(&self) {
        self.delays.check();
        let entries = &self.slots.entries;
        let queued: Vec<Slot> = self.queued.iter(entries).collect();
        assert_eq!(queued.len(), self.queued.len(), "the lists contain every queued key");
        assert!(queued.iter().all(|slot| entries[*slot].stage == Stage::Queued));
        let processing: Vec<Slot> = self.processing.iter(entries).collect();
        assert_eq!(processing.len(), self.processing.len(), "the list contains every processing key");
        let is_processing =
            |slot: &Slot| matches!(entries[*slot].stage, Stage::Processing | Stage::ProcessingDirty);
        assert!(processing.iter().all(is_processing));
        let dirty = processing.iter().filter(|slot| entries[**slot].stage == Stage::ProcessingDirty).count();
        assert_eq!(dirty, self.counts.dirty);
        let held: Vec<Slot> = self.held.iter(entries).collect();
        assert!(held.iter().all(|slot| entries[*slot].stage == Stage::Held));
        assert_eq!(held.len(), self.held.len(), "the list contains every held key");
        let idle = self.delays.iter().filter(|(slot, _)| entries[*slot].stage == Stage::Idle).count();
        let known = queued.len() + processing.len() + held.len() + idle;
        assert_eq!(self.slots.len(), known, "every entry is queued, processing, held or delayed");
        let limited =
            queued.iter().chain(&processing).filter(|slot| entries[**slot].is_limited_retry).count();
        assert_eq!(limited, self.throttle.as_ref().map_or(0, RetryThrottle::active));
        assert!(self.held.len() == 0 || self.throttle.is_some());
        assert!(
            self.phase != (Phase::Closing { keeps_delayed: false }) || self.delays.len() + held.len() == 0
        );
    }
}

impl<T> fmt::Debug for Queue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("queued", &self.queued.len())
            .field("processing", &self.processing.len())
            .field("delayed", &(self.delays.len() + self.held.len()))
            .field("phase", &self.phase)
            .finish_non_exhaustive()
    }
}
