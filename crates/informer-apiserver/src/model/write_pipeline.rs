//! What a body becomes on its way to storage: read by its type, completed, owned and checked.
//!
//! Here the model asks the rooms that know kinds (`builtin`, `definition`) and ownership (`managed`). They know objects; which of
//! them applies to a resource, and which other objects they need, is decided here.

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

/// A body, read.
pub(super) struct ParsedWrite {
    pub(super) object: Value,
    pub(super) warnings: Vec<String>,
}

impl Resource {
    /// Reads a body by its type: what it may not have is gone, what it leaves out is there.
    pub(super) fn parse_write(
        &self,
        version: usize,
        ask: &WriteContext,
        object: Value,
        origin: WriteOrigin<'_>,
    ) -> Result<ParsedWrite, Status> {
        let patched = match origin {
            WriteOrigin::Patch(..) => state::go_text(&object),
            _ => String::new(),
        };
        let name = self.versions.get(version).map_or("", |version| version.name.as_str());
        let kind = &self.kind;
        let misread = |why: &str| match origin {
            WriteOrigin::Patch(patch, bytes) => {
                patch::undecodable(patch, bytes, &patched, &converted(patch, why))
            }
            _ => Status::bad_request(format!(
                "{kind} in version \"{name}\" cannot be handled as a {kind}: {why}"
            )),
        };
        let (mut object, unknown) = self.read(version, object).map_err(|why| misread(&why))?;
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
                // Its outcome is not text that would be read from front to back.
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
        let warnings =
            body::enforce_field_validation(ask.field_validation, &problems).map_err(|why| misread(&why))?;
        Ok(ParsedWrite { object, warnings })
    }

    /// Reads an object into its type; the fields that are not there come beside it. The error says what does not fit.
    fn read(&self, version: usize, object: Value) -> Result<(Value, Vec<String>), String> {
        if self.custom {
            return read_custom(self, version, object);
        }
        // A patch may have made it something else, which is what it is read as then, and refused.
        if let Some(other) = self.mismatched_type(version, &object) {
            let (group, version) = versions::split_api_version(&other.0);
            let of = builtin::type_of(group, version, &other.1);
            if let Some(of) = of {
                builtin::read(of, object)?;
            }
            let own = self.api_version(0);
            let expected = (own.as_str(), self.kind.as_str());
            return Err(not_convertible(expected, (&other.0, &other.1), of.is_some()));
        }
        match self.type_of(version) {
            Some(of) => builtin::read(of, object).map(|decoded| (decoded.object, decoded.unknown)),
            None => Ok((object, Vec::new())),
        }
    }

    /// The version and the kind that an object says it has, if they are not those of this resource. Versions of the same group
    /// are forms of the same object.
    fn mismatched_type(&self, version: usize, object: &Value) -> Option<(String, String)> {
        let said = |field: &str| object.get(field).and_then(Value::as_str).filter(|text| !text.is_empty());
        let own = self.api_version(version);
        let (api_version, kind) = (said("apiVersion").unwrap_or(&own), said("kind").unwrap_or(&self.kind));
        let (group, name) = versions::split_api_version(api_version);
        let known = api_version == own || group == "apps" || builtin::type_of(group, name, kind).is_some();
        let same = kind == self.kind && group == self.group && known;
        (!same).then(|| (api_version.to_owned(), kind.to_owned()))
    }

    /// Writes down who owns what.
    pub(super) fn record_ownership(
        &self,
        version: usize,
        ask: &WriteContext,
        part: WriteTarget,
        old: Option<&Value>,
        object: &mut Value,
        origin: WriteOrigin<'_>,
    ) {
        if matches!(origin, WriteOrigin::Apply) {
            return;
        }
        let (time, api_version) = (times::written(ask.now), self.api_version(version));
        let manager = Manager {
            name: &ask.manager,
            subresource: part.name(),
            api_version: &api_version,
            kind: &self.kind,
            time: &time,
            reset: resets(self, version, part),
        };
        field_management::updated(self.node(version), old, object, &manager);
    }
}

impl Model {
    /// Completes a new object as the server does on its own, and refuses it if it is not valid.
    pub(super) fn validate_create(
        &mut self,
        ask: &WriteContext,
        resource: &Resource,
        place: VersionedResource,
        name: &str,
        object: &mut Value,
    ) -> Result<(), Status> {
        if resource.custom {
            return refuse_custom(
                resource,
                name,
                check_custom(resource, place, WriteTarget::Object, object, None),
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
        builtin::prepare_create(&resource.group, &resource.kind, object, ask.now);
        if resource.is_definition() {
            object["status"] = definition::new_status(object);
            refuse(resource, name, definition::check(object))?;
        }
        if resource.is("certificates.k8s.io", "certificatesigningrequests") {
            let groups: Vec<&str> = ask.user.groups.iter().map(String::as_str).collect();
            builtin::set_requester(object, &ask.user.name, &ask.user.uid, &groups);
        }
        let causes = builtin::validate::create(&resource.group, &resource.kind, object);
        refuse(resource, name, causes)?;
        refuse(resource, name, self.allocate(resource, None, object))
    }

    /// Completes a changed object, and refuses it if it is not valid.
    pub(super) fn validate_update(
        &mut self,
        ask: &WriteContext,
        resource: &Resource,
        place: VersionedResource,
        part: WriteTarget,
        old: &Value,
        object: &mut Value,
    ) -> Result<(), Status> {
        let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
        if resource.custom {
            let causes = check_custom(resource, place, part, object, Some(old));
            return refuse_custom(resource, &name, causes, object);
        }
        if matches!(part, WriteTarget::Object | WriteTarget::Scale) {
            builtin::prepare_update(&resource.group, &resource.kind, old, object);
        }
        if part == WriteTarget::Status {
            builtin::prepare_status(&resource.group, &resource.kind, old, object, ask.now);
        }
        if resource.is_definition() && part == WriteTarget::Object {
            definition::note_storage_version(object);
            refuse(resource, &name, definition::check_update(old, object))?;
        }
        let causes =
            builtin::validate::update_part(part.name(), &resource.group, &resource.kind, old, object);
        refuse(resource, &name, causes)?;
        refuse(resource, &name, self.allocate(resource, Some(old), object))
    }

    /// The class of the runtime that a pod names. One that is not there is refused.
    fn runtime_class(&self, name: &str, pod: &Value) -> Result<Option<Value>, Status> {
        let Some(class) = pod.pointer("/spec/runtimeClassName").and_then(Value::as_str) else {
            return Ok(None);
        };
        let place = self.registry.place("node.k8s.io", "v1", "runtimeclasses");
        let missing = || {
            let why = format!("pod rejected: RuntimeClass {} not found", text::quoted(class));
            Status::forbidden("", "pods", name, &why)
        };
        let found = place.and_then(|place| self.get(place, "", class)).ok_or_else(missing)?;
        Ok(Some(found.decode()))
    }

    /// Creates the classes that every cluster has.
    pub(super) fn create_priority_classes(&mut self, now: Timestamp) {
        let Some(place) = self.registry.place("scheduling.k8s.io", "v1", "priorityclasses") else { return };
        for (name, value, description) in BUILTIN_PRIORITY_CLASSES {
            let metadata = serde_json::json!({"name": name});
            let object =
                serde_json::json!({"metadata": metadata, "value": value, "description": description});
            let created = self.create(
                &WriteContext::at(now, "kube-apiserver"),
                place,
                "",
                object,
                WriteOrigin::Internal,
            );
            debug_assert!(created.is_ok(), "{name}: {created:?}");
        }
    }

    /// The class that a pod names, or the one that stands for all. One that is not there is refused.
    fn priority_class(&self, name: &str, pod: &Value) -> Result<Option<Value>, Status> {
        let Some(place) = self.registry.place("scheduling.k8s.io", "v1", "priorityclasses") else {
            return Ok(None);
        };
        if let Some(class) = pod.pointer("/spec/priorityClassName").and_then(Value::as_str) {
            let missing = || {
                let why = format!("no PriorityClass with name {class} was found");
                Status::forbidden("", "pods", name, &why)
            };
            return Ok(Some(self.get(place, "", class).ok_or_else(missing)?.decode()));
        }
        let classes = self.collections.get(&place.id).map(|classes| classes.live().values());
        let mut classes = classes.into_iter().flatten().map(|class| class.decode());
        Ok(classes.find(|class| class["globalDefault"] == Value::Bool(true)))
    }
}

/// Classes that every cluster has, with what they are for.
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
    /// How objects of a built-in kind are built.
    pub(super) fn type_of(&self, version: usize) -> Option<informer_schema::TypeId> {
        self.versions.get(version)?.type_id
    }

    /// The schema of objects, as owners see it.
    pub(super) fn node(&self, version: usize) -> Node<'_> {
        if self.custom {
            return self.custom(version).map_or(Node::Unknown, |of| Node::Custom(&of.schema));
        }
        self.type_of(version).map_or(Node::Unknown, Node::of)
    }
}

/// Reads an object of a custom kind by its schema. One that says it is another kind is not looked into.
fn read_custom(
    resource: &Resource,
    version: usize,
    mut object: Value,
) -> Result<(Value, Vec<String>), String> {
    let mut unknown = definition::decode(&mut object)?;
    let same = object.get("kind").and_then(Value::as_str) == Some(resource.kind.as_str());
    if let Some(of) = resource.custom(version).filter(|_| same) {
        unknown.extend(definition::prune(&of.schema, &mut object));
        if let Ok(inside) = definition::decode_embedded(&of.schema, &mut object) {
            unknown.extend(inside);
        }
        definition::default(&of.schema, &mut object);
    }
    definition::normalize(&mut object);
    Ok((object, unknown))
}

/// What is wrong with an object of a custom kind.
fn check_custom(
    resource: &Resource,
    place: VersionedResource,
    part: WriteTarget,
    object: &Value,
    old: Option<&Value>,
) -> Vec<StatusCause> {
    let Some(version) = resource.custom(place.version) else { return Vec::new() };
    let api_version = resource.api_version(place.version);
    let subject =
        Subject { kind: &resource.kind, api_version: &api_version, status_only: part == WriteTarget::Status };
    definition::validate(version, subject, object, old, Vec::new())
}

/// Kinds whose metadata cannot be written with their status, as `group/plural`.
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

/// Fields that cannot be written at an endpoint, and are not owned by trying.
pub(super) fn resets(resource: &Resource, version: usize, part: WriteTarget) -> &'static [&'static str] {
    let name = (resource.group.as_str(), resource.plural.as_str());
    let requests = name == ("certificates.k8s.io", "certificatesigningrequests");
    match part {
        WriteTarget::Object if requests => &["spec", "status"],
        WriteTarget::Object if resource.has_status(version) => &["status"],
        WriteTarget::Status if requests => &["spec", "status.conditions"],
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

/// A refusal names the kind that an object says it is.
fn refuse_custom(
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

/// A strategic merge patch is read by another reader, which says less about what does not fit.
fn converted(patch: PatchKind, why: &str) -> String {
    match why.rsplit_once(" of type ") {
        Some((_, kind)) if patch == PatchKind::Strategic => format!("unrecognized type: {kind}"),
        _ => why.to_owned(),
    }
}

fn refuse(resource: &Resource, name: &str, causes: Vec<StatusCause>) -> Result<(), Status> {
    if causes.is_empty() {
        return Ok(());
    }
    // Events of both groups are one kind inside, and that is of the core group.
    let group = if resource.is("events.k8s.io", "events") { "" } else { resource.group.as_str() };
    Err(Status::invalid(group, &resource.kind, name, causes))
}

#[cfg(test)]
mod tests;
