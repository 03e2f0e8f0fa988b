//! How often objects were encoded, and what was made of one state that more than one may ask for.
//!
//! Counts belong to a server, and a state knows whose it is. Who asks, and for whom, is not known here.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

use super::view::View;

/// How often a server has encoded objects that it stores.
///
/// Watches and JSON lists copy what was encoded, so these do not grow with the number of watchers, except for rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EncodingCounters {
    /// As JSON: once when it is written, and once more where another API group or version shows it in another form.
    pub json: u64,
    /// As protobuf, for a watch: once for each form and version that is shown. Lists and single objects are not counted.
    pub protobuf: u64,
    /// As a row of a table. Rows tell ages, so each is made for the one who asks and when they ask.
    pub rows: u64,
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoded {
    Json,
    Protobuf,
    Row,
}

/// The counts of one server.
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

/// Bytes that were made of a state, by how and with which version they show it. A state is shown with two versions at most, its own and that of
/// the change that ended it, so there are few.
#[derive(Debug, Default)]
pub(super) struct EncodingCache(Mutex<Vec<CachedEncoding>>);

#[derive(Debug)]
struct CachedEncoding {
    view: View,
    version: u64,
    /// None if it could not be made.
    bytes: Option<Bytes>,
}

impl EncodingCache {
    /// What was made before, or what is made now. Whoever comes meanwhile waits for it.
    pub(super) fn get_or_make(
        &self,
        view: &View,
        version: u64,
        make: impl FnOnce() -> Option<Bytes>,
    ) -> Option<Bytes> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = kept.iter().find(|made| made.version == version && made.view == *view) {
            return made.bytes.clone();
        }
        let bytes = make();
        kept.push(CachedEncoding { view: view.clone(), version, bytes: bytes.clone() });
        bytes
    }
}
