//! Carries out the fault rules that disturb one running watch.
//!
//! Every rule counts the frames that it lets pass. Those that are due are carried out in the order in which they were set: first
//! what happens between two frames, then what happens to the next frame, which is then written alone.

use std::sync::Arc;

use informer_objects::protobuf;
use serde_json::{Value, json};

use crate::faults::{Action, Active, End, Registry};
use crate::log::RecordedRequest;

/// What rules do to one watch.
#[derive(Debug, Default)]
pub(super) struct StreamFaults {
    /// The numbers of the rules that it has seen.
    met: Vec<u64>,
    active: Vec<StreamFault>,
    /// How many frames may be written before a rule is to be looked at.
    allowed: usize,
}

#[derive(Debug)]
struct StreamFault {
    rule: Arc<Active>,
    /// How many frames it still lets pass.
    passes: usize,
    /// How many frames it still changes.
    changes: usize,
    /// The next frame is written alone, for this to change it.
    armed: bool,
    stalls: bool,
}

/// What happens between two frames.
pub(super) enum StreamFaultEffect {
    Bytes(Vec<u8>),
    /// A good frame that holds no object.
    NoObject,
    /// The watch is silent until the rule goes.
    Stall,
    /// The position is lost.
    Gone,
    Over(End),
}

impl StreamFaults {
    /// Meets rules that have come, and lets go of those that went.
    pub(super) fn look(&mut self, faults: &Registry, seen: &RecordedRequest) {
        self.active.retain(|disturbance| faults.is_active(&disturbance.rule));
        let came = faults.for_stream(seen, &mut self.met).into_iter().map(|rule| StreamFault {
            passes: rule.rule.after_frames,
            changes: rule.rule.frames,
            armed: false,
            stalls: false,
            rule,
        });
        self.active.extend(came);
    }

    /// What is to happen now; if nothing is, frames may be written, as many as [`StreamFaults::allowed`] says.
    pub(super) fn due(&mut self) -> Option<StreamFaultEffect> {
        self.allowed = usize::MAX;
        let mut place = 0;
        while let Some(disturbance) = self.active.get_mut(place) {
            if disturbance.passes > 0 {
                self.allowed = self.allowed.min(disturbance.passes);
                place += 1;
                continue;
            }
            if disturbance.stalls {
                return Some(StreamFaultEffect::Stall);
            }
            if disturbance.changes_frames() {
                disturbance.armed = true;
                self.allowed = 1;
                place += 1;
                continue;
            }
            if !disturbance.rule.take() {
                self.active.remove(place);
                continue;
            }
            let end = disturbance.rule.rule.end;
            return Some(match &disturbance.rule.rule.action {
                Action::StallWatch => {
                    disturbance.stalls = true;
                    StreamFaultEffect::Stall
                }
                Action::RawFrame(bytes) => {
                    let bytes = bytes.to_vec();
                    self.active.remove(place);
                    StreamFaultEffect::Bytes(bytes)
                }
                Action::FrameWithoutObject => {
                    self.active.remove(place);
                    StreamFaultEffect::NoObject
                }
                Action::Gone => StreamFaultEffect::Gone,
                _ => StreamFaultEffect::Over(end),
            });
        }
        None
    }

    pub(super) fn stalls(&self) -> bool {
        self.active.iter().any(|disturbance| disturbance.stalls)
    }

    /// How many frames may be written before a rule sets in.
    pub(super) fn allowed(&self) -> usize {
        self.allowed
    }

    pub(super) fn passed(&mut self, frames: usize) {
        self.allowed = self.allowed.saturating_sub(frames);
        for disturbance in &mut self.active {
            disturbance.passes = disturbance.passes.saturating_sub(frames);
        }
    }

    /// Changes the frame that was written, if rules were due for it; says how the watch ends if it does.
    pub(super) fn change(&mut self, frame: &mut Vec<u8>) -> Option<End> {
        let mut end = None;
        self.active.retain_mut(|disturbance| {
            let rule = &disturbance.rule;
            if !std::mem::take(&mut disturbance.armed) || end.is_some() {
                return true;
            }
            let mut bad = Vec::new();
            if matches!(rule.rule.action, Action::MalformedObject) {
                // Where nothing can happen nothing is counted, and the next frame will do.
                let Some(spoilt) = corrupted_frame(frame) else { return true };
                bad = spoilt;
            }
            if !rule.take() {
                return false;
            }
            match &rule.rule.action {
                Action::DropFrame => frame.clear(),
                Action::DuplicateFrame => frame.extend_from_within(..),
                Action::MalformedObject => *frame = bad,
                _ => {
                    frame.truncate(frame.len() / 2);
                    end = Some(rule.rule.end);
                }
            }
            disturbance.changes = disturbance.changes.saturating_sub(1);
            disturbance.changes > 0
        });
        end
    }
}

impl StreamFault {
    fn changes_frames(&self) -> bool {
        matches!(
            self.rule.rule.action,
            Action::BreakMidFrame | Action::DropFrame | Action::DuplicateFrame | Action::MalformedObject
        )
    }
}

/// Bytes that begin with a frame whose object is one that its type does not allow; none for a bookmark, which has no object.
fn corrupted_frame(bytes: &[u8]) -> Option<Vec<u8>> {
    // A frame of protobuf begins with its length, and none has two gigabytes.
    if !bytes.starts_with(b"{") {
        let bookmark = bytes.get(4..).is_some_and(|event| event.starts_with(b"\x0a\x08BOOKMARK"));
        return if bookmark { None } else { protobuf::corrupted_frame(bytes) };
    }
    let (frame, rest) = bytes.split_at(bytes.iter().position(|byte| *byte == b'\n')?);
    let mut frame: Value = serde_json::from_slice(frame).ok()?;
    if frame["type"] == "BOOKMARK" {
        return None;
    }
    corrupt(frame.get_mut("object")?)?;
    Some([frame.to_string().as_bytes(), rest].concat())
}

/// Makes an object one that its type does not allow: its `spec` is a number, or the rows of a table are.
pub(super) fn corrupt(object: &mut Value) -> Option<()> {
    let fields = object.as_object_mut()?;
    let field = if fields.get("kind") == Some(&json!("Table")) { "rows" } else { "spec" };
    fields.insert(field.to_owned(), json!(7));
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A doubled frame was no JSON, so a rule that should have spoilt it did nothing and was counted.
    #[test]
    fn the_first_of_two_frames_is_spoilt() {
        let frame = |spec: &str| format!("{{\"type\":\"ADDED\",\"object\":{{\"spec\":{spec}}}}}\n");
        let spoilt = corrupted_frame(frame("{}").repeat(2).as_bytes()).unwrap();
        let (first, second) = spoilt.split_at(frame("7").len());
        assert_eq!(serde_json::from_slice::<Value>(first).unwrap()["object"]["spec"], 7);
        assert_eq!(second, frame("{}").as_bytes());
        assert_eq!(corrupted_frame(b"{\"type\":\"BOOKMARK\",\"object\":{}}\n"), None);
        let table = b"{\"type\":\"ADDED\",\"object\":{\"kind\":\"Table\",\"rows\":[{}]}}\n";
        let table: Value = serde_json::from_slice(&corrupted_frame(table).unwrap()).unwrap();
        assert_eq!(table["object"]["rows"], 7);
    }
}
