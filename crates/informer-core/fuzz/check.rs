//! What has to hold for every input: it is read the same in one piece and in many, in memory that what arrived pays for, and whatever
//! comes out of it can be read again, decoded and looked into. Nothing panics, whatever it is.

use crate::chance::below;
use crate::seeds::{Form, Seed, What, list_of};
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

/// An input, and how it is read.
#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) form: Form,
    pub(crate) what: What,
    pub(crate) types: TypeMeta,
    pub(crate) limits: Limits,
    pub(crate) projection: Option<FieldFilter>,
    /// Where it is cut.
    pub(crate) cuts: u64,
    /// What its headers say it is.
    pub(crate) content_type: Option<&'static str>,
    pub(crate) body: Vec<u8>,
}

/// How often inputs ended how.
#[derive(Default)]
pub(crate) struct Tally(BTreeMap<String, u64>);

/// What came out of a body.
#[derive(Debug, PartialEq)]
enum ReadItem {
    Item(ListItem),
    Frame(Frame),
}

#[derive(Debug, PartialEq)]
struct Read {
    items: Vec<ReadItem>,
    end: Result<(), WireError>,
}

/// A reader and its buffers, before anything has arrived.
const AT_REST: usize = 64 << 10;
/// What a body may take for each of its bytes while it is read and all of it is held: an empty frame is four bytes, and word of it some hundreds.
const READ_FACTOR: usize = 256;
/// What a view may take for each byte of its object: an empty message is two bytes, and a map of some hundreds.
const VIEW_FACTOR: usize = 4096;
/// How many objects of an input are looked into.
const LOOKED_INTO: usize = 4;

const PATHS: [&str; 6] = [
    "spec.nodeName",
    "spec.containers.image",
    "metadata.labels.app",
    "metadata.ownerReferences[*].uid",
    "status.conditions.type",
    "spec.versions.schema.openAPIV3Schema",
];

impl Case {
    /// How to read a damaged body; now and then as what it is not.
    pub(crate) fn new(seed: &Seed, body: Vec<u8>, random: &mut Random) -> Self {
        let odd = |random: &mut Random| random.below(16) == 0;
        let form = match seed.form {
            Form::Json if odd(random) && message_of(&seed.types).is_some() => Form::Protobuf,
            Form::Protobuf if odd(random) => Form::Json,
            form => form,
        };
        let types = if odd(random) { TypeMeta::new("v1", "Pod") } else { seed.types.clone() };
        let limits =
            if random.below(4) == 0 { Limits::new(64 << random.below(6)) } else { Limits::default() };
        let projection = match random.below(6) {
            0 => FieldFilter::drop(["status", "metadata.annotations", "spec.containers[*].env"]).ok(),
            1 => FieldFilter::keep(["spec.nodeName", "metadata.labels", "data"]).ok(),
            _ => None,
        };
        let content_type = match random.below(10) {
            0 => Some("application/json"),
            1 => Some("application/vnd.kubernetes.protobuf;stream=watch"),
            2 => Some("text/html"),
            3 => None,
            _ => Some(match form {
                Form::Json => "application/json",
                Form::Protobuf => "application/vnd.kubernetes.protobuf",
            }),
        };
        Self { form, what: seed.what, types, limits, projection, cuts: random.next_u64(), content_type, body }
    }

    /// Whether all promises are kept; if not, which.
    pub(crate) fn check(&self, tally: &mut Tally) -> Result<(), String> {
        let whole = self.paid_for(READ_FACTOR, self.body.len(), || self.read(&[&self.body]))?;
        let pieces = self.read(&pieces(&self.body, self.cuts));
        if pieces != whole {
            return Err(format!("in pieces it reads as {pieces:?}, whole as {whole:?}"));
        }
        tally.count(self, &whole);
        self.check_json(&whole)?;
        self.check_sizes(&whole)?;
        for scanned in whole.objects().take(LOOKED_INTO) {
            self.check_again(scanned)?;
            self.look_into(scanned)?;
        }
        let _ = (Status::from_json(&self.body), Status::from_protobuf(&self.body));
        Ok(())
    }

    fn read(&self, pieces: &[&[u8]]) -> Read {
        let (types, limits, projection) = (self.types.clone(), self.limits, self.projection.clone());
        let mut told = Vec::new();
        // The readers have no trait in common; nobody but tests would use it.
        macro_rules! read {
            ($reader:expr, $told:path) => {{
                let mut reader = $reader.with_field_filter(projection);
                let read =
                    pieces.iter().try_for_each(|piece| reader.read(piece, |one| told.push($told(one))));
                read.and_then(|()| reader.finish())
            }};
        }
        let end = match (self.form, self.what) {
            (Form::Json, What::Watch) => read!(WatchReader::new(types, limits), ReadItem::Frame),
            (Form::Json, _) => read!(ListReader::new(types, limits), ReadItem::Item),
            (Form::Protobuf, What::Watch) => match ProtobufWatchReader::new(types, limits) {
                Some(reader) => read!(reader, ReadItem::Frame),
                None => Ok(()),
            },
            (Form::Protobuf, _) => match ProtobufListReader::new(types, limits) {
                Some(reader) => read!(reader, ReadItem::Item),
                None => Ok(()),
            },
        };
        Read { items: told, end }
    }

    /// Does it, in memory that `length` bytes pay for.
    fn paid_for<T>(&self, factor: usize, length: usize, work: impl FnOnce() -> T) -> Result<T, String> {
        MEMORY.reset_peak_usage();
        let before = MEMORY.current_usage();
        let done = work();
        let took = MEMORY.peak_usage().saturating_sub(before);
        if took > AT_REST + factor * length {
            return Err(format!("{length} bytes took {took} bytes of memory as {:?}", self.form));
        }
        Ok(done)
    }

    /// What a plain parser takes for JSON is no syntax error.
    fn check_json(&self, read: &Read) -> Result<(), String> {
        let Err(error) = &read.end else { return Ok(()) };
        let wrong = matches!(error.kind, BodyErrorKind::Syntax(_) | BodyErrorKind::Truncated);
        let is_object = self.body.trim_ascii_start().first() == Some(&b'{');
        let parses = || serde_json::from_slice::<&RawValue>(&self.body).is_ok();
        if self.form == Form::Json && wrong && is_object && parses() {
            return Err(format!("this is JSON, but: {error}"));
        }
        Ok(())
    }

    /// Nothing is kept that is larger than the limit, and nothing that has not arrived.
    fn check_sizes(&self, read: &Read) -> Result<(), String> {
        let added = match self.form {
            Form::Json => {
                r#"{"apiVersion":"","kind":"","metadata":{}}"#.len()
                    + self.types.kind.len()
                    + self.types.api_version.len()
            }
            Form::Protobuf => 0,
        };
        let (mut count, mut kept) = (0, 0);
        for scanned in read.objects() {
            if scanned.bytes.len() > self.limits.max_object_bytes {
                return Err(format!("{} bytes are kept of {}", scanned.bytes.len(), scanned.head.key));
            }
            count += 1;
            kept += scanned.bytes.len();
        }
        let arrived = self.body.len() + count * added;
        if kept > arrived { Err(format!("{kept} bytes are kept of {arrived}")) } else { Ok(()) }
    }

    /// An object's bytes are read to the same object.
    fn check_again(&self, scanned: &ScannedObject) -> Result<(), String> {
        let bytes: &[u8] = &scanned.bytes;
        let body = match self.form {
            Form::Json => list_of(&self.types, bytes),
            Form::Protobuf => protobuf::list(&self.types, &[bytes.to_vec()]),
        };
        let again = Self { body, what: What::List, limits: Limits::default(), ..self.clone() };
        let read = again.read(&[&again.body]);
        match read.objects().next() {
            Some(found) if found == scanned => Ok(()),
            _ => Err(format!("{scanned:?} reads as {read:?} once more")),
        }
    }

    /// Every way to look into an object ends, with a value or with an error.
    fn look_into(&self, scanned: &ScannedObject) -> Result<(), String> {
        let entry = || Arc::new(Entry::new(scanned.clone(), Retention::Bytes));
        let object = Object::<Value>::new(entry());
        let length = scanned.bytes.len();
        self.paid_for(VIEW_FACTOR, length, || {
            for path in PATHS.iter().filter_map(|path| path.parse().ok()) {
                object.entry().values_at(&path);
            }
            let _ = object.metadata::<ObjectMeta>();
            let _ = object.to_json();
            let _ = object.cast::<Pod>().typed();
        })?;
        let value = self.paid_for(VIEW_FACTOR, length, || object.typed())?;
        if value.is_ok() && !object.entry().is_same_state(&entry()) {
            return Err(format!("{} differs from itself", scanned.head.key));
        }
        Ok(())
    }
}

impl Read {
    fn objects(&self) -> impl Iterator<Item = &ScannedObject> {
        self.items.iter().filter_map(|told| match told {
            ReadItem::Item(ListItem::Object(scanned))
            | ReadItem::Frame(Frame::Added(scanned) | Frame::Modified(scanned) | Frame::Deleted(scanned)) => {
                Some(scanned)
            }
            _ => None,
        })
    }

    fn passed_over(&self) -> bool {
        let is = |told: &ReadItem| {
            matches!(told, ReadItem::Item(ListItem::Unreadable(_)) | ReadItem::Frame(Frame::Unreadable(..)))
        };
        self.items.iter().any(is)
    }
}

/// A body in pieces: byte by byte, in equal ones, or cut in a few places.
pub(crate) fn pieces(body: &[u8], cuts: u64) -> Vec<&[u8]> {
    let mut random = Random::new(cuts);
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

impl Tally {
    fn count(&mut self, case: &Case, read: &Read) {
        let end = match &read.end {
            Ok(()) if read.passed_over() => "read, some objects passed over",
            Ok(()) => "read",
            Err(error) => match error.kind {
                BodyErrorKind::Syntax(_) => "not JSON",
                BodyErrorKind::Protobuf(_) => "not protobuf",
                BodyErrorKind::Truncated => "ends too early",
                BodyErrorKind::NotAList { .. } => "not a list",
                BodyErrorKind::ListMeta { .. } => "no metadata of a list",
                _ => "something else",
            },
        };
        let row = format!("{:?} {:?}: {end}", case.form, case.what);
        *self.0.entry(row).or_default() += 1;
        *self.0.entry("objects".to_owned()).or_default() += read.objects().count() as u64;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(row, count)| writeln!(f, "{count:>10}  {row}"))
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { form, what, types, limits, projection, cuts, content_type, body } = self;
        let length = body.len();
        write!(
            f,
            "{length} bytes as {form:?} {what:?} of {types:?}, {limits:?}, {projection:?}, cut by {cuts}, said to be {content_type:?}"
        )
    }
}
