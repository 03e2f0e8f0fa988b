//! The rules of Kubernetes for label keys, label values and field names.
//!
//! The error of a check describes what is valid, worded to follow "expected". kube-apiserver checks labels by
//! the same rules. This file does not know selectors.

/// Checks a label key: an optional DNS subdomain and `/`, then a name.
pub(super) fn check_label_key(key: &str) -> Result<(), &'static str> {
    let name = match key.split_once('/') {
        None => key,
        Some((_, name)) if name.contains('/') => return Err(r#"a label key with at most one "/""#),
        Some((prefix, name)) => {
            check_prefix(prefix)?;
            name
        }
    };
    if name.is_empty() {
        return Err("a label key");
    }
    if name.len() > 63 {
        return Err("a label key whose name has at most 63 bytes");
    }
    if !is_name(name) {
        return Err(
            r#"a label key of letters, digits, "-", "_" and ".", with a letter or digit at both ends"#,
        );
    }
    Ok(())
}

/// Checks a label value: empty, or a name as in a label key.
pub(super) fn check_label_value(value: &str) -> Result<(), &'static str> {
    if value.len() > 63 {
        return Err("a label value of at most 63 bytes");
    }
    if !value.is_empty() && !is_name(value) {
        return Err(
            r#"a label value of letters, digits, "-", "_" and ".", with a letter or digit at both ends"#,
        );
    }
    Ok(())
}

/// The expected operand of `>` and `<`. Kubernetes requires that it is a valid label value, so it has no
/// sign.
pub(super) const NUMBER: &str = "a whole number from 0 to 9223372036854775807";

/// Parses the operand of `>` or `<`.
pub(super) fn number(text: &str) -> Result<i64, &'static str> {
    check_label_value(text)?;
    text.parse().map_err(|_| NUMBER)
}

/// Checks a field name.
///
/// Kubernetes has no escapes in field names, so a printed name with `\`, `,`, `=` or `!` could be parsed
/// back as something else. No server has a field with white space or control characters in its name, and
/// Kubernetes does not trim white space. All these names are rejected here, before a server sees them.
pub(super) fn check_field_name(name: &str) -> Result<(), &'static str> {
    let forbidden = |c: char| matches!(c, '\\' | ',' | '=' | '!') || c.is_whitespace() || c.is_control();
    if name.is_empty() {
        return Err("a field name");
    }
    if name.contains(forbidden) {
        return Err(r#"a field name without white space, "\", ",", "=" and "!""#);
    }
    Ok(())
}

/// Checks a DNS subdomain. Kubernetes limits its total length, but not the length of each DNS label in it.
fn check_prefix(prefix: &str) -> Result<(), &'static str> {
    if prefix.is_empty() {
        return Err(r#"a DNS name before "/""#);
    }
    if prefix.len() > 253 {
        return Err("a label key whose prefix has at most 253 bytes");
    }
    if !prefix.split('.').all(is_dns_label) {
        return Err("a label key whose prefix is a lower-case DNS name");
    }
    Ok(())
}

fn is_dns_label(label: &str) -> bool {
    let is_end = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    is_word(label, is_end, |b| is_end(b) || b == b'-')
}

fn is_name(name: &str) -> bool {
    is_word(name, |b| b.is_ascii_alphanumeric(), |b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

/// Whether `text` is not empty, `is_end` holds for its first and last byte, and `is_allowed` for every byte.
fn is_word(text: &str, is_end: impl Fn(u8) -> bool, is_allowed: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    matches!((bytes.first(), bytes.last()), (Some(&first), Some(&last)) if is_end(first) && is_end(last))
        && bytes.iter().all(|&b| is_allowed(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(outcome: Result<(), &'static str>, expected: &str) {
        assert_eq!(outcome.err().unwrap_or("ok"), expected);
    }

    #[test]
    fn label_key_check_follows_kubernetes() {
        let characters =
            r#"a label key of letters, digits, "-", "_" and ".", with a letter or digit at both ends"#;
        for key in
            ["a", "A", "0", "a-b", "a_b.c", "a..b", "in", "notin", "app.kubernetes.io/name", "1/2", "a-b.c/D"]
        {
            check(check_label_key(key), "ok");
        }
        for key in ["-a", "a-", ".a", "a.", "_", "a b", "ä", "a\0", "a/-b", "a/b."] {
            check(check_label_key(key), characters);
        }
        check(check_label_key(""), "a label key");
        check(check_label_key("a/"), "a label key");
        check(check_label_key("/a"), r#"a DNS name before "/""#);
        check(check_label_key("a/b/c"), r#"a label key with at most one "/""#);
        check(check_label_key("//"), r#"a label key with at most one "/""#);
        for prefix in ["A", "-a", "a-", "a..b", ".a", "a.", "a_b", "a.-b"] {
            check(
                check_label_key(&format!("{prefix}/x")),
                "a label key whose prefix is a lower-case DNS name",
            );
        }
    }

    #[test]
    fn maximum_lengths_are_exact() {
        check(check_label_key(&"a".repeat(63)), "ok");
        check(check_label_key(&"a".repeat(64)), "a label key whose name has at most 63 bytes");
        check(check_label_key(&format!("{}/a", "p".repeat(253))), "ok");
        check(
            check_label_key(&format!("{}/a", "p".repeat(254))),
            "a label key whose prefix has at most 253 bytes",
        );
        check(check_label_value(&"a".repeat(63)), "ok");
        check(check_label_value(&"a".repeat(64)), "a label value of at most 63 bytes");
    }

    #[test]
    fn label_value_check_follows_kubernetes() {
        let characters =
            r#"a label value of letters, digits, "-", "_" and ".", with a letter or digit at both ends"#;
        for value in ["", "a", "0", "A-b_c.d", "in"] {
            check(check_label_value(value), "ok");
        }
        for value in ["-a", "a.", "a/b", "a b", "é", "-1", "+1", " "] {
            check(check_label_value(value), characters);
        }
    }

    #[test]
    fn number_accepts_unsigned_63_bit_integers() {
        assert_eq!(number("0"), Ok(0));
        assert_eq!(number("007"), Ok(7));
        assert_eq!(number("9223372036854775807"), Ok(i64::MAX));
        for text in ["", "9223372036854775808", "1.5", "0x1", "1_0", "a"] {
            check(number(text).map(drop), NUMBER);
        }
        assert!(number("-1").is_err());
        assert!(number("+1").is_err());
        assert!(number(&"0".repeat(64)).is_err());
    }

    #[test]
    fn field_name_check_rejects_special_characters() {
        for name in ["metadata.name", "spec.nodeName", "a", "x-y_z", "ü", "a[0]"] {
            check(check_field_name(name), "ok");
        }
        check(check_field_name(""), "a field name");
        for name in [" a", "a ", "a\tb", "a\0", "a!", "a\\b", "a,b", "a=b"] {
            check(check_field_name(name), r#"a field name without white space, "\", ",", "=" and "!""#);
        }
    }
}
