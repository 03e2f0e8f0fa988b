//! Random choices used by several files. This module must not know the encoding of an input.

use informer_core::random::Random;

/// Returns a random number below `bound`; 0 if the bound is 0.
#[expect(clippy::cast_possible_truncation, reason = "the bound is a usize")]
pub(crate) fn below(random: &mut Random, bound: usize) -> usize {
    random.below(bound as u64) as usize
}
