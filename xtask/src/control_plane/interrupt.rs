//! Waiting that a signal ends: for a condition, and for a lock that another `cargo xtask control-plane` may hold.
//!
//! Ctrl-C and its like are remembered instead of obeyed, so that whoever waits can clean up first. All waiting of
//! this command goes through [`Interrupt::wait_for`].

use std::fs::{self, File, TryLockError};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::{failed, info};
use crate::failure::Failure;

const PAUSE: Duration = Duration::from_millis(50);

/// Whether somebody asked this program to end.
pub(super) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Listens from now on. Call it before anything is begun that would have to be cleaned up.
    pub(super) fn listen() -> Result<Self, Failure> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&asked))
                .map_err(|error| failed("cannot listen for signals", &error))?;
        }
        Ok(Self(asked))
    }

    /// Asked by a test instead of a signal.
    #[cfg(test)]
    pub(super) fn by(asked: Arc<AtomicBool>) -> Self {
        Self(asked)
    }

    /// Fails once somebody has asked.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let asked = self.0.load(Ordering::Relaxed);
        if asked { Err(Failure::Failed("interrupted".to_owned())) } else { Ok(()) }
    }

    /// Asks `ready` again and again until it has an answer or fails; `None` when the time is over.
    pub(super) fn wait_for<T>(
        &self,
        time: Duration,
        mut ready: impl FnMut() -> Result<Option<T>, Failure>,
    ) -> Result<Option<T>, Failure> {
        let begun = Instant::now();
        loop {
            self.check()?;
            if let Some(answer) = ready()? {
                return Ok(Some(answer));
            }
            if begun.elapsed() >= time {
                return Ok(None);
            }
            thread::sleep(PAUSE);
        }
    }
}

/// Held while it lives; the kernel lets go of it when the process ends, however it ends.
#[must_use]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// Waits, for as long as it takes, until no other process holds the lock of that name.
    pub(super) fn acquire(cache: &Path, name: &str, interrupt: &Interrupt) -> Result<Self, Failure> {
        let path = cache.join(format!("{name}.lock"));
        let cannot =
            |error: &dyn std::fmt::Display| failed(&format!("cannot lock {}", path.display()), error);
        let file = fs::create_dir_all(cache)
            .and_then(|()| File::options().create(true).truncate(false).write(true).open(&path))
            .map_err(|error| cannot(&error))?;
        let mut told = false;
        let mut attempt = || match file.try_lock() {
            Ok(()) => Ok(Some(())),
            Err(TryLockError::WouldBlock) => {
                if !told {
                    info("waiting for another `cargo xtask control-plane` to finish");
                    told = true;
                }
                Ok(None)
            }
            Err(TryLockError::Error(error)) => Err(cannot(&error)),
        };
        while interrupt.wait_for(Duration::from_hours(1), &mut attempt)?.is_none() {}
        Ok(Self { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quiet() -> Interrupt {
        Interrupt::by(Arc::default())
    }

    fn outcome<T>(result: Result<Option<T>, Failure>) -> Result<Option<T>, String> {
        result.map_err(Failure::message)
    }

    #[test]
    fn waiting_ends_with_the_answer() {
        let mut calls = 0;
        let answer = quiet().wait_for(Duration::from_mins(1), || {
            calls += 1;
            Ok((calls == 2).then_some("ready"))
        });
        assert_eq!(outcome(answer), Ok(Some("ready")));
    }

    #[test]
    fn waiting_ends_with_the_time() {
        assert_eq!(outcome(quiet().wait_for(Duration::ZERO, || Ok(None::<()>))), Ok(None));
    }

    #[test]
    fn a_signal_ends_waiting_before_the_next_question() {
        let interrupt = quiet();
        let mut calls = 0;
        let answer = interrupt.wait_for(Duration::from_mins(1), || {
            calls += 1;
            interrupt.0.store(true, Ordering::Relaxed);
            Ok(None::<()>)
        });
        assert_eq!(outcome(answer), Err("interrupted".to_owned()));
        assert_eq!(calls, 1);
    }
}
