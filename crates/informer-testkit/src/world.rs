//! The interface of a scenario, which creates, changes and deletes objects like a user of the cluster.
//!
//! Writes of a scenario are applied at once and never fail because of faults: the program under test has to cope
//! with faults, not its users. Each write is a step, which shrinking may leave out.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use informer_apiserver::{ApiServer, DeleteParams, ManualClock, Propagation, Status};
use kube::ResourceExt as _;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::Notify;

use crate::random::Random;
use crate::state::State;
use crate::trace::{Trace, TraceKind};

/// The cluster as a scenario sees it.
///
/// Before each step the scenario waits for a moment that the seed chooses, often none, at most three seconds.
#[derive(Clone)]
pub struct World(Arc<WorldShared>);

pub(crate) struct WorldShared {
    pub(crate) server: ApiServer,
    pub(crate) clock: ManualClock,
    pub(crate) trace: Trace,
    pub(crate) state: Arc<Mutex<State>>,
    /// Notified when the state has changed.
    pub(crate) changed: Notify,
    pub(crate) progress: Mutex<Progress>,
}

pub(crate) struct Progress {
    pauses: Random,
    random: Random,
    /// Whether the scenario depends on the seed.
    pub(crate) used_random: bool,
    /// The steps so far.
    pub(crate) steps: Vec<String>,
    skipped: BTreeSet<usize>,
}

impl Progress {
    pub(crate) fn new(seed: u64, skipped: BTreeSet<usize>) -> Self {
        Progress {
            pauses: Random::new(seed, "pauses"),
            random: Random::new(seed, "scenario"),
            used_random: false,
            steps: Vec::new(),
            skipped,
        }
    }
}

/// The kind and name of an object in a timeline.
fn title<K: kube::Resource<DynamicType = ()>>(namespace: &str, name: &str) -> String {
    let kind = K::kind(&());
    if namespace.is_empty() { format!("{kind} {name}") } else { format!("{kind} {namespace}/{name}") }
}

impl World {
    pub(crate) fn new(shared: Arc<WorldShared>) -> Self {
        World(shared)
    }

    /// Creates an object and returns it as stored. Without a namespace, it is created in `default`.
    ///
    /// # Errors
    ///
    /// The `Status` that a client would receive.
    pub async fn create<K>(&self, object: &K) -> Result<K, Status>
    where
        K: kube::Resource<DynamicType = ()> + Serialize + DeserializeOwned + Clone,
    {
        let namespace = object.namespace().unwrap_or_default();
        let text = format!("create {}", title::<K>(&namespace, &object.name_any()));
        let server = &self.0.server;
        self.step(text, object.clone(), || decode(server.create(object)?)).await
    }

    /// Changes an object: reads it, calls `change` and updates it. The current state is changed, so there is no
    /// conflict. Like a client, changes only the spec or only the status of an object that has both: see
    /// [`World::modify_status`].
    ///
    /// # Errors
    ///
    /// The `Status` that a client would receive; 404 if there is no such object.
    pub async fn modify<K>(
        &self,
        namespace: &str,
        name: &str,
        change: impl FnOnce(&mut K),
    ) -> Result<(), Status>
    where
        K: kube::Resource<DynamicType = ()> + Serialize + DeserializeOwned,
    {
        let text = format!("modify {}", title::<K>(namespace, name));
        self.change(text, (namespace, name), change, ApiServer::update).await
    }

    /// Changes the status of an object, like [`World::modify`].
    ///
    /// # Errors
    ///
    /// The `Status` that a client would receive; 404 if there is no such object.
    pub async fn modify_status<K>(
        &self,
        namespace: &str,
        name: &str,
        change: impl FnOnce(&mut K),
    ) -> Result<(), Status>
    where
        K: kube::Resource<DynamicType = ()> + Serialize + DeserializeOwned,
    {
        let text = format!("modify status of {}", title::<K>(namespace, name));
        self.change(text, (namespace, name), change, ApiServer::update_status).await
    }

    /// Deletes an object as `kubectl delete` does. The object may stay for a while, because of finalizers or a grace
    /// period.
    ///
    /// # Errors
    ///
    /// The `Status` that a client would receive; 404 if there is no such object.
    pub async fn delete<K>(&self, namespace: &str, name: &str) -> Result<(), Status>
    where
        K: kube::Resource<DynamicType = ()>,
    {
        let server = &self.0.server;
        let params = DeleteParams::new().propagation(Propagation::Background);
        self.step(format!("delete {}", title::<K>(namespace, name)), (), || {
            let (api_version, plural) = (K::api_version(&()), K::plural(&()));
            let namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
            server.delete_with(&api_version, &plural, namespace, name, &params).map(drop)
        })
        .await
    }

    /// Waits for this time.
    pub async fn sleep(&self, time: Duration) {
        self.0.clock.sleep(time).await;
    }

    /// Waits until the objects on the server meet a condition. In a run with faults, this may take long.
    pub async fn wait_until(&self, mut condition: impl FnMut(&State) -> bool) {
        loop {
            let mut changed = std::pin::pin!(self.0.changed.notified());
            changed.as_mut().enable();
            if condition(&self.0.state.lock().unwrap_or_else(PoisonError::into_inner)) {
                return;
            }
            changed.await;
        }
    }

    /// Returns a number below `bound` that depends on the seed.
    ///
    /// The final state of a run is compared with that of a run without faults. A scenario that uses random numbers
    /// needs one such run for every seed; others need only one.
    pub fn random_below(&self, bound: u64) -> u64 {
        let mut progress = self.progress();
        progress.used_random = true;
        progress.random.below(bound)
    }

    /// Returns the server, for what has no method here. Writes are not steps and do not appear in the timeline.
    pub fn server(&self) -> &ApiServer {
        &self.0.server
    }

    async fn change<K>(
        &self,
        text: String,
        (namespace, name): (&str, &str),
        change: impl FnOnce(&mut K),
        update: fn(&ApiServer, &K) -> Result<Value, Status>,
    ) -> Result<(), Status>
    where
        K: kube::Resource<DynamicType = ()> + Serialize + DeserializeOwned,
    {
        self.step(text, (), || {
            let mut object = self.read::<K>(namespace, name)?;
            change(&mut object);
            update(&self.0.server, &object).map(drop)
        })
        .await
    }

    fn read<K: kube::Resource<DynamicType = ()> + DeserializeOwned>(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<K, Status> {
        let (api_version, plural) = (K::api_version(&()), K::plural(&()));
        let in_namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
        match self.0.server.get(&api_version, &plural, in_namespace, name) {
            Some(object) => decode(object),
            None => Err(Status::not_found(&K::group(&()), &plural, name)),
        }
    }

    async fn step<R>(
        &self,
        text: String,
        skipped: R,
        operation: impl FnOnce() -> Result<R, Status>,
    ) -> Result<R, Status> {
        let (pause, is_skipped) = {
            let mut progress = self.progress();
            let number = progress.steps.len();
            progress.steps.push(text.clone());
            let pause = if progress.pauses.percent(50) { 0 } else { progress.pauses.below(3_000) };
            (Duration::from_millis(pause), progress.skipped.contains(&number))
        };
        self.sleep(pause).await;
        if is_skipped {
            return Ok(skipped);
        }
        let result = operation();
        let outcome = match &result {
            Ok(_) => text,
            Err(status) => format!("{text}: {}", status.message),
        };
        self.0.trace.push(TraceKind::Write, "scenario", outcome);
        result
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.0.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn decode<K: DeserializeOwned>(object: Value) -> Result<K, Status> {
    serde_json::from_value(object).map_err(|error| {
        Status::new(500, "InternalError", format!("the object does not match its type: {error}"))
    })
}
