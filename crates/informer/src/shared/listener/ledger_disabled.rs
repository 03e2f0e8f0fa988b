//! The module `ledger` if the feature `persistence` is disabled: its types have no values.

use super::Listener;
use crate::event::{Delivery, Untyped};

#[derive(Debug, Clone)]
pub(crate) enum DurableName {}

#[derive(Debug)]
pub(super) enum Ledger {}

impl Ledger {
    pub(super) fn acknowledge(&mut self) {
        match *self {}
    }

    pub(super) fn record(&mut self, _: &Delivery<Untyped>) {
        match *self {}
    }
}

impl Listener {
    #[expect(clippy::unused_self, reason = "the same signature as with the feature")]
    pub(in crate::shared) fn is_durable(&self) -> bool {
        false
    }
}
