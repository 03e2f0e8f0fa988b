//! Writing: bodies in, the model's word out.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, header};
use serde_json::Value;

use super::Call;
use super::answer::Answer;
use super::options::{self, Family};
use super::query::ListOptions;
use crate::access::RBAC;
use crate::body::{self, Body};
use crate::model::{
    Ask, At, Deleted, Model, Origin, Part, Resource, Status, View, Written, created_status, patching,
};
use crate::patch::PatchKind;

impl Call {
    pub(super) fn create(&self, body: &Bytes) -> Result<Answer, Status> {
        let (resource, view) = self.resource_and_view()?;
        if resource.namespaced && self.target.namespace.is_none() {
            return Err(Status::method_not_allowed());
        }
        let ask = self.ask(Family::Create)?;
        if let Some(subresource) = self.target.subresource.as_deref() {
            return self.create_part(&resource, subresource, &ask, body);
        }
        if !resource.is_stored() {
            return self.create_bare(&resource, &ask, body);
        }
        let body = self.read(&resource, body)?;
        let written = self.write(&ask, Some(&body.object), |model, ask| {
            model.create(ask, self.place, self.namespace(), body.object.clone(), Origin::Body(&body))
        })?;
        self.written(&resource, &view, &written)
    }

    /// What is created without being stored. Reviews are answered before it comes here.
    fn create_bare(&self, resource: &Resource, ask: &Ask, body: &Bytes) -> Result<Answer, Status> {
        if !resource.is("", "bindings") {
            return Err(Status::no_such_resource());
        }
        let binding = self.read_other("v1", "Binding", body)?;
        let name = binding.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        self.shared.model(|model| {
            let pods = model.registry().place("", "v1", "pods").ok_or_else(Status::no_such_resource)?;
            model.bind(ask, pods, (self.namespace(), name), &binding)
        })?;
        Ok(self.other(201, created_status()))
    }

    /// What is created below an object: requests to do something with it.
    fn create_part(
        &self,
        resource: &Resource,
        subresource: &str,
        ask: &Ask,
        body: &Bytes,
    ) -> Result<Answer, Status> {
        let pods = resource.is("", "pods");
        match subresource {
            "binding" if pods => {
                let binding = self.read_other("v1", "Binding", body)?;
                self.shared.model(|model| model.bind(ask, self.place, self.key(), &binding))?;
            }
            "eviction" if pods => {
                let eviction = self.read_other("policy/v1", "Eviction", body)?;
                let options = options::delete_from_body(&eviction["deleteOptions"])?;
                self.shared.model(|model| model.evict(ask, self.place, self.key(), &options))?;
            }
            "status" | "scale" | "finalize" | "approval" | "ephemeralcontainers" | "resize" => {
                return Err(Status::method_not_allowed());
            }
            _ => return Err(Status::no_such_resource()),
        }
        Ok(self.other(201, created_status()))
    }

    pub(super) fn update(&self, body: &Bytes) -> Result<Answer, Status> {
        let (resource, view) = self.resource_and_view()?;
        let ask = self.ask(Family::Update)?;
        if self.target.subresource.as_deref() == Some("scale") {
            let scale = self.read_other("autoscaling/v1", "Scale", body)?;
            return self.rescale(&resource, &ask, |_| Ok(scale));
        }
        let part = Part::of(self.target.subresource.as_deref()).ok_or_else(Status::no_such_resource)?;
        resource.check_part(self.place.version, part, self.name())?;
        let body = self.read(&resource, body)?;
        let written = self.write(&ask, Some(&body.object), |model, ask| {
            model.update(ask, self.place, self.key(), part, body.object.clone(), Origin::Body(&body))
        })?;
        self.written(&resource, &view, &written)
    }

    pub(super) fn patch(&self, patch: &Bytes) -> Result<Answer, Status> {
        let (resource, view) = self.resource_and_view()?;
        let kind = PatchKind::accepted(&self.content_type, resource.custom)?;
        body::check_size(patch.len())?;
        let family = if kind == PatchKind::Apply { Family::Apply } else { Family::Patch };
        let ask = self.ask(family)?;
        if self.target.subresource.as_deref() == Some("scale") {
            return self.rescale(&resource, &ask, |scale| patching::scale(kind, &scale, patch));
        }
        let part = Part::of(self.target.subresource.as_deref()).ok_or_else(Status::no_such_resource)?;
        let written =
            self.write(&ask, None, |model, ask| model.patch(ask, self.place, self.key(), part, kind, patch))?;
        self.written(&resource, &view, &written)
    }

    /// Writes an object. Roles and bindings that would give more than the caller has are refused, and what counts is the object
    /// that would be stored, however it was sent; `sent` is looked at where nothing can be stored.
    fn write(
        &self,
        ask: &Ask,
        sent: Option<&Value>,
        act: impl Fn(&mut Model, &Ask) -> Result<Written, Status>,
    ) -> Result<Written, Status> {
        self.shared.model(|model| {
            if self.wanted.group == RBAC {
                let old = model.get(self.place, &self.wanted.namespace, &self.wanted.name);
                let would = act(model, &Ask { dry_run: true, ..ask.clone() });
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
    pub(super) fn rescale(
        &self,
        resource: &Resource,
        ask: &Ask,
        change: impl FnOnce(Value) -> Result<Value, Status>,
    ) -> Result<Answer, Status> {
        let scale = self.shared.model(|model| {
            if !resource.has_scale(self.place.version) {
                return Err(Status::no_such_resource());
            }
            let (namespace, name) = self.key();
            let before = model
                .get(self.place, namespace, name)
                .ok_or_else(|| Status::not_found(&resource.group, &resource.plural, name))?;
            let scale = change(model.scale_to_change(self.place, &before)?)?;
            let written = model.rescale(ask, self.place, before, &scale)?;
            model.scale(self.place, &written.state)
        })?;
        self.scale(scale)
    }

    pub(super) fn delete(&self, body: &Bytes) -> Result<Answer, Status> {
        let (resource, view) = self.resource_and_view()?;
        if self.target.subresource.is_some() {
            return Err(Status::method_not_allowed());
        }
        let options = self.delete_options(body)?;
        let now = self.shared.now();
        let deleted = self.shared.model(|model| model.delete(now, self.place, self.key(), &options))?;
        match deleted {
            Deleted::Gone(status) => Ok(self.other(200, status)),
            Deleted::Shown(state) => self.object(200, &resource, &view, &state),
        }
    }

    pub(super) fn delete_collection(&self, body: &Bytes) -> Result<Answer, Status> {
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
            let listing = model.list(self.place, &filter.namespace, &At::Newest, false)?;
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
        written: &Written,
    ) -> Result<Answer, Status> {
        let code = if written.created { 201 } else { 200 };
        let mut answer = self.object(code, resource, view, &written.state)?;
        for text in body::warning_headers(&written.warnings) {
            if let Ok(value) = HeaderValue::from_str(&text) {
                answer.headers_mut().append(header::WARNING, value);
            }
        }
        Ok(answer)
    }

    /// A body is all that counts, even when it says nothing.
    fn delete_options(&self, body: &Bytes) -> Result<crate::model::DeleteOptions, Status> {
        if body.is_empty() {
            return options::delete_from_query(&self.query);
        }
        let options = body::read_options(&self.content_type, body)?;
        options::delete_from_body(&options)
    }

    pub(super) fn ask(&self, family: Family) -> Result<Ask, Status> {
        let ask = options::ask(family, &self.query, &self.agent, self.shared.now())?;
        Ok(Ask { user: self.caller.user.clone(), ..ask })
    }

    pub(super) fn key(&self) -> (&str, &str) {
        (self.namespace(), self.name())
    }

    fn read(&self, resource: &Resource, body: &Bytes) -> Result<Body, Status> {
        let api_version = resource.api_version(self.place.version);
        body::read(Some(&self.content_type), body, (&api_version, &resource.kind), resource.custom)
    }

    /// A body of another kind than the resource's.
    fn read_other(&self, api_version: &str, kind: &str, body: &Bytes) -> Result<Value, Status> {
        Ok(body::read(Some(&self.content_type), body, (api_version, kind), false)?.object)
    }
}
