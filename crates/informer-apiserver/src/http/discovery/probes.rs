//! Health probes and the list of paths.
//!
//! An embedded server has none of the components that the checks of kube-apiserver refer to, and is always
//! healthy. The names of the checks exist, so that requests for single checks, or with exclusions, get
//! kube-apiserver's responses.

use serde::Serialize;

use crate::http::header::text;
use crate::http::response::{self, ServerResponse};
use crate::model::Registry;
use crate::request::Probe;

/// Checks that all probes have, in the order of the response.
const HOOKS: &[&str] = &[
    "poststarthook/start-apiserver-admission-initializer",
    "poststarthook/generic-apiserver-start-informers",
    "poststarthook/priority-and-fairness-config-consumer",
    "poststarthook/priority-and-fairness-filter",
    "poststarthook/storage-object-count-tracker-hook",
    "poststarthook/start-apiextensions-informers",
    "poststarthook/start-apiextensions-controllers",
    "poststarthook/crd-informer-synced",
    "poststarthook/start-system-namespaces-controller",
    "poststarthook/peer-endpoint-reconciler-controller",
    "poststarthook/start-cluster-authentication-info-controller",
    "poststarthook/start-kube-apiserver-identity-lease-controller",
    "poststarthook/start-kube-apiserver-identity-lease-garbage-collector",
    "poststarthook/storage-readiness",
    "poststarthook/start-legacy-token-tracking-controller",
    "poststarthook/start-service-ip-repair-controllers",
    "poststarthook/rbac/bootstrap-roles",
    "poststarthook/scheduling/bootstrap-system-priority-classes",
    "poststarthook/priority-and-fairness-config-producer",
    "poststarthook/bootstrap-controller",
    "poststarthook/start-kubernetes-service-cidr-controller",
    "poststarthook/start-kube-aggregator-informers",
    "poststarthook/apiservice-status-local-available-controller",
    "poststarthook/apiservice-status-remote-available-controller",
    "poststarthook/apiservice-registration-controller",
    "poststarthook/apiservice-discovery-controller",
    "poststarthook/kube-apiserver-autoregistration",
    "autoregister-completion",
    "poststarthook/apiservice-openapi-controller",
    "poststarthook/apiservice-openapiv3-controller",
];

/// Paths that `/` lists besides those of groups and checks.
const PATHS: &[&str] = &[
    "/.well-known/openid-configuration",
    "/api",
    "/api/v1",
    "/apis",
    "/apis/",
    "/flagz",
    "/healthz",
    "/livez",
    "/metrics",
    "/metrics/slis",
    "/openapi/v2",
    "/openapi/v3",
    "/openapi/v3/",
    "/openid/v1/jwks",
    "/readyz",
    "/statusz",
    "/version",
];

/// `/`.
#[derive(Serialize)]
pub(super) struct Paths {
    paths: Vec<String>,
}

impl Paths {
    pub(super) fn of(registry: &Registry) -> Self {
        let mut paths: Vec<String> = PATHS.iter().map(|path| (*path).to_owned()).collect();
        for (group, versions) in registry.groups() {
            paths.extend(versions.iter().map(|version| format!("/apis/{group}/{version}")));
            paths.push(format!("/apis/{group}"));
        }
        for probe in [Probe::Health, Probe::Live, Probe::Ready] {
            paths.extend(checks(probe).map(|check| format!("/{}/{check}", probe.name())));
        }
        paths.sort_unstable();
        Paths { paths }
    }
}

/// Returns the response of a probe, or of one of its checks.
pub(super) fn respond(probe: Probe, check: Option<&str>, query: &str) -> ServerResponse {
    if let Some(name) = check {
        if !checks(probe).any(|check| check == name) {
            return response::page_not_found();
        }
        return response::text(200, "ok");
    }
    let parameters: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    if !parameters.iter().any(|(name, _)| name == "verbose") {
        return text(200, "ok");
    }
    let excluded: Vec<&str> =
        parameters.iter().filter(|(name, _)| name == "exclude").map(|(_, value)| value.as_str()).collect();
    let mut body = String::new();
    for check in checks(probe) {
        let result = if excluded.contains(&check) { "excluded: ok" } else { "ok" };
        body.extend(["[+]", check, " ", result, "\n"]);
    }
    let mut unknown: Vec<String> = excluded
        .iter()
        .filter(|name| !checks(probe).any(|check| check == **name))
        .map(|name| format!("{name:?}"))
        .collect();
    unknown.sort_unstable();
    unknown.dedup();
    if !unknown.is_empty() {
        let names = unknown.join(",");
        body.extend(["warn: some health checks cannot be excluded: no matches for ", &names, "\n"]);
    }
    body.extend([probe.name(), " check passed\n"]);
    text(200, body)
}

fn checks(probe: Probe) -> impl Iterator<Item = &'static str> {
    let (first, last): (&[&str], &[&str]) = match probe {
        Probe::Health | Probe::Live => (&["ping", "log", "loopback-serving-certificate", "etcd"], &[]),
        Probe::Ready => (&["ping", "log", "etcd", "etcd-readiness", "informer-sync"], &["shutdown"]),
    };
    first.iter().chain(HOOKS).chain(last).copied()
}
