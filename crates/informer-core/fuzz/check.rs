//! The properties that must hold for every input: reading it in one piece and in many pieces has the same
//! result, memory is bounded in proportion to the input, and every object read from it can be read again,
//! decoded and inspected. Nothing panics for any input.

use crate::chance::below;
use crate::seeds::{BodyKind, Encoding, Seed, list_of};
use crate::{MEMORY, protobuf};
use informer_core::random::Random;
use informer_core::wire::{
    BodyErrorKind, Frame, Limits, ListItem, ListReader, ProtobufListReader, ProtobufWatchReader,
    ScannedObject, Status, TypeMeta, WatchReader, WireError, message_of,
};
use informer_core::{Entry, FieldFilter, Object, Retention};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// An input, and the parameters for reading it.
#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) encoding: Encoding,
    pub(crate) kind: BodyKind,
    pub(crate) type_meta: TypeMeta,
    pub(crate) limits: Limits,
    pub(crate) field_filter: Option<FieldFilter>,
    /// The seed for the positions at which it is split.
    pub(crate) split_seed: u64,
    /// The declared content type.
    pub(crate) content_type: Option<&'static str>,
    pub(crate) body: Vec<u8>,
}

/// Number of inputs per result.
#[derive(Default)]
pub(crate) struct Outcomes(BTreeMap<String, u64>);

/// An item read from a body.
#[derive(Debug, PartialEq)]
enum ReadItem {
    Item(ListItem),
    Frame(Frame),
}

/// The items read from a body, and whether its end was reached without an error.
#[derive(Debug, PartialEq)]
struct Read {
    items: Vec<ReadItem>,
    end: Result<(), WireError>,
}

/// Memory that a reader and its buffers may use before any input.
const BASE_MEMORY_BYTES: usize = 64 << 10;
/// Memory per byte of a body that is read and retained completely: an empty frame has four bytes, and its
/// value takes some hundreds.
const MAX_READ_MEMORY_PER_BYTE: usize = 256;
/// Memory per byte of an object that is decoded: an empty message has two bytes, and a map of it takes some
/// hundreds.
const MAX_DECODE_MEMORY_PER_BYTE: usize = 4096;
/// Number of objects of an input that are inspected.
const MAX_INSPECTED_OBJECTS: usize = 4;

const FIELD_PATHS: [&str; 6] = [
    "spec.nodeName",
    "spec.containers.image",
    "metadata.labels.app",
    "metadata.ownerReferences[*].uid",
    "status.conditions.type",
    "spec.versions.schema.openAPIV3Schema",
];

impl Case {
    /// Chooses how to read a corrupted body; sometimes with a wrong encoding, type or content type.
    pub(crate) fn new(seed: &Seed, body: Vec<u8>, random: &mut Random) -> Self {
        let rarely = |random: &mut Random| random.below(16) == 0;
        let encoding = match seed.encoding {
            Encoding::Json if rarely(random) && message_of(&seed.type_meta).is_some() => Encoding::Protobuf,
            Encoding::Protobuf if rarely(random) => Encoding::Json,
            encoding => encoding,
        };
        let type_meta = if rarely(random) { TypeMeta::new("v1", "Pod") } else { seed.type_meta.clone() };
        let limits =
            if random.below(4) == 0 { Limits::new(64 << random.below(6)) } else { Limits::default() };
        let field_filter = match random.below(6) {
            0 => FieldFilter::drop(["status", "metadata.annotations", "spec.containers[*].env"]).ok(),
            1 => FieldFilter::keep(["spec.nodeName", "metadata.labels", "data"]).ok(),
            _ => None,
        };
        let content_type = match random.below(10) {
            0 => Some("application/json"),
            1 => Some("application/vnd.kubernetes.protobuf;stream=watch"),
            2 => Some("text/html"),
            3 => None,
            _ => Some(match encoding {
                Encoding::Json => "application/json",
                Encoding::Protobuf => "application/vnd.kubernetes.protobuf",
            }),
        };
        Self {
            encoding,
            kind: seed.kind,
            type_meta,
            limits,
            field_filter,
            split_seed: random.next_u64(),
            content_type,
            body,
        }
    }

    /// Checks all properties.
    ///
    /// # Errors
    ///
    /// The property that is violated.
    pub(crate) fn check(&self, outcomes: &mut Outcomes) -> Result<(), String> {
        let whole =
            self.with_bounded_memory(MAX_READ_MEMORY_PER_BYTE, self.body.len(), || self.read(&[&self.body]))?;
        let pieces = self.read(&pieces(&self.body, self.split_seed));
        if pieces != whole {
            return Err(format!("in pieces the body reads as {pieces:?}, whole as {whole:?}"));
        }
        outcomes.count(self, &whole);
        self.check_json(&whole)?;
        self.check_sizes(&whole)?;
        for scanned in whole.objects().take(MAX_INSPECTED_OBJECTS) {
            self.check_reread(scanned)?;
            self.inspect(scanned)?;
        }
        let _ = (Status::from_json(&self.body), Status::from_protobuf(&self.body));
        Ok(())
    }

    fn read(&self, pieces: &[&[u8]]) -> Read {
        let (type_meta, limits, field_filter) =
            (self.type_meta.clone(), self.limits, self.field_filter.clone());
        let mut items = Vec::new();
        // A macro, because the readers have no common trait; only tests would use one.
        macro_rules! read {
            ($reader:expr, $variant:path) => {{
                let mut reader = $reader.with_field_filter(field_filter);
                let read =
                    pieces.iter().try_for_each(|piece| reader.read(piece, |item| items.push($variant(item))));
                read.and_then(|()| reader.finish())
            }};
        }
        let end = match (self.encoding, self.kind) {
            (Encoding::Json, BodyKind::Watch) => read!(WatchReader::new(type_meta, limits), ReadItem::Frame),
            (Encoding::Json, _) => read!(ListReader::new(type_meta, limits), ReadItem::Item),
            (Encoding::Protobuf, BodyKind::Watch) => match ProtobufWatchReader::new(type_meta, limits) {
                Some(reader) => read!(reader, ReadItem::Frame),
                None => Ok(()),
            },
            (Encoding::Protobuf, _) => match ProtobufListReader::new(type_meta, limits) {
                Some(reader) => read!(reader, ReadItem::Item),
                None => Ok(()),
            },
        };
        Read { items, end }
    }

    /// Runs `work` and fails if its peak memory exceeds the bound for an input of `length` bytes.
    fn with_bounded_memory<T>(
        &self,
        factor: usize,
        length: usize,
        work: impl FnOnce() -> T,
    ) -> Result<T, String> {
        MEMORY.reset_peak_usage();
        let before = MEMORY.current_usage();
        let result = work();
        let used = MEMORY.peak_usage().saturating_sub(before);
        if used > BASE_MEMORY_BYTES + factor * length {
            return Err(format!("{length} bytes used {used} bytes of memory as {:?}", self.encoding));
        }
        Ok(result)
    }

    /// A body that `serde_json` accepts is not reported as a syntax error.
    fn check_json(&self, read: &Read) -> Result<(), String> {
        let Err(error) = &read.end else { return Ok(()) };
        let is_syntax_error = matches!(error.kind, BodyErrorKind::Syntax(_) | BodyErrorKind::Truncated);
        let is_object = self.body.trim_ascii_start().first() == Some(&b'{');
        let parses = || serde_json::from_slice::<&RawValue>(&self.body).is_ok();
        if self.encoding == Encoding::Json && is_syntax_error && is_object && parses() {
            return Err(format!("valid JSON was rejected: {error}"));
        }
        Ok(())
    }

    /// No object exceeds the size limit, and no more bytes are stored than were received.
    fn check_sizes(&self, read: &Read) -> Result<(), String> {
        let added = match self.encoding {
            Encoding::Json => {
                r#"{"apiVersion":"","kind":"","metadata":{}}"#.len()
                    + self.type_meta.kind.len()
                    + self.type_meta.api_version.len()
            }
            Encoding::Protobuf => 0,
        };
        let (mut count, mut stored) = (0, 0);
        for scanned in read.objects() {
            if scanned.bytes.len() > self.limits.max_object_bytes {
                return Err(format!(
                    "{} bytes are stored of {}, more than the limit",
                    scanned.bytes.len(),
                    scanned.head.key
                ));
            }
            count += 1;
            stored += scanned.bytes.len();
        }
        let received = self.body.len() + count * added;
        if stored > received {
            Err(format!("{stored} bytes are stored of {received} received"))
        } else {
            Ok(())
        }
    }

    /// The stored bytes of an object are read to the same object.
    fn check_reread(&self, scanned: &ScannedObject) -> Result<(), String> {
        let bytes: &[u8] = &scanned.bytes;
        let body = match self.encoding {
            Encoding::Json => list_of(&self.type_meta, bytes),
            Encoding::Protobuf => protobuf::list(&self.type_meta, &[bytes.to_vec()]),
        };
        let list = Self { body, kind: BodyKind::List, limits: Limits::default(), ..self.clone() };
        let read = list.read(&[&list.body]);
        match read.objects().next() {
            Some(found) if found == scanned => Ok(()),
            _ => Err(format!("{scanned:?} is reread as {read:?}")),
        }
    }

    /// Every access to an object returns a value or an error.
    fn inspect(&self, scanned: &ScannedObject) -> Result<(), String> {
        let entry = || Arc::new(Entry::new(scanned.clone(), Retention::Bytes));
        let object = Object::<Value>::new(entry());
        let length = scanned.bytes.len();
        self.with_bounded_memory(MAX_DECODE_MEMORY_PER_BYTE, length, || {
            for path in FIELD_PATHS.iter().filter_map(|path| path.parse().ok()) {
                object.entry().values_at(&path);
            }
            let _ = object.metadata::<ObjectMeta>();
            let _ = object.to_json();
            let _ = object.cast::<Pod>().typed();
        })?;
        let value = self.with_bounded_memory(MAX_DECODE_MEMORY_PER_BYTE, length, || object.typed())?;
        if value.is_ok() && !object.entry().is_same_state(&entry()) {
            return Err(format!("{} is not equal to itself", scanned.head.key));
        }
        Ok(())
    }
}

impl Read {
    fn objects(&self) -> impl Iterator<Item = &ScannedObject> {
        self.items.iter().filter_map(|item| match item {
            ReadItem::Item(ListItem::Object(scanned))
            | ReadItem::Frame(Frame::Added(scanned) | Frame::Modified(scanned) | Frame::Deleted(scanned)) => {
                Some(scanned)
            }
            _ => None,
        })
    }

    fn has_unreadable(&self) -> bool {
        let is_unreadable = |item: &ReadItem| {
            matches!(item, ReadItem::Item(ListItem::Unreadable(_)) | ReadItem::Frame(Frame::Unreadable(..)))
        };
        self.items.iter().any(is_unreadable)
    }
}

/// Splits a body: byte by byte, into equal pieces, or at a few random positions.
pub(crate) fn pieces(body: &[u8], split_seed: u64) -> Vec<&[u8]> {
    let mut random = Random::new(split_seed);
    match random.below(4) {
        0 => body.chunks(1).collect(),
        1 => body.chunks(1 + below(&mut random, 100)).collect(),
        _ => {
            let mut ends: Vec<usize> =
                (0..=random.below(8)).map(|_| below(&mut random, body.len() + 1)).collect();
            ends.extend([0, body.len()]);
            ends.sort_unstable();
            ends.windows(2).map(|ends| &body[ends[0]..ends[1]]).collect()
        }
    }
}

impl Outcomes {
    fn count(&mut self, case: &Case, read: &Read) {
        let end = match &read.end {
            Ok(()) if read.has_unreadable() => "read, some objects unreadable",
            Ok(()) => "read",
            Err(error) => match error.kind {
                BodyErrorKind::Syntax(_) => "not JSON",
                BodyErrorKind::Protobuf(_) => "not protobuf",
                BodyErrorKind::Truncated => "truncated",
                BodyErrorKind::NotAList { .. } => "not a list",
                BodyErrorKind::ListMeta { .. } => "invalid list metadata",
                _ => "other error",
            },
        };
        let row = format!("{:?} {:?}: {end}", case.encoding, case.kind);
        *self.0.entry(row).or_default() += 1;
        *self.0.entry("objects".to_owned()).or_default() += read.objects().count() as u64;
    }
}

impl fmt::Display for Outcomes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(row, count)| writeln!(f, "{count:>10}  {row}"))
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { encoding, kind, type_meta, limits, field_filter, split_seed, content_type, body } = self;
        let length = body.len();
        write!(
            f,
            "{length} bytes as {encoding:?} {kind:?} of {type_meta:?}, {limits:?}, {field_filter:?}, split by {split_seed}, declared as {content_type:?}"
        )
    }
}
