//! Field selectors as kube-apiserver parses them, and the complete filter of a list or a watch.
//!
//! A field selector is checked against the selectable fields of its resource when it is parsed, so matching
//! cannot fail. Values are read when a state is stored, not when it is matched.

use informer_objects::status::Status;

use super::resource::Resource;
use super::selector::LabelSelector;
use super::shard_selector::ShardSelector;
use super::state::State;

/// The objects that a list or a watch includes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filter {
    /// Empty for all namespaces and for cluster-scoped resources.
    pub(crate) namespace: String,
    labels: LabelSelector,
    fields: Vec<FieldTest>,
    shard: Option<ShardSelector>,
}

/// The texts of the selectors of a request, empty if there are none.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Selectors<'a> {
    pub(crate) labels: &'a str,
    pub(crate) fields: &'a str,
    pub(crate) shard: &'a str,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct FieldTest {
    operand: Operand,
    value: String,
    equal: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operand {
    Name,
    Namespace,
    /// Index into the resource's selectable fields.
    Field(usize),
}

impl Filter {
    /// Returns a filter for a namespace, or for all if `namespace` is empty.
    pub(crate) fn namespace(namespace: &str) -> Self {
        Filter { namespace: namespace.to_owned(), ..Filter::default() }
    }

    /// Parses the selectors of a request.
    pub(crate) fn parse(
        resource: &Resource,
        namespace: &str,
        selectors: Selectors<'_>,
    ) -> Result<Self, Status> {
        let Selectors { labels, fields, shard } = selectors;
        let shard = (!shard.is_empty()).then(|| ShardSelector::parse(shard)).transpose();
        Ok(Filter {
            namespace: namespace.to_owned(),
            labels: LabelSelector::parse(labels).map_err(Status::bad_request)?,
            fields: parse_fields(resource, fields).map_err(Status::bad_request)?,
            shard: shard.map_err(Status::internal)?,
        })
    }

    /// Returns the shard selector.
    pub(crate) fn shard(&self) -> Option<&ShardSelector> {
        self.shard.as_ref()
    }

    /// Returns the filter without its shard selector.
    pub(crate) fn without_shard(&self) -> Self {
        Filter { shard: None, ..self.clone() }
    }

    /// Returns whether the filter has a label selector or a field selector.
    pub(crate) fn has_selector(&self) -> bool {
        !self.labels.is_empty() || !self.fields.is_empty()
    }

    pub(crate) fn matches(&self, state: &State) -> bool {
        (self.namespace.is_empty() || self.namespace == state.namespace)
            && self.labels.matches(&state.labels)
            && self.fields.iter().all(|test| test.holds(state))
            && self.shard.as_ref().is_none_or(|shard| shard.matches(state))
    }
}

impl FieldTest {
    fn holds(&self, state: &State) -> bool {
        let value = match self.operand {
            Operand::Name => state.name.as_str(),
            Operand::Namespace => state.namespace.as_str(),
            Operand::Field(index) => state.fields.get(index).map_or("", String::as_str),
        };
        (value == self.value) == self.equal
    }
}

fn parse_fields(resource: &Resource, text: &str) -> Result<Vec<FieldTest>, String> {
    let mut tests = Vec::new();
    for term in split_terms(text) {
        if term.is_empty() {
            continue;
        }
        let (name, value, equal) = split_term(term)
            .ok_or_else(|| format!("invalid selector: '{text}'; can't understand '{term}'"))?;
        let value = unescape(value)?;
        tests.push(FieldTest { operand: parse_operand(resource, name)?, value, equal });
    }
    Ok(tests)
}

/// Returns the name in the first `metadata.name=` term of a field selector; `None` if there is no such term
/// or the selector is invalid.
pub(crate) fn selected_name(text: &str) -> Option<String> {
    let mut name = None;
    for term in split_terms(text).into_iter().filter(|term| !term.is_empty()) {
        let (field, value, equal) = split_term(term)?;
        let value = unescape(value).ok()?;
        if equal && field == "metadata.name" && name.is_none() {
            name = Some(value);
        }
    }
    name
}

fn parse_operand(resource: &Resource, name: &str) -> Result<Operand, String> {
    match name {
        "metadata.name" => return Ok(Operand::Name),
        // Not supported by cluster-scoped kinds that are custom or have selectable fields; empty for other
        // cluster-scoped kinds.
        "metadata.namespace" if resource.namespaced || resource.fields.is_empty() && !resource.custom => {
            return Ok(Operand::Namespace);
        }
        _ => {}
    }
    if let Some(index) = resource.fields.iter().position(|field| field.name == name) {
        return Ok(Operand::Field(index));
    }
    Err(resource.unknown_field(name))
}

/// Splits at commas that are not escaped.
fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (at, symbol) in text.char_indices() {
        if escaped {
            escaped = false;
        } else if symbol == '\\' {
            escaped = true;
        } else if symbol == ',' {
            terms.push(&text[start..at]);
            start = at + 1;
        }
    }
    terms.push(&text[start..]);
    terms
}

fn split_term(term: &str) -> Option<(&str, &str, bool)> {
    let at = term.find(['=', '!'])?;
    let (name, rest) = term.split_at(at);
    for (operator, equal) in [("!=", false), ("==", true), ("=", true)] {
        if let Some(value) = rest.strip_prefix(operator) {
            return Some((name, value, equal));
        }
    }
    None
}

fn unescape(value: &str) -> Result<String, String> {
    let mut out = String::with_capacity(value.len());
    let mut symbols = value.chars();
    while let Some(symbol) = symbols.next() {
        if matches!(symbol, ',' | '=') {
            let code = u32::from(symbol);
            return Err(format!("invalid field selector: unescaped character in value: {code}"));
        }
        if symbol != '\\' {
            out.push(symbol);
            continue;
        }
        match symbols.next() {
            Some(escaped @ ('\\' | ',' | '=')) => out.push(escaped),
            other => {
                let other = other.map(String::from).unwrap_or_default();
                return Err(format!("invalid field selector: invalid escape sequence: \\{other}"));
            }
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::super::kinds::Registry;
    use super::*;

    fn error(plural: &str, fields: &str) -> String {
        let registry = Registry::builtin();
        let resource = registry.get(registry.find("", plural).unwrap()).unwrap();
        Filter::parse(resource, "", Selectors { fields, ..Selectors::default() })
            .map(|_| ())
            .unwrap_err()
            .message
    }

    #[test]
    fn parse_errors_match_kube_apiserver() {
        assert_eq!(
            error("configmaps", "data.v=a"),
            r#""data.v" is not a known field selector: only "metadata.name", "metadata.namespace""#
        );
        assert_eq!(error("pods", "spec.containers=a"), "field label not supported: spec.containers");
        assert_eq!(
            error("configmaps", "metadata.name"),
            "invalid selector: 'metadata.name'; can't understand 'metadata.name'"
        );
        assert_eq!(
            error("configmaps", "metadata.name in (a)"),
            "invalid selector: 'metadata.name in (a)'; can't understand 'metadata.name in (a)'"
        );
        assert_eq!(
            error("configmaps", r"metadata.name=a\b"),
            r"invalid field selector: invalid escape sequence: \b"
        );
    }

    #[test]
    fn field_selector_matches_state() {
        let registry = Registry::builtin();
        let pods = registry.get(registry.find("", "pods").unwrap()).unwrap();
        let pod = serde_json::json!({
            "metadata": {"name": "p", "namespace": "d"}, "spec": {"nodeName": "n1"}, "status": {"phase": "Running"}
        });
        let state = State::encode(pods, 1, &pod);
        for (fields, expected) in [
            ("spec.nodeName=n1", true),
            ("spec.nodeName=", false),
            ("spec.nodeName!=,status.phase==Running", true),
            ("spec.restartPolicy=Always", true),
            ("metadata.name!=p", false),
            (r"metadata.name=a\,b", false),
        ] {
            assert_eq!(
                Filter::parse(pods, "", Selectors { fields, ..Selectors::default() })
                    .unwrap()
                    .matches(&state),
                expected,
                "{fields}"
            );
        }
    }
}
