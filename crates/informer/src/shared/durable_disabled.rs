//! The module `durable` if the feature `persistence` is disabled: its type has no values.

use super::listener::Listener;
use informer_core::Change;
use std::sync::Arc;

pub(super) enum DurableHandlers {}

impl DurableHandlers {
    pub(super) fn join(&self, _: &Arc<Listener>) -> Result<(), &'static str> {
        match *self {}
    }

    pub(super) fn set_synced(&self) {
        match *self {}
    }

    pub(super) fn leave(&self, _: &Arc<Listener>) {
        match *self {}
    }

    pub(super) fn resync(&self, _: &Listener) {
        match *self {}
    }

    pub(super) fn record(&self, _: Vec<Change>) {
        match *self {}
    }
}
