//! The module `persist` if the feature `persistence` is disabled: its types have no values.

use super::options::InformerOptions;
use super::parts::EngineParts;
use crate::resource::ResourceType;
use crate::source::QueryParameters;
use informer_core::reflector::{Config, SavedScope};
use std::future::Ready;
use tokio::sync::oneshot;

pub(crate) type SavedReceiver = oneshot::Receiver<Option<SavedScope>>;

pub(super) enum PersistTask {}

impl PersistTask {
    pub(super) fn from_options(
        _: &ResourceType,
        _: &InformerOptions,
        _: &QueryParameters,
        _: &EngineParts<'_>,
    ) -> Option<Self> {
        None
    }

    pub(super) fn add_scope(&mut self, _: Config) -> SavedReceiver {
        match *self {}
    }

    pub(super) fn run(self) -> Ready<()> {
        match self {}
    }
}
