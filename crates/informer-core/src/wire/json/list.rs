//! Incremental parsing of a list's body.
//!
//! Items are produced one by one, and the list's own metadata as soon as it is complete, in any order. The
//! reader buffers one item and the list's metadata, never the body.
//!
//! A list of another kind must not replace the cache, even if it is empty. The list of a built-in kind is
//! named after the kind. A custom resource may name its list anything, but then each item declares its own
//! kind. In both cases an item of another kind makes the whole list invalid. An empty list of a custom
//! resource is accepted under any name, if its `apiVersion` is the expected one.

use super::members::{Members, Step};
use super::object::ObjectReader;
use super::skip::ValueSkipper;
use crate::version::ResourceVersion;
use crate::wire::error::{
    BodyElement, BodyErrorKind, BodyLocation, JsonSyntaxError, ObjectError, UnreadableObject, WireError,
};
use crate::wire::field_filter::FieldFilter;
use crate::wire::frame::{ListItem, ListMeta, MAX_METADATA_BYTES};
use crate::wire::head::string;
use crate::wire::{Limits, MAX_KIND_BYTES, TypeMeta, append_up_to};
use informer_schema::Message;
use serde::Deserialize;

/// The top-level value that is being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value {
    Kind,
    ApiVersion,
    Metadata,
    /// `items` that are not an array: some servers send `null` instead of an empty array.
    NoItems,
    Other,
}

impl Value {
    /// Number of bytes of the value that are buffered.
    fn limit(self) -> usize {
        match self {
            Self::Kind | Self::ApiVersion => MAX_KIND_BYTES,
            Self::Metadata => MAX_METADATA_BYTES,
            // One more, to recognize a longer value that starts with `null`.
            Self::NoItems => b"null".len() + 1,
            Self::Other => 0,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Members,
    Value(Value),
    /// Before an item or the end of the items.
    Items,
    /// After a comma: before an item.
    NextItem,
    Item,
    /// In an item that is not an object.
    OddItem,
    AfterItem,
    /// After the list: only white space may follow.
    End,
}

/// An incremental parser of one list body in JSON.
#[derive(Debug)]
pub struct ListReader {
    type_meta: TypeMeta,
    state: State,
    members: Members,
    object: ObjectReader,
    skipper: ValueSkipper,
    /// The first bytes of the current top-level value, up to [`Value::limit`].
    value: Vec<u8>,
    location: BodyLocation,
    /// Offset of the current item in the body.
    item_start: u64,
    /// The kind that the body declares.
    kind: Option<Box<str>>,
    /// The `apiVersion` that the body declares.
    api_version: Option<Box<str>>,
    /// Whether an item did not declare its own kind.
    has_untyped_items: bool,
    has_items: bool,
    has_meta: bool,
}

impl ListReader {
    /// Creates a reader for a list of objects of this type.
    pub fn new(type_meta: TypeMeta, limits: Limits) -> Self {
        Self {
            object: ObjectReader::new(&type_meta, limits.max_object_bytes),
            type_meta,
            state: State::Members,
            members: Members::new(),
            skipper: ValueSkipper::new(),
            value: Vec::new(),
            location: BodyLocation { index: 0, byte: 0 },
            item_start: 0,
            kind: None,
            api_version: None,
            has_untyped_items: false,
            has_items: false,
            has_meta: false,
        }
    }

    /// Leaves out of each object the fields that the filter drops.
    #[must_use]
    pub fn with_field_filter(mut self, field_filter: Option<FieldFilter>) -> Self {
        self.object.set_field_filter(field_filter);
        self
    }

    /// Reads from the front of `chunk` up to the next item and returns it; `None` when the chunk is consumed.
    ///
    /// # Errors
    ///
    /// If the body is malformed, not a list, or a list of another kind.
    pub fn next(&mut self, chunk: &mut &[u8]) -> Result<Option<ListItem>, WireError> {
        let (bytes, base) = (*chunk, self.location.byte);
        let mut at = 0;
        while at < bytes.len() {
            let result = self.step(bytes, &mut at, base);
            self.location.byte = base + at as u64;
            if let Some(item) = result.map_err(|kind| self.error(kind))? {
                *chunk = &bytes[at..];
                return Ok(Some(item));
            }
        }
        *chunk = &[];
        Ok(None)
    }

    /// Reads a chunk and calls `visit` with each item that the chunk completes.
    ///
    /// # Errors
    ///
    /// Like [`Self::next`].
    pub fn read(&mut self, mut chunk: &[u8], mut visit: impl FnMut(ListItem)) -> Result<(), WireError> {
        while let Some(item) = self.next(&mut chunk)? {
            visit(item);
        }
        Ok(())
    }

    /// Checks that the body may end here.
    ///
    /// # Errors
    ///
    /// If the body is incomplete, not a list, a list of another kind, or has no metadata.
    pub fn finish(&self) -> Result<(), WireError> {
        if self.state != State::End {
            return Err(self.error(BodyErrorKind::Truncated));
        }
        if !self.has_items {
            let found = self.kind.clone().unwrap_or_else(|| "body without items".into());
            return Err(self.error(BodyErrorKind::NotAList { found }));
        }
        if !self.has_meta {
            return Err(self.error(BodyErrorKind::ListMeta { reason: "missing" }));
        }
        self.check_type().map_err(|kind| self.error(kind))
    }

    /// Checks the type of the list, as far as it has been read.
    fn check_type(&self) -> Result<(), BodyErrorKind> {
        let Some(kind) = self.kind.as_deref() else { return Ok(()) };
        let is_list_of = |items: &TypeMeta| {
            let same_version = self.api_version.as_deref().is_none_or(|sent| sent == items.api_version);
            let may_have_any_name = !is_built_in(items) && !self.has_untyped_items;
            same_version && (may_have_any_name || kind.strip_suffix("List") == Some(&items.kind))
        };
        let accepted = self.type_meta.also_accepted.as_deref();
        if [&self.type_meta].into_iter().chain(accepted).any(is_list_of) {
            return Ok(());
        }
        let found = match self.api_version.as_deref() {
            None | Some("v1") => kind.into(),
            Some(api_version) => format!("{kind} of {api_version}").into(),
        };
        Err(BodyErrorKind::OtherKind { found })
    }

    fn error(&self, kind: BodyErrorKind) -> WireError {
        let is_item = matches!(self.state, State::Item | State::OddItem);
        let element = if is_item { BodyElement::Item } else { BodyElement::List };
        WireError { element, location: self.location, kind }
    }

    /// Performs one step; returns the item that the step completes. `base` is the offset of `chunk` in the
    /// body.
    fn step(&mut self, chunk: &[u8], at: &mut usize, base: u64) -> Result<Option<ListItem>, BodyErrorKind> {
        match self.state {
            State::Members => match self.members.next(chunk, at)? {
                Step::NeedMore => {}
                Step::End => self.state = State::End,
                Step::Value => self.enter(chunk[*at], at),
            },
            State::Value(value) => {
                if self.skip_value(value.limit(), chunk, at) {
                    self.state = State::Members;
                    return self.finish_value(value);
                }
            }
            State::Items | State::NextItem => match chunk[*at] {
                byte if byte.is_ascii_whitespace() => *at += 1,
                b']' if self.state == State::Items => {
                    *at += 1;
                    self.state = State::Members;
                }
                other @ (b',' | b':' | b'}' | b']') => {
                    return Err(JsonSyntaxError::new("an item", other).into());
                }
                first => {
                    self.item_start = base + *at as u64;
                    self.state = if first == b'{' { State::Item } else { State::OddItem };
                }
            },
            State::Item => {
                if self.object.feed(chunk, at)? {
                    let item = self.current_item()?;
                    self.finish_item();
                    return Ok(Some(item));
                }
            }
            State::OddItem => {
                if self.skip_value(0, chunk, at) {
                    let item = ListItem::Unreadable(self.unreadable(ObjectError::NotAnObject));
                    self.finish_item();
                    return Ok(Some(item));
                }
            }
            State::AfterItem => match chunk[*at] {
                byte if byte.is_ascii_whitespace() => *at += 1,
                b',' => {
                    *at += 1;
                    self.state = State::NextItem;
                }
                // The next step reads the bracket again.
                b']' => self.state = State::Items,
                other => return Err(JsonSyntaxError::new("`,` or `]`", other).into()),
            },
            State::End => match chunk[*at] {
                byte if byte.is_ascii_whitespace() => *at += 1,
                other => return Err(JsonSyntaxError::new("the end", other).into()),
            },
        }
        Ok(None)
    }

    fn enter(&mut self, first: u8, at: &mut usize) {
        let value = match self.members.name() {
            b"items" => {
                self.has_items = true;
                if first == b'[' {
                    *at += 1;
                    self.state = State::Items;
                    return;
                }
                Value::NoItems
            }
            b"metadata" => Value::Metadata,
            b"kind" => Value::Kind,
            b"apiVersion" => Value::ApiVersion,
            _ => Value::Other,
        };
        self.value.clear();
        self.state = State::Value(value);
    }

    /// Continues reading a value and buffers its first `limit` bytes; `true` when it is complete.
    fn skip_value(&mut self, limit: usize, chunk: &[u8], at: &mut usize) -> bool {
        let rest = &chunk[*at..];
        let end = self.skipper.feed(rest);
        let part = &rest[..end.unwrap_or(rest.len())];
        append_up_to(&mut self.value, part, limit);
        *at += part.len();
        end.is_some()
    }

    fn finish_value(&mut self, value: Value) -> Result<Option<ListItem>, BodyErrorKind> {
        match value {
            Value::Other => {}
            Value::Kind => {
                let kind = text(&self.value);
                // A custom resource may name its list anything but its own kind.
                if matches!(&*kind, "Status" | "Table") || *kind == *self.type_meta.kind {
                    return Err(BodyErrorKind::NotAList { found: kind });
                }
                self.kind = Some(kind);
                self.check_type()?;
            }
            Value::ApiVersion => {
                self.api_version = Some(text(&self.value));
                self.check_type()?;
            }
            Value::NoItems => {
                if self.value != b"null" {
                    return Err(BodyErrorKind::NotAList { found: "body whose items are not a list".into() });
                }
            }
            Value::Metadata => {
                if self.has_meta {
                    return Err(BodyErrorKind::ListMeta { reason: "present twice" });
                }
                let meta = read_meta(&self.value)?;
                self.has_meta = true;
                return Ok(Some(ListItem::Meta(meta)));
            }
        }
        Ok(None)
    }

    fn current_item(&mut self) -> Result<ListItem, BodyErrorKind> {
        self.has_untyped_items |= !self.object.declares_type();
        match self.object.to_object(&self.type_meta) {
            Ok(object) => Ok(ListItem::Object(object)),
            Err(ObjectError::OtherKind { found }) if self.object.declares_type() => {
                Err(BodyErrorKind::OtherKind { found })
            }
            Err(error) => Ok(ListItem::Unreadable(self.unreadable(error))),
        }
    }

    fn unreadable(&self, error: ObjectError) -> UnreadableObject {
        let location = BodyLocation { index: self.location.index, byte: self.item_start };
        UnreadableObject { key: self.object.key(), version: self.object.version(), location, error }
    }

    fn finish_item(&mut self) {
        self.object.reset();
        self.location.index += 1;
        self.state = State::AfterItem;
    }
}

/// Returns whether the server names lists of this type after their kind: built-in kinds, and metadata only.
fn is_built_in(items: &TypeMeta) -> bool {
    Message::of_kind(&items.api_version, &items.kind).is_some() || items.api_version == "meta.k8s.io/v1"
}

/// Returns a JSON string without its quotes and escapes; any other value as sent.
fn text(value: &[u8]) -> Box<str> {
    string(value).unwrap_or_else(|| String::from_utf8_lossy(value)).into()
}

fn read_meta(bytes: &[u8]) -> Result<ListMeta, BodyErrorKind> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Fields {
        resource_version: Option<String>,
        #[serde(rename = "continue")]
        continue_token: Option<String>,
        remaining_item_count: Option<i64>,
    }
    let invalid = |reason| BodyErrorKind::ListMeta { reason };
    let fields: Fields = serde_json::from_slice(bytes).map_err(|_| invalid("a field has the wrong type"))?;
    let version = fields.resource_version.filter(|version| !version.is_empty());
    Ok(ListMeta {
        version: ResourceVersion::new(&version.ok_or_else(|| invalid("no resourceVersion"))?),
        continue_token: fields.continue_token.filter(|token| !token.is_empty()).map(Into::into),
        remaining: fields.remaining_item_count.and_then(|count| u64::try_from(count).ok()),
    })
}
