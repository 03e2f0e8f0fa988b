//! Patches and applies: from what is there and what is sent to a whole new object, which then goes the way of an update.
//!
//! The model holds still meanwhile, so a patch never has to be tried again, however many come at once.

use serde_json::Value;

use super::Model;
use super::ask::{Ask, Origin, Written};
use super::kinds::{Place, Resource};
use super::meta;
use super::state::State;
use super::status::Status;
use super::write::Part;
use crate::managed::{self, Manager};
use crate::patch::{self, PatchKind};
use crate::text;
use crate::text::times;

impl Model {
    /// Patches an object, or applies one.
    pub(crate) fn patch(
        &mut self,
        ask: &Ask,
        place: Place,
        (namespace, name): (&str, &str),
        part: Part,
        kind: PatchKind,
        bytes: &[u8],
    ) -> Result<Written, Status> {
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
        let patched = match (kind, resource.type_of(place.version)) {
            (PatchKind::Json, _) => patch::json(&live, bytes)?,
            (PatchKind::Strategic, Some(of)) => patch::strategic(of, &live, bytes)?,
            _ => patch::merge(&live, bytes)?,
        };
        check_names(&resource, (namespace, name), &patched)?;
        check_version(&resource, &before, &patched)?;
        self.replace(ask, place, part, before, patched, Origin::Patch(kind, bytes))
    }

    /// Server-side apply.
    fn apply(
        &mut self,
        ask: &Ask,
        place: Place,
        (namespace, name): (&str, &str),
        part: Part,
        bytes: &[u8],
    ) -> Result<Written, Status> {
        let resource = self.resource(place.id)?;
        let config = text::read_yaml(bytes).map_err(|why| {
            Status::bad_request(format!("error decoding YAML: error converting YAML to JSON: {why}"))
        })?;
        let config = config.value;
        let before = self.get(place, namespace, name);
        let (time, api_version) = (times::written(ask.now), resource.api_version(place.version));
        let manager = Manager {
            name: &ask.manager,
            subresource: part.name(),
            api_version: &api_version,
            kind: &resource.kind,
            time: &time,
            reset: super::typed::resets(&resource, place.version, part),
        };
        let live = before.as_ref().map(|before| self.stored(place, before));
        let object =
            managed::applied(resource.node(place.version), live.as_ref(), &config, &manager, ask.force)
                .map_err(|error| error.to_status())?;
        let said = |field: &str| config.pointer(&format!("/metadata/{field}")).and_then(Value::as_str);
        match before {
            Some(before) => {
                check_names(&resource, (namespace, name), &object)?;
                check_version(&resource, &before, &object)?;
                self.replace(ask, place, part, before, object, Origin::Apply)
            }
            None if part != Part::Main => Err(Status::not_found(&resource.group, &resource.plural, name)),
            None => {
                check_names(&resource, (namespace, name), &config)?;
                if let Some(uid) = said("uid") {
                    let why = format!(
                        "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                    );
                    return Err(Status::conflict(&resource.group, &resource.plural, name, &why));
                }
                self.create(ask, place, namespace, object, Origin::Apply)
            }
        }
    }
}

/// A scale after a patch.
pub(crate) fn scale(kind: PatchKind, scale: &Value, bytes: &[u8]) -> Result<Value, Status> {
    match kind {
        PatchKind::Json => patch::json(scale, bytes),
        PatchKind::Merge | PatchKind::Strategic => patch::merge(scale, bytes),
        PatchKind::Apply => {
            let config = text::read_yaml(bytes).map_err(Status::bad_request)?;
            patch::merge(scale, config.value.to_string().as_bytes())
        }
    }
}

/// The name and the namespace of an object cannot be patched.
fn check_names(resource: &Resource, (namespace, name): (&str, &str), object: &Value) -> Result<(), Status> {
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
        let message = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Status::bad_request(message));
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
