//! Labels and label selectors as text.

use serde_json::Value;

use super::fields::{at, entries, list, text, texts};

const NONE: &str = "<none>";

/// `a=1,b=2`.
pub(super) fn labels(object: &Value, place: &str) -> String {
    let mut labels: Vec<String> = entries(object, place)
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    labels.sort();
    if labels.is_empty() { NONE.to_owned() } else { labels.join(",") }
}

/// The selector at a place, `a=1,b in (2,3)`.
pub(super) fn selector(object: &Value, place: &str) -> String {
    match expressed(object, place) {
        Some(text) if text.is_empty() => NONE.to_owned(),
        Some(text) => text,
        None => "<error>".to_owned(),
    }
}

/// The same as a deployment shows it: with nothing for no selector.
pub(super) fn selector_of_deployment(object: &Value) -> String {
    expressed(object, "/spec/selector").unwrap_or_else(|| "<invalid>".to_owned())
}

/// The requirements sorted by key; nothing if one of them has no meaning.
fn expressed(object: &Value, place: &str) -> Option<String> {
    let Some(selector) = at(object, place) else { return Some(String::new()) };
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
        let given = json!({"spec": {"selector": {
            "matchLabels": {"c": "3", "a": "1"},
            "matchExpressions": [
                {"key": "b", "operator": "In", "values": ["y", "x"]},
                {"key": "d", "operator": "NotIn", "values": ["z"]},
                {"key": "e", "operator": "Exists"},
                {"key": "f", "operator": "DoesNotExist", "values": []},
            ],
        }}});
        let expected = "a=1,b in (x,y),c=3,d notin (z),e,!f";
        assert_eq!(selector(&given, "/spec/selector"), expected);
        assert_eq!(selector_of_deployment(&given), expected);
    }

    #[test]
    fn none_and_nonsense_have_words() {
        let none = json!({});
        let nonsense =
            json!({"spec": {"selector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}});
        assert_eq!(selector(&none, "/spec/selector"), "<none>");
        assert_eq!(selector_of_deployment(&none), "");
        assert_eq!(selector(&nonsense, "/spec/selector"), "<error>");
        assert_eq!(selector_of_deployment(&nonsense), "<invalid>");
        assert_eq!(labels(&json!({"l": {"b": "2", "a-b": "1", "a": "3"}}), "/l"), "a-b=1,a=3,b=2");
    }
}
