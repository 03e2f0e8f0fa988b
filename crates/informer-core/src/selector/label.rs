//! Label selectors: building, matching and printing.
//!
//! Invariant: a [`LabelSelector`] stores its requirements sorted and without duplicates, so that selectors
//! with the same requirements are equal. A selector does not know the text that it was parsed from (`a==b`
//! and `a=b` are equal), nor where labels are stored.

use crate::error::{ParseError, ParseErrorKind};
use std::fmt;
use std::str::FromStr;

use super::requirement::Requirement;
use super::{Unexpected, insert_sorted, parse, sorted, write_joined};

/// A condition on an object's labels: requirements that must all hold. The default selects everything.
///
/// ```
/// # extern crate informer_core as informer;
/// use informer::selector::{LabelSelector, Requirement};
///
/// let selector = LabelSelector::parse("tier!=cache, app in (web, api)")?;
/// assert_eq!(selector.to_string(), "app in (api,web),tier!=cache");
///
/// let labels = [("app", "web"), ("pod-template-hash", "5d8f")];
/// let lookup = |key: &str| labels.iter().find(|(k, _)| *k == key).map(|(_, value)| *value);
/// assert!(selector.matches(lookup)); // an absent label does not equal any value
///
/// let stricter = selector.and(Requirement::exists("tier")?);
/// assert!(!stricter.matches(lookup));
/// # Ok::<(), informer_core::error::ParseError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct LabelSelector {
    /// Sorted, without duplicates.
    requirements: Vec<Requirement>,
}

impl LabelSelector {
    /// Creates the selector without requirements, whose text is empty.
    pub fn everything() -> Self {
        Self::default()
    }

    /// Parses the form used in query strings and by `kubectl -l`: `a=b`, `a==b`, `a!=b`, `a in (x,y)`,
    /// `a notin (x,y)`, `a` (exists), `!a` (does not exist), `a>1`, `a<1`, separated by commas.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        match parse::label_requirements(text) {
            Ok(requirements) => Ok(Self { requirements: sorted(requirements) }),
            Err(Unexpected { at, expected }) => {
                let error = ParseError::new(ParseErrorKind::LabelSelector, text, expected);
                Err(error.at(at).with_hint(hint(text)))
            }
        }
    }

    /// Adds a requirement.
    #[must_use]
    pub fn and(mut self, requirement: Requirement) -> Self {
        insert_sorted(&mut self.requirements, requirement);
        self
    }

    /// Returns whether the values that `lookup` returns for the label keys meet every requirement.
    ///
    /// `None` means that the object does not have the label.
    pub fn matches<'a>(&self, lookup: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|requirement| requirement.matches(lookup(requirement.key())))
    }

    /// Returns whether there is no requirement, so that every object matches.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Returns the requirements in printing order: sorted by key, without duplicates.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }
}

/// Returns a hint for an invalid selector that is written as in another language.
fn hint(text: &str) -> Option<&'static str> {
    const HINTS: [(&str, &str); 12] = [
        (":", r#"write "key=value""#),
        ("\"", "write values without quotes"),
        ("'", "write values without quotes"),
        ("&", r#"separate requirements with ",""#),
        (";", r#"separate requirements with ",""#),
        ("|", r#"for alternatives, write "key in (a,b)""#),
        ("*", "a key alone matches any value"),
        (">=", "only > and < compare numbers"),
        ("<=", "only > and < compare numbers"),
        (" not in ", r#"write "key notin (a,b)""#),
        (" IN ", r#"write "key in (a,b)""#),
        (" NOTIN ", r#"write "key notin (a,b)""#),
    ];
    HINTS.iter().find(|(sign, _)| text.contains(sign)).map(|(_, hint)| *hint)
}

impl FromStr for LabelSelector {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Self::parse(text)
    }
}

/// Prints the canonical text: sorted by key, values sorted, white space only around `in` and `notin`.
impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_joined(f, &self.requirements)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// `labels` is a list of `key=value` words.
    #[track_caller]
    fn check(selector: &str, labels: &str, expected: bool) {
        let labels: BTreeMap<&str, &str> =
            labels.split_whitespace().map(|word| word.split_once('=').unwrap()).collect();
        let selector = LabelSelector::parse(selector).unwrap();
        assert_eq!(selector.matches(|key| labels.get(key).copied()), expected, "{selector} on {labels:?}");
    }

    #[test]
    fn empty_selector_matches_everything() {
        assert!(LabelSelector::default().is_everything());
        check("", "", true);
        check("", "a=b", true);
    }

    #[test]
    fn positive_requirements_need_the_label() {
        for selector in ["a", "a=x", "a in (x,y)", "a in ()", "a=", "a>1", "a<1"] {
            check(selector, "", false);
            check(selector, "b=x", false);
        }
        check("a", "a=", true);
        check("a=x", "a=x", true);
        check("a=x", "a=y", false);
        check("a=", "a=", true);
        check("a in (x,y)", "a=y", true);
        check("a in (x,y)", "a=z", false);
        check("a in ()", "a=", true);
        check("a in ()", "a=x", false);
    }

    #[test]
    fn negative_requirements_hold_without_the_label() {
        for selector in ["!a", "a!=x", "a notin (x,y)", "a notin ()", "a!="] {
            check(selector, "", true);
            check(selector, "b=x", true);
        }
        check("!a", "a=", false);
        check("a!=x", "a=x", false);
        check("a!=x", "a=y", true);
        check("a!=", "a=", false);
        check("a notin (x,y)", "a=y", false);
        check("a notin (x,y)", "a=z", true);
        check("a notin ()", "a=", false);
    }

    #[test]
    fn integers_are_compared_and_other_values_never_match() {
        check("a>9", "a=10", true);
        check("a>9", "a=9", false);
        check("a<10", "a=9", true);
        check("a<10", "a=10", false);
        check("a<1", "a=0007", false);
        check("a<1", "a=-5", true); // no server stores such a label, but it is an integer
        for value in ["", "x", "1x", "1.5", "9223372036854775808", "0x10"] {
            check("a>0", &format!("a={value}"), false);
            check("a<9", &format!("a={value}"), false);
        }
    }

    #[test]
    fn all_requirements_must_hold() {
        check("a=x,b!=y,!c", "a=x", true);
        check("a=x,b!=y,!c", "a=x b=y", false);
        check("a=x,b!=y,!c", "a=x c=", false);
        check("a>1,a<5", "a=3", true);
        check("a>1,a<5", "a=5", false);
        check("a=x,a=y", "a=x", false);
    }

    #[test]
    fn building_a_requirement_checks_key_and_values() {
        #[track_caller]
        fn check(outcome: Result<Requirement, ParseError>, expected: &str) {
            let shown = outcome.map_or_else(|error| error.to_string(), |requirement| requirement.to_string());
            assert_eq!(shown, expected);
        }
        check(Requirement::equals("a", ""), "a=");
        check(Requirement::is_in("a", ["y", "x", "y"]), "a in (x,y)");
        check(Requirement::not_in("a", [""]), "a notin ()");
        check(Requirement::less_than("a", i64::MAX), "a<9223372036854775807");
        check(Requirement::exists(""), r#"label key "": expected a label key"#);
        check(Requirement::not_exists("/a"), r#"label key "/a": expected a DNS name before "/""#);
        check(
            Requirement::not_equals("a", "b c"),
            r#"label "a", value "b c": expected a label value of letters, digits, "-", "_" and ".", with a letter or digit at both ends"#,
        );
        check(Requirement::is_in("a", [""; 0]), r#"label key "a": expected at least one value"#);
        check(
            Requirement::greater_than("a", -1),
            r#"label "a", value "-1": expected a whole number from 0 to 9223372036854775807"#,
        );
    }

    #[test]
    fn selectors_with_equal_requirements_are_equal() {
        let built = LabelSelector::everything()
            .and(Requirement::not_in("b", ["y", "x"]).unwrap())
            .and(Requirement::equals("a", "1").unwrap())
            .and(Requirement::equals("a", "1").unwrap());
        assert_eq!(built, "a==1, b notin (x,y)".parse().unwrap());
        assert_eq!(built.requirements().iter().map(Requirement::key).collect::<Vec<_>>(), ["a", "b"]);
        // The same meaning, but other requirements.
        assert_ne!(built, LabelSelector::parse("a in (1),b notin (x,y)").unwrap());
    }

    /// The reference model of a requirement: plain data with its own implementation of matching.
    #[derive(Debug, Clone)]
    struct Model {
        key: String,
        operator: &'static str,
        values: Vec<String>,
        bound: i64,
    }

    impl Model {
        fn build(&self) -> Requirement {
            let (key, values) = (self.key.as_str(), &self.values);
            match self.operator {
                "=" => Requirement::equals(key, &values[0]),
                "!=" => Requirement::not_equals(key, &values[0]),
                "in" => Requirement::is_in(key, values),
                "notin" => Requirement::not_in(key, values),
                "exists" => Requirement::exists(key),
                "!" => Requirement::not_exists(key),
                ">" => Requirement::greater_than(key, self.bound),
                _ => Requirement::less_than(key, self.bound),
            }
            .unwrap()
        }

        fn matches(&self, labels: &[(String, String)]) -> bool {
            let Some((_, value)) = labels.iter().find(|(key, _)| *key == self.key) else {
                return matches!(self.operator, "!=" | "notin" | "!");
            };
            match self.operator {
                "=" => *value == self.values[0],
                "!=" => *value != self.values[0],
                "in" => self.values.contains(value),
                "notin" => !self.values.contains(value),
                "exists" => true,
                "!" => false,
                operator => match value.parse::<i64>() {
                    Ok(number) if operator == ">" => number > self.bound,
                    Ok(number) => number < self.bound,
                    Err(_) => false,
                },
            }
        }
    }

    fn key() -> impl Strategy<Value = String> {
        prop_oneof![
            Just("in".to_owned()),
            "[ab]",
            "([a-z][a-z0-9-]{0,5}[a-z0-9]\\.){0,2}io/[A-Z][A-Za-z_.-]{0,6}0"
        ]
    }

    fn value() -> impl Strategy<Value = String> {
        prop_oneof![
            "[xy]?",
            "[0-9]{1,2}",
            Just("notin".to_owned()),
            "[A-Za-z0-9][A-Za-z0-9_.-]{0,8}[A-Za-z0-9]"
        ]
    }

    fn model() -> impl Strategy<Value = Model> {
        let operator = prop::sample::select(vec!["=", "!=", "in", "notin", "exists", "!", ">", "<"]);
        let values = prop::collection::vec(value(), 1..4);
        let bound = prop_oneof![0..100i64, Just(i64::MAX), 0..i64::MAX];
        (key(), operator, values, bound).prop_map(|(key, operator, values, bound)| Model {
            key,
            operator,
            values,
            bound,
        })
    }

    fn select(models: &[Model]) -> LabelSelector {
        models.iter().map(Model::build).fold(LabelSelector::everything(), LabelSelector::and)
    }

    proptest! {
        #[test]
        fn printed_selector_parses_to_itself(models in prop::collection::vec(model(), 0..6)) {
            let selector = select(&models);
            prop_assert_eq!(LabelSelector::parse(&selector.to_string()), Ok(selector));
        }

        #[test]
        fn order_of_requirements_does_not_matter(models in prop::collection::vec(model(), 0..6)) {
            let backwards: Vec<_> = models.iter().rev().cloned().collect();
            prop_assert_eq!(select(&models), select(&backwards));
        }

        #[test]
        fn matching_agrees_with_the_reference_model(
            models in prop::collection::vec(model(), 0..4),
            labels in prop::collection::vec((key(), value()), 0..5),
        ) {
            let lookup = |key: &str| labels.iter().find(|(k, _)| k == key).map(|(_, value)| value.as_str());
            let expected = models.iter().all(|model| model.matches(&labels));
            prop_assert_eq!(select(&models).matches(lookup), expected);
        }

        #[test]
        fn any_text_is_parsed_or_rejected(text in any::<String>()) {
            let _ = LabelSelector::parse(&text);
        }

        /// Texts close enough to the grammar that many are accepted. Accepted ones parse back, and errors
        /// point into the text.
        #[test]
        fn text_similar_to_the_grammar_is_parsed_or_rejected(text in "(a|b/c|in|notin|1| |,|=|==|!|!=|\\(|\\)|<|>|\\(x,y\\)|é|\0){0,12}") {
            match LabelSelector::parse(&text) {
                Ok(selector) => prop_assert_eq!(LabelSelector::parse(&selector.to_string()), Ok(selector)),
                Err(error) => prop_assert!(text.is_char_boundary(error.position().unwrap())),
            }
        }
    }
}
