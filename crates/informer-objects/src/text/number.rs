//! Parsing of JSON numbers.
//!
//! The result is a signed integer if it fits, otherwise an unsigned integer, otherwise a float. Callers have
//! checked the syntax of the number.

use serde_json::Number;

/// Returns the number that a text contains; `None` if the number exceeds the range of floats.
pub(super) fn number_of(text: &str) -> Option<Number> {
    if let Ok(whole) = text.parse::<i64>() {
        return Some(Number::from(whole));
    }
    if let Ok(whole) = text.parse::<u64>() {
        return Some(Number::from(whole));
    }
    text.parse::<f64>().ok().and_then(Number::from_f64)
}
