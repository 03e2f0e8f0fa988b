//! What must hold: one file for each promise. Each looks at what one handler was told, or at what anybody can read.

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

use crate::crew::{Informer, Member};
use crate::truth::Truth;

/// Everything that can be said of one handler at the end.
pub(crate) fn all(truth: &Truth, informer: &Informer, member: &Member, fair: bool) {
    c1_order::check(truth, member);
    c2_no_loss::check(truth, informer, member, fair);
    c3_legal::check(member);
    c4_store_first::check(truth, member);
    c6_late::check(member);
    c7_sync::check(member);
    c10_end::check(member);
}
