//! Decoding of request bodies: JSON, YAML or protobuf in, an object and strict decoding errors out.
//!
//! Strict decoding errors are duplicate and unknown fields; `fieldValidation` decides whether they reject the
//! request. Error texts are those of kube-apiserver, including the quoted beginning of the body. Whether the
//! object is valid for its kind is checked later.

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
    /// The paths of duplicate fields of a JSON body, in the order of the text; empty for YAML and protobuf.
    pub(crate) duplicates: Vec<String>,
    /// Whether the object is of a custom kind, so that the types of its fields are unknown.
    custom: bool,
    source: Source,
}

/// The part of the encoded body that is needed to report strict decoding errors.
#[derive(Debug, Clone)]
enum Source {
    /// The JSON text: kube-apiserver reports errors in the order of its fields.
    Json(Vec<u8>),
    /// The error text about duplicate keys of YAML; `None` if there are none, and for protobuf.
    YamlOrProtobuf(Option<String>),
}

/// Decodes a body that contains an object of a kind.
///
/// `custom` is true if a definition defines the kind.
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
    let unrecognized = |why: &str| {
        Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): {why} ({})",
            summary(bytes)
        ))
    };
    let (mut object, duplicates, source) = match format {
        Format::Json => {
            // Go decodes custom objects into maps and built-in ones into structs.
            let treatment = if custom { Duplicates::Replace } else { Duplicates::Merge };
            let read = text::read(bytes, treatment).map_err(|why| {
                unrecognized(&format!("couldn't get version/kind; json parse error: {why}"))
            })?;
            (read.value, read.duplicates, Source::Json(bytes.to_vec()))
        }
        // Protobuf has been handled above.
        Format::Yaml | Format::Protobuf => {
            let YamlRead { value, duplicates } = text::read_yaml(bytes)
                .map_err(|why| unrecognized(&format!("error converting YAML to JSON: {why}")))?;
            (value, Vec::new(), Source::YamlOrProtobuf(duplicates))
        }
    };
    check_type_meta(&object).map_err(|why| unrecognized(&why))?;
    if custom {
        text::convert_to_untyped(&mut object);
        if object.get("kind").and_then(Value::as_str).unwrap_or_default().is_empty() {
            let text = String::from_utf8_lossy(bytes);
            return Err(unrecognized(&format!("Object 'Kind' is missing in '{text}'")));
        }
    }
    Ok(Body { object, duplicates, custom, source })
}

/// Decodes a protobuf body, for which kube-apiserver reports no duplicate or unknown fields.
fn read_protobuf(bytes: &[u8], expected: (&str, &str)) -> Result<Body, Status> {
    let kind = expected.1;
    let decoded = protobuf::decode(bytes, expected).map_err(|error| match error.type_meta {
        None => Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): {} ({})",
            error.message,
            summary(bytes)
        )),
        Some((api_version, decoded_kind)) => {
            let version = api_version.rsplit('/').next().unwrap_or_default();
            Status::bad_request(format!(
                "{decoded_kind} in version \"{version}\" cannot be handled as a {kind}: {}",
                error.message
            ))
        }
    })?;
    let source = Source::YamlOrProtobuf(None);
    Ok(Body { object: decoded.object, duplicates: Vec::new(), custom: false, source })
}

/// Decodes the `DeleteOptions` of a deletion.
pub fn read_options(content_type: &str, bytes: &[u8]) -> Result<Value, Status> {
    check_size(bytes.len())?;
    let unreadable =
        |why: String| Status::bad_request(format!("couldn't get version/kind; json parse error: {why}"));
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

/// Returns an error with status 413 if a body of this length is too large.
pub fn check_size(length: usize) -> Result<(), Status> {
    if length <= MAX_BODY_BYTES {
        return Ok(());
    }
    let message = format!("Request entity too large: limit is {MAX_BODY_BYTES}");
    Err(Status::new(413, "RequestEntityTooLarge", message))
}

impl Body {
    /// Returns the strict decoding errors; `unknown` contains the paths of the unknown fields.
    ///
    /// In the order of kube-apiserver: that of the text for a built-in object in JSON, else duplicate fields
    /// before unknown ones.
    pub fn problems(&self, unknown: &[String]) -> Vec<String> {
        let message = |problem: &str, path: &String| format!("{problem} field {}", text::quoted(path));
        let message_about = |problem: &'static str| move |path: &String| message(problem, path);
        match &self.source {
            Source::YamlOrProtobuf(duplicates) => {
                let duplicates = duplicates.iter().map(|why| format!("error converting YAML to JSON: {why}"));
                duplicates.chain(unknown.iter().map(message_about("unknown"))).collect()
            }
            Source::Json(_) if self.custom => {
                let duplicates = self.duplicates.iter().map(message_about("duplicate"));
                duplicates.chain(unknown.iter().map(message_about("unknown"))).collect()
            }
            // The text is read again only if there are several errors to put in order.
            Source::Json(_) if unknown.len() + self.duplicates.len() < 2 => {
                let duplicates = self.duplicates.iter().map(message_about("duplicate"));
                duplicates.chain(unknown.iter().map(message_about("unknown"))).collect()
            }
            Source::Json(bytes) => text::fields_in_order(bytes, unknown)
                .iter()
                .filter(|field| !(field.duplicate && is_inside(&field.path, unknown)))
                .map(|field| message(if field.duplicate { "duplicate" } else { "unknown" }, &field.path))
                .collect(),
        }
    }
}

/// Returns whether a path is inside one of the unknown fields, which Go's decoder skips without looking for
/// duplicates.
fn is_inside(path: &str, unknown: &[String]) -> bool {
    unknown
        .iter()
        .any(|field| path.strip_prefix(field.as_str()).is_some_and(|rest| rest.starts_with(['.', '['])))
}

/// The query parameter `fieldValidation`: the treatment of unknown and duplicate fields.
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
/// Returns the warnings. The error is a text: the caller embeds it in a [`Status`], for a patch in another
/// one than for a body.
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

/// The number of characters to which each warning is truncated if all warnings together exceed
/// [`MAX_TOTAL_WARNING_CHARS`].
const TRUNCATED_WARNING_CHARS: usize = 256;

/// Returns the values of the `Warning` headers for these texts.
///
/// As in kube-apiserver, empty and duplicate texts are omitted. If the remaining texts together have more
/// than 4096 characters, each is truncated to 256, and no header follows once 4096 characters are written.
/// Texts with control characters are omitted, because a header cannot contain them.
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

/// Checks that a value is an object or `null`, that `apiVersion` and `kind`, if present, are strings or
/// `null`, and that `apiVersion` has at most one slash.
pub fn check_type_meta(object: &Value) -> Result<(), String> {
    // The type into which kube-apiserver decodes these two fields.
    const GO_TYPE: &str = "struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; \
                           Kind string \"json:\\\"kind,omitempty\\\"\" }";
    let parse_error = |mismatch: String| {
        Err(format!("couldn't get version/kind; json parse error: json: cannot unmarshal {mismatch}"))
    };
    if !object.is_object() && !object.is_null() {
        return parse_error(format!("{} into Go value of type {GO_TYPE}", text::kind_of(object)));
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

/// Returns the first 30 bytes of a body as kube-apiserver quotes them: unchanged if the body looks like a
/// JSON object, else in hexadecimal.
fn summary(bytes: &[u8]) -> String {
    const MAX_SUMMARY_BYTES: usize = 30;
    let start = bytes.get(..MAX_SUMMARY_BYTES).unwrap_or(bytes);
    let ellipsis = if bytes.len() > MAX_SUMMARY_BYTES { " ..." } else { "" };
    match bytes.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{ellipsis}", String::from_utf8_lossy(start)),
        Some(_) => {
            let digits: Vec<String> = start.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{}{ellipsis}", digits.concat())
        }
    }
}

#[cfg(test)]
mod tests;
