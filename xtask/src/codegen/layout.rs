//! Formats the rows of the generated tables: on one line if a row fits, otherwise with a line for each of its parts.
//!
//! rustfmt skips the tables: it would need a line for each value.

use super::MAX_WIDTH;

/// A row of a table.
pub(super) struct Row {
    /// The text before the parts, which ends with `&[` if there are parts.
    start: String,
    parts: Vec<String>,
    end: String,
}

impl Row {
    pub(super) fn new(start: impl Into<String>, parts: Vec<String>, end: impl Into<String>) -> Self {
        Self { start: start.into(), parts, end: end.into() }
    }

    fn render(&self) -> String {
        let Self { start, parts, end } = self;
        let flat = format!("{start}{}{end},\n", parts.join(", "));
        if flat.len() <= MAX_WIDTH || parts.is_empty() {
            return flat;
        }
        let parts: String = parts.iter().flat_map(|part| ["    ", part, ",\n"]).collect();
        format!("{start}\n{parts}{end},\n")
    }
}

/// Renders a table: its declaration, such as `pub static ROWS: &[Row]`, and its rows.
pub(super) fn table(declaration: &str, rows: &[Row]) -> String {
    let rows: String = rows.iter().map(Row::render).collect();
    format!("#[rustfmt::skip]\n{declaration} = &[\n{rows}];\n")
}

/// Returns a string literal.
pub(super) fn text(text: &str) -> String {
    format!("{text:?}")
}

/// Returns a slice of string literals.
pub(super) fn texts(texts: &[String]) -> String {
    let texts: Vec<String> = texts.iter().map(|one| text(one)).collect();
    format!("&[{}]", texts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_that_does_not_fit_has_a_line_per_part() {
        let long = text(&"x".repeat(100));
        let row = |part: &str| Row::new("row(1, &[", vec![part.to_owned(), "2".to_owned()], "])");
        let rendered = table("static T: &[R]", &[row("1"), row(&long)]);
        let expected = format!(
            "#[rustfmt::skip]\nstatic T: &[R] = &[\nrow(1, &[1, 2]),\nrow(1, &[\n    {long},\n    2,\n]),\n];\n"
        );
        assert_eq!(rendered, expected);
    }
}
