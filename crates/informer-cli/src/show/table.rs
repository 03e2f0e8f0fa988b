//! Aligned columns for a growing number of lines.
//!
//! Rows are buffered until a flush, so that columns are as wide as their widest cell in all buffered rows; after
//! the flush, columns only grow. On a terminal, every line fits its width, the titles are repeated once per
//! screen, and a column of changes appears with the first change. Elsewhere, no cell is shortened, and the columns
//! are always the same. The last column is never padded. Cells are escaped.

use super::change::Change;
use super::change_line;
use super::escape::escape;
use super::layout::{Layout, REST, Screen, Sizing, shortened};
use anstyle::Style;
use console::measure_text_width;
use std::borrow::Cow;
use std::fmt::Write as _;

/// Maximal number of buffered rows.
const MAX_BUFFERED_ROWS: usize = 500;
/// Maximal width of a column; a longer cell breaks the alignment of its line, or is shortened on a terminal.
const MAX_COLUMN_WIDTH: usize = 60;
/// Minimal number of rows before the titles are repeated.
const MIN_ROWS_PER_TITLE: usize = 10;

/// A column of a table.
#[derive(Debug, Clone)]
pub(crate) struct TableColumn {
    pub(crate) title: Cow<'static, str>,
    /// Width that is reserved although no cell needs it, so that rare values do not shift later columns. The last
    /// column may have [`REST`].
    pub(crate) reserved: usize,
    pub(crate) sizing: Sizing,
}

/// One cell.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    content: Content,
    style: Style,
}

#[derive(Debug, Clone)]
enum Content {
    Text(String),
    /// Several phrases; the last ones are left out rather than cut.
    Phrases(Vec<String>),
    /// Formatted when the width is known.
    Changes(Vec<Change>),
}

impl Cell {
    pub(crate) fn new(text: &str) -> Self {
        Self::styled(text, Style::new())
    }

    pub(crate) fn styled(text: &str, style: Style) -> Self {
        Self { content: Content::Text(escape(text).into_owned()), style }
    }

    pub(crate) fn phrases(phrases: &[String]) -> Self {
        let escaped = phrases.iter().map(|phrase| escape(phrase).into_owned()).collect();
        Self { content: Content::Phrases(escaped), style: Style::new() }
    }

    pub(crate) fn changes(changes: Vec<Change>) -> Self {
        Self { content: Content::Changes(changes), style: Style::new() }
    }

    fn is_empty(&self) -> bool {
        match &self.content {
            Content::Text(text) => text.is_empty(),
            Content::Phrases(phrases) => phrases.is_empty(),
            Content::Changes(changes) => changes.is_empty(),
        }
    }

    /// Returns the width that the cell needs.
    fn width(&self) -> usize {
        match &self.content {
            Content::Text(text) => measure_text_width(text).min(MAX_COLUMN_WIDTH),
            Content::Phrases(phrases) => measure_text_width(&phrases.join(", ")).min(MAX_COLUMN_WIDTH),
            Content::Changes(_) => 0,
        }
    }

    /// Formats the cell for a column of this width; `None` means any width.
    fn text(&self, width: Option<usize>, sizing: &Sizing) -> Cow<'_, str> {
        let text = match &self.content {
            Content::Text(text) => Cow::Borrowed(text.as_str()),
            Content::Phrases(phrases) => Cow::Owned(joined(phrases, width.unwrap_or(usize::MAX))),
            Content::Changes(changes) => Cow::Owned(change_line::line(changes, width.unwrap_or(usize::MAX))),
        };
        match width {
            Some(width) => Cow::Owned(shortened(&text, width, sizing.ellipsis).into_owned()),
            None => text,
        }
    }
}

/// Joins as many phrases as fit into this width, and at least the first.
fn joined(phrases: &[String], width: usize) -> String {
    let mut text = String::new();
    for phrase in phrases {
        let longer = if text.is_empty() { phrase.clone() } else { format!("{text}, {phrase}") };
        if !text.is_empty() && measure_text_width(&longer) > width {
            break;
        }
        text = longer;
    }
    text
}

/// A table that is being printed.
pub(crate) struct Table {
    columns: Vec<TableColumn>,
    /// Natural widths of the columns.
    widths: Vec<usize>,
    /// Size of the terminal; `None` if the output is not to be shortened.
    screen: Box<dyn Fn() -> Option<Screen> + Send>,
    buffered: Vec<Vec<Cell>>,
    /// Whether rows are printed without buffering.
    released: bool,
    /// Whether a row has changes.
    has_changes: bool,
    /// The columns of the last printed titles and the width of the terminal, and the number of rows since.
    titled: Option<(Vec<usize>, Option<usize>, usize)>,
}

impl Table {
    /// Creates a table with these columns.
    pub(crate) fn new(
        columns: Vec<TableColumn>,
        screen: impl Fn() -> Option<Screen> + Send + 'static,
    ) -> Self {
        let widths =
            columns.iter().map(|column| measure_text_width(&column.title).max(column.reserved)).collect();
        let screen = Box::new(screen);
        Self {
            columns,
            widths,
            screen,
            buffered: Vec::new(),
            released: false,
            has_changes: false,
            titled: None,
        }
    }

    /// Formats a table all of whose rows are known, with its titles once.
    pub(crate) fn complete(
        columns: Vec<TableColumn>,
        rows: Vec<Vec<Cell>>,
        screen: Option<Screen>,
    ) -> String {
        let screen = screen.map(|screen| Screen { rows: usize::MAX, ..screen });
        let mut table = Self::new(columns, move || screen);
        for row in &rows {
            table.widen(row);
        }
        table.buffered = rows;
        table.flush()
    }

    /// Adds a row; returns the lines to print.
    pub(crate) fn row(&mut self, row: Vec<Cell>) -> String {
        self.widen(&row);
        self.buffered.push(row);
        if self.released || self.buffered.len() >= MAX_BUFFERED_ROWS { self.flush() } else { String::new() }
    }

    /// Widens the columns for a row.
    fn widen(&mut self, row: &[Cell]) {
        for (width, cell) in self.widths.iter_mut().zip(row) {
            *width = (*width).max(cell.width());
            self.has_changes |= matches!(&cell.content, Content::Changes(changes) if !changes.is_empty());
        }
    }

    /// Returns the buffered lines and ends buffering.
    pub(crate) fn flush(&mut self) -> String {
        let mut out = String::new();
        self.released = true;
        let rows = std::mem::take(&mut self.buffered);
        if rows.is_empty() {
            return out;
        }
        let screen = (self.screen)();
        let layout = self.layout(screen);
        for row in &rows {
            if self.needs_titles(&layout, screen) {
                self.titled = Some((layout.shown(), screen.map(|screen| screen.columns), 0));
                self.titles(&mut out, &layout, screen);
            }
            self.line(&mut out, row, &layout, screen);
            if let Some((_, _, rows)) = &mut self.titled {
                *rows += 1;
            }
        }
        out
    }

    fn layout(&self, screen: Option<Screen>) -> Layout {
        let Some(screen) = screen else { return Layout::natural(&self.widths) };
        // An empty column would take its space from the others.
        let hides_last = !self.has_changes && self.widths.last() == Some(&REST);
        let shown = self.columns.len() - usize::from(hides_last);
        let sizing: Vec<Sizing> = self.columns.iter().take(shown).map(|column| column.sizing).collect();
        let widths: Vec<usize> = self.widths.iter().take(shown).copied().collect();
        let mut layout = Layout::fitted(&sizing, &widths, screen.columns);
        layout.widths.resize(self.columns.len(), None);
        layout
    }

    /// Whether the titles are missing, belong to another layout, or may have left the screen.
    fn needs_titles(&self, layout: &Layout, screen: Option<Screen>) -> bool {
        let Some((shown, width, rows)) = &self.titled else { return true };
        *shown != layout.shown()
            || screen.is_some_and(|screen| {
                *width != Some(screen.columns)
                    || *rows >= screen.rows.saturating_sub(1).max(MIN_ROWS_PER_TITLE)
            })
    }

    fn titles(&self, out: &mut String, layout: &Layout, screen: Option<Screen>) {
        let style = Style::new().bold();
        let titles: Vec<Cell> =
            self.columns.iter().map(|column| Cell::styled(&column.title, style)).collect();
        self.line(out, &titles, layout, screen);
    }

    fn line(&self, out: &mut String, row: &[Cell], layout: &Layout, screen: Option<Screen>) {
        let shown = self.columns.iter().zip(row).zip(&layout.widths);
        let shown: Vec<_> =
            shown.filter_map(|((column, cell), width)| Some((column, cell, (*width)?))).collect();
        let last = shown.iter().rposition(|(_, cell, _)| !cell.is_empty()).unwrap_or(0);
        for (index, (column, cell, width)) in shown.into_iter().enumerate().take(last + 1) {
            let text = cell.text(screen.map(|_| width), &column.sizing);
            let style = cell.style;
            // Writing to a String cannot fail.
            let _ = write!(out, "{style}{text}{style:#}");
            if index < last {
                let padding = width.saturating_sub(measure_text_width(&text)) + layout.gap;
                let _ = write!(out, "{:padding$}", "");
            }
        }
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(titles: &[&'static str]) -> Table {
        table_on(titles, || None)
    }

    fn table_on(titles: &[&'static str], screen: impl Fn() -> Option<Screen> + Send + 'static) -> Table {
        let column = |(index, title): (u8, &&'static str)| TableColumn {
            title: Cow::Borrowed(*title),
            reserved: 0,
            sizing: Sizing::flexible(index * 10, 3, 20),
        };
        Table::new((0..).zip(titles).map(column).collect(), screen)
    }

    fn row(cells: &[&str]) -> Vec<Cell> {
        cells.iter().map(|cell| Cell::new(cell)).collect()
    }

    fn plain(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_only_grow() {
        let mut table = table(&["NAME", "STATE"]);
        assert_eq!(table.row(row(&["web-0", "up"])), "");
        assert_eq!(table.row(row(&["a", "down"])), "");
        assert_eq!(plain(&table.flush()), "NAME    STATE\nweb-0   up\na       down\n");
        assert_eq!(table.row(row(&["longer-0", "up"])), "longer-0   up\n");
        assert_eq!(table.row(row(&["b", "up"])), "b          up\n");
        assert_eq!(table.row(row(&["世界", "up"])), "世界       up\n");
    }

    #[test]
    fn empty_last_cells_leave_no_trailing_spaces() {
        let mut table = table(&["A", "B", "C"]);
        table.row(row(&["x", "", ""]));
        assert_eq!(plain(&table.flush()), "A   B   C\nx\n");
    }

    #[test]
    fn empty_table_prints_nothing_and_buffer_is_limited() {
        let mut one = table(&["A"]);
        assert_eq!(one.flush(), "");
        assert_eq!(plain(&one.row(row(&["x"]))), "A\nx\n");
        let mut one = table(&["A"]);
        let printed: usize = (0..MAX_BUFFERED_ROWS).map(|_| one.row(row(&["x"])).lines().count()).sum();
        assert_eq!(printed, MAX_BUFFERED_ROWS + 1);
    }

    #[test]
    fn very_long_cell_does_not_widen_its_column_and_is_not_shortened() {
        let mut table = table(&["A", "B"]);
        table.row(row(&[&"x".repeat(200), "y"]));
        assert!(table.flush().contains(&"x".repeat(200)));
        assert_eq!(table.row(row(&["x", "y"])).find('y'), Some(MAX_COLUMN_WIDTH + 3));
    }

    #[test]
    fn titles_are_repeated_once_per_screen() {
        let mut table = table_on(&["A"], || Some(Screen { columns: 80, rows: 24 }));
        table.flush();
        let printed: String = (0..100).map(|_| plain(&table.row(row(&["x"])))).collect();
        let titles: Vec<usize> =
            printed.lines().enumerate().filter(|(_, line)| *line == "A").map(|(index, _)| index).collect();
        assert_eq!(titles, [0, 24, 48, 72, 96]);
    }

    #[test]
    fn titles_are_repeated_if_a_column_is_dropped() {
        let mut table = table_on(&["A", "B", "C"], || Some(Screen { columns: 12, rows: 24 }));
        table.flush();
        assert_eq!(plain(&table.row(row(&["a", "b", "c"]))), "A   B   C\na   b   c\n");
        assert_eq!(plain(&table.row(row(&["aaaaaaa", "b", "c"]))), "A        B\naaaaaaa  b\n");
    }
}
