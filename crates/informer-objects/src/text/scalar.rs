//! Resolution of unquoted YAML scalars: YAML 1.1 as in go-yaml, where `n` is false and `0o17` is fifteen.

use serde_json::{Number, Value};

use super::number::number_of;

/// A resolved scalar.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Scalar {
    Null,
    Bool(bool),
    Number(Number),
    /// Infinity or not a number, with its name in YAML. JSON cannot represent these.
    NotFinite(&'static str),
    /// A date or a time, which is a string in JSON; a string of this form must be quoted in YAML.
    Time,
    /// The merge key `<<`.
    Merge,
    Text,
}

impl Scalar {
    /// Returns the JSON value.
    pub(super) fn value(self, text: &str) -> Value {
        match self {
            Scalar::Null => Value::Null,
            Scalar::Bool(value) => Value::Bool(value),
            Scalar::Number(number) => Value::Number(number),
            Scalar::NotFinite(_) | Scalar::Time | Scalar::Merge | Scalar::Text => Value::from(text),
        }
    }
}

/// Resolves a scalar without quotes and without a tag.
pub(super) fn resolve(text: &str) -> Scalar {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Scalar::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Scalar::Bool(true);
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Scalar::Bool(false);
        }
        ".nan" | ".NaN" | ".NAN" => return Scalar::NotFinite(".nan"),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Scalar::NotFinite(".inf"),
        "-.inf" | "-.Inf" | "-.INF" => return Scalar::NotFinite("-.inf"),
        "<<" => return Scalar::Merge,
        _ => {}
    }
    match text.as_bytes().first() {
        Some(b'.') => float(text),
        Some(b'+' | b'-' | b'0'..=b'9') => {
            if is_time(text) {
                return Scalar::Time;
            }
            let plain = text.replace('_', "");
            integer(&plain).map_or_else(|| float(&plain), Scalar::Number)
        }
        _ => Scalar::Text,
    }
}

/// Whether older parsers would read a text as a base-60 number, `12:30`.
pub(super) fn is_base_60(text: &str) -> bool {
    let digits = text.trim_start_matches(['+', '-']);
    if text.len() - digits.len() > 1 || !digits.starts_with(|first: char| first.is_ascii_digit()) {
        return false;
    }
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let numeric = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
    let mut parts = whole.split(':');
    let first = parts.next().is_some_and(numeric);
    let sixtieth = |part: &str| match part.as_bytes() {
        [digit] => digit.is_ascii_digit(),
        [tens, digit] => (b'0'..=b'5').contains(tens) && digit.is_ascii_digit(),
        _ => false,
    };
    first && whole.contains(':') && parts.all(sixtieth) && numeric(fraction)
}

/// Parses an integer with an optional base prefix: `0x1f`, `0o17`, `017`, `0b11`.
fn integer(text: &str) -> Option<Number> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, text.get(1..)?),
        b'+' => (false, text.get(1..)?),
        _ => (false, text),
    };
    let lower = digits.to_ascii_lowercase();
    let (base, digits) = match lower.as_bytes() {
        [b'0', b'x', ..] => (16, lower.get(2..)?),
        [b'0', b'b', ..] => (2, lower.get(2..)?),
        [b'0', b'o', ..] => (8, lower.get(2..)?),
        [b'0', _, ..] => (8, lower.get(1..)?),
        _ => (10, lower.as_str()),
    };
    if !digits.starts_with(|first: char| first.is_ascii_alphanumeric()) {
        return None;
    }
    let magnitude = u64::from_str_radix(digits, base).ok()?;
    if !negative {
        // As in go-yaml, a number with a plus sign must fit a signed integer.
        return (!text.starts_with('+') || i64::try_from(magnitude).is_ok()).then(|| Number::from(magnitude));
    }
    0_i64.checked_sub_unsigned(magnitude).map(Number::from)
}

fn float(text: &str) -> Scalar {
    let digits = text.trim_start_matches(['+', '-']);
    let (mantissa, exponent) = match digits.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (digits, None),
    };
    let numeric = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let is_valid_exponent = exponent.is_none_or(|exponent| {
        let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !digits.is_empty() && numeric(digits)
    });
    let has_digits = !whole.is_empty() || !fraction.is_empty();
    if text.len() - digits.len() > 1
        || !has_digits
        || !numeric(whole)
        || !numeric(fraction)
        || !is_valid_exponent
    {
        return Scalar::Text;
    }
    let unsigned = text.strip_prefix('+').unwrap_or(text);
    let number = unsigned.parse::<f64>().ok().filter(|float| float.is_finite());
    // `1.0` is the float one, which JSON writes as `1`.
    match number.and_then(|float| number_of(&super::go::number_json(&Number::from_f64(float)?))) {
        Some(number) => Scalar::Number(number),
        None => Scalar::Text,
    }
}

/// Whether a text is a date, or a date with a time, in a format known to go-yaml.
fn is_time(text: &str) -> bool {
    let Some((date, rest)) = split_date(text) else { return false };
    let mut parts = date.split('-').map(str::parse::<u32>);
    let (Some(Ok(year)), Some(Ok(month)), Some(Ok(day)), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + u32::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return false,
    };
    if day == 0 || day > days {
        return false;
    }
    match rest.chars().next() {
        None => true,
        Some(' ') => rest.get(1..).is_some_and(is_clock),
        Some('T' | 't') => {
            let rest = rest.get(1..).unwrap_or_default();
            let end = rest.find(['Z', '+', '-']).unwrap_or(rest.len());
            let (clock, zone) = rest.split_at(end);
            is_clock(clock) && is_zone(zone)
        }
        Some(_) => false,
    }
}

/// Splits a text into a date such as `2024-1-2` and what follows the date.
fn split_date(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|character: char| !character.is_ascii_digit() && character != '-');
    let (date, rest) = text.split_at(end.unwrap_or(text.len()));
    let mut parts = date.split('-');
    let sized = parts.next()?.len() == 4 && parts.all(|part| matches!(part.len(), 1 | 2));
    sized.then_some((date, rest))
}

/// Whether a text is a time of day, `15:4:5.25`.
fn is_clock(text: &str) -> bool {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let mut parts = whole.split(':');
    let below = |part: Option<&str>, limit: u32| {
        part.is_some_and(|part| {
            matches!(part.len(), 1 | 2) && part.parse::<u32>().is_ok_and(|value| value < limit)
        })
    };
    below(parts.next(), 24)
        && below(parts.next(), 60)
        && below(parts.next(), 60)
        && parts.next().is_none()
        && !fraction.is_empty()
        && fraction.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_zone(text: &str) -> bool {
    let digits = text.get(1..).unwrap_or_default();
    text == "Z"
        || (text.starts_with(['+', '-'])
            && digits.len() == 5
            && digits.split_once(':').is_some_and(|(hours, minutes)| {
                hours.len() == 2
                    && hours.parse::<u32>().is_ok_and(|hours| hours <= 24)
                    && minutes.parse::<u32>().is_ok_and(|minutes| minutes < 60)
            }))
}
