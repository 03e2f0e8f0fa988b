//! Text of values: `string(…)` and `'%s'.format([…])`, as in Go.
//!
//! Inside lists and maps, strings are quoted, times and durations are written as calls of their constructors,
//! and maps are sorted. Numbers with `%f` and `%e` have the format of American English, as in kube-apiserver.

use kube_cel::cel::objects::Key;
use kube_cel::cel::{ExecutionError, Value as Cel};
use serde_json::Value;

use super::super::budget::{EvalAbort, Meter, UNIT, size};
use super::quantities::QuantityValue;
use crate::text::{quoted, shown};

/// The maximum number of decimals of a float; further ones are zeros.
const MAX_DECIMALS: usize = 1_100;
/// The default number of decimals.
const PRECISION: usize = 6;
/// The modulus of precisions: kube-apiserver stores them in two bytes.
const PRECISION_MODULUS: usize = 1 << 16;

const SUPERSCRIPT: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];

/// Replaces the clauses of a template (`%s`, `%.2f`) by values.
pub(super) fn format(meter: &mut Meter, template: &str, args: &[Cel]) -> Result<String, EvalAbort> {
    meter.charge(size(template.len()).saturating_add(UNIT))?;
    let mut out = String::with_capacity(template.len());
    let mut next = 0;
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('%') {
        out.push_str(before);
        if let Some(after) = after.strip_prefix('%') {
            out.push('%');
            rest = after;
            continue;
        }
        let arg = args.get(next).ok_or_else(|| format_error(&format!("index {next} out of range")))?;
        next += 1;
        let (precision, after) = precision(after)?;
        let Some(clause) = after.chars().next() else { return Err(format_error("unexpected end of string")) };
        let text = fill(meter, clause, precision, arg)?;
        meter.charge(size(text.len()))?;
        out.push_str(&text);
        rest = after.get(clause.len_utf8()..).unwrap_or_default();
    }
    out.push_str(rest);
    Ok(out)
}

/// Whether `string(…)` of a value is implemented here.
pub(super) fn has_text(value: &Cel) -> bool {
    matches!(
        value,
        Cel::Bool(_) | Cel::Float(_) | Cel::Bytes(_) | Cel::Timestamp(_) | Cel::Duration(_) | Cel::String(_)
    )
}

/// Returns the text of a single value.
pub(super) fn to_text(value: &Cel) -> Result<String, ExecutionError> {
    let failed = |why: &str| Err(ExecutionError::function_error("string", why));
    Ok(match value {
        Cel::String(text) => text.to_string(),
        Cel::Bool(flag) => flag.to_string(),
        Cel::Int(number) => number.to_string(),
        Cel::UInt(number) => number.to_string(),
        Cel::Float(number) if number.is_nan() => "NaN".to_owned(),
        Cel::Float(number) if number.is_infinite() => format!("{}Inf", sign(*number, "+")),
        Cel::Float(number) => shown(&Value::from(*number)),
        Cel::Null => "null".to_owned(),
        Cel::Timestamp(time) => {
            let seconds = time.format("%Y-%m-%dT%H:%M:%S");
            let fraction = format!("{:09}", time.timestamp_subsec_nanos());
            let fraction = fraction.trim_end_matches('0');
            let point = if fraction.is_empty() { "" } else { "." };
            let zone = if time.offset().local_minus_utc() == 0 {
                "Z".into()
            } else {
                time.format("%:z").to_string()
            };
            format!("{seconds}{point}{fraction}{zone}")
        }
        Cel::Duration(duration) => format!("{}s", seconds(duration)),
        Cel::Bytes(bytes) => match str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => return failed("invalid UTF-8 in bytes, cannot convert to string"),
        },
        _ => {
            return failed(&format!(
                "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and \
                 timestamps, was given {}",
                type_name(value)
            ));
        }
    })
}

/// Parses the precision and returns the rest of the clause.
fn precision(text: &str) -> Result<(Option<usize>, &str), EvalAbort> {
    let failed = |why: &str| {
        format_error(&format!("could not parse formatting clause: error while parsing precision: {why}"))
    };
    let Some(digits) = text.strip_prefix('.') else { return Ok((None, text)) };
    let Some(end) = digits.find(|letter: char| !letter.is_ascii_digit()) else {
        return Err(failed("could not find end of precision specifier"));
    };
    let (digits, rest) = digits.split_at(end);
    let why = if digits.is_empty() { "invalid syntax" } else { "value out of range" };
    let failed = |_| {
        failed(&format!(
            "error while converting precision to integer: strconv.Atoi: parsing {}: {why}",
            quoted(digits)
        ))
    };
    let precision: i64 = digits.parse().map_err(failed)?;
    Ok((usize::try_from(precision).ok(), rest))
}

/// Formats one value by its clause.
fn fill(meter: &mut Meter, clause: char, precision: Option<usize>, value: &Cel) -> Result<String, EvalAbort> {
    let precision = precision.unwrap_or(PRECISION) % PRECISION_MODULUS;
    meter.charge_value(value)?;
    let type_error = |what: &str| {
        Err(format_error(&format!("error during formatting: {what}, was given {}", type_name(value))))
    };
    match (clause, value) {
        ('s', _) => {
            nested(value, false).map_err(|error| format_error(&format!("error during formatting: {error}")))
        }
        ('d' | 'b' | 'o' | 'x' | 'X', Cel::Int(number)) => {
            let sign = if *number < 0 { "-" } else { "" };
            Ok(format!("{sign}{}", in_base(clause, number.unsigned_abs())))
        }
        ('d' | 'b' | 'o' | 'x' | 'X', Cel::UInt(number)) => Ok(in_base(clause, *number)),
        ('b', Cel::Bool(flag)) => Ok(u8::from(*flag).to_string()),
        ('x' | 'X', Cel::String(text)) => Ok(hex(clause, text.as_bytes())),
        ('x' | 'X', Cel::Bytes(bytes)) => Ok(hex(clause, bytes)),
        ('f' | 'e', _) => {
            let Some(number) = float(value) else {
                let name = if clause == 'f' { "fixed-point" } else { "scientific" };
                return type_error(&format!("{name} clause can only be used on doubles"));
            };
            meter.charge(size(precision))?;
            Ok(if clause == 'f' { fixed(number, precision) } else { scientific(number, precision) })
        }
        ('d', _) => type_error("decimal clause can only be used on integers"),
        ('b', _) => type_error("only integers and bools can be formatted as binary"),
        ('o', _) => type_error("octal clause can only be used on integers"),
        ('x' | 'X', _) => type_error("only integers, byte buffers, and strings can be formatted as hex"),
        _ => Err(format_error(&format!(
            "could not parse formatting clause: unrecognized formatting clause \"{clause}\""
        ))),
    }
}

/// Returns a value as `%s` writes it; `inside` is true for the entries of a list or a map.
fn nested(value: &Cel, inside: bool) -> Result<String, String> {
    let plain = |value: &Cel| match to_text(value) {
        Err(ExecutionError::FunctionError { message, .. }) if matches!(value, Cel::Bytes(_)) => {
            Err(format!("could not convert argument {} to string", quoted(&message)))
        }
        Err(ExecutionError::FunctionError { message, .. }) if !inside => Err(message),
        Err(_) => Err(format!("no formatting function for {}", type_name(value))),
        Ok(text) => Ok(text),
    };
    Ok(match value {
        Cel::List(items) => {
            let items: Result<Vec<String>, String> = items.iter().map(|item| nested(item, true)).collect();
            format!("[{}]", items?.join(", "))
        }
        Cel::Map(map) => {
            let mut pairs = Vec::with_capacity(map.map.len());
            for (key, value) in map.map.iter() {
                let key = match key {
                    Key::String(text) => quoted(text),
                    key => key.to_string(),
                };
                pairs.push((key, nested(value, true)?));
            }
            pairs.sort();
            let pairs: Vec<String> = pairs.into_iter().map(|(key, value)| format!("{key}:{value}")).collect();
            format!("{{{}}}", pairs.join(", "))
        }
        Cel::String(text) if inside => quoted(text),
        Cel::Bytes(_) if inside => format!("b{}", quoted(&plain(value)?)),
        Cel::Timestamp(_) if inside => format!("timestamp({})", quoted(&plain(value)?)),
        Cel::Duration(_) if inside => format!("duration({})", quoted(&plain(value)?)),
        Cel::Float(number) if inside && number.is_finite() => format!("{number:.PRECISION$}"),
        Cel::Float(_) if inside => quoted(&plain(value)?),
        _ => plain(value)?,
    })
}

/// Returns the number that `%f` and `%e` format: a float, or a string that names a non-finite number.
fn float(value: &Cel) -> Option<f64> {
    match value {
        Cel::Float(number) => Some(*number),
        Cel::String(text) => match text.as_str() {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

fn in_base(clause: char, number: u64) -> String {
    match clause {
        'b' => format!("{number:b}"),
        'o' => format!("{number:o}"),
        'x' => format!("{number:x}"),
        'X' => format!("{number:X}"),
        _ => number.to_string(),
    }
}

fn hex(clause: char, bytes: &[u8]) -> String {
    let digits = |byte: &u8| if clause == 'x' { format!("{byte:02x}") } else { format!("{byte:02X}") };
    bytes.iter().map(digits).collect()
}

/// Returns a number with thousands separators, `1,234.50`.
fn fixed(number: f64, precision: usize) -> String {
    if !number.is_finite() {
        return non_finite(number);
    }
    let text = format!("{:.*}", precision.min(MAX_DECIMALS), number.abs());
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let mut out = sign(number, "").to_owned();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if precision > 0 {
        out.push('.');
        out.push_str(fraction);
        out.push_str(&"0".repeat(precision - fraction.len()));
    }
    out
}

/// Returns a number in scientific notation, `1.234500×10⁰³`; the requested precision is its minimum width, as
/// in kube-apiserver.
fn scientific(number: f64, width: usize) -> String {
    let text = if number.is_finite() {
        let text = format!("{:.PRECISION$e}", number.abs());
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (minus, exponent) = exponent.strip_prefix('-').map_or(("", exponent), |exponent| ("⁻", exponent));
        let raised = format!("{exponent:0>2}");
        let raised = raised.chars().filter_map(|digit| SUPERSCRIPT.get(digit.to_digit(10)? as usize));
        let raised: String = raised.collect();
        format!("{}{digits}×10{minus}{raised}", sign(number, ""))
    } else {
        non_finite(number)
    };
    format!("{}{text}", " ".repeat(width.saturating_sub(text.chars().count())))
}

fn non_finite(number: f64) -> String {
    if number.is_nan() { "NaN".to_owned() } else { format!("{}∞", sign(number, "")) }
}

fn sign(number: f64, positive: &'static str) -> &'static str {
    if number < 0.0 { "-" } else { positive }
}

#[allow(clippy::cast_precision_loss, reason = "kube-apiserver uses floats too")]
fn seconds(duration: &chrono::Duration) -> f64 {
    duration.num_seconds() as f64 + f64::from(duration.subsec_nanos()) / 1e9
}

fn format_error(why: &str) -> EvalAbort {
    ExecutionError::function_error("format", why).into()
}

pub(super) fn type_name(value: &Cel) -> &'static str {
    match value {
        Cel::Bool(_) => "bool",
        Cel::Int(_) => "int",
        Cel::UInt(_) => "uint",
        Cel::Float(_) => "double",
        Cel::String(_) => "string",
        Cel::Bytes(_) => "bytes",
        Cel::List(_) => "list",
        Cel::Map(_) => "map",
        Cel::Null => "null_type",
        Cel::Duration(_) => "google.protobuf.Duration",
        Cel::Timestamp(_) => "google.protobuf.Timestamp",
        Cel::Opaque(opaque) if opaque.downcast_ref::<QuantityValue>().is_some() => "kubernetes.Quantity",
        _ => "",
    }
}
