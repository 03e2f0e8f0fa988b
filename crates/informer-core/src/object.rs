//! Cached objects: the entry that a cache keeps, and the typed handle through which everybody sees it.
//!
//! An [`Entry`] is not generic: head, bytes, encoding, and a slot for views that were decoded from it. [`Object`] is a view
//! of an entry as some type `K`; views of different types of one entry live side by side. Entries never change
//! (C13), except that one may learn that the server has a newer state which could not be read.

use crate::key::Key;
use crate::retention::{Interner, Retention, StoredBytes};
use crate::version::ResourceVersion;
use crate::wire::{self, EntryEncoding, FieldPath, Head, Labels, Owners, ScannedObject};
use jiff::Timestamp;
use ref_cast::{RefCastCustom, ref_cast_custom};
use serde::de::DeserializeOwned;
use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// One object of a cache, whatever its kind.
// In this order, so that the key lies beside the count of shares: a look-up needs both, and comes from far away in memory.
#[repr(C)]
pub struct Entry {
    head: Head,
    stored: StoredBytes,
    encoding: EntryEncoding,
    retention: Retention,
    /// Whether the server has a newer state that could not be read.
    stale: AtomicBool,
    /// What was decoded from the bytes, at most one view per type. Few entries are ever decoded, so it takes little until then.
    views: OnceLock<Arc<Mutex<Vec<CachedView>>>>,
    /// Where a view that does not decode is counted.
    decode_errors: Option<Arc<AtomicU64>>,
}

/// A decoded view in an entry's slot. The value is a `Box<K>`.
enum CachedView {
    Kept(Arc<dyn Any + Send + Sync>),
    Shared(Weak<dyn Any + Send + Sync>),
}

impl CachedView {
    fn get<K: Send + Sync + 'static>(&self) -> Option<Typed<K>> {
        let any = match self {
            Self::Kept(view) => Arc::clone(view),
            Self::Shared(view) => view.upgrade()?,
        };
        any.downcast().ok().map(Typed)
    }

    fn is_alive(&self) -> bool {
        match self {
            Self::Kept(_) => true,
            Self::Shared(view) => view.strong_count() > 0,
        }
    }
}

impl Entry {
    /// The entry of an object that was just read.
    pub fn new(scanned: ScannedObject, retention: Retention) -> Self {
        let ScannedObject { head, bytes, encoding } = scanned;
        let (stale, views) = (AtomicBool::new(false), OnceLock::new());
        Self {
            head,
            stored: StoredBytes::Plain(bytes),
            encoding,
            retention,
            stale,
            views,
            decode_errors: None,
        }
    }

    /// The same, counting there the views that do not decode.
    #[must_use]
    pub fn counting(self, decode_errors: Option<Arc<AtomicU64>>) -> Self {
        Self { decode_errors, ..self }
    }

    /// The same, having in common with earlier ones what is equal.
    pub(crate) fn sharing(mut self, interner: &Interner) -> Self {
        interner.share(&mut self.head);
        self
    }

    /// What is known without decoding.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Namespace and name.
    pub fn key(&self) -> &Key {
        &self.head.key
    }

    /// The object's bytes, in the form that [`Entry::encoding`] says. They are borrowed unless they are kept compressed. Empty if they
    /// were damaged in memory since.
    pub fn bytes(&self) -> Cow<'_, [u8]> {
        self.stored.bytes().unwrap_or_default()
    }

    /// How the bytes are written.
    pub fn encoding(&self) -> EntryEncoding {
        self.encoding
    }

    /// About how much memory the entry takes.
    pub fn memory_size(&self) -> usize {
        size_of::<Self>() + self.stored.len() + self.head.heap_size()
    }

    /// The values at a path, without decoding the object: strings as they are, numbers and booleans as JSON writes them, whatever form
    /// the object is in. Nothing for what is absent, null, an object, or not readable.
    pub fn values_at(&self, path: &FieldPath) -> Vec<String> {
        let mut values = Vec::new();
        self.each_value(path, &mut |value| values.push(value.to_owned()));
        values
    }

    /// Calls `visit` with each of these values.
    pub(crate) fn each_value(&self, path: &FieldPath, visit: &mut dyn FnMut(&str)) {
        path.each_value(self.encoding, &self.bytes(), visit);
    }

    /// Whether `other` is the same state, to the last byte or to the last value: servers of different versions write the same object in
    /// protobuf that differs, and another form differs anyway. A server that was restored from a backup gives version numbers out a second
    /// time, so there uid and version prove nothing.
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
        let [own, others] = [self, other].map(Self::value);
        own.is_some() && own == others
    }

    /// What the object says, if it can be decoded. Nobody asked to see it, so a failure is not counted.
    fn value(&self) -> Option<serde_json::Value> {
        let bytes = self.stored.bytes().ok()?;
        match self.encoding {
            EntryEncoding::Json => serde_json::from_slice(&bytes).ok(),
            EntryEncoding::Protobuf(of) => wire::decode(of, &bytes).ok(),
        }
    }

    /// Whether `other` is another life of this key: deleted and created again. Unknown uids are taken for equal.
    pub fn is_other_incarnation(&self, other: &Self) -> bool {
        self.head.uid != other.head.uid && !self.head.uid.is_empty() && !other.head.uid.is_empty()
    }

    /// Whether the server has a newer state that could not be read.
    pub fn is_stale(&self) -> bool {
        self.stale.load(Ordering::Relaxed)
    }

    #[cfg(feature = "compression")]
    pub(crate) fn stored(&self) -> &StoredBytes {
        &self.stored
    }

    /// The same entry with its bytes in another form.
    #[cfg(feature = "compression")]
    pub(crate) fn with_stored(self, pack: impl FnOnce(Box<[u8]>) -> StoredBytes) -> Self {
        match self.stored {
            StoredBytes::Plain(bytes) => Self { stored: pack(bytes), ..self },
            StoredBytes::Compressed(_) => self,
        }
    }

    /// An equal entry with its bytes in another form. Views that are held are shared on. `None` if the bytes are damaged.
    #[cfg(feature = "compression")]
    pub(crate) fn recompressed(&self, pack: impl FnOnce(Box<[u8]>) -> StoredBytes) -> Option<Self> {
        let plain = self.stored.bytes().ok()?.into_owned().into_boxed_slice();
        Some(Self {
            head: self.head.clone(),
            stored: pack(plain),
            encoding: self.encoding,
            retention: self.retention,
            stale: AtomicBool::new(self.is_stale()),
            views: self.views.clone(),
            decode_errors: self.decode_errors.clone(),
        })
    }

    pub(crate) fn set_stale(&self, stale: bool) {
        self.stale.store(stale, Ordering::Relaxed);
    }

    fn typed<K: DeserializeOwned + Send + Sync + 'static>(&self) -> Result<Typed<K>, DecodeError> {
        if self.views.get().is_some()
            && let Some(view) = self.lock_views().iter().find_map(CachedView::get)
        {
            return Ok(view);
        }
        // Decoded outside the lock: two threads may both do it, but neither waits for the other.
        let view = Arc::new(Box::new(self.decode::<K>()?));
        let mut views = self.lock_views();
        if let Some(earlier) = views.iter().find_map(CachedView::get) {
            return Ok(earlier);
        }
        views.retain(CachedView::is_alive);
        let any: Arc<dyn Any + Send + Sync> = view.clone();
        let keeps = self.retention == Retention::Decoded;
        views.push(if keeps { CachedView::Kept(any) } else { CachedView::Shared(Arc::downgrade(&any)) });
        Ok(Typed(view))
    }

    fn decode<K: DeserializeOwned>(&self) -> Result<K, DecodeError> {
        self.decode_as(self.encoding, &self.checked_bytes::<K>()?)
    }

    fn checked_bytes<K>(&self) -> Result<Cow<'_, [u8]>, DecodeError> {
        self.stored.bytes().map_err(|damaged| self.decode_error::<K>(String::new(), damaged.to_string()))
    }

    fn decode_metadata<M: DeserializeOwned>(&self) -> Result<M, DecodeError> {
        let (range, bytes) = (&self.head.metadata, self.checked_bytes::<M>()?);
        let bytes = bytes.get(range.start as usize..range.end as usize).unwrap_or_default();
        let encoding = match self.encoding {
            EntryEncoding::Json => EntryEncoding::Json,
            EntryEncoding::Protobuf(of) => EntryEncoding::Protobuf(wire::metadata_message(of).unwrap_or(of)),
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
                // Only a failure pays for finding out where.
                let mut again = serde_json::Deserializer::from_slice(bytes);
                let place =
                    serde_path_to_error::deserialize::<_, K>(&mut again).err().map(|e| e.path().to_string());
                self.decode_error::<K>(place.unwrap_or_default(), error.to_string())
            }),
            EntryEncoding::Protobuf(of) => wire::decode(of, bytes).map_err(|error: wire::MessageError| {
                self.decode_error::<K>(error.place(), error.to_string())
            }),
        }
    }

    fn decode_error<K>(&self, place: String, reason: String) -> DecodeError {
        if let Some(errors) = &self.decode_errors {
            errors.fetch_add(1, Ordering::Relaxed);
        }
        DecodeError {
            key: self.head.key.clone(),
            version: self.head.version.clone(),
            type_name: std::any::type_name::<K>(),
            field_path: if place == "." { Box::default() } else { place.into() },
            message: reason.into(),
        }
    }

    fn lock_views(&self) -> MutexGuard<'_, Vec<CachedView>> {
        self.views.get_or_init(Arc::default).lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Two entries are equal if they are the same state of the same object, to the last byte.
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

/// A decoded object, shared by everybody who holds it.
///
/// It is reached through one more box than an `Arc<K>`, so that an entry can remember a view without keeping the memory of
/// one that nobody holds any more (a `Pod` alone is two kilobytes, even when empty).
#[expect(clippy::redundant_allocation, reason = "the box is what lets a dead view's memory go")]
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
    /// Whether both are one and the same decoded value.
    pub fn ptr_eq(left: &Self, right: &Self) -> bool {
        Arc::ptr_eq(&left.0, &right.0)
    }
}

/// An object whose bytes do not decode as the asked type. A trouble of whoever asked, not of the cache (C9).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key} at version {version} does not decode as {type_name}{}{field_path}: {message}", if field_path.is_empty() { "" } else { ", at " })]
#[non_exhaustive]
pub struct DecodeError {
    /// Which object.
    pub key: Key,
    /// Which state of it.
    pub version: ResourceVersion,
    /// The type that was asked for.
    pub type_name: &'static str,
    /// The path of the field, as in `spec.containers[0].name`; empty for the object as a whole.
    pub field_path: Box<str>,
    /// What the decoder says.
    pub message: Box<str>,
}

/// A cached object, seen as a `K`. Cheap to clone, immutable.
///
/// Questions about the head cost nothing; [`Object::typed`] decodes when it is called, and what it returns is shared
/// while anybody holds it.
#[derive(RefCastCustom)]
#[repr(transparent)]
pub struct Object<K> {
    entry: Arc<Entry>,
    kind: PhantomData<fn() -> K>,
}

impl<K> Object<K> {
    /// A view of an entry.
    pub fn new(entry: Arc<Entry>) -> Self {
        Self { entry, kind: PhantomData }
    }

    /// A view of an entry that stays where it is: no reference is counted.
    #[ref_cast_custom]
    pub fn from_ref(entry: &Arc<Entry>) -> &Self;

    /// The entry behind the view.
    pub fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }

    /// The same object, seen as another type.
    pub fn cast<T>(&self) -> Object<T> {
        Object::new(Arc::clone(&self.entry))
    }

    /// This object, seen as another type.
    pub fn into_view<T>(self) -> Object<T> {
        Object::new(self.entry)
    }

    /// Namespace and name.
    pub fn key(&self) -> &Key {
        &self.entry.head.key
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.key().name()
    }

    /// The namespace, `None` for cluster-scoped objects.
    pub fn namespace(&self) -> Option<&str> {
        self.key().namespace()
    }

    /// The uid; empty if the server sent none.
    pub fn uid(&self) -> &str {
        &self.entry.head.uid
    }

    /// The resource version of this state.
    pub fn resource_version(&self) -> &ResourceVersion {
        &self.entry.head.version
    }

    /// The generation, where the kind has one.
    pub fn generation(&self) -> Option<i64> {
        self.entry.head.generation()
    }

    /// The labels.
    pub fn labels(&self) -> &Labels {
        &self.entry.head.labels
    }

    /// The owners.
    pub fn owners(&self) -> &Owners {
        &self.entry.head.owners
    }

    /// When it was created.
    pub fn creation_timestamp(&self) -> Option<Timestamp> {
        self.entry.head.created()
    }

    /// When its deletion was asked for; `None` while nobody has.
    pub fn deletion_timestamp(&self) -> Option<Timestamp> {
        self.entry.head.deleted()
    }

    /// Whether the server has a newer state of this object that could not be read.
    pub fn is_stale(&self) -> bool {
        self.entry.is_stale()
    }

    /// The object's bytes, without `metadata.managedFields`, in the form that [`Entry::encoding`] says. Equal whether the object arrived by
    /// a list or by a watch. Borrowed, unless the cache keeps them compressed.
    pub fn raw_bytes(&self) -> Cow<'_, [u8]> {
        self.entry.bytes()
    }

    /// The object as JSON, without `metadata.managedFields`. As it arrived if that was JSON; otherwise it is decoded and written, with names in
    /// the order of the alphabet.
    pub fn to_json(&self) -> Result<Cow<'_, [u8]>, DecodeError> {
        match self.entry.encoding {
            EntryEncoding::Json => self.entry.checked_bytes::<serde_json::Value>(),
            EntryEncoding::Protobuf(_) => {
                let value: serde_json::Value = self.entry.decode()?;
                Ok(Cow::Owned(value.to_string().into_bytes()))
            }
        }
    }

    /// Decodes `metadata` alone, as an `ObjectMeta` or whatever part of it is of interest.
    pub fn metadata<M: DeserializeOwned>(&self) -> Result<M, DecodeError> {
        self.entry.decode_metadata()
    }
}

impl<K: DeserializeOwned + Send + Sync + 'static> Object<K> {
    /// The decoded object. Whoever asks while another holds it gets the same one, unless the cache has compressed the object in between.
    pub fn typed(&self) -> Result<Typed<K>, DecodeError> {
        self.entry.typed()
    }
}

impl<K> Clone for Object<K> {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.entry))
    }
}

/// Key and version only: contents may be secret.
impl<K> fmt::Debug for Object<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.entry.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cache holds one entry for each object: what is added here is paid for each of them.
    #[test]
    fn entry_takes_four_words_besides_head_and_bytes() {
        assert_eq!(size_of::<Entry>(), size_of::<Head>() + size_of::<StoredBytes>() + 4 * size_of::<usize>());
    }
}
