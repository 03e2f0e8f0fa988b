//! What an informer can be told before it starts.
//!
//! Every setting may be left open: then a factory's own counts, and behind that the default. So one value of this type serves as the
//! settings of a factory, of a kind in it, and of an informer that stands alone.

mod apply;

pub(crate) use apply::SelectionKey;

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

/// Changes the parameters of lists and watches.
type ParameterHook = Arc<dyn Fn(&mut QueryParameters) + Send + Sync>;

/// The settings of an informer. The defaults suit a production cluster: everything of the kind, in all namespaces.
///
/// ```
/// use informer::InformerOptions;
/// use informer::selector::LabelSelector;
///
/// let options = InformerOptions::default().namespace("shop").label_selector("app=web,tier!=cache".parse::<LabelSelector>()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
#[must_use]
pub struct InformerOptions {
    namespaces: Option<Vec<String>>,
    label_selector: Option<LabelSelector>,
    field_selector: Option<FieldSelector>,
    resync_period: Option<Duration>,
    tweak: Option<ParameterHook>,
    source: Option<Arc<dyn Source>>,
    retention: Option<Retention>,
    watch_list: Option<WatchListPolicy>,
    page_size: Option<u32>,
    audit_period: Option<Duration>,
    max_object_bytes: Option<usize>,
    response_header_timeout: Option<Duration>,
    backoff: Option<BackoffConfig>,
    on_diagnostic: Option<DiagnosticHook>,
    projection: Option<(FieldFilter, FieldFilterMode)>,
    transform: Option<Arc<KindTransform>>,
    transform_fallback: Option<TransformFallback>,
    jitter_seed: Option<u64>,
    prefer_protobuf: Option<bool>,
    gzip_lists: Option<bool>,
    /// The connection that a factory's informers share.
    link: Option<Throughput>,
}

/// What is left out of objects, as it was said.
#[derive(Debug, Clone, PartialEq, Eq)]
enum FieldFilterMode {
    Drop(Vec<String>),
    Keep(Vec<String>),
}

impl FieldFilterMode {
    fn projection(&self) -> Result<FieldFilter, ConfigError> {
        match self {
            Self::Drop(paths) => FieldFilter::drop(paths),
            Self::Keep(paths) => FieldFilter::keep(paths),
        }
    }
}

/// A transform, and what it is for; none means everything.
struct KindTransform {
    kind: Option<ResourceType>,
    transform: Transform,
}

impl InformerOptions {
    /// One namespace only; an empty name means all of them.
    pub fn namespace(self, namespace: impl Into<String>) -> Self {
        self.namespaces([namespace])
    }

    /// These namespaces, each with a watch of its own, together in one cache. None means all.
    pub fn namespaces<S: Into<String>>(mut self, namespaces: impl IntoIterator<Item = S>) -> Self {
        let mut names: Vec<String> = namespaces.into_iter().map(Into::into).collect();
        names.sort_unstable();
        names.dedup();
        // An empty name is how the API spells all of them.
        if names.iter().any(String::is_empty) {
            names.clear();
        }
        self.namespaces = Some(names);
        self
    }

    /// All namespaces, also where the factory says otherwise.
    pub fn all_namespaces(self) -> Self {
        self.namespaces([""])
    }

    /// Only objects whose labels match; the server filters.
    pub fn label_selector(mut self, labels: LabelSelector) -> Self {
        self.label_selector = Some(labels);
        self
    }

    /// Only objects whose fields match; the server filters, and knows few fields of each kind.
    pub fn field_selector(mut self, fields: FieldSelector) -> Self {
        self.field_selector = Some(fields);
        self
    }

    /// How often handlers are told everything again, unless they say otherwise themselves. Off by default; zero means off.
    ///
    /// A resync tells what is in the cache and asks the server nothing. It is for handlers that want to look at every object now and then,
    /// not for getting lost events back: none are lost.
    pub fn resync_period(mut self, period: Duration) -> Self {
        self.resync_period = Some(period);
        self
    }

    /// Changes the parameters of every list and watch: adds some for servers that know them, or puts another selector in place. It is
    /// called once, when the informer is made, since what is followed must be what was read. What the informer itself depends
    /// on (`watch`, `resourceVersion`, `limit`…) cannot be changed.
    ///
    /// ```
    /// use informer::InformerOptions;
    ///
    /// let options = InformerOptions::default().query_parameters(|parameters| parameters.set("shardSelector", "shardRange(…)"));
    /// ```
    pub fn query_parameters(mut self, tweak: impl Fn(&mut QueryParameters) + Send + Sync + 'static) -> Self {
        self.tweak = Some(Arc::new(tweak));
        self
    }

    /// Gets lists and watches from elsewhere. What it selects is then its own business: namespaces, selectors and parameters of the
    /// options are not used. It belongs to one kind: a factory does not take it from its own options, only from
    /// [`configure`](crate::SharedInformerFactory::configure).
    pub fn source(mut self, source: impl Source) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// What the cache keeps of each object.
    ///
    /// With the feature `compression` the cache can keep its objects compressed. For a kind with many objects of which few are looked at:
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
    /// A dictionary is learnt from the first objects, in the background, and learnt again when objects come to look different. It quotes what it was
    /// learnt from; nothing is learnt from Secrets, which are compressed one by one.
    pub fn retention(mut self, retention: Retention) -> Self {
        self.retention = Some(retention);
        self
    }

    /// Whether the initial set is streamed.
    pub fn watch_list(mut self, policy: WatchListPolicy) -> Self {
        self.watch_list = Some(policy);
        self
    }

    /// Whether built-in kinds, and the metadata of all kinds, are asked for in protobuf: less to read, to send and to keep. On by default. What a
    /// server does not have in protobuf comes in JSON, whatever is set here; so do objects for which there is a
    /// [`transform`](Self::transform). Views, indexes and fields left out are the same in both forms, with one exception: **protobuf has numbers
    /// for names**, and those known here are those of Kubernetes 1.36. What a newer server adds to a kind stays in
    /// [`Object::raw_bytes`](crate::Object::raw_bytes), and no view, index or path finds it. Whoever needs it, or writes cached dynamic objects back to newer
    /// servers as a whole, asks for JSON.
    pub fn prefer_protobuf(mut self, protobuf: bool) -> Self {
        self.prefer_protobuf = Some(protobuf);
        self
    }

    /// Whether lists come compressed. By default that depends on the connection: if sets of objects came slowly so far, be it to other informers of
    /// the factory, the next ones are compressed lists, for which [`WatchListPolicy::Auto`] gives up streams. (A first list may be a little older than
    /// a first stream, as is every first list.) A [`source`](Self::source) of one's own decides for itself.
    pub fn gzip_lists(mut self, compress: bool) -> Self {
        self.gzip_lists = Some(compress);
        self
    }

    /// Items per page, for every list.
    pub fn page_size(mut self, items: u32) -> Self {
        self.page_size = Some(items);
        self
    }

    /// How often the cache is compared with what the server has at the same version. Differences are told as events, put right,
    /// counted and reported: there should be none. While it lists, the watch pauses and the state is stale. Off by default; zero means
    /// off, less than a minute means a minute, and up to a tenth is added so that not all informers do it at once.
    pub fn audit_period(mut self, period: Duration) -> Self {
        self.audit_period = Some(period);
        self
    }

    /// The largest object that is kept, in bytes (8 MiB by default). A larger one is skipped and reported.
    pub fn max_object_bytes(mut self, bytes: usize) -> Self {
        self.max_object_bytes = Some(bytes);
        self
    }

    /// How long a request may take until its response headers are there.
    pub fn response_header_timeout(mut self, deadline: Duration) -> Self {
        self.response_header_timeout = Some(deadline);
        self
    }

    /// How waits grow after failures: from `first`, doubling, up to `longest`.
    pub fn backoff(mut self, first: Duration, longest: Duration) -> Self {
        self.backoff = Some(BackoffConfig::new(first, longest));
        self
    }

    /// Where the randomness of waits comes from: with the same seed the same answers lead to the same requests at the same times. For
    /// tests that repeat a run. Clients of a real server must differ, or they all come at once; so by default it is not set.
    pub fn jitter_seed(mut self, seed: u64) -> Self {
        self.jitter_seed = Some(seed);
        self
    }

    /// Is called with the resource and every problem, whatever its class; errors inside a watch stream too. It must not block.
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

    /// Leaves parts of every object out while it is read, by path: they cost neither memory nor decoding. What is left out must be
    /// optional for the type, or have a default there, or `typed()` fails. Replaces an earlier [`InformerOptions::keep_fields`].
    ///
    /// ```
    /// use informer::InformerOptions;
    ///
    /// let options = InformerOptions::default()
    ///     .drop_fields(["status", "metadata.annotations['kubectl.kubernetes.io/last-applied-configuration']"])?;
    /// # Ok::<(), informer::error::ConfigError>(())
    /// ```
    pub fn drop_fields<S: AsRef<str>>(
        mut self,
        paths: impl IntoIterator<Item = S>,
    ) -> Result<Self, ConfigError> {
        let paths = FieldFilterMode::Drop(paths.into_iter().map(|path| path.as_ref().to_owned()).collect());
        self.projection = Some((paths.projection()?, paths));
        Ok(self)
    }

    /// Keeps nothing of an object but these parts, its identity, labels, owners and finalizers. Replaces an earlier [`InformerOptions::drop_fields`].
    pub fn keep_fields<S: AsRef<str>>(
        mut self,
        paths: impl IntoIterator<Item = S>,
    ) -> Result<Self, ConfigError> {
        let paths = FieldFilterMode::Keep(paths.into_iter().map(|path| path.as_ref().to_owned()).collect());
        self.projection = Some((paths.projection()?, paths));
        Ok(self)
    }

    /// Changes every object before it is cached, exactly once each time it is received. It must not change namespace, name, uid,
    /// version, deletion, owners or finalizers. It is applied to whole objects of its own kind and version only, also where the options are those of a whole factory, or of
    /// another kind.
    ///
    /// This decodes and encodes every object: where leaving parts out is enough, [`InformerOptions::drop_fields`] is far cheaper. The same object
    /// should always become the same bytes: one with a `HashMap` in it does not, and is told as changed by every relist. The text
    /// of an error is logged.
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
        self.transforming(Some(ResourceType::of::<K>(&())), change)
    }

    /// The same for objects of any kind.
    pub fn transform_dynamic(
        self,
        change: impl Fn(&mut DynamicObject) -> Result<(), BoxError> + Send + Sync + 'static,
    ) -> Self {
        self.transforming(None, change)
    }

    fn transforming<K: DeserializeOwned + Serialize>(
        mut self,
        kind: Option<ResourceType>,
        change: impl Fn(&mut K) -> Result<(), BoxError> + Send + Sync + 'static,
    ) -> Self {
        let transform = Transform::new(move |entry| {
            let decode = |error: serde_json::Error| place("does not decode", &error);
            let mut object: K = serde_json::from_slice(&entry.bytes()).map_err(decode)?;
            change(&mut object).map_err(|error| error.to_string().into_boxed_str())?;
            serde_json::to_vec(&object).map_err(|error| place("does not encode", &error))
        });
        self.transform = Some(Arc::new(KindTransform { kind, transform }));
        self
    }

    /// What becomes of an object whose transform fails. It is kept as received, unless it is a Secret: of that, only the metadata.
    pub fn transform_fallback(mut self, choice: TransformFallback) -> Self {
        self.transform_fallback = Some(choice);
        self
    }
}

/// Where something went wrong. What the decoder says may quote the object.
fn place(what: &str, error: &serde_json::Error) -> Box<str> {
    format!("it {what} at column {}", error.column()).into()
}

/// What was set; functions are only named.
impl fmt::Debug for InformerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("selection", &self.selection())
            .field("resync_period", &self.resync_period)
            .field("retention", &self.retention)
            .field("watch_list", &self.watch_list)
            .field("page_size", &self.page_size)
            .field("relist_every", &self.audit_period)
            .field("source", &self.source.is_some())
            .finish_non_exhaustive()
    }
}
