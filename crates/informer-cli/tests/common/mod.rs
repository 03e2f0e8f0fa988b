//! Runs the program as a process, and creates its files.

#![allow(clippy::unwrap_used, dead_code, reason = "each test program uses a part of it")]

use std::io::{BufRead as _, BufReader, Lines};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Time limit of every wait, sufficient on a slow machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(120);

/// The program in an environment without a cluster.
pub(crate) fn informer(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_informer"));
    command.args(args).env_clear().env("HOME", "/nonexistent").env("TZ", "UTC").stdin(Stdio::null());
    command
}

/// Runs a command to its end, or kills it after the timeout.
pub(crate) fn run(mut command: Command) -> Output {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let out = read_all(child.stdout.take().unwrap());
    let err = read_all(child.stderr.take().unwrap());
    let stdout = out.recv_timeout(TIMEOUT);
    let stderr = err.recv_timeout(TIMEOUT);
    if stdout.is_err() || stderr.is_err() {
        child.kill().unwrap();
        panic!("the program did not exit in time");
    }
    Output { status: child.wait().unwrap(), stdout: stdout.unwrap(), stderr: stderr.unwrap() }
}

pub(crate) fn read_all(mut from: impl std::io::Read + Send + 'static) -> mpsc::Receiver<Vec<u8>> {
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).unwrap();
        drop(send.send(bytes));
    });
    receive
}

#[track_caller]
pub(crate) fn check(args: &[&str], code: i32) -> (String, String) {
    let output = run(informer(args));
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{args:?}\n{stdout}\n{stderr}");
    (stdout, stderr)
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A temporary file, removed on drop.
pub(crate) struct File(pub(crate) PathBuf);

impl File {
    pub(crate) fn new(name: &str, content: &str) -> Self {
        let path = std::env::temp_dir().join(format!("informer-{}-{name}", std::process::id()));
        std::fs::write(&path, content).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

/// A running program, read line by line.
pub(crate) struct Live {
    child: Child,
    lines: mpsc::Receiver<String>,
    errors: mpsc::Receiver<Vec<u8>>,
}

impl Live {
    pub(crate) fn new(args: &[&str]) -> Self {
        let mut child = informer(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let errors = read_all(child.stderr.take().unwrap());
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (send, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, lines, errors }
    }

    /// Waits for a line that satisfies the condition.
    #[track_caller]
    pub(crate) fn line(&self, mut wanted: impl FnMut(&str) -> bool) -> String {
        loop {
            let line = self.lines.recv_timeout(TIMEOUT).expect("no such line in time");
            if wanted(&line) {
                return line;
            }
        }
    }

    pub(crate) fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &id]).status().unwrap().success());
    }

    /// Waits for the end; returns the exit code and stderr.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let stderr = self.errors.recv_timeout(TIMEOUT);
        if stderr.is_err() {
            self.child.kill().unwrap();
        }
        (self.child.wait().unwrap().code(), text(&stderr.expect("the program did not exit in time")))
    }
}

/// A unique path for a temporary file, removed on drop.
pub(crate) fn fresh(name: &str) -> File {
    let file = File::new(name, "");
    std::fs::remove_file(&file.0).unwrap();
    file
}

/// A kubeconfig of an unreachable server.
pub(crate) const UNREACHABLE: &str = "
apiVersion: v1
kind: Config
current-context: here
contexts: [{name: here, context: {cluster: c, user: u, namespace: shop}}, {name: there, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]
users: [{name: u, user: {}}]
";

/// A running server.
pub(crate) struct Server {
    child: Child,
    pub(crate) stderr: Lines<BufReader<ChildStderr>>,
    pub(crate) file: File,
}

impl Server {
    /// Starts the server and waits for its first line.
    pub(crate) fn start(name: &str, more: &[&str]) -> (Self, String) {
        let file = fresh(name);
        let args = [&["apiserver", "--kubeconfig", file.path()], more].concat();
        let mut child = informer(&args).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines();
        let first = stderr.next().unwrap().unwrap();
        (Self { child, stderr, file }, first)
    }

    pub(crate) fn client(&self, runtime: &tokio::runtime::Runtime) -> kube::Client {
        runtime.block_on(async {
            let kubeconfig = kube::config::Kubeconfig::read_from(self.file.path()).unwrap();
            let options = kube::config::KubeConfigOptions::default();
            let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
            informer::client(config).unwrap()
        })
    }

    /// Stops the server and waits for its end.
    pub(crate) fn stop(mut self) -> File {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", "INT", &id]).status().unwrap().success());
        assert!(self.stderr.map_while(Result::ok).any(|line| line == "stopped"));
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        self.file
    }
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}
