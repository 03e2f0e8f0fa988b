//! What a lease says.

use std::time::Duration;

use jiff::Timestamp;

/// What a lease says about who leads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeaseRecord {
    /// Who holds it; empty if it was given back.
    pub holder: String,
    /// How long it is valid without being renewed, in seconds.
    pub lease_duration_seconds: i32,
    /// When its holder got it, by the holder's clock.
    pub acquired: Option<Timestamp>,
    /// When it was last renewed, by the holder's clock.
    pub renewed: Option<Timestamp>,
    /// How often it changed hands.
    pub transitions: i32,
}

impl LeaseRecord {
    /// How long it is valid after it was seen to change. What is not positive is never valid.
    pub fn valid_for(&self) -> Duration {
        Duration::from_secs(u64::try_from(self.lease_duration_seconds).unwrap_or(0))
    }
}
