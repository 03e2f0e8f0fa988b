//! SIGINT and SIGTERM: the first signal stops every manager of the process, a second one exits the process.
//!
//! A dedicated thread waits for signals, so that a program whose runtime threads are all blocked can still be
//! terminated. The first manager that listens starts the thread; it is never stopped.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// The exit code of a process killed by SIGINT.
const SIGINT_EXIT_CODE: i32 = 128 + 2;
/// The exit code of a process killed by SIGTERM.
const SIGTERM_EXIT_CODE: i32 = 128 + 15;

static LISTENERS: Mutex<Listeners> =
    Mutex::new(Listeners { has_thread: false, last_id: 0, registered: Vec::new() });

struct Listeners {
    /// Whether the signal thread has been started.
    has_thread: bool,
    last_id: u64,
    /// The id and the sender of each registered listener; the sender is `None` once it has sent a signal.
    registered: Vec<(u64, Option<oneshot::Sender<&'static str>>)>,
}

/// The registration of a running manager, which receives the first signal.
///
/// A signal exits the process if every registered listener has already received one.
pub(super) struct Listener {
    id: u64,
    signal: oneshot::Receiver<&'static str>,
}

impl Listener {
    pub(super) fn new() -> io::Result<Self> {
        let mut listeners = lock();
        if !listeners.has_thread {
            start_thread()?;
            listeners.has_thread = true;
        }
        let (sender, signal) = oneshot::channel();
        listeners.last_id += 1;
        let id = listeners.last_id;
        listeners.registered.push((id, Some(sender)));
        Ok(Self { id, signal })
    }

    /// Waits for the first signal and returns its name.
    pub(super) async fn first_signal(&mut self) -> &'static str {
        match (&mut self.signal).await {
            Ok(signal) => signal,
            // The signal was returned by an earlier call.
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        lock().registered.retain(|(id, _)| *id != self.id);
    }
}

fn lock() -> MutexGuard<'static, Listeners> {
    LISTENERS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn start_thread() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let mut signals = {
        let _guard = runtime.enter();
        Signals::new()?
    };
    let run = move || {
        runtime.block_on(async move {
            loop {
                let (name, code) = signals.next().await;
                let senders: Vec<_> =
                    lock().registered.iter_mut().filter_map(|(_, sender)| sender.take()).collect();
                if senders.is_empty() {
                    tracing::error!(signal = name, "exiting immediately");
                    std::process::exit(code);
                }
                for sender in senders {
                    // A listener that was dropped meanwhile belongs to a manager that has ended.
                    let _dropped = sender.send(name).is_err();
                }
            }
        });
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(run).map(drop)
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
            _ = self.interrupt.recv() => ("SIGINT", SIGINT_EXIT_CODE),
            _ = self.terminate.recv() => ("SIGTERM", SIGTERM_EXIT_CODE),
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
        ("ctrl-c", SIGINT_EXIT_CODE)
    }
}
