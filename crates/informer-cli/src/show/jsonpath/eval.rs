//! Evaluation of `JSONPath` templates. The recursion is as deep as the template and the object, both of which are
//! limited.

use super::{Comparison, Filter, JsonPath, Operand, Part, Selector, Step, text};
use crate::show::escape::escape_text;
use serde_json::Value;
use std::cmp::Ordering;

/// Appends the text of a template.
pub(super) fn render(parts: &[Part], object: &Value, out: &mut String) {
    for part in parts {
        match part {
            Part::Text(text) => out.push_str(text),
            Part::Values(path) => {
                let values: Vec<String> = path
                    .select(object)
                    .into_iter()
                    .map(|value| escape_text(&text(value)).into_owned())
                    .collect();
                out.push_str(&values.join(" "));
            }
            Part::Range { over, body } => {
                for item in over.select(object) {
                    render(body, item, out);
                }
            }
        }
    }
}

/// Returns the values that these steps select.
pub(super) fn select<'a>(steps: &[Step], object: &'a Value) -> Vec<&'a Value> {
    let mut values = vec![object];
    for step in steps {
        values = values.into_iter().flat_map(|value| step.apply(value)).collect();
    }
    values
}

impl Step {
    fn apply<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match self {
            Self::Select(selectors) => selectors.iter().flat_map(|selector| selector.apply(value)).collect(),
            Self::Children => children(value).collect(),
            Self::Descendants => {
                let mut found = Vec::new();
                descend(value, &mut found);
                found
            }
            Self::Filter(filter) => match value {
                Value::Array(items) => items.iter().filter(|item| filter.matches(item)).collect(),
                _ => Vec::new(),
            },
        }
    }
}

impl Selector {
    fn apply<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match self {
            Self::Field(name) => value.get(name).into_iter().collect(),
            Self::FieldOrPath(name, path) => {
                let nested = || path.iter().try_fold(value, |value, field| value.get(field));
                value.get(name).or_else(nested).into_iter().collect()
            }
            Self::Index(index) => {
                let Value::Array(items) = value else { return Vec::new() };
                let index = if *index < 0 { from_end(items, *index) } else { usize::try_from(*index).ok() };
                index.and_then(|index| items.get(index)).into_iter().collect()
            }
            Self::Slice { start, end, step } => {
                let Value::Array(items) = value else { return Vec::new() };
                let bound = |bound: i64| {
                    let index = if bound < 0 { from_end(items, bound).unwrap_or(0) } else { clamp(bound) };
                    index.min(items.len())
                };
                let (start, end) = (start.map_or(0, bound), end.map_or(items.len(), bound));
                items.get(start..end).unwrap_or_default().iter().step_by(*step).collect()
            }
        }
    }
}

/// Returns the index of an item counted from the end of a list.
fn from_end(items: &[Value], index: i64) -> Option<usize> {
    items.len().checked_sub(usize::try_from(index.unsigned_abs()).ok()?)
}

fn clamp(index: i64) -> usize {
    usize::try_from(index).unwrap_or(usize::MAX)
}

fn children(value: &Value) -> Box<dyn Iterator<Item = &Value> + '_> {
    match value {
        Value::Array(items) => Box::new(items.iter()),
        Value::Object(fields) => Box::new(fields.values()),
        _ => Box::new(std::iter::empty()),
    }
}

/// Collects a value and the values inside it that have children.
fn descend<'a>(value: &'a Value, found: &mut Vec<&'a Value>) {
    let mut inside = children(value).peekable();
    if inside.peek().is_some() {
        found.push(value);
        inside.for_each(|child| descend(child, found));
    }
}

impl Filter {
    fn matches(&self, item: &Value) -> bool {
        let left = self.left.values(item);
        let Some((comparison, right)) = &self.comparison else { return !left.is_empty() };
        let right = right.values(item);
        left.iter().any(|left| right.iter().any(|right| comparison.holds(left, right)))
    }
}

impl Operand {
    fn values<'a>(&'a self, item: &'a Value) -> Vec<&'a Value> {
        match self {
            Self::Path(JsonPath { steps }) => select(steps, item),
            Self::Literal(value) => vec![value],
        }
    }
}

impl Comparison {
    fn holds(self, left: &Value, right: &Value) -> bool {
        let order = match (left, right) {
            (Value::Number(left), Value::Number(right)) => {
                left.as_f64().zip(right.as_f64()).and_then(|(left, right)| left.partial_cmp(&right))
            }
            (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
            (left, right) => (left == right).then_some(Ordering::Equal),
        };
        match self {
            Self::Equal => order == Some(Ordering::Equal),
            Self::NotEqual => order != Some(Ordering::Equal),
            Self::Less => order == Some(Ordering::Less),
            Self::LessOrEqual => order.is_some_and(Ordering::is_le),
            Self::Greater => order == Some(Ordering::Greater),
            Self::GreaterOrEqual => order.is_some_and(Ordering::is_ge),
        }
    }
}
