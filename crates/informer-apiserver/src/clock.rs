//! The time of day. It follows tokio's clock, which tests can pause.
//!
//! `informer::now` does the same, so that a client computes right ages of objects in virtual time. The crates
//! share no code: the server uses nothing of the client.

use std::sync::LazyLock;

use jiff::Timestamp;
use tokio::time::Instant;

/// Returns the time of the system, or in a runtime whose clock is or was paused, the time on that clock.
pub(crate) fn now() -> Timestamp {
    // tokio's clock cannot be asked whether it is paused. If it is not, it reads the clock of std, so that a
    // reading of std between two of tokio is between them.
    let before = Instant::now().into_std();
    let real = std::time::Instant::now();
    let now = Instant::now().into_std();
    if before <= real && real <= now { Timestamp::now() } else { time_at(now) }
}

/// Returns the time of day at an instant, as if the system's clock had not been set since the first call.
///
/// The origin belongs to the process and not to a server: a server that is created after hours of virtual
/// time must not be hours behind.
fn time_at(instant: std::time::Instant) -> Timestamp {
    static ORIGIN: LazyLock<(std::time::Instant, Timestamp)> =
        LazyLock::new(|| (std::time::Instant::now(), Timestamp::now()));
    let (origin, time) = *ORIGIN;
    match instant.checked_duration_since(origin) {
        Some(since) => time.saturating_add(since).unwrap_or(Timestamp::MAX),
        None => time.saturating_sub(origin.duration_since(instant)).unwrap_or(Timestamp::MIN),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn time_follows_a_paused_clock() {
        let began = now();
        assert_eq!(now(), began, "a paused clock stands still");
        tokio::time::advance(Duration::from_secs(172_800)).await;
        assert_eq!(now(), began + Duration::from_secs(172_800));
        let server = crate::ApiServer::new();
        assert_eq!(server.now(), now(), "a new server has the same time");
    }

    #[test]
    fn time_is_that_of_the_system_without_a_paused_clock() {
        let before = Timestamp::now();
        let now = now();
        assert!(before <= now && now <= Timestamp::now(), "{now}");
    }
}
