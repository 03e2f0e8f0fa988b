//! What handlers receive.

use informer_core::Object;
use std::fmt;

/// Why an object is told as updated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum UpdateCause {
    /// It changed.
    Change,
    /// It is told again by a resync; old and new are the same.
    Resync,
}

/// What happened to one object, as one handler sees it.
pub enum Event<K> {
    /// An object that this handler did not know.
    #[non_exhaustive]
    Added {
        /// The object.
        object: Object<K>,
        /// Whether it was there before the handler began to watch.
        initial: bool,
    },
    /// A newer state of an object that this handler knows.
    #[non_exhaustive]
    Updated {
        /// The state that this handler saw last.
        old: Object<K>,
        /// The state now.
        new: Object<K>,
        /// Whether it changed, or is told again.
        cause: UpdateCause,
    },
    /// An object that this handler knew is gone.
    #[non_exhaustive]
    Deleted {
        /// Its last known state.
        last: Object<K>,
        /// Whether the deletion was seen; otherwise it happened in a gap, and `last` may not be the very last state.
        observed: bool,
    },
}

impl<K> Event<K> {
    /// The object concerned: the new state, or the last one.
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
            Self::Added { object, initial } => Self::Added { object: object.clone(), initial: *initial },
            Self::Updated { old, new, cause } => {
                Self::Updated { old: old.clone(), new: new.clone(), cause: *cause }
            }
            Self::Deleted { last, observed } => Self::Deleted { last: last.clone(), observed: *observed },
        }
    }
}

/// Keys and versions only: contents may be secret.
impl<K> fmt::Debug for Event<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Added { object, initial } => write!(f, "Added({object:?}, initial: {initial})"),
            Self::Updated { old, new, cause } => write!(f, "Updated({old:?} -> {new:?}, {cause:?})"),
            Self::Deleted { last, observed } => write!(f, "Deleted({last:?}, observed: {observed})"),
        }
    }
}

/// What a handler that wants every state receives: events, and word of those it was too slow for.
#[derive(Debug)]
#[non_exhaustive]
pub enum Delivery<K> {
    /// One event.
    Event(Event<K>),
    /// The handler fell behind its bound: so many events were merged into later ones of the same objects. What is told is still
    /// true and in order, only in larger steps.
    #[non_exhaustive]
    Lagged {
        /// How many events are told as part of others.
        skipped: u64,
    },
}

impl<K> Delivery<K> {
    /// The event, if it is one.
    pub fn into_event(self) -> Option<Event<K>> {
        match self {
            Self::Event(event) => Some(event),
            Self::Lagged { .. } => None,
        }
    }
}

impl<K> From<Event<K>> for Delivery<K> {
    fn from(event: Event<K>) -> Self {
        Self::Event(event)
    }
}

/// Stands for the Rust type of objects where nobody has named it yet. There are no values of it.
#[derive(Debug)]
pub(crate) enum Untyped {}

impl Event<Untyped> {
    /// The same event with the Rust type of its objects. Nothing is copied or counted.
    fn typed<K>(self) -> Event<K> {
        match self {
            Self::Added { object, initial } => Event::Added { object: object.into_view(), initial },
            Self::Updated { old, new, cause } => {
                Event::Updated { old: old.into_view(), new: new.into_view(), cause }
            }
            Self::Deleted { last, observed } => Event::Deleted { last: last.into_view(), observed },
        }
    }
}

impl Delivery<Untyped> {
    /// The same delivery with the Rust type of its objects.
    pub(crate) fn typed<K>(self) -> Delivery<K> {
        match self {
            Self::Event(event) => Delivery::Event(event.typed()),
            Self::Lagged { skipped } => Delivery::Lagged { skipped },
        }
    }
}
