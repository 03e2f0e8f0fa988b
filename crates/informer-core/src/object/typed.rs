//! Decoded objects: values that are lent to callers, and values that the entry keeps.

use super::kept::{Kept, Node};
use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A decoded object, shared by all callers that hold it.
pub struct Typed<K>(Value<K>);

enum Value<K> {
    /// A value that lives as long as a caller holds it.
    ///
    /// It is an `Arc<Box<K>>` and not an `Arc<K>`, because the entry has a weak reference to it. A weak
    /// reference keeps the memory inside the `Arc` allocated, also after the last caller dropped the value.
    /// With the `Box`, that memory is a pointer; without it, it would be a whole `K` (an empty `Pod` takes two
    /// kilobytes).
    #[expect(
        clippy::redundant_allocation,
        reason = "a weak reference must not keep the memory of a dropped value allocated"
    )]
    Lent(Arc<Box<K>>),
    /// A value that the entry keeps.
    Kept(Arc<Node<Decoded<K>>>),
}

impl<K> Deref for Typed<K> {
    type Target = K;

    fn deref(&self) -> &K {
        match &self.0 {
            Value::Lent(value) => value,
            Value::Kept(node) => &node.value().value,
        }
    }
}

impl<K> AsRef<K> for Typed<K> {
    fn as_ref(&self) -> &K {
        self
    }
}

impl<K> Clone for Typed<K> {
    fn clone(&self) -> Self {
        Self(match &self.0 {
            Value::Lent(value) => Value::Lent(Arc::clone(value)),
            Value::Kept(node) => Value::Kept(Arc::clone(node)),
        })
    }
}

impl<K: fmt::Debug> fmt::Debug for Typed<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<K> Typed<K> {
    pub(super) fn kept(node: Arc<Node<Decoded<K>>>) -> Self {
        Self(Value::Kept(node))
    }

    /// Returns whether both handles share one decoded value.
    pub fn ptr_eq(left: &Self, right: &Self) -> bool {
        std::ptr::eq(&raw const **left, &raw const **right)
    }
}

/// Values that live as long as a caller holds them. The type behind `dyn Any` is `Box<K>`: see [`Value::Lent`].
#[derive(Default)]
pub(super) struct LentValues(Mutex<Vec<Weak<dyn Any + Send + Sync>>>);

impl Kept for LentValues {}

impl LentValues {
    /// Returns the value that is a `K` and still alive.
    pub(super) fn find<K: Send + Sync + 'static>(&self) -> Option<Typed<K>> {
        find(&self.lock())
    }

    /// Adds a value, unless there is already one of its type that is alive, and returns the one that is there.
    pub(super) fn find_or_add<K: Send + Sync + 'static>(&self, value: K) -> Typed<K> {
        let mut values = self.lock();
        if let Some(earlier) = find(&values) {
            return earlier;
        }
        values.retain(|value| value.strong_count() > 0);
        let value = Arc::new(Box::new(value));
        let any: Arc<dyn Any + Send + Sync> = value.clone();
        values.push(Arc::downgrade(&any));
        Typed(Value::Lent(value))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<dyn Any + Send + Sync>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn find<K: Send + Sync + 'static>(values: &[Weak<dyn Any + Send + Sync>]) -> Option<Typed<K>> {
    values.iter().find_map(|value| Some(Typed(Value::Lent(value.upgrade()?.downcast().ok()?))))
}

/// A decoded object that an entry keeps.
pub(super) struct Decoded<K> {
    value: K,
    _reservation: Reservation,
}

impl<K> Decoded<K> {
    pub(super) fn new(value: K, reservation: Reservation) -> Self {
        Self { value, _reservation: reservation }
    }

    pub(super) fn value(&self) -> &K {
        &self.value
    }
}

impl<K: Send + Sync + 'static> Kept for Decoded<K> {
    fn is_evictable(&self) -> bool {
        true
    }
}

/// What the entries of one cache share about decoding: metrics, and the limit of the decoded objects that
/// they keep.
pub struct Decoding {
    errors: AtomicU64,
    values: AtomicUsize,
    /// The encoded size of the objects of which a decoded value is kept, and its limit.
    bytes: AtomicUsize,
    limit: usize,
    /// The space that the next eviction frees at least: the size of the largest object that was not kept.
    wanted: AtomicUsize,
    evictions: AtomicU64,
    /// Called when a decoded object is not kept because of the limit.
    on_full: Box<dyn Fn() + Send + Sync>,
}

/// The metrics of the decoded objects that a cache keeps, because of
/// [`Retention::Decoded`](crate::Retention::Decoded) or
/// [`Retention::RecentlyDecoded`](crate::Retention::RecentlyDecoded).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DecodedMetrics {
    /// The number of decoded objects, including those of old states that are still in use.
    pub values: usize,
    /// The encoded size of these objects in bytes. Decoded, they take several times as much memory.
    pub encoded_bytes: usize,
    /// The number of cached objects whose decoded values were dropped to stay within the limit.
    pub evictions: u64,
}

impl Decoding {
    /// Creates the shared state of a cache that keeps decoded objects of at most `limit` encoded bytes.
    ///
    /// `on_full` is called when a decoded object is not kept because of the limit.
    pub fn new(limit: usize, on_full: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            errors: AtomicU64::new(0),
            values: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            limit,
            wanted: AtomicUsize::new(0),
            evictions: AtomicU64::new(0),
            on_full: Box::new(on_full),
        }
    }

    /// Returns the number of reads that failed because the object did not decode.
    pub fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    /// Returns the metrics of the decoded objects.
    pub fn metrics(&self) -> DecodedMetrics {
        DecodedMetrics {
            values: self.values.load(Ordering::Relaxed),
            encoded_bytes: self.bytes.load(Ordering::Relaxed),
            evictions: self.evictions.load(Ordering::Relaxed),
        }
    }

    /// Returns whether entries should be evicted: too little is free for the largest object that was not kept since the
    /// last eviction, or less than an eighth of the limit, so that one eviction frees space for several objects.
    pub fn needs_eviction(&self) -> bool {
        let required = self.wanted.load(Ordering::Relaxed).max(self.limit / 8);
        self.bytes.load(Ordering::Relaxed) > self.limit - required
    }

    /// Records an eviction that has ended, and the number of entries whose decoded objects were dropped.
    pub fn record_eviction(&self, entries: usize) {
        self.wanted.store(0, Ordering::Relaxed);
        self.evictions.fetch_add(entries as u64, Ordering::Relaxed);
    }

    pub(super) fn count_error(&self) {
        self.errors.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an object of which a decoded value will be kept; `None` if it exceeds the limit.
    pub(super) fn reserve(self: &Arc<Self>, bytes: usize) -> Option<Reservation> {
        let fits = |used: usize| used.checked_add(bytes).filter(|used| *used <= self.limit);
        if self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_err() {
            // No eviction frees enough for an object that is larger than the limit.
            if bytes <= self.limit {
                self.wanted.fetch_max(bytes, Ordering::Relaxed);
                (self.on_full)();
            }
            return None;
        }
        self.values.fetch_add(1, Ordering::Relaxed);
        Some(Reservation(Some((Arc::clone(self), bytes))))
    }
}

impl Default for Decoding {
    fn default() -> Self {
        Self::new(usize::MAX, || {})
    }
}

impl fmt::Debug for Decoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.metrics().fmt(f)
    }
}

/// The part of the cache's limit that one decoded object takes; nothing if its entry belongs to no cache.
#[derive(Default)]
pub(super) struct Reservation(Option<(Arc<Decoding>, usize)>);

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some((decoding, bytes)) = &self.0 {
            decoding.bytes.fetch_sub(*bytes, Ordering::Relaxed);
            decoding.values.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
