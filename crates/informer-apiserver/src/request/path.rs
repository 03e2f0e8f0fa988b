//! Paths: what a request is about, before anybody knows whether that exists.
//!
//! Splitting a path needs no knowledge of kinds but one: below `namespaces/{name}`, `status` and `finalize` belong to the
//! namespace, and anything else is a collection in it.

use http::Method;

use crate::log::Verb;
use crate::model::{GroupKind, Registry, VersionedResource};

/// What a path leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Route {
    /// `/`.
    Root,
    /// `/healthz` and its like, or one check of it.
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
    /// Anything below.
    Target(Target),
    /// Nothing we know.
    Unknown,
}

/// Ways to ask how the server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Probe {
    Health,
    Live,
    Ready,
}

/// A description of the API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Document {
    /// Everything in the older format.
    Whole,
    /// Which documents there are in the newer one.
    Index,
    /// One of them, by its name: `apis/apps/v1`.
    Part(String),
}

/// A collection, an object, or a part of one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) namespace: Option<String>,
    pub(crate) plural: String,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
    /// The old form of a watch: `/api/v1/watch/…`.
    pub(crate) legacy_watch: bool,
}

/// Why there is nothing at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// A `Status`: the group is built in.
    Json,
    /// There is something, but not for this verb.
    Verb,
    /// `404 page not found`.
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
            // Nothing is deeper; what follows is told apart when it is looked up.
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

    /// What a method does here; none if it does nothing.
    pub(crate) fn verb(&self, method: &Method, watch: bool) -> Option<Verb> {
        let verb = match (method, self.name.is_some()) {
            (&Method::GET, _) if self.legacy_watch => Verb::Watch,
            _ if self.legacy_watch => return None,
            (&Method::GET, true) => Verb::Get,
            (&Method::GET, false) if watch => Verb::Watch,
            (&Method::GET, false) => Verb::List,
            (&Method::POST, named) if named == self.subresource.is_some() => Verb::Create,
            (&Method::PUT, true) => Verb::Update,
            (&Method::PATCH, true) => Verb::Patch,
            (&Method::DELETE, true) => Verb::Delete,
            (&Method::DELETE, false) => Verb::DeleteCollection,
            _ => return None,
        };
        Some(verb)
    }

    /// Finds what is served here for a verb.
    pub(crate) fn resolve(&self, registry: &Registry, verb: Verb) -> Result<VersionedResource, Missing> {
        let missing = match registry.group(&self.group) {
            Some(GroupKind::BuiltIn) => Missing::Json,
            _ => Missing::Plain,
        };
        let place = registry.place(&self.group, &self.version, &self.plural).ok_or(missing)?;
        let resource = registry.get(place.id).ok_or(missing)?;
        let fits = match (resource.namespaced, &self.namespace) {
            (true, Some(_)) | (false, None) => true,
            (true, None) => self.name.is_none(),
            (false, Some(_)) => false,
        };
        if !fits || self.subresource.as_ref().is_some_and(|below| below.contains('/')) {
            return Err(missing);
        }
        // Custom resources say themselves what they have no part for.
        if resource.custom {
            return Ok(place);
        }
        let verbs = resource.verbs(place.version, self.subresource.as_deref()).ok_or(missing)?;
        let everywhere = resource.namespaced && self.namespace.is_none();
        let allowed = verbs.contains(&verb.name())
            && !(everywhere && matches!(verb, Verb::Create | Verb::DeleteCollection));
        if allowed { Ok(place) } else { Err(Missing::Verb) }
    }
}

/// Resolves `%xx`; what is malformed stays as it is.
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
    fn paths_lead_somewhere() {
        let shown = |path: &str| match Route::parse(path) {
            Route::Target(target) => {
                let or = |part: Option<String>| part.unwrap_or_else(|| "-".to_owned());
                format!(
                    "{}/{} {} {} {} {} {}",
                    target.group,
                    target.version,
                    or(target.namespace),
                    target.plural,
                    or(target.name),
                    or(target.subresource),
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
    fn a_verb_has_its_places() {
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
