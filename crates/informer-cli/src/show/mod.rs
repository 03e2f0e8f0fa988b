//! Formats events and objects: one line each in columns, or as JSON, YAML or names.
//!
//! In every format, no control character and no value of a secret is printed. Only what a format needs is decoded.
//! This module does not know where events come from or where the output goes.

pub(crate) mod change;
mod change_line;
pub(crate) mod columns;
pub(crate) mod escape;
mod format;
mod layout;
mod listing;
mod live;
mod pod_status;
pub(crate) mod redact;
mod table;

pub(crate) use format::Format;
pub(crate) use layout::Screen;
pub(crate) use listing::{Headers, KindObjects, Listing};
pub(crate) use live::{LiveKind, LiveStatus};

use anstyle::{AnsiColor, Style};
use columns::Column;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use layout::{Ellipsis, REST, Sizing};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::io::{self, Write};
use table::{Cell, Table, TableColumn};

/// Type of an event in the output.
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

/// A kind as named in the output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShownKind {
    pub(crate) group: String,
    pub(crate) kind: String,
    /// Name on the command line: `pods`, `deployments.apps`.
    pub(crate) resource: String,
    /// Name in `kubectl -o name`: `pod`, `deployment.apps`.
    pub(crate) singular: String,
}

/// One event to print.
#[derive(Debug)]
pub(crate) struct PrintedEvent<'a> {
    pub(crate) time: Timestamp,
    pub(crate) verb: Verb,
    pub(crate) shown: &'a ShownKind,
    pub(crate) namespace: Option<&'a str>,
    pub(crate) name: &'a str,
    /// The object as JSON.
    pub(crate) object: &'a [u8],
    /// Previous state, for updates.
    pub(crate) old: Option<&'a [u8]>,
}

/// Prints events to a writer.
pub(crate) struct Printer<W> {
    format: Format,
    zone: TimeZone,
    /// Columns of the only kind; `None` with several kinds.
    single_kind: Option<&'static [Column]>,
    table: Table,
    out: W,
}

/// Width of the changes in a comment.
const COMMENT_CHANGES_WIDTH: usize = 200;

/// Which namespaces are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Namespaces {
    /// All namespaces, or a kind without namespaces.
    All,
    /// A single one; its name is the same in all rows.
    One,
}

impl<W: Write> Printer<W> {
    /// Creates a printer. `screen` returns the size of the terminal, if there is one.
    pub(crate) fn new(
        format: Format,
        kinds: &[ShownKind],
        namespaces: Namespaces,
        zone: TimeZone,
        screen: impl Fn() -> Option<Screen> + Send + 'static,
        out: W,
    ) -> Self {
        // Several objects of one kind may be named.
        let single_kind = match kinds {
            [one, others @ ..] if others.iter().all(|other| other == one) => {
                Some(columns::columns(&one.group, &one.kind))
            }
            _ => None,
        };
        let columns = table_columns(format, single_kind, namespaces);
        let is_fitted = format == Format::Table;
        let table = Table::new(columns, move || screen().filter(|_| is_fitted));
        Self { format, zone, single_kind, table, out }
    }

    /// Prints an event; tables may buffer it until [`Printer::flush`].
    pub(crate) fn print(&mut self, event: &PrintedEvent<'_>) -> io::Result<()> {
        let text = match self.format {
            Format::Table | Format::Wide => {
                let row = self.row(event);
                self.table.row(row)
            }
            Format::Json => json_line(event),
            Format::Yaml => self.yaml(event),
            Format::Name => {
                format!("{}\n", escape::escape(&format!("{}/{}", event.shown.singular, event.name)))
            }
        };
        self.write(&text)
    }

    /// Prints buffered rows.
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

    fn row(&self, event: &PrintedEvent<'_>) -> Vec<Cell> {
        let object = event.value();
        let verb_style = event.verb.style();
        let time = event.time.to_zoned(self.zone.clone()).strftime("%H:%M:%S").to_string();
        let mut row =
            vec![Cell::styled(&time, Style::new().dimmed()), Cell::styled(event.verb.word(), verb_style)];
        let columns = self.single_kind.unwrap_or_else(|| {
            row.push(Cell::new(&event.shown.resource));
            columns::columns(&event.shown.group, &event.shown.kind)
        });
        row.extend([
            Cell::new(event.namespace.unwrap_or("-")),
            Cell::styled(event.name, Style::new().bold()),
        ]);
        let cells = columns::cells(columns, &object, event.time);
        if self.single_kind.is_some() {
            row.extend(cells.iter().map(|cell| Cell::styled(cell, tone(cell))));
        } else {
            row.push(Cell::phrases(&columns::phrases(columns, &cells)));
        }
        if self.format == Format::Wide {
            row.extend([Cell::new(&labels(&object)), Cell::new(text(&object, "/metadata/uid"))]);
        }
        row.push(Cell::changes(event.changes(&object)));
        row
    }

    fn yaml(&self, event: &PrintedEvent<'_>) -> String {
        let object = event.value();
        let time = event.time.to_zoned(self.zone.clone()).strftime("%H:%M:%S").to_string();
        let namespace_prefix = event.namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default();
        let mut head = format!(
            "# {time} {} {} {namespace_prefix}{}",
            event.verb.word(),
            event.shown.resource,
            event.name
        );
        let changes = change_line::line(&event.changes(&object), COMMENT_CHANGES_WIDTH);
        if !changes.is_empty() {
            head = format!("{head}: {changes}");
        }
        let body = to_yaml(&event.redacted(object));
        format!("---\n{}\n{body}", escape::escape(&head))
    }
}

impl PrintedEvent<'_> {
    fn value(&self) -> Value {
        serde_json::from_slice(self.object).unwrap_or_default()
    }

    /// Redacts the object if it is a secret.
    fn redacted(&self, mut object: Value) -> Value {
        if redact::is_secret(&self.shown.kind) {
            redact::redact(&mut object);
        }
        object
    }

    fn changes(&self, object: &Value) -> Vec<change::Change> {
        let Some(old) = self.old.filter(|_| self.verb == Verb::Updated) else { return Vec::new() };
        let old: Value = serde_json::from_slice(old).unwrap_or_default();
        change::changes(&old, object, redact::is_secret(&self.shown.kind))
    }
}

/// Returns the columns of the table. The time is less important than the columns that identify an object.
fn table_columns(
    format: Format,
    single_kind: Option<&'static [Column]>,
    namespaces: Namespaces,
) -> Vec<TableColumn> {
    let column =
        |title: &'static str, reserved, sizing| TableColumn { title: Cow::Borrowed(title), reserved, sizing };
    let mut columns = vec![
        column("TIME", 0, Sizing::whole(30)),
        column("TYPE", Verb::Updated.word().len(), Sizing::whole(1)),
    ];
    if single_kind.is_none() {
        columns.push(column("RESOURCE", 0, Sizing::flexible(2, 8, 16)));
    }
    let importance = if namespaces == Namespaces::All { 4 } else { 100 };
    let name = Sizing { ellipsis: Ellipsis::Middle, ..Sizing::flexible(0, 14, 30) };
    columns.extend([column("NAMESPACE", 0, Sizing::flexible(importance, 8, 14)), column("NAME", 0, name)]);
    match single_kind {
        Some(kind) => {
            let kind = kind.iter().enumerate();
            columns.extend(kind.map(|(position, one)| column(one.title, one.width, one.sizing(position))));
        }
        None => columns.push(column("STATE", 0, Sizing::flexible(columns::FIRST_COLUMN, 12, 24))),
    }
    if format == Format::Wide {
        columns.extend([column("LABELS", 0, Sizing::whole(101)), column("UID", 0, Sizing::whole(102))]);
    }
    columns.push(column("CHANGES", REST, Sizing::flexible(5, 12, 24)));
    columns
}

fn json_line(event: &PrintedEvent<'_>) -> String {
    let object = event.value();
    let changes = event.changes(&object).into_iter();
    let changes: Vec<Value> =
        changes.map(|one| json!({"path": one.path, "old": one.old, "new": one.new})).collect();
    let line = json!({
        "time": event.time.to_string(),
        "type": event.verb.word(),
        "resource": event.shown.resource,
        "object": event.redacted(object),
        "changes": changes,
    });
    format!("{}\n", escape::escape_json(&line.to_string()))
}

/// Formats the object as YAML. If the text would contain dangerous characters, uses JSON, which is valid YAML too.
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

/// Returns the color of an important word.
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
#[cfg(test)]
mod width_tests;
