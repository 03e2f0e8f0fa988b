//! Formats the current objects, as `kubectl get` does: one table for each kind, or a list as JSON or YAML.
//!
//! Like the printer of events, this module prints no control character and no value of a secret.

use super::columns;
use super::format::{CustomColumn, Format};
use super::jsonpath::{self, JsonPath};
use super::layout::{Ellipsis, Screen, Sizing};
use super::table::{Cell, Table, TableColumn};
use super::{Namespaces, ShownKind, escape, labels, redact, sort, text, to_yaml, tone};
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
    pub(crate) sort_by: Option<JsonPath>,
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
        for kind in &mut kinds {
            self.prepare(kind);
        }
        match &self.format {
            Format::Table | Format::Wide => {
                let with_prefix = kinds.len() > 1;
                let shown = kinds.iter().filter(|kind| !kind.objects.is_empty());
                let tables = shown.map(|kind| self.titled(self.table(kind, with_prefix, now, screen)));
                tables.collect::<Vec<_>>().join(if self.headers == Headers::Shown { "\n" } else { "" })
            }
            Format::CustomColumns(columns) => {
                self.titled(custom_table(columns, kinds.iter().flat_map(|kind| &kind.objects)))
            }
            Format::Name => kinds.iter().flat_map(names).collect(),
            Format::Json => format!("{}\n", pretty(&self.value(kinds))),
            Format::Yaml => to_yaml(&self.value(kinds)),
            Format::JsonPath(template) => template.render(&self.value(kinds)),
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

    /// Redacts secrets and sorts the objects.
    pub(super) fn prepare(&self, kind: &mut KindObjects) {
        if redact::is_secret(&kind.shown.kind) {
            kind.objects.iter_mut().for_each(redact::redact);
        }
        if let Some(path) = &self.sort_by {
            kind.objects.sort_by(|left, right| {
                let value = |object| path.select(object).first().copied();
                sort::compare(value(left), value(right))
            });
        }
    }

    /// Formats the objects of one kind as a table; their names may have the kind as a prefix.
    pub(super) fn table(
        &self,
        kind: &KindObjects,
        with_prefix: bool,
        now: Timestamp,
        screen: Option<Screen>,
    ) -> String {
        if let Format::CustomColumns(columns) = &self.format {
            return custom_table(columns, &kind.objects);
        }
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

fn custom_table<'a>(columns: &[CustomColumn], objects: impl IntoIterator<Item = &'a Value>) -> String {
    let rows = objects.into_iter().map(|object| custom_cells(columns, object)).collect();
    Table::complete(custom_columns(columns), rows, None)
}

/// Returns the cells of an object in the columns of the user.
pub(crate) fn custom_cells(columns: &[CustomColumn], object: &Value) -> Vec<Cell> {
    let cell = |path: &JsonPath| {
        let values: Vec<String> = path.select(object).into_iter().map(jsonpath::text).collect();
        if values.is_empty() { "<none>".to_owned() } else { values.join(",") }
    };
    columns.iter().map(|column| Cell::new(&cell(&column.path))).collect()
}

/// Returns the columns of the user, which are never shortened.
pub(crate) fn custom_columns(columns: &[CustomColumn]) -> Vec<TableColumn> {
    let column = |column: &CustomColumn| TableColumn {
        title: Cow::Owned(escape::escape(&column.title).into_owned()),
        reserved: 0,
        sizing: Sizing::whole(0),
    };
    columns.iter().map(column).collect()
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

    fn rendered(format: &str, sort_by: Option<&str>, kinds: Vec<KindObjects>) -> String {
        rendered_as(false, format, sort_by, kinds)
    }

    fn rendered_as(is_single: bool, format: &str, sort_by: Option<&str>, kinds: Vec<KindObjects>) -> String {
        let sort_by = sort_by.map(|path| path.parse().unwrap());
        render(&Listing { sort_by, is_single, ..listing(format) }, kinds)
    }

    fn listing(format: &str) -> Listing {
        Listing {
            format: format.parse().unwrap(),
            namespaces: Namespaces::All,
            sort_by: None,
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
        let without = |format| {
            let listing = Listing { headers: Headers::Hidden, ..listing(format) };
            render(&listing, vec![pods(), secrets()])
        };
        assert_eq!(without("custom-columns=NAME:.metadata.name"), "db-0\nweb-10\nweb-9\nkey\n");
        let table = without("table");
        assert_eq!(table.lines().count(), 4, "{table}");
        assert!(table.starts_with("data ") && !table.contains("NAME"), "{table}");
    }

    #[test]
    fn table_is_sorted_and_has_no_event_columns() {
        assert_eq!(
            rendered("table", Some(".metadata.name"), vec![pods()]),
            "\
NAMESPACE   NAME     STATUS    READY   RESTARTS   AGE    NODE
data        db-0     Running   0/1     0          60m    node-1
shop        web-9    Running   0/1     0          30s    node-1
shop        web-10   Running   0/1     0          120m   node-1
"
        );
    }

    #[test]
    fn several_kinds_have_a_table_each() {
        let text = rendered("table", None, vec![pods(), secrets()]);
        let tables: Vec<&str> = text.split("\n\n").collect();
        assert_eq!(tables.len(), 2, "{text}");
        assert!(tables[0].contains("pod/web-9") && tables[1].contains("secret/key"), "{text}");
    }

    #[test]
    fn templates_and_columns_match_kubectl() {
        assert_eq!(
            rendered(
                "jsonpath={.items[*].metadata.name}",
                Some("{.metadata.creationTimestamp}"),
                vec![pods()]
            ),
            "web-10 db-0 web-9"
        );
        assert_eq!(
            rendered("custom-columns=NAME:.metadata.name,IP:.status.podIP", None, vec![pods()]),
            "NAME     IP\ndb-0     <none>\nweb-10   <none>\nweb-9    <none>\n"
        );
        assert_eq!(rendered("name", None, vec![pods()]), "pod/db-0\npod/web-10\npod/web-9\n");
    }

    #[test]
    fn json_is_a_list_or_a_single_object() {
        let text = rendered("json", None, vec![pods()]);
        assert!(text.starts_with("{\n    \"apiVersion\": \"v1\",\n    \"items\": [\n        {\n"), "{text}");
        let list: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&list["kind"], list["items"].as_array().map(Vec::len)), (&json!("List"), Some(3)));
        let yaml: Value = serde_saphyr::from_str(&rendered("yaml", None, vec![pods()])).unwrap();
        assert_eq!(yaml, list);
        let one = KindObjects { objects: vec![pod("shop", "web\u{1b}-0", "")], ..pods() };
        let text = rendered_as(true, "json", None, vec![one]);
        assert!(!text.contains('\u{1b}'), "{text}");
        let object: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(object["metadata"]["name"], "web\u{1b}-0");
    }

    #[test]
    fn no_format_prints_secret_values() {
        for format in [
            "table",
            "wide",
            "json",
            "yaml",
            "name",
            "jsonpath={..a}{.data.a}{.}",
            "custom-columns=A:.data.a",
        ] {
            for is_single in [false, true] {
                let text = rendered_as(is_single, format, Some(".data.a"), vec![secrets()]);
                assert!(!text.is_empty() && !text.contains("hunter2"), "{format}: {text}");
            }
        }
    }
}
