//! What the examples' tests share: a program that runs beside the test, and what it prints.
#![allow(dead_code, reason = "each test uses its part")]

#[path = "../../../crates/informer/tests/common/cluster.rs"]
pub(crate) mod cluster;

use cluster::{LONG, Notes};
use informer_apiserver::ApiServer;
use serde_json::json;
use std::error::Error;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// An example that is running.
pub(crate) struct Program {
    pub(crate) task: JoinHandle<Result<(), String>>,
    stop: oneshot::Sender<()>,
}

impl Program {
    /// Runs a program until it ends. It is given what ends when it should.
    pub(crate) fn start<F>(run: impl FnOnce(oneshot::Receiver<()>) -> F) -> Self
    where
        F: Future<Output = Result<(), Box<dyn Error>>> + Send + 'static,
    {
        let (stop, stopped) = oneshot::channel();
        let running = run(stopped);
        // Errors that are not `Send` travel as what the user would read.
        let task = tokio::spawn(async { running.await.map_err(|error| error.to_string()) });
        Self { task, stop }
    }

    /// Presses Ctrl-C, and waits for the program's end.
    pub(crate) async fn stop(self) {
        self.stop.send(()).expect("the program has ended by itself");
        let ended = tokio::time::timeout(LONG, self.task).await;
        ended.expect("the program does not end").expect("the program panicked").expect("the program failed");
    }
}

/// Where a program prints, and what it has printed.
pub(crate) fn output() -> (impl Fn(String) + Clone + Send + Sync + 'static, Notes) {
    let (sender, receiver) = mpsc::unbounded_channel();
    // Whoever listens no more has seen enough.
    (move |line| drop(sender.send(line)), Notes(receiver))
}

/// Everything that is printed until the program has ended.
pub(crate) async fn rest(mut output: Notes) -> Vec<String> {
    let mut lines = Vec::new();
    while let Some(line) = output.0.recv().await {
        lines.push(line);
    }
    lines
}

/// A server with a namespace `shop`.
pub(crate) fn server() -> ApiServer {
    let server = ApiServer::new();
    let shop = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    server.create(&shop).expect("a new server takes a namespace");
    server
}
