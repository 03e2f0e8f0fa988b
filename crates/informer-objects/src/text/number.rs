//! Numbers of JSON: text in, a number out.
//!
//! A number is the smallest type that holds it exactly. What stands around it in a text is not known here.

use serde_json::Number;

/// The number that a text is, if it is one and a float can hold it.
pub(super) fn number_of(text: &str) -> Option<Number> {
    if let Ok(whole) = text.parse::<i64>() {
        return Some(Number::from(whole));
    }
    if let Ok(whole) = text.parse::<u64>() {
        return Some(Number::from(whole));
    }
    text.parse::<f64>().ok().and_then(Number::from_f64)
}
