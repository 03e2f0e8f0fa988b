//! The gate without a controller: admissions, views and permits.

use super::*;
use crate::controller::{Controller, Outcome};
use crate::factory::SharedInformerFactory;
use crate::shard_view::ShardHandle;
use informer_apiserver::ApiServer;
use informer_core::shard::{HashRange, HashRanges, ShardProperty, shard_hash};
use k8s_openapi::api::core::v1::ConfigMap;
use std::convert::Infallible;

const HOUR: Duration = Duration::from_secs(3600);

/// Returns a group that holds all ranges, and a gate without sources.
fn gate() -> (ShardHandle, Arc<ShardGate>) {
    let group = ShardHandle::new("default/test", ShardProperty::Namespace);
    group.set_acts_until(Some(Instant::now() + HOUR));
    group.publish(|view| view.held = Arc::new(HashRanges::all()));
    let factory = SharedInformerFactory::new(ApiServer::new().client());
    let controller = Controller::new::<ConfigMap>(&factory)
        .with_shard_handle(group.clone())
        .reconcile(|_, _| async { Ok::<_, Infallible>(Outcome::Done) });
    let parts = controller.shared();
    let (shard, own_kind) = (parts.shard.as_ref().unwrap(), &parts.sources[0].engine);
    let (deleted, queue) = (&parts.deleted_keys, WorkQueue::new());
    let gate = ShardGate::new(shard, own_kind, std::iter::empty(), deleted, &queue, HOUR);
    (group, gate)
}

fn range(namespace: &str) -> HashRange {
    let hash = shard_hash(namespace);
    HashRange::new(hash, hash).unwrap()
}

fn admit(gate: &Arc<ShardGate>, namespace: &str) -> Permit {
    match gate.admit(&Key::new(namespace, "web"), Priority::default()) {
        Admission::Admitted(permit) => permit,
        Admission::Deferred | Admission::Foreign => panic!("the range is held and complete"),
    }
}

/// Bug: a work item is completed before its permit is dropped, so that the next reconcile of the key may be admitted
/// by another thread in between. The permits were recorded by key, and the end of the first one removed the record of
/// the second: the range was released while a reconcile ran, which was not withdrawn either. The tests had one thread.
#[tokio::test(start_paused = true)]
async fn permit_that_ends_late_does_not_hide_the_next_one_of_its_key() {
    let (group, gate) = gate();
    let (first, second) = (admit(&gate, "a"), admit(&gate, "a"));
    drop(first);
    let number = group.publish(|view| view.held = Arc::default());
    gate.apply();
    assert!(group.confirmed() < number, "a reconcile runs");
    assert_eq!(*second.withdrawal().borrow(), Withdrawal::Immediate);
    drop(second);
    assert_eq!(group.confirmed(), number);
}

/// Bug: a reconcile delayed the release of all ranges that were released with its own one.
#[tokio::test(start_paused = true)]
async fn running_reconcile_delays_the_release_of_its_range_only() {
    let (group, gate) = gate();
    let slow = admit(&gate, "a");
    let number = group.publish(|view| {
        (view.held, view.releasing) = (Arc::default(), Arc::new(HashRanges::all()));
    });
    gate.apply();
    assert!(group.has_ended(&range("b"), number) && !group.has_ended(&range("a"), number));
    assert!(group.remaining_work(number).covers(&range("a")));
    drop(slow);
    assert!(group.has_ended(&range("a"), number) && group.remaining_work(number).is_empty());
}

/// Bug: a key that was deferred because the group was late waited for the next change of a cache, if the renewal
/// succeeded after all and the view did not change.
#[tokio::test(start_paused = true)]
async fn key_that_is_deferred_while_the_group_is_late_is_queued_again() {
    let (group, gate) = gate();
    let task = gate.start();
    tokio::time::sleep(Duration::from_secs(1)).await;
    group.set_acts_until(Some(Instant::now()));
    let key = Key::new("a", "web");
    assert!(matches!(gate.admit(&key, Priority::default()), Admission::Deferred));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(gate.queue.len(), 0);
    group.set_acts_until(Some(Instant::now() + HOUR));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(gate.queue.len(), 1);
    drop(gate);
    tokio::time::timeout(HOUR, task).await.expect("the task ends with the gate").unwrap();
}

/// Bug: a reconcile that blocked its thread after the end of its run delayed the release of all ranges, because only
/// its own end was noticed.
#[tokio::test(start_paused = true)]
async fn views_are_confirmed_while_a_permit_outlives_the_run() {
    let (group, gate) = gate();
    let permit = admit(&gate, "a");
    let _task = gate.start();
    drop(gate);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let number = group.publish(|view| view.held = Arc::default());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(group.has_ended(&range("b"), number) && !group.has_ended(&range("a"), number));
    drop(permit);
    assert_eq!(group.confirmed(), number);
}

/// Bug: a shutdown timeout that is not meant to end was added to the time, which panicked in the task of the gate.
#[tokio::test(start_paused = true)]
async fn shutdown_timeout_may_be_as_long_as_possible() {
    let (group, gate) = gate();
    let permit = admit(&gate, "a");
    let mut running = gate.lock().running.remove(&permit.number).unwrap();
    group.publish(|view| (view.held, view.releasing) = (Arc::default(), Arc::new(HashRanges::all())));
    running.withdraw(&group.view(), Instant::now(), Duration::MAX);
    assert!(running.deadline.is_some_and(|deadline| deadline > Instant::now() + HOUR));
    assert_eq!(*permit.withdrawal().borrow(), Withdrawal::Requested);
}

/// Bug: a reconcile that continued after a pause of the process could send further requests until the gate had
/// withdrawn it, which takes several steps.
#[tokio::test(start_paused = true)]
async fn reconcile_does_not_continue_after_a_pause() {
    let (group, gate) = gate();
    let permit = admit(&gate, "a");
    assert_eq!(permit.guard(async { 1 }).await, Some(1));
    let paused = permit.guard(async {
        tokio::time::sleep(HOUR).await;
        2
    });
    assert_eq!(paused.await, None, "no view was published, and the gate was not called");
    // A claim that was lost and gained again is another one.
    group.set_acts_until(Some(Instant::now() + HOUR));
    assert_eq!(permit.guard(async { 3 }).await, Some(3));
    group.publish(|view| view.held = Arc::default());
    group.publish(|view| view.held = Arc::new(HashRanges::all()));
    assert_eq!(permit.guard(async { 4 }).await, None);
}
