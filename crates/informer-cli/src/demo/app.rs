//! State of a deployment and its replica sets.

use super::catalogue::Program;
use super::status::Count;
use super::write::ObjectId;
use serde_json::Value;
use std::collections::BTreeSet;

/// Upper bound on replicas requested by users.
const MAX_REPLICAS: u64 = 1000;

/// A deployment.
#[derive(Debug)]
pub(super) struct App {
    pub(super) program: Program,
    pub(super) object_id: ObjectId,
    pub(super) uid: String,
    pub(super) generation: i64,
    pub(super) replicas: usize,
    /// Initial number of replicas; incidents keep the deployment close to this number.
    pub(super) planned: usize,
    /// Patch number of the current version.
    pub(super) patch: u32,
    pub(super) image: String,
    pub(super) previous_image: String,
    pub(super) revision: u32,
    pub(super) sets: Vec<Set>,
    /// The last written status: number of pods, desired replicas, generation.
    pub(super) written_status: Option<(Count, usize, i64)>,
    /// Whether a sync is scheduled already.
    pub(super) sync_scheduled: bool,
    pub(super) ownership: Ownership,
    /// Whether an update to an unpullable image is in progress.
    pub(super) stuck: bool,
}

/// A replica set.
#[derive(Debug)]
pub(super) struct Set {
    pub(super) id: u32,
    pub(super) object_id: ObjectId,
    pub(super) hash: String,
    pub(super) image: String,
    /// Whether the image can be pulled.
    pub(super) healthy: bool,
    /// Empty until the server has created the replica set.
    pub(super) uid: String,
    pub(super) generation: i64,
    pub(super) wanted: usize,
    /// The last written status: number of pods, generation.
    pub(super) written_status: Option<(Count, i64)>,
    pub(super) pods: BTreeSet<u64>,
}

/// Who controls a deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ownership {
    /// The demo.
    Demo,
    /// A user changed the deployment: incidents leave it alone.
    User,
    /// A user deleted the deployment; its dependents are deleted too.
    Deleted,
}

impl App {
    pub(super) fn is_gone(&self) -> bool {
        self.ownership == Ownership::Deleted
    }

    /// Whether incidents may change the deployment.
    pub(super) fn is_free(&self) -> bool {
        self.ownership == Ownership::Demo
    }

    /// Adopts changes made by a user.
    pub(super) fn adopt(&mut self, object: &Value) {
        let replicas = object.pointer("/spec/replicas").and_then(Value::as_u64);
        let replicas = replicas.and_then(|replicas| usize::try_from(replicas.min(MAX_REPLICAS)).ok());
        if let Some(replicas) = replicas.filter(|replicas| *replicas != self.replicas) {
            self.replicas = replicas;
            self.ownership = Ownership::User;
        }
        let image = object.pointer("/spec/template/spec/containers/0/image").and_then(Value::as_str);
        if let Some(image) = image.filter(|image| *image != self.image) {
            self.previous_image = std::mem::replace(&mut self.image, image.to_owned());
            (self.stuck, self.ownership) = (false, Ownership::User);
        }
    }
}

/// Number of additional pods during a rolling update, for a `maxSurge` of 25 %.
pub(super) fn surge(replicas: usize) -> usize {
    replicas.div_ceil(4).max(1)
}

pub(super) fn image_of(program: &Program, patch: u32) -> String {
    let (major, minor) = program.version;
    format!("{}:{major}.{minor}.{patch}", program.image)
}
