//! Decoding of request bodies: JSON, YAML or protobuf in, an object and strict decoding errors out.
//!
//! Error texts are those of kube-apiserver, including its summaries of the bytes. Whether the object is valid
//! for its kind is checked later.

use serde_json::Value;

use crate::protobuf;
use crate::status::Status;
use crate::text::{self, Duplicates, YamlRead};

/// The maximum size of a request body.
pub(crate) const MAX_BODY_BYTES: usize = 3 * 1024 * 1024;

/// A decoded body.
#[derive(Debug, Clone)]
pub struct Body {
    /// The object; `null` if the body is `null`, which built-in kinds treat as an empty object.
    pub object: Value,
    /// The paths of duplicate fields, in the order in which Go reports them.
    pub(crate) duplicates: Vec<String>,
    /// Whether the object is of a custom kind, so that the types of its fields are unknown.
    custom: bool,
    source: Source,
}

/// The part of the encoded body that is needed to report strict decoding errors.
#[derive(Debug, Clone)]
enum Source {
    /// The bytes, because errors are reported in the order of the fields.
    Json(Vec<u8>),
    /// The error text about duplicate keys, if there are any. Also `None` for protobuf.
    Yaml(Option<String>),
}

/// Decodes the body of a create or an update of a kind.
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
            let treatment = if custom { Duplicates::Replace } else { Duplicates::Merge };
            let read = text::read(bytes, treatment).map_err(|what| {
                unrecognized(&format!("couldn't get version/kind; json parse error: {what}"))
            })?;
            (read.value, read.duplicates, Source::Json(bytes.to_vec()))
        }
        // Protobuf has been handled above.
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

/// Decodes a protobuf body, which cannot contain duplicate or unknown fields.
fn read_protobuf(bytes: &[u8], expected: (&str, &str)) -> Result<Body, Status> {
    let kind = expected.1;
    let decoded = protobuf::decode(bytes, expected).map_err(|error| match error.type_meta {
        None => Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): {} ({})",
            error.message,
            summary(bytes)
        )),
        Some((api_version, of)) => {
            let version = api_version.rsplit('/').next().unwrap_or_default();
            Status::bad_request(format!(
                "{of} in version \"{version}\" cannot be handled as a {kind}: {}",
                error.message
            ))
        }
    })?;
    Ok(Body { object: decoded.object, duplicates: Vec::new(), custom: false, source: Source::Yaml(None) })
}

/// Decodes the options of a deletion.
pub fn read_options(content_type: &str, bytes: &[u8]) -> Result<Value, Status> {
    check_size(bytes.len())?;
    let unreadable =
        |what: String| Status::bad_request(format!("couldn't get version/kind; json parse error: {what}"));
    let options = match format_of(Some(content_type), false)? {
        Format::Protobuf => {
            let decoded = protobuf::decode(bytes, ("v1", "DeleteOptions"));
            decoded.map_err(|error| Status::bad_request(error.message))?.object
        }
        Format::Json => text::read(bytes, Duplicates::Replace).map_err(unreadable)?.value,
        Format::Yaml => text::read_yaml(bytes).map_err(unreadable)?.value,
    };
    check_type_meta(&options).map_err(Status::bad_request)?;
    Ok(options)
}

/// Returns 413 if a body is too large, whatever its contents.
pub fn check_size(length: usize) -> Result<(), Status> {
    if length <= MAX_BODY_BYTES {
        return Ok(());
    }
    let message = format!("Request entity too large: limit is {MAX_BODY_BYTES}");
    Err(Status::new(413, "RequestEntityTooLarge", message))
}

impl Body {
    /// Returns the strict decoding errors in the order of kube-apiserver: duplicate fields, and the unknown
    /// fields whose paths the caller gives.
    pub fn problems(&self, unknown: &[String]) -> Vec<String> {
        let message = |what: &str, path: &String| format!("{what} field {}", text::quoted(path));
        let message_about = |what: &'static str| move |path: &String| message(what, path);
        match &self.source {
            Source::Yaml(duplicates) => {
                let duplicates =
                    duplicates.iter().map(|what| format!("error converting YAML to JSON: {what}"));
                duplicates.chain(unknown.iter().map(message_about("unknown"))).collect()
            }
            Source::Json(_) if self.custom => {
                let duplicates = self.duplicates.iter().map(message_about("duplicate"));
                duplicates.chain(unknown.iter().map(message_about("unknown"))).collect()
            }
            Source::Json(_) if unknown.len() + self.duplicates.len() < 2 => {
                let duplicates = self.duplicates.iter().map(message_about("duplicate"));
                duplicates.chain(unknown.iter().map(message_about("unknown"))).collect()
            }
            Source::Json(bytes) => text::order(bytes, unknown)
                .iter()
                .filter(|field| !(field.duplicate && is_inside(&field.path, unknown)))
                .map(|field| message(if field.duplicate { "duplicate" } else { "unknown" }, &field.path))
                .collect(),
        }
    }
}

/// Returns whether a path is inside one of these fields. Go's decoder skips unknown fields and does not look
/// for duplicates in them.
fn is_inside(path: &str, fields: &[String]) -> bool {
    fields
        .iter()
        .any(|field| path.strip_prefix(field.as_str()).is_some_and(|rest| rest.starts_with(['.', '['])))
}

/// `fieldValidation`: the treatment of unknown and duplicate fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldValidation {
    /// Strict decoding errors are ignored.
    Ignore,
    /// Each strict decoding error is a warning.
    Warn,
    /// A strict decoding error rejects the request.
    Strict,
}

/// Applies field validation to the strict decoding errors of a body or patch.
///
/// Returns the warnings, or the text of the error, which patches embed differently.
pub fn enforce_field_validation(mode: FieldValidation, errors: &[String]) -> Result<Vec<String>, String> {
    match mode {
        FieldValidation::Strict if !errors.is_empty() => {
            Err(format!("strict decoding error: {}", errors.join(", ")))
        }
        FieldValidation::Warn => Ok(errors.to_vec()),
        FieldValidation::Ignore | FieldValidation::Strict => Ok(Vec::new()),
    }
}

/// The number of characters of all warnings of a response above which the warnings are truncated.
const MAX_TOTAL_WARNING_CHARS: usize = 4096;

/// The number of characters to which each warning is truncated if all of them exceed
/// [`MAX_TOTAL_WARNING_CHARS`].
const TRUNCATED_WARNING_CHARS: usize = 256;

/// Returns the values of the `Warning` headers for these texts.
///
/// Empty and duplicate texts, and texts with control characters, which a header cannot contain, are omitted.
/// If all texts together have more than 4096 characters, each is truncated to 256, and the texts after the
/// first 4096 characters are omitted.
pub fn warning_headers(texts: &[String]) -> Vec<String> {
    let mut unique: Vec<&String> = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    unique.extend(texts.iter().filter(|text| !text.is_empty() && seen.insert(text.as_str())));
    let length = |text: &str| text.chars().count();
    let total: usize = unique.iter().map(|text| length(text)).sum();
    let mut written = 0;
    let mut headers = Vec::new();
    for text in unique {
        let cut: String = text
            .chars()
            .take(if total > MAX_TOTAL_WARNING_CHARS { TRUNCATED_WARNING_CHARS } else { usize::MAX })
            .collect();
        if cut.chars().any(char::is_control) {
            continue;
        }
        if total > MAX_TOTAL_WARNING_CHARS && written >= MAX_TOTAL_WARNING_CHARS {
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

/// Returns the format of a body; without a content type it is JSON.
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

/// Checks that `apiVersion` and `kind`, if present, are strings and that the former has at most one slash.
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

/// Returns the first 30 bytes of a body: unchanged if it looks like a JSON object, else in hexadecimal.
fn summary(bytes: &[u8]) -> String {
    const MAX_SUMMARY_BYTES: usize = 30;
    let start = bytes.get(..MAX_SUMMARY_BYTES).unwrap_or(bytes);
    let rest = if bytes.len() > MAX_SUMMARY_BYTES { " ..." } else { "" };
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
