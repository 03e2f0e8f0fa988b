//! Paths of selectable fields and of `fieldPath` in rules: `.spec.color`, `.spec['color']`.
//!
//! Such a path is resolved along a schema, without an object. Paths of columns have more features and are in
//! `jsonpath`.

use super::field;
use crate::schema::Structural;

/// Whether a path may contain `['name']`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BracketNotation {
    Allowed,
    Forbidden,
}

/// Resolves a path along a schema. Returns the field path as messages contain it, and the schema of the
/// field.
pub(crate) fn field_path<'a>(
    path: &str,
    schema: &'a Structural,
    brackets: BracketNotation,
) -> Result<(String, &'a Structural), String> {
    let mut tokens = tokens(path).into_iter();
    let (mut resolved, mut schema) = (String::new(), schema);
    let end = || "unexpected end of JSON path".to_owned();
    while let Some(token) = tokens.next() {
        let name = match token {
            "." => tokens.next().ok_or_else(end)?.to_owned(),
            "[" if brackets == BracketNotation::Forbidden => {
                return Err("array notation is not allowed".to_owned());
            }
            "[" => unquote(tokens.next().ok_or_else(end)?)?,
            other => return Err(format!("expected [ or . but got: {other}")),
        };
        let not_found = || "does not refer to a valid field".to_owned();
        if schema.properties.is_empty() {
            // A map: the name is one of its keys.
            resolved = field::key(&resolved, &name);
            schema = schema.additional.as_deref().ok_or_else(not_found)?;
        } else {
            resolved = field::child(&resolved, &name);
            schema = schema.properties.get(&name).ok_or_else(not_found)?;
        }
        if token == "[" {
            match tokens.next().ok_or_else(end)? {
                "]" => {}
                other => return Err(format!("expected ] but got {other}")),
            }
        }
    }
    Ok((resolved, schema))
}

/// Splits a path into dots, brackets, quoted strings and the text between them.
fn tokens(path: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = path;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '.' | '[' | ']' => 1,
            '\'' => quoted_length(rest),
            _ => rest.find(['.', '[', ']']).unwrap_or(rest.len()),
        };
        let (token, tail) = rest.split_at(length);
        tokens.push(token);
        rest = tail;
    }
    tokens
}

fn quoted_length(text: &str) -> usize {
    let mut previous = '\'';
    for (at, character) in text.char_indices().skip(1) {
        if character == '\'' && previous != '\\' {
            return at + 1;
        }
        previous = character;
    }
    text.len()
}

fn unquote(token: &str) -> Result<String, String> {
    let inner = token.strip_prefix('\'').and_then(|token| token.strip_suffix('\''));
    let inner = inner.ok_or_else(|| format!("expected single quoted string but got {token}"))?;
    let mut out = String::new();
    let mut characters = inner.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            out.push(character);
            continue;
        }
        match characters.next() {
            Some('a') => out.push('\u{7}'),
            Some('b') => out.push('\u{8}'),
            Some('f') => out.push('\u{c}'),
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('t') => out.push('\t'),
            Some('v') => out.push('\u{b}'),
            Some(plain @ ('\'' | '\\')) => out.push(plain),
            Some(other) => return Err(format!("invalid string literal: invalid escape char \\{other}")),
            None => out.push('\\'),
        }
    }
    Ok(out)
}
