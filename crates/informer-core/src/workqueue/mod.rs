//! The work queue: keys that need work, each with one holder at a time (C14).
//!
//! A [`Queue`] is the machine: no clock, no waiting, no threads. Keys go in with [`Queue::add`] and come out with [`Queue::take`]; between a
//! take and its end a key is held, and adding it again means one more turn afterwards. Keys may also come later
//! ([`Queue::add_after`]), or as late as a [`RateLimiter`] says. What a key stands for is not known here.

mod delays;
mod limiter;
mod metrics;
mod priority;
mod priority_levels;
mod queue;
mod sampling;
mod slot;
mod slots;
mod table;

pub use limiter::{ExponentialBackoff, FastSlow, MaxOf, RateLimiter, TokenBucket, WithMaxDelay};
pub use metrics::{Histogram, QueueMetrics};
pub use priority::Priority;
pub use queue::{Queue, StaleToken, TakenKey, WorkToken};

#[cfg(test)]
mod tests;
