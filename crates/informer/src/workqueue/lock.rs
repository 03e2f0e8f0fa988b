//! The lock of a queue. A model checker puts its own in its place (feature `shuttle`).

#[cfg(feature = "shuttle")]
use shuttle::sync as locks;
#[cfg(not(feature = "shuttle"))]
use std::sync as locks;

use std::sync::PoisonError;

pub(super) struct Mutex<T>(locks::Mutex<T>);

impl<T> Mutex<T> {
    pub(super) fn new(value: T) -> Self {
        Mutex(locks::Mutex::new(value))
    }

    /// A panic of a key's own code under the lock leaves the machine whole enough to go on with the other keys.
    pub(super) fn lock(&self) -> locks::MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
