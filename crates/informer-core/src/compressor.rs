//! What compresses the objects of one cache, and learns how.
//!
//! The first objects stay as they are and are copied; while it learns from them, others are compressed without a dictionary. What it learnt
//! is used for everything that comes later; what is in the cache already is rewritten by [`StoreWriter::install_recompressed`](crate::StoreWriter::install_recompressed). It
//! learns again, from all of the cache, when objects no longer shrink as they did; less is enough for that once the cache has grown far beyond what it
//! learnt from. Learning takes a while, so it happens where [`Compressor::train`] is called, and everything else goes on meanwhile.

use crate::object::Entry;
use crate::retention::{Codec, Samples, SizeTotals, StoredBytes};
use crate::store::StoreSnapshot;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// So many objects of a cache are learnt from, when there is time.
const MAX_TRAINING_OBJECTS: usize = 512;
/// So many objects say how well others shrink.
const RATIO_WINDOW_OBJECTS: usize = 512;
/// It learns again when objects take a quarter more than they did.
const DEGRADED_PERCENT: usize = 80;
/// What was learnt takes the place of what was known if objects take a tenth less.
const REPLACE_PERCENT: usize = 90;
/// It looks whether to learn again when the cache is so many times as large as it was.
const GROWTH_FACTOR: usize = 8;
/// Growth is a reason to learn while too few were learnt from, or if objects take a ninth more than they did.
const STEADY_PERCENT: usize = 90;
/// A cache of fewer objects is not worth learning again for.
const MIN_RETRAIN_OBJECTS: usize = 64;

/// Compresses the objects of one cache. Shared by all that feed it.
///
/// ```
/// use informer_core::{Compressor, Scope, StoreWriter};
///
/// let (_, reader) = StoreWriter::new([Scope::All]);
/// let compressor = Compressor::with_training();
/// assert!(!compressor.needs_training(&reader.snapshot()), "there is nothing to learn from");
/// ```
pub struct Compressor {
    state: Mutex<State>,
    /// What compresses while there is no dictionary.
    untrained_codec: Codec,
    /// Called when there may be something to learn.
    hook: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

struct State {
    /// None until the first dictionary.
    codec: Option<Arc<Codec>>,
    phase: Phase,
    /// How the newest objects shrank.
    recent: SizeTotals,
    /// So many objects make a window. Grows when learning again was in vain.
    window: usize,
    /// How objects shrank when it learnt.
    expected: SizeTotals,
    /// How all objects have shrunk since it learnt.
    since: SizeTotals,
    /// How many objects there were when it learnt, and whether those were enough to go by.
    trained_objects: usize,
    trained_on_full_sample: bool,
    /// Whether objects no longer shrink as they did.
    ratio_degraded: bool,
}

enum Phase {
    /// Nothing is ever learnt.
    Disabled,
    /// The first objects are copied.
    Sampling(Samples),
    /// Somebody is at it.
    Training,
    Trained,
}

impl Compressor {
    /// One that learns from what it is given.
    pub fn with_training() -> Self {
        Self::new(None, Phase::Sampling(Samples::default()))
    }

    /// One that never learns: a dictionary quotes the objects it was learnt from, so nothing may be learnt from secrets.
    pub fn without_training() -> Self {
        Self::new(Some(Arc::new(Codec::without_dictionary())), Phase::Disabled)
    }

    fn new(coder: Option<Arc<Codec>>, phase: Phase) -> Self {
        let (recent, expected) = (SizeTotals::default(), SizeTotals::default());
        let state = State {
            codec: coder,
            phase,
            recent,
            window: RATIO_WINDOW_OBJECTS,
            expected,
            since: recent,
            trained_objects: 0,
            trained_on_full_sample: false,
            ratio_degraded: false,
        };
        Self { state: Mutex::new(state), untrained_codec: Codec::without_dictionary(), hook: OnceLock::new() }
    }

    /// Has this called whenever there may be something to learn. Only the first counts. It must not wait for anything.
    pub fn on_training_needed(&self, hook: impl Fn() + Send + Sync + 'static) {
        let _ = self.hook.set(Box::new(hook));
    }

    /// The same entry as the cache is to keep it.
    pub fn compress(&self, entry: Entry) -> Entry {
        let Some(coder) = self.codec() else {
            // A list may bring thousands while the first dictionary is learnt: they would be the peak of its memory.
            let enough = !self.add_sample(&entry);
            return if enough {
                entry.with_stored(|plain| StoredBytes::Compressed(self.untrained_codec.compress(plain)))
            } else {
                entry
            };
        };
        let plain = entry.stored().len();
        let entry = entry.with_stored(|plain| StoredBytes::Compressed(coder.compress(plain)));
        self.record_sizes(plain, entry.stored().len());
        entry
    }

    /// Whether [`Compressor::train`] should be called, for a cache of which this is the newest state.
    pub fn needs_training(&self, cached: &StoreSnapshot) -> bool {
        let state = self.lock();
        match &state.phase {
            Phase::Disabled | Phase::Training => false,
            Phase::Sampling(samples) => samples.is_full() || (samples.len() > 0 && cached.has_synced()),
            Phase::Trained => {
                let grown = cached.len() >= state.trained_objects.saturating_mul(GROWTH_FACTOR);
                let steady = state.trained_on_full_sample
                    && !state.expected.is_smaller_than_percent(STEADY_PERCENT, &state.since);
                cached.len() >= MIN_RETRAIN_OBJECTS && (state.ratio_degraded || (grown && !steady))
            }
        }
    }

    /// Learns, from the first objects or from all over the cache; returns whether anything in the cache can be rewritten for it. It takes
    /// a while.
    pub fn train(&self, cached: &StoreSnapshot) -> bool {
        let Some((samples, known)) = self.begin(cached) else { return false };
        let learnt = Codec::train(&samples);
        let share_of = |coder: &Codec| coder.measure(samples.held_out());
        let new = match (&known, learnt) {
            (None, learnt) => Some(learnt.unwrap_or_else(Codec::without_dictionary)),
            (Some(known), learnt) => learnt
                .filter(|learnt| share_of(learnt).is_smaller_than_percent(REPLACE_PERCENT, &share_of(known))),
        };
        let changed = new.is_some();
        let coder = new.map(Arc::new).or(known);
        let expected = coder.as_deref().map(share_of).unwrap_or_default();
        let mut state = self.lock();
        state.window = if changed { RATIO_WINDOW_OBJECTS } else { state.window.saturating_mul(2) };
        (state.codec, state.expected) = (coder, expected);
        (state.trained_objects, state.trained_on_full_sample) =
            (samples.len().max(cached.len()), samples.is_full());
        (state.recent, state.since, state.ratio_degraded) =
            (SizeTotals::default(), SizeTotals::default(), false);
        state.phase = Phase::Trained;
        changed
    }

    /// Says that learning came to nothing, and is not to be tried again: objects are compressed with what there is, or by themselves.
    pub fn disable_training(&self) {
        let mut state = self.lock();
        state.codec.get_or_insert_with(|| Arc::new(Codec::without_dictionary()));
        state.phase = Phase::Disabled;
    }

    /// Whether an entry is as [`Compressor::compress`] would leave it now.
    pub fn is_current(&self, entry: &Entry) -> bool {
        self.codec().is_none_or(|coder| uses(entry, &coder))
    }

    /// An equal entry as [`Compressor::compress`] would leave it now; `None` if this one is like that already, or damaged.
    pub fn recompressed(&self, entry: &Arc<Entry>) -> Option<Arc<Entry>> {
        let coder = self.codec().filter(|coder| !uses(entry, coder))?;
        entry.recompressed(|plain| StoredBytes::Compressed(coder.compress(plain))).map(Arc::new)
    }

    /// What to learn from, and what is known.
    fn begin(&self, cached: &StoreSnapshot) -> Option<(Samples, Option<Arc<Codec>>)> {
        let mut state = self.lock();
        let gathered = match std::mem::replace(&mut state.phase, Phase::Training) {
            Phase::Sampling(samples) => Some(samples),
            Phase::Trained => None,
            other @ (Phase::Disabled | Phase::Training) => {
                state.phase = other;
                return None;
            }
        };
        let known = state.codec.clone();
        drop(state);
        Some((gathered.unwrap_or_else(|| sample_store(cached)), known))
    }

    /// Copies one of the first objects; returns whether it did.
    fn add_sample(&self, entry: &Entry) -> bool {
        let mut state = self.lock();
        let Phase::Sampling(samples) = &mut state.phase else { return false };
        if samples.is_full() {
            return false;
        }
        samples.add(&entry.bytes());
        let full = samples.is_full();
        drop(state);
        if full {
            self.call_hook();
        }
        true
    }

    /// Notes how an object shrank.
    fn record_sizes(&self, plain: usize, packed: usize) {
        let mut state = self.lock();
        state.recent.add(plain, packed);
        state.since.add(plain, packed);
        if state.recent.objects < state.window || !matches!(state.phase, Phase::Trained) {
            return;
        }
        let recent = std::mem::take(&mut state.recent);
        let decayed =
            state.expected.objects > 0 && state.expected.is_smaller_than_percent(DEGRADED_PERCENT, &recent);
        let news = decayed && !state.ratio_degraded;
        state.ratio_degraded |= decayed;
        drop(state);
        if news {
            self.call_hook();
        }
    }

    fn call_hook(&self) {
        if let Some(hook) = self.hook.get() {
            hook();
        }
    }

    fn codec(&self) -> Option<Arc<Codec>> {
        self.lock().codec.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn uses(entry: &Entry, coder: &Codec) -> bool {
    matches!(entry.stored(), StoredBytes::Compressed(packed) if packed.uses(coder))
}

/// Objects from all over a cache.
fn sample_store(cached: &StoreSnapshot) -> Samples {
    let mut samples = Samples::default();
    let step = cached.len().div_ceil(MAX_TRAINING_OBJECTS).max(1);
    cached.list().step_by(step).for_each(|entry| samples.add(&entry.bytes()));
    samples
}

/// How far it is; nothing of what it learnt.
impl fmt::Debug for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.lock().phase {
            Phase::Disabled => "never learns",
            Phase::Sampling(_) => "gathers",
            Phase::Training => "learns",
            Phase::Trained => "has learnt",
        })
    }
}
