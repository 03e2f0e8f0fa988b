//! Reading one object as its bytes arrive: what is kept, and where its head lies.
//!
//! One pass. The members of the object and of its `metadata` are walked; everything deeper is skimmed. What is kept is
//! written to one buffer in canonical form: `apiVersion` and `kind` of the cache first, then the members as sent, without
//! `metadata.managedFields`. Thus the bytes are equal whether the object came in a list (no kind on its items),
//! a watch or a watch-list. Nothing beyond the size limit is ever held.

use super::head::{Field, Head, Spans, string};
use super::members::{Members, Step, Unexpected};
use super::skim::Skim;
use super::{LONGEST_KIND, ObjectProblem, TypeMeta, keep_beginning};
use crate::key::Key;
use crate::version::ResourceVersion;

/// One object: its head, and its bytes without `managedFields`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scanned {
    /// What is known without decoding.
    pub head: Head,
    /// The object as JSON.
    pub bytes: Box<[u8]>,
}

/// What becomes of the value that is being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Take {
    /// Left out (`managedFields`).
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

/// Reads objects one after another; its buffers are used again.
#[derive(Debug)]
pub(crate) struct ObjectReader {
    at: At,
    members: Members,
    metadata: Members,
    skim: Skim,
    /// `{"apiVersion":…,"kind":…`: how every kept object begins.
    prefix: Box<[u8]>,
    limit: usize,
    kept: Vec<u8>,
    spans: Spans,
    /// Where in `kept` the current value begins.
    value_start: usize,
    /// The object's own type, as sent.
    kind: Vec<u8>,
    api_version: Vec<u8>,
    /// Bytes that did not fit; `kept` is then only a beginning.
    cut: bool,
    /// The object did not fit, and what came before its metadata was given up for it: the head is worth more.
    lost: bool,
}

impl ObjectReader {
    pub(crate) fn new(types: &TypeMeta, limit: usize) -> Self {
        let quote = |text: &str| serde_json::Value::from(text).to_string();
        let prefix =
            format!("{{\"apiVersion\":{},\"kind\":{}", quote(&types.api_version), quote(&types.kind));
        Self {
            at: At::Members,
            members: Members::new(),
            metadata: Members::new(),
            skim: Skim::new(),
            prefix: prefix.into_bytes().into(),
            limit,
            kept: Vec::new(),
            spans: Spans::default(),
            value_start: 0,
            kind: Vec::new(),
            api_version: Vec::new(),
            cut: false,
            lost: false,
        }
    }

    /// Goes on from `bytes[*at]`; `true` when the object is complete. Then one of the `take_…` and [`Self::reset`] follow.
    pub(crate) fn feed(&mut self, bytes: &[u8], at: &mut usize) -> Result<bool, Unexpected> {
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
                        let whole = !self.cut;
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
        const USUAL: usize = 64 * 1024;
        self.at = At::Members;
        (self.members, self.metadata, self.skim) = (Members::new(), Members::new(), Skim::new());
        self.kept.clear();
        self.kept.shrink_to(USUAL);
        self.kind.clear();
        self.api_version.clear();
        self.spans = Spans::default();
        (self.cut, self.lost) = (false, false);
    }

    /// The complete object.
    pub(crate) fn take_object(&self, types: &TypeMeta) -> Result<Scanned, ObjectProblem> {
        self.check_type(types)?;
        if self.cut || self.lost {
            return Err(ObjectProblem::TooLarge { limit: self.limit });
        }
        let head = self.spans.head(&self.kept)?;
        Ok(Scanned { head, bytes: self.kept.as_slice().into() })
    }

    /// The key, if that much reads.
    pub(crate) fn key(&self) -> Option<Key> {
        // Where the metadata is cut, a namespace that was not seen may still have followed.
        let certain = !self.cut || self.spans.metadata_is_whole() || self.spans.has(Field::Namespace);
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

    fn check_type(&self, types: &TypeMeta) -> Result<(), ObjectProblem> {
        let differs = |sent: &[u8], own: &str| !sent.is_empty() && string(sent, true).as_deref() != Some(own);
        if differs(&self.kind, &types.kind) || differs(&self.api_version, &types.api_version) {
            let found =
                [&self.api_version, &self.kind].map(|text| String::from_utf8_lossy(text).replace('"', ""));
            return Err(ObjectProblem::OtherKind { found: found.join(" ").trim().into() });
        }
        Ok(())
    }

    fn enter_member(&mut self, first: u8) {
        let take = match self.members.name() {
            b"metadata" if first == b'{' => {
                if self.cut {
                    self.kept.truncate(self.prefix.len());
                    (self.cut, self.lost) = (false, true);
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
            _ => {
                self.keep_name(true);
                Take::Keep
            }
        };
        self.value_start = self.kept.len();
        self.at = At::Value(take);
    }

    fn enter_metadata_member(&mut self) {
        let take = match self.metadata.name() {
            b"managedFields" => Take::Drop,
            name => {
                let take = Field::named(name).map_or(Take::Keep, Take::Note);
                self.keep_name(false);
                take
            }
        };
        self.value_start = self.kept.len();
        self.at = At::MetadataValue(take);
    }

    /// Reads on in the current value; `true` when it is over.
    fn read_value(&mut self, take: Take, bytes: &[u8], at: &mut usize) -> bool {
        let rest = &bytes[*at..];
        let end = self.skim.feed(rest);
        let part = &rest[..end.unwrap_or(rest.len())];
        match take {
            Take::Drop => {}
            Take::Keep | Take::Note(_) => self.keep(part),
            Take::Kind => keep_beginning(&mut self.kind, part, LONGEST_KIND),
            Take::ApiVersion => keep_beginning(&mut self.api_version, part, LONGEST_KIND),
        }
        *at += part.len();
        if let (Take::Note(field), Some(_), false) = (take, end, self.cut) {
            self.spans.set(field, self.value_start..self.kept.len());
        }
        end.is_some()
    }

    /// Writes the current member's name, with the comma before it.
    fn keep_name(&mut self, top: bool) {
        let comma: &[u8] = if !top && self.kept.last() == Some(&b'{') { b"" } else { b"," };
        let members = if top { &self.members } else { &self.metadata };
        let fits = self.kept.len() + members.name().len() + comma.len() + 3 <= self.limit;
        if self.cut || !members.name_is_whole() || !fits {
            self.cut = true;
            return;
        }
        for part in [comma, b"\"", members.name(), b"\":"] {
            self.kept.extend_from_slice(part);
        }
    }

    fn keep(&mut self, part: &[u8]) {
        if self.cut || self.kept.len() + part.len() > self.limit {
            self.cut = true;
            return;
        }
        self.kept.extend_from_slice(part);
    }
}
