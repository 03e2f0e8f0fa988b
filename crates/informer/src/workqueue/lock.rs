//! The mutex of a queue, which spins before it blocks. With the feature `shuttle` it is the model checker's
//! mutex.

#[cfg(feature = "shuttle")]
use shuttle::sync as locks;
#[cfg(not(feature = "shuttle"))]
use std::sync as locks;

use std::sync::PoisonError;

pub(super) struct Mutex<T>(locks::Mutex<T>);

/// Number of attempts before a thread blocks. Blocking and being woken by the holder costs both threads many
/// times the few hundred nanoseconds for which the lock is held.
#[cfg(not(feature = "shuttle"))]
const SPIN_ATTEMPTS: u32 = 4;
/// Number of `spin_loop` hints after the first failed attempt; doubled after each further one.
///
/// This is a few times as long as the lock is held. A thread that retried immediately would take the lock's
/// cache line from the holder each time; during the pause the holder keeps it.
#[cfg(not(feature = "shuttle"))]
const INITIAL_SPIN_ITERATIONS: u32 = 128;

impl<T> Mutex<T> {
    pub(super) fn new(value: T) -> Self {
        Mutex(locks::Mutex::new(value))
    }

    /// Locks the mutex, also if it is poisoned: if a key's `Eq`, `Hash` or `Clone` panics under the lock, the
    /// queue still works for the other keys.
    #[inline]
    pub(super) fn lock(&self) -> locks::MutexGuard<'_, T> {
        #[cfg(not(feature = "shuttle"))]
        for attempt in 0..SPIN_ATTEMPTS {
            match self.0.try_lock() {
                Ok(guard) => return guard,
                Err(locks::TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                Err(locks::TryLockError::WouldBlock) => {
                    (0..INITIAL_SPIN_ITERATIONS << attempt).for_each(|_| std::hint::spin_loop());
                }
            }
        }
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
