//! SIGINT and SIGTERM: the first one asks every manager of the process, another one ends the process.
//!
//! They are waited for on a thread of their own, so that a program whose threads are all blocked can still be ended. There is one for the
//! whole process, from the first manager that listens on.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// The codes of processes that were killed by SIGINT and SIGTERM.
const INTERRUPTED: i32 = 128 + 2;
const TERMINATED: i32 = 128 + 15;

static LISTENERS: Mutex<Listeners> = Mutex::new(Listeners { listening: false, next: 0, alive: Vec::new() });

struct Listeners {
    /// Whether the thread is there.
    listening: bool,
    next: u64,
    /// Those that run, each with how it is told; nothing once it has been.
    alive: Vec<(u64, Option<oneshot::Sender<&'static str>>)>,
}

/// A manager that runs. Until it is dropped, the first signal is told to it and does nothing else.
pub(super) struct Listener {
    number: u64,
    notified: oneshot::Receiver<&'static str>,
}

impl Listener {
    pub(super) fn new() -> io::Result<Self> {
        let mut listeners = lock();
        if !listeners.listening {
            listen()?;
            listeners.listening = true;
        }
        let (tell, told) = oneshot::channel();
        listeners.next += 1;
        let number = listeners.next;
        listeners.alive.push((number, Some(tell)));
        Ok(Self { number, notified: told })
    }

    /// The name of the first signal.
    pub(super) async fn first(&mut self) -> &'static str {
        match (&mut self.notified).await {
            Ok(signal) => signal,
            // It has been told before.
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        lock().alive.retain(|(number, _)| *number != self.number);
    }
}

fn lock() -> MutexGuard<'static, Listeners> {
    LISTENERS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn listen() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let mut signals = {
        let _inside = runtime.enter();
        Signals::new()?
    };
    let work = move || {
        runtime.block_on(async move {
            loop {
                let (name, code) = signals.next().await;
                let untold: Vec<_> = lock().alive.iter_mut().filter_map(|(_, tell)| tell.take()).collect();
                if untold.is_empty() {
                    tracing::error!(signal = name, "ending at once");
                    std::process::exit(code);
                }
                for tell in untold {
                    // Whoever does not wait for it is ending already.
                    let _ending = tell.send(name).is_err();
                }
            }
        });
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(work).map(drop)
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
