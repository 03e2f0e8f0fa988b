//! The module `compression` if the feature `compression` is disabled: its types have no values.

use super::options::InformerOptions;
use super::rewrite::Rewriter;
use crate::resource::ResourceType;
use crate::status::{DiagnosticSink, StatusCell};
use informer_core::reflector::Config;
use informer_core::{Change, StoreSnapshot};
use std::future::Ready;
use std::sync::Arc;
use tokio::sync::watch;

#[derive(Clone)]
pub(super) enum CacheCompression {}

impl CacheCompression {
    pub(super) fn from_options(_: &ResourceType, _: &InformerOptions) -> Option<Self> {
        None
    }

    pub(super) fn configure(&self, _: &mut Config) {
        match *self {}
    }

    pub(super) fn observe_batch(&self, _: &[Change], _: &StoreSnapshot) {
        match *self {}
    }
}

pub(super) enum CompressionTask {}

impl CompressionTask {
    #[expect(clippy::needless_pass_by_value, reason = "the same signature as with the feature")]
    pub(super) fn new(
        compression: CacheCompression,
        _: Rewriter,
        _: watch::Sender<bool>,
        _: &Arc<StatusCell>,
        _: &DiagnosticSink,
    ) -> Self {
        match compression {}
    }

    pub(super) fn run(self) -> Ready<()> {
        match self {}
    }
}
