//! Formats of timestamps, and durations in the short form shown to users.

use jiff::Timestamp;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// The maximum duration in Go: its nanoseconds fit 64 bits.
const MAX_DURATION_SECONDS: i64 = i64::MAX / 1_000_000_000;

/// Returns a time in the format of most objects, `2026-01-01T00:00:00Z`.
pub fn written(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Returns a time in the format of leases and events, `2026-01-01T00:00:00.000000Z`.
pub(crate) fn with_micros(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// Returns the whole seconds from one time to another, within the range of durations in Go.
pub(crate) fn between(from: Timestamp, to: Timestamp) -> i64 {
    to.duration_since(from).as_secs().clamp(-MAX_DURATION_SECONDS, MAX_DURATION_SECONDS)
}

/// Returns a duration with two or three significant digits, as client-go does: `90s`, `5m30s`, `2d3h`,
/// `2y317d`.
pub(crate) fn human_duration(seconds: i64) -> String {
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        // Tolerates a small difference between clocks.
        -1 => "0s".to_owned(),
        _ if seconds < 2 * MINUTE => format!("{seconds}s"),
        _ if seconds < 10 * MINUTE => in_two_units(seconds, (MINUTE, "m"), (1, "s")),
        _ if seconds < 3 * HOUR => format!("{}m", seconds / MINUTE),
        _ if seconds < 8 * HOUR => in_two_units(seconds, (HOUR, "h"), (MINUTE, "m")),
        _ if seconds < 2 * DAY => format!("{}h", seconds / HOUR),
        _ if seconds < 8 * DAY => in_two_units(seconds, (DAY, "d"), (HOUR, "h")),
        _ if seconds < 2 * YEAR => format!("{}d", seconds / DAY),
        _ if seconds < 8 * YEAR => in_two_units(seconds, (YEAR, "y"), (DAY, "d")),
        _ => format!("{}y", seconds / YEAR),
    }
}

/// Returns a duration in two units, omitting the smaller one if it is zero.
fn in_two_units(seconds: i64, large: (i64, &str), small: (i64, &str)) -> String {
    let whole = format!("{}{}", seconds / large.0, large.1);
    match seconds % large.0 / small.0 {
        0 => whole,
        remainder => format!("{whole}{remainder}{}", small.1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_equal_those_of_kubectl() {
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
            assert_eq!(human_duration(seconds), expected, "{seconds}");
        }
    }

    #[test]
    fn seconds_are_truncated() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        assert_eq!(between(at("2026-01-01T00:00:00.9Z"), at("2026-01-01T00:00:02Z")), 1);
        assert_eq!(between(at("2026-01-01T00:00:01.9Z"), at("2026-01-01T00:00:00Z")), -1);
        assert_eq!(human_duration(between(at("0002-01-01T00:00:00Z"), at("2026-01-01T00:00:00Z"))), "292y");
    }
}
