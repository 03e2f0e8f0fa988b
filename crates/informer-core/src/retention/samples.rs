//! Objects to learn a dictionary from: copies of their beginnings, few enough to be forgotten soon.

/// So many objects are enough to begin with: the more there are, the longer it takes, and a list does not wait.
const MAX_SAMPLES: usize = 256;
/// And so many bytes.
const MAX_SAMPLE_BYTES: usize = 1 << 20;
/// What lies behind that in a large object is rarely alike.
const MAX_BYTES_PER_SAMPLE: usize = 16 << 10;
/// One in so many is kept out of learning, to see what was learnt.
const HELD_OUT: usize = 8;

/// Copies of objects. Invariant: `text.len()` is the sum of `lengths`.
#[derive(Default)]
pub(crate) struct Samples {
    text: Vec<u8>,
    lengths: Vec<usize>,
    /// Those that are kept out.
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

    /// What to learn from: texts one behind the other, and their lengths.
    pub(super) fn training_set(&self) -> (&[u8], &[usize]) {
        (&self.text, &self.lengths)
    }

    /// What to try it on.
    pub(crate) fn held_out(&self) -> impl Iterator<Item = &[u8]> {
        self.held_out.iter().map(|object| &**object)
    }
}

/// Whether a sample is one of those: one of eight in a row, at a place that follows no pattern. Objects often come in turns, one of each
/// application, and those that are held out must not be of one application alone.
fn is_held_out(number: usize) -> bool {
    let row = u32::try_from(number / HELD_OUT + 1).unwrap_or(u32::MAX);
    let mixed = row.wrapping_mul(0x9e37_79b9);
    let mixed = (mixed ^ (mixed >> 15)).wrapping_mul(0x85eb_ca6b);
    number % HELD_OUT == (mixed >> 29) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn what_is_held_out_is_of_many_applications_however_many_take_turns() {
        let held_out: Vec<usize> = (0..MAX_SAMPLES).filter(|number| is_held_out(*number)).collect();
        assert_eq!(held_out.len(), MAX_SAMPLES / HELD_OUT);
        for applications in 2..=64 {
            let covered: BTreeSet<usize> = held_out.iter().map(|number| number % applications).collect();
            let most = applications.min(held_out.len());
            assert!(2 * covered.len() > most, "{} of {applications}", covered.len());
        }
    }
}
