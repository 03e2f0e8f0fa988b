//! Writing: bodies in, the model's word out.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, header};
use informer_objects::body::{self, Body};
use informer_objects::patch::PatchKind;
use informer_objects::status::Status;
use serde_json::Value;

use super::Call;
use super::options::{self, Family};
use super::response::ServerResponse;
use crate::access::{Attributes, RBAC};
use crate::log::Verb;
use crate::model::{
    Deleted, Model, NAMESPACES_DIFFER, ReadVersion, Resource, State, View, WriteContext, WriteOrigin,
    WriteResult, WriteTarget, created_status, patching, read_as,
};
use crate::request::ListOptions;

/// What is said when a job is deleted and not what is to become of its pods.
const PRESERVED: &str = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to \
                         remove them or set propagationPolicy=Orphan to suppress this warning";

impl Call {
    pub(super) fn create(&self, body: &Bytes) -> Result<ServerResponse, Status> {
        let (resource, view) = self.resource_and_view()?;
        if resource.namespaced && self.target.namespace.is_none() {
            return Err(Status::method_not_allowed());
        }
        let ask = self.write_context(Family::Create)?;
        if let Some(subresource) = self.target.subresource.as_deref() {
            return self.create_part(&resource, subresource, &ask, body);
        }
        if !resource.is_stored() {
            return self.create_bare(&resource, &ask, body);
        }
        let body = self.read(&resource, body)?;
        let written = self.write(&ask, Some(&body.object), |model, ask| {
            model.create(ask, self.place, self.namespace(), body.object.clone(), WriteOrigin::Body(&body))
        })?;
        self.written(&resource, &view, &written)
    }

    /// What is created without being stored. Reviews are answered before it comes here.
    fn create_bare(
        &self,
        resource: &Resource,
        ask: &WriteContext,
        body: &Bytes,
    ) -> Result<ServerResponse, Status> {
        if !resource.is("", "bindings") {
            return Err(Status::no_such_resource());
        }
        let binding = self.read_other(&["v1"], "Binding", body)?;
        let name = text_at(&binding, "/metadata/name");
        if name.is_empty() {
            return Err(Status::bad_request("Name parameter required."));
        }
        self.shared.model(|model| {
            let pods = model.registry().resource("", "v1", "pods").ok_or_else(Status::no_such_resource)?;
            model.bind(ask, pods, (self.namespace(), name), &binding)
        })?;
        Ok(self.other(201, created_status()))
    }

    /// What is created below an object: requests to do something with it.
    fn create_part(
        &self,
        resource: &Resource,
        subresource: &str,
        ask: &WriteContext,
        body: &Bytes,
    ) -> Result<ServerResponse, Status> {
        let pods = resource.is("", "pods");
        match subresource {
            "binding" if pods => {
                let binding = self.read_other(&["v1"], "Binding", body)?;
                self.check_same_name("Binding", &binding)?;
                self.shared.model(|model| model.bind(ask, self.place, self.key(), &binding))?;
            }
            "eviction" if pods => {
                let eviction = self.read_other(&["policy/v1", "policy/v1beta1"], "Eviction", body)?;
                self.check_same_name("Eviction", &eviction)?;
                let mut options = options::delete_from_body(eviction["deleteOptions"].clone())?;
                options.dry_run |= ask.dry_run;
                self.shared.model(|model| model.evict(ask, self.place, self.key(), &options))?;
            }
            "status" | "scale" | "finalize" | "approval" | "ephemeralcontainers" | "resize" => {
                return Err(Status::method_not_allowed());
            }
            _ => return Err(Status::no_such_resource()),
        }
        Ok(self.other(201, created_status()))
    }

    fn check_same_name(&self, kind: &str, object: &Value) -> Result<(), Status> {
        if text_at(object, "/metadata/name") == self.name() {
            return Ok(());
        }
        Err(Status::bad_request(format!("name in URL does not match name in {kind} object")))
    }

    pub(super) fn update(&self, body: &Bytes) -> Result<ServerResponse, Status> {
        let (resource, view) = self.resource_and_view()?;
        let ask = self.write_context(Family::Update)?;
        if self.target.subresource.as_deref() == Some("scale") {
            let scale = self.read_other(&["autoscaling/v1"], "Scale", body)?;
            return self.update_scale(&resource, |model, before| {
                model.update_scale(&ask, self.place, before, &scale)
            });
        }
        let part =
            WriteTarget::of(self.target.subresource.as_deref()).ok_or_else(Status::no_such_resource)?;
        resource.check_write_target(self.place.version, part, self.name())?;
        let body = self.read(&resource, body)?;
        let written = self.write(&ask, Some(&body.object), |model, ask| {
            model.update(ask, self.place, self.key(), part, body.object.clone(), WriteOrigin::Body(&body))
        })?;
        self.written(&resource, &view, &written)
    }

    pub(super) fn patch(&self, patch: &Bytes) -> Result<ServerResponse, Status> {
        let (resource, view) = self.resource_and_view()?;
        let kind = PatchKind::accepted(&self.content_type, resource.custom)?;
        body::check_size(patch.len())?;
        let family = if kind == PatchKind::Apply { Family::Apply } else { Family::Patch };
        let ask = self.write_context(family)?;
        if self.target.subresource.as_deref() == Some("scale") {
            return self.update_scale(&resource, |model, before| {
                if kind == PatchKind::Apply {
                    return model.apply_scale(&ask, self.place, before, &patching::config(patch)?);
                }
                let scale = model.scale_to_change(self.place, &before)?;
                model.update_scale(&ask, self.place, before, &patching::scale(kind, &scale, patch)?)
            });
        }
        let part =
            WriteTarget::of(self.target.subresource.as_deref()).ok_or_else(Status::no_such_resource)?;
        let written =
            self.write(&ask, None, |model, ask| model.patch(ask, self.place, self.key(), part, kind, patch))?;
        self.written(&resource, &view, &written)
    }

    /// Writes an object. Roles and bindings that would give more than the caller has are refused, and what counts is the object
    /// that would be stored, however it was sent; `sent` is looked at where nothing can be stored.
    fn write(
        &self,
        ask: &WriteContext,
        sent: Option<&Value>,
        act: impl Fn(&mut Model, &WriteContext) -> Result<WriteResult, Status>,
    ) -> Result<WriteResult, Status> {
        self.shared.model(|model| {
            // An update or an apply of what is not there may create it, and needs the right to.
            let may_create = match self.seen.verb {
                Verb::Update => {
                    model.registry().get(self.place.id).is_some_and(|resource| resource.put_creates())
                }
                Verb::Patch => PatchKind::of(&self.content_type) == Some(PatchKind::Apply),
                _ => false,
            };
            if may_create && model.get(self.place, self.namespace(), self.name()).is_none() {
                let create = Attributes { verb: "create".to_owned(), ..self.wanted.clone() };
                self.caller.authorize(&create)?;
            }
            if self.wanted.group == RBAC {
                let old = model.get(self.place, &self.wanted.namespace, &self.wanted.name);
                let would = act(model, &WriteContext { dry_run: true, ..ask.clone() });
                let object = would.map_or_else(|_| sent.cloned(), |written| Some(written.state.decode()));
                let old = old.map(|state| state.decode());
                object.map_or(Ok(()), |object| {
                    self.caller.check_escalation(&self.wanted, &object, old.as_ref())
                })?;
            }
            act(model, ask)
        })
    }

    /// Changes a scale, and with it its object.
    fn update_scale(
        &self,
        resource: &Resource,
        change: impl FnOnce(&mut Model, Arc<State>) -> Result<WriteResult, Status>,
    ) -> Result<ServerResponse, Status> {
        let scale = self.shared.model(|model| {
            if !resource.has_scale(self.place.version) {
                return Err(Status::no_such_resource());
            }
            let (namespace, name) = self.key();
            let before = model
                .get(self.place, namespace, name)
                .ok_or_else(|| Status::not_found(&resource.group, &resource.plural, name))?;
            let written = change(model, before)?;
            model.scale(self.place, &written.state)
        })?;
        self.scale(scale)
    }

    pub(super) fn delete(&self, body: &Bytes) -> Result<ServerResponse, Status> {
        let (resource, view) = self.resource_and_view()?;
        if self.target.subresource.is_some() {
            return Err(Status::method_not_allowed());
        }
        let options = self.delete_options(body)?;
        let now = self.shared.now();
        let deleted = self.shared.model(|model| model.delete(now, self.place, self.key(), &options))?;
        let mut answer = match deleted {
            Deleted::Gone(status) => self.other(200, status),
            Deleted::Shown(state) => self.object(200, &resource, &view, &state)?,
        };
        if resource.is("batch", "jobs") && options.policy.is_none() {
            warn(&mut answer, &[PRESERVED.to_owned()]);
        }
        Ok(answer)
    }

    pub(super) fn delete_collection(&self, body: &Bytes) -> Result<ServerResponse, Status> {
        let resource = self.resource()?;
        if resource.namespaced != self.target.namespace.is_some() || resource.is("", "namespaces") {
            return Err(Status::method_not_allowed());
        }
        let options = self.delete_options(body)?;
        let filter = self.filter(&resource)?;
        let ListOptions { limit, .. } = self.query.list(resource.is_cached())?;
        let now = self.shared.now();
        let limit = if limit == 0 { usize::MAX } else { limit };
        let (version, page) = self.shared.model(|model| {
            let listing = model.list(self.place, &filter.namespace, &ReadVersion::Newest, false)?;
            let page = listing.page(&filter, limit);
            model.delete_collection(now, self.place, &page.items, &options)?;
            Ok::<_, Status>((listing.version, page))
        })?;
        let mut head = self.list_head(&resource, version);
        head.next = page.next.as_ref().map(crate::model::Token::encode);
        head.remaining = page.remaining;
        self.page(&resource, &head, &page)
    }

    /// The answer to a write.
    pub(super) fn written(
        &self,
        resource: &Arc<Resource>,
        view: &View,
        written: &WriteResult,
    ) -> Result<ServerResponse, Status> {
        let code = if written.created { 201 } else { 200 };
        let mut answer = self.object(code, resource, view, &written.state)?;
        warn(&mut answer, &written.warnings);
        Ok(answer)
    }

    /// A body is all that counts, even when it says nothing.
    fn delete_options(&self, body: &Bytes) -> Result<crate::model::DeleteOptions, Status> {
        if body.is_empty() {
            return options::delete_from_query(&self.query);
        }
        let options = body::read_options(&self.content_type, body)?;
        options::delete_from_body(options)
    }

    pub(super) fn write_context(&self, family: Family) -> Result<WriteContext, Status> {
        let ask = options::write_context(family, &self.query, &self.agent, self.shared.now())?;
        Ok(WriteContext { user: self.caller.user.clone(), ..ask })
    }

    pub(super) fn key(&self) -> (&str, &str) {
        (self.namespace(), self.name())
    }

    fn read(&self, resource: &Resource, body: &Bytes) -> Result<Body, Status> {
        let api_version = resource.api_version(self.place.version);
        body::read(Some(&self.content_type), body, (&api_version, &resource.kind), resource.custom)
    }

    /// A body of another kind than the resource's, read by its type. It may come in several versions.
    fn read_other(&self, api_versions: &[&str], kind: &str, body: &Bytes) -> Result<Value, Status> {
        let api_version = api_versions.first().copied().unwrap_or_default();
        let object = body::read(Some(&self.content_type), body, (api_version, kind), false)?.object;
        let given = text_at(&object, "/apiVersion");
        if !api_versions.contains(&given) || text_at(&object, "/kind") != kind {
            self.shared.model(|model| model.check_kind((api_version, kind), &object))?;
        }
        let object = read_as((api_version, kind), object)?;
        let namespace = text_at(&object, "/metadata/namespace");
        if !namespace.is_empty() && namespace != self.namespace() {
            return Err(Status::bad_request(NAMESPACES_DIFFER));
        }
        Ok(object)
    }
}

fn warn(answer: &mut ServerResponse, warnings: &[String]) {
    for text in body::warning_headers(warnings) {
        if let Ok(value) = HeaderValue::from_str(&text) {
            answer.headers_mut().append(header::WARNING, value);
        }
    }
}

fn text_at<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
