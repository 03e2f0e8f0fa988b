//! informer as a benchmark program: one shared informer of pods, an index by node, and handlers that count.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use informer::SharedInformer;
use informer::cache::Retention;
use informer::source::WatchListPolicy;
use informer::workqueue::ExponentialBackoff;
use informer::workqueue::WorkQueue;
use informer::{Event, Index, IndexHandle, InformerOptions, Key, Object, Registration};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use peer_protocol::{
    Command, Deliveries, Failure, Keep, Peer, ProcessStats, Random, Strategy, Sync, revised, sent_in,
};
use serde_json::{Value, json};

fn main() -> ExitCode {
    peer_protocol::run(|config| Ok(InformerPeer { client: informer::client(config)?, syncing: None }))
}

struct InformerPeer {
    client: kube::Client,
    syncing: Option<Syncing>,
}

/// State after a sync has started.
struct Syncing {
    pods: SharedInformer<Pod>,
    by_node: IndexHandle<Pod>,
    deliveries: Arc<Deliveries>,
    handlers: Vec<Registration>,
}

impl Peer for InformerPeer {
    async fn execute(&mut self, command: Command) -> Result<Value, Failure> {
        match command {
            Command::Sync(sync) => self.sync(&sync).await,
            Command::Queue { keys, workers } => Ok(queue(keys, workers).await),
            Command::Follow { until, latency } => {
                let syncing = self.synced()?;
                let settled = || syncing.handlers.iter().all(|handler| handler.pending_events() == 0);
                syncing.deliveries.follow(until, latency, settled).await
            }
            Command::Read { seconds, typed } => self.synced()?.read(seconds, typed),
            Command::Index { seconds } => Ok(self.synced()?.look_up(seconds)),
            Command::Count { revision } => self.synced()?.count(revision.as_deref()),
            Command::Report { .. } | Command::Quit => Err("handled by the protocol loop".into()),
        }
    }
}

impl InformerPeer {
    async fn sync(&mut self, sync: &Sync) -> Result<Value, Failure> {
        sync.check(&["json", "protobuf"])?;
        let stats = ProcessStats::start();
        let policy = match sync.strategy {
            Strategy::Default | Strategy::WatchList => WatchListPolicy::Auto,
            Strategy::List => WatchListPolicy::Never,
        };
        let retention = match sync.keep {
            Keep::Default => Retention::Bytes,
            Keep::Compressed => Retention::Compressed,
            Keep::Decoded => Retention::Decoded,
        };
        let options =
            InformerOptions::default().watch_list(policy).prefer_protobuf(sync.encoding == "protobuf");
        let options = options.retention(retention);
        let pods = SharedInformer::with_options(self.client.clone(), options);
        let by_node = pods.add_index(Index::field("spec.nodeName"))?;
        let deliveries = Arc::new(Deliveries::new(sync.handlers));
        let handler = |number| {
            let deliveries = Arc::clone(&deliveries);
            pods.on_event(move |event| record(&deliveries, number, &event))
        };
        let handlers: Vec<Registration> = (0..sync.handlers).map(handler).collect();
        pods.start();
        pods.wait_for_sync(Duration::from_mins(10)).await?;
        for handler in &handlers {
            handler.wait_for_sync().await;
        }
        let response = stats.response(json!({"objects": pods.lister().len()}));
        self.syncing = Some(Syncing { pods, by_node, deliveries, handlers });
        Ok(response)
    }

    fn synced(&self) -> Result<&Syncing, Failure> {
        self.syncing.as_ref().ok_or_else(|| "sync first".into())
    }
}

fn record(deliveries: &Deliveries, handler: usize, event: &Event<Pod>) {
    let object: &Object<Pod> = match event {
        Event::Added { object, .. } => object,
        Event::Updated { new, .. } => new,
        Event::Deleted { last, .. } => last,
    };
    let sent = || sent_in(object.metadata::<ObjectMeta>().ok()?.annotations.as_ref());
    deliveries.record(handler, object.resource_version().as_str(), sent);
}

impl Syncing {
    fn count(&self, revision: Option<&str>) -> Result<Value, Failure> {
        let mut response =
            json!({"objects": self.pods.lister().len(), "delivered": self.deliveries.events()});
        if revision.is_some() {
            let pods = self.pods.lister().list();
            let metadata: Vec<ObjectMeta> = pods.iter().map(Object::metadata).collect::<Result<_, _>>()?;
            response["revised"] =
                json!(revised(metadata.iter().map(|meta| meta.annotations.as_ref()), revision));
        }
        Ok(response)
    }

    fn read(&self, seconds: f64, typed: bool) -> Result<Value, Failure> {
        let lister = self.pods.lister();
        let keys: Vec<Key> = lister.list().iter().map(|pod| pod.key().clone()).collect();
        let (mut random, mut gets, mut found) = (Random::new(1), 0_u64, 0_u64);
        let stats = ProcessStats::start();
        while stats.seconds() < seconds {
            for _ in 0..32 {
                let pod = lister.get_by_key(&keys[random.below(keys.len())]);
                if let Some(pod) = pod {
                    found += u64::from(!typed || pod.typed()?.spec.is_some());
                }
                gets += 1;
            }
        }
        Ok(stats.response(json!({"gets": gets, "found": found})))
    }

    fn look_up(&self, seconds: f64) -> Value {
        let lister = self.pods.lister();
        let nodes = lister.index_values(&self.by_node);
        let (mut random, mut lookups, mut found) = (Random::new(1), 0_u64, 0);
        let stats = ProcessStats::start();
        while stats.seconds() < seconds {
            found += lister.by_index(&self.by_node, &nodes[random.below(nodes.len())]).len();
            lookups += 1;
        }
        stats.response(json!({"lookups": lookups, "found": found}))
    }
}

/// Measures from the first add until the last key is done; returns how many were done.
async fn queue(keys: usize, workers: usize) -> Value {
    let names: Vec<Key> = (0..keys).map(|number| Key::new("default", &format!("pod-{number:07}"))).collect();
    let queue: WorkQueue<Key> = WorkQueue::with_rate_limiter(ExponentialBackoff::default());
    let started = Instant::now();
    if workers == 0 {
        let mut completed = 0;
        for name in &names {
            queue.add(name.clone());
            if let Some(item) = queue.try_get() {
                item.done();
                completed += 1;
            }
        }
        return json!({"keys": completed, "seconds": started.elapsed().as_secs_f64()});
    }
    let work = |_| {
        let queue = queue.clone();
        tokio::spawn(async move {
            let mut completed = 0;
            while let Some(item) = queue.get().await {
                item.done();
                completed += 1;
            }
            completed
        })
    };
    let tasks: Vec<_> = (0..workers).map(work).collect();
    for name in names {
        queue.add(name);
    }
    queue.shutdown();
    let mut completed = 0;
    for task in tasks {
        // The keys of a worker that panicked are not counted.
        completed += task.await.unwrap_or(0);
    }
    json!({"keys": completed, "seconds": started.elapsed().as_secs_f64()})
}
