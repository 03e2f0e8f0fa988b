//! What the caches of the members request from the server.

use crate::harness::{Groups, Member, NAMESPACE, pass};
use informer::shard::{HashRanges, ShardKey};
use informer::{SharedInformer, SharedInformerFactory};
use informer_apiserver::{ApiServer, RecordedRequest, Verb};
use k8s_openapi::api::core::v1::Secret;
use serde_json::json;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// Number of objects.
const SECRETS: usize = 60;

/// A member with a sharded cache.
struct Process {
    member: Member,
    secrets: SharedInformer<Secret>,
}

impl Process {
    fn start(server: &ApiServer, groups: &Groups, identity: &str, revision: &str) -> Self {
        let member = Member::start_with(server, groups, identity, |builder| {
            builder.shard_by(ShardKey::Uid).revision(revision)
        });
        let factory = SharedInformerFactory::new(server.client()).sharded(&member.group);
        let secrets = factory.informer::<Secret>();
        factory.start();
        Self { member, secrets }
    }

    /// Waits until the member has a third of the ranges, and the cache contains them.
    async fn wait_for_third(&self) {
        self.member.wait_until(|member| (85..=86).contains(&member.ranges())).await;
        let held = self.member.status().held;
        let mut status = self.secrets.subscribe_status();
        let cached = status.wait_for(|status| status.complete_ranges().as_ref() == Some(&held));
        tokio::time::timeout(60 * SECOND, cached).await.expect("the ranges are cached").unwrap();
    }

    /// Ends in order.
    async fn stop(self) -> ProcessEnd {
        self.member.stop().await;
        ProcessEnd { _secrets: self.secrets }
    }
}

/// A process whose member has left. Its informer continues to run, without ranges.
struct ProcessEnd {
    _secrets: SharedInformer<Secret>,
}

/// Returns the hashes that a list selects; `None` if the request is no list.
fn listed(request: &RecordedRequest) -> Option<HashRanges> {
    let is_list = request.verb == Verb::List || request.parameter("sendInitialEvents").is_some();
    if request.plural != "secrets" || !is_list {
        return None;
    }
    let Some(selector) = request.parameter("shardSelector") else { return Some(HashRanges::all()) };
    let ranges = selector.split(" || ").map(|range| {
        let bounds: Vec<&str> = range.split('\'').skip(1).step_by(2).collect();
        let bound = |text: &str| u128::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
        format!("{:016x}-{:016x}", bound(bounds[0]), bound(bounds[1]) - 1)
    });
    Some(ranges.collect::<Vec<_>>().join(",").parse().unwrap())
}

/// A rolling update with surge lists what its moves require and nothing else: no process lists a kind as a whole, and each
/// range is listed at most twice.
#[tokio::test(start_paused = true)]
async fn rolling_update_lists_gained_ranges_only() {
    let (server, groups) = (ApiServer::new(), Groups::default());
    for number in 0..SECRETS {
        let metadata = json!({"namespace": NAMESPACE, "name": format!("s{number}")});
        server.create(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})).unwrap();
    }
    let mut old: Vec<Process> =
        ["a", "b", "c"].map(|identity| Process::start(&server, &groups, identity, "1")).into();
    for process in &old {
        process.wait_for_third().await;
    }
    let before = server.recorded_requests().len();
    let (mut new, mut ended) = (Vec::new(), Vec::new());
    for identity in ["d", "e", "f"] {
        let surge = Process::start(&server, &groups, identity, "2");
        surge.member.wait_until(|member| member.group.is_ready()).await;
        new.push(surge);
        pass(SECOND).await;
        ended.push(old.remove(0).stop().await);
        pass(SECOND).await;
    }
    for process in &new {
        process.wait_for_third().await;
    }
    let cached: usize = new.iter().map(|process| process.secrets.snapshot().len()).sum();
    assert_eq!(cached, SECRETS);
    let requests = server.recorded_requests().split_off(before);
    let lists: Vec<HashRanges> = requests.iter().filter_map(listed).collect();
    let shares: Vec<f64> = lists.iter().map(HashRanges::share).collect();
    assert!(shares.len() >= 3, "each new process lists what it gains: {shares:?}");
    assert!(shares.iter().all(|share| *share < 0.5), "no list of everything: {shares:?}");
    assert!(shares.iter().sum::<f64>() <= 2.0 + 1e-9, "{shares:?}");
    for range in informer::shard::RangeCount::default().ranges() {
        let times = lists.iter().filter(|list| list.covers(&range)).count();
        assert!((1..=2).contains(&times), "range {range} was listed {times} times");
    }
}
