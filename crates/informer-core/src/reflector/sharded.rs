//! A reflector whose hash ranges change while it runs.
//!
//! One reflector, the main one, lists and watches all ranges that are complete. When ranges are gained, a second one
//! lists them, and applies what happens meanwhile to that list. As soon as the main reflector has no list under way, the
//! list is passed to the store, and the main reflector continues for these ranges, too. So there are at most two
//! watches, and nothing is listed again because other ranges have moved.
//!
//! The deltas of both are passed on in one order: those of a range follow its list and precede its release.
//!
//! Invariants: the ranges of the two reflectors have no hash in common, and are among the ranges that are held. Without
//! sharding there is only the main reflector.

use super::cached::SavedScope;
use super::config::Config;
use super::detached::DetachedState;
use super::failure::{Failure, ResponseHead};
use super::machine::Reflector;
use super::out::Action;
use super::request::StreamId;
use super::state::{InformerState, ReflectorCounters};
use crate::delta::{Delta, Replaced};
use crate::object::Entry;
use crate::shard::HashRanges;
use crate::store::StoreReader;
use crate::time::Moment;
use crate::version::ResourceVersion;
use crate::wire::UnreadableObject;
use std::collections::VecDeque;
use std::sync::Arc;

/// Number of stream ids of each reflector.
const STREAMS_PER_REFLECTOR: u64 = 1 << 32;

/// The state machine that lists and watches one scope of a resource, or some hash ranges of it, and emits deltas.
#[derive(Debug)]
pub struct ShardedReflector {
    /// With the ranges that are held.
    config: Config,
    seed: u64,
    store: Option<StoreReader>,
    /// `None` if no range is complete, and without sharding never.
    main: Option<Reflector>,
    gaining: Option<Gaining>,
    /// Number of reflectors that were created.
    created: u64,
    run: RunState,
    /// Whether an initial list was emitted; without ranges, it is empty.
    has_initial_list: bool,
    prefers_lists: bool,
    deltas: VecDeque<Delta>,
    actions: VecDeque<Action>,
    /// The counters of reflectors that have ended.
    ended: ReflectorCounters,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RunState {
    Idle,
    Started,
    Stopped,
}

/// The reflector of ranges that are not in the store yet.
#[derive(Debug)]
struct Gaining {
    reflector: Reflector,
    /// The list and the changes since; `None` until it is complete.
    list: Option<DetachedState>,
    /// The newest version that the main reflector had received before the list was requested. The list is consistent, so it
    /// is not older unless the server was restored from a backup.
    known: Option<ResourceVersion>,
}

impl ShardedReflector {
    /// Creates a reflector that has not started. With sharding (`config.shard`), it begins without ranges.
    ///
    /// `seed` determines the jitter. `store` is the cache that the reflector feeds, if there is one.
    pub fn new(mut config: Config, seed: u64, store: Option<StoreReader>) -> Self {
        config.shard = config.shard.map(|shard| shard.with_ranges(HashRanges::default()));
        let is_sharded = config.shard.is_some();
        let main = (!is_sharded).then(|| Reflector::new(config.clone(), seed, store.clone()));
        Self {
            config,
            seed,
            store,
            main,
            gaining: None,
            created: 1,
            run: RunState::Idle,
            has_initial_list: false,
            prefers_lists: false,
            deltas: VecDeque::new(),
            actions: VecDeque::new(),
            ended: ReflectorCounters::default(),
        }
    }

    /// Sets a saved state to start from; see [`Reflector::restore`]. Has no effect with sharding.
    pub fn restore(&mut self, saved: SavedScope) {
        if let Some(main) = &mut self.main {
            main.restore(saved);
        }
    }

    /// Starts the reflector. Later calls have no effect.
    pub fn start(&mut self, now: Moment) {
        if self.run == RunState::Idle {
            self.run = RunState::Started;
        }
        if let Some(main) = &mut self.main {
            main.start(now);
        }
        self.advance(now);
    }

    /// Stops the reflector. Later input is ignored.
    pub fn stop(&mut self) {
        self.run = RunState::Stopped;
        for reflector in self.reflectors_mut() {
            reflector.stop();
        }
    }

    /// Sets the ranges that are held. Ranges that are not among them leave the store; others are listed.
    ///
    /// `is_settled` if no further ranges are expected: without any range, an empty initial list is then complete.
    pub fn set_ranges(&mut self, now: Moment, held: &HashRanges, is_settled: bool) {
        let Some(shard) = &mut self.config.shard else { return };
        if self.run == RunState::Stopped {
            return;
        }
        *shard = shard.with_ranges(held.clone());
        if let Some(main) = self.main.take() {
            self.main = self.without_released(now, main, held);
        }
        if let Some(Gaining { reflector, mut list, known }) = self.gaining.take() {
            let reflector = self.without_released(now, reflector, held);
            self.gaining = reflector.map(|mut reflector| {
                collect(&mut reflector, &mut list);
                Gaining { reflector, list, known }
            });
        }
        if is_settled && held.is_empty() && !self.has_initial_list {
            self.has_initial_list = true;
            self.deltas.push_back(Delta::Replaced(Replaced {
                scope: self.config.scope.clone(),
                version: ResourceVersion::new("0"),
                entries: Vec::new(),
                unreadable: Vec::new(),
                audit: false,
            }));
        }
        self.advance(now);
    }

    /// Handles the headers of a response.
    pub fn handle_response(&mut self, now: Moment, id: StreamId, head: ResponseHead) {
        self.with_reflector_of(now, id, |reflector| reflector.handle_response(now, id, head));
    }

    /// Handles a part of a body.
    pub fn handle_bytes(&mut self, now: Moment, id: StreamId, chunk: &[u8]) {
        self.with_reflector_of(now, id, |reflector| reflector.handle_bytes(now, id, chunk));
    }

    /// Handles the regular end of a body.
    pub fn handle_end(&mut self, now: Moment, id: StreamId) {
        self.with_reflector_of(now, id, |reflector| reflector.handle_end(now, id));
    }

    /// Handles a request that could not be sent, or whose response was interrupted.
    pub fn handle_error(&mut self, now: Moment, id: StreamId, failure: Failure) {
        self.with_reflector_of(now, id, |reflector| reflector.handle_error(now, id, failure));
    }

    /// Handles the passing of time. Must be called at [`next_deadline`](Self::next_deadline); earlier calls have no
    /// effect.
    pub fn handle_timeout(&mut self, now: Moment) {
        for reflector in self.reflectors_mut() {
            reflector.handle_timeout(now);
        }
        self.advance(now);
    }

    /// Returns the deltas for the delta FIFO, in order; see [`Reflector::deltas`].
    pub fn deltas(&mut self) -> &mut VecDeque<Delta> {
        match &mut self.main {
            Some(main) if self.config.shard.is_none() => main.deltas(),
            _ => &mut self.deltas,
        }
    }

    /// Removes and returns the next action; see [`Reflector::poll_action`].
    pub fn poll_action(&mut self) -> Option<Action> {
        let own = self.actions.pop_front();
        own.or_else(|| self.reflectors_mut().find_map(Reflector::poll_action))
    }

    /// Returns the moment at which [`handle_timeout`](Self::handle_timeout) must be called.
    pub fn next_deadline(&self) -> Option<Moment> {
        self.reflectors().filter_map(Reflector::next_deadline).min()
    }

    /// Returns the state (C7). Ranges that are being gained do not count if others are complete.
    pub fn state(&self) -> InformerState {
        let gaining = self.gaining.as_ref().map(|gaining| gaining.reflector.state());
        match (self.main.as_ref().map(Reflector::state), gaining) {
            _ if self.run == RunState::Stopped => InformerState::Stopped,
            (Some(main), _) => main,
            (None, Some(InformerState::Connecting | InformerState::Listing { .. }) | None)
                if self.has_initial_list =>
            {
                InformerState::Live
            }
            (None, Some(gaining)) => gaining,
            (None, None) if self.run == RunState::Started => InformerState::Connecting,
            (None, None) => InformerState::NotStarted,
        }
    }

    /// Sets whether full lists are expected to arrive faster in lists; see [`Reflector::prefer_lists`].
    pub fn prefer_lists(&mut self, prefer: bool) {
        self.prefers_lists = prefer;
        self.reflectors_mut().for_each(|reflector| reflector.prefer_lists(prefer));
    }

    /// Returns whether the request is a list or watch-list that is open, not a watch.
    pub fn is_receiving_list(&self, id: StreamId) -> bool {
        let mut open = self.reflectors().filter(|reflector| reflector.current_stream() == Some(id));
        open.any(Reflector::is_receiving_list)
    }

    /// Returns the counters.
    pub fn counters(&self) -> ReflectorCounters {
        let mut counters = self.ended;
        self.reflectors().for_each(|reflector| counters += *reflector.counters());
        counters
    }

    /// Returns when response headers, a part of a list or a frame were last received.
    pub fn last_contact(&self) -> Option<Moment> {
        self.reflectors().filter_map(Reflector::last_contact).max()
    }

    /// Returns when the cache was last known to be up to date; `None` until it has synced, and without ranges.
    pub fn last_up_to_date(&self) -> Option<Moment> {
        self.main.as_ref().and_then(Reflector::last_up_to_date)
    }

    /// Returns the ranges whose objects are in the store; `None` without sharding.
    pub fn complete_ranges(&self) -> Option<HashRanges> {
        self.config.shard.as_ref()?;
        Some(self.main.as_ref().and_then(Reflector::selected_ranges).cloned().unwrap_or_default())
    }

    /// Panics if an invariant is violated. For tests and simulations.
    pub fn check_invariants(&self) {
        self.reflectors().for_each(Reflector::check_invariants);
        let Some(shard) = &self.config.shard else { return };
        let ranges: Vec<&HashRanges> = self.reflectors().filter_map(Reflector::selected_ranges).collect();
        assert!(ranges.iter().all(|ranges| ranges.is_subset(shard.ranges())), "only held ranges are watched");
        if let [main, gaining] = ranges[..] {
            assert!(gaining.iter().all(|range| !main.overlaps(range)), "no range is watched twice");
        }
    }

    /// Releases the ranges of a reflector that are not held any more; ends it if there are no others.
    fn without_released(
        &mut self,
        now: Moment,
        mut reflector: Reflector,
        held: &HashRanges,
    ) -> Option<Reflector> {
        let ranges = reflector.selected_ranges().cloned().unwrap_or_default();
        let released = ranges.difference(held);
        if released == ranges {
            self.end(reflector);
            if let Some(shard) = &self.config.shard {
                // A list that was not passed to the store has nothing to release, which does no harm.
                self.deltas.push_back(Delta::Released(shard.with_ranges(released)));
            }
            return None;
        }
        if !released.is_empty() {
            reflector.release_ranges(now, &released);
        }
        Some(reflector)
    }

    /// Collects the output of the reflectors, merges ranges that are complete, and begins to list others.
    fn advance(&mut self, now: Moment) {
        if self.config.shard.is_none() || self.run != RunState::Started {
            return;
        }
        if let Some(main) = &mut self.main {
            self.deltas.append(main.deltas());
        }
        if let Some(Gaining { reflector, list, .. }) = &mut self.gaining {
            collect(reflector, list);
            if let (None, None, Some(main)) = (&list, reflector.current_stream(), &mut self.main) {
                // Its next list is requested later than everything that was received.
                reflector.selected_ranges().into_iter().for_each(|gained| main.begin_gain_log(gained));
            }
        }
        self.merge(now);
        self.begin_gain(now);
        if let (None, Some(main)) = (&self.gaining, &mut self.main) {
            main.take_gain_log();
        }
    }

    /// Passes the list of gained ranges to the store, if the main reflector can continue for them.
    fn merge(&mut self, now: Moment) {
        if self.main.as_ref().is_some_and(|main| !main.can_absorb()) {
            return;
        }
        let is_complete = |gaining: &mut Gaining| gaining.list.is_some() && gaining.reflector.can_absorb();
        let Some(Gaining { reflector, list: Some(mut list), known }) = self.gaining.take_if(is_complete)
        else {
            return;
        };
        let Some(mut version) = reflector.position().cloned() else { return };
        if let (Some(known), Some(main)) = (known, &mut self.main)
            && version.is_before(&known)
        {
            main.relist_rewound(now);
            self.gaining = Some(Gaining { reflector, list: Some(list), known: None });
            return;
        }
        let ranges = reflector.selected_ranges().cloned().unwrap_or_default();
        let newer =
            self.main.as_ref().and_then(|main| main.position()).filter(|main| version.is_before(main));
        if let (Some(newer), Some(main)) = (newer.cloned(), &mut self.main)
            && main.can_leave()
        {
            let Some(log) = main.take_gain_log() else {
                // The main reflector has listed its ranges again. Only another list is new enough.
                return self.end(reflector);
            };
            log.apply_to(&mut list, &ranges);
            version = newer;
        }
        let (entries, unreadable) = list.into_parts();
        self.pass_list(entries, unreadable, version.clone());
        if let Some(main) = &mut self.main {
            main.absorb(now, &ranges, &version);
            self.end(reflector);
        } else {
            self.deltas.push_back(Delta::Bookmark(version));
            self.main = Some(reflector);
        }
    }

    fn pass_list(
        &mut self,
        entries: Vec<Arc<Entry>>,
        unreadable: Vec<UnreadableObject>,
        version: ResourceVersion,
    ) {
        let list = Replaced { scope: self.config.scope.clone(), version, entries, unreadable, audit: false };
        let is_first = !std::mem::replace(&mut self.has_initial_list, true);
        self.deltas.push_back(if is_first { Delta::Replaced(list) } else { Delta::Gained(list) });
    }

    /// Begins to list the ranges that are held and not watched yet.
    fn begin_gain(&mut self, now: Moment) {
        let Some(shard) = &self.config.shard else { return };
        let known = self.main.as_ref().and_then(Reflector::selected_ranges).cloned().unwrap_or_default();
        let missing = shard.ranges().difference(&known);
        if self.gaining.is_some() || missing.is_empty() {
            return;
        }
        let config = Config { shard: Some(shard.with_ranges(missing.clone())), ..self.config.clone() };
        let seed = self.seed.wrapping_add(self.created);
        let mut reflector = Reflector::new(config, seed, self.store.clone())
            .with_stream_ids_from(self.created * STREAMS_PER_REFLECTOR);
        self.created += 1;
        reflector.prefer_lists(self.prefers_lists);
        reflector.start(now);
        if let Some(main) = &mut self.main {
            main.begin_gain_log(&missing);
        }
        let known = self.main.as_ref().and_then(Reflector::newest_version).cloned();
        self.gaining = Some(Gaining { reflector, list: None, known });
    }

    /// Ends a reflector whose deltas have been collected.
    fn end(&mut self, mut reflector: Reflector) {
        reflector.stop();
        self.actions.extend(std::iter::from_fn(|| reflector.poll_action()));
        self.ended += *reflector.counters();
    }

    fn with_reflector_of(&mut self, now: Moment, id: StreamId, handle: impl FnOnce(&mut Reflector)) {
        let is_gaining = |gaining: &&mut Gaining| gaining.reflector.current_stream() == Some(id);
        match (self.gaining.as_mut().filter(is_gaining), &mut self.main) {
            (Some(gaining), _) => handle(&mut gaining.reflector),
            // A stray response is counted there.
            (None, Some(main)) => handle(main),
            (None, None) => {}
        }
        self.advance(now);
    }

    fn reflectors(&self) -> impl Iterator<Item = &Reflector> {
        let gaining = self.gaining.as_ref().map(|gaining| &gaining.reflector);
        self.main.as_ref().into_iter().chain(gaining)
    }

    fn reflectors_mut(&mut self) -> impl Iterator<Item = &mut Reflector> {
        let gaining = self.gaining.as_mut().map(|gaining| &mut gaining.reflector);
        self.main.as_mut().into_iter().chain(gaining)
    }
}

/// Applies the deltas of a reflector to its list.
fn collect(reflector: &mut Reflector, list: &mut Option<DetachedState>) {
    for delta in reflector.deltas().drain(..) {
        let delta = match list {
            Some(list) => list.apply(delta),
            None => Some(delta),
        };
        if let Some(Delta::Replaced(Replaced { entries, unreadable, .. })) = delta {
            *list = Some(DetachedState::new(entries, unreadable));
        }
    }
}
