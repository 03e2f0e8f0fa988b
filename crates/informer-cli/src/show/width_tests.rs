//! Tables on terminals of common widths, as they appear on the screen.

use super::*;
use console::measure_text_width;

fn kind(name: &str) -> ShownKind {
    ShownKind {
        group: String::new(),
        kind: name.to_owned(),
        resource: format!("{}s", name.to_lowercase()),
        singular: name.to_lowercase(),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "states read better without references")]
fn pod(namespace: &str, name: &str, phase: &str, node: Option<&str>, state: Value) -> Value {
    let mut pod = json!({
        "metadata": {"namespace": namespace, "name": name, "creationTimestamp": "2024-01-01T11:40:00Z"},
        "spec": {"containers": [{"name": "app"}]},
        "status": {"phase": phase},
    });
    if let Some(node) = node {
        pod["spec"]["nodeName"] = json!(node);
    }
    if !state.is_null() {
        let ready = state.get("running").is_some();
        pod["status"]["containerStatuses"] =
            json!([{"name": "app", "ready": ready, "restartCount": 0, "state": state}]);
    }
    pod
}

/// A typical minute of a cluster: type of the event, previous state, state.
fn events() -> Vec<(Verb, Option<Value>, Value)> {
    let running = json!({"running": {}});
    let web = |state: Value| pod("shop", "web-lmpqq546w-sbhm4", "Running", Some("node-03"), state);
    let backup = |phase, node, state| pod("data", "db-backup-527j24vf-9pr9v", phase, node, state);
    let checkout = |state| pod("payments", "checkout-4hms6wnsg-7jssf", "Running", Some("node-03"), state);
    let creating = backup("Pending", Some("node-01"), json!({"waiting": {"reason": "ContainerCreating"}}));
    let done = json!({"terminated": {"reason": "Completed", "exitCode": 0}});
    vec![
        (Verb::Added, None, web(running.clone())),
        (Verb::Added, None, backup("Pending", None, json!(null))),
        (Verb::Updated, Some(backup("Pending", None, json!(null))), creating.clone()),
        (Verb::Updated, Some(creating), backup("Succeeded", Some("node-01"), done)),
        (
            Verb::Updated,
            Some(checkout(running.clone())),
            checkout(json!({"terminated": {"reason": "OOMKilled", "exitCode": 137}})),
        ),
        (Verb::Deleted, None, web(running)),
    ]
}

/// Prints the events on a terminal of this width; `None` means no terminal.
fn printed(format: Format, kinds: &[ShownKind], namespaces: Namespaces, width: Option<usize>) -> String {
    let screen = width.map(|columns| Screen { columns, rows: 24 });
    let mut printer = Printer::new(format, kinds, namespaces, TimeZone::UTC, move || screen, Vec::new());
    print(&mut printer, kinds, events());
    output(printer)
}

fn print(printer: &mut Printer<Vec<u8>>, kinds: &[ShownKind], events: Vec<(Verb, Option<Value>, Value)>) {
    for (verb, old, object) in events {
        let bytes = object.to_string().into_bytes();
        let old = old.map(|old| old.to_string().into_bytes());
        let printed_event = PrintedEvent {
            time: "2024-01-01T12:03:04Z".parse().unwrap(),
            verb,
            shown: &kinds[0],
            namespace: object["metadata"]["namespace"].as_str(),
            name: object["metadata"]["name"].as_str().unwrap(),
            object: &bytes,
            old: old.as_deref(),
        };
        printer.print(&printed_event).unwrap();
    }
    printer.flush().unwrap();
}

fn output(printer: Printer<Vec<u8>>) -> String {
    anstream::adapter::strip_str(&String::from_utf8(printer.out).unwrap()).to_string()
}

#[track_caller]
fn check(kinds: &[ShownKind], width: usize, expected: &str) {
    let text = printed(Format::Table, kinds, Namespaces::All, Some(width));
    assert_eq!(text, expected, "{width}");
}

#[test]
fn pods_at_80_columns() {
    check(
        &[kind("Pod")],
        80,
        "\
TYPE     NAMESPACE  NAME                    STATUS        CHANGES
ADDED    shop       web-lmpqq546w-sbhm4     Running
ADDED    data       db-backup-5…24vf-9pr9v  Pending
UPDATED  data       db-backup-5…24vf-9pr9v  ContainerCr…  +…nodeName node-01 +1
UPDATED  data       db-backup-5…24vf-9pr9v  Completed     …state → Completed +1
UPDATED  payments   checkout-4h…wnsg-7jssf  OOMKilled     …state → OOMKilled +1
DELETED  shop       web-lmpqq546w-sbhm4     Running
",
    );
}

#[test]
fn several_kinds_at_80_columns() {
    check(
        &[kind("Pod"), kind("Node")],
        80,
        "\
TYPE     RESOURCE  NAMESPACE  NAME              STATE            CHANGES
ADDED    pods      shop       web-lmpq…w-sbhm4  Running
ADDED    pods      data       db-backu…f-9pr9v  Pending
UPDATED  pods      data       db-backu…f-9pr9v  ContainerCreat…  +…nodeName … +1
UPDATED  pods      data       db-backu…f-9pr9v  Completed        …state → Co… +1
UPDATED  pods      payments   checkout…g-7jssf  OOMKilled        …state → OO… +1
DELETED  pods      shop       web-lmpq…w-sbhm4  Running
",
    );
}

#[test]
fn pods_at_100_columns() {
    check(
        &[kind("Pod")],
        100,
        "\
TIME      TYPE     NAMESPACE  NAME                      STATUS         AGE  CHANGES
12:03:04  ADDED    shop       web-lmpqq546w-sbhm4       Running        23m
12:03:04  ADDED    data       db-backup-527j24vf-9pr9v  Pending        23m
12:03:04  UPDATED  data       db-backup-527j24vf-9pr9v  ContainerCre…  23m  +…nodeName node-01 +1
12:03:04  UPDATED  data       db-backup-527j24vf-9pr9v  Completed      23m  …state → Completed +1
12:03:04  UPDATED  payments   checkout-4hms6wnsg-7jssf  OOMKilled      23m  …state → OOMKilled +1
12:03:04  DELETED  shop       web-lmpqq546w-sbhm4       Running        23m
",
    );
}

#[test]
fn pods_at_120_columns() {
    check(
        &[kind("Pod")],
        120,
        "\
TIME      TYPE     NAMESPACE  NAME                      STATUS            READY  RESTARTS  AGE  CHANGES
12:03:04  ADDED    shop       web-lmpqq546w-sbhm4       Running           1/1    0         23m
12:03:04  ADDED    data       db-backup-527j24vf-9pr9v  Pending           0/1    0         23m
12:03:04  UPDATED  data       db-backup-527j24vf-9pr9v  ContainerCreati…  0/1    0         23m  +…nodeName node-01 +1
12:03:04  UPDATED  data       db-backup-527j24vf-9pr9v  Completed         0/1    0         23m  …state → Completed +1
12:03:04  UPDATED  payments   checkout-4hms6wnsg-7jssf  OOMKilled         0/1    0         23m  …state → OOMKilled +1
12:03:04  DELETED  shop       web-lmpqq546w-sbhm4       Running           1/1    0         23m
",
    );
}

#[test]
fn pods_at_160_columns() {
    check(
        &[kind("Pod")],
        160,
        "\
TIME       TYPE      NAMESPACE   NAME                       STATUS              READY   RESTARTS   AGE   NODE      CHANGES
12:03:04   ADDED     shop        web-lmpqq546w-sbhm4        Running             1/1     0          23m   node-03
12:03:04   ADDED     data        db-backup-527j24vf-9pr9v   Pending             0/1     0          23m   -
12:03:04   UPDATED   data        db-backup-527j24vf-9pr9v   ContainerCreating   0/1     0          23m   node-01   +spec.nodeName node-01, +1 more
12:03:04   UPDATED   data        db-backup-527j24vf-9pr9v   Completed           0/1     0          23m   node-01   …state → terminated (Completed), +1 more
12:03:04   UPDATED   payments    checkout-4hms6wnsg-7jssf   OOMKilled           0/1     0          23m   node-03   …state → terminated (OOMKilled), +1 more
12:03:04   DELETED   shop        web-lmpqq546w-sbhm4        Running             1/1     0          23m   node-03
",
    );
}

/// Regression: at 80 columns, the initial list had shortened names and statuses beside an empty column of changes.
/// The tests printed a list and changes at once, which looks different.
#[test]
fn changes_have_no_column_until_the_first_change() {
    let screen = Some(Screen { columns: 80, rows: 24 });
    let kinds = [kind("Pod")];
    let mut printer =
        Printer::new(Format::Table, &kinds, Namespaces::All, TimeZone::UTC, move || screen, Vec::new());
    let mut events = events();
    let later = events.split_off(2);
    print(&mut printer, &kinds, events);
    print(&mut printer, &kinds, later);
    assert_eq!(
        output(printer),
        "\
TIME      TYPE     NAMESPACE  NAME                      STATUS        READY  AGE
12:03:04  ADDED    shop       web-lmpqq546w-sbhm4       Running       1/1    23m
12:03:04  ADDED    data       db-backup-527j24vf-9pr9v  Pending       0/1    23m
TYPE     NAMESPACE  NAME                    STATUS        CHANGES
UPDATED  data       db-backup-5…24vf-9pr9v  ContainerCr…  +…nodeName node-01 +1
UPDATED  data       db-backup-5…24vf-9pr9v  Completed     …state → Completed +1
UPDATED  payments   checkout-4h…wnsg-7jssf  OOMKilled     …state → OOMKilled +1
DELETED  shop       web-lmpqq546w-sbhm4     Running
"
    );
}

#[test]
fn every_line_fits_every_width() {
    for width in 1..200 {
        for kinds in [&[kind("Pod")][..], &[kind("Pod"), kind("Node")], &[kind("Widget")], &[kind("Event")]] {
            for namespaces in [Namespaces::All, Namespaces::One] {
                let text = printed(Format::Table, kinds, namespaces, Some(width));
                let widest = text.lines().map(measure_text_width).max();
                assert!(widest <= Some(width), "{width}:\n{text}");
                assert_eq!(text.lines().count(), 7, "{text}");
            }
        }
    }
}

#[test]
fn nothing_is_shortened_without_a_terminal() {
    for format in [Format::Table, Format::Wide] {
        let text = printed(format, &[kind("Pod")], Namespaces::All, None);
        assert!(!text.contains('…') && !text.contains(" more"), "{text}");
        assert!(
            text.contains("status.containerStatuses[app].state running → terminated (OOMKilled)"),
            "{text}"
        );
    }
    let wide = printed(Format::Wide, &[kind("Pod")], Namespaces::All, Some(40));
    assert_eq!(wide, printed(Format::Wide, &[kind("Pod")], Namespaces::All, None));
}
