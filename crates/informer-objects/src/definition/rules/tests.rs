//! Evaluation of rules: results, and costs. A rule that would cost too much is aborted before the work is
//! done.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::collections::HashMap;
use std::sync::Arc;

use kube_cel::KubeCelExt;
use kube_cel::cel::objects::{Key, Map};
use kube_cel::cel::{Context, Value as Cel};
use serde_json::{Value, json};

use super::budget::{EvalAbort, EvalResult, MAX_COST_PER_CALL};
use super::eval::Evaluation;
use super::functions::Patterns;
use super::*;

fn object(fields: Vec<(&str, Cel)>) -> Cel {
    let fields: HashMap<Key, Cel> =
        fields.into_iter().map(|(name, value)| (Key::from(name), value)).collect();
    Cel::Map(Map { map: Arc::new(fields) })
}

fn texts(count: usize, text: impl Fn(usize) -> String) -> Cel {
    Cel::List(Arc::new((0..count).map(|at| Cel::from(text(at))).collect()))
}

/// Evaluates a rule and returns its cost.
fn run(rule: &str, this: &Cel) -> (EvalResult, u64) {
    let parsed = compile::parse(rule).unwrap();
    let library = Context::default().with_all();
    let mut patterns = Patterns::default();
    let mut evaluation = Evaluation::new(&library, &mut patterns, MAX_COST_PER_CALL);
    evaluation.declare("self", this.clone());
    evaluation.run(&parsed)
}

fn value(rule: &str) -> Cel {
    run(rule, &Cel::Null).0.unwrap()
}

/// Costs were charged after a call, so one call on two long texts could allocate hundreds of gigabytes and
/// kill the process.
#[test]
fn too_large_results_are_not_computed() {
    let long = || Cel::from("x".repeat(700_000));
    let this = object(vec![("a", long()), ("b", long()), ("l", texts(300_000, |_| "y".to_owned()))]);
    for rule in [
        "self.a.replace('', self.b) == ''",
        "self.a.replace('x', self.b) == ''",
        "self.l.join(self.b) == ''",
        "self.a.split('').map(x, self.a.split('')).size() == 0",
        "(self.a + self.b + self.a + self.b + self.a + self.b + self.a + self.b) == ''",
        "lists.range(1000000000000) == []",
        "self.l.map(x, self.l).flatten() == []",
        "'%.65000f%.65000f'.format([1.0, 1.0]) + self.l.map(x, '%.65000f'.format([1.0])).join('') == ''",
        "sets.contains(self.l, self.l)",
        "sets.equivalent(self.l.map(x, self.a), [self.b])",
        "self.l.distinct() == []",
        "self.a.indexOf(self.b) == 0",
        "self.a.contains(self.b)",
        "self.a.matches(self.b)",
        "self.l.map(x, self.l) == self.l.map(x, self.l)",
        "self.l.map(x, [self.l]).sort() == []",
    ] {
        let (result, spent) = run(rule, &this);
        assert!(result == Err(EvalAbort::BudgetExceeded), "{rule}");
        assert_eq!(spent, MAX_COST_PER_CALL + 1, "{rule}");
    }
}

/// Referencing a list copied it, so a loop over 20,000 texts that reads the first of them took minutes.
#[test]
fn lists_are_shared_and_cheap_to_read() {
    let this = object(vec![("l", texts(20_000, |_| "abc".to_owned()))]);
    for (rule, max) in [
        ("self.l.all(a, self.l[0] == a)", 250_000),
        ("self.l.all(a, self.l.size() == 20000)", 250_000),
        ("self.l.map(a, a).size() == 20000", 400_000),
        ("self.l.filter(a, a == 'abc').size() == 20000", 450_000),
        ("self.l.exists_one(a, a == '') == false", 200_000),
        ("self.l[19999] == 'abc'", 10),
        ("self.l == self.l", 50_000),
        ("'abd' in self.l || true", 60_000),
    ] {
        let (result, spent) = run(rule, &this);
        assert_eq!(result, Ok(Cel::Bool(true)), "{rule}");
        assert!(spent <= max, "{rule}: {spent}");
    }
}

/// Searching each entry in its own list and comparing long texts were charged too little, so such rules were
/// not aborted.
#[test]
fn searches_and_comparisons_are_charged_by_size() {
    let many = object(vec![("l", texts(90_000, |at| at.to_string()))]);
    assert_eq!(run("self.l.all(a, a in self.l)", &many).0, Err(EvalAbort::BudgetExceeded));
    let long = |end: &str| Cel::from("x".repeat(500_000) + end);
    let this = object(vec![("a", long("a")), ("b", long("b"))]);
    for rule in ["self.a <= self.b", "self.a < self.b", "!(self.a > self.b)", "self.a != self.b"] {
        let (result, spent) = run(rule, &this);
        assert_eq!(result, Ok(Cel::Bool(true)), "{rule}");
        assert!((50_000..51_000).contains(&spent), "{rule}: {spent}");
    }
    assert_eq!(
        run("[1, 2, 3].all(x, [1, 2, 3, 4, 5, 6, 7].all(y, self.a <= self.b))", &this).0,
        Err(EvalAbort::BudgetExceeded)
    );
}

/// Exceeding the budget was an error that the other operand of `||` could compensate for.
#[test]
fn exceeded_budget_cannot_be_compensated() {
    let this = object(vec![("l", texts(2_000, |at| at.to_string()))]);
    let expensive = "self.l.all(a, self.l.all(b, a != b || a == b))";
    for rule in [
        format!("{expensive} || true"),
        format!("!({expensive} && false)"),
        format!("[{expensive}].exists(x, true)"),
    ] {
        assert_eq!(run(&rule, &this).0, Err(EvalAbort::BudgetExceeded), "{rule}");
    }
}

#[test]
fn deciding_operand_compensates_for_errors() {
    for (rule, expected) in [
        ("[0, 1].all(x, 1 / x > 5)", false),
        ("[0, 1].exists(x, 1 / x == 1)", true),
        ("1 / 0 == 1 || true", true),
        ("1 / 0 == 1 && false", false),
        ("true || 1 / 0 == 1", true),
    ] {
        assert_eq!(value(rule), Cel::Bool(expected), "{rule}");
    }
    for rule in ["[0, 1].all(x, 1 / x > 0)", "[0].map(x, 1 / x) == []", "1 / 0 == 1 || false"] {
        assert!(matches!(run(rule, &Cel::Null).0, Err(EvalAbort::Failed(_))), "{rule}");
    }
}

#[test]
fn functions_equal_those_of_go() {
    for (rule, expected) in [
        ("'aXbXc'.split('X')", json!(["a", "b", "c"])),
        ("'aXbXc'.split('X', 2)", json!(["a", "bXc"])),
        ("'aXb'.split('X', 0)", json!([])),
        ("'aXb'.split('X', -1)", json!(["a", "b"])),
        ("'aéb'.split('')", json!(["a", "é", "b"])),
        ("'aéb'.split('', 2)", json!(["a", "éb"])),
        ("''.split('')", json!([])),
        ("''.split(',')", json!([""])),
        ("'aaa'.replace('a', 'b', 2)", json!("bba")),
        ("'aaa'.replace('a', 'b', -1)", json!("bbb")),
        ("'ab'.replace('', '-')", json!("-a-b-")),
        ("['a', 'b'].join('-')", json!("a-b")),
        ("[].join('-')", json!("")),
        ("'héllo'.size()", json!(5)),
        ("size([1, 2])", json!(2)),
        ("'a1b22'.findAll('[0-9]+')", json!(["1", "22"])),
        ("'a1b22'.findAll('[0-9]+', 1)", json!(["1"])),
        ("'abc'.find('b.')", json!("bc")),
        ("'abc'.matches('^a.c$')", json!(true)),
        ("'abc'.contains('bc') && 'abc'.startsWith('ab') && 'abc'.endsWith('')", json!(true)),
        ("optional.of(1).orValue(2)", json!(1)),
        ("optional.none().or(optional.of(3)).value()", json!(3)),
        ("{'a': 1}.?b.hasValue()", json!(false)),
        ("{'a': {'b': 1}}.?a.b.orValue(0)", json!(1)),
        ("[?optional.of(1), ?optional.none()]", json!([1])),
        ("{?'a': optional.none(), 'b': 2}", json!({"b": 2})),
        ("[1, 2][?5].orValue(7)", json!(7)),
        ("sets.contains([1, 2], [2])", json!(true)),
        ("[3, 1, 2].sort()", json!([1, 2, 3])),
        ("math.greatest(1, 2)", json!(2)),
        ("b'a' + b'b' == b'ab' && b'a' < b'b'", json!(true)),
        ("type(1) == int && type('') == string", json!(true)),
        ("dyn(1) == 1 && -(2) < 0", json!(true)),
        ("{'a': 1, 'b': 2}.all(k, k in ['a', 'b'])", json!(true)),
        ("lists.range(3).map(x, x * 2)", json!([0, 2, 4])),
    ] {
        assert_eq!(shown(&value(rule)), expected, "{rule}");
    }
}

fn shown(value: &Cel) -> Value {
    match value {
        Cel::Bool(flag) => json!(flag),
        Cel::Int(number) => json!(number),
        Cel::String(text) => json!(**text),
        Cel::List(items) => items.iter().map(shown).collect(),
        Cel::Map(map) => map.map.iter().map(|(key, value)| (key.to_string(), shown(value))).collect(),
        other => json!(format!("{other:?}")),
    }
}

/// Each use of a pattern compiled it again, and a pattern can require far more memory than its text.
#[test]
fn patterns_are_compiled_once_and_limited_in_size() {
    let this = object(vec![("l", texts(20_000, |_| "abc".to_owned()))]);
    let (result, spent) = run("self.l.all(a, a.matches('^[a-z]+$'))", &this);
    assert_eq!(result, Ok(Cel::Bool(true)));
    assert!(spent < 300_000, "{spent}");
    let large = "self.l.all(a, a.matches('^(\\\\pL{1,200}){1,200}$'))";
    assert!(matches!(run(large, &this).0, Err(EvalAbort::Failed(_))));
    let each = "lists.range(20000).all(n, 'x'.matches('x|' + string(n)))";
    assert_eq!(run(each, &this).0, Err(EvalAbort::BudgetExceeded));
}

fn causes(schema: &Value, value: &Value, old: Option<&Value>) -> Vec<String> {
    let schema = Structural::read(schema);
    let causes = check(&schema, &Programs::of(&schema), value, old, "");
    causes.into_iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect()
}

/// Covers the budget of a rule, of a message expression, and of an object.
#[test]
fn budget_errors_equal_those_of_kube_apiserver() {
    let schema = |rule: Value| {
        json!({"type": "object", "properties": {
            "s": {"type": "string"},
            "l": {"type": "array", "items": {"type": "string", "x-kubernetes-validations": [{"rule": "true"}]}},
        }, "x-kubernetes-validations": [rule, {"rule": "false", "message": "later"}]})
    };
    let value = json!({"s": "x".repeat(700_000), "l": ["a"]});
    assert_eq!(
        causes(&schema(json!({"rule": "self.s.replace('', self.s) == ''"})), &value, None),
        [
            "<nil>: Invalid value: \"object\": 'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to call cost exceeds limit for rule: self.s.replace('', self.s) == ''"
        ]
    );
    let message = json!({"rule": "false", "messageExpression": "self.s.replace('', self.s)"});
    assert_eq!(
        causes(&schema(message), &value, None),
        [
            "<nil>: Invalid value: \"object\": no further validation rules will be run due to call cost exceeds limit for messageExpression: \"self.s.replace('', self.s)\""
        ]
    );
    let items: Vec<String> = (0..30).map(|_| "x".repeat(40_000)).collect();
    let expensive = json!({"type": "array", "items": {"type": "string", "x-kubernetes-validations": [
        {"rule": "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all(x, (self + self + self + self + self + self) != '')"},
    ]}});
    let found = causes(&expensive, &json!(items), None);
    assert_eq!(
        found,
        [
            "[12]: Invalid value: \"string\": validation failed due to running out of cost budget, no further validation rules will be run"
        ]
    );
}

/// Whether a list changed was determined again for each of its invalid entries, which was slow for long
/// lists.
#[test]
fn new_entries_of_a_changed_list_are_rejected() {
    let schema = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {
        "type": "object", "properties": {"k": {"type": "string"}}, "x-kubernetes-validations": [{"rule": "false", "message": "no"}],
    }});
    let list = |prefix: &str| (0..3).map(|at| json!({"k": format!("{prefix}{at}")})).collect::<Value>();
    assert_eq!(causes(&schema, &list("b"), Some(&list("a"))).len(), 3);
    assert_eq!(causes(&schema, &list("a"), Some(&list("a"))), Vec::<String>::new());
}
