//! Applies the fault rules that act on one open watch.
//!
//! A rule is due once the watch has written the number of frames that the rule skips (`after_frames`). Before
//! each frame, the due rules that act between two frames are applied first. Then the due rules that change
//! frames are applied to that frame, which is written as a chunk of its own. Both happen in the order in
//! which the rules were injected.

use std::sync::Arc;

use informer_objects::protobuf;
use serde_json::{Value, json};

use super::lagging_cache::LaggingCache;
use crate::faults::{Action, Active, End, Registry};
use crate::log::RecordedRequest;

/// The fault rules of one watch.
#[derive(Debug, Default)]
pub(super) struct StreamFaults {
    /// Numbers of the rules that the watch has seen.
    known: Vec<u64>,
    active: Vec<StreamFault>,
    /// The rules that make the watch cache lag.
    caches: Vec<Arc<Active>>,
    /// Whether the resource has a watch cache.
    is_cached: bool,
    /// Number of frames that may be written before a rule is due.
    allowed_frames: usize,
    /// The revision of the rules that were last inspected; `None` at first.
    revision: Option<u64>,
}

#[derive(Debug)]
struct StreamFault {
    rule: Arc<Active>,
    /// Number of frames that still pass unchanged.
    frames_to_skip: usize,
    /// Number of frames that are still changed.
    frames_to_change: usize,
    /// Whether the next frame is written alone, so that this rule can change it.
    armed: bool,
    /// Whether the rule was applied and stalls the watch.
    stalls: bool,
}

/// An effect between two frames.
pub(super) enum StreamFaultEffect {
    /// Bytes that are sent as they are.
    Bytes(Vec<u8>),
    /// A well-formed frame with a number instead of an object.
    NoObject,
    /// No frames until the rule is removed.
    Stall,
    /// An ERROR frame with 410, then the end of the watch.
    Gone,
    /// The end of the watch.
    End(End),
}

impl StreamFaults {
    pub(super) fn new(is_cached: bool) -> Self {
        StreamFaults { is_cached, ..StreamFaults::default() }
    }

    /// Adds newly injected rules and removes those that are no longer active.
    pub(super) fn update(&mut self, faults: &Registry, recorded: &RecordedRequest) {
        let revision = faults.revision();
        if self.revision.replace(revision) == Some(revision) {
            return;
        }
        self.active.retain(|fault| faults.is_active(&fault.rule));
        self.update_caches(faults, recorded);
        let added = faults.for_stream(recorded, &mut self.known, |action| !is_lagging(action));
        let added = added.into_iter().map(|rule| StreamFault {
            frames_to_skip: rule.rule.after_frames,
            frames_to_change: rule.rule.frames,
            armed: false,
            stalls: false,
            rule,
        });
        self.active.extend(added);
    }

    /// Adds and removes only rules that make the cache lag: they also apply to the start of a watch.
    pub(super) fn update_caches(&mut self, faults: &Registry, recorded: &RecordedRequest) {
        self.caches.retain(|rule| faults.is_active(rule));
        if self.is_cached {
            let added = faults.for_stream(recorded, &mut self.known, is_lagging);
            self.caches.extend(added.into_iter().filter(|rule| rule.count_hit()));
        }
    }

    /// Returns the cache that the watch is served from, if it lags; of several, the one that lags most.
    pub(super) fn cache(&self) -> Option<LaggingCache> {
        let last = self.caches.iter().min_by_key(|rule| rule.rule.cache_version)?;
        Some(LaggingCache::new(last.clone()))
    }

    /// Returns the version of the cache that the watch is served from; the largest number if it does not lag.
    pub(super) fn cache_version(&self, faults: &Registry) -> u64 {
        let active = self.caches.iter().filter(|rule| faults.is_active(rule));
        active.map(|rule| rule.rule.cache_version).min().unwrap_or(u64::MAX)
    }

    /// Applies the next due rule that acts between two frames, and returns its effect. If no such rule is
    /// due, up to [`StreamFaults::allowed_frames`] frames may be written.
    pub(super) fn take_due_effect(&mut self) -> Option<StreamFaultEffect> {
        self.allowed_frames = usize::MAX;
        let mut index = 0;
        while let Some(fault) = self.active.get_mut(index) {
            if fault.frames_to_skip > 0 {
                self.allowed_frames = self.allowed_frames.min(fault.frames_to_skip);
                index += 1;
                continue;
            }
            if fault.stalls {
                return Some(StreamFaultEffect::Stall);
            }
            if fault.changes_frames() {
                fault.armed = true;
                self.allowed_frames = 1;
                index += 1;
                continue;
            }
            if !fault.rule.count_hit() {
                self.active.remove(index);
                continue;
            }
            let end = fault.rule.rule.end;
            return Some(match &fault.rule.rule.action {
                Action::StallWatch => {
                    fault.stalls = true;
                    StreamFaultEffect::Stall
                }
                Action::RawFrame(bytes) => {
                    let bytes = bytes.to_vec();
                    self.active.remove(index);
                    StreamFaultEffect::Bytes(bytes)
                }
                Action::FrameWithoutObject => {
                    self.active.remove(index);
                    StreamFaultEffect::NoObject
                }
                Action::Gone => StreamFaultEffect::Gone,
                // `BreakWatch` and `Outage`.
                _ => StreamFaultEffect::End(end),
            });
        }
        None
    }

    pub(super) fn stalls(&self) -> bool {
        self.active.iter().any(|fault| fault.stalls)
    }

    /// Returns the number of frames that may be written before a rule is due.
    pub(super) fn allowed_frames(&self) -> usize {
        self.allowed_frames
    }

    /// Counts written frames.
    pub(super) fn count_frames(&mut self, frames: usize) {
        self.allowed_frames = self.allowed_frames.saturating_sub(frames);
        for fault in &mut self.active {
            fault.frames_to_skip = fault.frames_to_skip.saturating_sub(frames);
        }
    }

    /// Applies the due rules that change frames to a written frame. Returns how the watch ends, if a rule
    /// ends it.
    pub(super) fn change_frame(&mut self, frame: &mut Vec<u8>) -> Option<End> {
        let mut end = None;
        self.active.retain_mut(|fault| {
            let rule = &fault.rule;
            if !std::mem::take(&mut fault.armed) || end.is_some() {
                return true;
            }
            let mut corrupted = Vec::new();
            if matches!(rule.rule.action, Action::MalformedObject) {
                // A frame that cannot be corrupted is not counted; the rule waits for the next one.
                let Some(bytes) = corrupted_frame(frame) else { return true };
                corrupted = bytes;
            }
            if !rule.count_hit() {
                return false;
            }
            match &rule.rule.action {
                Action::DropFrame => frame.clear(),
                Action::DuplicateFrame => frame.extend_from_within(..),
                Action::MalformedObject => *frame = corrupted,
                // `BreakMidFrame`.
                _ => {
                    frame.truncate(frame.len() / 2);
                    end = Some(rule.rule.end);
                }
            }
            fault.frames_to_change = fault.frames_to_change.saturating_sub(1);
            fault.frames_to_change > 0
        });
        end
    }
}

fn is_lagging(action: &Action) -> bool {
    matches!(action, Action::LaggingCache)
}

impl StreamFault {
    fn changes_frames(&self) -> bool {
        matches!(
            self.rule.rule.action,
            Action::BreakMidFrame | Action::DropFrame | Action::DuplicateFrame | Action::MalformedObject
        )
    }
}

/// Corrupts the object of the first frame in `bytes`; `None` for a bookmark, which contains no stored object.
fn corrupted_frame(bytes: &[u8]) -> Option<Vec<u8>> {
    // A protobuf frame starts with its length, most significant byte first: `{` would mean almost 2 GiB.
    if !bytes.starts_with(b"{") {
        // Field 1 of a watch event is its type.
        let is_bookmark = bytes.get(4..).is_some_and(|event| event.starts_with(b"\x0a\x08BOOKMARK"));
        return if is_bookmark { None } else { protobuf::corrupted_frame(bytes) };
    }
    let (frame, later_bytes) = bytes.split_at(bytes.iter().position(|byte| *byte == b'\n')?);
    let mut frame: Value = serde_json::from_slice(frame).ok()?;
    if frame["type"] == "BOOKMARK" {
        return None;
    }
    corrupt(frame.get_mut("object")?)?;
    Some([frame.to_string().as_bytes(), later_bytes].concat())
}

/// Makes an object violate its type: `spec`, or the rows of a table, become a number.
pub(super) fn corrupt(object: &mut Value) -> Option<()> {
    let fields = object.as_object_mut()?;
    let field = if fields.get("kind") == Some(&json!("Table")) { "rows" } else { "spec" };
    fields.insert(field.to_owned(), json!(7));
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a duplicated frame could not be parsed as JSON, so the rule had no effect but was counted.
    #[test]
    fn first_of_two_frames_is_corrupted() {
        let frame = |spec: &str| format!("{{\"type\":\"ADDED\",\"object\":{{\"spec\":{spec}}}}}\n");
        let corrupted = corrupted_frame(frame("{}").repeat(2).as_bytes()).unwrap();
        let (first, second) = corrupted.split_at(frame("7").len());
        assert_eq!(serde_json::from_slice::<Value>(first).unwrap()["object"]["spec"], 7);
        assert_eq!(second, frame("{}").as_bytes());
        assert_eq!(corrupted_frame(b"{\"type\":\"BOOKMARK\",\"object\":{}}\n"), None);
        let table = b"{\"type\":\"ADDED\",\"object\":{\"kind\":\"Table\",\"rows\":[{}]}}\n";
        let table: Value = serde_json::from_slice(&corrupted_frame(table).unwrap()).unwrap();
        assert_eq!(table["object"]["rows"], 7);
    }
}
