//! The options of an informer.
//!
//! Every setting is optional: the options of a kind take precedence over those of its factory, and those
//! over the default. So one type holds the options of a factory, of a kind in it, and of an informer
//! without a factory. This file only stores the settings; `apply` uses them.

mod apply;
mod fields;
#[cfg(feature = "persistence")]
mod persist;
mod selection;

pub(crate) use apply::SelectionKey;
pub use selection::Selection;
pub(crate) use selection::Shard;

use crate::error::ConfigError;
use crate::resource::ResourceType;
use crate::source::{BoxError, QueryParameters, Source, Throughput};
use crate::status::{Diagnostic, DiagnosticHook};
use informer_core::backoff::BackoffConfig;
use informer_core::reflector::WatchListPolicy;
use informer_core::{FieldFilter, FieldSelector, LabelSelector, Retention, Transform, TransformFallback};
use kube::Resource;
use kube::core::DynamicObject;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A function that changes the query parameters of lists and watches.
type ParameterHook = Arc<dyn Fn(&mut QueryParameters) + Send + Sync>;

/// The options of an informer.
///
/// The defaults are meant for production: all objects of the kind, in all namespaces. A setting that is not
/// set is taken from the factory's options if the informer belongs to a factory, and otherwise has the
/// default stated with it. All settings are fixed when the informer is created.
///
/// - Select objects: [`namespaces`](Self::namespaces), [`label_selector`](Self::label_selector),
///   [`field_selector`](Self::field_selector).
/// - Reduce memory: [`drop_fields`](Self::drop_fields), [`keep_fields`](Self::keep_fields),
///   [`transform`](Self::transform), [`retention`](Self::retention).
/// - Control how lists are fetched: [`watch_list`](Self::watch_list), [`page_size`](Self::page_size),
///   [`prefer_protobuf`](Self::prefer_protobuf), [`gzip_lists`](Self::gzip_lists).
/// - Handle slow servers, failures and large objects:
///   [`response_header_timeout`](Self::response_header_timeout), [`backoff`](Self::backoff),
///   [`max_object_bytes`](Self::max_object_bytes).
/// - Start from a saved cache: `persist`, with the feature `persistence`.
/// - Deliver objects again, or verify the cache: [`resync_period`](Self::resync_period),
///   [`audit_period`](Self::audit_period).
/// - Observe failures: [`on_diagnostic`](Self::on_diagnostic).
/// - Use another server, or reproduce a run: [`source`](Self::source),
///   [`query_parameters`](Self::query_parameters), [`jitter_seed`](Self::jitter_seed).
///
/// ```
/// use informer::InformerOptions;
/// use informer::selector::LabelSelector;
///
/// let web: LabelSelector = "app=web,tier!=cache".parse()?;
/// let options = InformerOptions::default().namespace("shop").label_selector(web);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
#[must_use]
pub struct InformerOptions {
    selection: Selection,
    resync_period: Option<Duration>,
    parameter_hook: Option<ParameterHook>,
    source: Option<Arc<dyn Source>>,
    retention: Option<Retention>,
    watch_list: Option<WatchListPolicy>,
    page_size: Option<u32>,
    audit_period: Option<Duration>,
    max_object_bytes: Option<usize>,
    response_header_timeout: Option<Duration>,
    backoff: Option<BackoffConfig>,
    on_diagnostic: Option<DiagnosticHook>,
    field_filter: Option<(FieldFilter, FieldFilterMode)>,
    keep_managed_fields: Option<bool>,
    transform: Option<Arc<KindTransform>>,
    transform_fallback: Option<TransformFallback>,
    jitter_seed: Option<u64>,
    prefer_protobuf: Option<bool>,
    gzip_lists: Option<bool>,
    /// The throughput measurement that the informers of a factory share.
    throughput: Option<Throughput>,
    #[cfg(feature = "persistence")]
    persistence: Option<crate::persistence::Persistence>,
}

/// Whether a field filter drops or keeps fields, with their paths as the user wrote them.
#[derive(Debug, Clone, PartialEq, Eq)]
enum FieldFilterMode {
    Drop(Vec<String>),
    Keep(Vec<String>),
}

impl FieldFilterMode {
    fn build(&self) -> Result<FieldFilter, ConfigError> {
        match self {
            Self::Drop(paths) => FieldFilter::drop(paths),
            Self::Keep(paths) => FieldFilter::keep(paths),
        }
    }
}

/// A transform and the kind it applies to.
struct KindTransform {
    /// `None` applies to every kind.
    kind: Option<ResourceType>,
    transform: Transform,
}

impl InformerOptions {
    /// Selects one namespace; an empty name selects all namespaces.
    ///
    /// Defaults to all namespaces. A factory ignores the namespace for cluster-scoped kinds, except for
    /// dynamic kinds, whose scope is unknown.
    pub fn namespace(self, namespace: impl Into<String>) -> Self {
        self.namespaces([namespace])
    }

    /// Selects several namespaces, which share one cache; an empty list or an empty name selects all
    /// namespaces.
    ///
    /// Costs one list and one watch per namespace, each with its own position and state. Requires
    /// permissions in these namespaces only, not in the whole cluster. Defaults to all namespaces.
    pub fn namespaces<S: Into<String>>(self, namespaces: impl IntoIterator<Item = S>) -> Self {
        Self { selection: self.selection.namespaces(namespaces), ..self }
    }

    /// Selects all namespaces, even if the factory's options select some.
    pub fn all_namespaces(self) -> Self {
        self.namespaces([""])
    }

    /// Selects the objects whose labels match.
    ///
    /// The server filters, so other objects cost neither traffic nor memory. An object that stops matching
    /// is delivered as deleted. Defaults to all objects.
    ///
    /// Text is parsed where the selector is expected. An error contains the position and, for some mistakes,
    /// a hint:
    ///
    /// ```
    /// # use informer::InformerOptions;
    /// # fn main() -> Result<(), informer::Error> {
    /// let options = InformerOptions::default().label_selector("app in (web,api),!canary".parse()?);
    ///
    /// let error = "app: web".parse::<informer::selector::LabelSelector>().unwrap_err();
    /// assert_eq!(error.position(), Some(0));
    /// assert!(error.to_string().ends_with(r#"(write "key=value")"#));
    /// # Ok(())
    /// # }
    /// ```
    pub fn label_selector(self, selector: LabelSelector) -> Self {
        Self { selection: self.selection.label_selector(selector), ..self }
    }

    /// Selects the objects whose fields match.
    ///
    /// The server filters, and supports only a few fields of each kind, such as `metadata.name` or a pod's
    /// `spec.nodeName`; it rejects requests with other fields. Defaults to all objects.
    ///
    /// ```
    /// # use informer::InformerOptions;
    /// let options = InformerOptions::default().field_selector("spec.nodeName=node-1".parse()?);
    /// # Ok::<(), informer::Error>(())
    /// ```
    pub fn field_selector(self, selector: FieldSelector) -> Self {
        Self { selection: self.selection.field_selector(selector), ..self }
    }

    /// Sets the period at which handlers receive every cached object again (C12).
    ///
    /// A handler can set [its own period](crate::handler::HandlerBuilder::resync_period). A resync sends no
    /// request: it costs one call per handler, object and period, spread evenly over the period. It is
    /// meant for handlers that re-examine every object from time to time. It is not needed to recover lost
    /// events, because no event is lost (C2).
    ///
    /// Defaults to zero, which disables resyncs. Periods below one second are raised to it.
    pub fn resync_period(mut self, period: Duration) -> Self {
        self.resync_period = Some(period);
        self
    }

    /// Sets a function that changes the query parameters of every list and watch.
    ///
    /// The function receives the selectors as `labelSelector` and `fieldSelector`; it can replace them, or
    /// add parameters that a particular server supports. It is called once, when the informer is created,
    /// because list and watch must select the same objects. Parameters that the informer sets itself
    /// (`watch`, `resourceVersion`, `resourceVersionMatch`, `limit`, `continue`, `timeoutSeconds`,
    /// `allowWatchBookmarks`, `sendInitialEvents`) are ignored. Defaults to none.
    ///
    /// ```
    /// use informer::InformerOptions;
    ///
    /// let options = InformerOptions::default()
    ///     .query_parameters(|parameters| parameters.set("shardSelector", "shardRange(…)"));
    /// ```
    pub fn query_parameters(mut self, hook: impl Fn(&mut QueryParameters) + Send + Sync + 'static) -> Self {
        self.parameter_hook = Some(Arc::new(hook));
        self
    }

    /// Replaces the API server as the source of lists and watches.
    ///
    /// The source decides which objects it returns: namespaces, selectors, query parameters,
    /// [`prefer_protobuf`](Self::prefer_protobuf) and [`gzip_lists`](Self::gzip_lists) are ignored. A
    /// source belongs to one kind, so a factory ignores it in its own options; set it with
    /// [`SharedInformerFactory::configure`](crate::SharedInformerFactory::configure). Defaults to the API
    /// server of the client.
    pub fn source(mut self, source: impl Source) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// Sets how the cache stores objects: memory against the time of [`typed`](crate::Object::typed).
    ///
    /// - [`Retention::Bytes`], the default: the bytes that the server sent. Each `typed` decodes them,
    ///   unless a caller still holds the previous result.
    /// - [`Retention::Decoded`]: also the typed objects. They are decoded when they arrive, as the type of each
    ///   [`SharedInformer`](crate::SharedInformer) handle, so that `typed` copies a pointer and
    ///   [`typed_ref`](crate::Object::typed_ref) borrows; the sources of a controller count as handles. Objects that
    ///   arrive while only listers, snapshots, registrations, event streams or handles of
    ///   [`DynamicObject`](kube::core::DynamicObject) exist are decoded on their first use, and kept.
    ///   Takes several times the memory, and some 30 µs more per change of a pod; for kinds that are read more
    ///   often than they change.
    /// - [`Retention::RecentlyDecoded`]: also the typed objects that were used recently, up to a limit.
    ///   For kinds of which a part is read often. An object beyond the limit is decoded by each `typed`.
    /// - `Retention::Compressed`, with the feature `compression`: the bytes, compressed. 50,000 pods take
    ///   86 MB instead of 206 MB; receiving an object takes about 10 µs longer, decoding it a few
    ///   microseconds. For kinds with many objects of which few are read:
    ///
    /// ```
    /// # #[cfg(feature = "compression")] {
    /// use informer::InformerOptions;
    /// use informer::cache::Retention;
    ///
    /// let options = InformerOptions::default().retention(Retention::Compressed);
    /// # }
    /// ```
    ///
    /// Compression uses a dictionary. It is trained on the first objects in the background, and again when
    /// objects start to look different. A dictionary contains parts of the objects it was trained on, so
    /// none is trained on Secrets: each Secret is compressed on its own.
    pub fn retention(mut self, retention: Retention) -> Self {
        self.retention = Some(retention);
        self
    }

    /// Sets whether full lists are requested as streams (watch-lists) or as lists.
    ///
    /// A watch-list costs the server much less memory than a list. If the server does not support
    /// watch-lists, the informer falls back to lists. Defaults to [`WatchListPolicy::Auto`]: watch-lists,
    /// except over slow connections, where [gzip lists](Self::gzip_lists) arrive sooner.
    pub fn watch_list(mut self, policy: WatchListPolicy) -> Self {
        self.watch_list = Some(policy);
        self
    }

    /// Sets whether protobuf is requested for built-in kinds, and for the metadata of all kinds.
    ///
    /// Protobuf takes about half the traffic and cache memory of JSON, and is read in a third of the time.
    /// Kinds that a server has only in JSON, such as custom resources, and kinds with a
    /// [`transform`](Self::transform) are received as JSON in any case. Defaults to `true`.
    ///
    /// Typed values, indexes and field filters give the same results with both encodings, with one
    /// exception: **protobuf numbers its fields**, and this crate knows the fields of Kubernetes 1.36. A
    /// field that a newer server adds to a kind is contained in
    /// [`Object::raw_bytes`](crate::Object::raw_bytes), but no typed value, index or path contains it.
    /// Disable protobuf if you need such fields, or if you write whole cached dynamic objects back to newer
    /// servers.
    pub fn prefer_protobuf(mut self, protobuf: bool) -> Self {
        self.prefer_protobuf = Some(protobuf);
        self
    }

    /// Sets whether lists are requested with gzip.
    ///
    /// gzip reduces traffic and costs CPU time on both sides. By default the throughput decides, measured
    /// over all informers of a factory: below 16 MB/s the next full list is requested with gzip. With
    /// [`WatchListPolicy::Auto`] it is then requested as a list, because servers do not compress watch-lists.
    /// (An initial list may be slightly older than an initial watch-list.) Ignored with a
    /// [`source`](Self::source).
    pub fn gzip_lists(mut self, gzip: bool) -> Self {
        self.gzip_lists = Some(gzip);
        self
    }

    /// Sets the number of items per page of every list.
    ///
    /// Smaller pages cost more requests, larger ones more memory of the server per request. If a list
    /// cannot be continued because its token has expired, it is requested again in one piece. Watch-lists
    /// have no pages.
    ///
    /// By default pages have 500 items, except for relists from a known version, which the server usually
    /// returns in one piece from its watch cache.
    pub fn page_size(mut self, items: u32) -> Self {
        self.page_size = Some(items);
        self
    }

    /// Sets the period at which the cache is compared with the server's state at the same version.
    ///
    /// Drift, which should never occur, is corrected, delivered as events, counted and reported. Each audit
    /// costs one full list; the watch is interrupted meanwhile, and the informer's state is stale.
    ///
    /// Defaults to zero, which disables audits. Periods below one minute are raised to it. Up to a tenth of
    /// the period is added at random, so that informers do not list at the same time.
    pub fn audit_period(mut self, period: Duration) -> Self {
        self.audit_period = Some(period);
        self
    }

    /// Sets the size of the largest object that is cached, in bytes.
    ///
    /// Larger objects are skipped and reported as unreadable. The size excludes `managedFields`, unless they are
    /// [kept](Self::keep_managed_fields), and top-level or metadata fields that a field filter drops. Defaults
    /// to 8 MiB; the maximum is 1 GiB.
    pub fn max_object_bytes(mut self, bytes: usize) -> Self {
        self.max_object_bytes = Some(bytes);
        self
    }

    /// Sets the timeout of a request until its response headers arrive, including the time to connect.
    ///
    /// Defaults to 30 s for watches and 70 s for lists: kube-apiserver allows itself one minute for a list,
    /// so a shorter timeout would make slow lists fail every time. A [`source`](Self::source) applies its
    /// own timeout; whatever the source does, a request without headers fails after two minutes, or after
    /// twice this timeout if that is longer.
    pub fn response_header_timeout(mut self, timeout: Duration) -> Self {
        self.response_header_timeout = Some(timeout);
        self
    }

    /// Sets the delays after failed requests: the first is `initial`, each further one is twice as long, up
    /// to `max`.
    ///
    /// Each delay is multiplied by a random factor between one and two, and is never shorter than a
    /// `Retry-After` of the server (up to ten minutes). A watch that stays open for ten seconds resets the
    /// backoff. Kinds that are forbidden or not served are retried every 30 to 60 s instead. Defaults to
    /// 800 ms and 30 s.
    pub fn backoff(mut self, initial: Duration, max: Duration) -> Self {
        self.backoff = Some(BackoffConfig::new(initial, max));
        self
    }

    /// Sets the seed of the random jitter, so that equal responses lead to equal requests at equal times.
    ///
    /// For tests that reproduce a run. Do not set it in production: clients with equal seeds send their
    /// requests to the server at the same time. Defaults to a random seed per informer.
    pub fn jitter_seed(mut self, seed: u64) -> Self {
        self.jitter_seed = Some(seed);
        self
    }

    /// Sets a function that is called with the description of the informer and every diagnostic.
    ///
    /// Diagnostics are failed requests, errors inside watch streams, unreadable objects, failed transforms,
    /// fallbacks to lists or JSON, rewinds, drift, panics and slow handlers. They are also logged with
    /// `tracing`. The function must not block; a panic in it is caught and logged. Defaults to none.
    ///
    /// ```
    /// use informer::InformerOptions;
    /// use informer::status::FailureKind;
    ///
    /// let options = InformerOptions::default().on_diagnostic(|informer, diagnostic| {
    ///     if diagnostic.failure().is_some_and(|failure| failure.kind() == FailureKind::Forbidden) {
    ///         eprintln!("{informer}: check the role binding ({diagnostic})");
    ///     }
    /// });
    /// ```
    pub fn on_diagnostic(mut self, hook: impl Fn(&str, &Diagnostic) + Send + Sync + 'static) -> Self {
        self.on_diagnostic = Some(Arc::new(hook));
        self
    }

    /// Sets a function that changes every object before it is cached.
    ///
    /// The function is called exactly once for each received object, after [field
    /// filters](Self::drop_fields). It must not change the namespace, name, uid, resource version,
    /// deletion, owner references or finalizers. It applies only to complete objects (not to metadata) of
    /// kind `K` in its API version, even if the options belong to a factory or to another kind. If the
    /// function fails, panics, or returns an object that violates these rules, the failure is counted and
    /// reported, and [`transform_fallback`](Self::transform_fallback) applies. The text of an error is
    /// logged, so it should not quote the object. Replaces an earlier transform.
    ///
    /// A transform is expensive: every object is requested as JSON, decoded and encoded again, and nothing
    /// else is received meanwhile. If dropping fields is enough, [`drop_fields`](Self::drop_fields) is far
    /// cheaper. The function and the serialization of `K` should be deterministic: an object whose bytes
    /// differ, for example because it contains a `HashMap`, is delivered as updated after every relist.
    ///
    /// ```
    /// use informer::InformerOptions;
    /// use k8s_openapi::api::core::v1::Pod;
    ///
    /// let options = InformerOptions::default().transform(|pod: &mut Pod| {
    ///     pod.status = None;
    ///     Ok(())
    /// });
    /// ```
    pub fn transform<K>(self, change: impl Fn(&mut K) -> Result<(), BoxError> + Send + Sync + 'static) -> Self
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Serialize,
    {
        self.with_transform(Some(ResourceType::of::<K>(&())), change)
    }

    /// Sets a function that changes every object of any kind before it is cached, also objects of which
    /// only the metadata is requested.
    ///
    /// The rules and costs of [`transform`](Self::transform) apply. Replaces an earlier transform.
    pub fn transform_dynamic(
        self,
        change: impl Fn(&mut DynamicObject) -> Result<(), BoxError> + Send + Sync + 'static,
    ) -> Self {
        self.with_transform(None, change)
    }

    fn with_transform<K: DeserializeOwned + Serialize>(
        mut self,
        kind: Option<ResourceType>,
        change: impl Fn(&mut K) -> Result<(), BoxError> + Send + Sync + 'static,
    ) -> Self {
        let transform = Transform::new(move |entry| {
            let decode = |error: serde_json::Error| error_at_column("decode object", &error);
            let mut object: K = serde_json::from_slice(&entry.bytes()).map_err(decode)?;
            change(&mut object).map_err(|error| error.to_string().into_boxed_str())?;
            serde_json::to_vec(&object).map_err(|error| error_at_column("encode result", &error))
        });
        self.transform = Some(Arc::new(KindTransform { kind, transform }));
        self
    }

    /// Sets what is cached of an object whose transform fails.
    ///
    /// Defaults to [`TransformFallback::KeepOriginal`], and to [`TransformFallback::MetadataOnly`] for
    /// Secrets.
    pub fn transform_fallback(mut self, fallback: TransformFallback) -> Self {
        self.transform_fallback = Some(fallback);
        self
    }
}

/// Returns a message with the position of a serde error, but without its text, which may quote the object.
fn error_at_column(operation: &str, error: &serde_json::Error) -> Box<str> {
    format!("{operation}: failed at column {}", error.column()).into()
}

/// Prints the selection and the main settings, but no functions.
impl fmt::Debug for InformerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InformerOptions")
            .field("selection", &self.selection)
            .field("resync_period", &self.resync_period)
            .field("retention", &self.retention)
            .field("watch_list", &self.watch_list)
            .field("page_size", &self.page_size)
            .field("audit_period", &self.audit_period)
            .field("source", &self.source.is_some())
            .finish_non_exhaustive()
    }
}
