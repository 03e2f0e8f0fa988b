//! Draws a diagram: places of the boxes, and the text of the SVG file.
//!
//! As in the plots of the benchmarks, colors follow the reader's colour scheme, and the background keeps them
//! legible on every page. The image contains no script, font or link.

use std::fmt::Write as _;

use super::{Arrow, Cell, Diagram, FOLDER, Group, Node};

/// Distance of the boxes from the edges; leaves space for the frame of a group.
const MARGIN: f64 = 38.0;
const HEAD_HEIGHT: f64 = 78.0;
const BOX_HEIGHT: f64 = 46.0;
const MIN_BOX_WIDTH: f64 = 84.0;
const MIN_COLUMN_GAP: f64 = 44.0;
const ROW_GAP: f64 = 62.0;
/// Space between a box and the frame of its group: at the sides, and above, where the label is.
const GROUP_SPACE: (f64, f64) = (16.0, 28.0);
/// Estimated width of a character in names and in smaller texts.
const CHAR_WIDTHS: (f64, f64) = (7.6, 6.2);
/// Distance of a label beside a vertical line from the upper box: between the frames of two groups.
const LABEL_OFFSET: f64 = 29.0;

const STYLE: &str = "<style>
:root { --back: #ffffff; --edge: #d0d7de; --text: #1f2328; --soft: #59636e; --box: #eef4fb; --line: #0b5cad; }
@media (prefers-color-scheme: dark) {
  :root { --back: #161b22; --edge: #30363d; --text: #e6edf3; --soft: #9da7b3; --box: #1c2a3d; --line: #58a6ff; } }
text { font: 12px system-ui, -apple-system, 'Segoe UI', Roboto, Arial, sans-serif; fill: var(--soft); }
.title { font-size: 15px; font-weight: 600; fill: var(--text); }
.name { font-size: 13px; font-weight: 600; fill: var(--text); }
.middle { text-anchor: middle; }
.label { stroke: var(--back); stroke-width: 4; stroke-linejoin: round; paint-order: stroke; }
.back { fill: var(--back); stroke: var(--edge); }
.box { fill: var(--box); stroke: var(--line); }
.group { fill: none; stroke: var(--soft); stroke-dasharray: 4 4; }
.arrow { fill: none; stroke: var(--line); stroke-width: 1.5; }
.tip { fill: var(--line); }
</style>
<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" \
markerUnits=\"userSpaceOnUse\" orient=\"auto-start-reverse\"><path class=\"tip\" d=\"M0 0 8 4 0 8z\"/></marker></defs>
";

/// A place on the page: distances from the left and from the top.
type Point = (f64, f64);

impl Diagram {
    /// Returns the text of the image.
    pub(super) fn svg(&self) -> String {
        let layout = Layout::new(self);
        let (width, height) = layout.size(self);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
             height=\"{height:.0}\" role=\"img\" aria-labelledby=\"title arrows\">\n\
             <!-- Drawn by `cargo xtask book` from a file in {FOLDER}. -->\n"
        );
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(svg, "<title id=\"title\">{}</title>", escape(&self.title));
        let _ = writeln!(svg, "<desc id=\"arrows\">{}</desc>", escape(&self.arrows_as_text()));
        svg.push_str(STYLE);
        draw_rect(&mut svg, "back", (0.5, 0.5), (width - 1.0, height - 1.0), 8);
        draw_text(&mut svg, "title", (20.0, 30.0), &self.title);
        for group in &self.groups {
            group.draw(&mut svg, &layout);
        }
        for arrow in &self.arrows {
            arrow.draw(&mut svg, &layout);
        }
        for node in &self.boxes {
            node.draw(&mut svg, &layout);
        }
        svg.push_str("</svg>\n");
        svg
    }

    /// Returns the arrows as sentences, for readers who do not see them.
    fn arrows_as_text(&self) -> String {
        let name = |cell: Option<&Cell>| {
            self.boxes.iter().find(|node| Some(&node.cell) == cell).map_or("", |node| node.name.as_str())
        };
        let mut sentences = Vec::new();
        for Arrow { route, label, is_double } in &self.arrows {
            let (from, to) = (name(route.first()), name(route.last()));
            let word = if *is_double { "and" } else { "to" };
            let label = if label.is_empty() { String::new() } else { format!(": {label}") };
            sentences.push(format!("{from} {word} {to}{label}."));
        }
        sentences.join(" ")
    }
}

impl Node {
    fn width(&self) -> f64 {
        let text = text_width(&self.name, CHAR_WIDTHS.0).max(text_width(&self.note, CHAR_WIDTHS.1));
        MIN_BOX_WIDTH.max(text + 24.0)
    }

    fn draw(&self, svg: &mut String, layout: &Layout) {
        let ((left, top), (right, bottom)) = layout.bounds(self.cell);
        draw_rect(svg, "box", (left, top), (right - left, bottom - top), 6);
        let (x, y) = layout.center(self.cell);
        if self.note.is_empty() {
            draw_text(svg, "name middle", (x, y + 4.5), &self.name);
        } else {
            draw_text(svg, "name middle", (x, y - 4.0), &self.name);
            draw_text(svg, "middle", (x, y + 13.0), &self.note);
        }
    }
}

impl Group {
    fn draw(&self, svg: &mut String, layout: &Layout) {
        let (side, above) = GROUP_SPACE;
        let bounds = || self.cells.iter().map(|cell| layout.bounds(*cell));
        let left = bounds().map(|(start, _)| start.0).fold(f64::INFINITY, f64::min) - side;
        let top = bounds().map(|(start, _)| start.1).fold(f64::INFINITY, f64::min) - above;
        let right = bounds().map(|(_, end)| end.0).fold(0.0, f64::max) + side;
        let bottom = bounds().map(|(_, end)| end.1).fold(0.0, f64::max) + side;
        draw_rect(svg, "group", (left, top), (right - left, bottom - top), 10);
        draw_text(svg, "", (left + 10.0, top + 17.0), &self.label);
    }
}

impl Arrow {
    fn draw(&self, svg: &mut String, layout: &Layout) {
        let points = self.points(layout);
        let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
        let start = if self.is_double { " marker-start=\"url(#tip)\"" } else { "" };
        let path = path.join(" ");
        let _ = writeln!(svg, "<path class=\"arrow\" d=\"M{path}\" marker-end=\"url(#tip)\"{start}/>");
        if self.label.is_empty() {
            return;
        }
        let [(x1, y1), (x2, y2), ..] = points[..] else { return };
        if self.is_horizontal() {
            draw_text(svg, "label middle", (f64::midpoint(x1, x2), y1 - 7.0), &self.label);
        } else {
            draw_text(svg, "label", (x1 + 8.0, f64::min(y1, y2) + LABEL_OFFSET), &self.label);
        }
    }

    /// Returns the corners of the line, from the edge of the first box to the edge of the second.
    fn points(&self, layout: &Layout) -> Vec<Point> {
        let mut points: Vec<Point> = self.route.iter().map(|cell| layout.center(*cell)).collect();
        if let ([from, next, ..], [.., before, to]) = (&self.route[..], &self.route[..]) {
            let last = points.len() - 1;
            (points[0], points[last]) = (layout.edge(*from, *next), layout.edge(*to, *before));
        }
        points
    }

    /// Returns whether the first part of the line, which has the label, is horizontal.
    fn is_horizontal(&self) -> bool {
        matches!(self.route[..], [(first, _), (second, _), ..] if first == second)
    }
}

/// Places of the columns and rows on the page.
struct Layout {
    /// Left end and width of each column.
    columns: Vec<(f64, f64)>,
    /// Upper end of each row.
    rows: Vec<f64>,
}

impl Layout {
    fn new(diagram: &Diagram) -> Self {
        let count = diagram.boxes.iter().map(|node| node.cell.1 + 1).max().unwrap_or_default();
        let mut columns = Vec::new();
        let mut left = MARGIN;
        for column in 0..count {
            let boxes = diagram.boxes.iter().filter(|node| node.cell.1 == column);
            let width = boxes.map(Node::width).fold(MIN_BOX_WIDTH, f64::max);
            columns.push((left, width));
            let crosses_gap = |arrow: &&Arrow| {
                let ends = arrow.route.iter().take(2).map(|cell| cell.1);
                arrow.is_horizontal() && ends.clone().min() == Some(column) && ends.max() == Some(column + 1)
            };
            let labels = diagram
                .arrows
                .iter()
                .filter(crosses_gap)
                .map(|arrow| text_width(&arrow.label, CHAR_WIDTHS.1));
            left +=
                width + labels.map(|label| label + 2.0 * GROUP_SPACE.0 + 8.0).fold(MIN_COLUMN_GAP, f64::max);
        }
        let tops = std::iter::successors(Some(HEAD_HEIGHT), |top| Some(top + BOX_HEIGHT + ROW_GAP));
        Self { columns, rows: tops.take(diagram.rows).collect() }
    }

    /// Returns the width and height of the image. Labels beside vertical lines may extend beyond the last column.
    fn size(&self, diagram: &Diagram) -> (f64, f64) {
        let boxes = self.columns.last().map_or(0.0, |(left, width)| left + width + MARGIN);
        let label_end = |arrow: &Arrow| {
            let start = arrow.points(self).first().map_or(0.0, |(x, _)| x + 8.0);
            start + text_width(&arrow.label, CHAR_WIDTHS.1) + 20.0
        };
        let vertical = diagram.arrows.iter().filter(|arrow| !arrow.is_horizontal());
        let title = 40.0 + text_width(&diagram.title, 8.6);
        let width = vertical.map(label_end).fold(f64::max(boxes, title), f64::max);
        (width, self.rows.last().copied().unwrap_or_default() + BOX_HEIGHT + MARGIN)
    }

    /// Returns the upper left and the lower right corner of a cell.
    fn bounds(&self, (row, column): Cell) -> (Point, Point) {
        let (left, width) = self.columns[column];
        let top = self.rows[row];
        ((left, top), (left + width, top + BOX_HEIGHT))
    }

    fn center(&self, cell: Cell) -> Point {
        let ((left, top), (right, bottom)) = self.bounds(cell);
        (f64::midpoint(left, right), f64::midpoint(top, bottom))
    }

    /// Returns the middle of the side of a cell that faces another cell in its row or column.
    fn edge(&self, cell: Cell, other: Cell) -> Point {
        let ((left, top), (right, bottom)) = self.bounds(cell);
        let (x, y) = self.center(cell);
        if cell.0 == other.0 {
            (if other.1 > cell.1 { right } else { left }, y)
        } else {
            (x, if other.0 > cell.0 { bottom } else { top })
        }
    }
}

fn text_width(text: &str, char_width: f64) -> f64 {
    text.chars().fold(0.0, |width, _| width + char_width)
}

fn draw_rect(svg: &mut String, class: &str, (x, y): Point, (width, height): Point, radius: u8) {
    let _ = writeln!(
        svg,
        "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"{radius}\"/>"
    );
}

fn draw_text(svg: &mut String, class: &str, (x, y): Point, text: &str) {
    let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
    let _ = writeln!(svg, "<text{class} x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escape(text));
}

/// Replaces the characters that have a meaning in SVG.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_has_boxes_notes_groups_and_arrows() {
        let grid = "# comment\ntitle: T\n| a | b |   |\n|   | c | d |\n";
        let lines = "note a: first\ngroup G: a, b\na <-> b: x & y\nb -> c\n";
        let svg = Diagram::parse(&format!("{grid}{lines}")).unwrap().svg();
        assert_eq!(svg.matches("<rect class=\"box\"").count(), 4, "{svg}");
        assert_eq!(svg.matches("<rect class=\"group\"").count(), 1, "{svg}");
        assert_eq!(svg.matches(" marker-end=").count(), 2, "{svg}");
        assert_eq!(svg.matches(" marker-start=").count(), 1, "{svg}");
        assert!(svg.contains(">first</text>") && svg.contains(">x &amp; y</text>"), "{svg}");
        assert!(svg.contains("<desc id=\"arrows\">a and b: x &amp; y. b to c.</desc>"), "{svg}");
    }

    #[test]
    fn gap_between_columns_has_space_for_the_label() {
        let diagram =
            Diagram::parse("title: T\n| a | b | c |\na -> b: a rather long label\nb -> c\n").unwrap();
        let columns = Layout::new(&diagram).columns;
        let gap = |column: usize| columns[column + 1].0 - columns[column].0 - columns[column].1;
        assert!(gap(0) > 19.0 * CHAR_WIDTHS.1 && (gap(1) - MIN_COLUMN_GAP).abs() < 0.1);
    }
}
