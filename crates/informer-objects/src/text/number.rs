//! Parsing of JSON numbers.
//!
//! The result has the smallest type that represents the number exactly. Nothing here knows the text around
//! the number.

use serde_json::Number;

/// Returns the number of a text, if the text is one and fits a float.
pub(super) fn number_of(text: &str) -> Option<Number> {
    if let Ok(whole) = text.parse::<i64>() {
        return Some(Number::from(whole));
    }
    if let Ok(whole) = text.parse::<u64>() {
        return Some(Number::from(whole));
    }
    text.parse::<f64>().ok().and_then(Number::from_f64)
}
