//! Times: seconds since 1970 in protobuf, text in JSON.

use super::context::wrong_wire_type;
use super::error::Error;
use crate::wire::protobuf::fields::{Fields, Payload, low_32_bits};
use informer_schema::Wire;

/// A time: whole seconds since 1970, and nanoseconds on top of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::wire::protobuf) struct Time {
    pub(in crate::wire::protobuf) seconds: i64,
    pub(in crate::wire::protobuf) nanoseconds: i32,
}

/// Go's zero time, the first second of the year 1, which is `null` in JSON.
const ZERO: i64 = -62_135_596_800;

/// Parses a time; `None` for an empty message or Go's zero time. Fractions are truncated as the server
/// does: to whole seconds, or to microseconds.
pub(in crate::wire::protobuf) fn read(wire: Wire, bytes: &[u8]) -> Result<Option<Time>, Error> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let (mut seconds, mut nanoseconds) = (0, 0);
    let mut fields = Fields(bytes);
    while let Some(field) = fields.next()? {
        match field {
            (1, Payload::Varint(value)) => seconds = value.cast_signed(),
            (2, Payload::Varint(value)) => nanoseconds = low_32_bits(value),
            (1 | 2, _) => return Err(wrong_wire_type()),
            _ => {}
        }
    }
    let nanoseconds = if wire == Wire::MicroTime { nanoseconds / 1000 * 1000 } else { 0 };
    // Fractions of a second or more carry into the seconds, as in Go.
    let carry = i64::from(nanoseconds.div_euclid(1_000_000_000));
    let time =
        Time { seconds: seconds.saturating_add(carry), nanoseconds: nanoseconds.rem_euclid(1_000_000_000) };
    Ok((time != Time { seconds: ZERO, nanoseconds: 0 }).then_some(time))
}

/// A time in the format of JSON: `2026-01-02T03:04:05Z`, or with six digits of fraction.
pub(super) struct Text {
    bytes: [u8; 27],
    length: usize,
}

impl Text {
    /// Formats a time, with a fraction if `has_fraction`.
    pub(super) fn new(time: Time, has_fraction: bool) -> Result<Self, Error> {
        let days = time.seconds.div_euclid(86_400);
        let second = time.seconds.rem_euclid(86_400);
        let (year, month, day) = civil(days).ok_or_else(|| Error::new("time outside the years 0 to 9999"))?;
        let mut text = Self { bytes: *b"0000-00-00T00:00:00.000000Z", length: 27 };
        text.put(0, 4, year);
        text.put(5, 2, month);
        text.put(8, 2, day);
        text.put(11, 2, second / 3600);
        text.put(14, 2, second / 60 % 60);
        text.put(17, 2, second % 60);
        if has_fraction {
            text.put(20, 6, i64::from(time.nanoseconds) / 1000);
        } else {
            text.bytes[19] = b'Z';
            text.length = 20;
        }
        Ok(text)
    }

    pub(super) fn as_str(&self) -> &str {
        // The bytes are ASCII, so the conversion does not fail.
        std::str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }

    fn put(&mut self, start: usize, digits: usize, mut value: i64) {
        for digit in self.bytes[start..start + digits].iter_mut().rev() {
            *digit = b'0' + u8::try_from(value % 10).unwrap_or_default();
            value /= 10;
        }
    }
}

/// Returns year, month and day of the date `days` after 1970-01-01; `None` if the year does not have four
/// digits.
///
/// The algorithm is Howard Hinnant's: years start in March, so that the leap day is the last.
fn civil(days: i64) -> Option<(i64, i64, i64)> {
    const YEARS: std::ops::RangeInclusive<i64> = 0..=9999;
    let days = days.checked_add(719_468)?;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    YEARS.contains(&year).then_some((year, month, day))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_printed_as_by_jiff() {
        let mut seconds = -62_167_219_200_i64; // the year 0
        while seconds < 253_402_300_800 {
            let time = Time { seconds, nanoseconds: 0 };
            let expected = jiff::Timestamp::new(seconds, 0).unwrap().to_string();
            assert_eq!(Text::new(time, false).unwrap().as_str(), expected);
            seconds += 86_400 * 9 + 12_347;
        }
    }

    #[test]
    fn microseconds_have_six_digits() {
        let time = Time { seconds: -1, nanoseconds: 250_000_000 };
        assert_eq!(Text::new(time, true).unwrap().as_str(), "1969-12-31T23:59:59.250000Z");
    }

    #[test]
    fn years_outside_four_digits_are_rejected() {
        for seconds in [253_402_300_800, i64::MAX, i64::MIN, -62_167_219_201] {
            assert!(Text::new(Time { seconds, nanoseconds: 0 }, false).is_err(), "{seconds}");
        }
    }

    #[test]
    fn empty_and_zero_times_are_none() {
        assert_eq!(read(Wire::Time, b"").unwrap(), None);
        let zero = [&[0x08][..], &[0x80, 0x92, 0xb8, 0xc3, 0x98, 0xfe, 0xff, 0xff, 0xff, 0x01]].concat();
        assert_eq!(read(Wire::Time, &zero).unwrap(), None);
        assert_eq!(read(Wire::Time, &[0x10, 0]).unwrap(), Some(Time { seconds: 0, nanoseconds: 0 }));
    }
}
