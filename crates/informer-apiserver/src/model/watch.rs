//! Watches as cursors into a collection's history: what a watcher is told, and when it is told to go.
//!
//! A cursor moves only forward and skips nothing: between two steps it either gets every change that concerns it, or
//! learns that it cannot. A watcher of one namespace needs the changes in that one only: it may sleep while the others
//! are forgotten. Frames here are states and their kind; bytes and waiting are made elsewhere.

use std::sync::Arc;

use informer_objects::status::Status;

use super::collection::Change;
use super::fields::Filter;
use super::kinds::{ResourceId, VersionedResource};
use super::state::State;
use super::{Model, Objects};

/// How many changes are looked at in one step, so that a selective watcher does not keep the model for long.
const CHANGES_PER_STEP: usize = 4_096;

/// How many bytes of objects a step brings together.
const BYTES_PER_STEP: usize = 64 * 1024;

/// A watcher's place.
#[derive(Debug)]
pub(crate) struct Cursor {
    id: ResourceId,
    epoch: u64,
    term: u64,
    /// The sequence number of the next change to look at.
    next: u64,
    /// Changes up to this version are none of its business.
    after: u64,
}

/// Where a watch begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum From {
    /// With the changes after a version.
    Version(u64),
    /// With the changes from now on.
    Now,
    /// With everything that is there.
    Start,
}

/// An opened watch.
pub(crate) struct Opened {
    pub(crate) cursor: Cursor,
    /// What is there, if the watch begins with it.
    pub(crate) initial: Option<Objects>,
    /// The version at which it was opened.
    pub(crate) version: u64,
}

/// What a step brought.
#[derive(Debug)]
pub(crate) enum Step {
    /// Frames, perhaps none, and whether another step would bring more at once.
    Frames(Vec<Frame>, bool),
    /// The changes it needs are forgotten.
    Expired(Status),
    /// The stream is over, in good order.
    Ended,
    /// The server this watch was opened on is gone.
    Broken,
}

/// One frame.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    pub(crate) kind: FrameKind,
    pub(crate) state: Arc<State>,
    /// The version the object is shown with; for a deletion not that of the state.
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

    /// Whether it waits for a version that is not reached yet.
    pub(crate) fn is_ahead_of(&self, version: u64) -> bool {
        self.after > version
    }
}

impl Model {
    /// Opens a watch. Each needs a [`Model::close_watch`].
    pub(crate) fn open_watch(&mut self, place: VersionedResource, from: From) -> Result<Opened, Status> {
        let (version, epoch) = (self.version, self.epoch);
        let cached = self.resource(place.id)?.is_cached();
        let home = self.home(place);
        let collection = self.collections.get_mut(&home).ok_or_else(Status::no_such_resource)?;
        let (next, after) = match from {
            From::Version(after) if after < collection.watch_floor() => {
                return Err(if cached {
                    Status::watch_expired(after, collection.watch_floor())
                } else {
                    Status::uncached_watch_expired()
                });
            }
            From::Version(after) => (collection.after(after), after),
            From::Now | From::Start => (collection.end(), version),
        };
        let initial = (from == From::Start).then(|| collection.live().clone());
        let term = collection.watcher_came();
        Ok(Opened { cursor: Cursor { id: home, epoch, term, next, after }, initial, version })
    }

    /// Lets go of a watch.
    pub(crate) fn close_watch(&mut self, cursor: &Cursor) {
        if cursor.epoch != self.epoch {
            return;
        }
        if let Some(collection) = self.collections.get_mut(&cursor.id)
            && collection.watcher_left()
        {
            self.collections.remove(&cursor.id);
        }
    }

    /// Moves a cursor on, by at most `frames` frames.
    pub(crate) fn step(&self, cursor: &mut Cursor, filter: &Filter, frames: usize) -> Step {
        if cursor.epoch != self.epoch {
            return Step::Broken;
        }
        let Some(collection) = self.collections.get(&cursor.id) else { return Step::Ended };
        if collection.is_forgotten(cursor.next, &filter.namespace) {
            return Step::Expired(Status::watch_expired(cursor.after, collection.watch_floor()));
        }
        cursor.next = collection.next_known(cursor.next);
        let end = collection.end_of(cursor.term);
        let mut found = Vec::new();
        let mut bytes = 0;
        for _ in 0..CHANGES_PER_STEP {
            if end.is_some_and(|end| cursor.next >= end) {
                return if found.is_empty() { Step::Ended } else { Step::Frames(found, true) };
            }
            if found.len() >= frames || bytes >= BYTES_PER_STEP {
                return Step::Frames(found, true);
            }
            let Some(change) = collection.change(cursor.next) else {
                return Step::Frames(found, false);
            };
            cursor.next += 1;
            if change.version <= cursor.after {
                continue;
            }
            cursor.after = change.version;
            if let Some(frame) = frame(change, filter) {
                bytes += frame.state.len();
                found.push(frame);
            }
        }
        Step::Frames(found, true)
    }
}

/// What a change looks like through a selector: entering it is an addition, leaving it a deletion that shows the
/// object as it was before, with the version of the change.
fn frame(change: &Change, filter: &Filter) -> Option<Frame> {
    let was = change.before.as_ref().filter(|state| filter.matches(state));
    let is = change.after.as_ref().filter(|state| filter.matches(state));
    let (kind, state) = match (was, is) {
        (None, Some(is)) => (FrameKind::Added, is),
        (Some(_), Some(is)) => (FrameKind::Modified, is),
        (Some(was), None) => (FrameKind::Deleted, was),
        (None, None) => return None,
    };
    Some(Frame { kind, state: state.clone(), version: change.version })
}
