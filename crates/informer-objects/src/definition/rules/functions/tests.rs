//! Functions that the library implements incorrectly or panics in.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use serde_json::{Value, json};

use super::super::{Programs, check};
use crate::schema::Structural;

/// Returns the messages of a rule for a value and its previous value.
fn messages(properties: &Value, rule: &Value, value: &Value, old: Option<&Value>) -> Vec<String> {
    let schema = json!({"type": "object", "properties": properties, "x-kubernetes-validations": [rule]});
    let schema = Structural::read(&schema);
    let causes = check(&schema, &Programs::of(&schema), value, old, "");
    causes.into_iter().map(|cause| cause.message).collect()
}

/// Whether a rule is satisfied; any other result is an error in the test.
fn is_satisfied(properties: &Value, rule: &str, value: &Value, old: Option<&Value>) -> bool {
    match messages(properties, &json!({"rule": rule, "message": "no"}), value, old).as_slice() {
        [] => true,
        [one] if one.ends_with(": no") => false,
        other => panic!("{rule}: {other:?}"),
    }
}

fn message(properties: &Value, expression: &str, value: &Value) -> String {
    let rule = json!({"rule": "false", "message": "none", "messageExpression": expression});
    let messages = self::messages(properties, &rule, value, None);
    messages.first().and_then(|text| text.strip_prefix("Invalid value: ")).unwrap_or_default().to_owned()
}

/// The library multiplied quantities until they overflowed, so `1e39` panicked.
#[test]
fn quantities_of_any_size_compare() {
    let properties = json!({"a": {"type": "string"}});
    for (rule, a, expected) in [
        ("quantity(self.a).compareTo(quantity('1Gi')) > 0", "1e39", true),
        ("quantity(self.a).compareTo(quantity('1Gi')) > 0", "1e400", true),
        ("quantity(self.a).compareTo(quantity('1Gi')) > 0", "1E-400", false),
        ("quantity(self.a).isGreaterThan(quantity('1e399'))", "1e400", true),
        ("quantity(self.a).isLessThan(quantity('-1e399'))", "-1e400", true),
        ("quantity(self.a).add(quantity('1e-9')).isGreaterThan(quantity('1e39'))", "1e400", true),
        ("quantity(self.a).sub(quantity('1e400')).sign() == 0", "1e400", true),
        ("quantity(self.a) == quantity('1000m')", "1", true),
        ("quantity(self.a).add(5).sub(3).asInteger() == 1026", "1Ki", true),
        ("quantity(self.a).isInteger()", "1000m", false),
        ("quantity(self.a).isInteger() && quantity(self.a).asInteger() == 50000", "50k", true),
        ("quantity(self.a).isInteger()", "1e400", false),
        ("quantity(self.a).asApproximateFloat() == 0.5", "500m", true),
        ("isQuantity(self.a)", "1.2.3", false),
        ("semver(self.a).compareTo(semver('1.2.2')) == 1", "1.2.3", true),
    ] {
        assert_eq!(is_satisfied(&properties, rule, &json!({"a": a}), None), expected, "{rule}: {a}");
    }
    let rule = json!({"rule": "quantity(self.a).sign() == 1"});
    let actual = messages(&properties, &rule, &json!({"a": "1Mm"}), None);
    assert_eq!(
        actual,
        [
            "Invalid value: \"object\": unable to parse quantity's suffix evaluating rule: quantity(self.a).sign() == 1"
        ]
    );
}

/// The library did not check sums for overflow.
#[test]
fn overflowing_sums_are_errors() {
    let properties = json!({"l": {"type": "array", "items": {"type": "integer"}}});
    let rule = "[9223372036854775807, self.l[0]].sum() > 0";
    let actual = messages(&properties, &json!({"rule": rule}), &json!({"l": [1]}), None);
    assert_eq!(actual, [format!("Invalid value: \"object\": integer overflow evaluating rule: {rule}")]);
    assert!(is_satisfied(
        &properties,
        "self.l.sum() == 6 && [1.5, 2.0].sum() == 3.5",
        &json!({"l": [1, 2, 3]}),
        None
    ));
    assert!(is_satisfied(&properties, "self.l.sum() == 0", &json!({"l": []}), None));
    let rule = "[18446744073709551615u, 1u].sum() > 0u";
    let actual = messages(&properties, &json!({"rule": rule}), &json!({"l": [1]}), None);
    assert_eq!(
        actual,
        [format!("Invalid value: \"object\": unsigned integer overflow evaluating rule: {rule}")]
    );
}

/// More digits than fit into two bytes caused a panic.
#[test]
fn any_precision_is_accepted() {
    let properties = json!({"f": {"type": "number"}});
    for rule in [
        "'%.65536f'.format([self.f]) == '2'",
        "'%.65537f'.format([self.f]) == '1.5'",
        "'%.2000f'.format([self.f]).size() == 2002",
        "'%.65537e'.format([self.f]) == '1.500000×10⁰⁰'",
    ] {
        assert!(is_satisfied(&properties, rule, &json!({"f": 1.5}), None), "{rule}");
    }
}

/// Messages contained Rust's debug output of times and durations, and maps in random order.
#[test]
fn values_are_formatted_as_by_go() {
    let properties = json!({
        "m": {"type": "object", "additionalProperties": {"type": "string"}},
        "d": {"type": "string", "format": "duration"},
        "t": {"type": "string", "format": "date-time"},
        "f": {"type": "number"},
        "b": {"type": "boolean"},
    });
    let value =
        json!({"m": {"k": "v", "a": "b"}, "d": "1h", "t": "2020-01-01T00:00:00Z", "f": 1e8, "b": true});
    for (expression, expected) in [
        ("'%s|%s|%s'.format([self.m, self.d, self.t])", r#"{"a":"b", "k":"v"}|3600s|2020-01-01T00:00:00Z"#),
        ("'%s|%s'.format([self.f, self.b])", "1e+08|true"),
        ("string(self.b) + string(self.t) + string(self.d)", "true2020-01-01T00:00:00Z3600s"),
        ("string(self.f) + ' ' + string(1.0) + ' ' + string(0.00001)", "1e+08 1 1e-05"),
        ("string(duration('1.5s')) + string(duration('-90m'))", "1.5s-5400s"),
        ("string(timestamp('2020-01-01T00:00:00.120Z'))", "2020-01-01T00:00:00.12Z"),
        ("string(timestamp('2020-01-01T00:00:00+02:00'))", "2020-01-01T00:00:00+02:00"),
        (
            r#"'%s'.format([[1.5, b'x', self.d, self.t, 'q"', null]])"#,
            r#"[1.500000, b"x", duration("3600s"), timestamp("2020-01-01T00:00:00Z"), "q\"", null]"#,
        ),
        (
            "'%f|%.2f|%.0f|%f'.format([1234.5, 1234567.891, 0.5, -1234.5])",
            "1,234.500000|1,234,567.89|0|-1,234.500000",
        ),
        (
            "'%e|%.20e|%e'.format([1234.5, 0.00001, 1e100])",
            "1.234500×10⁰³|      1.000000×10⁻⁰⁵|1.000000×10¹⁰⁰",
        ),
        ("'%x %X %b %o %d%%'.format([-255, 'é', -5, 8, 7])", "-ff C3A9 -101 10 7%"),
    ] {
        assert_eq!(message(&properties, expression, &value), expected, "{expression}");
    }
    let actual = messages(&properties, &json!({"rule": "'%d'.format([self.d]) == ''"}), &value, None);
    assert_eq!(
        actual,
        [
            "Invalid value: \"object\": error during formatting: decimal clause can only be used on integers, was given google.protobuf.Duration evaluating rule: '%d'.format([self.d]) == ''"
        ]
    );
}

/// Lists were compared and added in order, whatever their list type.
#[test]
fn set_and_map_lists_are_unordered() {
    let texts = json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}});
    let entries = json!({
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "n"],
        "items": {"type": "object", "properties": {
            "k": {"type": "string"}, "n": {"type": "integer"}, "v": texts.clone(),
        }},
    });
    let properties = json!({
        "s": texts, "t": texts, "m": entries,
        "l": {"type": "array", "items": {"type": "string"}},
        "f": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "number"}},
    });
    let entry = |k: &str, n: i64, v: &[&str]| json!({"k": k, "n": n, "v": v});
    let value = json!({
        "s": ["a", "b"], "t": ["b", "c"], "l": ["a", "b"], "f": [1.5, 2.0],
        "m": [entry("a", 1, &["x", "y"]), entry("b", 1, &[])],
    });
    let old = json!({
        "s": ["b", "a"], "t": ["d"], "l": ["b", "a"], "f": [2.0, 1.5],
        "m": [entry("b", 1, &[]), entry("a", 1, &["y", "x"]) ],
    });
    let other =
        json!({"s": ["b"], "t": [], "l": [], "f": [], "m": [entry("a", 1, &["z"]), entry("a", 2, &[])]});
    for (rule, old, expected) in [
        ("self.s == oldSelf.s", &old, true),
        ("self.s != oldSelf.s", &old, false),
        ("self.t == oldSelf.t", &old, false),
        ("self.l == oldSelf.l", &old, false),
        ("self.f == oldSelf.f && self.f != [1.5, 3.0]", &old, true),
        ("self.m == oldSelf.m", &old, true),
        ("self.m == oldSelf.m", &other, false),
        ("self.s == ['b', 'a'] && ['b', 'a'] != self.s", &old, true),
        ("[self.s, self.t].exists(x, x == oldSelf.s) && oldSelf.s in [self.s]", &old, true),
        ("(self.s + self.t).size() == 3 && (self.s + self.t) == ['c', 'b', 'a']", &old, true),
        ("(self.s + self.t + ['a', 'd', 'd']).size() == 4", &old, true),
        ("(self.l + self.s).size() == 4", &old, true),
        ("(self.m + oldSelf.m).size() == 2", &old, true),
        ("(self.m + oldSelf.m).size() == 3", &other, true),
        ("(self.m + oldSelf.m)[0].v == ['z'] && (self.m + oldSelf.m)[2].n == 2", &other, true),
        ("self.s.map(x, x) == oldSelf.s.map(x, x)", &old, false),
    ] {
        assert_eq!(is_satisfied(&properties, rule, &value, Some(old)), expected, "{rule}");
    }
}

/// A null field counted as present, so rules accessed absent values.
#[test]
fn null_field_is_absent() {
    let properties = json!({
        "o": {"type": "object", "properties": {"n": {"type": "string", "nullable": true}}},
        "m": {"type": "object", "additionalProperties": {"type": "string", "nullable": true}},
    });
    let value = json!({"o": {"n": null}, "m": {"n": null}});
    for (rule, expected) in [
        ("has(self.o.n)", false),
        ("self.o.?n.hasValue()", false),
        ("has(self.m.n) && self.m.n == null", true),
    ] {
        assert_eq!(is_satisfied(&properties, rule, &value, None), expected, "{rule}");
    }
    let actual = messages(&properties, &json!({"rule": "self.o.n == 'a'"}), &value, None);
    assert_eq!(actual, ["Invalid value: \"object\": no such key: n evaluating rule: self.o.n == 'a'"]);
}

/// Escapes like `\w` matched Unicode, and `&&` and `--` were operators in character classes.
#[test]
fn patterns_match_as_in_go() {
    let properties = json!({"s": {"type": "string"}});
    for (text, pattern, expected) in [
        ("é", r"^\w+$", false),
        ("é", r"^\W$", true),
        ("az_09", r"^[\w]+$", true),
        ("a-z", r"^[\w-]+$", true),
        ("é", r"^[^\w]$", true),
        ("٣", r"\d", false),
        ("٣", r"^[\D]$", true),
        ("\u{a0}", r"\s", false),
        ("\u{b}", r"\s", false),
        ("aé", r"a\b", true),
        ("éa", r"\Ba", false),
        ("é", r"^.$", true),
        ("a[b", "^[[ab]+$", true),
        ("&", "^[a&&b]$", true),
        ("-,", "^[+--]+$", true),
        ("]", "^[]a]$", true),
        ("aB", "^[[:alpha:]]+$", true),
        ("1", "^[[:^alpha:]]$", true),
        ("a.b", r"^a\Q.\Eb$", true),
        ("axb", r"^a\Q.\Eb$", false),
        ("<a>", r"^\<a\>$", true),
        ("É", "^(?i)é$", true),
        ("Ω", r"^\p{Greek}$", true),
    ] {
        let rule = format!("self.s.matches(r'{pattern}')");
        assert_eq!(
            is_satisfied(&properties, &rule, &json!({"s": text}), None),
            expected,
            "{rule} on {text:?}"
        );
    }
    for rule in [r"self.s.find('\\w+') == 'b'", r"self.s.findAll('\\w') == ['b', 'd']"] {
        assert!(is_satisfied(&properties, rule, &json!({"s": "ébé.d"}), None), "{rule}");
    }
}
