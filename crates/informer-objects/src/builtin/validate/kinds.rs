//! Validation of kinds with few rules: configuration, roles, leases, ingresses and others.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::containers::{one_of, port_number, port_or_name};
use super::meta::{self, immutable, non_negative};
use super::report::{self, Position, Report};
use super::workloads::{at_most_100_percent, count_or_percent};
use crate::text::formats;

/// The maximum size of the data of a `ConfigMap` or a `Secret`.
const MAX_DATA_BYTES: usize = 1024 * 1024;

const IMMUTABLE_DATA: &str = "field is immutable when `immutable` is set";
const RBAC: &str = "rbac.authorization.k8s.io";

pub(super) fn config_map(object: &Position<'_>, report: &mut Report) {
    let mut bytes = 0;
    for (key, value) in object.entries("data") {
        report.invalid_each(&value, key, formats::config_key(key));
        if object.at("binaryData").key(key).is_set() {
            report.invalid_text(&value, key, "duplicate of key present in binaryData");
        }
        bytes += value.text().len();
    }
    for (key, value) in object.entries("binaryData") {
        report.invalid_each(&value, key, formats::config_key(key));
        bytes += decoded_len(&value);
    }
    if bytes > MAX_DATA_BYTES {
        // kube-apiserver reports the object itself as `[]`.
        report.too_long(&Position { path: "[]".to_owned(), ..object.clone() }, MAX_DATA_BYTES);
    }
}

pub(super) fn secret(object: &Position<'_>, report: &mut Report) {
    let data = object.at("data");
    let mut bytes = 0;
    for (key, value) in object.entries("data") {
        report.invalid_each(&value, key, formats::config_key(key));
        bytes += decoded_len(&value);
    }
    if bytes > MAX_DATA_BYTES {
        report.too_long(&data, MAX_DATA_BYTES);
    }
    let mut require_keys = |keys: &[&str]| {
        for position in keys.iter().map(|key| data.key(key)).filter(|position| !position.is_set()) {
            report.required(&position, "");
        }
    };
    match object.at("type").text() {
        "kubernetes.io/dockercfg" => require_keys(&[".dockercfg"]),
        "kubernetes.io/dockerconfigjson" => require_keys(&[".dockerconfigjson"]),
        "kubernetes.io/ssh-auth" => require_keys(&["ssh-privatekey"]),
        "kubernetes.io/tls" => require_keys(&["tls.crt", "tls.key"]),
        "kubernetes.io/basic-auth" if !data.key("username").is_set() && !data.key("password").is_set() => {
            require_keys(&["username", "password"]);
        }
        "kubernetes.io/service-account-token" => {
            let name = object.at("metadata.annotations").key("kubernetes.io/service-account.name");
            if name.is_empty() {
                report.required(&name, "");
            }
        }
        _ => {}
    }
}

/// Checks that an immutable `ConfigMap` or `Secret` does not change.
pub(super) fn frozen(old: &Position<'_>, new: &Position<'_>, fields: &[&str], report: &mut Report) {
    if old.at("immutable").value != true {
        return;
    }
    if new.at("immutable").value != true {
        report.forbidden(&new.at("immutable"), IMMUTABLE_DATA);
    }
    for field in fields {
        if old.at(field).value != new.at(field).value {
            report.forbidden(&new.at(field), IMMUTABLE_DATA);
        }
    }
}

pub(super) fn namespace(object: &Position<'_>, report: &mut Report) {
    let list = object.at("spec.finalizers");
    for finalizer in object.each("spec.finalizers") {
        report.invalid_each(&list, finalizer.text(), formats::qualified_name(finalizer.text()));
        meta::kube_finalizer(&Position { path: list.path.clone(), ..finalizer }, report);
    }
}

pub(super) fn node(object: &Position<'_>, report: &mut Report) {
    let mut seen = BTreeSet::new();
    for taint in object.each("spec.taints") {
        // kube-apiserver reports taints under `metadata`.
        let path = taint.path.replace("spec.", "metadata.");
        let taint = Position { path, ..taint };
        let (key, effect) = (taint.at("key"), taint.at("effect"));
        report.invalid_each(&key, key.text(), formats::qualified_name(key.text()));
        let value = taint.at("value");
        let messages = formats::label_value(value.text());
        if !messages.is_empty() {
            report.invalid_text(&value, value.text(), &messages.join(";"));
        }
        let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        one_of(&effect, &effects, report);
        if !seen.insert((key.text(), effect.text())) {
            let why = "taints must be unique by key and effect pair";
            let value = report::shown(taint.value);
            let message = format!("Duplicate value: {value}: {why}");
            report.causes.push(crate::status::StatusCause::new("FieldValueDuplicate", &taint.path, message));
        }
    }
}

/// Checks that pod CIDRs and the provider ID of a node do not change once they are set.
pub(super) fn node_update(old: &Position<'_>, new: &Position<'_>, report: &mut Report) {
    let (before, after) = (old.each("spec.podCIDRs"), new.each("spec.podCIDRs"));
    let changed = before.iter().zip(&after).filter(|(before, after)| before.value != after.value).count();
    let count = if before.len() == after.len() { changed } else { usize::from(!before.is_empty()) };
    // kube-apiserver reports each changed CIDR, but only once if their number changes.
    for _ in 0..count {
        let why = "node updates may not change podCIDR except from \"\" to valid";
        report.forbidden(&new.at("spec.podCIDRs"), why);
    }
    let (before, after) = (old.at("spec.providerID"), new.at("spec.providerID"));
    if !before.is_empty() && before.text() != after.text() {
        report.forbidden(&after, "node updates may not change providerID except from \"\" to valid");
    }
}

pub(super) fn role(object: &Position<'_>, namespaced: bool, report: &mut Report) {
    for rule in object.each("rules") {
        if rule.at("verbs").is_empty() {
            report.required(&rule.at("verbs"), "verbs must contain at least one value");
        }
        let urls = rule.at("nonResourceURLs");
        if !urls.is_empty() {
            if namespaced {
                report.invalid(&urls, "namespaced rules cannot apply to non-resource URLs");
            }
            if ["apiGroups", "resources", "resourceNames"].iter().any(|field| !rule.at(field).is_empty()) {
                report.invalid(&urls, "rules cannot apply to both regular resources and non-resource URLs");
            }
            continue;
        }
        for (field, item) in [("apiGroups", "api group"), ("resources", "resource")] {
            if rule.at(field).is_empty() {
                report.required(&rule.at(field), &format!("resource rules must supply at least one {item}"));
            }
        }
    }
}

pub(super) fn role_binding(object: &Position<'_>, namespaced: bool, report: &mut Report) {
    let role = object.at("roleRef");
    if role.at("apiGroup").text() != RBAC {
        report.unsupported(&role.at("apiGroup"), &[RBAC]);
    }
    let kinds: &[&str] = if namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    if !kinds.contains(&role.at("kind").text()) {
        report.unsupported(&role.at("kind"), kinds);
    }
    let name = role.at("name");
    if name.is_empty() {
        report.required(&name, "");
    } else {
        report.invalid_each(&name, name.text(), formats::path_segment(name.text()));
    }
    for subject in object.each("subjects") {
        let name = subject.at("name");
        if name.is_empty() {
            report.required(&name, "");
        }
        let group = subject.at("apiGroup");
        match subject.at("kind").text() {
            "ServiceAccount" => {
                if !name.is_empty() {
                    report.invalid_each(&name, name.text(), formats::dns_subdomain(name.text()));
                }
                if !group.is_empty() {
                    report.unsupported(&group, &[""]);
                }
                if !namespaced && subject.at("namespace").is_empty() {
                    report.required(&subject.at("namespace"), "");
                }
            }
            "User" | "Group" => {
                if group.text() != RBAC {
                    report.unsupported(&group, &[RBAC]);
                }
            }
            _ => report.unsupported(&subject.at("kind"), &["ServiceAccount", "User", "Group"]),
        }
    }
}

pub(super) fn role_ref_update(old: &Position<'_>, new: &Position<'_>, report: &mut Report) {
    let (before, after) = (old.at("roleRef"), new.at("roleRef"));
    if before.value != after.value {
        let text = |field: &str| report::quoted(after.at(field).text());
        let value =
            format!(r#"{{"APIGroup":{},"Kind":{},"Name":{}}}"#, text("apiGroup"), text("kind"), text("name"));
        report.invalid_value(&after, &value, "cannot change roleRef");
    }
}

pub(super) fn lease(object: &Position<'_>, report: &mut Report) {
    let (duration, transitions) =
        (object.at("spec.leaseDurationSeconds"), object.at("spec.leaseTransitions"));
    if duration.is_set() && duration.number() <= 0 {
        report.invalid(&duration, "must be greater than 0");
    }
    non_negative(&transitions, report);
}

pub(super) fn ingress(object: &Position<'_>, report: &mut Report) {
    let spec = object.at("spec");
    if spec.at("rules").is_empty() && !spec.at("defaultBackend").is_set() {
        report.invalid_value(&spec, "null", "either `defaultBackend` or `rules` must be specified");
    }
    if spec.at("defaultBackend").is_set() {
        backend(&spec.at("defaultBackend"), report);
    }
    for rule in spec.each("rules") {
        let host = rule.at("host");
        if host.text().contains('*') {
            report.invalid_each(&host, host.text(), formats::wildcard_subdomain(host.text()));
        } else if !host.is_empty() {
            if host.text().parse::<std::net::IpAddr>().is_ok() {
                report.invalid(&host, "must be a DNS name, not an IP address");
            }
            report.invalid_each(&host, host.text(), formats::dns_subdomain(host.text()));
        }
        if rule.at("http").is_set() && rule.at("http.paths").is_empty() {
            report.required(&rule.at("http.paths"), "");
        }
        for path in rule.each("http.paths") {
            ingress_path(&path, report);
        }
    }
    let class = spec.at("ingressClassName");
    if class.is_set() {
        report.invalid_each(&class, class.text(), formats::dns_subdomain(class.text()));
    }
}

/// Checks that the deprecated annotation of a new ingress does not contradict its class; updates may.
pub(super) fn ingress_class(object: &Position<'_>, report: &mut Report) {
    let annotation = object.at("metadata.annotations").key("kubernetes.io/ingress.class");
    let class = object.at("spec.ingressClassName");
    if annotation.is_set() && class.is_set() && annotation.text() != class.text() {
        let position =
            Position { value: annotation.value, path: "annotations.kubernetes.io/ingress.class".to_owned() };
        report.invalid(&position, "must match `ingressClassName` when both are specified");
    }
}

/// Checks a domain-prefixed path.
pub(super) fn domain_path(position: &Position<'_>, report: &mut Report) {
    match position.text().split_once('/') {
        _ if position.is_empty() => report.required(position, ""),
        Some((host, path)) if !host.is_empty() && !path.is_empty() => {
            report.invalid_each(position, host, formats::dns_subdomain(host));
        }
        _ => report.invalid(position, "must be a domain-prefixed path (such as \"acme.io/foo\")"),
    }
}

fn ingress_path(position: &Position<'_>, report: &mut Report) {
    let (kind, path) = (position.at("pathType"), position.at("path"));
    match kind.text() {
        "" => {
            report.required(&kind, "pathType must be specified");
            return;
        }
        "Exact" | "Prefix" => {
            if !path.text().starts_with('/') {
                report.invalid_text(&path, path.text(), "must be an absolute path");
            }
            for part in ["//", "/./", "/../", "%2f", "%2F"] {
                if path.text().contains(part) {
                    report.invalid(&path, &format!("must not contain '{part}'"));
                }
            }
            for end in ["/..", "/."] {
                if path.text().ends_with(end) {
                    report.invalid(&path, &format!("cannot end with '{end}'"));
                }
            }
        }
        "ImplementationSpecific" => {
            if !path.is_empty() && !path.text().starts_with('/') {
                report.invalid(&path, "must be an absolute path");
            }
        }
        _ => report.unsupported(&kind, &["Exact", "ImplementationSpecific", "Prefix"]),
    }
    backend(&position.at("backend"), report);
}

fn backend(position: &Position<'_>, report: &mut Report) {
    let (resource, service) = (position.at("resource"), position.at("service"));
    match (resource.is_set(), service.is_set()) {
        (true, true) => report.invalid_text(position, "", "cannot set both resource and service backends"),
        (false, false) => report.invalid_text(position, "", "resource or service backend is required"),
        (true, false) => {}
        (false, true) => {
            let name = service.at("name");
            if name.is_empty() {
                report.required(&name, "");
            } else {
                report.invalid_each(&name, name.text(), formats::dns_label(name.text()));
            }
            let (port_name, number) = (service.at("port.name"), service.at("port.number"));
            match (port_name.is_empty(), number.number() == 0) {
                (false, false) => {
                    report.invalid_text(position, "", "cannot set both port name & port number");
                }
                (false, true) => {
                    report.invalid_each(&port_name, port_name.text(), formats::port_name(port_name.text()));
                }
                (true, false) => port_number(&number, report),
                (true, true) => report.required(position, "port name or number is required"),
            }
        }
    }
}

pub(super) fn network_policy(object: &Position<'_>, report: &mut Report) {
    let spec = object.at("spec");
    meta::selector(&spec.at("podSelector"), report);
    for (rules, peers) in [("ingress", "from"), ("egress", "to")] {
        for rule in spec.each(rules) {
            for port in rule.each("ports") {
                if !["TCP", "UDP", "SCTP"].contains(&port.at("protocol").text()) {
                    report.unsupported(&port.at("protocol"), &["TCP", "UDP", "SCTP"]);
                }
                if port.at("port").is_set() {
                    port_or_name(&port.at("port"), report);
                }
                end_port(&port.at("port"), &port.at("endPort"), report);
            }
            for peer in rule.each(peers) {
                let selectors = ["podSelector", "namespaceSelector", "ipBlock"];
                if selectors.iter().all(|field| !peer.at(field).is_set()) {
                    report.required(&peer, "must specify a peer");
                }
                meta::selector(&peer.at("podSelector"), report);
                meta::selector(&peer.at("namespaceSelector"), report);
            }
        }
    }
    for kind in spec.each("policyTypes") {
        if !["Ingress", "Egress"].contains(&kind.text()) {
            report.unsupported(&kind, &["Ingress", "Egress"]);
        }
    }
}

/// Checks the end of a port range.
fn end_port(port: &Position<'_>, end: &Position<'_>, report: &mut Report) {
    if !end.is_set() {
    } else if !port.is_set() {
        report.invalid(end, "may not be specified when `port` is not specified");
    } else if port.value.is_string() {
        report.invalid(end, "may not be specified when `port` is non-numeric");
    } else {
        if end.number() < port.number() {
            // kube-apiserver prints `port`.
            let shown = port.number().to_string();
            report.invalid_value(end, &shown, "must be greater than or equal to `port`");
        }
        port_number(end, report);
    }
}

pub(super) fn autoscaler(object: &Position<'_>, report: &mut Report) {
    let spec = object.at("spec");
    let (min, max) = (spec.at("minReplicas"), spec.at("maxReplicas"));
    if min.is_set() && min.number() < 1 {
        report.invalid(&min, "must be greater than or equal to 1");
    }
    if max.number() == 0 {
        report.required(&max, "must be set and greater than 0");
    } else if max.number() < 0 {
        report.invalid(&max, "must be greater than or equal to 1");
    }
    if min.is_set() && max.number() < min.number() {
        report.invalid_value(
            &max,
            &max.number().to_string(),
            "must be greater than or equal to `minReplicas`",
        );
    }
    for field in ["kind", "name"] {
        let position = spec.at("scaleTargetRef").at(field);
        if position.is_empty() {
            report.required(&position, "");
        } else {
            report.invalid_each(&position, position.text(), formats::path_segment(position.text()));
        }
    }
}

pub(super) fn disruption_budget(object: &Position<'_>, report: &mut Report) {
    let spec = object.at("spec");
    for position in [spec.at("minAvailable"), spec.at("maxUnavailable")] {
        if position.is_set() {
            count_or_percent(&position, report);
            at_most_100_percent(&position, report);
        }
    }
    if spec.at("minAvailable").is_set() && spec.at("maxUnavailable").is_set() {
        report.invalid(&spec, "minAvailable and maxUnavailable cannot be both set");
    }
    meta::selector(&spec.at("selector"), report);
    let policy = spec.at("unhealthyPodEvictionPolicy");
    if policy.is_set() {
        one_of(&policy, &["AlwaysAllow", "IfHealthyBudget"], report);
    }
}

pub(super) fn priority_class(object: &Position<'_>, report: &mut Report) {
    let (name, value) = (object.at("metadata.name"), object.at("value"));
    if name.text().starts_with("system-") {
        if let Some(why) = system_class_error(name.text(), object) {
            let prefix =
                "priority class names with 'system-' prefix are reserved for system use only. error:";
            report.forbidden(&name, &format!("{prefix} {why}"));
        }
    } else if value.number() > 1_000_000_000 {
        report.forbidden(&value, "maximum allowed value of a user defined priority is 1000000000");
    }
    one_of(&object.at("preemptionPolicy"), &["PreemptLowerPriority", "Never"], report);
}

/// Returns the error if a class is not one of the built-in system classes.
fn system_class_error(name: &str, class: &Position<'_>) -> Option<String> {
    let known = super::super::strategy::SYSTEM_PRIORITY_CLASSES.iter().find(|(known, _)| *known == name);
    match known {
        None => Some(format!("{name} is not a known system priority class")),
        Some((_, value)) if *value != class.at("value").number() => {
            Some(format!("value of {name} PriorityClass must be {value}"))
        }
        Some(_) if class.at("globalDefault").value == true => {
            Some(format!("globalDefault of {name} PriorityClass must be false"))
        }
        Some(_) => None,
    }
}

pub(super) fn priority_class_update(old: &Position<'_>, new: &Position<'_>, report: &mut Report) {
    if old.at("value").value != new.at("value").value {
        report.forbidden(&new.at("value"), "may not be changed in an update.");
    }
    immutable(&old.at("preemptionPolicy"), &new.at("preemptionPolicy"), report);
}

pub(super) fn webhooks(object: &Position<'_>, report: &mut Report) {
    for hook in object.each("webhooks") {
        let name = hook.at("name");
        if name.is_empty() {
            report.required(&name, "");
        } else if let [why, ..] = formats::dns_subdomain(name.text()).as_slice() {
            report.invalid(&name, why);
        } else if name.text().split('.').count() < 3 {
            report.invalid(&name, "should be a domain with at least three segments separated by dots");
        }
        let effects = hook.at("sideEffects");
        if !effects.is_set() {
            report.required(&effects, "must specify one of None, NoneOnDryRun");
        } else if !["None", "NoneOnDryRun"].contains(&effects.text()) {
            report.unsupported(&effects, &["None", "NoneOnDryRun"]);
        }
        let timeout = hook.at("timeoutSeconds");
        if timeout.is_set() && !(1..=30).contains(&timeout.number()) {
            report.invalid(&timeout, "the timeout value must be between 1 and 30 seconds");
        }
        let client = hook.at("clientConfig");
        if client.at("url").is_set() == client.at("service").is_set() {
            report.required(&client, "exactly one of url or service is required");
        }
        let versions = hook.at("admissionReviewVersions");
        if versions.is_empty() {
            report.required(&versions, "must specify one of v1, v1beta1");
        }
    }
}

fn decoded_len(value: &Position<'_>) -> usize {
    STANDARD.decode(value.text()).map_or(0, |bytes| bytes.len())
}
