//! Counters of encodings, and the cache of protobuf encodings of one state.
//!
//! Counters belong to a server and are shared by its states. Requests are not known here.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

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
    /// Number of protobuf encodings for watches: one per state and form in which watches show it. Lists and
    /// single objects are not counted.
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

/// The counters of one server.
#[derive(Debug, Default)]
pub(super) struct Counters {
    json: AtomicU64,
    protobuf: AtomicU64,
    rows: AtomicU64,
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

/// Protobuf encodings of a state, by view and version.
///
/// A state is shown with at most two versions, its own and that of the change that replaced it, so a state
/// has few encodings.
#[derive(Debug, Default)]
pub(super) struct EncodingCache(Mutex<Vec<CachedEncoding>>);

#[derive(Debug)]
struct CachedEncoding {
    view: View,
    version: u64,
    /// `None` if the object cannot be encoded.
    bytes: Option<Bytes>,
}

impl EncodingCache {
    /// Returns the cached encoding, or creates it with `make`. Concurrent callers wait for the first.
    pub(super) fn get_or_make(
        &self,
        view: &View,
        version: u64,
        make: impl FnOnce() -> Option<Bytes>,
    ) -> Option<Bytes> {
        let mut cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = cache.iter().find(|entry| entry.version == version && entry.view == *view) {
            return entry.bytes.clone();
        }
        let bytes = make();
        cache.push(CachedEncoding { view: view.clone(), version, bytes: bytes.clone() });
        bytes
    }
}
