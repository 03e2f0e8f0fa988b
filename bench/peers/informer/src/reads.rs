//! Reads of the cache: gets by key, walks over all pods, look-ups by index.

use std::hint::black_box;

use informer::{Key, Object};
use k8s_openapi::api::core::v1::Pod;
use peer_protocol::{Failure, Random, Through, groups, sum_of_fields};
use serde_json::{Value, json};

use super::Syncing;

/// Number of gets between two readings of the clock; also the number of gets from one snapshot.
const BATCH: u64 = 32;

impl Syncing {
    pub(crate) fn read(&self, seconds: f64, through: Through) -> Result<Value, Failure> {
        let lister = self.pods.lister();
        let keys: Vec<Key> = lister.list().iter().map(|pod| pod.key().clone()).collect();
        let (mut random, mut gets, mut found) = (Random::new(1), 0_u64, 0_u64);
        let measurement = self.deliveries.measure();
        while measurement.seconds() < seconds {
            if through == Through::Lister {
                for _ in 0..BATCH {
                    found += u64::from(lister.get_by_key(&keys[random.below(keys.len())]).is_some());
                }
            } else {
                let snapshot = self.pods.snapshot();
                for _ in 0..BATCH {
                    if let Some(pod) = snapshot.get(&keys[random.below(keys.len())]) {
                        found += u64::from(self.has_containers(pod, through)?);
                    }
                }
            }
            gets += BATCH;
        }
        Ok(measurement.response(json!({"gets": gets, "found": found})))
    }

    /// Reads one field of a pod, if it is read decoded.
    fn has_containers(&self, pod: &Object<Pod>, through: Through) -> Result<bool, Failure> {
        Ok(match (through, &self.projection) {
            (Through::Lister | Through::Snapshot, _) => true,
            (Through::Projection, Some(lite)) => pod.projected(lite)?.has_containers(),
            (Through::Projection, None) => return Err("the sync had no projection".into()),
            (Through::Typed, _) => {
                read_typed(pod, |pod| pod.spec.as_ref().is_some_and(|spec| !spec.containers.is_empty()))?
            }
        })
    }

    pub(crate) fn walk(&self, seconds: f64, through: Through) -> Result<Value, Failure> {
        let (mut objects, mut sum) = (0_usize, 0);
        let measurement = self.deliveries.measure();
        while measurement.seconds() < seconds {
            let snapshot = self.pods.snapshot();
            sum = 0;
            for pod in &snapshot {
                sum += match (through, &self.projection) {
                    (Through::Projection, Some(lite)) => pod.projected(lite)?.sum_of_fields(),
                    (Through::Typed, _) => read_typed(pod, sum_of_fields)?,
                    _ => return Err("a walk needs a projection or typed pods".into()),
                };
            }
            objects += snapshot.len();
        }
        Ok(measurement.response(json!({"objects": objects, "sum": sum})))
    }

    pub(crate) fn look_up(
        &self,
        seconds: f64,
        results: Option<usize>,
        through: Through,
    ) -> Result<Value, Failure> {
        let lister = self.pods.lister();
        let values = match results {
            Some(results) => groups(results, lister.len()),
            None => lister.index_values(&self.index),
        };
        if values.is_empty() {
            return Err("the index has no values to look up".into());
        }
        let (mut random, mut lookups, mut found) = (Random::new(1), 0_u64, 0);
        let measurement = self.deliveries.measure();
        while measurement.seconds() < seconds {
            for _ in 0..BATCH {
                let value = &values[random.below(values.len())];
                found += if through == Through::Lister {
                    lister.by_index(&self.index, value).len()
                } else {
                    self.pods.snapshot().by_index(&self.index, value).map(black_box).count()
                };
            }
            lookups += BATCH;
        }
        Ok(measurement.response(json!({"lookups": lookups, "found": found})))
    }
}

/// Reads a typed pod: borrowed if the cache keeps it, otherwise decoded.
fn read_typed<R>(pod: &Object<Pod>, read: impl FnOnce(&Pod) -> R) -> Result<R, Failure> {
    Ok(match pod.typed_ref() {
        Some(pod) => read(pod),
        None => read(&*pod.typed()?),
    })
}
