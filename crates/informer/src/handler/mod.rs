//! Handlers: whoever is told what changes.
//!
//! A closure, a value that implements [`Handler`], or an [`EventStream`]: three faces of one mechanism, a listener with an outbox. What they
//! have in common is set with a [`HandlerBuilder`].

mod builder;
mod deliverable;
mod filter;
mod stream;

pub use builder::HandlerBuilder;
pub use deliverable::Deliverable;
pub use filter::FilteringHandler;
pub use stream::EventStream;

pub use crate::event::Delivery;

use crate::event::{Event, UpdateCause};
use informer_core::Object;

/// Is told what happens to the objects of one kind, one event at a time, in order.
///
/// Every method does nothing unless it is written. A handler runs on the runtime's threads and must not block, unless it was registered
/// as [`HandlerBuilder::blocking`]. A panic is caught, counted and reported, and the handler goes on with the next event (C9).
///
/// ```
/// use informer::{Handler, Object};
/// use k8s_openapi::api::core::v1::Pod;
///
/// /// Counts the pods that are there.
/// struct Count(usize);
///
/// impl Handler<Pod> for Count {
///     fn on_add(&mut self, _: Object<Pod>, _initial: bool) {
///         self.0 += 1;
///     }
///
///     fn on_delete(&mut self, _: Object<Pod>, _observed: bool) {
///         self.0 -= 1;
///     }
/// }
/// ```
pub trait Handler<K>: Send + 'static {
    /// An object that this handler did not know. `initial` says that it was there before the handler began.
    fn on_add(&mut self, object: Object<K>, initial: bool) {
        let _ = (object, initial);
    }

    /// A newer state of an object that this handler knows, or the same one told again.
    fn on_update(&mut self, old: Object<K>, new: Object<K>, cause: UpdateCause) {
        let _ = (old, new, cause);
    }

    /// An object that this handler knew is gone. `observed` says that its deletion was seen, and not found out later.
    fn on_delete(&mut self, last: Object<K>, observed: bool) {
        let _ = (last, observed);
    }

    /// The handler fell behind its bound, and so many events were merged into later ones. Only for handlers that want every state.
    fn on_lagged(&mut self, skipped: u64) {
        let _ = skipped;
    }
}

/// Calls the method that an event is for.
pub(crate) fn dispatch<K>(handler: &mut impl Handler<K>, delivery: Delivery<K>) {
    match delivery {
        Delivery::Event(Event::Added { object, initial }) => handler.on_add(object, initial),
        Delivery::Event(Event::Updated { old, new, cause }) => handler.on_update(old, new, cause),
        Delivery::Event(Event::Deleted { last, observed }) => handler.on_delete(last, observed),
        Delivery::Lagged { skipped } => handler.on_lagged(skipped),
    }
}
