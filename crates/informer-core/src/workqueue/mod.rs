//! The work queue: keys that need processing, each by one worker at a time (C14).
//!
//! A [`Queue`] is a state machine without clock, waiting and threads. Keys are added with [`Queue::add`] and
//! taken with [`Queue::take`]. A taken key is processing until the caller gives its [`WorkToken`] back. A key
//! that is added while it is processing is processed once more. Keys may also be added with a delay
//! ([`Queue::add_after`]), or with the delay that a [`RateLimiter`] returns. This module does not know what a
//! key stands for.
//!
//! A failure of a key counts only if the delay after its previous counted failure has passed. A key that is
//! added earlier and fails again is retried when it was due anyway, and its next delay does not grow. A
//! [`RetryLimit`] limits the retries of all keys together.

mod delays;
mod limiter;
mod metrics;
mod priority;
mod priority_levels;
mod queue;
mod retries;
mod retry_limit;
mod sampling;
mod slot;
mod slots;
mod table;

pub use limiter::{ExponentialBackoff, FastSlow, MaxOf, RateLimiter, TokenBucket, WithMaxDelay};
pub use metrics::{Histogram, QueueMetrics};
pub use priority::Priority;
pub use queue::{Queue, StaleToken, TakenKey, WorkToken};
pub use retry_limit::RetryLimit;

#[cfg(test)]
mod outage_tests;
#[cfg(test)]
mod tests;
