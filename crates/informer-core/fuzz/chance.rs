//! Random choices that more than one file makes. It must not know the form of an input.

use informer_core::random::Random;

/// A number below `bound`; 0 if the bound is 0.
#[expect(clippy::cast_possible_truncation, reason = "below a length")]
pub(crate) fn below(random: &mut Random, bound: usize) -> usize {
    random.below(bound as u64) as usize
}
