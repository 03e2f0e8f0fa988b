//! Discovery: which resources a server has, and the resource that a name refers to.
//!
//! [`find`] is pure; [`discover`] sends the requests. This module does not know informers.

use crate::error::ResolveError;
use futures::stream::{self, StreamExt as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, APIResourceList};
use kube::core::{ApiResource, GroupVersionKind};
use kube::discovery::Scope;

/// Upper bound on concurrent discovery requests.
const MAX_CONCURRENT_REQUESTS: usize = 8;

/// A resource in one of the versions in which a server has it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ServedResource {
    /// The group; empty for the core group.
    pub group: String,
    /// The version, as in `v1`.
    pub version: String,
    /// The plural name, as in `deployments`.
    pub plural: String,
    /// The singular name; may be empty.
    pub singular: String,
    /// The kind, as in `Deployment`.
    pub kind: String,
    /// The short names, as in `deploy`.
    pub short_names: Vec<String>,
    /// Whether the objects are in namespaces.
    pub namespaced: bool,
    /// The supported verbs, as in `list` and `watch`.
    pub verbs: Vec<String>,
}

/// The resources of a server, as far as they could be discovered.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Discovered {
    /// The resources, in each of their versions; the preferred version of each group first.
    pub resources: Vec<ServedResource>,
    /// The versions whose resources are unknown, as in `metrics.k8s.io/v1beta1`, with the reason. The server of
    /// an aggregated API may be down, which does not affect other groups.
    pub failures: Vec<(String, kube::Error)>,
}

/// Finds the resource that a name refers to, with a few discovery requests.
///
/// The name is a plural, singular, short name or kind, in any case: `deployments`, `deployment`, `deploy`,
/// `Deployment`. A group, or a version and a group, may follow: `deployments.apps`, `deployments.v1.apps`, and
/// for the core group `pods.v1` or `pods.v1.`. Without a version, the version that the server prefers is used.
/// Without a group, the core group takes precedence over the other built-in groups, and built-in groups over
/// custom ones.
///
/// Other arguments of kubectl are not names of resources: an object (`pods/web-0`), several resources
/// (`pods,services`), a subresource (`pods/status`) or a category (`all`) is an error.
///
/// Every call discovers all resources of the server. To resolve several names, call [`discover`] once and then
/// [`find`].
///
/// ```
/// use informer::SharedInformerFactory;
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), informer::Error> {
/// # let server = informer_apiserver::ApiServer::new();
/// # let client = server.client();
///
/// let resource = informer::resolve(&client, "ns").await?.watchable()?;
/// assert_eq!((resource.kind.as_str(), resource.namespaced), ("Namespace", false));
///
/// let factory = SharedInformerFactory::new(client);
/// let objects = factory.dynamic_informer(&resource);
/// factory.start();
/// objects.wait_for_sync(Duration::from_secs(30)).await?;
/// assert!(objects.lister().list().iter().any(|namespace| namespace.name() == "default"));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// Returns an error if the server has no such resource, if the name matches resources of several groups, or if
/// the list of groups cannot be read. A group whose resources cannot be read matters only if the resource is
/// found nowhere else; the error then names the group, and its [`kind`](ResolveError::kind) and source are
/// those of the failed request.
pub async fn resolve(client: &kube::Client, name: &str) -> Result<ServedResource, ResolveError> {
    let request_error = |source| ResolveError::Request { name: name.to_owned(), source: Box::new(source) };
    let Discovered { resources, failures } = discover(client).await.map_err(request_error)?;
    match find(&resources, name) {
        Err(ResolveError::Unknown { name, other_groups, .. }) => {
            let wanted = Wanted::parse(&name);
            let failures = failures.into_iter().filter(|(version, _)| wanted.may_be_in(version));
            let (unavailable, mut errors): (Vec<_>, Vec<_>) = failures.unzip();
            let source = (!errors.is_empty()).then(|| Box::new(errors.swap_remove(0)));
            Err(ResolveError::Unknown { name, other_groups, unavailable, source })
        }
        found => found.cloned(),
    }
}

/// Discovers all resources of a server.
///
/// Sends one request for the core group, one for the list of groups and one per version of a group.
///
/// # Errors
///
/// Returns an error if the core group or the list of groups cannot be read. Other failures are part of the
/// result.
pub async fn discover(client: &kube::Client) -> Result<Discovered, kube::Error> {
    let (core, groups) = futures::try_join!(client.list_core_api_resources("v1"), client.list_api_groups())?;
    let versions: Vec<String> = groups.groups.iter().flat_map(versions).collect();
    let lists = stream::iter(versions).map(async |version: String| {
        let list = client.list_api_group_resources(&version).await;
        (version, list)
    });
    let mut discovered = Discovered { resources: resources(core).collect(), failures: Vec::new() };
    for (version, list) in lists.buffered(MAX_CONCURRENT_REQUESTS).collect::<Vec<_>>().await {
        match list {
            Ok(list) => discovered.resources.extend(resources(list)),
            Err(error) => discovered.failures.push((version, error)),
        }
    }
    Ok(discovered)
}

/// Finds the resource that a name refers to among discovered resources; see [`resolve`].
///
/// If `resources` contains several versions of a resource, the first one counts unless the name contains a
/// version.
///
/// # Errors
///
/// Returns an error if no resource has the name, or resources of several groups with the same precedence.
pub fn find<'a>(resources: &'a [ServedResource], name: &str) -> Result<&'a ServedResource, ResolveError> {
    let wanted = Wanted::parse(name);
    let matching: Vec<&ServedResource> =
        resources.iter().filter(|resource| wanted.matches(resource)).collect();
    let first = matching.iter().map(|resource| resource.precedence()).min();
    let mut best: Vec<&ServedResource> = Vec::new();
    for resource in matching.into_iter().filter(|resource| Some(resource.precedence()) == first) {
        let is_same =
            |known: &&ServedResource| known.group == resource.group && known.plural == resource.plural;
        if !best.iter().any(is_same) {
            best.push(resource);
        }
    }
    match best[..] {
        [resource] => Ok(resource),
        [] => {
            let mut other_groups: Vec<String> = Vec::new();
            for resource in resources.iter().filter(|resource| resource.is_called(wanted.name)) {
                if !other_groups.contains(&resource.name()) {
                    other_groups.push(resource.name());
                }
            }
            let (unavailable, source) = (Vec::new(), None);
            Err(ResolveError::Unknown { name: name.to_owned(), other_groups, unavailable, source })
        }
        _ => {
            let candidates = best.iter().map(|resource| resource.name()).collect();
            Err(ResolveError::Ambiguous { name: name.to_owned(), candidates })
        }
    }
}

impl ServedResource {
    /// Returns the name with its group: `pods`, `deployments.apps`.
    pub fn name(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// Returns the singular name with its group, as `kubectl -o name` prints it: `pod`, `deployment.apps`.
    pub fn singular_name(&self) -> String {
        let singular =
            if self.singular.is_empty() { self.kind.to_lowercase() } else { self.singular.clone() };
        if self.group.is_empty() { singular } else { format!("{singular}.{}", self.group) }
    }

    /// Returns the resource if it can be listed and watched, as an informer requires.
    ///
    /// # Errors
    ///
    /// Returns [`ResolveError::NotWatchable`], with the verbs that the resource has.
    pub fn watchable(self) -> Result<Self, ResolveError> {
        if self.supports("list") && self.supports("watch") {
            return Ok(self);
        }
        Err(ResolveError::NotWatchable { name: self.name(), verbs: self.verbs })
    }

    /// Returns the resource for [`kube::Api`], without its scope.
    ///
    /// Dynamic informers and controllers take the [`ServedResource`] itself, so that the namespaces of a factory
    /// do not apply to a resource that is not [namespaced](Self::namespaced).
    pub fn api_resource(&self) -> ApiResource {
        let kind = GroupVersionKind::gvk(&self.group, &self.version, &self.kind);
        ApiResource::from_gvk_with_plural(&kind, &self.plural)
    }

    /// Returns the scope for [`Controller::dynamic`](crate::controller::Controller::dynamic).
    pub fn scope(&self) -> Scope {
        if self.namespaced { Scope::Namespaced } else { Scope::Cluster }
    }

    /// Returns whether the server supports a verb. An informer needs `list` and `watch`; see
    /// [`watchable`](Self::watchable).
    pub fn supports(&self, verb: &str) -> bool {
        self.verbs.iter().any(|known| known == verb)
    }

    /// Returns the precedence of the group among resources with the same name; smaller values win.
    fn precedence(&self) -> u8 {
        match &*self.group {
            "" => 0,
            group if !group.contains('.') => 1,
            // Some of these groups have `events` or `pods` too, for example `metrics.k8s.io`.
            group if group.ends_with(".k8s.io") => 2,
            _ => 3,
        }
    }

    fn is_called(&self, name: &str) -> bool {
        let short = self.short_names.iter().map(String::as_str);
        let mut names = [&*self.plural, &*self.singular, &*self.kind].into_iter().chain(short);
        names.any(|known| !known.is_empty() && known.eq_ignore_ascii_case(name))
    }
}

/// A resource that is known only at run time: a [`ServedResource`], or an [`ApiResource`], whose scope is
/// unknown.
///
/// If a factory selects namespaces, an informer for an [`ApiResource`] that is cluster-scoped needs
/// [`all_namespaces`](crate::Selection::all_namespaces). This trait is sealed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a resource",
    note = "use a `ServedResource`, which `informer::resolve` returns, or a `kube::core::ApiResource`"
)]
pub trait DynamicResource: sealed::Sealed {
    #[doc(hidden)]
    fn to_api_resource(&self) -> ApiResource;

    /// Returns whether the resource is known to be cluster-scoped.
    #[doc(hidden)]
    fn is_cluster_scoped(&self) -> bool;
}

impl DynamicResource for ApiResource {
    fn to_api_resource(&self) -> ApiResource {
        self.clone()
    }

    fn is_cluster_scoped(&self) -> bool {
        false
    }
}

impl DynamicResource for ServedResource {
    fn to_api_resource(&self) -> ApiResource {
        self.api_resource()
    }

    fn is_cluster_scoped(&self) -> bool {
        !self.namespaced
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::ApiResource {}
    impl Sealed for super::ServedResource {}
}

/// A parsed resource name.
struct Wanted<'a> {
    name: &'a str,
    /// Everything after the first dot: a group, or a version and a group.
    qualifier: Option<&'a str>,
}

impl<'a> Wanted<'a> {
    fn parse(text: &'a str) -> Self {
        let (name, qualifier) =
            text.split_once('.').map_or((text, None), |(name, qualifier)| (name, Some(qualifier)));
        Self { name, qualifier }
    }

    fn matches(&self, resource: &ServedResource) -> bool {
        let Some(qualifier) = self.qualifier else { return resource.is_called(self.name) };
        let (version, group) = qualifier.split_once('.').unwrap_or((qualifier, ""));
        let has_group = !resource.group.is_empty() && resource.group.eq_ignore_ascii_case(qualifier);
        let has_version_and_group =
            resource.version.eq_ignore_ascii_case(version) && resource.group.eq_ignore_ascii_case(group);
        (has_group || has_version_and_group) && resource.is_called(self.name)
    }

    /// Returns whether a version such as `apps/v1` may contain the resource.
    fn may_be_in(&self, group_version: &str) -> bool {
        let Some(qualifier) = self.qualifier else { return true };
        let Some((group, version)) = group_version.split_once('/') else { return false };
        let with_version = qualifier.split_once('.').is_some_and(|(wanted, of)| {
            wanted.eq_ignore_ascii_case(version) && of.eq_ignore_ascii_case(group)
        });
        with_version || qualifier.eq_ignore_ascii_case(group)
    }
}

/// Returns the versions of a group, the preferred one first.
fn versions(group: &APIGroup) -> Vec<String> {
    let preferred = group.preferred_version.iter().map(|version| version.group_version.clone());
    let mut versions: Vec<String> = preferred.collect();
    for version in &group.versions {
        if !versions.contains(&version.group_version) {
            versions.push(version.group_version.clone());
        }
    }
    versions
}

fn resources(list: APIResourceList) -> impl Iterator<Item = ServedResource> {
    let (group, version) = match list.group_version.split_once('/') {
        Some((group, version)) => (group.to_owned(), version.to_owned()),
        None => (String::new(), list.group_version),
    };
    // A slash in the name marks a subresource.
    let resources = list.resources.into_iter().filter(|resource| !resource.name.contains('/'));
    resources.map(move |resource| ServedResource {
        group: group.clone(),
        version: version.clone(),
        plural: resource.name,
        singular: resource.singular_name,
        kind: resource.kind,
        short_names: resource.short_names.unwrap_or_default(),
        namespaced: resource.namespaced,
        verbs: resource.verbs,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(group: &str, version: &str, plural: &str, kind: &str, short: &[&str]) -> ServedResource {
        ServedResource {
            group: group.into(),
            version: version.into(),
            plural: plural.into(),
            singular: kind.to_lowercase(),
            kind: kind.into(),
            short_names: short.iter().map(|name| (*name).into()).collect(),
            namespaced: true,
            verbs: ["list", "watch"].map(str::to_owned).into(),
        }
    }

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let cluster = [
            served("", "v1", "pods", "Pod", &["po"]),
            served("", "v1", "events", "Event", &["ev"]),
            served("events.k8s.io", "v1", "events", "Event", &["ev"]),
            served("apps", "v1", "deployments", "Deployment", &["deploy"]),
            served("apps", "v1beta1", "deployments", "Deployment", &["deploy"]),
            served("a.example.com", "v1", "widgets", "Widget", &["wi"]),
            served("b.example.com", "v2", "widgets", "Widget", &["wi"]),
            served("b.example.com", "v1", "widgets", "Widget", &["wi"]),
            served("example.com", "v1", "pods", "Pod", &[]),
            // Not every server sets the singular name.
            ServedResource { singular: String::new(), ..served("x.example.com", "v1", "odds", "Odd", &[]) },
        ];
        let found = match find(&cluster, text) {
            Ok(one) => format!("{}/{}/{}", one.group, one.version, one.plural),
            Err(error) => error.to_string(),
        };
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn names_resolve_to_their_resource() {
        for text in ["pods", "pod", "po", "Pod", "PODS", "pods.v1", "pods.v1."] {
            check(text, "/v1/pods");
        }
        for text in ["deployments", "deploy", "deployment.apps", "deployments.v1.apps", "DEPLOY.V1.Apps"] {
            check(text, "apps/v1/deployments");
        }
        check("deployments.v1beta1.apps", "apps/v1beta1/deployments");
        check("events", "/v1/events");
        check("events.events.k8s.io", "events.k8s.io/v1/events");
        check("pods.example.com", "example.com/v1/pods");
        check("wi.b.example.com", "b.example.com/v2/widgets");
        check("widgets.v1.b.example.com", "b.example.com/v1/widgets");
    }

    #[test]
    fn unresolvable_name_is_an_error_with_hint() {
        check(
            "widgets",
            "resolve resource \"widgets\": ambiguous (use widgets.a.example.com or widgets.b.example.com)",
        );
        check(
            "deployments.extensions",
            "resolve resource \"deployments.extensions\": not served (did you mean deployments.apps?)",
        );
        check("pods.v2", "resolve resource \"pods.v2\": not served (did you mean pods or pods.example.com?)");
        for text in ["pods/web-0", "pods/status", "pods,services"] {
            let hint = "(the name of one resource is expected, without object or list)";
            check(text, &format!("resolve resource {text:?}: not served {hint}"));
        }
        for text in ["zebras", "", ".", "..", ".apps", "pods "] {
            let hint = "(`kubectl api-resources` lists all resources)";
            check(text, &format!("resolve resource {text:?}: not served {hint}"));
        }
    }
}
