//! Runs the demo on a server, in real time.

use super::{Demo, Settings};
use informer_apiserver::ApiServer;
use jiff::Timestamp;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;
use tokio::sync::watch;

/// Minimum and maximum time between two steps. The minimum leaves time for others, the maximum is the delay after
/// which changes by users are noticed.
const STEP_PERIOD: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(100));

/// The running demo; dropping it stops the demo and leaves the objects.
#[derive(Debug)]
pub(crate) struct Running {
    /// Never sent to: the demo stops when the sender is dropped.
    _stop: mpsc::Sender<()>,
    ready: watch::Receiver<bool>,
}

impl Running {
    /// Waits until the cluster is complete.
    pub(crate) async fn wait_until_ready(&self) {
        let mut ready = self.ready.clone();
        // The sender is dropped only if the demo has ended.
        drop(ready.wait_for(|ready| *ready).await);
    }
}

/// Returns a random seed.
pub(crate) fn any_seed() -> u64 {
    std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0)
}

/// Builds a demo cluster of about this many pods on a server and keeps changing it. Fails if there are no
/// resources for another thread.
///
/// The demo has a thread of its own, because it writes almost all objects and glibc's allocator has an arena
/// per thread: freed memory is reused only in the arena that it came from. As a task that moves between the
/// threads of a runtime, the demo would fill one arena while the history that it drops frees memory in others,
/// and memory would grow with the number of threads.
pub(crate) fn start(server: &ApiServer, pods: u64) -> std::io::Result<Running> {
    let (ready_sender, ready) = watch::channel(false);
    let (stop, stopped) = mpsc::channel();
    let server = server.clone();
    let pods = usize::try_from(pods).unwrap_or(usize::MAX);
    let settings = Settings { seed: any_seed(), pods, last_incident: Timestamp::MAX };
    std::thread::Builder::new().name("demo".to_owned()).spawn(move || {
        let mut demo = Demo::build(&server, settings);
        ready_sender.send_replace(true);
        let mut wait = STEP_PERIOD.0;
        while stopped.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
            let due = demo.step(server.now());
            let until_due =
                |due: Timestamp| Duration::try_from(due.duration_since(server.now())).unwrap_or_default();
            wait = due.map_or(STEP_PERIOD.1, until_due).clamp(STEP_PERIOD.0, STEP_PERIOD.1);
        }
    })?;
    Ok(Running { _stop: stop, ready })
}
