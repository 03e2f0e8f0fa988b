//! The steps of a write from body to stored object: parse, default, record ownership, validate.
//!
//! Types and defaults come from `builtin` and `definition`, ownership from `field_management`, all in
//! `informer-objects`. Those modules know only single objects. This one decides which of them a resource
//! needs, and looks up other objects that a write depends on, such as priority classes.

use informer_objects::definition::{self, Subject};
use informer_objects::field_management::{self, Manager};
use informer_objects::patch::PatchKind;
use informer_objects::schema::Node;
use informer_objects::status::{Status, StatusCause};
use informer_objects::text::{times, versions};
use informer_objects::{body, builtin, patch, text};
use jiff::Timestamp;
use serde_json::Value;

use super::kinds::VersionedResource;
use super::resource::Resource;
use super::write_context::{WriteContext, WriteOrigin};
use super::write_target::{WriteTarget, not_convertible};
use super::{Model, state};

/// A parsed body with its warnings.
pub(super) struct ParsedWrite {
    pub(super) object: Value,
    pub(super) warnings: Vec<String>,
}

impl Resource {
    /// Parses a body by its type: drops unknown fields and sets defaults. Field validation decides whether
    /// unknown and duplicate fields are warnings or an error.
    pub(super) fn parse_write(
        &self,
        version: usize,
        context: &WriteContext,
        object: Value,
        origin: WriteOrigin<'_>,
    ) -> Result<ParsedWrite, Status> {
        // The patched object as errors of patches quote it.
        let patched = match origin {
            WriteOrigin::Patch(..) => state::go_text(&object),
            _ => String::new(),
        };
        let name = self.versions.get(version).map_or("", |version| version.name.as_str());
        let kind = &self.kind;
        let reject = |why: &str| match origin {
            WriteOrigin::Patch(patch, bytes) => {
                patch::undecodable(patch, bytes, &patched, &shorten_for_strategic(patch, why))
            }
            _ => Status::bad_request(format!(
                "{kind} in version \"{name}\" cannot be handled as a {kind}: {why}"
            )),
        };
        let (mut object, unknown) = self.read(version, object).map_err(|why| reject(&why))?;
        if !self.custom {
            builtin::default(&self.group, name, kind, &mut object);
        }
        if self.is_definition() {
            definition::complete(&mut object);
        }
        let problems = match origin {
            WriteOrigin::Internal => Vec::new(),
            WriteOrigin::Body(body) => body.problems(&unknown),
            WriteOrigin::Patch(patch, bytes) => {
                let mut unknown: Vec<String> =
                    unknown.iter().map(|field| format!("unknown field {}", text::quoted(field))).collect();
                // The result of a strategic merge has no order of its own, so kube-apiserver reports fields
                // sorted.
                if patch == PatchKind::Strategic {
                    unknown.sort();
                }
                let mut problems = patch::problems(patch, bytes);
                problems.extend(unknown);
                problems
            }
            WriteOrigin::Apply => {
                unknown.iter().map(|field| format!("unknown field {}", text::quoted(field))).collect()
            }
        };
        let warnings = body::enforce_field_validation(context.field_validation, &problems)
            .map_err(|why| reject(&why))?;
        Ok(ParsedWrite { object, warnings })
    }

    /// Parses an object by its type; also returns the unknown fields. The error describes what does not fit.
    fn read(&self, version: usize, object: Value) -> Result<(Value, Vec<String>), String> {
        if self.custom {
            return read_custom(self, version, object);
        }
        // A patch may have changed the type: then the object is parsed as that type and rejected.
        if let Some((api_version, kind)) = self.mismatched_type(version, &object) {
            let (group, version) = versions::split_api_version(&api_version);
            let type_id = builtin::type_of(group, version, &kind);
            if let Some(type_id) = type_id {
                builtin::read(type_id, object)?;
            }
            let own = self.api_version(0);
            let expected = (own.as_str(), self.kind.as_str());
            return Err(not_convertible(expected, (&api_version, &kind), type_id.is_some()));
        }
        match self.type_of(version) {
            Some(type_id) => builtin::read(type_id, object).map(|decoded| (decoded.object, decoded.unknown)),
            None => Ok((object, Vec::new())),
        }
    }

    /// Returns the apiVersion and kind of an object if they are not those of this resource. All known
    /// versions of the same group are accepted.
    fn mismatched_type(&self, version: usize, object: &Value) -> Option<(String, String)> {
        let declared =
            |field: &str| object.get(field).and_then(Value::as_str).filter(|text| !text.is_empty());
        let own = self.api_version(version);
        let (api_version, kind) =
            (declared("apiVersion").unwrap_or(&own), declared("kind").unwrap_or(&self.kind));
        let (group, name) = versions::split_api_version(api_version);
        // kube-apiserver still knows the removed versions of `apps`.
        let known = api_version == own || group == "apps" || builtin::type_of(group, name, kind).is_some();
        let same = kind == self.kind && group == self.group && known;
        (!same).then(|| (api_version.to_owned(), kind.to_owned()))
    }

    /// Updates `managedFields`, unless the write is an apply, which has already done so.
    pub(super) fn record_ownership(
        &self,
        version: usize,
        context: &WriteContext,
        target: WriteTarget,
        old: Option<&Value>,
        object: &mut Value,
        origin: WriteOrigin<'_>,
    ) {
        if matches!(origin, WriteOrigin::Apply) {
            return;
        }
        let (time, api_version) = (times::written(context.now), self.api_version(version));
        let manager = Manager {
            name: &context.manager,
            subresource: target.name(),
            api_version: &api_version,
            kind: &self.kind,
            time: &time,
            reset: reset_fields(self, version, target),
        };
        field_management::updated(self.schema_node(version), old, object, &manager);
    }
}

impl Model {
    /// Sets the fields that the server sets on its own in a new object, and validates the object.
    pub(super) fn validate_create(
        &mut self,
        context: &WriteContext,
        resource: &Resource,
        gvr: VersionedResource,
        name: &str,
        object: &mut Value,
    ) -> Result<(), Status> {
        if resource.custom {
            return fail_if_invalid_custom(
                resource,
                name,
                check_custom(resource, gvr, WriteTarget::Object, object, None),
                object,
            );
        }
        if resource.is("", "pods") {
            let forbidden = |why: String| Err(Status::forbidden("", "pods", name, &why));
            let class = self.priority_class(name, object)?;
            builtin::refuse_priority(object, class.as_ref()).map_or(Ok(()), forbidden)?;
            builtin::set_priority(object, class.as_ref());
            let class = self.runtime_class(name, object)?;
            builtin::refuse_runtime_class(object, class.as_ref()).map_or(Ok(()), forbidden)?;
            if let Some(class) = class {
                builtin::set_runtime_class(object, &class);
            }
        }
        builtin::prepare_create(&resource.group, &resource.kind, object, context.now);
        if resource.is_definition() {
            object["status"] = definition::new_status(object);
            fail_if_invalid(resource, name, definition::check(object))?;
        }
        if resource.is("certificates.k8s.io", "certificatesigningrequests") {
            let groups: Vec<&str> = context.user.groups.iter().map(String::as_str).collect();
            builtin::set_requester(object, &context.user.name, &context.user.uid, &groups);
        }
        let causes = builtin::validate::create(&resource.group, &resource.kind, object);
        fail_if_invalid(resource, name, causes)?;
        fail_if_invalid(resource, name, self.allocate(resource, None, object))
    }

    /// Sets the fields that the server sets on its own in an updated object, and validates the object.
    pub(super) fn validate_update(
        &mut self,
        context: &WriteContext,
        resource: &Resource,
        gvr: VersionedResource,
        target: WriteTarget,
        old: &Value,
        object: &mut Value,
    ) -> Result<(), Status> {
        let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
        if resource.custom {
            let causes = check_custom(resource, gvr, target, object, Some(old));
            return fail_if_invalid_custom(resource, &name, causes, object);
        }
        if matches!(target, WriteTarget::Object | WriteTarget::Scale) {
            builtin::prepare_update(&resource.group, &resource.kind, old, object);
        }
        if target == WriteTarget::Status {
            builtin::prepare_status(&resource.group, &resource.kind, old, object, context.now);
        }
        if resource.is_definition() && target == WriteTarget::Object {
            definition::note_storage_version(object);
            fail_if_invalid(resource, &name, definition::check_update(old, object))?;
        }
        let causes = builtin::validate::update_subresource(
            target.name(),
            &resource.group,
            &resource.kind,
            old,
            object,
        );
        fail_if_invalid(resource, &name, causes)?;
        fail_if_invalid(resource, &name, self.allocate(resource, Some(old), object))
    }

    /// Returns the `RuntimeClass` that a pod names, or an error if the class does not exist.
    fn runtime_class(&self, pod_name: &str, pod: &Value) -> Result<Option<Value>, Status> {
        let Some(class) = pod.pointer("/spec/runtimeClassName").and_then(Value::as_str) else {
            return Ok(None);
        };
        let gvr = self.registry.resource("node.k8s.io", "v1", "runtimeclasses");
        let missing = || {
            let why = format!("pod rejected: RuntimeClass {} not found", text::quoted(class));
            Status::forbidden("", "pods", pod_name, &why)
        };
        let found = gvr.and_then(|gvr| self.get(gvr, "", class)).ok_or_else(missing)?;
        Ok(Some(found.decode()))
    }

    /// Creates the built-in priority classes.
    pub(super) fn create_priority_classes(&mut self, now: Timestamp) {
        let Some(gvr) = self.registry.resource("scheduling.k8s.io", "v1", "priorityclasses") else { return };
        for (name, value, description) in BUILTIN_PRIORITY_CLASSES {
            let metadata = serde_json::json!({"name": name});
            let object =
                serde_json::json!({"metadata": metadata, "value": value, "description": description});
            let created =
                self.create(&WriteContext::at(now, "kube-apiserver"), gvr, "", object, WriteOrigin::Internal);
            debug_assert!(created.is_ok(), "{name}: {created:?}");
        }
    }

    /// Returns the `PriorityClass` that a pod names, or an error if the class does not exist. For a pod that
    /// names none, returns the global default, if there is one.
    fn priority_class(&self, pod_name: &str, pod: &Value) -> Result<Option<Value>, Status> {
        let Some(gvr) = self.registry.resource("scheduling.k8s.io", "v1", "priorityclasses") else {
            return Ok(None);
        };
        if let Some(class) = pod.pointer("/spec/priorityClassName").and_then(Value::as_str) {
            let missing = || {
                let why = format!("no PriorityClass with name {class} was found");
                Status::forbidden("", "pods", pod_name, &why)
            };
            return Ok(Some(self.get(gvr, "", class).ok_or_else(missing)?.decode()));
        }
        let classes = self.collections.get(&gvr.id).map(|classes| classes.live().values());
        let mut classes = classes.into_iter().flatten().map(|class| class.decode());
        Ok(classes.find(|class| class["globalDefault"] == Value::Bool(true)))
    }
}

/// Priority classes of every cluster: name, value and description.
const BUILTIN_PRIORITY_CLASSES: &[(&str, i64, &str)] = &[
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
];

impl Resource {
    /// Returns the type of a built-in kind.
    pub(super) fn type_of(&self, version: usize) -> Option<informer_schema::TypeId> {
        self.versions.get(version)?.type_id
    }

    /// Returns the root of the schema that field management uses.
    pub(super) fn schema_node(&self, version: usize) -> Node<'_> {
        if self.custom {
            return self.custom_version(version).map_or(Node::Unknown, |custom| Node::Custom(&custom.schema));
        }
        self.type_of(version).map_or(Node::Unknown, Node::of)
    }
}

/// Parses a custom object by its schema. An object of another kind, which is rejected later, is only decoded.
fn read_custom(
    resource: &Resource,
    version: usize,
    mut object: Value,
) -> Result<(Value, Vec<String>), String> {
    let mut unknown = definition::decode(&mut object)?;
    let same = object.get("kind").and_then(Value::as_str) == Some(resource.kind.as_str());
    if let Some(custom) = resource.custom_version(version).filter(|_| same) {
        unknown.extend(definition::prune(&custom.schema, &mut object));
        if let Ok(inside) = definition::decode_embedded(&custom.schema, &mut object) {
            unknown.extend(inside);
        }
        definition::default(&custom.schema, &mut object);
    }
    definition::normalize(&mut object);
    Ok((object, unknown))
}

/// Validates a custom object.
fn check_custom(
    resource: &Resource,
    gvr: VersionedResource,
    target: WriteTarget,
    object: &Value,
    old: Option<&Value>,
) -> Vec<StatusCause> {
    let Some(version) = resource.custom_version(gvr.version) else { return Vec::new() };
    let api_version = resource.api_version(gvr.version);
    let subject = Subject {
        kind: &resource.kind,
        api_version: &api_version,
        status_only: target == WriteTarget::Status,
    };
    definition::validate(version, subject, object, old, Vec::new())
}

/// Kinds, as `group/plural`, whose metadata cannot be written with their status.
const STATUS_ONLY_KINDS: &[&str] = &[
    "admissionregistration.k8s.io/validatingadmissionpolicies",
    "flowcontrol.apiserver.k8s.io/flowschemas",
    "flowcontrol.apiserver.k8s.io/prioritylevelconfigurations",
    "internal.apiserver.k8s.io/storageversions",
    "networking.k8s.io/servicecidrs",
    "resource.k8s.io/devicetaintrules",
    "resource.k8s.io/resourceclaims",
    "scheduling.k8s.io/podgroups",
    "storage.k8s.io/volumeattachments",
    "storagemigration.k8s.io/storageversionmigrations",
];

/// Returns the fields that a write to `target` ignores. Setting them does not make a manager own them.
pub(super) fn reset_fields(
    resource: &Resource,
    version: usize,
    target: WriteTarget,
) -> &'static [&'static str] {
    let name = (resource.group.as_str(), resource.plural.as_str());
    let is_signing_request = name == ("certificates.k8s.io", "certificatesigningrequests");
    match target {
        WriteTarget::Object if is_signing_request => &["spec", "status"],
        WriteTarget::Object if resource.has_status(version) => &["status"],
        WriteTarget::Status if is_signing_request => &["spec", "status.conditions"],
        WriteTarget::Status if name == ("apps", "deployments") => &["spec", "metadata.labels"],
        WriteTarget::Status if name == ("", "pods") => {
            &["spec", "metadata.deletionTimestamp", "metadata.ownerReferences"]
        }
        WriteTarget::Status if STATUS_ONLY_KINDS.iter().any(|row| row.split_once('/') == Some(name)) => {
            &["spec", "metadata"]
        }
        WriteTarget::Status => &["spec"],
        WriteTarget::Approval => &["spec", "status.certificate"],
        WriteTarget::Finalize => &["status"],
        _ => &[],
    }
}

/// Returns a validation error if there are causes. The error names the kind that the object declares.
fn fail_if_invalid_custom(
    resource: &Resource,
    name: &str,
    causes: Vec<StatusCause>,
    object: &Value,
) -> Result<(), Status> {
    if causes.is_empty() {
        return Ok(());
    }
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or(&resource.kind);
    Err(Status::invalid(&resource.group, kind, name, causes))
}

/// Shortens the error of a strategic merge patch, as kube-apiserver reports less for it.
fn shorten_for_strategic(patch: PatchKind, why: &str) -> String {
    match why.rsplit_once(" of type ") {
        Some((_, kind)) if patch == PatchKind::Strategic => format!("unrecognized type: {kind}"),
        _ => why.to_owned(),
    }
}

/// Returns a validation error if there are causes.
fn fail_if_invalid(resource: &Resource, name: &str, causes: Vec<StatusCause>) -> Result<(), Status> {
    if causes.is_empty() {
        return Ok(());
    }
    // In kube-apiserver, events of both groups have the same internal type, which belongs to the core group.
    let group = if resource.is("events.k8s.io", "events") { "" } else { resource.group.as_str() };
    Err(Status::invalid(group, &resource.kind, name, causes))
}

#[cfg(test)]
mod tests;
