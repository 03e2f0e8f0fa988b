//! Validation of objects, with the causes and the order of kube-apiserver.
//!
//! The object must already be decoded, defaulted and prepared. Included are the rules that clients usually
//! violate: metadata, required fields, names, ports, selectors, templates, and immutable fields. An object
//! that violates only other rules of kube-apiserver is accepted.

mod containers;
mod cron;
mod events;
mod generic;
mod kinds;
mod meta;
mod pod_subresources;
mod pod_update;
mod pods;
mod quotas;
mod report;
mod services;
mod status;
mod storage;
mod workloads;

use informer_schema::RESOURCES;
use serde_json::Value;

use crate::status::StatusCause;
use report::{Position, Report};

const RBAC: &str = "rbac.authorization.k8s.io";

/// Immutable fields by kind.
const IMMUTABLE_FIELDS: &[(&str, &str, &[&str])] = &[
    ("apps", "Deployment", &["spec.selector"]),
    ("apps", "ReplicaSet", &["spec.selector"]),
    ("apps", "DaemonSet", &["spec.selector"]),
    ("apps", "ControllerRevision", &["data"]),
    ("", "Secret", &["type"]),
    ("storage.k8s.io", "StorageClass", &["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"]),
    ("storage.k8s.io", "VolumeAttachment", &["spec"]),
    ("storage.k8s.io", "VolumeAttributesClass", &["driverName", "parameters"]),
    ("node.k8s.io", "RuntimeClass", &["handler"]),
    ("networking.k8s.io", "IngressClass", &["spec.controller"]),
    ("discovery.k8s.io", "EndpointSlice", &["addressType"]),
    ("resource.k8s.io", "ResourceClaim", &["spec"]),
    ("resource.k8s.io", "ResourceClaimTemplate", &["spec"]),
];

/// Kinds whose metadata is validated on update by the same rules as on creation.
const STRICT_METADATA_ON_UPDATE: &[(&str, &str)] = &[
    ("", "ConfigMap"),
    ("", "Secret"),
    ("", "PersistentVolume"),
    ("", "PersistentVolumeClaim"),
    ("", "LimitRange"),
    ("", "ResourceQuota"),
    ("discovery.k8s.io", "EndpointSlice"),
];

/// Validates a new object.
pub fn create(group: &str, kind: &str, object: &Value) -> Vec<StatusCause> {
    let mut report = Report::default();
    let position = Position::root(object);
    match (group, kind) {
        ("", "Pod") => pods::create(&position, &mut report),
        (_, "Event") => events::create(group, &position, &mut report),
        _ => {
            meta::check_strictly(&position, group, kind, &mut report);
            check_kind(group, kind, &position, &mut report);
            if (group, kind) == ("networking.k8s.io", "Ingress") {
                kinds::ingress_class(&position, &mut report);
            }
        }
    }
    check_types(group, kind, object, &mut report);
    // Like kube-apiserver, checks the rules for any object only if the kind reports nothing.
    if report.causes.is_empty() {
        let namespaced = meta::is_namespaced(group, kind);
        meta::check(&position, namespaced, meta::Naming::PathSegment, &mut report);
    }
    report.causes
}

/// Validates an update of a whole object.
pub(crate) fn update(group: &str, kind: &str, old: &Value, new: &Value) -> Vec<StatusCause> {
    let mut report = Report::default();
    let (before, after) = (Position::root(old), Position::root(new));
    // Like kube-apiserver, checks the metadata twice: here for any object, then for the kind.
    meta::check(&after, meta::is_namespaced(group, kind), meta::Naming::PathSegment, &mut report);
    meta::check_update(&before, &after, &mut report);
    match (group, kind) {
        ("", "Pod") => pods::update(&before, &after, &mut report),
        (_, "Event") => events::update(group, &before, &after, &mut report),
        (RBAC, "RoleBinding" | "ClusterRoleBinding") => {
            // For these kinds, kube-apiserver validates the new object before comparing it with the old one.
            meta::check_strictly(&after, group, kind, &mut report);
            check_kind(group, kind, &after, &mut report);
            meta::check_update(&before, &after, &mut report);
            kinds::role_ref_update(&before, &after, &mut report);
        }
        _ => {
            meta::check_update(&before, &after, &mut report);
            compare_before_kind(group, kind, &before, &after, &mut report);
            if STRICT_METADATA_ON_UPDATE.contains(&(group, kind)) {
                meta::check_strictly(&after, group, kind, &mut report);
            }
            check_kind(group, kind, &after, &mut report);
            compare_after_kind(group, kind, &before, &after, &mut report);
        }
    }
    check_types(group, kind, new, &mut report);
    report.causes
}

/// Validates an update through a subresource; an empty name means the whole object.
///
/// A subresource without rules of its own is validated like the whole object.
pub fn update_subresource(
    subresource: &str,
    group: &str,
    kind: &str,
    old: &Value,
    new: &Value,
) -> Vec<StatusCause> {
    let mut report = Report::default();
    let (before, after) = (Position::root(old), Position::root(new));
    meta::check(&after, meta::is_namespaced(group, kind), meta::Naming::PathSegment, &mut report);
    meta::check_update(&before, &after, &mut report);
    match (subresource, group, kind) {
        ("ephemeralcontainers", "", "Pod") => {
            pod_subresources::ephemeral_containers(&before, &after, &mut report);
        }
        ("resize", "", "Pod") => pod_subresources::resize(&before, &after, &mut report),
        ("status", ..) if status::is_known(group, kind) => {
            status::update(group, kind, &before, &after, &mut report);
            return report.causes;
        }
        _ => return update(group, kind, old, new),
    }
    check_types(group, kind, new, &mut report);
    report.causes
}

/// Applies the rules of a kind beyond its metadata.
fn check_kind(group: &str, kind: &str, object: &Position<'_>, report: &mut Report) {
    match (group, kind) {
        ("", "ConfigMap") => kinds::config_map(object, report),
        ("", "Secret") => kinds::secret(object, report),
        ("", "Namespace") => kinds::namespace(object, report),
        ("", "Node") => kinds::node(object, report),
        ("", "Service") => services::service(object, report),
        ("", "Endpoints") => services::endpoints(object, report),
        ("", "PersistentVolume") => storage::volume(object, report),
        ("", "PersistentVolumeClaim") => storage::claim_spec(&object.at("spec"), report),
        ("", "ResourceQuota") => quotas::quota(object, report),
        ("", "LimitRange") => quotas::limits(object, report),
        ("", "PodTemplate") => pods::template(&object.at("template"), report),
        ("", "ReplicationController") => workloads::replication_controller(object, report),
        ("apps", "Deployment") => workloads::deployment(object, report),
        ("apps", "ReplicaSet") => workloads::replica_set(object, report),
        ("apps", "DaemonSet") => workloads::daemon_set(object, report),
        ("apps", "StatefulSet") => workloads::stateful_set(object, report),
        ("apps", "ControllerRevision") => meta::non_negative(&object.at("revision"), report),
        ("batch", "Job") => workloads::job(object, report),
        ("batch", "CronJob") => workloads::cron_job(object, report),
        (RBAC, "Role" | "ClusterRole") => kinds::role(object, kind == "Role", report),
        (RBAC, "RoleBinding" | "ClusterRoleBinding") => {
            kinds::role_binding(object, kind == "RoleBinding", report);
        }
        ("coordination.k8s.io", "Lease") => kinds::lease(object, report),
        ("networking.k8s.io", "Ingress") => kinds::ingress(object, report),
        ("networking.k8s.io", "IngressClass") => kinds::domain_path(&object.at("spec.controller"), report),
        ("networking.k8s.io", "NetworkPolicy") => kinds::network_policy(object, report),
        ("discovery.k8s.io", "EndpointSlice") => services::endpoint_slice(object, report),
        ("autoscaling", "HorizontalPodAutoscaler") => kinds::autoscaler(object, report),
        ("policy", "PodDisruptionBudget") => kinds::disruption_budget(object, report),
        ("scheduling.k8s.io", "PriorityClass") => kinds::priority_class(object, report),
        ("storage.k8s.io", "StorageClass") => storage::class(object, report),
        ("storage.k8s.io", "VolumeAttachment") => storage::attachment(object, report),
        (
            "admissionregistration.k8s.io",
            "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration",
        ) => {
            kinds::webhooks(object, report);
        }
        _ => {}
    }
}

/// Applies the comparisons with the old object that precede the rules of the kind.
fn compare_before_kind(group: &str, kind: &str, old: &Position<'_>, new: &Position<'_>, report: &mut Report) {
    match (group, kind) {
        ("", "ConfigMap") => kinds::frozen(old, new, &["data", "binaryData"], report),
        ("", "Secret") => {
            meta::immutable(&old.at("type"), &new.at("type"), report);
            kinds::frozen(old, new, &["data"], report);
        }
        ("", "Service") => services::service_update(old, new, report),
        ("", "Node") => kinds::node_update(old, new, report),
        _ => {}
    }
}

/// Applies the comparisons with the old object that follow the rules of the kind.
fn compare_after_kind(group: &str, kind: &str, old: &Position<'_>, new: &Position<'_>, report: &mut Report) {
    match (group, kind) {
        ("apps", "StatefulSet") => workloads::stateful_set_update(old, new, report),
        ("batch", "Job") => workloads::job_update(old, new, report),
        ("", "PersistentVolumeClaim") => storage::claim_update(old, new, report),
        ("", "PersistentVolume") => storage::volume_update(old, new, report),
        ("scheduling.k8s.io", "PriorityClass") => kinds::priority_class_update(old, new, report),
        // Compared by `compare_before_kind`.
        ("", "Secret") => {}
        _ => {
            let rows = IMMUTABLE_FIELDS.iter().filter(|row| (row.0, row.1) == (group, kind));
            for field in rows.flat_map(|row| row.2) {
                meta::immutable(&old.at(field), &new.at(field), report);
            }
        }
    }
}

/// Applies the rules of the types in an object, which hold for every kind.
fn check_types(group: &str, kind: &str, object: &Value, report: &mut Report) {
    let same = |resource: &&informer_schema::Resource| resource.group == group && resource.kind == kind;
    let api_version = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    let version = api_version.rsplit('/').next().unwrap_or_default();
    let mut known = RESOURCES.iter().filter(same);
    let resource = known.clone().find(|resource| resource.version == version).or_else(|| known.next());
    if let Some(type_id) = resource.and_then(|resource| resource.type_id) {
        generic::check(type_id, &Position::root(object), report);
    }
}
