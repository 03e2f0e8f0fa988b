//! [`Context`], the second argument of a reconcile function.

use super::pending_writes::Write;
use super::shard_gate::Withdrawal;
use super::shared::ReconcileRequest;
use crate::discovery::DynamicResource;
use crate::lister::Lister;
use crate::reference::{ObjectReference, ToObjectReference, group};
use crate::resource::ResourceType;
use crate::shared::Engine;
use informer_core::election::FencingToken;
use informer_core::shard::RangeToken;
use informer_core::{Key, ResourceVersion};
use kube::Resource;
use kube::core::DynamicObject;
use std::fmt;
use std::sync::Arc;

/// The context of one reconcile: access to the caches, the controller's state and the facts about this call.
pub struct Context<S = ()> {
    pub(super) request: ReconcileRequest,
    state: Arc<S>,
}

impl<S> Context<S> {
    pub(super) fn new(request: ReconcileRequest, state: Arc<S>) -> Self {
        Self { request, state }
    }

    /// Returns the value passed to [`Controller::state`](super::Controller::state).
    pub fn state(&self) -> &S {
        &self.state
    }

    /// Returns the key being reconciled.
    pub fn key(&self) -> &Key {
        &self.request.key
    }

    /// Returns a lister for a kind, which must be one of the controller's sources (declare it at least with
    /// [`Controller::reads`](super::Controller::reads)).
    ///
    /// `PartialObjectMeta<K>` is another source than `K`: a kind that was declared as `PartialObjectMeta<K>` is
    /// read with `ctx.lister::<PartialObjectMeta<K>>()`.
    ///
    /// For any other kind the first call starts an informer and logs a warning. Until that informer has
    /// synced, existing objects are missing from the lister.
    pub fn lister<K: Resource<DynamicType = ()> + 'static>(&self) -> Lister<K> {
        let shared = &self.request.shared;
        let source = shared.sharded_engine(&ResourceType::of::<K>(&()));
        self.lister_of(source.unwrap_or_else(|| shared.factory.engine_of::<K>()))
    }

    /// Returns a lister for a kind that is known only at run time. Like for [`lister`](Self::lister), the
    /// kind must be one of the controller's sources.
    pub fn dynamic_lister(&self, resource: &impl DynamicResource) -> Lister<DynamicObject> {
        let shared = &self.request.shared;
        let kind = ResourceType::of::<DynamicObject>(&resource.to_api_resource());
        let engine = shared.sharded_engine(&kind);
        self.lister_of(
            engine.unwrap_or_else(|| Arc::clone(shared.factory.dynamic_informer(resource).engine())),
        )
    }

    fn lister_of<K>(&self, engine: Arc<Engine>) -> Lister<K> {
        self.request.shared.keep_if_undeclared(&engine);
        Lister::new(engine)
    }

    /// Returns the number of retries of this key since its last reconcile that returned an
    /// [`Outcome`](super::Outcome).
    pub fn retries(&self) -> u32 {
        self.request.retries
    }

    /// Returns the fencing token of the current leadership term; `None` without leader election.
    pub fn fencing_token(&self) -> Option<&FencingToken> {
        self.request.term.as_ref().map(|term| term.fencing_token())
    }

    /// Returns the token of the hash range of the key, as it was when this reconcile began; `None` without
    /// [sharding](super::Controller::sharded).
    ///
    /// A process that was paused may still send the request that was under way, although it has lost the range. A system
    /// that compares the [version](RangeToken::version) with the highest one that it has seen for this key can reject
    /// such a request:
    ///
    /// ```
    /// use informer::controller::Context;
    ///
    /// /// Returns the number that a request to another system contains.
    /// fn fence(ctx: &Context) -> Option<u64> {
    ///     ctx.range_token()?.version.parse().ok()
    /// }
    /// ```
    pub fn range_token(&self) -> Option<RangeToken> {
        self.request.range_token.clone()
    }

    /// Returns the current time, for example for the transition time of a [condition](crate::conditions); see
    /// [`informer::now`](crate::now).
    ///
    /// In a test that pauses or advances tokio's clock, the time stands still and advances with that clock.
    ///
    /// ```
    /// use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    ///
    /// fn transition_time(ctx: &informer::controller::Context) -> Time {
    ///     Time(ctx.now())
    /// }
    /// ```
    pub fn now(&self) -> jiff::Timestamp {
        crate::clock::now()
    }

    /// Records an object that this reconcile wrote, as returned by the server, so that the next reconcile of
    /// this key starts only once the cache shows the write.
    ///
    /// [`apply`](Self::apply) and [`patch_status`](Self::patch_status) do this by themselves. Without this call,
    /// the next reconcile may act on the state from before the write. The next reconcile waits at most for
    /// [`Controller::write_visibility_timeout`](super::Controller::write_visibility_timeout).
    ///
    /// The kind must be one of the controller's sources; otherwise no cache can show the write, and a warning
    /// is logged. If the selectors of a source exclude the object, the cache of the source reaches the
    /// written version only with the next bookmark, about a minute later. An object without a resource
    /// version is ignored.
    pub fn record_write<Form>(&self, object: &impl ToObjectReference<Form>) {
        let Some(version) = object.version() else { return };
        self.record(&object.reference(), &version);
    }

    /// Records that this reconcile wrote this version of an object.
    pub(super) fn record(&self, object: &ObjectReference, version: &ResourceVersion) {
        let ObjectReference { api_version, kind, namespace, .. } = object;
        let mut is_source = false;
        for source in &self.request.shared.sources {
            let source_kind = &source.engine.kind;
            if *source_kind.kind != **kind || *source_kind.group != *group(api_version) {
                continue;
            }
            is_source = true;
            let (engine, namespace) = (Arc::clone(&source.engine), namespace.clone().map(Into::into));
            let write = Write { engine, namespace, version: version.clone() };
            self.request.shared.pending_writes.record(&self.request.key, write);
        }
        if !is_source {
            let controller = &*self.request.shared.name;
            tracing::warn!(
                controller,
                kind,
                "cannot wait until a write is visible: its kind is not a source of the controller"
            );
        }
    }

    /// Returns whether the controller is stopping, or the hash range of the key moves to another process.
    ///
    /// Reconciles that are still running after
    /// [`Controller::shutdown_timeout`](super::Controller::shutdown_timeout) are aborted.
    pub fn is_stop_requested(&self) -> bool {
        let withdrawal = self.request.withdrawal.as_ref();
        *self.request.stop_requested.borrow()
            || withdrawal.is_some_and(|withdrawal| *withdrawal.borrow() != Withdrawal::None)
    }

    /// Waits until the controller is stopping, or the hash range of the key moves to another process.
    pub async fn stop_requested(&self) {
        let mut stop_requested = self.request.stop_requested.clone();
        let withdrawn = async {
            match self.request.withdrawal.clone() {
                Some(mut withdrawal) => {
                    let _ended = withdrawal.wait_for(|one| *one != Withdrawal::None).await.is_err();
                }
                None => std::future::pending().await,
            }
        };
        // An error means that the run has ended, which only a context kept beyond its reconcile can observe.
        tokio::select! {
            _ = stop_requested.wait_for(|requested| *requested) => {}
            () = withdrawn => {}
        }
    }
}

impl<S> fmt::Debug for Context<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "reconcile of {} by {}", self.request.key, self.request.shared.name)
    }
}
