//! Renders the columns of the tables in which Kubernetes shows objects.
//!
//! `columns.txt` lists the columns of each kind. Where it names a field, the description is copied from the
//! `OpenAPI` documents; a field without a description is an error. This file does not know how cells are
//! filled.

use std::collections::BTreeMap;

use super::GENERATED;
use super::layout::{Row, table, text};
use super::types::Types;

/// The columns of all kinds.
const INPUT: &str = include_str!("columns.txt");

/// Columns that nearly every kind has: name, type and description. Each is rendered as a constant.
const COMMON_COLUMNS: &[[&str; 3]] = &[
    ["Name", "string name", "= meta.v1.ObjectMeta.name"],
    ["Age", "string", "= meta.v1.ObjectMeta.creationTimestamp"],
];

pub(super) fn render(types: &Types, version: &str) -> Result<String, String> {
    render_input(INPUT, types, version)
}

fn render_input(input: &str, types: &Types, version: &str) -> Result<String, String> {
    let mut common = String::new();
    for [name, kind, description] in COMMON_COLUMNS {
        let column = column(name, kind, description, types)?;
        common.extend([format!("/// The column `{name}`, which nearly every kind has.\n#[rustfmt::skip]\n")]);
        common.extend([format!("const {}: Column = {column};\n\n", name.to_uppercase())]);
    }
    let rows: Vec<Row> = tables(input, types)?
        .into_iter()
        .map(|([group, kind], columns)| Row::new(format!("table({group:?}, {kind:?}, &["), columns, "])"))
        .collect();
    Ok(format!(
        "{GENERATED}\n\
         //! The table columns of Kubernetes {version}, sorted by group and kind.\n\
         \n\
         use crate::shapes::{{Column, Table, column, table}};\n\
         \n\
         {common}\
         /// The columns of all kinds, sorted by group and kind.\n\
         ///\n\
         /// The row `default` applies to built-in kinds without a row of their own, the row `custom` to custom\n\
         /// resources whose definition declares no columns.\n\
         {}",
        table("pub static TABLES: &[Table]", &rows)
    ))
}

/// Rendered columns by group and kind.
type Tables = BTreeMap<[String; 2], Vec<String>>;

fn tables(input: &str, types: &Types) -> Result<Tables, String> {
    let mut tables = Tables::new();
    let mut kinds: Vec<[String; 2]> = Vec::new();
    let lines = input.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    for line in lines {
        if line.starts_with('[') {
            kinds = header(line);
            for kind in &kinds {
                if tables.insert(kind.clone(), Vec::new()).is_some() {
                    return Err(format!("columns.txt: {line}: duplicate section"));
                }
            }
            continue;
        }
        let column = line_column(line, types).map_err(|reason| format!("columns.txt: {line}: {reason}"))?;
        for kind in &kinds {
            tables.entry(kind.clone()).or_default().push(column.clone());
        }
    }
    Ok(tables)
}

/// Parses a header such as `[apps/Deployment] [Pod]` to groups and kinds.
fn header(line: &str) -> Vec<[String; 2]> {
    let names = line.split_whitespace().map(|name| name.trim_matches(['[', ']']));
    names
        .map(|name| name.rsplit_once('/').unwrap_or(("", name)))
        .map(|(group, kind)| [group.into(), kind.into()])
        .collect()
}

fn line_column(line: &str, types: &Types) -> Result<String, String> {
    if COMMON_COLUMNS.iter().any(|[name, ..]| *name == line) {
        return Ok(line.to_uppercase());
    }
    let mut parts = line.splitn(3, '|').map(str::trim);
    let (Some(name), Some(kind), Some(description)) = (parts.next(), parts.next(), parts.next()) else {
        return Err("is not a column".to_owned());
    };
    column(name, kind, description, types)
}

fn column(name: &str, kind: &str, description: &str, types: &Types) -> Result<String, String> {
    let mut words: Vec<&str> = kind.split(' ').collect();
    let wide = words.last() == Some(&"wide");
    if wide {
        words.pop();
    }
    let (kind, format) = match words.as_slice() {
        [kind] => (*kind, ""),
        [kind, format] => (*kind, *format),
        _ => return Err(format!("has the unknown type `{kind}`")),
    };
    let description = match description.strip_prefix("= ") {
        Some(field) => described(field, types)?,
        None => description.replace("\\n", "\n"),
    };
    let format = if format.is_empty() { String::new() } else { format!(".format({format:?})") };
    let wide = if wide { ".wide()" } else { "" };
    Ok(format!("column({}, {}, {}){format}{wide}", text(name), text(kind), text(&description)))
}

/// Returns the description of a field such as `core.v1.PodSpec.nodeName`.
fn described(field: &str, types: &Types) -> Result<String, String> {
    let (name, field) = field.rsplit_once('.').ok_or("does not name a field")?;
    let package = if name.starts_with("meta.") { "io.k8s.apimachinery.pkg.apis" } else { "io.k8s.api" };
    let found = types.description(&format!("{package}.{name}"), field);
    found.map(str::to_owned).ok_or_else(|| format!("no description of `{field}` in `{name}`"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn types() -> Types {
        let described = |text: &str| json!({"type": "string", "description": text});
        let meta = json!({"properties": {"name": described("its name"), "creationTimestamp": described("its time")}});
        let spec = json!({"properties": {"nodeName": described("where it \"runs\"")}});
        let schemas = json!({
            "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta": meta,
            "io.k8s.api.core.v1.PodSpec": spec,
        });
        Types::read(&[json!({"components": {"schemas": schemas}})])
    }

    #[test]
    fn columns_are_rendered_with_descriptions() {
        let input = "# comment\n[Pod] [a/Pod]\nName\nNode | string wide | = core.v1.PodSpec.nodeName\nN | integer | one\\ntwo\n";
        let text = render_input(input, &types(), "1.36").unwrap();
        let lines = [
            r#"const AGE: Column = column("Age", "string", "its time");"#,
            r#"const NAME: Column = column("Name", "string", "its name").format("name");"#,
            r#"    column("N", "integer", "one\ntwo"),"#,
            r#"    column("Node", "string", "where it \"runs\"").wide(),"#,
            "    NAME,",
        ];
        for line in lines {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert!(text.find(r#"table("", "#) < text.find(r#"table("a", "#), "{text}");
    }

    #[test]
    fn invalid_input_is_an_error() {
        let error = |input: &str| render_input(input, &types(), "1.36").unwrap_err();
        assert!(error("[A]\nB | string").contains("is not a column"));
        assert!(error("[A]\nB | a b c | d").contains("has the unknown type"));
        assert!(error("[A]\nB | string | = core.v1.PodSpec.host").contains("no description of `host`"));
        assert!(error("[A]\n[A]").contains("duplicate section"));
    }

    #[test]
    fn input_contains_most_kinds() {
        let count = INPUT.lines().filter(|line| line.starts_with('[')).count();
        assert!(count > 60, "{count}");
    }
}
