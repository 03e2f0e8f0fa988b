//! What the server has: pods that follow from their number and from how often things changed. Nothing is stored but that.
//!
//! Time goes in epochs. In each, a share of the pods changes (another version, another status), spread evenly. What a pod
//! looks like is a function of its number and the epoch, so a list of any epoch can be written at any time.

use bench_data::pods::{Pod, Random};
use std::sync::Arc;

/// More pods would share versions between epochs.
pub(crate) const MOST: usize = 1_000_000;

/// As many versions as an epoch may give out, and more than a pod of it can have.
const VERSIONS_AN_EPOCH: u64 = 10_000_000;

/// One state of the server. Cheap to clone.
#[derive(Clone)]
pub(crate) struct World {
    /// Numbers of the pods, in the order of their keys, as a server lists them.
    order: Arc<[usize]>,
    /// How many pods changed in each epoch after the first.
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

    /// Begins the next epoch, in which this many pods are changed.
    pub(crate) fn change(&mut self, pods: usize) {
        self.changed.push(pods.min(self.len()));
    }

    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// The version of this state.
    pub(crate) fn version(&self) -> u64 {
        (self.changed.len() as u64 + 1) * VERSIONS_AN_EPOCH
    }

    /// The pod at this place of the list, as a list carries it.
    pub(crate) fn item(&self, place: usize) -> String {
        let number = self.order[place];
        let changed_at = (1..).zip(&self.changed).filter(|(_, pods)| self.is_changed(number, **pods));
        let (generation, epoch) =
            changed_at.fold((1, 0), |(generation, _), (epoch, _)| (generation + 1, epoch));
        let pod = Pod::new(number, epoch * VERSIONS_AN_EPOCH + 1 + number as u64);
        // Seeded by its number alone, a pod keeps everything but its version and what is changed here.
        let item = pod.item(&mut Random::new(number as u64));
        let status = format!("\"observedGeneration\":{generation},\"phase\"");
        item.replacen("\"observedGeneration\":1,\"phase\"", &status, 1)
    }

    /// Whether this pod is one of so many that are spread evenly over all.
    fn is_changed(&self, number: usize, pods: usize) -> bool {
        let before = |number: usize| number * pods / self.len();
        before(number) < before(number + 1)
    }
}
