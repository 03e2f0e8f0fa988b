//! Output of each format.

use super::*;
use clap::ValueEnum as _;

fn pods() -> ShownKind {
    ShownKind { group: String::new(), kind: "Pod".into(), resource: "pods".into(), singular: "pod".into() }
}

fn secrets() -> ShownKind {
    ShownKind {
        group: String::new(),
        kind: "Secret".into(),
        resource: "secrets".into(),
        singular: "secret".into(),
    }
}

/// Prints events of one object: their types and states.
fn printed(format: Format, kinds: &[ShownKind], events: &[(Verb, Value)]) -> String {
    let mut printer = Printer::new(format, kinds, Namespaces::All, TimeZone::UTC, || None, Vec::new());
    let mut old: Option<Vec<u8>> = None;
    for (verb, object) in events {
        let bytes = object.to_string().into_bytes();
        let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        let printed_event = PrintedEvent {
            time: "2024-01-01T12:03:04Z".parse().unwrap(),
            verb: *verb,
            shown: &kinds[0],
            namespace: Some("shop"),
            name,
            object: &bytes,
            old: old.as_deref(),
        };
        printer.print(&printed_event).unwrap();
        old = Some(bytes);
    }
    printer.flush().unwrap();
    anstream::adapter::strip_str(&String::from_utf8(printer.out).unwrap()).to_string()
}

fn pod(phase: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web-0", "uid": "u-1", "labels": {"app": "web"}},
        "spec": {"nodeName": "node-1", "containers": [{"name": "app"}]},
        "status": {"phase": phase},
    })
}

fn secret(value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db"}, "data": {"password": value}, "type": "Opaque"})
}

#[test]
fn table_of_one_kind_has_its_columns() {
    let events =
        [(Verb::Added, pod("Pending")), (Verb::Updated, pod("Running")), (Verb::Deleted, pod("Running"))];
    assert_eq!(
        printed(Format::Table, &[pods()], &events),
        "\
TIME       TYPE      NAMESPACE   NAME    STATUS              READY   RESTARTS   AGE   NODE     CHANGES
12:03:04   ADDED     shop        web-0   Pending             0/1     0          -     node-1
12:03:04   UPDATED   shop        web-0   Running             0/1     0          -     node-1   status.phase Pending → Running
12:03:04   DELETED   shop        web-0   Running             0/1     0          -     node-1
"
    );
}

#[test]
fn several_kinds_share_a_table() {
    let events = [(Verb::Added, pod("Running")), (Verb::Resync, pod("Running"))];
    assert_eq!(
        printed(Format::Wide, &[pods(), secrets()], &events),
        "\
TIME       TYPE      RESOURCE   NAMESPACE   NAME    STATE                           LABELS    UID   CHANGES
12:03:04   ADDED     pods       shop        web-0   Running, 0/1 ready, on node-1   app=web   u-1
12:03:04   RESYNC    pods       shop        web-0   Running, 0/1 ready, on node-1   app=web   u-1
"
    );
}

#[test]
fn json_is_one_object_per_line() {
    let text =
        printed(Format::Json, &[pods()], &[(Verb::Added, pod("Pending")), (Verb::Updated, pod("Running"))]);
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0]["type"], "ADDED");
    assert_eq!(lines[0]["changes"], json!([]));
    assert_eq!(lines[1]["object"], pod("Running"));
    assert_eq!(lines[1]["time"], "2024-01-01T12:03:04Z");
    assert_eq!(lines[1]["changes"], json!([{"path": "status.phase", "old": "Pending", "new": "Running"}]));
}

#[test]
fn changes_in_json_have_original_values() {
    let widget = |size: u8, note: &str| json!({"kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": size, "note": note}});
    let note = format!("\u{1b}[31m{}", "x".repeat(100));
    let text =
        printed(Format::Json, &[pods()], &[(Verb::Added, widget(3, "")), (Verb::Updated, widget(4, &note))]);
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(
        last["changes"],
        json!([{"path": "spec.note", "old": "", "new": note}, {"path": "spec.size", "old": 3, "new": 4}])
    );
}

#[test]
fn yaml_is_one_document_per_event() {
    let text =
        printed(Format::Yaml, &[pods()], &[(Verb::Added, pod("Pending")), (Verb::Updated, pod("Running"))]);
    let documents: Vec<&str> = text.split("---\n").collect();
    assert_eq!(documents.len(), 3);
    assert!(
        documents[2].starts_with("# 12:03:04 UPDATED pods shop/web-0: status.phase Pending → Running\n"),
        "{text}"
    );
    let back: Value = serde_saphyr::from_str(documents[2]).unwrap();
    assert_eq!(back, pod("Running"));
}

#[test]
fn names_match_kubectl() {
    assert_eq!(printed(Format::Name, &[pods()], &[(Verb::Added, pod("Pending"))]), "pod/web-0\n");
}

#[test]
fn no_format_prints_secret_values() {
    let events =
        [(Verb::Added, secret("b2xk")), (Verb::Updated, secret("bmV3")), (Verb::Deleted, secret("bmV3"))];
    for &format in Format::value_variants() {
        let text = printed(format, &[secrets()], &events);
        assert!(!text.contains("b2xk") && !text.contains("bmV3"), "{format:?}: {text}");
        if format != Format::Name {
            assert!(text.contains("data.password"), "{format:?}: {text}");
        }
    }
}

#[test]
fn every_format_escapes_control_characters() {
    let bad = |value: &str| {
        json!({
            "kind": "Pod", "metadata": {"name": "web\u{1b}[2J", "labels": {"a": "\u{9b}1m", "b": "\r\u{7f}"}},
            "status": {"phase": value},
        })
    };
    let events = [(Verb::Added, bad("\u{1b}[31mred")), (Verb::Updated, bad("\u{202e}x\nfake line"))];
    for &format in Format::value_variants() {
        let text = printed(format, &[pods()], &events);
        let found = text.chars().find(|letter| *letter != '\n' && escape::is_dangerous(*letter));
        assert_eq!(found, None, "{format:?}: {text}");
        assert!(!text.lines().any(|line| line.starts_with("fake")), "{format:?}: {text}");
    }
}
