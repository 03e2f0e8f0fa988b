//! The other end of `xtask/src/real/control.rs`: asks for servers to be ended and started.

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;

use crate::arm::Arm;

/// Asks for one thing, and waits until it is done.
async fn ask(arm: &Arm, order: &str) {
    let mut stream = UnixStream::connect(arm.control.as_ref().unwrap()).await.unwrap();
    stream.write_all(format!("{order}\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).await.unwrap();
    assert_eq!(answer, "done\n", "{order}");
}

/// Kills the API server.
pub(crate) async fn kill(arm: &Arm) {
    ask(arm, "kill").await;
}

/// Starts the API server again; it answers when this returns.
pub(crate) async fn start(arm: &Arm) {
    ask(arm, "start").await;
}

/// Keeps a copy of what etcd has. Both servers are started anew.
pub(crate) async fn save(arm: &Arm) {
    ask(arm, "save").await;
}

/// Goes back to that copy.
pub(crate) async fn restore(arm: &Arm) {
    ask(arm, "restore").await;
}
