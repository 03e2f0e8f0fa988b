//! The lines of a terminal after some output: text, colors, and the movements that a progress bar uses.

use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Color {
    #[default]
    Default,
    Red,
    Green,
    Yellow,
    Blue,
    Magenta,
    Cyan,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Style {
    pub(super) color: Color,
    pub(super) bold: bool,
    pub(super) dim: bool,
}

/// A line and the time of its last change.
#[derive(Debug, Clone, Default)]
pub(super) struct Row {
    pub(super) cells: Vec<(char, Style)>,
    pub(super) time: Duration,
}

/// The lines of a terminal that never scrolls.
#[derive(Debug, Default)]
pub(super) struct Screen {
    rows: Vec<Row>,
    line: usize,
    column: usize,
    style: Style,
    /// The end of a chunk that is incomplete: a character or a control sequence.
    rest: Vec<u8>,
}

impl Screen {
    /// Adds a chunk of output.
    pub(super) fn write(&mut self, chunk: &[u8], time: Duration) {
        self.rest.extend_from_slice(chunk);
        let bytes = std::mem::take(&mut self.rest);
        let complete = match str::from_utf8(&bytes) {
            Ok(text) => text,
            Err(error) => str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
        };
        let mut text = complete;
        while let Some(letter) = text.chars().next() {
            if letter == '\x1b' {
                let Some((sequence, rest)) = control_sequence(text) else { break };
                self.control(sequence, time);
                text = rest;
            } else {
                self.put(letter, time);
                text = &text[letter.len_utf8()..];
            }
        }
        let used = complete.len() - text.len();
        self.rest = bytes[used..].to_vec();
    }

    /// Returns the lines that are not empty.
    pub(super) fn rows(&self) -> Vec<Row> {
        let has_text = |row: &&Row| row.cells.iter().any(|(letter, _)| !letter.is_whitespace());
        self.rows.iter().filter(has_text).cloned().collect()
    }

    fn row(&mut self, time: Duration) -> &mut Row {
        if self.rows.len() <= self.line {
            self.rows.resize_with(self.line + 1, Row::default);
        }
        let row = &mut self.rows[self.line];
        row.time = time;
        row
    }

    fn put(&mut self, letter: char, time: Duration) {
        match letter {
            '\n' => self.line += 1,
            '\r' => self.column = 0,
            letter if letter.is_control() => {}
            letter => {
                let (column, style) = (self.column, self.style);
                let cells = &mut self.row(time).cells;
                if cells.len() <= column {
                    cells.resize(column + 1, (' ', Style::default()));
                }
                cells[column] = (letter, style);
                self.column += 1;
            }
        }
    }

    /// Follows a control sequence, without `ESC [`. Unknown ones have no effect.
    fn control(&mut self, sequence: &str, time: Duration) {
        let Some(last) = sequence.chars().last() else { return };
        let arguments = &sequence[..sequence.len() - last.len_utf8()];
        let number = arguments.parse().unwrap_or(1);
        match last {
            'm' => arguments.split(';').for_each(|code| self.set_style(code)),
            'A' => self.line = self.line.saturating_sub(number),
            'B' => self.line += number,
            'K' if arguments == "2" => self.row(time).cells.clear(),
            'K' => {
                let column = self.column;
                self.row(time).cells.truncate(column);
            }
            _ => {}
        }
    }

    fn set_style(&mut self, code: &str) {
        match code {
            "" | "0" => self.style = Style::default(),
            "1" => self.style.bold = true,
            "2" => self.style.dim = true,
            "22" => (self.style.bold, self.style.dim) = (false, false),
            code => {
                self.style.color = match code {
                    "31" | "91" => Color::Red,
                    "32" | "92" => Color::Green,
                    "33" | "93" => Color::Yellow,
                    "34" | "94" => Color::Blue,
                    "35" | "95" => Color::Magenta,
                    "36" | "96" => Color::Cyan,
                    _ => Color::Default,
                }
            }
        }
    }
}

/// Splits a text that begins with a control sequence, which is returned without `ESC [`. `None` if it is incomplete.
fn control_sequence(text: &str) -> Option<(&str, &str)> {
    let rest = text.strip_prefix('\x1b')?;
    let Some(rest) = rest.strip_prefix('[') else {
        // Another kind of sequence: skip its first character.
        let first = rest.chars().next()?;
        return Some(("", &rest[first.len_utf8()..]));
    };
    let end = rest.find(|letter: char| letter.is_ascii_alphabetic())?;
    Some(rest.split_at(end + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(output: &[&str]) -> Vec<String> {
        let mut screen = Screen::default();
        for chunk in output {
            screen.write(chunk.as_bytes(), Duration::ZERO);
        }
        screen.rows().iter().map(|row| row.cells.iter().map(|(letter, _)| *letter).collect()).collect()
    }

    #[test]
    fn progress_bar_disappears() {
        assert_eq!(lines(&["\r\x1b[2K⠁ listing", "\r\x1b[2Ka\r\n", "⠁ b\x1b[1A\r\x1b[Kc\r\n\x1b[K"]), ["c"]);
    }

    #[test]
    fn chunks_may_end_anywhere() {
        let output = "é\x1b[31mx\x1b[0m\r\ny";
        let bytes = output.as_bytes();
        for at in 0..bytes.len() {
            let mut screen = Screen::default();
            screen.write(&bytes[..at], Duration::ZERO);
            screen.write(&bytes[at..], Duration::ZERO);
            let rows = screen.rows();
            let red = Style { color: Color::Red, ..Style::default() };
            assert_eq!(rows[0].cells, [('é', Style::default()), ('x', red)], "at {at}");
            assert_eq!(rows.len(), 2);
        }
    }
}
