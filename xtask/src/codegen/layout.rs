//! Formats Rust expressions like rustfmt: on one line if they fit, otherwise one line per part.
//!
//! Supports only the expressions of the generated tables. The `fmt` stage of CI checks that rustfmt agrees.

use super::MAX_WIDTH;

/// A Rust expression.
pub(super) enum Expr {
    /// Text that is never broken.
    Word(String),
    /// `Type { part, part }`. A part is `name: value`, or only a value if the name is empty.
    Struct(&'static str, Vec<(&'static str, Expr)>),
    /// `&[part, part]`.
    Slice(Vec<Expr>),
    /// `Name(part, part)`.
    Call(&'static str, Vec<Expr>),
}

impl Expr {
    pub(super) fn word(text: impl Into<String>) -> Self {
        Expr::Word(text.into())
    }

    /// Returns a string literal.
    pub(super) fn text(text: &str) -> Self {
        Expr::Word(format!("{text:?}"))
    }

    pub(super) fn texts(texts: &[String]) -> Self {
        Expr::Slice(texts.iter().map(|text| Expr::text(text)).collect())
    }

    /// Formats the expression at column `before` of a line with this indent; `after` more characters follow
    /// it.
    pub(super) fn render(&self, indent: usize, before: usize, after: usize) -> String {
        let flat = self.flat();
        if before + flat.len() + after <= MAX_WIDTH || matches!(self, Expr::Word(_)) {
            return flat;
        }
        if let Expr::Slice(parts) = self
            && let [only @ Expr::Struct(..)] = parts.as_slice()
        {
            return format!("&[{}]", only.render(indent, before + 2, after + 1));
        }
        let inner = " ".repeat(indent + 4);
        let (open, parts, close) = self.broken(indent + 4);
        let mut text = open + "\n";
        for part in parts {
            text.extend([&inner, &part, "\n"]);
        }
        text.extend([&" ".repeat(indent), close]);
        text
    }

    /// Formats the expression on one line of any length.
    pub(super) fn flat(&self) -> String {
        match self {
            Expr::Word(text) => text.clone(),
            Expr::Slice(parts) => format!("&[{}]", joined(parts)),
            Expr::Call(name, parts) => format!("{name}({})", joined(parts)),
            Expr::Struct(name, parts) => {
                let parts: Vec<String> =
                    parts.iter().map(|(name, value)| format!("{}{}", label(name), value.flat())).collect();
                format!("{name} {{ {} }}", parts.join(", "))
            }
        }
    }

    /// Returns its opening text, its parts at this indent, and its closing text.
    fn broken(&self, indent: usize) -> (String, Vec<String>, &'static str) {
        match self {
            Expr::Word(text) => (text.clone(), Vec::new(), ""),
            Expr::Slice(parts) => ("&[".to_owned(), lines(parts, indent), "]"),
            Expr::Call(name, parts) => (format!("{name}("), lines(parts, indent), ")"),
            Expr::Struct(name, parts) => {
                let parts = parts.iter().map(|(name, value)| {
                    let label = label(name);
                    let text = value.render(indent, indent + label.len(), 1);
                    // No comma follows the base of a struct.
                    let comma = if name.is_empty() { "" } else { "," };
                    format!("{label}{text}{comma}")
                });
                (format!("{name} {{"), parts.collect(), "}")
            }
        }
    }
}

fn joined(parts: &[Expr]) -> String {
    parts.iter().map(Expr::flat).collect::<Vec<_>>().join(", ")
}

fn lines(parts: &[Expr], indent: usize) -> Vec<String> {
    parts.iter().map(|part| format!("{},", part.render(indent, indent, 1))).collect()
}

fn label(name: &str) -> String {
    if name.is_empty() { String::new() } else { format!("{name}: ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(text: &str) -> Expr {
        let parts = vec![("name", Expr::text(text)), ("list", Expr::texts(&["a".to_owned()]))];
        Expr::Struct("Row", parts.into_iter().chain([("", Expr::word("..ROW"))]).collect())
    }

    #[test]
    fn short_expression_is_on_one_line() {
        assert_eq!(row("x").render(0, 0, 0), r#"Row { name: "x", list: &["a"], ..ROW }"#);
    }

    #[test]
    fn long_expression_has_a_line_per_part() {
        let long = "x".repeat(90);
        let text = format!("Row {{\n    name: \"{long}\",\n    list: &[\"a\"],\n    ..ROW\n}}");
        assert_eq!(row(&long).render(0, 0, 0), text);
        assert_eq!(Expr::Slice(vec![row(&long)]).render(0, 0, 0), format!("&[{text}]"));
        let table = Expr::Slice(vec![row("x"), row(&long)]).render(0, 0, 0);
        assert!(table.starts_with("&[\n    Row { name: \"x\""), "{table}");
        assert!(table.ends_with("        ..ROW\n    },\n]"), "{table}");
    }
}
