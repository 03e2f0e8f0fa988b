//! kube-rs as a benchmark program: a watcher and a reflector of pods, and handlers that count.
//!
//! One handler is called for each item of the stream; several handlers are subscribers of a shared reflector.
//! The store has no index, so the pods of a node are found by a scan.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{ObjectRef, ReflectHandle, Store};
use kube::runtime::watcher::{Config, Event, watcher};
use kube::runtime::{WatchStreamExt as _, reflector};
use kube::{Api, Client};
use peer_protocol::{
    Command, Deliveries, Failure, Peer, ProcessStats, Random, Strategy, Sync, revised, sent_in, sum_of_fields,
};
use serde_json::{Value, json};

/// Number of events that a subscriber of a shared reflector may lag behind.
const MAX_LAG_EVENTS: usize = 1024;

/// Time limit of a sync.
const SYNC_TIMEOUT: Duration = Duration::from_secs(600);

fn main() -> ExitCode {
    peer_protocol::run(|config| Ok(KubeRs { client: Client::try_from(config)?, syncing: None }))
}

struct KubeRs {
    client: Client,
    syncing: Option<Syncing>,
}

struct Syncing {
    store: Store<Pod>,
    deliveries: Arc<Deliveries>,
}

impl Peer for KubeRs {
    async fn execute(&mut self, command: Command) -> Result<Value, Failure> {
        match command {
            Command::Sync(sync) => self.sync(&sync).await,
            Command::Follow { until, latency } => {
                self.synced()?.deliveries.follow(until, latency, || true).await
            }
            Command::Read { seconds, .. } => Ok(self.synced()?.read(seconds)),
            Command::Walk { seconds, .. } => Ok(self.synced()?.walk(seconds)),
            Command::Index { results: Some(_), .. } => Err("kube-rs has no index".into()),
            Command::Index { seconds, .. } => Ok(self.synced()?.look_up(seconds)),
            Command::Count { revision } => Ok(self.synced()?.count(revision.as_deref())),
            Command::Queue { .. } => Err("kube-rs has no separate work queue".into()),
            Command::Change { .. } | Command::Stop => Err("only informer saves its cache".into()),
            Command::Join { .. }
            | Command::Shard
            | Command::Events
            | Command::LeaseWrites
            | Command::Leave => Err("only informer supports sharding".into()),
            Command::Report { .. } | Command::Quit => Err("handled by the protocol loop".into()),
        }
    }
}

impl KubeRs {
    async fn sync(&mut self, sync: &Sync) -> Result<Value, Failure> {
        sync.check(&["json"])?;
        let stats = ProcessStats::start();
        let config = match sync.strategy {
            Strategy::Default | Strategy::List => Config::default(),
            Strategy::WatchList => Config::default().streaming_lists(),
        };
        let deliveries = Arc::new(Deliveries::new(sync.handlers));
        let events = watcher(Api::<Pod>::all(self.client.clone()), config).default_backoff();
        let store = if sync.handlers == 1 {
            let (store, writer) = reflector::store();
            let deliveries = Arc::clone(&deliveries);
            tokio::spawn(reflector::reflector(writer, events).for_each(move |event| {
                if let Ok(event) = event {
                    record(&deliveries, &event);
                }
                std::future::ready(())
            }));
            store
        } else {
            let writer = Writer::new_shared(MAX_LAG_EVENTS, ());
            let store = writer.as_reader();
            for number in 0..sync.handlers {
                let subscriber = writer.subscribe().ok_or("the reflector does not support subscribers")?;
                tokio::spawn(handle(subscriber, number, Arc::clone(&deliveries)));
            }
            tokio::spawn(events.reflect_shared(writer).for_each(|_| std::future::ready(())));
            store
        };
        tokio::time::timeout(SYNC_TIMEOUT, store.wait_until_ready()).await??;
        // Subscribers receive the initial list only after it is complete.
        tokio::time::timeout(SYNC_TIMEOUT, deliveries.wait_for_each(store.len() as u64)).await?;
        let response = stats.response(json!({"objects": store.len()}));
        self.syncing = Some(Syncing { store, deliveries });
        Ok(response)
    }

    fn synced(&self) -> Result<&Syncing, Failure> {
        self.syncing.as_ref().ok_or_else(|| "sync first".into())
    }
}

fn record(deliveries: &Deliveries, event: &Event<Pod>) {
    if let Event::Apply(pod) | Event::InitApply(pod) | Event::Delete(pod) = event {
        record_pod(deliveries, 0, pod);
    }
}

fn record_pod(deliveries: &Deliveries, handler: usize, pod: &Pod) {
    let version = pod.metadata.resource_version.as_deref().unwrap_or_default();
    deliveries.record(handler, version, || sent_in(pod.metadata.annotations.as_ref()));
}

async fn handle(mut pods: ReflectHandle<Pod>, number: usize, deliveries: Arc<Deliveries>) {
    while let Some(pod) = pods.next().await {
        record_pod(&deliveries, number, &pod);
    }
}

impl Syncing {
    fn count(&self, revision: Option<&str>) -> Value {
        let pods = self.store.state();
        let annotations = pods.iter().map(|pod| pod.metadata.annotations.as_ref());
        json!({"objects": pods.len(), "delivered": self.deliveries.events(), "revised": revised(annotations, revision)})
    }

    fn read(&self, seconds: f64) -> Value {
        let keys: Vec<ObjectRef<Pod>> =
            self.store.state().iter().map(|pod| ObjectRef::from_obj(pod.as_ref())).collect();
        let (mut random, mut gets, mut found) = (Random::new(1), 0_u64, 0_u64);
        let measurement = self.deliveries.measure();
        while measurement.seconds() < seconds {
            for _ in 0..32 {
                let pod = self.store.get(&keys[random.below(keys.len())]);
                found += u64::from(pod.is_some_and(|pod| pod.spec.is_some()));
                gets += 1;
            }
        }
        measurement.response(json!({"gets": gets, "found": found}))
    }

    fn walk(&self, seconds: f64) -> Value {
        let (mut objects, mut sum) = (0_usize, 0);
        let measurement = self.deliveries.measure();
        while measurement.seconds() < seconds {
            let pods = self.store.state();
            sum = pods.iter().map(|pod| sum_of_fields(pod)).sum::<usize>();
            objects += pods.len();
        }
        measurement.response(json!({"objects": objects, "sum": sum}))
    }

    fn look_up(&self, seconds: f64) -> Value {
        let mut nodes: Vec<String> = self.store.state().iter().filter_map(|pod| node_of(pod)).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let (mut random, mut lookups, mut found) = (Random::new(1), 0_u64, 0);
        let measurement = self.deliveries.measure();
        while measurement.seconds() < seconds {
            let node = nodes[random.below(nodes.len())].as_str();
            let on_node =
                |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.as_deref() == Some(node));
            found += self.store.state_filter(on_node).len();
            lookups += 1;
        }
        measurement.response(json!({"lookups": lookups, "found": found}))
    }
}

fn node_of(pod: &Pod) -> Option<String> {
    pod.spec.as_ref()?.node_name.clone()
}
