//! Times as Go decodes and encodes them: errors name the first part that does not match; the result is in
//! UTC.
//!
//! There are two formats: whole seconds (a fraction is accepted and dropped), and exactly six fractional
//! digits.

use crate::text::times;
use jiff::Timestamp;
use jiff::civil;
use jiff::tz::Offset;

/// The format of a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Seconds,
    Micros,
}

impl Format {
    /// Returns the layout in Go's notation.
    fn layout(self) -> &'static str {
        match self {
            Format::Seconds => "2006-01-02T15:04:05Z07:00",
            Format::Micros => "2006-01-02T15:04:05.000000Z07:00",
        }
    }
}

/// Returns the time as the server writes it, or Go's error.
pub(super) fn canonical(format: Format, text: &str) -> Result<String, String> {
    let mut reader = Reader { format, text, rest: text };
    let (datetime, offset) = reader.read()?;
    let time = Offset::from_seconds(offset)
        .and_then(|offset| offset.to_timestamp(datetime))
        .map_err(|_| reader.out_of_range("time zone offset"))?;
    Ok(write(format, time))
}

/// Returns a time in one of the formats.
pub(super) fn write(format: Format, time: Timestamp) -> String {
    match format {
        Format::Seconds => times::written(time),
        Format::Micros => times::with_micros(time),
    }
}

struct Reader<'a> {
    format: Format,
    /// The whole text, for errors.
    text: &'a str,
    /// The text that is not parsed yet.
    rest: &'a str,
}

impl Reader<'_> {
    fn read(&mut self) -> Result<(civil::DateTime, i32), String> {
        let year = self.number("2006", 4, true)?;
        self.literal("-")?;
        let month = self.number("01", 2, true)?;
        if !(1..=12).contains(&month) {
            return Err(self.out_of_range("month"));
        }
        self.literal("-")?;
        let day = self.number("02", 2, true)?;
        self.literal("T")?;
        // Go also accepts an hour of one digit.
        let hour = self.number_below("15", 24, "hour", false)?;
        self.literal(":")?;
        let minute = self.number_below("04", 60, "minute", true)?;
        self.literal(":")?;
        let second = self.number_below("05", 60, "second", true)?;
        let nanos = self.fraction()?;
        let offset = self.offset()?;
        if !self.rest.is_empty() {
            return Err(format!("parsing time {:?}: extra text: {:?}", self.text, self.rest));
        }
        let small = |number: i32| i8::try_from(number).unwrap_or_default();
        let year = i16::try_from(year).unwrap_or_default();
        let date = civil::Date::new(year, small(month), small(day)).map_err(|_| self.out_of_range("day"))?;
        let time = civil::Time::new(small(hour), small(minute), small(second), nanos);
        Ok((date.to_datetime(time.map_err(|_| self.out_of_range("second"))?), offset))
    }

    fn number_below(
        &mut self,
        layout_part: &str,
        limit: i32,
        name: &str,
        is_fixed_width: bool,
    ) -> Result<i32, String> {
        let number = self.number(layout_part, 2, is_fixed_width)?;
        if number < limit { Ok(number) } else { Err(self.out_of_range(name)) }
    }

    /// Parses a number of `width` digits, or of fewer if the width is not fixed.
    fn number(&mut self, layout_part: &str, width: usize, is_fixed_width: bool) -> Result<i32, String> {
        let digits = self.rest.bytes().take(width).take_while(u8::is_ascii_digit).count();
        if digits == 0 || (digits < width && is_fixed_width) {
            return Err(self.mismatch(layout_part));
        }
        let (number, rest) = self.rest.split_at(digits);
        self.rest = rest;
        Ok(number.parse().unwrap_or_default())
    }

    fn literal(&mut self, layout_part: &str) -> Result<(), String> {
        self.rest = self.rest.strip_prefix(layout_part).ok_or_else(|| self.mismatch(layout_part))?;
        Ok(())
    }

    fn fraction(&mut self) -> Result<i32, String> {
        let digits = match (self.format, self.rest.strip_prefix(['.', ','])) {
            (Format::Seconds, None) => return Ok(0),
            (Format::Micros, None) => return Err(self.mismatch(".000000")),
            (_, Some(rest)) => rest,
        };
        let count = digits.bytes().take_while(u8::is_ascii_digit).count();
        let taken = match self.format {
            // The separator stays, so that the offset does not match.
            Format::Seconds if count == 0 => return Ok(0),
            Format::Seconds => count,
            Format::Micros if count < 6 => return Err(self.mismatch(".000000")),
            Format::Micros => 6,
        };
        self.rest = &digits[taken..];
        let nanoseconds: String = digits[..taken].chars().chain(std::iter::repeat('0')).take(9).collect();
        Ok(nanoseconds.parse().unwrap_or_default())
    }

    fn offset(&mut self) -> Result<i32, String> {
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let bytes = self.rest.as_bytes();
        let [sign @ (b'+' | b'-'), a, b, b':', c, d, ..] = bytes else { return Err(self.mismatch("Z07:00")) };
        if ![a, b, c, d].into_iter().all(u8::is_ascii_digit) {
            return Err(self.mismatch("Z07:00"));
        }
        let pair = |tens: &u8, ones: &u8| i32::from(tens - b'0') * 10 + i32::from(ones - b'0');
        let (hours, minutes) = (pair(a, b), pair(c, d));
        if hours > 24 {
            return Err(self.out_of_range("time zone offset hour"));
        }
        if minutes > 60 {
            return Err(self.out_of_range("time zone offset minute"));
        }
        let seconds = (hours * 60 + minutes) * 60;
        let seconds = if *sign == b'-' { -seconds } else { seconds };
        // The six bytes are ASCII, so this is a character boundary.
        self.rest = self.rest.get(6..).unwrap_or_default();
        Ok(seconds)
    }

    fn mismatch(&self, layout_part: &str) -> String {
        let layout = self.format.layout();
        format!("parsing time {:?} as {layout:?}: cannot parse {:?} as {layout_part:?}", self.text, self.rest)
    }

    fn out_of_range(&self, part: &str) -> String {
        format!("parsing time {:?}: {part} out of range", self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_converted_to_utc() {
        for (format, text, expected) in [
            (Format::Seconds, "2024-01-02T03:04:05Z", "2024-01-02T03:04:05Z"),
            (Format::Seconds, "2024-01-02T03:04:05.9+02:00", "2024-01-02T01:04:05Z"),
            (Format::Micros, "2024-01-02T03:04:05.000006-01:30", "2024-01-02T04:34:05.000006Z"),
        ] {
            assert_eq!(canonical(format, text).as_deref(), Ok(expected));
        }
    }

    #[test]
    fn error_names_the_first_mismatching_part() {
        for (format, text, expected) in [
            (
                Format::Seconds,
                "",
                r#"parsing time "" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "2006""#,
            ),
            (
                Format::Seconds,
                "2024-13-02T03:04:05Z",
                r#"parsing time "2024-13-02T03:04:05Z": month out of range"#,
            ),
            (
                Format::Seconds,
                "2024-02-30T03:04:05Z",
                r#"parsing time "2024-02-30T03:04:05Z": day out of range"#,
            ),
            (
                Format::Seconds,
                "2024-01-02 03:04:05Z",
                r#"parsing time "2024-01-02 03:04:05Z" as "2006-01-02T15:04:05Z07:00": cannot parse " 03:04:05Z" as "T""#,
            ),
            (
                Format::Seconds,
                "2024-01-02T03:04:05Zé",
                r#"parsing time "2024-01-02T03:04:05Zé": extra text: "é""#,
            ),
            (
                Format::Micros,
                "2024-01-02T03:04:05.5Z",
                r#"parsing time "2024-01-02T03:04:05.5Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse ".5Z" as ".000000""#,
            ),
            (
                Format::Micros,
                "2024-01-02T03:04:05.000000000Z",
                r#"parsing time "2024-01-02T03:04:05.000000000Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "000Z" as "Z07:00""#,
            ),
        ] {
            assert_eq!(canonical(format, text).unwrap_err(), expected);
        }
    }
}
