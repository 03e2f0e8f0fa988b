//! A watch-list before its initial events are over. It must not know whether the server is able to end them.

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

/// A watch-list before its initial events are over.
#[derive(Debug)]
pub(in crate::reflector) struct WatchListing {
    pub(in crate::reflector) stream: Stream,
    pub(in crate::reflector) consistency: Consistency,
    pub(in crate::reflector) entries: BTreeSet<ByKey>,
    pub(in crate::reflector) unreadable: BTreeMap<Key, UnreadableObject>,
    /// When the current window of progress began, and how many keys there were then.
    pub(in crate::reflector) window: Option<(Moment, usize)>,
}

/// An entry in the place of its key. The key is not copied: a set is held here whole until it is complete.
#[derive(Debug)]
pub(in crate::reflector) struct ByKey(pub(in crate::reflector) Arc<Entry>);

impl Borrow<Key> for ByKey {
    fn borrow(&self) -> &Key {
        self.0.key()
    }
}

impl Ord for ByKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.key().cmp(other.0.key())
    }
}

impl PartialOrd for ByKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ByKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.key() == other.0.key()
    }
}

impl Eq for ByKey {}

impl WatchListing {
    pub(in crate::reflector) fn open(&mut self, now: Moment, head: ResponseHead, config: &Config) {
        self.stream.open(now, head, config);
        self.window = Some((now, 0));
    }

    pub(in crate::reflector) fn deadline(&self, config: &Config) -> Option<Moment> {
        self.window.map(|(start, _)| start + config.watch_list_progress_timeout)
    }

    pub(in crate::reflector) fn state(&self) -> InformerState {
        match self.entries.len() as u64 {
            0 => InformerState::Connecting,
            done => InformerState::Listing { received: done, total: None },
        }
    }

    /// A fair number of new keys is one in a hundred: less is what a busy cluster's live changes look like.
    pub(in crate::reflector) fn made_progress(&self) -> bool {
        self.window.is_some_and(|(_, before)| self.entries.len() > before + before / 100)
    }
}
