//! Paths: `Route::parse` determines what a path refers to, `Target::resolve` whether such a resource exists.
//!
//! Parsing treats only one kind specially: below `namespaces/{name}`, `status` and `finalize` are
//! subresources of the namespace, and any other name is a collection in that namespace.

use http::Method;

use crate::log::Verb;
use crate::model::{GroupKind, Registry, VersionedResource};

/// The meaning of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Route {
    /// `/`.
    Root,
    /// `/healthz`, `/livez` or `/readyz`, or the path of one check below it.
    Probe(Probe, Option<String>),
    /// `/metrics`.
    Metrics,
    /// `/openapi/…`.
    OpenApi(Document),
    /// `/version`.
    Version,
    /// `/api`.
    CoreVersions,
    /// `/apis`.
    Groups,
    /// `/apis/{group}`.
    Group(String),
    /// `/api/v1` or `/apis/{group}/{version}`.
    Resources(String, String),
    /// A resource: any longer path below `/api` or `/apis`.
    Target(Target),
    /// Any other path.
    Unknown,
}

/// A health probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Probe {
    Health,
    Live,
    Ready,
}

/// An `OpenAPI` document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Document {
    /// The whole API in `OpenAPI` v2.
    Whole,
    /// The index of the `OpenAPI` v3 documents.
    Index,
    /// An `OpenAPI` v3 document by name, for example `apis/apps/v1`.
    Part(String),
}

/// A collection, an object or a subresource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) namespace: Option<String>,
    pub(crate) plural: String,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
    /// Whether the path has the old form of a watch, `/api/v1/watch/…`.
    pub(crate) legacy_watch: bool,
}

/// The reason why a path cannot be served, which determines the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// The path does not exist, and its group is built in: 404 with a `Status`.
    Json,
    /// The resource does not support the verb: 405.
    Verb,
    /// The path does not exist, and its group is not built in: 404 with the plain text `404 page not found`.
    Plain,
}

impl Route {
    pub(crate) fn parse(path: &str) -> Self {
        let parts: Vec<String> = path.split('/').skip(1).map(decode).collect();
        let mut parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        if parts.last() == Some(&"") {
            parts.pop();
        }
        match parts.as_slice() {
            [] => Route::Root,
            [probe @ ("healthz" | "readyz" | "livez"), check @ ..] => {
                Route::Probe(Probe::named(probe), (!check.is_empty()).then(|| check.join("/")))
            }
            ["metrics"] => Route::Metrics,
            ["openapi", "v2"] => Route::OpenApi(Document::Whole),
            ["openapi", "v3"] => Route::OpenApi(Document::Index),
            ["openapi", "v3", name @ ..] => Route::OpenApi(Document::Part(name.join("/"))),
            ["version"] => Route::Version,
            ["api"] => Route::CoreVersions,
            ["apis"] => Route::Groups,
            ["apis", group] => Route::Group((*group).to_owned()),
            ["api", version] => Route::Resources(String::new(), (*version).to_owned()),
            ["apis", group, version] => Route::Resources((*group).to_owned(), (*version).to_owned()),
            ["api", version, rest @ ..] => Target::parse("", version, rest),
            ["apis", group, version, rest @ ..] => Target::parse(group, version, rest),
            _ => Route::Unknown,
        }
    }
}

impl Probe {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Probe::Health => "healthz",
            Probe::Live => "livez",
            Probe::Ready => "readyz",
        }
    }

    fn named(name: &str) -> Self {
        match name {
            "livez" => Probe::Live,
            "readyz" => Probe::Ready,
            _ => Probe::Health,
        }
    }
}

impl Target {
    fn parse(group: &str, version: &str, rest: &[&str]) -> Route {
        let (legacy_watch, rest) = match rest {
            ["watch", rest @ ..] if !rest.is_empty() => (true, rest),
            rest => (false, rest),
        };
        let (namespace, rest) = match rest {
            ["namespaces", _, "status" | "finalize"] => (None, rest),
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some(*namespace), rest),
            rest => (None, rest),
        };
        let (plural, name, subresource) = match rest {
            [plural] => (*plural, None, None),
            [plural, name] => (*plural, Some(*name), None),
            // The rest of the path is the subresource; `resolve` rejects one with slashes.
            [plural, name, below @ ..] => (*plural, Some(*name), Some(below.join("/"))),
            [] => ("", None, None),
        };
        Route::Target(Target {
            group: group.to_owned(),
            version: version.to_owned(),
            namespace: namespace.map(str::to_owned),
            plural: plural.to_owned(),
            name: name.map(str::to_owned),
            subresource,
            legacy_watch,
        })
    }

    /// Returns the operation of an HTTP method on this target, or `None` if the method has no meaning for it.
    /// `watch` is whether the query requests a watch.
    pub(crate) fn verb(&self, method: &Method, watch: bool) -> Option<Verb> {
        let verb = match (method, self.name.is_some()) {
            (&Method::GET, _) if self.legacy_watch => Verb::Watch,
            _ if self.legacy_watch => return None,
            (&Method::GET, true) => Verb::Get,
            (&Method::GET, false) if watch => Verb::Watch,
            (&Method::GET, false) => Verb::List,
            // POST creates an object in a collection, or a subresource of a named object.
            (&Method::POST, named) if named == self.subresource.is_some() => Verb::Create,
            (&Method::PUT, true) => Verb::Update,
            (&Method::PATCH, true) => Verb::Patch,
            (&Method::DELETE, true) => Verb::Delete,
            (&Method::DELETE, false) => Verb::DeleteCollection,
            _ => return None,
        };
        Some(verb)
    }

    /// Looks up the resource, and checks its scope, the subresource and the verb.
    pub(crate) fn resolve(&self, registry: &Registry, verb: Verb) -> Result<VersionedResource, Missing> {
        let missing = match registry.group_kind(&self.group) {
            Some(GroupKind::BuiltIn) => Missing::Json,
            _ => Missing::Plain,
        };
        let gvr = registry.resource(&self.group, &self.version, &self.plural).ok_or(missing)?;
        let resource = registry.get(gvr.id).ok_or(missing)?;
        let scope_matches = match (resource.namespaced, &self.namespace) {
            (true, Some(_)) | (false, None) => true,
            (true, None) => self.name.is_none(),
            (false, Some(_)) => false,
        };
        if !scope_matches || self.subresource.as_ref().is_some_and(|below| below.contains('/')) {
            return Err(missing);
        }
        // For custom resources, the handlers reject missing subresources and unsupported verbs.
        if resource.custom {
            return Ok(gvr);
        }
        let verbs = resource.verbs(gvr.version, self.subresource.as_deref()).ok_or(missing)?;
        let all_namespaces = resource.namespaced && self.namespace.is_none();
        let allowed = verbs.contains(&verb.name())
            && !(all_namespaces && matches!(verb, Verb::Create | Verb::DeleteCollection));
        if allowed { Ok(gvr) } else { Err(Missing::Verb) }
    }
}

/// Decodes `%xx`; malformed escapes are left unchanged.
pub(crate) fn decode(part: &str) -> String {
    let bytes = part.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = part.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        if let Some(byte) = code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            out.push(byte);
            at += 3;
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_is_parsed_to_route() {
        let shown = |path: &str| match Route::parse(path) {
            Route::Target(target) => {
                let or_dash = |part: Option<String>| part.unwrap_or_else(|| "-".to_owned());
                format!(
                    "{}/{} {} {} {} {} {}",
                    target.group,
                    target.version,
                    or_dash(target.namespace),
                    target.plural,
                    or_dash(target.name),
                    or_dash(target.subresource),
                    target.legacy_watch
                )
            }
            other => format!("{other:?}"),
        };
        for (path, expected) in [
            ("/api/v1/pods", "/v1 - pods - - false"),
            ("/api/v1/namespaces/d/pods/", "/v1 d pods - - false"),
            ("/api/v1/namespaces/d", "/v1 - namespaces d - false"),
            ("/api/v1/namespaces/d/status", "/v1 - namespaces d status false"),
            ("/apis/apps/v1/namespaces/d/deployments/a%2Db/status", "apps/v1 d deployments a-b status false"),
            ("/api/v1/watch/namespaces/d/pods/p", "/v1 d pods p - true"),
            ("/api/", "CoreVersions"),
            ("/apis/apps/v1", r#"Resources("apps", "v1")"#),
            ("/nothing", "Unknown"),
            ("/readyz", "Probe(Ready, None)"),
            ("/livez/poststarthook/a", r#"Probe(Live, Some("poststarthook/a"))"#),
            ("/", "Root"),
            ("/openapi/v3", "OpenApi(Index)"),
            ("/openapi/v3/apis/apps/v1", r#"OpenApi(Part("apis/apps/v1"))"#),
        ] {
            assert_eq!(shown(path), expected, "{path}");
        }
    }

    #[test]
    fn unsupported_verb_or_path_is_missing() {
        let registry = Registry::builtin();
        let check = |path: &str, verb: Verb, expected: Option<Missing>| {
            let Route::Target(target) = Route::parse(path) else { panic!("{path}") };
            assert_eq!(target.resolve(&registry, verb).err(), expected, "{path}");
        };
        check("/api/v1/configmaps", Verb::List, None);
        check("/api/v1/configmaps", Verb::Create, Some(Missing::Verb));
        check("/api/v1/configmaps", Verb::DeleteCollection, Some(Missing::Verb));
        check("/api/v1/namespaces", Verb::DeleteCollection, Some(Missing::Verb));
        check("/api/v1/namespaces/a/finalize", Verb::Get, Some(Missing::Verb));
        check("/api/v1/namespaces/a/pods/b/eviction", Verb::Create, None);
        check("/api/v1/namespaces/a/configmaps/b/status", Verb::Get, Some(Missing::Json));
        check("/apis/nothing.example/v1/things", Verb::List, Some(Missing::Plain));
    }
}
