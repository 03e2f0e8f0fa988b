//! Strategies: fields that the server sets, keeps or drops when an object is created or updated.
//!
//! Applies the admission plugins that kube-apiserver enables by default, as far as they depend on the object
//! alone, then the strategy of the kind. The object must already be decoded and defaulted. A new object must
//! have name and uid.
//!
//! [`prepare_create`] replaces the status of a new object, except of a node. [`prepare_update`] restores the
//! status of the old object; only a service that is not a load balancer loses that part of its status.
//! [`prepare_status`] keeps the status of the request and completes it.
//!
//! The caller sets the generation, except of pods, and the other `metadata`. It also allocates the addresses
//! and ports of services: see [`Wanted`].

mod pods;
mod services;

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::decode::read;
use super::value::{at, flag, list, list_mut, object_in, set_if_absent, set_if_empty, text};
use crate::text::times;
use informer_schema::RESOURCES;

pub(super) use pods::{SYSTEM_PRIORITY_CLASSES, qos};
pub use pods::{refuse_priority, refuse_runtime_class, set_priority, set_runtime_class};
pub use services::Wanted;

/// Fields of disabled features, as group, kind, path of the parent, and name.
///
/// kube-apiserver drops them without a warning.
const DISABLED_FIELDS: &[(&str, &str, &str, &str)] = &[
    ("coordination.k8s.io", "Lease", "spec", "strategy"),
    ("coordination.k8s.io", "Lease", "spec", "preferredHolder"),
    ("apps", "StatefulSet", "spec.updateStrategy.rollingUpdate", "maxUnavailable"),
    ("storage.k8s.io", "CSIDriver", "spec", "preventPodSchedulingIfMissing"),
];

const DAEMON_SET_GENERATION: &str = "deprecated.daemonset.template.generation";
const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// Prepares a new object for validation and storage.
pub fn prepare_create(group: &str, kind: &str, object: &mut Value, now: Timestamp) {
    drop_disabled_fields(group, kind, object);
    let metadata = object_in(fields(object), "metadata");
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        metadata.remove(field);
    }
    deduplicate_owners(metadata);
    if (group, kind) != ("", "Node") {
        reset_status(group, kind, object);
    }
    match (group, kind) {
        ("", "Pod") => pods::prepare_create(object, now),
        ("", "Service") => services::prepare_create(object),
        ("", "Namespace") => activate_namespace(object),
        ("", "Node") => add_not_ready_taint(object),
        ("", "PersistentVolume") => {
            add_finalizer(object, "kubernetes.io/pv-protection");
            let status = object_in(fields(object), "status");
            status.insert("phase".to_owned(), "Pending".into());
            status.insert("lastPhaseTransitionTime".to_owned(), times::written(now).into());
        }
        ("", "PersistentVolumeClaim") => {
            add_finalizer(object, "kubernetes.io/pvc-protection");
            sync_data_sources(object);
            object_in(fields(object), "status").insert("phase".to_owned(), "Pending".into());
        }
        ("", "ServiceAccount") => reduce_secret_references(object),
        ("storage.k8s.io", "VolumeAttributesClass") => add_finalizer(object, "kubernetes.io/vac-protection"),
        ("apps", "StatefulSet") => {
            for claim in list_mut(object, "spec.volumeClaimTemplates") {
                reset_status("", "PersistentVolumeClaim", claim);
                object_in(fields(claim), "status").insert("phase".to_owned(), "Pending".into());
            }
        }
        ("apps", "DaemonSet") => set_template_generation(object, 1),
        ("batch", "Job") => set_pod_selector(object),
        ("apiregistration.k8s.io", "APIService") => mark_local_service_available(object, now),
        _ => {}
    }
}

/// Sets the requester of a certificate signing request.
pub fn set_requester(request: &mut Value, name: &str, uid: &str, groups: &[&str]) {
    let spec = object_in(fields(request), "spec");
    for field in ["username", "uid", "groups", "extra"] {
        spec.remove(field);
    }
    if !name.is_empty() {
        spec.insert("username".to_owned(), name.into());
    }
    if !uid.is_empty() {
        spec.insert("uid".to_owned(), uid.into());
    }
    if !groups.is_empty() {
        spec.insert("groups".to_owned(), json!(groups));
    }
}

/// Prepares an updated object for validation and storage in place of `old`.
///
/// Not for updates of the status: it restores the status of `old`.
pub fn prepare_update(group: &str, kind: &str, old: &Value, new: &mut Value) {
    drop_disabled_fields(group, kind, new);
    keep_metadata(old, object_in(fields(new), "metadata"));
    match (old.get("status"), new.as_object_mut()) {
        (Some(status), Some(new)) => {
            new.insert("status".to_owned(), status.clone());
        }
        (None, Some(new)) => {
            new.remove("status");
        }
        _ => {}
    }
    match (group, kind) {
        ("", "Pod") => pods::prepare_update(old, new),
        ("", "Service") => services::prepare_update(old, new),
        ("", "Namespace") => {
            let spec = object_in(fields(new), "spec");
            match at(old, "spec.finalizers") {
                Some(finalizers) => spec.insert("finalizers".to_owned(), finalizers.clone()),
                None => spec.remove("finalizers"),
            };
        }
        ("", "PersistentVolumeClaim") => sync_data_sources(new),
        ("", "ServiceAccount") => reduce_secret_references(new),
        ("certificates.k8s.io", "CertificateSigningRequest") => {
            // kube-apiserver ignores the spec in the request.
            if let (Some(spec), Some(new)) = (old.get("spec"), new.as_object_mut()) {
                new.insert("spec".to_owned(), spec.clone());
            }
        }
        ("apps", "DaemonSet") => {
            let before = old.pointer("/metadata/annotations").and_then(|all| all.get(DAEMON_SET_GENERATION));
            let before: i64 = before.and_then(Value::as_str).and_then(|text| text.parse().ok()).unwrap_or(1);
            let changed = at(old, "spec.template") != at(new, "spec.template");
            set_template_generation(new, before + i64::from(changed));
        }
        _ => {}
    }
}

/// Prepares an object with an updated status for validation and storage in place of `old`.
pub fn prepare_status(group: &str, kind: &str, old: &Value, new: &mut Value, now: Timestamp) {
    match (group, kind) {
        ("", "Pod") => pods::prepare_status(old, new),
        ("", "PersistentVolume") => {
            // A request that sets another time keeps it. Otherwise the time is that of `old`, or `now` if the
            // phase changes.
            let time = "lastPhaseTransitionTime";
            let before = at(old, "status").and_then(|status| status.get(time)).cloned();
            let same_phase = at(old, "status.phase") == at(new, "status.phase");
            let status = object_in(fields(new), "status");
            let requested = status.get(time).cloned();
            match (same_phase, before) {
                (true, Some(before)) if requested.is_none() => status.insert(time.to_owned(), before),
                (false, before) if requested.is_none() || requested == before => {
                    status.insert(time.to_owned(), times::written(now).into())
                }
                _ => None,
            };
        }
        _ => {}
    }
}

/// Restores the old uid and deletion fields if the client omitted them, and always the creation time.
///
/// Also removes duplicate owner references.
fn keep_metadata(old: &Value, metadata: &mut Map<String, Value>) {
    for field in ["uid", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        if let Some(value) = old.get("metadata").and_then(|metadata| metadata.get(field)) {
            set_if_absent(metadata, field, value.clone());
        }
    }
    if let Some(created) = at(old, "metadata.creationTimestamp") {
        metadata.insert("creationTimestamp".to_owned(), created.clone());
    }
    deduplicate_owners(metadata);
}

/// Removes duplicate owner references.
fn deduplicate_owners(metadata: &mut Map<String, Value>) {
    if let Some(owners) = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut) {
        let mut seen = BTreeSet::new();
        owners.retain(|owner| seen.insert(owner.to_string()));
    }
}

fn drop_disabled_fields(group: &str, kind: &str, object: &mut Value) {
    for (_, _, path, field) in DISABLED_FIELDS.iter().filter(|row| (row.0, row.1) == (group, kind)) {
        if let Some(fields) = super::value::at_mut(object, path).and_then(Value::as_object_mut) {
            fields.remove(*field);
        }
    }
}

/// Sets the status to the one that Go writes for an empty object of the kind, or removes it if there is none.
fn reset_status(group: &str, kind: &str, object: &mut Value) {
    let same = |resource: &&informer_schema::Resource| resource.group == group && resource.kind == kind;
    let object_type = RESOURCES.iter().filter(same).find_map(|resource| resource.type_id);
    // Reading `{}` adds the fields that Go always writes, including those in the status.
    let empty_object =
        object_type.and_then(|object_type| read(object_type, json!({})).ok()).map(|read| read.object);
    let fields = fields(object);
    match empty_object.and_then(|mut object| object.get_mut("status").map(Value::take)) {
        Some(status) => fields.insert("status".to_owned(), status),
        None => fields.remove("status"),
    };
}

/// Sets the phase `Active` and adds the finalizer `kubernetes`.
fn activate_namespace(object: &mut Value) {
    let fields = fields(object);
    object_in(fields, "status").insert("phase".to_owned(), "Active".into());
    let spec = object_in(fields, "spec");
    let finalizers = spec.entry("finalizers").or_insert_with(|| json!([]));
    if let Some(finalizers) = finalizers.as_array_mut()
        && !finalizers.iter().any(|finalizer| finalizer == "kubernetes")
    {
        finalizers.push("kubernetes".into());
    }
}

/// Adds the taint of a node that is not ready yet.
fn add_not_ready_taint(object: &mut Value) {
    let existing = list(object, "spec.taints").iter();
    if existing.clone().any(|taint| text(taint, "key") == NOT_READY && text(taint, "effect") == "NoSchedule")
    {
        return;
    }
    let taints = object_in(fields(object), "spec").entry("taints").or_insert_with(|| json!([]));
    if let Some(taints) = taints.as_array_mut() {
        taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
    }
}

fn add_finalizer(object: &mut Value, finalizer: &str) {
    let metadata = object_in(fields(object), "metadata");
    let finalizers = metadata.entry("finalizers").or_insert_with(|| json!([]));
    if let Some(finalizers) = finalizers.as_array_mut()
        && !finalizers.iter().any(|existing| existing == finalizer)
    {
        finalizers.push(finalizer.into());
    }
}

/// Copies `dataSource` to `dataSourceRef`, or back, if one of them is absent.
///
/// A reference with a namespace is not copied back, because `dataSource` has none.
fn sync_data_sources(object: &mut Value) {
    let spec = object_in(fields(object), "spec");
    match (spec.get("dataSource").cloned(), spec.get("dataSourceRef").cloned()) {
        (Some(source), None) => {
            spec.insert("dataSourceRef".to_owned(), source);
        }
        (None, Some(source)) if text(&source, "namespace").is_empty() => {
            spec.insert("dataSource".to_owned(), source);
        }
        _ => {}
    }
}

/// Reduces references to secrets to their name.
fn reduce_secret_references(object: &mut Value) {
    for secret in list_mut(object, "secrets") {
        *secret = match secret.get("name") {
            Some(name) => json!({"name": name}),
            None => json!({}),
        };
    }
}

fn set_template_generation(object: &mut Value, generation: i64) {
    let metadata = object_in(fields(object), "metadata");
    object_in(metadata, "annotations")
        .insert(DAEMON_SET_GENERATION.to_owned(), generation.to_string().into());
}

/// Makes a job select its pods by its uid, unless `spec.manualSelector` is set.
///
/// Sets the selector and the labels of the pod template.
fn set_pod_selector(object: &mut Value) {
    if flag(object, "spec.manualSelector") {
        return;
    }
    let (name, uid) = (text(object, "metadata.name").to_owned(), text(object, "metadata.uid").to_owned());
    let spec = object_in(fields(object), "spec");
    let labels = object_in(object_in(object_in(spec, "template"), "metadata"), "labels");
    for label in ["job-name", "batch.kubernetes.io/job-name"] {
        set_if_absent(labels, label, name.clone());
    }
    for label in ["controller-uid", "batch.kubernetes.io/controller-uid"] {
        set_if_absent(labels, label, uid.clone());
    }
    let labels = labels.clone();
    let selected = object_in(object_in(spec, "selector"), "matchLabels");
    set_if_absent(selected, "batch.kubernetes.io/controller-uid", uid);
    // kube-apiserver sets defaults again when it reads the stored object. A job without labels then gets the
    // labels of its pod template.
    set_if_empty(object_in(fields(object), "metadata"), "labels", labels);
}

/// Marks an `APIService` without `spec.service` as available, because the server itself serves this API.
fn mark_local_service_available(object: &mut Value, now: Timestamp) {
    if at(object, "spec.service").is_some() {
        return;
    }
    let condition = json!({
        "type": "Available", "status": "True", "reason": "Local",
        "message": "Local APIServices are always available",
        "lastTransitionTime": times::written(now),
    });
    object_in(fields(object), "status").insert("conditions".to_owned(), json!([condition]));
}

/// Returns the fields of an object; a value of another type becomes an empty object.
fn fields(object: &mut Value) -> &mut Map<String, Value> {
    if !object.is_object() {
        *object = json!({});
    }
    match object {
        Value::Object(fields) => fields,
        _ => unreachable!("just made an object"),
    }
}
