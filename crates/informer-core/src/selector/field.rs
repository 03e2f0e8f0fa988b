//! Field selectors: parsing, building, matching and printing.
//!
//! Invariant: a [`FieldSelector`] stores its requirements sorted and without duplicates, and every field
//! name can be written without escapes. A selector does not know which fields exist or can be selected on
//! (the server does, per kind), nor how a field's value becomes text.

use crate::error::{ParseError, ParseErrorKind};
use std::fmt::{self, Write as _};
use std::str::FromStr;

use super::{Unexpected, insert_sorted, rules, sorted, write_joined};

/// A condition on the values of an object's fields: requirements that must all hold. The default selects
/// everything.
///
/// A missing field has the empty string as its value.
///
/// ```
/// # extern crate informer_core as informer;
/// use informer::selector::{FieldRequirement, FieldSelector};
///
/// let selector = FieldSelector::parse("spec.nodeName!=,status.phase==Running")?;
/// assert_eq!(selector.to_string(), "spec.nodeName!=,status.phase=Running");
///
/// let phase = |field: &str| (field == "status.phase").then_some("Running");
/// assert!(!selector.matches(phase)); // no node yet
///
/// let odd = FieldSelector::everything().and(FieldRequirement::equals("spec.args", "a=b,c")?);
/// assert_eq!(odd.to_string(), r"spec.args=a\=b\,c");
/// # Ok::<(), informer_core::error::ParseError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct FieldSelector {
    /// Sorted, without duplicates.
    requirements: Vec<FieldRequirement>,
}

impl FieldSelector {
    /// Creates the selector without requirements, whose text is empty.
    pub fn everything() -> Self {
        Self::default()
    }

    /// Parses the form used in query strings and by `kubectl --field-selector`: `a=x`, `a==x`, `a!=x`,
    /// separated by commas.
    ///
    /// In a value, `\`, `,` and `=` are escaped with `\`. White space is part of the value. Empty
    /// requirements, as in `a=x,,b=y`, are skipped.
    ///
    /// Kubernetes also parses names that are empty or contain white space, control characters, `!` or `\`. No
    /// server knows a field of such a name, so they are rejected here.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        match terms(text).map(|(at, term)| requirement(at, term)).collect() {
            Ok(requirements) => Ok(Self { requirements: sorted(requirements) }),
            Err(Unexpected { at, expected }) => {
                Err(ParseError::new(ParseErrorKind::FieldSelector, text, expected).at(at))
            }
        }
    }

    /// Adds a requirement.
    #[must_use]
    pub fn and(mut self, requirement: FieldRequirement) -> Self {
        insert_sorted(&mut self.requirements, requirement);
        self
    }

    /// Returns whether the values that `lookup` returns for the fields meet every requirement.
    ///
    /// `None` counts as the empty string.
    pub fn matches<'a>(&self, lookup: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|requirement| requirement.matches(lookup(&requirement.field)))
    }

    /// Returns whether there is no requirement, so that every object matches.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Returns the requirements in printing order: sorted by field, without duplicates.
    pub fn requirements(&self) -> &[FieldRequirement] {
        &self.requirements
    }
}

impl FromStr for FieldSelector {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Self::parse(text)
    }
}

/// Prints the canonical text: sorted by field, values escaped where necessary.
impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_joined(f, &self.requirements)
    }
}

/// One condition on one field. Requirements are ordered as a selector prints them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldRequirement {
    field: String,
    operator: Operator,
    value: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Operator {
    // First, so that requirements on one field are sorted as text is: `!=` before `=`.
    NotEquals,
    Equals,
}

impl FieldRequirement {
    /// Creates `field=value`.
    pub fn equals(field: impl Into<String>, value: impl Into<String>) -> Result<Self, ParseError> {
        Ok(Self { field: checked_name(field)?, operator: Operator::Equals, value: value.into() })
    }

    /// Creates `field!=value`.
    pub fn not_equals(field: impl Into<String>, value: impl Into<String>) -> Result<Self, ParseError> {
        Ok(Self { field: checked_name(field)?, operator: Operator::NotEquals, value: value.into() })
    }

    /// Returns the name of the field.
    pub fn field(&self) -> &str {
        &self.field
    }

    /// Returns whether the condition holds for this value.
    ///
    /// `None`, a missing field, counts as the empty string.
    pub fn matches(&self, value: Option<&str>) -> bool {
        (value.unwrap_or("") == self.value) == (self.operator == Operator::Equals)
    }
}

impl fmt::Display for FieldRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.field)?;
        f.write_str(if self.operator == Operator::Equals { "=" } else { "!=" })?;
        for c in self.value.chars() {
            if needs_escape(c) {
                f.write_char('\\')?;
            }
            f.write_char(c)?;
        }
        Ok(())
    }
}

fn checked_name(name: impl Into<String>) -> Result<String, ParseError> {
    let name = name.into();
    match rules::check_field_name(&name) {
        Ok(()) => Ok(name),
        Err(expected) => Err(ParseError::new(ParseErrorKind::FieldName, name, expected)),
    }
}

/// Splits at unescaped commas into terms, one per requirement. Returns the terms that are not empty, each
/// with its position.
fn terms(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut escaped = false;
    let mut at = 0;
    text.split(move |c| {
        let is_end = c == ',' && !escaped;
        escaped = c == '\\' && !escaped;
        is_end
    })
    .map(move |term| {
        let start = at;
        at += term.len() + ",".len();
        (start, term)
    })
    .filter(|(_, term)| !term.is_empty())
}

/// Parses one term that starts at byte `at` of the whole text.
fn requirement(at: usize, term: &str) -> Result<FieldRequirement, Unexpected> {
    let Some((left, right)) = term.split_once('=') else {
        return Err(Unexpected { at: at + term.len(), expected: r#""=", "==" or "!=""# });
    };
    let (field, operator, value) = match left.strip_suffix('!') {
        Some(field) => (field, Operator::NotEquals, right),
        None => (left, Operator::Equals, right.strip_prefix('=').unwrap_or(right)),
    };
    rules::check_field_name(field).map_err(Unexpected::at(at))?;
    let value = unescape(at + term.len() - value.len(), value)?;
    Ok(FieldRequirement { field: field.to_owned(), operator, value })
}

/// Removes the escapes of a value that starts at byte `at` of the whole text.
fn unescape(at: usize, text: &str) -> Result<String, Unexpected> {
    let mut value = String::with_capacity(text.len());
    let mut characters = text.char_indices();
    while let Some((offset, c)) = characters.next() {
        let position = at + offset;
        value.push(match c {
            '\\' => match characters.next() {
                Some((_, c)) if needs_escape(c) => c,
                _ => return Err(Unexpected { at: position + 1, expected: r#""\", "," or "=" after "\""# }),
            },
            '=' => return Err(Unexpected { at: position, expected: r#""\" before "=" in a value"# }),
            c => c,
        });
    }
    Ok(value)
}

fn needs_escape(c: char) -> bool {
    matches!(c, '\\' | ',' | '=')
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Compares the printed form of the parsed `text`, or the error message without its prefix.
    #[track_caller]
    fn check(text: &str, expected: &str) {
        let prefix = format!("field selector {text:?}: expected ");
        let outcome = match FieldSelector::parse(text) {
            Ok(selector) => selector.to_string(),
            Err(error) => error
                .to_string()
                .strip_prefix(&prefix)
                .expect("an error message with the usual prefix")
                .to_owned(),
        };
        assert_eq!(outcome, expected, "for {text:?}");
    }

    #[test]
    fn every_operator_is_parsed() {
        check("metadata.name=x", "metadata.name=x");
        check("metadata.name==x", "metadata.name=x");
        check("metadata.name!=x", "metadata.name!=x");
        check("a=", "a=");
        check("a==", "a=");
        check("a!=", "a!=");
        check("a=!b", "a=!b");
    }

    #[test]
    fn terms_are_sorted_and_deduplicated_and_empty_ones_are_skipped() {
        check("", "");
        check(",,", "");
        check(",b=1,,a!=2,", "a!=2,b=1");
        check("a=1,a!=2,a==1", "a!=2,a=1");
    }

    #[test]
    fn white_space_is_part_of_the_value() {
        check("a= b ", "a= b ");
        check("a = b", r#"a field name without white space, "\", ",", "=" and "!" at byte 0"#);
        check("a=b, c=d", r#"a field name without white space, "\", ",", "=" and "!" at byte 4"#);
        check(" ", r#""=", "==" or "!=" at byte 1"#);
    }

    #[test]
    fn escapes_in_values_are_parsed_and_printed() {
        check(r"a=\,", r"a=\,");
        check(r"a=\=\\\,", r"a=\=\\\,");
        check(r"a=\\,b=c", r"a=\\,b=c");
        check(r"a=b\,c=d", r#""\" before "=" in a value at byte 6"#);
        check(r"a=\b", r#""\", "," or "=" after "\" at byte 3"#);
        check(r"a=b\", r#""\", "," or "=" after "\" at byte 4"#);
        check(r"a=é\é", r#""\", "," or "=" after "\" at byte 5"#);
        check("a=b=c", r#""\" before "=" in a value at byte 3"#);
        check("a===b", r#""\" before "=" in a value at byte 3"#);
        check("a!==b", r#""\" before "=" in a value at byte 3"#);
        let value = FieldSelector::parse(r"a=\=\\\,").unwrap();
        assert!(value.matches(|_| Some(r"=\,")));
    }

    #[test]
    fn terms_without_operator_or_name_are_rejected() {
        check("a", r#""=", "==" or "!=" at byte 1"#);
        check("a=b,cd", r#""=", "==" or "!=" at byte 6"#);
        check("a!b", r#""=", "==" or "!=" at byte 3"#);
        check("=b", "a field name at byte 0");
        check("!=b", "a field name at byte 0");
        check("a=b,==", "a field name at byte 4");
        check(r"a\=b", r#"a field name without white space, "\", ",", "=" and "!" at byte 0"#);
        check("a!!=b", r#"a field name without white space, "\", ",", "=" and "!" at byte 0"#);
    }

    #[test]
    fn building_a_requirement_checks_the_name() {
        let error = FieldRequirement::equals("a!", "b").unwrap_err();
        let expected = r#"field name "a!": expected a field name without white space, "\", ",", "=" and "!""#;
        assert_eq!(error.to_string(), expected);
        assert!(FieldRequirement::not_equals("", "b").is_err());
    }

    #[test]
    fn missing_field_equals_the_empty_string() {
        #[track_caller]
        fn check(selector: &str, phase: Option<&str>, expected: bool) {
            let selector = FieldSelector::parse(selector).unwrap();
            assert_eq!(selector.matches(|field| phase.filter(|_| field == "phase")), expected, "{selector}");
        }
        check("", None, true);
        check("phase=", None, true);
        check("phase=", Some(""), true);
        check("phase=", Some("x"), false);
        check("phase!=", None, false);
        check("phase!=", Some("x"), true);
        check("phase=x", None, false);
        check("phase!=x", None, true);
        check("phase=x,name=", Some("x"), true);
        check("phase=x,name=y", Some("x"), false);
    }

    /// The reference model of a requirement: field, whether the values must be equal, value.
    type Model = (String, bool, String);

    fn models() -> impl Strategy<Value = Vec<Model>> {
        let name = prop_oneof!["[ab]", "[a-z]{1,6}(\\.[a-zA-Z]{1,6}){0,2}"];
        let value = prop_oneof!["[xy]?", "[a\\\\,=! ]{0,6}", any::<String>()];
        prop::collection::vec((name, any::<bool>(), value), 0..5)
    }

    fn select(models: &[Model]) -> FieldSelector {
        models.iter().fold(FieldSelector::everything(), |selector, (name, equal, value)| {
            let build = if *equal { FieldRequirement::equals } else { FieldRequirement::not_equals };
            selector.and(build(name.clone(), value.clone()).unwrap())
        })
    }

    proptest! {
        #[test]
        fn printed_selector_parses_to_itself(models in models()) {
            let selector = select(&models);
            prop_assert_eq!(FieldSelector::parse(&selector.to_string()), Ok(selector));
        }

        #[test]
        fn matching_agrees_with_the_reference_model(
            models in models(),
            fields in prop::collection::btree_map("[abc]", "[xy]?", 0..4),
        ) {
            let fields: BTreeMap<String, String> = fields;
            let expected = models.iter().all(|(name, equal, value)| {
                let actual = fields.get(name).cloned().unwrap_or_default();
                if *equal { actual == *value } else { actual != *value }
            });
            prop_assert_eq!(select(&models).matches(|name| fields.get(name).map(String::as_str)), expected);
        }

        #[test]
        fn any_text_is_parsed_or_rejected(text in prop_oneof![any::<String>(), "[ab\\\\,=! é\0]{0,12}"]) {
            match FieldSelector::parse(&text) {
                Ok(selector) => prop_assert_eq!(FieldSelector::parse(&selector.to_string()), Ok(selector)),
                Err(error) => prop_assert!(text.is_char_boundary(error.position().unwrap())),
            }
        }
    }
}
