//! Reading the body of a list as it arrives.
//!
//! Items are handed out one by one, the list's own metadata as soon as it has gone by; neither needs the other. What the
//! reader holds is one item and the list's metadata, never the body.

use super::members::{Members, Step};
use super::object::ObjectReader;
use super::skip::ValueSkipper;
use crate::version::ResourceVersion;
use crate::wire::field_filter::FieldFilter;
use crate::wire::frame::{ListItem, ListMeta, MAX_METADATA_BYTES};
use crate::wire::problem::{
    BodyErrorKind, BodyLocation, JsonSyntaxError, ObjectError, UnreadableObject, WireError,
};
use crate::wire::{Limits, MAX_KIND_BYTES, TypeMeta, keep_beginning};
use serde::Deserialize;

/// Which top-level value is being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value {
    Kind,
    Metadata,
    /// `items` that are no array: `null` is how some lists say "none".
    NoItems,
    Other,
}

impl Value {
    /// How much of it is kept.
    fn limit(self) -> usize {
        match self {
            Self::Kind => MAX_KIND_BYTES,
            Self::Metadata => MAX_METADATA_BYTES,
            Self::NoItems => b"null".len() + 1,
            Self::Other => 0,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Members,
    Value(Value),
    /// Before an item or the end of the items.
    Items,
    /// Behind a comma: before an item.
    NextItem,
    Item,
    /// An item that is no object.
    OddItem,
    AfterItem,
    /// Behind the list: only white space may follow.
    End,
}

/// Reads one list body.
#[derive(Debug)]
pub struct ListReader {
    type_meta: TypeMeta,
    at: At,
    members: Members,
    object: ObjectReader,
    skipper: ValueSkipper,
    /// The value that is being read, if it is one that we want.
    value: Vec<u8>,
    location: BodyLocation,
    /// Where the current item began.
    item_start: u64,
    /// What the body says it is.
    kind: Option<Box<str>>,
    saw_items: bool,
    saw_meta: bool,
}

impl ListReader {
    /// A reader for a list of objects of this type.
    pub fn new(types: TypeMeta, limits: Limits) -> Self {
        Self {
            object: ObjectReader::new(&types, limits.max_object_bytes),
            type_meta: types,
            at: At::Members,
            members: Members::new(),
            skipper: ValueSkipper::new(),
            value: Vec::new(),
            location: BodyLocation { index: 0, byte: 0 },
            item_start: 0,
            kind: None,
            saw_items: false,
            saw_meta: false,
        }
    }

    /// The same, leaving out of each object what the projection leaves out.
    #[must_use]
    pub fn with_field_filter(mut self, projection: Option<FieldFilter>) -> Self {
        self.object.set_field_filter(projection);
        self
    }

    /// Reads the next chunk, handing what it completes to `on`.
    pub fn read(&mut self, chunk: &[u8], mut on: impl FnMut(ListItem)) -> Result<(), WireError> {
        let base = self.location.byte;
        let mut at = 0;
        while at < chunk.len() {
            let result = self.step(chunk, &mut at, base, &mut on);
            self.location.byte = base + at as u64;
            result.map_err(|problem| self.error(problem))?;
        }
        Ok(())
    }

    /// Says that the body is over.
    pub fn finish(&self) -> Result<(), WireError> {
        if self.at != At::End {
            return Err(self.error(BodyErrorKind::Truncated));
        }
        if !self.saw_items {
            let found = self.kind.clone().unwrap_or_else(|| "body without items".into());
            return Err(self.error(BodyErrorKind::NotAList { found }));
        }
        if !self.saw_meta {
            return Err(self.error(BodyErrorKind::ListMeta { reason: "it is missing" }));
        }
        Ok(())
    }

    fn error(&self, problem: BodyErrorKind) -> WireError {
        WireError { what: "item", location: self.location, kind: problem }
    }

    fn step(
        &mut self,
        chunk: &[u8],
        at: &mut usize,
        base: u64,
        on: &mut impl FnMut(ListItem),
    ) -> Result<(), BodyErrorKind> {
        match self.at {
            At::Members => match self.members.next(chunk, at)? {
                Step::NeedMore => {}
                Step::End => self.at = At::End,
                Step::Value => self.enter(chunk[*at], at),
            },
            At::Value(value) => {
                if self.skip_value(value.limit(), chunk, at) {
                    self.at = At::Members;
                    self.finish_value(value, on)?;
                }
            }
            At::Items | At::NextItem => match chunk[*at] {
                byte if byte.is_ascii_whitespace() => *at += 1,
                b']' if self.at == At::Items => {
                    *at += 1;
                    self.at = At::Members;
                }
                other @ (b',' | b':' | b'}' | b']') => {
                    return Err(JsonSyntaxError::new("an item", other).into());
                }
                first => {
                    self.item_start = base + *at as u64;
                    self.at = if first == b'{' { At::Item } else { At::OddItem };
                }
            },
            At::Item => {
                if self.object.feed(chunk, at)? {
                    on(self.take_item());
                    self.finish_item();
                }
            }
            At::OddItem => {
                if self.skip_value(0, chunk, at) {
                    on(ListItem::Unreadable(self.unreadable(ObjectError::NotAnObject)));
                    self.finish_item();
                }
            }
            At::AfterItem => match chunk[*at] {
                byte if byte.is_ascii_whitespace() => *at += 1,
                b',' => {
                    *at += 1;
                    self.at = At::NextItem;
                }
                b']' => self.at = At::Items,
                other => return Err(JsonSyntaxError::new("`,` or `]`", other).into()),
            },
            At::End => match chunk[*at] {
                byte if byte.is_ascii_whitespace() => *at += 1,
                other => return Err(JsonSyntaxError::new("the end", other).into()),
            },
        }
        Ok(())
    }

    fn enter(&mut self, first: u8, at: &mut usize) {
        let value = match self.members.name() {
            b"items" => {
                self.saw_items = true;
                if first == b'[' {
                    *at += 1;
                    self.at = At::Items;
                    return;
                }
                Value::NoItems
            }
            b"metadata" => Value::Metadata,
            b"kind" => Value::Kind,
            _ => Value::Other,
        };
        self.value.clear();
        self.at = At::Value(value);
    }

    /// Reads on in a value, keeping its first `limit` bytes; `true` when it is over.
    fn skip_value(&mut self, limit: usize, chunk: &[u8], at: &mut usize) -> bool {
        let rest = &chunk[*at..];
        let end = self.skipper.feed(rest);
        let part = &rest[..end.unwrap_or(rest.len())];
        keep_beginning(&mut self.value, part, limit);
        *at += part.len();
        end.is_some()
    }

    fn finish_value(&mut self, value: Value, on: &mut impl FnMut(ListItem)) -> Result<(), BodyErrorKind> {
        match value {
            Value::Other => {}
            Value::Kind => {
                let kind: Box<str> = String::from_utf8_lossy(&self.value).replace('"', "").into();
                // A custom resource may call its list anything but its own kind, so only what is surely
                // no list is refused at once.
                if matches!(&*kind, "Status" | "Table") || *kind == *self.type_meta.kind {
                    return Err(BodyErrorKind::NotAList { found: kind });
                }
                self.kind = Some(kind);
            }
            Value::NoItems => {
                if self.value != b"null" {
                    return Err(BodyErrorKind::NotAList { found: "body whose items are no list".into() });
                }
            }
            Value::Metadata => {
                if self.saw_meta {
                    return Err(BodyErrorKind::ListMeta { reason: "it comes twice" });
                }
                on(ListItem::Meta(read_meta(&self.value)?));
                self.saw_meta = true;
            }
        }
        Ok(())
    }

    fn take_item(&self) -> ListItem {
        match self.object.take_object(&self.type_meta) {
            Ok(object) => ListItem::Object(object),
            Err(problem) => ListItem::Unreadable(self.unreadable(problem)),
        }
    }

    fn unreadable(&self, problem: ObjectError) -> UnreadableObject {
        let place = BodyLocation { index: self.location.index, byte: self.item_start };
        UnreadableObject {
            key: self.object.key(),
            version: self.object.version(),
            location: place,
            error: problem,
        }
    }

    fn finish_item(&mut self) {
        self.object.reset();
        self.location.index += 1;
        self.at = At::AfterItem;
    }
}

fn read_meta(bytes: &[u8]) -> Result<ListMeta, BodyErrorKind> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Wire {
        resource_version: Option<String>,
        #[serde(rename = "continue")]
        continue_token: Option<String>,
        remaining_item_count: Option<i64>,
    }
    let broken = |reason| BodyErrorKind::ListMeta { reason };
    let wire: Wire = serde_json::from_slice(bytes).map_err(|_| broken("its fields have the wrong types"))?;
    let version = wire.resource_version.filter(|version| !version.is_empty());
    Ok(ListMeta {
        version: ResourceVersion::new(&version.ok_or_else(|| broken("it has no resourceVersion"))?),
        continue_token: wire.continue_token.filter(|token| !token.is_empty()).map(Into::into),
        remaining: wire.remaining_item_count.and_then(|count| u64::try_from(count).ok()),
    })
}
