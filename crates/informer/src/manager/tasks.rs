//! Tasks of the application that run beside the controllers.

use super::run::wait_until_true;
use crate::controller::panic_message;
use crate::error::{ManagerError, ShutdownError, Unfinished};
use futures::future::{BoxFuture, FutureExt as _};
use std::any::Any;
use std::collections::BTreeMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::Instrument as _;

/// How long an aborted task may take to end.
const ABORT_TIMEOUT: Duration = Duration::from_secs(1);

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A task that the application added. It is started with a future that completes when it has to end.
pub(super) struct Task {
    name: Arc<str>,
    /// Never locked: the lock makes the manager `Sync`, which its future needs to be `Send`.
    start: Mutex<Start>,
}

type Start = Box<dyn FnOnce(BoxFuture<'static, ()>) -> BoxFuture<'static, Result<(), BoxError>> + Send>;

impl Task {
    pub(super) fn new<F, R, E>(name: Arc<str>, task: F) -> Self
    where
        F: FnOnce(BoxFuture<'static, ()>) -> R + Send + 'static,
        R: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<BoxError> + 'static,
    {
        let start: Start = Box::new(|stop| task(stop).map(|result| result.map_err(Into::into)).boxed());
        Self { name, start: Mutex::new(start) }
    }
}

/// Runs tasks until all have ended, and sets `ending` if one of them fails.
///
/// Tasks that have not ended when `timeout` has passed since `ending` was set are aborted. Dropping the future
/// aborts all tasks.
pub(super) async fn run_tasks(
    tasks: Vec<Task>,
    ending: &watch::Sender<bool>,
    timeout: Duration,
) -> Result<(), ManagerError> {
    let mut names = BTreeMap::new();
    let mut running = JoinSet::new();
    for (index, Task { name, start }) in tasks.into_iter().enumerate() {
        names.insert(index, name);
        let start = start.into_inner().unwrap_or_else(PoisonError::into_inner);
        let stop = wait_until_true(ending.subscribe()).boxed();
        let run = AssertUnwindSafe(async { start(stop).await }).catch_unwind();
        running.spawn(run.map(move |ended| (index, ended)).in_current_span());
    }
    let deadline = async {
        wait_until_true(ending.subscribe()).await;
        tokio::time::sleep(timeout).await;
    };
    let mut deadline = std::pin::pin!(deadline);
    let mut result = Ok(());
    loop {
        let ended = tokio::select! {
            biased;
            ended = running.join_next() => ended,
            () = &mut deadline => break,
        };
        // The tasks catch their panics, and nothing else aborts them.
        let Some(Ok((index, ended))) = ended else { break };
        let (Some(name), Err(source)) = (names.remove(&index), flatten(ended)) else { continue };
        tracing::error!(task = %name, error = %source, "a task has failed; stopping everything else");
        ending.send_replace(true);
        result = result.and(Err(ManagerError::Task { task: name, source }));
    }
    if names.is_empty() {
        return result;
    }
    running.abort_all();
    let _ended = tokio::time::timeout(ABORT_TIMEOUT, running.shutdown()).await;
    let unfinished = names.into_values().map(|name| Unfinished::Task { name }).collect();
    result.and(Err(ManagerError::Shutdown(ShutdownError { timeout, unfinished })))
}

/// Returns the error of a task; the message of a panic is an error too.
fn flatten(ended: Result<Result<(), BoxError>, Box<dyn Any + Send>>) -> Result<(), BoxError> {
    ended.unwrap_or_else(|panic| Err(format!("panicked: {}", panic_message(&*panic)).into()))
}
