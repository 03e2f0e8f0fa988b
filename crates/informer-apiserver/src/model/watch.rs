//! Watches as cursors into the history of a collection: which frames a watch gets, and when it ends.
//!
//! A cursor only moves forward and skips no change that the watch needs: each step returns the next of these
//! changes, or reports that some were dropped from the history. A watch of one namespace needs only the
//! changes in that namespace, so it stays valid while changes in other namespaces are dropped. A frame is a
//! state with a type here; encoding and waiting happen elsewhere.

use std::sync::Arc;

use informer_objects::status::Status;

use super::collection::Change;
use super::fields::Filter;
use super::kinds::{ResourceId, VersionedResource};
use super::state::State;
use super::{Model, Objects};

/// Upper bound on the changes inspected in one step, so that a selective watch does not hold the lock for
/// long.
const MAX_CHANGES_PER_STEP: usize = 4_096;

/// Number of bytes of objects after which a step ends.
const BYTES_PER_STEP: usize = 64 * 1024;

/// The position of a watch.
#[derive(Debug)]
pub(crate) struct Cursor {
    id: ResourceId,
    /// The model's epoch when the watch was opened. In another epoch, the watch is broken.
    epoch: u64,
    /// The collection's term when the watch was opened. A term is over when the server ends all open watches
    /// of the resource, for example because its definition changes.
    term: u64,
    /// The sequence number (see `collection`) of the next change to inspect.
    next: u64,
    /// Changes up to this version are skipped.
    after: u64,
    /// Changes after this version are not returned yet.
    limit: u64,
}

/// Where a watch starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WatchStart {
    /// At the changes after a version.
    Version(u64),
    /// At the next change.
    Now,
    /// With the existing objects.
    ExistingObjects,
    /// At the changes after a past version, optionally with the objects that existed then; at the next change and with
    /// the existing objects if the past is not retained.
    Past { version: u64, with_objects: bool },
}

/// An open watch.
pub(crate) struct Opened {
    pub(crate) cursor: Cursor,
    /// The objects that the watch starts with, if it does.
    pub(crate) initial: Option<Objects>,
    /// The version at which the watch starts.
    pub(crate) version: u64,
}

/// The result of advancing a cursor.
#[derive(Debug)]
pub(crate) enum Step {
    /// Frames, possibly none, and whether the caller should step again without waiting for changes.
    Frames(Vec<Frame>, bool),
    /// Changes that the watch needs were dropped.
    Expired(Status),
    /// The watch ends normally.
    Ended,
    /// The server was restored or restarted since the watch was opened.
    Broken,
}

/// One frame.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    pub(crate) kind: FrameKind,
    pub(crate) state: Arc<State>,
    /// The version shown in the object; for a deletion, that of the deletion and not of the state.
    pub(crate) version: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameKind {
    Added,
    Modified,
    Deleted,
}

impl FrameKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            FrameKind::Added => "ADDED",
            FrameKind::Modified => "MODIFIED",
            FrameKind::Deleted => "DELETED",
        }
    }
}

impl Cursor {
    pub(crate) fn id(&self) -> ResourceId {
        self.id
    }

    /// Sets the version up to which changes are returned.
    pub(crate) fn limit_to(&mut self, version: u64) {
        self.limit = version;
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns whether the watch has passed `version`.
    pub(crate) fn is_ahead_of(&self, version: u64) -> bool {
        self.after > version
    }
}

impl Model {
    /// Opens a watch. It must be closed with [`Model::close_watch`].
    pub(crate) fn open_watch(&mut self, gvr: VersionedResource, from: WatchStart) -> Result<Opened, Status> {
        let (version, epoch) = (self.version, self.epoch);
        let cached = self.resource(gvr.id)?.is_cached();
        let storage_id = self.storage_id(gvr);
        let collection = self.collections.get_mut(&storage_id).ok_or_else(Status::no_such_resource)?;
        let now = collection.next_sequence();
        let (next, after, initial) = match from {
            WatchStart::Version(after) if after < collection.watch_floor() => {
                return Err(if cached {
                    Status::watch_expired(after, collection.watch_floor())
                } else {
                    Status::uncached_watch_expired()
                });
            }
            WatchStart::Version(after) => (collection.sequence_after(after), after, None),
            WatchStart::Now => (now, version, None),
            WatchStart::ExistingObjects => (now, version, Some(collection.live().clone())),
            WatchStart::Past { version: past, with_objects } => {
                let is_retained = (collection.watch_floor()..=version).contains(&past);
                let (next, after, objects) = match collection.objects_at(past).filter(|_| is_retained) {
                    Some(objects) => (collection.sequence_after(past), past, objects),
                    None => (now, version, collection.live().clone()),
                };
                (next, after, Some(objects).filter(|_| with_objects))
            }
        };
        let term = collection.add_watcher();
        let cursor = Cursor { id: storage_id, epoch, term, next, after, limit: u64::MAX };
        Ok(Opened { cursor, initial, version: after })
    }

    /// Closes a watch.
    pub(crate) fn close_watch(&mut self, cursor: &Cursor) {
        if cursor.epoch != self.epoch {
            return;
        }
        if let Some(collection) = self.collections.get_mut(&cursor.id)
            && collection.remove_watcher()
        {
            self.collections.remove(&cursor.id);
        }
    }

    /// Advances a cursor by at most `max_frames` frames.
    pub(crate) fn step(&self, cursor: &mut Cursor, filter: &Filter, max_frames: usize) -> Step {
        if cursor.epoch != self.epoch {
            return Step::Broken;
        }
        let Some(collection) = self.collections.get(&cursor.id) else { return Step::Ended };
        if collection.has_dropped_since(cursor.next, &filter.namespace) {
            return Step::Expired(Status::watch_expired(cursor.after, collection.watch_floor()));
        }
        cursor.next = collection.next_retained(cursor.next);
        let end = collection.end_of_term(cursor.term);
        let mut frames = Vec::new();
        let mut bytes = 0;
        for _ in 0..MAX_CHANGES_PER_STEP {
            if end.is_some_and(|end| cursor.next >= end) {
                return if frames.is_empty() { Step::Ended } else { Step::Frames(frames, true) };
            }
            if frames.len() >= max_frames || bytes >= BYTES_PER_STEP {
                return Step::Frames(frames, true);
            }
            let change = collection.change(cursor.next).filter(|change| change.version <= cursor.limit);
            let Some(change) = change else {
                return Step::Frames(frames, false);
            };
            cursor.next += 1;
            if change.version <= cursor.after {
                continue;
            }
            cursor.after = change.version;
            if let Some(frame) = frame(change, filter) {
                bytes += frame.state.len();
                frames.push(frame);
            }
        }
        Step::Frames(frames, true)
    }
}

/// Returns the frame of a change for a filter; `None` if the object matches neither before nor after.
///
/// An object that starts to match is added. One that stops matching is deleted, and shown in its previous
/// state with the version of the change.
fn frame(change: &Change, filter: &Filter) -> Option<Frame> {
    let before = change.before.as_ref().filter(|state| filter.matches(state));
    let after = change.after.as_ref().filter(|state| filter.matches(state));
    let (kind, state) = match (before, after) {
        (None, Some(after)) => (FrameKind::Added, after),
        (Some(_), Some(after)) => (FrameKind::Modified, after),
        (Some(before), None) => (FrameKind::Deleted, before),
        (None, None) => return None,
    };
    Some(Frame { kind, state: state.clone(), version: change.version })
}
