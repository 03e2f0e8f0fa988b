//! Generates JSON objects of every kind from the message table.

use informer_core::random::Random;
use informer_core::wire::TypeMeta;
use informer_schema::{MESSAGES, Message, Part, Wire};
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

/// Kinds whose objects can be cached.
pub(crate) static KINDS: LazyLock<Vec<&'static Message>> = LazyLock::new(|| {
    let has_metadata = |of: &Message| {
        of.parts.first().is_some_and(|part| match part.wire {
            Wire::Message(metadata) => metadata.get().name.ends_with(".ObjectMeta"),
            _ => false,
        })
    };
    MESSAGES.iter().filter(|of| of.is_kind && has_metadata(of)).collect()
});

/// Generates values; equal seeds give equal values.
pub(crate) struct Maker(Random);

impl Maker {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Random::new(seed))
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    /// Generates an object of a kind as a server returns it, without `managedFields`.
    pub(crate) fn object(&mut self, of: &'static Message) -> Value {
        let mut object = Value::Object(self.typed_fields(of, 0));
        let metadata = &mut object["metadata"];
        (metadata["name"], metadata["resourceVersion"]) = (json!("x"), json!("7"));
        metadata["namespace"] = json!("a");
        object
    }

    /// Generates a message, with apiVersion and kind if it is a kind.
    fn typed_fields(&mut self, of: &'static Message, depth: u64) -> Map<String, Value> {
        let mut fields = Map::new();
        self.fields(of, depth, &mut fields);
        if of.is_kind {
            fields.insert("apiVersion".to_owned(), of.api_version.into());
            fields.insert("kind".to_owned(), of.kind().into());
        }
        fields
    }

    fn fields(&mut self, of: &'static Message, depth: u64, into: &mut Map<String, Value>) {
        for part in of.parts {
            match part.wire {
                Wire::Message(inner) if part.name.is_empty() => self.fields(inner.get(), depth, into),
                _ => {
                    if let Some(value) = self.part(part, depth) {
                        into.insert(part.name.to_owned(), value);
                    }
                }
            }
        }
    }

    /// Generates what Go encodes for a field, which may be nothing.
    fn part(&mut self, part: &Part, depth: u64) -> Option<Value> {
        let null = part.always.then_some(Value::Null);
        // Fewer values at greater depth, so that recursive messages end.
        let is_present = part.name != "managedFields" && self.below(2 + depth) == 0;
        match part.wire {
            Wire::List(_) | Wire::Map(_) if !is_present => null,
            Wire::List(items) => Some((0..=self.below(2)).map(|_| self.item(*items, depth)).collect()),
            Wire::Map(values) => {
                let count = self.below(3) + 1;
                let entry = |maker: &mut Self, index| (format!("k{index}"), maker.value(*values, depth));
                Some(Value::Object((0..count).map(|index| entry(self, index)).collect()))
            }
            _ if part.pointer => {
                if is_present {
                    Some(self.value(part.wire, depth))
                } else {
                    null
                }
            }
            Wire::Bytes | Wire::Time | Wire::MicroTime | Wire::Raw if !is_present => null,
            Wire::Bytes => Some(self.value(part.wire, depth)).filter(|value| part.always || value != ""),
            Wire::Boolean | Wire::Int32 | Wire::Int64 | Wire::Double | Wire::String => {
                let value = if is_present { self.value(part.wire, depth) } else { zero(part.wire) };
                Some(value).filter(|value| part.always || *value != zero(part.wire))
            }
            wire => Some(self.value(wire, depth)),
        }
    }

    fn item(&mut self, wire: Wire, depth: u64) -> Value {
        match wire {
            Wire::Message(of) => Value::Object(self.typed_fields(of.get(), depth + 1)),
            wire => self.value(wire, depth),
        }
    }

    fn message(&mut self, of: &'static Message, depth: u64) -> Value {
        let mut fields = Map::new();
        self.fields(of, depth + 1, &mut fields);
        Value::Object(fields)
    }

    /// Generates a present value, which may be empty.
    fn value(&mut self, wire: Wire, depth: u64) -> Value {
        let texts = ["", "a", "ünïcode ✓", "quote \" and \\", "line\nend", "true", "0"];
        let text = texts[usize::try_from(self.below(7)).unwrap()];
        match wire {
            Wire::Boolean => Value::from(self.below(2) == 0),
            Wire::Int32 => {
                Value::from([0, 1, -1, i32::MAX, i32::MIN][usize::try_from(self.below(5)).unwrap()])
            }
            Wire::Int64 => {
                Value::from([0, 300, -7, i64::MAX, i64::MIN][usize::try_from(self.below(5)).unwrap()])
            }
            Wire::Double => match self.below(4) {
                0 => Value::from(0),
                1 => Value::from(-3),
                2 => Value::from(0.25),
                _ => Value::from(1.5e300),
            },
            Wire::String => Value::from(text),
            Wire::Bytes => Value::from(["", "AA==", "aGk=", "+/+/"][usize::try_from(self.below(4)).unwrap()]),
            Wire::Quantity => {
                Value::from(["0", "500m", "1Gi", "2e9"][usize::try_from(self.below(4)).unwrap()])
            }
            Wire::Time => Value::from(
                ["1970-01-01T00:00:00Z", "2026-02-28T23:59:59Z", "1960-12-31T01:02:03Z"]
                    [usize::try_from(self.below(3)).unwrap()],
            ),
            Wire::MicroTime => Value::from(
                ["1970-01-01T00:00:00.000000Z", "2024-02-29T12:00:00.000001Z", "1969-12-31T23:59:59.999999Z"]
                    [usize::try_from(self.below(3)).unwrap()],
            ),
            Wire::IntOrString => {
                if self.below(2) == 0 {
                    Value::from(text)
                } else {
                    Value::from(self.below(9))
                }
            }
            Wire::Raw | Wire::Fields => match self.below(3) {
                0 => json!({"a": [1, {"b": text}], "c": null}),
                1 => json!([true, 1.5, text]),
                _ => json!(text),
            },
            Wire::Strings => (0..self.below(3)).map(|_| Value::from(text)).collect(),
            Wire::OrBoolean(of) => {
                if self.below(2) == 0 {
                    Value::from(self.below(2) == 0)
                } else {
                    self.message(of.get(), depth + 2)
                }
            }
            Wire::OrList(of) | Wire::OrStrings(of) if self.below(2) == 0 => self.message(of.get(), depth + 2),
            Wire::OrList(of) => (0..=self.below(2)).map(|_| self.message(of.get(), depth + 2)).collect(),
            Wire::OrStrings(_) => (0..=self.below(2)).map(|_| Value::from(text)).collect(),
            Wire::Message(of) => self.message(of.get(), depth),
            other => panic!("{other:?}"),
        }
    }
}

fn zero(wire: Wire) -> Value {
    match wire {
        Wire::Boolean => Value::from(false),
        Wire::String => Value::from(""),
        _ => Value::from(0),
    }
}

pub(crate) fn types_of(of: &Message) -> TypeMeta {
    TypeMeta::new(of.api_version, of.kind())
}
