//! Numbers: checks against a schema, and their representation in Go.
//!
//! A number is an integer if it fits into a signed 64-bit integer and was written without a fraction;
//! otherwise it is a float.

use serde_json::{Number, Value};

use super::super::field;
use super::outcome::{Kind, Outcome, ValueError};
use crate::schema::{Structural, StructuralType};

/// Converts the numbers of an object to the form in which kube-apiserver returns them.
///
/// Floats without a fraction become integers up to 2⁵³ − 1, and remain floats above. Integers that do not fit
/// into [`i64`] lose digits.
pub fn normalize(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            let float = number.as_f64().unwrap_or_default();
            let text = field::number(float);
            if is_whole(float) && float.abs() < 1e21 {
                let whole =
                    text.parse::<i64>().map(Number::from).or_else(|_| text.parse::<u64>().map(Number::from));
                if let Ok(whole) = whole {
                    *number = whole;
                }
            }
        }
        Value::Number(number) if !number.is_i64() => {
            // Go decodes an integer that is too large for `i64` as a float, which keeps only the first
            // digits.
            #[allow(clippy::cast_precision_loss, reason = "Go loses the same digits")]
            let float = number.as_u64().unwrap_or_default() as f64;
            if let Some(integer) = shortest_digits(float) {
                *number = Number::from(integer);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(normalize),
        Value::Object(fields) => fields.values_mut().for_each(normalize),
        _ => {}
    }
}

/// Returns the shortest decimal digits that identify a float, as Go prints it, padded with zeros.
fn shortest_digits(float: f64) -> Option<u64> {
    let text = format!("{float:e}");
    let (digits, exponent) = text.split_once('e')?;
    let exponent: usize = exponent.parse().ok()?;
    let digits = digits.replace('.', "");
    let zeros = (exponent + 1).checked_sub(digits.len())?;
    format!("{digits}{}", "0".repeat(zeros)).parse().ok()
}

/// Whether a float is an integer within the tolerance of kube-openapi.
pub(super) fn is_whole(float: f64) -> bool {
    const MAX_SAFE: f64 = 9_007_199_254_740_991.0;
    if !float.is_finite() || float.abs() > MAX_SAFE {
        return false;
    }
    let whole = float.trunc();
    let difference = (float - whole).abs();
    difference == 0.0 || difference < f64::EPSILON * float.abs().max(whole.abs()).min(f64::MAX)
}

/// Whether a value equals one of the values of `enum`. Numbers are converted to the type of the allowed
/// number as in kube-openapi, so `1.5` equals `1`; `null` equals nothing.
pub(super) fn is_equal(value: &Value, allowed: &Value) -> bool {
    match (value, allowed) {
        (Value::Null, _) => false,
        (Value::Number(value), Value::Number(allowed)) => match (value.as_i64(), allowed.as_i64()) {
            (Some(value), Some(allowed)) => value == allowed,
            (None, Some(allowed)) => value.as_f64().is_some_and(|value| to_whole(value) == allowed),
            _ => value.as_f64() == allowed.as_f64(),
        },
        _ => value == allowed,
    }
}

/// Whether a format applies to strings.
pub(super) fn is_text_format(format: &str) -> bool {
    !matches!(format, "int32" | "int64" | "float" | "double")
}

/// Checks that a number, and the limits of its schema, are in the range of the type, and that the number is
/// within the limits.
pub(super) fn check(schema: &Structural, number: &Number, path: &str) -> Outcome {
    let mut outcome = Outcome::default();
    let checks = &schema.checks;
    let range = Range { kind: schema.kind, format: checks.format.as_deref().unwrap_or_default(), path };
    let value = NumberValue::of(number);
    add_error_without_path(&mut outcome, range.range_error(value, "Checked"));
    let mut check_limit =
        |limit: Option<f64>, label: &str, check: &dyn Fn(NumberValue, f64) -> Option<String>| {
            let Some(limit) = limit else { return };
            add_error_without_path(&mut outcome, range.range_error(NumberValue::Float(limit), label));
            if let Some(text) = check(value, limit) {
                let shown = Kind::Invalid(value.show());
                outcome.add(ValueError { path: Some(path.to_owned()), text, kind: shown });
            }
        };
    check_limit(checks.multiple_of, "MultipleOf", &|value, factor| multiple(value, factor, path));
    check_limit(checks.minimum, "Minimum boundary", &|value, limit| {
        minimum(value, limit, checks.exclusive_minimum, path)
    });
    check_limit(checks.maximum, "Maximum boundary", &|value, limit| {
        maximum(value, limit, checks.exclusive_maximum, path)
    });
    outcome.add_match();
    outcome
}

fn add_error_without_path(outcome: &mut Outcome, text: Option<String>) {
    if let Some(text) = text {
        outcome.add(ValueError { path: None, text, kind: Kind::Invalid("\"\"".to_owned()) });
    }
}

/// A number as the object contains it.
#[derive(Debug, Clone, Copy)]
enum NumberValue {
    Integer(i64),
    Float(f64),
}

impl NumberValue {
    fn of(number: &Number) -> Self {
        match number.as_i64() {
            Some(whole) => NumberValue::Integer(whole),
            None => NumberValue::Float(number.as_f64().unwrap_or_default()),
        }
    }

    fn show(self) -> String {
        match self {
            NumberValue::Integer(whole) => whole.to_string(),
            NumberValue::Float(float) => field::number(float),
        }
    }
}

/// The numbers that a type and its format can represent.
#[derive(Debug, Clone, Copy)]
struct Range<'a> {
    kind: StructuralType,
    format: &'a str,
    path: &'a str,
}

impl Range<'_> {
    /// Returns the error about a number outside the range; `label` is the name of the number in the text.
    fn range_error(self, value: NumberValue, label: &str) -> Option<String> {
        let (name, fits) = match (self.kind, self.format) {
            (StructuralType::Integer, "int32") => ("integer", value.show().parse::<i32>().is_ok()),
            (StructuralType::Integer, _) => ("integer", value.show().parse::<i64>().is_ok()),
            (StructuralType::Number, "float") => {
                ("number", value.show().parse::<f32>().is_ok_and(f32::is_finite))
            }
            _ => return None,
        };
        let format = match self.format {
            "" => "(default format)".to_owned(),
            format => format!("with format {format}"),
        };
        let path = self.path;
        (!fits).then(|| format!("{label} value must be of type {name} {format} in {path}"))
    }
}

fn maximum(value: NumberValue, limit: f64, exclusive: bool, path: &str) -> Option<String> {
    let comparison = if exclusive { "less than" } else { "less than or equal to" };
    let (violated, shown) = match value {
        NumberValue::Integer(value) => {
            let limit = to_whole(limit);
            (value > limit || (exclusive && value == limit), limit.to_string())
        }
        NumberValue::Float(value) => (value > limit || (exclusive && value >= limit), field::number(limit)),
    };
    violated.then(|| format!("{path} in body should be {comparison} {shown}"))
}

fn minimum(value: NumberValue, limit: f64, exclusive: bool, path: &str) -> Option<String> {
    let comparison = if exclusive { "greater than" } else { "greater than or equal to" };
    let (violated, shown) = match value {
        NumberValue::Integer(value) => {
            let limit = to_whole(limit);
            (value < limit || (exclusive && value == limit), limit.to_string())
        }
        NumberValue::Float(value) => (value < limit || (exclusive && value <= limit), field::number(limit)),
    };
    violated.then(|| format!("{path} in body should be {comparison} {shown}"))
}

fn multiple(value: NumberValue, factor: f64, path: &str) -> Option<String> {
    let (positive, fits, shown) = match value {
        NumberValue::Integer(value) => {
            let factor = to_whole(factor);
            (factor > 0, value.checked_rem(factor) == Some(0), factor.to_string())
        }
        NumberValue::Float(value) => {
            let parts = if factor < 1.0 { 1.0 / factor * value } else { value / factor };
            (factor > 0.0, is_whole(parts), field::number(factor))
        }
    };
    if !positive {
        return Some(format!("factor MultipleOf declared for {path} must be positive: {shown}"));
    }
    (!fits).then(|| format!("{path} in body should be a multiple of {shown}"))
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "limits are floats in a schema and integers in a comparison"
)]
fn to_whole(float: f64) -> i64 {
    float as i64
}
