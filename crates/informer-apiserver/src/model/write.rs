//! Creating and changing objects.
//!
//! A write either refuses and changes nothing, or takes exactly one version; an update that changes nothing takes none and
//! tells nobody. What the server owns (uid, times, generation, version) never comes from a body. Who asked and how is not
//! known here.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::kinds::{Place, Resource, ResourceId, split_api_version};
use super::merge::{drop_field, is_empty, is_finished, is_same, merge};
use super::state::State;
use super::status::{Cause, Status};
use super::{Model, collection::Collection, custom, habits, selector};

/// Which part of an object an update is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// All but the status, where there is a status subresource.
    Main,
    /// The status alone.
    Status,
    /// The finalizers in the spec of a namespace.
    Finalize,
}

impl Model {
    /// Creates an object. `namespace` is empty for cluster-scoped resources.
    pub(crate) fn create(
        &mut self,
        now: Timestamp,
        place: Place,
        namespace: &str,
        mut object: Value,
    ) -> Result<Arc<State>, Status> {
        let resource = self.resource(place.id)?;
        if object.is_null() {
            object = json!({});
        }
        self.check_type(&resource, place, &object)?;
        let name = self.name_new(&resource, &mut object)?;
        let metadata = metadata(&resource, &mut object)?;
        check_namespace(&resource, namespace, metadata)?;
        let given = metadata.remove("resourceVersion");
        if given.as_ref().and_then(Value::as_str).is_some_and(|given| !given.is_empty()) {
            return Err(Status::internal("resourceVersion should not be set on objects to be created"));
        }
        self.check_namespace_is_open(&resource, namespace, &name)?;
        if self.definition_of(&resource).is_some_and(|definition| definition.terminating) {
            let why = "create not allowed while custom resource definition is terminating";
            return Err(Status::forbidden(&resource.group, &resource.plural, &name, why));
        }
        if let Some(there) = self.get(place, namespace, &name) {
            let terminating = there.terminating;
            return Err(Status::already_exists(&resource.group, &resource.plural, &name, terminating));
        }
        metadata_new(&resource, metadata, namespace, &self.ids.uid(), now);
        if !resource.takes_status_at_create(place.version) {
            drop_field(&mut object, "status");
        }
        habits::complete_new(&resource, now, &mut object)?;
        let state = self.store(place.id, &resource, None, &object);
        if resource.is_definition() {
            self.define(&object);
        }
        Ok(state)
    }

    /// Changes an object; whether it was created instead comes with it.
    pub(crate) fn update(
        &mut self,
        now: Timestamp,
        place: Place,
        (namespace, name): (&str, &str),
        part: Part,
        mut object: Value,
    ) -> Result<(Arc<State>, bool), Status> {
        let resource = self.resource(place.id)?;
        let not_found = || Status::not_found(&resource.group, &resource.plural, name);
        if part == Part::Status && !resource.has_status(place.version) {
            return Err(if resource.custom { not_found() } else { Status::no_such_resource() });
        }
        self.check_type(&resource, place, &object)?;
        let new = metadata(&resource, &mut object)?;
        match new.get("name").and_then(Value::as_str).unwrap_or_default() {
            "" => return Err(Status::bad_request(undeterminable(name))),
            given if given != name => return Err(Status::bad_request(mismatch(given, name))),
            _ => {}
        }
        check_namespace(&resource, namespace, new)?;
        let Some(before) = self.get(place, namespace, name) else {
            if part == Part::Main && resource.put_creates() {
                new.remove("resourceVersion");
                return Ok((self.create(now, place, namespace, object)?, true));
            }
            return Err(not_found());
        };
        check_preconditions(&resource, &before, new)?;
        let old = before.decode();
        let object = merge(&resource, place, part, &old, object)?;
        Ok((self.commit_update(place.id, &resource, before, &old, &object), false))
    }

    fn commit_update(
        &mut self,
        id: ResourceId,
        resource: &Resource,
        before: Arc<State>,
        old: &Value,
        object: &Value,
    ) -> Arc<State> {
        if is_same(old, object) {
            return before;
        }
        if is_finished(resource, object) {
            // The answer has no finalizers and the old version; watchers see the state before it go.
            let answer = Arc::new(State::encode(resource, before.version, object));
            self.remove(id, before);
            self.sweep(id);
            return answer;
        }
        let state = self.store(id, resource, Some(before), object);
        if resource.is_definition() && old.get("spec") != object.get("spec") {
            self.redefine(object);
        }
        state
    }

    pub(super) fn resource(&self, id: ResourceId) -> Result<Arc<Resource>, Status> {
        self.registry.get(id).cloned().ok_or_else(Status::no_such_resource)
    }

    /// Refuses a body that says it is something else. Built-in kinds need not say what they are.
    fn check_type(&self, resource: &Resource, place: Place, object: &Value) -> Result<(), Status> {
        let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
        let (kind, api_version) = (text("kind"), text("apiVersion"));
        let expected = resource.api_version(place.version);
        if resource.custom {
            if kind.is_empty() {
                let message = format!(
                    "the object provided is unrecognized (must be of type {}): Object 'Kind' is missing in '{object}'",
                    resource.kind
                );
                return Err(Status::bad_request(message));
            }
            if kind == resource.kind && api_version == expected {
                return Ok(());
            }
            if kind != resource.kind {
                let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
                let message = format!("Invalid value: \"{kind}\": must be {}", resource.kind);
                let cause = Cause::new("FieldValueInvalid", "kind", message);
                return Err(Status::invalid(&resource.group, kind, name, vec![cause]));
            }
            let message = format!(
                "the API version in the data ({api_version}) does not match the expected API version ({expected})"
            );
            return Err(Status::bad_request(message));
        }
        let kind = if kind.is_empty() { resource.kind.as_str() } else { kind };
        let api_version = if api_version.is_empty() { expected.as_str() } else { api_version };
        if kind == resource.kind && api_version == expected {
            return Ok(());
        }
        let (_, version) = split_api_version(api_version);
        let handled = format!("{kind} in version \"{version}\" cannot be handled as a {}", resource.kind);
        let group = if resource.group.is_empty() { "core" } else { &resource.group };
        let why = if self.registry.place_of(api_version, kind).is_some() {
            format!("converting ({version}.{kind}) to ({group}.{}): unknown conversion", resource.kind)
        } else {
            let scheme = "pkg/api/legacyscheme/scheme.go:30";
            format!("no kind \"{kind}\" is registered for version \"{api_version}\" in scheme \"{scheme}\"")
        };
        Err(Status::bad_request(format!("{handled}: {why}")))
    }

    /// The name of a new object, made up if only its beginning is given.
    fn name_new(&mut self, resource: &Resource, object: &mut Value) -> Result<String, Status> {
        let metadata = metadata(resource, object)?;
        let text = |field: &str| metadata.get(field).and_then(Value::as_str).unwrap_or_default();
        let (mut name, base) = (text("name").to_owned(), text("generateName"));
        if name.is_empty() && !base.is_empty() {
            name = self.ids.name(base);
            metadata.insert("name".to_owned(), Value::from(name.as_str()));
        }
        let cause = if name.is_empty() {
            Cause::new(
                "FieldValueRequired",
                "metadata.name",
                "Required value: name or generateName is required",
            )
        } else if is_name(resource, &name) {
            return Ok(name);
        } else {
            let message = format!("Invalid value: \"{name}\": {BAD_NAME}");
            Cause::new("FieldValueInvalid", "metadata.name", message)
        };
        Err(Status::invalid(&resource.group, &resource.kind, &name, vec![cause]))
    }

    /// New objects need a namespace that is there and stays.
    fn check_namespace_is_open(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
    ) -> Result<(), Status> {
        if !resource.namespaced {
            return Ok(());
        }
        let place = self.registry.place("", "v1", "namespaces").ok_or_else(Status::no_such_resource)?;
        let Some(found) = self.get(place, "", namespace) else {
            return Err(Status::not_found("", "namespaces", namespace));
        };
        if !found.terminating {
            return Ok(());
        }
        let why =
            format!("unable to create new content in namespace {namespace} because it is being terminated");
        let mut status = Status::forbidden(&resource.group, &resource.plural, name, &why);
        if let Some(details) = &mut status.details {
            let message = format!("namespace {namespace} is being terminated");
            details.causes = vec![Cause::new("NamespaceTerminating", "metadata.namespace", message)];
        }
        Err(status)
    }

    /// Serves what a definition describes.
    fn define(&mut self, definition: &Value) {
        let Some(resource) = custom::resource(definition) else { return };
        if self.registry.find(&resource.group, &resource.plural).is_some() {
            return;
        }
        let id = self.registry.insert(resource);
        let collection = Collection::new(super::Objects::new(), self.version, self.history);
        self.collections.insert(id, collection);
    }

    /// Serves what a definition describes now, and ends the watches that began before.
    fn redefine(&mut self, definition: &Value) {
        let Some(resource) = custom::resource(definition) else { return };
        let Some(id) = self.registry.find(&resource.group, &resource.plural) else {
            return self.define(definition);
        };
        if let Some(collection) = self.collections.get_mut(&id) {
            collection.encode_again(&resource);
            collection.cut();
        }
        self.registry.replace(id, resource);
        self.touched.push(id);
    }
}

const BAD_NAME: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
                        must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
                        '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

/// A time as objects have it.
pub(super) fn time(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn is_name(resource: &Resource, name: &str) -> bool {
    if resource.group == "rbac.authorization.k8s.io" {
        return !name.contains(['/', '%']) && name != "." && name != "..";
    }
    selector::is_subdomain(name)
}

pub(super) fn metadata<'a>(
    resource: &Resource,
    object: &'a mut Value,
) -> Result<&'a mut Map<String, Value>, Status> {
    let kind = &resource.kind;
    let version = resource.versions.first().map_or("", |version| version.name.as_str());
    let unreadable = |what: &str| {
        let handled = format!("{kind} in version \"{version}\" cannot be handled as a {kind}");
        Status::bad_request(format!("{handled}: json: cannot unmarshal into Go {what}"))
    };
    let fields = object.as_object_mut().ok_or_else(|| unreadable(&format!("value of type {kind}")))?;
    let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
    if metadata.is_null() {
        *metadata = json!({});
    }
    let metadata = metadata
        .as_object_mut()
        .ok_or_else(|| unreadable(&format!("struct field {kind}.metadata of type v1.ObjectMeta")))?;
    let bad = metadata.iter().find(|(field, value)| !is_well_formed(field, value));
    if let Some((field, _)) = bad {
        return Err(unreadable(&format!("struct field ObjectMeta.metadata.{field}")));
    }
    Ok(metadata)
}

/// Whether a metadata field has the type that everything else here counts on.
fn is_well_formed(field: &str, value: &Value) -> bool {
    match field {
        _ if value.is_null() => true,
        "labels" | "annotations" => {
            value.as_object().is_some_and(|fields| fields.values().all(Value::is_string))
        }
        "finalizers" => value.as_array().is_some_and(|items| items.iter().all(Value::is_string)),
        "ownerReferences" | "managedFields" => value.is_array(),
        "generation" | "deletionGracePeriodSeconds" => value.is_number(),
        "name" | "generateName" | "namespace" | "uid" | "resourceVersion" | "creationTimestamp"
        | "deletionTimestamp" | "selfLink" => value.is_string(),
        _ => true,
    }
}

fn check_namespace(
    resource: &Resource,
    namespace: &str,
    metadata: &mut Map<String, Value>,
) -> Result<(), Status> {
    let given = metadata.get("namespace").and_then(Value::as_str).unwrap_or_default();
    if !resource.namespaced {
        metadata.remove("namespace");
        return Ok(());
    }
    if !given.is_empty() && given != namespace {
        let message = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Status::bad_request(message));
    }
    Ok(())
}

/// Sets what the server owns in a new object's metadata.
fn metadata_new(
    resource: &Resource,
    metadata: &mut Map<String, Value>,
    namespace: &str,
    uid: &str,
    now: Timestamp,
) {
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        metadata.remove(field);
    }
    metadata.retain(|_, value| !is_empty(value));
    if resource.namespaced {
        metadata.insert("namespace".to_owned(), json!(namespace));
    }
    metadata.insert("uid".to_owned(), json!(uid));
    metadata.insert("creationTimestamp".to_owned(), json!(time(now)));
    if resource.generation {
        metadata.insert("generation".to_owned(), json!(1));
    }
}

fn check_preconditions(
    resource: &Resource,
    before: &State,
    metadata: &Map<String, Value>,
) -> Result<(), Status> {
    let (group, plural, name) = (&resource.group, &resource.plural, &before.name);
    let text = |field: &str| metadata.get(field).and_then(Value::as_str).unwrap_or_default();
    let (version, uid) = (text("resourceVersion"), text("uid"));
    let unconditional = version.is_empty() || version == "0";
    if unconditional && resource.custom {
        let message = "Invalid value: 0: must be specified for an update";
        let cause = Cause::new("FieldValueInvalid", "metadata.resourceVersion", message);
        return Err(Status::invalid(group, plural, name, vec![cause]));
    }
    if !unconditional {
        let parsed: u64 = version.parse().map_err(|_| {
            Status::internal(format!("strconv.ParseUint: parsing {version:?}: invalid syntax"))
        })?;
        if parsed != before.version {
            let why =
                "the object has been modified; please apply your changes to the latest version and try again";
            return Err(Status::conflict(group, plural, name, why));
        }
    }
    if !uid.is_empty() && uid != before.uid {
        let key = format!("/registry/{plural}/{}", before.key());
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition \
             failed: UID in precondition: {uid}, UID in object meta: {}",
            before.uid
        );
        return Err(Status::conflict(group, plural, name, &why));
    }
    Ok(())
}

fn undeterminable(name: &str) -> String {
    format!("the name of the object ({name} based on URL) was undeterminable: name must be provided")
}

fn mismatch(given: &str, name: &str) -> String {
    format!("the name of the object ({given}) does not match the name on the URL ({name})")
}
