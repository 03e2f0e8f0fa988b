//! What compresses the objects of one cache, and learns how.
//!
//! The first objects stay as they are and are copied; while it learns from them, others are compressed without a dictionary. What it learnt
//! is used for everything that comes later; what is in the cache already is rewritten by [`StoreWriter::rewrite`](crate::StoreWriter::rewrite). It
//! learns again, from all of the cache, when objects no longer shrink as they did; less is enough for that once the cache has grown far beyond what it
//! learnt from. Learning takes a while, so it happens where [`Compressor::learn`] is called, and everything else goes on meanwhile.

use crate::object::Entry;
use crate::retention::{Coder, Kept, Samples, Share};
use crate::store::StoreSnapshot;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// So many objects of a cache are learnt from, when there is time.
const LESSONS: usize = 512;
/// So many objects say how well others shrink.
const WINDOW: usize = 512;
/// It learns again when objects take a quarter more than they did.
const DECAYED: usize = 80;
/// What was learnt takes the place of what was known if objects take a tenth less.
const BETTER: usize = 90;
/// It looks whether to learn again when the cache is so many times as large as it was.
const GROWN: usize = 8;
/// Growth is a reason to learn while too few were learnt from, or if objects take a ninth more than they did.
const STEADY: usize = 90;
/// A cache of fewer objects is not worth learning again for.
const FEWEST: usize = 64;

/// Compresses the objects of one cache. Shared by all that feed it.
///
/// ```
/// use informer_core::{Compressor, Scope, StoreWriter};
///
/// let (_, reader) = StoreWriter::new([Scope::All]);
/// let compressor = Compressor::learning();
/// assert!(!compressor.is_due(&reader.snapshot()), "there is nothing to learn from");
/// ```
pub struct Compressor {
    state: Mutex<State>,
    /// What compresses while there is no dictionary.
    interim: Coder,
    /// Called when there may be something to learn.
    hook: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

struct State {
    /// None until the first dictionary.
    coder: Option<Arc<Coder>>,
    phase: Phase,
    /// How the newest objects shrank.
    recent: Share,
    /// So many objects make a window. Grows when learning again was in vain.
    window: usize,
    /// How objects shrank when it learnt.
    expected: Share,
    /// How all objects have shrunk since it learnt.
    since: Share,
    /// How many objects there were when it learnt, and whether those were enough to go by.
    learnt_from: usize,
    enough: bool,
    /// Whether objects no longer shrink as they did.
    decayed: bool,
}

enum Phase {
    /// Nothing is ever learnt.
    Never,
    /// The first objects are copied.
    Gathering(Samples),
    /// Somebody is at it.
    Learning,
    Learnt,
}

impl Compressor {
    /// One that learns from what it is given.
    pub fn learning() -> Self {
        Self::new(None, Phase::Gathering(Samples::default()))
    }

    /// One that never learns: a dictionary quotes the objects it was learnt from, so nothing may be learnt from secrets.
    pub fn unlearning() -> Self {
        Self::new(Some(Arc::new(Coder::without_dictionary())), Phase::Never)
    }

    fn new(coder: Option<Arc<Coder>>, phase: Phase) -> Self {
        let (recent, expected) = (Share::default(), Share::default());
        let state = State {
            coder,
            phase,
            recent,
            window: WINDOW,
            expected,
            since: recent,
            learnt_from: 0,
            enough: false,
            decayed: false,
        };
        Self { state: Mutex::new(state), interim: Coder::without_dictionary(), hook: OnceLock::new() }
    }

    /// Has this called whenever there may be something to learn. Only the first counts. It must not wait for anything.
    pub fn on_due(&self, hook: impl Fn() + Send + Sync + 'static) {
        let _ = self.hook.set(Box::new(hook));
    }

    /// The same entry as the cache is to keep it.
    pub fn compress(&self, entry: Entry) -> Entry {
        let Some(coder) = self.coder() else {
            // A list may bring thousands while the first dictionary is learnt: they would be the peak of its memory.
            let enough = !self.gather(&entry);
            return if enough { entry.packed(|plain| Kept::Packed(self.interim.pack(plain))) } else { entry };
        };
        let plain = entry.kept().len();
        let entry = entry.packed(|plain| Kept::Packed(coder.pack(plain)));
        self.note(plain, entry.kept().len());
        entry
    }

    /// Whether [`Compressor::learn`] should be called, for a cache of which this is the newest state.
    pub fn is_due(&self, cached: &StoreSnapshot) -> bool {
        let state = self.lock();
        match &state.phase {
            Phase::Never | Phase::Learning => false,
            Phase::Gathering(samples) => samples.is_full() || (samples.len() > 0 && cached.is_synced()),
            Phase::Learnt => {
                let grown = cached.len() >= state.learnt_from.saturating_mul(GROWN);
                let steady = state.enough && !state.expected.is_below(STEADY, &state.since);
                cached.len() >= FEWEST && (state.decayed || (grown && !steady))
            }
        }
    }

    /// Learns, from the first objects or from all over the cache; returns whether anything in the cache can be rewritten for it. It takes
    /// a while.
    pub fn learn(&self, cached: &StoreSnapshot) -> bool {
        let Some((samples, known)) = self.begin(cached) else { return false };
        let learnt = Coder::learn(&samples);
        let share_of = |coder: &Coder| coder.share(samples.held_out());
        let new = match (&known, learnt) {
            (None, learnt) => Some(learnt.unwrap_or_else(Coder::without_dictionary)),
            (Some(known), learnt) => {
                learnt.filter(|learnt| share_of(learnt).is_below(BETTER, &share_of(known)))
            }
        };
        let changed = new.is_some();
        let coder = new.map(Arc::new).or(known);
        let expected = coder.as_deref().map(share_of).unwrap_or_default();
        let mut state = self.lock();
        state.window = if changed { WINDOW } else { state.window.saturating_mul(2) };
        (state.coder, state.expected) = (coder, expected);
        (state.learnt_from, state.enough) = (samples.len().max(cached.len()), samples.is_full());
        (state.recent, state.since, state.decayed) = (Share::default(), Share::default(), false);
        state.phase = Phase::Learnt;
        changed
    }

    /// Says that learning came to nothing, and is not to be tried again: objects are compressed with what there is, or by themselves.
    pub fn give_up(&self) {
        let mut state = self.lock();
        state.coder.get_or_insert_with(|| Arc::new(Coder::without_dictionary()));
        state.phase = Phase::Never;
    }

    /// Whether an entry is as [`Compressor::compress`] would leave it now.
    pub fn is_current(&self, entry: &Entry) -> bool {
        self.coder().is_none_or(|coder| is_by(entry, &coder))
    }

    /// An equal entry as [`Compressor::compress`] would leave it now; `None` if this one is like that already, or damaged.
    pub fn rewritten(&self, entry: &Arc<Entry>) -> Option<Arc<Entry>> {
        let coder = self.coder().filter(|coder| !is_by(entry, coder))?;
        entry.rewritten(|plain| Kept::Packed(coder.pack(plain))).map(Arc::new)
    }

    /// What to learn from, and what is known.
    fn begin(&self, cached: &StoreSnapshot) -> Option<(Samples, Option<Arc<Coder>>)> {
        let mut state = self.lock();
        let gathered = match std::mem::replace(&mut state.phase, Phase::Learning) {
            Phase::Gathering(samples) => Some(samples),
            Phase::Learnt => None,
            other @ (Phase::Never | Phase::Learning) => {
                state.phase = other;
                return None;
            }
        };
        let known = state.coder.clone();
        drop(state);
        Some((gathered.unwrap_or_else(|| all_over(cached)), known))
    }

    /// Copies one of the first objects; returns whether it did.
    fn gather(&self, entry: &Entry) -> bool {
        let mut state = self.lock();
        let Phase::Gathering(samples) = &mut state.phase else { return false };
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
    fn note(&self, plain: usize, packed: usize) {
        let mut state = self.lock();
        state.recent.add(plain, packed);
        state.since.add(plain, packed);
        if state.recent.objects < state.window || !matches!(state.phase, Phase::Learnt) {
            return;
        }
        let recent = std::mem::take(&mut state.recent);
        let decayed = state.expected.objects > 0 && state.expected.is_below(DECAYED, &recent);
        let news = decayed && !state.decayed;
        state.decayed |= decayed;
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

    fn coder(&self) -> Option<Arc<Coder>> {
        self.lock().coder.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_by(entry: &Entry, coder: &Coder) -> bool {
    matches!(entry.kept(), Kept::Packed(packed) if packed.is_by(coder))
}

/// Objects from all over a cache.
fn all_over(cached: &StoreSnapshot) -> Samples {
    let mut samples = Samples::default();
    let step = cached.len().div_ceil(LESSONS).max(1);
    cached.list().step_by(step).for_each(|entry| samples.add(&entry.bytes()));
    samples
}

/// How far it is; nothing of what it learnt.
impl fmt::Debug for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.lock().phase {
            Phase::Never => "never learns",
            Phase::Gathering(_) => "gathers",
            Phase::Learning => "learns",
            Phase::Learnt => "has learnt",
        })
    }
}
