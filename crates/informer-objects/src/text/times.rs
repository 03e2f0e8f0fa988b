//! Times as objects have them, and durations in the few words that people read.

use jiff::Timestamp;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// The longest duration there is: that many nanoseconds fit 64 bits.
const MAX_DURATION_SECONDS: i64 = i64::MAX / 1_000_000_000;

/// A time as objects have it, `2026-01-01T00:00:00Z`.
pub fn written(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// As leases and events have it, `2026-01-01T00:00:00.000000Z`.
pub(crate) fn with_micros(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// Whole seconds from one time to another.
pub(crate) fn between(from: Timestamp, to: Timestamp) -> i64 {
    to.duration_since(from).as_secs().clamp(-MAX_DURATION_SECONDS, MAX_DURATION_SECONDS)
}

/// A duration in seconds with two or three digits that matter: `90s`, `5m30s`, `2d3h`, `2y317d`.
pub(crate) fn words(seconds: i64) -> String {
    match seconds {
        // Clocks differ a little.
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        _ if seconds < 2 * MINUTE => format!("{seconds}s"),
        _ if seconds < 10 * MINUTE => two(seconds, (MINUTE, "m"), (1, "s")),
        _ if seconds < 3 * HOUR => format!("{}m", seconds / MINUTE),
        _ if seconds < 8 * HOUR => two(seconds, (HOUR, "h"), (MINUTE, "m")),
        _ if seconds < 2 * DAY => format!("{}h", seconds / HOUR),
        _ if seconds < 8 * DAY => two(seconds, (DAY, "d"), (HOUR, "h")),
        _ if seconds < 2 * YEAR => format!("{}d", seconds / DAY),
        _ if seconds < 8 * YEAR => two(seconds, (YEAR, "y"), (DAY, "d")),
        _ => format!("{}y", seconds / YEAR),
    }
}

/// Two units, the smaller one only if there are some.
fn two(seconds: i64, large: (i64, &str), small: (i64, &str)) -> String {
    let whole = format!("{}{}", seconds / large.0, large.1);
    match seconds % large.0 / small.0 {
        0 => whole,
        rest => format!("{whole}{rest}{}", small.1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_as_kubectl_shows_them() {
        let cases = [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (2 * MINUTE, "2m"),
            (2 * MINUTE + 1, "2m1s"),
            (10 * MINUTE - 1, "9m59s"),
            (10 * MINUTE + 59, "10m"),
            (3 * HOUR - 1, "179m"),
            (3 * HOUR, "3h"),
            (3 * HOUR + 59, "3h"),
            (7 * HOUR + 5 * MINUTE, "7h5m"),
            (8 * HOUR + 5 * MINUTE, "8h"),
            (2 * DAY - 1, "47h"),
            (2 * DAY + 3 * HOUR, "2d3h"),
            (8 * DAY + 3 * HOUR, "8d"),
            (2 * YEAR - 1, "729d"),
            (2 * YEAR + 317 * DAY, "2y317d"),
            (3 * YEAR, "3y"),
            (8 * YEAR + 317 * DAY, "8y"),
            (MAX_DURATION_SECONDS, "292y"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(words(seconds), expected, "{seconds}");
        }
    }

    #[test]
    fn seconds_are_cut_and_not_rounded() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        assert_eq!(between(at("2026-01-01T00:00:00.9Z"), at("2026-01-01T00:00:02Z")), 1);
        assert_eq!(between(at("2026-01-01T00:00:01.9Z"), at("2026-01-01T00:00:00Z")), -1);
        assert_eq!(words(between(at("0002-01-01T00:00:00Z"), at("2026-01-01T00:00:00Z"))), "292y");
    }
}
