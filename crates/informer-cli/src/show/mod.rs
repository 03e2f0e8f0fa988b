//! How events look: one line each in columns, or as JSON, YAML or names.
//!
//! Whatever the format, nothing printed holds a control character or a value of a secret. Only what a format needs is decoded. It does not know
//! where events come from, nor where the text goes: that is a writer.

pub(crate) mod change;
pub(crate) mod columns;
pub(crate) mod escape;
pub(crate) mod hide;
mod table;

use anstyle::{AnsiColor, Style};
use columns::Column;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::io::{self, Write};
use table::{Cell, Table};

/// What the output looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// Aligned columns, a few for each kind
    Table,
    /// The same with labels and uids
    Wide,
    /// One JSON object per event and line: time, type, resource, object, changes
    Json,
    /// One YAML document per event
    Yaml,
    /// pod/web-0
    Name,
}

/// What happened, in the words of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Added,
    Updated,
    Deleted,
    Resync,
}

impl Verb {
    fn word(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Updated => "UPDATED",
            Self::Deleted => "DELETED",
            Self::Resync => "RESYNC",
        }
    }

    fn style(self) -> Style {
        match self {
            Self::Added => AnsiColor::Green.on_default(),
            Self::Updated => AnsiColor::Yellow.on_default(),
            Self::Deleted => AnsiColor::Red.on_default(),
            Self::Resync => Style::new().dimmed(),
        }
    }
}

/// A kind as the output names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) group: String,
    pub(crate) kind: String,
    /// As one says it on the command line: `pods`, `deployments.apps`.
    pub(crate) resource: String,
    /// As `kubectl -o name` begins: `pod`, `deployment.apps`.
    pub(crate) singular: String,
}

/// One event.
#[derive(Debug)]
pub(crate) struct Told<'a> {
    pub(crate) time: Timestamp,
    pub(crate) verb: Verb,
    pub(crate) shown: &'a Shown,
    pub(crate) namespace: Option<&'a str>,
    pub(crate) name: &'a str,
    /// The object as JSON.
    pub(crate) object: &'a [u8],
    /// The state before, of an update.
    pub(crate) old: Option<&'a [u8]>,
}

/// Prints events to a writer.
pub(crate) struct Printer<W> {
    format: Format,
    zone: TimeZone,
    /// The kind that has the table for itself.
    alone: Option<&'static [Column]>,
    table: Table,
    out: W,
    /// The width of the terminal, where there is one.
    width: fn() -> Option<usize>,
}

/// How long a line of changes may be where nobody looks at it through a window.
const NO_WINDOW: usize = 200;
/// What a line of changes may take however narrow the window is.
const NARROWEST: usize = 40;

impl<W: Write> Printer<W> {
    pub(crate) fn new(
        format: Format,
        kinds: &[Shown],
        zone: TimeZone,
        width: fn() -> Option<usize>,
        out: W,
    ) -> Self {
        let alone = match kinds {
            [one] => Some(columns::columns(&one.group, &one.kind)),
            _ => None,
        };
        let mut titles = vec![("TIME", 0), ("TYPE", "UPDATED".len())];
        if alone.is_none() {
            titles.push(("RESOURCE", 0));
        }
        titles.extend([("NAMESPACE", 0), ("NAME", 0)]);
        match alone {
            Some(columns) => titles.extend(columns.iter().map(|column| (column.title, column.width))),
            None => titles.push(("STATE", 0)),
        }
        if format == Format::Wide {
            titles.extend([("LABELS", 0), ("UID", 0)]);
        }
        titles.push(("CHANGES", 0));
        Self { format, zone, alone, table: Table::new(&titles), out, width }
    }

    /// Prints an event; in columns perhaps not before [`Printer::flush`].
    pub(crate) fn print(&mut self, told: &Told<'_>) -> io::Result<()> {
        let text = match self.format {
            Format::Table | Format::Wide => {
                let row = self.row(told);
                self.table.row(row)
            }
            Format::Json => json_line(told),
            Format::Yaml => self.yaml(told),
            Format::Name => {
                format!("{}\n", escape::escape(&format!("{}/{}", told.shown.singular, told.name)))
            }
        };
        self.write(&text)
    }

    /// Prints what is held back.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        let text = self.table.flush();
        self.write(&text)
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }

    fn row(&self, told: &Told<'_>) -> Vec<Cell> {
        let object = told.value();
        let verb = told.verb.style();
        let time = told.time.to_zoned(self.zone.clone()).strftime("%H:%M:%S").to_string();
        let mut row = vec![Cell::styled(&time, Style::new().dimmed()), Cell::styled(told.verb.word(), verb)];
        let columns = self.alone.unwrap_or_else(|| {
            row.push(Cell::new(&told.shown.resource));
            columns::columns(&told.shown.group, &told.shown.kind)
        });
        row.extend([Cell::new(told.namespace.unwrap_or("-")), Cell::styled(told.name, Style::new().bold())]);
        let cells = columns::cells(columns, &object, told.time);
        if self.alone.is_some() {
            row.extend(cells.iter().map(|cell| Cell::styled(cell, tone(cell))));
        } else {
            row.push(Cell::new(&columns::in_words(columns, &cells)));
        }
        if self.format == Format::Wide {
            row.extend([Cell::new(&labels(&object)), Cell::new(text(&object, "/metadata/uid"))]);
        }
        let room = (self.width)().map_or(NO_WINDOW, |width| self.table.room(width).max(NARROWEST));
        row.push(Cell::new(&told.changed(&object, room)));
        row
    }

    fn yaml(&self, told: &Told<'_>) -> String {
        let object = told.value();
        let time = told.time.to_zoned(self.zone.clone()).strftime("%H:%M:%S").to_string();
        let place = told.namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default();
        let mut head = format!("# {time} {} {} {place}{}", told.verb.word(), told.shown.resource, told.name);
        let changed = told.changed(&object, NO_WINDOW);
        if !changed.is_empty() {
            head = format!("{head}: {changed}");
        }
        let body = to_yaml(&told.safe(object));
        format!("---\n{}\n{body}", escape::escape(&head))
    }
}

impl Told<'_> {
    fn value(&self) -> Value {
        serde_json::from_slice(self.object).unwrap_or_default()
    }

    /// The object without what must not be shown.
    fn safe(&self, mut object: Value) -> Value {
        if hide::is_secret(&self.shown.kind) {
            hide::hide(&mut object);
        }
        object
    }

    fn changes(&self, object: &Value) -> Vec<change::Change> {
        let Some(old) = self.old.filter(|_| self.verb == Verb::Updated) else { return Vec::new() };
        let old: Value = serde_json::from_slice(old).unwrap_or_default();
        change::changes(&old, object, hide::is_secret(&self.shown.kind))
    }

    fn changed(&self, object: &Value, room: usize) -> String {
        change::line(&self.changes(object), room)
    }
}

fn json_line(told: &Told<'_>) -> String {
    let object = told.value();
    let changes = told.changes(&object).into_iter();
    let changes: Vec<Value> =
        changes.map(|one| json!({"path": one.path, "old": one.old, "new": one.new})).collect();
    let line = json!({
        "time": told.time.to_string(),
        "type": told.verb.word(),
        "resource": told.shown.resource,
        "object": told.safe(object),
        "changes": changes,
    });
    format!("{}\n", escape::escape_json(&line.to_string()))
}

/// The object as YAML. Where its text would hold something dangerous, JSON is put instead, which is YAML too.
fn to_yaml(object: &Value) -> String {
    let yaml = serde_saphyr::to_string(object).unwrap_or_default();
    let dangerous = |letter: char| letter != '\n' && escape::is_dangerous(letter);
    if yaml.is_empty() || yaml.contains(dangerous) {
        let json = serde_json::to_string(object).unwrap_or_default();
        return format!("{}\n", escape::escape_json(&json));
    }
    if yaml.ends_with('\n') { yaml } else { format!("{yaml}\n") }
}

fn labels(object: &Value) -> String {
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
    let pairs = labels.into_iter().flatten().map(|(name, value)| {
        let value = value.as_str().map_or_else(|| Cow::Owned(value.to_string()), Cow::Borrowed);
        format!("{name}={value}")
    });
    let text = pairs.collect::<Vec<_>>().join(",");
    if text.is_empty() { "-".to_owned() } else { text }
}

fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or("-")
}

/// Colours for the words that people look for.
fn tone(cell: &str) -> Style {
    match cell {
        "Running" | "Ready" | "Active" | "Bound" => AnsiColor::Green.on_default(),
        "Succeeded" | "Completed" | "Complete" => AnsiColor::Cyan.on_default(),
        "Pending" | "ContainerCreating" | "PodInitializing" | "Terminating" => AnsiColor::Yellow.on_default(),
        "CrashLoopBackOff" | "OOMKilled" | "Error" | "Failed" | "Evicted" | "ImagePullBackOff"
        | "ErrImagePull" | "NotReady" | "Unknown" => AnsiColor::Red.on_default(),
        _ => Style::new(),
    }
}

#[cfg(test)]
mod tests;
