//! Changes of an object in one line of limited width.

use super::change::Change;
use super::layout::{Ellipsis, shortened};
use console::measure_text_width;

/// Width below which the number of omitted changes is abbreviated.
const MIN_WIDTH_FOR_WORDS: usize = 40;

/// Formats changes in one line of at most `width` characters: `spec.replicas 3 → 5, +2 more`.
///
/// The first change is shortened if necessary: first its path from the left, then its previous value is omitted, then
/// its current value is cut.
pub(crate) fn line(changes: &[Change], width: usize) -> String {
    let Some((first, others)) = changes.split_first() else { return String::new() };
    let omitted = |count: usize| match count {
        0 => String::new(),
        count if width < MIN_WIDTH_FOR_WORDS => format!(" +{count}"),
        count => format!(", +{count} more"),
    };
    let mut line = fitted(first, width.saturating_sub(omitted(others.len()).len()));
    let mut used = measure_text_width(&line);
    for (shown, change) in others.iter().enumerate() {
        let text = format!(", {change}");
        used += measure_text_width(&text);
        if used + omitted(others.len() - shown - 1).len() > width {
            return line + &omitted(others.len() - shown);
        }
        line.push_str(&text);
    }
    line
}

/// Formats a change in at most `width` characters. The end of a path is more specific than its beginning, and the
/// current value matters more than the previous one: `…state waiting → running`, `…state → running`.
fn fitted(change: &Change, width: usize) -> String {
    let path = change.path();
    let starts = path.char_indices().filter(|(_, letter)| matches!(letter, '.' | '['));
    let mut paths = vec![path.to_string()];
    paths.extend(starts.map(|(start, _)| format!("…{}", path[start..].trim_start_matches('.'))));
    let mut texts: Vec<String> = paths.iter().map(|path| change.text(path)).collect();
    texts.extend(paths.last().map(|path| change.texts_without_old(path)).unwrap_or_default());
    let fits = texts.iter().find(|text| measure_text_width(text) <= width).or(texts.last());
    fits.map(|text| shortened(text, width, Ellipsis::End).into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::change::changes;
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn changes_that_do_not_fit_are_counted() {
        let object = |value: u8| {
            let fields = ('a'..='z').map(|name| (name.to_string(), Value::from(value)));
            Value::Object(fields.collect())
        };
        let found = changes(&object(1), &object(2), false);
        assert_eq!(line(&found, 46), "a 1 → 2, b 1 → 2, c 1 → 2, d 1 → 2, +22 more");
        assert_eq!(line(&found, 20), "a 1 → 2, b 1 → 2 +24");
        assert_eq!(line(&found, 10), "a → 2 +25");
        assert_eq!(line(&found, 8), "a →… +25");
        assert!(line(&found, usize::MAX).ends_with(", z 1 → 2"));
        assert_eq!(line(&[], 20), "");
    }

    /// Bug: at 80 columns, `…state waiting (Co…` showed only what the state had been. A text that was too long was cut at
    /// its end, where the current value is. The snapshots contained such lines.
    #[test]
    fn current_value_is_kept_longer_than_the_previous_one() {
        let map = |value: &str| json!({"data": {"greeting": value}});
        let found = changes(&map("good morning"), &map("good night"), false);
        for (width, expected) in [
            (40, "data.greeting good morning → good night"),
            (36, "…greeting good morning → good night"),
            (30, "…greeting → good night"),
            (17, "…greeting → good…"),
        ] {
            assert_eq!(line(&found, width), expected, "{width}");
        }
    }

    #[test]
    fn long_path_is_shortened_from_the_left() {
        let pod = |state: Value| json!({"status": {"phase": "Running", "containerStatuses": [{"name": "app", "state": state}]}});
        let stopped = pod(json!({"terminated": {"reason": "OOMKilled"}}));
        let found = changes(&pod(json!({"running": {}})), &stopped, false);
        for (width, expected) in [
            (80, "status.containerStatuses[app].state running → terminated (OOMKilled)"),
            (60, "…[app].state running → terminated (OOMKilled)"),
            (40, "…state running → terminated (OOMKilled)"),
            (38, "…state → terminated (OOMKilled)"),
            (24, "…state → OOMKilled"),
            (12, "…state → OO…"),
        ] {
            assert_eq!(line(&found, width), expected, "{width}");
        }
        let added = changes(&json!({"status": {}}), &json!({"status": {"podIP": "10.0.0.1"}}), false);
        assert_eq!(line(&added, 18), "+…podIP 10.0.0.1");
    }
}
