//! Handles gets, lists and watches.

use std::sync::Arc;
use std::time::Duration;

use super::Call;
use bytes::Bytes;
use futures::stream::BoxStream;
use http::{HeaderValue, header};
use informer_objects::status::Status;
use serde_json::Value;

use super::accept::{Content, Encoding, ResponseFormat};
use super::encode;
use super::frames::Frames;
use super::lagging_cache::LaggingCache;
use super::response::{self, BodyError, ListHead, ServerResponse};
use super::stream_faults::StreamFaults;
use super::table::{self, Include, Table};
use super::watch_stream::{self, WatchStream};
use crate::model::{
    Filter, Listing, ObjectShape, Page, Paging, ReadVersion, Resource, Selectors, State, View, WatchStart,
};
use crate::request::ListOptions;

/// Minimum duration of a watch whose request has no timeout, in seconds.
const MIN_WATCH_SECONDS: u64 = 1_800;

/// Upper bound, exclusive, on the seconds that are added to [`MIN_WATCH_SECONDS`].
const WATCH_JITTER_SECONDS: u64 = 1_800;

impl Call {
    pub(super) async fn get(&self) -> Result<ServerResponse, Status> {
        self.check_subresource()?;
        let (resource, view) = self.resource_and_view()?;
        let min_version = self.query.min_version()?;
        if let Some(version) = min_version {
            self.shared.wait_for_version(version, resource.is_cached()).await?;
        }
        // The rule does not apply to a get without a version, which does not read the watch cache.
        let cache = self.response_faults.cache.as_ref().filter(|_| resource.is_cached());
        if let Some(cache) = cache {
            cache.wait_for(&self.shared, min_version.unwrap_or(0)).await?;
        }
        let name = self.name();
        if self.target.subresource.as_deref() == Some("scale") {
            return self.get_scale(&resource);
        }
        let state = match self.stale_listing(cache) {
            Some(listing) => {
                listing.states(&Filter::namespace(self.namespace())).find(|state| state.name == name)
            }
            None => self.shared.model(|model| model.get(self.gvr, self.namespace(), name)),
        };
        let state = state.ok_or_else(|| Status::not_found(&resource.group, &resource.plural, name))?;
        self.object(200, &resource, &view, &state)
    }

    fn get_scale(&self, resource: &Resource) -> Result<ServerResponse, Status> {
        let (namespace, name) = self.key();
        let scale = self.shared.model(|model| {
            let state = model.get(self.gvr, namespace, name);
            let state = state.ok_or_else(|| Status::not_found(&resource.group, &resource.plural, name))?;
            model.scale(self.gvr, &state)
        })?;
        self.scale_response(scale)
    }

    /// Returns the response with a scale, in the requested format.
    pub(super) fn scale_response(&self, mut scale: Value) -> Result<ServerResponse, Status> {
        if let Content::Table(meta) = self.format.content {
            let include = Include::parse(self.query.get("includeObject"))?;
            scale = table::scale(scale, meta, include, self.shared.clock.now());
        }
        Ok(self.non_object_response(200, scale.to_string().into_bytes()))
    }

    pub(super) async fn list(&self) -> Result<ServerResponse, Status> {
        let resource = self.resource()?;
        if let Content::Metadata(_) = self.format.content {
            let message = format!(
                "you requested PartialObjectMetadata, but the requested object is a list ({})",
                go_type(&resource, &resource.list_kind)
            );
            return Err(Status::new(406, "NotAcceptable", message));
        }
        let filter = self.filter(&resource)?;
        let ListOptions { at, min_version, limit } = self.query.list(resource.is_cached())?;
        if let Some(version) = min_version {
            self.shared.wait_for_version(version, resource.is_cached()).await?;
        }
        // The rule does not apply to lists at an exact version and to later pages.
        let mut cache = self.response_faults.cache.as_ref().filter(|_| resource.is_cached());
        if let Some(lagging) = cache {
            if self.query.get("resourceVersion").is_empty() {
                // The list must be consistent. kube-apiserver waits for its cache, and reads from etcd if that takes
                // too long.
                lagging.wait_for_end(&self.shared).await;
                cache = None;
            } else {
                lagging.wait_for(&self.shared, min_version.unwrap_or(0)).await?;
            }
        }
        let stale = self
            .stale_listing(cache)
            .filter(|_| at == ReadVersion::Newest)
            .map(|listing| ReadVersion::Exact(listing.version));
        let at = stale.unwrap_or(at);
        let paged = limit > 0;
        let paging = if paged { Paging::Paged } else { Paging::Unpaged };
        let listing = self.shared.model(|model| model.list(self.gvr, &filter.namespace, &at, paging))?;
        let mut head = self.list_head(&resource, listing.version);
        // Only whole lists have this field.
        let is_whole = self.format.content == Content::Whole;
        head.shard = filter.shard().filter(|_| is_whole).map(ToString::to_string);
        // Only compact JSON without gzip can be encoded while it is sent, and only as a whole list.
        let streamed = !paged
            && self.format == ResponseFormat { content: self.format.content, ..ResponseFormat::JSON }
            && !self.gzip;
        if streamed && !matches!(self.format.content, Content::Table(_)) {
            let view = self.item_view(&resource);
            return Ok(response::list(&resource, &head, view, listing, filter));
        }
        let page = listing.page(&filter, if limit == 0 { usize::MAX } else { limit });
        head.next = page.next.as_ref().map(crate::model::Token::encode);
        head.remaining = page.remaining;
        self.page(&resource, &head, &page)
    }

    /// Returns the earlier state that a stale-read fault or a lagging cache selects, never one before the version that
    /// the request requires. `None` without such a fault, or if the history no longer contains that state.
    fn stale_listing(&self, cache: Option<&LaggingCache>) -> Option<Listing> {
        let requested = self.query.min_version().ok()?.unwrap_or(0);
        let cache_version = cache.and_then(|cache| cache.version(&self.shared));
        let lag = self.response_faults.lag_writes;
        self.shared.model(|model| {
            let stale = lag.map(|lag| model.version().saturating_sub(lag));
            let version = cache_version.or(stale)?.max(requested).max(1);
            model.list(self.gvr, self.namespace(), &ReadVersion::Exact(version), Paging::Unpaged).ok()
        })
    }

    pub(super) fn list_head(&self, resource: &Resource, version: u64) -> ListHead {
        ListHead {
            metadata_only: matches!(self.format.content, Content::MetadataList(_)),
            api_version: resource.api_version(self.gvr.version),
            version,
            next: None,
            remaining: None,
            shard: None,
        }
    }

    fn item_view(&self, resource: &Resource) -> View {
        let metadata_only = matches!(self.format.content, Content::MetadataList(_));
        let shape = response::item_shape(resource, metadata_only);
        self.shared.model(|model| model.view(self.gvr, shape))
    }

    /// Returns a list in the requested format.
    pub(super) fn page(
        &self,
        resource: &Arc<Resource>,
        head: &ListHead,
        page: &Page,
    ) -> Result<ServerResponse, Status> {
        let json = match self.table(resource)? {
            Some(table) => {
                table.whole(&head.metadata(), &page.items, self.shared.clock.now()).to_string().into_bytes()
            }
            None => response::page(resource, head, &self.item_view(resource), page),
        };
        Ok(encode::encode(self.format, self.gzip, 200, json))
    }

    /// Returns one object in the requested format.
    pub(super) fn object(
        &self,
        code: u16,
        resource: &Arc<Resource>,
        view: &View,
        state: &Arc<State>,
    ) -> Result<ServerResponse, Status> {
        if let Content::MetadataList(_) = self.format.content {
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
                    .whole(&metadata, std::slice::from_ref(state), self.shared.clock.now())
                    .to_string()
                    .into_bytes()
            }
            None => state.bytes(view).to_vec(),
        };
        Ok(encode::encode(self.format, self.gzip, code, json))
    }

    /// Returns the response with JSON that is not an object of the resource: a scale, the table of a scale,
    /// or a `Status`.
    pub(super) fn non_object_response(&self, code: u16, json: Vec<u8>) -> ServerResponse {
        let gzip = false;
        encode::encode(ResponseFormat { content: Content::Whole, ..self.format }, gzip, code, json)
    }

    /// Returns the table format, if the client requested a table.
    pub(super) fn table(&self, resource: &Arc<Resource>) -> Result<Option<Table>, Status> {
        let Content::Table(meta) = self.format.content else { return Ok(None) };
        let include = Include::parse(self.query.get("includeObject"))?;
        let view = self.shared.model(|model| model.view(self.gvr, ObjectShape::Whole));
        Ok(Some(Table { resource: resource.clone(), version: self.gvr.version, meta, include, view }))
    }

    pub(super) async fn watch(&self, endless: bool) -> Result<ServerResponse, Status> {
        let (resource, view) = self.resource_and_view()?;
        let filter = self.filter(&resource)?;
        let mut options = self.query.watch()?;
        if let Some(version) = options.min_version
            && let Err(status) = self.shared.wait_for_version(version, resource.is_cached()).await
        {
            // kube-apiserver sends this error in a frame of the watch, not as the response.
            return Ok(self.watch_response(watch_stream::error_only(&status, self.format.encoding)));
        }
        let mut stream_faults = StreamFaults::new(resource.is_cached());
        stream_faults.update_caches(&self.shared.faults, &self.recorded);
        if let Some(cache) = stream_faults.cache() {
            // A watch that requires consistent initial events waits for the cache; a version 0, or none without this
            // parameter, allows any state.
            let is_consistent = self.query.get("resourceVersion").is_empty()
                && self.query.flag("sendInitialEvents") == Some(true);
            let required = if is_consistent {
                self.shared.model(|model| model.version())
            } else {
                options.min_version.unwrap_or(0)
            };
            if let Err(status) = cache.wait_for(&self.shared, required).await {
                return Ok(self.watch_response(watch_stream::error_only(&status, self.format.encoding)));
            }
            if let Some(version) = cache.version(&self.shared) {
                options.from = match options.from {
                    WatchStart::ExistingObjects => WatchStart::Past { version, with_objects: true },
                    WatchStart::Now => WatchStart::Past { version, with_objects: false },
                    from => from,
                };
            }
        }
        let frames = match self.table(&resource)? {
            Some(table) => Frames::table(table),
            None => Frames::plain(&resource, self.gvr.version, view, self.format.encoding),
        };
        // After `open_watch` succeeds, nothing may fail before the `WatchStream` exists: only the stream
        // closes the watch in the model.
        let opened = self.shared.model(|model| model.open_watch(self.gvr, options.from));
        let opened = match opened {
            Ok(opened) => opened,
            // kube-apiserver sends this error in a frame of the watch, not as the response.
            Err(status) if status.code == 410 => {
                return Ok(self.watch_response(watch_stream::error_only(&status, self.format.encoding)));
            }
            Err(status) => return Err(status),
        };
        let timeout = match options.timeout {
            Some(seconds) => u64::try_from(seconds).unwrap_or(0),
            // Watches that are opened one after the other end 97 seconds apart, not at the same time.
            None => MIN_WATCH_SECONDS + self.shared.next_watch_number() * 97 % WATCH_JITTER_SECONDS,
        };
        let request = watch_stream::Request {
            recorded: self.recorded.clone(),
            filter,
            frames,
            bookmarks: options.bookmarks,
            timeout: Duration::from_secs(timeout),
            endless,
        };
        let stream = WatchStream::new(self.shared.clone(), request, opened, stream_faults);
        Ok(self.watch_response(stream.stream()))
    }

    /// Returns the response to a watch.
    fn watch_response(&self, frames: BoxStream<'static, Result<Bytes, BodyError>>) -> ServerResponse {
        let mut response = response::chunks(frames);
        if self.format.encoding == Encoding::Protobuf {
            let stream = HeaderValue::from_static("application/vnd.kubernetes.protobuf;stream=watch");
            response.headers_mut().insert(header::CONTENT_TYPE, stream);
        }
        response
    }

    pub(super) fn resource(&self) -> Result<Arc<Resource>, Status> {
        let found = self.shared.model(|model| model.registry().get(self.gvr.id).cloned());
        found.ok_or_else(Status::no_such_resource)
    }

    /// Returns the resource, and the view in which the response shows a single object or the object of a
    /// frame.
    pub(super) fn resource_and_view(&self) -> Result<(Arc<Resource>, View), Status> {
        let resource = self.resource()?;
        let metadata_only = matches!(self.format.content, Content::Metadata(_) | Content::MetadataList(_));
        let shape = if metadata_only { ObjectShape::Metadata } else { ObjectShape::Whole };
        Ok((resource, self.shared.model(|model| model.view(self.gvr, shape))))
    }

    pub(super) fn namespace(&self) -> &str {
        self.target.namespace.as_deref().unwrap_or_default()
    }

    pub(super) fn name(&self) -> &str {
        self.target.name.as_deref().unwrap_or_default()
    }

    /// Rejects gets of subresources that cannot be read.
    fn check_subresource(&self) -> Result<(), Status> {
        let resource = self.resource()?;
        match self.target.subresource.as_deref() {
            None => Ok(()),
            Some("status") if resource.has_status(self.gvr.version) => Ok(()),
            Some("scale") if resource.has_scale(self.gvr.version) => Ok(()),
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
        // A name in the path is the deprecated way to watch one object. It replaces the field selector.
        let name_selector = self.target.name.as_ref().map(|name| format!("metadata.name={name}"));
        let fields = name_selector.as_deref().unwrap_or(fields);
        let shard = if self.shared.honours_shard_selectors() { self.query.get("shardSelector") } else { "" };
        Filter::parse(resource, self.namespace(), Selectors { labels, fields, shard })
    }
}

/// Returns the Go type that kube-apiserver names in its 406 errors about lists and single objects.
fn go_type(resource: &Resource, kind: &str) -> String {
    if resource.custom {
        let list = if kind == resource.kind { "" } else { "List" };
        return format!("*unstructured.Unstructured{list}");
    }
    let package = resource.group.split('.').next().filter(|group| !group.is_empty()).unwrap_or("core");
    format!("*{package}.{kind}")
}
