//! A test on its own thread with a clock that can be advanced: forbidden or missing kinds are requested again
//! only after half a minute.

use std::panic::resume_unwind;
use std::time::Duration;

use crate::targets::Target;

/// Runs a test on its own thread. The server and its clock are real.
pub(crate) async fn run_on_own_thread<F: Future<Output = ()>>(
    target: &Target,
    test: impl FnOnce(Target) -> F + Send + 'static,
) {
    let target = target.again();
    let thread = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        // Clients must be created on the runtime whose clock they use.
        runtime.block_on(async { test(target.again()).await });
    });
    if let Err(error) = thread.await {
        let panic = error.into_panic();
        let message = panic.downcast_ref::<String>().cloned();
        let message = message.or(panic.downcast_ref::<&str>().map(|message| (*message).to_owned()));
        match message {
            Some(message) => panic!("{message}"),
            None => resume_unwind(panic),
        }
    }
}

/// Advances the clock by the longest slow retry delay.
pub(crate) async fn slow_wait() {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    tokio::time::resume();
}
