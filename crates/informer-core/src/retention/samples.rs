//! Objects to learn a dictionary from: copies of their beginnings, few enough to be forgotten soon.

/// So many objects are enough to begin with: the more there are, the longer it takes, and a list does not wait.
const MOST: usize = 256;
/// And so many bytes.
const MOST_BYTES: usize = 1 << 20;
/// What lies behind that in a large object is rarely alike.
const LONGEST: usize = 16 << 10;
/// One in so many is kept out of learning, to see what was learnt.
const HELD_OUT: u32 = 8;

/// Copies of objects. Invariant: `text.len()` is the sum of `lengths`.
#[derive(Default)]
pub(super) struct Samples {
    text: Vec<u8>,
    lengths: Vec<usize>,
    /// Those that are kept out.
    held_out: Vec<Box<[u8]>>,
}

impl Samples {
    pub(super) fn add(&mut self, object: &[u8]) {
        let beginning = &object[..object.len().min(LONGEST)];
        if is_held_out(self.len()) {
            self.held_out.push(beginning.into());
        } else {
            self.text.extend_from_slice(beginning);
            self.lengths.push(beginning.len());
        }
    }

    pub(super) fn len(&self) -> usize {
        self.lengths.len() + self.held_out.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() >= MOST || self.text.len() >= MOST_BYTES
    }

    /// What to learn from: texts one behind the other, and their lengths.
    pub(super) fn lessons(&self) -> (&[u8], &[usize]) {
        (&self.text, &self.lengths)
    }

    /// What to try it on.
    pub(super) fn held_out(&self) -> impl Iterator<Item = &[u8]> {
        self.held_out.iter().map(|object| &**object)
    }
}

/// Whether a sample is one of those. They are spread without a period: objects often come in one, as one of each application does.
#[expect(clippy::cast_possible_truncation, reason = "samples are few")]
fn is_held_out(number: usize) -> bool {
    (number as u32).wrapping_mul(0x9e37_79b9) < u32::MAX / HELD_OUT
}
