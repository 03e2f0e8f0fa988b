//! A deployment and its sets, as the demo knows them.

use super::catalogue::Program;
use super::status::Count;
use super::write::At;
use serde_json::Value;
use std::collections::BTreeSet;

/// However many somebody asks for by hand.
const MOST_REPLICAS: u64 = 1000;

/// A deployment.
#[derive(Debug)]
pub(super) struct App {
    pub(super) program: Program,
    pub(super) at: At,
    pub(super) uid: String,
    pub(super) generation: i64,
    pub(super) replicas: usize,
    /// What it had at the beginning; it is never scaled far from that by chance.
    pub(super) planned: usize,
    /// Of the version it runs.
    pub(super) patch: u32,
    pub(super) image: String,
    /// The image before.
    pub(super) previous: String,
    pub(super) revision: u32,
    pub(super) sets: Vec<Set>,
    pub(super) told: Option<(Count, usize, i64)>,
    /// Whether it will be looked after anyway.
    pub(super) due: bool,
    pub(super) whose: Whose,
    /// An update that does not start is on its way.
    pub(super) stuck: bool,
}

/// A replica set.
#[derive(Debug)]
pub(super) struct Set {
    pub(super) id: u32,
    pub(super) at: At,
    pub(super) hash: String,
    pub(super) image: String,
    pub(super) sound: bool,
    /// Empty until the server has it.
    pub(super) uid: String,
    pub(super) generation: i64,
    pub(super) wanted: usize,
    pub(super) told: Option<(Count, i64)>,
    pub(super) pods: BTreeSet<u64>,
}

/// Who says what becomes of a deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    /// The demo.
    Ours,
    /// Somebody changed it by hand: chance leaves it alone.
    Theirs,
    /// Somebody deleted it; what belongs to it goes too.
    Gone,
}

impl App {
    pub(super) fn is_gone(&self) -> bool {
        self.whose == Whose::Gone
    }

    /// Whether chance may change it.
    pub(super) fn is_free(&self) -> bool {
        self.whose == Whose::Ours
    }

    /// Takes over what somebody changed by hand.
    pub(super) fn adopt(&mut self, object: &Value) {
        let replicas = object.pointer("/spec/replicas").and_then(Value::as_u64);
        let replicas = replicas.and_then(|replicas| usize::try_from(replicas.min(MOST_REPLICAS)).ok());
        if let Some(replicas) = replicas.filter(|replicas| *replicas != self.replicas) {
            self.replicas = replicas;
            self.whose = Whose::Theirs;
        }
        let image = object.pointer("/spec/template/spec/containers/0/image").and_then(Value::as_str);
        if let Some(image) = image.filter(|image| *image != self.image) {
            self.previous = std::mem::replace(&mut self.image, image.to_owned());
            (self.stuck, self.whose) = (false, Whose::Theirs);
        }
    }
}

/// How many pods there may be more than wanted while a version replaces another.
pub(super) fn surge(replicas: usize) -> usize {
    replicas.div_ceil(4).max(1)
}

pub(super) fn image_of(program: &Program, patch: u32) -> String {
    let (major, minor) = program.version;
    format!("{}:{major}.{minor}.{patch}", program.image)
}
