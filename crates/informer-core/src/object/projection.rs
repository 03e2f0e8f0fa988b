//! Projections: values decoded once per object state and kept in the entry, for reads by reference.
//!
//! [`Projections`] is the registry of one cache. The reflector passes each new entry to
//! [`Projections::prepare`], so that the values are decoded where objects are read. Entries that are older
//! than a projection are decoded when they are first read.

use super::kept::Kept;
use super::measured::Measured;
use super::{DecodeError, Entry, Object};
use crate::key::Key;
use serde::de::DeserializeOwned;
use std::any::TypeId;
use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};

/// A part of each object of a cache, decoded once per object state as a `P` and read by reference with
/// [`Object::projected`].
///
/// A projection is active until its last handle is dropped. Clones are cheap.
pub struct Projection<P> {
    registration: Arc<Registration>,
    type_: PhantomData<fn() -> P>,
}

/// The projections of one cache.
pub struct Projections {
    slots: RwLock<Vec<Slot>>,
    report: Arc<Report>,
}

/// Called with the first error of each kind of a projection.
type Report = dyn Fn(&ProjectionError) + Send + Sync;

/// A projection that is active, or of which values are left.
struct Slot {
    type_id: TypeId,
    usage: Weak<Usage>,
    registration: Weak<Registration>,
}

/// What the handles of a projection share. Dropped with the last handle.
struct Registration {
    usage: Arc<Usage>,
    prepare: fn(&Arc<Usage>, &Entry),
    on_release: Box<dyn Fn() + Send + Sync>,
}

/// What the values of a projection share.
struct Usage {
    type_name: &'static str,
    /// The estimated memory of the values, and its limit.
    bytes: AtomicUsize,
    limit: usize,
    values: AtomicUsize,
    decode_errors: AtomicU64,
    limit_errors: AtomicU64,
    /// Set when the last handle was dropped.
    released: AtomicBool,
    report: Arc<Report>,
}

/// The value of one entry, or why there is none.
struct Projected<P> {
    value: Result<P, Box<DecodeError>>,
    size: usize,
    usage: Arc<Usage>,
}

/// The figures of a projection.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProjectionMetrics {
    /// The Rust type of the values.
    pub type_name: &'static str,
    /// The number of values, including those of old object states that are still in use.
    pub values: usize,
    /// The estimated memory of the values in bytes.
    pub bytes: usize,
    /// The number of object states that did not decode.
    pub decode_errors: u64,
    /// The number of times that a value was not decoded because of the memory limit.
    pub limit_errors: u64,
}

/// An object that has no value in a projection.
///
/// The error affects only this object and this projection (guarantee C9).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProjectionError {
    /// The object does not decode as the type of the projection.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The values of the projection have reached their memory limit.
    #[error(
        "{key} is not decoded as {type_name}: the values of this projection have reached their limit of {limit} bytes"
    )]
    #[non_exhaustive]
    LimitReached {
        /// The key of the object.
        key: Key,
        /// The Rust type of the projection.
        type_name: &'static str,
        /// The limit in bytes.
        limit: usize,
    },
}

impl Projections {
    /// Creates a registry without projections. `report` is called with the first decoding error of each
    /// projection, and when a projection reaches its limit for the first time.
    pub fn new(report: impl Fn(&ProjectionError) + Send + Sync + 'static) -> Self {
        Self { slots: RwLock::default(), report: Arc::new(report) }
    }

    /// Adds a projection whose values take at most about `limit` bytes. If the type has one already, returns
    /// another handle to it, with the limit that it has.
    ///
    /// `on_release` is called after the last handle was dropped.
    pub fn add<P: DeserializeOwned + Send + Sync + 'static>(
        &self,
        limit: usize,
        on_release: impl Fn() + Send + Sync + 'static,
    ) -> Projection<P> {
        let type_id = TypeId::of::<P>();
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        slots.retain(|slot| slot.usage.strong_count() > 0);
        let known = slots.iter().position(|slot| slot.type_id == type_id).map(|at| slots.swap_remove(at));
        let active = known.as_ref().and_then(|slot| slot.registration.upgrade());
        let usage = known.and_then(|slot| slot.usage.upgrade()).unwrap_or_else(|| {
            Arc::new(Usage {
                type_name: std::any::type_name::<P>(),
                bytes: AtomicUsize::new(0),
                limit,
                values: AtomicUsize::new(0),
                decode_errors: AtomicU64::new(0),
                limit_errors: AtomicU64::new(0),
                released: AtomicBool::new(false),
                report: Arc::clone(&self.report),
            })
        });
        let registration = active.unwrap_or_else(|| {
            usage.released.store(false, Ordering::Relaxed);
            Arc::new(Registration {
                usage: Arc::clone(&usage),
                prepare: |usage, entry| drop(project::<P>(usage, entry)),
                on_release: Box::new(on_release),
            })
        });
        let weak = Arc::downgrade(&registration);
        slots.push(Slot { type_id, usage: Arc::downgrade(&usage), registration: weak });
        Projection { registration, type_: PhantomData }
    }

    /// Decodes the values of a new entry for all active projections.
    pub fn prepare(&self, entry: &Entry) {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        for registration in slots.iter().filter_map(|slot| slot.registration.upgrade()) {
            (registration.prepare)(&registration.usage, entry);
        }
    }

    /// Returns an equal entry without the values of projections that are no longer active; `None` if there
    /// are none.
    pub fn without_released(&self, entry: &Entry) -> Option<Entry> {
        let rewritten = entry.kept.has_released().then(|| entry.without_values())?;
        self.prepare(&rewritten);
        Some(rewritten)
    }

    /// Returns the figures of the projections that are active or have values left.
    pub fn metrics(&self) -> Vec<ProjectionMetrics> {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        slots.iter().filter_map(|slot| Some(slot.usage.upgrade()?.metrics())).collect()
    }
}

impl Default for Projections {
    fn default() -> Self {
        Self::new(|_| {})
    }
}

impl Usage {
    /// Counts an error, and reports it if it is the first one.
    fn count(&self, counter: &AtomicU64, error: ProjectionError) -> ProjectionError {
        if counter.fetch_add(1, Ordering::Relaxed) == 0 {
            (self.report)(&error);
        }
        error
    }

    fn metrics(&self) -> ProjectionMetrics {
        ProjectionMetrics {
            type_name: self.type_name,
            values: self.values.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            decode_errors: self.decode_errors.load(Ordering::Relaxed),
            limit_errors: self.limit_errors.load(Ordering::Relaxed),
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.usage.released.store(true, Ordering::Relaxed);
        (self.on_release)();
    }
}

impl<P> Drop for Projected<P> {
    fn drop(&mut self) {
        self.usage.bytes.fetch_sub(self.size, Ordering::Relaxed);
        self.usage.values.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<P: Send + Sync + 'static> Kept for Projected<P> {
    fn is_released(&self) -> bool {
        self.usage.released.load(Ordering::Relaxed)
    }
}

/// Returns the value of an entry; decodes and keeps it if there is none.
#[inline]
fn project<'a, P: DeserializeOwned + Send + Sync + 'static>(
    usage: &Arc<Usage>,
    entry: &'a Entry,
) -> Result<&'a P, ProjectionError> {
    let projected = match entry.kept.get::<Projected<P>>() {
        Some(projected) => projected,
        None => decode(usage, entry)?,
    };
    projected.value.as_ref().map_err(|error| ProjectionError::Decode((**error).clone()))
}

#[cold]
fn decode<'a, P: DeserializeOwned + Send + Sync + 'static>(
    usage: &Arc<Usage>,
    entry: &'a Entry,
) -> Result<&'a Projected<P>, ProjectionError> {
    if usage.bytes.load(Ordering::Relaxed) >= usage.limit {
        let (key, type_name, limit) = (entry.key().clone(), usage.type_name, usage.limit);
        let error = ProjectionError::LimitReached { key, type_name, limit };
        return Err(usage.count(&usage.limit_errors, error));
    }
    let decoded = catch_unwind(AssertUnwindSafe(|| entry.decode::<Measured<P>>())).unwrap_or_else(|_| {
        Err(entry
            .count_decode_error::<P>(String::new(), "its implementation of Deserialize panicked".to_owned()))
    });
    let (value, size) = match decoded {
        Ok(Measured { value, size }) => (Ok(value), size),
        Err(error) => {
            let error = DecodeError { type_name: usage.type_name, ..error };
            usage.count(&usage.decode_errors, ProjectionError::Decode(error.clone()));
            (Err(Box::new(error)), 0)
        }
    };
    usage.bytes.fetch_add(size, Ordering::Relaxed);
    usage.values.fetch_add(1, Ordering::Relaxed);
    let usage = Arc::clone(usage);
    Ok(entry.kept.get_or_add(Projected { value, size, usage }))
}

impl<K> Object<K> {
    /// Returns the value of this object in a projection, without decoding or allocating anything.
    ///
    /// An object that was read before the projection was added is decoded by the first call.
    ///
    /// # Errors
    ///
    /// Returns an error if the object does not decode as a `P`, or if the values of the projection have reached
    /// their memory limit. Other objects are not affected.
    pub fn projected<P>(&self, projection: &Projection<P>) -> Result<&P, ProjectionError>
    where
        P: DeserializeOwned + Send + Sync + 'static,
    {
        project(&projection.registration.usage, self.entry())
    }
}

impl<P> Projection<P> {
    /// Returns the figures of this projection.
    pub fn metrics(&self) -> ProjectionMetrics {
        self.registration.usage.metrics()
    }
}

impl<P> Clone for Projection<P> {
    fn clone(&self) -> Self {
        Self { registration: Arc::clone(&self.registration), type_: PhantomData }
    }
}

impl<P> fmt::Debug for Projection<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "projection as {}", self.registration.usage.type_name)
    }
}

impl fmt::Debug for Projections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.metrics().iter().map(|metrics| metrics.type_name)).finish()
    }
}
