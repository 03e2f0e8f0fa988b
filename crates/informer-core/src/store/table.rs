//! A persistent hash table from hashes to numbers, which refer to something that is stored elsewhere: the slots of
//! keys, or the ids of indexed values.

use super::pages::PagedVec;

/// Number of buckets per page, and of children of a branch above them. Copying a bucket changes no reference
/// count, so pages are large, and a lookup passes few branches.
const BUCKETS_PER_PAGE: usize = 256;
const FANOUT: usize = 64;

/// A bucket of the hash table, by default an empty one.
#[derive(Clone, Copy, Default)]
struct Bucket {
    hash: u32,
    /// The number plus one; zero if the bucket is empty.
    number_plus_one: u32,
}

/// A hash table with linear probing: a number is in the bucket selected by its hash, or in one of the following
/// buckets before the first empty one.
#[derive(Clone, Default)]
pub(super) struct Table {
    buckets: PagedVec<Bucket, BUCKETS_PER_PAGE, FANOUT>,
    /// The number of buckets, a power of two and at least a page, minus one. Invariant: at least a fifth of the
    /// buckets is empty.
    mask: usize,
    occupied: usize,
}

impl Table {
    /// Returns the count of numbers.
    pub(super) fn len(&self) -> usize {
        self.occupied
    }

    /// Returns the first number with this hash for which `check` returns a value, and that value.
    #[inline]
    pub(super) fn find<R>(&self, hash: u32, check: impl Fn(u32) -> Option<R>) -> Option<(u32, R)> {
        let mut at = hash as usize & self.mask;
        loop {
            // Examines all buckets on the page, because finding a page is more expensive than reading it.
            for bucket in &self.buckets.page(at / BUCKETS_PER_PAGE)?[at % BUCKETS_PER_PAGE..] {
                // An empty bucket ends the search.
                let number = bucket.number_plus_one.checked_sub(1)?;
                if bucket.hash == hash
                    && let Some(found) = check(number)
                {
                    return Some((number, found));
                }
                at += 1;
            }
            at &= self.mask;
        }
    }

    /// Adds a number. It must not be in the table.
    pub(super) fn add(&mut self, hash: u32, number: u32) {
        if self.occupied + self.occupied / 4 >= self.mask {
            let old = std::mem::take(self);
            self.mask = (2 * old.mask + 1).max(BUCKETS_PER_PAGE - 1);
            for bucket in (0..=old.mask).map(|at| old.bucket(at)).filter(|bucket| bucket.number_plus_one != 0)
            {
                self.insert(bucket);
            }
        }
        self.insert(Bucket { hash, number_plus_one: number + 1 });
    }

    fn insert(&mut self, bucket: Bucket) {
        let mut at = bucket.hash as usize & self.mask;
        while self.bucket(at).number_plus_one != 0 {
            at = (at + 1) & self.mask;
        }
        self.buckets.set(at, bucket);
        self.occupied += 1;
    }

    /// Removes a number, if it is in the table.
    pub(super) fn remove(&mut self, hash: u32, number: u32) {
        let mut hole = hash as usize & self.mask;
        loop {
            match self.bucket(hole).number_plus_one {
                0 => return,
                number_plus_one if number_plus_one == number + 1 => break,
                _ => hole = (hole + 1) & self.mask,
            }
        }
        self.occupied -= 1;
        // Moves later buckets into the hole if their probe sequence passes it, so that no lookup stops at an
        // empty bucket too early.
        let mut at = hole;
        loop {
            at = (at + 1) & self.mask;
            let bucket = self.bucket(at);
            if bucket.number_plus_one == 0 {
                break;
            }
            let first = bucket.hash as usize & self.mask;
            if (at.wrapping_sub(first) & self.mask) >= (at.wrapping_sub(hole) & self.mask) {
                self.buckets.set(hole, bucket);
                hole = at;
            }
        }
        self.buckets.set(hole, Bucket::default());
    }

    #[inline]
    fn bucket(&self, at: usize) -> Bucket {
        self.buckets.get(at).copied().unwrap_or_default()
    }
}
