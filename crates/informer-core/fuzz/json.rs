//! Changes of JSON that mostly preserve its syntax: a value is replaced, or a member is duplicated. This
//! module knows no kind.

use crate::chance::below;
use informer_core::random::Random;
use std::ops::Range;

/// Replacement values, one per line.
const VALUES: &str = r#"null
true
0
-1
1e400
18446744073709551616
-9223372036854775809
0.1e-7
""
"a/b"
"\ud800"
"\u0000"
"é😀"
"\"\\\/"
"2026-02-30T25:61:61Z"
"9999999999999999999999"
{}
[]
[{}]
[[[]]]
{"":{}}
  { }"#;

/// Members that are significant in some object, one per line.
const MEMBERS: &str = r#""metadata":{}
"metadata":null
"meta\u0064ata":{"name":"b"}
"kind":"Table"
"items":[]
"items":null
"type":"DELETED"
"object":{}
"managedFields":[{}]
"name":"c"
"resourceVersion":""
"labels":{"a":"b","a":"c"}"#;

/// Returns a random line of a text.
fn line(text: &'static str, random: &mut Random) -> &'static str {
    let count = text.lines().count();
    text.lines().nth(below(random, count)).unwrap_or_default()
}

/// Changes one value of a body.
pub(crate) fn edit(body: &mut Vec<u8>, random: &mut Random) {
    let Some(value) = random_value(body, random) else { return };
    let text = body[value.clone()].to_vec();
    let new = match random.below(16) {
        0 => Vec::new(),
        1 if text.first() != Some(&b'"') => [&text[..], b",", &text].concat(),
        2 | 3 => {
            let depth = below(random, 300);
            let (open, close) = if random.below(2) == 0 { ("[", "]") } else { ("{\"a\":", "}") };
            [open.repeat(depth).as_bytes(), &text, close.repeat(depth).as_bytes()].concat()
        }
        4 | 5 => random_value(body, random).map_or(text, |other| body[other].to_vec()),
        6 | 7 if text.first() == Some(&b'{') => {
            let member = line(MEMBERS, random);
            let comma: &[u8] = if text.len() > 2 { b"," } else { b"" };
            [b"{", member.as_bytes(), comma, &text[1..]].concat()
        }
        8 | 9 if text.first() == Some(&b'"') => text.iter().flat_map(|byte| escaped(*byte)).collect(),
        _ => line(VALUES, random).into(),
    };
    body.splice(value, new);
}

/// Returns a letter or digit as a JSON escape sequence.
fn escaped(byte: u8) -> Vec<u8> {
    if byte.is_ascii_alphanumeric() { format!("\\u{byte:04x}").into_bytes() } else { vec![byte] }
}

/// Returns the range of a random value in a body; sometimes of a member name.
fn random_value(body: &[u8], random: &mut Random) -> Option<Range<usize>> {
    let from = below(random, body.len());
    let mut at = 0;
    let includes_names = random.below(20) == 0;
    while let Some(byte) = body.get(at) {
        match byte {
            b'{' | b'[' if at >= from => return Some(at..end_of(body, at)?),
            b'"' => {
                let end = end_of(body, at)?;
                let is_name = body[end..].trim_ascii_start().first() == Some(&b':');
                if at >= from && (includes_names || !is_name) {
                    return Some(at..end);
                }
                at = end;
            }
            _ => at += 1,
        }
    }
    None
}

/// Returns the end of the value that starts at `start` with a quote or a bracket.
fn end_of(body: &[u8], start: usize) -> Option<usize> {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for (at, byte) in (start..).zip(&body[start..]) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => depth += 1,
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 && !in_string && !escaped {
            return Some(at + 1);
        }
    }
    None
}
