//! Shard selectors (KEP-5866) as kube-apiserver 1.36 parses them: CEL expressions of `shardRange` calls joined by `||`.

use super::state::State;
use std::fmt;

/// The ranges of hashes that a list or a watch includes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShardSelector {
    path: ShardPath,
    ranges: Vec<Range>,
}

/// The field whose hash is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ShardPath {
    Uid,
    Namespace,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    start: u64,
    /// Not included; up to 2^64.
    end: u128,
}

impl ShardPath {
    const ALL: [Self; 2] = [Self::Uid, Self::Namespace];

    fn name(self) -> &'static str {
        match self {
            Self::Uid => "object.metadata.uid",
            Self::Namespace => "object.metadata.namespace",
        }
    }
}

impl ShardSelector {
    /// Parses a selector that is not empty. The error is the message of the response, which has the code 500.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let expression = Parser { rest: text, depth: 0 }.parse();
        let selector = expression.and_then(|expression| Self::from_expression(&expression));
        selector.map_err(|reason| format!("invalid shard selector: {reason}"))
    }

    pub(crate) fn matches(&self, state: &State) -> bool {
        let hash = fnv_1a(match self.path {
            ShardPath::Uid => &state.uid,
            ShardPath::Namespace => &state.namespace,
        });
        self.ranges.iter().any(|range| range.start <= hash && u128::from(hash) < range.end)
    }

    fn from_expression(expression: &Expression) -> Result<Self, String> {
        let (name, arguments) = match expression {
            Expression::Call(name, arguments) => (name.as_str(), arguments),
            other => {
                let kind = other.kind();
                return Err(format!(
                    "unexpected expression kind {kind}; expected shardRange() call or || operator"
                ));
            }
        };
        match (name, &arguments[..]) {
            ("_||_", [first, others @ ..]) => {
                let mut all = Self::from_expression(first)?;
                for other in others {
                    let other = Self::from_expression(other)?;
                    if all.path != other.path {
                        let (path, other) = (all.path.name(), other.path.name());
                        return Err(format!(
                            "all shard ranges must use the same field, got {path:?} and {other:?}"
                        ));
                    }
                    all.ranges.extend(other.ranges);
                }
                Ok(all)
            }
            ("shardRange", [path, start, end]) => Self::range(path, start, end),
            ("shardRange", arguments) => {
                Err(format!("shardRange() requires exactly 3 arguments, got {}", arguments.len()))
            }
            (name, _) => Err(format!("unsupported function {name:?}; only shardRange() and || are allowed")),
        }
    }

    fn range(path: &Expression, start: &Expression, end: &Expression) -> Result<Self, String> {
        let found = match path {
            Expression::Path(found) => found.as_str(),
            other => return Err(format!("unexpected expression kind {} as field path", other.kind())),
        };
        let path = ShardPath::ALL.into_iter().find(|path| path.name() == found).ok_or_else(|| {
            let [uid, namespace] = ShardPath::ALL.map(ShardPath::name);
            format!("unsupported field path {found:?}; supported: {uid}, {namespace}")
        })?;
        let (start, end) = (hex("hexStart", start)?, hex("hexEnd", end)?);
        let start = u64::try_from(start)
            .map_err(|_| format!("hexStart must be a 0x-prefixed 16-digit hex value, got \"0x{start:x}\""))?;
        if u128::from(start) >= end {
            return Err(format!("shard range start 0x{start:016x} must be less than end 0x{end:016x}"));
        }
        Ok(Self { path, ranges: vec![Range { start, end }] })
    }
}

/// The normalised text, as in the metadata of a list.
impl fmt::Display for ShardSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Range { start, end }) in self.ranges.iter().enumerate() {
            let separator = if index > 0 { " || " } else { "" };
            let path = self.path.name();
            write!(f, "{separator}shardRange({path}, '0x{start:016x}', '0x{end:016x}')")?;
        }
        Ok(())
    }
}

fn fnv_1a(text: &str) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in text.bytes() {
        hash ^= u64::from(byte);
        hash = hash.wrapping_mul(0x0100_0000_01b3);
    }
    hash
}

/// Parses the start or end of a range.
fn hex(name: &str, value: &Expression) -> Result<u128, String> {
    let text = match value {
        Expression::Literal(text) => text.as_str(),
        other => {
            return Err(format!("{name} must be a string literal, got expression kind {}", other.kind()));
        }
    };
    let Some(digits) = text.strip_prefix("0x") else {
        return Err(format!("{name} must have '0x' prefix, got {text:?}"));
    };
    let number = u128::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+'));
    match (digits.len(), number) {
        (16, Some(number)) => Ok(number),
        (17, Some(number)) if name == "hexEnd" => {
            let end = 1 << 64;
            if number == end {
                return Ok(end);
            }
            Err(format!("{name}: 17-digit hex value must be '0x10000000000000000' (2^64), got {text:?}"))
        }
        (0..16, Some(number)) => Err(format!(
            "{name} must be a 0x-prefixed 16-digit hex value, got {text:?} (did you mean \"0x{number:016x}\"?)"
        )),
        _ => Err(format!("{name} must be a 0x-prefixed 16-digit hex value, got {text:?}")),
    }
}

/// The part of CEL that selectors consist of.
#[derive(Debug, PartialEq, Eq)]
enum Expression {
    /// A function with its arguments; operators have names like `_||_`, and as many operands as follow each other.
    Call(String, Vec<Expression>),
    /// An identifier, or fields of one.
    Path(String),
    /// A text.
    Literal(String),
}

impl Expression {
    /// Returns the number of the kind in messages.
    fn kind(&self) -> u8 {
        match self {
            Self::Call(..) => 1,
            Self::Path(path) if path.contains('.') => 7,
            Self::Path(_) => 3,
            Self::Literal(_) => 5,
        }
    }
}

/// Upper bound on nested parentheses, because the parser is recursive.
const MAX_DEPTH: usize = 32;

struct Parser<'a> {
    rest: &'a str,
    depth: usize,
}

impl Parser<'_> {
    fn parse(mut self) -> Result<Expression, String> {
        let expression = self.operators()?;
        if self.rest.is_empty() { Ok(expression) } else { Err(self.syntax_error()) }
    }

    /// Parses terms with operators. An expression with `&&` is rejected later, whatever else it contains.
    fn operators(&mut self) -> Result<Expression, String> {
        if self.depth == MAX_DEPTH {
            return Err(format!("more than {MAX_DEPTH} levels of parentheses"));
        }
        self.depth += 1;
        let (mut terms, mut name) = (vec![self.term()?], "_||_");
        loop {
            if self.take("&&") {
                name = "_&&_";
            } else if !self.take("||") {
                break;
            }
            terms.push(self.term()?);
        }
        self.depth -= 1;
        match terms.len() {
            1 => Ok(terms.remove(0)),
            _ => Ok(Expression::Call(name.to_owned(), terms)),
        }
    }

    fn term(&mut self) -> Result<Expression, String> {
        if self.take("(") {
            let expression = self.operators()?;
            return if self.take(")") { Ok(expression) } else { Err(self.syntax_error()) };
        }
        for quote in ["'", "\""] {
            if self.take(quote) {
                let (text, rest) = self.rest.split_once(quote).ok_or_else(|| self.syntax_error())?;
                self.rest = rest;
                self.skip_blanks();
                return Ok(Expression::Literal(text.to_owned()));
            }
        }
        let is_part = |symbol: char| symbol.is_ascii_alphanumeric() || matches!(symbol, '_' | '.');
        let length = self.rest.find(|symbol| !is_part(symbol)).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(length);
        if name.is_empty() {
            return Err(self.syntax_error());
        }
        self.rest = rest;
        self.skip_blanks();
        if !self.take("(") {
            return Ok(Expression::Path(name.to_owned()));
        }
        let mut arguments = Vec::new();
        while !self.take(")") {
            if !arguments.is_empty() && !self.take(",") {
                return Err(self.syntax_error());
            }
            arguments.push(self.operators()?);
        }
        Ok(Expression::Call(name.to_owned(), arguments))
    }

    /// Takes a token, and the blanks around it.
    fn take(&mut self, token: &str) -> bool {
        self.skip_blanks();
        let rest = self.rest.strip_prefix(token);
        if let Some(rest) = rest {
            self.rest = rest;
        }
        // A text may begin with blanks.
        if rest.is_some() && !matches!(token, "'" | "\"") {
            self.skip_blanks();
        }
        rest.is_some()
    }

    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn syntax_error(&self) -> String {
        let found: String = self.rest.chars().take(20).collect();
        format!("syntax error before {found:?}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: &str = "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')";

    #[test]
    fn selector_is_normalised() {
        let other = "shardRange(object.metadata.uid,\"0x8000000000000000\",\"0x10000000000000000\")";
        let both = ShardSelector::parse(&format!("{HALF}||{other}")).unwrap();
        assert_eq!(
            both.to_string(),
            format!("{HALF} || shardRange(object.metadata.uid, '0x8000000000000000', '0x10000000000000000')")
        );
    }

    /// The messages of kube-apiserver 1.36.
    #[test]
    fn parse_errors_match_kube_apiserver() {
        let range = |path: &str, start: &str, end: &str| format!("shardRange({path}, '{start}', '{end}')");
        let (uid, zero, half) = ("object.metadata.uid", "0x0000000000000000", "0x8000000000000000");
        for (text, expected) in [
            (
                range(uid, "0x0", half),
                r#"hexStart must be a 0x-prefixed 16-digit hex value, got "0x0" (did you mean "0x0000000000000000"?)"#,
            ),
            (
                range(uid, "0X0000000000000000", half),
                r#"hexStart must have '0x' prefix, got "0X0000000000000000""#,
            ),
            (
                range("object.metadata.name", zero, half),
                r#"unsupported field path "object.metadata.name"; supported: object.metadata.uid, object.metadata.namespace"#,
            ),
            (
                range(uid, half, zero),
                "shard range start 0x8000000000000000 must be less than end 0x0000000000000000",
            ),
            (
                range(uid, zero, "0x20000000000000000"),
                r#"hexEnd: 17-digit hex value must be '0x10000000000000000' (2^64), got "0x20000000000000000""#,
            ),
            (
                format!("{HALF} || {}", range("object.metadata.namespace", zero, half)),
                r#"all shard ranges must use the same field, got "object.metadata.uid" and "object.metadata.namespace""#,
            ),
            ("hello".to_owned(), "unexpected expression kind 3; expected shardRange() call or || operator"),
            (
                format!("{HALF} && {HALF}"),
                r#"unsupported function "_&&_"; only shardRange() and || are allowed"#,
            ),
        ] {
            let message = ShardSelector::parse(&text).unwrap_err();
            assert_eq!(message, format!("invalid shard selector: {expected}"), "{text}");
        }
        for text in ["(", "shardRange(", "shardRange('a' 'b')", "'", "a b", "||", "shardRange()", "\u{e9}"] {
            assert!(ShardSelector::parse(text).is_err(), "{text}");
        }
        // No stack overflow.
        for text in ["(".repeat(100_000), "a||".repeat(100_000), "a(".repeat(100_000)] {
            assert!(ShardSelector::parse(&text).is_err());
        }
        assert!(ShardSelector::parse(&[HALF; 1_000].join("||")).is_ok());
    }

    #[test]
    fn hash_is_fnv_1a() {
        assert_eq!(fnv_1a(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv_1a("foobar"), 0x8594_4171_f739_67e8);
    }
}
