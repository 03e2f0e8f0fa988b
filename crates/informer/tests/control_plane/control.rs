//! Client of `xtask/src/real/control.rs`, which stops and starts servers on request.

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;

use crate::targets::Arm;

/// Sends one command and waits until it is done.
async fn send(arm: &Arm, command: &str) {
    let mut stream = UnixStream::connect(arm.control.as_ref().unwrap()).await.unwrap();
    stream.write_all(format!("{command}\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).await.unwrap();
    assert_eq!(answer, "done\n", "{command}");
}

/// Kills the API server.
pub(crate) async fn kill(arm: &Arm) {
    send(arm, "kill").await;
}

/// Starts the API server again and waits until it responds.
pub(crate) async fn start(arm: &Arm) {
    send(arm, "start").await;
}

/// Saves a copy of the etcd data. Restarts both servers.
pub(crate) async fn save(arm: &Arm) {
    send(arm, "save").await;
}

/// Restores the saved copy.
pub(crate) async fn restore(arm: &Arm) {
    send(arm, "restore").await;
}
