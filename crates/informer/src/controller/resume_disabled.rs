//! The module `resume` if the feature `persistence` is disabled: a restart reconciles every key.

use super::shared::Shared;
use super::source::KeySink;
use crate::shared::DurableName;
use informer_core::StoreReader;

pub(super) fn durable_name(_: &Shared, _: usize, _: &KeySink, _: &StoreReader) -> Option<DurableName> {
    None
}
