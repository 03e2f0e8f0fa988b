//! Patches and applies: from what is there and what is sent to a whole new object, which then goes the way of an update.
//!
//! The model holds still meanwhile, so a patch never has to be tried again, however many come at once.

use informer_objects::field_management::{self, Manager};
use informer_objects::patch::{self, PatchKind};
use informer_objects::status::Status;
use informer_objects::text::{times, versions};
use informer_objects::{body, builtin, text};
use serde_json::Value;

use super::kinds::VersionedResource;
use super::resource::Resource;
use super::state::{self, State};
use super::write_context::{WriteContext, WriteOrigin, WriteResult};
use super::write_target::{WriteTarget, not_convertible};
use super::{Model, meta};

impl Model {
    /// Patches an object, or applies one.
    pub(crate) fn patch(
        &mut self,
        ask: &WriteContext,
        place: VersionedResource,
        (namespace, name): (&str, &str),
        part: WriteTarget,
        kind: PatchKind,
        bytes: &[u8],
    ) -> Result<WriteResult, Status> {
        let resource = self.resource(place.id)?;
        resource.check_part(place.version, part, name)?;
        if kind == PatchKind::Apply {
            return self.apply(ask, place, (namespace, name), part, bytes);
        }
        let before = self
            .get(place, namespace, name)
            .ok_or_else(|| Status::not_found(&resource.group, &resource.plural, name))?;
        let mut live = self.stored(place, &before);
        live["apiVersion"] = Value::from(resource.api_version(place.version));
        let mut patched = match (kind, resource.type_of(place.version)) {
            (PatchKind::Json, _) => patch::json(&live, bytes)?,
            (PatchKind::Strategic, Some(of)) => patch::strategic(of, &live, bytes)?,
            _ => patch::merge(&live, bytes)?,
        };
        if kind == PatchKind::Strategic {
            // It is made of fields, and what the object is counts for none.
            for field in ["apiVersion", "kind"] {
                patched[field] = live[field].clone();
            }
        }
        check_kind(&resource, kind, bytes, &patched)?;
        check_names(&resource, (namespace, name), &patched)?;
        check_version(&resource, &before, &patched)?;
        self.replace(ask, place, part, before, patched, WriteOrigin::Patch(kind, bytes))
    }

    /// Server-side apply.
    fn apply(
        &mut self,
        ask: &WriteContext,
        place: VersionedResource,
        (namespace, name): (&str, &str),
        part: WriteTarget,
        bytes: &[u8],
    ) -> Result<WriteResult, Status> {
        let resource = self.resource(place.id)?;
        let config = config(bytes)?;
        let before = self.get(place, namespace, name);
        let (time, api_version) = (times::written(ask.now), resource.api_version(place.version));
        let manager = Manager {
            name: &ask.manager,
            subresource: part.name(),
            api_version: &api_version,
            kind: &resource.kind,
            time: &time,
            reset: super::write_pipeline::resets(&resource, place.version, part),
        };
        let live = before.as_ref().map(|before| self.stored(place, before));
        let object = field_management::applied(
            resource.node(place.version),
            live.as_ref(),
            &config,
            &manager,
            ask.force,
        )
        .map_err(|error| error.to_status())?;
        let said = |field: &str| config.pointer(&format!("/metadata/{field}")).and_then(Value::as_str);
        match before {
            Some(before) => {
                check_names(&resource, (namespace, name), &object)?;
                check_version(&resource, &before, &object)?;
                self.replace(ask, place, part, before, object, WriteOrigin::Apply)
            }
            None if part != WriteTarget::Object => {
                Err(Status::not_found(&resource.group, &resource.plural, name))
            }
            None => {
                check_names(&resource, (namespace, name), &config)?;
                if let Some(uid) = said("uid") {
                    let why = format!(
                        "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                    );
                    return Err(Status::conflict(&resource.group, &resource.plural, name, &why));
                }
                self.create(ask, place, namespace, object, WriteOrigin::Apply)
            }
        }
    }
}

/// A scale after a patch that is no apply.
pub(crate) fn scale(kind: PatchKind, scale: &Value, bytes: &[u8]) -> Result<Value, Status> {
    let mut patched = match kind {
        PatchKind::Json => patch::json(scale, bytes)?,
        _ => patch::merge(scale, bytes)?,
    };
    if kind == PatchKind::Strategic {
        for field in ["apiVersion", "kind"] {
            patched[field] = scale[field].clone();
        }
    }
    let shown = state::go_text(&patched);
    let refused = |why: &str| patch::undecodable(kind, bytes, &shown, why);
    body::check_type_meta(&patched).map_err(|why| refused(&why))?;
    let said = |field: &str| patched[field].as_str().filter(|text| !text.is_empty());
    let (api_version, name) =
        (said("apiVersion").unwrap_or("autoscaling/v1"), said("kind").unwrap_or("Scale"));
    let (group, version) = versions::split_api_version(api_version);
    let of = builtin::type_of(group, version, name);
    if (api_version, name) != ("autoscaling/v1", "Scale") {
        let why = not_convertible(("autoscaling/v1", "Scale"), (api_version, name), of.is_some());
        return Err(refused(&why));
    }
    let Some(of) = of else { return Ok(patched) };
    Ok(builtin::read(of, patched).map_err(|why| refused(&why))?.object)
}

/// What an apply sends.
pub(crate) fn config(bytes: &[u8]) -> Result<Value, Status> {
    let config = text::read_yaml(bytes).map_err(|why| {
        Status::bad_request(format!("error decoding YAML: error converting YAML to JSON: {why}"))
    })?;
    Ok(config.value)
}

/// What an object is has to be text after a patch, and a custom one has to say it.
fn check_kind(resource: &Resource, kind: PatchKind, bytes: &[u8], patched: &Value) -> Result<(), Status> {
    let refused = |why: &str| patch::undecodable(kind, bytes, &state::go_text(patched), why);
    body::check_type_meta(patched).map_err(|why| refused(&why))?;
    let says = |field: &str| patched.get(field).and_then(Value::as_str).is_some_and(|text| !text.is_empty());
    if resource.custom && !says("kind") {
        return Err(refused(&format!("Object 'Kind' is missing in '{}'", state::go_text(patched))));
    }
    if resource.custom && !says("apiVersion") {
        let missing = "Object 'apiVersion' is missing in 'object has no apiVersion field'";
        return Err(Status::internal(missing));
    }
    Ok(())
}

/// The name and the namespace of an object cannot be patched.
pub(super) fn check_names(
    resource: &Resource,
    (namespace, name): (&str, &str),
    object: &Value,
) -> Result<(), Status> {
    let text = |field: &str| {
        object.pointer(&format!("/metadata/{field}")).and_then(Value::as_str).unwrap_or_default()
    };
    match text("name") {
        "" => return Err(Status::bad_request(meta::undeterminable(name))),
        given if given != name => return Err(Status::bad_request(meta::mismatch(given, name))),
        _ => {}
    }
    let given = text("namespace");
    if resource.namespaced && !given.is_empty() && given != namespace {
        return Err(Status::bad_request(meta::NAMESPACES_DIFFER));
    }
    Ok(())
}

/// A version that was patched in is one that the object must have.
fn check_version(resource: &Resource, before: &State, object: &Value) -> Result<(), Status> {
    let given = object.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default();
    if given.is_empty() || given == "0" {
        return Ok(());
    }
    let parsed: u64 = given
        .parse()
        .map_err(|_| Status::internal(format!("strconv.ParseUint: parsing {given:?}: invalid syntax")))?;
    if parsed == before.version {
        return Ok(());
    }
    let why = "the object has been modified; please apply your changes to the latest version and try again";
    Err(Status::conflict(&resource.group, &resource.plural, &before.name, why))
}
