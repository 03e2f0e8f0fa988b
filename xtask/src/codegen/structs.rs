//! Parses the protobuf and JSON tags of the Go types of a Kubernetes package.
//!
//! A text search is sufficient, because every field and its tags are on one line. Fields without a protobuf
//! number are not transmitted and are skipped.

use std::collections::BTreeMap;

/// A Go struct.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Struct {
    /// Whether it embeds `TypeMeta`, so that its objects have a kind and an `apiVersion`.
    pub(super) is_kind: bool,
    /// Fields by protobuf number.
    pub(super) fields: BTreeMap<u16, GoField>,
}

/// A field of a Go struct.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GoField {
    /// JSON name; empty if the field is inlined.
    pub(super) json: String,
    pub(super) pointer: bool,
    /// Whether JSON omits the field if it is empty. In Go, a struct is never empty.
    pub(super) omitempty: bool,
    /// Whether JSON omits the field if it has its zero value.
    pub(super) omitzero: bool,
}

/// Parses the structs of a text, by name.
pub(super) fn parse(text: &str) -> BTreeMap<String, Struct> {
    let mut structs = BTreeMap::new();
    let mut current: Option<(&str, Struct)> = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("type ") {
            if let Some(name) = rest.strip_suffix(" struct {") {
                current = Some((name, Struct::default()));
            } else if let Some(name) = rest.strip_suffix(" struct{}") {
                structs.insert(name.to_owned(), Struct::default());
            }
        } else if line == "}" {
            structs.extend(current.take().map(|(name, found)| (name.to_owned(), found)));
        } else if let Some((_, found)) = &mut current {
            add(found, line);
        }
    }
    structs
}

/// Parses a field: `Name Type` and tags in backquotes. An embedded struct has no name.
fn add(found: &mut Struct, line: &str) {
    let mut parts = line.split('`');
    let (Some(front), Some(tags)) = (parts.next(), parts.next()) else { return };
    if front.trim_start().starts_with("//") {
        return;
    }
    let of = front.split_whitespace().next_back().unwrap_or_default();
    let mut options = tag(tags, "json").unwrap_or("-").split(',');
    let json = options.next().unwrap_or_default();
    let options: Vec<&str> = options.collect();
    let number =
        tag(tags, "protobuf").and_then(|tag| tag.split(',').nth(1)).and_then(|text| text.parse().ok());
    match number {
        Some(number) => {
            let field = GoField {
                json: json.to_owned(),
                pointer: of.starts_with('*'),
                omitempty: options.contains(&"omitempty"),
                omitzero: options.contains(&"omitzero"),
            };
            found.fields.insert(number, field);
        }
        None => found.is_kind |= json.is_empty() && of.rsplit('.').next() == Some("TypeMeta"),
    }
}

fn tag<'a>(tags: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = tags.split_once(&format!("{name}:\""))?;
    rest.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_parsed() {
        let text = "\
type Pod struct {
\tmetav1.TypeMeta `json:\",inline\"`
\t// A comment with `json:\"x\"`.
\tmetav1.ObjectMeta `json:\"metadata,omitempty\" protobuf:\"bytes,1,opt,name=metadata\"`
\tSource `json:\",inline\" protobuf:\"bytes,2,opt,name=source\"`
\tSpec  *Spec `json:\"spec\" protobuf:\"bytes,3,opt,name=Spec\"`
\tAt    Time `json:\"at,omitempty,omitzero\" protobuf:\"bytes,4,opt,name=at\"`
\tOff   string `json:\"off\" protobuf:\"-\"`
}

type Empty struct{}
";
        let structs = parse(text);
        let field = |json: &str, pointer, omit: &str| GoField {
            json: json.to_owned(),
            pointer,
            omitempty: omit.contains("empty"),
            omitzero: omit.contains("zero"),
        };
        let fields = BTreeMap::from([
            (1, field("metadata", false, "empty")),
            (2, field("", false, "")),
            (3, field("spec", true, "")),
            (4, field("at", false, "empty zero")),
        ]);
        assert_eq!(structs["Pod"], Struct { is_kind: true, fields });
        assert_eq!(structs["Empty"], Struct::default());
    }
}
