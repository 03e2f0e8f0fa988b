//! For how long a saved cache has been in use.
//!
//! The time of day may be wrong by years while a process runs, so nothing here depends on it.

use std::time::Duration;

const HOUR: u64 = 3_600;
/// A name that no process has used for this long, while processes have run, is forgotten.
const FORGET_AFTER: u64 = 30 * 24 * HOUR;

/// For how long a saved cache has been in use, by all processes together.
///
/// Later values are greater.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Usage {
    /// The number of processes.
    pub(crate) uses: u64,
    /// The time for which they ran until the last save, in seconds.
    pub(crate) seconds: u64,
}

impl Usage {
    /// Returns the usage when the next process has run for a time.
    pub(crate) fn in_next_process(self, running: Duration) -> Self {
        let (uses, seconds) = (self.uses.saturating_add(1), self.seconds.saturating_add(running.as_secs()));
        Self { uses, seconds }
    }

    /// Returns the usage at the last full hour, so that what contains it is rarely saved because of it alone.
    pub(crate) fn at_full_hour(self) -> Self {
        Self { seconds: self.seconds - self.seconds % HOUR, ..self }
    }

    /// Returns whether a name that was used last at an earlier usage is forgotten.
    pub(crate) fn is_long_after(self, last_used: Self) -> bool {
        self.seconds.saturating_sub(last_used.seconds) > FORGET_AFTER
    }
}
