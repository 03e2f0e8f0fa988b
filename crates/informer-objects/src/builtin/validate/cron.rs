//! Validation of cron schedules, with the errors of the library that kube-apiserver uses.

use super::report::{Position, Report};

const MONTHS: &[&str] = &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const DESCRIPTORS: &[&str] =
    &["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];

/// The bounds of a field of a schedule.
struct Bounds {
    low: u64,
    high: u64,
    names: &'static [&'static str],
}

/// Minute, hour, day of the month, month, and day of the week.
const FIELDS: [Bounds; 5] = [
    Bounds { low: 0, high: 59, names: &[] },
    Bounds { low: 0, high: 23, names: &[] },
    Bounds { low: 1, high: 31, names: &[] },
    Bounds { low: 1, high: 12, names: MONTHS },
    Bounds { low: 0, high: 6, names: DAYS },
];

pub(super) fn check(schedule: &Position<'_>, report: &mut Report) {
    if let Err(why) = parse(schedule.text()) {
        report.invalid(schedule, &why);
    }
    if schedule.text().contains("TZ") {
        report.invalid(schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead");
    }
}

fn parse(text: &str) -> Result<(), String> {
    // A time zone prefix is skipped here and rejected by the caller.
    let text = match text.strip_prefix("TZ=").or_else(|| text.strip_prefix("CRON_TZ=")) {
        Some(rest) => rest.split_once(' ').map_or("", |(_, rest)| rest.trim()),
        None => text,
    };
    if text.starts_with('@') {
        if DESCRIPTORS.contains(&text) || text.starts_with("@every ") {
            return Ok(());
        }
        return Err(format!("unrecognized descriptor: {text}"));
    }
    let fields: Vec<&str> = text.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    }
    for (field, bounds) in fields.iter().zip(&FIELDS) {
        for part in field.split(',').filter(|part| !part.is_empty()) {
            check_range(part, bounds)?;
        }
    }
    Ok(())
}

fn check_range(text: &str, bounds: &Bounds) -> Result<(), String> {
    let parts: Vec<&str> = text.split('/').collect();
    let ends: Vec<&str> = parts.first().map(|first| first.split('-').collect()).unwrap_or_default();
    let (first, mut last) = match ends.as_slice() {
        ["*" | "?", ..] => (bounds.low, bounds.high),
        [single] => (number(single, bounds.names)?, number(single, bounds.names)?),
        [low, high] => (number(low, bounds.names)?, number(high, bounds.names)?),
        _ => return Err(format!("too many hyphens: {text}")),
    };
    let step = match parts.as_slice() {
        [_] => 1,
        [_, step] => {
            if ends.len() == 1 {
                last = bounds.high;
            }
            number(step, &[])?
        }
        _ => return Err(format!("too many slashes: {text}")),
    };
    let Bounds { low, high, .. } = bounds;
    if first < *low {
        return Err(format!("beginning of range ({first}) below minimum ({low}): {text}"));
    }
    if last > *high {
        return Err(format!("end of range ({last}) above maximum ({high}): {text}"));
    }
    if first > last {
        return Err(format!("beginning of range ({first}) beyond end of range ({last}): {text}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {text}"));
    }
    Ok(())
}

fn number(text: &str, names: &[&str]) -> Result<u64, String> {
    let listed = names.iter().position(|name| name.eq_ignore_ascii_case(text));
    if let Some(index) = listed {
        // Months count from one, days of the week from zero.
        return Ok(u64::try_from(index).unwrap_or_default() + u64::from(names.len() == MONTHS.len()));
    }
    match text.parse::<i64>() {
        Ok(number) => {
            u64::try_from(number).map_err(|_| format!("negative number ({number}) not allowed: {text}"))
        }
        Err(_) => {
            Err(format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_parsed_as_by_cron() {
        for valid in ["* * * * *", "*/5 1-3 1,15 jan mon", "@daily", "@every 1h", "0 0 1 1 0"] {
            assert_eq!(parse(valid), Ok(()), "{valid}");
        }
        for (invalid, why) in [
            ("soon", "expected exactly 5 fields, found 1: [soon]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("x * * * *", r#"failed to parse int from x: strconv.Atoi: parsing "x": invalid syntax"#),
            ("@often", "unrecognized descriptor: @often"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
        ] {
            assert_eq!(parse(invalid).unwrap_err(), why);
        }
    }
}
