//! Output formats of the command line.

use super::jsonpath::{JsonPath, Template};
use clap::builder::{PossibleValue, TypedValueParser};
use std::ffi::OsStr;
use std::str::FromStr;

/// Output format.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Format {
    Table,
    Wide,
    Json,
    Yaml,
    Name,
    JsonPath(Template),
    CustomColumns(Vec<CustomColumn>),
}

/// A column of the user: `NAME:.metadata.name`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CustomColumn {
    pub(crate) title: String,
    pub(crate) path: JsonPath,
}

const VALUES: &[(&str, &str)] = &[
    ("table", "Aligned columns, a few for each kind, fitted to the width of the terminal"),
    ("wide", "Like table, with labels and uids; never shortened to the width of the terminal"),
    ("json", "JSON; watch prints one line per event: time, type, resource, object, changes"),
    ("yaml", "YAML; watch prints one document per event"),
    ("name", "Names as in kubectl -o name: pod/web-0"),
    ("jsonpath=", "Template as in kubectl: jsonpath='{.items[*].metadata.name}'; watch: one object each"),
    ("custom-columns=", "Columns as in kubectl: custom-columns=NAME:.metadata.name,NODE:.spec.nodeName"),
];

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            None if text == "table" => Ok(Self::Table),
            None if text == "wide" => Ok(Self::Wide),
            None if text == "json" => Ok(Self::Json),
            None if text == "yaml" => Ok(Self::Yaml),
            None if text == "name" => Ok(Self::Name),
            Some(("jsonpath", template)) if !template.is_empty() => {
                template.parse().map(Self::JsonPath).map_err(|error| error.to_string())
            }
            Some(("custom-columns", columns)) if !columns.is_empty() => {
                columns_of(columns).map(Self::CustomColumns)
            }
            None if text == "jsonpath" => {
                Err("the template is missing: jsonpath='{.metadata.name}'".to_owned())
            }
            None if text == "custom-columns" => {
                Err("the columns are missing: custom-columns=NAME:.metadata.name".to_owned())
            }
            _ => {
                let names: Vec<&str> = VALUES.iter().map(|(name, _)| *name).collect();
                Err(format!("expected one of {}", names.join(", ")))
            }
        }
    }
}

/// Parses columns: titles and paths, separated by commas outside brackets.
fn columns_of(text: &str) -> Result<Vec<CustomColumn>, String> {
    let mut depth = 0_usize;
    let columns = text.split(|letter| {
        match letter {
            '[' | '(' => depth += 1,
            ']' | ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        letter == ',' && depth == 0
    });
    let column = |text: &str| {
        let (title, path) = text
            .split_once(':')
            .filter(|(title, path)| !title.trim().is_empty() && !path.trim().is_empty())
            .ok_or_else(|| format!("column \"{text}\": expected TITLE:PATH"))?;
        let path = path.parse().map_err(|error| format!("column {title}: {error}"))?;
        Ok(CustomColumn { title: title.trim().to_owned(), path })
    };
    columns.map(column).collect()
}

/// Parses a format and lists the formats for help and completions.
#[derive(Debug, Clone)]
pub(crate) struct FormatParser;

impl TypedValueParser for FormatParser {
    type Value = Format;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<Format, clap::Error> {
        clap::builder::StringValueParser::new()
            .try_map(|text| text.parse::<Format>())
            .parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(VALUES.iter().map(|(name, help)| PossibleValue::new(*name).help(*help))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_parsed() {
        for (name, expected) in [("table", Format::Table), ("wide", Format::Wide), ("name", Format::Name)] {
            assert_eq!(name.parse(), Ok(expected));
        }
        assert!(matches!("jsonpath={.a}={.b}".parse(), Ok(Format::JsonPath(_))));
        let columns = "custom-columns=NAME:.metadata.name, X:{.a[0,1]},Y:.b[?(@.c==\"d\")].e".parse();
        let Ok(Format::CustomColumns(columns)) = columns else { panic!("{columns:?}") };
        assert_eq!(columns.iter().map(|column| &column.title).collect::<Vec<_>>(), ["NAME", "X", "Y"]);
    }

    #[test]
    fn invalid_formats_are_errors() {
        for (text, expected) in [
            ("xml", "expected one of table, wide, json, yaml, name, jsonpath=, custom-columns="),
            ("jsonpath", "the template is missing: jsonpath='{.metadata.name}'"),
            ("jsonpath={.a", "character 4: missing '}'"),
            ("custom-columns", "the columns are missing: custom-columns=NAME:.metadata.name"),
            ("custom-columns=NAME", "column \"NAME\": expected TITLE:PATH"),
            ("custom-columns=A:.a,", "column \"\": expected TITLE:PATH"),
            (
                "custom-columns=A:.a[",
                "column A: character 4: expected an index, a quoted name, '*' or '?', found the end",
            ),
        ] {
            assert_eq!(text.parse::<Format>(), Err(expected.to_owned()), "{text}");
        }
    }
}
