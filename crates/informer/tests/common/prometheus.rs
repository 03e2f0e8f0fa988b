//! A strict parser of the text format of Prometheus (version 0.0.4), stricter than Prometheus itself: `HELP` and
//! `TYPE` are required and come first, and the samples of a family are consecutive.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::collections::{BTreeMap, BTreeSet};

/// A line with a value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sample {
    /// The name, including the suffix of a histogram's series.
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) value: f64,
}

/// Returns the samples of a text, or what is wrong with it.
pub(crate) fn parse(text: &str) -> Result<Vec<Sample>, String> {
    if !text.is_empty() && !text.ends_with('\n') {
        return Err("the last line does not end with a line break".to_owned());
    }
    let mut samples: Vec<Sample> = Vec::new();
    let (mut families, mut series) = (BTreeSet::new(), BTreeSet::new());
    let mut family: Option<(String, String)> = None;
    let mut lines = text.split('\n').filter(|line| !line.is_empty());
    while let Some(line) = lines.next() {
        let fail = |reason: &str| Err(format!("{reason}: {line}"));
        if let Some(help) = line.strip_prefix("# HELP ") {
            let Some((name, help)) = help.split_once(' ') else { return fail("no help text") };
            if !is_name(name) || help.is_empty() || unescape(help, "\\n").is_none() {
                return fail("invalid HELP");
            }
            if !families.insert(name.to_owned()) {
                return fail("second HELP of a family");
            }
            let kind = lines.next().and_then(|line| line.strip_prefix("# TYPE ")?.strip_prefix(name));
            let Some(kind) = kind.and_then(|kind| kind.strip_prefix(' ')) else {
                return fail("no TYPE of the same family after HELP");
            };
            if !matches!(kind, "counter" | "gauge" | "histogram") {
                return fail("unknown TYPE");
            }
            if (kind == "counter") != name.ends_with("_total") {
                return fail("counters, and only counters, end in _total");
            }
            family = Some((name.to_owned(), kind.to_owned()));
            continue;
        }
        if line.starts_with('#') {
            return fail("a comment other than HELP, followed by TYPE");
        }
        let Some(sample) = parse_sample(line) else { return fail("malformed sample") };
        let Some((name, kind)) = &family else { return fail("a sample before the first family") };
        let is_member = match sample.name.strip_prefix(&**name) {
            Some("") => kind != "histogram",
            Some("_bucket") => kind == "histogram" && sample.labels.contains_key("le"),
            Some("_sum" | "_count") => kind == "histogram" && !sample.labels.contains_key("le"),
            _ => false,
        };
        if !is_member {
            return fail(&format!("not a sample of the {kind} {name}"));
        }
        if kind == "counter" && !(sample.value >= 0.0 && sample.value.is_finite()) {
            return fail("not a value of a counter");
        }
        if !series.insert((sample.name.clone(), sample.labels.clone())) {
            return fail("second sample of a series");
        }
        samples.push(sample);
    }
    check_histograms(&samples)?;
    Ok(samples)
}

/// Checks that buckets are cumulative, that the last one, `+Inf`, equals `_count`, and that `_sum` lies between
/// the bounds of the buckets.
fn check_histograms(samples: &[Sample]) -> Result<(), String> {
    let mut buckets: BTreeMap<_, Vec<(f64, f64)>> = BTreeMap::new();
    for sample in samples {
        if let (Some(base), Some(le)) = (sample.name.strip_suffix("_bucket"), sample.labels.get("le")) {
            let mut labels = sample.labels.clone();
            labels.remove("le");
            let bound = number(le).ok_or_else(|| format!("invalid bound {le}"))?;
            buckets.entry((base.to_owned(), labels)).or_default().push((bound, sample.value));
        }
    }
    for ((base, labels), buckets) in buckets {
        let is_cumulative = buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1);
        let find = |suffix: &str| {
            let name = format!("{base}{suffix}");
            samples.iter().find(|sample| sample.name == name && sample.labels == labels)
        };
        let count = find("_count").map(|sample| (f64::INFINITY, sample.value));
        if !is_cumulative || buckets.last().copied() != count || find("_sum").is_none() {
            return Err(format!("inconsistent histogram {base} {labels:?}: {buckets:?}"));
        }
        let sum = find("_sum").map_or(f64::NAN, |sample| sample.value);
        let (mut lower, mut min, mut max) = ((0.0, 0.0), 0.0, 0.0);
        for bucket in buckets {
            let count = bucket.1 - lower.1;
            if count > 0.0 {
                (min, max) = (min + count * lower.0, max + count * bucket.0);
            }
            lower = bucket;
        }
        // Sums of many floating-point numbers are not exact.
        if !(min * 0.999_999..=max * 1.000_001).contains(&sum) {
            return Err(format!("the sum of {base} {labels:?} is {sum}, not in {min}..={max}"));
        }
    }
    Ok(())
}

/// Parses `name{label="value",…} value`.
fn parse_sample(line: &str) -> Option<Sample> {
    let name_end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(name_end);
    let mut labels = BTreeMap::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (label, after) = rest.split_once("=\"")?;
            let end = closing_quote(after)?;
            let value = unescape(&after[..end], "\\n\"")?;
            if !is_name(label) || label.contains(':') || label.starts_with("__") {
                return None;
            }
            if labels.insert(label.to_owned(), value).is_some() {
                return None;
            }
            rest = &after[end + 1..];
            match rest.strip_prefix(',') {
                Some(next) => rest = next,
                None => break,
            }
        }
        rest = rest.strip_prefix('}')?;
    }
    let value = number(rest.strip_prefix(' ')?)?;
    is_name(name).then(|| Sample { name: name.to_owned(), labels, value })
}

/// Returns the position of the first quote that is not escaped.
fn closing_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().position(|byte| {
        let closes = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        closes
    })
}

/// Resolves escapes; `None` if there is one that is not in `allowed`, or a character that must be escaped.
fn unescape(text: &str, allowed: &str) -> Option<String> {
    let (mut result, mut chars) = (String::new(), text.chars());
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next().filter(|next| allowed.contains(*next))? {
                'n' => result.push('\n'),
                other => result.push(other),
            },
            '\n' => return None,
            c => result.push(c),
        }
    }
    Some(result)
}

/// Parses a number as the format spells it.
fn number(text: &str) -> Option<f64> {
    match text {
        "+Inf" => Some(f64::INFINITY),
        "-Inf" => Some(f64::NEG_INFINITY),
        "NaN" => Some(f64::NAN),
        digits => digits.parse().ok().filter(|number: &f64| number.is_finite()),
    }
}

fn is_name(name: &str) -> bool {
    let is_start = |c: char| c.is_ascii_alphabetic() || c == '_' || c == ':';
    name.starts_with(is_start) && name.chars().all(|c| is_start(c) || c.is_ascii_digit())
}
