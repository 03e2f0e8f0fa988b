//! The times of an election, checked when they are set.

use crate::error::ConfigError;
use std::time::Duration;

/// How long things take in an election. Core components of Kubernetes use 15, 10 and 2 seconds, and so does the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ElectionConfig {
    /// How long others leave a lease alone that is not renewed.
    pub lease_duration: Duration,
    /// How long a leader acts without having renewed its lease.
    pub renew_deadline: Duration,
    /// How long it is waited between tries.
    pub retry_period: Duration,
}

impl Default for ElectionConfig {
    fn default() -> Self {
        ElectionConfig {
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

impl ElectionConfig {
    /// These times. They are checked when an election is made of them.
    pub fn new(lease: Duration, renew: Duration, retry: Duration) -> Self {
        ElectionConfig { lease_duration: lease, renew_deadline: renew, retry_period: retry }
    }

    /// What keeps these times from being used.
    pub fn check(&self) -> Result<(), ConfigError> {
        let lease = Duration::from_secs(self.lease_duration.as_secs());
        if lease.is_zero() {
            return Err(ConfigError::LeaseDurationTooShort { lease_duration: self.lease_duration });
        }
        if self.renew_deadline >= lease {
            return Err(ConfigError::RenewDeadlineTooLong {
                renew_deadline: self.renew_deadline,
                lease_duration: lease,
            });
        }
        if self.retry_period.is_zero() || self.retry_period.saturating_mul(6) / 5 >= self.renew_deadline {
            return Err(ConfigError::RetryPeriodTooLong {
                retry_period: self.retry_period,
                renew_deadline: self.renew_deadline,
            });
        }
        Ok(())
    }
}
