//! Records: the objects of a cache as bytes, for files.
//!
//! A record is one object. Numbers are little-endian:
//!
//! | bytes | content |
//! |---|---|
//! | 4 | CRC-32 of the key's bytes and of everything that follows |
//! | 1 | flags: 1 for protobuf (otherwise JSON), 2 for compressed bytes |
//! | … | the head: see `wire::head_record` |
//! | 8 | only if compressed: number of the dictionary (0 for none), and length of the uncompressed bytes |
//! | … | the object's bytes, as the cache stores them |
//!
//! The order of records and where they are stored is not decided here. Nothing here reads files or clocks.

use crate::key::Key;
use crate::object::Entry;
use crate::retention::{Retention, StoredBytes};
use crate::wire::{EntryEncoding, Head, TypeMeta, message_of};
use informer_schema::MessageId;
#[cfg(feature = "compression")]
use {
    crate::retention::{Codec, CompressedBytes, Dictionary, SavedDictionary},
    crate::wire::take_u32,
    std::borrow::Cow,
    std::num::NonZeroU32,
    std::sync::Arc,
};

/// The version of the format of records, and of the files that contain them.
pub const FORMAT_VERSION: u32 = 2;

const CHECKSUM_BYTES: usize = 4;
const PROTOBUF: u8 = 1;
const COMPRESSED: u8 = 2;

/// The reason why a record cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The checksum does not match.
    #[error("the checksum of a record does not match")]
    Checksum,
    /// The bytes are not a record.
    #[error("a record is malformed")]
    Malformed,
    /// The object is in protobuf, and the protobuf message of the kind is unknown.
    #[error("a record contains a protobuf message of unknown type")]
    UnknownMessage,
    /// The object is compressed, and its dictionary is missing or the feature `compression` is disabled.
    #[error("a record is compressed with an unknown dictionary")]
    UnknownDictionary,
}

/// Writes records.
#[derive(Debug, Default)]
pub struct RecordEncoder {
    /// The dictionaries that the file contains; the number of a dictionary is its index plus one.
    #[cfg(feature = "compression")]
    dictionaries: Vec<Arc<Dictionary>>,
}

impl RecordEncoder {
    /// Replaces the content of `record` by the record of an entry. The file must contain the
    /// [`dictionaries`](Self::dictionaries) before the record is read.
    #[cfg_attr(
        not(feature = "compression"),
        allow(clippy::unused_self, reason = "only compression has dictionaries")
    )]
    pub fn encode(&mut self, entry: &Entry, record: &mut Vec<u8>) {
        record.clear();
        let protobuf = if entry.message().is_some() { PROTOBUF } else { 0 };
        record.extend_from_slice(&[0, 0, 0, 0, protobuf]);
        entry.head().write_record(record);
        match entry.stored() {
            StoredBytes::Plain(bytes) => record.extend_from_slice(bytes),
            #[cfg(feature = "compression")]
            StoredBytes::Compressed(compressed) => {
                let (bytes, length, dictionary) = compressed.parts();
                if let Some(length) = length {
                    record[CHECKSUM_BYTES] |= COMPRESSED;
                    record.extend_from_slice(&self.number_of(dictionary).to_le_bytes());
                    record.extend_from_slice(&length.get().to_le_bytes());
                }
                record.extend_from_slice(bytes);
            }
        }
        let checksum = checksum(entry.key().as_bytes(), &record[CHECKSUM_BYTES..]);
        record[..CHECKSUM_BYTES].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Returns the dictionaries of the records so far, with their numbers, in order.
    pub fn dictionaries(&self) -> impl Iterator<Item = (u32, &[u8])> {
        #[cfg(feature = "compression")]
        let dictionaries = self.dictionaries.iter().map(|dictionary| &*dictionary.bytes);
        #[cfg(not(feature = "compression"))]
        let dictionaries = std::iter::empty::<&[u8]>();
        (1..).zip(dictionaries)
    }

    /// Returns the number of a dictionary; 0 for none.
    #[cfg(feature = "compression")]
    fn number_of(&mut self, dictionary: &Arc<Dictionary>) -> u32 {
        if dictionary.bytes.is_empty() {
            return 0;
        }
        let known = self.dictionaries.iter().position(|known| Arc::ptr_eq(known, dictionary));
        let index = known.unwrap_or_else(|| {
            self.dictionaries.push(Arc::clone(dictionary));
            self.dictionaries.len() - 1
        });
        u32::try_from(index + 1).unwrap_or(u32::MAX)
    }
}

/// Returns the CRC-32 of the bytes of a key and of a value.
pub fn checksum(key: &[u8], rest: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key);
    hasher.update(rest);
    hasher.finalize()
}

/// Reads records.
#[derive(Debug)]
pub struct RecordDecoder {
    message: Option<MessageId>,
    retention: Retention,
    #[cfg(feature = "compression")]
    dictionaries: Vec<SavedDictionary>,
    #[cfg(feature = "compression")]
    no_dictionary: Arc<Dictionary>,
}

impl RecordDecoder {
    /// Creates a decoder for objects of this type, which are stored with this retention.
    pub fn new(type_meta: &TypeMeta, retention: Retention) -> Self {
        Self {
            message: message_of(type_meta),
            retention,
            #[cfg(feature = "compression")]
            dictionaries: Vec::new(),
            #[cfg(feature = "compression")]
            no_dictionary: Codec::without_dictionary().dictionary(),
        }
    }

    /// Adds the dictionary with the next number. Dictionaries must be added in the order of their numbers,
    /// starting with 1.
    ///
    /// # Errors
    ///
    /// Returns an error if the bytes are not a dictionary, or if the feature `compression` is disabled.
    #[cfg_attr(not(feature = "compression"), allow(clippy::unused_self, reason = "see the error"))]
    pub fn add_dictionary(&mut self, bytes: &[u8]) -> Result<(), RecordError> {
        #[cfg(feature = "compression")]
        {
            let codec = Codec::with_dictionary(bytes).ok_or(RecordError::UnknownDictionary)?;
            self.dictionaries.push(SavedDictionary(Arc::new(codec)));
            Ok(())
        }
        #[cfg(not(feature = "compression"))]
        {
            let _ = bytes;
            Err(RecordError::UnknownDictionary)
        }
    }

    /// Returns the dictionary that was added last.
    #[cfg(feature = "compression")]
    pub fn last_dictionary(&self) -> Option<&SavedDictionary> {
        self.dictionaries.last()
    }

    /// Returns an encoder that uses the same numbers for the dictionaries.
    pub fn encoder(&self) -> RecordEncoder {
        RecordEncoder {
            #[cfg(feature = "compression")]
            dictionaries: self.dictionaries.iter().map(|saved| saved.0.dictionary()).collect(),
        }
    }

    /// Returns the entry of a record.
    ///
    /// # Errors
    ///
    /// Returns an error if the record is damaged, or belongs to another key or kind.
    pub fn decode(&self, key: &[u8], record: &[u8]) -> Result<Entry, RecordError> {
        let (expected, rest) = record.split_first_chunk().ok_or(RecordError::Malformed)?;
        if checksum(key, rest) != u32::from_le_bytes(*expected) {
            return Err(RecordError::Checksum);
        }
        let (flags, mut rest) = rest.split_first().ok_or(RecordError::Malformed)?;
        let key = Key::from_bytes(key).ok_or(RecordError::Malformed)?;
        let head = Head::read_record(key, &mut rest).ok_or(RecordError::Malformed)?;
        let encoding = match flags & PROTOBUF {
            0 => EntryEncoding::Json,
            _ => EntryEncoding::Protobuf(self.message.ok_or(RecordError::UnknownMessage)?),
        };
        let stored = match flags & COMPRESSED {
            0 => StoredBytes::Plain(rest.into()),
            _ => self.compressed(rest)?,
        };
        Ok(Entry::restored(head, stored, encoding, self.retention))
    }

    #[cfg(feature = "compression")]
    fn compressed(&self, mut rest: &[u8]) -> Result<StoredBytes, RecordError> {
        let numbers = take_u32(&mut rest).zip(take_u32(&mut rest));
        let (number, length) = numbers.ok_or(RecordError::Malformed)?;
        let length = NonZeroU32::new(length).ok_or(RecordError::Malformed)?;
        let saved = (number as usize).checked_sub(1).map(|index| self.dictionaries.get(index));
        let dictionary = match saved {
            None => Arc::clone(&self.no_dictionary),
            Some(saved) => saved.ok_or(RecordError::UnknownDictionary)?.0.dictionary(),
        };
        let compressed = StoredBytes::Compressed(CompressedBytes::from_parts(rest, length, &dictionary));
        if self.retention == Retention::Compressed {
            return Ok(compressed);
        }
        let plain = compressed.bytes().map(Cow::into_owned).map_err(|_| RecordError::Malformed)?;
        Ok(StoredBytes::Plain(plain.into()))
    }

    #[cfg(not(feature = "compression"))]
    #[expect(clippy::unused_self, reason = "without compression there are no dictionaries")]
    fn compressed(&self, _: &[u8]) -> Result<StoredBytes, RecordError> {
        Err(RecordError::UnknownDictionary)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Limits, ListBody, ListItem};
    use proptest::prelude::*;

    /// Returns pods with labels, owners and times, in this encoding.
    fn entries(retention: Retention) -> Vec<Entry> {
        let items: Vec<String> = (0..40)
            .map(|number| {
                format!(
                    r#"{{"metadata":{{"name":"p{number}","namespace":"shop","uid":"u{number}",
                    "resourceVersion":"{}","generation":3,"creationTimestamp":"2026-01-02T03:04:05Z",
                    "labels":{{"app":"web","ž":""}},"ownerReferences":[{{"apiVersion":"v1","kind":"Node",
                    "name":"n","uid":"n1","controller":true}}]}},"spec":{{"nodeName":"{}"}}}}"#,
                    number + 10,
                    "node-".repeat(40),
                )
            })
            .collect();
        let body = format!(
            r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"99"}},"items":[{}]}}"#,
            items.join(",")
        );
        let types = TypeMeta::new("v1", "Pod");
        let mut reader =
            ListBody::new(crate::wire::BodyEncoding::Json, &types, Limits::default(), None).unwrap();
        let (mut chunk, mut entries) = (body.as_bytes(), Vec::new());
        while let Some(item) = reader.next(&mut chunk).unwrap() {
            if let ListItem::Object(scanned) = item {
                entries.push(Entry::new(scanned, retention));
            }
        }
        entries
    }

    fn decoder(retention: Retention) -> RecordDecoder {
        RecordDecoder::new(&TypeMeta::new("v1", "Pod"), retention)
    }

    #[test]
    fn decoded_records_equal_their_entries() {
        let (mut encoder, mut record) = (RecordEncoder::default(), Vec::new());
        for entry in entries(Retention::Bytes) {
            encoder.encode(&entry, &mut record);
            let decoded = decoder(Retention::Bytes).decode(entry.key().as_bytes(), &record).unwrap();
            assert_eq!(decoded, entry);
            assert_eq!(decoded.head(), entry.head());
        }
        assert_eq!(encoder.dictionaries().count(), 0);
    }

    #[cfg(feature = "compression")]
    #[test]
    fn compressed_records_need_their_dictionary() {
        use crate::{Compressor, Scope, StoreWriter};
        let compressor = Compressor::with_training();
        let (_, reader) = StoreWriter::new([Scope::All]);
        let untrained: Vec<_> = entries(Retention::Compressed);
        for entry in entries(Retention::Compressed) {
            compressor.compress(entry);
        }
        assert!(compressor.train(&reader.snapshot()), "40 pods are enough for a dictionary");
        let (mut encoder, mut record) = (RecordEncoder::default(), Vec::new());
        for entry in untrained {
            let plain_len = entry.stored().len();
            let entry = compressor.compress(entry);
            encoder.encode(&entry, &mut record);
            let key = entry.key().as_bytes();
            assert!(record.len() < plain_len, "{} of {plain_len} bytes", record.len());
            let missing = decoder(Retention::Compressed).decode(key, &record).unwrap_err();
            assert_eq!(missing, RecordError::UnknownDictionary);
            for retention in [Retention::Compressed, Retention::Bytes] {
                let mut decoder = decoder(retention);
                for (number, bytes) in encoder.dictionaries() {
                    assert_eq!(number, 1);
                    decoder.add_dictionary(bytes).unwrap();
                }
                let read = decoder.decode(key, &record).unwrap();
                assert_eq!(read, entry);
                assert_eq!(read.stored().len() < plain_len, retention == Retention::Compressed);
                // A restored compressor stores further objects with the same dictionary.
                let restored = Compressor::with_training();
                restored.restore(decoder.last_dictionary().unwrap(), 40);
                if retention == Retention::Compressed {
                    assert!(restored.is_current(&read));
                }
                let (mut again, mut copy) = (decoder.encoder(), Vec::new());
                again.encode(&read, &mut copy);
                assert!(retention == Retention::Bytes || copy == record, "the dictionary keeps its number");
            }
        }
    }

    #[test]
    fn record_of_another_key_or_kind_is_rejected() {
        let (mut encoder, mut record) = (RecordEncoder::default(), Vec::new());
        encoder.encode(&entries(Retention::Bytes)[0], &mut record);
        let decoder = decoder(Retention::Bytes);
        assert_eq!(decoder.decode(b"shop\0p1", &record).unwrap_err(), RecordError::Checksum);
        assert_eq!(decoder.decode(b"shop\0p0", b"").unwrap_err(), RecordError::Malformed);
        assert!(decoder.decode(b"shop\0p0", &record).is_ok());
    }

    proptest! {
        /// A record with any changed, missing or additional byte is rejected.
        #[test]
        fn damaged_records_are_rejected(at in 0_usize..10_000, bit in 0_u8..8, cut in 0_usize..10_000) {
            let (mut encoder, mut record) = (RecordEncoder::default(), Vec::new());
            encoder.encode(&entries(Retention::Bytes)[0], &mut record);
            let decoder = decoder(Retention::Bytes);
            let mut damaged = record.clone();
            let index = at % record.len();
            damaged[index] ^= 1 << bit;
            prop_assert!(decoder.decode(b"shop\0p0", &damaged).is_err());
            prop_assert!(decoder.decode(b"shop\0p0", &record[..cut % record.len()]).is_err());
            damaged.clone_from(&record);
            damaged.push(0);
            prop_assert!(decoder.decode(b"shop\0p0", &damaged).is_err());
        }

        /// Malformed bytes with a valid checksum cause errors, not panics.
        #[test]
        fn malformed_records_do_not_panic(mut record in prop::collection::vec(any::<u8>(), 0..200)) {
            if record.len() > CHECKSUM_BYTES {
                let valid = checksum(b"shop\0p0", &record[CHECKSUM_BYTES..]);
                record[..CHECKSUM_BYTES].copy_from_slice(&valid.to_le_bytes());
            }
            let _ = decoder(Retention::Bytes).decode(b"shop\0p0", &record);
        }
    }
}
