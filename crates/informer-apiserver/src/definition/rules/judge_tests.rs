//! What is said about rules when their definition is stored.
#![allow(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

use serde_json::{Value, json};

use super::*;

/// An object with a bit of everything.
fn schema() -> Value {
    let texts = json!({"type": "array", "items": {"type": "string"}});
    let parts = json!({"type": "array", "items": {
        "type": "object", "properties": {"k": {"type": "string"}, "tags": texts},
    }});
    json!({"type": "object", "properties": {
        "l": texts, "set": texts, "parts": parts, "n": {"type": "integer"}, "s": {"type": "string"},
        "m": {"type": "object", "additionalProperties": {"type": "integer"}},
    }})
}

/// What is wrong with a rule on that object.
fn wrong(rule: &str) -> Option<String> {
    let mut schema = schema();
    schema["x-kubernetes-validations"] = json!([{"rule": rule}]);
    let schema = Structural::read(&schema);
    judge(&schema.rules, &schema).into_iter().next().unwrap().rule
}

/// Of a loop inside a loop, the variable was not declared: the outer one took the inner one's result for its own, and looked
/// at its parts alone.
#[test]
fn loops_stand_inside_loops() {
    for rule in [
        "self.l.all(x, self.set.exists(y, x == y))",
        "self.parts.all(x, self.parts.exists_one(y, x.k == y.k))",
        "self.parts.all(x, x.tags.all(y, self.l.exists(z, z == y && x.k != z)))",
        "self.parts.filter(x, x.tags.exists(y, y == 'a')).all(z, z.k != '')",
        "self.parts.map(x, x.tags.map(y, y.size())).all(z, z.exists(n, n > 1))",
        "self.parts.map(x, x.tags.exists(y, y == x.k), x.tags.filter(y, y != x.k)).size() > 0",
        "self.l.filter(x, x != '').all(x, self.l.exists_one(y, y == x))",
        "self.parts.exists_one(x, x.tags.exists_one(y, y == 'a') || x.tags.all(y, y == 'b'))",
    ] {
        assert_eq!(wrong(rule), None, "{rule}");
    }
    for (rule, expected) in [
        ("self.l.all(x, self.set.exists(y, x == z))", "<input>:1:39: undeclared reference to 'z'"),
        ("self.parts.all(x, x.tags.all(y, x.t == y))", "<input>:1:34: undefined field 't'"),
        ("self.l.all(x, self.set.all(y, true) && y == x)", "<input>:1:40: undeclared reference to 'y'"),
        ("self.l.filter(x, x != '').size() > 0 && x", "<input>:1:41: undeclared reference to 'x'"),
        ("self.l.exists_one(x, true) && 1", "<input>:1:31: expected type 'bool' but found 'int'"),
        ("self.l.map(x, x != '', x).size() > 0 && x", "<input>:1:41: undeclared reference to 'x'"),
    ] {
        let why = wrong(rule).unwrap();
        assert!(why.contains(expected), "{rule}: {why}");
    }
}
