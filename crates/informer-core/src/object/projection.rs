//! Projections: values decoded once per object state and kept in the entry, for reads by reference.
//!
//! [`Projections`] is the registry of one cache. The reflector passes each new entry to
//! [`Projections::prepare`], so that the values are decoded where objects are read. Entries that are older
//! than a projection are decoded when they are first read.

use super::kept::Kept;
use super::measured::Measured;
use super::typed::Decoded;
use super::{DecodeError, Entry, Keep, Object};
use crate::key::Key;
use serde::de::DeserializeOwned;
use std::any::TypeId;
use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};

/// A part of each object of a cache, decoded once per object state as a `P` and read by reference with
/// [`Object::projected`].
///
/// A projection is active until its last handle is dropped. Clones are cheap.
pub struct Projection<P> {
    registration: Arc<Registration>,
    type_: PhantomData<fn() -> P>,
}

/// Makes a cache decode whole objects when they arrive, as one type, until its last clone is dropped. See
/// [`Projections::decode_ahead`].
#[derive(Clone)]
pub struct DecodeAhead {
    registration: Arc<Registration>,
}

/// The projections of one cache, and the types as which it decodes whole objects ahead.
pub struct Projections {
    /// Replaced as a whole, so that no lock is held while functions of the application are called.
    slots: RwLock<Arc<[Slot]>>,
    report: Arc<Report>,
}

/// Called with the first error of each kind of a projection.
type Report = dyn Fn(&ProjectionError) + Send + Sync;

/// A projection that is active, or of which values are left.
#[derive(Clone)]
struct Slot {
    /// The type of the kept values.
    type_id: TypeId,
    usage: Weak<Usage>,
    registration: Weak<Registration>,
    /// Whether this is a projection, not a type of whole objects.
    is_projection: bool,
}

/// [`Registration::prepare`] and [`Registration::carry_over`].
type Functions = (fn(&Arc<Usage>, &Entry), fn(&Arc<Usage>, &Entry, &Entry));

/// What the handles of a projection share. Dropped with the last handle.
struct Registration {
    usage: Arc<Usage>,
    /// Decodes the value of a new entry.
    prepare: fn(&Arc<Usage>, &Entry),
    /// Gives the second entry, a rewritten form of the first, its value.
    carry_over: fn(&Arc<Usage>, &Entry, &Entry),
    on_release: Box<dyn Fn() + Send + Sync>,
}

/// What the values of a projection share.
struct Usage {
    type_name: &'static str,
    /// The estimated memory of the values, and its limit.
    bytes: AtomicUsize,
    limit: AtomicUsize,
    values: AtomicUsize,
    decode_errors: AtomicU64,
    limit_errors: AtomicU64,
    panics: AtomicU32,
    /// Whether the first error of each kind was reported.
    decode_error_reported: AtomicBool,
    limit_error_reported: AtomicBool,
    /// The number of existing [`Registration`]s; more than one only while one is being dropped.
    registrations: AtomicUsize,
    report: Arc<Report>,
}

/// The value of one entry, or why there is none.
struct Projected<P> {
    value: Result<P, Box<DecodeError>>,
    size: usize,
    usage: Arc<Usage>,
}

/// The metrics of a projection.
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
    /// The number of reads that found no value because of the memory limit.
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

    /// Adds a projection whose values take at most about `limit` bytes. If the type has an active one, returns
    /// another handle to it, with the limit that it has.
    ///
    /// `on_release` is called after the last handle was dropped.
    pub fn add<P: DeserializeOwned + Send + Sync + 'static>(
        &self,
        limit: usize,
        on_release: impl Fn() + Send + Sync + 'static,
    ) -> Projection<P> {
        let prepare: fn(&Arc<Usage>, &Entry) = |usage, entry| {
            prepare::<P>(usage, entry);
        };
        let functions = (prepare, carry_over::<P> as fn(&Arc<Usage>, &Entry, &Entry));
        let registration = self.register::<P, Projected<P>>(true, limit, on_release, functions);
        Projection { registration, type_: PhantomData }
    }

    /// Decodes objects as a `K` when they arrive, in entries with
    /// [`Retention::Decoded`](crate::Retention::Decoded), so that [`Object::typed`] decodes nothing. Ends when
    /// the last clone of the result is dropped; decoded objects stay.
    pub fn decode_ahead<K: DeserializeOwned + Send + Sync + 'static>(&self) -> DecodeAhead {
        let carry_over: fn(&Arc<Usage>, &Entry, &Entry) = |usage, _, new| decode_ahead::<K>(usage, new);
        let functions = (decode_ahead::<K> as fn(&Arc<Usage>, &Entry), carry_over);
        let registration = self.register::<K, Decoded<K>>(false, usize::MAX, || {}, functions);
        DecodeAhead { registration }
    }

    /// Returns the active registration of a type, or a new one.
    fn register<T, V: Kept>(
        &self,
        is_projection: bool,
        limit: usize,
        on_release: impl Fn() + Send + Sync + 'static,
        (prepare, carry_over): Functions,
    ) -> Arc<Registration> {
        let type_id = TypeId::of::<V>();
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        let known = slots.iter().find(|slot| slot.type_id == type_id);
        let active = known.and_then(|slot| slot.registration.upgrade());
        // Values of an earlier projection of this type that are left are used again.
        let usage = known
            .and_then(|slot| slot.usage.upgrade())
            .unwrap_or_else(|| Arc::new(Usage::new(std::any::type_name::<T>(), Arc::clone(&self.report))));
        let registration = active.unwrap_or_else(|| {
            usage.activate(limit);
            let (usage, on_release) = (Arc::clone(&usage), Box::new(on_release));
            Arc::new(Registration { usage, prepare, carry_over, on_release })
        });
        let (weak_usage, weak_registration) = (Arc::downgrade(&usage), Arc::downgrade(&registration));
        let others = slots.iter().filter(|slot| slot.type_id != type_id && slot.usage.strong_count() > 0);
        let slot = Slot { type_id, usage: weak_usage, registration: weak_registration, is_projection };
        *slots = others.cloned().chain([slot]).collect();
        registration
    }

    /// Decodes the values of a new entry for all active projections that have not reached their limit.
    pub fn prepare(&self, entry: &Entry) {
        for registration in self.slots().iter().filter_map(|slot| slot.registration.upgrade()) {
            (registration.prepare)(&registration.usage, entry);
        }
    }

    /// Returns an equal entry without the values of projections that are no longer active; `None` if there
    /// are none.
    pub fn without_released(&self, entry: &Entry) -> Option<Entry> {
        let rewritten = entry.kept.any(Kept::is_released).then(|| entry.without_values())?;
        self.carry_over(entry, &rewritten);
        Some(rewritten)
    }

    /// Returns an equal entry without decoded objects, to free space for others; `None` if it has none, or if
    /// one was read since the last call.
    pub fn evicted(&self, entry: &Entry) -> Option<Entry> {
        let rewritten = entry.evicted()?;
        self.carry_over(entry, &rewritten);
        Some(rewritten)
    }

    /// Gives a rewritten entry the values of active projections.
    fn carry_over(&self, old: &Entry, new: &Entry) {
        for registration in self.slots().iter().filter_map(|slot| slot.registration.upgrade()) {
            (registration.carry_over)(&registration.usage, old, new);
        }
    }

    /// Returns the metrics of the projections that are active or have values left.
    pub fn metrics(&self) -> Vec<ProjectionMetrics> {
        let slots = self.slots();
        let projections = slots.iter().filter(|slot| slot.is_projection);
        projections.filter_map(|slot| Some(slot.usage.upgrade()?.metrics())).collect()
    }

    fn slots(&self) -> Arc<[Slot]> {
        Arc::clone(&self.slots.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Default for Projections {
    fn default() -> Self {
        Self::new(|_| {})
    }
}

impl Usage {
    fn new(type_name: &'static str, report: Arc<Report>) -> Self {
        Self {
            type_name,
            bytes: AtomicUsize::new(0),
            limit: AtomicUsize::new(0),
            values: AtomicUsize::new(0),
            decode_errors: AtomicU64::new(0),
            limit_errors: AtomicU64::new(0),
            panics: AtomicU32::new(0),
            decode_error_reported: AtomicBool::new(false),
            limit_error_reported: AtomicBool::new(false),
            registrations: AtomicUsize::new(0),
            report,
        }
    }

    /// Prepares for a new registration.
    fn activate(&self, limit: usize) {
        self.registrations.fetch_add(1, Ordering::Relaxed);
        self.limit.store(limit, Ordering::Relaxed);
        self.panics.store(0, Ordering::Relaxed);
        self.decode_error_reported.store(false, Ordering::Relaxed);
        self.limit_error_reported.store(false, Ordering::Relaxed);
    }

    fn is_at_limit(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) >= self.limit.load(Ordering::Relaxed)
    }

    fn limit_error(&self, entry: &Entry) -> ProjectionError {
        self.limit_errors.fetch_add(1, Ordering::Relaxed);
        let (key, limit) = (entry.key().clone(), self.limit.load(Ordering::Relaxed));
        let error = ProjectionError::LimitReached { key, type_name: self.type_name, limit };
        if !self.limit_error_reported.swap(true, Ordering::Relaxed) {
            (self.report)(&error);
        }
        error
    }

    fn record_decode_error(&self, error: &DecodeError) {
        self.decode_errors.fetch_add(1, Ordering::Relaxed);
        if !self.decode_error_reported.swap(true, Ordering::Relaxed) {
            (self.report)(&ProjectionError::Decode(error.clone()));
        }
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
        self.usage.registrations.fetch_sub(1, Ordering::Relaxed);
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
        self.usage.registrations.load(Ordering::Relaxed) == 0
    }
}

/// The memory that a kept value takes besides the value: the node in the list of the entry, and `Projected`.
const VALUE_OVERHEAD: usize = 72;

/// The number of panics after which a type is not decoded any more, so that the panic hook of the program does
/// not print one message per object.
const MAX_PANICS: u32 = 10;

/// Returns the value of an entry; decodes and keeps it if there is none.
#[inline]
fn project<'a, P: DeserializeOwned + Send + Sync + 'static>(
    usage: &Arc<Usage>,
    entry: &'a Entry,
) -> Result<&'a P, ProjectionError> {
    let projected = match entry.kept.get::<Projected<P>>() {
        Some(projected) => projected,
        None => prepare(usage, entry).ok_or_else(|| usage.limit_error(entry))?,
    };
    projected.value.as_ref().map_err(|error| ProjectionError::Decode((**error).clone()))
}

/// Decodes and keeps the value of an entry; `None` if the values have reached their limit.
#[cold]
fn prepare<'a, P: DeserializeOwned + Send + Sync + 'static>(
    usage: &Arc<Usage>,
    entry: &'a Entry,
) -> Option<&'a Projected<P>> {
    if usage.is_at_limit() {
        return None;
    }
    let value = decode::<Measured<P>>(usage, entry).map_err(|error| {
        let error = DecodeError { type_name: usage.type_name, ..error };
        usage.record_decode_error(&error);
        Box::new(error)
    });
    Some(keep(usage, entry, value))
}

/// Keeps the value of an entry, or why there is none.
fn keep<'a, P: Send + Sync + 'static>(
    usage: &Arc<Usage>,
    entry: &'a Entry,
    value: Result<Measured<P>, Box<DecodeError>>,
) -> &'a Projected<P> {
    let (value, size) = match value {
        Ok(Measured { value, size }) => (Ok(value), size),
        Err(error) => {
            let size = size_of::<DecodeError>() + error.field_path.len() + error.message.len();
            (Err(error), size)
        }
    };
    let size = size.saturating_add(VALUE_OVERHEAD);
    usage.bytes.fetch_add(size, Ordering::Relaxed);
    usage.values.fetch_add(1, Ordering::Relaxed);
    let usage = Arc::clone(usage);
    entry.kept.get_or_add(Projected { value, size, usage })
}

/// Gives a rewritten entry its value. If the old entry has one, neither the limit nor an error counts again.
fn carry_over<P: DeserializeOwned + Send + Sync + 'static>(usage: &Arc<Usage>, old: &Entry, new: &Entry) {
    match old.kept.get::<Projected<P>>().map(|projected| &projected.value) {
        Some(Ok(_)) => {
            keep(usage, new, decode::<Measured<P>>(usage, new).map_err(Box::new));
        }
        Some(Err(error)) => {
            keep::<P>(usage, new, Err(error.clone()));
        }
        None => {
            prepare::<P>(usage, new);
        }
    }
}

/// Decodes and keeps a whole object. If it does not decode, [`Object::typed`] returns the error and counts it.
fn decode_ahead<K: DeserializeOwned + Send + Sync + 'static>(usage: &Arc<Usage>, entry: &Entry) {
    if entry.keep == Keep::Everything
        && entry.kept.get::<Decoded<K>>().is_none()
        && let (Some(reservation), Ok(value)) = (entry.reserve(), decode::<K>(usage, entry))
    {
        entry.kept.get_or_add(Decoded::new(value, reservation));
    }
}

fn decode<T: DeserializeOwned>(usage: &Usage, entry: &Entry) -> Result<T, DecodeError> {
    let panicked = |message: &str| Err(entry.decode_error::<T>(String::new(), message.to_owned()));
    if usage.panics.load(Ordering::Relaxed) >= MAX_PANICS {
        return panicked("not decoded, because Deserialize panicked for other objects");
    }
    catch_unwind(AssertUnwindSafe(|| entry.decode())).unwrap_or_else(|_| {
        usage.panics.fetch_add(1, Ordering::Relaxed);
        panicked("its implementation of Deserialize panicked")
    })
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
    /// Returns the metrics of this projection.
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

impl fmt::Debug for DecodeAhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "decoding ahead as {}", self.registration.usage.type_name)
    }
}

impl fmt::Debug for Projections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.metrics().iter().map(|metrics| metrics.type_name)).finish()
    }
}
