//! What stands for [`packing`](super) without the feature `compressed`: there is never anything to compress.

use super::command::Command;
use super::options::Options;
use crate::resource::ResourceType;
use crate::status::{Problems, StatusCell};
use informer_core::reflector::Config;
use informer_core::{Change, StoreReader, StoreSnapshot};
use std::future::Ready;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};

#[derive(Clone)]
pub(super) enum Packing {}

impl Packing {
    pub(super) fn of(_: &ResourceType, _: &Options) -> Option<Self> {
        None
    }

    pub(super) fn configure(&self, _: &mut Config) {
        match *self {}
    }

    pub(super) fn look(&self, _: &[Change], _: &StoreSnapshot) {
        match *self {}
    }
}

pub(super) enum Packer {}

impl Packer {
    #[expect(clippy::needless_pass_by_value, reason = "as with the feature")]
    pub(super) fn new(
        packing: Packing,
        _: StoreReader,
        _: mpsc::UnboundedSender<Command>,
        _: watch::Sender<bool>,
        _: Arc<StatusCell>,
        _: Problems,
    ) -> Self {
        match packing {}
    }

    pub(super) fn run(self) -> Ready<()> {
        match self {}
    }
}
