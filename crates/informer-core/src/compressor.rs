//! The compressor of one store, which trains its dictionary on the store's objects.
//!
//! Compression ratio means compressed size divided by plain size: smaller is better.
//!
//! The first objects stay uncompressed and are copied as samples. When there are enough samples, further
//! objects are compressed without a dictionary until the training ends. The dictionary is used for every
//! later object. Entries that are already in the store are replaced by recompressed ones, see
//! [`StoreWriter::install_rewritten`](crate::StoreWriter::install_rewritten).
//!
//! [`Compressor::needs_training`] asks for another training, on objects of the whole store, when the
//! compression ratio gets worse. Once the store has grown far beyond its size at the last training, a smaller
//! deterioration is enough. Training is slow: it runs on the thread that calls [`Compressor::train`] and
//! blocks nothing else.

use crate::object::Entry;
#[cfg(feature = "persistence")]
use crate::retention::SavedDictionary;
use crate::retention::{Codec, Samples, SizeTotals, StoredBytes};
use crate::store::StoreSnapshot;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Maximum number of objects sampled from the store to train a dictionary again.
const MAX_TRAINING_OBJECTS: usize = 512;
/// Minimum number of recent objects over which the compression ratio is measured.
const RATIO_WINDOW_OBJECTS: usize = 512;
/// The ratio is degraded if the expected compression ratio is below this percentage of the recent one:
/// objects take a quarter more memory than expected. A degraded ratio causes training.
const DEGRADED_PERCENT: usize = 80;
/// A new dictionary replaces the current one if its compression ratio is below this percentage of the current
/// one's: objects take a tenth less memory.
const REPLACE_PERCENT: usize = 90;
/// Factor by which the store must have grown since the last training before its growth can cause training.
const GROWTH_FACTOR: usize = 8;
/// A grown store causes training if the expected compression ratio is below this percentage of the ratio of
/// all objects since the last training: objects take a ninth more memory than expected. If the last training
/// had too few samples, growth alone causes training.
const STEADY_PERCENT: usize = 90;
/// Minimum number of objects in the store for training again.
const MIN_RETRAIN_OBJECTS: usize = 64;

/// The compressor of one store. Shared by all reflectors that feed the store.
///
/// ```
/// # use informer_core::{Compressor, Scope, StoreWriter};
///
/// let (_, reader) = StoreWriter::new([Scope::All]);
/// let compressor = Compressor::with_training();
/// assert!(!compressor.needs_training(&reader.snapshot()), "there are no samples");
/// ```
pub struct Compressor {
    state: Mutex<State>,
    /// The codec in use until there is a dictionary.
    untrained_codec: Codec,
    /// The callback for when training may be needed.
    hook: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

struct State {
    /// Compresses further objects, with the current dictionary or without any; `None` until the first
    /// training has ended.
    codec: Option<Arc<Codec>>,
    phase: Phase,
    /// The sizes of the objects compressed since `recent` was last evaluated.
    recent: SizeTotals,
    /// Number of objects after which `recent` is evaluated. Doubles each time training does not yield a
    /// better dictionary.
    window: usize,
    /// The sizes of the held-out samples (not used by the last training), compressed by `codec`.
    expected: SizeTotals,
    /// The sizes of all objects compressed since the last training.
    since_training: SizeTotals,
    /// Number of objects in the store at the last training, or of samples if there were more.
    trained_objects: usize,
    /// Whether the last training had enough samples.
    trained_on_full_sample: bool,
    /// Whether recent objects compress considerably worse than expected.
    ratio_degraded: bool,
}

enum Phase {
    /// Training is never started.
    Disabled,
    /// The first objects are copied as samples.
    Sampling(Samples),
    /// A thread is training.
    Training,
    Trained,
}

impl Compressor {
    /// Creates a compressor that trains on the objects it compresses.
    pub fn with_training() -> Self {
        Self::new(None, Phase::Sampling(Samples::default()))
    }

    /// Creates a compressor that never trains. Required for secrets, because a dictionary contains parts of
    /// the objects it was trained on.
    pub fn without_training() -> Self {
        Self::new(Some(Arc::new(Codec::without_dictionary())), Phase::Disabled)
    }

    /// Continues with a dictionary that was saved, instead of training one on the first objects. Has no effect
    /// if training has begun or is disabled, or if the bytes are not a dictionary.
    #[cfg(feature = "persistence")]
    pub fn restore(&self, dictionary: &SavedDictionary, objects: usize) {
        let mut state = self.lock();
        if matches!(state.phase, Phase::Sampling(_)) {
            state.codec = Some(Arc::clone(&dictionary.0));
            state.phase = Phase::Trained;
            (state.trained_objects, state.trained_on_full_sample) = (objects, true);
        }
    }

    fn new(codec: Option<Arc<Codec>>, phase: Phase) -> Self {
        let (recent, expected) = (SizeTotals::default(), SizeTotals::default());
        let state = State {
            codec,
            phase,
            recent,
            window: RATIO_WINDOW_OBJECTS,
            expected,
            since_training: recent,
            trained_objects: 0,
            trained_on_full_sample: false,
            ratio_degraded: false,
        };
        Self { state: Mutex::new(state), untrained_codec: Codec::without_dictionary(), hook: OnceLock::new() }
    }

    /// Sets the callback for when training may be needed. Only the first call has an effect. The callback
    /// must not block.
    pub fn on_training_needed(&self, hook: impl Fn() + Send + Sync + 'static) {
        let _ = self.hook.set(Box::new(hook));
    }

    /// Returns the entry in the representation in which the store keeps it.
    pub fn compress(&self, entry: Entry) -> Entry {
        let Some(codec) = self.codec() else {
            if self.add_sample(&entry) {
                return entry;
            }
            // A list may deliver thousands of objects before the first dictionary is trained. Uncompressed,
            // they would determine the peak memory.
            return entry.with_stored(|plain| StoredBytes::Compressed(self.untrained_codec.compress(plain)));
        };
        let plain_len = entry.stored().len();
        let entry = entry.with_stored(|plain| StoredBytes::Compressed(codec.compress(plain)));
        self.record_sizes(plain_len, entry.stored().len());
        entry
    }

    /// Returns whether [`Compressor::train`] should be called for the store with this newest snapshot.
    pub fn needs_training(&self, snapshot: &StoreSnapshot) -> bool {
        let state = self.lock();
        match &state.phase {
            Phase::Disabled | Phase::Training => false,
            Phase::Sampling(samples) => samples.is_full() || (samples.len() > 0 && snapshot.has_synced()),
            Phase::Trained => {
                let has_grown = snapshot.len() >= state.trained_objects.saturating_mul(GROWTH_FACTOR);
                let is_steady = state.trained_on_full_sample
                    && !state.expected.is_smaller_than_percent(STEADY_PERCENT, &state.since_training);
                snapshot.len() >= MIN_RETRAIN_OBJECTS && (state.ratio_degraded || (has_grown && !is_steady))
            }
        }
    }

    /// Trains a dictionary on the first objects, or on objects of the whole store; returns whether there
    /// is a new codec, with which entries can be recompressed.
    ///
    /// Training is slow. Returns `false` if the new dictionary is not considerably better than the current
    /// one, and immediately if training is disabled or in progress.
    pub fn train(&self, snapshot: &StoreSnapshot) -> bool {
        let Some((samples, current)) = self.begin_training(snapshot) else { return false };
        let trained = Codec::train(&samples);
        let measure = |codec: &Codec| codec.measure(samples.held_out());
        let new = match (&current, trained) {
            (None, trained) => Some(trained.unwrap_or_else(Codec::without_dictionary)),
            (Some(current), trained) => trained.filter(|trained| {
                measure(trained).is_smaller_than_percent(REPLACE_PERCENT, &measure(current))
            }),
        };
        let replaced = new.is_some();
        let codec = new.map(Arc::new).or(current);
        let expected = codec.as_deref().map(measure).unwrap_or_default();
        let mut state = self.lock();
        state.window = if replaced { RATIO_WINDOW_OBJECTS } else { state.window.saturating_mul(2) };
        (state.codec, state.expected) = (codec, expected);
        (state.trained_objects, state.trained_on_full_sample) =
            (samples.len().max(snapshot.len()), samples.is_full());
        (state.recent, state.since_training, state.ratio_degraded) =
            (SizeTotals::default(), SizeTotals::default(), false);
        state.phase = Phase::Trained;
        replaced
    }

    /// Disables training after a failure. Objects are compressed with the current codec, or without a
    /// dictionary.
    pub fn disable_training(&self) {
        let mut state = self.lock();
        state.codec.get_or_insert_with(|| Arc::new(Codec::without_dictionary()));
        state.phase = Phase::Disabled;
    }

    /// Returns whether the entry was stored by the current codec; `true` until the first training has ended.
    pub fn is_current(&self, entry: &Entry) -> bool {
        self.codec().is_none_or(|codec| is_stored_by(entry, &codec))
    }

    /// Returns an equal entry that is stored by the current codec. `None` if `entry` already is, if its bytes
    /// are corrupted, or if the first training has not ended.
    pub fn recompressed(&self, entry: &Arc<Entry>) -> Option<Arc<Entry>> {
        let codec = self.codec().filter(|codec| !is_stored_by(entry, codec))?;
        entry.recompressed(|plain| StoredBytes::Compressed(codec.compress(plain))).map(Arc::new)
    }

    /// Enters the training phase; returns the samples and the current codec, or `None` if training cannot
    /// start.
    fn begin_training(&self, snapshot: &StoreSnapshot) -> Option<(Samples, Option<Arc<Codec>>)> {
        let mut state = self.lock();
        let collected = match std::mem::replace(&mut state.phase, Phase::Training) {
            Phase::Sampling(samples) => Some(samples),
            Phase::Trained => None,
            other @ (Phase::Disabled | Phase::Training) => {
                state.phase = other;
                return None;
            }
        };
        let current = state.codec.clone();
        drop(state);
        Some((collected.unwrap_or_else(|| sample_store(snapshot)), current))
    }

    /// Copies an object as a sample. Returns `false` without copying if sampling has ended.
    fn add_sample(&self, entry: &Entry) -> bool {
        let mut state = self.lock();
        let Phase::Sampling(samples) = &mut state.phase else { return false };
        if samples.is_full() {
            return false;
        }
        samples.add(&entry.bytes());
        let is_full = samples.is_full();
        drop(state);
        if is_full {
            self.call_hook();
        }
        true
    }

    /// Records the sizes of an object before and after compression.
    fn record_sizes(&self, plain_len: usize, compressed_len: usize) {
        let mut state = self.lock();
        state.recent.add(plain_len, compressed_len);
        state.since_training.add(plain_len, compressed_len);
        if state.recent.objects < state.window || !matches!(state.phase, Phase::Trained) {
            return;
        }
        let recent = std::mem::take(&mut state.recent);
        let is_degraded =
            state.expected.objects > 0 && state.expected.is_smaller_than_percent(DEGRADED_PERCENT, &recent);
        let newly_degraded = is_degraded && !state.ratio_degraded;
        state.ratio_degraded |= is_degraded;
        drop(state);
        if newly_degraded {
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

fn is_stored_by(entry: &Entry, codec: &Codec) -> bool {
    matches!(entry.stored(), StoredBytes::Compressed(compressed) if compressed.uses(codec))
}

/// Samples objects evenly from the whole store.
fn sample_store(snapshot: &StoreSnapshot) -> Samples {
    let mut samples = Samples::default();
    let step = snapshot.len().div_ceil(MAX_TRAINING_OBJECTS).max(1);
    snapshot.list().step_by(step).for_each(|entry| samples.add(&entry.bytes()));
    samples
}

/// Prints the phase only: samples and dictionary contain parts of objects.
impl fmt::Debug for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.lock().phase {
            Phase::Disabled => "training disabled",
            Phase::Sampling(_) => "sampling",
            Phase::Training => "training",
            Phase::Trained => "trained",
        })
    }
}
