//! Secrets: what is shown of them is which keys they have, never what is behind a key.
//!
//! It knows the one kind that holds secrets and the places where it does; a custom kind of the same name is treated alike, to be safe.

use serde_json::{Map, Value};

/// What stands for a value that is not shown.
pub(crate) const HIDDEN: &str = "<hidden>";

/// Where `kubectl apply` leaves a copy of all it was given.
pub(crate) const APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Whether objects of this kind hold values that must not be shown.
pub(crate) fn is_secret(kind: &str) -> bool {
    kind.eq_ignore_ascii_case("secret")
}

/// Whether the value at this path of a secret must not be shown.
pub(crate) fn is_hidden(path: &[&str]) -> bool {
    matches!(path, ["data" | "stringData", ..] | ["metadata", "annotations", APPLIED, ..])
}

/// Takes the values out of the part of a secret at this path.
pub(crate) fn hide_below<'a>(path: &mut Vec<&'a str>, part: &'a mut Value) {
    if is_hidden(path) {
        *part = Value::from(HIDDEN);
        return;
    }
    let Value::Object(fields) = part else { return };
    for (name, value) in fields {
        path.push(name);
        hide_below(path, value);
        path.pop();
    }
}

/// Takes the values out of a secret.
pub(crate) fn hide(secret: &mut Value) {
    for part in ["data", "stringData"] {
        match secret.get_mut(part) {
            Some(Value::Object(fields)) => hide_all(fields),
            Some(Value::Null) | None => {}
            // No secret looks like this; whatever it is, it is not shown.
            Some(other) => *other = Value::from(HIDDEN),
        }
    }
    if let Some(applied) = secret.pointer_mut("/metadata/annotations").and_then(|all| all.get_mut(APPLIED)) {
        *applied = Value::from(HIDDEN);
    }
}

fn hide_all(fields: &mut Map<String, Value>) {
    for value in fields.values_mut() {
        *value = Value::from(HIDDEN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn keys_stay_and_values_go() {
        let mut secret = json!({
            "kind": "Secret",
            "metadata": {"name": "db", "annotations": {APPLIED: "{\"data\":{\"password\":\"aHVudGVyMg==\"}}", "team": "a"}},
            "data": {"password": "aHVudGVyMg==", "user": "cm9vdA=="},
            "stringData": "hunter2",
            "type": "Opaque",
        });
        hide(&mut secret);
        assert_eq!(
            secret,
            json!({
                "kind": "Secret",
                "metadata": {"name": "db", "annotations": {APPLIED: HIDDEN, "team": "a"}},
                "data": {"password": HIDDEN, "user": HIDDEN},
                "stringData": HIDDEN,
                "type": "Opaque",
            })
        );
    }

    #[test]
    fn an_empty_secret_is_left_alone() {
        let mut secret = json!({"kind": "Secret", "data": null});
        hide(&mut secret);
        assert_eq!(secret, json!({"kind": "Secret", "data": null}));
    }
}
