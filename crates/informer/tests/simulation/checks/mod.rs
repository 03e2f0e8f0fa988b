//! The guarantees, one file each. A check examines the events of one handler, or what readers can see.

pub(crate) mod c10_end;
pub(crate) mod c11_citizen;
pub(crate) mod c12_resync;
pub(crate) mod c1_order;
pub(crate) mod c2_no_loss;
pub(crate) mod c3_legal;
pub(crate) mod c4_store_first;
pub(crate) mod c6_late;
pub(crate) mod c7_sync;
pub(crate) mod c8_bounded;
mod sampled;

pub(crate) use sampled::Sampled;

use crate::handlers::{Informer, TestHandler};
use crate::oracle::Oracle;

/// Runs all checks of one handler at the end of a run.
pub(crate) fn all(oracle: &Oracle, informer: &Informer, handler: &TestHandler, fault_free: bool) {
    c1_order::check(oracle, handler);
    c2_no_loss::check(oracle, informer, handler, fault_free);
    c3_legal::check(handler);
    c4_store_first::check(oracle, informer, handler);
    c6_late::check(handler);
    c7_sync::check(handler);
    c10_end::check(handler);
}
