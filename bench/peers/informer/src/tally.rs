//! Events by kind, so that those of several processes can be compared with those of one.

use std::sync::{Arc, Mutex, PoisonError};

use informer::handler::Delivery;
use informer::shard::shard_hash;
use informer::{Event, Object, Registration, SharedInformer};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

/// Number of events, and the sum of the hashes of their objects (key and version), which does not depend on their
/// order.
#[derive(Clone, Copy, Default)]
struct Sum {
    events: u64,
    digest: u64,
}

#[derive(Clone, Copy, Default)]
struct Sums {
    added: Sum,
    updated: Sum,
    deleted: Sum,
    released: Sum,
}

/// The events of one informer.
#[derive(Default)]
pub(crate) struct Tally(Mutex<Sums>);

impl Tally {
    /// Adds a handler that counts every event.
    pub(crate) fn add(pods: &SharedInformer<Pod>) -> (Arc<Self>, Registration) {
        let tally = Arc::new(Self::default());
        let counted = Arc::clone(&tally);
        let handler = pods.handler().with_releases().on_event(move |delivery| counted.record(&delivery));
        (tally, handler)
    }

    fn record(&self, delivery: &Delivery<Pod>) {
        let mut sums = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (sum, object) = match delivery {
            Delivery::Event(Event::Added { object, .. }) => (&mut sums.added, object),
            Delivery::Event(Event::Updated { new, .. }) => (&mut sums.updated, new),
            Delivery::Event(Event::Deleted { last, .. }) => (&mut sums.deleted, last),
            Delivery::Released { last, .. } => (&mut sums.released, last),
            _ => return,
        };
        sum.events += 1;
        sum.digest = sum.digest.wrapping_add(hash(object));
    }

    pub(crate) fn response(&self) -> Value {
        let sums = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let response = |sum: Sum| json!([sum.events, sum.digest]);
        json!({
            "added": response(sums.added),
            "updated": response(sums.updated),
            "deleted": response(sums.deleted),
            "released": response(sums.released),
        })
    }
}

fn hash(object: &Object<Pod>) -> u64 {
    let namespace = object.namespace().unwrap_or_default();
    shard_hash(&format!("{namespace}/{}/{}", object.name(), object.resource_version()))
}
