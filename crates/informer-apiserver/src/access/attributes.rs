//! What a request is about, in the words of access rules.
//!
//! This is worked out from method, path and query alone, whether or not anything is served there: a request is
//! refused before anybody looks. Paths, parameters and selectors are read by the same code that answers, so what is
//! authorized is what is answered.

use http::Method;

use crate::model;
use crate::request::{Query, Route, Target, decode};

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
        match Route::parse(path) {
            Route::Target(target) => Attributes::at(method, target, &Query::parse(query)),
            _ => Attributes::at_path(&method.as_str().to_lowercase(), &decode(path)),
        }
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

    fn at(method: &Method, target: Target, query: &Query) -> Self {
        let verb = plain_verb(method);
        let (verb, selected) = match verb {
            _ if target.legacy_watch => ("watch", None),
            "get" if target.name.is_none() => {
                (if query.is_watch() { "watch" } else { "list" }, selected(query))
            }
            "delete" if target.name.is_none() => ("deletecollection", None),
            verb => (verb, None),
        };
        let name = target.name.or(selected).unwrap_or_default();
        // A namespace is in the namespace of its own name.
        let own = (target.plural == "namespaces" && target.group.is_empty()).then(|| name.clone());
        let below = target.subresource.unwrap_or_default();
        Attributes {
            verb: verb.to_owned(),
            group: target.group,
            version: target.version,
            resource: target.plural,
            subresource: below.split('/').next().unwrap_or_default().to_owned(),
            namespace: target.namespace.or(own).unwrap_or_default(),
            name,
            path: None,
        }
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

/// The one name that a field selector lets through: rules for named objects cover such lists and watches.
fn selected(query: &Query) -> Option<String> {
    let name = model::selected_name(query.get("fieldSelector"))?;
    let is_segment = !matches!(name.as_str(), "" | "." | "..") && !name.contains(['/', '%']);
    is_segment.then_some(name)
}
