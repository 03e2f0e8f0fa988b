//! Checks of rules when their definition is stored.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use serde_json::{Value, json};

use super::*;

/// A schema with fields of many types.
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

/// Returns the error of a rule on [`schema`].
fn rule_error(rule: &str) -> Option<String> {
    let mut schema = schema();
    schema["x-kubernetes-validations"] = json!([{"rule": rule}]);
    let schema = Structural::read(&schema);
    check_rules(&schema.rules, &schema).into_iter().next().unwrap().rule
}

/// The variable of a nested loop was undeclared: the type check mistook the accumulator of the inner loop for
/// that of the outer one, and checked the parts of the inner loop without its variable.
#[test]
fn nested_loops_are_checked() {
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
        assert_eq!(rule_error(rule), None, "{rule}");
    }
    for (rule, expected) in [
        ("self.l.all(x, self.set.exists(y, x == z))", "<input>:1:39: undeclared reference to 'z'"),
        ("self.parts.all(x, x.tags.all(y, x.t == y))", "<input>:1:34: undefined field 't'"),
        ("self.l.all(x, self.set.all(y, true) && y == x)", "<input>:1:40: undeclared reference to 'y'"),
        ("self.l.filter(x, x != '').size() > 0 && x", "<input>:1:41: undeclared reference to 'x'"),
        ("self.l.exists_one(x, true) && 1", "<input>:1:31: expected type 'bool' but found 'int'"),
        ("self.l.map(x, x != '', x).size() > 0 && x", "<input>:1:41: undeclared reference to 'x'"),
    ] {
        let why = rule_error(rule).unwrap();
        assert!(why.contains(expected), "{rule}: {why}");
    }
}

/// A rule of nearly the maximum length.
fn long(start: &str, piece: &str, end: &str) -> String {
    let times = (16_000 - start.len() - end.len()) / piece.len();
    format!("{start}{}{end}", piece.repeat(times))
}

/// Each token was searched among all tokens, a field among all fields, and text before an operator was
/// copied: eight long rules took twelve seconds. Now checking takes less time than parsing.
#[test]
fn long_rules_are_checked_in_linear_time() {
    let mut schema = schema();
    for at in 0..10_000 {
        schema["properties"][format!("f{at}")] = json!({"type": "string"});
    }
    let schema = Structural::read(&schema);
    for rule in [
        long("[", "1,", "K] == []"),
        long("[", "''+'',", "K] == []"),
        long("[", "self.s,", "K] == []"),
        long("[", "size(''),", "K] == []"),
        long("[", "1-1,", "K] == []"),
    ] {
        let start = std::time::Instant::now();
        let parsed = compile::parse(&rule).unwrap();
        let until_parsed = start.elapsed();
        let why = types::check(&parsed, &rule, &types::Scope::of(&schema, false)).unwrap_err();
        let checked = start.elapsed().saturating_sub(until_parsed);
        assert!(why.contains(": undeclared reference to 'K'"), "{}", &rule[..20]);
        assert!(checked < until_parsed * 2, "{}: {until_parsed:?}, {checked:?}", &rule[..20]);
    }
}

/// Each error includes its line, so a long line with an error in each token caused messages of over 100 MB.
#[test]
fn errors_of_a_rule_are_limited_to_100() {
    let why = rule_error(&format!("[{}1] == []", "K,".repeat(150))).unwrap();
    assert_eq!(why.matches("undeclared reference to 'K'").count(), 100);
    assert!(why.ends_with("\n50 more errors were truncated"), "{why}");
    let why = rule_error(&long("", "§", "K")).unwrap();
    assert_eq!(why.matches("ERROR: ").count(), 100);
    assert!(why.ends_with(" more errors were truncated"));
}

#[test]
fn fields_are_found_by_their_escaped_names() {
    let names = ["a.b", "a-b", "a/b", "a__b", "a___b", "_.", "._", "true", "__true__", "in", "x", "__dot__"];
    let fields: serde_json::Map<String, Value> =
        names.iter().map(|name| ((*name).to_owned(), json!({"type": "string"}))).collect();
    let schema = Structural::read(&json!({"type": "object", "properties": fields}));
    let scope = types::Scope::of(&schema, false);
    for name in names {
        let rule = format!("self.{} == ''", convert::escape(name).unwrap());
        assert_eq!(typed(&rule, &scope), Ok((kind::Kind::Bool, false)), "{rule}");
    }
    for rule in ["self.a__b == ''", "self.__x__ == ''", "self.y == ''", "self.__dot__ == ''"] {
        assert!(typed(rule, &scope).unwrap_err().contains("undefined field"), "{rule}");
    }
}

/// Returns the messages of a rule for an object; empty if it is satisfied.
fn messages(rule: &str, value: &Value) -> Vec<String> {
    let mut schema = schema();
    schema["x-kubernetes-validations"] = json!([{"rule": rule, "message": "no"}]);
    let schema = Structural::read(&schema);
    let causes = check(&schema, &Programs::of(&schema), value, None, "");
    causes.into_iter().map(|cause| cause.message).collect()
}

/// The variables of `optMap` and `optFlatMap` were undeclared, because the parser does not know these macros.
#[test]
fn variables_of_optional_macros_are_declared() {
    let value = json!({"n": 5, "l": ["a"], "parts": [{"k": "x", "tags": ["y"]}, {"tags": []}]});
    for (rule, is_satisfied) in [
        ("self.?n.optMap(x, x + 1).orValue(0) == 6", true),
        ("self.?s.optMap(x, x + 'a').orValue('none') == 'none'", true),
        ("self.?n.optMap(x, x + 1).optMap(y, y * 2).orValue(0) == 12", true),
        ("self.?n.optFlatMap(x, x > 3 ? optional.of(x) : optional.none()).hasValue()", true),
        ("self.?n.optFlatMap(x, self.?s.optMap(y, y.size() + x)).hasValue()", false),
        ("self.?n.optFlatMap(x, self.?l.optMap(y, y.size() + x)).value() == 6", true),
        ("self.parts.all(p, p.?k.optMap(k, k == 'x').orValue(true))", true),
        ("self.parts.exists(p, p.?k.optMap(k, p.tags.all(t, t == k)).orValue(false))", false),
        ("self.parts.map(p, p.?k.optMap(k, k + '!').orValue('')) == ['x!', '']", true),
    ] {
        assert_eq!(rule_error(rule), None, "{rule}");
        let expected: &[&str] = if is_satisfied { &[] } else { &["Invalid value: no"] };
        assert_eq!(messages(rule, &value), expected, "{rule}");
    }
    for (rule, expected) in [
        ("self.?n.optMap(x, y) == 1", ":1:19: undeclared reference to 'y'"),
        ("self.?n.optMap(x, x + 1)", "cel expression must evaluate to a bool"),
        (
            "self.?n.optMap(x, x + 'a').hasValue()",
            ":1:21: found no matching overload for '_+_' applied to '(int, string)'",
        ),
        (
            "self.s.optMap(x, x).hasValue()",
            ":1:14: found no matching overload for 'hasValue' applied to 'string.()'",
        ),
        ("self.?n.optMap(x, x) == self.?n && x", ":1:36: undeclared reference to 'x'"),
    ] {
        let why = rule_error(rule).unwrap();
        assert!(why.contains(expected), "{rule}: {why}");
    }
    let nested = format!("{}1{}.hasValue()", "self.?n.optMap(x, ".repeat(45), ")".repeat(45));
    assert!(rule_error(&nested).unwrap().contains("expression recursion limit exceeded"));
    let nested = format!("{}1{}.hasValue()", "self.?n.optMap(x, ".repeat(35), ")".repeat(35));
    assert_eq!((rule_error(&nested), messages(&nested, &value)), (None, Vec::new()));
}
