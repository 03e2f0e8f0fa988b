//! Functions that the library got wrong, or did not survive.
#![allow(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

use serde_json::{Value, json};

use super::super::{Programs, check};
use crate::schema::Structural;

/// What a rule says about a value, and about the value before it.
fn judged(properties: &Value, rule: &Value, value: &Value, old: Option<&Value>) -> Vec<String> {
    let schema = json!({"type": "object", "properties": properties, "x-kubernetes-validations": [rule]});
    let schema = Structural::read(&schema);
    let causes = check(&schema, &Programs::of(&schema), value, old, "");
    causes.into_iter().map(|cause| cause.message).collect()
}

/// Whether a rule holds; anything else than yes and no is an error in the test.
fn holds(properties: &Value, rule: &str, value: &Value, old: Option<&Value>) -> bool {
    match judged(properties, &json!({"rule": rule, "message": "no"}), value, old).as_slice() {
        [] => true,
        [one] if one.ends_with(": no") => false,
        other => panic!("{rule}: {other:?}"),
    }
}

fn message(properties: &Value, expression: &str, value: &Value) -> String {
    let rule = json!({"rule": "false", "message": "none", "messageExpression": expression});
    let said = judged(properties, &rule, value, None);
    said.first().and_then(|said| said.strip_prefix("Invalid value: ")).unwrap_or_default().to_owned()
}

/// The library multiplied quantities until they overflowed, so `1e39` ended the thread that rules run on.
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
        assert_eq!(holds(&properties, rule, &json!({"a": a}), None), expected, "{rule}: {a}");
    }
    let rule = json!({"rule": "quantity(self.a).sign() == 1"});
    let said = judged(&properties, &rule, &json!({"a": "1Mm"}), None);
    assert_eq!(
        said,
        [
            "Invalid value: \"object\": unable to parse quantity's suffix evaluating rule: quantity(self.a).sign() == 1"
        ]
    );
}

/// The library added numbers without looking whether the sum fits.
#[test]
fn sums_that_do_not_fit_are_errors() {
    let properties = json!({"l": {"type": "array", "items": {"type": "integer"}}});
    let rule = "[9223372036854775807, self.l[0]].sum() > 0";
    let said = judged(&properties, &json!({"rule": rule}), &json!({"l": [1]}), None);
    assert_eq!(said, [format!("Invalid value: \"object\": integer overflow evaluating rule: {rule}")]);
    assert!(holds(
        &properties,
        "self.l.sum() == 6 && [1.5, 2.0].sum() == 3.5",
        &json!({"l": [1, 2, 3]}),
        None
    ));
    assert!(holds(&properties, "self.l.sum() == 0", &json!({"l": []}), None));
}

/// More digits than two bytes count ended the thread that rules run on.
#[test]
fn any_number_of_digits_can_be_asked_for() {
    let properties = json!({"f": {"type": "number"}});
    for rule in [
        "'%.65536f'.format([self.f]) == '2'",
        "'%.65537f'.format([self.f]) == '1.5'",
        "'%.2000f'.format([self.f]).size() == 2002",
        "'%.65537e'.format([self.f]) == '1.500000×10⁰⁰'",
    ] {
        assert!(holds(&properties, rule, &json!({"f": 1.5}), None), "{rule}");
    }
}
