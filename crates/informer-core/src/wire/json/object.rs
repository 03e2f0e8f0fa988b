//! Incremental parsing of one object: copies the bytes to keep, and records the positions of the head's
//! fields.
//!
//! One pass. The members of the object and of its `metadata` are parsed; deeper values are copied without
//! parsing them. The output is written to one buffer in canonical form: `apiVersion` and `kind` of the cache
//! first, then the members as sent, without `metadata.managedFields` and the fields that a [`FieldFilter`]
//! leaves out. The bytes are therefore equal whether the object was received in a list (whose items may have
//! no kind), a watch or a watch-list. The output stops growing at the size limit.

use super::members::{Members, Step};
use super::prune::prune;
use super::skip::ValueSkipper;
use super::spans::Spans;
use crate::key::Key;
use crate::version::ResourceVersion;
use crate::wire::error::{JsonSyntaxError, ObjectError};
use crate::wire::field_filter::{FieldFilter, Level, ManagedFields, MemberAction};
use crate::wire::head::{Field, string};
use crate::wire::scanned::ScannedObject;
use crate::wire::{EntryEncoding, MAX_KIND_BYTES, TypeMeta, append_up_to};

/// How the current value is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValueAction {
    /// Left out: `managedFields`, or dropped by the field filter.
    Drop,
    /// Copied to the output.
    Copy,
    /// Copied to the output, and its position is recorded for the head.
    CopyHeadField(Field),
    /// Buffered, to be compared with the cache's kind. Not copied: the output starts with the cache's type.
    Kind,
    /// Buffered like the kind.
    ApiVersion,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Members,
    Value(ValueAction),
    Metadata,
    MetadataValue(ValueAction),
}

/// Returns `{"apiVersion":…,"kind":…`, the start of every object in the cache.
pub(super) fn prefix(type_meta: &TypeMeta) -> Vec<u8> {
    let quote = |text: &str| serde_json::Value::from(text).to_string();
    format!("{{\"apiVersion\":{},\"kind\":{}", quote(&type_meta.api_version), quote(&type_meta.kind))
        .into_bytes()
}

/// Parses objects one after another and reuses its buffers.
#[derive(Debug)]
pub(crate) struct ObjectReader {
    state: State,
    members: Members,
    metadata: Members,
    skipper: ValueSkipper,
    /// See [`prefix`].
    prefix: Box<[u8]>,
    limit: usize,
    field_filter: Option<FieldFilter>,
    /// Whether the field filter applies to the current object.
    filter_applies: bool,
    output: Vec<u8>,
    spans: Spans,
    /// Start of the current member in `output`, including the comma before it.
    member_start: usize,
    /// Start of the current value in `output`.
    value_start: usize,
    /// The rule of the field filter that prunes the current value once it is complete.
    prune_rule: Option<usize>,
    /// Buffer for a value that is being pruned.
    pruned: Vec<u8>,
    /// The object's own kind, as sent.
    kind: Vec<u8>,
    /// The object's own `apiVersion`, as sent.
    api_version: Vec<u8>,
    /// Whether bytes did not fit, so that `output` is incomplete.
    truncated: bool,
    /// Whether the members before the metadata did not fit and were discarded to keep the head.
    early_members_discarded: bool,
}

impl ObjectReader {
    pub(crate) fn new(type_meta: &TypeMeta, limit: usize) -> Self {
        Self {
            state: State::Members,
            members: Members::new(),
            metadata: Members::new(),
            skipper: ValueSkipper::new(),
            prefix: prefix(type_meta).into(),
            limit,
            field_filter: None,
            filter_applies: true,
            output: Vec::new(),
            spans: Spans::default(),
            member_start: 0,
            value_start: 0,
            prune_rule: None,
            pruned: Vec::new(),
            kind: Vec::new(),
            api_version: Vec::new(),
            truncated: false,
            early_members_discarded: false,
        }
    }

    pub(crate) fn set_field_filter(&mut self, field_filter: Option<FieldFilter>) {
        self.field_filter = field_filter;
    }

    pub(crate) fn has_field_filter(&self) -> bool {
        self.field_filter.is_some()
    }

    /// Sets whether the field filter applies to the next object.
    pub(crate) fn set_filter_applies(&mut self, applies: bool) {
        self.filter_applies = applies;
    }

    /// Applies the field filter to a complete object that was read without it. Does nothing if the filter was
    /// applied already, or if the object is too large.
    pub(crate) fn filter_late(&mut self) {
        if self.filter_applies
            || self.field_filter.is_none()
            || self.truncated
            || self.early_members_discarded
        {
            return;
        }
        let [output, kind, api_version] =
            [&mut self.output, &mut self.kind, &mut self.api_version].map(std::mem::take);
        self.reset();
        self.filter_applies = true;
        let read = self.feed(&output, &mut 0);
        debug_assert_eq!(read, Ok(true), "a canonical object can be parsed again");
        // The canonical form has the cache's own type; keep the type that was sent.
        (self.kind, self.api_version) = (kind, api_version);
    }

    /// Continues at `bytes[*at]`; `true` when the object is complete. The caller then reads the result and
    /// calls [`Self::reset`].
    pub(crate) fn feed(&mut self, bytes: &[u8], at: &mut usize) -> Result<bool, JsonSyntaxError> {
        if self.output.is_empty() {
            self.output.extend_from_slice(&self.prefix);
        }
        loop {
            match self.state {
                State::Members => match self.members.next(bytes, at)? {
                    Step::NeedMore => return Ok(false),
                    Step::End => {
                        self.write(b"}");
                        return Ok(true);
                    }
                    Step::Value => self.enter_member(bytes[*at]),
                },
                State::Metadata => match self.metadata.next(bytes, at)? {
                    Step::NeedMore => return Ok(false),
                    Step::End => {
                        // All members were read, even if the bracket does not fit.
                        let is_complete = !self.truncated;
                        self.write(b"}");
                        if is_complete {
                            self.spans.metadata.end = self.output.len();
                        }
                        self.state = State::Members;
                    }
                    Step::Value => self.enter_metadata_member(),
                },
                State::Value(action) => {
                    if !self.read_value(action, bytes, at) {
                        return Ok(false);
                    }
                    self.state = State::Members;
                }
                State::MetadataValue(action) => {
                    if !self.read_value(action, bytes, at) {
                        return Ok(false);
                    }
                    self.state = State::Metadata;
                }
            }
        }
    }

    /// Discards the object and keeps the buffers, up to 64 KiB each.
    pub(crate) fn reset(&mut self) {
        const RETAINED_CAPACITY_BYTES: usize = 64 * 1024;
        self.state = State::Members;
        (self.members, self.metadata, self.skipper) = (Members::new(), Members::new(), ValueSkipper::new());
        self.output.clear();
        self.output.shrink_to(RETAINED_CAPACITY_BYTES);
        self.pruned.clear();
        self.pruned.shrink_to(RETAINED_CAPACITY_BYTES);
        self.prune_rule = None;
        self.kind.clear();
        self.api_version.clear();
        self.spans = Spans::default();
        (self.truncated, self.early_members_discarded) = (false, false);
    }

    /// Returns the complete object.
    pub(crate) fn to_object(&self, type_meta: &TypeMeta) -> Result<ScannedObject, ObjectError> {
        self.check_type(type_meta)?;
        if self.truncated || self.early_members_discarded {
            return Err(ObjectError::TooLarge { limit: self.limit });
        }
        let head = self.spans.head(&self.output)?;
        Ok(ScannedObject { head, bytes: self.output.as_slice().into(), encoding: EntryEncoding::Json })
    }

    /// The key, if it could be read.
    pub(crate) fn key(&self) -> Option<Key> {
        // In truncated metadata, a namespace that was not seen may still have followed.
        let is_certain =
            !self.truncated || self.spans.metadata_is_complete() || self.spans.has(Field::Namespace);
        self.spans.key(&self.output).ok().filter(|_| is_certain)
    }

    /// The resource version, if it could be read.
    pub(crate) fn version(&self) -> Option<ResourceVersion> {
        self.spans.version(&self.output).ok().flatten()
    }

    /// Returns the value of an annotation.
    pub(crate) fn annotation(&self, name: &str) -> Option<String> {
        self.spans.annotation(&self.output, name)
    }

    /// The output so far; complete unless the object was too large.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.output
    }

    /// Returns whether the object names its own kind or `apiVersion`; items of built-in lists do not.
    pub(super) fn declares_type(&self) -> bool {
        [&self.kind, &self.api_version].iter().any(|value| value.starts_with(b"\""))
    }

    /// Checks that the object declares no type, or an accepted one.
    pub(super) fn check_type(&self, type_meta: &TypeMeta) -> Result<(), ObjectError> {
        let differs =
            |sent: &[u8], expected: &str| !sent.is_empty() && string(sent).as_deref() != Some(expected);
        let is_of = |type_meta: &TypeMeta| {
            !differs(&self.kind, &type_meta.kind) && !differs(&self.api_version, &type_meta.api_version)
        };
        if !is_of(type_meta) && !type_meta.also_accepted.as_deref().is_some_and(is_of) {
            let found =
                [&self.api_version, &self.kind].map(|text| String::from_utf8_lossy(text).replace('"', ""));
            return Err(ObjectError::OtherKind { found: found.join(" ").trim().into() });
        }
        Ok(())
    }

    fn enter_member(&mut self, first: u8) {
        let action = match self.members.name() {
            b"metadata" if first == b'{' => {
                if self.truncated {
                    // The object is too large. Without the members so far, there is space for the head, which
                    // names the object in the error.
                    self.output.truncate(self.prefix.len());
                    (self.truncated, self.early_members_discarded) = (false, true);
                }
                self.write_name(Level::Object);
                self.spans = Spans::default();
                self.spans.metadata.start = self.output.len();
                self.write(b"{");
                self.state = State::Metadata;
                return;
            }
            b"kind" => ValueAction::Kind,
            b"apiVersion" => ValueAction::ApiVersion,
            _ => self.start_member(Level::Object, ValueAction::Copy),
        };
        self.value_start = self.output.len();
        self.state = State::Value(action);
    }

    fn enter_metadata_member(&mut self) {
        let action = match self.metadata.name() {
            b"managedFields" if self.drops_managed_fields() => ValueAction::Drop,
            name => {
                let action = Field::from_name(name).map_or(ValueAction::Copy, ValueAction::CopyHeadField);
                self.start_member(Level::Metadata, action)
            }
        };
        self.value_start = self.output.len();
        self.state = State::MetadataValue(action);
    }

    /// Whether managed fields are left out, also of objects to which the filter does not apply yet.
    fn drops_managed_fields(&self) -> bool {
        FieldFilter::managed_fields(self.field_filter.as_ref()) == ManagedFields::Drop
    }

    /// Writes the name of the current member and returns how to treat its value: by `action`, unless the
    /// field filter drops the member. A dropped member's name is not written.
    fn start_member(&mut self, level: Level, action: ValueAction) -> ValueAction {
        if let Some(field_filter) = self.field_filter.as_ref().filter(|_| self.filter_applies) {
            let members = if level == Level::Object { &self.members } else { &self.metadata };
            match field_filter.action(level, members.name()) {
                MemberAction::Drop => return ValueAction::Drop,
                MemberAction::Prune(rule) => self.prune_rule = Some(rule),
                MemberAction::Keep => {}
            }
        }
        self.member_start = self.output.len();
        self.write_name(level);
        action
    }

    /// Continues reading the current value; `true` when it is complete.
    fn read_value(&mut self, action: ValueAction, bytes: &[u8], at: &mut usize) -> bool {
        let rest = &bytes[*at..];
        let end = self.skipper.feed(rest);
        let part = &rest[..end.unwrap_or(rest.len())];
        match action {
            ValueAction::Drop => {}
            ValueAction::Copy | ValueAction::CopyHeadField(_) => self.write(part),
            ValueAction::Kind => append_up_to(&mut self.kind, part, MAX_KIND_BYTES),
            ValueAction::ApiVersion => append_up_to(&mut self.api_version, part, MAX_KIND_BYTES),
        }
        *at += part.len();
        if end.is_none() {
            return false;
        }
        let is_kept = self.prune_rule.take().is_none_or(|rule| self.prune_value(rule));
        if let (ValueAction::CopyHeadField(field), true, false) = (action, is_kept, self.truncated) {
            self.spans.set(field, self.value_start..self.output.len());
        }
        true
    }

    /// Prunes the current value, which is complete; `false` if the member was removed as a whole.
    fn prune_value(&mut self, rule: usize) -> bool {
        let Some(field_filter) = self.field_filter.as_ref().filter(|_| !self.truncated) else { return true };
        self.pruned.clear();
        let (mode, paths) = field_filter.rule(rule);
        let is_kept = prune(mode, &paths, &self.output[self.value_start..], &mut self.pruned);
        self.output.truncate(if is_kept { self.value_start } else { self.member_start });
        self.output.extend_from_slice(&self.pruned);
        is_kept
    }

    /// Writes the current member's name, preceded by a comma if necessary.
    fn write_name(&mut self, level: Level) {
        // The members of the object follow the kind, so the first one needs a comma as well.
        let is_first = level == Level::Metadata && self.output.last() == Some(&b'{');
        let comma: &[u8] = if is_first { b"" } else { b"," };
        let members = if level == Level::Object { &self.members } else { &self.metadata };
        let punctuation = comma.len() + b"\"\":".len();
        let fits = self.output.len() + members.name().len() + punctuation <= self.limit;
        if self.truncated || !members.name_is_complete() || !fits {
            self.truncated = true;
            return;
        }
        for part in [comma, b"\"", members.name(), b"\":"] {
            self.output.extend_from_slice(part);
        }
    }

    /// Writes `part` if it fits; otherwise the output stays truncated from here on.
    fn write(&mut self, part: &[u8]) {
        if self.truncated || self.output.len() + part.len() > self.limit {
            self.truncated = true;
            return;
        }
        self.output.extend_from_slice(part);
    }
}
