//! Creating and changing objects.
//!
//! A write either refuses and changes nothing, or takes exactly one version; an update that changes nothing takes none and
//! tells nobody, and a dry run never does. What the server owns (uid, times, generation, version) never comes from a body. How the
//! body travelled is not known here.

use std::sync::Arc;

use informer_objects::status::{Status, StatusCause};
use informer_objects::text::formats;
use informer_objects::text::versions::split_api_version;
use informer_objects::{builtin, field_management};
use serde_json::{Map, Value, json};

use super::forms::Representation;
use super::json_edit::drop_field;
use super::kinds::{ResourceId, VersionedResource};
use super::merge::{is_finished, merge};
use super::meta::{self, check_conditional, check_namespace, check_preconditions, metadata, metadata_new};
use super::resource::Resource;
use super::state::State;
use super::write_context::{WriteContext, WriteOrigin, WriteResult};
use super::write_target::{WriteTarget, not_convertible};
use super::{Model, custom};

impl Model {
    /// Creates an object. `namespace` is empty for cluster-scoped resources.
    pub(crate) fn create(
        &mut self,
        ask: &WriteContext,
        place: VersionedResource,
        namespace: &str,
        mut object: Value,
        origin: WriteOrigin<'_>,
    ) -> Result<WriteResult, Status> {
        let resource = self.resource(place.id)?;
        if object.is_null() {
            object = json!({});
        }
        self.check_type(&resource, place, &object)?;
        let typed = resource.parse_write(place.version, ask, object, origin)?;
        let (mut object, mut warnings) = (typed.object, typed.warnings);
        let fields = metadata(&resource, &mut object)?;
        check_namespace(&resource, namespace, fields)?;
        let name = fields.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        self.check_namespace_is_open(&resource, namespace, &name)?;
        let name = self.name_new(&resource, &mut object, name)?;
        let fields = metadata(&resource, &mut object)?;
        warnings.extend(meta::dedup_owners(fields));
        let given = fields.remove("resourceVersion");
        metadata_new(&resource, fields, namespace, &self.ids.uid(), ask.now);
        if !resource.takes_status_at_create(place.version) {
            drop_field(&mut object, "status");
        }
        resource.record_ownership(place.version, ask, WriteTarget::Object, None, &mut object, origin);
        self.validate_create(ask, &resource, place, &name, &mut object)?;
        if given.as_ref().and_then(Value::as_str).is_some_and(|given| !given.is_empty()) {
            return Err(Status::internal("resourceVersion should not be set on objects to be created"));
        }
        if self.definition_of(&resource).is_some_and(|definition| definition.terminating) {
            let why = "create not allowed while custom resource definition is terminating";
            return Err(Status::forbidden(&resource.group, &resource.plural, &name, why));
        }
        if let Some(there) = self.get(place, namespace, &name) {
            let terminating = there.terminating;
            return Err(Status::already_exists(&resource.group, &resource.plural, &name, terminating));
        }
        self.representation(place).store(&mut object);
        let home = self.home(place);
        let stored = self.resource(home)?;
        if ask.dry_run {
            let state = Arc::new(State::encode(&stored, 0, &object));
            return Ok(WriteResult { state, created: true, warnings });
        }
        let state = self.store(home, &stored, None, &object);
        if resource.is_definition() {
            self.install(ask.now, place, state.clone())?;
        }
        Ok(WriteResult { state, created: true, warnings })
    }

    /// Changes an object, or creates it where a PUT does that.
    pub(crate) fn update(
        &mut self,
        ask: &WriteContext,
        place: VersionedResource,
        (namespace, name): (&str, &str),
        part: WriteTarget,
        mut object: Value,
        origin: WriteOrigin<'_>,
    ) -> Result<WriteResult, Status> {
        let resource = self.resource(place.id)?;
        resource.check_part(place.version, part, name)?;
        self.check_type(&resource, place, &object)?;
        let new = metadata(&resource, &mut object)?;
        match new.get("name").and_then(Value::as_str).unwrap_or_default() {
            "" => return Err(Status::bad_request(meta::undeterminable(name))),
            given if given != name => return Err(Status::bad_request(meta::mismatch(given, name))),
            _ => {}
        }
        check_namespace(&resource, namespace, new)?;
        let Some(before) = self.get(place, namespace, name) else {
            if part == WriteTarget::Object && resource.put_creates() {
                new.remove("resourceVersion");
                return self.create(ask, place, namespace, object, origin);
            }
            return Err(Status::not_found(&resource.group, &resource.plural, name));
        };
        check_conditional(&resource, name, new)?;
        check_preconditions(&resource, &before, new)?;
        self.replace(ask, place, part, before, object, origin)
    }

    /// Puts a whole new object in the place of one that is there. That it is meant for it was checked.
    pub(super) fn replace(
        &mut self,
        ask: &WriteContext,
        place: VersionedResource,
        part: WriteTarget,
        before: Arc<State>,
        object: Value,
        origin: WriteOrigin<'_>,
    ) -> Result<WriteResult, Status> {
        let resource = self.resource(place.id)?;
        let form = self.representation(place);
        let shown = self.stored(place, &before);
        let kept = (form != Representation::Same).then(|| before.decode());
        let (old, stored) = (&shown, kept.as_ref().unwrap_or(&shown));
        let typed = resource.parse_write(place.version, ask, object, origin)?;
        // Who leaves owners out keeps those that were there; an apply that leaves nobody has none.
        let ownerless = matches!(origin, WriteOrigin::Apply) && !field_management::has_owners(&typed.object);
        let mut object = merge(&resource, place, part, old, typed.object)?;
        if ownerless {
            drop_field(&mut object["metadata"], "managedFields");
        }
        let mut warnings = typed.warnings;
        warnings.extend(meta::dedup_owners(metadata(&resource, &mut object)?));
        resource.record_ownership(place.version, ask, part, Some(old), &mut object, origin);
        object["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
        self.validate_update(ask, &resource, place, part, old, &mut object)?;
        form.store(&mut object);
        field_management::keep_times(stored, &mut object);
        let state = self.commit_update(ask, self.home(place), before, stored, &object)?;
        Ok(WriteResult { state, created: false, warnings })
    }

    /// Stores what the server itself made of an object: nothing is read, completed or checked again.
    pub(super) fn overwrite(
        &mut self,
        ask: &WriteContext,
        place: VersionedResource,
        part: WriteTarget,
        before: Arc<State>,
        mut object: Value,
    ) -> Result<Arc<State>, Status> {
        let resource = self.resource(place.id)?;
        let old = before.decode();
        resource.record_ownership(place.version, ask, part, Some(&old), &mut object, WriteOrigin::Internal);
        self.commit_update(ask, self.home(place), before, &old, &object)
    }

    /// As [`Model::overwrite`], and the owners of fields stay as they are.
    pub(super) fn replace_raw(
        &mut self,
        ask: &WriteContext,
        place: VersionedResource,
        before: Arc<State>,
        object: &Value,
    ) -> Result<Arc<State>, Status> {
        let old = before.decode();
        self.commit_update(ask, self.home(place), before, &old, object)
    }

    /// Stores an object as it is.
    pub(crate) fn insert_unchecked(
        &mut self,
        ask: &WriteContext,
        place: VersionedResource,
        namespace: &str,
        mut object: Value,
    ) -> Result<Arc<State>, Status> {
        let resource = self.resource(place.id)?;
        let fields = metadata(&resource, &mut object)?;
        let name = fields.get("name").and_then(Value::as_str).unwrap_or_default();
        if name.is_empty() {
            return Err(Status::bad_request("an object needs a name"));
        }
        let Some(before) = self.get(place, namespace, name) else {
            metadata_new(&resource, fields, namespace, &self.ids.uid(), ask.now);
            self.representation(place).store(&mut object);
            let home = self.home(place);
            let stored = self.resource(home)?;
            return Ok(self.store(home, &stored, None, &object));
        };
        let old = before.decode();
        for field in ["namespace", "uid", "creationTimestamp", "resourceVersion", "generation"] {
            if let Some(value) = old["metadata"].get(field) {
                fields.insert(field.to_owned(), value.clone());
            }
        }
        self.representation(place).store(&mut object);
        self.replace_raw(ask, place, before, &object)
    }

    /// An object in the form of the place through which it is written.
    pub(super) fn stored(&self, place: VersionedResource, state: &State) -> Value {
        let mut object = state.decode_as(self.api_version_shown(place).as_deref());
        self.representation(place).show(&mut object);
        object
    }

    fn commit_update(
        &mut self,
        ask: &WriteContext,
        id: ResourceId,
        before: Arc<State>,
        old: &Value,
        object: &Value,
    ) -> Result<Arc<State>, Status> {
        let resource = self.resource(id)?;
        if custom::is_stored(&resource, &before, old, object) {
            return Ok(before);
        }
        if ask.dry_run {
            return Ok(Arc::new(State::encode(&resource, before.version, object)));
        }
        if is_finished(&resource, object) {
            // The answer has no finalizers and the old version; watchers see the state before it go.
            let answer = Arc::new(State::encode(&resource, before.version, object));
            self.remove(id, before);
            self.sweep(id);
            return Ok(answer);
        }
        let state = self.store(id, &resource, Some(before), object);
        if resource.is_definition() && old.get("spec") != object.get("spec") {
            self.redefine(old, object);
            self.install(ask.now, VersionedResource { id, version: 0 }, state.clone())?;
        }
        Ok(state)
    }

    pub(super) fn resource(&self, id: ResourceId) -> Result<Arc<Resource>, Status> {
        self.registry.get(id).cloned().ok_or_else(Status::no_such_resource)
    }

    /// Refuses a body that says it is something else. Built-in kinds need not say what they are.
    fn check_type(
        &self,
        resource: &Resource,
        place: VersionedResource,
        object: &Value,
    ) -> Result<(), Status> {
        let expected = resource.api_version(place.version);
        if resource.custom {
            return check_custom_type(resource, &expected, object);
        }
        self.check_kind((&expected, &resource.kind), object)
    }

    /// Refuses a body of another built-in kind than the expected one.
    pub(crate) fn check_kind(&self, expected: (&str, &str), object: &Value) -> Result<(), Status> {
        let text = |field: &str| object.get(field).and_then(Value::as_str).filter(|text| !text.is_empty());
        let api_version = text("apiVersion").unwrap_or(expected.0);
        let kind = text("kind").unwrap_or(expected.1);
        if (api_version, kind) == expected {
            return Ok(());
        }
        let (_, version) = split_api_version(api_version);
        let item = kind.strip_suffix("List").unwrap_or(kind);
        let known = self.registry.place_of(api_version, item).is_some();
        let why = not_convertible(expected, (api_version, kind), known);
        let handled = format!("{kind} in version \"{version}\" cannot be handled as a {}", expected.1);
        Err(Status::bad_request(format!("{handled}: {why}")))
    }

    /// The name of a new object, made up if only its beginning is given.
    fn name_new(
        &mut self,
        resource: &Resource,
        object: &mut Value,
        mut name: String,
    ) -> Result<String, Status> {
        let metadata = metadata(resource, object)?;
        let base = metadata.get("generateName").and_then(Value::as_str).unwrap_or_default();
        if name.is_empty() && !base.is_empty() {
            name = self.ids.name(base);
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
            // What names built-in kinds may have is said with everything else that is wrong with them.
            Vec::new()
        };
        if causes.is_empty() {
            return Ok(name);
        }
        Err(Status::invalid(&resource.group, &resource.kind, &name, causes))
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
            details.causes = vec![StatusCause::new("NamespaceTerminating", "metadata.namespace", message)];
        }
        Err(status)
    }
}

impl Resource {
    /// Refuses a subresource that is not there.
    pub(crate) fn check_part(&self, version: usize, part: WriteTarget, name: &str) -> Result<(), Status> {
        let there = match part {
            WriteTarget::Object => true,
            WriteTarget::Status => self.has_status(version),
            WriteTarget::Finalize => self.is("", "namespaces"),
            WriteTarget::Approval => self.is("certificates.k8s.io", "certificatesigningrequests"),
            WriteTarget::EphemeralContainers | WriteTarget::Resize => self.is("", "pods"),
            WriteTarget::Scale => self.has_scale(version),
        };
        match (there, self.custom) {
            (true, _) => Ok(()),
            (false, true) => Err(Status::not_found(&self.group, &self.plural, name)),
            (false, false) => Err(Status::no_such_resource()),
        }
    }
}

/// Reads a body by the type of a kind that is not stored. The error is the 400 that a real server answers.
pub(crate) fn read_as((api_version, kind): (&str, &str), object: Value) -> Result<Value, Status> {
    let (group, version) = split_api_version(api_version);
    let Some(of) = builtin::type_of(group, version, kind) else { return Ok(object) };
    let read = builtin::read(of, object).map_err(|why| {
        Status::bad_request(format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {why}"))
    })?;
    Ok(read.object)
}

/// Custom objects must say what they are.
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
    // Another kind is one of the things that are wrong with it, and told with the others.
    if api_version == expected {
        return Ok(());
    }
    let message = format!(
        "the API version in the data ({api_version}) does not match the expected API version ({expected})"
    );
    Err(Status::bad_request(message))
}
