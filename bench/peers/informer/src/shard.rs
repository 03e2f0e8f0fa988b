//! Sharding: the membership of this process in a group, and when it got and lost each range.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use informer::SharedInformer;
use informer::error::ConfigError;
use informer::shard::{HashRanges, RangeCount, ShardGroup, ShardKey};
use k8s_openapi::api::core::v1::Pod;
use peer_protocol::{Failure, ProcessStats};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The namespace of the objects of the group.
const NAMESPACE: &str = "default";

/// The membership of this process.
pub(crate) struct Membership {
    pub(crate) group: ShardGroup,
    held: Arc<RangeTimes>,
    complete: Arc<RangeTimes>,
    stop: watch::Sender<bool>,
    running: JoinHandle<Result<(), ConfigError>>,
}

impl Membership {
    /// Joins a group that divides objects by uid.
    pub(crate) fn join(client: kube::Client, name: &str, identity: &str) -> Result<Self, Failure> {
        let builder = ShardGroup::builder(client, NAMESPACE, name).shard_by(ShardKey::Uid);
        let group = builder.identity(identity).build()?;
        let held = Arc::new(RangeTimes::default());
        let (mut status, times) = (group.subscribe_status(), Arc::clone(&held));
        tokio::spawn(async move {
            while status.changed().await.is_ok() {
                times.record(&status.borrow_and_update().held);
            }
        });
        let (stop, mut stopped) = watch::channel(false);
        let member = group.clone();
        let running = tokio::spawn(async move {
            let stopped = async { drop(stopped.wait_for(|stop| *stop).await) };
            member.run(stopped).await
        });
        Ok(Self { group, held, complete: Arc::default(), stop, running })
    }

    /// Records from now on which ranges the cache contains.
    pub(crate) fn observe(&self, pods: &SharedInformer<Pod>) {
        let (mut status, times) = (pods.subscribe_status(), Arc::clone(&self.complete));
        tokio::spawn(async move {
            while status.changed().await.is_ok() {
                times.record(&status.borrow_and_update().complete_ranges().unwrap_or_default());
            }
        });
    }

    /// Returns the state of the member and the times of each range.
    pub(crate) fn response(&self, pods: Option<&SharedInformer<Pod>>) -> Value {
        let status = self.group.status();
        json!({
            "settled": status.is_settled,
            "coordinator": status.is_coordinator,
            "foreign": pods.map_or(0, |pods| pods.status().reflector.foreign),
            "held": self.held.begins(),
            "released": self.held.ends(),
            "complete": self.complete.begins(),
        })
    }

    /// Leaves the group in order.
    pub(crate) async fn leave(&mut self, pods: Option<&SharedInformer<Pod>>) -> Result<Value, Failure> {
        let stats = ProcessStats::start();
        self.stop.send_replace(true);
        (&mut self.running).await??;
        Ok(stats.response(self.response(pods)))
    }
}

/// Returns how many writes of Leases the server has counted.
pub(crate) async fn lease_writes(client: &kube::Client) -> Result<Value, Failure> {
    let request = http::Request::get("/metrics").body(Vec::new())?;
    let text = client.request_text(request).await?;
    let is_write = |line: &&str| {
        let verbs = ["POST", "PUT", "PATCH", "DELETE"].map(|verb| format!("verb=\"{verb}\""));
        line.starts_with("apiserver_request_total{")
            && line.contains("resource=\"leases\"")
            && verbs.iter().any(|verb| line.contains(verb))
    };
    let counts =
        text.lines().filter(is_write).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    Ok(json!({"writes": counts.sum::<f64>()}))
}

/// When each range was present and absent, in seconds since 1970.
#[derive(Default)]
struct RangeTimes(Mutex<Vec<Presence>>);

#[derive(Clone, Default)]
struct Presence {
    /// Since when the range has been present; `None` if it is absent.
    begin: Option<f64>,
    /// When it was absent again, the last time.
    end: Option<f64>,
}

impl RangeTimes {
    fn record(&self, present: &HashRanges) {
        let now = unix_time();
        let mut times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        times.resize(RangeCount::default().get(), Presence::default());
        for (presence, range) in times.iter_mut().zip(RangeCount::default().ranges()) {
            match (presence.begin, present.covers(&range)) {
                (None, true) => presence.begin = Some(now),
                (Some(_), false) => *presence = Presence { begin: None, end: Some(now) },
                _ => {}
            }
        }
    }

    fn begins(&self) -> Vec<Option<f64>> {
        self.times().into_iter().map(|presence| presence.begin).collect()
    }

    fn ends(&self) -> Vec<Option<f64>> {
        self.times().into_iter().map(|presence| presence.end).collect()
    }

    fn times(&self) -> Vec<Presence> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn unix_time() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
