//! Helpers of kube-rs, and one that users write themselves: conditions, recorded events, and leader election
//! with Leases.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::api::events::v1::Event as StoredEvent;
use kube::api::{Api, DeleteParams, ListParams, PatchParams, PostParams};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::runtime::wait::{Condition, await_condition, conditions, delete::delete_and_finalize};
use kube::{Resource, ResourceExt};
use serde_json::json;

use crate::world::{World, config_map, merge, object, pod, with_timeout};

#[tokio::test]
async fn condition_is_awaited() {
    let world = World::new().await;
    let pods: Api<Pod> = world.api();
    let waiting = await_condition(pods.clone(), "a", conditions::is_pod_running());
    let running = async {
        pods.create(&PostParams::default(), &pod("a")).await.unwrap();
        let running = merge(json!({"status": {"phase": "Running"}}));
        pods.patch_status("a", &PatchParams::default(), &running).await.unwrap();
    };
    let (ran, ()) = with_timeout(async { futures::join!(waiting, running) }).await;
    let ran = ran.unwrap().unwrap();
    assert_eq!(ran.status.unwrap().phase.as_deref(), Some("Running"));

    let uid = ran.metadata.uid.unwrap();
    let waiting = await_condition(pods.clone(), "a", conditions::is_deleted(&uid));
    let deleting = async {
        pods.delete("a", &DeleteParams::default().grace_period(0)).await.unwrap();
        // A recreated object of the same name has another uid.
        pods.create(&PostParams::default(), &pod("a")).await.unwrap();
    };
    let (gone, ()) = with_timeout(async { futures::join!(waiting, deleting) }).await;
    gone.unwrap();
    let there = conditions::is_created().and(conditions::is_pod_running().not());
    with_timeout(await_condition(pods, "a", there)).await.unwrap();
}

#[tokio::test]
async fn deletion_is_awaited() {
    let world = World::new().await;
    let maps = world.maps();
    let map: ConfigMap = object(json!({"metadata": {"name": "a", "finalizers": ["peer.example.com/f"]}}));
    maps.create(&PostParams::default(), &map).await.unwrap();
    let params = DeleteParams::default();
    let deleting = delete_and_finalize(maps.clone(), "a", &params);
    let finalizing = async {
        let marked =
            |map: Option<&ConfigMap>| map.is_some_and(|map| map.metadata.deletion_timestamp.is_some());
        await_condition(maps.clone(), "a", marked).await.unwrap();
        let free = merge(json!({"metadata": {"finalizers": []}}));
        maps.patch("a", &PatchParams::default(), &free).await.unwrap();
    };
    let (gone, ()) = with_timeout(async { futures::join!(deleting, finalizing) }).await;
    gone.unwrap();
    assert!(maps.get_opt("a").await.unwrap().is_none());
}

#[tokio::test]
async fn events_are_recorded_and_counted() {
    let world = World::new().await;
    let map = world.maps().create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    let reporter =
        Reporter { controller: "peer.example.com/tests".to_owned(), instance: Some("one".to_owned()) };
    let recorder = Recorder::new(world.client.clone(), reporter);
    let event = |reason: &str| Event {
        type_: EventType::Normal,
        reason: reason.to_owned(),
        note: Some("as it should be".to_owned()),
        action: "Testing".to_owned(),
        secondary: None,
    };
    for reason in ["Once", "Often", "Often", "Often"] {
        recorder.publish(&event(reason), &map.object_ref(&())).await.unwrap();
    }
    let events: Api<StoredEvent> = world.api();
    let regarding = ListParams::default().fields("regarding.kind=ConfigMap,regarding.name=a");
    let mut written: Vec<(String, Option<i32>)> = events
        .list(&regarding)
        .await
        .unwrap()
        .into_iter()
        .map(|event| (event.reason.unwrap_or_default(), event.series.map(|series| series.count)))
        .collect();
    written.sort();
    assert_eq!(written, [("Often".to_owned(), Some(3)), ("Once".to_owned(), None)]);

    // The older group shows the same event.
    let older: Api<k8s_openapi::api::core::v1::Event> = world.api();
    let involved = ListParams::default().fields("involvedObject.name=a,reason=Often");
    let older = older.list(&involved).await.unwrap();
    assert_eq!(older.items[0].message.as_deref(), Some("as it should be"));
    assert_eq!(older.items[0].involved_object.uid, map.uid());
}

/// A Lease with this holder, renewed at second `renewed`.
fn lease(holder: &str, renewed: u32, transitions: i32) -> Lease {
    object(json!({
        "metadata": {"name": "leader"},
        "spec": {
            "holderIdentity": holder, "leaseDurationSeconds": 15, "leaseTransitions": transitions,
            "renewTime": format!("2026-01-01T00:00:{renewed:02}.123456Z"),
        },
    }))
}

fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

#[tokio::test]
async fn of_two_candidates_one_becomes_leader() {
    let world = World::new().await;
    let leases: Api<Lease> = world.api();
    let post = PostParams { field_manager: Some("elector".to_owned()), ..PostParams::default() };
    // Both create the Lease: one fails.
    let (one, two) = (lease("one", 0, 0), lease("two", 0, 0));
    let (one, two) = futures::join!(leases.create(&post, &one), leases.create(&post, &two));
    let outcomes = [one, two];
    let won: Vec<&Lease> = outcomes.iter().filter_map(|outcome| outcome.as_ref().ok()).collect();
    let lost = outcomes.iter().filter_map(|outcome| outcome.as_ref().err());
    for error in lost {
        assert!(matches!(error, kube::Error::Api(status) if status.is_already_exists()), "{error}");
    }
    let [winner] = won[..] else { panic!("{} leaders", won.len()) };
    let renewed = winner.spec.as_ref().unwrap().renew_time.as_ref().unwrap();
    assert_eq!(serde_json::to_value(renewed).unwrap(), "2026-01-01T00:00:00.123456Z");

    // Later both update it at the same version: one fails with a conflict.
    for round in 1..=5 {
        let current = leases.get("leader").await.unwrap();
        let renewed = |holder: &str| {
            let mut renewed = lease(holder, round, 1);
            renewed.metadata.resource_version = current.resource_version();
            renewed
        };
        let (one, two) = (renewed("one"), renewed("two"));
        let (one, two) =
            futures::join!(leases.replace("leader", &post, &one), leases.replace("leader", &post, &two));
        let leader = match (one, two) {
            (Ok(lease), Err(error)) | (Err(error), Ok(lease)) => {
                assert!(matches!(&error, kube::Error::Api(status) if status.is_conflict()), "{error}");
                lease
            }
            both => panic!("{both:?}"),
        };
        assert_eq!(holder(&leases.get("leader").await.unwrap()), holder(&leader));
    }
}
