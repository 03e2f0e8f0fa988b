//! Order of values for `--sort-by`, as in kubectl: numbers and quantities by value, texts by their parts.
//!
//! The order is total, as sorting requires: values of different classes are never compared by their contents.

use serde_json::Value;
use std::borrow::Cow;
use std::cmp::Ordering;

/// A value in its class. The classes come in this order.
enum Sorted<'a> {
    Missing,
    Bool(bool),
    /// A number, or a text that is a quantity.
    Number(f64),
    Text(Cow<'a, str>),
}

impl<'a> Sorted<'a> {
    fn new(value: Option<&'a Value>) -> Self {
        match value {
            None | Some(Value::Null) => Self::Missing,
            Some(Value::Bool(value)) => Self::Bool(*value),
            Some(Value::Number(number)) => Self::Number(number.as_f64().unwrap_or(0.0)),
            Some(Value::String(text)) => quantity(text).map_or(Self::Text(Cow::Borrowed(text)), Self::Number),
            Some(value) => Self::Text(Cow::Owned(value.to_string())),
        }
    }

    fn class(&self) -> u8 {
        match self {
            Self::Missing => 0,
            Self::Bool(_) => 1,
            Self::Number(_) => 2,
            Self::Text(_) => 3,
        }
    }
}

/// Compares the values of two objects; a missing value comes first.
pub(crate) fn compare(left: Option<&Value>, right: Option<&Value>) -> Ordering {
    match (Sorted::new(left), Sorted::new(right)) {
        (Sorted::Bool(left), Sorted::Bool(right)) => left.cmp(&right),
        (Sorted::Number(left), Sorted::Number(right)) => left.total_cmp(&right),
        (Sorted::Text(left), Sorted::Text(right)) => natural(&left, &right),
        (left, right) => left.class().cmp(&right.class()),
    }
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

    /// Regression: two quantities were compared by value and all other pairs of texts by their parts, which is a cycle
    /// for `1.10`, `1.9` and `1.9.1`. The standard library may panic when it sorts by such an order. The test compared
    /// pairs only.
    #[test]
    fn order_is_total() {
        let alphabet = ["0", "1", "9", ".", "m", "-"];
        let texts = alphabet.iter().flat_map(|first| {
            let rest = alphabet.iter().flat_map(move |second| {
                let longer = ["", ".1", "10", "a"].map(|third| format!("{first}{second}{third}"));
                longer.into_iter()
            });
            std::iter::once((*first).to_owned()).chain(rest)
        });
        let mut values: Vec<Option<Value>> = texts.map(|text| Some(json!(text))).collect();
        values
            .extend(["", "1.10", "1.9", "1.9.1", "web-1", "Ki", "1Ki", "null"].map(|text| Some(json!(text))));
        values.extend([json!(null), json!(true), json!(false), json!(1), json!(-0.0), json!(1.5)].map(Some));
        values.extend([Some(json!([1])), Some(json!({"a": 1})), Some(json!(u64::MAX)), None]);

        let order: Vec<Vec<Ordering>> = values
            .iter()
            .map(|left| values.iter().map(|right| compare(left.as_ref(), right.as_ref())).collect())
            .collect();
        let all = 0..values.len();
        for one in all.clone() {
            for two in all.clone() {
                assert_eq!(order[one][two], order[two][one].reverse(), "{:?} {:?}", values[one], values[two]);
                for three in all.clone().filter(|three| order[two][*three] == order[one][two]) {
                    let shown = || format!("{:?} {:?} {:?}", values[one], values[two], values[three]);
                    assert_eq!(order[one][three], order[one][two], "{}", shown());
                }
            }
        }
    }
}
