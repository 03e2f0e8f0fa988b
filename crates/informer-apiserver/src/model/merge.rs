//! Computes the object that results from an update: fields that the body may change come from the body, all
//! others from the old object.
//!
//! Pure functions of the old object and the body. The caller has checked that the body is meant for this
//! object; versions and history are not known here.

use informer_objects::status::{Status, StatusCause};
use serde_json::{Map, Value, json};

use super::json_edit::{copy_field, is_empty, is_equal_ignoring};
use super::kinds::VersionedResource;
use super::meta::metadata;
use super::resource::Resource;
use super::write_pipeline::reset_fields;
use super::write_target::WriteTarget;

/// Returns the object that results from writing `body` to a part of `old`.
pub(super) fn merge(
    resource: &Resource,
    gvr: VersionedResource,
    target: WriteTarget,
    old: &Value,
    body: Value,
) -> Result<Value, Status> {
    match target {
        WriteTarget::Object | WriteTarget::Scale => merge_object(resource, gvr, old, body),
        WriteTarget::Status => merge_status(resource, gvr, old, body),
        WriteTarget::Finalize => {
            let mut merged = old.clone();
            merged["spec"] = body.get("spec").cloned().unwrap_or_else(|| json!({}));
            Ok(merged)
        }
        WriteTarget::Approval => {
            let mut merged = old.clone();
            if let Some(conditions) = body.pointer("/status/conditions") {
                super::json_edit::set(&mut merged, &["status", "conditions"], conditions.clone());
            }
            Ok(merged)
        }
        WriteTarget::EphemeralContainers => {
            let mut merged = old.clone();
            copy_field(&mut merged["spec"], &body["spec"], "ephemeralContainers");
            Ok(finish_pod_subresource(old, merged, &body))
        }
        WriteTarget::Resize => Ok(finish_pod_subresource(old, resized(old, &body), &body)),
    }
}

/// Replaces the status, and the metadata that may be written with it.
fn merge_status(
    resource: &Resource,
    gvr: VersionedResource,
    old: &Value,
    mut body: Value,
) -> Result<Value, Status> {
    let reset = reset_fields(resource, gvr.version, WriteTarget::Status);
    if resource.custom || reset.contains(&"metadata") {
        let mut merged = old.clone();
        copy_field(&mut merged, &body, "status");
        if let Some(managed) = body.pointer("/metadata/managedFields").filter(|managed| managed.is_array()) {
            merged["metadata"]["managedFields"] = managed.clone();
        }
        return Ok(merged);
    }
    let metadata = merge_metadata(resource, old, &mut body)?;
    for field in reset.iter().filter_map(|path| path.strip_prefix("metadata.")) {
        match old["metadata"].get(field) {
            Some(value) => metadata.insert(field.to_owned(), value.clone()),
            None => metadata.remove(field),
        };
    }
    let mut merged = body;
    if let (Some(merged), Some(old)) = (merged.as_object_mut(), old.as_object()) {
        let unchanged = old.iter().filter(|(name, _)| !matches!(name.as_str(), "metadata" | "status"));
        merged.retain(|name, _| matches!(name.as_str(), "metadata" | "status"));
        merged.extend(unchanged.map(|(name, value)| (name.clone(), value.clone())));
    }
    Ok(merged)
}

/// Completes a change through a subresource of a pod: copies `managedFields` from the body, and increases the
/// generation if the spec changed.
fn finish_pod_subresource(old: &Value, mut merged: Value, body: &Value) -> Value {
    if let Some(managed) = body.pointer("/metadata/managedFields").filter(|managed| managed.is_array()) {
        merged["metadata"]["managedFields"] = managed.clone();
    }
    if merged.get("spec") != old.get("spec") {
        let generation = old["metadata"]["generation"].as_u64().unwrap_or(0);
        merged["metadata"]["generation"] = json!(generation + 1);
    }
    merged
}

/// Returns a pod with the resources of the body. Added, removed or renamed containers are copied too, so that
/// validation can reject them.
fn resized(old: &Value, body: &Value) -> Value {
    let mut merged = old.clone();
    let names = |pod: &Value, list: &str| -> Vec<Value> {
        let containers = pod["spec"][list].as_array().into_iter().flatten();
        containers.map(|container| container["name"].clone()).collect()
    };
    let lists = ["containers", "initContainers"];
    if lists.iter().any(|list| names(old, list).len() != names(body, list).len()) {
        copy_field(&mut merged, body, "spec");
        return merged;
    }
    copy_field(&mut merged["spec"], &body["spec"], "resources");
    for list in lists {
        if names(old, list) != names(body, list) {
            copy_field(&mut merged["spec"], &body["spec"], list);
            continue;
        }
        let requested = body["spec"][list].as_array().into_iter().flatten();
        let containers = merged["spec"].get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for (container, requested) in containers.zip(requested) {
            for field in ["resources", "resizePolicy"] {
                copy_field(container, requested, field);
            }
        }
    }
    merged
}

fn merge_object(
    resource: &Resource,
    gvr: VersionedResource,
    old: &Value,
    mut body: Value,
) -> Result<Value, Status> {
    merge_metadata(resource, old, &mut body)?;
    if resource.has_status(gvr.version) {
        copy_field(&mut body, old, "status");
    }
    // Only `finalize` changes the spec of a namespace.
    if resource.is("", "namespaces") {
        copy_field(&mut body, old, "spec");
    }
    let changed = increases_generation(resource, gvr, old, &body);
    if resource.generation && changed {
        let generation = old["metadata"]["generation"].as_u64().unwrap_or(0);
        body["metadata"]["generation"] = json!(generation + 1);
    }
    Ok(body)
}

/// Merges the metadata of an update; fields that the server owns keep their values.
fn merge_metadata<'a>(
    resource: &Resource,
    old: &Value,
    body: &'a mut Value,
) -> Result<&'a mut Map<String, Value>, Status> {
    let empty = Map::new();
    let old_metadata = old.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
    let new = metadata(resource, body)?;
    new.retain(|_, value| !is_empty(value));
    for field in ["namespace", "creationTimestamp", "generation"] {
        match old_metadata.get(field) {
            Some(value) => new.insert(field.to_owned(), value.clone()),
            None => new.remove(field),
        };
    }
    // If the body has another value, validation rejects it as a change of an immutable field. In custom
    // objects, kube-apiserver ignores such a value.
    for field in ["uid", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        if let Some(value) = old_metadata.get(field) {
            new.entry(field).or_insert_with(|| value.clone());
        }
    }
    if resource.custom {
        for field in ["uid", "deletionTimestamp", "deletionGracePeriodSeconds"] {
            match old_metadata.get(field) {
                Some(value) => new.insert(field.to_owned(), value.clone()),
                None => new.remove(field),
            };
        }
    }
    if !new.contains_key("managedFields")
        && let Some(managed) = old_metadata.get("managedFields")
    {
        new.insert("managedFields".to_owned(), managed.clone());
    }
    new.remove("selfLink");
    if resource.custom {
        check_finalizers(resource, old_metadata, new)?;
    }
    Ok(new)
}

/// Rejects new finalizers on a terminating object.
fn check_finalizers(
    resource: &Resource,
    old: &Map<String, Value>,
    new: &Map<String, Value>,
) -> Result<(), Status> {
    if !old.contains_key("deletionTimestamp") {
        return Ok(());
    }
    let finalizers = |metadata: &Map<String, Value>| -> Vec<Value> {
        metadata.get("finalizers").and_then(Value::as_array).cloned().unwrap_or_default()
    };
    let old_finalizers = finalizers(old);
    let added: Vec<String> = finalizers(new)
        .iter()
        .filter(|finalizer| !old_finalizers.contains(finalizer))
        .map(Value::to_string)
        .collect();
    if added.is_empty() {
        return Ok(());
    }
    let message = format!(
        "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
        added.join(", ")
    );
    let name = new.get("name").and_then(Value::as_str).unwrap_or_default();
    let cause = StatusCause::new("FieldValueForbidden", "metadata.finalizers", message);
    Err(Status::invalid(&resource.group, &resource.kind, name, vec![cause]))
}

/// Returns whether a change increases the generation.
///
/// Changes of the metadata do not, except for annotations of deployments and labels of endpoint slices.
/// Changes of the status do only if there is no status subresource. All other changes do.
fn increases_generation(resource: &Resource, gvr: VersionedResource, old: &Value, new: &Value) -> bool {
    let uncounted: &[&str] = if resource.has_status(gvr.version) {
        &["kind", "apiVersion", "metadata", "status"]
    } else {
        &["kind", "apiVersion", "metadata"]
    };
    let annotations = |object: &Value| object.pointer("/metadata/annotations").cloned();
    let by_annotation = resource.is("apps", "deployments") && annotations(old) != annotations(new);
    let labels = |object: &Value| object.pointer("/metadata/labels").cloned();
    let by_label = resource.is("discovery.k8s.io", "endpointslices") && labels(old) != labels(new);
    by_annotation || by_label || !is_equal_ignoring(old, new, uncounted)
}

/// Returns whether an object is terminating and has neither finalizers nor a grace period left.
pub(super) fn is_deletion_complete(resource: &Resource, object: &Value) -> bool {
    let metadata = &object["metadata"];
    let has_finalizers = metadata.get("finalizers").is_some_and(|finalizers| !is_empty(finalizers))
        || (resource.is("", "namespaces")
            && object.pointer("/spec/finalizers").is_some_and(|finalizers| !is_empty(finalizers)));
    let has_grace_period =
        metadata.get("deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0) > 0;
    metadata.get("deletionTimestamp").is_some() && !has_finalizers && !has_grace_period
}
