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

/// A rule as long as one may be.
fn long(start: &str, piece: &str, end: &str) -> String {
    let times = (16_000 - start.len() - end.len()) / piece.len();
    format!("{start}{}{end}", piece.repeat(times))
}

/// Each piece of a rule was looked for among all pieces, a field among all fields, and what stands before a sign was copied:
/// eight long rules took twelve seconds. Now it takes
/// less than parsing them.
#[test]
fn long_rules_are_judged_in_a_moment() {
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

/// Each error shows its line, so a long line with an error in each word made a message of more than a hundred megabytes.
#[test]
fn a_hundred_errors_of_a_rule_are_told() {
    let why = wrong(&format!("[{}1] == []", "K,".repeat(150))).unwrap();
    assert_eq!(why.matches("undeclared reference to 'K'").count(), 100);
    assert!(why.ends_with("\n50 more errors were truncated"), "{why}");
    let why = wrong(&long("", "§", "K")).unwrap();
    assert_eq!(why.matches("ERROR: ").count(), 100);
    assert!(why.ends_with(" more errors were truncated"));
}

#[test]
fn fields_are_found_by_the_names_that_rules_have_for_them() {
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

/// What a rule says about an object; nothing if it holds.
fn said(rule: &str, value: &Value) -> Vec<String> {
    let mut schema = schema();
    schema["x-kubernetes-validations"] = json!([{"rule": rule, "message": "no"}]);
    let schema = Structural::read(&schema);
    let causes = check(&schema, &Programs::of(&schema), value, None, "");
    causes.into_iter().map(|cause| cause.message).collect()
}

/// The variables of `optMap` and `optFlatMap` were not declared, because the parser does not know these macros.
#[test]
fn optional_values_are_mapped() {
    let value = json!({"n": 5, "l": ["a"], "parts": [{"k": "x", "tags": ["y"]}, {"tags": []}]});
    for (rule, holds) in [
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
        assert_eq!(wrong(rule), None, "{rule}");
        let expected: &[&str] = if holds { &[] } else { &["Invalid value: no"] };
        assert_eq!(said(rule, &value), expected, "{rule}");
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
        let why = wrong(rule).unwrap();
        assert!(why.contains(expected), "{rule}: {why}");
    }
    let nested = format!("{}1{}.hasValue()", "self.?n.optMap(x, ".repeat(45), ")".repeat(45));
    assert!(wrong(&nested).unwrap().contains("expression recursion limit exceeded"));
    let nested = format!("{}1{}.hasValue()", "self.?n.optMap(x, ".repeat(35), ")".repeat(35));
    assert_eq!((wrong(&nested), said(&nested, &value)), (None, Vec::new()));
}
