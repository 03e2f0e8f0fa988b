//! One condition on one label: building, matching and printing.
//!
//! Invariant: every [`Requirement`] has a key and values that a label can have. This file does not know the
//! text form that a requirement was parsed from, nor selectors of several requirements.

use crate::error::{ParseError, ParseErrorKind};
use std::collections::BTreeSet;
use std::fmt;

use super::{rules, write_joined};

/// One condition on one label. Requirements are ordered as a selector prints them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Requirement {
    /// A valid label key.
    key: String,
    condition: Condition,
}

/// The condition on a label's value. Values are valid label values, sets are not empty, numbers are not
/// negative.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Condition {
    Exists,
    NotExists,
    Equals(String),
    NotEquals(String),
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    GreaterThan(i64),
    LessThan(i64),
}

impl Requirement {
    /// Creates `key=value`: the label exists and has this value.
    pub fn equals(key: impl Into<String>, value: impl Into<String>) -> Result<Self, ParseError> {
        let key = checked_key(key)?;
        let value = checked_value(&key, value)?;
        Ok(Self { key, condition: Condition::Equals(value) })
    }

    /// Creates `key!=value`: the label has another value or does not exist.
    pub fn not_equals(key: impl Into<String>, value: impl Into<String>) -> Result<Self, ParseError> {
        let key = checked_key(key)?;
        let value = checked_value(&key, value)?;
        Ok(Self { key, condition: Condition::NotEquals(value) })
    }

    /// Creates `key in (values)`: the label exists and has one of these values.
    ///
    /// Fails without values.
    pub fn is_in<V: Into<String>>(
        key: impl Into<String>,
        values: impl IntoIterator<Item = V>,
    ) -> Result<Self, ParseError> {
        let key = checked_key(key)?;
        let values = checked_values(&key, values)?;
        Ok(Self { key, condition: Condition::In(values) })
    }

    /// Creates `key notin (values)`: the label has none of these values or does not exist.
    ///
    /// Fails without values.
    pub fn not_in<V: Into<String>>(
        key: impl Into<String>,
        values: impl IntoIterator<Item = V>,
    ) -> Result<Self, ParseError> {
        let key = checked_key(key)?;
        let values = checked_values(&key, values)?;
        Ok(Self { key, condition: Condition::NotIn(values) })
    }

    /// Creates `key`: the label exists, with any value.
    pub fn exists(key: impl Into<String>) -> Result<Self, ParseError> {
        Ok(Self { key: checked_key(key)?, condition: Condition::Exists })
    }

    /// Creates `!key`: the label does not exist.
    pub fn not_exists(key: impl Into<String>) -> Result<Self, ParseError> {
        Ok(Self { key: checked_key(key)?, condition: Condition::NotExists })
    }

    /// Creates `key>bound`: the label exists and its value is a decimal integer above `bound`.
    ///
    /// Fails if `bound` is negative.
    pub fn greater_than(key: impl Into<String>, bound: i64) -> Result<Self, ParseError> {
        let key = checked_key(key)?;
        let bound = checked_number(&key, bound)?;
        Ok(Self { key, condition: Condition::GreaterThan(bound) })
    }

    /// Creates `key<bound`: the label exists and its value is a decimal integer below `bound`.
    ///
    /// Fails if `bound` is negative.
    pub fn less_than(key: impl Into<String>, bound: i64) -> Result<Self, ParseError> {
        let key = checked_key(key)?;
        let bound = checked_number(&key, bound)?;
        Ok(Self { key, condition: Condition::LessThan(bound) })
    }

    /// Creates a requirement from parts that the parser has already checked.
    pub(super) fn unchecked(key: &str, condition: Condition) -> Self {
        Self { key: key.to_owned(), condition }
    }

    /// Returns the key of the label.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns whether the condition holds for this label value.
    ///
    /// `None` means that the object does not have the label.
    pub fn matches(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match &self.condition {
            Condition::Exists => value.is_some(),
            Condition::NotExists => value.is_none(),
            Condition::Equals(wanted) => value == Some(wanted),
            Condition::NotEquals(unwanted) => value != Some(unwanted),
            Condition::In(wanted) => value.is_some_and(|value| wanted.contains(value)),
            Condition::NotIn(unwanted) => !value.is_some_and(|value| unwanted.contains(value)),
            Condition::GreaterThan(bound) => number().is_some_and(|number| number > *bound),
            Condition::LessThan(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, condition } = self;
        let write_set = |f: &mut fmt::Formatter<'_>, operator: &str, values: &BTreeSet<String>| {
            write!(f, "{key} {operator} (")?;
            write_joined(f, values)?;
            f.write_str(")")
        };
        match condition {
            Condition::Exists => f.write_str(key),
            Condition::NotExists => write!(f, "!{key}"),
            Condition::Equals(value) => write!(f, "{key}={value}"),
            Condition::NotEquals(value) => write!(f, "{key}!={value}"),
            Condition::In(values) => write_set(f, "in", values),
            Condition::NotIn(values) => write_set(f, "notin", values),
            Condition::GreaterThan(bound) => write!(f, "{key}>{bound}"),
            Condition::LessThan(bound) => write!(f, "{key}<{bound}"),
        }
    }
}

fn checked_key(key: impl Into<String>) -> Result<String, ParseError> {
    let key = key.into();
    match rules::check_label_key(&key) {
        Ok(()) => Ok(key),
        Err(expected) => Err(ParseError::new(ParseErrorKind::LabelKey, key, expected)),
    }
}

fn checked_value(key: &str, value: impl Into<String>) -> Result<String, ParseError> {
    let value = value.into();
    match rules::check_label_value(&value) {
        Ok(()) => Ok(value),
        Err(expected) => Err(ParseError::new(ParseErrorKind::LabelValue, value, expected).of_label(key)),
    }
}

fn checked_values<V: Into<String>>(
    key: &str,
    values: impl IntoIterator<Item = V>,
) -> Result<BTreeSet<String>, ParseError> {
    let values: BTreeSet<String> =
        values.into_iter().map(|value| checked_value(key, value)).collect::<Result<_, _>>()?;
    if values.is_empty() {
        Err(ParseError::new(ParseErrorKind::LabelKey, key, "at least one value"))
    } else {
        Ok(values)
    }
}

fn checked_number(key: &str, bound: i64) -> Result<i64, ParseError> {
    if bound >= 0 {
        return Ok(bound);
    }
    let value = bound.to_string();
    Err(ParseError::new(ParseErrorKind::LabelValue, value, rules::NUMBER).of_label(key))
}
