//! Differences between two states of an object, field by field: as data, and as short text.
//!
//! Lists whose items have names are compared by name, so that a moved item is not a change. Fields that every
//! write changes (`resourceVersion`, `managedFields`) are omitted; fields with little information (times,
//! observed generations) come last. The recursion is as deep as the objects, whose depth the JSON parser
//! limits.

use super::escape::escape;
use super::redact;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Maximum length of a printed value, in characters, without the ellipsis.
const MAX_VALUE_CHARS: usize = 40;

/// Fields that identify the items of a list, the best first.
const IDENTIFYING_FIELDS: &[&str] = &["name", "type", "key", "uid", "ip", "containerPort", "port"];

/// One field that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    /// Path of the field: `spec.containers[app].image`.
    pub(crate) path: String,
    /// Previous value; `None` if the field was absent.
    pub(crate) old: Option<Value>,
    /// Current value; `None` if the field was removed.
    pub(crate) new: Option<Value>,
    /// Importance for the reader; smaller values come first.
    rank: u8,
}

/// Returns every difference, the most important first. Values of a secret are redacted; only the fact that
/// they differ remains.
pub(crate) fn changes(old: &Value, new: &Value, is_secret: bool) -> Vec<Change> {
    let mut walk = Walk { path: Vec::new(), is_secret, changes: Vec::new() };
    walk.compare(Some(old), Some(new));
    walk.changes.sort_by_key(|change| change.rank);
    walk.changes
}

/// Shortens values and escapes control characters.
impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text(&self.path()))
    }
}

impl Change {
    /// Returns the path with escaped control characters, as in the text of the change.
    pub(crate) fn path(&self) -> std::borrow::Cow<'_, str> {
        escape(&self.path)
    }

    /// Returns the text of the change with this path, which may be a part of its own.
    pub(crate) fn text(&self, path: &str) -> String {
        match self.short_values() {
            (Some(old), Some(new)) if old == new => format!("{path} changed"),
            (Some(old), Some(new)) => format!("{path} {old} → {new}"),
            (None, Some(new)) => format!("+{path} {new}"),
            (_, None) => format!("-{path}"),
        }
    }

    /// Returns texts without the previous value, the longest first; none if the values do not differ visibly, or if
    /// there is only one.
    pub(crate) fn texts_without_old(&self, path: &str) -> Vec<String> {
        let (Some(old), Some(new)) = self.short_values() else { return Vec::new() };
        if old == new {
            return Vec::new();
        }
        // The reason of a state, such as `Completed`, is more specific than its name.
        let reason = new.split_once(" (").and_then(|(_, reason)| reason.strip_suffix(')')).map(str::to_owned);
        let is_state = matches!((&self.old, &self.new), (Some(Value::Object(_)), Some(Value::Object(_))));
        let values = std::iter::once(new).chain(reason.filter(|_| is_state));
        values.map(|value| format!("{path} → {value}")).collect()
    }

    /// Formats both values in few characters.
    fn short_values(&self) -> (Option<String>, Option<String>) {
        if let (Some(Value::Object(old)), Some(Value::Object(new))) = (&self.old, &self.new)
            && let Some((old, new)) = swapped(old, new)
        {
            return (Some(old), Some(new));
        }
        match (&self.old, &self.new) {
            (Some(Value::Array(old)), Some(Value::Array(new))) => {
                (Some(short_list(old)), Some(short_list(new)))
            }
            (old, new) => (old.as_ref().map(short_value), new.as_ref().map(short_value)),
        }
    }
}

/// A simultaneous traversal of two objects.
struct Walk<'a> {
    path: Vec<Step<'a>>,
    is_secret: bool,
    changes: Vec<Change>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Field(&'a str),
    /// An item of a list, by its identifying field.
    Item(&'a str),
    /// An item of a list, by its position.
    Index(usize),
}

impl<'a> Walk<'a> {
    fn compare(&mut self, old: Option<&'a Value>, new: Option<&'a Value>) {
        if old == new || self.is_ignored() {
            return;
        }
        match (old, new) {
            (Some(Value::Object(old_fields)), Some(Value::Object(new_fields))) => {
                if swapped(old_fields, new_fields).is_some() {
                    self.record(old, new);
                } else {
                    self.fields(Some(old_fields), Some(new_fields));
                }
            }
            (Some(Value::Array(old_items)), Some(Value::Array(new_items))) => {
                // Both lists as values are clearer than differences by index.
                if !self.items(old_items, new_items) {
                    self.record(old, new);
                }
            }
            // Near the root, an added or removed object is split into its fields; deeper, it is one change.
            (None, Some(Value::Object(new))) if self.path.len() < 2 && !new.is_empty() => {
                self.fields(None, Some(new));
            }
            (Some(Value::Object(old)), None) if self.path.len() < 2 && !old.is_empty() => {
                self.fields(Some(old), None);
            }
            (old, new) => self.record(old, new),
        }
    }

    fn fields(&mut self, old: Option<&'a Map<String, Value>>, new: Option<&'a Map<String, Value>>) {
        for (name, value) in old.into_iter().flatten() {
            self.step(Step::Field(name), Some(value), new.and_then(|new| new.get(name)));
        }
        let is_new = |name: &String| old.is_none_or(|old| !old.contains_key(name));
        for (name, value) in new.into_iter().flatten().filter(|(name, _)| is_new(name)) {
            self.step(Step::Field(name), None, Some(value));
        }
    }

    /// Compares the items of two lists; returns false if the items cannot be identified.
    fn items(&mut self, old: &'a [Value], new: &'a [Value]) -> bool {
        let by_name = |field: &&str| Some((items_by_field(field, old)?, items_by_field(field, new)?));
        if let Some((old, new)) = IDENTIFYING_FIELDS.iter().find_map(by_name) {
            for (name, value) in &old {
                self.step(Step::Item(name), Some(value), new.get(name).copied());
            }
            for (name, value) in new.iter().filter(|(name, _)| !old.contains_key(*name)) {
                self.step(Step::Item(name), None, Some(value));
            }
            return true;
        }
        if old.len() != new.len() || !old.iter().chain(new).all(Value::is_object) {
            return false;
        }
        for (index, (old, new)) in old.iter().zip(new).enumerate() {
            self.step(Step::Index(index), Some(old), Some(new));
        }
        true
    }

    fn step(&mut self, step: Step<'a>, old: Option<&'a Value>, new: Option<&'a Value>) {
        self.path.push(step);
        self.compare(old, new);
        self.path.pop();
    }

    fn record(&mut self, old: Option<&Value>, new: Option<&Value>) {
        let safe = |value: &Value| {
            let mut value = value.clone();
            if self.is_secret {
                redact::redact_below(&mut self.names(), &mut value);
            }
            value
        };
        let (old, new) = (old.map(safe), new.map(safe));
        self.changes.push(Change { path: self.path_text(), old, new, rank: self.rank() });
    }

    fn names(&self) -> Vec<&'a str> {
        self.path
            .iter()
            .map(|step| match step {
                Step::Field(name) | Step::Item(name) => name,
                Step::Index(_) => "",
            })
            .collect()
    }

    fn is_in_condition(&self) -> bool {
        matches!(self.path[..], [.., Step::Field("conditions"), Step::Item(_), _])
    }

    /// Whether every write changes the field.
    fn is_ignored(&self) -> bool {
        matches!(self.path[..], [Step::Field("metadata"), Step::Field("resourceVersion" | "managedFields")])
    }

    /// Returns the importance of the field: 0 for desired state, phases and container states, 1 for other
    /// observed state, 2 for conditions, 3 for derived fields and times.
    fn rank(&self) -> u8 {
        let names = self.names();
        let last = names.last().copied().unwrap_or_default();
        match names[..] {
            ["metadata", "deletionTimestamp"] | ["status", "phase" | "reason"] => 0,
            _ if is_quiet(last) || names.contains(&"lastState") => 3,
            // This annotation repeats the rest of the object.
            ["metadata", "annotations", redact::LAST_APPLIED] => 3,
            // The state of a container matters most to readers.
            ["status", .., "state"] => 0,
            ["status", "conditions", ..] => 2,
            ["status", ..] => 1,
            _ => 0,
        }
    }

    fn path_text(&self) -> String {
        let mut path = String::new();
        for (position, step) in self.path.iter().enumerate() {
            // Writing to a String cannot fail.
            let _ = match step {
                // A condition is represented by its status.
                Step::Field("status") if position + 1 == self.path.len() && self.is_in_condition() => Ok(()),
                Step::Field(name) if name.contains(['.', '/', '[']) => write!(path, "[{name}]"),
                Step::Field(name) if path.is_empty() => path.write_str(name),
                Step::Field(name) => write!(path, ".{name}"),
                Step::Item(name) => write!(path, "[{name}]"),
                Step::Index(index) => write!(path, "[{index}]"),
            };
        }
        path
    }
}

/// Whether a field has little information wherever it occurs.
fn is_quiet(name: &str) -> bool {
    let time = name.ends_with("Time") || name.ends_with("Timestamp") || name.ends_with("At");
    let derived = [
        "generation",
        "observedGeneration",
        "message",
        "imageID",
        "containerID",
        "qosClass",
        "hostIP",
        "hostIPs",
        "podIPs",
        "deletionGracePeriodSeconds",
        "lastState",
        "started",
    ];
    time || derived.contains(&name)
}

/// For two objects with a single field each, of different names, returns the transition: `waiting` to
/// `running`.
fn swapped(old: &Map<String, Value>, new: &Map<String, Value>) -> Option<(String, String)> {
    fn only(fields: &Map<String, Value>) -> Option<(&String, &Value)> {
        let mut fields = fields.iter();
        fields.next().filter(|_| fields.next().is_none())
    }
    let ((old_name, old), (new_name, new)) = (only(old)?, only(new)?);
    let both = old.is_object() && new.is_object() && old_name != new_name;
    both.then(|| (with_reason(old_name, old), with_reason(new_name, new)))
}

fn with_reason(name: &str, value: &Value) -> String {
    match value.get("reason").and_then(Value::as_str) {
        Some(reason) => shorten(&escape(&format!("{name} ({reason})"))),
        None => shorten(&escape(name)),
    }
}

/// Maps the items of a list by one of their fields; `None` unless every item has a unique value.
fn items_by_field<'a>(field: &str, items: &'a [Value]) -> Option<BTreeMap<&'a str, &'a Value>> {
    let mut named = BTreeMap::new();
    for item in items {
        let name = item.get(field)?.as_str()?;
        if named.insert(name, item).is_some() {
            return None;
        }
    }
    Some(named)
}

/// Formats a value in few characters.
fn short_value(value: &Value) -> String {
    match value {
        Value::String(text) if text.is_empty() => "\"\"".to_owned(),
        Value::String(text) => shorten(&escape(text)),
        Value::Array(items) if items.is_empty() => "[]".to_owned(),
        Value::Array(items) => match IDENTIFYING_FIELDS.iter().find_map(|field| items_by_field(field, items))
        {
            Some(named) => {
                shorten(&escape(&format!("[{}]", named.into_keys().collect::<Vec<_>>().join(", "))))
            }
            None => format!("[{} items]", items.len()),
        },
        Value::Object(fields) if fields.is_empty() => "{}".to_owned(),
        // A condition is represented by its status.
        Value::Object(fields)
            if fields.contains_key("type") && fields.get("status").is_some_and(Value::is_string) =>
        {
            fields.get("status").map(short_value).unwrap_or_default()
        }
        Value::Object(fields) => {
            let names: Vec<&str> = fields.keys().take(6).map(String::as_str).collect();
            shorten(&escape(&format!("{{{}}}", names.join(", "))))
        }
        other => other.to_string(),
    }
}

/// Formats a list item by item, in few characters.
fn short_list(items: &[Value]) -> String {
    let text: Vec<String> = items.iter().take(8).map(short_value).collect();
    shorten(&format!("[{}]", text.join(", ")))
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(MAX_VALUE_CHARS) {
        // A single character more is not replaced by the ellipsis, which is as long.
        Some((end, _)) if text.chars().count() > MAX_VALUE_CHARS + 1 => format!("{}…", &text[..end]),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::change_line::line;
    use super::*;
    use serde_json::json;

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "cases read better without references")]
    fn check(old: Value, new: Value, expected: &str) {
        assert_eq!(line(&changes(&old, &new, false), 1000), expected);
    }

    #[test]
    fn changed_fields_have_both_values() {
        check(
            json!({"spec": {"replicas": 3}, "status": {"phase": "Pending"}}),
            json!({"spec": {"replicas": 5}, "status": {"phase": "Running", "podIP": "10.0.0.1"}}),
            "spec.replicas 3 → 5, status.phase Pending → Running, +status.podIP 10.0.0.1",
        );
        check(
            json!({"status": {"conditions": []}}),
            json!({"status": {"conditions": [{"type": "Ready", "status": "True"}], "containers": [{"name": "a"}]}}),
            "+status.containers [a], +status.conditions[Ready] True",
        );
        check(json!({"metadata": {"labels": {"a": "1"}}}), json!({"metadata": {}}), "-metadata.labels");
        check(
            json!({"metadata": {"labels": {"app.kubernetes.io/name": "a", "b": ""}}}),
            json!({"metadata": {"labels": {"app.kubernetes.io/name": "b", "b": "x"}}}),
            "metadata.labels[app.kubernetes.io/name] a → b, metadata.labels.b \"\" → x",
        );
    }

    #[test]
    fn fields_changed_by_every_write_are_ignored() {
        let old =
            json!({"metadata": {"resourceVersion": "1", "managedFields": [1], "generation": 1}, "a": 1});
        let new =
            json!({"metadata": {"resourceVersion": "2", "managedFields": [2], "generation": 2}, "a": 2});
        check(old, new, "a 1 → 2, metadata.generation 1 → 2");
    }

    #[test]
    fn list_items_are_compared_by_name() {
        check(
            json!({"c": [{"name": "a", "image": "x:1"}, {"name": "b", "image": "y"}]}),
            json!({"c": [{"name": "b", "image": "y"}, {"name": "a", "image": "x:2"}, {"name": "c"}]}),
            "c[a].image x:1 → x:2, +c[c] {name}",
        );
        let condition = |status: &str, time: &str| json!({"conditions": [{"type": "Ready", "status": status, "lastTransitionTime": time}]});
        check(
            condition("False", "t1"),
            condition("True", "t2"),
            "conditions[Ready] False → True, conditions[Ready].lastTransitionTime t1 → t2",
        );
    }

    #[test]
    fn replaced_single_field_is_one_change() {
        check(
            json!({"state": {"waiting": {"reason": "ContainerCreating"}}}),
            json!({"state": {"running": {"startedAt": "now"}}}),
            "state waiting (ContainerCreating) → running",
        );
    }

    #[test]
    fn important_changes_come_first() {
        check(
            json!({"metadata": {}, "spec": {"a": 1}, "status": {"startTime": 1, "x": 1, "phase": "a", "conditions": [{"type": "T", "status": "False"}]}}),
            json!({"metadata": {"deletionGracePeriodSeconds": 3, "deletionTimestamp": "t"}, "spec": {"a": 2},
                "status": {"startTime": 2, "x": 2, "phase": "b", "conditions": [{"type": "T", "status": "True"}]}}),
            "+metadata.deletionTimestamp t, spec.a 1 → 2, status.phase a → b, status.x 1 → 2, status.conditions[T] False → True, \
             +metadata.deletionGracePeriodSeconds 3, status.startTime 1 → 2",
        );
    }

    /// Regression: the annotation of `kubectl apply` came first, and the actual change was cut off at the end of the
    /// line.
    #[test]
    fn last_applied_annotation_comes_last() {
        let with = |text: &str| json!({"metadata": {"annotations": {redact::LAST_APPLIED: text}}, "spec": {"a": text}});
        let applied = redact::LAST_APPLIED;
        check(with("1"), with("2"), &format!("spec.a 1 → 2, metadata.annotations[{applied}] 1 → 2"));
    }

    #[test]
    fn lists_without_names_are_compared_whole_or_by_index() {
        check(json!({"f": ["a"]}), json!({"f": ["a", "b"]}), "f [a] → [a, b]");
        check(json!({"f": [{"x": 1}]}), json!({"f": [{"x": 2}]}), "f[0].x 1 → 2");
        check(json!({"f": [{"name": "a"}, {"name": "a"}]}), json!({"f": []}), "f [{name}, {name}] → []");
    }

    #[test]
    fn long_values_are_shortened() {
        let long = "x".repeat(100);
        check(json!({"a": "y"}), json!({"a": long}), &format!("a y → {}…", "x".repeat(40)));
    }

    #[test]
    fn control_characters_in_names_and_values_are_escaped() {
        check(json!({"a\u{1b}": "x"}), json!({"a\u{1b}": "\u{1b}[31m"}), "a\\u{1b} x → \\u{1b}[31m");
    }

    #[test]
    fn changes_of_secret_show_keys_only() {
        let old = json!({"data": {"password": "b2xk"}, "type": "Opaque"});
        let new = json!({"data": {"password": "bmV3", "user": "cm9vdA=="}, "type": "Other"});
        let printed = line(&changes(&old, &new, true), 1000);
        assert_eq!(printed, "data.password changed, +data.user <hidden>, type Opaque → Other");
    }

    /// Regression: changes as data contained the text of lines: numbers were strings, long values were shortened, and
    /// control characters were escaped twice.
    #[test]
    fn changes_as_data_have_original_values() {
        let long = "x".repeat(100);
        let old = json!({"size": 3, "text": "a", "list": [1], "state": {"waiting": {"reason": "R"}}});
        let new = json!({"size": 4, "text": long, "list": [1, 2], "state": {"running": {}}, "k\u{1b}": {"a": true}});
        let mut printed: Vec<_> = changes(&old, &new, false)
            .into_iter()
            .map(|change| (change.path, json!([change.old, change.new])))
            .collect();
        printed.sort_by(|one, other| one.0.cmp(&other.0));
        let expected = [
            ("k\u{1b}.a", json!([null, true])),
            ("list", json!([[1], [1, 2]])),
            ("size", json!([3, 4])),
            ("state", json!([{"waiting": {"reason": "R"}}, {"running": {}}])),
            ("text", json!(["a", long])),
        ];
        assert_eq!(printed, expected.map(|(path, values)| (path.to_owned(), values)));
    }

    /// Covers every part of a secret that is added or removed as a whole.
    #[test]
    fn changes_as_data_redact_secret_values() {
        let applied = "kubectl.kubernetes.io/last-applied-configuration";
        let secret = json!({
            "metadata": {"name": "s", "annotations": {applied: "hunter2", "team": "a"}},
            "data": {"password": "hunter2"}, "stringData": {"other": "hunter2"},
        });
        for other in [
            json!(null),
            json!({}),
            json!({"metadata": {}}),
            json!({"metadata": null, "data": null, "stringData": []}),
            json!({"metadata": {"annotations": {}}, "data": {"password": 1, "more": {}}, "stringData": "hunter2"}),
            json!({"metadata": {"annotations": [applied]}, "data": ["hunter2"]}),
        ] {
            for (old, new) in [(&secret, &other), (&other, &secret)] {
                let printed = changes(old, new, true);
                assert!(
                    !printed.is_empty()
                        && !format!("{printed:?} {}", line(&printed, 1000)).contains("hunter2"),
                    "{printed:?}"
                );
            }
        }
    }
}
