//! Client of `xtask/src/real/control.rs`, which stops and starts servers on request.

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;

use crate::targets::Target;

/// Sends one command and waits until it is done.
async fn send(target: &Target, command: &str) {
    let mut stream = UnixStream::connect(target.control.as_ref().unwrap()).await.unwrap();
    stream.write_all(format!("{command}\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).await.unwrap();
    assert_eq!(answer, "done\n", "{command}");
}

/// Kills the API server.
pub(crate) async fn kill(target: &Target) {
    send(target, "kill").await;
}

/// Starts the API server again and waits until it responds.
pub(crate) async fn start(target: &Target) {
    send(target, "start").await;
}

/// Saves a copy of the etcd data. Restarts both servers.
pub(crate) async fn save(target: &Target) {
    send(target, "save").await;
}

/// Restores the saved copy.
pub(crate) async fn restore(target: &Target) {
    send(target, "restore").await;
}
