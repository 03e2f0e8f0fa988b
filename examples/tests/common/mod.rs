//! Shared parts of the examples' tests: a running program and its output.
#![allow(dead_code, reason = "each test uses a part of it")]

#[path = "../../../crates/informer/tests/common/cluster.rs"]
pub(crate) mod cluster;

use cluster::{EventLog, TIMEOUT};
use informer_apiserver::ApiServer;
use serde_json::json;
use std::error::Error;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// A running example.
pub(crate) struct Program {
    pub(crate) task: JoinHandle<Result<(), String>>,
    stop: oneshot::Sender<()>,
}

impl Program {
    /// Runs a program until it ends; it receives a stop signal.
    pub(crate) fn start<F>(run: impl FnOnce(oneshot::Receiver<()>) -> F) -> Self
    where
        F: Future<Output = Result<(), Box<dyn Error>>> + Send + 'static,
    {
        let (stop, stopped) = oneshot::channel();
        let running = run(stopped);
        // Errors that are not `Send` are sent as text.
        let task = tokio::spawn(async { running.await.map_err(|error| error.to_string()) });
        Self { task, stop }
    }

    /// Sends the stop signal and waits until the program ends.
    pub(crate) async fn stop(self) {
        self.stop.send(()).expect("the program has already ended");
        let ended = tokio::time::timeout(TIMEOUT, self.task).await;
        ended.expect("the program does not end").expect("the program panicked").expect("the program failed");
    }
}

/// A print function, and the log of printed lines.
pub(crate) fn output() -> (impl Fn(String) + Clone + Send + Sync + 'static, EventLog) {
    let (sender, receiver) = mpsc::unbounded_channel();
    // Sending fails once the test has dropped the log.
    (move |line| drop(sender.send(line)), EventLog(receiver))
}

/// All lines until the program ends.
pub(crate) async fn rest(mut output: EventLog) -> Vec<String> {
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
    server.create(&shop).expect("the namespace is created");
    server
}
