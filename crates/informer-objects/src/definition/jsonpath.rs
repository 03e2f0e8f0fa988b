//! `JSONPath` as used by columns: names, list indexes, wildcards, slices, names at any depth, and filters
//! that compare values or test whether a path matches.
//!
//! A path that matches nothing yields no value.

use serde_json::Value;

/// A parsed path.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Path(Vec<Step>);

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(String),
    Index(i64),
    /// Start and end, both optional.
    Slice(Option<i64>, Option<i64>),
    Star,
    /// `..name`: a field at any depth.
    Deep(String),
    Filter(Operand, Comparison, Operand),
    /// A filter without a comparison: selects the entries in which the path matches.
    Exists(Path),
}

#[derive(Debug, Clone, PartialEq)]
enum Operand {
    Path(Path),
    Literal(Value),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// The maximum number of values selected by each step of a path.
const MAX_VALUES: usize = 10_000;

impl Path {
    /// Parses a path; `None` if it is malformed.
    pub(crate) fn parse(text: &str) -> Option<Path> {
        let mut steps = Vec::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            let (step, tail) = step(rest)?;
            steps.extend(step);
            rest = tail;
        }
        Some(Path(steps))
    }

    /// Returns the first matching value.
    pub(crate) fn first<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        self.all(value).into_iter().next()
    }

    fn all<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        let mut values = vec![value];
        for step in &self.0 {
            values = values.into_iter().flat_map(|value| step.select(value)).take(MAX_VALUES).collect();
        }
        values
    }
}

impl Step {
    /// Returns the values that the step selects from a value.
    fn select<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match (self, value) {
            (Step::Field(name), Value::Object(fields)) => fields.get(name).into_iter().collect(),
            (Step::Index(at), Value::Array(items)) => {
                resolve_index(*at, items.len()).and_then(|at| items.get(at)).into_iter().collect()
            }
            (Step::Slice(from, to), Value::Array(items)) => {
                let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
                let bound = |at: i64| if at < 0 { (length + at).max(0) } else { at.min(length) };
                let from = usize::try_from(bound(from.unwrap_or(0))).unwrap_or_default();
                let to = usize::try_from(bound(to.unwrap_or(length))).unwrap_or_default();
                items.get(from..to.max(from)).into_iter().flatten().collect()
            }
            (Step::Star, Value::Array(items)) => items.iter().collect(),
            (Step::Star, Value::Object(fields)) => fields.values().collect(),
            (Step::Deep(name), value) => {
                let mut found = Vec::new();
                deep(name, value, &mut found);
                found
            }
            (Step::Filter(left, comparison, right), Value::Array(items)) => items
                .iter()
                .filter(|item| comparison.matches(left.resolve(item), right.resolve(item)))
                .collect(),
            (Step::Exists(path), Value::Array(items)) => {
                items.iter().filter(|item| path.first(item).is_some()).collect()
            }
            _ => Vec::new(),
        }
    }
}

impl Operand {
    /// Returns the value of the operand for one entry of the filtered list.
    fn resolve<'a>(&'a self, item: &'a Value) -> Option<&'a Value> {
        match self {
            Operand::Path(path) => path.first(item),
            Operand::Literal(value) => Some(value),
        }
    }
}

impl Comparison {
    fn matches(self, left: Option<&Value>, right: Option<&Value>) -> bool {
        let (Some(left), Some(right)) = (left, right) else { return false };
        let order = match (left, right) {
            (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
            _ => left.as_f64().zip(right.as_f64()).and_then(|(left, right)| left.partial_cmp(&right)),
        };
        let equal = order.map_or(left == right, std::cmp::Ordering::is_eq);
        match self {
            Comparison::Equal => equal,
            Comparison::NotEqual => !equal,
            Comparison::Less => order.is_some_and(std::cmp::Ordering::is_lt),
            Comparison::LessOrEqual => order.is_some_and(std::cmp::Ordering::is_le),
            Comparison::Greater => order.is_some_and(std::cmp::Ordering::is_gt),
            Comparison::GreaterOrEqual => order.is_some_and(std::cmp::Ordering::is_ge),
        }
    }
}

fn resolve_index(at: i64, length: usize) -> Option<usize> {
    let at = if at < 0 { at + i64::try_from(length).ok()? } else { at };
    usize::try_from(at).ok()
}

fn deep<'a>(name: &str, value: &'a Value, found: &mut Vec<&'a Value>) {
    if found.len() >= MAX_VALUES {
        return;
    }
    match value {
        Value::Object(fields) => {
            found.extend(fields.get(name));
            fields.values().for_each(|value| deep(name, value, found));
        }
        Value::Array(items) => items.iter().for_each(|item| deep(name, item, found)),
        _ => {}
    }
}

/// Parses the first step of a path and returns the rest. `@`, `$` and a dot before a bracket are no steps.
fn step(text: &str) -> Option<(Option<Step>, &str)> {
    if let Some(rest) = text.strip_prefix("..") {
        let (name, tail) = name(rest);
        return Some((Some(Step::Deep(name)), tail));
    }
    if let Some(rest) = text.strip_prefix('.') {
        if rest.is_empty() || rest.starts_with('[') {
            return Some((None, rest));
        }
        if let Some(tail) = rest.strip_prefix('*') {
            return Some((Some(Step::Star), tail));
        }
        let (name, tail) = name(rest);
        return Some((Some(Step::Field(name)), tail));
    }
    if let Some(rest) = text.strip_prefix('[') {
        let end = bracket_end(rest)?;
        let (inner, tail) = (rest.get(..end)?, rest.get(end + 1..)?);
        return Some((Some(bracket(inner.trim())?), tail));
    }
    let rest = text.strip_prefix(['@', '$'])?;
    Some((None, rest))
}

/// Parses a name up to the next dot, bracket, blank or comparison; a backslash escapes the next character.
fn name(text: &str) -> (String, &str) {
    let mut out = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => out.extend(letters.next().map(|(_, letter)| letter)),
            '.' | '[' | ' ' | ')' | '=' | '!' | '<' | '>' => {
                return (out, text.get(at..).unwrap_or_default());
            }
            _ => out.push(letter),
        }
    }
    (out, "")
}

/// Returns the offset of the `]` that closes a bracket opened before the text.
fn bracket_end(text: &str) -> Option<usize> {
    let (mut open, mut quote) = (0, None);
    for (at, letter) in text.char_indices() {
        match (quote, letter) {
            (Some(end), letter) if letter == end => quote = None,
            (None, '"' | '\'') => quote = Some(letter),
            (None, '[') => open += 1,
            (None, ']') if open == 0 => return Some(at),
            (None, ']') => open -= 1,
            _ => {}
        }
    }
    None
}

fn bracket(inner: &str) -> Option<Step> {
    if let Some(filter) = inner.strip_prefix("?(").and_then(|inner| inner.strip_suffix(')')) {
        return condition(filter.trim());
    }
    if inner == "*" {
        return Some(Step::Star);
    }
    if let Some(name) = unquote(inner) {
        return Some(Step::Field(name));
    }
    if let Some((from, to)) = inner.split_once(':') {
        let bound = |text: &str| match text.trim() {
            "" => Some(None),
            text => text.parse().ok().map(Some),
        };
        return Some(Step::Slice(bound(from)?, bound(to)?));
    }
    inner.parse().ok().map(Step::Index)
}

fn condition(text: &str) -> Option<Step> {
    const OPERATORS: &[(&str, Comparison)] = &[
        ("==", Comparison::Equal),
        ("!=", Comparison::NotEqual),
        ("<=", Comparison::LessOrEqual),
        (">=", Comparison::GreaterOrEqual),
        ("<", Comparison::Less),
        (">", Comparison::Greater),
    ];
    for (operator, comparison) in OPERATORS {
        if let Some((left, right)) = text.split_once(operator) {
            return Some(Step::Filter(operand(left.trim())?, *comparison, operand(right.trim())?));
        }
    }
    Some(Step::Exists(Path::parse(text)?))
}

fn operand(text: &str) -> Option<Operand> {
    if text.starts_with(['@', '$']) {
        return Path::parse(text).map(Operand::Path);
    }
    unquote(text).map(Value::from).or_else(|| serde_json::from_str(text).ok()).map(Operand::Literal)
}

fn unquote(text: &str) -> Option<String> {
    let inner = ['"', '\'']
        .iter()
        .find_map(|mark| text.strip_prefix(*mark).and_then(|text| text.strip_suffix(*mark)))?;
    let mut out = String::new();
    let mut letters = inner.chars();
    while let Some(letter) = letters.next() {
        out.extend(if letter == '\\' { letters.next() } else { Some(letter) });
    }
    Some(out)
}
