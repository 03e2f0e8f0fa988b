//! The words of the language: tokens with their places, operators, functions.

use std::collections::{HashMap, VecDeque};

use kube_cel::cel::common::ast::operators;

use super::kind::Kind;

/// Line and column, from one.
pub(super) type Place = (usize, usize);

/// A piece of a rule's text.
#[derive(Debug)]
struct Token {
    text: String,
    place: Place,
    /// Whether it is the name of a field or a method.
    after_point: bool,
    /// Where that point is.
    point: Place,
}

/// Where the pieces of a rule's text are. Pieces that are alike are passed one after the other.
#[derive(Debug, Default)]
pub(super) struct Places {
    names: HashMap<String, VecDeque<Place>>,
    fields: HashMap<String, VecDeque<Place>>,
    /// Brackets, by the names of the functions in front of them.
    calls: HashMap<String, VecDeque<Place>>,
}

impl Places {
    pub(super) fn of(text: &str) -> Self {
        let mut places = Places::default();
        let tokens = tokens(text);
        for pair in tokens.windows(2) {
            if let [name, bracket] = pair
                && bracket.text == "("
            {
                places.calls.entry(name.text.clone()).or_default().push_back(bracket.place);
            }
        }
        for token in tokens {
            let (alike, place) = if token.after_point {
                (&mut places.fields, token.point)
            } else {
                (&mut places.names, token.place)
            };
            alike.entry(token.text).or_default().push_back(place);
        }
        places
    }

    /// The place of the next such piece.
    pub(super) fn pass(&mut self, text: &str, after_point: bool) -> Place {
        let alike = if after_point { &mut self.fields } else { &mut self.names };
        alike.get_mut(text).and_then(VecDeque::pop_front).unwrap_or((1, 1))
    }

    /// The place of the bracket behind the next such function name.
    pub(super) fn pass_call(&mut self, name: &str) -> Place {
        self.calls.get_mut(name).and_then(VecDeque::pop_front).unwrap_or((1, 1))
    }
}

/// Names and signs, without comments; whatever a quoted text says, its token is a quotation mark.
fn tokens(text: &str) -> Vec<Token> {
    let mut tokens: Vec<Token> = Vec::new();
    for (line, content) in text.lines().enumerate() {
        let letters: Vec<char> = content.chars().collect();
        let mut at = 0;
        while let Some(letter) = letters.get(at).copied() {
            let length = match letter {
                '"' | '\'' => quoted(letters.get(at..).unwrap_or_default()),
                '/' if letters.get(at + 1) == Some(&'/') => break,
                _ if is_letter(letter) => {
                    letters.iter().skip(at).take_while(|letter| is_letter(**letter)).count()
                }
                _ => sign_length(letters.get(at..).unwrap_or_default()),
            };
            if !letter.is_whitespace() {
                let point = tokens.last().filter(|last| last.text == "." || last.text == ".?");
                tokens.push(Token {
                    text: match letter {
                        '"' | '\'' => "\"".to_owned(),
                        _ => letters.iter().skip(at).take(length).collect(),
                    },
                    place: (line + 1, at + 1),
                    after_point: point.is_some(),
                    point: point.map_or((1, 1), |point| point.place),
                });
            }
            at += length.max(1);
        }
    }
    tokens
}

/// How an operator is written; none for functions.
pub(super) fn sign(function: &str) -> Option<&'static str> {
    Some(match function {
        operators::CONDITIONAL => "?",
        operators::LOGICAL_AND => "&&",
        operators::LOGICAL_OR => "||",
        operators::LOGICAL_NOT => "!",
        operators::EQUALS => "==",
        operators::NOT_EQUALS => "!=",
        operators::LESS => "<",
        operators::LESS_EQUALS => "<=",
        operators::GREATER => ">",
        operators::GREATER_EQUALS => ">=",
        operators::ADD => "+",
        operators::NEGATE | operators::SUBSTRACT => "-",
        operators::MULTIPLY => "*",
        operators::DIVIDE => "/",
        operators::MODULO => "%",
        operators::IN => "in",
        _ => return None,
    })
}

/// What an operator gives; none if it does not take such operands.
pub(super) fn judge<'a>(function: &str, kinds: &[Kind<'a>]) -> Option<Kind<'a>> {
    let known = |kind: &Kind<'_>| *kind != Kind::Dyn;
    match (function, kinds) {
        (operators::CONDITIONAL, [condition, yes, no]) => {
            let alike = yes.is_or_may_be(no) || *yes == Kind::Null || *no == Kind::Null;
            (condition.is_or_may_be(&Kind::Bool) && alike)
                .then(|| if known(yes) { yes.clone() } else { no.clone() })
        }
        (operators::LOGICAL_AND | operators::LOGICAL_OR | operators::LOGICAL_NOT, kinds) => {
            kinds.iter().all(|kind| kind.is_or_may_be(&Kind::Bool)).then_some(Kind::Bool)
        }
        (operators::NEGATE, [kind]) => {
            matches!(kind, Kind::Dyn | Kind::Int | Kind::Double).then(|| kind.clone())
        }
        (operators::EQUALS | operators::NOT_EQUALS, [left, right]) => {
            let null = |kind: &Kind<'_>| matches!(kind, Kind::Null);
            let holds_null =
                |kind: &Kind<'_>| matches!(kind, Kind::Object(_) | Kind::Duration | Kind::Timestamp);
            let with_null = (null(left) && holds_null(right)) || (null(right) && holds_null(left));
            (left.is_or_may_be(right) || with_null).then_some(Kind::Bool)
        }
        (operators::IN, [left, right]) => match right {
            Kind::List(of) => left.is_or_may_be(of).then_some(Kind::Bool),
            Kind::Map(_) => left.is_or_may_be(&Kind::String).then_some(Kind::Bool),
            Kind::Dyn => Some(Kind::Bool),
            _ => None,
        },
        (
            operators::LESS | operators::LESS_EQUALS | operators::GREATER | operators::GREATER_EQUALS,
            [left, right],
        ) => {
            let ordered = |kind: &Kind<'_>| {
                !matches!(
                    kind,
                    Kind::List(_) | Kind::Map(_) | Kind::Object(_) | Kind::Null | Kind::Optional(_)
                )
            };
            let alike = left.is_or_may_be(right) || (is_number(left) && is_number(right));
            (alike && ordered(left) && ordered(right)).then_some(Kind::Bool)
        }
        (_, [left, right]) => arithmetic(function, left, right),
        _ => Some(Kind::Dyn),
    }
}

fn arithmetic<'a>(function: &str, left: &Kind<'a>, right: &Kind<'a>) -> Option<Kind<'a>> {
    let (sum, difference) = (function == operators::ADD, function == operators::SUBSTRACT);
    match (left, right) {
        (Kind::Dyn, _) | (_, Kind::Dyn) => Some(Kind::Dyn),
        (Kind::Timestamp, Kind::Duration) if sum || difference => Some(Kind::Timestamp),
        (Kind::Duration, Kind::Timestamp) if sum => Some(Kind::Timestamp),
        (Kind::Timestamp, Kind::Timestamp) if difference => Some(Kind::Duration),
        (Kind::Duration, Kind::Duration) if sum || difference => Some(Kind::Duration),
        (Kind::String, Kind::String) | (Kind::Bytes, Kind::Bytes) if sum => Some(left.clone()),
        (Kind::List(_), Kind::List(_)) if sum => left.is_or_may_be(right).then(|| left.clone()),
        (Kind::Double, Kind::Double) if function == operators::MODULO => None,
        _ => (is_number(left) && left == right).then(|| left.clone()),
    }
}

fn is_number(kind: &Kind<'_>) -> bool {
    matches!(kind, Kind::Int | Kind::Uint | Kind::Double)
}

/// First words of functions' names.
pub(super) const NAMESPACES: &[&str] =
    &["sets", "math", "base64", "optional", "format", "jsonpatch", "strings", "lists", "ip", "cidr"];

/// Whether a name is a type's.
pub(super) fn is_type(name: &str) -> bool {
    matches!(
        name,
        "bool"
            | "int"
            | "uint"
            | "double"
            | "string"
            | "bytes"
            | "list"
            | "map"
            | "null_type"
            | "type"
            | "google"
    )
}

pub(super) fn is_function(name: &str) -> bool {
    FUNCTIONS.iter().any(|(_, names)| names.contains(&name))
}

/// The name of the type that a function gives; empty if it depends.
pub(super) fn gives(name: &str) -> &'static str {
    FUNCTIONS.iter().find(|(_, names)| names.contains(&name)).map_or("", |(kind, _)| kind)
}

/// Whether a function takes such operands; of most functions it is not known.
pub(super) fn fits(name: &str, target: Option<&Kind<'_>>, args: &[Kind<'_>]) -> bool {
    let text = |kind: &Kind<'_>| kind.is_or_may_be(&Kind::String);
    match (name, target, args) {
        ("startsWith" | "endsWith" | "matches" | "contains", Some(target), [arg]) => {
            text(target) && text(arg)
        }
        ("lowerAscii" | "upperAscii" | "trim", Some(target), []) => text(target),
        ("size", Some(of), []) | ("size", None, [of]) => {
            matches!(of, Kind::Dyn | Kind::String | Kind::Bytes | Kind::List(_) | Kind::Map(_))
        }
        ("orValue", Some(Kind::Optional(of)), [arg]) => of.is_or_may_be(arg),
        _ => true,
    }
}

const FUNCTIONS: &[(&str, &[&str])] = &[
    (
        "bool",
        &[
            "contains",
            "startsWith",
            "endsWith",
            "matches",
            "bool",
            "isSorted",
            "hasValue",
            "isURL",
            "isIP",
            "isCIDR",
            "isQuantity",
            "isSemver",
            "isInteger",
            "isGreaterThan",
            "isLessThan",
            "containsIP",
            "containsCIDR",
            "isCanonical",
            "isUnspecified",
            "isLoopback",
            "isLinkLocalMulticast",
            "isLinkLocalUnicast",
            "isGlobalUnicast",
            "intersects",
            "equivalent",
            "isInf",
            "isNaN",
            "isFinite",
        ],
    ),
    (
        "int",
        &[
            "size",
            "int",
            "getFullYear",
            "getMonth",
            "getDayOfYear",
            "getDayOfMonth",
            "getDate",
            "getDayOfWeek",
            "getHours",
            "getMinutes",
            "getSeconds",
            "getMilliseconds",
            "asInteger",
            "sign",
            "compareTo",
            "major",
            "minor",
            "patch",
            "prefixLength",
            "family",
        ],
    ),
    (
        "string",
        &[
            "string",
            "charAt",
            "lowerAscii",
            "upperAscii",
            "replace",
            "substring",
            "trim",
            "join",
            "format",
            "quote",
            "find",
            "getScheme",
            "getHost",
            "getHostname",
            "getPort",
            "getEscapedPath",
            "escapeKey",
        ],
    ),
    ("double", &["double", "asApproximateFloat"]),
    ("duration", &["duration"]),
    ("timestamp", &["timestamp"]),
    (
        "",
        &[
            "dyn",
            "type",
            "uint",
            "bytes",
            "split",
            "findAll",
            "indexOf",
            "lastIndexOf",
            "sum",
            "min",
            "max",
            "slice",
            "flatten",
            "sort",
            "sortBy",
            "distinct",
            "range",
            "reverse",
            "first",
            "last",
            "url",
            "getQuery",
            "ip",
            "cidr",
            "masked",
            "quantity",
            "add",
            "sub",
            "semver",
            "of",
            "none",
            "ofNonZeroValue",
            "value",
            "or",
            "orValue",
            "encode",
            "decode",
            "greatest",
            "least",
            "abs",
            "ceil",
            "floor",
            "round",
            "trunc",
            "sqrt",
            "bitAnd",
            "bitOr",
            "bitXor",
            "bitNot",
            "bitShiftLeft",
            "bitShiftRight",
            "named",
            "validate",
            "dns1123Label",
            "dns1123Subdomain",
            "dns1035Label",
            "qualifiedName",
            "labelValue",
            "uri",
            "uuid",
            "byte",
            "date",
            "datetime",
            "dns1123LabelPrefix",
            "dns1123SubdomainPrefix",
            "dns1035LabelPrefix",
        ],
    ),
];

fn is_letter(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

/// The length of a quoted text that begins here.
fn quoted(letters: &[char]) -> usize {
    let Some(end) = letters.first() else { return 0 };
    let mut escaped = false;
    for (at, letter) in letters.iter().enumerate().skip(1) {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            letter if letter == end => return at + 1,
            _ => {}
        }
    }
    letters.len()
}

fn sign_length(letters: &[char]) -> usize {
    let two: String = letters.iter().take(2).collect();
    if matches!(two.as_str(), "&&" | "||" | "==" | "!=" | "<=" | ">=" | ".?" | "[?") { 2 } else { 1 }
}
