//! The types that a handler can receive: events or deliveries.

use crate::event::{Delivery, Event};

/// A type that a handler can receive: [`Event`] or [`Delivery`].
///
/// This trait is sealed.
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
