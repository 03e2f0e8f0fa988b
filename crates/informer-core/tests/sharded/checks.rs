//! Checks of the store and of the reported changes against the history of the model server.

use super::net::parse;
use super::selection::Buckets;
use super::server::Server;
use informer_core::shard::ShardProperty;
use informer_core::store::{Change, StoreSnapshot};
use informer_core::{Entry, Key};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What happened to an object since its range was gained.
#[derive(Debug, Clone, Copy)]
struct Seen {
    version: u64,
    is_deleted: bool,
}

/// The objects according to all reported changes.
#[derive(Debug, Default)]
pub(crate) struct Mirror {
    objects: BTreeMap<Key, Arc<Entry>>,
    /// By uid.
    seen: BTreeMap<String, Seen>,
    pub(crate) reported: u64,
}

impl Mirror {
    /// Applies changes, and checks that each is legal (C1, C3). `released` are the ranges that the batch releases.
    pub(crate) fn fold(
        &mut self,
        server: &Server,
        by: ShardProperty,
        changes: &[Change],
        released: Option<Buckets>,
    ) {
        for change in changes {
            self.reported += 1;
            let is_release = matches!(change, Change::Released(_));
            assert_eq!(is_release, released.is_some(), "C3: {change:?}");
            match change {
                Change::Added(new) => {
                    self.see(server, new);
                    let before = self.objects.insert(new.key().clone(), Arc::clone(new));
                    assert!(before.is_none(), "C3: {new:?} added, but {before:?} was reported");
                }
                Change::Updated { old, new } => {
                    self.see(server, new);
                    assert_eq!(old.head().uid, new.head().uid, "C3: another incarnation is no update");
                    let before = self.objects.insert(new.key().clone(), Arc::clone(new));
                    let is_same = before.as_ref().is_some_and(|before| Arc::ptr_eq(before, old));
                    assert!(is_same, "C3: {new:?} replaces {old:?}, but {before:?} was reported");
                }
                Change::Deleted { last, .. } => {
                    self.remove(last);
                    let uid = &*last.head().uid;
                    let version = parse(&last.head().version);
                    let object = server.incarnation(uid);
                    // An object that leaves the ranges may return.
                    let is_leaving = object.leaves(by, version, object.bucket_of(by, version));
                    assert!(object.deleted.is_some() || is_leaving, "C3: {last:?} {uid} was not deleted");
                    self.seen.insert(uid.to_owned(), Seen { version, is_deleted: !is_leaving });
                }
                Change::Released(last) => {
                    self.remove(last);
                    let bucket =
                        server.incarnation(&last.head().uid).bucket_of(by, parse(&last.head().version));
                    assert!(released.is_some_and(|released| bucket & released != 0), "C3: {last:?} released");
                }
            }
        }
        if let Some(released) = released {
            self.seen.retain(|uid, seen| server.incarnation(uid).bucket_of(by, seen.version) & released == 0);
        }
    }

    /// C1: versions do not go back, and deleted objects do not return.
    fn see(&mut self, server: &Server, new: &Entry) {
        let (uid, version) = (&*new.head().uid, parse(&new.head().version));
        let states = &server.incarnation(uid).states;
        assert!(states.iter().any(|state| state.version == version), "{new:?}: this state never existed");
        if let Some(seen) = self.seen.get(uid) {
            assert!(!seen.is_deleted, "C1: {new:?} {uid} returns after its deletion");
            assert!(seen.version < version, "C1: {new:?} {uid} follows version {}", seen.version);
        }
        self.seen.insert(uid.to_owned(), Seen { version, is_deleted: false });
    }

    fn remove(&mut self, last: &Entry) {
        let before = self.objects.remove(last.key());
        let is_same = before.as_ref().is_some_and(|before| before.head().uid == last.head().uid);
        assert!(is_same, "C3: {last:?} removed, but {before:?} was reported");
    }

    /// C4: the sum of all changes is the store.
    pub(crate) fn check_equal(&self, snapshot: &StoreSnapshot) {
        let is_equal = snapshot.len() == self.objects.len()
            && snapshot.list().zip(self.objects.values()).all(|(left, right)| Arc::ptr_eq(left, right));
        assert!(is_equal, "C4: the store is {snapshot:?}, reported was {:?}", self.objects);
    }
}

/// Checks that the store contains no object of other ranges.
pub(crate) fn check_held(server: &Server, by: ShardProperty, snapshot: &StoreSnapshot, held: Buckets) {
    for entry in snapshot.list() {
        let bucket = server.incarnation(&entry.head().uid).bucket_of(by, parse(&entry.head().version));
        assert!(bucket & held != 0, "{entry:?} of bucket {bucket:016b} is cached, held is {held:016b}");
    }
}

/// Checks that the store contains all changes of these ranges up to its own version. An object may be newer.
pub(crate) fn check_version(server: &Server, by: ShardProperty, snapshot: &StoreSnapshot, complete: Buckets) {
    let Some(version) = snapshot.resource_version().map(parse) else {
        assert!(snapshot.is_empty(), "objects without a version");
        return;
    };
    assert!(version <= server.version, "a version that the server never had");
    let is_complete = |bucket: Buckets| bucket & complete != 0;
    for object in &server.incarnations {
        let cached = snapshot.list().find(|entry| *entry.head().uid == *object.uid);
        let cached_version = cached.map(|entry| parse(&entry.head().version));
        let uid = &object.uid;
        match object.state_at(version) {
            Some(state) if object.deleted.is_none() && !object.was_ever_unreadable() => {
                let bucket = object.bucket(by, state);
                // Ranges that are ahead of the version may know that it has left.
                let may_be_absent = !is_complete(bucket) || object.leaves(by, state.version, bucket);
                assert!(
                    cached_version.map_or(may_be_absent, |cached| cached >= state.version),
                    "{uid} has version {} at {version}, the cache {cached_version:?}",
                    state.version
                );
            }
            None if cached.is_some() && object.deleted.is_some_and(|deleted| deleted <= version) => {
                // An unreadable successor keeps it, because the range of the successor is unknown.
                let is_kept = server.was_key_unreadable(object.slot);
                assert!(is_kept, "{uid} was deleted at {:?}, the cache at {version}", object.deleted);
            }
            _ => {}
        }
    }
}

/// Returns the first difference between the store and the newest state of the server in the held ranges.
pub(crate) fn find_difference(
    server: &Server,
    by: ShardProperty,
    snapshot: &StoreSnapshot,
    held: Buckets,
) -> Option<String> {
    let newest = server.at(server.version);
    let selected = newest.iter().filter(|(object, state)| object.bucket(by, *state) & held != 0);
    for (object, state) in selected.clone() {
        let cached = snapshot.list().find(|entry| *entry.head().uid == *object.uid);
        let is_same = match cached {
            Some(entry) if state.is_readable => {
                parse(&entry.head().version) == state.version && !entry.is_stale()
            }
            Some(entry) => parse(&entry.head().version) < state.version && entry.is_stale(),
            None => !state.is_readable,
        };
        if !is_same {
            let is_stale = cached.map(|entry| entry.is_stale());
            return Some(format!("{} {state:?}: cached {cached:?}, stale {is_stale:?}", object.uid));
        }
    }
    // An entry whose successor is unreadable may stay, but is marked.
    let surplus = snapshot.list().find(|entry| {
        let object = server.incarnation(&entry.head().uid);
        let is_live = selected.clone().any(|(live, _)| live.uid == object.uid);
        let successor = newest.iter().find(|(live, _)| live.slot == object.slot);
        let is_kept = entry.is_stale() && successor.is_some_and(|(_, state)| !state.is_readable);
        !is_live && !is_kept
    });
    surplus.map(|entry| format!("{entry:?} {} does not exist", entry.head().uid))
}
