//! informer as a benchmark program: one shared informer of pods, an index, and handlers that count.

mod pod_lite;
mod queue;
mod reads;
mod saved;
mod shard;
mod tally;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use informer::cache::Retention;
use informer::source::WatchListPolicy;
use informer::{
    Event, Index, IndexHandle, InformerOptions, Object, Projection, Registration, SharedInformer,
    SharedInformerFactory,
};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use peer_protocol::{
    Command, Deliveries, Failure, GROUP, IndexBy, Keep, Peer, ProcessStats, Strategy, Sync, revised, sent_in,
};
use serde_json::{Value, json};

use pod_lite::PodLite;
use saved::Difference;
use shard::Membership;
use tally::Tally;

fn main() -> ExitCode {
    peer_protocol::run(|config| {
        let client = informer::client(config)?;
        Ok(InformerPeer { client, membership: None, syncing: None })
    })
}

struct InformerPeer {
    client: kube::Client,
    membership: Option<Membership>,
    syncing: Option<Syncing>,
}

/// State after a sync has started.
struct Syncing {
    pods: SharedInformer<Pod>,
    index: IndexHandle<Pod>,
    projection: Option<Projection<PodLite>>,
    deliveries: Arc<Deliveries>,
    handlers: Vec<Registration>,
    _durable: Option<Registration>,
    tally: Option<(Arc<Tally>, Registration)>,
}

impl Peer for InformerPeer {
    async fn execute(&mut self, command: Command) -> Result<Value, Failure> {
        match command {
            Command::Sync(sync) => self.sync(&sync).await,
            Command::Queue { keys, workers, .. } => Ok(queue::run(keys, workers).await),
            Command::Follow { until, latency } => {
                let syncing = self.synced()?;
                let settled = || syncing.handlers.iter().all(|handler| handler.pending_events() == 0);
                syncing.deliveries.follow(until, latency, settled).await
            }
            Command::Read { seconds, through } => self.synced()?.read(seconds, through),
            Command::Walk { seconds, through } => self.synced()?.walk(seconds, through),
            Command::Index { seconds, results, through } => self.synced()?.look_up(seconds, results, through),
            Command::Count { revision } => self.synced()?.count(revision.as_deref()),
            Command::Change { pods, revision } => {
                saved::change(&self.client, &self.synced()?.pods, pods, &revision).await
            }
            Command::Join { group, identity } => {
                self.membership = Some(Membership::join(self.client.clone(), &group, &identity)?);
                Ok(json!({}))
            }
            Command::Shard => Ok(self.joined()?.response(self.pods())),
            Command::Events => self.synced()?.events(),
            Command::LeaseWrites => shard::lease_writes(&self.client).await,
            Command::Leave => {
                let pods = self.syncing.as_ref().map(|syncing| &syncing.pods);
                self.membership.as_mut().ok_or("join first")?.leave(pods).await
            }
            Command::Stop => saved::stop(&self.synced()?.pods).await,
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
        let mut options = options.retention(retention);
        if let Some(directory) = &sync.state {
            options = options.persist(saved::persistence(directory));
        }
        let pods = match &self.membership {
            None => SharedInformer::with_options(self.client.clone(), options),
            Some(membership) => {
                let factory = SharedInformerFactory::with_options(self.client.clone(), options);
                factory.sharded(&membership.group).informer()
            }
        };
        if let Some(membership) = &self.membership {
            membership.observe(&pods);
        }
        let index = pods.add_index(match sync.index {
            IndexBy::Node => Index::field("spec.nodeName"),
            IndexBy::Group => Index::label(GROUP),
        })?;
        let projection = sync.project.then(|| pods.add_projection());
        let deliveries = Arc::new(Deliveries::new(sync.handlers));
        let handler = |number| {
            let deliveries = Arc::clone(&deliveries);
            pods.on_event(move |event| record(&deliveries, number, &event))
        };
        let handlers: Vec<Registration> = (0..sync.handlers).map(handler).collect();
        let difference = Arc::new(Difference::default());
        let durable = sync.durable.then(|| saved::add_durable_handler(&pods, &difference));
        let tally = sync.tally.then(|| Tally::add(&pods));
        pods.start();
        let readable = if sync.state.is_some() { Some(saved::readable(&pods, &stats).await) } else { None };
        pods.wait_for_sync(Duration::from_secs(600)).await?;
        for handler in handlers.iter().chain(&durable).chain(tally.as_ref().map(|(_, handler)| handler)) {
            handler.wait_for_sync().await;
        }
        let mut response = stats.response(json!({"objects": pods.lister().len(), "readable": readable}));
        let counters = pods.status().reflector;
        response["full_lists"] = json!(counters.full_lists);
        response["expired"] = json!(counters.expired);
        response["cached"] = json!(pods.metrics().memory_bytes);
        response["difference"] = difference.response();
        self.syncing =
            Some(Syncing { pods, index, projection, deliveries, handlers, _durable: durable, tally });
        Ok(response)
    }

    fn joined(&self) -> Result<&Membership, Failure> {
        self.membership.as_ref().ok_or_else(|| "join first".into())
    }

    fn pods(&self) -> Option<&SharedInformer<Pod>> {
        self.syncing.as_ref().map(|syncing| &syncing.pods)
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
    fn events(&self) -> Result<Value, Failure> {
        let (tally, handler) = self.tally.as_ref().ok_or("sync with `tally` first")?;
        let mut response = tally.response();
        response["pending"] = json!(handler.pending_events());
        response["objects"] = json!(self.pods.lister().len());
        Ok(response)
    }

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
}
