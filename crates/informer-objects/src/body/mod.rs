//! Bodies of requests: JSON, YAML or protobuf in, an object out, with what a strict reader has to say about it.
//!
//! Refusals are worded as the real server words them, summaries of the bytes included. Whether the object is what its kind asks for
//! is found out later.

use serde_json::Value;

use crate::protobuf;
use crate::status::Status;
use crate::text::{self, Duplicates, YamlRead};

/// How large a body may be.
pub(crate) const MAX_BODY: usize = 3 * 1024 * 1024;

/// What a body holds.
#[derive(Debug, Clone)]
pub struct Body {
    /// The object; `null` if the body says so, which built-in kinds take for an empty one.
    pub object: Value,
    /// Paths of fields that came more than once, in the order in which Go reports them.
    pub(crate) duplicates: Vec<String>,
    /// Whether nothing is known about the types of fields.
    custom: bool,
    source: Source,
}

/// What a body was read from.
#[derive(Debug, Clone)]
enum Source {
    /// Kept for the order of its fields, if it has something to report.
    Json(Vec<u8>),
    /// What was said about keys that came twice.
    Yaml(Option<String>),
}

/// Reads the body of a create or an update of a kind.
pub fn read(
    content_type: Option<&str>,
    bytes: &[u8],
    (api_version, kind): (&str, &str),
    custom: bool,
) -> Result<Body, Status> {
    let format = format_of(content_type, custom)?;
    check_size(bytes.len())?;
    if let Format::Protobuf = format {
        return read_protobuf(bytes, (api_version, kind));
    }
    let unrecognized = |what: &str| {
        Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): {what} ({})",
            summary(bytes)
        ))
    };
    let (mut object, duplicates, source) = match format {
        Format::Json => {
            let meaning = if custom { Duplicates::Replace } else { Duplicates::Merge };
            let read = text::read(bytes, meaning).map_err(|what| {
                unrecognized(&format!("couldn't get version/kind; json parse error: {what}"))
            })?;
            (read.value, read.duplicates, Source::Json(bytes.to_vec()))
        }
        Format::Yaml | Format::Protobuf => {
            let YamlRead { value, duplicates } = text::read_yaml(bytes)
                .map_err(|what| unrecognized(&format!("error converting YAML to JSON: {what}")))?;
            (value, Vec::new(), Source::Yaml(duplicates))
        }
    };
    check_type_meta(&object).map_err(|what| unrecognized(&what))?;
    if custom {
        text::as_untyped(&mut object);
        if object.get("kind").and_then(Value::as_str).unwrap_or_default().is_empty() {
            let text = String::from_utf8_lossy(bytes);
            return Err(unrecognized(&format!("Object 'Kind' is missing in '{text}'")));
        }
    }
    Ok(Body { object, duplicates, custom, source })
}

/// Reads a protobuf body. Such a body has no field twice, and none that nobody knows.
fn read_protobuf(bytes: &[u8], expected: (&str, &str)) -> Result<Body, Status> {
    let kind = expected.1;
    let arrived = protobuf::decode(bytes, expected).map_err(|misread| match misread.of {
        None => Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): {} ({})",
            misread.why,
            summary(bytes)
        )),
        Some((api_version, of)) => {
            let version = api_version.rsplit('/').next().unwrap_or_default();
            Status::bad_request(format!(
                "{of} in version \"{version}\" cannot be handled as a {kind}: {}",
                misread.why
            ))
        }
    })?;
    Ok(Body { object: arrived.object, duplicates: Vec::new(), custom: false, source: Source::Yaml(None) })
}

/// Reads the options of a deletion.
pub fn read_options(content_type: &str, bytes: &[u8]) -> Result<Value, Status> {
    check_size(bytes.len())?;
    let unreadable =
        |what: String| Status::bad_request(format!("couldn't get version/kind; json parse error: {what}"));
    let options = match format_of(Some(content_type), false)? {
        Format::Protobuf => {
            let arrived = protobuf::decode(bytes, ("v1", "DeleteOptions"));
            arrived.map_err(|misread| Status::bad_request(misread.why))?.object
        }
        Format::Json => text::read(bytes, Duplicates::Replace).map_err(unreadable)?.value,
        Format::Yaml => text::read_yaml(bytes).map_err(unreadable)?.value,
    };
    check_type_meta(&options).map_err(Status::bad_request)?;
    Ok(options)
}

/// 413 for a body that is too large, whatever it says.
pub fn check_size(length: usize) -> Result<(), Status> {
    if length <= MAX_BODY {
        return Ok(());
    }
    let message = format!("Request entity too large: limit is {MAX_BODY}");
    Err(Status::new(413, "RequestEntityTooLarge", message))
}

impl Body {
    /// What a strict reader says, in its order: about fields that the kind does not have, given as paths, and about those that
    /// came twice.
    pub fn problems(&self, unknown: &[String]) -> Vec<String> {
        let say = |what: &str, path: &String| format!("{what} field {}", text::quoted(path));
        let told = |what: &'static str| move |path: &String| say(what, path);
        match &self.source {
            Source::Yaml(duplicates) => {
                let duplicates =
                    duplicates.iter().map(|what| format!("error converting YAML to JSON: {what}"));
                duplicates.chain(unknown.iter().map(told("unknown"))).collect()
            }
            Source::Json(_) if self.custom => {
                let duplicates = self.duplicates.iter().map(told("duplicate"));
                duplicates.chain(unknown.iter().map(told("unknown"))).collect()
            }
            Source::Json(_) if unknown.len() + self.duplicates.len() < 2 => {
                let duplicates = self.duplicates.iter().map(told("duplicate"));
                duplicates.chain(unknown.iter().map(told("unknown"))).collect()
            }
            Source::Json(bytes) => text::order(bytes, unknown)
                .iter()
                .filter(|field| !(field.again && is_inside(&field.path, unknown)))
                .map(|field| say(if field.again { "duplicate" } else { "unknown" }, &field.path))
                .collect(),
        }
    }
}

/// Whether a path leads into one of some fields: a reader that skips a field does not look for duplicates in it.
fn is_inside(path: &str, fields: &[String]) -> bool {
    fields
        .iter()
        .any(|field| path.strip_prefix(field.as_str()).is_some_and(|rest| rest.starts_with(['.', '['])))
}

/// `fieldValidation`: what is done about fields that are unknown or came twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldValidation {
    /// Nothing is said.
    Ignore,
    /// Each problem is a warning.
    Warn,
    /// A problem is a refusal.
    Strict,
}

/// What becomes of a body with problems: nothing, warnings, or the text of a refusal, which patches word differently.
pub fn enforce_field_validation(mode: FieldValidation, problems: &[String]) -> Result<Vec<String>, String> {
    match mode {
        FieldValidation::Strict if !problems.is_empty() => {
            Err(format!("strict decoding error: {}", problems.join(", ")))
        }
        FieldValidation::Warn => Ok(problems.to_vec()),
        FieldValidation::Ignore | FieldValidation::Strict => Ok(Vec::new()),
    }
}

/// How many characters of warnings an answer carries before each is cut.
const MAX_WARNINGS: usize = 4096;

/// What is left of each warning then.
const MAX_WARNING: usize = 256;

/// The values of the `Warning` headers for some texts. Repetitions and texts that no header can carry are left out.
pub fn warning_headers(texts: &[String]) -> Vec<String> {
    let mut kept: Vec<&String> = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    kept.extend(texts.iter().filter(|text| !text.is_empty() && seen.insert(text.as_str())));
    let length = |text: &str| text.chars().count();
    let total: usize = kept.iter().map(|text| length(text)).sum();
    let mut written = 0;
    let mut headers = Vec::new();
    for text in kept {
        let cut: String =
            text.chars().take(if total > MAX_WARNINGS { MAX_WARNING } else { usize::MAX }).collect();
        if cut.chars().any(char::is_control) {
            continue;
        }
        if total > MAX_WARNINGS && written >= MAX_WARNINGS {
            break;
        }
        written += length(&cut);
        headers.push(format!("299 - \"{}\"", cut.replace('\\', "\\\\").replace('"', "\\\"")));
    }
    headers
}

enum Format {
    Json,
    Yaml,
    Protobuf,
}

/// The format of a body; those that do not say are JSON.
fn format_of(content_type: Option<&str>, custom: bool) -> Result<Format, Status> {
    let media = content_type.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    match media.to_ascii_lowercase().as_str() {
        "" | "application/json" => Ok(Format::Json),
        "application/yaml" => Ok(Format::Yaml),
        "application/vnd.kubernetes.protobuf" if !custom => Ok(Format::Protobuf),
        _ => {
            let message = "the body of the request was in an unknown format - accepted media types include: \
                           application/json, application/yaml, application/vnd.kubernetes.protobuf";
            Err(Status::new(415, "UnsupportedMediaType", message))
        }
    }
}

/// Checks that a body says in text what it is, if it does.
pub fn check_type_meta(object: &Value) -> Result<(), String> {
    const FIELDS: &str = "struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; \
                          Kind string \"json:\\\"kind,omitempty\\\"\" }";
    let parse_error = |what: String| {
        Err(format!("couldn't get version/kind; json parse error: json: cannot unmarshal {what}"))
    };
    if !object.is_object() && !object.is_null() {
        return parse_error(format!("{} into Go value of type {FIELDS}", text::kind_of(object)));
    }
    for name in ["apiVersion", "kind"] {
        if let Some(value) = object.get(name).filter(|value| !value.is_string() && !value.is_null()) {
            return parse_error(format!(
                "{} into Go struct field .{name} of type string",
                text::kind_of(value)
            ));
        }
    }
    let api_version = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    if api_version.matches('/').count() > 1 {
        return Err(format!("unexpected GroupVersion string: {api_version}"));
    }
    Ok(())
}

/// The beginning of a body: as it is if it looks like an object, else as hexadecimal digits.
fn summary(bytes: &[u8]) -> String {
    const MAX: usize = 30;
    let start = bytes.get(..MAX).unwrap_or(bytes);
    let rest = if bytes.len() > MAX { " ..." } else { "" };
    match bytes.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{rest}", String::from_utf8_lossy(start)),
        Some(_) => {
            let digits: Vec<String> = start.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{}{rest}", digits.concat())
        }
    }
}

#[cfg(test)]
mod tests;
