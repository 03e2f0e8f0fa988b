//! Reading one object as its bytes arrive: what is kept, and where its head lies.
//!
//! One pass. The members of the object and of its `metadata` are walked; everything deeper is skimmed. What is kept is
//! written to one buffer in canonical form: `apiVersion` and `kind` of the cache first, then the members as sent, without
//! `metadata.managedFields` and what a [`FieldFilter`] leaves out. Thus the bytes are equal whether the object came in a list (no
//! kind on its items), a watch or a watch-list. Nothing beyond the size limit is ever held.

use super::members::{Members, Step};
use super::prune::prune;
use super::skip::ValueSkipper;
use super::spans::Spans;
use crate::key::Key;
use crate::version::ResourceVersion;
use crate::wire::field_filter::{FieldFilter, Level, MemberAction};
use crate::wire::head::{Field, string};
use crate::wire::problem::{JsonSyntaxError, ObjectError};
use crate::wire::scanned::ScannedObject;
use crate::wire::{EntryEncoding, MAX_KIND_BYTES, TypeMeta, keep_beginning};

/// What becomes of the value that is being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Take {
    /// Left out (`managedFields`, or by the projection).
    Drop,
    /// Kept as it is.
    Keep,
    /// Kept, and a part of the head.
    Note(Field),
    /// Not kept: the cache's own is. But compared with it.
    Kind,
    ApiVersion,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Members,
    Value(Take),
    Metadata,
    MetadataValue(Take),
}

/// `{"apiVersion":…,"kind":…`: how every kept object begins.
pub(super) fn prefix(types: &TypeMeta) -> Vec<u8> {
    let quote = |text: &str| serde_json::Value::from(text).to_string();
    format!("{{\"apiVersion\":{},\"kind\":{}", quote(&types.api_version), quote(&types.kind)).into_bytes()
}

/// Reads objects one after another; its buffers are used again.
#[derive(Debug)]
pub(crate) struct ObjectReader {
    at: At,
    members: Members,
    metadata: Members,
    skipper: ValueSkipper,
    /// See [`prefix`].
    prefix: Box<[u8]>,
    limit: usize,
    field_filter: Option<FieldFilter>,
    /// Whether the projection is meant for the current object.
    filters: bool,
    kept: Vec<u8>,
    spans: Spans,
    /// Where in `kept` the current member begins, with the comma before it.
    member_start: usize,
    /// Where in `kept` the current value begins.
    value_start: usize,
    /// How the projection cuts the current value when it is complete.
    prune_by: Option<usize>,
    /// What is left of a value that is being cut.
    left: Vec<u8>,
    /// The object's own type, as sent.
    kind: Vec<u8>,
    api_version: Vec<u8>,
    /// Bytes that did not fit; `kept` is then only a beginning.
    truncated: bool,
    /// The object did not fit, and what came before its metadata was given up for it: the head is worth more.
    lost: bool,
}

impl ObjectReader {
    pub(crate) fn new(types: &TypeMeta, limit: usize) -> Self {
        Self {
            at: At::Members,
            members: Members::new(),
            metadata: Members::new(),
            skipper: ValueSkipper::new(),
            prefix: prefix(types).into(),
            limit,
            field_filter: None,
            filters: true,
            kept: Vec::new(),
            spans: Spans::default(),
            member_start: 0,
            value_start: 0,
            prune_by: None,
            left: Vec::new(),
            kind: Vec::new(),
            api_version: Vec::new(),
            truncated: false,
            lost: false,
        }
    }

    pub(crate) fn set_field_filter(&mut self, projection: Option<FieldFilter>) {
        self.field_filter = projection;
    }

    pub(crate) fn has_field_filter(&self) -> bool {
        self.field_filter.is_some()
    }

    /// Says whether the projection is meant for the object to come.
    pub(crate) fn set_filters(&mut self, projects: bool) {
        self.filters = projects;
    }

    /// Applies the projection to a complete object for which it did not seem to be meant.
    pub(crate) fn filter_late(&mut self) {
        if self.filters || self.field_filter.is_none() || self.truncated || self.lost {
            return;
        }
        let [kept, kind, api_version] =
            [&mut self.kept, &mut self.kind, &mut self.api_version].map(std::mem::take);
        self.reset();
        self.filters = true;
        let read = self.feed(&kept, &mut 0);
        debug_assert_eq!(read, Ok(true), "what was read once reads again");
        // What was kept had the cache's own type already.
        (self.kind, self.api_version) = (kind, api_version);
    }

    /// Goes on from `bytes[*at]`; `true` when the object is complete. Then one of the `take_…` and [`Self::reset`] follow.
    pub(crate) fn feed(&mut self, bytes: &[u8], at: &mut usize) -> Result<bool, JsonSyntaxError> {
        if self.kept.is_empty() {
            self.kept.extend_from_slice(&self.prefix);
        }
        loop {
            match self.at {
                At::Members => match self.members.next(bytes, at)? {
                    Step::NeedMore => return Ok(false),
                    Step::End => {
                        self.keep(b"}");
                        return Ok(true);
                    }
                    Step::Value => self.enter_member(bytes[*at]),
                },
                At::Metadata => match self.metadata.next(bytes, at)? {
                    Step::NeedMore => return Ok(false),
                    Step::End => {
                        let whole = !self.truncated;
                        self.keep(b"}");
                        if whole {
                            self.spans.metadata.end = self.kept.len();
                        }
                        self.at = At::Members;
                    }
                    Step::Value => self.enter_metadata_member(),
                },
                At::Value(take) => {
                    if !self.read_value(take, bytes, at) {
                        return Ok(false);
                    }
                    self.at = At::Members;
                }
                At::MetadataValue(take) => {
                    if !self.read_value(take, bytes, at) {
                        return Ok(false);
                    }
                    self.at = At::Metadata;
                }
            }
        }
    }

    /// Forgets the object, keeping the buffers unless this one was far above the usual.
    pub(crate) fn reset(&mut self) {
        const RETAINED_CAPACITY_BYTES: usize = 64 * 1024;
        self.at = At::Members;
        (self.members, self.metadata, self.skipper) = (Members::new(), Members::new(), ValueSkipper::new());
        self.kept.clear();
        self.kept.shrink_to(RETAINED_CAPACITY_BYTES);
        self.left.clear();
        self.left.shrink_to(RETAINED_CAPACITY_BYTES);
        self.prune_by = None;
        self.kind.clear();
        self.api_version.clear();
        self.spans = Spans::default();
        (self.truncated, self.lost) = (false, false);
    }

    /// The complete object.
    pub(crate) fn take_object(&self, types: &TypeMeta) -> Result<ScannedObject, ObjectError> {
        self.check_type(types)?;
        if self.truncated || self.lost {
            return Err(ObjectError::TooLarge { limit: self.limit });
        }
        let head = self.spans.head(&self.kept)?;
        Ok(ScannedObject { head, bytes: self.kept.as_slice().into(), encoding: EntryEncoding::Json })
    }

    /// The key, if that much reads.
    pub(crate) fn key(&self) -> Option<Key> {
        // Where the metadata is cut, a namespace that was not seen may still have followed.
        let certain = !self.truncated || self.spans.metadata_is_whole() || self.spans.has(Field::Namespace);
        self.spans.key(&self.kept).ok().filter(|_| certain)
    }

    /// The version, if that much reads.
    pub(crate) fn version(&self) -> Option<ResourceVersion> {
        self.spans.version(&self.kept).ok().flatten()
    }

    /// One annotation.
    pub(crate) fn annotation(&self, name: &str) -> Option<String> {
        self.spans.annotation(&self.kept, name)
    }

    /// What was kept so far; complete unless the object was too large.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.kept
    }

    fn check_type(&self, types: &TypeMeta) -> Result<(), ObjectError> {
        let differs = |sent: &[u8], own: &str| !sent.is_empty() && string(sent, true).as_deref() != Some(own);
        let is_of = |types: &TypeMeta| {
            !differs(&self.kind, &types.kind) && !differs(&self.api_version, &types.api_version)
        };
        if !is_of(types) && !types.also_accepted.as_deref().is_some_and(is_of) {
            let found =
                [&self.api_version, &self.kind].map(|text| String::from_utf8_lossy(text).replace('"', ""));
            return Err(ObjectError::OtherKind { found: found.join(" ").trim().into() });
        }
        Ok(())
    }

    fn enter_member(&mut self, first: u8) {
        let take = match self.members.name() {
            b"metadata" if first == b'{' => {
                if self.truncated {
                    self.kept.truncate(self.prefix.len());
                    (self.truncated, self.lost) = (false, true);
                }
                self.keep_name(true);
                self.spans = Spans::default();
                self.spans.metadata.start = self.kept.len();
                self.keep(b"{");
                self.at = At::Metadata;
                return;
            }
            b"kind" => Take::Kind,
            b"apiVersion" => Take::ApiVersion,
            _ => self.admit(Level::Object, Take::Keep),
        };
        self.value_start = self.kept.len();
        self.at = At::Value(take);
    }

    fn enter_metadata_member(&mut self) {
        let take = match self.metadata.name() {
            b"managedFields" => Take::Drop,
            name => {
                let take = Field::named(name).map_or(Take::Keep, Take::Note);
                self.admit(Level::Metadata, take)
            }
        };
        self.value_start = self.kept.len();
        self.at = At::MetadataValue(take);
    }

    /// Lets the current member in as `take`, name first, unless the projection drops it.
    fn admit(&mut self, level: Level, take: Take) -> Take {
        if let Some(projection) = self.field_filter.as_ref().filter(|_| self.filters) {
            let members = if level == Level::Object { &self.members } else { &self.metadata };
            match projection.action(level, members.name()) {
                MemberAction::Drop => return Take::Drop,
                MemberAction::Prune(by) => self.prune_by = Some(by),
                MemberAction::Keep => {}
            }
        }
        self.member_start = self.kept.len();
        self.keep_name(level == Level::Object);
        take
    }

    /// Reads on in the current value; `true` when it is over.
    fn read_value(&mut self, take: Take, bytes: &[u8], at: &mut usize) -> bool {
        let rest = &bytes[*at..];
        let end = self.skipper.feed(rest);
        let part = &rest[..end.unwrap_or(rest.len())];
        match take {
            Take::Drop => {}
            Take::Keep | Take::Note(_) => self.keep(part),
            Take::Kind => keep_beginning(&mut self.kind, part, MAX_KIND_BYTES),
            Take::ApiVersion => keep_beginning(&mut self.api_version, part, MAX_KIND_BYTES),
        }
        *at += part.len();
        if end.is_none() {
            return false;
        }
        let stays = self.prune_by.take().is_none_or(|by| self.prune_value(by));
        if let (Take::Note(field), true, false) = (take, stays, self.truncated) {
            self.spans.set(field, self.value_start..self.kept.len());
        }
        true
    }

    /// Cuts the current value, which is complete; `false` if nothing is left, not even its name.
    fn prune_value(&mut self, by: usize) -> bool {
        let Some(projection) = self.field_filter.as_ref().filter(|_| !self.truncated) else { return true };
        self.left.clear();
        let (mode, paths) = projection.rule(by);
        let stays = prune(mode, &paths, &self.kept[self.value_start..], &mut self.left);
        self.kept.truncate(if stays { self.value_start } else { self.member_start });
        self.kept.extend_from_slice(&self.left);
        stays
    }

    /// Writes the current member's name, with the comma before it.
    fn keep_name(&mut self, top: bool) {
        let comma: &[u8] = if !top && self.kept.last() == Some(&b'{') { b"" } else { b"," };
        let members = if top { &self.members } else { &self.metadata };
        let fits = self.kept.len() + members.name().len() + comma.len() + 3 <= self.limit;
        if self.truncated || !members.name_is_whole() || !fits {
            self.truncated = true;
            return;
        }
        for part in [comma, b"\"", members.name(), b"\":"] {
            self.kept.extend_from_slice(part);
        }
    }

    fn keep(&mut self, part: &[u8]) {
        if self.truncated || self.kept.len() + part.len() > self.limit {
            self.truncated = true;
            return;
        }
        self.kept.extend_from_slice(part);
    }
}
