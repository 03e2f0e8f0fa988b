//! Controllers against the embedded server: where keys come from, what their turns may do, how it all begins and ends.
#![allow(clippy::unwrap_used)]

#[path = "../common/cluster.rs"]
mod cluster;

mod ending;
mod sources;
mod start;
mod turns;
mod writes;

use cluster::LONG;
use informer::{ControllerError, Reconciler};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// A controller that runs.
struct Running {
    reconciler: Reconciler,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<(), ControllerError>>,
}

impl Running {
    fn start(reconciler: Reconciler) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let running = reconciler.clone();
        let task = tokio::spawn(async move { running.run_until(async { drop(stopped.await) }).await });
        Self { reconciler, stop: Some(stop), task }
    }

    async fn stop(mut self) -> Result<(), ControllerError> {
        drop(self.stop.take());
        self.end().await
    }

    async fn end(self) -> Result<(), ControllerError> {
        tokio::time::timeout(LONG, self.task).await.expect("it ends").unwrap()
    }
}

/// Where turns are written down.
fn diary() -> (mpsc::UnboundedSender<String>, cluster::Notes) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (sender, cluster::Notes(receiver))
}
