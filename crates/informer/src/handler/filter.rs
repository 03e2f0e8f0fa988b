//! Filtering: a handler that hears only of the objects that match.
//!
//! What has been told is remembered by key, so that the sequences stay legal (C3) even if the condition changes its mind: what
//! was told as there is told as gone, and nothing else is.

use super::Handler;
use crate::event::{Delivery, Event, Untyped, UpdateCause};
use informer_core::{Key, Object};
use std::collections::HashSet;

/// Passes on to another handler only the objects that match a condition, by client-go's rule: an update that makes an object match is
/// an add, one that makes it stop is a delete.
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
    /// Tells `handler` about the objects for which `matches` holds.
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
        self.apply(Event::Added { object, initial });
    }

    fn on_update(&mut self, old: Object<K>, new: Object<K>, cause: UpdateCause) {
        self.apply(Event::Updated { old, new, cause });
    }

    fn on_delete(&mut self, last: Object<K>, observed: bool) {
        self.apply(Event::Deleted { last, observed });
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

/// A condition, and the keys of what was told as matching it.
#[derive(Debug)]
pub(super) struct Filter<F> {
    matches: F,
    delivered_keys: HashSet<Key>,
}

impl<F> Filter<F> {
    pub(super) fn new(matches: F) -> Self {
        Self { matches, delivered_keys: HashSet::new() }
    }

    /// The event as somebody sees it who knows only what matches.
    pub(super) fn apply<K>(&mut self, event: Event<K>) -> Option<Event<K>>
    where
        F: FnMut(&Object<K>) -> bool,
    {
        match event {
            Event::Added { object, initial } => {
                let matches = (self.matches)(&object);
                matches.then(|| self.delivered_keys.insert(object.key().clone()));
                matches.then_some(Event::Added { object, initial })
            }
            Event::Updated { old, new, cause } => {
                match ((self.matches)(&new), self.delivered_keys.contains(new.key())) {
                    (true, true) => Some(Event::Updated { old, new, cause }),
                    (true, false) => {
                        self.delivered_keys.insert(new.key().clone());
                        Some(Event::Added { object: new, initial: false })
                    }
                    (false, true) => {
                        self.delivered_keys.remove(new.key());
                        // The last state that matched, as in client-go; the cache has the new one.
                        Some(Event::Deleted { last: old, observed: true })
                    }
                    (false, false) => None,
                }
            }
            Event::Deleted { last, observed } => {
                let told = self.delivered_keys.remove(last.key());
                if self.delivered_keys.is_empty() {
                    self.delivered_keys.shrink_to(64);
                }
                told.then_some(Event::Deleted { last, observed })
            }
        }
    }
}

/// What a handler's deliveries go through: a filter, if there is one.
pub(super) struct OptionalFilter<K>(Option<Filter<Matches<K>>>);

type Matches<K> = Box<dyn FnMut(&Object<K>) -> bool + Send>;

impl<K> OptionalFilter<K> {
    pub(super) fn new(matches: impl FnMut(&Object<K>) -> bool + Send + 'static) -> Self {
        Self(Some(Filter::new(Box::new(matches))))
    }

    pub(super) fn apply(&mut self, delivery: Delivery<Untyped>) -> Option<Delivery<K>> {
        match (&mut self.0, delivery.typed()) {
            (Some(filter), Delivery::Event(event)) => filter.apply(event).map(Delivery::Event),
            (_, delivery) => Some(delivery),
        }
    }
}

/// Lets everything through.
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
        Event::Added { object: object("a", version), initial: false }
    }

    fn updated(version: u64) -> Event<()> {
        let (old, new) = (object("a", version - 1), object("a", version));
        Event::Updated { old, new, cause: UpdateCause::Change }
    }

    fn deleted(version: u64) -> Event<()> {
        Event::Deleted { last: object("a", version), observed: true }
    }

    #[test]
    fn what_begins_to_match_is_added_and_what_stops_is_deleted() {
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
    fn c3_a_condition_that_changes_its_mind_makes_no_illegal_sequence() {
        // client-go asks the filter about the old object again: if it answers otherwise than it did, a handler sees an update of
        // something it was never told about, or never hears of a deletion.
        let mut mood = [true, false, true, true].into_iter();
        let mut filter = Filter::new(move |_: &Object<()>| mood.next().unwrap());
        assert_eq!(kind(filter.apply(added(1)).as_ref()), "added");
        assert_eq!(kind(filter.apply(updated(2)).as_ref()), "deleted");
        assert_eq!(kind(filter.apply(deleted(3)).as_ref()), "nothing");
        assert_eq!(kind(filter.apply(added(4)).as_ref()), "added");
        assert_eq!(kind(filter.apply(updated(5)).as_ref()), "updated");
        assert_eq!(kind(filter.apply(deleted(6)).as_ref()), "deleted");
    }
}
