//! Controllers: informers say which keys need work, a reconcile function does it.
//!
//! A [`Controller`] is what somebody writes down: sources, settings, state. With a reconcile function it becomes a [`RunnableController`], which runs.
//! Everything about keys, their order and their retries is the [`WorkQueue`]'s; everything about events the informers'. A run is one future; its
//! turns are tasks that end with it.

mod context;
mod external_keys;
mod metrics;
mod outcome;
mod pending_writes;
mod plan;
pub mod predicates;
mod prometheus;
mod reconcile;
mod runnable;
mod shared;
mod source;

pub use context::Context;
pub use outcome::Outcome;
pub use runnable::{ControllerState, RunnableController};

use crate::error::ControllerError;
use crate::event::Event;
use crate::factory::SharedInformerFactory;
use crate::informer::SharedInformer;
use crate::resource::is_cluster_scoped;
use crate::workqueue::WorkQueue;
use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::{Stream, StreamExt as _};
use informer_core::workqueue::RateLimiter;
use informer_core::{Key, Object};
use kube::Resource;
use kube::core::{ApiResource, DynamicObject};
use plan::{BoxError, ControllerSpec, Settings};
use shared::ReconcileRequest;
use source::{KeyMapper, Owner, TypedSource};
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// Keys of one kind that need work, and the function that does it.
///
/// Everything that happens to the kind, to what it [owns](Controller::owns) and to what it [watches](Controller::watches) becomes a turn of a
/// key. However much happens before a turn begins, it is one turn; a key has one turn at a time (C14), and changes come before what was there at the
/// beginning. [`Controller::with_predicate`] and [`Controller::optional`] speak of the source that was named last.
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
///         Ok::<_, informer::error::DecodeError>(Outcome::Done) // an error is tried again, after a wait that grows
///     })
///     .await?;
/// # Ok(())
/// # }
/// ```
///
/// # What it promises
///
/// - No turn begins before its handlers have seen everything that was there. A source that is forbidden or not served holds the start, and
///   [`RunnableController::state`] says so, unless it was declared [`optional`](Controller::optional). Once it runs, no source delays another.
/// - A turn that panics, fails, or takes too long hurts nobody else: its key is tried again after a wait that grows.
/// - After [`Context::record_write`] the next turn of that key begins when the cache has seen the write.
#[must_use = "a controller does nothing until it runs"]
pub struct Controller<L = (), S = ()> {
    plan: ControllerSpec,
    state: S,
    /// The source that was named last, and may still be told more about.
    last: TypedSource<L>,
}

impl Controller {
    /// A controller for a kind, as a factory sees it: with [`SharedInformerFactory::select`] for a part of its objects, and of those of all other
    /// sources too. To choose for one kind alone, [configure](SharedInformerFactory::configure) it.
    pub fn new<K>(factory: &SharedInformerFactory) -> Controller<K>
    where
        K: Resource<DynamicType = ()> + 'static,
    {
        Controller::of(factory, factory.informer::<K>(), is_cluster_scoped::<K>())
    }

    /// A controller for a kind that is known only at run time.
    pub fn dynamic(
        factory: &SharedInformerFactory,
        resource: &ApiResource,
        scope: &kube::discovery::Scope,
    ) -> Controller<DynamicObject> {
        let cluster_scoped = matches!(scope, kube::discovery::Scope::Cluster);
        Controller::of(factory, factory.dynamic_informer(resource), cluster_scoped)
    }
}

impl<K: 'static> Controller<K> {
    fn of(factory: &SharedInformerFactory, informer: SharedInformer<K>, cluster_scoped: bool) -> Self {
        let kind = &informer.engine().kind;
        let plan = ControllerSpec {
            factory: factory.clone(),
            name: kind.name().into(),
            owner: Owner { group: kind.group.clone(), kind: kind.kind.clone(), cluster_scoped },
            sources: Vec::new(),
            streams: Vec::new(),
            settings: Settings::default(),
        };
        let last = TypedSource::new(informer, KeyMapper::own_key());
        Self { plan, state: (), last }
    }
}

impl<L: 'static, S> Controller<L, S> {
    /// What it is called in messages and metrics; its kind's name, unless set. Two of one manager must not have the same.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.plan.name = name.into();
        self
    }

    /// What happens to objects of another kind concerns the object that controls them: the owner that is marked as the controller. What only their
    /// metadata is needed of may be owned as `PartialObjectMeta<O>`.
    pub fn owns<O: Resource<DynamicType = ()> + 'static>(self) -> Controller<O, S> {
        let informer = self.plan.factory.informer::<O>();
        self.owns_informer(informer)
    }

    /// The same with an informer of one's own choice: of a dynamic kind, or of some of the objects.
    pub fn owns_informer<O: 'static>(self, informer: SharedInformer<O>) -> Controller<O, S> {
        let owner = self.plan.owner.clone();
        self.and(informer, KeyMapper::new(move |object: &Object<O>| owner.of(object)))
    }

    /// What happens to objects of another kind concerns the keys that `map` says. Of an update both states are asked, the old one too.
    pub fn watches<W: Resource<DynamicType = ()> + 'static>(
        self,
        map: impl Fn(&Object<W>) -> Vec<Key> + Send + Sync + 'static,
    ) -> Controller<W, S> {
        let informer = self.plan.factory.informer::<W>();
        self.watches_informer(informer, map)
    }

    /// The same with an informer of one's own choice.
    pub fn watches_informer<W: 'static>(
        self,
        informer: SharedInformer<W>,
        map: impl Fn(&Object<W>) -> Vec<Key> + Send + Sync + 'static,
    ) -> Controller<W, S> {
        self.and(informer, KeyMapper::new(map))
    }

    /// The reconcile function reads this kind, so it must be synced before the first turn. Its changes concern nobody, so there is nothing for
    /// [`Controller::with_predicate`] to choose from.
    pub fn reads<R: Resource<DynamicType = ()> + 'static>(self) -> Controller<R, S> {
        let informer = self.plan.factory.informer::<R>();
        self.and(informer, KeyMapper::never())
    }

    /// Keys from elsewhere: a timer, a webhook, another system. It is asked from the first turn on; keys whose turns have not gone well when a run
    /// ends are the first of the next one. When the stream ends, the controller goes on without it. It is no source to say more about.
    pub fn watches_stream(mut self, keys: impl Stream<Item = Key> + Send + 'static) -> Self {
        self.plan.streams.push(Arc::new(tokio::sync::Mutex::new(Some(keys.boxed()))));
        self
    }

    /// Only events for which this is true, of the source that was named last. Several must all be true. See [`predicates`].
    pub fn with_predicate(mut self, predicate: impl Fn(&Event<L>) -> bool + Send + Sync + 'static) -> Self {
        self.last.with_predicate(predicate);
        self
    }

    /// The source that was named last may be forbidden or not served: the start does not wait for it then. When it comes, its events count.
    pub fn optional(mut self) -> Self {
        self.last.optional = true;
        self
    }

    /// How many turns there may be at the same time, each of another key; one, unless set.
    pub fn concurrency(mut self, turns: usize) -> Self {
        self.plan.settings.concurrency = turns.max(1);
        self
    }

    /// How long a turn may take: then it is dropped, and counts as failed. Five minutes, unless set.
    pub fn reconcile_timeout(mut self, limit: Duration) -> Self {
        self.plan.settings.reconcile_timeout = limit;
        self
    }

    /// How long turns that have begun may go on after the controller was told to stop; 30 seconds, unless set. Then they are dropped.
    pub fn shutdown_timeout(mut self, limit: Duration) -> Self {
        self.plan.settings.shutdown_timeout = limit;
        self
    }

    /// How long a turn waits for the cache to see what [`Context::record_write`] was told, before it begins all the same; 30 seconds, unless set.
    pub fn write_visibility_timeout(mut self, limit: Duration) -> Self {
        self.plan.settings.patience = limit;
        self
    }

    /// How long keys wait that failed, instead of from 5 milliseconds to 1,000 seconds, doubling. A limiter is made for each run.
    pub fn rate_limiter<R: RateLimiter<Key> + 'static>(
        mut self,
        limiter: impl Fn() -> R + Send + Sync + 'static,
    ) -> Self {
        self.plan.settings.limiter = Box::new(move || WorkQueue::with_rate_limiter(limiter()));
        self
    }

    /// What every turn is given, as [`Context::state`].
    pub fn state<T: Send + Sync + 'static>(self, state: T) -> Controller<L, T> {
        Controller { plan: self.plan, state, last: self.last }
    }

    /// Makes it complete: [`RunnableController::run`] runs it, or a [`Manager`](crate::manager::Manager).
    pub fn reconcile<F, R, E>(self, reconcile: F) -> RunnableController
    where
        S: Send + Sync + 'static,
        F: Fn(Key, Context<S>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Outcome, E>> + Send + 'static,
        E: Into<BoxError> + 'static,
    {
        let Self { mut plan, state, last } = self;
        plan.sources.push(last.erase());
        let state = Arc::new(state);
        let call = move |turn: ReconcileRequest| -> BoxFuture<'static, Result<Outcome, BoxError>> {
            let key = turn.key.clone();
            let turn = reconcile(key, Context::new(turn, Arc::clone(&state)));
            turn.map(|ended| ended.map_err(Into::into)).boxed()
        };
        RunnableController::new(plan, Box::new(call))
    }

    /// Runs it until one of its informers is stopped, or the future is dropped, which ends every turn; [`RunnableController::run_until`] ends gently.
    pub async fn run<F, R, E>(self, reconcile: F) -> Result<(), ControllerError>
    where
        S: Send + Sync + 'static,
        F: Fn(Key, Context<S>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Outcome, E>> + Send + 'static,
        E: Into<BoxError> + 'static,
    {
        self.reconcile(reconcile).run().await
    }

    /// The same with one more source.
    fn and<N: 'static>(self, informer: SharedInformer<N>, trigger: KeyMapper<N>) -> Controller<N, S> {
        let Self { mut plan, state, last } = self;
        plan.sources.push(last.erase());
        Controller { plan, state, last: TypedSource::new(informer, trigger) }
    }
}

impl<L, S> fmt::Debug for Controller<L, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller").field("name", &self.plan.name).finish_non_exhaustive()
    }
}
