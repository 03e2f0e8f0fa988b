//! A story on a thread of its own, whose clock can be moved on: what is forbidden or not served is asked for again only after half a minute.

use std::panic::resume_unwind;
use std::time::Duration;

use crate::arm::Arm;

/// Runs it there. The server and its clock are as real as ever.
pub(crate) async fn apart<F: Future<Output = ()>>(arm: &Arm, story: impl FnOnce(Arm) -> F + Send + 'static) {
    let arm = arm.again();
    let thread = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        // Its clients live where their clock is.
        runtime.block_on(async { story(arm.again()).await });
    });
    if let Err(error) = thread.await {
        let panic = error.into_panic();
        let said = panic.downcast_ref::<String>().cloned();
        let said = said.or(panic.downcast_ref::<&str>().map(|said| (*said).to_owned()));
        match said {
            Some(said) => panic!("{said}"),
            None => resume_unwind(panic),
        }
    }
}

/// Moves the clock on by as much as the longest slow wait takes.
pub(crate) async fn slow_wait() {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    tokio::time::resume();
}
