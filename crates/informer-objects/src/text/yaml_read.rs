//! Reads the first document of a YAML text into JSON values, as kube-apiserver does before it decodes them.
//!
//! Keys become strings after they are resolved: `n:` is the field `false`. Aliases are copied, up to a limit
//! in bytes. Nothing here knows which fields exist.

use std::collections::BTreeMap;

use granit_parser::{Event, Options, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};
use serde_json::{Map, Value};

use super::MAX_DEPTH;
use super::go::{depth_of, float_g, quoted};
use super::scalar::{Scalar, resolve};

/// A decoded document.
#[derive(Debug, Clone, PartialEq)]
pub struct YamlRead {
    /// The value.
    pub value: Value,
    /// The error of Go's strict decoder about duplicate keys: one text for all of them.
    pub(crate) duplicates: Option<String>,
}

/// The maximum number of bytes copied for anchors and aliases: a few times the maximum body.
const MAX_COPIED_BYTES: usize = 12 << 20;

/// The maximum number of duplicate keys that are reported.
const MAX_REPORTED_KEYS: usize = 100;

/// The memory of a value besides its text.
const VALUE_OVERHEAD_BYTES: usize = 100;

/// Reads a text; errors are those of go-yaml where they are known.
pub fn read_yaml(bytes: &[u8]) -> Result<YamlRead, String> {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Err("yaml: invalid leading UTF-8 octet".to_owned());
    };
    let mut options = Options::default();
    options.set_emit_comments(false);
    let parser = Parser::new_from_str_with_options(text, options);
    let mut reader =
        Reader { parser, depth: 0, anchors: BTreeMap::new(), copied_bytes: 0, duplicates: Vec::new() };
    let value = reader.document()?;
    let duplicates = (!reader.duplicates.is_empty()).then(|| {
        let lines = reader.duplicates.join("\n  ");
        format!("yaml: unmarshal errors:\n  {lines}")
    });
    Ok(YamlRead { value, duplicates })
}

struct Reader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    depth: usize,
    /// Values of anchors, with their approximate size in bytes.
    anchors: BTreeMap<usize, (Value, usize)>,
    copied_bytes: usize,
    duplicates: Vec<String>,
}

/// A resolved key.
struct Key {
    text: String,
    /// Whether the key is `<<`, whose value is merged into the mapping.
    merge: bool,
}

impl<'a> Reader<'a> {
    fn document(&mut self) -> Result<Value, String> {
        loop {
            match self.next()?.0 {
                Event::StreamStart | Event::DocumentStart(..) => {}
                Event::StreamEnd => return Ok(Value::Null),
                event => return self.value(event),
            }
        }
    }

    fn next(&mut self) -> Result<(Event<'a>, Span), String> {
        match self.parser.next_event() {
            None => Ok((Event::StreamEnd, Span::default())),
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => Err(go_yaml_message(&error)),
        }
    }

    fn value(&mut self, event: Event<'a>) -> Result<Value, String> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let scalar = resolve_tagged(&text, style, tag.as_deref())?;
                if let Scalar::NotFinite(name) = scalar {
                    let name = match name {
                        ".nan" => "NaN",
                        ".inf" => "+Inf",
                        _ => "-Inf",
                    };
                    return Err(format!("json: unsupported value: {name}"));
                }
                let value = scalar.value(&text);
                self.store_anchor(anchor, &value);
                Ok(value)
            }
            Event::Alias(anchor) => self.resolve_alias(anchor),
            Event::SequenceStart(_, anchor, _) => self.nested(anchor, Self::sequence),
            Event::MappingStart(_, anchor, _) => self.nested(anchor, Self::mapping),
            _ => Ok(Value::Null),
        }
    }

    fn nested(
        &mut self,
        anchor: usize,
        read: impl FnOnce(&mut Self) -> Result<Value, String>,
    ) -> Result<Value, String> {
        if self.depth == MAX_DEPTH {
            return Err("yaml: exceeded max depth".to_owned());
        }
        self.depth += 1;
        let value = read(self)?;
        self.depth -= 1;
        self.store_anchor(anchor, &value);
        Ok(value)
    }

    fn sequence(&mut self) -> Result<Value, String> {
        let mut items = Vec::new();
        loop {
            match self.next()?.0 {
                Event::SequenceEnd | Event::StreamEnd => break,
                event => items.push(self.value(event)?),
            }
        }
        Ok(Value::Array(items))
    }

    fn mapping(&mut self) -> Result<Value, String> {
        let mut fields = Map::new();
        let mut merged = Map::new();
        loop {
            let (event, span) = self.next()?;
            if matches!(event, Event::MappingEnd | Event::StreamEnd) {
                break;
            }
            let key = self.key(event)?;
            let event = self.next()?.0;
            let value = self.value(event)?;
            if key.merge {
                merge_in(&mut merged, value)?;
                continue;
            }
            if fields.contains_key(&key.text) && self.duplicates.len() < MAX_REPORTED_KEYS {
                let line = span.start.line();
                self.duplicates.push(format!("line {line}: key {} already set in map", quoted(&key.text)));
            }
            fields.insert(key.text, value);
        }
        for (name, value) in merged {
            fields.entry(name).or_insert(value);
        }
        Ok(Value::Object(fields))
    }

    fn key(&mut self, event: Event<'a>) -> Result<Key, String> {
        let unsupported = |what: &str| Err(format!("unsupported map key of type: {what}"));
        let plain = |text: String| Ok(Key { text, merge: false });
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let scalar = resolve_tagged(&text, style, tag.as_deref())?;
                self.store_anchor(anchor, &scalar.clone().value(&text));
                match scalar {
                    Scalar::Null => unsupported("%!s(<nil>), key: <nil>"),
                    Scalar::Merge => Ok(Key { text: String::new(), merge: true }),
                    Scalar::Bool(value) => plain(value.to_string()),
                    Scalar::NotFinite(name) => plain(name.to_owned()),
                    Scalar::Time | Scalar::Text => plain(text.into_owned()),
                    Scalar::Number(number) => match number.as_f64() {
                        Some(float) if number.is_f64() => plain(float_g(float)),
                        _ => plain(number.to_string()),
                    },
                }
            }
            Event::Alias(anchor) => match self.resolve_alias(anchor)? {
                Value::String(text) => plain(text),
                Value::Array(_) | Value::Object(_) | Value::Null => unsupported("interface {}"),
                value => plain(value.to_string()),
            },
            _ => Err("yaml: invalid map key".to_owned()),
        }
    }

    /// Stores a value with an anchor.
    ///
    /// This copies the value, and values of nested anchors again at each level. It therefore counts towards
    /// the limit too.
    fn store_anchor(&mut self, anchor: usize, value: &Value) {
        if anchor == 0 || self.copied_bytes > MAX_COPIED_BYTES {
            return;
        }
        let size = size_of(value);
        self.copied_bytes += size;
        if self.copied_bytes <= MAX_COPIED_BYTES {
            self.anchors.insert(anchor, (value.clone(), size));
        }
    }

    /// Returns a copy of the value of an alias.
    ///
    /// Aliases of aliases multiply, so the size is counted before the value is copied.
    fn resolve_alias(&mut self, anchor: usize) -> Result<Value, String> {
        let known = self.anchors.get(&anchor);
        self.copied_bytes += known.map_or(0, |(_, size)| *size);
        if self.copied_bytes > MAX_COPIED_BYTES {
            return Err("yaml: document contains excessive aliasing".to_owned());
        }
        let Some((value, _)) = known else {
            return Err("yaml: anchor value contains itself".to_owned());
        };
        if self.depth + depth_of(value) > MAX_DEPTH {
            return Err("yaml: exceeded max depth".to_owned());
        }
        Ok(value.clone())
    }
}

/// Returns the error text of go-yaml: without a line number for the first line, and without the parsing
/// context.
fn go_yaml_message(error: &ScanError) -> String {
    let what = error.kind().to_string();
    let what = match what.split_once(", ") {
        Some((context, what)) if context.starts_with("while ") => what,
        _ => what.as_str(),
    };
    let what = match what {
        "unclosed quote" => "found unexpected end of stream",
        what if what.starts_with("unexpected character") => "found character that cannot start any token",
        what => what,
    };
    match error.marker().line() {
        0 | 1 => format!("yaml: {what}"),
        line => format!("yaml: line {line}: {what}"),
    }
}

/// Resolves a scalar, considering its style and tag.
fn resolve_tagged(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Scalar, String> {
    let requested = tag.and_then(Tag::core_suffix);
    if style != ScalarStyle::Plain && requested.is_none() {
        return Ok(Scalar::Text);
    }
    let resolved = resolve(text);
    let kind = |scalar: &Scalar| match scalar {
        Scalar::Null => "null",
        Scalar::Bool(_) => "bool",
        Scalar::Number(number) if number.is_f64() => "float",
        Scalar::Number(_) => "int",
        Scalar::NotFinite(_) => "float",
        Scalar::Time => "timestamp",
        Scalar::Merge => "merge",
        Scalar::Text => "str",
    };
    match requested {
        None if tag.is_some() => Ok(Scalar::Text),
        Some("str") => Ok(Scalar::Text),
        None => Ok(resolved),
        Some(requested) if requested == kind(&resolved) => Ok(resolved),
        Some("float") if matches!(resolved, Scalar::Number(_)) => Ok(resolved),
        Some(requested) => {
            Err(format!("yaml: cannot decode !!{} `{text}` as a !!{requested}", kind(&resolved)))
        }
    }
}

/// Merges the value of `<<`: an object, or a list of objects in which earlier ones take precedence.
fn merge_in(merged: &mut Map<String, Value>, value: Value) -> Result<(), String> {
    let sources = match value {
        Value::Array(sources) => sources,
        value => vec![value],
    };
    for source in sources {
        let Value::Object(fields) = source else {
            return Err("yaml: map merge requires map or sequence of maps as the value".to_owned());
        };
        for (name, value) in fields {
            merged.entry(name).or_insert(value);
        }
    }
    Ok(())
}

/// Returns the approximate number of bytes of a copy, including the lengths of strings.
fn size_of(value: &Value) -> usize {
    let contents = match value {
        Value::Array(items) => items.iter().map(size_of).sum(),
        Value::Object(fields) => fields.iter().map(|(name, value)| name.len() + size_of(value)).sum(),
        Value::String(text) => text.len(),
        _ => 0,
    };
    VALUE_OVERHEAD_BYTES + contents
}
