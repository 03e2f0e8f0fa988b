//! The events and deliveries that handlers receive.

use informer_core::Object;
use std::fmt;

/// The reason for which an object is delivered as updated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum UpdateCause {
    /// The object changed.
    Change,
    /// A resync delivers the object again; old and new state are the same.
    Resync,
}

/// A change of one object, from the point of view of one handler.
pub enum Event<K> {
    /// An object that this handler did not know.
    #[non_exhaustive]
    Added {
        /// The object.
        object: Object<K>,
        /// Whether the object is part of the initial list of this handler.
        initial: bool,
        /// The last state of this object that a [durable](crate::handler::HandlerBuilder::durable) handler has
        /// acknowledged, before it was added; `None` for other handlers and objects. If its resource version is
        /// that of `object`, nothing has changed since, unless etcd was restored from a backup.
        previous: Option<Object<K>>,
    },
    /// A newer state of an object that this handler knows, or the same state again because of a resync.
    #[non_exhaustive]
    Updated {
        /// The state that was delivered to this handler last.
        old: Object<K>,
        /// The new state.
        new: Object<K>,
        /// Whether the object changed or a resync delivers it again.
        cause: UpdateCause,
    },
    /// The deletion of an object that this handler knew.
    #[non_exhaustive]
    Deleted {
        /// The last known state.
        last: Object<K>,
        /// Whether the server reported the deletion. Otherwise it was inferred later, from a list without the
        /// object or from its next incarnation, and `last` may not be the final state.
        observed: bool,
    },
}

impl<K> Event<K> {
    /// Returns the object of the event: its new state, or the last known one if it was deleted.
    pub fn object(&self) -> &Object<K> {
        match self {
            Self::Added { object, .. }
            | Self::Updated { new: object, .. }
            | Self::Deleted { last: object, .. } => object,
        }
    }
}

impl<K> Clone for Event<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Added { object, initial, previous } => {
                Self::Added { object: object.clone(), initial: *initial, previous: previous.clone() }
            }
            Self::Updated { old, new, cause } => {
                Self::Updated { old: old.clone(), new: new.clone(), cause: *cause }
            }
            Self::Deleted { last, observed } => Self::Deleted { last: last.clone(), observed: *observed },
        }
    }
}

/// Prints the keys and versions of objects but not their contents, which may be confidential.
impl<K> fmt::Debug for Event<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Added { object, initial, .. } => write!(f, "Added({object:?}, initial: {initial})"),
            Self::Updated { old, new, cause } => write!(f, "Updated({old:?} -> {new:?}, {cause:?})"),
            Self::Deleted { last, observed } => write!(f, "Deleted({last:?}, observed: {observed})"),
        }
    }
}

/// An event, the notice that the handler lagged, or the release of an object.
///
/// Handlers lag only if they are added with
/// [`HandlerBuilder::uncoalesced`](crate::handler::HandlerBuilder::uncoalesced); objects are released only with sharding.
#[derive(Debug)]
#[non_exhaustive]
pub enum Delivery<K> {
    /// One event.
    Event(Event<K>),
    /// More events were pending than the capacity of the handler, and some were coalesced into later ones of
    /// the same objects.
    ///
    /// The coalesced events follow. They are correct and in order; only intermediate states are missing,
    /// including all states of an object that was added and deleted in between.
    #[non_exhaustive]
    Lagged {
        /// Number of events that were coalesced and are not delivered individually.
        skipped: u64,
    },
    /// An object that this handler knew belongs to another process of the [shard group](crate::shard::ShardGroup) from
    /// now on. The object exists, so its deletion must not be handled.
    ///
    /// Only informers with sharding deliver it. If the object comes back, it is delivered as added.
    #[non_exhaustive]
    Released {
        /// The last state that this process has received.
        last: Object<K>,
    },
}

impl<K> Delivery<K> {
    /// Returns the event; `None` for [`Delivery::Lagged`] and [`Delivery::Released`].
    pub fn into_event(self) -> Option<Event<K>> {
        match self {
            Self::Event(event) => Some(event),
            Self::Lagged { .. } | Self::Released { .. } => None,
        }
    }

    /// Returns the object of the event or release; `None` for [`Delivery::Lagged`].
    pub fn object(&self) -> Option<&Object<K>> {
        match self {
            Self::Event(event) => Some(event.object()),
            Self::Released { last } => Some(last),
            Self::Lagged { .. } => None,
        }
    }
}

impl<K> From<Event<K>> for Delivery<K> {
    fn from(event: Event<K>) -> Self {
        Self::Event(event)
    }
}

/// A placeholder for the Rust type of objects, for code that does not know this type. It has no values.
#[derive(Debug)]
pub(crate) enum Untyped {}

impl Event<Untyped> {
    /// Converts the event to one for objects of type `K`, without cloning an object or its reference.
    fn typed<K>(self) -> Event<K> {
        match self {
            Self::Added { object, initial, previous } => {
                let previous = previous.map(Object::into_cast);
                Event::Added { object: object.into_cast(), initial, previous }
            }
            Self::Updated { old, new, cause } => {
                Event::Updated { old: old.into_cast(), new: new.into_cast(), cause }
            }
            Self::Deleted { last, observed } => Event::Deleted { last: last.into_cast(), observed },
        }
    }
}

impl Delivery<Untyped> {
    /// Converts the delivery to one for objects of type `K`.
    pub(crate) fn typed<K>(self) -> Delivery<K> {
        match self {
            Self::Event(event) => Delivery::Event(event.typed()),
            Self::Lagged { skipped } => Delivery::Lagged { skipped },
            Self::Released { last } => Delivery::Released { last: last.into_cast() },
        }
    }
}
