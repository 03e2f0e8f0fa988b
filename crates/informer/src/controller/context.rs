//! What a reconcile function is given besides the key.

use super::shared::Turn;
use super::writes::Write;
use crate::informer::SharedInformer;
use crate::lister::Lister;
use crate::reference::{Reference, Referent, group};
use informer_core::Key;
use informer_core::lease::Fence;
use kube::Resource;
use kube::core::{ApiResource, DynamicObject};
use std::fmt;
use std::sync::Arc;

/// A turn of a key, as its reconcile function sees it: the caches, the state of the controller, and what is known of the turn.
pub struct Context<S = ()> {
    turn: Turn,
    state: Arc<S>,
}

impl<S> Context<S> {
    pub(super) fn new(turn: Turn, state: Arc<S>) -> Self {
        Self { turn, state }
    }

    /// What was given to [`Controller::state`](super::Controller::state).
    pub fn state(&self) -> &S {
        &self.state
    }

    /// The key whose turn it is.
    pub fn key(&self) -> &Key {
        &self.turn.key
    }

    /// Reads the cache of a kind, which must be one of the controller's sources: [`Controller::reads`](super::Controller::reads) is the least. Any other
    /// begins to be filled with the first call, so that what is there seems not to be; a warning says so.
    pub fn lister<K: Resource<DynamicType = ()> + 'static>(&self) -> Lister<K> {
        self.read(&self.turn.shared.factory.informer())
    }

    /// Reads the cache of a kind that is known only at run time.
    pub fn dynamic_lister(&self, resource: &ApiResource) -> Lister<DynamicObject> {
        self.read(&self.turn.shared.factory.dynamic(resource))
    }

    fn read<K>(&self, informer: &SharedInformer<K>) -> Lister<K> {
        self.turn.shared.keep_if_undeclared(informer.engine());
        informer.lister()
    }

    /// How often the key was tried again since it last went well.
    pub fn retries(&self) -> u32 {
        self.turn.retries
    }

    /// The token of the term in which this process leads, if leaders are elected.
    pub fn fence(&self) -> Option<&Fence> {
        self.turn.fence.as_deref()
    }

    /// Says that this was written, as the server answered it: the next turn of this key begins when the cache has seen it. So a turn
    /// never acts on what was there before the last one.
    ///
    /// The kind must be one of the controller's sources. Otherwise there is nothing to wait for, and a warning says so. What a source does not
    /// select shows only with its next bookmark, about a minute later: there [`Controller::wait_for_writes`](super::Controller::wait_for_writes) is all that is waited.
    pub fn wrote<Form>(&self, object: &impl Referent<Form>) {
        let Some(version) = object.version() else { return };
        let Reference { api_version, kind, namespace, .. } = object.reference();
        let mut known = false;
        for source in &self.turn.shared.sources {
            let is = &source.engine.kind;
            if *is.kind != *kind || *is.group != *group(&api_version) {
                continue;
            }
            known = true;
            let (engine, namespace) = (Arc::clone(&source.engine), namespace.clone().map(Into::into));
            let write = Write { engine, namespace, version: version.clone() };
            self.turn.shared.writes.note(&self.turn.key, write);
        }
        if !known {
            let controller = &*self.turn.shared.name;
            tracing::warn!(controller, kind, "a write of a kind that is no source cannot be waited for");
        }
    }

    /// Whether the controller was told to stop. Turns that have begun are given the time that
    /// [`Controller::grace`](super::Controller::grace) says.
    pub fn is_stopping(&self) -> bool {
        *self.turn.stopping.borrow()
    }

    /// Returns when the controller was told to stop.
    pub async fn stopping(&self) {
        // If the controller is gone, so is the turn: somebody kept its context.
        let _gone = self.turn.stopping.clone().wait_for(|stopping| *stopping).await.is_err();
    }
}

impl<S> fmt::Debug for Context<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "turn of {} in {}", self.turn.key, self.turn.shared.name)
    }
}
