//! `informer get` run as a process: its output in each format, objects by name and exit codes.

#![allow(clippy::unwrap_used)]

mod common;

use common::{File, Live, TIMEOUT, UNREACHABLE, check};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;

/// Runs `informer get` on a small demo cluster, and returns stdout.
#[track_caller]
fn get(args: &[&str]) -> String {
    check(&[&["get"], args, &["--demo"]].concat(), 0).0
}

fn rows(table: &str) -> Vec<Vec<&str>> {
    table.lines().map(|line| line.split_whitespace().collect()).collect()
}

#[test]
fn table_has_objects_without_events() {
    let stdout = get(&["deployments", "-n", "shop"]);
    let rows = rows(&stdout);
    assert_eq!(rows[0], ["NAME", "READY", "UPDATED", "AGE"]);
    let names: Vec<&str> = rows[1..].iter().map(|row| row[0]).collect();
    assert_eq!(names, ["cart", "catalog", "search", "web"]);
    assert!(!stdout.contains('\u{1b}'), "no colors without a terminal");
}

#[test]
fn several_kinds_have_a_table_each_in_all_namespaces() {
    let stdout = get(&["nodes,deployments", "-A"]);
    let tables: Vec<&str> = stdout.split("\n\n").collect();
    assert_eq!(tables.len(), 2, "{stdout}");
    assert_eq!(rows(tables[0])[1][0], "node/node-01");
    assert_eq!(rows(tables[1])[0][..2], ["NAMESPACE", "NAME"]);
    assert!(rows(tables[1]).iter().any(|row| row[..2] == ["shop", "deployment.apps/web"]), "{stdout}");
}

#[test]
fn object_is_selected_by_name() {
    let json = |args: &[&str]| -> Value { serde_json::from_str(&get(args)).unwrap() };
    let one = json(&["deploy/web", "-n", "shop", "-o", "json"]);
    assert_eq!((&one["kind"], &one["metadata"]["name"]), (&json!("Deployment"), &json!("web")));
    let list = json(&["deploy/web", "-A", "-o", "json"]);
    assert_eq!((&list["kind"], &list["items"][0]["metadata"]["name"]), (&json!("List"), &json!("web")));
    let list = json(&["node/node-01", "node/node-02", "-o", "json"]);
    assert_eq!(list["kind"], "List");
    let names: Vec<&Value> =
        list["items"].as_array().unwrap().iter().map(|one| &one["metadata"]["name"]).collect();
    assert_eq!(names, [&json!("node-01"), &json!("node-02")]);
    let stdout = get(&["node/node-01", "-o", "yaml"]);
    let node: Value = serde_saphyr::from_str(&stdout).unwrap();
    assert_eq!((&node["kind"], &node["metadata"]["name"]), (&json!("Node"), &json!("node-01")));
}

#[test]
fn missing_object_is_an_error_after_the_others_are_printed() {
    let (stdout, stderr) = check(&["get", "node/node-01", "node/none", "-o", "name", "--demo"], 1);
    assert_eq!(stdout, "node/node-01\n");
    assert!(stderr.ends_with("error: not found: nodes/none\n"), "{stderr}");
    let (stdout, stderr) = check(&["get", "deploy/none", "-n", "shop", "-o", "json", "--demo"], 1);
    assert!(stdout.is_empty(), "{stdout}");
    assert!(
        stderr.ends_with("error: not found: deployments.apps/none (-A searches all namespaces)\n"),
        "{stderr}"
    );
}

#[test]
fn secret_values_are_never_printed() {
    let list: Value = serde_json::from_str(&get(&["secrets", "-A", "-o", "json"])).unwrap();
    let secrets = list["items"].as_array().unwrap();
    let mut values =
        secrets.iter().flat_map(|secret| secret["data"].as_object().unwrap().values()).peekable();
    assert!(values.peek().is_some() && values.all(|value| value == "<hidden>"), "{list}");
}

#[test]
fn no_objects_are_reported_on_stderr() {
    let (stdout, stderr) = check(&["get", "pods", "-n", "nowhere", "--demo"], 0);
    assert!(stdout.is_empty(), "{stdout}");
    assert!(stderr.ends_with("no pods found in namespace nowhere\n"), "{stderr}");
}

#[test]
fn watch_option_continues_with_events() {
    let live = Live::new(&["get", "pods", "-w", "-o", "json", "--demo"]);
    live.line(|line| line.contains("\"type\":\"ADDED\""));
    live.line(|line| line.contains("\"type\":\"UPDATED\""));
    live.signal("INT");
    let (code, stderr) = live.end();
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stderr.lines().last().unwrap().starts_with("watched pods for "), "{stderr}");
}

/// Regression: an interrupt before the objects were received ended `get` and `--once` with success and without output,
/// as if there were no objects. Ctrl-C was taken for the regular end, as it is for a watch. No test interrupted these
/// commands while they waited for the list.
#[test]
fn interrupt_before_the_objects_are_printed_is_an_error() {
    for args in [&["get", "pods"][..], &["get", "pods", "-o", "json"], &["watch", "pods", "--once"]] {
        for unanswered in ["/apis", "/api/v1/namespaces/shop/pods"] {
            let (address, requests) = serve_discovery(unanswered);
            let file = File::new("unanswered", &UNREACHABLE.replace("127.0.0.1:1", &address));
            let live = Live::new(&[args, &["--timeout", "1h", "--kubeconfig", file.path()]].concat());
            let _connection = requests.recv_timeout(TIMEOUT).expect("the request is sent");
            live.signal("INT");
            let (code, stderr) = live.end();
            assert_eq!(code, Some(130), "{args:?}: {stderr}");
            assert_eq!(
                stderr.lines().last(),
                Some("error: stopped before all objects were printed"),
                "{args:?}: {stderr}"
            );
        }
    }
}

/// Starts a server with the resource `pods` that never answers requests for one path; returns its address, and a
/// message for each such request.
fn serve_discovery(unanswered: &'static str) -> (String, mpsc::Receiver<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (send, requests) = mpsc::channel();
    let answer = move |mut stream: TcpStream| {
        let head = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
        let head: Vec<String> = head.take_while(|line| !line.is_empty()).collect();
        let path = head.first().and_then(|line| line.split([' ', '?']).nth(1)).unwrap_or_default();
        if path == unanswered {
            drop(send.send(stream));
            return;
        }
        let pods = json!({"name": "pods", "singularName": "pod", "kind": "Pod", "namespaced": true,
            "verbs": ["get", "list", "watch"]});
        let body = match path {
            "/apis" => json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": []}),
            _ => json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": [pods]}),
        };
        let body = body.to_string();
        let length = body.len();
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n";
        drop(write!(stream, "{head}Content-Length: {length}\r\n\r\n{body}"));
    };
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let answer = answer.clone();
            std::thread::spawn(move || answer(stream));
        }
    });
    (address, requests)
}

#[test]
fn invalid_command_line_exits_with_2_without_a_cluster() {
    for (args, expected) in [
        (&["get"][..], "<RESOURCE>"),
        (&["get", "pods", "-o", "xml"], "[possible values: table, wide, json, yaml, name]"),
    ] {
        let (stdout, stderr) = check(args, 2);
        assert!(stdout.is_empty() && stderr.contains(expected), "{args:?}: {stderr}");
    }
    for args in [["get", "pods/web-0", "-l", "a=b", "--demo"], ["get", "pods/", "-l", "a=b", "--demo"]] {
        let (stdout, stderr) = check(&args, 2);
        assert!(stdout.is_empty() && stderr.contains("error: "), "{args:?}: {stderr}");
    }
}
