//! Time as the machines see it: a parameter, counted from an origin that their driver chose.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A point in time. The machines never ask for it; it is handed to them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Moment(Duration);

impl Moment {
    /// So long after the driver's origin.
    pub const fn at(since_origin: Duration) -> Self {
        Self(since_origin)
    }

    /// How long after the driver's origin.
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

/// How long after an earlier moment; nothing if it was not earlier.
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
