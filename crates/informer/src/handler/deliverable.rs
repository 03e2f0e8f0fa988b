//! What a handler can be given: an event, or a delivery.

use crate::event::{Delivery, Event};

/// What a handler can be given: an [`Event`], or a [`Delivery`].
pub trait Deliverable<K>: sealed::Sealed<K> + Send + 'static {
    #[doc(hidden)]
    fn from_delivery(delivery: Delivery<K>) -> Option<Self>
    where
        Self: Sized;
}

impl<K: 'static> Deliverable<K> for Event<K> {
    fn from_delivery(delivery: Delivery<K>) -> Option<Self> {
        delivery.into_event()
    }
}

impl<K: 'static> Deliverable<K> for Delivery<K> {
    fn from_delivery(delivery: Delivery<K>) -> Option<Self> {
        Some(delivery)
    }
}

mod sealed {
    pub trait Sealed<K> {}
    impl<K> Sealed<K> for super::Event<K> {}
    impl<K> Sealed<K> for super::Delivery<K> {}
}
