//! Waits that a signal interrupts: for a condition, and for a lock that another `cargo xtask control-plane`
//! may hold.
//!
//! SIGINT, SIGTERM and SIGHUP set a flag instead of ending the process, so that the command can clean up
//! first. All waits of the command use [`Interrupt::wait_for`].

use std::fs::{self, File, TryLockError};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::build::kill_group;
use super::{failed, info};
use crate::failure::Failure;

const POLL_PERIOD: Duration = Duration::from_millis(50);

/// A flag that a signal sets.
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Registers the signal handlers. Must be called before anything is started that needs cleanup.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&interrupted))
                .map_err(|error| failed("cannot listen for signals", &error))?;
        }
        Ok(Self(interrupted))
    }

    /// Returns an interrupt that a test sets instead of a signal.
    #[cfg(test)]
    pub(super) fn by(interrupted: Arc<AtomicBool>) -> Self {
        Self(interrupted)
    }

    /// Fails after a signal was received.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let interrupted = self.0.load(Ordering::Relaxed);
        if interrupted { Err(Failure::Failed("interrupted".to_owned())) } else { Ok(()) }
    }

    /// Polls `ready` until it returns a value or fails; returns `None` after `timeout`.
    pub(crate) fn wait_for<T>(
        &self,
        timeout: Duration,
        mut ready: impl FnMut() -> Result<Option<T>, Failure>,
    ) -> Result<Option<T>, Failure> {
        let started = Instant::now();
        loop {
            self.check()?;
            if let Some(value) = ready()? {
                return Ok(Some(value));
            }
            if started.elapsed() >= timeout {
                return Ok(None);
            }
            thread::sleep(POLL_PERIOD);
        }
    }

    /// Runs a program until it ends and returns its exit status. `meanwhile` is called while it runs.
    ///
    /// The program has its own process group, so that a signal ends it together with its children.
    pub(crate) fn run(
        &self,
        name: &str,
        mut command: Command,
        mut meanwhile: impl FnMut(),
    ) -> Result<ExitStatus, Failure> {
        let spawned = command.process_group(0).spawn();
        let mut child = spawned.map_err(|error| failed(&format!("cannot run {name}"), &error))?;
        let ended = self.wait_for(Duration::MAX, || {
            meanwhile();
            child.try_wait().map_err(|error| failed(&format!("cannot wait for {name}"), &error))
        });
        if ended.is_err() {
            kill_group(&child);
            // The exit status of a killed program does not matter.
            let _ = child.wait();
        }
        ended?.ok_or_else(|| Failure::Failed(format!("{name} did not end")))
    }
}

/// A file lock, held until it is dropped. The kernel releases it when the process ends in any way.
#[must_use]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// Waits without a timeout until no other process holds the lock of this name.
    pub(super) fn acquire(cache: &Path, name: &str, interrupt: &Interrupt) -> Result<Self, Failure> {
        let path = cache.join(format!("{name}.lock"));
        let cannot =
            |error: &dyn std::fmt::Display| failed(&format!("cannot lock {}", path.display()), error);
        let file = fs::create_dir_all(cache)
            .and_then(|()| File::options().create(true).truncate(false).write(true).open(&path))
            .map_err(|error| cannot(&error))?;
        let mut printed = false;
        let mut attempt = || match file.try_lock() {
            Ok(()) => Ok(Some(())),
            Err(TryLockError::WouldBlock) => {
                if !printed {
                    info("waiting for another `cargo xtask control-plane` to finish");
                    printed = true;
                }
                Ok(None)
            }
            Err(TryLockError::Error(error)) => Err(cannot(&error)),
        };
        while interrupt.wait_for(Duration::from_secs(3600), &mut attempt)?.is_none() {}
        Ok(Self { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn not_interrupted() -> Interrupt {
        Interrupt::by(Arc::default())
    }

    fn outcome<T>(result: Result<Option<T>, Failure>) -> Result<Option<T>, String> {
        result.map_err(Failure::message)
    }

    #[test]
    fn wait_ends_when_ready() {
        let mut calls = 0;
        let result = not_interrupted().wait_for(Duration::from_secs(60), || {
            calls += 1;
            Ok((calls == 2).then_some("ready"))
        });
        assert_eq!(outcome(result), Ok(Some("ready")));
    }

    #[test]
    fn wait_ends_at_timeout() {
        assert_eq!(outcome(not_interrupted().wait_for(Duration::ZERO, || Ok(None::<()>))), Ok(None));
    }

    #[test]
    fn signal_ends_wait_before_the_next_poll() {
        let interrupt = not_interrupted();
        let mut calls = 0;
        let result = interrupt.wait_for(Duration::from_secs(60), || {
            calls += 1;
            interrupt.0.store(true, Ordering::Relaxed);
            Ok(None::<()>)
        });
        assert_eq!(outcome(result), Err("interrupted".to_owned()));
        assert_eq!(calls, 1);
    }
}
