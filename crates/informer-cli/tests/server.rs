//! The server of the program on a socket, and other processes that watch it.

#![allow(clippy::unwrap_used)]

mod common;

use common::{File, Live, check, fresh, informer, run, text};
use std::io::{BufRead as _, BufReader, Lines};
use std::process::{Child, ChildStderr, Command, Stdio};

/// A server that runs.
struct Server {
    child: Child,
    said: Lines<BufReader<ChildStderr>>,
    file: File,
}

impl Server {
    /// Starts it, and waits for its first line.
    fn start(name: &str, more: &[&str]) -> (Self, String) {
        let file = fresh(name);
        let args = [&["apiserver", "--kubeconfig", file.path()], more].concat();
        let mut child = informer(&args).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
        let first = said.next().unwrap().unwrap();
        (Self { child, said, file }, first)
    }

    fn client(&self, runtime: &tokio::runtime::Runtime) -> kube::Client {
        runtime.block_on(async {
            let kubeconfig = kube::config::Kubeconfig::read_from(self.file.path()).unwrap();
            let options = kube::config::KubeConfigOptions::default();
            let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
            informer::client(config).unwrap()
        })
    }

    /// Asks it to end, and waits for that.
    fn stop(mut self) -> File {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", "INT", &id]).status().unwrap().success());
        assert!(self.said.map_while(Result::ok).any(|line| line == "stopped"));
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        self.file
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// The kubeconfig of a server that had ended stayed, and the same command failed the next time.
#[test]
fn a_server_on_a_socket_is_watched_by_another_process() {
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
    assert!(again.contains("is there already (--force replaces it"), "{again}");
    let port = first.rsplit(':').next().unwrap().split(';').next().unwrap();
    let other = fresh("in-use");
    let (_, taken) = check(&["apiserver", "--port", port, "--kubeconfig", other.path()], 1);
    assert!(taken.contains(&format!("127.0.0.1:{port} is in use (choose another with --port")), "{taken}");
    assert!(!other.0.exists(), "nothing is written for a server that does not run");

    let file = server.stop();
    assert!(!file.0.exists(), "the kubeconfig is gone");
}

#[test]
fn force_replaces_a_file_and_what_somebody_else_wrote_stays() {
    let (server, _) = Server::start("force", &[]);
    let first = std::fs::read_to_string(server.file.path()).unwrap();
    let args = ["apiserver", "--force", "--kubeconfig", server.file.path()];
    let mut second = informer(&args).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(second.stderr.take().unwrap()).lines();
    said.next().unwrap().unwrap();
    let now = std::fs::read_to_string(server.file.path()).unwrap();
    assert!(now != first && now.contains("token"), "it leads to the second");

    // The first one ends, and leaves what is not its own.
    let file = server.stop();
    assert_eq!(std::fs::read_to_string(file.path()).unwrap(), now);
    let id = second.id().to_string();
    assert!(Command::new("kill").args(["-s", "TERM", &id]).status().unwrap().success());
    assert_eq!(second.wait().unwrap().code(), Some(0));
    assert!(!file.0.exists());
}

#[test]
fn a_wrong_token_is_said() {
    let (server, _) = Server::start("wrong-token", &[]);
    let kubeconfig = std::fs::read_to_string(server.file.path()).unwrap();
    let lines = kubeconfig.lines().map(|line| match line.split_once("token:") {
        Some((before, _)) => format!("{before}token: hunter2"),
        None => line.to_owned(),
    });
    let file = File::new("wrong-token-2", &lines.collect::<Vec<_>>().join("\n"));
    let (stdout, stderr) = check(&["watch", "pods", "--once", "--kubeconfig", file.path()], 1);
    assert!(stdout.is_empty() && !stderr.contains("hunter2"), "{stderr}");
    assert!(stderr.ends_with("does not accept the credentials (have they expired?)\n"), "{stderr}");
    server.stop();
}

#[test]
fn updates_of_secrets_show_keys_only() {
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
        let mut told = Vec::new();
        live.line(|line| {
            told.push(line.to_owned());
            line.contains("UPDATED")
        });
        live.signal("INT");
        let (code, said) = live.end();
        assert_eq!(code, Some(0), "{said}");
        let told = told.join("\n");
        assert!(told.contains("data.password"), "{told}");
        // Neither as it was said nor as it is stored.
        assert!(!told.contains("hunter") && !told.contains("aHVudGVy"), "{told}");
    }
    server.stop();
}

/// Whoever writes to a cluster must not write to the terminals of those who watch it.
#[test]
fn control_characters_from_a_cluster_are_spelled_out() {
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
