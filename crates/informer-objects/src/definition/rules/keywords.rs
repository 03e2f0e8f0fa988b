//! Tables for the type check of rules: positions of tokens, operators and functions.

use std::collections::{HashMap, VecDeque};

use kube_cel::cel::common::ast::operators;

use super::kind::Kind;

/// Line and column, starting at one.
pub(super) type Position = (usize, usize);

/// A token of a rule.
#[derive(Debug)]
struct Token {
    text: String,
    position: Position,
    /// Whether it is the name of a field or a method.
    after_dot: bool,
    /// The position of the dot before the token, if there is one.
    dot: Position,
}

/// The positions of the tokens of a rule.
///
/// Parsed expressions have no positions. The type check visits expressions in the order of the text, and
/// takes the next position of a token with the same text from here.
#[derive(Debug, Default)]
pub(super) struct TokenPositions {
    /// The positions of all tokens that do not follow a dot.
    tokens: HashMap<String, VecDeque<Position>>,
    /// The positions of the dots before the names of fields and methods.
    fields: HashMap<String, VecDeque<Position>>,
    /// The positions of opening brackets by the function names before them.
    calls: HashMap<String, VecDeque<Position>>,
}

impl TokenPositions {
    pub(super) fn of(text: &str) -> Self {
        let mut positions = TokenPositions::default();
        let tokens = tokens(text);
        for pair in tokens.windows(2) {
            if let [name, bracket] = pair
                && bracket.text == "("
            {
                positions.calls.entry(name.text.clone()).or_default().push_back(bracket.position);
            }
        }
        for token in tokens {
            let (queue, position) = if token.after_dot {
                (&mut positions.fields, token.dot)
            } else {
                (&mut positions.tokens, token.position)
            };
            queue.entry(token.text).or_default().push_back(position);
        }
        positions
    }

    /// Takes the position of the next token with this text that does not follow a dot.
    pub(super) fn next_token(&mut self, text: &str) -> Position {
        self.tokens.get_mut(text).and_then(VecDeque::pop_front).unwrap_or((1, 1))
    }

    /// Takes the position of the dot before the next field with this name.
    pub(super) fn next_field(&mut self, name: &str) -> Position {
        self.fields.get_mut(name).and_then(VecDeque::pop_front).unwrap_or((1, 1))
    }

    /// Takes the position of the opening bracket of the next call of this function.
    pub(super) fn next_call(&mut self, name: &str) -> Position {
        self.calls.get_mut(name).and_then(VecDeque::pop_front).unwrap_or((1, 1))
    }
}

/// Splits a rule into names and symbols, without comments; the token of a string is a quotation mark.
fn tokens(text: &str) -> Vec<Token> {
    let mut tokens: Vec<Token> = Vec::new();
    for (line, content) in text.lines().enumerate() {
        let letters: Vec<char> = content.chars().collect();
        let mut at = 0;
        while let Some(letter) = letters.get(at).copied() {
            let length = match letter {
                '"' | '\'' => quoted_length(letters.get(at..).unwrap_or_default()),
                '/' if letters.get(at + 1) == Some(&'/') => break,
                _ if is_letter(letter) => {
                    letters.iter().skip(at).take_while(|letter| is_letter(**letter)).count()
                }
                _ => symbol_length(letters.get(at..).unwrap_or_default()),
            };
            if !letter.is_whitespace() {
                let dot = tokens.last().filter(|last| last.text == "." || last.text == ".?");
                tokens.push(Token {
                    text: match letter {
                        '"' | '\'' => "\"".to_owned(),
                        _ => letters.iter().skip(at).take(length).collect(),
                    },
                    position: (line + 1, at + 1),
                    after_dot: dot.is_some(),
                    dot: dot.map_or((1, 1), |dot| dot.position),
                });
            }
            at += length.max(1);
        }
    }
    tokens
}

/// Returns the symbol of an operator; `None` for functions.
pub(super) fn operator_symbol(function: &str) -> Option<&'static str> {
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

/// Returns the type of the result of an operator; `None` if it does not accept the operands.
pub(super) fn operator_result<'a>(function: &str, kinds: &[Kind<'a>]) -> Option<Kind<'a>> {
    let is_known = |kind: &Kind<'_>| *kind != Kind::Dyn;
    match (function, kinds) {
        (operators::CONDITIONAL, [condition, yes, no]) => {
            let compatible = yes.is_compatible_with(no) || *yes == Kind::Null || *no == Kind::Null;
            (condition.is_compatible_with(&Kind::Bool) && compatible)
                .then(|| if is_known(yes) { yes.clone() } else { no.clone() })
        }
        (operators::LOGICAL_AND | operators::LOGICAL_OR | operators::LOGICAL_NOT, kinds) => {
            kinds.iter().all(|kind| kind.is_compatible_with(&Kind::Bool)).then_some(Kind::Bool)
        }
        (operators::NEGATE, [kind]) => {
            matches!(kind, Kind::Dyn | Kind::Int | Kind::Double).then(|| kind.clone())
        }
        (operators::EQUALS | operators::NOT_EQUALS, [left, right]) => {
            let is_null = |kind: &Kind<'_>| matches!(kind, Kind::Null);
            let is_nullable =
                |kind: &Kind<'_>| matches!(kind, Kind::Object(_) | Kind::Duration | Kind::Timestamp);
            let with_null = (is_null(left) && is_nullable(right)) || (is_null(right) && is_nullable(left));
            (left.is_compatible_with(right) || with_null).then_some(Kind::Bool)
        }
        (operators::IN, [left, right]) => match right {
            Kind::List(item) => left.is_compatible_with(item).then_some(Kind::Bool),
            Kind::Map(_) => left.is_compatible_with(&Kind::String).then_some(Kind::Bool),
            Kind::Dyn => Some(Kind::Bool),
            _ => None,
        },
        (
            operators::LESS | operators::LESS_EQUALS | operators::GREATER | operators::GREATER_EQUALS,
            [left, right],
        ) => {
            let is_ordered = |kind: &Kind<'_>| {
                !matches!(
                    kind,
                    Kind::List(_) | Kind::Map(_) | Kind::Object(_) | Kind::Null | Kind::Optional(_)
                )
            };
            let comparable = left.is_compatible_with(right) || (is_number(left) && is_number(right));
            (comparable && is_ordered(left) && is_ordered(right)).then_some(Kind::Bool)
        }
        (_, [left, right]) => arithmetic(function, left, right),
        _ => Some(Kind::Dyn),
    }
}

fn arithmetic<'a>(function: &str, left: &Kind<'a>, right: &Kind<'a>) -> Option<Kind<'a>> {
    let (is_sum, is_difference) = (function == operators::ADD, function == operators::SUBSTRACT);
    match (left, right) {
        (Kind::Dyn, _) | (_, Kind::Dyn) => Some(Kind::Dyn),
        (Kind::Timestamp, Kind::Duration) if is_sum || is_difference => Some(Kind::Timestamp),
        (Kind::Duration, Kind::Timestamp) if is_sum => Some(Kind::Timestamp),
        (Kind::Timestamp, Kind::Timestamp) if is_difference => Some(Kind::Duration),
        (Kind::Duration, Kind::Duration) if is_sum || is_difference => Some(Kind::Duration),
        (Kind::String, Kind::String) | (Kind::Bytes, Kind::Bytes) if is_sum => Some(left.clone()),
        (Kind::List(_), Kind::List(_)) if is_sum => left.is_compatible_with(right).then(|| left.clone()),
        (Kind::Double, Kind::Double) if function == operators::MODULO => None,
        _ => (is_number(left) && left == right).then(|| left.clone()),
    }
}

fn is_number(kind: &Kind<'_>) -> bool {
    matches!(kind, Kind::Int | Kind::Uint | Kind::Double)
}

/// The first segments of function names like `sets.contains`.
pub(super) const NAMESPACES: &[&str] =
    &["sets", "math", "base64", "optional", "format", "jsonpatch", "strings", "lists", "ip", "cidr"];

/// Whether a name is that of a type.
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
            // The first segment of `google.protobuf.Timestamp`.
            | "google"
    )
}

pub(super) fn is_function(name: &str) -> bool {
    FUNCTIONS.iter().any(|(_, names)| names.contains(&name))
}

/// Returns the name of the return type of a function; empty if it depends on the arguments.
pub(super) fn return_type(name: &str) -> &'static str {
    FUNCTIONS.iter().find(|(_, names)| names.contains(&name)).map_or("", |(kind, _)| kind)
}

/// Whether a function accepts the operands. Operands of most functions are not checked.
pub(super) fn accepts(name: &str, target: Option<&Kind<'_>>, args: &[Kind<'_>]) -> bool {
    let is_text = |kind: &Kind<'_>| kind.is_compatible_with(&Kind::String);
    match (name, target, args) {
        ("startsWith" | "endsWith" | "matches" | "contains", Some(target), [arg]) => {
            is_text(target) && is_text(arg)
        }
        ("lowerAscii" | "upperAscii" | "trim", Some(target), []) => is_text(target),
        ("size", Some(operand), []) | ("size", None, [operand]) => {
            matches!(operand, Kind::Dyn | Kind::String | Kind::Bytes | Kind::List(_) | Kind::Map(_))
        }
        ("orValue", Some(Kind::Optional(operand)), [arg]) => operand.is_compatible_with(arg),
        _ => true,
    }
}

/// The functions by the names of their return types; the name is empty if the type depends on the arguments.
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

/// Returns the length of a quoted string.
fn quoted_length(letters: &[char]) -> usize {
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

fn symbol_length(letters: &[char]) -> usize {
    let two: String = letters.iter().take(2).collect();
    if matches!(two.as_str(), "&&" | "||" | "==" | "!=" | "<=" | ">=" | ".?" | "[?") { 2 } else { 1 }
}
