//! What a request is about, in the words of access rules.
//!
//! This is worked out from method, path and query alone, whether or not anything is served there: a request is
//! refused before anybody looks. Paths are split before they are decoded, as the router does it, so what is
//! authorized is what is answered.

use http::Method;

use crate::http::decode;

/// What somebody wants to do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) verb: String,
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) resource: String,
    pub(crate) subresource: String,
    /// Empty at the cluster scope.
    pub(crate) namespace: String,
    /// Empty for a whole collection.
    pub(crate) name: String,
    /// The path, where it is about no resource. Nothing but the verb counts besides.
    pub(crate) path: Option<String>,
}

impl Attributes {
    /// What a request is about.
    pub(crate) fn of(method: &Method, path: &str, query: &str) -> Self {
        let parts: Vec<String> = path.trim_matches('/').split('/').map(decode).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let (group, version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => ("", "", [].as_slice()),
        };
        if rest.is_empty() {
            return Attributes::at_path(&method.as_str().to_lowercase(), &decode(path));
        }
        let (group, version) = (group.to_owned(), version.to_owned());
        Attributes { group, version, ..Attributes::below(method, rest, query) }
    }

    /// Something outside of all resources.
    pub(crate) fn at_path(verb: &str, path: &str) -> Self {
        Attributes { verb: verb.to_owned(), path: Some(path.to_owned()), ..Attributes::default() }
    }

    /// `pods/log`, and plain `pods` without a subresource.
    pub(crate) fn combined_resource(&self) -> String {
        if self.subresource.is_empty() {
            self.resource.clone()
        } else {
            format!("{}/{}", self.resource, self.subresource)
        }
    }

    fn below(method: &Method, rest: &[&str], query: &str) -> Self {
        let (special, rest) = match rest {
            [verb @ ("watch" | "proxy"), rest @ ..] if !rest.is_empty() => (Some(*verb), rest),
            rest => (None, rest),
        };
        // A namespace is in the namespace of its own name.
        let (namespace, rest) = match rest {
            ["namespaces", name] | ["namespaces", name, "status" | "finalize", ..] => (*name, rest),
            ["namespaces", name, rest @ ..] if !rest.is_empty() => (*name, rest),
            rest => ("", rest),
        };
        let part = |place: usize| rest.get(place).copied().unwrap_or_default().to_owned();
        let mut found = Attributes {
            // Only a GET watches: the router takes other methods for what they are.
            verb: special.filter(|_| *method == Method::GET).unwrap_or_else(|| plain_verb(method)).to_owned(),
            namespace: namespace.to_owned(),
            resource: part(0),
            name: part(1),
            subresource: if special == Some("proxy") { String::new() } else { part(2) },
            ..Attributes::default()
        };
        if found.name.is_empty() && special.is_none() {
            (found.verb, found.name) = of_collection(&found.verb, query);
        }
        found
    }
}

/// What a verb means for a collection, and the one object that is asked for, if it is one.
fn of_collection(verb: &str, query: &str) -> (String, String) {
    let value = |name: &str| {
        let mut pairs = form_urlencoded::parse(query.as_bytes());
        pairs.find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
    };
    match verb {
        "get" => {
            let watch = value("watch").is_some_and(|value| !is_false(&value));
            let selector = value("fieldSelector").unwrap_or_default();
            let name = named(&selector).unwrap_or_default();
            (if watch { "watch" } else { "list" }.to_owned(), name.to_owned())
        }
        "delete" => ("deletecollection".to_owned(), String::new()),
        other => (other.to_owned(), String::new()),
    }
}

fn plain_verb(method: &Method) -> &'static str {
    match *method {
        Method::POST => "create",
        Method::GET | Method::HEAD => "get",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "",
    }
}

/// Anything else is true.
fn is_false(value: &str) -> bool {
    value.eq_ignore_ascii_case("false") || value == "0"
}

/// The one name that a field selector lets through: rules for named objects cover such lists and watches.
fn named(selector: &str) -> Option<&str> {
    let name = selector.split(',').find_map(|term| {
        let (field, value) = term.split_once('=')?;
        (field.trim() == "metadata.name").then(|| value.trim_start_matches('=').trim())
    })?;
    let is_segment = !matches!(name, "" | "." | "..") && !name.contains(['/', '%']);
    is_segment.then_some(name)
}
