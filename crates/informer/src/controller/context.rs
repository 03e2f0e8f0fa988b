//! What a reconcile function is given besides the key.

use super::pending_writes::Write;
use super::shared::ReconcileRequest;
use crate::informer::SharedInformer;
use crate::lister::Lister;
use crate::reference::{ObjectReference, ToObjectReference, group};
use informer_core::Key;
use informer_core::election::FencingToken;
use kube::Resource;
use kube::core::{ApiResource, DynamicObject};
use std::fmt;
use std::sync::Arc;

/// A turn of a key, as its reconcile function sees it: the caches, the state of the controller, and what is known of the turn.
pub struct Context<S = ()> {
    request: ReconcileRequest,
    state: Arc<S>,
}

impl<S> Context<S> {
    pub(super) fn new(turn: ReconcileRequest, state: Arc<S>) -> Self {
        Self { request: turn, state }
    }

    /// What was given to [`Controller::state`](super::Controller::state).
    pub fn state(&self) -> &S {
        &self.state
    }

    /// The key whose turn it is.
    pub fn key(&self) -> &Key {
        &self.request.key
    }

    /// Reads the cache of a kind, which must be one of the controller's sources: [`Controller::reads`](super::Controller::reads) is the least. Any other
    /// begins to be filled with the first call, so that what is there seems not to be; a warning says so.
    pub fn lister<K: Resource<DynamicType = ()> + 'static>(&self) -> Lister<K> {
        self.read(&self.request.shared.factory.informer())
    }

    /// Reads the cache of a kind that is known only at run time.
    pub fn dynamic_lister(&self, resource: &ApiResource) -> Lister<DynamicObject> {
        self.read(&self.request.shared.factory.dynamic_informer(resource))
    }

    fn read<K>(&self, informer: &SharedInformer<K>) -> Lister<K> {
        self.request.shared.keep_if_undeclared(informer.engine());
        informer.lister()
    }

    /// How often the key was tried again since it last went well.
    pub fn retries(&self) -> u32 {
        self.request.retries
    }

    /// The token of the term in which this process leads, if leaders are elected.
    pub fn fencing_token(&self) -> Option<&FencingToken> {
        self.request.fencing_token.as_deref()
    }

    /// Says that this was written, as the server answered it: the next turn of this key begins when the cache has seen it. So a turn
    /// never acts on what was there before the last one.
    ///
    /// The kind must be one of the controller's sources. Otherwise there is nothing to wait for, and a warning says so. What a source does not
    /// select shows only with its next bookmark, about a minute later: there [`Controller::write_visibility_timeout`](super::Controller::write_visibility_timeout) is all that is waited.
    pub fn record_write<Form>(&self, object: &impl ToObjectReference<Form>) {
        let Some(version) = object.version() else { return };
        let ObjectReference { api_version, kind, namespace, .. } = object.reference();
        let mut known = false;
        for source in &self.request.shared.sources {
            let is = &source.engine.kind;
            if *is.kind != *kind || *is.group != *group(&api_version) {
                continue;
            }
            known = true;
            let (engine, namespace) = (Arc::clone(&source.engine), namespace.clone().map(Into::into));
            let write = Write { engine, namespace, version: version.clone() };
            self.request.shared.writes.note(&self.request.key, write);
        }
        if !known {
            let controller = &*self.request.shared.name;
            tracing::warn!(controller, kind, "a write of a kind that is no source cannot be waited for");
        }
    }

    /// Whether the controller was told to stop. Turns that have begun are given the time that
    /// [`Controller::shutdown_timeout`](super::Controller::shutdown_timeout) says.
    pub fn is_stop_requested(&self) -> bool {
        *self.request.stop_requested.borrow()
    }

    /// Returns when the controller was told to stop.
    pub async fn stop_requested(&self) {
        // If the controller is gone, so is the turn: somebody kept its context.
        let _gone = self.request.stop_requested.clone().wait_for(|stopping| *stopping).await.is_err();
    }
}

impl<S> fmt::Debug for Context<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "turn of {} in {}", self.request.key, self.request.shared.name)
    }
}
