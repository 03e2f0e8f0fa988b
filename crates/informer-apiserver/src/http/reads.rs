//! Reading: one object, a list, a watch.

use std::sync::Arc;
use std::time::Duration;

use super::Call;
use super::accept::Form;
use super::answer::{self, Answer, ListHead};
use super::feed::{self, Feed};
use super::query::ListOptions;
use crate::model::{Filter, From, Resource, Shape, Status, View};

/// The shortest and the additional time of a watch that asks for none, in seconds.
const WATCH_TIMEOUT: (u64, u64) = (1_800, 1_800);

impl Call {
    pub(super) async fn get(&self) -> Result<Answer, Status> {
        self.check_subresource()?;
        if let Some(version) = self.query.reach()? {
            self.shared.reach(version).await?;
        }
        let (resource, view) = self.resource_and_view()?;
        let name = self.name();
        let found = self.shared.model(|model| model.get(self.place, self.namespace(), name));
        let found = found.ok_or_else(|| Status::not_found(&resource.group, &resource.plural, name))?;
        if self.form == Form::MetadataList {
            let message = format!(
                "you requested PartialObjectMetadataList, but the requested object is not a list ({})",
                go_type(&resource, &resource.kind)
            );
            return Err(Status::new(406, "NotAcceptable", message));
        }
        Ok(answer::json(200, found.bytes(&view).to_vec()))
    }

    pub(super) async fn list(&self) -> Result<Answer, Status> {
        let resource = self.resource()?;
        if self.form == Form::Metadata {
            let message = format!(
                "you requested PartialObjectMetadata, but the requested object is a list ({})",
                go_type(&resource, &resource.list_kind)
            );
            return Err(Status::new(406, "NotAcceptable", message));
        }
        let filter = self.filter(&resource)?;
        let ListOptions { at, reach, limit } = self.query.list()?;
        if let Some(version) = reach {
            self.shared.reach(version).await?;
        }
        let listing = self.shared.model(|model| model.list(self.place, &filter.namespace, &at, limit > 0))?;
        let metadata_only = self.form == Form::MetadataList;
        let api_version = self.shared.model(|model| model.api_version_shown(self.place));
        let view = answer::item_view(&resource, metadata_only, api_version);
        let mut head = ListHead {
            metadata_only,
            api_version: resource.api_version(self.place.version),
            version: listing.version,
            next: None,
            remaining: None,
        };
        if limit == 0 {
            return Ok(answer::list(&resource, &head, view, listing, filter));
        }
        let page = listing.page(&filter, limit);
        head.next = page.next.as_ref().map(crate::model::Token::encode);
        head.remaining = page.remaining;
        Ok(answer::page(&resource, &head, &view, &page))
    }

    pub(super) async fn watch(&self, endless: bool) -> Result<Answer, Status> {
        let (resource, view) = self.resource_and_view()?;
        let filter = self.filter(&resource)?;
        let options = self.query.watch()?;
        if let Some(version) = options.reach
            && let Err(status) = self.shared.reach(version).await
        {
            return Ok(answer::chunks(feed::error_only(&status)));
        }
        let opened = self.shared.model(|model| model.open_watch(self.place, options.from));
        let opened = match opened {
            Ok(opened) => opened,
            Err(status) if status.code == 410 => {
                return Ok(answer::chunks(feed::error_only(&status)));
            }
            Err(status) => return Err(status),
        };
        let bookmark_type = match view.shape {
            Shape::Metadata => ("PartialObjectMetadata".to_owned(), "meta.k8s.io/v1".to_owned()),
            _ => (resource.kind.clone(), resource.api_version(self.place.version)),
        };
        let timeout = match options.timeout {
            Some(seconds) => u64::try_from(seconds).unwrap_or(0),
            None => WATCH_TIMEOUT.0 + self.shared.watch_number() * 97 % WATCH_TIMEOUT.1,
        };
        let told = match options.from {
            From::Version(version) => version,
            From::Now | From::Start => opened.version,
        };
        let request = feed::Request {
            seen: self.seen.clone(),
            filter,
            view,
            bookmark_type,
            bookmarks: options.bookmarks,
            timeout: Duration::from_secs(timeout),
            endless,
        };
        let initial = opened.initial.map(|objects| (objects, opened.version));
        let feed = Feed::new(self.shared.clone(), request, opened.cursor, initial, told);
        Ok(answer::chunks(feed.stream()))
    }

    pub(super) fn resource(&self) -> Result<Arc<Resource>, Status> {
        let found = self.shared.model(|model| model.registry().get(self.place.id).cloned());
        found.ok_or_else(Status::no_such_resource)
    }

    /// How one object, or a frame, is shown.
    pub(super) fn resource_and_view(&self) -> Result<(Arc<Resource>, View), Status> {
        let resource = self.resource()?;
        let api_version = self.shared.model(|model| model.api_version_shown(self.place));
        let shape = if self.form == Form::Json { Shape::Whole } else { Shape::Metadata };
        Ok((resource, View { shape, api_version }))
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
            Some("status") if resource.custom => {
                Err(Status::not_found(&resource.group, &resource.plural, self.name()))
            }
            Some("finalize") if resource.is("", "namespaces") => Err(Status::method_not_allowed()),
            Some(_) => Err(Status::no_such_resource()),
        }
    }

    fn filter(&self, resource: &Resource) -> Result<Filter, Status> {
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
