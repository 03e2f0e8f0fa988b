//! Writing: bodies in, the model's word out.

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::Value;

use super::Call;
use super::answer::{self, Answer};
use super::query;
use crate::model::{Deleted, Part, Status};

impl Call {
    pub(super) fn create(&self, body: &Bytes) -> Result<Answer, Status> {
        self.refuse_dry_run()?;
        let (resource, view) = self.resource_and_view()?;
        if resource.namespaced && self.target.namespace.is_none() {
            return Err(Status::method_not_allowed());
        }
        let object = read(&resource.kind, body)?;
        let now = Timestamp::now();
        let state = self.shared.model(|model| model.create(now, self.place, self.namespace(), object))?;
        Ok(answer::json(201, state.bytes(&view).to_vec()))
    }

    pub(super) fn update(&self, body: &Bytes) -> Result<Answer, Status> {
        self.refuse_dry_run()?;
        let (resource, view) = self.resource_and_view()?;
        let part = match self.target.subresource.as_deref() {
            None => Part::Main,
            Some("status") => Part::Status,
            Some("finalize") if resource.is("", "namespaces") => Part::Finalize,
            Some(_) => return Err(Status::no_such_resource()),
        };
        let object = read(&resource.kind, body)?;
        let key = (self.namespace(), self.name());
        let now = Timestamp::now();
        let (state, created) = self.shared.model(|model| model.update(now, self.place, key, part, object))?;
        Ok(answer::json(if created { 201 } else { 200 }, state.bytes(&view).to_vec()))
    }

    pub(super) fn delete(&self, body: &Bytes) -> Result<Answer, Status> {
        let (_, view) = self.resource_and_view()?;
        if self.target.subresource.is_some() {
            return Err(Status::method_not_allowed());
        }
        // A body is all that counts, even when it says nothing.
        let options = if body.is_empty() {
            self.refuse_dry_run()?;
            self.query.delete()?
        } else {
            query::delete_options(body)?
        };
        let key = (self.namespace(), self.name());
        let now = Timestamp::now();
        let deleted = self.shared.model(|model| model.delete(now, self.place, key, &options))?;
        Ok(match deleted {
            Deleted::Gone(status) => answer::json(200, status),
            Deleted::Shown(state) => answer::json(200, state.bytes(&view).to_vec()),
        })
    }

    fn refuse_dry_run(&self) -> Result<(), Status> {
        if self.query.is_dry_run() { Err(query::dry_run_refused()) } else { Ok(()) }
    }
}

fn read(kind: &str, body: &Bytes) -> Result<Value, Status> {
    serde_json::from_slice(body).map_err(|error| {
        let what = if body.is_empty() { "unexpected end of JSON input".to_owned() } else { error.to_string() };
        Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse error: \
             {what}"
        ))
    })
}
