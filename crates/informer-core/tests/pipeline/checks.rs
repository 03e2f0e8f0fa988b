//! Checks after every step: reported changes, reads, and the request rate.

use super::json::squeezed;
use super::server::{Fit, Obj, SLOTS, Server, key, slot_of};
use informer_core::reflector::ListRequest;
use informer_core::store::{BatchResult, Change, StoreSnapshot};
use informer_core::{Entry, IndexHandle, Key, Moment, StoreReader};
use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The server's state of an entry. Panics if the server never had a state with exactly this content.
pub(crate) fn origin<'a>(server: &'a Server, entry: &Entry) -> &'a Rc<Obj> {
    let bytes = squeezed(&entry.bytes());
    let text = std::str::from_utf8(&bytes).unwrap();
    let stamp = text.split("\"stamp\":").nth(1).and_then(|rest| rest.split(',').next()).unwrap();
    let version = server.parse(&entry.head().version);
    let object = server.find(stamp.parse().unwrap(), version);
    let object = object.unwrap_or_else(|| panic!("{entry:?}: this state never existed"));
    assert_eq!(text, object.canonical, "{entry:?}: not the server's state");
    assert_eq!(entry.key(), &key(object.slot));
    assert_eq!(&*entry.head().uid, format!("u-{}", object.uid));
    object
}

/// Origin of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cause {
    /// Whether it is a complete list.
    pub(crate) list: bool,
    /// Whether it comes from another branch than the previous batch: the server was restored.
    pub(crate) other_branch: bool,
}

/// The objects according to all reported changes.
#[derive(Debug, Default)]
pub(crate) struct Mirror {
    objects: BTreeMap<Key, Arc<Entry>>,
    /// Stamp of the last reported state of each slot.
    stamps: [u64; SLOTS],
    pub(crate) reported: u64,
}

impl Mirror {
    /// Applies the changes of a batch, checking that each is legal (C1, C3) and that its states existed.
    pub(crate) fn fold(&mut self, server: &Server, applied: &BatchResult, cause: Cause) {
        if cause.list {
            // C5: a relist reports deletions first, then the rest, each in key order.
            let place = |change: &Change| (!matches!(change, Change::Deleted { .. }), change.key().clone());
            let sorted = applied.changes.is_sorted_by(|left, right| place(left) < place(right));
            assert!(sorted, "C5: a relist is reported as {:?}", applied.changes);
        }
        for change in &applied.changes {
            self.reported += 1;
            match change {
                Change::Added(new) => {
                    self.check_order(server, new, cause);
                    let before = self.objects.insert(new.key().clone(), Arc::clone(new));
                    assert!(before.is_none(), "C3: {new:?} added twice");
                }
                Change::Updated { old, new } => {
                    self.check_order(server, new, cause);
                    let before = self.objects.insert(new.key().clone(), Arc::clone(new));
                    let before = before.unwrap_or_else(|| panic!("C3: {new:?} updated before it was added"));
                    assert!(
                        Arc::ptr_eq(&before, old),
                        "C3: {new:?} replaces {old:?}, but {before:?} was reported"
                    );
                    assert_eq!(
                        old.head().uid,
                        new.head().uid,
                        "C3: {new:?} is another incarnation, reported as an update"
                    );
                    // A stale state may have been undone by a restore and kept because the current one is
                    // unreadable.
                    let undone = old.is_stale() && server.rewinds > 0;
                    let back = new.head().version.is_before(&old.head().version);
                    assert!(cause.list || !back || undone, "C1: {old:?} -> {new:?}");
                    assert_ne!(old.bytes(), new.bytes(), "{new:?} reported although nothing changed");
                }
                Change::Deleted { last, observed } => {
                    let before = self.objects.remove(last.key());
                    let before = before.unwrap_or_else(|| panic!("C3: {last:?} deleted before it was added"));
                    assert_eq!(
                        before.head().uid,
                        last.head().uid,
                        "C3: {last:?} deleted, but {before:?} was reported"
                    );
                    assert!(
                        *observed || Arc::ptr_eq(&before, last),
                        "C3: {last:?} inferred, but {before:?} was reported"
                    );
                    assert!(!(cause.list && *observed), "a list shows no deletions");
                    self.stamps[slot_of(last.key())] = origin(server, last).stamp;
                }
                Change::Released(last) => panic!("{last:?} released without sharding"),
            }
        }
    }

    /// C1: the states of an object are reported in the server's order, except after a restore.
    fn check_order(&mut self, server: &Server, new: &Entry, cause: Cause) {
        let object = origin(server, new);
        assert_eq!(object.fit, Fit::Readable, "{new:?} is unreadable");
        let last = &mut self.stamps[object.slot];
        let restored = cause.list && cause.other_branch;
        // Equal stamps are the same state, encoded differently.
        assert!(restored || object.stamp >= *last, "C1: {new:?} has stamp {} behind {last}", object.stamp);
        *last = object.stamp;
    }

    /// C4: the sum of all changes is the store.
    pub(crate) fn check_equal(&self, snapshot: &StoreSnapshot, what: &str) {
        let equal = snapshot.len() == self.objects.len()
            && snapshot.list().zip(self.objects.values()).all(|(left, right)| Arc::ptr_eq(left, right));
        let listed: Vec<_> = snapshot.list().collect();
        assert!(equal, "C4, {what}: the store is {listed:?}, reported was {:?}", self.objects.values());
    }
}

/// Checks that the cache is exactly the server's state at the version of the cache.
pub(crate) fn check_exact(server: &Server, branch: usize, snapshot: &StoreSnapshot) {
    let Some(version) = snapshot.resource_version() else {
        assert!(snapshot.is_empty(), "objects without a version");
        return;
    };
    let expected = server.state_at(branch, server.parse(version));
    let unreadable: Vec<&Key> = snapshot.unreadable().map(|(key, _)| key).collect();
    for (slot, object) in expected.iter().enumerate() {
        let key = key(slot);
        let object = object.as_ref().filter(|_| server.visible(slot));
        let cached = snapshot.get(&key);
        let hidden = object.is_some_and(|object| object.fit != Fit::Readable);
        assert_eq!(unreadable.contains(&&key), hidden, "at {version}: {key} unreadable or not");
        match (object, cached) {
            (Some(object), Some(entry)) if !hidden => {
                let equal = *entry.bytes() == *object.canonical.as_bytes()
                    || squeezed(&entry.bytes()) == object.canonical.as_bytes();
                assert!(equal, "at {version} the server had {}, the cache {entry:?}", object.canonical);
                assert!(!entry.is_stale(), "{entry:?} is the newest state but marked as stale");
            }
            (Some(_), None) if !hidden => panic!("at {version}: {key} is missing"),
            (None, Some(entry)) => panic!("at {version}: {entry:?} does not exist"),
            (Some(_), Some(entry)) => assert!(entry.is_stale(), "{entry:?} is older but not marked as stale"),
            (Some(_) | None, None) => {}
        }
    }
}

/// Compares index lookups with the model's own fields.
pub(crate) fn check_indexes(
    server: &Server,
    snapshot: &StoreSnapshot,
    by_app: &IndexHandle,
    by_node: &IndexHandle,
) {
    let origins: Vec<&Rc<Obj>> = snapshot.list().map(|entry| origin(server, entry)).collect();
    for number in 0..3 {
        let app: Vec<Key> = origins
            .iter()
            .filter(|object| object.app == Some(number))
            .map(|object| key(object.slot))
            .collect();
        assert_eq!(snapshot.index_keys(by_app, &format!("app-{number}")), app);
        let node: Vec<Key> =
            origins.iter().filter(|object| object.node == number).map(|object| key(object.slot)).collect();
        assert_eq!(snapshot.index_keys(by_node, &format!("n-{number}")), node);
    }
}

/// A snapshot in use, and its contents when it was taken.
#[derive(Debug)]
pub(crate) struct HeldSnapshot {
    snapshot: StoreSnapshot,
    fingerprint: u64,
}

impl HeldSnapshot {
    pub(crate) fn take(reader: &StoreReader, index: &IndexHandle) -> Self {
        let snapshot = reader.snapshot();
        Self { fingerprint: fingerprint(&snapshot, index), snapshot }
    }

    /// C5: checks that its contents did not change.
    pub(crate) fn check(&self, index: &IndexHandle) {
        assert_eq!(fingerprint(&self.snapshot, index), self.fingerprint, "C5: a snapshot changed");
    }
}

fn fingerprint(snapshot: &StoreSnapshot, index: &IndexHandle) -> u64 {
    let mut hasher = DefaultHasher::new();
    snapshot.resource_version().hash(&mut hasher);
    for entry in snapshot.list() {
        (entry.key(), &entry.head().version, entry.bytes()).hash(&mut hasher);
    }
    for value in snapshot.index_values(index) {
        (&value, snapshot.index_keys(index, &value)).hash(&mut hasher);
    }
    hasher.finish()
}

/// The request rate (C11).
///
/// Between two pauses there are at most [`Pace::BURST`] requests, without pages of a list. A pause is a wait
/// as long as the backoff requires, a watch that lasted ten seconds, or half a second between the starts of two
/// watches of which the first was interrupted. After a watch of ten seconds, or an interrupted one, six waits
/// may be shorter than thirty seconds.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    burst: u64,
    pages: usize,
    /// The last requested list, if nothing else was requested since, and how often it was repeated without a
    /// pause.
    list: Option<ListRequest>,
    repeated: u32,
    /// Backoff waits since the last healthy watch.
    waits: u32,
    pub(crate) requests: u64,
    healths: u64,
    /// The start of the last watch.
    last_watch: Moment,
    /// Whether the last watch was interrupted.
    interrupted: bool,
    pub(crate) widest: u64,
}

impl Pace {
    /// Two cycles (the first 410 after a healthy watch is followed by a relist immediately), each of at most
    /// six requests: a watch-list, a list and the full list when its token expires, both again without a
    /// version, a watch.
    const BURST: u64 = 12;

    pub(crate) fn request(&mut self, now: Moment, list: Option<&ListRequest>) {
        self.repeated = if list.is_some() && self.list.as_ref() == list { self.repeated + 1 } else { 0 };
        self.list = list.cloned();
        assert!(self.repeated < 2, "C11: {list:?} repeated without a pause");
        self.burst += 1;
        self.requests += 1;
        self.pages = 0;
        self.widest = self.widest.max(self.burst);
        assert!(self.burst <= Self::BURST, "C11: {} requests without a pause", self.burst);
        let seconds = now.since_origin().as_secs();
        let allowed = Self::BURST * (6 * (self.healths + 1) + seconds / 30 + 1) + 4 * seconds;
        assert!(self.requests <= allowed, "C11: {} requests until {now:?}", self.requests);
    }

    pub(crate) fn page(&mut self) {
        self.pages += 1;
        assert!(self.pages <= SLOTS, "C11: a list of {} pages", self.pages);
    }

    /// Records that the reflector backs off.
    pub(crate) fn wait(&mut self, delay: Duration, slow: bool) {
        let least = if slow { 30_000 } else { (800_u64 << self.waits.min(6)).min(30_000) };
        assert!(delay >= Duration::from_millis(least), "C11: wait {} is only {delay:?}", self.waits);
        self.waits += u32::from(!slow);
        self.burst = 0;
        self.list = None;
    }

    /// Records that a watch was interrupted that had received a frame, or that had lasted a second. The next one
    /// may follow soon.
    pub(crate) fn interrupted(&mut self) {
        self.interrupted = true;
        self.waits = 0;
    }

    /// Records the start of a watch or a watch-list.
    pub(crate) fn watch(&mut self, now: Moment) {
        if std::mem::take(&mut self.interrupted) {
            let interval = now - self.last_watch;
            assert!(interval >= Duration::from_millis(500), "C11: the next watch starts after {interval:?}");
            self.burst = 0;
            self.list = None;
        }
        self.last_watch = now;
    }

    /// Records a watch that lasted ten seconds.
    pub(crate) fn healthy(&mut self) {
        self.waits = 0;
        self.burst = 0;
        self.healths += 1;
    }
}
