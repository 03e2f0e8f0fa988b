//! Lines in columns that stay aligned while lines keep coming.
//!
//! Rows are held back until somebody flushes, so that the first screen is as wide as its widest cell; from then on a column only
//! grows. The last column is never padded. It does not know what is in the cells, but that they must be safe to print.

use super::escape::escape;
use anstyle::Style;
use console::measure_text_width;
use std::fmt::Write as _;

/// So many rows are held back at most.
const HELD: usize = 500;
/// A column grows up to this; a longer cell stands out of line alone.
const WIDEST: usize = 60;
/// Between columns.
const GAP: &str = "   ";

/// One cell.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    pub(crate) fn new(text: &str) -> Self {
        Self { text: escape(text).into_owned(), style: Style::new() }
    }

    pub(crate) fn styled(text: &str, style: Style) -> Self {
        Self { style, ..Self::new(text) }
    }
}

/// A table that is being written.
#[derive(Debug)]
pub(crate) struct Table {
    titles: Vec<&'static str>,
    widths: Vec<usize>,
    held: Vec<Vec<Cell>>,
    /// Whether rows are printed as they come.
    released: bool,
    /// Whether the titles are out.
    titled: bool,
}

impl Table {
    /// A table with these columns, each with the width it has at least.
    pub(crate) fn new(columns: &[(&'static str, usize)]) -> Self {
        let titles = columns.iter().map(|(title, _)| *title).collect();
        let widths = columns.iter().map(|(title, width)| title.len().max(*width)).collect();
        Self { titles, widths, held: Vec::new(), released: false, titled: false }
    }

    /// Takes a row; the lines that are due.
    pub(crate) fn row(&mut self, row: Vec<Cell>) -> String {
        for (width, cell) in self.widths.iter_mut().zip(&row) {
            *width = (*width).max(measure_text_width(&cell.text).min(WIDEST));
        }
        self.held.push(row);
        if self.released || self.held.len() >= HELD { self.flush() } else { String::new() }
    }

    /// The lines of what was held back; from now on nothing is.
    pub(crate) fn flush(&mut self) -> String {
        let mut out = String::new();
        self.released = true;
        if !self.titled && !self.held.is_empty() {
            self.titled = true;
            let style = Style::new().bold();
            let titles: Vec<Cell> = self.titles.iter().map(|title| Cell::styled(title, style)).collect();
            self.line(&mut out, &titles);
        }
        for row in std::mem::take(&mut self.held) {
            self.line(&mut out, &row);
        }
        out
    }

    /// How much of a line of `width` is left for the last column.
    pub(crate) fn room(&self, width: usize) -> usize {
        let columns = self.widths.len().saturating_sub(1);
        let used: usize = self.widths.iter().take(columns).map(|column| column + GAP.len()).sum();
        width.saturating_sub(used)
    }

    fn line(&self, out: &mut String, row: &[Cell]) {
        let last = row.iter().rposition(|cell| !cell.text.is_empty()).unwrap_or(0);
        for (at, cell) in row.iter().enumerate().take(last + 1) {
            let Cell { text, style } = cell;
            // Writing to a String cannot fail.
            let _ = write!(out, "{style}{text}{style:#}");
            if at < last {
                let width = self.widths.get(at).copied().unwrap_or(0);
                let padding = width.saturating_sub(measure_text_width(text));
                let _ = write!(out, "{:padding$}{GAP}", "");
            }
        }
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cells: &[&str]) -> Vec<Cell> {
        cells.iter().map(|cell| Cell::new(cell)).collect()
    }

    fn plain(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_only_grow() {
        let mut table = Table::new(&[("NAME", 0), ("STATE", 0)]);
        assert_eq!(table.row(row(&["web-0", "up"])), "");
        assert_eq!(table.row(row(&["a", "down"])), "");
        assert_eq!(plain(&table.flush()), "NAME    STATE\nweb-0   up\na       down\n");
        assert_eq!(table.row(row(&["longer-0", "up"])), "longer-0   up\n");
        assert_eq!(table.row(row(&["b", "up"])), "b          up\n");
        assert_eq!(table.row(row(&["世界", "up"])), "世界       up\n");
    }

    #[test]
    fn empty_cells_at_the_end_leave_no_blanks() {
        let mut table = Table::new(&[("A", 0), ("B", 0), ("C", 0)]);
        table.row(row(&["x", "", ""]));
        assert_eq!(plain(&table.flush()), "A   B   C\nx\n");
    }

    #[test]
    fn nothing_is_printed_for_nothing_and_much_is_not_held() {
        let mut table = Table::new(&[("A", 0)]);
        assert_eq!(table.flush(), "");
        assert_eq!(plain(&table.row(row(&["x"]))), "A\nx\n");
        let mut table = Table::new(&[("A", 0)]);
        let printed: usize = (0..HELD).map(|_| table.row(row(&["x"])).lines().count()).sum();
        assert_eq!(printed, HELD + 1);
    }

    #[test]
    fn one_very_long_cell_does_not_widen_all_lines() {
        let mut table = Table::new(&[("A", 0), ("B", 0)]);
        table.row(row(&[&"x".repeat(200), "y"]));
        table.flush();
        assert_eq!(table.row(row(&["x", "y"])).find('y'), Some(WIDEST + GAP.len()));
    }
}
