//! Cached objects: the entry that a store keeps, and the typed handle through which callers read an entry.
//!
//! An [`Entry`] is not generic. It consists mainly of a head (the metadata known without decoding), the
//! object's bytes, their encoding, and the values decoded from the bytes so far. [`Object`] is a handle to an
//! entry as some type `K`; decoded values of different types coexist in one entry. The contents of an entry
//! are immutable (guarantee C13); only decoded values are added, and the entry may be marked as stale.

mod handle;

pub use handle::Object;

use crate::key::Key;
use crate::retention::{Interner, Retention, StoredBytes};
use crate::version::ResourceVersion;
use crate::wire::{self, EntryEncoding, FieldPath, Head, ScannedObject};
use serde::de::DeserializeOwned;
use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// One object of a store, of any kind.
// The field order keeps the key next to the reference count of the `Arc` around the entry: a lookup touches
// both, and they should share a cache line.
#[repr(C)]
pub struct Entry {
    head: Head,
    stored: StoredBytes,
    encoding: EntryEncoding,
    retention: Retention,
    /// Whether the server has a newer state that could not be read.
    stale: AtomicBool,
    /// Values decoded from the bytes, at most one per type. Few entries are ever decoded, so the list is
    /// allocated on first use.
    decoded: OnceLock<Arc<Mutex<Vec<DecodedValue>>>>,
    /// Counter of failed decodings, shared by the entries of a cache.
    decode_errors: Option<Arc<AtomicU64>>,
}

/// A decoded value in an entry. The type behind `dyn Any` is `Box<K>`: see [`Typed`].
enum DecodedValue {
    /// For [`Retention::Decoded`]: the entry keeps the value.
    Strong(Arc<dyn Any + Send + Sync>),
    /// For any other retention: the value lives as long as a caller holds it.
    Weak(Weak<dyn Any + Send + Sync>),
}

impl DecodedValue {
    /// Returns the value if it is a `K` and still alive.
    fn get<K: Send + Sync + 'static>(&self) -> Option<Typed<K>> {
        let any = match self {
            Self::Strong(value) => Arc::clone(value),
            Self::Weak(value) => value.upgrade()?,
        };
        any.downcast().ok().map(Typed)
    }

    fn is_alive(&self) -> bool {
        match self {
            Self::Strong(_) => true,
            Self::Weak(value) => value.strong_count() > 0,
        }
    }
}

impl Entry {
    /// Creates the entry of an object that was just read.
    pub fn new(scanned: ScannedObject, retention: Retention) -> Self {
        let ScannedObject { head, bytes, encoding } = scanned;
        let (stale, decoded) = (AtomicBool::new(false), OnceLock::new());
        Self {
            head,
            stored: StoredBytes::Plain(bytes),
            encoding,
            retention,
            stale,
            decoded,
            decode_errors: None,
        }
    }

    /// Counts decoding failures of this entry in `decode_errors`.
    #[must_use]
    pub fn counting(self, decode_errors: Option<Arc<AtomicU64>>) -> Self {
        Self { decode_errors, ..self }
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
    pub fn encoding(&self) -> EntryEncoding {
        self.encoding
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

    #[cfg(feature = "compression")]
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
        Some(Self {
            head: self.head.clone(),
            stored: compress(plain),
            encoding: self.encoding,
            retention: self.retention,
            stale: AtomicBool::new(self.is_stale()),
            decoded: self.decoded.clone(),
            decode_errors: self.decode_errors.clone(),
        })
    }

    pub(crate) fn set_stale(&self, stale: bool) {
        self.stale.store(stale, Ordering::Relaxed);
    }

    fn typed<K: DeserializeOwned + Send + Sync + 'static>(&self) -> Result<Typed<K>, DecodeError> {
        if self.decoded.get().is_some()
            && let Some(value) = self.lock_decoded().iter().find_map(DecodedValue::get)
        {
            return Ok(value);
        }
        // Decoded outside the lock: two threads may decode the same object, but neither waits for the other.
        let value = Arc::new(Box::new(self.decode::<K>()?));
        let mut decoded = self.lock_decoded();
        if let Some(earlier) = decoded.iter().find_map(DecodedValue::get) {
            return Ok(earlier);
        }
        decoded.retain(DecodedValue::is_alive);
        let any: Arc<dyn Any + Send + Sync> = value.clone();
        let keeps_decoded = self.retention == Retention::Decoded;
        decoded.push(if keeps_decoded {
            DecodedValue::Strong(any)
        } else {
            DecodedValue::Weak(Arc::downgrade(&any))
        });
        Ok(Typed(value))
    }

    fn decode<K: DeserializeOwned>(&self) -> Result<K, DecodeError> {
        self.decode_as(self.encoding, &self.checked_bytes::<K>()?)
    }

    /// Returns the bytes, or an error if they were corrupted in memory. The error names `K` as the
    /// requested type.
    fn checked_bytes<K>(&self) -> Result<Cow<'_, [u8]>, DecodeError> {
        self.stored
            .bytes()
            .map_err(|corrupted| self.count_decode_error::<K>(String::new(), corrupted.to_string()))
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
                self.count_decode_error::<K>(path.unwrap_or_default(), error.to_string())
            }),
            EntryEncoding::Protobuf(message) => {
                wire::decode(message, bytes).map_err(|error: wire::MessageError| {
                    self.count_decode_error::<K>(error.field_path(), error.to_string())
                })
            }
        }
    }

    /// Counts a decoding error and returns it.
    fn count_decode_error<K>(&self, path: String, message: String) -> DecodeError {
        if let Some(errors) = &self.decode_errors {
            errors.fetch_add(1, Ordering::Relaxed);
        }
        DecodeError {
            key: self.head.key.clone(),
            version: self.head.version.clone(),
            type_name: std::any::type_name::<K>(),
            // `serde_path_to_error` writes "." for the object as a whole.
            field_path: if path == "." { Box::default() } else { path.into() },
            message: message.into(),
        }
    }

    fn lock_decoded(&self) -> MutexGuard<'_, Vec<DecodedValue>> {
        self.decoded.get_or_init(Arc::default).lock().unwrap_or_else(PoisonError::into_inner)
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

/// A decoded object, shared by all callers that hold it.
///
/// The value is an `Arc<Box<K>>` and not an `Arc<K>`, because the entry may have a weak reference to it. A
/// weak reference keeps the memory inside the `Arc` allocated, also after the last caller dropped the
/// value. With the `Box`, that memory is a pointer; without it, it would be a whole `K` (an empty `Pod`
/// takes two kilobytes).
#[expect(
    clippy::redundant_allocation,
    reason = "a weak reference must not keep the memory of a dropped value allocated"
)]
pub struct Typed<K>(Arc<Box<K>>);

impl<K> Deref for Typed<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.0
    }
}

impl<K> AsRef<K> for Typed<K> {
    fn as_ref(&self) -> &K {
        self
    }
}

impl<K> Clone for Typed<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: fmt::Debug> fmt::Debug for Typed<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<K> Typed<K> {
    /// Returns whether both handles share one decoded value.
    pub fn ptr_eq(left: &Self, right: &Self) -> bool {
        Arc::ptr_eq(&left.0, &right.0)
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

    /// A store has one entry per object, so every additional word costs memory for each object.
    #[test]
    fn entry_takes_four_words_more_than_head_and_bytes() {
        assert_eq!(size_of::<Entry>(), size_of::<Head>() + size_of::<StoredBytes>() + 4 * size_of::<usize>());
    }
}
