//! Handlers: closures, [`Handler`] implementations and [event streams](EventStream) that receive the events
//! of an informer.
//!
//! All three take their events from the same outbox and have the same options, which [`HandlerBuilder`] sets.

mod builder;
mod deliverable;
mod filter;
mod name;
mod stream;

pub use builder::HandlerBuilder;
pub use deliverable::Deliverable;
pub use filter::FilteringHandler;
pub use stream::EventStream;

pub use crate::event::Delivery;

use crate::event::{Event, UpdateCause};
use informer_core::Object;

/// A receiver of the events of one informer, one at a time and in order.
///
/// The default implementation of every method ignores the event. A handler runs on the runtime's threads
/// and must not block, unless it is added with [`HandlerBuilder::blocking`]. A panic is caught, counted and
/// reported, and the handler receives the next event (C9).
///
/// ```
/// use informer::{Handler, Object};
/// use k8s_openapi::api::core::v1::Pod;
///
/// /// Counts the existing pods.
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
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler of `{K}`",
    label = "does not implement `Handler<{K}>`",
    note = "to add a closure, use `on_event`; to add a type, implement `Handler<{K}>` for it"
)]
pub trait Handler<K>: Send + 'static {
    /// Called for an object that this handler does not know. `initial` is true if the object is part of the
    /// initial list.
    fn on_add(&mut self, object: Object<K>, initial: bool) {
        let _ = (object, initial);
    }

    /// Called for a newer state of an object that this handler knows, or for the same state in a resync;
    /// `cause` distinguishes both.
    fn on_update(&mut self, old: Object<K>, new: Object<K>, cause: UpdateCause) {
        let _ = (old, new, cause);
    }

    /// Called for the deletion of an object that this handler knows.
    ///
    /// If `observed` is false, the watch missed the deletion, and a relist or a new object with the same name
    /// revealed the deletion later, or a [durable](HandlerBuilder::durable) handler knows the object from an
    /// earlier process; `last` may then not be the final state.
    fn on_delete(&mut self, last: Object<K>, observed: bool) {
        let _ = (last, observed);
    }

    /// Called for an object that this handler knows and that belongs to another process of the
    /// [shard group](crate::shard::ShardGroup) from now on. The object exists.
    ///
    /// Only handlers of informers with sharding receive this call.
    fn on_release(&mut self, last: Object<K>) {
        let _ = last;
    }

    /// Called when the handler exceeded its capacity and `skipped` events were coalesced into later ones.
    ///
    /// Only handlers added with [`HandlerBuilder::uncoalesced`] receive this call.
    fn on_lagged(&mut self, skipped: u64) {
        let _ = skipped;
    }
}

/// Calls the handler's method for a delivery.
pub(crate) fn dispatch<K>(handler: &mut impl Handler<K>, delivery: Delivery<K>) {
    match delivery {
        Delivery::Event(Event::Added { object, initial, .. }) => handler.on_add(object, initial),
        Delivery::Event(Event::Updated { old, new, cause }) => handler.on_update(old, new, cause),
        Delivery::Event(Event::Deleted { last, observed }) => handler.on_delete(last, observed),
        Delivery::Lagged { skipped } => handler.on_lagged(skipped),
        Delivery::Released { last } => handler.on_release(last),
    }
}
