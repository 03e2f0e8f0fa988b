//! Results of Go's own decoders and encoders for the same texts.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use serde_json::{Value, json};

use super::*;

#[test]
fn syntax_errors_equal_those_of_go() {
    for (text, expected) in [
        ("", "unexpected end of JSON input"),
        ("{\"a\":1", "unexpected end of JSON input"),
        ("{\"a\":\"b", "unexpected end of JSON input"),
        ("{\"a\":\"\u{1}\"}", "invalid character '\\x01' in string literal"),
        ("{\"a\":tru}", "invalid character '}' in literal true (expecting 'e')"),
        ("nul", "invalid character ' ' in literal null (expecting 'l')"),
        ("nulx", "invalid character 'x' in literal null (expecting 'l')"),
        ("{\"a\":01}", "invalid character '1' after object key:value pair"),
        ("{\"a\":1.}", "invalid character '}' after decimal point in numeric literal"),
        ("{\"a\":1e}", "invalid character '}' in exponent of numeric literal"),
        ("{\"a\":-}", "invalid character '}' in numeric literal"),
        ("-", "invalid character ' ' in numeric literal"),
        ("{\"a\" 1}", "invalid character '1' after object key"),
        ("{a:1}", "invalid character 'a' looking for beginning of object key string"),
        ("{\"a\":1,}", "invalid character '}' looking for beginning of object key string"),
        ("[1,]", "invalid character ']' looking for beginning of value"),
        ("[1 2]", "invalid character '2' after array element"),
        ("{} x", "invalid character 'x' after top-level value"),
        ("{\"a\":\"\\x\"}", "invalid character 'x' in string escape code"),
        ("{\"a\":\"\\u00g0\"}", "invalid character 'g' in \\u hexadecimal character escape"),
        ("'x'", "invalid character '\\'' looking for beginning of value"),
        ("é", "invalid character 'Ã' looking for beginning of value"),
        ("\u{7f}", "invalid character '\\x7f' looking for beginning of value"),
        ("\\", "invalid character '\\\\' looking for beginning of value"),
        ("[1e999]", "json: cannot unmarshal number 1e999 into Go value of type float64"),
        ("[1e999", "unexpected end of JSON input"),
    ] {
        assert_eq!(read(text.as_bytes(), Duplicates::Merge).unwrap_err(), expected, "{text}");
    }
}

#[test]
fn values_equal_those_of_serde_json() {
    let text = r#" {"a" : [1, -2.5e3, true, null, "x\"\\\/\b\f\n\r\té😀", {}], "": {"b": []}, "n": 18446744073709551615} "#;
    let decoded = read(text.as_bytes(), Duplicates::Merge).unwrap();
    assert_eq!(decoded.value, serde_json::from_str::<Value>(text).unwrap());
    assert!(decoded.duplicates.is_empty());
}

#[test]
fn invalid_utf8_is_replaced() {
    let read = |bytes: &[u8]| read(bytes, Duplicates::Merge).unwrap().value;
    assert_eq!(read(b"\"a\xff\xfeb\""), json!("a\u{fffd}\u{fffd}b"));
    assert_eq!(read(br#""\ud800x\udc00\ud83d\u0041""#), json!("\u{fffd}x\u{fffd}\u{fffd}A"));
}

#[test]
fn nesting_depth_is_limited() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert!(read(nested(MAX_DEPTH).as_bytes(), Duplicates::Merge).is_ok());
    for depth in [MAX_DEPTH + 1, 1_000_000] {
        let error = read(nested(depth).as_bytes(), Duplicates::Merge).unwrap_err();
        assert_eq!(error, "exceeded max depth");
        assert!(read_yaml(nested(depth.min(10_000)).as_bytes()).is_err());
    }
}

#[test]
fn duplicates_are_reported_by_path() {
    let text = r#"{"a":[{"x":1,"x":{"y":1,"y":2}}],"b":1,"a":[],"b":2,"b":3}"#;
    let replaced = read(text.as_bytes(), Duplicates::Replace).unwrap();
    assert_eq!(replaced.duplicates, ["a[0].x", "a[0].x.y", "a", "b"]);
    assert_eq!(replaced.value, json!({"a": [], "b": 3}));
    let found = fields_in_order(text.as_bytes(), &["b".to_owned(), "a[0].x".to_owned()]);
    let found: Vec<(&str, bool)> = found.iter().map(|found| (found.path.as_str(), found.duplicate)).collect();
    assert_eq!(found, [("a[0].x", false), ("a[0].x.y", true), ("b", false), ("a", true)]);
}

#[test]
fn untyped_numbers_equal_those_of_go() {
    for (text, expected) in [
        ("1.0", "1"),
        ("-1.50", "-1.5"),
        ("1e3", "1000"),
        ("12345678901234567890", "12345678901234567000"),
        ("9223372036854775807", "9223372036854775807"),
        ("100000000000000000000", "100000000000000000000"),
        ("1e21", "1e+21"),
        ("0.0000001", "1e-7"),
        ("0.000001", "0.000001"),
    ] {
        let mut value = read(text.as_bytes(), Duplicates::Replace).unwrap().value;
        convert_to_untyped(&mut value);
        assert_eq!(compact(&value), expected, "{text}");
    }
}

#[test]
fn values_are_printed_as_by_go() {
    let value = json!({"b": [1, 2.5, "x y", null, true], "a": {"c": 1e21, "d": 1_234_567.5}});
    assert_eq!(shown(&value), "map[a:map[c:1e+21 d:1.2345675e+06] b:[1 2.5 x y <nil> true]]");
    assert_eq!(compact(&json!({"k": "<a&b>\u{2028}"})), r#"{"k":"\u003ca\u0026b\u003e\u2028"}"#);
    assert_eq!(quoted("a\"\\\n\u{1}é"), r#""a\"\\\n\x01é""#);
}

/// The expected output of Go's `%q` for each control character.
#[test]
fn control_characters_are_quoted_as_by_go() {
    let named = [(7, "a"), (8, "b"), (9, "t"), (10, "n"), (11, "v"), (12, "f"), (13, "r")];
    for character in ('\0'..='\u{a0}').filter(|character| character.is_control()) {
        let number = u32::from(character);
        let expected = match named.iter().find(|(known, _)| *known == number) {
            Some((_, letter)) => format!("\"\\{letter}\""),
            None if character.is_ascii() => format!("\"\\x{number:02x}\""),
            None => format!("\"\\u{number:04x}\""),
        };
        assert_eq!(quoted(&character.to_string()), expected);
    }
    assert_eq!(quoted("a\"b\\c\n\u{1}\u{85}é"), r#""a\"b\\c\n\x01\u0085é""#);
}

#[test]
fn plain_scalars_are_resolved_as_in_yaml_1_1() {
    for (text, expected) in [
        ("y", json!(true)),
        ("Off", json!(false)),
        ("tRue", json!("tRue")),
        ("~", json!(null)),
        ("", json!(null)),
        ("0x1f", json!(31)),
        ("0o17", json!(15)),
        ("017", json!(15)),
        ("08", json!(8)),
        ("-0b11", json!(-3)),
        ("1_000", json!(1000)),
        ("1.0", json!(1)),
        (".5", json!(0.5)),
        ("1e3", json!(1000)),
        ("12:30", json!("12:30")),
        ("2024-01-02", json!("2024-01-02")),
        ("18446744073709551615", json!(u64::MAX)),
        ("'5'", json!("5")),
        ("!!str 5", json!("5")),
        ("a # b", json!("a")),
    ] {
        let read = read_yaml(format!("k: {text}\n").as_bytes()).unwrap();
        assert_eq!(read.value["k"], expected, "{text}");
    }
}

#[test]
fn yaml_documents_are_decoded_or_rejected_as_by_go() {
    for (text, expected) in [
        ("a: &x {b: 1}\nc: *x\n", json!({"a": {"b": 1}, "c": {"b": 1}})),
        ("a: &x {b: 1, c: 2}\nd:\n  <<: *x\n  c: 3\n", json!({"a": {"b": 1, "c": 2}, "d": {"b": 1, "c": 3}})),
        ("---\na: 1\n---\nb: 2\n", json!({"a": 1})),
        ("# nothing\n", json!(null)),
        ("1: a\n1.5: b\ntrue: c\nn: d\n", json!({"1": "a", "1.5": "b", "true": "c", "false": "d"})),
        ("a: |\n  x\n   y\nb: >-\n  f\n  g\n", json!({"a": "x\n y\n", "b": "f g"})),
        ("{\"json\": [1, {\"x\": null}]}", json!({"json": [1, {"x": null}]})),
    ] {
        assert_eq!(read_yaml(text.as_bytes()).unwrap().value, expected, "{text}");
    }
    for (text, expected) in [
        ("a: b: c\n", "yaml: mapping values are not allowed in this context"),
        ("k: @b", "yaml: found character that cannot start any token"),
        ("k: .inf", "json: unsupported value: +Inf"),
    ] {
        assert_eq!(read_yaml(text.as_bytes()).unwrap_err(), expected, "{text}");
    }
}

#[test]
fn excessive_aliasing_is_rejected() {
    let level = |level: usize| {
        let below = if level == 0 { "x".to_owned() } else { format!("*a{}", level - 1) };
        format!("a{level}: &a{level} [{}]\n", vec![below; 10].join(", "))
    };
    let text: String = (0..12).map(level).collect::<Vec<_>>().concat();
    let error = read_yaml(text.as_bytes()).unwrap_err();
    assert_eq!(error, "yaml: document contains excessive aliasing");
}

/// A long string used to count as one value, so that 1 MB of YAML could create 100,000 copies of itself and
/// exhaust the memory of the process.
#[test]
fn copied_aliases_are_limited_in_bytes() {
    let error = |text: &str| read_yaml(text.as_bytes()).unwrap_err();
    let (long, times) = ("x".repeat(1 << 20), vec!["*a"; 5000].join(", "));
    let bombs = [
        format!("x: &a {long}\nz: [{times}]\n"),
        format!("x: &a\n  ? {long}\n  : 1\nz: [{times}]\n"),
        format!("x: &a [{long}]\nz: [&b {{k: *a}}, {}]\n", vec!["*b"; 100].join(", ")),
    ];
    for bomb in bombs {
        assert_eq!(error(&bomb), "yaml: document contains excessive aliasing");
    }
    let few = format!("x: &a {long}\nz: [*a, *a, *a]\n");
    assert!(read_yaml(few.as_bytes()).unwrap().value["z"][2] == long.as_str());
    let many = format!("x: &a {{k: v}}\nz: [{}]\n", vec!["*a"; 10_000].join(", "));
    assert_eq!(read_yaml(many.as_bytes()).unwrap().value["z"][9999]["k"], "v");
}

#[test]
fn yaml_is_written_as_by_go() {
    let long = "word ".repeat(30);
    for (value, expected) in [
        (json!({}), "{}\n"),
        (json!([]), "[]\n"),
        (json!("x"), "x\n"),
        (json!({"a": {"b": {}}, "c": [], "d": null, "e": ""}), "a:\n  b: {}\nc: []\nd: null\ne: \"\"\n"),
        (json!([{"a": 1, "b": [1, {"c": 2}]}, [[1]]]), "- a: 1\n  b:\n  - 1\n  - c: 2\n- - - 1\n"),
        (json!({"a10": 1, "a9": 1, "A": 1, "_x": 1, "1": 1}), "_x: 1\n\"1\": 1\nA: 1\na9: 1\na10: 1\n"),
        (json!({"n": "y", "k": "1", "t": "12:30"}), "k: \"1\"\n\"n\": \"y\"\nt: \"12:30\"\n"),
        (
            json!({"k": "# no", "l": "a: b", "m": "it's", "o": "a:b"}),
            "k: '# no'\nl: 'a: b'\nm: it's\no: a:b\n",
        ),
        (json!({"k": " x", "l": "tab\there", "m": "😀"}), "k: ' x'\nl: \"tab\\there\"\nm: \"\\U0001F600\"\n"),
        (
            json!({"k": "one\ntwo", "l": "end\n", "m": "end\n\n"}),
            "k: |-\n  one\n  two\nl: |\n  end\nm: |+\n  end\n\n",
        ),
        (json!({"k": " a\nb", "l": "a \nb"}), "k: |2-\n   a\n  b\nl: \"a \\nb\"\n"),
        (json!({"f": 1.5, "g": 1e21, "h": 123_456_789.5}), "f: 1.5\ng: 1e+21\nh: 1.234567895e+08\n"),
        (
            json!({"k": long.trim_end()}),
            "k: word word word word word word word word word word word word word word word word\n  \
             word word word word word word word word word word word word word word\n",
        ),
    ] {
        assert_eq!(to_yaml(&value), expected, "{value}");
        let back = read_yaml(expected.as_bytes()).unwrap().value;
        assert_eq!(compact(&back), compact(&value), "{expected}");
    }
}
