//! Creates and updates objects.
//!
//! A write that fails stores nothing. A write that succeeds consumes one version; a write of a definition may
//! consume more (see `definitions`). A dry run, and an update that changes nothing, consume no version and
//! cause no event. uid, creation time and resource version never come from a body. The transport of the body
//! is not known here.

use std::sync::Arc;

use informer_objects::status::{Status, StatusCause};
use informer_objects::text::formats;
use informer_objects::text::versions::split_api_version;
use informer_objects::{builtin, field_management};
use serde_json::{Map, Value, json};

use super::json_edit::drop_field;
use super::kinds::{ResourceId, VersionedResource};
use super::merge::{is_deletion_complete, merge};
use super::meta::{
    self, check_namespace, check_no_uid_is_expected, check_preconditions, check_version_is_set,
    initialize_metadata, metadata,
};
use super::representation::Representation;
use super::resource::Resource;
use super::state::State;
use super::write_context::{WriteContext, WriteOrigin, WriteResult};
use super::write_target::{WriteTarget, not_convertible};
use super::{Model, custom};

impl Model {
    /// Creates an object. `namespace` is empty for cluster-scoped resources.
    pub(crate) fn create(
        &mut self,
        context: &WriteContext,
        gvr: VersionedResource,
        namespace: &str,
        mut object: Value,
        origin: WriteOrigin<'_>,
    ) -> Result<WriteResult, Status> {
        let resource = self.resource(gvr.id)?;
        if object.is_null() {
            object = json!({});
        }
        self.check_type(&resource, gvr, &object)?;
        let parsed = resource.parse_write(gvr.version, context, object, origin)?;
        let (mut object, mut warnings) = (parsed.object, parsed.warnings);
        let fields = metadata(&resource, &mut object)?;
        check_namespace(&resource, namespace, fields)?;
        let name = fields.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        self.check_namespace_is_open(&resource, namespace, &name)?;
        let name = self.name_or_generate(&resource, &mut object, name)?;
        let fields = metadata(&resource, &mut object)?;
        warnings.extend(meta::dedup_owners(fields));
        let given = fields.remove("resourceVersion");
        initialize_metadata(&resource, fields, namespace, &self.ids.next_uid(), context.now);
        if !resource.takes_status_at_create(gvr.version) {
            drop_field(&mut object, "status");
        }
        resource.record_ownership(gvr.version, context, WriteTarget::Object, None, &mut object, origin);
        self.validate_create(context, &resource, gvr, &name, &mut object)?;
        let given = given.as_ref().and_then(Value::as_str).map_or(0, meta::version_number);
        if given != 0 && !context.dry_run {
            return Err(Status::internal("resourceVersion should not be set on objects to be created"));
        }
        if self.definition_of(&resource).is_some_and(|definition| definition.terminating) {
            let why = "create not allowed while custom resource definition is terminating";
            return Err(Status::forbidden(&resource.group, &resource.plural, &name, why));
        }
        if let Some(existing) = self.get(gvr, namespace, &name) {
            let terminating = existing.terminating;
            return Err(Status::already_exists(&resource.group, &resource.plural, &name, terminating));
        }
        self.representation(gvr).convert_to_stored(&mut object);
        let storage_id = self.storage_id(gvr);
        let stored_as = self.resource(storage_id)?;
        if context.dry_run {
            let state = Arc::new(State::encode(&stored_as, given, &object));
            return Ok(WriteResult { state, created: true, warnings });
        }
        let state = self.store(context.now, storage_id, &stored_as, None, &object);
        if resource.is_definition() {
            self.install(context.now, gvr, state.clone())?;
        }
        Ok(WriteResult { state, created: true, warnings })
    }

    /// Updates an object. Creates a missing object if PUT creates objects of its kind.
    pub(crate) fn update(
        &mut self,
        context: &WriteContext,
        gvr: VersionedResource,
        (namespace, name): (&str, &str),
        target: WriteTarget,
        mut object: Value,
        origin: WriteOrigin<'_>,
    ) -> Result<WriteResult, Status> {
        let resource = self.resource(gvr.id)?;
        resource.check_write_target(gvr.version, target, name)?;
        self.check_type(&resource, gvr, &object)?;
        let new = metadata(&resource, &mut object)?;
        match new.get("name").and_then(Value::as_str).unwrap_or_default() {
            "" => return Err(Status::bad_request(meta::undeterminable(name))),
            given if given != name => return Err(Status::bad_request(meta::mismatch(given, name))),
            _ => {}
        }
        check_namespace(&resource, namespace, new)?;
        let Some(before) = self.get(gvr, namespace, name) else {
            if target == WriteTarget::Object && resource.put_creates() {
                check_no_uid_is_expected(&resource, namespace, name, new)?;
                new.remove("resourceVersion");
                return self.create(context, gvr, namespace, object, origin);
            }
            return Err(Status::not_found(&resource.group, &resource.plural, name));
        };
        check_version_is_set(&resource, name, new)?;
        check_preconditions(&resource, &before, new)?;
        self.replace(context, gvr, target, before, object, origin)
    }

    /// Replaces an existing object. The caller has checked that `object` is meant for `before`.
    pub(super) fn replace(
        &mut self,
        context: &WriteContext,
        gvr: VersionedResource,
        target: WriteTarget,
        before: Arc<State>,
        object: Value,
        origin: WriteOrigin<'_>,
    ) -> Result<WriteResult, Status> {
        let resource = self.resource(gvr.id)?;
        let representation = self.representation(gvr);
        let shown = self.shown(gvr, &before);
        let decoded = (representation != Representation::Same).then(|| before.decode());
        // The object before the write, as `gvr` shows it and in the stored representation.
        let (old, old_stored) = (&shown, decoded.as_ref().unwrap_or(&shown));
        let parsed = resource.parse_write(gvr.version, context, object, origin)?;
        // If the new object has no managedFields, `merge` keeps the existing ones. After an apply they must
        // not be kept: no manager is left.
        let ownerless = matches!(origin, WriteOrigin::Apply) && !field_management::has_owners(&parsed.object);
        let mut object = merge(&resource, gvr, target, old, parsed.object)?;
        if ownerless {
            drop_field(&mut object["metadata"], "managedFields");
        }
        let mut warnings = parsed.warnings;
        warnings.extend(meta::dedup_owners(metadata(&resource, &mut object)?));
        resource.record_ownership(gvr.version, context, target, Some(old), &mut object, origin);
        object["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
        self.validate_update(context, &resource, gvr, target, old, &mut object)?;
        representation.convert_to_stored(&mut object);
        field_management::keep_times(old_stored, &mut object);
        let state = self.commit_update(context, self.storage_id(gvr), before, old_stored, &object)?;
        Ok(WriteResult { state, created: false, warnings })
    }

    /// Stores a change made by the server itself, without parsing, defaulting or validation. The manager of
    /// the context becomes the owner of the changed fields.
    pub(super) fn overwrite(
        &mut self,
        context: &WriteContext,
        gvr: VersionedResource,
        target: WriteTarget,
        before: Arc<State>,
        mut object: Value,
    ) -> Result<Arc<State>, Status> {
        let resource = self.resource(gvr.id)?;
        let old = before.decode();
        resource.record_ownership(
            gvr.version,
            context,
            target,
            Some(&old),
            &mut object,
            WriteOrigin::Internal,
        );
        self.commit_update(context, self.storage_id(gvr), before, &old, &object)
    }

    /// Stores a changed object like [`Model::overwrite`], but with the `managedFields` that it contains.
    pub(super) fn overwrite_keeping_owners(
        &mut self,
        context: &WriteContext,
        gvr: VersionedResource,
        before: Arc<State>,
        object: &Value,
    ) -> Result<Arc<State>, Status> {
        let old = before.decode();
        self.commit_update(context, self.storage_id(gvr), before, &old, object)
    }

    /// Replaces the status of an object without defaulting, validation or field management. The object must have
    /// the version `expected`.
    pub(crate) fn set_status_unchecked(
        &mut self,
        context: &WriteContext,
        gvr: VersionedResource,
        (namespace, name): (&str, &str),
        expected: &str,
        status: Value,
    ) -> Result<(), Status> {
        let resource = self.resource(gvr.id)?;
        let before = self
            .get(gvr, namespace, name)
            .ok_or_else(|| Status::not_found(&resource.group, &resource.plural, name))?;
        let version = json!({"resourceVersion": expected});
        check_preconditions(&resource, &before, version.as_object().unwrap_or(&Map::new()))?;
        let old = before.decode();
        let mut object = old.clone();
        object["status"] = status;
        self.commit_update(context, self.storage_id(gvr), before, &old, &object).map(|_| ())
    }

    /// Stores an object without defaulting or validation.
    pub(crate) fn insert_unchecked(
        &mut self,
        context: &WriteContext,
        gvr: VersionedResource,
        namespace: &str,
        mut object: Value,
    ) -> Result<Arc<State>, Status> {
        let resource = self.resource(gvr.id)?;
        let fields = metadata(&resource, &mut object)?;
        let name = fields.get("name").and_then(Value::as_str).unwrap_or_default();
        if name.is_empty() {
            return Err(Status::bad_request("an object needs a name"));
        }
        let Some(before) = self.get(gvr, namespace, name) else {
            initialize_metadata(&resource, fields, namespace, &self.ids.next_uid(), context.now);
            self.representation(gvr).convert_to_stored(&mut object);
            let storage_id = self.storage_id(gvr);
            let stored_as = self.resource(storage_id)?;
            return Ok(self.store(context.now, storage_id, &stored_as, None, &object));
        };
        let old = before.decode();
        for field in ["namespace", "uid", "creationTimestamp", "resourceVersion", "generation"] {
            if let Some(value) = old["metadata"].get(field) {
                fields.insert(field.to_owned(), value.clone());
            }
        }
        self.representation(gvr).convert_to_stored(&mut object);
        self.overwrite_keeping_owners(context, gvr, before, &object)
    }

    /// Returns an object as a version of its resource shows it.
    pub(super) fn shown(&self, gvr: VersionedResource, state: &State) -> Value {
        let mut object = state.decode_as(self.api_version_shown(gvr).as_deref());
        self.representation(gvr).convert_from_stored(&mut object);
        object
    }

    /// Stores an updated object, or removes it if its deletion is now complete. Does neither if nothing
    /// changed or the write is a dry run.
    fn commit_update(
        &mut self,
        context: &WriteContext,
        id: ResourceId,
        before: Arc<State>,
        old: &Value,
        object: &Value,
    ) -> Result<Arc<State>, Status> {
        let resource = self.resource(id)?;
        if custom::write_changes_nothing(&resource, &before, old, object) {
            return Ok(before);
        }
        if context.dry_run {
            return Ok(Arc::new(State::encode(&resource, before.version, object)));
        }
        if is_deletion_complete(&resource, object) {
            // The response shows no finalizers and the old version; watchers see the previous state deleted.
            let response = Arc::new(State::encode(&resource, before.version, object));
            self.remove(context.now, id, before);
            self.finish_definition_if_empty(context.now, id);
            return Ok(response);
        }
        let state = self.store(context.now, id, &resource, Some(before), object);
        if resource.is_definition() && old.get("spec") != object.get("spec") {
            self.redefine(old, object);
            self.install(context.now, VersionedResource { id, version: 0 }, state.clone())?;
        }
        Ok(state)
    }

    pub(super) fn resource(&self, id: ResourceId) -> Result<Arc<Resource>, Status> {
        self.registry.get(id).cloned().ok_or_else(Status::no_such_resource)
    }

    /// Rejects a body of another type. Bodies of built-in kinds may omit apiVersion and kind.
    fn check_type(&self, resource: &Resource, gvr: VersionedResource, object: &Value) -> Result<(), Status> {
        let expected = resource.api_version(gvr.version);
        if resource.custom {
            return check_custom_type(resource, &expected, object);
        }
        self.check_kind((&expected, &resource.kind), object)
    }

    /// Rejects a body of another built-in kind than expected.
    pub(crate) fn check_kind(&self, expected: (&str, &str), object: &Value) -> Result<(), Status> {
        let text = |field: &str| object.get(field).and_then(Value::as_str).filter(|text| !text.is_empty());
        let api_version = text("apiVersion").unwrap_or(expected.0);
        let kind = text("kind").unwrap_or(expected.1);
        if (api_version, kind) == expected {
            return Ok(());
        }
        let (_, version) = split_api_version(api_version);
        let item = kind.strip_suffix("List").unwrap_or(kind);
        let known = self.registry.resource_for_kind(api_version, item).is_some();
        let why = not_convertible(expected, (api_version, kind), known);
        let handled = format!("{kind} in version \"{version}\" cannot be handled as a {}", expected.1);
        Err(Status::bad_request(format!("{handled}: {why}")))
    }

    /// Returns the name of a new object, generated if only `generateName` is given.
    fn name_or_generate(
        &mut self,
        resource: &Resource,
        object: &mut Value,
        mut name: String,
    ) -> Result<String, Status> {
        let metadata = metadata(resource, object)?;
        let base = metadata.get("generateName").and_then(Value::as_str).unwrap_or_default();
        if name.is_empty() && !base.is_empty() {
            name = self.ids.next_name(base);
            metadata.insert("name".to_owned(), Value::from(name.as_str()));
        }
        let causes: Vec<StatusCause> = if name.is_empty() {
            let message = "Required value: name or generateName is required";
            vec![StatusCause::new("FieldValueRequired", "metadata.name", message)]
        } else if resource.custom {
            let wrong = formats::dns_subdomain(&name).into_iter();
            let message = |why: String| format!("Invalid value: \"{name}\": {why}");
            wrong.map(|why| StatusCause::new("FieldValueInvalid", "metadata.name", message(why))).collect()
        } else {
            // Names of built-in kinds are validated together with their other fields.
            Vec::new()
        };
        if causes.is_empty() {
            return Ok(name);
        }
        Err(Status::invalid(&resource.group, &resource.kind, &name, causes))
    }

    /// Requires that the namespace of a new object exists and is not terminating.
    fn check_namespace_is_open(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
    ) -> Result<(), Status> {
        if !resource.namespaced {
            return Ok(());
        }
        let gvr = self.registry.resource("", "v1", "namespaces").ok_or_else(Status::no_such_resource)?;
        let Some(found) = self.get(gvr, "", namespace) else {
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
            details.causes = vec![StatusCause::new("NamespaceTerminating", "metadata.namespace", message)];
        }
        Err(status)
    }
}

impl Resource {
    /// Rejects a subresource that does not exist.
    pub(crate) fn check_write_target(
        &self,
        version: usize,
        target: WriteTarget,
        name: &str,
    ) -> Result<(), Status> {
        let exists = match target {
            WriteTarget::Object => true,
            WriteTarget::Status => self.has_status(version),
            WriteTarget::Finalize => self.is("", "namespaces"),
            WriteTarget::Approval => self.is("certificates.k8s.io", "certificatesigningrequests"),
            WriteTarget::EphemeralContainers | WriteTarget::Resize => self.is("", "pods"),
            WriteTarget::Scale => self.has_scale(version),
        };
        match (exists, self.custom) {
            (true, _) => Ok(()),
            (false, true) => Err(Status::not_found(&self.group, &self.plural, name)),
            (false, false) => Err(Status::no_such_resource()),
        }
    }
}

/// Parses a body as a built-in kind that is not stored. The error is the 400 response of kube-apiserver.
pub(crate) fn read_as((api_version, kind): (&str, &str), object: Value) -> Result<Value, Status> {
    let (group, version) = split_api_version(api_version);
    let Some(type_id) = builtin::type_of(group, version, kind) else { return Ok(object) };
    let read = builtin::read(type_id, object).map_err(|why| {
        Status::bad_request(format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {why}"))
    })?;
    Ok(read.object)
}

/// Requires kind and apiVersion in a custom object.
fn check_custom_type(resource: &Resource, expected: &str, object: &Value) -> Result<(), Status> {
    let empty = Map::new();
    let fields = object.as_object().unwrap_or(&empty);
    let text = |field: &str| fields.get(field).and_then(Value::as_str).unwrap_or_default();
    let (kind, api_version) = (text("kind"), text("apiVersion"));
    if kind.is_empty() {
        let message = format!(
            "the object provided is unrecognized (must be of type {}): Object 'Kind' is missing in '{object}'",
            resource.kind
        );
        return Err(Status::bad_request(message));
    }
    // A wrong kind is reported later, with the other validation errors.
    if api_version == expected {
        return Ok(());
    }
    let message = format!(
        "the API version in the data ({api_version}) does not match the expected API version ({expected})"
    );
    Err(Status::bad_request(message))
}
