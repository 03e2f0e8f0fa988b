//! What an update makes of an object: what the body may change comes from it, the rest stays as it was.
//!
//! Pure functions from old and new objects to the one that is stored. That the body is meant for this object was checked before;
//! versions and history come after.

use informer_objects::status::{Status, StatusCause};
use serde_json::{Map, Value, json};

use super::json_edit::{is_empty, is_equal_but, take_field};
use super::kinds::VersionedResource;
use super::meta::metadata;
use super::resource::Resource;
use super::write_pipeline::resets;
use super::write_target::WriteTarget;

/// The object that is stored.
pub(super) fn merge(
    resource: &Resource,
    place: VersionedResource,
    part: WriteTarget,
    old: &Value,
    body: Value,
) -> Result<Value, Status> {
    match part {
        WriteTarget::Object | WriteTarget::Scale => merge_main(resource, place, old, body),
        WriteTarget::Status => merge_status(resource, place, old, body),
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
            take_field(&mut merged["spec"], &body["spec"], "ephemeralContainers");
            Ok(part_of_pod(old, merged, &body))
        }
        WriteTarget::Resize => Ok(part_of_pod(old, resized(old, &body), &body)),
    }
}

/// A new status, and whatever else of the metadata may be written beside it.
fn merge_status(
    resource: &Resource,
    place: VersionedResource,
    old: &Value,
    mut body: Value,
) -> Result<Value, Status> {
    let reset = resets(resource, place.version, WriteTarget::Status);
    if resource.custom || reset.contains(&"metadata") {
        let mut merged = old.clone();
        take_field(&mut merged, &body, "status");
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
        let kept = old.iter().filter(|(name, _)| !matches!(name.as_str(), "metadata" | "status"));
        merged.retain(|name, _| matches!(name.as_str(), "metadata" | "status"));
        merged.extend(kept.map(|(name, value)| (name.clone(), value.clone())));
    }
    Ok(merged)
}

/// Counts a change of a pod by way of a subresource, and takes over who owns what.
fn part_of_pod(old: &Value, mut merged: Value, body: &Value) -> Value {
    if let Some(managed) = body.pointer("/metadata/managedFields").filter(|managed| managed.is_array()) {
        merged["metadata"]["managedFields"] = managed.clone();
    }
    if merged.get("spec") != old.get("spec") {
        let generation = old["metadata"]["generation"].as_u64().unwrap_or(0);
        merged["metadata"]["generation"] = json!(generation + 1);
    }
    merged
}

/// A pod with the resources that a body gives it and its containers. Other containers are left for validation to refuse.
fn resized(old: &Value, body: &Value) -> Value {
    let mut merged = old.clone();
    let names = |pod: &Value, list: &str| -> Vec<Value> {
        let containers = pod["spec"][list].as_array().into_iter().flatten();
        containers.map(|container| container["name"].clone()).collect()
    };
    let lists = ["containers", "initContainers"];
    if lists.iter().any(|list| names(old, list).len() != names(body, list).len()) {
        take_field(&mut merged, body, "spec");
        return merged;
    }
    take_field(&mut merged["spec"], &body["spec"], "resources");
    for list in lists {
        if names(old, list) != names(body, list) {
            take_field(&mut merged["spec"], &body["spec"], list);
            continue;
        }
        let wanted = body["spec"][list].as_array().into_iter().flatten();
        let containers = merged["spec"].get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for (container, wanted) in containers.zip(wanted) {
            for field in ["resources", "resizePolicy"] {
                take_field(container, wanted, field);
            }
        }
    }
    merged
}

fn merge_main(
    resource: &Resource,
    place: VersionedResource,
    old: &Value,
    mut body: Value,
) -> Result<Value, Status> {
    merge_metadata(resource, old, &mut body)?;
    if resource.has_status(place.version) {
        take_field(&mut body, old, "status");
    }
    if resource.is("", "namespaces") {
        take_field(&mut body, old, "spec");
    }
    let changed = generation_counts(resource, place, old, &body);
    if resource.generation && changed {
        let generation = old["metadata"]["generation"].as_u64().unwrap_or(0);
        body["metadata"]["generation"] = json!(generation + 1);
    }
    Ok(body)
}

/// The metadata of an update: what the server owns stays as it was.
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
    // What is given and differs is refused later, as a field that cannot be changed.
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

/// Whatever is terminating gets no new finalizers.
fn check_finalizers(
    resource: &Resource,
    old: &Map<String, Value>,
    new: &Map<String, Value>,
) -> Result<(), Status> {
    if !old.contains_key("deletionTimestamp") {
        return Ok(());
    }
    let of = |metadata: &Map<String, Value>| -> Vec<Value> {
        metadata.get("finalizers").and_then(Value::as_array).cloned().unwrap_or_default()
    };
    let had = of(old);
    let added: Vec<String> =
        of(new).iter().filter(|finalizer| !had.contains(finalizer)).map(Value::to_string).collect();
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

/// Whether a change raises the generation: anything but metadata, and the status where it has a subresource.
fn generation_counts(resource: &Resource, place: VersionedResource, old: &Value, new: &Value) -> bool {
    let uncounted: &[&str] = if resource.has_status(place.version) {
        &["kind", "apiVersion", "metadata", "status"]
    } else {
        &["kind", "apiVersion", "metadata"]
    };
    let annotations = |object: &Value| object.pointer("/metadata/annotations").cloned();
    let by_annotation = resource.is("apps", "deployments") && annotations(old) != annotations(new);
    let labels = |object: &Value| object.pointer("/metadata/labels").cloned();
    let by_label = resource.is("discovery.k8s.io", "endpointslices") && labels(old) != labels(new);
    by_annotation || by_label || !is_equal_but(old, new, uncounted)
}

/// Whether nothing keeps an object that is being deleted.
pub(super) fn is_finished(resource: &Resource, object: &Value) -> bool {
    let metadata = &object["metadata"];
    let held = metadata.get("finalizers").is_some_and(|finalizers| !is_empty(finalizers))
        || (resource.is("", "namespaces")
            && object.pointer("/spec/finalizers").is_some_and(|finalizers| !is_empty(finalizers)));
    let waiting = metadata.get("deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0) > 0;
    metadata.get("deletionTimestamp").is_some() && !held && !waiting
}
