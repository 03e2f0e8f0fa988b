//! Controllers of hash ranges: which keys they reconcile, and what they confirm.

use crate::controller::{Context, Controller, Outcome, RunnableController};
use crate::error::ControllerError;
use crate::shard_view::ShardHandle;
use crate::{Selection, SharedInformerFactory};
use informer_apiserver::{ApiServer, faults};
use informer_core::shard::{HashRange, HashRanges, ShardProperty, shard_hash};
use informer_core::{Key, Object};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};

const TIMEOUT: Duration = Duration::from_secs(60);

/// What the reconciles of a controller did.
#[derive(Clone, Default)]
pub(super) struct Log(Arc<Mutex<BTreeMap<String, Entry>>>);

#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) started: u32,
    pub(super) ended: u32,
    /// The number of owned objects that the last reconcile has seen.
    pub(super) children: usize,
    /// The number of owned objects at its end.
    children_at_end: usize,
    /// Whether the last reconcile was asked to stop.
    pub(super) was_stopped: bool,
}

impl Log {
    pub(super) fn update(&self, key: &Key, update: impl FnOnce(&mut Entry)) {
        update(self.0.lock().unwrap().entry(key.to_string()).or_default());
    }

    pub(super) fn get(&self, key: &str) -> Entry {
        self.0.lock().unwrap().get(key).copied().unwrap_or_default()
    }

    pub(super) fn keys(&self) -> Vec<String> {
        self.0.lock().unwrap().keys().cloned().collect()
    }
}

pub(super) fn group(property: ShardProperty) -> ShardHandle {
    let group = ShardHandle::new("default/test", property);
    group.set_acts_until(Some(tokio::time::Instant::now() + Duration::from_secs(1_000_000)));
    group
}

pub(super) fn hold(group: &ShardHandle, held: HashRanges) -> u64 {
    group.publish(|view| (view.held, view.is_settled) = (Arc::new(held), true))
}

pub(super) fn only(hash: u64) -> HashRanges {
    HashRange::new(hash, hash).into_iter().collect()
}

pub(super) fn namespace(server: &ApiServer, name: &str) {
    server.create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})).unwrap();
}

pub(super) fn create(
    server: &ApiServer,
    kind: &str,
    namespace: &str,
    name: &str,
    owner: Option<&Value>,
) -> Value {
    let mut metadata = json!({"name": name, "namespace": namespace});
    if let Some(owner) = owner {
        metadata["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "ConfigMap", "controller": true,
            "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}]);
    }
    server.create(&json!({"apiVersion": "v1", "kind": kind, "metadata": metadata})).unwrap()
}

pub(super) fn uid_hash(object: &Value) -> u64 {
    shard_hash(object["metadata"]["uid"].as_str().unwrap())
}

pub(super) async fn eventually(condition: impl Fn() -> bool) {
    let reached = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, reached).await.expect("the condition holds in time");
}

/// Creates a controller of config maps that own secrets. Each reconcile of an object named `slow` takes a permit.
pub(super) fn controller(
    server: &ApiServer,
    group: &ShardHandle,
    log: &Log,
    slow: &Arc<Semaphore>,
) -> RunnableController {
    let factory = SharedInformerFactory::new(server.client());
    let (log, slow) = (log.clone(), Arc::clone(slow));
    let reconcile = move |key: Key, ctx: Context| {
        let (log, slow) = (log.clone(), Arc::clone(&slow));
        async move {
            let secrets = ctx.lister::<Secret>();
            let is_child = |secret: &Object<Secret>| {
                secret.namespace() == key.namespace() && secret.name().starts_with(key.name())
            };
            let children = || secrets.list().into_iter().filter(is_child).count();
            log.update(&key, |entry| (entry.started, entry.children) = (entry.started + 1, children()));
            if key.name() == "slow" {
                slow.acquire().await.unwrap().forget();
            }
            let was_stopped = ctx.is_stop_requested();
            log.update(&key, |entry| {
                (entry.ended, entry.was_stopped) = (entry.ended + 1, was_stopped);
                entry.children_at_end = children();
            });
            Ok::<_, Infallible>(Outcome::Done)
        }
    };
    let controller = Controller::new::<ConfigMap>(&factory).owns::<Secret>().concurrency(4);
    controller.with_shard_handle(group.clone()).reconcile(reconcile)
}

pub(super) fn spawn(controller: &RunnableController) -> watch::Sender<bool> {
    let (stop, mut stopped) = watch::channel(false);
    let controller = controller.clone();
    tokio::spawn(async move {
        let stopped = async { drop(stopped.wait_for(|stop| *stop).await) };
        controller.run_until(stopped).await
    });
    stop
}

/// No reconcile starts before the caches of all sources contain its range: the owned objects would appear missing.
#[tokio::test(start_paused = true)]
async fn gained_range_is_reconciled_when_all_sources_contain_it() {
    let server = ApiServer::new();
    for name in ["a", "b"] {
        namespace(&server, name);
        let owner = create(&server, "ConfigMap", name, "web", None);
        create(&server, "Secret", name, "web-1", Some(&owner));
        create(&server, "Secret", name, "web-2", Some(&owner));
    }
    let (group, log, slow) = (group(ShardProperty::Namespace), Log::default(), Arc::new(Semaphore::new(0)));
    hold(&group, only(shard_hash("a")));
    let _stop = spawn(&controller(&server, &group, &log, &slow));
    eventually(|| log.get("a/web").ended > 0).await;
    assert_eq!((log.get("a/web").children, log.keys()), (2, vec!["a/web".to_owned()]));
    // The secrets of the next range arrive much later than its config maps.
    let stalled = server.inject(faults::stall_request().for_resource("secrets"));
    hold(&group, HashRanges::all());
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(log.get("b/web").started, 0, "its secrets are unknown");
    drop(stalled);
    eventually(|| log.get("b/web").ended > 0).await;
    assert_eq!(log.get("b/web").children, 2);
}

/// Handover without overlap: the range is confirmed as released only when its reconciles have ended.
#[tokio::test(start_paused = true)]
async fn c15_release_waits_for_running_reconciles() {
    let server = ApiServer::new();
    for name in ["a", "b"] {
        namespace(&server, name);
        create(&server, "ConfigMap", name, "slow", None);
    }
    let (group, log, slow) = (group(ShardProperty::Namespace), Log::default(), Arc::new(Semaphore::new(0)));
    hold(&group, HashRanges::all());
    let _stop = spawn(&controller(&server, &group, &log, &slow));
    eventually(|| log.get("a/slow").started + log.get("b/slow").started == 2).await;
    let b = only(shard_hash("b"));
    let number = group.publish(|view| {
        (view.held, view.releasing) = (Arc::new(HashRanges::all().difference(&b)), Arc::new(b.clone()));
    });
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(group.confirmed() < number, "a reconcile of the range runs");
    // Its key is not taken again, also if the object changes.
    server
        .update(&json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"},
        "metadata": {"name": "slow", "namespace": "b"}}))
        .unwrap();
    slow.add_permits(2);
    eventually(|| group.confirmed() >= number).await;
    let expected = Entry { started: 1, ended: 1, was_stopped: true, ..Entry::default() };
    assert_eq!(log.get("b/slow"), expected);
    assert!(!log.get("a/slow").was_stopped);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(log.get("b/slow"), expected);
}

/// Bug: the objects of a range left the caches as soon as its release began. A reconcile that still ran read none of
/// them, as if they were deleted.
#[tokio::test(start_paused = true)]
async fn reconcile_of_a_released_range_reads_its_objects_until_it_ends() {
    for property in [ShardProperty::Namespace, ShardProperty::Uid] {
        let server = ApiServer::new();
        namespace(&server, "a");
        let owner = create(&server, "ConfigMap", "a", "slow", None);
        create(&server, "Secret", "a", "slow-1", Some(&owner));
        let (group, log, slow) = (group(property), Log::default(), Arc::new(Semaphore::new(0)));
        hold(&group, HashRanges::all());
        let _stop = spawn(&controller(&server, &group, &log, &slow));
        eventually(|| log.get("a/slow").started == 1).await;
        let hash = if property == ShardProperty::Uid { uid_hash(&owner) } else { shard_hash("a") };
        let number = group.publish(|view| {
            (view.held, view.releasing) =
                (Arc::new(HashRanges::all().difference(&only(hash))), Arc::new(only(hash)));
        });
        tokio::time::sleep(Duration::from_secs(5)).await;
        // A view that changes something else does not end the work either.
        let number = number.max(group.publish(|view| view.is_settled = false));
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(group.confirmed() < number, "a reconcile of the range runs");
        slow.add_permits(1);
        // The range is released when the work has ended and the caches do not contain it.
        eventually(|| group.confirmed() >= number).await;
        let entry = log.get("a/slow");
        assert_eq!((entry.ended, entry.children, entry.children_at_end), (1, 1, 1), "{property:?}");
    }
}

/// A range that was lost, and not released, may have another owner already.
#[tokio::test(start_paused = true)]
async fn c15_lost_range_drops_running_reconciles() {
    let server = ApiServer::new();
    namespace(&server, "a");
    create(&server, "ConfigMap", "a", "slow", None);
    let (group, log, slow) = (group(ShardProperty::Namespace), Log::default(), Arc::new(Semaphore::new(0)));
    hold(&group, HashRanges::all());
    let controller = controller(&server, &group, &log, &slow);
    let _stop = spawn(&controller);
    eventually(|| log.get("a/slow").started == 1).await;
    let number = hold(&group, HashRanges::default());
    eventually(|| group.confirmed() >= number).await;
    assert_eq!(controller.metrics().withdrawn, 1);
    slow.add_permits(1);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(log.get("a/slow").ended, 0);
    hold(&group, HashRanges::all());
    eventually(|| log.get("a/slow").ended == 1).await;
}

/// A reconcile that does not end while its range is released is dropped after the shutdown timeout.
#[tokio::test(start_paused = true)]
async fn slow_reconcile_of_a_released_range_is_dropped_after_the_timeout() {
    let server = ApiServer::new();
    namespace(&server, "a");
    create(&server, "ConfigMap", "a", "slow", None);
    let (group, log, slow) = (group(ShardProperty::Namespace), Log::default(), Arc::new(Semaphore::new(0)));
    hold(&group, HashRanges::all());
    let _stop = spawn(&controller(&server, &group, &log, &slow));
    eventually(|| log.get("a/slow").started == 1).await;
    let requested_at = tokio::time::Instant::now();
    let number = group.publish(|view| {
        (view.held, view.releasing) = (Arc::default(), Arc::new(HashRanges::all()));
    });
    eventually(|| group.confirmed() >= number).await;
    assert_eq!(log.get("a/slow").ended, 0);
    let elapsed = requested_at.elapsed().as_secs();
    assert!((30..32).contains(&elapsed), "the shutdown timeout is 30 s: {elapsed} s");
}

/// Cluster-scoped objects have no namespace, and are divided by uid in a group that divides others by namespace.
#[tokio::test(start_paused = true)]
async fn cluster_scoped_objects_are_divided_by_uid() {
    let server = ApiServer::new();
    for name in ["a", "b", "c", "d", "e", "f"] {
        namespace(&server, name);
    }
    let objects = server.list("v1", "namespaces", None);
    let uid = |name: &str| objects.iter().find(|object| object["metadata"]["name"] == name).map(uid_hash);
    let (group, log) = (group(ShardProperty::Namespace), Log::default());
    let held: HashRanges =
        ["a", "b"].into_iter().filter_map(uid).filter_map(|hash| HashRange::new(hash, hash)).collect();
    hold(&group, held);
    let factory = SharedInformerFactory::new(server.client());
    let reconciled = log.clone();
    let reconcile = move |key: Key, _: Context| {
        reconciled.update(&key, |entry| entry.ended += 1);
        async { Ok::<_, Infallible>(Outcome::Done) }
    };
    let controller = Controller::new::<Namespace>(&factory).with_shard_handle(group.clone());
    let _stop = spawn(&controller.reconcile(reconcile));
    eventually(|| log.keys() == ["a", "b"]).await;
    let select = |property| Selection::default().shard(group.clone(), property);
    let cached = factory.select(select(ShardProperty::Namespace)).informer::<Namespace>();
    cached.start();
    cached.wait_for_sync(TIMEOUT).await.unwrap();
    let names: Vec<String> = cached.snapshot().iter().map(|object| object.name().to_owned()).collect();
    assert_eq!(names, ["a", "b"]);
    // The others come with their ranges, and are reconciled then.
    hold(&group, HashRanges::all());
    eventually(|| log.keys().len() >= 6).await;
}

/// With uid sharding, the key of a deleted object does not tell which process acts; its last uid does.
#[tokio::test(start_paused = true)]
async fn c2_deletion_is_reconciled_by_the_process_that_held_the_uid() {
    let server = ApiServer::new();
    namespace(&server, "a");
    let mine = create(&server, "ConfigMap", "a", "mine", None);
    create(&server, "Secret", "a", "mine-1", Some(&mine));
    let other = create(&server, "ConfigMap", "a", "other", None);
    create(&server, "Secret", "a", "other-1", Some(&other));
    let (group, log, slow) = (group(ShardProperty::Uid), Log::default(), Arc::new(Semaphore::new(0)));
    hold(&group, only(uid_hash(&mine)));
    let _stop = spawn(&controller(&server, &group, &log, &slow));
    eventually(|| log.get("a/mine").ended > 0).await;
    assert_eq!(log.get("a/mine").children, 1, "the owned object is divided by the uid of its owner");
    let before = log.get("a/mine").ended;
    for name in ["mine", "other"] {
        server.delete("v1", "configmaps", Some("a"), name).unwrap();
    }
    eventually(|| log.get("a/mine").ended > before).await;
    assert_eq!(log.keys(), ["a/mine"]);
}

#[tokio::test(start_paused = true)]
async fn kinds_that_are_only_watched_cannot_be_divided_by_uid() {
    let server = ApiServer::new();
    for (property, is_rejected) in [(ShardProperty::Uid, true), (ShardProperty::Namespace, false)] {
        let factory = SharedInformerFactory::new(server.client());
        let controller = Controller::new::<ConfigMap>(&factory)
            .watches::<Secret>(|_| Vec::new())
            .with_shard_handle(group(property))
            .reconcile(|_, _| async { Ok::<_, Infallible>(Outcome::Done) });
        let ended = controller.run_until(std::future::ready(())).await;
        assert_eq!(matches!(ended, Err(ControllerError::NotSharded { .. })), is_rejected, "{ended:?}");
    }
}
