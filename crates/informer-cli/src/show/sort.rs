//! Order of values for `--sort-by`, as in kubectl: numbers and quantities by value, texts by their parts.

use serde_json::Value;
use std::cmp::Ordering;

/// Compares the values of two objects; a missing value comes first.
pub(crate) fn compare(left: Option<&Value>, right: Option<&Value>) -> Ordering {
    match (left, right) {
        (Some(Value::Number(left)), Some(Value::Number(right))) => {
            by_value(left.as_f64().unwrap_or(0.0), right.as_f64().unwrap_or(0.0))
        }
        (Some(Value::Bool(left)), Some(Value::Bool(right))) => left.cmp(right),
        (Some(Value::String(left)), Some(Value::String(right))) => match (quantity(left), quantity(right)) {
            (Some(left), Some(right)) => by_value(left, right),
            _ => natural(left, right),
        },
        (Some(left), Some(right)) => natural(&left.to_string(), &right.to_string()),
        (left, right) => left.is_some().cmp(&right.is_some()),
    }
}

fn by_value(left: f64, right: f64) -> Ordering {
    left.partial_cmp(&right).unwrap_or(Ordering::Equal)
}

/// Compares texts so that `web-2` comes before `web-10`.
fn natural(left: &str, right: &str) -> Ordering {
    let (mut left, mut right) = (left, right);
    while let (Some(one), Some(other)) = (left.chars().next(), right.chars().next()) {
        if one.is_ascii_digit() && other.is_ascii_digit() {
            let (number, other_number) = (digits(left), digits(right));
            let by_length = |text: &str| text.trim_start_matches('0').len();
            let order = by_length(number)
                .cmp(&by_length(other_number))
                .then_with(|| number.trim_start_matches('0').cmp(other_number.trim_start_matches('0')));
            if order.is_ne() {
                return order;
            }
            (left, right) = (&left[number.len()..], &right[other_number.len()..]);
        } else if one == other {
            (left, right) = (&left[one.len_utf8()..], &right[other.len_utf8()..]);
        } else {
            return one.cmp(&other);
        }
    }
    left.len().cmp(&right.len())
}

/// Returns the digits at the beginning of a text.
fn digits(text: &str) -> &str {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    &text[..end]
}

/// Parses a quantity such as `500m`, `1.5` or `10Gi`.
fn quantity(text: &str) -> Option<f64> {
    let end = text.find(|letter: char| !letter.is_ascii_digit() && !matches!(letter, '.' | '-' | '+'));
    let (number, suffix) = text.split_at(end.unwrap_or(text.len()));
    let factor = match suffix {
        "" => 1.0,
        "n" => 1e-9,
        "u" => 1e-6,
        "m" => 1e-3,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "E" => 1e18,
        "Ki" => 1024.0,
        "Mi" => 1024.0_f64.powi(2),
        "Gi" => 1024.0_f64.powi(3),
        "Ti" => 1024.0_f64.powi(4),
        "Pi" => 1024.0_f64.powi(5),
        "Ei" => 1024.0_f64.powi(6),
        _ => return None,
    };
    number.parse::<f64>().ok().map(|number| number * factor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_have_the_order_of_kubectl() {
        for (less, greater) in [
            (json!(2), json!(10)),
            (json!("web-2"), json!("web-10")),
            (json!("a"), json!("b")),
            (json!("a"), json!("ab")),
            (json!("900m"), json!("1")),
            (json!("900Mi"), json!("1Gi")),
            (json!("2024-01-01T09:00:00Z"), json!("2024-01-01T10:00:00Z")),
            (json!(false), json!(true)),
            (json!("web-007b"), json!("web-8a")),
            (json!("99999999999999999999998"), json!("x")),
        ] {
            assert_eq!(compare(Some(&less), Some(&greater)), Ordering::Less, "{less} {greater}");
            assert_eq!(compare(Some(&greater), Some(&less)), Ordering::Greater, "{less} {greater}");
            assert_eq!(compare(Some(&less), Some(&less)), Ordering::Equal);
            assert_eq!(compare(None, Some(&less)), Ordering::Less);
        }
    }
}
