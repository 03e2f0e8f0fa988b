//! Samples for training a dictionary: copies of the beginnings of some objects, whose number callers bound.

/// Maximum number of samples collected before the first training. More would delay the training while the
/// initial list keeps arriving.
const MAX_SAMPLES: usize = 256;
/// Total size of the training set at which no more samples are collected.
const MAX_SAMPLE_BYTES: usize = 1 << 20;
/// Maximum number of bytes copied per object. Parts of large objects beyond it are rarely similar.
const MAX_BYTES_PER_SAMPLE: usize = 16 << 10;
/// One in this many samples is held out: not used for training, but to measure the dictionary.
const SAMPLES_PER_HELD_OUT: usize = 8;

/// Samples of objects. Invariant: `text.len()` is the sum of `lengths`.
#[derive(Default)]
pub(crate) struct Samples {
    /// The samples for training, concatenated.
    text: Vec<u8>,
    /// The lengths of the samples in `text`.
    lengths: Vec<usize>,
    /// The samples that are not used for training.
    held_out: Vec<Box<[u8]>>,
}

impl Samples {
    pub(crate) fn add(&mut self, object: &[u8]) {
        let beginning = &object[..object.len().min(MAX_BYTES_PER_SAMPLE)];
        if is_held_out(self.len()) {
            self.held_out.push(beginning.into());
        } else {
            self.text.extend_from_slice(beginning);
            self.lengths.push(beginning.len());
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.lengths.len() + self.held_out.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len() >= MAX_SAMPLES || self.text.len() >= MAX_SAMPLE_BYTES
    }

    /// Returns the training set: the concatenated samples and their lengths.
    pub(super) fn training_set(&self) -> (&[u8], &[usize]) {
        (&self.text, &self.lengths)
    }

    /// Returns the held-out samples.
    pub(crate) fn held_out(&self) -> impl Iterator<Item = &[u8]> {
        self.held_out.iter().map(|object| &**object)
    }
}

/// Returns whether the sample with this number is held out.
///
/// One sample of each group of [`SAMPLES_PER_HELD_OUT`] is held out, at a pseudorandom position. Objects
/// often arrive in a repeating sequence, one of each application, and the held-out ones must not all belong
/// to one application.
fn is_held_out(number: usize) -> bool {
    // Plus one, because zero would stay zero when multiplied.
    let group = u32::try_from(number / SAMPLES_PER_HELD_OUT + 1).unwrap_or(u32::MAX);
    let mixed = group.wrapping_mul(0x9e37_79b9);
    let mixed = (mixed ^ (mixed >> 15)).wrapping_mul(0x85eb_ca6b);
    // The upper three bits are a position below `SAMPLES_PER_HELD_OUT`.
    number % SAMPLES_PER_HELD_OUT == (mixed >> 29) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn held_out_samples_cover_many_applications_in_any_repeating_sequence() {
        let held_out: Vec<usize> = (0..MAX_SAMPLES).filter(|number| is_held_out(*number)).collect();
        assert_eq!(held_out.len(), MAX_SAMPLES / SAMPLES_PER_HELD_OUT);
        for applications in 2..=64 {
            let covered: BTreeSet<usize> = held_out.iter().map(|number| number % applications).collect();
            let max_covered = applications.min(held_out.len());
            assert!(2 * covered.len() > max_covered, "{} of {applications}", covered.len());
        }
    }
}
