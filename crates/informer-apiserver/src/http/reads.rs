//! Reading: one object, a list, a watch.

use std::sync::Arc;
use std::time::Duration;

use super::Call;
use bytes::Bytes;
use futures::stream::BoxStream;
use http::{HeaderValue, header};
use informer_objects::status::Status;
use serde_json::Value;

use super::accept::{Carried, Encoding, Form};
use super::encode;
use super::frames::Frames;
use super::response::{self, BodyError, ListHead, ServerResponse};
use super::table::{self, Include, Table};
use super::watch_stream::{self, WatchStream};
use crate::model::{Filter, From, Listing, ObjectShape, Page, ReadVersion, Resource, State, View};
use crate::request::ListOptions;

/// The shortest and the additional time of a watch that asks for none, in seconds.
const WATCH_TIMEOUT: (u64, u64) = (1_800, 1_800);

impl Call {
    pub(super) async fn get(&self) -> Result<ServerResponse, Status> {
        self.check_subresource()?;
        let (resource, view) = self.resource_and_view()?;
        if let Some(version) = self.query.reach()? {
            self.shared.reach(version, resource.is_cached()).await?;
        }
        let name = self.name();
        if self.target.subresource.as_deref() == Some("scale") {
            return self.get_scale(&resource);
        }
        let found = match self.old_state() {
            Some(listing) => {
                listing.states(&Filter::namespace(self.namespace())).find(|state| state.name == name)
            }
            None => self.shared.model(|model| model.get(self.place, self.namespace(), name)),
        };
        let found = found.ok_or_else(|| Status::not_found(&resource.group, &resource.plural, name))?;
        self.object(200, &resource, &view, &found)
    }

    fn get_scale(&self, resource: &Resource) -> Result<ServerResponse, Status> {
        let (namespace, name) = self.key();
        let scale = self.shared.model(|model| {
            let found = model.get(self.place, namespace, name);
            let found = found.ok_or_else(|| Status::not_found(&resource.group, &resource.plural, name))?;
            model.scale(self.place, &found)
        })?;
        self.scale(scale)
    }

    /// A scale in the form that was asked for.
    pub(super) fn scale(&self, mut scale: Value) -> Result<ServerResponse, Status> {
        if let Carried::Table(meta) = self.form.carried {
            let include = Include::parse(self.query.get("includeObject"))?;
            scale = table::scale(scale, meta, include, self.shared.now());
        }
        Ok(self.other(200, scale.to_string().into_bytes()))
    }

    pub(super) async fn list(&self) -> Result<ServerResponse, Status> {
        let resource = self.resource()?;
        if let Carried::Metadata(_) = self.form.carried {
            let message = format!(
                "you requested PartialObjectMetadata, but the requested object is a list ({})",
                go_type(&resource, &resource.list_kind)
            );
            return Err(Status::new(406, "NotAcceptable", message));
        }
        let filter = self.filter(&resource)?;
        let ListOptions { at, reach, limit } = self.query.list(resource.is_cached())?;
        if let Some(version) = reach {
            self.shared.reach(version, resource.is_cached()).await?;
        }
        let old =
            self.old_state().filter(|_| at == ReadVersion::Newest).map(|old| ReadVersion::Exact(old.version));
        let at = old.unwrap_or(at);
        let listing = self.shared.model(|model| model.list(self.place, &filter.namespace, &at, limit > 0))?;
        let mut head = self.list_head(&resource, listing.version);
        let streamed =
            limit == 0 && self.form == Form { carried: self.form.carried, ..Form::JSON } && !self.gzip;
        if streamed && !matches!(self.form.carried, Carried::Table(_)) {
            let view = self.item_view(&resource);
            return Ok(response::list(&resource, &head, view, listing, filter));
        }
        let page = listing.page(&filter, if limit == 0 { usize::MAX } else { limit });
        head.next = page.next.as_ref().map(crate::model::Token::encode);
        head.remaining = page.remaining;
        self.page(&resource, &head, &page)
    }

    /// What a reader is shown that may be shown an old state, if a fault has the server lag: nothing that is older than it asks for.
    fn old_state(&self) -> Option<Listing> {
        let asked = self.query.reach().ok()?.unwrap_or(0);
        let behind = self.response_faults.lag_writes?;
        let listed = self.shared.model(|model| {
            let version = model.version().saturating_sub(behind).max(asked).max(1);
            model.list(self.place, self.namespace(), &ReadVersion::Exact(version), false)
        });
        listed.ok()
    }

    pub(super) fn list_head(&self, resource: &Resource, version: u64) -> ListHead {
        ListHead {
            metadata_only: matches!(self.form.carried, Carried::MetadataList(_)),
            api_version: resource.api_version(self.place.version),
            version,
            next: None,
            remaining: None,
        }
    }

    fn item_view(&self, resource: &Resource) -> View {
        let metadata_only = matches!(self.form.carried, Carried::MetadataList(_));
        let shape = response::item_shape(resource, metadata_only);
        self.shared.model(|model| model.view(self.place, shape))
    }

    /// A list in the form that was asked for.
    pub(super) fn page(
        &self,
        resource: &Arc<Resource>,
        head: &ListHead,
        page: &Page,
    ) -> Result<ServerResponse, Status> {
        let json = match self.table(resource)? {
            Some(table) => {
                table.whole(&head.metadata(), &page.items, self.shared.now()).to_string().into_bytes()
            }
            None => response::page(resource, head, &self.item_view(resource), page),
        };
        Ok(encode::encode(self.form, self.gzip, 200, json))
    }

    /// One object in the form that was asked for.
    pub(super) fn object(
        &self,
        code: u16,
        resource: &Arc<Resource>,
        view: &View,
        state: &Arc<State>,
    ) -> Result<ServerResponse, Status> {
        if let Carried::MetadataList(_) = self.form.carried {
            let message = format!(
                "you requested PartialObjectMetadataList, but the requested object is not a list ({})",
                go_type(resource, &resource.kind)
            );
            return Err(Status::new(406, "NotAcceptable", message));
        }
        let json = match self.table(resource)? {
            Some(table) => {
                let metadata = serde_json::json!({"resourceVersion": state.version.to_string()});
                table
                    .whole(&metadata, std::slice::from_ref(state), self.shared.now())
                    .to_string()
                    .into_bytes()
            }
            None => state.bytes(view).to_vec(),
        };
        Ok(encode::encode(self.form, self.gzip, code, json))
    }

    /// Something else than an object of the resource: a scale, a status.
    pub(super) fn other(&self, code: u16, json: Vec<u8>) -> ServerResponse {
        encode::encode(Form { carried: Carried::Whole, ..self.form }, false, code, json)
    }

    /// The table that was asked for, if one was.
    pub(super) fn table(&self, resource: &Arc<Resource>) -> Result<Option<Table>, Status> {
        let Carried::Table(meta) = self.form.carried else { return Ok(None) };
        let include = Include::parse(self.query.get("includeObject"))?;
        let view = self.shared.model(|model| model.view(self.place, ObjectShape::Whole));
        Ok(Some(Table { resource: resource.clone(), version: self.place.version, meta, include, view }))
    }

    pub(super) async fn watch(&self, endless: bool) -> Result<ServerResponse, Status> {
        let (resource, view) = self.resource_and_view()?;
        let filter = self.filter(&resource)?;
        let options = self.query.watch()?;
        if let Some(version) = options.reach
            && let Err(status) = self.shared.reach(version, resource.is_cached()).await
        {
            return Ok(self.streamed(watch_stream::error_only(&status, self.form.encoding)));
        }
        let frames = match self.table(&resource)? {
            Some(table) => Frames::table(table),
            None => Frames::plain(&resource, self.place.version, view, self.form.encoding),
        };
        // From here on nothing fails: what is opened is closed by its feed.
        let opened = self.shared.model(|model| model.open_watch(self.place, options.from));
        let opened = match opened {
            Ok(opened) => opened,
            Err(status) if status.code == 410 => {
                return Ok(self.streamed(watch_stream::error_only(&status, self.form.encoding)));
            }
            Err(status) => return Err(status),
        };
        let timeout = match options.timeout {
            Some(seconds) => u64::try_from(seconds).unwrap_or(0),
            None => WATCH_TIMEOUT.0 + self.shared.watch_number() * 97 % WATCH_TIMEOUT.1,
        };
        let told = match options.from {
            From::Version(version) => version,
            From::Now | From::Start => opened.version,
        };
        let request = watch_stream::Request {
            seen: self.seen.clone(),
            filter,
            frames,
            bookmarks: options.bookmarks,
            timeout: Duration::from_secs(timeout),
            endless,
        };
        let initial = opened.initial.map(|objects| (objects, opened.version));
        let feed = WatchStream::new(self.shared.clone(), request, opened.cursor, initial, told);
        Ok(self.streamed(feed.stream()))
    }

    /// The answer to a watch.
    fn streamed(&self, frames: BoxStream<'static, Result<Bytes, BodyError>>) -> ServerResponse {
        let mut answer = response::chunks(frames);
        if self.form.encoding == Encoding::Protobuf {
            let stream = HeaderValue::from_static("application/vnd.kubernetes.protobuf;stream=watch");
            answer.headers_mut().insert(header::CONTENT_TYPE, stream);
        }
        answer
    }

    pub(super) fn resource(&self) -> Result<Arc<Resource>, Status> {
        let found = self.shared.model(|model| model.registry().get(self.place.id).cloned());
        found.ok_or_else(Status::no_such_resource)
    }

    /// How one object, or a frame, is shown.
    pub(super) fn resource_and_view(&self) -> Result<(Arc<Resource>, View), Status> {
        let resource = self.resource()?;
        let metadata_only = matches!(self.form.carried, Carried::Metadata(_) | Carried::MetadataList(_));
        let shape = if metadata_only { ObjectShape::Metadata } else { ObjectShape::Whole };
        Ok((resource, self.shared.model(|model| model.view(self.place, shape))))
    }

    pub(super) fn namespace(&self) -> &str {
        self.target.namespace.as_deref().unwrap_or_default()
    }

    pub(super) fn name(&self) -> &str {
        self.target.name.as_deref().unwrap_or_default()
    }

    /// Only the status can be read on its own, where there is one.
    fn check_subresource(&self) -> Result<(), Status> {
        let resource = self.resource()?;
        match self.target.subresource.as_deref() {
            None => Ok(()),
            Some("status") if resource.has_status(self.place.version) => Ok(()),
            Some("scale") if resource.has_scale(self.place.version) => Ok(()),
            Some("status" | "scale") if resource.custom => {
                Err(Status::not_found(&resource.group, &resource.plural, self.name()))
            }
            Some("binding" | "eviction") if resource.is("", "pods") => Err(Status::method_not_allowed()),
            Some("ephemeralcontainers" | "resize") if resource.is("", "pods") => Ok(()),
            Some("approval") if resource.is("certificates.k8s.io", "certificatesigningrequests") => Ok(()),
            Some("finalize") if resource.is("", "namespaces") => Err(Status::method_not_allowed()),
            Some(_) => Err(Status::no_such_resource()),
        }
    }

    pub(super) fn filter(&self, resource: &Resource) -> Result<Filter, Status> {
        let (labels, fields) = (self.query.get("labelSelector"), self.query.get("fieldSelector"));
        // The old form of a watch on one object.
        let of_name = self.target.name.as_ref().map(|name| format!("metadata.name={name}"));
        let fields = of_name.as_deref().unwrap_or(fields);
        Filter::parse(resource, self.namespace(), labels, fields)
    }
}

/// The Go type that the real server names.
fn go_type(resource: &Resource, kind: &str) -> String {
    if resource.custom {
        let list = if kind == resource.kind { "" } else { "List" };
        return format!("*unstructured.Unstructured{list}");
    }
    let package = resource.group.split('.').next().filter(|group| !group.is_empty()).unwrap_or("core");
    format!("*{package}.{kind}")
}
