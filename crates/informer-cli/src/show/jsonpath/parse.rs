//! Parser of `JSONPath` templates: recursive descent over the characters.

use super::{Comparison, Filter, JsonPath, Operand, ParseError, Part, Selector, Step};
use serde_json::Value;

/// Maximal nesting of loops and filters, so that the recursion is bounded.
const MAX_DEPTH: usize = 32;

type Result<T> = std::result::Result<T, ParseError>;

/// Parses a template.
pub(super) fn template(text: &str) -> Result<Vec<Part>> {
    let mut parser = Parser::new(text);
    let (parts, end) = parser.parts(0)?;
    match end {
        Some(position) => Err(error_at(position, "end without range")),
        None => Ok(parts),
    }
}

/// Parses a path with optional braces and an optional first dot.
pub(super) fn path(text: &str) -> Result<JsonPath> {
    let mut parser = Parser::new(text);
    parser.skip_spaces();
    let in_braces = parser.eat('{');
    parser.skip_spaces();
    let mut steps = Vec::new();
    if parser.peek().is_some_and(|letter| !is_special(letter)) {
        steps.push(Step::Select(vec![Selector::Field(parser.name()?)]));
    }
    let start = parser.position;
    let path = parser.path(steps, 0)?;
    if parser.position == start && path.steps.is_empty() {
        return Err(parser.error("expected a path such as .metadata.name"));
    }
    parser.skip_spaces();
    if in_braces {
        parser.expect('}')?;
    }
    parser.skip_spaces();
    match parser.peek() {
        None => Ok(path),
        Some(_) => Err(parser.unexpected("the end")),
    }
}

/// Whether a character ends the name of a field, unless it is escaped.
fn is_special(letter: char) -> bool {
    letter.is_whitespace()
        || matches!(letter, '.' | '[' | ']' | '{' | '}' | '(' | ')' | ',' | '*' | '$' | '@' | '?')
        || matches!(letter, '=' | '!' | '<' | '>' | '\'' | '"')
}

struct Parser {
    letters: Vec<char>,
    /// Index of the next character.
    position: usize,
}

impl Parser {
    fn new(text: &str) -> Self {
        Self { letters: text.chars().collect(), position: 0 }
    }

    /// Parses parts up to the end of the text or up to `{end}`, whose position is returned.
    fn parts(&mut self, depth: usize) -> Result<(Vec<Part>, Option<usize>)> {
        let mut parts = Vec::new();
        loop {
            let start = self.position;
            while self.peek().is_some_and(|letter| letter != '{') {
                self.position += 1;
            }
            if self.position > start {
                parts.push(Part::Text(self.since(start)));
            }
            if !self.eat('{') {
                return Ok((parts, None));
            }
            let opened = self.position;
            loop {
                self.skip_spaces();
                if self.eat('}') {
                    break;
                }
                if self.eat_word("end") {
                    self.skip_spaces();
                    self.expect('}')?;
                    return Ok((parts, Some(opened)));
                }
                if self.eat_word("range") {
                    parts.push(self.range(opened, depth)?);
                    break;
                }
                parts.push(self.item(depth)?);
            }
        }
    }

    /// Parses a loop after the word `range`.
    fn range(&mut self, opened: usize, depth: usize) -> Result<Part> {
        if depth >= MAX_DEPTH {
            return Err(self.error("too many nested loops"));
        }
        self.skip_spaces();
        let over = self.some_path(depth)?;
        self.skip_spaces();
        self.expect('}')?;
        match self.parts(depth + 1)? {
            (body, Some(_)) => Ok(Part::Range { over, body }),
            (_, None) => Err(error_at(opened, "range without {end}")),
        }
    }

    /// Parses a text, a number or a path inside braces.
    fn item(&mut self, depth: usize) -> Result<Part> {
        match self.peek() {
            Some('"' | '\'') => Ok(Part::Text(self.quoted()?)),
            Some('.' | '[' | '@' | '$') => Ok(Part::Values(self.path(Vec::new(), depth)?)),
            Some(letter) if letter.is_ascii_digit() || letter == '-' => {
                Ok(Part::Text(super::text(&self.literal()?)))
            }
            Some(letter) if !is_special(letter) => {
                let start = self.position;
                let name = self.name()?;
                Err(error_at(start, &format!("unknown word \"{name}\"; fields start with a dot: .{name}")))
            }
            None => Err(self.error("missing '}'")),
            Some(_) => Err(self.unexpected("a path, a quoted text, range or end")),
        }
    }

    fn some_path(&mut self, depth: usize) -> Result<JsonPath> {
        match self.peek() {
            Some('.' | '[' | '@' | '$') => self.path(Vec::new(), depth),
            _ => Err(self.unexpected("a path such as .items[*]")),
        }
    }

    /// Parses the rest of a path that starts with these steps.
    fn path(&mut self, mut steps: Vec<Step>, depth: usize) -> Result<JsonPath> {
        if steps.is_empty() && !self.eat('$') {
            self.eat('@');
        }
        loop {
            if self.eat('[') {
                steps.push(self.bracket(depth)?);
            } else if self.eat('*') {
                steps.push(Step::Children);
            } else if self.eat('.') {
                if self.eat('.') {
                    steps.push(Step::Descendants);
                }
                match self.peek() {
                    Some('*' | '[') => {}
                    Some(letter) if !is_special(letter) => {
                        steps.push(Step::Select(vec![Selector::Field(self.name()?)]));
                    }
                    // The object itself: `{.}`.
                    _ if steps.is_empty() => return Ok(JsonPath { steps }),
                    _ => return Err(self.unexpected("the name of a field")),
                }
            } else {
                return Ok(JsonPath { steps });
            }
        }
    }

    /// Parses the rest of a step after its bracket.
    fn bracket(&mut self, depth: usize) -> Result<Step> {
        self.skip_spaces();
        if self.eat('?') {
            let filter = self.filter(depth)?;
            self.skip_spaces();
            self.expect(']')?;
            return Ok(Step::Filter(filter));
        }
        if self.eat('*') {
            self.skip_spaces();
            self.expect(']')?;
            return Ok(Step::Children);
        }
        let mut selectors = Vec::new();
        loop {
            self.skip_spaces();
            selectors.push(self.selector()?);
            self.skip_spaces();
            if self.eat(']') {
                return Ok(Step::Select(selectors));
            }
            if !self.eat(',') {
                return Err(self.unexpected("']' or ','"));
            }
        }
    }

    /// Parses a quoted name, an index or a slice.
    fn selector(&mut self) -> Result<Selector> {
        if matches!(self.peek(), Some('"' | '\'')) {
            let fields = self.quoted_fields()?;
            let name = fields.join(".");
            return Ok(if fields.len() > 1 {
                Selector::FieldOrPath(name, fields)
            } else {
                Selector::Field(name)
            });
        }
        let start = self.integer()?;
        if !self.eat(':') {
            return start
                .map(Selector::Index)
                .ok_or_else(|| self.unexpected("an index, a quoted name, '*' or '?'"));
        }
        let end = self.integer()?;
        let at = self.position;
        let step = if self.eat(':') { self.integer()?.unwrap_or(1) } else { 1 };
        match usize::try_from(step) {
            Ok(step) if step > 0 => Ok(Selector::Slice { start, end, step }),
            _ => Err(error_at(at, "the step of a slice must be positive")),
        }
    }

    /// Parses a filter after its question mark: `(@.a == "b")`.
    fn filter(&mut self, depth: usize) -> Result<Filter> {
        if depth >= MAX_DEPTH {
            return Err(self.error("too many nested filters"));
        }
        self.expect('(')?;
        self.skip_spaces();
        let left = self.operand(depth + 1)?;
        self.skip_spaces();
        let known = [
            ("==", Comparison::Equal),
            ("!=", Comparison::NotEqual),
            ("<=", Comparison::LessOrEqual),
            (">=", Comparison::GreaterOrEqual),
            ("<", Comparison::Less),
            (">", Comparison::Greater),
        ];
        let comparison = match known.into_iter().find(|(sign, _)| self.eat_text(sign)) {
            Some((_, comparison)) => {
                self.skip_spaces();
                Some((comparison, self.operand(depth + 1)?))
            }
            None => None,
        };
        self.skip_spaces();
        if !self.eat(')') {
            return Err(self.unexpected(if comparison.is_some() { "')'" } else { "a comparison or ')'" }));
        }
        Ok(Filter { left, comparison })
    }

    fn operand(&mut self, depth: usize) -> Result<Operand> {
        match self.peek() {
            Some('@' | '$' | '.' | '[') => Ok(Operand::Path(self.path(Vec::new(), depth)?)),
            Some('"' | '\'') => Ok(Operand::Literal(Value::from(self.quoted()?))),
            _ => Ok(Operand::Literal(self.literal()?)),
        }
    }

    /// Parses a number, `true`, `false` or `null`.
    fn literal(&mut self) -> Result<Value> {
        let start = self.position;
        while self.peek().is_some_and(|letter| !is_special(letter) || letter == '.') {
            self.position += 1;
        }
        let word = self.since(start);
        match serde_json::from_str(&word) {
            Ok(value @ (Value::Number(_) | Value::Bool(_) | Value::Null)) => Ok(value),
            _ if word.is_empty() => Err(self.unexpected("a value")),
            _ => Err(error_at(start, &format!("unknown value {word}; texts need quotes: \"{word}\""))),
        }
    }

    /// Parses the name of a field; a backslash escapes a special character.
    fn name(&mut self) -> Result<String> {
        let mut name = String::new();
        while let Some(letter) = self.peek() {
            if letter == '\\' {
                self.position += 1;
                name.push(self.peek().ok_or_else(|| self.error("expected a character after '\\'"))?);
            } else if is_special(letter) {
                break;
            } else {
                name.push(letter);
            }
            self.position += 1;
        }
        Ok(name)
    }

    /// Parses a quoted text with the escapes of Go.
    fn quoted(&mut self) -> Result<String> {
        let mut text = String::new();
        self.quoted_letters(|letter, is_escaped| {
            text.push(match letter {
                'n' if is_escaped => '\n',
                't' if is_escaped => '\t',
                'r' if is_escaped => '\r',
                letter => letter,
            });
        })?;
        Ok(text)
    }

    /// Parses a quoted name, split at its dots that are not escaped.
    fn quoted_fields(&mut self) -> Result<Vec<String>> {
        let mut fields = vec![String::new()];
        self.quoted_letters(|letter, is_escaped| {
            if letter == '.' && !is_escaped {
                fields.push(String::new());
            } else if let Some(last) = fields.last_mut() {
                last.push(letter);
            }
        })?;
        Ok(fields)
    }

    /// Passes each character between quotes, and whether it is escaped.
    fn quoted_letters(&mut self, mut push: impl FnMut(char, bool)) -> Result<()> {
        let start = self.position;
        let quote = self.peek();
        self.position += 1;
        while let Some(letter) = self.peek() {
            self.position += 1;
            match letter {
                letter if Some(letter) == quote => return Ok(()),
                '\\' => {
                    push(self.peek().ok_or_else(|| self.error("expected a character after '\\'"))?, true);
                    self.position += 1;
                }
                letter => push(letter, false),
            }
        }
        Err(error_at(start, "missing quote at the end of the text"))
    }

    fn integer(&mut self) -> Result<Option<i64>> {
        self.skip_spaces();
        let start = self.position;
        self.eat('-');
        while self.peek().is_some_and(|letter| letter.is_ascii_digit()) {
            self.position += 1;
        }
        let text = self.since(start);
        self.skip_spaces();
        if text.is_empty() {
            return Ok(None);
        }
        text.parse().map(Some).map_err(|_| error_at(start, "invalid number"))
    }

    fn peek(&self) -> Option<char> {
        self.letters.get(self.position).copied()
    }

    fn since(&self, start: usize) -> String {
        self.letters.get(start..self.position).unwrap_or_default().iter().collect()
    }

    fn skip_spaces(&mut self) {
        while self.peek().is_some_and(char::is_whitespace) {
            self.position += 1;
        }
    }

    fn eat(&mut self, letter: char) -> bool {
        let found = self.peek() == Some(letter);
        self.position += usize::from(found);
        found
    }

    fn eat_text(&mut self, text: &str) -> bool {
        let rest = self.letters.get(self.position..).unwrap_or_default();
        let found = text.chars().zip(rest).filter(|(wanted, letter)| wanted == *letter).count();
        let matches = found == text.chars().count();
        self.position += if matches { found } else { 0 };
        matches
    }

    /// Consumes a word that is not followed by more letters of a name.
    fn eat_word(&mut self, word: &str) -> bool {
        let start = self.position;
        let found = self.eat_text(word) && self.peek().is_none_or(is_special);
        if !found {
            self.position = start;
        }
        found
    }

    fn expect(&mut self, letter: char) -> Result<()> {
        if self.eat(letter) { Ok(()) } else { Err(self.unexpected(&format!("'{letter}'"))) }
    }

    fn unexpected(&self, expected: &str) -> ParseError {
        match self.peek() {
            Some(found) => self.error(&format!("expected {expected}, found '{found}'")),
            None => self.error(&format!("expected {expected}, found the end")),
        }
    }

    fn error(&self, message: &str) -> ParseError {
        error_at(self.position, message)
    }
}

/// Creates an error about the character at this index.
fn error_at(index: usize, message: &str) -> ParseError {
    ParseError { position: index + 1, message: message.to_owned() }
}
