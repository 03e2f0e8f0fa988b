//! The durations of an election, validated by [`Election::new`](super::Election::new).

use crate::error::ConfigError;
use std::time::Duration;

/// The durations of an election.
///
/// Defaults to 15, 10 and 2 seconds, which the core components of Kubernetes use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ElectionConfig {
    /// Time after which other candidates take over a lease that is not renewed.
    pub lease_duration: Duration,
    /// Time after the last renewal at which a leader stops acting.
    pub renew_deadline: Duration,
    /// Delay between attempts to acquire or renew the lease. Attempts to acquire it add jitter.
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
    /// Creates a configuration; [`Election::new`](super::Election::new) validates it.
    pub fn new(lease_duration: Duration, renew_deadline: Duration, retry_period: Duration) -> Self {
        ElectionConfig { lease_duration, renew_deadline, retry_period }
    }

    /// Validates the durations.
    ///
    /// # Errors
    ///
    /// If `lease_duration` is shorter than a second, `renew_deadline` is not shorter than `lease_duration`, a
    /// second attempt to renew the lease would not fit into `renew_deadline`, or `retry_period` is zero.
    pub fn check(&self) -> Result<(), ConfigError> {
        // The field of the lease contains whole seconds.
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
