//! Paths into objects as written in definitions: `.spec.color`, `.spec['color']`.
//!
//! Only paths along a schema. Paths of columns have more features and are in `jsonpath`.

use super::field;
use crate::schema::Structural;

/// Resolves a path along a schema and returns the field path and its schema.
///
/// Without `brackets`, bracket notation is an error.
pub(crate) fn field_path<'a>(
    path: &str,
    schema: &'a Structural,
    brackets: bool,
) -> Result<(String, &'a Structural), String> {
    let mut tokens = tokens(path).into_iter();
    let (mut resolved, mut schema) = (String::new(), schema);
    let end = || "unexpected end of JSON path".to_owned();
    while let Some(token) = tokens.next() {
        let name = match token {
            "." => tokens.next().ok_or_else(end)?.to_owned(),
            "[" if !brackets => return Err("array notation is not allowed".to_owned()),
            "[" => unquote(tokens.next().ok_or_else(end)?)?,
            other => return Err(format!("expected [ or . but got: {other}")),
        };
        let not_found = || "does not refer to a valid field".to_owned();
        if schema.properties.is_empty() {
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
    let mut before = '\'';
    for (at, character) in text.char_indices().skip(1) {
        if character == '\'' && before != '\\' {
            return at + 1;
        }
        before = character;
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
