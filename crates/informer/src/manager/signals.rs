//! SIGINT and SIGTERM: the first one asks, the second one ends the process.
//!
//! They are waited for on a thread of their own, so that a program whose threads are all blocked can still be ended.

use std::io;
use tokio::sync::oneshot;

/// The codes of processes that were killed by SIGINT and SIGTERM.
const INTERRUPTED: i32 = 128 + 2;
const TERMINATED: i32 = 128 + 15;

/// The name of the first signal. From then on, or when nobody waits for it any more, the next one ends the process.
pub(super) fn first() -> io::Result<oneshot::Receiver<&'static str>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let mut signals = {
        let _inside = runtime.enter();
        Signals::new()?
    };
    let (tell, told) = oneshot::channel();
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        runtime.block_on(async move {
            let (name, code) = signals.next().await;
            if tell.send(name).is_ok() {
                let (name, code) = signals.next().await;
                tracing::error!(signal = name, "a second signal: ending at once");
                std::process::exit(code);
            }
            std::process::exit(code);
        });
    })?;
    Ok(told)
}

#[cfg(unix)]
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn next(&mut self) -> (&'static str, i32) {
        tokio::select! {
            _ = self.interrupt.recv() => ("SIGINT", INTERRUPTED),
            _ = self.terminate.recv() => ("SIGTERM", TERMINATED),
        }
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) -> (&'static str, i32) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        ("ctrl-c", INTERRUPTED)
    }
}
