//! Informers of hash ranges that change at run time.

use super::controllers::eventually;
use crate::handler::Delivery;
use crate::shard_view::ShardHandle;
use crate::{Event, EventStream, InformerOptions, Selection, SharedInformer};
use informer_apiserver::{ApiServer, faults};
use informer_core::shard::{HashRange, HashRanges, ShardProperty, shard_hash};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(60);

struct Setup {
    server: ApiServer,
    group: ShardHandle,
    informer: SharedInformer<ConfigMap>,
    stream: EventStream<ConfigMap, Delivery<ConfigMap>>,
    received: Received,
}

/// What a handler has received.
#[derive(Default)]
struct Received {
    known: BTreeSet<String>,
    deleted: BTreeSet<String>,
    released: BTreeSet<String>,
}

impl Received {
    fn apply(&mut self, delivery: Delivery<ConfigMap>) {
        match delivery {
            Delivery::Event(Event::Added { object, .. }) => {
                assert!(self.known.insert(object.name().to_owned()), "{object:?} was known");
            }
            Delivery::Event(Event::Updated { new, .. }) => assert!(self.known.contains(new.name())),
            Delivery::Event(Event::Deleted { last, .. }) => {
                assert!(self.known.remove(last.name()), "{last:?} was not known");
                self.deleted.insert(last.name().to_owned());
            }
            Delivery::Released { last } => {
                assert!(self.known.remove(last.name()), "{last:?} was not known");
                self.released.insert(last.name().to_owned());
            }
            Delivery::Lagged { .. } => {}
        }
    }
}

fn config_map(name: &str, value: u32) -> serde_json::Value {
    let metadata = json!({"name": name, "namespace": "default"});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"value": value.to_string()}})
}

/// The lower or upper half of all hashes.
fn half(upper: bool) -> HashRanges {
    let middle = 1 << 63;
    let range = if upper { HashRange::new(middle, u64::MAX) } else { HashRange::new(0, middle - 1) };
    range.into_iter().collect()
}

impl Setup {
    fn new(count: u32, honours_selectors: bool) -> Self {
        let server = ApiServer::new();
        server.set_shard_selectors(honours_selectors);
        for number in 0..count {
            server.create(&config_map(&format!("c{number}"), 0)).unwrap();
        }
        let group = ShardHandle::new("default/test", ShardProperty::Uid);
        let selection = Selection::default().namespace("default").shard(group.clone(), group.property());
        let informer = SharedInformer::with_options(server.client(), InformerOptions::from(selection));
        let stream = informer.handler().with_releases().event_stream();
        informer.start();
        Self { server, group, informer, stream, received: Received::default() }
    }

    fn hold(&self, held: HashRanges) -> u64 {
        self.group.publish(|view| (view.held, view.is_settled) = (Arc::new(held), true))
    }

    /// Waits until the cache contains exactly the objects of the server in these ranges, and the handler has received
    /// them.
    async fn wait_for(&mut self, held: &HashRanges) {
        let uid = |object: &serde_json::Value| object["metadata"]["uid"].as_str().unwrap().to_owned();
        let objects = self.server.list("v1", "configmaps", Some("default"));
        let expected: BTreeSet<String> = objects
            .iter()
            .filter(|object| held.contains(shard_hash(&uid(object))))
            .map(|object| object["metadata"]["name"].as_str().unwrap().to_owned())
            .collect();
        let reached = async {
            while self.received.known != expected {
                self.received.apply(self.stream.next().await.expect("the informer runs"));
            }
        };
        let is_in_time = tokio::time::timeout(TIMEOUT, reached).await.is_ok();
        assert!(is_in_time, "expected {expected:?}, received {:?}", self.received.known);
        let cached: BTreeSet<String> =
            self.informer.snapshot().iter().map(|object| object.name().to_owned()).collect();
        assert_eq!(cached, expected);
    }

    /// Returns the selectors of the lists and watch-lists so far.
    fn lists(&self) -> Vec<String> {
        let requests = self.server.recorded_requests();
        let lists = requests.iter().filter(|request| {
            request.parameter("watch").is_none() || request.parameter("sendInitialEvents").is_some()
        });
        lists.map(|request| request.parameter("shardSelector").unwrap_or_default()).collect()
    }

    async fn wait_for_confirmation(&self, number: u64) {
        let mut confirmations = self.group.subscribe_confirmations();
        let confirmed = async {
            while self.group.confirmed() < number {
                confirmations.changed().await.unwrap();
            }
        };
        tokio::time::timeout(TIMEOUT, confirmed).await.expect("the view is confirmed");
    }
}

/// C3 with sharding: objects come and go with their ranges, no release is a deletion, and what stays is not listed
/// again, whether or not the server filters.
#[tokio::test(start_paused = true)]
async fn ranges_are_gained_and_released_without_listing_others_again() {
    for honours_selectors in [true, false] {
        let mut setup = Setup::new(40, honours_selectors);
        setup.hold(half(false));
        setup.wait_for(&half(false)).await;
        assert!(setup.informer.status().synced);
        let first = setup.received.known.clone();
        setup.hold(HashRanges::all());
        setup.wait_for(&HashRanges::all()).await;
        assert!(setup.received.released.is_empty());
        let number = setup.hold(half(true));
        setup.wait_for(&half(true)).await;
        setup.wait_for_confirmation(number).await;
        assert_eq!(setup.received.released, first);
        assert!(setup.received.deleted.is_empty(), "no deletion: {:?}", setup.received.deleted);
        let lists = setup.lists();
        assert_eq!(lists.len(), 2, "one list for each gain: {lists:?}");
        assert!(lists[0].contains("'0x0000000000000000', '0x8000000000000000'"), "{lists:?}");
        assert!(lists[1].contains("'0x8000000000000000', '0x10000000000000000'"), "{lists:?}");
        // Changes of all objects: only those of the held ranges are received.
        for number in 0..40 {
            server_change(&setup.server, number);
        }
        setup.wait_for(&half(true)).await;
        assert_eq!(setup.lists().len(), 2, "nothing was listed again");
        assert_eq!(setup.informer.status().reflector.foreign > 0, !honours_selectors);
    }
}

/// A process that gains ranges has its share, and continues to serve it: only the state of the ranges shows the gain.
#[tokio::test(start_paused = true)]
async fn informer_stays_synced_while_ranges_are_gained() {
    let mut setup = Setup::new(40, true);
    setup.hold(half(false));
    setup.wait_for(&half(false)).await;
    let outage = setup.server.inject(faults::outage());
    setup.hold(HashRanges::all());
    tokio::time::sleep(Duration::from_secs(30)).await;
    let status = setup.informer.status();
    assert_eq!((status.synced, status.complete_ranges()), (true, Some(half(false))));
    setup.informer.wait_for_sync(Duration::from_millis(1)).await.unwrap();
    setup.wait_for(&half(false)).await;
    drop(outage);
    setup.wait_for(&HashRanges::all()).await;
    eventually(|| setup.informer.status().complete_ranges() == Some(HashRanges::all())).await;
}

/// Servers that ignore selectors send all objects: it must not matter when the feature gate is switched off or on.
#[tokio::test(start_paused = true)]
async fn selectors_may_be_ignored_or_honoured_at_any_time() {
    let mut setup = Setup::new(40, true);
    setup.hold(half(false));
    setup.wait_for(&half(false)).await;
    for (round, honours) in [false, true, false].into_iter().enumerate() {
        // kube-apiserver restarts to switch the gate, which ends all watches.
        setup.server.set_shard_selectors(honours);
        setup.server.restart();
        for number in 0..13 {
            server_change(&setup.server, 13 * u32::try_from(round).unwrap() + number);
        }
        setup.wait_for(&half(false)).await;
        setup.hold(HashRanges::all());
        setup.wait_for(&HashRanges::all()).await;
        setup.hold(half(false));
        setup.wait_for(&half(false)).await;
    }
    assert!(setup.informer.status().reflector.foreign > 0, "the server sent all objects for some time");
}

/// Updates or deletes an object, or creates another one.
fn server_change(server: &ApiServer, number: u32) {
    let name = format!("c{number}");
    match number % 3 {
        0 => drop(server.update(&config_map(&name, 1)).unwrap()),
        1 => drop(server.delete("v1", "configmaps", Some("default"), &name).unwrap()),
        _ => drop(server.create(&config_map(&format!("new{number}"), 1)).unwrap()),
    }
}

/// A surplus replica of a rolling update has no ranges and must become ready nevertheless.
#[tokio::test(start_paused = true)]
async fn informer_without_ranges_is_synced_when_the_group_is_settled() {
    let mut setup = Setup::new(4, true);
    tokio::task::yield_now().await;
    assert!(!setup.informer.status().synced);
    setup.hold(HashRanges::default());
    setup.informer.wait_for_sync(TIMEOUT).await.unwrap();
    assert!(setup.lists().is_empty(), "no request without ranges");
    setup.hold(HashRanges::all());
    setup.wait_for(&HashRanges::all()).await;
    setup.hold(HashRanges::default());
    setup.wait_for(&HashRanges::default()).await;
    assert_eq!(setup.received.released.len(), 4);
    assert!(setup.informer.status().synced);
    setup.hold(half(true));
    setup.wait_for(&half(true)).await;
}

/// Objects that are deleted while no process watches their range do not come back, and a deletion in a range that was
/// released is not delivered.
#[tokio::test(start_paused = true)]
async fn range_that_comes_back_contains_no_deleted_object() {
    let mut setup = Setup::new(30, true);
    setup.hold(HashRanges::all());
    setup.wait_for(&HashRanges::all()).await;
    setup.hold(half(true));
    setup.wait_for(&half(true)).await;
    for number in 0..30 {
        server_change(&setup.server, number);
    }
    setup.hold(HashRanges::all());
    setup.wait_for(&HashRanges::all()).await;
    setup.server.delete("v1", "configmaps", Some("default"), "new2").unwrap();
    setup.wait_for(&HashRanges::all()).await;
}

/// A view that changes while its predecessor is applied: the list of a range that is lost again is cancelled.
#[tokio::test(start_paused = true)]
async fn range_that_is_lost_while_it_is_listed_does_not_appear() {
    let mut setup = Setup::new(30, true);
    setup.hold(half(false));
    setup.wait_for(&half(false)).await;
    for _ in 0..20 {
        setup.hold(HashRanges::all());
        tokio::task::yield_now().await;
        setup.hold(half(false));
        tokio::task::yield_now().await;
        setup.hold(half(true));
    }
    setup.wait_for(&half(true)).await;
    setup.hold(half(false));
    setup.wait_for(&half(false)).await;
    assert!(setup.received.deleted.is_empty());
}
