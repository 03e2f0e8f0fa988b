//! The module `resume` if the feature `persistence` is disabled: a restart reconciles every key.

use super::shared::Shared;
use super::source::KeySink;
use super::spec::Settings;
use crate::shared::DurableName;
use informer_core::{Key, StoreReader};
use std::sync::Arc;

pub(super) fn unfinished_keys(settings: &Settings) -> Option<Arc<UnfinishedKeys>> {
    // No method sets it.
    debug_assert!(settings.resume.is_none());
    None
}

pub(super) fn durable_name(_: &Shared, _: usize, _: &KeySink, _: &StoreReader) -> Option<DurableName> {
    None
}

/// Has no values.
pub(super) enum UnfinishedKeys {}

impl UnfinishedKeys {
    pub(super) fn add(&self, _: &Key) {
        match *self {}
    }

    pub(super) fn times_received(&self, _: &Key) -> Option<u64> {
        match *self {}
    }

    pub(super) fn complete(&self, _: &Key, _: Option<u64>) {
        match *self {}
    }

    pub(super) fn record_ready(&self) -> Option<u64> {
        match *self {}
    }

    pub(super) fn fulfil_requests(&self, _: u64) {
        match *self {}
    }
}
