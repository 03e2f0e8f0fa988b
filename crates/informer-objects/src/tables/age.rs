//! How long ago something was.

use jiff::Timestamp;
use serde_json::Value;

use super::fields::given;
use crate::text::times::{between, words};

/// What is said where there is no time.
pub(super) const UNKNOWN: &str = "<unknown>";

/// How long before `now` the time at a place was.
pub(super) fn since(object: &Value, place: &str, now: Timestamp) -> String {
    time(object, place).map_or_else(|| UNKNOWN.to_owned(), |time| words(between(time, now)))
}

/// The time at a place. The zero of Go's times counts as none.
pub(super) fn time(object: &Value, place: &str) -> Option<Timestamp> {
    let text = given(object, place)?;
    text.parse().ok().filter(|_| text != "0001-01-01T00:00:00Z")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_time_that_is_none_is_unknown() {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        for object in [json!({}), json!({"t": null}), json!({"t": "x"}), json!({"t": "0001-01-01T00:00:00Z"})]
        {
            assert_eq!(since(&object, "/t", now), UNKNOWN, "{object}");
        }
        assert_eq!(since(&json!({"t": "2025-12-31T23:59:00Z"}), "/t", now), "60s");
    }
}
