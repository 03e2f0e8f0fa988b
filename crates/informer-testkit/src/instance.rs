//! A running program: its own tokio runtime with a paused clock, which runs only when it is asked to, and only up
//! to a given time.
//!
//! Dropping an instance drops its runtime with all tasks, so nothing of the program outlives it. The clock of the
//! runtime shows the time of the simulation; it moves inside of [`Instance::run_until`] only.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::time::Instant;

use crate::network::{Outbox, Port};

/// The future of a program, with the reason why it ended.
pub(crate) type ProgramFuture = Pin<Box<dyn Future<Output = String> + Send>>;

/// A program that runs.
pub(crate) struct Instance {
    pub(crate) outbox: Outbox,
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
    idle: Arc<IdleSignal>,
    /// The time of the simulation when the instance was created, and the same on the clock of the runtime.
    created: (Duration, Instant),
    ended: Arc<Mutex<Option<String>>>,
}

/// Ends `run_until` when the runtime has nothing left to do at the current time.
#[derive(Debug, Default)]
struct IdleSignal {
    /// Whether the time has been reached, so that only tasks that can run now are still to be run.
    draining: AtomicBool,
    is_idle: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl IdleSignal {
    /// Called before the thread of the runtime would wait. Waking the main future at this point keeps the clock from
    /// moving on.
    fn about_to_wait(&self) {
        if self.draining.load(Ordering::Relaxed) {
            self.is_idle.store(true, Ordering::Relaxed);
            if let Some(waker) = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take() {
                waker.wake();
            }
        }
    }
}

impl Instance {
    /// Starts a program at this time of the simulation.
    pub(crate) fn start(
        now: Duration,
        program: impl FnOnce(kube::Client) -> ProgramFuture,
    ) -> std::io::Result<Self> {
        let idle = Arc::new(IdleSignal::default());
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let (on_wait, origin) = (idle.clone(), Arc::new(Mutex::new(None::<Instant>)));
        let clock = origin.clone();
        let runtime = builder
            .enable_time()
            .start_paused(true)
            .on_thread_park(move || on_wait.about_to_wait())
            .on_thread_unpark(move || {
                let origin = *clock.lock().unwrap_or_else(PoisonError::into_inner);
                informer_virtual::set_elapsed(now + origin.map_or(Duration::ZERO, |origin| origin.elapsed()));
            })
            .build()?;
        let (outbox, ended) = (Outbox::default(), Arc::new(Mutex::new(None)));
        let start = {
            let _context = runtime.enter();
            let start = Instant::now();
            *origin.lock().unwrap_or_else(PoisonError::into_inner) = Some(start);
            let client = kube::Client::new(Port(outbox.clone()), "default");
            let (program, ended) = (program(client), ended.clone());
            runtime.spawn(async move {
                let reason = program.await;
                *ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
            });
            start
        };
        Ok(Instance { outbox, runtime: Some(runtime), idle, created: (now, start), ended })
    }

    /// Sets the clocks of this thread to the time of this program. It may be behind another one.
    pub(crate) fn set_clocks(&self) {
        let (created, start) = self.created;
        let Some(runtime) = &self.runtime else { return };
        let _context = runtime.enter();
        informer_virtual::set_elapsed(created + Instant::now().duration_since(start));
    }

    /// Runs the program until this time, or until it sends something, and until it has nothing left to do then.
    /// Returns the time on its clock.
    pub(crate) fn run_until(&mut self, until: Duration) -> Duration {
        let (created, start) = self.created;
        let deadline = start + until.saturating_sub(created);
        let (idle, outbox) = (&self.idle, &self.outbox);
        let Some(runtime) = &self.runtime else { return until };
        let now = runtime.block_on(async {
            let sleep = tokio::time::sleep_until(deadline);
            tokio::pin!(sleep);
            std::future::poll_fn(|context| {
                if idle.is_idle.load(Ordering::Relaxed) {
                    return Poll::Ready(());
                }
                *idle.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(context.waker().clone());
                outbox.wake_on_message(context.waker());
                let is_draining = idle.draining.load(Ordering::Relaxed);
                if !is_draining && (outbox.has_requests() || sleep.as_mut().poll(context).is_ready()) {
                    idle.draining.store(true, Ordering::Relaxed);
                }
                Poll::Pending
            })
            .await;
            Instant::now()
        });
        idle.draining.store(false, Ordering::Relaxed);
        idle.is_idle.store(false, Ordering::Relaxed);
        created + now.duration_since(start)
    }

    /// Moves the clock of the program to this time without running it before: the program did not notice that time
    /// has passed.
    pub(crate) fn skip_to(&mut self, now: Duration) {
        let (created, start) = self.created;
        let target = start + now.saturating_sub(created);
        let Some(runtime) = &self.runtime else { return };
        runtime.block_on(async {
            tokio::time::advance(target.saturating_duration_since(Instant::now())).await;
        });
    }

    /// Returns why the program has ended, if it has.
    pub(crate) fn ended(&self) -> Option<String> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.outbox.close();
        // Does not wait for blocking tasks.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
