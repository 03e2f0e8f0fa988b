//! Diagrams of the book: boxes on a grid with arrows between them, drawn as SVG from small text files. Pure: text
//! to text. This file reads the texts and finds the routes of the arrows, and `draw` draws them.
//!
//! `cargo xtask book` draws the files of [`FOLDER`], and `cargo xtask tidy` checks that the images are current. A
//! file has these lines, in this order:
//!
//! ```text
//! # a comment
//! title: What the diagram shows
//! | box | other box |         |       each line is a row of the grid; a cell may be empty
//! |     |           | third   |
//! note box: a second line in the box
//! group Some boxes: box, other box
//! box -> other box: a label           or without a label
//! box <-> third
//! ```
//!
//! An arrow is straight or has one corner, and never crosses a box.

mod draw;

pub(crate) use draw::escape;

use crate::included::Mistake;

/// Folder of the text files.
pub(crate) const FOLDER: &str = "docs/book/diagrams";

/// Returns the path of the image of a text file in [`FOLDER`].
pub(crate) fn image_path(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    format!("docs/book/src/images/{}.svg", name.strip_suffix(".txt").unwrap_or(name))
}

/// Returns the image of a diagram, or the first mistake in its text.
pub(crate) fn draw(text: &str) -> Result<String, Mistake> {
    Ok(Diagram::parse(text)?.svg())
}

#[derive(Debug, Default)]
struct Diagram {
    title: String,
    rows: usize,
    boxes: Vec<Node>,
    groups: Vec<Group>,
    arrows: Vec<Arrow>,
}

/// Row and column, counted from zero.
type Cell = (usize, usize);

#[derive(Debug)]
struct Node {
    name: String,
    note: String,
    cell: Cell,
}

#[derive(Debug)]
struct Group {
    label: String,
    cells: Vec<Cell>,
}

#[derive(Debug)]
struct Arrow {
    /// The cells of the first box, of the corner, if there is one, and of the second box.
    route: Vec<Cell>,
    label: String,
    is_double: bool,
}

impl Diagram {
    fn parse(text: &str) -> Result<Self, Mistake> {
        let mut diagram = Self::default();
        for (number, line) in (1..).zip(text.lines().map(str::trim)) {
            if !line.is_empty() && !line.starts_with('#') {
                diagram.add_line(line).map_err(|mistake| (number, mistake))?;
            }
        }
        if diagram.title.is_empty() || diagram.boxes.is_empty() {
            return Err((1, "a diagram needs a title and a box".to_owned()));
        }
        Ok(diagram)
    }

    fn add_line(&mut self, line: &str) -> Result<(), String> {
        if let Some(row) = line.strip_prefix('|') {
            return self.add_row(row.strip_suffix('|').unwrap_or(row));
        }
        let (start, text) = line.split_once(": ").unwrap_or((line, ""));
        if start == "title" {
            text.clone_into(&mut self.title);
        } else if let Some(name) = start.strip_prefix("note ") {
            let cell = self.cell(name)?;
            let node = self.boxes.iter_mut().find(|node| node.cell == cell);
            text.clone_into(&mut node.ok_or("no box")?.note);
        } else if let Some(label) = start.strip_prefix("group ") {
            let cells = text.split(", ").map(|name| self.cell(name)).collect::<Result<_, _>>()?;
            self.groups.push(Group { label: label.to_owned(), cells });
        } else {
            let double = start.split_once(" <-> ");
            let (from, to) = double
                .or_else(|| start.split_once(" -> "))
                .ok_or("not a title, row, note, group or arrow")?;
            let route = self.route(self.cell(from)?, self.cell(to)?);
            let route = route.ok_or_else(|| format!("no free route from `{from}` to `{to}`"))?;
            self.arrows.push(Arrow { route, label: text.to_owned(), is_double: double.is_some() });
        }
        Ok(())
    }

    fn add_row(&mut self, row: &str) -> Result<(), String> {
        for (column, name) in row.split('|').map(str::trim).enumerate() {
            if self.cell(name).is_ok() {
                return Err(format!("a second box `{name}`"));
            }
            if !name.is_empty() {
                let cell = (self.rows, column);
                self.boxes.push(Node { name: name.to_owned(), note: String::new(), cell });
            }
        }
        self.rows += 1;
        Ok(())
    }

    fn cell(&self, name: &str) -> Result<Cell, String> {
        let node = self.boxes.iter().find(|node| node.name == name.trim());
        node.map(|node| node.cell).ok_or_else(|| format!("no box `{name}`"))
    }

    /// Returns a route between two boxes that crosses no other box: straight, or else with one corner, if
    /// possible in the row of the first box.
    fn route(&self, from: Cell, to: Cell) -> Option<Vec<Cell>> {
        let corners = [(from.0, to.1), (to.0, from.1)];
        if corners.contains(&from) || corners.contains(&to) {
            return (from != to && self.is_free(from, to)).then(|| vec![from, to]);
        }
        let is_empty = |corner: &Cell| self.boxes.iter().all(|node| node.cell != *corner);
        let is_usable =
            |corner: &Cell| is_empty(corner) && self.is_free(from, *corner) && self.is_free(*corner, to);
        corners.into_iter().find(is_usable).map(|corner| vec![from, corner, to])
    }

    /// Returns whether no box is between two cells of a row or column.
    fn is_free(&self, a: Cell, b: Cell) -> bool {
        let is_between = |x: usize, a: usize, b: usize| a.min(b) < x && x < a.max(b);
        !self.boxes.iter().map(|node| node.cell).any(|(row, column)| {
            (row == a.0 && row == b.0 && is_between(column, a.1, b.1))
                || (column == a.1 && column == b.1 && is_between(row, a.0, b.0))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRID: &str = "title: T\n| a | b |   |\n|   | c | d |\n";

    fn route(grid: &str, arrow: &str) -> Result<Vec<Cell>, Mistake> {
        Diagram::parse(&format!("{grid}{arrow}\n")).map(|mut diagram| diagram.arrows.remove(0).route)
    }

    #[test]
    fn arrows_are_straight_or_have_a_free_corner() {
        assert_eq!(route(GRID, "a -> b: x"), Ok(vec![(0, 0), (0, 1)]));
        assert_eq!(route(GRID, "c -> b"), Ok(vec![(1, 1), (0, 1)]));
        assert_eq!(route(GRID, "c -> a"), Ok(vec![(1, 1), (1, 0), (0, 0)]));
        assert_eq!(route(GRID, "b -> d"), Ok(vec![(0, 1), (0, 2), (1, 2)]));
        assert_eq!(route("title: T\n| a | b |\n| c |   |\n", "b -> c"), Ok(vec![(0, 1), (1, 1), (1, 0)]));
    }

    #[test]
    fn arrow_across_a_box_is_a_mistake() {
        let row = "title: T\n| a | b | c |\n";
        assert_eq!(route(row, "a -> c"), Err((3, "no free route from `a` to `c`".to_owned())));
        let square = "title: T\n| a | b |\n| c | d |\n";
        assert_eq!(route(square, "a -> d"), Err((4, "no free route from `a` to `d`".to_owned())));
    }

    #[test]
    fn mistakes_are_reported_with_their_line() {
        let check = |text: &str, line: usize, message: &str| {
            assert_eq!(draw(text), Err((line, message.to_owned())), "{text}");
        };
        check("", 1, "a diagram needs a title and a box");
        check("title: T\n| a | a |\n", 2, "a second box `a`");
        check("title: T\n\n| a |\nnote b: x\n", 4, "no box `b`");
        check("title: T\n| a |\ngroup g: a, b\n", 3, "no box `b`");
        check("title: T\n| a |\na => a\n", 3, "not a title, row, note, group or arrow");
    }

    #[test]
    fn image_of_a_file_has_its_name() {
        assert_eq!(image_path("docs/book/diagrams/a.txt"), "docs/book/src/images/a.svg");
    }
}
