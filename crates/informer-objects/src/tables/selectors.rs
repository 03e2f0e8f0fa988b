//! Texts of labels and label selectors.

use serde_json::Value;

use super::fields::{at, entries, list, text, texts};

const NONE: &str = "<none>";

/// Returns the labels at a pointer, `a=1,b=2`.
pub(super) fn labels(object: &Value, pointer: &str) -> String {
    let mut labels: Vec<String> = entries(object, pointer)
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    labels.sort();
    if labels.is_empty() { NONE.to_owned() } else { labels.join(",") }
}

/// Returns the selector at a pointer, `a=1,b in (2,3)`.
pub(super) fn selector(object: &Value, pointer: &str) -> String {
    match requirements_text(object, pointer) {
        Some(text) if text.is_empty() => NONE.to_owned(),
        Some(text) => text,
        None => "<error>".to_owned(),
    }
}

/// Returns the selector of a deployment; unlike in [`selector`], an absent or empty one is an empty text.
pub(super) fn selector_of_deployment(object: &Value) -> String {
    requirements_text(object, "/spec/selector").unwrap_or_else(|| "<invalid>".to_owned())
}

/// Returns the requirements sorted by key; `None` if one of them is invalid.
fn requirements_text(object: &Value, pointer: &str) -> Option<String> {
    let Some(selector) = at(object, pointer) else { return Some(String::new()) };
    let mut requirements: Vec<(&str, String)> = entries(selector, "/matchLabels")
        .map(|(key, value)| (key, format!("{key}={}", value.as_str().unwrap_or_default())))
        .collect();
    for expression in list(selector, "/matchExpressions") {
        let key = text(expression, "/key");
        requirements.push((key, requirement(key, expression)?));
    }
    requirements.sort_by_key(|(key, _)| *key);
    let requirements: Vec<String> = requirements.into_iter().map(|(_, text)| text).collect();
    Some(requirements.join(","))
}

fn requirement(key: &str, expression: &Value) -> Option<String> {
    let mut values = texts(expression, "/values");
    values.sort_unstable();
    let has_key = !key.is_empty();
    match text(expression, "/operator") {
        "In" if has_key && !values.is_empty() => Some(format!("{key} in ({})", values.join(","))),
        "NotIn" if has_key && !values.is_empty() => Some(format!("{key} notin ({})", values.join(","))),
        "Exists" if has_key && values.is_empty() => Some(key.to_owned()),
        "DoesNotExist" if has_key && values.is_empty() => Some(format!("!{key}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_are_sorted_by_key() {
        let object = json!({"spec": {"selector": {
            "matchLabels": {"c": "3", "a": "1"},
            "matchExpressions": [
                {"key": "b", "operator": "In", "values": ["y", "x"]},
                {"key": "d", "operator": "NotIn", "values": ["z"]},
                {"key": "e", "operator": "Exists"},
                {"key": "f", "operator": "DoesNotExist", "values": []},
            ],
        }}});
        let expected = "a=1,b in (x,y),c=3,d notin (z),e,!f";
        assert_eq!(selector(&object, "/spec/selector"), expected);
        assert_eq!(selector_of_deployment(&object), expected);
    }

    #[test]
    fn absent_and_invalid_selectors_show_placeholders() {
        let none = json!({});
        let invalid = json!({"spec": {"selector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}});
        assert_eq!(selector(&none, "/spec/selector"), "<none>");
        assert_eq!(selector_of_deployment(&none), "");
        assert_eq!(selector(&invalid, "/spec/selector"), "<error>");
        assert_eq!(selector_of_deployment(&invalid), "<invalid>");
        assert_eq!(labels(&json!({"l": {"b": "2", "a-b": "1", "a": "3"}}), "/l"), "a-b=1,a=3,b=2");
    }
}
