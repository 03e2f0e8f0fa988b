//! What options come to: one set over another, compared, and as the parts of an informer need them.

use super::{FieldFilterMode, InformerOptions};
use crate::resource::ResourceType;
use crate::source::{KubeSource, QueryParameters, Source, Throughput};
use crate::status::DiagnosticHook;
use informer_core::reflector::{Config, WatchListPolicy};
use informer_core::wire::{Limits, message_of};
use informer_core::{FieldFilter, Retention, Scope, Transform, TransformFallback};
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

/// A list of everything more often than this would be an attack.
const MIN_AUDIT_PERIOD: Duration = Duration::from_mins(1);

/// Where the contents of objects lie, apart from their metadata.
const CONTENT_FIELDS: [&str; 9] =
    ["spec", "status", "data", "stringData", "binaryData", "rules", "subsets", "webhooks", "endpoints"];

/// What is selected: part of an informer's identity.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SelectionKey {
    /// None means all.
    pub(crate) namespaces: Vec<String>,
    labels: String,
    fields: String,
}

impl InformerOptions {
    /// These, and those of `defaults` where these are left open.
    pub(crate) fn or(self, defaults: &Self) -> Self {
        let defaults = defaults.clone();
        Self {
            namespaces: self.namespaces.or(defaults.namespaces),
            label_selector: self.label_selector.or(defaults.label_selector),
            field_selector: self.field_selector.or(defaults.field_selector),
            resync_period: self.resync_period.or(defaults.resync_period),
            tweak: self.tweak.or(defaults.tweak),
            source: self.source.or(defaults.source),
            retention: self.retention.or(defaults.retention),
            watch_list: self.watch_list.or(defaults.watch_list),
            page_size: self.page_size.or(defaults.page_size),
            audit_period: self.audit_period.or(defaults.audit_period),
            max_object_bytes: self.max_object_bytes.or(defaults.max_object_bytes),
            response_header_timeout: self.response_header_timeout.or(defaults.response_header_timeout),
            backoff: self.backoff.or(defaults.backoff),
            on_diagnostic: self.on_diagnostic.or(defaults.on_diagnostic),
            projection: self.projection.or(defaults.projection),
            transform: self.transform.or(defaults.transform),
            transform_fallback: self.transform_fallback.or(defaults.transform_fallback),
            jitter_seed: self.jitter_seed.or(defaults.jitter_seed),
            prefer_protobuf: self.prefer_protobuf.or(defaults.prefer_protobuf),
            gzip_lists: self.gzip_lists.or(defaults.gzip_lists),
            link: self.link.or(defaults.link),
        }
    }

    /// What is kept where only metadata is asked for: a server that does not know that form sends whole objects.
    fn metadata_projection(&self) -> Option<FieldFilter> {
        let paths = match &self.projection {
            None => FieldFilterMode::Keep(vec!["metadata".to_owned()]),
            Some((_, FieldFilterMode::Keep(paths))) => FieldFilterMode::Keep(
                paths.iter().filter(|path| path.starts_with("metadata")).cloned().collect(),
            ),
            Some((_, FieldFilterMode::Drop(paths))) => FieldFilterMode::Drop(
                paths.iter().cloned().chain(CONTENT_FIELDS.map(ToOwned::to_owned)).collect(),
            ),
        };
        // The paths were read once already; should they not be now, nothing but the head is kept.
        paths.projection().or_else(|_| FieldFilter::keep::<&str>([])).ok()
    }

    /// The parameters as the hook wants them.
    pub(crate) fn parameters_once(&self) -> QueryParameters {
        let selection = self.selection();
        let mut parameters = QueryParameters::default();
        parameters.set("labelSelector", selection.labels);
        parameters.set("fieldSelector", selection.fields);
        if let Some(tweak) = &self.tweak {
            tweak(&mut parameters);
        }
        parameters
    }

    /// What a factory can pass on to all its kinds.
    pub(crate) fn for_all_kinds(self) -> Self {
        Self { source: None, link: Some(self.link()), ..self }
    }

    /// Only what says which objects are meant.
    pub(crate) fn selection_only(self) -> Self {
        let Self { namespaces, label_selector: labels, field_selector: fields, .. } = self;
        Self { namespaces, label_selector: labels, field_selector: fields, ..Self::default() }
    }

    /// The first setting in which two differ. Functions and sources are the same only if they are shared.
    pub(crate) fn difference(&self, other: &Self) -> Option<&'static str> {
        let (left, right) = (self.selection(), other.selection());
        let differ = [
            ("namespaces", left.namespaces != right.namespaces),
            ("labels", left.labels != right.labels),
            ("fields", left.fields != right.fields),
            ("resync_period", self.effective_resync_period() != other.effective_resync_period()),
            ("parameters", !same(self.tweak.as_ref(), other.tweak.as_ref())),
            ("source", !same(self.source.as_ref(), other.source.as_ref())),
            ("retention", self.retention_or_default() != other.retention_or_default()),
            ("watch_list", self.watch_list.unwrap_or_default() != other.watch_list.unwrap_or_default()),
            ("page_size", self.page_size != other.page_size),
            ("relist_every", self.audit_period.unwrap_or_default() != other.audit_period.unwrap_or_default()),
            ("object_limit", self.max_object_bytes != other.max_object_bytes),
            ("headers_deadline", self.response_header_timeout != other.response_header_timeout),
            ("backoff", self.backoff != other.backoff),
            ("on_error", !same(self.on_diagnostic.as_ref(), other.on_diagnostic.as_ref())),
            ("drop_fields or keep_fields", self.projection != other.projection),
            ("transform", !same(self.transform.as_ref(), other.transform.as_ref())),
            ("on_transform_error", self.transform_fallback != other.transform_fallback),
            ("seed", self.jitter_seed != other.jitter_seed),
            ("protobuf", self.prefer_protobuf.unwrap_or(true) != other.prefer_protobuf.unwrap_or(true)),
            ("compress_lists", self.gzip_lists != other.gzip_lists),
        ];
        differ.into_iter().find(|(_, differs)| *differs).map(|(name, _)| name)
    }

    /// What is chosen, in words: `in all namespaces`, `in a, b with app=web`.
    pub(crate) fn describe_selection(&self) -> String {
        /// More names than these only make a message longer.
        const NAMED: usize = 8;
        let SelectionKey { namespaces, labels, fields } = self.selection();
        let mut text = match &*namespaces {
            [] => "in all namespaces".to_owned(),
            [one] => format!("in namespace {one}"),
            some if some.len() <= NAMED => format!("in namespaces {}", some.join(", ")),
            many => {
                format!("in namespaces {} and {} more", many[..NAMED].join(", "), many.len() - NAMED)
            }
        };
        for selector in [labels, fields].iter().filter(|selector| !selector.is_empty()) {
            text.push_str(if text.contains(" with ") { " and " } else { " with " });
            text.push_str(selector);
        }
        text
    }

    pub(crate) fn selection(&self) -> SelectionKey {
        SelectionKey {
            namespaces: self.namespaces.clone().unwrap_or_default(),
            labels: self.label_selector.clone().unwrap_or_default().to_string(),
            fields: self.field_selector.clone().unwrap_or_default().to_string(),
        }
    }

    /// The period of handlers that say nothing about it.
    pub(crate) fn effective_resync_period(&self) -> Duration {
        self.resync_period.unwrap_or_default()
    }

    /// The seed of one scope of an informer: as different as may be, or the same in every run.
    pub(crate) fn seed_of(&self, informer: &str, lane: usize) -> u64 {
        match self.jitter_seed {
            Some(seed) => BuildHasherDefault::<DefaultHasher>::default().hash_one((seed, informer, lane)),
            None => RandomState::new().hash_one((informer, lane)),
        }
    }

    pub(crate) fn retention_or_default(&self) -> Retention {
        self.retention.unwrap_or_default()
    }

    pub(crate) fn diagnostic_hook(&self) -> Option<DiagnosticHook> {
        self.on_diagnostic.clone()
    }

    /// The connection over which its sets come.
    pub(crate) fn link(&self) -> Throughput {
        self.link.clone().unwrap_or_default()
    }

    /// What the cache is fed from: everything, or one namespace each.
    pub(crate) fn scopes(&self) -> Vec<Scope> {
        match self.namespaces.as_deref() {
            Some(names) if !names.is_empty() && self.source.is_none() => {
                names.iter().map(|name| Scope::namespace(name)).collect()
            }
            _ => vec![Scope::All],
        }
    }

    /// The source of one scope.
    pub(crate) fn source_of(
        &self,
        client: Option<&kube::Client>,
        resource: &ResourceType,
        scope: &Scope,
        parameters: &QueryParameters,
        link: &Throughput,
    ) -> Option<Arc<dyn Source>> {
        if let Some(source) = &self.source {
            return Some(Arc::clone(source));
        }
        let namespace = match scope {
            Scope::All => None,
            Scope::Namespace(name) => Some(&**name),
        };
        let mut source = KubeSource::new(client?.clone(), resource.url_path(namespace))
            .query_parameters(|own| own.clone_from(parameters))
            .metadata_only(resource.metadata_only)
            .protobuf(self.reads_protobuf(resource))
            .link(link.clone());
        if let Some(compress) = self.gzip_lists {
            source = source.gzip_lists(compress);
        }
        if let Some(deadline) = self.response_header_timeout {
            source = source.response_header_timeout(deadline);
        }
        Some(Arc::new(source))
    }

    /// Whether objects can be taken in protobuf: the kind must have that form, and a transform reads JSON.
    fn reads_protobuf(&self, resource: &ResourceType) -> bool {
        self.prefer_protobuf.unwrap_or(true)
            && self.transform_of(resource).is_none()
            && message_of(&resource.types()).is_some()
    }

    /// The transform, if it is meant for this kind.
    fn transform_of(&self, resource: &ResourceType) -> Option<&Transform> {
        let own = self.transform.as_ref()?;
        own.kind.as_ref().is_none_or(|kind| kind == resource).then_some(&own.transform)
    }

    pub(crate) fn config(&self, resource: &ResourceType, scope: Scope) -> Config {
        let mut config = Config::new(resource.types(), scope);
        config.retention = self.retention_or_default();
        config.watch_list = self.watch_list.unwrap_or_default();
        // Lists are worth more than streams only if they are compressed.
        let compresses = self.source.is_none() && self.gzip_lists != Some(false);
        if config.watch_list == WatchListPolicy::Auto && !compresses {
            config.watch_list = WatchListPolicy::Always;
        }
        config.page_size = self.page_size;
        config.audit_period =
            self.audit_period.filter(|period| !period.is_zero()).map(|period| period.max(MIN_AUDIT_PERIOD));
        config.limits = self.max_object_bytes.map_or_else(Limits::default, Limits::new);
        config.backoff = self.backoff.unwrap_or_default();
        config.field_filter = self.projection.as_ref().map(|(projection, _)| projection.clone());
        if resource.metadata_only {
            config.field_filter = self.metadata_projection();
        }
        config.transform = self.transform_of(resource).cloned();
        let cautious =
            if resource.is_secret() { TransformFallback::MetadataOnly } else { TransformFallback::default() };
        config.transform_fallback = self.transform_fallback.unwrap_or(cautious);
        if let Some(deadline) = self.response_header_timeout {
            config.response_header_timeout = config.response_header_timeout.max(deadline.saturating_mul(2));
        }
        config
    }
}

fn same<T: ?Sized>(left: Option<&Arc<T>>, right: Option<&Arc<T>>) -> bool {
    match (left, right) {
        (Some(left), Some(right)) => Arc::ptr_eq(left, right),
        (None, None) => true,
        _ => false,
    }
}
