//! The module `persist` if the feature `persistence` is disabled: its types have no values.

use super::durable::DurableHandlers;
use super::options::InformerOptions;
use super::parts::EngineParts;
use crate::resource::ResourceType;
use crate::source::QueryParameters;
use informer_core::reflector::{Config, SavedScope};
use std::future::Ready;
use std::sync::Arc;
use tokio::sync::oneshot;

pub(crate) type SavedReceiver = oneshot::Receiver<Option<SavedScope>>;

pub(super) struct PumpPersistence {
    pub(super) durable: Arc<DurableHandlers>,
}

pub(super) enum PersistTask {}

impl PersistTask {
    pub(super) fn from_options(
        _: &ResourceType,
        _: &InformerOptions,
        _: &QueryParameters,
        _: &EngineParts<'_>,
    ) -> Option<(Self, PumpPersistence)> {
        None
    }

    pub(super) fn add_scope(&mut self, _: Config) -> SavedReceiver {
        match *self {}
    }

    pub(super) fn run(self) -> Ready<()> {
        match self {}
    }
}
