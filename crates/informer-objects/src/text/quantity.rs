//! Amounts such as `500m`, `1Gi` and `2e9`: reading them, comparing them, and the form in which a server gives them back.
//!
//! An amount keeps its family (decimal suffixes, powers of 1024, exponents) and is exact to nine digits behind the point, finer ones
//! are rounded away from zero. Numbers of more than 36 digits lose the rest of them. Knows nothing of who asks for how much.

use std::cmp::Ordering;

/// The finest scale.
const NANO: i32 = -9;

/// What a number of the family of powers of 1024 is capped at.
const MAX_BINARY: i128 = i64::MAX as i128;

/// More digits than this are zeros as far as we are concerned.
const DIGITS: usize = 36;

const FORMAT_WRONG: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const SUFFIX_WRONG: &str = "unable to parse quantity's suffix";
const NUMBER_WRONG: &str = "unable to parse numeric part of quantity";

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

/// An amount: `mantissa` × 10^`scale`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Quantity {
    mantissa: i128,
    scale: i32,
    family: Family,
    /// Whether a server reads it without large numbers.
    small: bool,
    /// The text it was read from, where that is given back as it is.
    text: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Decimal,
    Binary,
    Exponent,
}

/// The parts of the text of an amount.
struct Parts<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

impl Quantity {
    /// Reads an amount; the error is the server's text.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        if text.is_empty() {
            return Err(FORMAT_WRONG);
        }
        let parts = split(text)?;
        let (power_of_two, exponent, family) = suffix(parts.suffix).ok_or(SUFFIX_WRONG)?;
        let digits = format!("{}{}", parts.whole, parts.fraction);
        let plain = i32::try_from(parts.fraction.len()).map_err(|_| NUMBER_WRONG)?;
        let mut scale = exponent.saturating_sub(plain);
        let kept = keep(&digits, &mut scale);
        let value: i128 = kept.parse().map_err(|_| NUMBER_WRONG)?;
        let small = is_small(&digits, &parts, power_of_two, scale, family);
        let text = is_canonical(&digits, &parts, power_of_two, scale, family, value).then(|| text.to_owned());
        let mut mantissa = value.saturating_mul(1 << power_of_two);
        if scale < NANO {
            mantissa = round_up(mantissa, scale);
            scale = NANO;
        }
        if family == Family::Binary {
            (mantissa, scale) = cap_binary(mantissa, scale);
        }
        let tiny = family == Family::Binary && mantissa > 0 && scale < 0 && whole(mantissa, scale).0 == 0;
        let family = if tiny { Family::Decimal } else { family };
        let mantissa = if parts.negative { -mantissa } else { mantissa };
        Ok(Quantity { mantissa, scale, family, small, text })
    }

    pub(crate) fn is_negative(&self) -> bool {
        self.mantissa < 0
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.mantissa == 0
    }

    /// Whether it has no part behind the point.
    pub(crate) fn is_whole(&self) -> bool {
        whole(self.mantissa, self.scale).1
    }

    /// Rounds away from zero to a thousandth, as amounts of resources are.
    pub(crate) fn round_to_milli(&mut self) {
        if self.scale >= -3 || self.mantissa == 0 {
            return;
        }
        let finer = self.scale + 3;
        let positive = round_up_by(self.mantissa.saturating_abs(), finer.unsigned_abs());
        self.mantissa = if self.mantissa < 0 { -positive } else { positive };
        self.scale = -3;
        self.text = None;
    }

    /// The text a server gives back.
    pub(crate) fn canonical(&self) -> String {
        if let Some(text) = &self.text {
            return text.clone();
        }
        if self.mantissa == 0 {
            return "0".to_owned();
        }
        if self.family == Family::Binary
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
        if self.family == Family::Exponent {
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
        Quantity { mantissa, scale: 0, family: Family::Exponent, small: true, text: None }
    }
}

/// What rules of custom resources ask of amounts.
impl Quantity {
    /// Which of two is greater. Exact however far apart they are.
    pub(crate) fn order(&self, other: &Self) -> Ordering {
        let signs = self.mantissa.signum().cmp(&other.mantissa.signum());
        if signs.is_ne() || self.mantissa == 0 {
            return signs;
        }
        // Numbers without zeros at their ends: first the place of the first digit decides, then the digits.
        let parts = |one: &Quantity| {
            let digits = one.mantissa.unsigned_abs().to_string();
            let first = i64::try_from(digits.len()).unwrap_or(i64::MAX).saturating_add(i64::from(one.scale));
            (first, digits.trim_end_matches('0').to_owned())
        };
        let sizes = parts(self).cmp(&parts(other));
        if self.mantissa < 0 { sizes.reverse() } else { sizes }
    }

    /// Both together. What is too small to count beside the other is lost where more digits are needed than we have.
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
        while widened < apart && mantissa.checked_mul(100).is_some() {
            mantissa *= 10;
            scale = scale.saturating_sub(1);
            widened += 1;
        }
        let lost = u32::try_from(apart - widened).unwrap_or(u32::MAX);
        let added = 10_i128.checked_pow(lost).map_or(0, |unit| low.mantissa / unit);
        let mantissa = mantissa.saturating_add(added);
        let small = self.small && other.small && lost == 0 && i64::try_from(mantissa).is_ok();
        Quantity { mantissa, scale, family: self.family, small, text: None }
    }

    pub(crate) fn negative(&self) -> Self {
        Quantity { mantissa: self.mantissa.saturating_neg(), text: None, ..self.clone() }
    }

    /// The whole number that was written, if a server takes it for one: `1k` and `1Ki` are, `1000m` is not.
    pub(crate) fn as_integer(&self) -> Option<i64> {
        let scale = u32::try_from(self.scale).ok().filter(|_| self.small)?;
        let value = self.mantissa.checked_mul(10_i128.checked_pow(scale)?)?;
        i64::try_from(value).ok()
    }

    #[allow(clippy::cast_precision_loss, reason = "it is asked for the nearest number")]
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
        Err(FORMAT_WRONG)
    }
}

/// The power of two, the power of ten and the family that a suffix means.
fn suffix(text: &str) -> Option<(u32, i32, Family)> {
    if let Some((_, power)) = DECIMAL.iter().find(|(known, _)| *known == text) {
        return Some((0, *power, Family::Decimal));
    }
    if let Some((_, power)) = BINARY.iter().find(|(known, _)| *known == text) {
        return Some((*power, 0, Family::Binary));
    }
    let exponent: i32 = text.strip_prefix(['e', 'E'])?.parse().ok()?;
    Some((0, exponent, Family::Exponent))
}

/// The digits that fit into our numbers.
fn keep<'a>(digits: &'a str, scale: &mut i32) -> &'a str {
    let zeros = digits.bytes().take_while(|digit| *digit == b'0').count();
    let digits = if zeros == digits.len() { "0" } else { &digits[zeros..] };
    if digits.len() <= DIGITS {
        return digits;
    }
    *scale = scale.saturating_add(i32::try_from(digits.len() - DIGITS).unwrap_or(i32::MAX));
    &digits[..DIGITS]
}

/// Whether a server needs no large numbers to read an amount.
fn is_small(digits: &str, parts: &Parts<'_>, power_of_two: u32, scale: i32, family: Family) -> bool {
    if family == Family::Binary {
        let room = i64::from(15 - 1) - i64::from(power_of_two) * 3 / 10;
        return parts.fraction.is_empty()
            && i64::try_from(parts.whole.len()).is_ok_and(|length| length <= room);
    }
    digits.len() <= 18 && scale >= NANO
}

/// Whether a server gives back the text as it was: it looks at a few digits only, so `1.500` stays.
fn is_canonical(
    digits: &str,
    parts: &Parts<'_>,
    power_of_two: u32,
    scale: i32,
    family: Family,
    value: i128,
) -> bool {
    if !is_small(digits, parts, power_of_two, scale, family) {
        return false;
    }
    if family == Family::Binary {
        return value & 7 != 0;
    }
    scale % 3 == 0 && !digits.ends_with("000") && !digits.starts_with('0')
}

/// Away from zero, to nine digits behind the point.
fn round_up(mantissa: i128, scale: i32) -> i128 {
    round_up_by(mantissa, NANO.saturating_sub(scale).unsigned_abs())
}

/// Drops that many digits of a number that is not negative.
fn round_up_by(mantissa: i128, digits: u32) -> i128 {
    match 10_i128.checked_pow(digits) {
        Some(unit) => mantissa / unit + i128::from(mantissa % unit != 0),
        None => i128::from(mantissa != 0),
    }
}

/// The part before the point, and whether there is nothing behind it.
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
    let suffix = steps.checked_sub(1).and_then(|place| BINARY.get(place)).map_or("", |(suffix, _)| suffix);
    format!("{value}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_come_back_in_the_servers_form() {
        let cases = "0.5=500m 1024Mi=1Gi 1000=1k 2e9=2e9 1e8=100e6 1.5Gi=1536Mi 0=0 100m=100m 1000m=1 0.1=100m 1.500=1.500 \
                     1Ki=1Ki 1000Ki=1000Ki 1024=1024 1023Ki=1023Ki 0.5Ki=512 0.0000000001=1n 1E=1E 10E=10E 123456789=123456789 \
                     12e-3=12e-3 -5=-5 -0.5Gi=-512Mi 8Ei=9223372036854775807 1e0=1e0 00100=00100 5000000000=5G 1.25=1250m 0.0=0";
        for case in cases.split_whitespace() {
            let (given, expected) = case.split_once('=').unwrap();
            assert_eq!(Quantity::parse(given).unwrap().canonical(), expected, "{given}");
        }
    }

    #[test]
    fn nonsense_is_refused_in_the_servers_words() {
        for (given, expected) in [
            ("", FORMAT_WRONG),
            ("lots", FORMAT_WRONG),
            ("1 Gi", FORMAT_WRONG),
            ("1.2.3", FORMAT_WRONG),
            ("1GiB", FORMAT_WRONG),
            ("1Mm", SUFFIX_WRONG),
            ("1e", SUFFIX_WRONG),
            ("1K", SUFFIX_WRONG),
        ] {
            assert_eq!(Quantity::parse(given), Err(expected), "{given}");
        }
        for hostile in
            ["1e2147483647", "1e-2147483647", &"9".repeat(100_000), &format!("0.{}", "1".repeat(9_999))]
        {
            let amount = Quantity::parse(hostile).unwrap();
            assert!(!amount.canonical().is_empty());
            assert!(amount > Quantity::parse("0").unwrap());
        }
    }

    #[test]
    fn amounts_of_different_families_compare() {
        let amount = |text| Quantity::parse(text).unwrap();
        assert!(amount("1Gi") > amount("1G") && amount("999m") < amount("1") && amount("-1") < amount("0"));
        assert_eq!(amount("1").partial_cmp(&amount("1000m")), Some(Ordering::Equal));
        assert!(amount("1e400") > amount("1e39") && amount("1e400") > amount("9e399"));
        assert!(amount("-1e400") < amount("-1e39") && amount("1E-400") < amount("1Gi"));
        assert_eq!(amount("1e400").partial_cmp(&amount("10e399")), Some(Ordering::Equal));
        let mut fine = amount("0.0001");
        fine.round_to_milli();
        assert_eq!(fine.canonical(), "1m");
    }
}
