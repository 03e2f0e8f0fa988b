//! A manager that runs a membership.

use crate::harness::{Groups, Member, NAMESPACE, acting, assignment, lease, pass};
use informer::SharedInformerFactory;
use informer::controller::{Controller, Outcome};
use informer::election::LeaderElector;
use informer::manager::Manager;
use informer::shard::ShardGroup;
use informer_apiserver::{ApiServer, User, faults};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use std::time::Duration;
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn manager_joins_and_leaves_the_group() {
    let (server, groups) = (ApiServer::new(), Groups::default());
    let other = Member::start(&server, &groups, "other");
    other.wait_for_ranges(256).await;
    let group = ShardGroup::builder(server.client(), NAMESPACE, "shop").identity("managed").build().unwrap();
    let factory = SharedInformerFactory::new(server.client());
    let controller = Controller::new::<ConfigMap>(&factory)
        .reconcile(|_, _| async { Ok::<_, std::convert::Infallible>(Outcome::Done) });
    let manager = Manager::new().controller(controller).add_shard_group(&group).add_shard_group(&group);
    let handle = manager.handle();
    let unreachable = server.inject(faults::outage());
    let run = tokio::spawn(manager.run_until(std::future::pending()));
    tokio::time::sleep_until(tokio::time::Instant::now() + 5 * SECOND).await;
    let failures = handle.readiness_failures();
    assert!(
        failures
            .iter()
            .any(|failure| failure.starts_with("shard group default/shop: member managed: not renewed")),
        "{failures:?}"
    );
    drop(unreachable);
    handle.wait_until_ready(60 * SECOND).await.unwrap();
    other.wait_for_ranges(128).await;
    assert!(lease(&server, "managed").is_some());
    handle.stop();
    run.await.unwrap().unwrap();
    assert_eq!(lease(&server, "managed"), None);
    assert!(acting(&group.status()).is_empty());
    other.wait_for_ranges(256).await;
}

/// Bug: a manager that was stopped began to leave the group when its last reconcile had ended, and one reconcile delayed
/// the release of every range that was released with its own. No range had a worker meanwhile, up to the shutdown timeout.
#[tokio::test(start_paused = true)]
async fn stopping_manager_releases_ranges_while_a_reconcile_of_another_one_runs() {
    let (server, groups) = (ApiServer::new(), Groups::default());
    let metadata = serde_json::json!({"namespace": NAMESPACE, "name": "slow"});
    server.create(&serde_json::json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})).unwrap();
    let group = ShardGroup::builder(server.client(), NAMESPACE, "shop").identity("managed").build().unwrap();
    let (sender, mut started) = tokio::sync::mpsc::unbounded_channel();
    let factory = SharedInformerFactory::new(server.client());
    let controller = Controller::new::<Secret>(&factory).sharded(&group).reconcile(move |_, _| {
        let _received = sender.send(()).is_ok();
        async {
            pass(25 * SECOND).await;
            Ok::<_, std::convert::Infallible>(Outcome::Done)
        }
    });
    let manager = Manager::new().add_shard_group(&group).controller(controller);
    let handle = manager.handle();
    let run = tokio::spawn(manager.run_until(std::future::pending()));
    started.recv().await.unwrap();
    handle.stop();
    let stopped = Instant::now();
    let other = Member::start(&server, &groups, "other");
    other.wait_for_ranges(255).await;
    assert!(stopped.elapsed() < 10 * SECOND, "{:?}", stopped.elapsed());
    other.wait_for_ranges(256).await;
    let elapsed = stopped.elapsed();
    assert!((24 * SECOND..30 * SECOND).contains(&elapsed), "the reconcile ended after {elapsed:?}");
    run.await.unwrap().unwrap();
}

/// Bug: if the group of a controller did not run, because it was not added to the manager, nothing was reconciled, and
/// `/readyz` contained only that the informer connects.
#[tokio::test(start_paused = true)]
async fn controller_is_not_ready_if_its_group_does_not_run() {
    let (server, groups) = (ApiServer::new(), Groups::default());
    let group = ShardGroup::builder(server.client(), NAMESPACE, "shop").identity("one").build().unwrap();
    let factory = SharedInformerFactory::new(server.client());
    let controller = Controller::new::<ConfigMap>(&factory)
        .sharded(&group)
        .reconcile(|_, _| async { Ok::<_, std::convert::Infallible>(Outcome::Done) });
    let manager = Manager::new().controller(controller);
    let handle = manager.handle();
    let run = tokio::spawn(manager.run_until(std::future::pending()));
    pass(30 * SECOND).await;
    let failures = handle.readiness_failures().join("\n");
    assert!(failures.contains("the shard group default/shop has no ranges"), "{failures}");
    // A group may run without the manager.
    let _member = groups.run(group);
    handle.wait_until_ready(30 * SECOND).await.unwrap();
    handle.stop();
    run.await.unwrap().unwrap();
}

/// Bug: a manager with leader election and a shard group was accepted. Every process held ranges, but only the leader ran
/// the controllers, so that nothing reconciled the ranges of the others, and all were ready.
#[tokio::test(start_paused = true)]
async fn manager_with_leader_election_and_sharding_is_rejected() {
    let server = ApiServer::new();
    let group = ShardGroup::builder(server.client(), NAMESPACE, "shop").identity("managed").build().unwrap();
    let factory = SharedInformerFactory::new(server.client());
    let controller = || {
        Controller::new::<ConfigMap>(&factory)
            .sharded(&group)
            .reconcile(|_, _| async { Ok::<_, std::convert::Infallible>(Outcome::Done) })
    };
    let elected =
        || Manager::new().leader_election(LeaderElector::new(server.client(), NAMESPACE, "operator"));
    for manager in [elected().add_shard_group(&group), elected().controller(controller())] {
        let run = tokio::time::timeout(60 * SECOND, manager.run_until(std::future::pending()));
        let error = run.await.expect("the manager ends").unwrap_err();
        assert!(error.to_string().contains("leader election and sharding exclude each other"), "{error}");
        assert_eq!(error.kind(), informer::error::ErrorKind::Config);
    }
    Manager::new().controller(controller()).run_until(std::future::ready(())).await.unwrap();
    elected().run_until(std::future::ready(())).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn membership_needs_only_its_required_access() {
    let server = ApiServer::new();
    let build =
        |client, identity| ShardGroup::builder(client, NAMESPACE, "shop").identity(identity).build().unwrap();
    let access = build(server.client(), "one").required_access();
    for manifest in access.manifests("operator", NAMESPACE) {
        server.create(&manifest).unwrap();
    }
    let account = || User::new("system:serviceaccount:default:operator").group("system:serviceaccounts");
    let groups = Groups::default();
    let one = groups.run(build(server.client_as(account()), "one"));
    one.wait_for_ranges(256).await;
    let two = groups.run(build(server.client_as(account()), "two"));
    two.wait_for_ranges(128).await;
    two.stop().await;
    one.wait_for_ranges(256).await;
    assert_eq!(one.status().last_error, None);
}

#[tokio::test(start_paused = true)]
async fn metrics_show_ranges_and_moves() {
    let (server, groups) = (ApiServer::new(), Groups::default());
    let one = Member::start(&server, &groups, "one");
    one.wait_for_ranges(256).await;
    let two = Member::start(&server, &groups, "two");
    two.wait_for_ranges(128).await;
    let text = informer::metrics::encode([&one.group as &dyn informer::metrics::Collect]);
    for line in [
        r#"informer_shard_ranges{group="default/shop",state="held"} 128"#,
        r#"informer_shard_ranges{group="default/shop",state="releasing"} 0"#,
        r#"informer_shard_moves_total{group="default/shop",kind="gained"} 256"#,
        r#"informer_shard_moves_total{group="default/shop",kind="released"} 128"#,
        r#"informer_shard_moves_total{group="default/shop",kind="lost"} 0"#,
        r#"informer_shard_claim_seconds_count{group="default/shop"} 256"#,
        r#"informer_shard_handover_seconds_count{group="default/shop"} 128"#,
        r#"informer_shard_is_coordinator{group="default/shop"} 1"#,
        r#"informer_shard_highest_epoch{group="default/shop"} 1"#,
        "informer_shard_lease_writes_total{group=\"default/shop\"} ",
    ] {
        assert!(text.contains(line), "{line} is missing in {text}");
    }
    assert!(assignment(&server).is_some());
}
