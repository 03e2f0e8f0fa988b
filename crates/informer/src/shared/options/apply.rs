//! Uses of the options: merging and comparing them, and deriving the configuration of an informer's parts.

use super::{FieldFilterMode, InformerOptions, Shard};
use crate::resource::ResourceType;
use crate::source::{KubeSource, QueryParameters, Source, Throughput};
use crate::status::DiagnosticSink;
use informer_core::reflector::{Config, WatchListPolicy};
use informer_core::shard::{HashRanges, ShardFilter, ShardProperty};
use informer_core::wire::{Limits, message_of};
use informer_core::{FieldFilter, Retention, Scope, Transform, TransformFallback};
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

/// Lower bound of the audit period; each audit is a full list.
const MIN_AUDIT_PERIOD: Duration = Duration::from_secs(60);

/// Upper bound on the namespaces that descriptions and metric labels list by name.
const MAX_NAMES: usize = 8;

/// Top-level fields of built-in kinds that contain the contents of an object, as opposed to its metadata.
const CONTENT_FIELDS: [&str; 9] =
    ["spec", "status", "data", "stringData", "binaryData", "rules", "subsets", "webhooks", "endpoints"];

/// The selected objects, as part of an informer's identity in a factory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SelectionKey {
    /// Empty selects all namespaces.
    pub(crate) namespaces: Vec<String>,
    pub(super) labels: String,
    pub(super) fields: String,
    /// The address of the shard group, and the property that it uses for this kind.
    shard: Option<(usize, ShardProperty)>,
}

impl InformerOptions {
    /// Returns these options, with unset ones taken from `defaults`.
    pub(crate) fn or(self, defaults: &Self) -> Self {
        let defaults = defaults.clone();
        Self {
            selection: self.selection.or(defaults.selection),
            resync_period: self.resync_period.or(defaults.resync_period),
            parameter_hook: self.parameter_hook.or(defaults.parameter_hook),
            source: self.source.or(defaults.source),
            retention: self.retention.or(defaults.retention),
            watch_list: self.watch_list.or(defaults.watch_list),
            page_size: self.page_size.or(defaults.page_size),
            audit_period: self.audit_period.or(defaults.audit_period),
            max_object_bytes: self.max_object_bytes.or(defaults.max_object_bytes),
            response_header_timeout: self.response_header_timeout.or(defaults.response_header_timeout),
            backoff: self.backoff.or(defaults.backoff),
            on_diagnostic: self.on_diagnostic.or(defaults.on_diagnostic),
            field_filter: self.field_filter.or(defaults.field_filter),
            keep_managed_fields: self.keep_managed_fields.or(defaults.keep_managed_fields),
            transform: self.transform.or(defaults.transform),
            transform_fallback: self.transform_fallback.or(defaults.transform_fallback),
            jitter_seed: self.jitter_seed.or(defaults.jitter_seed),
            prefer_protobuf: self.prefer_protobuf.or(defaults.prefer_protobuf),
            gzip_lists: self.gzip_lists.or(defaults.gzip_lists),
            throughput: self.throughput.or(defaults.throughput),
            #[cfg(feature = "persistence")]
            persistence: self.persistence.or(defaults.persistence),
        }
    }

    /// Returns the field filter for an informer that requests only metadata. It is needed because a server
    /// that does not support such requests returns complete objects.
    fn metadata_filter(&self) -> Option<FieldFilter> {
        let mode = match &self.field_filter {
            None => FieldFilterMode::Keep(vec!["metadata".to_owned()]),
            Some((_, FieldFilterMode::Keep(paths))) => FieldFilterMode::Keep(
                paths.iter().filter(|path| path.starts_with("metadata")).cloned().collect(),
            ),
            Some((_, FieldFilterMode::Drop(paths))) => FieldFilterMode::Drop(
                paths.iter().cloned().chain(CONTENT_FIELDS.map(ToOwned::to_owned)).collect(),
            ),
        };
        // The paths were parsed before, so this cannot fail; if it did, only the metadata that the
        // cache itself needs would be kept.
        mode.build().or_else(|_| FieldFilter::keep::<&str>([])).ok()
    }

    /// Returns the query parameters, after calling the hook. Must be called once per informer.
    pub(crate) fn build_parameters(&self) -> QueryParameters {
        let selection = self.selection_key();
        let mut parameters = QueryParameters::default();
        parameters.set("labelSelector", selection.labels);
        parameters.set("fieldSelector", selection.fields);
        if let Some(hook) = &self.parameter_hook {
            hook(&mut parameters);
        }
        parameters
    }

    /// Returns the options that a factory can use for all its kinds: without a source, and with a shared
    /// throughput measurement.
    pub(crate) fn for_all_kinds(self) -> Self {
        Self { source: None, throughput: Some(self.throughput()), ..self }
    }

    /// Returns the name of the first setting in which two options differ. Functions and sources are equal
    /// only if they are the same `Arc`.
    pub(crate) fn difference(&self, other: &Self) -> Option<&'static str> {
        let (left, right) = (self.selection_key(), other.selection_key());
        let differ = [
            ("namespaces", left.namespaces != right.namespaces),
            ("label_selector", left.labels != right.labels),
            ("field_selector", left.fields != right.fields),
            ("resync_period", self.effective_resync_period() != other.effective_resync_period()),
            ("query_parameters", !is_same_arc(self.parameter_hook.as_ref(), other.parameter_hook.as_ref())),
            ("source", !is_same_arc(self.source.as_ref(), other.source.as_ref())),
            ("retention", self.retention_or_default() != other.retention_or_default()),
            ("watch_list", self.watch_list.unwrap_or_default() != other.watch_list.unwrap_or_default()),
            ("page_size", self.page_size != other.page_size),
            ("audit_period", self.audit_period.unwrap_or_default() != other.audit_period.unwrap_or_default()),
            ("max_object_bytes", self.max_object_bytes != other.max_object_bytes),
            ("response_header_timeout", self.response_header_timeout != other.response_header_timeout),
            ("backoff", self.backoff != other.backoff),
            ("on_diagnostic", !is_same_arc(self.on_diagnostic.as_ref(), other.on_diagnostic.as_ref())),
            ("drop_fields or keep_fields", self.field_filter != other.field_filter),
            ("keep_managed_fields", self.keeps_managed_fields() != other.keeps_managed_fields()),
            ("transform", !is_same_arc(self.transform.as_ref(), other.transform.as_ref())),
            ("transform_fallback", self.transform_fallback != other.transform_fallback),
            ("jitter_seed", self.jitter_seed != other.jitter_seed),
            (
                "prefer_protobuf",
                self.prefer_protobuf.unwrap_or(true) != other.prefer_protobuf.unwrap_or(true),
            ),
            ("gzip_lists", self.gzip_lists != other.gzip_lists),
        ];
        #[cfg(feature = "persistence")]
        let storages = [self, other].map(|options| options.persistence().map(|one| &one.storage));
        #[cfg(feature = "persistence")]
        let differ = differ.into_iter().chain([("persist", !is_same_arc(storages[0], storages[1]))]);
        differ.into_iter().find(|(_, differs)| *differs).map(|(name, _)| name)
    }

    /// Describes the selection for messages: `in all namespaces`, `in namespaces a, b with app=web`.
    pub(crate) fn describe_selection(&self) -> String {
        let SelectionKey { namespaces, labels, fields, .. } = self.selection_key();
        let mut text = match &*namespaces {
            [] => "in all namespaces".to_owned(),
            [one] => format!("in namespace {one}"),
            some if some.len() <= MAX_NAMES => format!("in namespaces {}", some.join(", ")),
            many => {
                format!("in namespaces {} and {} more", many[..MAX_NAMES].join(", "), many.len() - MAX_NAMES)
            }
        };
        for selector in [labels, fields].iter().filter(|selector| !selector.is_empty()) {
            text.push_str(if text.contains(" with ") { " and " } else { " with " });
            text.push_str(selector);
        }
        if let Some(shard) = self.shard() {
            text.push_str(", shard of ");
            text.push_str(shard.group.name());
        }
        text
    }

    /// Divides the objects by uid, for kinds without namespaces.
    pub(crate) fn sharded_by_uid(mut self) -> Self {
        if let Some(shard) = &mut self.selection.shard
            && shard.property == ShardProperty::Namespace
        {
            shard.property = ShardProperty::Uid;
        }
        self
    }

    /// Returns whether objects come from a source of the application, and not from an API server.
    pub(crate) fn has_source(&self) -> bool {
        self.source.is_some()
    }

    /// Returns the labels of an informer's metrics (see `InformerMetrics::labels`).
    pub(crate) fn metric_labels(&self, resource: &ResourceType) -> Arc<[(&'static str, Box<str>)]> {
        let SelectionKey { namespaces, labels, fields, .. } = self.selection_key();
        let mut names = namespaces;
        if names.len() > MAX_NAMES {
            let more = format!("+{}", names.len() - MAX_NAMES);
            names.truncate(MAX_NAMES);
            names.push(more);
        }
        let mut metric_labels = vec![
            ("group", resource.group.clone()),
            ("version", resource.version.clone()),
            ("resource", resource.plural.clone()),
            ("namespace", names.join(",").into()),
        ];
        let representation = if resource.metadata_only { "metadata" } else { "" };
        let optional = [
            ("label_selector", labels.into()),
            ("field_selector", fields.into()),
            ("representation", representation.into()),
            ("shard_group", self.shard().map_or("", |shard| shard.group.name()).into()),
        ];
        metric_labels.extend(optional.into_iter().filter(|(_, value): &(_, Box<str>)| !value.is_empty()));
        metric_labels.into()
    }

    pub(crate) fn selection_key(&self) -> SelectionKey {
        SelectionKey {
            namespaces: self.selection.namespaces.clone().unwrap_or_default(),
            labels: self.selection.label_selector.clone().unwrap_or_default().to_string(),
            fields: self.selection.field_selector.clone().unwrap_or_default().to_string(),
            shard: self.shard().map(|shard| (shard.group.id(), shard.property)),
        }
    }

    /// Returns the shard group that decides which objects are selected, if there is one.
    pub(crate) fn shard(&self) -> Option<&Shard> {
        self.selection.shard.as_ref()
    }

    /// Returns the resync period of handlers that do not set their own.
    pub(crate) fn effective_resync_period(&self) -> Duration {
        self.resync_period.unwrap_or_default()
    }

    /// Returns the jitter seed of one scope of an informer: reproducible if `jitter_seed` is set, otherwise
    /// random.
    pub(crate) fn seed_of(&self, informer: &str, scope_index: usize) -> u64 {
        match self.jitter_seed {
            Some(seed) => {
                BuildHasherDefault::<DefaultHasher>::default().hash_one((seed, informer, scope_index))
            }
            None => RandomState::new().hash_one((informer, scope_index)),
        }
    }

    pub(crate) fn retention_or_default(&self) -> Retention {
        self.retention.unwrap_or_default()
    }

    pub(super) fn keeps_managed_fields(&self) -> bool {
        self.keep_managed_fields.unwrap_or(false)
    }

    pub(crate) fn diagnostic_sink(&self, description: &Arc<str>) -> DiagnosticSink {
        DiagnosticSink { resource: Arc::clone(description), hook: self.on_diagnostic.clone() }
    }

    /// Returns the throughput measurement of the factory, or a new one.
    pub(crate) fn throughput(&self) -> Throughput {
        self.throughput.clone().unwrap_or_default()
    }

    /// Returns the scopes of the cache, each with its own reflector: all namespaces, or one scope per
    /// namespace. A source of the user ignores namespaces, so it has a single scope.
    pub(crate) fn scopes(&self) -> Vec<Scope> {
        match self.selection.namespaces.as_deref() {
            Some(names) if !names.is_empty() && self.source.is_none() => {
                names.iter().map(|name| Scope::namespace(name)).collect()
            }
            _ => vec![Scope::All],
        }
    }

    /// Creates the source of one scope; `None` without a client and without a source of the user.
    pub(crate) fn source_of(
        &self,
        client: Option<&kube::Client>,
        resource: &ResourceType,
        scope: &Scope,
        parameters: &QueryParameters,
        throughput: &Throughput,
    ) -> Option<Arc<dyn Source>> {
        if let Some(source) = &self.source {
            return Some(Arc::clone(source));
        }
        let namespace = match scope {
            Scope::All => None,
            Scope::Namespace(name) => Some(&**name),
        };
        let mut source = KubeSource::new(client?.clone(), resource.url_path(namespace))
            .query_parameters(|target| target.clone_from(parameters))
            .metadata_only(resource.metadata_only)
            .prefer_protobuf(self.requests_protobuf(resource))
            .throughput(throughput.clone());
        if let Some(gzip) = self.gzip_lists {
            source = source.gzip_lists(gzip);
        }
        if let Some(timeout) = self.response_header_timeout {
            source = source.response_header_timeout(timeout);
        }
        Some(Arc::new(source))
    }

    /// Returns whether protobuf is requested: the user must not have disabled it, the protobuf message of the
    /// kind must be known, and there must be no transform, which needs JSON.
    fn requests_protobuf(&self, resource: &ResourceType) -> bool {
        self.prefer_protobuf.unwrap_or(true)
            && self.transform_of(resource).is_none()
            && message_of(&resource.types()).is_some()
    }

    /// Returns the transform, if it applies to this kind.
    pub(super) fn transform_of(&self, resource: &ResourceType) -> Option<&Transform> {
        let transform = self.transform.as_ref()?;
        transform.kind.as_ref().is_none_or(|kind| kind == resource).then_some(&transform.transform)
    }

    pub(crate) fn config(&self, resource: &ResourceType, scope: Scope) -> Config {
        let mut config = Config::new(resource.types(), scope);
        config.shard = self.shard().map(|shard| ShardFilter::new(shard.property, HashRanges::default()));
        config.retention = self.retention_or_default();
        let has_watch_lists = self.source.as_ref().is_none_or(|source| source.supports_watch_lists());
        let default_policy = if has_watch_lists { WatchListPolicy::Auto } else { WatchListPolicy::Never };
        config.watch_list = self.watch_list.unwrap_or(default_policy);
        // Over a slow connection, lists arrive sooner than watch-lists only with gzip.
        let can_gzip = self.source.is_none() && self.gzip_lists != Some(false);
        if config.watch_list == WatchListPolicy::Auto && !can_gzip {
            config.watch_list = WatchListPolicy::Always;
        }
        config.page_size = self.page_size;
        config.audit_period =
            self.audit_period.filter(|period| !period.is_zero()).map(|period| period.max(MIN_AUDIT_PERIOD));
        config.limits = self.max_object_bytes.map_or_else(Limits::default, Limits::new);
        config.backoff = self.backoff.unwrap_or_default();
        config.field_filter = self.field_filter.as_ref().map(|(filter, _)| filter.clone());
        if resource.metadata_only {
            config.field_filter = self.metadata_filter();
        }
        if self.keeps_managed_fields() {
            // A filter that drops no path keeps everything.
            let filter = config.field_filter.or_else(|| FieldFilter::drop::<&str>([]).ok());
            config.field_filter = filter.map(FieldFilter::keep_managed_fields);
        }
        config.transform = self.transform_of(resource).cloned();
        let default_fallback =
            if resource.is_secret() { TransformFallback::MetadataOnly } else { TransformFallback::default() };
        config.transform_fallback = self.transform_fallback.unwrap_or(default_fallback);
        // The source applies the timeout itself; that of the reflector is for sources that do not.
        if let Some(timeout) = self.response_header_timeout {
            config.response_header_timeout = config.response_header_timeout.max(timeout.saturating_mul(2));
        }
        config
    }
}

/// Returns whether both are the same `Arc`, or both are `None`.
fn is_same_arc<T: ?Sized>(left: Option<&Arc<T>>, right: Option<&Arc<T>>) -> bool {
    match (left, right) {
        (Some(left), Some(right)) => Arc::ptr_eq(left, right),
        (None, None) => true,
        _ => false,
    }
}
