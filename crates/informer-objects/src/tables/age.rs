//! Ages of timestamps in objects.

use jiff::Timestamp;
use serde_json::Value;

use super::fields::given;
use crate::text::times::{between, human_duration};

/// The text for a missing time.
pub(super) const UNKNOWN: &str = "<unknown>";

/// Returns the age of the time at a JSON pointer.
pub(super) fn since(object: &Value, pointer: &str, now: Timestamp) -> String {
    time(object, pointer).map_or_else(|| UNKNOWN.to_owned(), |time| human_duration(between(time, now)))
}

/// Returns the time at a JSON pointer; Go's zero time counts as absent.
pub(super) fn time(object: &Value, pointer: &str) -> Option<Timestamp> {
    let text = given(object, pointer)?;
    text.parse().ok().filter(|_| text != "0001-01-01T00:00:00Z")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn missing_and_zero_times_are_unknown() {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        for object in [json!({}), json!({"t": null}), json!({"t": "x"}), json!({"t": "0001-01-01T00:00:00Z"})]
        {
            assert_eq!(since(&object, "/t", now), UNKNOWN, "{object}");
        }
        assert_eq!(since(&json!({"t": "2025-12-31T23:59:00Z"}), "/t", now), "60s");
    }
}
