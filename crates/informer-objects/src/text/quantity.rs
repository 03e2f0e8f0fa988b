//! Quantities such as `500m`, `1Gi` and `2e9`: parsing, comparison, and the canonical form that the server
//! returns.
//!
//! A quantity has a format (decimal suffixes, powers of 1024, exponents) and at most nine decimals; further
//! decimals are rounded away from zero. Digits beyond the 36th are lost. Nothing here knows what a quantity
//! is used for.

use std::cmp::Ordering;

/// The finest scale.
const NANO: i32 = -9;

/// The maximum of quantities with powers of 1024.
const MAX_BINARY: i128 = i64::MAX as i128;

/// The maximum number of significant digits; further digits are treated as zeros.
const MAX_DIGITS: usize = 36;

const FORMAT_ERROR: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const SUFFIX_ERROR: &str = "unable to parse quantity's suffix";
const NUMBER_ERROR: &str = "unable to parse numeric part of quantity";

const DECIMAL: &[(&str, i32)] = &[
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];
const BINARY: &[(&str, u32)] = &[("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

/// A quantity: `mantissa` × 10^`scale`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Quantity {
    mantissa: i128,
    scale: i32,
    format: Format,
    /// Whether Kubernetes represents the quantity without arbitrary-precision arithmetic.
    small: bool,
    /// The original text, if the server returns it unchanged.
    text: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Decimal,
    Binary,
    Exponent,
}

/// The parts of the text of a quantity.
struct Parts<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

impl Quantity {
    /// Parses a quantity; the error text is that of kube-apiserver.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        if text.is_empty() {
            return Err(FORMAT_ERROR);
        }
        let parts = split(text)?;
        let (power_of_two, exponent, format) = suffix(parts.suffix).ok_or(SUFFIX_ERROR)?;
        let digits = format!("{}{}", parts.whole, parts.fraction);
        let decimals = i32::try_from(parts.fraction.len()).map_err(|_| NUMBER_ERROR)?;
        let mut scale = exponent.saturating_sub(decimals);
        let significant = significant_digits(&digits, &mut scale);
        let value: i128 = significant.parse().map_err(|_| NUMBER_ERROR)?;
        let small = is_small(&digits, &parts, power_of_two, scale, format);
        let text = is_canonical(&digits, &parts, power_of_two, scale, format, value).then(|| text.to_owned());
        let mut mantissa = value.saturating_mul(1 << power_of_two);
        if scale < NANO {
            mantissa = round_up(mantissa, scale);
            scale = NANO;
        }
        if format == Format::Binary {
            (mantissa, scale) = cap_binary(mantissa, scale);
        }
        // Kubernetes shows a binary quantity below one with a decimal suffix.
        let tiny = format == Format::Binary && mantissa > 0 && scale < 0 && whole(mantissa, scale).0 == 0;
        let format = if tiny { Format::Decimal } else { format };
        let mantissa = if parts.negative { -mantissa } else { mantissa };
        Ok(Quantity { mantissa, scale, format, small, text })
    }

    pub(crate) fn is_negative(&self) -> bool {
        self.mantissa < 0
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.mantissa == 0
    }

    /// Whether the quantity is an integer.
    pub(crate) fn is_whole(&self) -> bool {
        whole(self.mantissa, self.scale).1
    }

    /// Rounds away from zero to a thousandth, as is done with resource quantities.
    pub(crate) fn round_to_milli(&mut self) {
        if self.scale >= -3 || self.mantissa == 0 {
            return;
        }
        let excess = self.scale + 3;
        let positive = round_up_by(self.mantissa.saturating_abs(), excess.unsigned_abs());
        self.mantissa = if self.mantissa < 0 { -positive } else { positive };
        self.scale = -3;
        self.text = None;
    }

    /// Returns the text that the server returns.
    pub(crate) fn canonical(&self) -> String {
        if let Some(text) = &self.text {
            return text.clone();
        }
        if self.mantissa == 0 {
            return "0".to_owned();
        }
        if self.format == Format::Binary
            && let (value, true) = whole(self.mantissa, self.scale)
            && !(-1023..=1023).contains(&value)
        {
            return binary_text(value);
        }
        let (mut amount, mut exponent) = (self.mantissa, self.scale);
        while amount % 10 == 0 {
            amount /= 10;
            exponent = exponent.saturating_add(1);
        }
        let extra = exponent.rem_euclid(3);
        amount = amount.saturating_mul(10_i128.pow(extra.unsigned_abs()));
        exponent -= extra;
        if self.format == Format::Exponent {
            return if exponent == 0 { amount.to_string() } else { format!("{amount}e{exponent}") };
        }
        match DECIMAL.iter().find(|(_, power)| *power == exponent) {
            Some((suffix, _)) => format!("{amount}{suffix}"),
            None => format!("{amount}e{exponent}"),
        }
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.order(other))
    }
}

impl From<i64> for Quantity {
    fn from(whole: i64) -> Self {
        let mantissa = i128::from(whole);
        Quantity { mantissa, scale: 0, format: Format::Exponent, small: true, text: None }
    }
}

/// The operations available to validation rules of custom resources.
impl Quantity {
    /// Compares two quantities exactly, however different their scales are.
    pub(crate) fn order(&self, other: &Self) -> Ordering {
        let signs = self.mantissa.signum().cmp(&other.mantissa.signum());
        if signs.is_ne() || self.mantissa == 0 {
            return signs;
        }
        // Without trailing zeros, the position of the first digit decides, then the digits.
        let parts = |one: &Quantity| {
            let digits = one.mantissa.unsigned_abs().to_string();
            let first = i64::try_from(digits.len()).unwrap_or(i64::MAX).saturating_add(i64::from(one.scale));
            (first, digits.trim_end_matches('0').to_owned())
        };
        let sizes = parts(self).cmp(&parts(other));
        if self.mantissa < 0 { sizes.reverse() } else { sizes }
    }

    /// Returns the sum.
    ///
    /// Digits of the smaller quantity are lost if the sum has more digits than a mantissa can hold.
    pub(crate) fn plus(&self, other: &Self) -> Self {
        if other.mantissa == 0 {
            return Quantity { text: None, ..self.clone() };
        }
        if self.mantissa == 0 {
            return Quantity { text: None, ..other.clone() };
        }
        let (high, low) = if self.scale >= other.scale { (self, other) } else { (other, self) };
        let apart = i64::from(high.scale) - i64::from(low.scale);
        let mut scale = high.scale;
        let mut mantissa = high.mantissa;
        let mut widened = 0;
        // Keeps the mantissa ten times smaller than its maximum, so that the addition does not overflow.
        while widened < apart && mantissa.checked_mul(100).is_some() {
            mantissa *= 10;
            scale = scale.saturating_sub(1);
            widened += 1;
        }
        let lost = u32::try_from(apart - widened).unwrap_or(u32::MAX);
        let added = 10_i128.checked_pow(lost).map_or(0, |unit| low.mantissa / unit);
        let mantissa = mantissa.saturating_add(added);
        let small = self.small && other.small && lost == 0 && i64::try_from(mantissa).is_ok();
        Quantity { mantissa, scale, format: self.format, small, text: None }
    }

    pub(crate) fn negative(&self) -> Self {
        Quantity { mantissa: self.mantissa.saturating_neg(), text: None, ..self.clone() }
    }

    /// Returns the integer if Kubernetes treats the quantity as one: `1k` and `1Ki` are, `1000m` is not.
    pub(crate) fn as_integer(&self) -> Option<i64> {
        let scale = u32::try_from(self.scale).ok().filter(|_| self.small)?;
        let value = self.mantissa.checked_mul(10_i128.checked_pow(scale)?)?;
        i64::try_from(value).ok()
    }

    #[allow(clippy::cast_precision_loss, reason = "the nearest number is requested")]
    pub(crate) fn approximate(&self) -> f64 {
        self.mantissa as f64 * 10_f64.powi(self.scale)
    }
}

fn split(text: &str) -> Result<Parts<'_>, &'static str> {
    let (negative, rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let rest = rest.trim_start_matches('0');
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (whole, rest) = rest.split_at(end);
    let whole = if whole.is_empty() { "0" } else { whole };
    let (fraction, rest) = match rest.strip_prefix('.') {
        None => ("", rest),
        Some(rest) => rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())),
    };
    let letters = rest.find(|c: char| !"eEinumkKMGTP".contains(c)).unwrap_or(rest.len());
    let exponent = &rest[letters..];
    let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
    if exponent.bytes().all(|digit| digit.is_ascii_digit()) {
        Ok(Parts { negative, whole, fraction, suffix: rest })
    } else {
        Err(FORMAT_ERROR)
    }
}

/// Returns the power of two, the power of ten and the format of a suffix.
fn suffix(text: &str) -> Option<(u32, i32, Format)> {
    if let Some((_, power)) = DECIMAL.iter().find(|(known, _)| *known == text) {
        return Some((0, *power, Format::Decimal));
    }
    if let Some((_, power)) = BINARY.iter().find(|(known, _)| *known == text) {
        return Some((*power, 0, Format::Binary));
    }
    let exponent: i32 = text.strip_prefix(['e', 'E'])?.parse().ok()?;
    Some((0, exponent, Format::Exponent))
}

/// Returns the digits that fit into a mantissa, without leading zeros. Increases `scale` by the number of
/// digits that are dropped at the end.
fn significant_digits<'a>(digits: &'a str, scale: &mut i32) -> &'a str {
    let zeros = digits.bytes().take_while(|digit| *digit == b'0').count();
    let digits = if zeros == digits.len() { "0" } else { &digits[zeros..] };
    if digits.len() <= MAX_DIGITS {
        return digits;
    }
    *scale = scale.saturating_add(i32::try_from(digits.len() - MAX_DIGITS).unwrap_or(i32::MAX));
    &digits[..MAX_DIGITS]
}

/// Whether Kubernetes parses a quantity without arbitrary-precision arithmetic.
fn is_small(digits: &str, parts: &Parts<'_>, power_of_two: u32, scale: i32, format: Format) -> bool {
    if format == Format::Binary {
        // The estimate of Kubernetes: each bit of the power of two takes 3/10 of a digit.
        let max_digits = i64::from(15 - 1) - i64::from(power_of_two) * 3 / 10;
        return parts.fraction.is_empty()
            && i64::try_from(parts.whole.len()).is_ok_and(|length| length <= max_digits);
    }
    digits.len() <= 18 && scale >= NANO
}

/// Whether the server returns the original text. Kubernetes examines only a few digits: it returns `1.500`
/// unchanged.
fn is_canonical(
    digits: &str,
    parts: &Parts<'_>,
    power_of_two: u32,
    scale: i32,
    format: Format,
    value: i128,
) -> bool {
    if !is_small(digits, parts, power_of_two, scale, format) {
        return false;
    }
    if format == Format::Binary {
        // Kubernetes does not check whether a larger suffix fits: it tests divisibility by 8, not by 1024.
        return value & 7 != 0;
    }
    scale % 3 == 0 && !digits.ends_with("000") && !digits.starts_with('0')
}

/// Rounds a number that is not negative up to nine decimals.
fn round_up(mantissa: i128, scale: i32) -> i128 {
    round_up_by(mantissa, NANO.saturating_sub(scale).unsigned_abs())
}

/// Drops the last digits of a number that is not negative, rounding up.
fn round_up_by(mantissa: i128, digits: u32) -> i128 {
    match 10_i128.checked_pow(digits) {
        Some(unit) => mantissa / unit + i128::from(mantissa % unit != 0),
        None => i128::from(mantissa != 0),
    }
}

/// Returns the integer part, and whether the number is an integer.
fn whole(mantissa: i128, scale: i32) -> (i128, bool) {
    let power = 10_i128.checked_pow(scale.unsigned_abs());
    match (scale < 0, power) {
        (true, Some(unit)) => (mantissa / unit, mantissa % unit == 0),
        (true, None) => (0, mantissa == 0),
        (false, Some(unit)) => (mantissa.saturating_mul(unit), true),
        (false, None) => (if mantissa == 0 { 0 } else { i128::MAX }, true),
    }
}

fn cap_binary(mantissa: i128, scale: i32) -> (i128, i32) {
    if whole(mantissa, scale).0 >= MAX_BINARY { (MAX_BINARY, 0) } else { (mantissa, scale) }
}

fn binary_text(mut value: i128) -> String {
    let mut steps = 0;
    while value % 1024 == 0 && steps < BINARY.len() {
        value /= 1024;
        steps += 1;
    }
    let suffix = steps.checked_sub(1).and_then(|index| BINARY.get(index)).map_or("", |(suffix, _)| suffix);
    format!("{value}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_canonicalized_as_by_kube_apiserver() {
        let cases = "0.5=500m 1024Mi=1Gi 1000=1k 2e9=2e9 1e8=100e6 1.5Gi=1536Mi 0=0 100m=100m 1000m=1 0.1=100m 1.500=1.500 \
                     1Ki=1Ki 1000Ki=1000Ki 1024=1024 1023Ki=1023Ki 0.5Ki=512 0.0000000001=1n 1E=1E 10E=10E 123456789=123456789 \
                     12e-3=12e-3 -5=-5 -0.5Gi=-512Mi 8Ei=9223372036854775807 1e0=1e0 00100=00100 5000000000=5G 1.25=1250m 0.0=0";
        for case in cases.split_whitespace() {
            let (text, expected) = case.split_once('=').unwrap();
            assert_eq!(Quantity::parse(text).unwrap().canonical(), expected, "{text}");
        }
    }

    #[test]
    fn invalid_quantities_return_the_errors_of_kube_apiserver() {
        for (text, expected) in [
            ("", FORMAT_ERROR),
            ("lots", FORMAT_ERROR),
            ("1 Gi", FORMAT_ERROR),
            ("1.2.3", FORMAT_ERROR),
            ("1GiB", FORMAT_ERROR),
            ("1Mm", SUFFIX_ERROR),
            ("1e", SUFFIX_ERROR),
            ("1K", SUFFIX_ERROR),
        ] {
            assert_eq!(Quantity::parse(text), Err(expected), "{text}");
        }
        for hostile in
            ["1e2147483647", "1e-2147483647", &"9".repeat(100_000), &format!("0.{}", "1".repeat(9_999))]
        {
            let quantity = Quantity::parse(hostile).unwrap();
            assert!(!quantity.canonical().is_empty());
            assert!(quantity > Quantity::parse("0").unwrap());
        }
    }

    #[test]
    fn quantities_of_different_formats_compare() {
        let quantity = |text| Quantity::parse(text).unwrap();
        assert!(
            quantity("1Gi") > quantity("1G")
                && quantity("999m") < quantity("1")
                && quantity("-1") < quantity("0")
        );
        assert_eq!(quantity("1").partial_cmp(&quantity("1000m")), Some(Ordering::Equal));
        assert!(quantity("1e400") > quantity("1e39") && quantity("1e400") > quantity("9e399"));
        assert!(quantity("-1e400") < quantity("-1e39") && quantity("1E-400") < quantity("1Gi"));
        assert_eq!(quantity("1e400").partial_cmp(&quantity("10e399")), Some(Ordering::Equal));
        let mut fine = quantity("0.0001");
        fine.round_to_milli();
        assert_eq!(fine.canonical(), "1m");
    }
}
