//! `informer apiserver` on a socket, and other processes that connect to it.

#![allow(clippy::unwrap_used)]

mod common;

use common::{File, Live, Server, TIMEOUT, check, fresh, informer, run, runtime, text};
use informer::shard::ShardGroup;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

/// Regression: the kubeconfig stayed after the server had stopped, and the same command failed the next time.
#[test]
fn server_is_watched_by_another_process() {
    let (server, first) = Server::start("socket", &["--demo"]);
    let path = server.file.path();
    assert!(
        first.starts_with("serving Kubernetes with a demo cluster of about 40 pods at https://127.0.0.1:"),
        "{first}"
    );

    let watch = ["watch", "deployments", "-A", "--once", "-o", "name", "--kubeconfig", path];
    let seen = run(informer(&watch));
    assert_eq!(seen.status.code(), Some(0), "{}", text(&seen.stderr));
    assert!(text(&seen.stdout).contains("deployment.apps/"), "{}", text(&seen.stdout));

    let (_, again) = check(&["apiserver", "--kubeconfig", path], 1);
    assert!(again.contains("already exists (use --overwrite"), "{again}");
    let port = first.rsplit(':').next().unwrap().split(';').next().unwrap();
    let other = fresh("in-use");
    let (_, taken) = check(&["apiserver", "--port", port, "--kubeconfig", other.path()], 1);
    assert!(
        taken.contains(&format!("listen on 127.0.0.1:{port}: address in use (choose another with --port")),
        "{taken}"
    );
    assert!(!other.0.exists(), "a failed start must not write a kubeconfig");

    let file = server.stop();
    assert!(!file.0.exists(), "the kubeconfig must be removed");
}

#[test]
fn overwrite_replaces_kubeconfig_and_exit_keeps_that_of_another_server() {
    let (server, _) = Server::start("overwrite", &[]);
    let first = std::fs::read_to_string(server.file.path()).unwrap();
    let args = ["apiserver", "--overwrite", "--kubeconfig", server.file.path()];
    let mut second = informer(&args).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(second.stderr.take().unwrap()).lines();
    stderr.next().unwrap().unwrap();
    let now = std::fs::read_to_string(server.file.path()).unwrap();
    assert!(now != first && now.contains("token"), "the kubeconfig must be that of the second server");

    // The first server must not remove the kubeconfig of the second.
    let file = server.stop();
    assert_eq!(std::fs::read_to_string(file.path()).unwrap(), now);
    let id = second.id().to_string();
    assert!(Command::new("kill").args(["-s", "TERM", &id]).status().unwrap().success());
    assert_eq!(second.wait().unwrap().code(), Some(0));
    assert!(!file.0.exists());
}

#[test]
fn wrong_token_is_reported() {
    let (server, _) = Server::start("wrong-token", &[]);
    let kubeconfig = std::fs::read_to_string(server.file.path()).unwrap();
    let lines = kubeconfig.lines().map(|line| match line.split_once("token:") {
        Some((before, _)) => format!("{before}token: hunter2"),
        None => line.to_owned(),
    });
    let file = File::new("wrong-token-2", &lines.collect::<Vec<_>>().join("\n"));
    let (stdout, stderr) = check(&["watch", "pods", "--once", "--kubeconfig", file.path()], 1);
    assert!(stdout.is_empty() && !stderr.contains("hunter2"), "{stderr}");
    assert!(stderr.ends_with("credentials rejected (have they expired?)\n"), "{stderr}");
    server.stop();
}

#[test]
fn updates_of_secrets_print_keys_only() {
    let (server, _) = Server::start("secrets", &[]);
    let runtime = runtime();
    let secrets: kube::Api<k8s_openapi::api::core::v1::Secret> =
        kube::Api::namespaced(server.client(&runtime), "default");
    let write = |value: &str| {
        let secret = serde_json::json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db"}, "stringData": {"password": value},
        });
        let apply = kube::api::PatchParams::apply("test").force();
        runtime.block_on(secrets.patch("db", &apply, &kube::api::Patch::Apply(&secret))).unwrap();
    };
    write("hunter1");
    for format in ["table", "wide", "json", "yaml"] {
        let live = Live::new(&["watch", "secrets", "-o", format, "--kubeconfig", server.file.path()]);
        live.line(|line| line.contains("db"));
        write(&format!("hunter2-{format}"));
        let mut printed = Vec::new();
        live.line(|line| {
            printed.push(line.to_owned());
            line.contains("UPDATED")
        });
        live.signal("INT");
        let (code, stderr) = live.end();
        assert_eq!(code, Some(0), "{stderr}");
        let printed = printed.join("\n");
        assert!(printed.contains("data.password"), "{printed}");
        // Neither plain nor base64.
        assert!(!printed.contains("hunter") && !printed.contains("aHVudGVy"), "{printed}");
    }
    server.stop();
}

/// Runs the completion function of bash as the shell does, for the last word after the name of the program.
fn completed(words: &[&str], path: &str) -> Option<Vec<String>> {
    let script = format!(
        "source <({program} completions bash) || exit 1
        COMP_WORDS=({program} \"$@\"); COMP_CWORD=$#; COMPREPLY=()
        _informer_cluster {program} \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"
        printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        program = env!("CARGO_BIN_EXE_informer"),
    );
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", &script, "bash"]).args(words).env_clear().env("PATH", "/usr/bin:/bin");
    bash.env("HOME", "/nonexistent").env("KUBECONFIG", path).stdin(Stdio::null());
    if let Err(error) = Command::new("bash").arg("--version").output() {
        println!("no completion is tested: bash: {error}");
        return None;
    }
    let output = run(bash);
    assert_eq!(text(&output.stderr), "", "{words:?}");
    Some(text(&output.stdout).lines().map(str::to_owned).collect())
}

#[test]
fn bash_completes_resources_and_namespaces_of_the_cluster() {
    let (server, _) = Server::start("completion", &[]);
    for (words, expected) in [
        (&["get", "deploy"][..], &["deployments"][..]),
        (&["watch", "-A", "configm"], &["configmaps"]),
        (&["watch", "pods,statefuls"], &["pods,statefulsets"]),
        (&["watch", "pods", "-n", "kube-sy"], &["kube-system"]),
        (&["watch", "pods", "--namespace", "=", "kube-sy"], &["kube-system"]),
        (&["watch", "--all-n"], &["--all-namespaces"]),
        (&["apis"], &["apiserver"]),
    ] {
        let Some(found) = completed(words, server.file.path()) else { break };
        assert_eq!(found, expected, "{words:?}");
    }
    server.stop();
    // Without a cluster, options are completed, and no error is printed.
    if let Some(found) = completed(&["get", "deploy"], "/nonexistent/config") {
        assert_eq!(found, [""]);
    }
}

/// Objects in a cluster must not control the terminals of users who watch it.
#[test]
fn control_characters_from_cluster_are_escaped() {
    let (server, _) = Server::start("escapes", &[]);
    let runtime = runtime();
    let maps: kube::Api<k8s_openapi::api::core::v1::ConfigMap> =
        kube::Api::namespaced(server.client(&runtime), "default");
    let map = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "evil", "labels": {"a": "b"}, "annotations": {"note": "\u{1b}]0;title\u{7}\u{9b}2J"}},
        "data": {"k": "\u{1b}[31mred\u{202e}\r"},
    }));
    runtime.block_on(maps.create(&kube::api::PostParams::default(), &map.unwrap())).unwrap();
    for format in ["table", "wide", "json", "yaml", "name"] {
        let args = ["watch", "configmaps", "--once", "-o", format, "--kubeconfig", server.file.path()];
        let (stdout, _) = check(&args, 0);
        assert!(stdout.contains("evil"), "{format}: {stdout}");
        let bad =
            stdout.chars().find(|letter| *letter != '\n' && (letter.is_control() || *letter == '\u{202e}'));
        assert_eq!(bad, None, "{format}: {stdout:?}");
    }
    server.stop();
}

#[test]
fn shards_shows_the_members_of_a_group_and_their_ranges() {
    let (server, _) = Server::start("shards", &[]);
    let path = server.file.path();
    let (stdout, stderr) = check(&["shards", "default/shop", "--kubeconfig", path], 1);
    assert!(stdout.is_empty() && stderr.contains("shard group default/shop does not exist ("), "{stderr}");

    let runtime = runtime();
    let client = server.client(&runtime);
    let group =
        ShardGroup::builder(client, "default", "shop").identity("web-0").revision("r1").build().unwrap();
    let member = group.clone();
    let member = runtime.spawn(async move { member.run(std::future::pending()).await });
    let settled = async { group.subscribe_status().wait_for(|status| status.is_settled).await.map(drop) };
    runtime.block_on(async { tokio::time::timeout(TIMEOUT, settled).await }).unwrap().unwrap();

    let (stdout, _) = check(&["shards", "default/shop", "--kubeconfig", path], 0);
    let rows: Vec<Vec<&str>> = stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[1][..6], ["web-0", "coordinator", "256", "256", "r1", "namespace"], "{stdout}");
    assert_eq!(rows[4], ["0000-ffff", "256", "web-0", "Owned", "1", "web-0"], "{stdout}");

    let (stdout, _) = check(&["shards", "default/shop", "-o", "json", "--kubeconfig", path], 0);
    let json: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(json["ranges"].as_array().map(Vec::len), Some(256));
    assert_eq!(json["members"][0]["claims"], "0000000000000000-ffffffffffffffff");
    assert_eq!(json["members"][0]["key"], "namespace");
    assert_eq!(json["ranges"][0]["claimedBy"], "web-0");

    // Bug: without an assignment that can be read, the member seemed to have no ranges.
    member.abort();
    assert!(runtime.block_on(member).is_err());
    let maps: kube::Api<k8s_openapi::api::core::v1::ConfigMap> =
        kube::Api::namespaced(server.client(&runtime), "default");
    let edited = kube::api::Patch::Merge(serde_json::json!({"data": {"assignment": "{}"}}));
    runtime.block_on(maps.patch("shop-assignment", &kube::api::PatchParams::default(), &edited)).unwrap();
    for lag in ["older", "-"] {
        let (stdout, stderr) = check(&["shards", "default/shop", "--kubeconfig", path], 0);
        let rows: Vec<Vec<&str>> = stdout.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!((rows.len(), &rows[1][2..6]), (2, &["-", "-", "r1", "namespace"][..]), "{stdout}");
        assert_eq!(rows[1].last(), Some(&lag), "{stdout}");
        let warning =
            "warning: shard group default/shop: no readable assignment (is a coordinator running?)\n";
        assert_eq!(stderr, warning);
        if lag == "older" {
            let parameters = kube::api::DeleteParams::default();
            runtime.block_on(maps.delete("shop-assignment", &parameters)).unwrap();
        }
    }
    server.stop();
}
