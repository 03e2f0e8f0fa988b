//! Fits columns into the width of a terminal: the least important are dropped, long ones are shortened.
//!
//! This module computes with widths only; it knows neither cells nor terminals.

use console::measure_text_width;
use std::borrow::Cow;

/// Natural width of a column that takes the rest of the line.
pub(crate) const REST: usize = usize::MAX;

/// Separator of columns if all columns have the width they need.
const WIDE_GAP: usize = 3;
/// Separator of columns if some were dropped or shortened.
const NARROW_GAP: usize = 2;

/// Size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Screen {
    pub(crate) columns: usize,
    pub(crate) rows: usize,
}

/// Rules for the width of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sizing {
    /// Order in which columns get space; smaller values come first.
    pub(crate) importance: u8,
    /// Minimal width. An essential column is shortened to it before it is dropped.
    pub(crate) min: usize,
    /// Width that is reserved for longer cells. Other columns are dropped rather than shortened below it.
    pub(crate) comfortable: usize,
    pub(crate) ellipsis: Ellipsis,
}

/// Importance up to which a column is essential.
const MAX_ESSENTIAL: u8 = 9;

impl Sizing {
    /// A column that is shown in full or dropped.
    pub(crate) const fn whole(importance: u8) -> Self {
        Self { importance, min: usize::MAX, comfortable: usize::MAX, ellipsis: Ellipsis::End }
    }

    /// A column that may be shortened.
    pub(crate) const fn flexible(importance: u8, min: usize, comfortable: usize) -> Self {
        Self { importance, min, comfortable, ellipsis: Ellipsis::End }
    }
}

/// Which part of a long cell is replaced by an ellipsis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ellipsis {
    End,
    /// For names: their beginning shows what an object is, their end distinguishes it from others.
    Middle,
}

/// Widths of the columns of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Width of each column; `None` if it is dropped.
    pub(crate) widths: Vec<Option<usize>>,
    /// Number of spaces between two columns.
    pub(crate) gap: usize,
}

impl Layout {
    /// A layout in which every column has its natural width.
    pub(crate) fn natural(natural: &[usize]) -> Self {
        Self { widths: natural.iter().copied().map(Some).collect(), gap: WIDE_GAP }
    }

    /// Fits columns of these natural widths into a line of `width` characters.
    pub(crate) fn fitted(columns: &[Sizing], natural: &[usize], width: usize) -> Self {
        let comfortable: Vec<usize> =
            columns.iter().zip(natural).map(|(column, natural)| column.comfortable.min(*natural)).collect();
        let min: Vec<usize> =
            columns.iter().zip(&comfortable).map(|(column, wanted)| column.min.min(*wanted)).collect();
        let mut order: Vec<usize> = (0..columns.len()).collect();
        order.sort_by_key(|index| columns.get(*index).map(|column| column.importance));

        let in_full: Vec<usize> = natural
            .iter()
            .zip(&comfortable)
            .map(|(natural, wanted)| if *natural == REST { *wanted } else { *natural })
            .collect();
        if line_width(in_full.iter(), WIDE_GAP) <= width {
            let mut widths: Vec<Option<usize>> = in_full.into_iter().map(Some).collect();
            grow(&mut widths, natural, &order, width, WIDE_GAP);
            return Self { widths, gap: WIDE_GAP };
        }

        let mut shown: Vec<usize> = Vec::new();
        for index in order.iter().copied() {
            let essential = columns.get(index).is_some_and(|column| column.importance <= MAX_ESSENTIAL);
            let widths = if essential { &min } else { &comfortable };
            shown.push(index);
            // The most important column is always shown.
            let line = line_width(shown.iter().filter_map(|shown| widths.get(*shown)), NARROW_GAP);
            if shown.len() > 1 && line > width {
                shown.pop();
            }
        }

        let mut widths: Vec<Option<usize>> = (0..columns.len())
            .map(|index| comfortable.get(index).copied().filter(|_| shown.contains(&index)))
            .collect();
        shrink(&mut widths, &min, width);
        if let [only] = shown[..]
            && let Some(Some(only)) = widths.get_mut(only)
        {
            *only = width.min(*only);
        }
        grow(&mut widths, natural, &order, width, NARROW_GAP);
        Self { widths, gap: NARROW_GAP }
    }

    /// Returns the indexes of the columns that are shown.
    pub(crate) fn shown(&self) -> Vec<usize> {
        (0..self.widths.len()).filter(|index| self.widths.get(*index).is_some_and(Option::is_some)).collect()
    }
}

/// Shortens the widest columns until the line fits, but none below its minimal width.
fn shrink(widths: &mut [Option<usize>], min: &[usize], available: usize) {
    while line_width(widths.iter().flatten(), NARROW_GAP) > available {
        let widest = widths
            .iter_mut()
            .zip(min)
            .filter_map(|(width, min)| width.as_mut().filter(|width| **width > *min))
            .max_by_key(|width| **width);
        match widest {
            Some(width) => *width -= 1,
            None => return,
        }
    }
}

/// Distributes the rest of the line: more important columns get their natural width first.
fn grow(widths: &mut [Option<usize>], natural: &[usize], order: &[usize], available: usize, gap: usize) {
    let mut rest = available.saturating_sub(line_width(widths.iter().flatten(), gap));
    let takes_rest = |index: &&usize| natural.get(**index) == Some(&REST);
    let last = order.iter().filter(takes_rest);
    for index in order.iter().filter(|index| !takes_rest(index)).chain(last) {
        if let (Some(Some(width)), Some(natural)) = (widths.get_mut(*index), natural.get(*index)) {
            let more = natural.saturating_sub(*width).min(rest);
            *width += more;
            rest -= more;
        }
    }
}

/// Returns the width of a line with these columns.
fn line_width<'a>(widths: impl Iterator<Item = &'a usize>, gap: usize) -> usize {
    widths.fold(0, |line: usize, width| {
        line.saturating_add(if line == 0 { 0 } else { gap }).saturating_add(*width)
    })
}

/// Shortens a text to this width.
pub(crate) fn shortened(text: &str, width: usize, ellipsis: Ellipsis) -> Cow<'_, str> {
    if measure_text_width(text) <= width {
        return Cow::Borrowed(text);
    }
    let kept = width.saturating_sub(1);
    let tail_width = match ellipsis {
        Ellipsis::End => 0,
        Ellipsis::Middle => kept / 2,
    };
    let head: String = take_width(text.chars(), kept - tail_width).collect();
    let tail: Vec<char> = take_width(text.chars().rev(), tail_width).collect();
    Cow::Owned(format!("{head}…{}", tail.into_iter().rev().collect::<String>()))
}

/// Returns the first characters that fit into this width.
fn take_width(letters: impl Iterator<Item = char>, width: usize) -> impl Iterator<Item = char> {
    let mut used = 0;
    letters.take_while(move |letter| {
        used += measure_text_width(letter.encode_utf8(&mut [0; 4]));
        used <= width
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[Sizing] = &[
        Sizing::whole(20),
        Sizing::whole(0),
        Sizing::flexible(1, 10, 24),
        Sizing::flexible(21, 5, 10),
        Sizing::flexible(2, 8, 20),
    ];

    #[track_caller]
    fn check(natural: &[usize], width: usize, expected: &[Option<usize>], gap: usize) {
        let layout = Layout::fitted(COLUMNS, natural, width);
        assert_eq!((&layout.widths[..], layout.gap), (expected, gap), "{width}");
        let used: usize = layout.widths.iter().flatten().sum();
        assert!(used + layout.gap * layout.shown().len().saturating_sub(1) <= width, "{layout:?}");
    }

    #[test]
    fn wide_terminal_shows_all_columns_in_full() {
        check(&[8, 7, 30, 12, 20], 89, &[Some(8), Some(7), Some(30), Some(12), Some(20)], 3);
        check(&[8, 7, 30, 12, 20], 88, &[Some(8), Some(7), Some(30), Some(12), Some(20)], 2);
    }

    #[test]
    fn least_important_columns_are_dropped_before_essential_ones_are_shortened() {
        check(&[8, 7, 30, 12, 20], 76, &[Some(8), Some(7), Some(30), None, Some(20)], 2);
        check(&[8, 7, 30, 12, 20], 60, &[None, Some(7), Some(29), None, Some(20)], 2);
        check(&[8, 7, 30, 12, 20], 40, &[None, Some(7), Some(15), None, Some(14)], 2);
        check(&[8, 7, 30, 12, 20], 25, &[None, Some(7), Some(16), None, None], 2);
        check(&[8, 7, 30, 12, 20], 10, &[None, Some(7), None, None, None], 2);
    }

    #[test]
    fn last_column_gets_the_rest() {
        check(&[8, 7, 20, 5, REST], 120, &[Some(8), Some(7), Some(20), Some(5), Some(68)], 3);
        check(&[8, 7, 28, 5, REST], 78, &[Some(8), Some(7), Some(28), Some(5), Some(22)], 2);
    }

    #[test]
    fn long_text_is_shortened_at_its_ellipsis() {
        for (text, width, ellipsis, expected) in [
            ("web-0", 5, Ellipsis::End, "web-0"),
            ("web-10", 5, Ellipsis::End, "web-…"),
            ("checkout-4hms6wnsg-7jssf", 17, Ellipsis::Middle, "checkout…sg-7jssf"),
            ("世界世界", 6, Ellipsis::End, "世界…"),
            ("abc", 1, Ellipsis::Middle, "…"),
            ("abc", 0, Ellipsis::End, "…"),
        ] {
            assert_eq!(shortened(text, width, ellipsis), expected, "{text}");
        }
    }
}
