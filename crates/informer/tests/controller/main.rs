//! Controllers against the embedded server: event sources, reconciles, start and stop.
#![allow(clippy::unwrap_used)]

mod apply;
mod reconciles;
mod relists;
mod shutdown;
mod sources;
mod start;
mod status;
mod writes;

use crate::cluster::TIMEOUT;
use informer::controller::RunnableController;
use informer::error::ControllerError;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// A running controller.
struct Running {
    reconciler: RunnableController,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<(), ControllerError>>,
}

impl Running {
    fn start(reconciler: RunnableController) -> Self {
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
        tokio::time::timeout(TIMEOUT, self.task).await.expect("the controller ends").unwrap()
    }
}

/// A sender for reconciles, and the log that receives them.
fn event_log() -> (mpsc::UnboundedSender<String>, crate::cluster::EventLog) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (sender, crate::cluster::EventLog(receiver))
}
