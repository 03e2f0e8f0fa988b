//! Handles creates, updates, patches and deletions.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, header};
use informer_objects::body::{self, Body};
use informer_objects::patch::PatchKind;
use informer_objects::status::Status;
use serde_json::Value;

use super::Call;
use super::options::{self, OptionsKind};
use super::response::ServerResponse;
use crate::access::{Attributes, RBAC, accounts};
use crate::log::Verb;
use crate::model::{
    DeleteResponse, Model, NAMESPACES_DIFFER, Paging, ReadVersion, Resource, State, View, WriteContext,
    WriteOrigin, WriteResult, WriteTarget, created_status, patching, read_as,
};
use crate::request::ListOptions;

/// The warning for a job that is deleted without a propagation policy.
const JOB_PODS_PRESERVED: &str = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to \
                         remove them or set propagationPolicy=Orphan to suppress this warning";

impl Call {
    pub(super) fn create(&self, body: &Bytes) -> Result<ServerResponse, Status> {
        let (resource, view) = self.resource_and_view()?;
        if resource.namespaced && self.target.namespace.is_none() {
            return Err(Status::method_not_allowed());
        }
        let context = self.write_context(OptionsKind::Create)?;
        if let Some(subresource) = self.target.subresource.as_deref() {
            return self.create_subresource(&resource, subresource, &context, body);
        }
        if !resource.is_stored() {
            return self.create_unstored(&resource, &context, body);
        }
        let body = self.read(&resource, body)?;
        let result = self.write(&context, Some(&body.object), |model, context| {
            model.create(context, self.gvr, self.namespace(), body.object.clone(), WriteOrigin::Body(&body))
        })?;
        self.write_response(&resource, &view, &result)
    }

    /// Handles a create in a resource that is not stored. Only pod bindings get here; `entry` handles access
    /// reviews.
    fn create_unstored(
        &self,
        resource: &Resource,
        context: &WriteContext,
        body: &Bytes,
    ) -> Result<ServerResponse, Status> {
        if !resource.is("", "bindings") {
            return Err(Status::no_such_resource());
        }
        let binding = self.read_unstored(&["v1"], "Binding", body)?;
        let name = text_at(&binding, "/metadata/name");
        if name.is_empty() {
            return Err(Status::bad_request("Name parameter required."));
        }
        self.shared.model(|model| {
            let pods = model.registry().resource("", "v1", "pods").ok_or_else(Status::no_such_resource)?;
            model.bind(context, pods, (self.namespace(), name), &binding)
        })?;
        Ok(self.non_object_response(201, created_status()))
    }

    /// Handles a create in a subresource, which binds or evicts a pod, or issues a token.
    fn create_subresource(
        &self,
        resource: &Resource,
        subresource: &str,
        context: &WriteContext,
        body: &Bytes,
    ) -> Result<ServerResponse, Status> {
        let is_pod = resource.is("", "pods");
        match subresource {
            "binding" if is_pod => {
                let binding = self.read_unstored(&["v1"], "Binding", body)?;
                self.check_same_name("Binding", &binding)?;
                self.shared.model(|model| model.bind(context, self.gvr, self.key(), &binding))?;
            }
            "eviction" if is_pod => {
                let eviction = self.read_unstored(&["policy/v1", "policy/v1beta1"], "Eviction", body)?;
                self.check_same_name("Eviction", &eviction)?;
                let mut options = options::delete_from_body(eviction["deleteOptions"].clone())?;
                options.dry_run |= context.dry_run;
                self.shared.model(|model| model.evict(context, self.gvr, self.key(), &options))?;
            }
            "token" if resource.is("", "serviceaccounts") => return self.create_token(context, body),
            "status" | "scale" | "finalize" | "approval" | "ephemeralcontainers" | "resize" => {
                return Err(Status::method_not_allowed());
            }
            _ => return Err(Status::no_such_resource()),
        }
        Ok(self.non_object_response(201, created_status()))
    }

    /// Issues a token of a service account.
    fn create_token(&self, context: &WriteContext, body: &Bytes) -> Result<ServerResponse, Status> {
        let request = self.read_unstored(&[accounts::API_VERSION], accounts::KIND, body)?;
        let key = self.shared.signing_key();
        let key = key.ok_or_else(|| Status::internal("sign token: no random numbers for a key"))?;
        let token_id = self.shared.next_audit_id();
        let issued =
            self.shared.model(|model| accounts::issue(model, key, context, self.key(), token_id, request))?;
        Ok(self.non_object_response(201, issued.to_string().into_bytes()))
    }

    fn check_same_name(&self, kind: &str, object: &Value) -> Result<(), Status> {
        if text_at(object, "/metadata/name") == self.name() {
            return Ok(());
        }
        Err(Status::bad_request(format!("name in URL does not match name in {kind} object")))
    }

    pub(super) fn update(&self, body: &Bytes) -> Result<ServerResponse, Status> {
        let (resource, view) = self.resource_and_view()?;
        let context = self.write_context(OptionsKind::Update)?;
        if self.target.subresource.as_deref() == Some("scale") {
            let scale = self.read_unstored(&["autoscaling/v1"], "Scale", body)?;
            return self.update_scale(&resource, |model, before| {
                model.update_scale(&context, self.gvr, before, &scale)
            });
        }
        let target =
            WriteTarget::of(self.target.subresource.as_deref()).ok_or_else(Status::no_such_resource)?;
        resource.check_write_target(self.gvr.version, target, self.name())?;
        let body = self.read(&resource, body)?;
        let result = self.write(&context, Some(&body.object), |model, context| {
            model.update(context, self.gvr, self.key(), target, body.object.clone(), WriteOrigin::Body(&body))
        })?;
        self.write_response(&resource, &view, &result)
    }

    pub(super) fn patch(&self, patch: &Bytes) -> Result<ServerResponse, Status> {
        let (resource, view) = self.resource_and_view()?;
        let kind = PatchKind::accepted(&self.content_type, resource.custom)?;
        body::check_size(patch.len())?;
        let options = if kind == PatchKind::Apply { OptionsKind::Apply } else { OptionsKind::Patch };
        let context = self.write_context(options)?;
        if self.target.subresource.as_deref() == Some("scale") {
            return self.update_scale(&resource, |model, before| {
                if kind == PatchKind::Apply {
                    return model.apply_scale(
                        &context,
                        self.gvr,
                        before,
                        &patching::read_apply_config(patch)?,
                    );
                }
                let scale = model.scale_to_change(self.gvr, &before)?;
                model.update_scale(&context, self.gvr, before, &patching::patched_scale(kind, &scale, patch)?)
            });
        }
        let target =
            WriteTarget::of(self.target.subresource.as_deref()).ok_or_else(Status::no_such_resource)?;
        let result = self.write(&context, None, |model, context| {
            model.patch(context, self.gvr, self.key(), target, kind, patch)
        })?;
        self.write_response(&resource, &view, &result)
    }

    /// Writes an object with `perform`.
    ///
    /// Roles and role bindings that grant more than the caller has are rejected. The check needs the object
    /// that would be stored, so `perform` is called as a dry run first. If the dry run fails, the object in
    /// the request body is checked instead, so that an escalation is reported rather than the error of the
    /// dry run. `body_object` is `None` for patches: then nothing is checked, and the write fails like the
    /// dry run.
    fn write(
        &self,
        context: &WriteContext,
        body_object: Option<&Value>,
        perform: impl Fn(&mut Model, &WriteContext) -> Result<WriteResult, Status>,
    ) -> Result<WriteResult, Status> {
        self.shared.model(|model| {
            // An update or an apply may create the object, which requires permission to create.
            let may_create = match self.recorded.verb {
                Verb::Update => {
                    model.registry().get(self.gvr.id).is_some_and(|resource| resource.put_creates())
                }
                Verb::Patch => PatchKind::of(&self.content_type) == Some(PatchKind::Apply),
                _ => false,
            };
            if may_create && model.get(self.gvr, self.namespace(), self.name()).is_none() {
                let create = Attributes { verb: "create".to_owned(), ..self.attributes.clone() };
                self.caller.authorize(&create)?;
            }
            if self.attributes.group == RBAC {
                let old = model.get(self.gvr, &self.attributes.namespace, &self.attributes.name);
                let dry_run = perform(model, &WriteContext { dry_run: true, ..context.clone() });
                let object =
                    dry_run.map_or_else(|_| body_object.cloned(), |result| Some(result.state.decode()));
                let old = old.map(|state| state.decode());
                object.map_or(Ok(()), |object| {
                    self.caller.check_escalation(&self.attributes, &object, old.as_ref())
                })?;
            }
            perform(model, context)
        })
    }

    /// Changes the replicas of an object through its scale, with `change`. Returns the response with the new
    /// scale.
    fn update_scale(
        &self,
        resource: &Resource,
        change: impl FnOnce(&mut Model, Arc<State>) -> Result<WriteResult, Status>,
    ) -> Result<ServerResponse, Status> {
        let scale = self.shared.model(|model| {
            if !resource.has_scale(self.gvr.version) {
                return Err(Status::no_such_resource());
            }
            let (namespace, name) = self.key();
            let before = model
                .get(self.gvr, namespace, name)
                .ok_or_else(|| Status::not_found(&resource.group, &resource.plural, name))?;
            let result = change(model, before)?;
            model.scale(self.gvr, &result.state)
        })?;
        self.scale_response(scale)
    }

    pub(super) fn delete(&self, body: &Bytes) -> Result<ServerResponse, Status> {
        let (resource, view) = self.resource_and_view()?;
        if self.target.subresource.is_some() {
            return Err(Status::method_not_allowed());
        }
        let options = self.delete_options(body)?;
        let now = self.shared.clock.now();
        let deleted = self.shared.model(|model| model.delete(now, self.gvr, self.key(), &options))?;
        let mut response = match deleted {
            DeleteResponse::Status(status) => self.non_object_response(200, status),
            DeleteResponse::Object(state) => self.object(200, &resource, &view, &state)?,
        };
        if resource.is("batch", "jobs") && options.policy.is_none() {
            add_warnings(&mut response, &[JOB_PODS_PRESERVED.to_owned()]);
        }
        Ok(response)
    }

    pub(super) fn delete_collection(&self, body: &Bytes) -> Result<ServerResponse, Status> {
        let resource = self.resource()?;
        if resource.namespaced != self.target.namespace.is_some() || resource.is("", "namespaces") {
            return Err(Status::method_not_allowed());
        }
        let options = self.delete_options(body)?;
        let filter = self.filter(&resource)?;
        let ListOptions { limit, .. } = self.query.list(resource.is_cached())?;
        let now = self.shared.clock.now();
        let limit = if limit == 0 { usize::MAX } else { limit };
        let (version, page) = self.shared.model(|model| {
            let listing = model.list(self.gvr, &filter.namespace, &ReadVersion::Newest, Paging::Unpaged)?;
            let page = listing.page(&filter, limit);
            model.delete_collection(now, self.gvr, &page.items, &options)?;
            Ok::<_, Status>((listing.version, page))
        })?;
        let mut head = self.list_head(&resource, version);
        head.next = page.next.as_ref().map(crate::model::Token::encode);
        head.remaining = page.remaining;
        self.page(&resource, &head, &page)
    }

    /// Returns the response to a write.
    pub(super) fn write_response(
        &self,
        resource: &Arc<Resource>,
        view: &View,
        result: &WriteResult,
    ) -> Result<ServerResponse, Status> {
        let code = if result.created { 201 } else { 200 };
        let mut response = self.object(code, resource, view, &result.state)?;
        add_warnings(&mut response, &result.warnings);
        Ok(response)
    }

    /// Parses the options of a deletion. If there is a body, the query is ignored.
    fn delete_options(&self, body: &Bytes) -> Result<crate::model::DeleteOptions, Status> {
        if body.is_empty() {
            return options::delete_from_query(&self.query);
        }
        let options = body::read_options(&self.content_type, body)?;
        options::delete_from_body(options)
    }

    pub(super) fn write_context(&self, kind: OptionsKind) -> Result<WriteContext, Status> {
        let context = options::write_context(kind, &self.query, &self.agent, self.shared.clock.now())?;
        Ok(WriteContext { user: self.caller.user.clone(), ..context })
    }

    pub(super) fn key(&self) -> (&str, &str) {
        (self.namespace(), self.name())
    }

    fn read(&self, resource: &Resource, body: &Bytes) -> Result<Body, Status> {
        let api_version = resource.api_version(self.gvr.version);
        body::read(Some(&self.content_type), body, (&api_version, &resource.kind), resource.custom)
    }

    /// Parses a body of a built-in kind that is not stored (`Binding`, `Eviction`, `Scale` or `TokenRequest`)
    /// in one of several versions. A body without apiVersion and kind has the first version and `kind`.
    fn read_unstored(&self, api_versions: &[&str], kind: &str, body: &Bytes) -> Result<Value, Status> {
        let api_version = api_versions.first().copied().unwrap_or_default();
        let is_custom = false;
        let object = body::read(Some(&self.content_type), body, (api_version, kind), is_custom)?.object;
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

/// Adds a `Warning` header for each text.
fn add_warnings(response: &mut ServerResponse, warnings: &[String]) {
    for text in body::warning_headers(warnings) {
        if let Ok(value) = HeaderValue::from_str(&text) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
}

fn text_at<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
