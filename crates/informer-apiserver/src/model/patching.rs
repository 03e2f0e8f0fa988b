//! Patches and server-side applies: computes the new object from the stored one and the patch, then proceeds
//! as an update, or as a create if an applied object does not exist.
//!
//! The caller holds the lock of the model, so no other write happens in between and nothing is retried.

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
    /// Patches an object. A server-side apply also creates it if it does not exist.
    pub(crate) fn patch(
        &mut self,
        context: &WriteContext,
        gvr: VersionedResource,
        (namespace, name): (&str, &str),
        target: WriteTarget,
        kind: PatchKind,
        bytes: &[u8],
    ) -> Result<WriteResult, Status> {
        let resource = self.resource(gvr.id)?;
        resource.check_write_target(gvr.version, target, name)?;
        if kind == PatchKind::Apply {
            return self.apply(context, gvr, (namespace, name), target, bytes);
        }
        let before = self
            .get(gvr, namespace, name)
            .ok_or_else(|| Status::not_found(&resource.group, &resource.plural, name))?;
        let mut live = self.shown(gvr, &before);
        live["apiVersion"] = Value::from(resource.api_version(gvr.version));
        let mut patched = match (kind, resource.type_of(gvr.version)) {
            (PatchKind::Json, _) => patch::json(&live, bytes)?,
            (PatchKind::Strategic, Some(type_id)) => patch::strategic(type_id, &live, bytes)?,
            _ => patch::merge(&live, bytes)?,
        };
        if kind == PatchKind::Strategic {
            // A strategic merge cannot change apiVersion and kind.
            for field in ["apiVersion", "kind"] {
                patched[field] = live[field].clone();
            }
        }
        check_kind(&resource, kind, bytes, &patched)?;
        check_names(&resource, (namespace, name), &patched)?;
        check_version(&resource, &before, &patched)?;
        self.replace(context, gvr, target, before, patched, WriteOrigin::Patch(kind, bytes))
    }

    /// Performs a server-side apply.
    fn apply(
        &mut self,
        context: &WriteContext,
        gvr: VersionedResource,
        (namespace, name): (&str, &str),
        target: WriteTarget,
        bytes: &[u8],
    ) -> Result<WriteResult, Status> {
        let resource = self.resource(gvr.id)?;
        let config = read_apply_config(bytes)?;
        let before = self.get(gvr, namespace, name);
        let (time, api_version) = (times::written(context.now), resource.api_version(gvr.version));
        let manager = Manager {
            name: &context.manager,
            subresource: target.name(),
            api_version: &api_version,
            kind: &resource.kind,
            time: &time,
            reset: super::write_pipeline::reset_fields(&resource, gvr.version, target),
        };
        let live = before.as_ref().map(|before| self.shown(gvr, before));
        let object = field_management::applied(
            resource.schema_node(gvr.version),
            live.as_ref(),
            &config,
            &manager,
            context.force,
        )
        .map_err(|error| error.to_status())?;
        let given = |field: &str| config.pointer(&format!("/metadata/{field}")).and_then(Value::as_str);
        match before {
            Some(before) => {
                check_names(&resource, (namespace, name), &object)?;
                check_version(&resource, &before, &object)?;
                self.replace(context, gvr, target, before, object, WriteOrigin::Apply)
            }
            None if target != WriteTarget::Object => {
                Err(Status::not_found(&resource.group, &resource.plural, name))
            }
            None => {
                check_names(&resource, (namespace, name), &config)?;
                if let Some(uid) = given("uid") {
                    let why = format!(
                        "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                    );
                    return Err(Status::conflict(&resource.group, &resource.plural, name, &why));
                }
                self.create(context, gvr, namespace, object, WriteOrigin::Apply)
            }
        }
    }
}

/// Returns a `Scale` after a patch that is not an apply.
pub(crate) fn patched_scale(kind: PatchKind, scale: &Value, bytes: &[u8]) -> Result<Value, Status> {
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
    let declared = |field: &str| patched[field].as_str().filter(|text| !text.is_empty());
    let (api_version, name) =
        (declared("apiVersion").unwrap_or("autoscaling/v1"), declared("kind").unwrap_or("Scale"));
    let (group, version) = versions::split_api_version(api_version);
    let type_id = builtin::type_of(group, version, name);
    if (api_version, name) != ("autoscaling/v1", "Scale") {
        let why = not_convertible(("autoscaling/v1", "Scale"), (api_version, name), type_id.is_some());
        return Err(refused(&why));
    }
    let Some(type_id) = type_id else { return Ok(patched) };
    Ok(builtin::read(type_id, patched).map_err(|why| refused(&why))?.object)
}

/// Decodes the body of an apply: the applied configuration as YAML or JSON.
pub(crate) fn read_apply_config(bytes: &[u8]) -> Result<Value, Status> {
    let config = text::read_yaml(bytes).map_err(|why| {
        Status::bad_request(format!("error decoding YAML: error converting YAML to JSON: {why}"))
    })?;
    Ok(config.value)
}

/// Requires that kind and apiVersion are strings after a patch, and that a custom object has both.
fn check_kind(resource: &Resource, kind: PatchKind, bytes: &[u8], patched: &Value) -> Result<(), Status> {
    let refused = |why: &str| patch::undecodable(kind, bytes, &state::go_text(patched), why);
    body::check_type_meta(patched).map_err(|why| refused(&why))?;
    let has = |field: &str| patched.get(field).and_then(Value::as_str).is_some_and(|text| !text.is_empty());
    if resource.custom && !has("kind") {
        return Err(refused(&format!("Object 'Kind' is missing in '{}'", state::go_text(patched))));
    }
    if resource.custom && !has("apiVersion") {
        let missing = "Object 'apiVersion' is missing in 'object has no apiVersion field'";
        return Err(Status::internal(missing));
    }
    Ok(())
}

/// Rejects an object without a name, and one with another name or namespace than the request.
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

/// Requires that the resource version, if the patch sets one, is the current one; `0` counts as none.
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
