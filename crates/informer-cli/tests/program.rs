//! The program as people use it: run as a process of its own, judged by what it prints and how it ends.

#![allow(clippy::unwrap_used)]

mod common;

use common::{DEADLINE, File, Live, UNREACHABLE, check, informer, read_all, run, text};
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
fn completions_come_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let (stdout, _) = check(&["completions", shell], 0);
        assert!(stdout.contains("apiserver"), "{shell}");
    }
}

#[test]
fn a_wrong_command_line_is_2() {
    for args in [
        &["nope"][..],
        &["watch"],
        &["watch", "pods", "-o", "xml"],
        &["watch", "pods", "-l", "a in x"],
        &["watch", "pods", "--resync", "soon"],
        &["watch", "pods", "-A", "-n", "shop"],
        &["watch", ","],
    ] {
        let (stdout, stderr) = check(args, 2);
        assert!(stdout.is_empty() && stderr.contains("error:"), "{args:?}: {stderr}");
    }
}

#[test]
fn an_unknown_resource_is_one_line_with_a_hint() {
    let (stdout, stderr) = check(&["watch", "pdos", "--once"], 1);
    assert!(stdout.is_empty());
    assert!(
        stderr.ends_with("error: the server has no resource \"pdos\" (did you mean pods?)\n"),
        "{stderr}"
    );
}

#[test]
fn once_prints_the_demo_cluster() {
    let (stdout, stderr) = check(&["watch", "pods,nodes", "deployments.apps", "--once", "-o", "json"], 0);
    assert!(stderr.starts_with("no kubeconfig and no service account found:"), "{stderr}");
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
fn every_format_prints_names_of_its_own() {
    let (stdout, _) = check(&["watch", "deployment", "-n", "shop", "--once", "-o", "name"], 0);
    let mut names: Vec<&str> = stdout.lines().collect();
    names.sort_unstable();
    assert_eq!(
        names,
        ["deployment.apps/cart", "deployment.apps/catalog", "deployment.apps/search", "deployment.apps/web"]
    );

    let (stdout, _) = check(&["watch", "deployments", "-n", "shop", "-l", "app=web", "--once"], 0);
    let rows: Vec<Vec<&str>> = stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["TIME", "TYPE", "NAMESPACE", "NAME", "READY", "UPDATED", "AGE", "CHANGES"]);
    assert_eq!(rows.len(), 2);
    assert_eq!(&rows[1][1..4], ["ADDED", "shop", "web"]);
    assert!(!stdout.contains('\u{1b}'), "no colours where nobody sees them");

    let (stdout, _) =
        check(&["watch", "nodes", "--field-selector", "metadata.name=node-01", "--once", "-o", "yaml"], 0);
    assert!(stdout.starts_with("---\n# ") && stdout.contains("\n  name: node-01\n"), "{stdout}");
}

#[test]
fn secrets_are_never_shown() {
    let (stdout, _) = check(&["watch", "secrets", "--once", "-o", "json"], 0);
    assert!(stdout.lines().count() >= 5);
    for line in stdout.lines() {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        let data = event["object"]["data"].as_object().unwrap();
        assert!(data.contains_key("password") && data.values().all(|value| value == "<hidden>"), "{line}");
    }
}

#[test]
fn what_is_not_there_is_not_an_error() {
    let (stdout, stderr) = check(&["watch", "pods", "-n", "nowhere", "--once"], 0);
    assert!(stdout.is_empty() && stderr.contains("0 pods"), "{stderr}");
}

#[test]
fn a_kubeconfig_that_was_named_is_used_or_an_error() {
    let (_, stderr) = check(&["watch", "pods", "--once", "--kubeconfig", "/nonexistent/config"], 1);
    assert!(stderr.contains("error: the kubeconfig /nonexistent/config cannot be read"), "{stderr}");

    let broken = File::new("broken", "users:\n- name: me\n  user: {token: hunter2\ncontexts: [");
    let (_, stderr) = check(&["watch", "pods", "--once", "--kubeconfig", broken.path()], 1);
    assert!(stderr.contains("is not valid") && !stderr.contains("hunter2"), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");

    let mut command = informer(&["watch", "pods", "--once"]);
    command.env("KUBECONFIG", broken.path());
    let output = run(command);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("error: the kubeconfig $KUBECONFIG is not valid"));
}

#[test]
fn a_server_that_is_not_there_is_said() {
    let file = File::new("unreachable", UNREACHABLE);
    let (stdout, stderr) =
        check(&["watch", "pods", "--once", "--kubeconfig", file.path(), "--timeout", "20s"], 1);
    assert!(stdout.is_empty());
    assert!(stderr.starts_with("error: http://127.0.0.1:1 cannot be reached:"), "{stderr}");
    let (_, stderr) = check(&["watch", "pods", "--kubeconfig", file.path(), "--context", "nowhere"], 1);
    assert!(stderr.contains("no context \"nowhere\" (it has here, there)"), "{stderr}");
}

/// A context whose user was not in the file asked as nobody, and nobody was told.
#[test]
fn a_user_that_is_not_there_is_said() {
    let file = File::new("no-user", &UNREACHABLE.replace("{name: u, user: {}}", ""));
    let (_, stderr) = check(&["watch", "pods", "--once", "--kubeconfig", file.path()], 1);
    assert!(stderr.contains("has no user \"u\"; asking without credentials\n"), "{stderr}");
}

/// A token written as a block has a line break at its end, and the program panicked over it.
#[test]
fn a_token_with_a_line_break_is_one_line() {
    let token = "users:\n- name: u\n  user:\n    token: |\n      hunter2\n";
    let file = File::new("token", &UNREACHABLE.replace("users: [{name: u, user: {}}]\n", token));
    let (stdout, stderr) = check(&["watch", "pods", "--once", "--kubeconfig", file.path()], 1);
    assert!(stdout.is_empty() && stderr.lines().count() == 1 && !stderr.contains("hunter2"), "{stderr}");
    assert!(stderr.starts_with("error: no client for http://127.0.0.1:1"), "{stderr}");
    assert!(stderr.ends_with("(is there a line break in the user's token?)\n"), "{stderr}");
}

#[test]
fn without_arguments_it_shows_a_live_stream_until_it_is_interrupted() {
    let live = Live::new(&[]);
    live.line(|line| line.contains("ADDED"));
    live.line(|line| line.contains("UPDATED") && line.contains('→'));
    live.signal("INT");
    let (code, said) = live.end();
    assert_eq!(code, Some(0), "{said}");
    let summary = said.lines().last().unwrap();
    assert!(
        summary.starts_with("watched pods for ")
            && summary.contains(" added, ")
            && summary.ends_with("; 0 relists"),
        "{said}"
    );
}

#[test]
fn a_resync_tells_everything_again() {
    let live = Live::new(&["watch", "namespaces", "--resync", "1s", "-o", "json"]);
    let resync = live.line(|line| line.contains("\"RESYNC\""));
    assert!(resync.contains("\"changes\":[]"), "{resync}");
    live.signal("TERM");
    let (code, said) = live.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains(" resynced"), "{said}");
}

#[test]
fn when_nobody_reads_any_more_it_ends_quietly() {
    let mut child = informer(&["watch", "pods", "-o", "json", "--demo=200"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let errors = read_all(child.stderr.take().unwrap());
    let mut some = [0; 1000];
    child.stdout.take().unwrap().read_exact(&mut some).unwrap();
    let said = text(&errors.recv_timeout(DEADLINE).expect("it ends"));
    assert_eq!(child.wait().unwrap().code(), Some(0), "{said}");
    assert!(!said.contains("error"), "{said}");
}

/// With a reader that had stopped reading (a pager), an interrupt waited for that reader, for as long as it took.
#[test]
fn a_stalled_reader_keeps_nobody_from_ending_it() {
    for (format, demo) in [("json", "--demo=300"), ("wide", "--demo=900")] {
        let mut child = informer(&["watch", "pods", "-o", format, demo])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let errors = read_all(child.stderr.take().unwrap());
        let mut stdout = child.stdout.take().unwrap();
        // Far less than there is to print, and more than a pipe holds: it goes on printing, and gets stuck.
        stdout.read_exact(&mut vec![0; 80_000]).unwrap();
        interrupt(&child);
        let said = errors.recv_timeout(Duration::from_secs(30));
        if said.is_err() {
            child.kill().unwrap();
        }
        let (code, said) = (child.wait().unwrap().code(), text(&said.expect("it ends")));
        assert_eq!(code, Some(0), "{said}");
        assert!(said.lines().last().unwrap().starts_with("watched pods for "), "{said}");
        drop(stdout);
    }
}

/// Until the informers were started nobody listened: an interrupt waited for the server's answer, or for the demo to stand.
#[test]
fn before_anything_is_watched_it_can_be_stopped() {
    // It takes connections, and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let file = File::new("silent", &UNREACHABLE.replace("127.0.0.1:1", &address));
    let live = Live::new(&["watch", "pods", "--timeout", "1h", "--kubeconfig", file.path()]);
    let _asked = silent.accept().unwrap();
    live.signal("INT");
    let (code, said) = live.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.ends_with("stopped before anything was watched\n"), "{said}");

    let mut child = informer(&["watch", "pods", "--timeout", "1h", "--demo=20000", "--once"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut first = String::new();
    errors.read_line(&mut first).unwrap();
    assert!(first.starts_with("starting an embedded API server"), "{first}");
    interrupt(&child);
    let said = text(&read_all(errors).recv_timeout(DEADLINE).expect("it ends"));
    assert_eq!(
        (child.wait().unwrap().code(), said.as_str()),
        (Some(0), "stopped before anything was watched\n")
    );
}

fn interrupt(child: &Child) {
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-s", "INT", &id]).status().unwrap().success());
}

/// The time that --timeout gives did not count while the demo was built.
#[test]
fn a_demo_that_takes_too_long_is_said() {
    let (_, stderr) = check(&["watch", "pods", "--once", "--demo=20000", "--timeout", "500ms"], 1);
    assert!(stderr.ends_with("does not stand within 500ms (--timeout gives it longer)\n"), "{stderr}");
}

/// A field that the server cannot select on read as a server that is down, after all the time there was.
#[test]
fn a_selector_that_the_server_refuses_is_said_at_once() {
    for more in [&["--once"][..], &[]] {
        let args =
            ["watch", "pods", "nodes", "--demo=1", "--timeout", "1h", "--field-selector", "spec.foo=x"];
        let (stdout, stderr) = check(&[&args[..], more].concat(), 1);
        assert!(stdout.is_empty());
        let last = stderr.lines().last().unwrap();
        assert!(last.starts_with("error: ") && last.contains("spec.foo"), "{stderr}");
        assert!(last.ends_with("(the server cannot select on that)"), "{stderr}");
    }
}
