//! The attributes of a request that access rules refer to.
//!
//! They depend on method, path and query only, whether or not the resource exists: a request is rejected
//! before anything is looked up. Paths, parameters and selectors are parsed by the same code as in handlers,
//! so a request is handled exactly as it was authorized.

use http::Method;

use crate::model;
use crate::request::{Query, Route, Target, decode};

/// The attributes of a request for authorization.
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
    /// The path of a request that is not for a resource. Then only the verb counts besides.
    pub(crate) path: Option<String>,
}

impl Attributes {
    /// Returns the attributes of a request.
    pub(crate) fn of(method: &Method, path: &str, query: &str) -> Self {
        match Route::parse(path) {
            Route::Target(target) => Attributes::at(method, target, &Query::parse(query)),
            _ => Attributes::at_path(&method.as_str().to_lowercase(), &decode(path)),
        }
    }

    /// Returns the attributes of a request that is not for a resource.
    pub(crate) fn at_path(verb: &str, path: &str) -> Self {
        Attributes { verb: verb.to_owned(), path: Some(path.to_owned()), ..Attributes::default() }
    }

    /// Returns `pods/log`, or just `pods` without a subresource.
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
                (if query.is_watch() { "watch" } else { "list" }, selected_name(query))
            }
            "delete" if target.name.is_none() => ("deletecollection", None),
            verb => (verb, None),
        };
        let name = target.name.or(selected).unwrap_or_default();
        // The namespace of a namespace is its own name.
        let own_name = (target.plural == "namespaces" && target.group.is_empty()).then(|| name.clone());
        let below = target.subresource.unwrap_or_default();
        Attributes {
            verb: verb.to_owned(),
            group: target.group,
            version: target.version,
            resource: target.plural,
            subresource: below.split('/').next().unwrap_or_default().to_owned(),
            namespace: target.namespace.or(own_name).unwrap_or_default(),
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

/// Returns the single name that a field selector selects. Rules for named objects apply to such lists and
/// watches.
fn selected_name(query: &Query) -> Option<String> {
    let name = model::selected_name(query.get("fieldSelector"))?;
    let is_segment = !matches!(name.as_str(), "" | "." | "..") && !name.contains(['/', '%']);
    is_segment.then_some(name)
}
