//! Counters of encodings, and the caches of encodings that not every state has: protobuf, and JSON in another
//! representation.
//!
//! Counters belong to a server and are shared by its states; so does the limit on the size of all cached
//! encodings. Requests are not known here.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;

use super::json::Json;
use super::view::View;

/// How often a server has encoded stored objects.
///
/// Watches and JSON lists copy encoded objects, so the counters do not grow with the number of watches,
/// except for table rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EncodingCounters {
    /// Number of JSON encodings: one per stored state of an object, and one more if another API group or
    /// version shows the object in another representation.
    pub json: u64,
    /// Number of protobuf encodings for watches: one per state and form in which watches show it, or more if
    /// watches are so far apart that the encoding is no longer cached. Lists and single objects are not
    /// counted.
    pub protobuf: u64,
    /// Number of table rows. They contain ages, so each is created for one request.
    pub rows: u64,
}

/// A counted encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoded {
    Json,
    Protobuf,
    Row,
}

/// The counters and cached encodings of one server.
#[derive(Debug, Default)]
pub(super) struct Counters {
    json: AtomicU64,
    protobuf: AtomicU64,
    rows: AtomicU64,
    cached: Mutex<CachedEncodings>,
}

impl Counters {
    pub(super) fn count(&self, encoded: Encoded) {
        let counter = match encoded {
            Encoded::Json => &self.json,
            Encoded::Protobuf => &self.protobuf,
            Encoded::Row => &self.rows,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> EncodingCounters {
        EncodingCounters {
            json: self.json.load(Ordering::Relaxed),
            protobuf: self.protobuf.load(Ordering::Relaxed),
            rows: self.rows.load(Ordering::Relaxed),
        }
    }
}

/// Upper bound on the size of all cached encodings of a server.
const MAX_CACHED_BYTES: usize = 16 * 1024 * 1024;

/// Memory that a cached encoding takes besides its bytes.
const CACHED_ENCODING_OVERHEAD_BYTES: usize = 256;

/// The encodings that a server has cached, the oldest first, so that their total size can be limited.
///
/// Watches ask for an encoding soon after the change and almost never again, whereas the state stays in the
/// history for minutes.
#[derive(Debug, Default)]
struct CachedEncodings {
    /// States with the size of one of their encodings. A state may be gone already.
    oldest_first: VecDeque<(Weak<EncodingCache>, usize)>,
    bytes: usize,
}

impl CachedEncodings {
    /// Adds an encoding; returns the states whose encodings must be dropped.
    fn add(&mut self, cache: &Arc<EncodingCache>, size: usize) -> Vec<Weak<EncodingCache>> {
        let size = size + CACHED_ENCODING_OVERHEAD_BYTES;
        self.bytes += size;
        self.oldest_first.push_back((Arc::downgrade(cache), size));
        let mut dropped = Vec::new();
        while self.bytes > MAX_CACHED_BYTES
            && let Some((cache, size)) = self.oldest_first.pop_front()
        {
            self.bytes -= size;
            dropped.push(cache);
        }
        dropped
    }
}

/// Encodings of a state, which are created on first use.
///
/// A state is shown with at most two versions, its own and that of the change that replaced it, so a state
/// has few encodings.
#[derive(Debug, Default)]
pub(super) struct EncodingCache(Mutex<StateEncodings>);

#[derive(Debug, Default)]
struct StateEncodings {
    /// Protobuf, by view and version.
    protobuf: Vec<CachedEncoding>,
    /// JSON in the representation that is not the stored one. No kind has more than one such representation.
    converted: Option<Arc<Json>>,
}

#[derive(Debug)]
struct CachedEncoding {
    view: View,
    version: u64,
    /// `None` if the object cannot be encoded.
    bytes: Option<Bytes>,
}

impl EncodingCache {
    /// Returns the cached protobuf encoding, or creates it with `make`. Concurrent callers wait for the
    /// first. Without the counters of a server, the size of all encodings is not limited.
    pub(super) fn get_or_make(
        self: &Arc<Self>,
        counters: Option<&Counters>,
        view: &View,
        version: u64,
        make: impl FnOnce() -> Option<Bytes>,
    ) -> Option<Bytes> {
        let mut cache = self.lock();
        let mut known = cache.protobuf.iter();
        if let Some(entry) = known.find(|entry| entry.version == version && entry.view == *view) {
            return entry.bytes.clone();
        }
        let bytes = make();
        cache.protobuf.push(CachedEncoding { view: view.clone(), version, bytes: bytes.clone() });
        drop(cache);
        self.limit_total(counters, bytes.as_ref().map_or(0, Bytes::len));
        bytes
    }

    /// Returns the cached JSON in another representation, or creates it with `convert`.
    pub(super) fn get_or_convert(
        self: &Arc<Self>,
        counters: Option<&Counters>,
        convert: impl FnOnce() -> Json,
    ) -> Arc<Json> {
        let mut cache = self.lock();
        if let Some(converted) = &cache.converted {
            return converted.clone();
        }
        let converted = Arc::new(convert());
        cache.converted = Some(converted.clone());
        drop(cache);
        self.limit_total(counters, converted.size());
        converted
    }

    /// Counts a new encoding, and drops the oldest encodings of the server if there are too many. Must be
    /// called without the lock of any state, because it locks other states.
    fn limit_total(self: &Arc<Self>, counters: Option<&Counters>, size: usize) {
        let Some(counters) = counters else { return };
        let dropped = counters.cached.lock().unwrap_or_else(PoisonError::into_inner).add(self, size);
        for cache in dropped.iter().filter_map(Weak::upgrade) {
            *cache.lock() = StateEncodings::default();
        }
    }

    fn lock(&self) -> MutexGuard<'_, StateEncodings> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::super::representation::Representation;
    use super::super::view::ObjectShape;
    use super::*;

    /// Bug: an encoding was cached as long as its state. A state stays in the history for minutes after the
    /// last watch has sent it, so protobuf watches doubled the memory of the history without being counted.
    /// No test looked at the memory of encodings.
    #[test]
    fn oldest_encodings_are_dropped() {
        const SIZE: usize = 1024 * 1024;
        let counters = Counters::default();
        let view =
            View { shape: ObjectShape::Whole, api_version: None, representation: Representation::Same };
        let get = |cache: &Arc<EncodingCache>| {
            let mut is_new = false;
            let bytes = cache.get_or_make(Some(&counters), &view, 1, || {
                is_new = true;
                Some(Bytes::from(vec![0; SIZE]))
            });
            assert_eq!(bytes.map(|bytes| bytes.len()), Some(SIZE));
            is_new
        };
        let caches: Vec<Arc<EncodingCache>> = (0..40).map(|_| Arc::default()).collect();
        assert!(caches.iter().all(get), "every state is encoded once");
        assert!(!get(&caches[39]), "the newest encoding is cached");
        let count = caches.iter().filter(|cache| !cache.lock().protobuf.is_empty()).count();
        assert_eq!(count, MAX_CACHED_BYTES / SIZE - 1, "as many as fit with their overhead");
        assert!(get(&caches[0]), "a dropped encoding is created again");
    }
}
