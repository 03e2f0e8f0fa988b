//! Templates and their results, most of them from the documentation of kubectl.

use super::*;
use serde_json::json;

fn list() -> Value {
    json!({
        "kind": "List",
        "items": [
            {
                "kind": "None",
                "metadata": {"name": "127.0.0.1", "labels": {"kubernetes.io/hostname": "one", "app": "web"}},
                "status": {"capacity": {"cpu": "4"}, "ready": true, "weight": 1.5,
                    "addresses": [{"type": "LegacyHostIP", "address": "127.0.0.1"}]},
            },
            {
                "kind": "None",
                "metadata": {"name": "127.0.0.2"},
                "status": {"capacity": {"cpu": "8"}, "ready": false, "weight": 3,
                    "addresses": [{"type": "LegacyHostIP", "address": "127.0.0.2"}, {"type": "another", "address": "127.0.0.3"}]},
            },
        ],
        "users": [
            {"name": "myself", "user": {}},
            {"name": "e2e", "user": {"username": "admin", "password": "secret"}},
        ],
        "letters": ["a", "b", "c", "d", "e"],
        "empty": null,
    })
}

#[track_caller]
fn check(template: &str, expected: &str) {
    let parsed: Template = template.parse().unwrap_or_else(|error| panic!("{template}: {error}"));
    assert_eq!(parsed.render(&list()), expected, "{template}");
}

#[track_caller]
fn check_error(template: &str, expected: &str) {
    let error = template.parse::<Template>().err().map(|error| error.to_string());
    assert_eq!(error.as_deref(), Some(expected), "{template}");
}

#[test]
fn examples_of_kubectl_documentation_work() {
    check("text", "text");
    check("kind is {.kind}", "kind is List");
    check("{.kind}", "List");
    check("{['kind']}", "List");
    check("{@.kind}{$.kind}", "ListList");
    check("{..name}", "127.0.0.1 127.0.0.2 myself e2e");
    check("{.items[*].metadata.name}", "127.0.0.1 127.0.0.2");
    check("{.users[0].name}", "myself");
    check(
        "{.items[*]['metadata.name', 'status.capacity']}",
        "127.0.0.1 {\"cpu\":\"4\"} 127.0.0.2 {\"cpu\":\"8\"}",
    );
    check("{.users[?(@.name==\"e2e\")].user.password}", "secret");
    check(
        "{range .items[*]}[{.metadata.name}, {.status.capacity}] {end}",
        "[127.0.0.1, {\"cpu\":\"4\"}] [127.0.0.2, {\"cpu\":\"8\"}] ",
    );
    check("{range .items[*]}{.metadata.name}{'\\t'}{end}", "127.0.0.1\t127.0.0.2\t");
    check("{.items[0].metadata.labels.kubernetes\\.io/hostname}", "one");
}

#[test]
fn fields_may_be_quoted_or_escaped() {
    for name in ["['kubernetes\\.io/hostname']", "['kubernetes.io/hostname']", "[\"kubernetes.io/hostname\"]"]
    {
        check(&format!("{{.items[0].metadata.labels{name}}}"), "one");
        check(&format!("{{.items[0].metadata.labels.{name}}}"), "one");
    }
    check("{.items[0]['metadata.name']}", "127.0.0.1");
}

#[test]
fn lists_have_indexes_and_slices() {
    for (inside, expected) in [
        ("0", "a"),
        ("-1", "e"),
        ("-5", "a"),
        ("5", ""),
        ("-6", ""),
        ("1:3", "b c"),
        (":2", "a b"),
        ("-2:", "d e"),
        (":-3", "a b"),
        ("::2", "a c e"),
        ("1:100:3", "b e"),
        ("3:1", ""),
        ("0,2", "a c"),
        (" 0 , -1 ", "a e"),
        ("*", "a b c d e"),
        ("99999999999:", ""),
    ] {
        check(&format!("{{.letters[{inside}]}}"), expected);
    }
    check("{.letters}", "[\"a\",\"b\",\"c\",\"d\",\"e\"]");
    check("{.letters.a}{.kind[0]}{.kind.a}{.kind[*]}", "");
}

#[test]
fn filters_compare_fields_of_items() {
    let name = "metadata.name";
    for (filter, expected) in [
        ("@.status.ready==true", "127.0.0.1"),
        ("@.status.ready!=true", "127.0.0.2"),
        ("@.status.weight>2", "127.0.0.2"),
        ("@.status.weight >= 1.5", "127.0.0.1 127.0.0.2"),
        ("@.status.weight<-1", ""),
        ("@.metadata.labels", "127.0.0.1"),
        ("@.metadata.labels.app=='web'", "127.0.0.1"),
        ("@.metadata.labels.app!='web'", ""),
        ("'127.0.0.2' == @.metadata.name", "127.0.0.2"),
        ("@.metadata.name>'127.0.0.1'", "127.0.0.2"),
        ("@.status.addresses[?(@.type==\"another\")].address", "127.0.0.2"),
        ("@.status.weight==\"3\"", ""),
        ("@.status.capacity.cpu<='4'", "127.0.0.1"),
    ] {
        check(&format!("{{.items[?({filter})].{name}}}"), expected);
    }
    check("{.kind[?(@.a)]}{.users[?(@.name==\"}\")]}", "");
}

#[test]
fn values_are_printed_as_kubectl_does() {
    check("{.empty}{.missing}{.items[0].status.weight}", "null1.5");
    check("{.items[0].status.ready}", "true");
    check("{3}{-1.5} {\"a\" 'b'}", "3-1.5 ab");
    check("{.users[1].user}", "{\"password\":\"secret\",\"username\":\"admin\"}");
    check(".kind", "List");
    check("{range .users[*]}{@.name}:{range .user.*}{.},{end};{end}", "myself:;e2e:secret,admin,;");
    let object = json!({"a": "x\u{1b}[31m\ny\tz\u{202e}"});
    let template: Template = "{.a}".parse().unwrap();
    assert_eq!(template.render(&object), "x\\u{1b}[31m\ny\tz\\u{202e}");
}

#[test]
fn errors_name_the_position() {
    check_error("{.a", "character 4: missing '}'");
    check_error("{.a[}", "character 5: expected an index, a quoted name, '*' or '?', found '}'");
    check_error("{.a[0}", "character 6: expected ']' or ',', found '}'");
    check_error("{.a['b}", "character 5: missing quote at the end of the text");
    check_error("{.a..}", "character 6: expected the name of a field, found '}'");
    check_error(
        "{metadata.name}",
        "character 2: unknown word \"metadata\"; fields start with a dot: .metadata",
    );
    check_error("{range .items[*]}{.a}", "character 2: range without {end}");
    check_error("{.a}{end}", "character 6: end without range");
    check_error("{range}{end}", "character 7: expected a path such as .items[*], found '}'");
    check_error("{.a[?(@.b==c)]}", "character 12: unknown value c; texts need quotes: \"c\"");
    check_error("{.a[?(@.b=1)]}", "character 10: expected a comparison or ')', found '='");
    check_error("{.a[?@.b]}", "character 6: expected '(', found '@'");
    check_error("{.a[0:2:0]}", "character 8: the step of a slice must be positive");
    check_error("{.a[99999999999999999999]}", "character 5: invalid number");
    check_error("{.a)}", "character 4: expected a path, a quoted text, range or end, found ')'");
    let nested = "{.a[?(@".to_owned() + &"[?(@".repeat(1000);
    check_error(&nested, "character 134: too many nested filters");
    check_error(&"{range .a}".repeat(1000), "character 327: too many nested loops");
}

#[test]
fn path_has_optional_braces_and_dot() {
    for text in
        ["{.metadata.name}", ".metadata.name", "metadata.name", "{metadata.name}", " $.metadata['name'] "]
    {
        let path: JsonPath = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(path.select(&list()["items"][0]), [&json!("127.0.0.1")], "{text}");
    }
    for (text, expected) in [
        ("", "character 1: expected a path such as .metadata.name"),
        ("{.a", "character 4: expected '}', found the end"),
        (".a}", "character 3: expected the end, found '}'"),
        (".a b", "character 4: expected the end, found 'b'"),
    ] {
        assert_eq!(text.parse::<JsonPath>().unwrap_err().to_string(), expected, "{text}");
    }
}
