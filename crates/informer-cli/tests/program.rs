//! The program run as a process: its output and exit codes.

#![allow(clippy::unwrap_used)]

mod common;

use common::{File, Live, TIMEOUT, UNREACHABLE, check, informer, read_all, run, text};
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

#[test]
fn help_has_examples_and_exit_codes() {
    let (stdout, _) = check(&["--help"], 0);
    assert!(
        stdout.contains("watch") && stdout.contains("apiserver") && stdout.contains("Exit codes:"),
        "{stdout}"
    );
    let (stdout, _) = check(&["watch", "--help"], 0);
    assert!(
        stdout.contains("Examples:") && stdout.contains("<hidden>") && stdout.contains("Exit codes:"),
        "{stdout}"
    );
    check(&["apiserver", "--help"], 0);
    let (stdout, _) = check(&["--version"], 0);
    assert!(stdout.starts_with("informer "), "{stdout}");
}

#[test]
fn book_contains_the_help_of_every_command() {
    let page = include_str!("../../../docs/book/src/reference/cli.md");
    for command in ["", "watch", "get", "apiserver", "shards", "explain", "completions", "man"] {
        let args: Vec<&str> = [command, "--help"].into_iter().filter(|arg| !arg.is_empty()).collect();
        let (stdout, _) = check(&args, 0);
        let lines: Vec<&str> = stdout.trim_end().lines().map(str::trim_end).collect();
        let block = format!("```text\n{}\n```\n", lines.join("\n"));
        assert!(page.contains(&block), "docs/book/src/reference/cli.md must contain:\n{block}");
    }
}

#[test]
fn manual_pages_are_printed() {
    let (stdout, _) = check(&["man"], 0);
    assert!(stdout.contains(".TH informer 1"), "{stdout}");
    let (stdout, _) = check(&["man", "watch"], 0);
    assert!(stdout.contains(".TH informer-watch 1"), "{stdout}");
    let (_, stderr) = check(&["man", "unknown"], 2);
    assert!(stderr.starts_with("error: unknown command \"unknown\" (commands: watch, get, "), "{stderr}");
}

/// Regression: `informer explain | head -1` ended with a panic, because the reader had closed the pipe.
#[test]
fn closed_output_is_not_an_error() {
    for args in [&["explain"][..], &["man"], &["completions", "bash"], &["get", "pods", "--demo"]] {
        let mut child = informer(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let errors = read_all(child.stderr.take().unwrap());
        let stderr = text(&errors.recv_timeout(TIMEOUT).expect("the program did not exit in time"));
        assert!(child.wait().unwrap().success() && !stderr.contains("panicked"), "{args:?}: {stderr}");
    }
}

#[test]
fn colors_are_a_choice() {
    let output = |args: &[&str], no_color: bool| {
        let mut command = informer(args);
        if no_color {
            command.env("NO_COLOR", "1");
        }
        let output = run(command);
        (text(&output.stdout), text(&output.stderr))
    };
    let is_colored =
        |(stdout, stderr): (String, String)| (stdout.contains('\u{1b}'), stderr.contains('\u{1b}'));
    let get = ["get", "nodes", "--demo"];
    assert_eq!(is_colored(output(&get, false)), (false, false), "no terminal");
    let always = [&get[..], &["--color", "always"]].concat();
    assert_eq!(is_colored(output(&always, false)), (true, true));
    // An explicit choice is stronger than the environment.
    assert_eq!(is_colored(output(&always, true)), (true, true));
    // Data is never colored.
    assert!(!is_colored(output(&[&always[..], &["-o", "json"]].concat(), false)).0);
    // Errors of the command line, too.
    assert_eq!(is_colored(output(&["--color=always", "get"], false)), (false, true));
    assert_eq!(is_colored(output(&["--color=never", "get"], false)), (false, false));
    assert_eq!(is_colored(output(&["--color=always", "pods"], false)), (false, true));
    assert_eq!(is_colored(output(&["--color=always", "get", "--demo", "7"], false)), (false, true));
}

#[test]
fn completions_support_every_shell() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let (stdout, _) = check(&["completions", shell], 0);
        assert!(stdout.contains("apiserver"), "{shell}");
    }
}

#[test]
fn invalid_command_line_exits_with_2() {
    for args in [
        &["nope"][..],
        &["watch"],
        &["watch", "pods", "-o", "xml"],
        &["watch", "pods", "-l", "a in x"],
        &["watch", "pods", "--resync-period", "soon"],
        &["watch", "pods", "-A", "-n", "shop"],
        &["watch", ",", "--demo"],
    ] {
        let (stdout, stderr) = check(args, 2);
        assert!(stdout.is_empty() && stderr.contains("error:"), "{args:?}: {stderr}");
    }
}

/// Regression: in `--demo 100`, the number was an unknown resource after the start of a demo cluster, an unknown
/// command, or an unexpected argument, depending on the command.
#[test]
fn number_after_demo_is_an_error_with_hint() {
    for args in [
        &["--demo", "100"][..],
        &["watch", "--demo", "100", "pods"],
        &["get", "pods", "--demo=100"],
        &["apiserver", "--demo", "100"],
    ] {
        let (stdout, stderr) = check(args, 2);
        assert!(stdout.is_empty());
        assert_eq!(
            stderr, "error: --demo takes no value (set the number of pods with --demo-pods 100)\n",
            "{args:?}"
        );
    }
}

#[test]
fn unknown_resource_is_one_line_with_hint() {
    let (stdout, stderr) = check(&["watch", "pdos", "--once", "--demo"], 1);
    assert!(stdout.is_empty());
    assert!(
        stderr.ends_with("error: the server has no resource \"pdos\" (did you mean pods?)\n"),
        "{stderr}"
    );
}

/// Regression: `informer watch pods` without a kubeconfig showed a demo cluster instead of an error.
#[test]
fn resource_without_cluster_is_an_error_with_hint() {
    let (stdout, stderr) = check(&["watch", "pods", "--once"], 1);
    assert!(stdout.is_empty());
    assert_eq!(
        stderr,
        "error: no kubeconfig and no service account found (pass --kubeconfig FILE, or --demo for a simulated cluster)\n"
    );
}

#[test]
fn once_prints_demo_cluster() {
    let (stdout, stderr) =
        check(&["watch", "pods,nodes", "deployments.apps", "--once", "-o", "json", "--demo"], 0);
    assert!(stderr.starts_with("starting an embedded API server with a demo cluster"), "{stderr}");
    let mut kinds = std::collections::BTreeMap::new();
    for line in stdout.lines() {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(event["type"], "ADDED");
        assert!(event["time"].is_string() && event["changes"] == serde_json::json!([]));
        *kinds.entry(event["resource"].as_str().unwrap().to_owned()).or_insert(0) += 1;
    }
    assert!(kinds["pods"] > 20 && kinds["nodes"] == 3 && kinds["deployments.apps"] == 10, "{kinds:?}");
}

#[test]
fn formats_name_and_table_and_yaml_print_selected_objects() {
    let (stdout, _) = check(&["watch", "deployment", "-n", "shop", "--once", "-o", "name", "--demo"], 0);
    let mut names: Vec<&str> = stdout.lines().collect();
    names.sort_unstable();
    assert_eq!(
        names,
        ["deployment.apps/cart", "deployment.apps/catalog", "deployment.apps/search", "deployment.apps/web"]
    );

    let (stdout, _) = check(&["watch", "deployments", "-n", "shop", "-l", "app=web", "--once", "--demo"], 0);
    let rows: Vec<Vec<&str>> = stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["TIME", "TYPE", "NAMESPACE", "NAME", "READY", "UPDATED", "AGE", "CHANGES"]);
    assert_eq!(rows.len(), 2);
    assert_eq!(&rows[1][1..4], ["ADDED", "shop", "web"]);
    assert!(!stdout.contains('\u{1b}'), "no colors without a terminal");

    let (stdout, _) = check(
        &["watch", "nodes", "--field-selector", "metadata.name=node-01", "--once", "-o", "yaml", "--demo"],
        0,
    );
    assert!(stdout.starts_with("---\n# ") && stdout.contains("\n  name: node-01\n"), "{stdout}");
}

#[test]
fn secret_values_are_never_printed() {
    let (stdout, _) = check(&["watch", "secrets", "--once", "-o", "json", "--demo"], 0);
    assert!(stdout.lines().count() >= 5);
    for line in stdout.lines() {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        let data = event["object"]["data"].as_object().unwrap();
        assert!(data.contains_key("password") && data.values().all(|value| value == "<hidden>"), "{line}");
    }
}

#[test]
fn empty_namespace_is_not_an_error() {
    let (stdout, stderr) = check(&["watch", "pods", "-n", "nowhere", "--once", "--demo"], 0);
    assert!(stdout.is_empty() && stderr.contains("0 pods"), "{stderr}");
}

#[test]
fn explicit_kubeconfig_is_used_or_an_error() {
    let (_, stderr) = check(&["watch", "pods", "--once", "--kubeconfig", "/nonexistent/config"], 1);
    assert!(stderr.contains("error: read kubeconfig /nonexistent/config: "), "{stderr}");

    let broken = File::new("broken", "users:\n- name: me\n  user: {token: hunter2\ncontexts: [");
    let (_, stderr) = check(&["watch", "pods", "--once", "--kubeconfig", broken.path()], 1);
    assert!(stderr.contains("is invalid") && !stderr.contains("hunter2"), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");

    let mut command = informer(&["watch", "pods", "--once"]);
    command.env("KUBECONFIG", broken.path());
    let output = run(command);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("error: kubeconfig $KUBECONFIG is invalid"));
}

#[test]
fn unreachable_server_is_reported() {
    let file = File::new("unreachable", UNREACHABLE);
    let (stdout, stderr) =
        check(&["watch", "pods", "--once", "--kubeconfig", file.path(), "--timeout", "20s"], 1);
    assert!(stdout.is_empty());
    assert!(stderr.starts_with("error: connect to http://127.0.0.1:1: "), "{stderr}");
    let (_, stderr) = check(&["watch", "pods", "--kubeconfig", file.path(), "--context", "nowhere"], 1);
    assert!(stderr.contains("no context \"nowhere\" (available: here, there)"), "{stderr}");
}

/// Regression: `informer shards` proposed a demo cluster, which it does not have, and gave no hint for failed requests.
#[test]
fn shards_reports_failures_with_its_own_hints() {
    let (_, stderr) = check(&["shards", "default/shop"], 1);
    assert_eq!(stderr, "error: no kubeconfig and no service account found (pass --kubeconfig FILE)\n");
    let (_, stderr) = check(&["shards", "default/shop", "--kubeconfig", "/nonexistent/config"], 1);
    assert!(stderr.ends_with(" (use another with --kubeconfig)\n"), "{stderr}");
    let file = File::new("shards-unreachable", UNREACHABLE);
    let (stdout, stderr) = check(&["shards", "default/shop", "--kubeconfig", file.path()], 1);
    assert!(stdout.is_empty() && stderr.starts_with("error: shard group default/shop: "), "{stderr}");
    assert!(stderr.ends_with(" (is the server running and reachable?)\n"), "{stderr}");
}

/// Regression: a context with a missing user connected anonymously without a warning.
#[test]
fn missing_user_is_reported() {
    let file = File::new("no-user", &UNREACHABLE.replace("{name: u, user: {}}", ""));
    let (_, stderr) = check(&["watch", "pods", "--once", "--kubeconfig", file.path()], 1);
    assert!(stderr.contains("has no user \"u\"; connecting without credentials\n"), "{stderr}");
}

/// Regression: a token in a YAML block ends with a line break, which caused a panic.
#[test]
fn token_with_line_break_is_a_one_line_error() {
    let token = "users:\n- name: u\n  user:\n    token: |\n      hunter2\n";
    let file = File::new("token", &UNREACHABLE.replace("users: [{name: u, user: {}}]\n", token));
    let (stdout, stderr) = check(&["watch", "pods", "--once", "--kubeconfig", file.path()], 1);
    assert!(stdout.is_empty() && stderr.lines().count() == 1 && !stderr.contains("hunter2"), "{stderr}");
    assert!(stderr.starts_with("error: create client for http://127.0.0.1:1"), "{stderr}");
    assert!(stderr.ends_with("(does the user's token contain a line break?)\n"), "{stderr}");
}

#[test]
fn default_command_watches_until_interrupted() {
    let live = Live::new(&[]);
    live.line(|line| line.contains("ADDED"));
    live.line(|line| line.contains("UPDATED") && line.contains('→'));
    live.signal("INT");
    let (code, stderr) = live.end();
    assert_eq!(code, Some(0), "{stderr}");
    let summary = stderr.lines().last().unwrap();
    assert!(
        summary.starts_with("watched pods for ")
            && summary.contains(" added, ")
            && summary.ends_with("; 0 relists"),
        "{stderr}"
    );
}

#[test]
fn resync_period_prints_objects_again() {
    let live = Live::new(&["watch", "namespaces", "--resync-period", "1s", "-o", "json", "--demo"]);
    let resync = live.line(|line| line.contains("\"RESYNC\""));
    assert!(resync.contains("\"changes\":[]"), "{resync}");
    live.signal("TERM");
    let (code, stderr) = live.end();
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stderr.contains(" resynced"), "{stderr}");
}

#[test]
fn closed_pipe_ends_without_error() {
    let mut child = informer(&["watch", "pods", "-o", "json", "--demo-pods", "200"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let errors = read_all(child.stderr.take().unwrap());
    let mut some = [0; 1000];
    child.stdout.take().unwrap().read_exact(&mut some).unwrap();
    let stderr = text(&errors.recv_timeout(TIMEOUT).expect("the program did not exit in time"));
    assert_eq!(child.wait().unwrap().code(), Some(0), "{stderr}");
    assert!(!stderr.contains("error"), "{stderr}");
}

/// Regression: if the reader (a pager) had stopped reading, an interrupt waited for it indefinitely.
#[test]
fn interrupt_ends_program_with_stalled_reader() {
    for (format, pods) in [("json", "300"), ("wide", "900")] {
        let mut child = informer(&["watch", "pods", "-o", format, "--demo-pods", pods])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let errors = read_all(child.stderr.take().unwrap());
        let mut stdout = child.stdout.take().unwrap();
        // Far less than the output, and more than a pipe holds: the program continues to print and blocks.
        stdout.read_exact(&mut vec![0; 80_000]).unwrap();
        interrupt(&child);
        let stderr = errors.recv_timeout(Duration::from_secs(30));
        if stderr.is_err() {
            child.kill().unwrap();
        }
        let (code, stderr) =
            (child.wait().unwrap().code(), text(&stderr.expect("the program did not exit in time")));
        assert_eq!(code, Some(0), "{stderr}");
        assert!(stderr.lines().last().unwrap().starts_with("watched pods for "), "{stderr}");
        drop(stdout);
    }
}

/// Regression: before the informers were started, an interrupt waited for the server's response or the demo cluster.
#[test]
fn interrupt_ends_program_before_watch_starts() {
    // Accepts connections and never responds.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let file = File::new("silent", &UNREACHABLE.replace("127.0.0.1:1", &address));
    let live = Live::new(&["watch", "pods", "--timeout", "1h", "--kubeconfig", file.path()]);
    let _connection = silent.accept().unwrap();
    live.signal("INT");
    let (code, stderr) = live.end();
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stderr.ends_with("stopped before the watch started\n"), "{stderr}");

    let mut child = informer(&["watch", "pods", "--timeout", "1h", "--demo-pods", "20000", "--once"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut first = String::new();
    errors.read_line(&mut first).unwrap();
    assert!(first.starts_with("starting an embedded API server"), "{first}");
    interrupt(&child);
    let stderr = text(&read_all(errors).recv_timeout(TIMEOUT).expect("the program did not exit in time"));
    assert_eq!(
        (child.wait().unwrap().code(), stderr.as_str()),
        (Some(130), "error: stopped before all objects were printed\n")
    );
}

fn interrupt(child: &Child) {
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-s", "INT", &id]).status().unwrap().success());
}

/// Regression: --timeout did not apply while the demo cluster was built.
#[test]
fn timeout_applies_to_demo_cluster() {
    let (_, stderr) = check(&["watch", "pods", "--once", "--demo-pods", "20000", "--timeout", "500ms"], 1);
    assert!(stderr.ends_with("timed out after 500ms (increase --timeout)\n"), "{stderr}");
}

/// Regression: an unsupported field selector was reported as an unreachable server, and only after the timeout.
#[test]
fn unsupported_selector_is_reported_immediately() {
    for more in [&["--once"][..], &[]] {
        let args = [
            "watch",
            "pods",
            "nodes",
            "--demo-pods",
            "1",
            "--timeout",
            "1h",
            "--field-selector",
            "spec.foo=x",
        ];
        let (stdout, stderr) = check(&[&args[..], more].concat(), 1);
        assert!(stdout.is_empty());
        let last = stderr.lines().last().unwrap();
        assert!(last.starts_with("error: ") && last.contains("spec.foo"), "{stderr}");
        assert!(last.ends_with("(check the selectors)"), "{stderr}");
    }
}
