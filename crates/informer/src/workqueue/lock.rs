//! The lock of a queue. A model checker puts its own in its place (feature `shuttle`).

#[cfg(feature = "shuttle")]
use shuttle::sync as locks;
#[cfg(not(feature = "shuttle"))]
use std::sync as locks;

use std::sync::PoisonError;

pub(super) struct Mutex<T>(locks::Mutex<T>);

/// How often a thread tries before it sleeps. Whoever sleeps has to be woken by the holder, which takes both of them
/// many times as long as the few hundred nanoseconds for which the lock is held.
#[cfg(not(feature = "shuttle"))]
const SPIN_ATTEMPTS: u32 = 4;
/// How long it looks away after its first try, in pauses of the processor, and after each further one twice as long.
/// About as long as the lock is held a few times over: whoever has it goes on meanwhile with all that it has close by,
/// while a thread that asks again at once takes the lock's memory from it each time.
#[cfg(not(feature = "shuttle"))]
const INITIAL_SPIN_ITERATIONS: u32 = 128;

impl<T> Mutex<T> {
    pub(super) fn new(value: T) -> Self {
        Mutex(locks::Mutex::new(value))
    }

    /// A panic of a key's own code under the lock leaves the machine whole enough to go on with the other keys.
    #[inline]
    pub(super) fn lock(&self) -> locks::MutexGuard<'_, T> {
        #[cfg(not(feature = "shuttle"))]
        for tried in 0..SPIN_ATTEMPTS {
            match self.0.try_lock() {
                Ok(guard) => return guard,
                Err(locks::TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                Err(locks::TryLockError::WouldBlock) => {
                    (0..INITIAL_SPIN_ITERATIONS << tried).for_each(|_| std::hint::spin_loop());
                }
            }
        }
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
