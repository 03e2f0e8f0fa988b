//! Controllers: informers produce the keys of objects that may need work, and a reconcile function does the
//! work.
//!
//! A [`Controller`] is the builder: event sources, settings, state. With a reconcile function it becomes a
//! [`RunnableController`]. The [`WorkQueue`] owns the order of keys and their retries; the informers own the
//! events. A run is one future; its reconciles are tasks, which are aborted when the future is dropped.

mod apply;
mod context;
mod metrics;
mod new;
mod outcome;
mod patch_status;
mod pending_keys;
mod pending_writes;
pub mod predicates;
mod prometheus;
mod reconcile;
#[cfg_attr(not(feature = "persistence"), path = "resume_disabled.rs")]
mod resume;
mod runnable;
mod shard_gate;
mod sharding;
mod shared;
mod source;
mod spec;
mod test_context;

pub use context::Context;
pub use outcome::Outcome;
pub(crate) use reconcile::panic_message;
pub use runnable::{ControllerState, RunnableController};
pub(crate) use test_context::TestSettings;

use crate::error::ControllerError;
use crate::event::Event;
use crate::informer::SharedInformer;
use crate::workqueue::WorkQueue;
use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::{Stream, StreamExt as _};
use informer_core::workqueue::{RateLimiter, RetryLimit};
use informer_core::{Key, Object};
use kube::Resource;
use serde::de::DeserializeOwned;
use sharding::SourceRole;
use shared::ReconcileRequest;
use source::{KeyMapper, SourceInformer, TypedSource};
use spec::{BoxError, ControllerSpec};
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// A builder for a controller of one kind: its event sources, its settings and its state.
///
/// Every event of the kind itself, of the kinds that the controller [owns](Controller::owns) and of the kinds
/// that it [watches](Controller::watches) queues keys. Any number of events before a reconcile starts cause
/// one reconcile; a key has at most one reconcile at a time (C14); changes have priority over the initial
/// list. [`Controller::with_predicate`] and [`Controller::optional`] apply to the source added last. `L` is
/// the type of the objects of that source, `S` the type of the [state](Controller::state).
///
/// ```no_run
/// use informer::SharedInformerFactory;
/// use informer::controller::{Controller, Outcome, predicates};
/// use k8s_openapi::api::apps::v1::Deployment;
/// use k8s_openapi::api::core::v1::ConfigMap;
///
/// # async fn example(client: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let factory = SharedInformerFactory::new(client);
/// Controller::new::<Deployment>(&factory)
///     .with_predicate(predicates::generation_changed)
///     .owns::<ConfigMap>()
///     .concurrency(8)
///     .run(|key, ctx| async move {
///         let Some(deployment) = ctx.lister::<Deployment>().get_by_key(&key) else {
///             return Ok(Outcome::Done); // deleted
///         };
///         let _spec = &deployment.typed()?.spec;
///         Ok::<_, informer::error::DecodeError>(Outcome::Done) // errors are retried with backoff
///     })
///     .await?;
/// # Ok(())
/// # }
/// ```
///
/// # Guarantees
///
/// - No reconcile starts before the initial lists of all sources have been handled. A source that is
///   forbidden or not served blocks the start, and [`RunnableController::state`] reports it; an
///   [`optional`](Controller::optional) source does not. Once the controller runs, no source delays another.
/// - A reconcile that panics, fails or times out affects no other key: its own key is retried with backoff.
///   Only if many keys fail, their retries share a [limit](Controller::retry_limit).
/// - After [`Context::apply`], [`Context::patch_status`] or [`Context::record_write`] the next reconcile of
///   that key starts once the cache shows the write, or after the
///   [write visibility timeout](Controller::write_visibility_timeout).
#[must_use = "a controller does nothing until it runs"]
pub struct Controller<L = (), S = ()> {
    spec: ControllerSpec,
    state: S,
    /// The source added last, which can still be configured.
    last: TypedSource<L>,
}

impl<L: 'static, S> Controller<L, S> {
    /// Sets the name used in log lines, errors and metrics. Defaults to the name of the kind.
    ///
    /// Names must be unique within a manager.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.spec.name = name.into();
        self
    }

    /// Adds a source whose events queue the key of the owner that controls the object: the owner reference
    /// with `controller: true`, if that reference names the controller's kind.
    ///
    /// If only the metadata of the owned objects is needed, use [`PartialObjectMeta<O>`](kube::core::PartialObjectMeta),
    /// here and in [`Context::lister`]: only metadata is requested and cached.
    pub fn owns<O>(self) -> Controller<O, S>
    where
        O: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
    {
        self.add_owned(SourceInformer::of_kind())
    }

    /// Adds an informer as a source like [`owns`](Self::owns), for example one of a dynamic kind or of
    /// selected objects.
    pub fn owns_informer<O: 'static>(self, informer: SharedInformer<O>) -> Controller<O, S> {
        self.add_owned(SourceInformer::Given(informer))
    }

    fn add_owned<O: 'static>(self, informer: SourceInformer<O>) -> Controller<O, S> {
        let (owner_kind, deleted) = (self.spec.owner_kind.clone(), Arc::clone(&self.spec.deleted_keys));
        let map = move |object: &Object<O>| {
            let (key, uid) = owner_kind.owner(object)?;
            // The owner may not exist any more.
            deleted.record(&key, uid);
            Some(key)
        };
        self.add_source(informer, SourceRole::Owned, KeyMapper::new(map))
    }

    /// Adds a source whose events queue the keys returned by `map`.
    ///
    /// For a changed object, `map` is called with the old and with the new state. If it needs only the metadata
    /// of the objects, use [`PartialObjectMeta<W>`](kube::core::PartialObjectMeta): only metadata is requested
    /// and cached, and [`Context::lister`] takes the same type.
    ///
    /// `map` often looks up the objects that reference the changed one. An index of the controller's own kind
    /// finds them without reading all objects:
    ///
    /// ```
    /// use informer::controller::{Controller, Outcome};
    /// use informer::{Index, Object, SharedInformerFactory};
    /// use k8s_openapi::api::{core::v1::Secret, networking::v1::Ingress};
    /// use kube::core::PartialObjectMeta;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = informer_apiserver::ApiServer::new();
    /// # let client = server.client();
    /// # for ingress in [
    /// #     serde_json::json!({"metadata": {"name": "shop", "namespace": "default"},
    /// #         "spec": {"defaultBackend": {"service": {"name": "shop", "port": {"number": 80}}},
    /// #             "tls": [{"secretName": "cert"}]}}),
    /// #     serde_json::json!({"metadata": {"name": "blog", "namespace": "default"},
    /// #         "spec": {"defaultBackend": {"service": {"name": "blog", "port": {"number": 80}}}}}),
    /// # ] {
    /// #     let mut ingress = ingress;
    /// #     ingress["apiVersion"] = "networking.k8s.io/v1".into();
    /// #     ingress["kind"] = "Ingress".into();
    /// #     server.create(&ingress)?;
    /// # }
    /// let factory = SharedInformerFactory::new(client);
    /// // Every ingress, by the namespaces and names of the secrets that it references.
    /// let ingresses = factory.informer::<Ingress>();
    /// let by_secret = ingresses.add_index(Index::from_fn("secret", |ingress: &Object<Ingress>| {
    ///     let namespace = ingress.namespace().unwrap_or_default();
    ///     let Ok(typed) = ingress.typed() else { return Vec::new() };
    ///     let tls = typed.spec.iter().flat_map(|spec| spec.tls.iter().flatten());
    ///     tls.filter_map(|tls| Some(format!("{namespace}/{}", tls.secret_name.as_ref()?))).collect()
    /// }))?;
    /// let lister = ingresses.lister();
    /// # let (sender, mut reconciled) = tokio::sync::mpsc::unbounded_channel();
    /// let controller = Controller::new::<Ingress>(&factory)
    ///     .watches::<PartialObjectMeta<Secret>>(move |secret| {
    ///         lister.keys_by_index(&by_secret, &secret.key().to_string())
    ///     })
    ///     .reconcile(move |key, _ctx| {
    ///         println!("{key} or a secret that it references has changed");
    /// #         let _ = sender.send(key);
    ///         async { Ok::<_, informer::Error>(Outcome::Done) }
    ///     });
    /// # let stop = async {
    /// #     reconciled.recv().await;
    /// #     reconciled.recv().await;
    /// #     let secret = serde_json::json!({"apiVersion": "v1", "kind": "Secret",
    /// #         "metadata": {"name": "cert", "namespace": "default"}});
    /// #     server.create(&secret).unwrap();
    /// #     assert_eq!(reconciled.recv().await.unwrap().to_string(), "default/shop");
    /// # };
    /// # controller.run_until(stop).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The closure lives as long as the controller, which keeps the informers of its sources running in any
    /// case. A lister of another kind keeps the informer of that kind running as long, and its index may not
    /// be complete when `map` is called: declare the kind with [`reads`](Self::reads) too.
    pub fn watches<W>(self, map: impl Fn(&Object<W>) -> Vec<Key> + Send + Sync + 'static) -> Controller<W, S>
    where
        W: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
    {
        self.add_source(SourceInformer::of_kind(), SourceRole::Watched, KeyMapper::new(map))
    }

    /// Adds an informer as a source like [`watches`](Self::watches), for example one of a dynamic kind.
    pub fn watches_informer<W: 'static>(
        self,
        informer: SharedInformer<W>,
        map: impl Fn(&Object<W>) -> Vec<Key> + Send + Sync + 'static,
    ) -> Controller<W, S> {
        self.add_source(SourceInformer::Given(informer), SourceRole::Watched, KeyMapper::new(map))
    }

    /// Adds a kind that reconciles only read: it must be synced before the first reconcile, but its events
    /// queue no key.
    ///
    /// [`Controller::with_predicate`] has no effect on it. If only the metadata of the objects is needed, use
    /// [`PartialObjectMeta<R>`](kube::core::PartialObjectMeta), here and in [`Context::lister`].
    pub fn reads<R>(self) -> Controller<R, S>
    where
        R: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
    {
        self.add_source(SourceInformer::of_kind(), SourceRole::Read, KeyMapper::never())
    }

    /// Adds a stream of keys from outside the cluster's events: a timer, a webhook, another system.
    ///
    /// The stream is polled once the controller is running. Keys whose reconcile has not returned an
    /// [`Outcome`] when a run ends are queued first in the next run. When the stream ends, the controller
    /// continues without it. [`with_predicate`](Self::with_predicate) and [`optional`](Self::optional) do not
    /// apply to streams.
    pub fn watches_stream(mut self, keys: impl Stream<Item = Key> + Send + 'static) -> Self {
        self.spec.streams.push(Arc::new(tokio::sync::Mutex::new(Some(keys.boxed()))));
        self
    }

    /// Ignores events of the source added last for which `predicate` returns false.
    ///
    /// With several predicates, all must return true. See [`predicates`].
    pub fn with_predicate(mut self, predicate: impl Fn(&Event<L>) -> bool + Send + Sync + 'static) -> Self {
        self.last.with_predicate(predicate);
        self
    }

    /// Makes the source added last optional: if it is forbidden or not served, the controller starts without
    /// it.
    ///
    /// If it becomes available later, its events queue keys as usual.
    pub fn optional(mut self) -> Self {
        self.last.optional = true;
        self
    }

    /// Sets the maximum number of concurrent reconciles, each of a different key. Defaults to 1, which is
    /// also the minimum.
    pub fn concurrency(mut self, max_reconciles: usize) -> Self {
        self.spec.settings.concurrency = max_reconciles.max(1);
        self
    }

    /// Sets the timeout of one reconcile. Defaults to 5 minutes.
    ///
    /// A reconcile that takes longer is dropped and counts as failed.
    pub fn reconcile_timeout(mut self, timeout: Duration) -> Self {
        self.spec.settings.reconcile_timeout = timeout;
        self
    }

    /// Sets how long running reconciles may continue after the controller was stopped. Defaults to 30 s.
    ///
    /// Reconciles that take longer are aborted.
    pub fn shutdown_timeout(mut self, timeout: Duration) -> Self {
        self.spec.settings.shutdown_timeout = timeout;
        self
    }

    /// Sets how long a reconcile waits until the cache shows the writes of the previous reconcile of its key
    /// (see [`Context::record_write`]). Defaults to 30 s.
    ///
    /// After the timeout the reconcile starts anyway, and a warning is logged.
    pub fn write_visibility_timeout(mut self, timeout: Duration) -> Self {
        self.spec.settings.write_visibility_timeout = timeout;
        self
    }

    /// Sets the field manager with which [`Context::apply`] and [`Context::patch_status`] write. Defaults to
    /// the name of the controller.
    ///
    /// The server allows 128 bytes. Do not change the name of a field manager in a later release of a
    /// program: the fields that were applied with the old name would keep that owner, and would not be
    /// removed when the program stops applying them.
    pub fn field_manager(mut self, name: impl Into<Arc<str>>) -> Self {
        self.spec.settings.field_manager = Some(name.into());
        self
    }

    /// Sets the rate limiter for retries. Defaults to exponential backoff per key, from 5 ms to 1,000 s: the delay
    /// doubles with each failure, and jitter adds up to the delay itself, within the maximum.
    ///
    /// A failure counts only if the delay after the previous one has passed: events of a failing object cause
    /// reconciles immediately, but do not increase its delay.
    ///
    /// `limiter` is called once per run.
    pub fn rate_limiter<R: RateLimiter<Key> + 'static>(
        mut self,
        limiter: impl Fn() -> R + Send + Sync + 'static,
    ) -> Self {
        self.spec.settings.new_queue = Box::new(move |limit| WorkQueue::with_limits(limiter(), limit));
        self
    }

    /// Sets the limit on retries of all keys together, which is in addition to the
    /// [rate limiter](Self::rate_limiter) of each key; `None` disables it. Defaults to
    /// [`RetryLimit::default`]: 50 retries per second after a burst of 40.
    ///
    /// The limit protects the server when thousands of keys fail at once: their retries wait in the order in
    /// which they became due. It hardly delays few failing keys. Retries occupy at most half of the
    /// [workers](Self::concurrency), or one if there is one, unless [`RetryLimit::max_processing`] is
    /// set. When reconciles succeed again, the limit rises with each success, and remaining delays
    /// become at most 30 s. Reconciles that an event or a requeue causes are not retries and are not limited,
    /// even if the key has failed before.
    pub fn retry_limit(mut self, limit: impl Into<Option<RetryLimit>>) -> Self {
        self.spec.settings.retry_limit = limit.into();
        self
    }

    /// After a restart, reconciles only the keys of objects that have changed since, or whose last reconcile had not
    /// succeeded, instead of all keys. The sources need a [saved cache](crate::InformerOptions::persist).
    ///
    /// - Not succeeded means: the last reconcile has not returned [`Outcome::Done`], or the key was queued again
    ///   since. Such keys are reconciled immediately, also those with [`Outcome::RequeueAfter`] and those that came
    ///   from a [stream](Self::watches_stream).
    /// - Deletions while no process ran count as changes, as for a
    ///   [durable handler](crate::handler::HandlerBuilder::durable). Predicates and mappers receive the change from
    ///   the last state that the controller has handled as an update. After a crash, they also receive again the
    ///   states that it may have handled. Keys that were reconciled shortly before the end of the process are
    ///   reconciled again.
    /// - `logic_version` names what the reconcile function does. Change it with the function: a new version reconciles
    ///   every key. After a rollback, the version before continues where it stopped.
    /// - A start without the saved cache of a source reconciles every key. If the cache of a source is not persisted,
    ///   every start does, which [`Diagnostic::NotDurable`](crate::status::Diagnostic::NotDurable) reports.
    /// - Events are handled after they were saved, usually within 0.1 s.
    /// - The [name](Self::name) of the controller must be unique in the program, and must not change.
    ///
    /// Not noticed are changes outside of the cluster, keys that another replica has left unfinished as the leader,
    /// and keys of streams that arrived less than a second before the process died. Reconcile every key if that
    /// matters, which is the default.
    #[cfg(feature = "persistence")]
    pub fn resume(mut self, logic_version: impl Into<Arc<str>>) -> Self {
        self.spec.settings.resume = Some(logic_version.into());
        self
    }

    /// Sets the value that every reconcile can read with [`Context::state`].
    pub fn state<T: Send + Sync + 'static>(self, state: T) -> Controller<L, T> {
        Controller { spec: self.spec, state, last: self.last }
    }

    /// Sets the reconcile function and returns the controller, ready for [`RunnableController::run`] or for a
    /// [`Manager`](crate::manager::Manager).
    ///
    /// The error can be of any type that converts to `Box<dyn Error + Send + Sync>`: [`Error`](crate::Error),
    /// `kube::Error`, `anyhow::Error`, a text. In a closure, `?` leaves that type open, and the compiler
    /// reports "type annotations needed":
    ///
    /// ```compile_fail
    /// # use informer::controller::{Controller, Outcome};
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # fn example(controller: Controller<Pod>) {
    /// controller.reconcile(|key, ctx| async move {
    ///     if let Some(pod) = ctx.lister::<Pod>().get_by_key(&key) {
    ///         println!("{:?}", pod.typed()?.spec);
    ///     }
    ///     Ok(Outcome::Done) // an error of which type?
    /// });
    /// # }
    /// ```
    ///
    /// Name it in the last expression, or write an `async fn`, whose signature contains it:
    ///
    /// ```
    /// # use informer::controller::{Controller, Outcome};
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # fn example(controller: Controller<Pod>) {
    /// controller.reconcile(|key, ctx| async move {
    ///     if let Some(pod) = ctx.lister::<Pod>().get_by_key(&key) {
    ///         println!("{:?}", pod.typed()?.spec);
    ///     }
    ///     Ok::<_, informer::Error>(Outcome::Done)
    /// });
    /// # }
    /// ```
    pub fn reconcile<F, R, E>(self, reconcile: F) -> RunnableController
    where
        S: Send + Sync + 'static,
        F: Fn(Key, Context<S>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Outcome, E>> + Send + 'static,
        E: Into<BoxError> + 'static,
    {
        let Self { mut spec, state, last } = self;
        spec.sources.push(last.pending());
        let state = Arc::new(state);
        let call = move |request: ReconcileRequest| -> BoxFuture<'static, Result<Outcome, BoxError>> {
            let key = request.key.clone();
            let future = reconcile(key, Context::new(request, Arc::clone(&state)));
            future.map(|result| result.map_err(Into::into)).boxed()
        };
        RunnableController::new(spec, Box::new(call))
    }

    /// Runs the controller until one of its informers is stopped.
    ///
    /// The reconcile function is that of [`reconcile`](Self::reconcile), which also explains its error type.
    /// Dropping the future aborts all reconciles; [`RunnableController::run_until`] can stop without aborting
    /// them.
    ///
    /// # Errors
    ///
    /// Ends with [`ControllerError::InformerStopped`].
    pub async fn run<F, R, E>(self, reconcile: F) -> Result<(), ControllerError>
    where
        S: Send + Sync + 'static,
        F: Fn(Key, Context<S>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Outcome, E>> + Send + 'static,
        E: Into<BoxError> + 'static,
    {
        self.reconcile(reconcile).run().await
    }

    /// Completes the source added last and adds another one.
    fn add_source<N: 'static>(
        self,
        informer: SourceInformer<N>,
        role: SourceRole,
        mapper: KeyMapper<N>,
    ) -> Controller<N, S> {
        let Self { mut spec, state, last } = self;
        spec.sources.push(last.pending());
        Controller { spec, state, last: TypedSource::new(informer, role, mapper) }
    }
}

impl<L, S> fmt::Debug for Controller<L, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller").field("name", &self.spec.name).finish_non_exhaustive()
    }
}
