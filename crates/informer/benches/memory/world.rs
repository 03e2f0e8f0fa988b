//! The server's state: pods that are a function of their number and of the changes so far. Nothing else is
//! stored.
//!
//! Time is divided into epochs. In each, a part of the pods changes (version and status), spread evenly. A
//! pod is a function of its number and the epoch, so a list of any epoch can be generated at any time.

use bench_data::pods::{Pod, Random};
use std::sync::Arc;

/// Upper bound on the pods; more would use the same versions in two epochs.
pub(crate) const MAX_OBJECTS: usize = 1_000_000;

/// Number of versions per epoch, more than it has pods.
const VERSIONS_PER_EPOCH: u64 = 10_000_000;

/// One state of the server. Cheap to clone.
#[derive(Clone)]
pub(crate) struct World {
    /// Numbers of the pods in key order, as a server lists them.
    order: Arc<[usize]>,
    /// Number of changed pods of each epoch after the first.
    changed: Vec<usize>,
}

impl World {
    pub(crate) fn new(objects: usize) -> Self {
        let mut order: Vec<usize> = (0..objects).collect();
        order.sort_by_cached_key(|&number| {
            let pod = Pod::new(number, 0);
            (pod.namespace(), pod.name())
        });
        Self { order: order.into(), changed: Vec::new() }
    }

    /// Begins the next epoch, in which this many pods change.
    pub(crate) fn change(&mut self, pods: usize) {
        self.changed.push(pods.min(self.len()));
    }

    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// The version of this state.
    pub(crate) fn version(&self) -> u64 {
        (self.changed.len() as u64 + 1) * VERSIONS_PER_EPOCH
    }

    /// The pod at this index of the list, as a list item.
    pub(crate) fn item(&self, index: usize) -> String {
        let number = self.order[index];
        let changed_at = (1..).zip(&self.changed).filter(|(_, pods)| self.is_changed(number, **pods));
        let (generation, epoch) =
            changed_at.fold((1, 0), |(generation, _), (epoch, _)| (generation + 1, epoch));
        let pod = Pod::new(number, epoch * VERSIONS_PER_EPOCH + 1 + number as u64);
        // Seeded by its number, a pod differs between epochs only in its version and status.
        let item = pod.item(&mut Random::new(number as u64));
        let status = format!("\"observedGeneration\":{generation},\"phase\"");
        item.replacen("\"observedGeneration\":1,\"phase\"", &status, 1)
    }

    /// Whether this pod is one of `pods` that are spread evenly over all.
    fn is_changed(&self, number: usize, pods: usize) -> bool {
        let before = |number: usize| number * pods / self.len();
        before(number) < before(number + 1)
    }
}
