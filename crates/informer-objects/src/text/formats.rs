//! Formats of names and other short texts: each function returns the errors of a text, worded as in
//! kube-apiserver.

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const KEY: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const KEY_TEXT: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";

/// The errors found by a function; empty if the text is valid.
type Messages = Vec<String>;

/// Checks a DNS subdomain (RFC 1123), the format of most object names.
pub fn dns_subdomain(text: &str) -> Messages {
    let mut messages = too_long(text, 253);
    if !is_subdomain(text) {
        let what = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
                    and must start and end with an alphanumeric character";
        messages.push(regex(what, SUBDOMAIN, &["example.com"]));
    }
    messages
}

pub(crate) fn dns_label(text: &str) -> Messages {
    let mut messages = too_long(text, 63);
    if !is_label(text) {
        if is_subdomain(text) {
            messages.push("must not contain dots".to_owned());
        } else {
            let what = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and \
                        must start and end with an alphanumeric character";
            messages.push(regex(what, LABEL, &["my-name", "123-abc"]));
        }
    }
    messages
}

/// Checks a label of the older RFC 1035: it starts with a letter.
pub(crate) fn dns_label_1035(text: &str) -> Messages {
    let mut messages = too_long(text, 63);
    if !is_label(text) || text.starts_with(|first: char| first.is_ascii_digit()) {
        let what = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
                    alphabetic character, and end with an alphanumeric character";
        messages.push(regex(what, "[a-z]([-a-z0-9]*[a-z0-9])?", &["my-name", "abc-123"]));
    }
    messages
}

pub(crate) fn wildcard_subdomain(text: &str) -> Messages {
    let mut messages = too_long(text, 253);
    if !text.strip_prefix("*.").is_some_and(is_subdomain) {
        let what = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which \
                    must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character";
        messages.push(regex(what, &format!(r"\*\.{SUBDOMAIN}"), &["*.example.com"]));
    }
    messages
}

/// Checks a name that is a path segment.
pub(crate) fn path_segment(text: &str) -> Messages {
    if matches!(text, "." | "..") {
        return vec![format!("may not be '{text}'")];
    }
    let found = ["/", "%"].into_iter().filter(|part| text.contains(part));
    found.map(|part| format!("may not contain '{part}'")).collect()
}

/// Checks a key of a label or an annotation.
pub fn qualified_name(text: &str) -> Messages {
    let mut messages = Vec::new();
    let parts: Vec<&str> = text.split('/').collect();
    let name = match parts.as_slice() {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                messages.push("prefix part must be non-empty".to_owned());
            } else {
                // For a prefix, kube-apiserver gives the maximum length in bytes.
                let bytes = |why: String| why.replace(" characters", " bytes");
                let why = dns_subdomain(prefix).into_iter();
                messages.extend(
                    why.map(|why| if why.starts_with("must be no") { bytes(why) } else { why })
                        .map(|why| format!("prefix part {why}")),
                );
            }
            name
        }
        _ => {
            let what = regex(KEY_TEXT, KEY, &["MyName", "my.name", "123-abc"]);
            return vec![format!(
                "a valid label key {what} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        messages.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        messages.push("name part must be no more than 63 bytes".to_owned());
    }
    if !is_key(name) {
        messages.push(format!("name part {}", regex(KEY_TEXT, KEY, &["MyName", "my.name", "123-abc"])));
    }
    messages
}

/// Checks the value of a label.
pub fn label_value(text: &str) -> Messages {
    let mut messages = Vec::new();
    if text.len() > 63 {
        messages.push("must be no more than 63 bytes".to_owned());
    }
    if !text.is_empty() && !is_key(text) {
        let what =
            format!("a valid label must be an empty string or {}", KEY_TEXT.trim_start_matches("must "));
        messages.push(regex(&what, &format!("({KEY})?"), &["MyValue", "my_value", "12345"]));
    }
    messages
}

pub(crate) fn config_key(text: &str) -> Messages {
    let mut messages = too_long(text, 253);
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    if text.is_empty() || !text.chars().all(is_allowed) {
        let what = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'";
        messages.push(regex(what, "[-._a-zA-Z0-9]+", &["key.name", "KEY_NAME", "key-name"]));
    }
    messages.extend(dot_segment(text));
    messages
}

pub(crate) fn env_name(text: &str) -> Messages {
    let printable = |c: char| c.is_ascii_graphic() || c == ' ';
    if text.is_empty() {
        return vec!["environment variable name must be non-empty".to_owned()];
    }
    if text.chars().all(|c| printable(c) && c != '=') {
        return Vec::new();
    }
    let what =
        "a valid environment variable name must consist only of printable ASCII characters other than '='";
    vec![what.to_owned()]
}

pub(crate) fn port_number(number: i64) -> Messages {
    in_range(number, 1, 65535)
}

pub(crate) fn in_range(number: i64, low: i64, high: i64) -> Messages {
    if (low..=high).contains(&number) {
        return Vec::new();
    }
    vec![format!("must be between {low} and {high}, inclusive")]
}

pub(crate) fn port_name(text: &str) -> Messages {
    let mut messages = too_long(text, 15);
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if text.is_empty() || !text.chars().all(is_allowed) {
        messages.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !text.chars().any(|c| c.is_ascii_lowercase()) {
        messages.push("must contain at least one letter (a-z)".to_owned());
    }
    if text.contains("--") {
        messages.push("must not contain consecutive hyphens".to_owned());
    }
    if text.starts_with('-') || text.ends_with('-') {
        messages.push("must not begin or end with a hyphen".to_owned());
    }
    messages
}

pub(crate) fn percent(text: &str) -> Messages {
    let digits = text.strip_suffix('%').unwrap_or_default();
    if !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return Vec::new();
    }
    let what = "a valid percent string must be a numeric string followed by an ending '%'";
    vec![regex(what, "[0-9]+%", &["1%", "93%"])]
}

pub(crate) fn header_name(text: &str) -> Messages {
    if !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
        return Vec::new();
    }
    let what = "a valid HTTP header must consist of alphanumeric characters or '-'";
    vec![regex(what, "[-A-Za-z0-9]+", &["X-Header-Name"])]
}

/// Replaces a trailing dash and the character before it by `a`, as kube-apiserver does, so that the prefix of
/// generated names can be checked as a name.
pub(crate) fn mask_trailing_dash(text: &str) -> String {
    match text.strip_suffix('-') {
        Some(before) if !before.is_empty() => {
            let mut masked: String = before.chars().collect();
            masked.pop();
            masked + "a"
        }
        _ => text.to_owned(),
    }
}

fn dot_segment(text: &str) -> Option<String> {
    match text {
        "." => Some("must not be '.'".to_owned()),
        ".." => Some("must not be '..'".to_owned()),
        _ if text.starts_with("..") => Some("must not start with '..'".to_owned()),
        _ => None,
    }
}

fn too_long(text: &str, limit: usize) -> Messages {
    if text.len() > limit { vec![format!("must be no more than {limit} characters")] } else { Vec::new() }
}

/// Returns the explanation of a rule with its pattern and examples.
pub(crate) fn regex(what: &str, pattern: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{what} (e.g. {}regex used for validation is '{pattern}')", examples.join(" or "))
}

fn is_label(text: &str) -> bool {
    let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    !text.is_empty() && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

fn is_key(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let edge = |c: char| c.is_ascii_alphanumeric();
    text.chars().all(inner) && text.starts_with(edge) && text.ends_with(edge)
}
