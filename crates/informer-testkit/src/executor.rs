//! Runs the futures of the server without a runtime: requests that are handled and bodies of watches.
//!
//! A task runs when it is started or woken, in this order; nothing runs at the same time.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The tasks, by number.
#[derive(Default)]
pub(crate) struct Executor {
    tasks: BTreeMap<u64, (Task, Waker)>,
    last_number: u64,
    woken: Arc<Woken>,
}

/// The numbers of the tasks to run.
#[derive(Debug, Default)]
struct Woken(Mutex<VecDeque<u64>>);

struct TaskWaker {
    number: u64,
    woken: Arc<Woken>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        let mut woken = self.woken.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !woken.contains(&self.number) {
            woken.push_back(self.number);
        }
    }
}

impl Executor {
    /// Adds a task, which runs at the next call of [`Executor::run`]. Returns its number.
    pub(crate) fn start(&mut self, task: impl Future<Output = ()> + Send + 'static) -> u64 {
        self.last_number += 1;
        let number = self.last_number;
        let waker = Waker::from(Arc::new(TaskWaker { number, woken: self.woken.clone() }));
        waker.wake_by_ref();
        self.tasks.insert(number, (Box::pin(task), waker));
        number
    }

    /// Drops a task.
    pub(crate) fn stop(&mut self, number: u64) {
        self.tasks.remove(&number);
    }

    /// Runs the woken tasks until none is left. Returns whether any task ran.
    pub(crate) fn run(&mut self) -> bool {
        let mut any = false;
        loop {
            let next = self.woken.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(number) = next else { return any };
            let Some((task, waker)) = self.tasks.get_mut(&number) else { continue };
            any = true;
            if task.as_mut().poll(&mut Context::from_waker(waker)).is_ready() {
                self.tasks.remove(&number);
            }
        }
    }
}
