//! A watch-list before the end of its initial events. It must not know whether the server supports
//! watch-lists.

use super::stream::Stream;
use crate::key::Key;
use crate::object::Entry;
use crate::reflector::config::Config;
use crate::reflector::failure::ResponseHead;
use crate::reflector::request::Consistency;
use crate::reflector::state::InformerState;
use crate::time::Moment;
use crate::wire::UnreadableObject;
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A watch-list before the end of its initial events.
#[derive(Debug)]
pub(in crate::reflector) struct WatchListing {
    pub(in crate::reflector) stream: Stream,
    pub(in crate::reflector) consistency: Consistency,
    pub(in crate::reflector) entries: BTreeSet<EntryByKey>,
    pub(in crate::reflector) unreadable: BTreeMap<Key, UnreadableObject>,
    /// Number of objects that were dropped because they are in other hash ranges.
    pub(in crate::reflector) foreign: usize,
    /// Start of the current progress window, and the number of keys at that moment; `None` until the headers
    /// are received.
    pub(in crate::reflector) window: Option<(Moment, usize)>,
}

/// An entry ordered by its key.
///
/// A map from keys to entries would hold a second copy of every key until the list is complete.
#[derive(Debug)]
pub(in crate::reflector) struct EntryByKey(pub(in crate::reflector) Arc<Entry>);

impl Borrow<Key> for EntryByKey {
    fn borrow(&self) -> &Key {
        self.0.key()
    }
}

impl Ord for EntryByKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.key().cmp(other.0.key())
    }
}

impl PartialOrd for EntryByKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for EntryByKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.key() == other.0.key()
    }
}

impl Eq for EntryByKey {}

impl WatchListing {
    pub(in crate::reflector) fn receive_head(&mut self, now: Moment, head: ResponseHead, config: &Config) {
        self.stream.receive_head(now, head, config);
        self.window = Some((now, 0));
    }

    pub(in crate::reflector) fn deadline(&self, config: &Config) -> Option<Moment> {
        self.window.map(|(start, _)| start + config.watch_list_progress_timeout)
    }

    pub(in crate::reflector) fn state(&self) -> InformerState {
        match self.entries.len() as u64 {
            0 if !self.stream.is_open() => InformerState::Connecting,
            received => InformerState::Listing { received, total: None },
        }
    }

    /// Returns whether the number of keys has grown by more than 1 % in the current window.
    ///
    /// Less growth can be caused by the live changes of a busy cluster alone.
    pub(in crate::reflector) fn made_progress(&self) -> bool {
        self.window.is_some_and(|(_, at_start)| self.received() > at_start + at_start / 100)
    }

    /// Returns the number of keys and of dropped objects.
    pub(in crate::reflector) fn received(&self) -> usize {
        self.entries.len() + self.foreign
    }
}
