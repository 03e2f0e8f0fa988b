//! Bugs of controllers of hash ranges.

use super::controllers::{Log, controller, create, eventually, group, hold, namespace, spawn};
use crate::controller::{Controller, Outcome};
use crate::error::ControllerError;
use crate::shard_view::ShardHandle;
use crate::{Selection, SharedInformerFactory};
use informer_apiserver::{ApiServer, faults};
use informer_core::shard::{HashRange, HashRanges, RangeToken, ShardProperty};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Semaphore;

/// Bug: the gate waited for the ranges of every divided source, also for those of an optional one that is forbidden or
/// not served and never has any. The controller started, and deferred each key forever.
#[tokio::test(start_paused = true)]
async fn absent_optional_source_delays_no_reconcile() {
    let server = ApiServer::new();
    namespace(&server, "a");
    let owner = create(&server, "ConfigMap", "a", "web", None);
    create(&server, "Secret", "a", "web-1", Some(&owner));
    let forbidden = server.inject(faults::forbid("secrets"));
    let (group, log) = (group(ShardProperty::Namespace), Log::default());
    hold(&group, HashRanges::all());
    let factory = SharedInformerFactory::new(server.client());
    let reconciled = log.clone();
    let controller = Controller::new::<ConfigMap>(&factory).owns::<Secret>().optional();
    let controller = controller.with_shard_handle(group.clone()).reconcile(move |key, ctx| {
        let children = ctx.lister::<Secret>().list().len();
        reconciled.update(&key, |entry| (entry.ended, entry.children) = (entry.ended + 1, children));
        async { Ok::<_, Infallible>(Outcome::Done) }
    });
    let _stop = spawn(&controller);
    eventually(|| log.get("a/web").ended > 0).await;
    // A range that is gained later does not wait for it either.
    hold(&group, HashRanges::default());
    let before = log.get("a/web");
    hold(&group, HashRanges::all());
    eventually(|| log.get("a/web").ended > before.ended).await;
    // When the kind appears, its objects count.
    drop(forbidden);
    eventually(|| log.get("a/web").children == 1).await;
    let stalled = server.inject(faults::stall_request().for_resource("secrets"));
    hold(&group, HashRanges::default());
    tokio::time::sleep(Duration::from_secs(5)).await;
    let before = log.get("a/web");
    hold(&group, HashRanges::all());
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(log.get("a/web"), before, "the secrets of the range are not listed yet");
    drop(stalled);
    eventually(|| log.get("a/web").ended > before.ended).await;
    assert_eq!(log.get("a/web").children, 1);
}

/// Bug: a range that was lost and gained again before a participant looked at the views, as after `SIGSTOP`, counted as
/// held all the time. Its objects were not listed again, although another process may have changed them, and a reconcile
/// that began under the lost claim continued.
#[tokio::test(start_paused = true)]
async fn range_lost_and_gained_between_two_looks_is_lost() {
    for property in [ShardProperty::Namespace, ShardProperty::Uid] {
        let server = ApiServer::new();
        namespace(&server, "a");
        create(&server, "ConfigMap", "a", "slow", None);
        create(&server, "ConfigMap", "a", "other", None);
        let (group, log, slow) = (group(property), Log::default(), Arc::new(Semaphore::new(0)));
        hold(&group, HashRanges::all());
        let controller = controller(&server, &group, &log, &slow);
        let _stop = spawn(&controller);
        eventually(|| log.get("a/slow").started == 1 && log.get("a/other").ended > 0).await;
        let before = log.get("a/other").ended;
        let lists = |plural: &'static str| {
            let requests = server.recorded_requests();
            let is_list = |request: &&informer_apiserver::RecordedRequest| {
                request.parameter("watch").is_none() || request.parameter("sendInitialEvents").is_some()
            };
            requests.iter().filter(is_list).filter(|request| request.plural == plural).count()
        };
        assert_eq!((lists("configmaps"), lists("secrets")), (1, 1));
        hold(&group, HashRanges::default());
        let number = hold(&group, HashRanges::all());
        eventually(|| controller.metrics().withdrawn == 1).await;
        eventually(|| group.confirmed() >= number).await;
        eventually(|| log.get("a/slow").started == 2 && log.get("a/other").ended > before).await;
        assert_eq!((lists("configmaps"), lists("secrets")), (2, 2));
        slow.add_permits(1);
        eventually(|| log.get("a/slow").ended == 1).await;
    }
}

/// Bug: the only token was the current one of the group, so that a reconcile that began under an earlier claim could send
/// the token of a later one.
#[tokio::test(start_paused = true)]
async fn range_token_is_that_of_the_claim_under_which_the_reconcile_began() {
    let server = ApiServer::new();
    namespace(&server, "a");
    create(&server, "ConfigMap", "a", "web", None);
    let group = group(ShardProperty::Namespace);
    let claim = |group: &ShardHandle, version: &str| {
        let range = HashRange::new(0, u64::MAX).unwrap();
        let tokens = BTreeMap::from([(range, RangeToken::new(version, 1))]);
        group.publish(|view| {
            (view.held, view.tokens) = (Arc::new(HashRanges::all()), Arc::new(tokens));
        });
    };
    claim(&group, "7");
    let factory = SharedInformerFactory::new(server.client());
    let tokens = Arc::new(Mutex::new(Vec::new()));
    let (seen, claimed) = (Arc::clone(&tokens), group.clone());
    let controller = Controller::new::<ConfigMap>(&factory).with_shard_handle(group.clone());
    let controller = controller.reconcile(move |_, ctx| {
        let (seen, claimed) = (Arc::clone(&seen), claimed.clone());
        async move {
            seen.lock().unwrap().push(ctx.range_token());
            // The range is lost and gained again. This reconcile is not dropped before its next pause.
            claim(&claimed, "9");
            seen.lock().unwrap().push(ctx.range_token());
            Ok::<_, Infallible>(Outcome::Done)
        }
    });
    let _stop = spawn(&controller);
    eventually(|| tokens.lock().unwrap().len() >= 4).await;
    let (old, new) = (Some(RangeToken::new("7", 1)), Some(RangeToken::new("9", 1)));
    assert_eq!(tokens.lock().unwrap()[..4], [old.clone(), old, new.clone(), new]);
}

/// Bug: with uid sharding, the uid of a deleted object was forgotten when its reconcile asked to be called again later.
/// The key was then taken for that of another process, and the cleanup was never finished.
#[tokio::test(start_paused = true)]
async fn delayed_reconcile_of_a_deleted_object_takes_place() {
    let server = ApiServer::new();
    namespace(&server, "a");
    create(&server, "ConfigMap", "a", "web", None);
    let (group, cleanups) = (group(ShardProperty::Uid), Arc::new(Mutex::new(0)));
    hold(&group, HashRanges::all());
    let factory = SharedInformerFactory::new(server.client());
    let (counter, listed) = (Arc::clone(&cleanups), Arc::new(Semaphore::new(0)));
    let reconciled = Arc::clone(&listed);
    let controller = Controller::new::<ConfigMap>(&factory).with_shard_handle(group.clone());
    let controller = controller.reconcile(move |key, ctx| {
        let is_deleted = ctx.lister::<ConfigMap>().get_by_key(&key).is_none();
        let mut cleanups = counter.lock().unwrap();
        *cleanups += i32::from(is_deleted);
        let is_unfinished = is_deleted && *cleanups < 3;
        reconciled.add_permits(1);
        let delay = Duration::from_secs(10);
        let outcome = if is_unfinished { Outcome::RequeueAfter(delay) } else { Outcome::Done };
        async { Ok::<_, Infallible>(outcome) }
    });
    let _stop = spawn(&controller);
    listed.acquire().await.unwrap().forget();
    server.delete("v1", "configmaps", Some("a"), "web").unwrap();
    eventually(|| *cleanups.lock().unwrap() == 3).await;
}

/// Bug: a controller without the group, but with informers of a sharded factory, was accepted. It had no gate, so that
/// two processes reconciled a key when its range moved. The same for informers of another group or property, whose
/// ranges are not those of the controller.
#[tokio::test(start_paused = true)]
async fn informers_that_are_divided_differently_are_rejected() {
    let server = ApiServer::new();
    let factory = SharedInformerFactory::new(server.client());
    let (group, other) = (group(ShardProperty::Namespace), group(ShardProperty::Namespace));
    let divided =
        |group: &ShardHandle, property| factory.select(Selection::default().shard(group.clone(), property));
    let sharded = divided(&group, ShardProperty::Namespace);
    let by_uid = divided(&group, ShardProperty::Uid);
    let of_other = divided(&other, ShardProperty::Namespace);
    let controller = |factory: &SharedInformerFactory| Controller::new::<ConfigMap>(factory);
    let controllers = [
        (true, controller(&sharded)),
        (false, controller(&factory)),
        (false, controller(&factory).with_shard_handle(group.clone())),
        (false, controller(&sharded).with_shard_handle(group.clone())),
    ];
    for (is_rejected, controller) in controllers {
        check(controller, is_rejected).await;
    }
    let owners = [
        (true, controller(&factory).owns_informer(sharded.informer::<Secret>())),
        (
            true,
            controller(&factory)
                .owns_informer(of_other.informer::<Secret>())
                .with_shard_handle(group.clone()),
        ),
        (
            true,
            controller(&factory).owns_informer(by_uid.informer::<Secret>()).with_shard_handle(group.clone()),
        ),
        (
            false,
            controller(&factory).owns_informer(sharded.informer::<Secret>()).with_shard_handle(group.clone()),
        ),
        (
            false,
            controller(&factory).owns_informer(factory.informer::<Secret>()).with_shard_handle(group.clone()),
        ),
    ];
    for (is_rejected, controller) in owners {
        check(controller, is_rejected).await;
    }
    // Cluster-scoped objects are read completely.
    check(controller(&sharded).reads::<Namespace>().with_shard_handle(group.clone()), true).await;
}

async fn check<L: 'static>(controller: Controller<L>, is_rejected: bool) {
    let controller = controller.reconcile(|_, _| async { Ok::<_, Infallible>(Outcome::Done) });
    let ended = controller.run_until(std::future::ready(())).await;
    assert_eq!(matches!(ended, Err(ControllerError::NotSharded { .. })), is_rejected, "{ended:?}");
}
