//! The attributes of a request that access rules refer to.
//!
//! They depend on method, path and query only: a request is authorized before the server looks up whether the
//! resource exists. Paths, parameters and selectors are parsed by the same code as in handlers, so a request
//! is handled exactly as it was authorized.

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
    /// The path of a request that is not for a resource. All fields but `path` and `verb` are empty then.
    pub(crate) path: Option<String>,
}

impl Attributes {
    /// Returns the attributes of a request.
    pub(crate) fn of(method: &Method, path: &str, query: &str) -> Self {
        match Route::parse(path) {
            Route::Target(target) => Attributes::of_target(method, target, &Query::parse(query)),
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

    fn of_target(method: &Method, target: Target, query: &Query) -> Self {
        let (verb, selected_name) = match verb_of_method(method) {
            _ if target.legacy_watch => ("watch", None),
            "get" if target.name.is_none() => {
                (if query.is_watch() { "watch" } else { "list" }, selected_name(query))
            }
            "delete" if target.name.is_none() => ("deletecollection", None),
            verb => (verb, None),
        };
        let name = target.name.or(selected_name).unwrap_or_default();
        // kube-apiserver treats a namespace as if it were in the namespace of its own name.
        let own_name = (target.plural == "namespaces" && target.group.is_empty()).then(|| name.clone());
        let subresource_path = target.subresource.unwrap_or_default();
        Attributes {
            verb: verb.to_owned(),
            group: target.group,
            version: target.version,
            resource: target.plural,
            subresource: subresource_path.split('/').next().unwrap_or_default().to_owned(),
            namespace: target.namespace.or(own_name).unwrap_or_default(),
            name,
            path: None,
        }
    }
}

/// Returns the verb of a method for a single object; empty for unknown methods.
fn verb_of_method(method: &Method) -> &'static str {
    match *method {
        Method::POST => "create",
        Method::GET | Method::HEAD => "get",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "",
    }
}

/// Returns the name in a field selector that selects a single name. Rules with `resourceNames` apply to lists
/// and watches with such a selector. As in kube-apiserver, the name must be a valid path segment.
fn selected_name(query: &Query) -> Option<String> {
    let name = model::selected_name(query.get("fieldSelector"))?;
    let is_segment = !matches!(name.as_str(), "" | "." | "..") && !name.contains(['/', '%']);
    is_segment.then_some(name)
}
