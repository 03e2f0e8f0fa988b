//! The times of an election, checked when they are set.

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

/// Times that no election can be held with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ElectionConfigError {
    /// A lease is written in whole seconds.
    #[error("a lease of {0:?} is shorter than a second, and leases are written in whole seconds")]
    LeaseTooShort(Duration),
    /// A leader would act while others may take over.
    #[error(
        "a leader that acts for {renew:?} without renewing does not fit a lease of {lease:?}: it must be shorter"
    )]
    RenewTooLong {
        /// How long the leader would act.
        renew: Duration,
        /// How long its lease lasts, in whole seconds.
        lease: Duration,
    },
    /// A leader would have no second try.
    #[error("tries every {retry:?} do not fit into {renew:?}: it must be more than 1.2 times as long")]
    RetryTooLong {
        /// How long it is waited between tries.
        retry: Duration,
        /// The time in which one must succeed.
        renew: Duration,
    },
    /// Without an identity nobody can be told apart.
    #[error("an election needs an identity")]
    NoIdentity,
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
    pub fn check(&self) -> Result<(), ElectionConfigError> {
        let lease = Duration::from_secs(self.lease_duration.as_secs());
        if lease.is_zero() {
            return Err(ElectionConfigError::LeaseTooShort(self.lease_duration));
        }
        if self.renew_deadline >= lease {
            return Err(ElectionConfigError::RenewTooLong { renew: self.renew_deadline, lease });
        }
        if self.retry_period.is_zero() || self.retry_period.saturating_mul(6) / 5 >= self.renew_deadline {
            return Err(ElectionConfigError::RetryTooLong {
                retry: self.retry_period,
                renew: self.renew_deadline,
            });
        }
        Ok(())
    }
}
