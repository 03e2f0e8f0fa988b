//! Filters: handlers that receive only the events of matching objects.
//!
//! A filter remembers the keys of the objects it has delivered. So the sequences stay legal (C3) even if
//! the condition returns different results for the same object: a deletion is delivered exactly for the
//! objects that were delivered as added.

use super::Handler;
use crate::event::{Delivery, Event, Untyped, UpdateCause};
use informer_core::{Key, Object};
use std::collections::HashSet;

/// A handler that forwards only the events of matching objects to another handler.
///
/// `informer.handler().filter(matches).add(handler)` does the same; use this type where only a [`Handler`] can
/// be passed. Not for [durable](super::HandlerBuilder::durable) handlers: it does not know which objects it has
/// forwarded in an earlier process.
///
/// As in client-go, an update after which an object starts to match is delivered as added, and one after
/// which it stops matching as deleted, with the last matching state. Costs memory for one key per matching
/// object.
///
/// ```
/// use informer::{Handler, Object};
/// use informer::handler::FilteringHandler;
/// use k8s_openapi::api::core::v1::Pod;
///
/// struct Assigned;
///
/// impl Handler<Pod> for Assigned {
///     fn on_add(&mut self, pod: Object<Pod>, _initial: bool) {
///         println!("{} is on a node", pod.key());
///     }
/// }
///
/// let is_assigned = |pod: &Object<Pod>| pod.typed().is_ok_and(|pod| {
///     pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())
/// });
/// let handler = FilteringHandler::new(is_assigned, Assigned);
/// ```
#[derive(Debug)]
pub struct FilteringHandler<F, H> {
    filter: Filter<F>,
    handler: H,
}

impl<F, H> FilteringHandler<F, H> {
    /// Creates a handler that forwards the events of objects for which `matches` returns `true`.
    pub fn new<K>(matches: F, handler: H) -> Self
    where
        F: FnMut(&Object<K>) -> bool + Send + 'static,
        H: Handler<K>,
    {
        Self { filter: Filter::new(matches), handler }
    }
}

impl<K, F, H> Handler<K> for FilteringHandler<F, H>
where
    F: FnMut(&Object<K>) -> bool + Send + 'static,
    H: Handler<K>,
{
    fn on_add(&mut self, object: Object<K>, initial: bool) {
        self.apply(Event::Added { object, initial, previous: None });
    }

    fn on_update(&mut self, old: Object<K>, new: Object<K>, cause: UpdateCause) {
        self.apply(Event::Updated { old, new, cause });
    }

    fn on_delete(&mut self, last: Object<K>, observed: bool) {
        self.apply(Event::Deleted { last, observed });
    }

    fn on_release(&mut self, last: Object<K>) {
        if self.filter.release(last.key()) {
            self.handler.on_release(last);
        }
    }

    fn on_lagged(&mut self, skipped: u64) {
        self.handler.on_lagged(skipped);
    }
}

impl<F, H> FilteringHandler<F, H> {
    fn apply<K>(&mut self, event: Event<K>)
    where
        F: FnMut(&Object<K>) -> bool,
        H: Handler<K>,
    {
        if let Some(event) = self.filter.apply(event) {
            super::dispatch(&mut self.handler, event.into());
        }
    }
}

/// A condition, and the keys of the objects that were delivered as matching.
#[derive(Debug)]
pub(super) struct Filter<F> {
    matches: F,
    delivered_keys: HashSet<Key>,
}

impl<F> Filter<F> {
    pub(super) fn new(matches: F) -> Self {
        Self { matches, delivered_keys: HashSet::new() }
    }

    /// Returns the event for a handler that sees only matching objects; `None` if such a handler receives no
    /// event.
    pub(super) fn apply<K>(&mut self, event: Event<K>) -> Option<Event<K>>
    where
        F: FnMut(&Object<K>) -> bool,
    {
        match event {
            Event::Added { object, initial, previous } => {
                let matches = (self.matches)(&object);
                matches.then(|| self.delivered_keys.insert(object.key().clone()));
                matches.then_some(Event::Added { object, initial, previous })
            }
            Event::Updated { old, new, cause } => {
                match ((self.matches)(&new), self.delivered_keys.contains(new.key())) {
                    (true, true) => Some(Event::Updated { old, new, cause }),
                    (true, false) => {
                        self.delivered_keys.insert(new.key().clone());
                        Some(Event::Added { object: new, initial: false, previous: None })
                    }
                    (false, true) => {
                        self.delivered_keys.remove(new.key());
                        // The last matching state, as in client-go; the cache contains the new one.
                        Some(Event::Deleted { last: old, observed: true })
                    }
                    (false, false) => None,
                }
            }
            Event::Deleted { last, observed } => {
                self.release(last.key()).then_some(Event::Deleted { last, observed })
            }
        }
    }

    /// Forgets an object; returns whether it was delivered.
    pub(super) fn release(&mut self, key: &Key) -> bool {
        let delivered = self.delivered_keys.remove(key);
        if self.delivered_keys.is_empty() {
            // Frees the memory after many matching objects were deleted.
            self.delivered_keys.shrink_to(64);
        }
        delivered
    }
}

/// The filter of a handler, if it has one.
pub(super) struct OptionalFilter<K>(Option<Filter<Matches<K>>>);

type Matches<K> = Box<dyn FnMut(&Object<K>) -> bool + Send>;

impl<K> OptionalFilter<K> {
    pub(super) fn new(matches: impl FnMut(&Object<K>) -> bool + Send + 'static) -> Self {
        Self(Some(Filter::new(Box::new(matches))))
    }

    pub(super) fn apply(&mut self, delivery: Delivery<Untyped>) -> Option<Delivery<K>> {
        match (&mut self.0, delivery.typed()) {
            (Some(filter), Delivery::Event(event)) => filter.apply(event).map(Delivery::Event),
            (Some(filter), Delivery::Released { last }) => {
                filter.release(last.key()).then_some(Delivery::Released { last })
            }
            (_, delivery) => Some(delivery),
        }
    }
}

/// No filter: every delivery passes.
impl<K> Default for OptionalFilter<K> {
    fn default() -> Self {
        Self(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::object;

    fn kind<K>(event: Option<&Event<K>>) -> &'static str {
        match event {
            Some(Event::Added { .. }) => "added",
            Some(Event::Updated { .. }) => "updated",
            Some(Event::Deleted { .. }) => "deleted",
            None => "nothing",
        }
    }

    fn added(version: u64) -> Event<()> {
        Event::Added { object: object("a", version), initial: false, previous: None }
    }

    fn updated(version: u64) -> Event<()> {
        let (old, new) = (object("a", version - 1), object("a", version));
        Event::Updated { old, new, cause: UpdateCause::Change }
    }

    fn deleted(version: u64) -> Event<()> {
        Event::Deleted { last: object("a", version), observed: true }
    }

    #[test]
    fn update_that_starts_or_stops_matching_is_add_or_delete() {
        let mut filter =
            Filter::new(|object: &Object<()>| object.resource_version().as_str().ends_with(['0', '2']));
        assert_eq!(kind(filter.apply(added(9)).as_ref()), "nothing");
        assert_eq!(kind(filter.apply(updated(10)).as_ref()), "added");
        assert_eq!(kind(filter.apply(updated(12)).as_ref()), "updated");
        assert_eq!(kind(filter.apply(updated(13)).as_ref()), "deleted");
        assert_eq!(kind(filter.apply(updated(14)).as_ref()), "nothing");
        assert_eq!(kind(filter.apply(deleted(15)).as_ref()), "nothing");
        assert_eq!(kind(filter.apply(added(20)).as_ref()), "added");
        assert_eq!(kind(filter.apply(deleted(21)).as_ref()), "deleted");
    }

    #[test]
    fn c3_inconsistent_condition_causes_no_illegal_sequence() {
        // client-go evaluates the filter for the old object again. If the result differs from the previous
        // one, a handler receives an update of an object it does not know, or misses a deletion.
        let mut results = [true, false, true, true].into_iter();
        let mut filter = Filter::new(move |_: &Object<()>| results.next().unwrap());
        assert_eq!(kind(filter.apply(added(1)).as_ref()), "added");
        assert_eq!(kind(filter.apply(updated(2)).as_ref()), "deleted");
        assert_eq!(kind(filter.apply(deleted(3)).as_ref()), "nothing");
        assert_eq!(kind(filter.apply(added(4)).as_ref()), "added");
        assert_eq!(kind(filter.apply(updated(5)).as_ref()), "updated");
        assert_eq!(kind(filter.apply(deleted(6)).as_ref()), "deleted");
    }
}
