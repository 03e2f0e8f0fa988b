//! The contents of a lease.

use std::time::Duration;

use jiff::Timestamp;

/// The election record in a lease.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeaseRecord {
    /// Identity of the holder; empty if the lease was released.
    pub holder: String,
    /// Time for which the lease is valid without renewal, in seconds.
    pub lease_duration_seconds: i32,
    /// When the holder acquired the lease, by the holder's clock.
    pub acquired: Option<Timestamp>,
    /// When the lease was last renewed, by the holder's clock.
    pub renewed: Option<Timestamp>,
    /// Number of changes of the holder.
    pub transitions: i32,
}

impl LeaseRecord {
    /// Returns the time for which the lease is valid after a change of it was observed; zero if the stored
    /// duration is not positive.
    pub fn valid_for(&self) -> Duration {
        Duration::from_secs(u64::try_from(self.lease_duration_seconds).unwrap_or(0))
    }
}
