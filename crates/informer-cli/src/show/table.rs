//! Aligned columns for a growing number of lines.
//!
//! Rows are buffered until a flush, so that columns are as wide as their widest cell in all
//! buffered rows; after the flush, columns only grow. The last column is never padded. Cells are escaped.

use super::escape::escape;
use anstyle::Style;
use console::measure_text_width;
use std::fmt::Write as _;

/// Maximal number of buffered rows.
const MAX_BUFFERED_ROWS: usize = 500;
/// Maximal width of a column; a longer cell breaks the alignment of its line only.
const MAX_COLUMN_WIDTH: usize = 60;
/// Separator of columns.
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

/// A table that is being printed.
#[derive(Debug)]
pub(crate) struct Table {
    titles: Vec<&'static str>,
    widths: Vec<usize>,
    buffered: Vec<Vec<Cell>>,
    /// Whether rows are printed without buffering.
    released: bool,
    /// Whether the titles have been printed.
    titled: bool,
}

impl Table {
    /// Creates a table with these columns and their minimal widths.
    pub(crate) fn new(columns: &[(&'static str, usize)]) -> Self {
        let titles = columns.iter().map(|(title, _)| *title).collect();
        let widths = columns.iter().map(|(title, width)| title.len().max(*width)).collect();
        Self { titles, widths, buffered: Vec::new(), released: false, titled: false }
    }

    /// Adds a row; returns the lines to print.
    pub(crate) fn row(&mut self, row: Vec<Cell>) -> String {
        for (width, cell) in self.widths.iter_mut().zip(&row) {
            *width = (*width).max(measure_text_width(&cell.text).min(MAX_COLUMN_WIDTH));
        }
        self.buffered.push(row);
        if self.released || self.buffered.len() >= MAX_BUFFERED_ROWS { self.flush() } else { String::new() }
    }

    /// Returns the buffered lines and ends buffering.
    pub(crate) fn flush(&mut self) -> String {
        let mut out = String::new();
        self.released = true;
        if !self.titled && !self.buffered.is_empty() {
            self.titled = true;
            let style = Style::new().bold();
            let titles: Vec<Cell> = self.titles.iter().map(|title| Cell::styled(title, style)).collect();
            self.line(&mut out, &titles);
        }
        for row in std::mem::take(&mut self.buffered) {
            self.line(&mut out, &row);
        }
        out
    }

    /// Returns how much of a line of `width` remains for the last column.
    pub(crate) fn remaining_width(&self, width: usize) -> usize {
        let columns = self.widths.len().saturating_sub(1);
        let used: usize = self.widths.iter().take(columns).map(|column| column + GAP.len()).sum();
        width.saturating_sub(used)
    }

    fn line(&self, out: &mut String, row: &[Cell]) {
        let last = row.iter().rposition(|cell| !cell.text.is_empty()).unwrap_or(0);
        for (index, cell) in row.iter().enumerate().take(last + 1) {
            let Cell { text, style } = cell;
            // Writing to a String cannot fail.
            let _ = write!(out, "{style}{text}{style:#}");
            if index < last {
                let width = self.widths.get(index).copied().unwrap_or(0);
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
    fn empty_last_cells_leave_no_trailing_spaces() {
        let mut table = Table::new(&[("A", 0), ("B", 0), ("C", 0)]);
        table.row(row(&["x", "", ""]));
        assert_eq!(plain(&table.flush()), "A   B   C\nx\n");
    }

    #[test]
    fn empty_table_prints_nothing_and_buffer_is_limited() {
        let mut table = Table::new(&[("A", 0)]);
        assert_eq!(table.flush(), "");
        assert_eq!(plain(&table.row(row(&["x"]))), "A\nx\n");
        let mut table = Table::new(&[("A", 0)]);
        let printed: usize = (0..MAX_BUFFERED_ROWS).map(|_| table.row(row(&["x"])).lines().count()).sum();
        assert_eq!(printed, MAX_BUFFERED_ROWS + 1);
    }

    #[test]
    fn very_long_cell_does_not_widen_its_column() {
        let mut table = Table::new(&[("A", 0), ("B", 0)]);
        table.row(row(&[&"x".repeat(200), "y"]));
        table.flush();
        assert_eq!(table.row(row(&["x", "y"])).find('y'), Some(MAX_COLUMN_WIDTH + GAP.len()));
    }
}
