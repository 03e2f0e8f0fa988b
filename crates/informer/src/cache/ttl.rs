//! [`TtlStore`]: a store whose objects expire.
//!
//! Invariant: the store contains exactly the keys of [`Expiry`], because both change under its lock. Time is
//! tokio's clock, so tests can pause it.

use super::store::Store;
use crate::error::ParseError;
use crate::event::Event;
use crate::lister::{IndexHandle, Snapshot};
use informer_core::{Index, Key, Object};
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// A store whose objects expire some time after they were inserted; client-go's `NewTTLStore`.
///
/// Reads and writes remove expired objects first; there is no background task. Inserting an object again, also
/// in the same state, renews it. A `ttl` of zero means that nothing expires, as in client-go. As with [`Store`],
/// all clones are the same store.
///
/// ```
/// use informer::cache::TtlStore;
/// use informer::{Key, Object};
/// use k8s_openapi::api::core::v1::Pod;
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let mut pod = Pod::default();
/// # pod.metadata.name = Some("web".to_owned());
/// let recent = TtlStore::new(Duration::from_secs(60));
/// recent.insert([Object::from_typed(pod)?]);
/// assert!(recent.get(&Key::new("", "web")).is_some());
/// tokio::time::sleep(Duration::from_secs(61)).await; // takes no time if the clock is paused
/// assert!(recent.get(&Key::new("", "web")).is_none());
/// # Ok(())
/// # }
/// ```
pub struct TtlStore<K> {
    store: Store<K>,
    ttl: Duration,
    expiry: Arc<Mutex<Expiry>>,
}

/// When each object was inserted.
#[derive(Default)]
struct Expiry {
    inserted: HashMap<Key, Instant>,
    /// All pairs of `inserted`, the oldest first.
    by_age: BTreeSet<(Instant, Key)>,
}

impl<K> TtlStore<K> {
    /// Creates an empty store whose objects expire when they are older than `ttl`.
    pub fn new(ttl: Duration) -> Self {
        Self { store: Store::new(), ttl, expiry: Arc::default() }
    }

    /// Stores objects and returns the changes; expired objects are deleted first. See [`Store::insert`].
    pub fn insert(&self, objects: impl IntoIterator<Item = Object<K>>) -> Vec<Event<K>> {
        let objects: Vec<_> = objects.into_iter().collect();
        let (mut expiry, now) = (self.lock(), Instant::now());
        let mut events = self.expire(&mut expiry, now);
        for object in &objects {
            expiry.record(object.key(), now);
        }
        events.extend(self.store.insert(objects));
        events
    }

    /// Removes objects by their keys and returns the changes; expired objects are deleted first.
    pub fn remove<'a>(&self, keys: impl IntoIterator<Item = &'a Key>) -> Vec<Event<K>> {
        let keys: Vec<_> = keys.into_iter().collect();
        let mut expiry = self.lock();
        let mut events = self.expire(&mut expiry, Instant::now());
        for key in &keys {
            expiry.forget(key);
        }
        events.extend(self.store.remove(keys));
        events
    }

    /// Removes expired objects, and returns their deletions.
    ///
    /// Reads remove them as well and do not report them. To receive every deletion, call this before a read.
    pub fn remove_expired(&self) -> Vec<Event<K>> {
        self.expire(&mut self.lock(), Instant::now())
    }

    /// Returns the object with this key.
    pub fn get(&self, key: &Key) -> Option<Object<K>> {
        self.snapshot().get(key).cloned()
    }

    /// Returns a snapshot of the objects that have not expired. Time does not change the snapshot.
    pub fn snapshot(&self) -> Snapshot<K> {
        self.remove_expired();
        self.store.snapshot()
    }

    /// Adds an index for look-ups in snapshots; see [`Store::add_index`].
    ///
    /// # Errors
    ///
    /// Returns an error if the field path of the index cannot be parsed.
    pub fn add_index(&self, index: Index) -> Result<IndexHandle<K>, ParseError> {
        self.store.add_index(index)
    }

    fn expire(&self, expiry: &mut Expiry, now: Instant) -> Vec<Event<K>> {
        let expired = expiry.take_older_than(self.ttl, now);
        if expired.is_empty() { Vec::new() } else { self.store.remove(&expired) }
    }

    fn lock(&self) -> MutexGuard<'_, Expiry> {
        self.expiry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Expiry {
    fn record(&mut self, key: &Key, now: Instant) {
        self.forget(key);
        self.inserted.insert(key.clone(), now);
        self.by_age.insert((now, key.clone()));
    }

    fn forget(&mut self, key: &Key) {
        if let Some(inserted) = self.inserted.remove(key) {
            self.by_age.remove(&(inserted, key.clone()));
        }
    }

    fn take_older_than(&mut self, ttl: Duration, now: Instant) -> Vec<Key> {
        let mut expired = Vec::new();
        while let Some((inserted, _)) = self.by_age.first()
            && !ttl.is_zero()
            && now.duration_since(*inserted) > ttl
            && let Some((_, key)) = self.by_age.pop_first()
        {
            self.inserted.remove(&key);
            expired.push(key);
        }
        expired
    }
}

impl<K> Clone for TtlStore<K> {
    fn clone(&self) -> Self {
        Self { store: self.store.clone(), ttl: self.ttl, expiry: Arc::clone(&self.expiry) }
    }
}

impl<K> fmt::Debug for TtlStore<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} that expire after {:?}", self.store, self.ttl)
    }
}
