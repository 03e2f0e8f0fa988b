//! Cached objects: the entry that a store keeps, and the typed handle through which callers read an entry.
//!
//! An [`Entry`] is not generic. It consists mainly of a head (the metadata known without decoding), the
//! object's bytes, their encoding, and the values decoded from the bytes so far. [`Object`] is a handle to an
//! entry as some type `K`; decoded values of different types coexist in one entry. The contents of an entry
//! are immutable (guarantee C13); only decoded values are added, and the entry may be marked as stale.

mod encode;
mod handle;
mod kept;
mod measured;
mod projection;
mod typed;

pub use encode::EncodeError;
pub use handle::Object;
pub use projection::{DecodeAhead, Projection, ProjectionError, ProjectionMetrics, Projections};
pub use typed::{DecodedMetrics, Decoding, Typed};

use kept::{Kept, KeptValues};
use typed::{Decoded, LentValues, Reservation};

use crate::key::Key;
use crate::retention::{Interner, Retention, StoredBytes};
use crate::version::ResourceVersion;
use crate::wire::{self, BodyEncoding, EntryEncoding, FieldPath, Head, ScannedObject};
use informer_schema::MessageId;
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// One object of a store, of any kind.
// The fields that a typed read touches are within 48 bytes of the reference count of the `Arc` around the entry,
// so that they usually share a cache line.
#[repr(C)]
pub struct Entry {
    /// Values decoded from the bytes.
    kept: KeptValues,
    encoding: EntryEncoding,
    keep: Keep,
    /// Whether the server has a newer state that could not be read.
    stale: AtomicBool,
    /// Whether a decoded object was read since the last search for entries to evict.
    recently_used: AtomicBool,
    head: Head,
    stored: StoredBytes,
    /// What the entries of a cache share.
    decoding: Option<Arc<Decoding>>,
}

/// Which decoded objects an entry keeps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    Nothing,
    Everything,
    /// What the limit of the cache allows.
    UpToLimit,
}

impl From<Retention> for Keep {
    fn from(retention: Retention) -> Self {
        match retention {
            Retention::Bytes => Self::Nothing,
            Retention::Decoded => Self::Everything,
            Retention::RecentlyDecoded { .. } => Self::UpToLimit,
            #[cfg(feature = "compression")]
            Retention::Compressed => Self::Nothing,
        }
    }
}

impl Entry {
    /// Creates the entry of an object that was just read.
    pub fn new(scanned: ScannedObject, retention: Retention) -> Self {
        let ScannedObject { head, bytes, encoding } = scanned;
        Self {
            kept: KeptValues::default(),
            head,
            stored: StoredBytes::Plain(bytes),
            encoding,
            keep: retention.into(),
            stale: AtomicBool::new(false),
            recently_used: AtomicBool::new(false),
            decoding: None,
        }
    }

    /// Creates the entry of an object whose bytes were saved.
    #[cfg(feature = "persistence")]
    pub(crate) fn restored(
        head: Head,
        stored: StoredBytes,
        encoding: EntryEncoding,
        retention: Retention,
    ) -> Self {
        let bytes = Box::default();
        Self { stored, ..Self::new(ScannedObject { head, bytes, encoding }, retention) }
    }

    /// Makes the entry share metrics and limits with the other entries of its cache.
    #[must_use]
    pub fn sharing_decoding(self, decoding: &Arc<Decoding>) -> Self {
        Self { decoding: Some(Arc::clone(decoding)), ..self }
    }

    /// Replaces labels and owners by equal ones of earlier heads that `interner` knows.
    pub(crate) fn sharing(mut self, interner: &Interner) -> Self {
        interner.share(&mut self.head);
        self
    }

    /// Returns the metadata that is known without decoding the object.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Returns the key: namespace and name.
    pub fn key(&self) -> &Key {
        &self.head.key
    }

    /// Returns the object's bytes, in the encoding of [`Entry::encoding`].
    ///
    /// Borrowed unless the entry is stored compressed. Empty if the compressed bytes were corrupted in
    /// memory.
    pub fn bytes(&self) -> Cow<'_, [u8]> {
        self.stored.bytes().unwrap_or_default()
    }

    /// Returns the encoding of the bytes.
    pub fn encoding(&self) -> BodyEncoding {
        match self.encoding {
            EntryEncoding::Json => BodyEncoding::Json,
            EntryEncoding::Protobuf(_) => BodyEncoding::Protobuf,
        }
    }

    /// Returns the type of the protobuf message that the bytes contain; `None` for JSON.
    #[doc(hidden)]
    pub fn message(&self) -> Option<MessageId> {
        match self.encoding {
            EntryEncoding::Json => None,
            EntryEncoding::Protobuf(message) => Some(message),
        }
    }

    /// Returns the approximate memory use of the entry in bytes, without values decoded from it.
    pub fn memory_size(&self) -> usize {
        size_of::<Self>() + self.stored.len() + self.head.heap_size()
    }

    /// Returns the scalar values at `path` without decoding the object.
    ///
    /// Strings are returned without quotes and escapes, numbers and booleans as JSON writes them,
    /// independently of the entry's encoding. Values that are absent, null, objects or unreadable yield
    /// nothing.
    pub fn values_at(&self, path: &FieldPath) -> Vec<String> {
        let mut values = Vec::new();
        self.each_value(path, &mut |value| values.push(value.to_owned()));
        values
    }

    /// Calls `visit` with each of the values that [`Entry::values_at`] returns.
    pub(crate) fn each_value(&self, path: &FieldPath, visit: &mut dyn FnMut(&str)) {
        path.each_value(self.encoding, &self.bytes(), visit);
    }

    /// Returns whether `other` is the same state of the object: equal uid, version and content.
    ///
    /// Content is compared by bytes. If the bytes differ and at least one entry is protobuf, the decoded
    /// values are compared: servers of different versions encode the same object as different protobuf, and
    /// the bytes of JSON never equal those of protobuf. Uid and version alone prove nothing, because a
    /// server restored from a backup assigns the same version numbers a second time.
    pub fn is_same_state(&self, other: &Self) -> bool {
        self.head.uid == other.head.uid
            && self.head.version == other.head.version
            && self.has_same_content(other)
    }

    fn has_same_content(&self, other: &Self) -> bool {
        if self.encoding == other.encoding && self.stored.is_equal(&other.stored) {
            return true;
        }
        if (self.encoding, other.encoding) == (EntryEncoding::Json, EntryEncoding::Json) {
            return false;
        }
        let [left, right] = [self, other].map(Self::decode_content);
        left.is_some() && left == right
    }

    /// Decodes the object for a comparison; `None` if the bytes do not decode. A failure is not counted as a
    /// decoding error, because no caller asked for the value.
    fn decode_content(&self) -> Option<serde_json::Value> {
        let bytes = self.stored.bytes().ok()?;
        match self.encoding {
            EntryEncoding::Json => serde_json::from_slice(&bytes).ok(),
            EntryEncoding::Protobuf(message) => wire::decode(message, &bytes).ok(),
        }
    }

    /// Returns whether `other` is another incarnation of this key: deleted and re-created, with another uid.
    ///
    /// `false` if either uid is unknown.
    pub fn is_other_incarnation(&self, other: &Self) -> bool {
        self.head.uid != other.head.uid && !self.head.uid.is_empty() && !other.head.uid.is_empty()
    }

    /// Returns whether the server has a newer state that could not be read.
    pub fn is_stale(&self) -> bool {
        self.stale.load(Ordering::Relaxed)
    }

    #[cfg(any(feature = "compression", feature = "persistence"))]
    pub(crate) fn stored(&self) -> &StoredBytes {
        &self.stored
    }

    /// Replaces plain bytes by what `compress` makes of them; compressed bytes stay as they are.
    #[cfg(feature = "compression")]
    pub(crate) fn with_stored(self, compress: impl FnOnce(Box<[u8]>) -> StoredBytes) -> Self {
        match self.stored {
            StoredBytes::Plain(bytes) => Self { stored: compress(bytes), ..self },
            StoredBytes::Compressed(_) => self,
        }
    }

    /// Returns an equal entry with its bytes recompressed, or `None` if they are corrupted.
    ///
    /// If a value was decoded before, both entries share the list of decoded values from now on.
    #[cfg(feature = "compression")]
    pub(crate) fn recompressed(&self, compress: impl FnOnce(Box<[u8]>) -> StoredBytes) -> Option<Self> {
        let plain = self.stored.bytes().ok()?.into_owned().into_boxed_slice();
        Some(self.copy(compress(plain), self.kept.clone()))
    }

    /// Returns an equal entry without decoded values.
    fn without_values(&self) -> Self {
        self.copy(self.stored.clone(), KeptValues::default())
    }

    /// Returns a copy with other stored bytes, of the same object state, and other decoded values.
    fn copy(&self, stored: StoredBytes, kept: KeptValues) -> Self {
        Self {
            kept,
            head: self.head.clone(),
            stored,
            encoding: self.encoding,
            keep: self.keep,
            stale: AtomicBool::new(self.is_stale()),
            recently_used: AtomicBool::new(self.recently_used.load(Ordering::Relaxed)),
            decoding: self.decoding.clone(),
        }
    }

    pub(crate) fn set_stale(&self, stale: bool) {
        self.stale.store(stale, Ordering::Relaxed);
    }

    /// Returns an equal entry without decoded objects, to free space for others; `None` if it has none, or if
    /// one was read since the last call.
    fn evicted(&self) -> Option<Self> {
        if !self.kept.any(Kept::is_evictable) || self.recently_used.swap(false, Ordering::Relaxed) {
            return None;
        }
        Some(self.without_values())
    }

    fn typed<K: DeserializeOwned + Send + Sync + 'static>(&self) -> Result<Typed<K>, DecodeError> {
        if self.keep != Keep::Nothing
            && let Some(node) = self.kept.get_shared::<Decoded<K>>()
        {
            self.mark_used();
            return Ok(Typed::kept(node));
        }
        if let Some(value) = self.kept.get().and_then(LentValues::find) {
            return Ok(value);
        }
        let reservation = self.reserve();
        let value = self.counted(self.decode())?;
        match reservation {
            Some(reservation) => {
                self.kept.get_or_add(Decoded::new(value, reservation));
                self.typed()
            }
            None => Ok(self.kept.get_or_add(LentValues::default()).find_or_add(value)),
        }
    }

    /// Returns the decoded object if the entry keeps it, decoding it if necessary.
    fn typed_ref<K: DeserializeOwned + Send + Sync + 'static>(&self) -> Option<&K> {
        if self.keep == Keep::Nothing {
            return None;
        }
        let kept = match self.kept.get::<Decoded<K>>() {
            Some(kept) => kept,
            None => self.decode_and_keep()?,
        };
        self.mark_used();
        Some(kept.value())
    }

    #[inline]
    fn mark_used(&self) {
        // Only the bounded retention evicts. A store that changes nothing is avoided, because it would take
        // the cache line away from other readers.
        if self.keep == Keep::UpToLimit && !self.recently_used.load(Ordering::Relaxed) {
            self.recently_used.store(true, Ordering::Relaxed);
        }
    }

    /// Decodes and keeps the object. If two threads decode the same object, neither waits for the other, and the
    /// first value is kept.
    #[cold]
    fn decode_and_keep<K: DeserializeOwned + Send + Sync + 'static>(&self) -> Option<&Decoded<K>> {
        let reservation = self.reserve()?;
        let value = self.counted(self.decode()).ok()?;
        Some(self.kept.get_or_add(Decoded::new(value, reservation)))
    }

    /// Reserves space for a decoded object; `None` if the entry does not keep it. It is reserved before the
    /// object is decoded, so that nothing is decoded in vain.
    fn reserve(&self) -> Option<Reservation> {
        let reserve = |decoding: &Arc<Decoding>| decoding.reserve(self.stored.len());
        match self.keep {
            Keep::Nothing => None,
            Keep::Everything => Some(self.decoding.as_ref().and_then(reserve).unwrap_or_default()),
            Keep::UpToLimit => self.decoding.as_ref().and_then(reserve),
        }
    }

    fn decode<K: DeserializeOwned>(&self) -> Result<K, DecodeError> {
        self.decode_as(self.encoding, &self.checked_bytes::<K>()?)
    }

    /// Returns the bytes, or an error if they were corrupted in memory. The error names `K` as the
    /// requested type.
    fn checked_bytes<K>(&self) -> Result<Cow<'_, [u8]>, DecodeError> {
        self.stored.bytes().map_err(|corrupted| self.decode_error::<K>(String::new(), corrupted.to_string()))
    }

    fn decode_metadata<M: DeserializeOwned>(&self) -> Result<M, DecodeError> {
        let (range, bytes) = (&self.head.metadata, self.checked_bytes::<M>()?);
        let bytes = bytes.get(range.start as usize..range.end as usize).unwrap_or_default();
        let encoding = match self.encoding {
            EntryEncoding::Json => EntryEncoding::Json,
            EntryEncoding::Protobuf(message) => {
                EntryEncoding::Protobuf(wire::metadata_message(message).unwrap_or(message))
            }
        };
        self.decode_as(encoding, bytes)
    }

    fn decode_as<K: DeserializeOwned>(
        &self,
        encoding: EntryEncoding,
        bytes: &[u8],
    ) -> Result<K, DecodeError> {
        match encoding {
            EntryEncoding::Json => serde_json::from_slice(bytes).map_err(|error| {
                // The field path is found by decoding again, so that only failures pay for tracking it.
                let mut again = serde_json::Deserializer::from_slice(bytes);
                let path =
                    serde_path_to_error::deserialize::<_, K>(&mut again).err().map(|e| e.path().to_string());
                self.decode_error::<K>(path.unwrap_or_default(), error.to_string())
            }),
            EntryEncoding::Protobuf(message) => {
                wire::decode(message, bytes).map_err(|error: wire::MessageError| {
                    self.decode_error::<K>(error.field_path(), error.to_string())
                })
            }
        }
    }

    /// Counts the error of a read.
    fn counted<T>(&self, result: Result<T, DecodeError>) -> Result<T, DecodeError> {
        if let (Err(_), Some(decoding)) = (&result, &self.decoding) {
            decoding.count_error();
        }
        result
    }

    fn decode_error<K>(&self, path: String, message: String) -> DecodeError {
        DecodeError {
            key: self.head.key.clone(),
            version: self.head.version.clone(),
            type_name: std::any::type_name::<K>(),
            // `serde_path_to_error` writes "." for the object as a whole.
            field_path: if path == "." { Box::default() } else { path.into() },
            message: message.into(),
        }
    }
}

/// Two entries are equal if they have the same key and [`Entry::is_same_state`] holds.
impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.head.key == other.head.key && self.is_same_state(other)
    }
}

impl Eq for Entry {}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.head.key, self.head.version)
    }
}

/// An object whose bytes do not decode as the requested type.
///
/// The error affects only the caller: the object stays cached (guarantee C9).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key} at version {version} does not decode as {type_name}{}{field_path}: {message}", if field_path.is_empty() { "" } else { ", at " })]
#[non_exhaustive]
pub struct DecodeError {
    /// The key of the object.
    pub key: Key,
    /// The resource version of the object.
    pub version: ResourceVersion,
    /// The Rust type that was requested.
    pub type_name: &'static str,
    /// The path of the field, as in `spec.containers[0].name`; empty for the object as a whole.
    pub field_path: Box<str>,
    /// The decoder's message.
    pub message: Box<str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_typed_reads_are_at_the_start() {
        assert!(std::mem::offset_of!(Entry, head) <= 32);
    }

    /// A store has one entry per object, so every additional word costs memory for each object.
    #[test]
    fn entry_takes_five_words_more_than_head_and_bytes() {
        assert_eq!(size_of::<Entry>(), size_of::<Head>() + size_of::<StoredBytes>() + 5 * size_of::<usize>());
    }
}
