//! [`KeptValues`]: the values that an entry keeps besides its bytes, at most one per type.
//!
//! Values are added and never removed, so a reader borrows them for as long as it has the entry, without a
//! lock and without counting references. To release a value, the entry is replaced by one without it.

use std::any::Any;
use std::sync::{Arc, OnceLock};

/// A value that an entry keeps.
pub(super) trait Kept: Any + Send + Sync {
    /// Returns whether no reader will ask for this value any more.
    fn is_released(&self) -> bool {
        false
    }
}

/// Values of different types. A clone shares all values, also those that are added later, if at least one was
/// added before.
#[derive(Clone, Default)]
pub(super) struct KeptValues(OnceLock<Arc<Node>>);

/// A value and the values that were added after it.
struct Node<T: ?Sized = dyn Kept> {
    next: KeptValues,
    value: T,
}

impl KeptValues {
    /// Returns the value of this type.
    #[inline]
    pub(super) fn get<T: Kept>(&self) -> Option<&T> {
        let mut values = self;
        loop {
            let node = values.0.get()?;
            if let Some(value) = node.downcast() {
                return Some(value);
            }
            values = &node.next;
        }
    }

    /// Adds a value, unless there is already one of its type, and returns the one that is kept.
    pub(super) fn get_or_add<T: Kept>(&self, value: T) -> &T {
        let mut new: Arc<Node> = Arc::new(Node { next: Self::default(), value });
        let mut values = self;
        loop {
            let rejected = values.0.set(new).err();
            let node = values.0.wait(); // is set, now or earlier
            if let Some(value) = node.downcast() {
                return value;
            }
            let Some(rejected) = rejected else { unreachable!("a value has its own type") };
            (new, values) = (rejected, &node.next);
        }
    }

    /// Returns whether one of the values is released.
    pub(super) fn has_released(&self) -> bool {
        let mut values = self;
        while let Some(node) = values.0.get() {
            if node.value.is_released() {
                return true;
            }
            values = &node.next;
        }
        false
    }
}

impl Node {
    #[inline]
    fn downcast<T: Kept>(&self) -> Option<&T> {
        let value: &dyn Any = &self.value;
        value.downcast_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Kept for u32 {}
    impl Kept for u64 {
        fn is_released(&self) -> bool {
            *self == 0
        }
    }
    impl Kept for String {}

    #[test]
    fn first_value_of_a_type_is_kept() {
        let values = KeptValues::default();
        assert_eq!(values.get::<u32>(), None);
        assert_eq!(values.get_or_add(1_u32), &1);
        assert_eq!(values.get_or_add("text".to_owned()), "text");
        assert_eq!(values.get_or_add(2_u32), &1);
        assert_eq!(values.get_or_add("other".to_owned()), "text");
        assert_eq!((values.get::<u32>(), values.get::<u64>()), (Some(&1), None));
        assert!(!values.has_released());
        values.get_or_add(0_u64);
        assert!(values.has_released());
    }

    #[test]
    fn clones_share_their_values() {
        let values = KeptValues::default();
        values.get_or_add(1_u32);
        let clone = values.clone();
        clone.get_or_add(2_u64);
        assert!(std::ptr::eq(values.get::<u64>().unwrap(), clone.get::<u64>().unwrap()));
    }
}
