//! Paths into objects as definitions write them: `.spec.color`, `.spec['color']`.
//!
//! Only such as lead along a schema. Paths of columns are richer and live with the columns.

use super::field;
use crate::schema::Structural;

/// The place that a path leads to, and its schema. Brackets may be forbidden.
pub(crate) fn field_path<'a>(
    path: &str,
    schema: &'a Structural,
    brackets: bool,
) -> Result<(String, &'a Structural), String> {
    let mut tokens = tokens(path).into_iter();
    let (mut place, mut schema) = (String::new(), schema);
    let end = || "unexpected end of JSON path".to_owned();
    while let Some(token) = tokens.next() {
        let name = match token {
            "." => tokens.next().ok_or_else(end)?.to_owned(),
            "[" if !brackets => return Err("array notation is not allowed".to_owned()),
            "[" => unquote(tokens.next().ok_or_else(end)?)?,
            other => return Err(format!("expected [ or . but got: {other}")),
        };
        let lost = || "does not refer to a valid field".to_owned();
        if schema.properties.is_empty() {
            place = field::key(&place, &name);
            schema = schema.additional.as_deref().ok_or_else(lost)?;
        } else {
            place = field::child(&place, &name);
            schema = schema.properties.get(&name).ok_or_else(lost)?;
        }
        if token == "[" {
            match tokens.next().ok_or_else(end)? {
                "]" => {}
                other => return Err(format!("expected ] but got {other}")),
            }
        }
    }
    Ok((place, schema))
}

/// Points, brackets, quoted texts and what stands between them.
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
