//! Redaction of Secrets: keys are shown, values never.
//!
//! This module knows in which fields a Secret contains secret values. A custom kind of the same name is
//! redacted too, to be safe.

use serde_json::{Map, Value};

/// Placeholder of a redacted value.
pub(crate) const REDACTED: &str = "<hidden>";

/// Annotation in which `kubectl apply` stores a copy of its input.
pub(crate) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Whether objects of this kind contain values to redact.
pub(crate) fn is_secret(kind: &str) -> bool {
    kind.eq_ignore_ascii_case("secret")
}

/// Whether the value at this path of a secret is redacted.
pub(crate) fn is_redacted(path: &[&str]) -> bool {
    matches!(path, ["data" | "stringData", ..] | ["metadata", "annotations", LAST_APPLIED, ..])
}

/// Redacts the values in the part of a secret at this path.
pub(crate) fn redact_below<'a>(path: &mut Vec<&'a str>, part: &'a mut Value) {
    if is_redacted(path) {
        *part = Value::from(REDACTED);
        return;
    }
    let Value::Object(fields) = part else { return };
    for (name, value) in fields {
        path.push(name);
        redact_below(path, value);
        path.pop();
    }
}

/// Redacts the values of a secret.
pub(crate) fn redact(secret: &mut Value) {
    for part in ["data", "stringData"] {
        match secret.get_mut(part) {
            Some(Value::Object(fields)) => redact_all(fields),
            Some(Value::Null) | None => {}
            // Not a valid secret; redact everything.
            Some(other) => *other = Value::from(REDACTED),
        }
    }
    if let Some(applied) =
        secret.pointer_mut("/metadata/annotations").and_then(|all| all.get_mut(LAST_APPLIED))
    {
        *applied = Value::from(REDACTED);
    }
}

fn redact_all(fields: &mut Map<String, Value>) {
    for value in fields.values_mut() {
        *value = Value::from(REDACTED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn keys_are_kept_and_values_redacted() {
        let mut secret = json!({
            "kind": "Secret",
            "metadata": {"name": "db", "annotations": {LAST_APPLIED: "{\"data\":{\"password\":\"aHVudGVyMg==\"}}", "team": "a"}},
            "data": {"password": "aHVudGVyMg==", "user": "cm9vdA=="},
            "stringData": "hunter2",
            "type": "Opaque",
        });
        redact(&mut secret);
        assert_eq!(
            secret,
            json!({
                "kind": "Secret",
                "metadata": {"name": "db", "annotations": {LAST_APPLIED: REDACTED, "team": "a"}},
                "data": {"password": REDACTED, "user": REDACTED},
                "stringData": REDACTED,
                "type": "Opaque",
            })
        );
    }

    #[test]
    fn empty_secret_is_unchanged() {
        let mut secret = json!({"kind": "Secret", "data": null});
        redact(&mut secret);
        assert_eq!(secret, json!({"kind": "Secret", "data": null}));
    }
}
