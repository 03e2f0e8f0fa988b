//! Formats the current objects, as `kubectl get` does: one table for each kind, or a list as JSON or YAML.
//!
//! Like the printer of events, this module prints no control character and no value of a secret.

use super::columns;
use super::format::Format;
use super::layout::{Ellipsis, Screen, Sizing};
use super::table::{Cell, Table, TableColumn};
use super::{Namespaces, ShownKind, escape, labels, redact, text, to_yaml, tone};
use anstyle::Style;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::borrow::Cow;

/// The objects of one kind, as JSON.
pub(crate) struct KindObjects {
    pub(crate) shown: ShownKind,
    /// In the order of their namespaces and names.
    pub(crate) objects: Vec<Value>,
}

/// How objects are formatted.
pub(crate) struct Listing {
    pub(crate) format: Format,
    pub(crate) namespaces: Namespaces,
    /// Whether one object of one namespace was requested by its name; it is then not part of a list.
    pub(crate) is_single: bool,
    /// Whether the table is redrawn in place, so that rare values should not move its columns.
    pub(crate) live: bool,
    pub(crate) headers: Headers,
}

/// Whether tables have titles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Headers {
    #[default]
    Shown,
    Hidden,
}

impl Listing {
    /// Formats the objects. Tables are fitted to the screen.
    pub(crate) fn render(
        &self,
        mut kinds: Vec<KindObjects>,
        now: Timestamp,
        screen: Option<Screen>,
    ) -> String {
        kinds.iter_mut().for_each(redact_secrets);
        match self.format {
            Format::Table | Format::Wide => {
                let with_prefix = kinds.len() > 1;
                let shown = kinds.iter().filter(|kind| !kind.objects.is_empty());
                let tables = shown.map(|kind| self.titled(self.table(kind, with_prefix, now, screen)));
                tables.collect::<Vec<_>>().join(if self.headers == Headers::Shown { "\n" } else { "" })
            }
            Format::Name => kinds.iter().flat_map(names).collect(),
            Format::Json => format!("{}\n", pretty(&self.value(kinds))),
            Format::Yaml => to_yaml(&self.value(kinds)),
        }
    }

    /// Removes the titles of a table, unless they are wanted.
    fn titled(&self, table: String) -> String {
        match table.split_once('\n') {
            Some((_, rows)) if self.headers == Headers::Hidden => rows.to_owned(),
            _ => table,
        }
    }

    /// Returns the single object, or a list of all objects.
    fn value(&self, kinds: Vec<KindObjects>) -> Value {
        let mut objects: Vec<Value> = kinds.into_iter().flat_map(|kind| kind.objects).collect();
        if self.is_single
            && objects.len() == 1
            && let Some(object) = objects.pop()
        {
            return object;
        }
        json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": objects})
    }

    /// Formats the objects of one kind as a table; their names may have the kind as a prefix.
    pub(super) fn table(
        &self,
        kind: &KindObjects,
        with_prefix: bool,
        now: Timestamp,
        screen: Option<Screen>,
    ) -> String {
        let with_namespace = self.namespaces == Namespaces::All && kind.objects.iter().any(has_namespace);
        let columns = columns::columns(&kind.shown.group, &kind.shown.kind);
        let row = |object: &Value| {
            let name = text(object, "/metadata/name");
            let name = if with_prefix { format!("{}/{name}", kind.shown.singular) } else { name.to_owned() };
            let mut row = Vec::new();
            if with_namespace {
                row.push(Cell::new(text(object, "/metadata/namespace")));
            }
            row.push(Cell::styled(&name, Style::new().bold()));
            let cells = columns::cells(columns, object, now);
            row.extend(cells.iter().map(|cell| Cell::styled(cell, tone(cell))));
            if self.format == Format::Wide {
                row.extend([Cell::new(&labels(object)), Cell::new(text(object, "/metadata/uid"))]);
            }
            row
        };
        let rows = kind.objects.iter().map(row).collect();
        let screen = screen.filter(|_| self.format == Format::Table);
        Table::complete(self.columns(columns, with_namespace), rows, screen)
    }

    fn columns(&self, kind: &'static [columns::Column], with_namespace: bool) -> Vec<TableColumn> {
        let name = Sizing { ellipsis: Ellipsis::Middle, ..Sizing::flexible(0, 14, 60) };
        let column = |title: &'static str, reserved, sizing| TableColumn {
            title: Cow::Borrowed(title),
            reserved,
            sizing,
        };
        let mut columns = vec![column("NAME", 0, name)];
        if with_namespace {
            columns.insert(0, column("NAMESPACE", 0, Sizing::flexible(4, 8, 14)));
        }
        columns.extend(kind.iter().enumerate().map(|(position, one)| {
            column(one.title, if self.live { one.width } else { 0 }, one.sizing(position))
        }));
        if self.format == Format::Wide {
            columns.extend([column("LABELS", 0, Sizing::whole(101)), column("UID", 0, Sizing::whole(102))]);
        }
        columns
    }
}

/// Redacts the objects if they are secrets.
pub(super) fn redact_secrets(kind: &mut KindObjects) {
    if redact::is_secret(&kind.shown.kind) {
        kind.objects.iter_mut().for_each(redact::redact);
    }
}

fn has_namespace(object: &Value) -> bool {
    object.pointer("/metadata/namespace").is_some()
}

fn names(kind: &KindObjects) -> Vec<String> {
    let name = |object| format!("{}/{}", kind.shown.singular, text(object, "/metadata/name"));
    kind.objects.iter().map(|object| format!("{}\n", escape::escape(&name(object)))).collect()
}

/// Formats JSON with an indentation of four spaces, as kubectl does.
fn pretty(value: &Value) -> String {
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    // Line breaks inside strings are escaped, so that each line starts with its indentation of two spaces per level.
    let indented = |line: &str| {
        let indent = line.len() - line.trim_start_matches(' ').len();
        format!("{:indent$}{}", "", escape::escape_json(line))
    };
    text.lines().map(indented).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum as _;

    fn kind(name: &str) -> ShownKind {
        ShownKind {
            group: String::new(),
            kind: name.to_owned(),
            resource: format!("{}s", name.to_lowercase()),
            singular: name.to_lowercase(),
        }
    }

    fn pod(namespace: &str, name: &str, created: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"namespace": namespace, "name": name, "creationTimestamp": created},
            "spec": {"nodeName": "node-1", "containers": [{"name": "app"}]},
            "status": {"phase": "Running"},
        })
    }

    fn pods() -> KindObjects {
        let objects = vec![
            pod("data", "db-0", "2024-01-01T11:00:00Z"),
            pod("shop", "web-10", "2024-01-01T10:00:00Z"),
            pod("shop", "web-9", "2024-01-01T11:59:30Z"),
        ];
        KindObjects { shown: kind("Pod"), objects }
    }

    fn secrets() -> KindObjects {
        let secret = json!({"kind": "Secret", "metadata": {"namespace": "shop", "name": "key"}, "data": {"a": "hunter2"}});
        KindObjects { shown: kind("Secret"), objects: vec![secret] }
    }

    fn rendered(format: Format, kinds: Vec<KindObjects>) -> String {
        render(&listing(format), kinds)
    }

    fn rendered_as(is_single: bool, format: Format, kinds: Vec<KindObjects>) -> String {
        render(&Listing { is_single, ..listing(format) }, kinds)
    }

    fn listing(format: Format) -> Listing {
        Listing {
            format,
            namespaces: Namespaces::All,
            is_single: false,
            live: false,
            headers: Headers::Shown,
        }
    }

    fn render(listing: &Listing, kinds: Vec<KindObjects>) -> String {
        let text = listing.render(kinds, "2024-01-01T12:00:00Z".parse().unwrap(), None);
        anstream::adapter::strip_str(&text).to_string()
    }

    #[test]
    fn tables_without_headers_have_rows_only() {
        let listing = Listing { headers: Headers::Hidden, ..listing(Format::Table) };
        let table = render(&listing, vec![pods(), secrets()]);
        assert_eq!(table.lines().count(), 4, "{table}");
        assert!(table.starts_with("data ") && !table.contains("NAME"), "{table}");
    }

    #[test]
    fn table_has_no_event_columns() {
        assert_eq!(
            rendered(Format::Table, vec![pods()]),
            "\
NAMESPACE   NAME     STATUS    READY   RESTARTS   AGE    NODE
data        db-0     Running   0/1     0          60m    node-1
shop        web-10   Running   0/1     0          120m   node-1
shop        web-9    Running   0/1     0          30s    node-1
"
        );
    }

    #[test]
    fn several_kinds_have_a_table_each() {
        let text = rendered(Format::Table, vec![pods(), secrets()]);
        let tables: Vec<&str> = text.split("\n\n").collect();
        assert_eq!(tables.len(), 2, "{text}");
        assert!(tables[0].contains("pod/web-9") && tables[1].contains("secret/key"), "{text}");
    }

    #[test]
    fn names_match_kubectl() {
        assert_eq!(rendered(Format::Name, vec![pods()]), "pod/db-0\npod/web-10\npod/web-9\n");
    }

    #[test]
    fn json_is_a_list_or_a_single_object() {
        let text = rendered(Format::Json, vec![pods()]);
        assert!(text.starts_with("{\n    \"apiVersion\": \"v1\",\n    \"items\": [\n        {\n"), "{text}");
        let list: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&list["kind"], list["items"].as_array().map(Vec::len)), (&json!("List"), Some(3)));
        let yaml: Value = serde_saphyr::from_str(&rendered(Format::Yaml, vec![pods()])).unwrap();
        assert_eq!(yaml, list);
        let one = KindObjects { objects: vec![pod("shop", "web\u{1b}-0", "")], ..pods() };
        let text = rendered_as(true, Format::Json, vec![one]);
        assert!(!text.contains('\u{1b}'), "{text}");
        let object: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(object["metadata"]["name"], "web\u{1b}-0");
    }

    #[test]
    fn no_format_prints_secret_values() {
        for format in Format::value_variants() {
            for is_single in [false, true] {
                let text = rendered_as(is_single, *format, vec![secrets()]);
                assert!(!text.is_empty() && !text.contains("hunter2"), "{format:?}: {text}");
            }
        }
    }
}
