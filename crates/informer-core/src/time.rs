//! Time as seen by the state machines: a parameter, measured from an origin.
//!
//! Their driver, the code that performs I/O for them, chooses the origin and reads the clock.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A point in time on a monotonic clock, measured from an origin.
///
/// Only differences between moments of the same clock have a meaning. The moments in the status of an informer
/// count from its creation, those that a rate limiter receives from the creation of its queue.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Moment(Duration);

impl Moment {
    /// Creates the moment `since_origin` after the origin.
    pub const fn at(since_origin: Duration) -> Self {
        Self(since_origin)
    }

    /// Returns the time since the origin.
    pub const fn since_origin(self) -> Duration {
        self.0
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, delay: Duration) -> Self {
        Self(self.0.saturating_add(delay))
    }
}

/// The time since an earlier moment; zero if that moment is not earlier.
impl Sub for Moment {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}
