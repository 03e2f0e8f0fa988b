//! Label selectors, parsed and matched as in kube-apiserver, with its error messages.
//!
//! A selector is a list of requirements that must all hold; an empty selector matches everything. The
//! labelled objects are not known here.

use informer_objects::text::formats;
use serde_json::Value;

/// A label selector.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LabelSelector(Vec<Requirement>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    Exists,
    Missing,
    In(Vec<String>),
    NotIn(Vec<String>),
    Greater(i64),
    Less(i64),
}

impl LabelSelector {
    /// Parses a selector. The error is the message of the 400 response.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser { tokens: tokens(text), at: 0 };
        let mut requirements = Vec::new();
        loop {
            match parser.peek() {
                Token::End if requirements.is_empty() => break,
                Token::Not | Token::Word(_) => requirements.push(parser.requirement()?),
                found => return Err(format!("found '{found}', expected: !, identifier, or 'end of string'")),
            }
            match parser.next() {
                Token::End => break,
                Token::Comma => match parser.peek() {
                    Token::Not | Token::Word(_) => {}
                    found => return Err(format!("found '{found}', expected: identifier after ','")),
                },
                found => return Err(format!("found '{found}', expected: ',' or 'end of string'")),
            }
        }
        Ok(LabelSelector(requirements))
    }

    /// Parses the selector in the spec of an object. `None` if it is missing or invalid, so that it selects
    /// nothing.
    pub(crate) fn of_object(selector: &Value) -> Option<Self> {
        if selector.is_null() {
            return None;
        }
        LabelSelector::parse(&text_of(selector)).ok()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn matches(&self, labels: &[(String, String)]) -> bool {
        self.0.iter().all(|requirement| {
            let found = labels.iter().find(|(key, _)| *key == requirement.key).map(|(_, value)| value);
            requirement.test.holds(found.map(String::as_str))
        })
    }
}

impl Test {
    fn holds(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match self {
            Test::Exists => value.is_some(),
            Test::Missing => value.is_none(),
            Test::In(values) => value.is_some_and(|value| values.iter().any(|other| other == value)),
            Test::NotIn(values) => value.is_none_or(|value| values.iter().all(|other| other != value)),
            Test::Greater(than) => number().is_some_and(|number| number > *than),
            Test::Less(than) => number().is_some_and(|number| number < *than),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(String),
    Not,
    Comma,
    Open,
    Close,
    Equal,
    DoubleEqual,
    NotEqual,
    Greater,
    Less,
    End,
}

impl std::fmt::Display for Token {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Token::Word(word) => word,
            Token::Not => "!",
            Token::Comma => ",",
            Token::Open => "(",
            Token::Close => ")",
            Token::Equal => "=",
            Token::DoubleEqual => "==",
            Token::NotEqual => "!=",
            Token::Greater => ">",
            Token::Less => "<",
            Token::End => "",
        })
    }
}

fn tokens(text: &str) -> Vec<Token> {
    let special = |symbol: char| "!=,()<>".contains(symbol);
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let (token, length) = if rest.starts_with("==") {
            (Token::DoubleEqual, 2)
        } else if rest.starts_with("!=") {
            (Token::NotEqual, 2)
        } else if special(first) {
            let token = match first {
                '!' => Token::Not,
                '=' => Token::Equal,
                ',' => Token::Comma,
                '(' => Token::Open,
                ')' => Token::Close,
                '<' => Token::Less,
                _ => Token::Greater,
            };
            (token, 1)
        } else {
            let end = rest.find(|symbol: char| special(symbol) || symbol.is_whitespace());
            let word = &rest[..end.unwrap_or(rest.len())];
            (Token::Word(word.to_owned()), word.len())
        };
        tokens.push(token);
        rest = rest[length..].trim_start();
    }
    tokens
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn peek(&self) -> Token {
        self.tokens.get(self.at).cloned().unwrap_or(Token::End)
    }

    fn next(&mut self) -> Token {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        self.bare_requirement().map_err(|error| format!("unable to parse requirement: {error}"))
    }

    fn bare_requirement(&mut self) -> Result<Requirement, String> {
        let absent = self.peek() == Token::Not;
        if absent {
            self.next();
        }
        let key = match self.next() {
            Token::Word(key) => key,
            found => return Err(format!("found '{found}', expected: identifier")),
        };
        check_key(&key)?;
        if absent {
            return Ok(Requirement { key, test: Test::Missing });
        }
        let test = match self.peek() {
            Token::End | Token::Comma => Test::Exists,
            Token::Equal | Token::DoubleEqual => Test::In(vec![self.value_after_operator(&key)?]),
            Token::NotEqual => Test::NotIn(vec![self.value_after_operator(&key)?]),
            Token::Greater => Test::Greater(self.number_after_operator(&key)?),
            Token::Less => Test::Less(self.number_after_operator(&key)?),
            Token::Word(word) if word == "in" => Test::In(self.values(&key)?),
            Token::Word(word) if word == "notin" => Test::NotIn(self.values(&key)?),
            found => return Err(format!("found '{found}', expected: in, notin, =, ==, !=, gt, lt")),
        };
        Ok(Requirement { key, test })
    }

    fn value_after_operator(&mut self, key: &str) -> Result<String, String> {
        self.next();
        match self.peek() {
            Token::End | Token::Comma => Ok(String::new()),
            Token::Word(value) => {
                self.next();
                check_value(key, 0, &value)?;
                Ok(value)
            }
            found => Err(format!("found '{found}', expected: identifier")),
        }
    }

    fn number_after_operator(&mut self, key: &str) -> Result<i64, String> {
        let value = self.value_after_operator(key)?;
        value.parse().map_err(|_| {
            format!("values[0]: Invalid value: \"{value}\": for 'Gt', 'Lt' operators, the value must be an integer")
        })
    }

    fn values(&mut self, key: &str) -> Result<Vec<String>, String> {
        self.next();
        match self.next() {
            Token::Open => {}
            found => return Err(format!("found '{found}' expected: '('")),
        }
        let mut values = Vec::new();
        loop {
            match self.next() {
                Token::Word(value) => {
                    check_value(key, values.len(), &value)?;
                    values.push(value);
                    match self.next() {
                        Token::Comma if self.peek() == Token::Close => values.push(String::new()),
                        Token::Comma => {}
                        Token::Close => return Ok(values),
                        found => return Err(format!("found '{found}', expected: ',' or ')'")),
                    }
                }
                Token::Comma => values.push(String::new()),
                Token::Close => {
                    if values.is_empty() {
                        values.push(String::new());
                    }
                    return Ok(values);
                }
                found => return Err(format!("found '{found}', expected: ',', ')' or identifier")),
            }
        }
    }
}

fn check_key(key: &str) -> Result<(), String> {
    let wrong = formats::qualified_name(key);
    if wrong.is_empty() {
        return Ok(());
    }
    Err(format!("<nil>: Invalid value: \"{key}\": {}", wrong.join("; ")))
}

fn check_value(key: &str, index: usize, value: &str) -> Result<(), String> {
    let wrong = formats::label_value(value);
    if wrong.is_empty() {
        return Ok(());
    }
    Err(format!("values[{index}][{key}]: Invalid value: \"{value}\": {}", wrong.join("; ")))
}

/// Returns the selector of an object in the syntax of list requests, sorted by key: `a=b,c in (d,e)`.
///
/// `selector` is a `LabelSelector` or, as in a replication controller, a map of labels.
pub(crate) fn text_of(selector: &Value) -> String {
    let labels =
        selector.get("matchLabels").or(selector.get("matchExpressions").map_or(Some(selector), |_| None));
    let mut terms: Vec<(&str, String)> = labels
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.as_str(), format!("{key}={}", value.as_str()?))))
        .collect();
    terms.sort();
    for expression in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
        let key = expression["key"].as_str().unwrap_or_default();
        let mut values: Vec<&str> =
            expression["values"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let term = match expression["operator"].as_str().unwrap_or_default() {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "Exists" => key.to_owned(),
            _ => format!("!{key}"),
        };
        terms.push((key, term));
    }
    terms.sort_by_key(|(key, _)| *key);
    let terms: Vec<String> = terms.into_iter().map(|(_, term)| term).collect();
    terms.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(text: &str) -> Vec<(String, String)> {
        let pairs = text.split(',').filter(|pair| !pair.is_empty());
        pairs.filter_map(|pair| pair.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
    }

    #[test]
    fn selector_matches_as_recorded() {
        let cases = [
            ("color=red", "color=red", true),
            ("color==red", "color=blue", false),
            ("color!=red", "", true),
            ("color in (red,blue)", "color=blue", true),
            ("color notin (red,blue)", "n=1", true),
            ("color", "color=", true),
            ("!color", "n=1", true),
            ("n>2", "n=10", true),
            ("n<2", "n=10", false),
            ("color=red,n!=1", "color=red,n=1", false),
            ("odd=", "odd=", true),
            (" color = red , n ", "color=red,n=1", true),
            ("odd in ()", "odd=", true),
            ("color in ( red )", "color=red", true),
            ("color=red,color=blue", "color=red", false),
            ("", "", true),
        ];
        for (selector, object_labels, expected) in cases {
            let parsed = LabelSelector::parse(selector).unwrap();
            assert_eq!(parsed.matches(&labels(object_labels)), expected, "{selector} on {object_labels}");
        }
    }

    #[test]
    fn parse_errors_match_kube_apiserver() {
        let cases = [
            ("a===b", "unable to parse requirement: found '=', expected: identifier"),
            ("bad key=v", "unable to parse requirement: found 'key', expected: in, notin, =, ==, !=, gt, lt"),
            ("a=b c!", "found 'c', expected: ',' or 'end of string'"),
            ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
            ("a in", "unable to parse requirement: found '' expected: '('"),
            ("a=b,", "found '', expected: identifier after ','"),
            ("=", "found '=', expected: !, identifier, or 'end of string'"),
            ("a,,b", "found ',', expected: identifier after ','"),
        ];
        for (selector, expected) in cases {
            assert_eq!(LabelSelector::parse(selector).unwrap_err(), expected, "{selector}");
        }
    }
}
