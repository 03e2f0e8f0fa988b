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

    /// Returns whether the value counts against the limit of
    /// [`Retention::RecentlyDecoded`](crate::retention::Retention::RecentlyDecoded).
    fn is_evictable(&self) -> bool {
        false
    }
}

/// Values of different types. A clone shares all values, also those that are added later, if at least one was
/// added before.
#[derive(Clone, Default)]
pub(super) struct KeptValues(OnceLock<Arc<dyn AnyNode>>);

/// A value and the values that were added after it.
pub(super) struct Node<T> {
    next: KeptValues,
    value: T,
}

/// A [`Node`] of any type.
trait AnyNode: Any + Send + Sync {
    fn value(&self) -> &dyn Kept;
    fn next(&self) -> &KeptValues;
}

impl<T: Kept> AnyNode for Node<T> {
    fn value(&self) -> &dyn Kept {
        &self.value
    }

    fn next(&self) -> &KeptValues {
        &self.next
    }
}

impl<T> Node<T> {
    #[inline]
    pub(super) fn value(&self) -> &T {
        &self.value
    }
}

impl KeptValues {
    /// Returns the value of this type.
    #[inline]
    pub(super) fn get<T: Kept>(&self) -> Option<&T> {
        self.find::<T>().map(|(_, node)| &node.value)
    }

    /// Returns the value of this type as a shared node, which outlives the entry.
    pub(super) fn get_shared<T: Kept>(&self) -> Option<Arc<Node<T>>> {
        let node: Arc<dyn Any + Send + Sync> = Arc::<dyn AnyNode>::clone(self.find::<T>()?.0);
        node.downcast().ok()
    }

    #[inline]
    fn find<T: Kept>(&self) -> Option<(&Arc<dyn AnyNode>, &Node<T>)> {
        let mut values = self;
        loop {
            let shared = values.0.get()?;
            let node: &dyn Any = &**shared;
            if let Some(node) = node.downcast_ref() {
                return Some((shared, node));
            }
            values = shared.next();
        }
    }

    /// Adds a value, unless there is already one of its type, and returns the one that is kept.
    pub(super) fn get_or_add<T: Kept>(&self, value: T) -> &T {
        let mut new: Arc<dyn AnyNode> = Arc::new(Node { next: Self::default(), value });
        let mut values = self;
        loop {
            let rejected = values.0.set(new).err();
            let shared = values.0.wait(); // is set, now or earlier
            let node: &dyn Any = &**shared;
            if let Some(node) = node.downcast_ref::<Node<T>>() {
                return &node.value;
            }
            let Some(rejected) = rejected else { unreachable!("a value has its own type") };
            (new, values) = (rejected, shared.next());
        }
    }

    /// Returns whether `condition` holds for one of the values.
    pub(super) fn any(&self, condition: impl Fn(&dyn Kept) -> bool) -> bool {
        let mut values = self;
        while let Some(node) = values.0.get() {
            if condition(node.value()) {
                return true;
            }
            values = node.next();
        }
        false
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
        assert!(!values.any(Kept::is_released));
        values.get_or_add(0_u64);
        assert!(values.any(Kept::is_released));
    }

    #[test]
    fn clones_share_their_values() {
        let values = KeptValues::default();
        values.get_or_add(1_u32);
        let clone = values.clone();
        clone.get_or_add(2_u64);
        assert!(std::ptr::eq(values.get::<u64>().unwrap(), clone.get::<u64>().unwrap()));
    }

    #[test]
    fn shared_value_outlives_the_list() {
        let values = KeptValues::default();
        values.get_or_add(1_u32);
        values.get_or_add("text".to_owned());
        let text = values.get_shared::<String>().unwrap();
        assert!(std::ptr::eq(text.value(), values.get::<String>().unwrap()));
        drop(values);
        assert_eq!(text.value(), "text");
    }
}
