//! Step 7 of the tutorial: tests without a cluster.

// ANCHOR: objects
use crate::cleanup::{Cleanup, CleanupSpec, CleanupStatus, controller, reconcile};
use informer::controller::Outcome;
use informer::{Key, testing};
use informer_apiserver::{ApiServer, faults};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::CustomResourceExt as _;
use serde_json::{Value, json};
use std::time::Duration;

/// A job's pod that finished at this time.
fn finished_pod(name: &str, finished: Timestamp) -> Value {
    let terminated = json!({"exitCode": 0, "finishedAt": finished.to_string()});
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "shop", "name": name, "labels": {"app": "report"}},
        "spec": {"containers": [{"name": "main", "image": "report:1"}]},
        "status": {"phase": "Succeeded", "containerStatuses": [{
            "name": "main", "image": "report:1", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": terminated},
        }]},
    })
}

fn cleanup(ttl_seconds: u32) -> Cleanup {
    let mut cleanup = Cleanup::new("reports", CleanupSpec { selector: "app=report".to_owned(), ttl_seconds });
    cleanup.metadata.namespace = Some("shop".to_owned());
    cleanup
}
// ANCHOR_END: objects

// ANCHOR: unit
/// The reconcile function alone: the objects in the caches and the responses to its requests are given.
#[tokio::test]
async fn pod_is_kept_until_its_ttl_has_passed() {
    let finished = Timestamp::now() - Duration::from_secs(60);
    let pod: Pod = serde_json::from_value(finished_pod("a", finished)).unwrap();
    let (client, requests) = testing::client(|request| panic!("unexpected request {request}"));
    let ctx = testing::context(client.clone(), Key::new("shop", "reports"))
        .objects([cleanup(90)])
        .objects([pod])
        .state(client)
        .build();
    match reconcile(ctx.key().clone(), ctx).await.unwrap() {
        Outcome::RequeueAfter(delay) => assert!(delay <= Duration::from_secs(30), "{delay:?}"),
        other => panic!("{other:?}"),
    }
    assert!(requests.all().is_empty());
}
// ANCHOR_END: unit

// ANCHOR: server
/// The whole controller against an API server in this process. Time is virtual: nothing waits for a minute.
#[tokio::test(start_paused = true)]
async fn finished_pods_are_deleted_although_the_watch_breaks() {
    let server = ApiServer::new();
    server.create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})).unwrap();
    server.create(&Cleanup::crd()).unwrap();
    let _fault = server.inject(faults::break_watch().after_frames(2));
    let controller = controller(server.client()).unwrap();
    let running = tokio::spawn(async move { controller.run().await });

    server.create(&cleanup(60)).unwrap();
    for name in ["a", "b", "c"] {
        let pod = finished_pod(name, server.now());
        server.create(&pod).unwrap();
        server.update_status(&pod).unwrap(); // a new pod is always pending
    }
    let timeout = Duration::from_secs(300);
    let all_deleted = |cleanup: &Cleanup| cleanup.status == Some(CleanupStatus { deleted: 3 });
    server.wait_for("shop/reports", timeout, all_deleted).await.unwrap();
    assert!(server.list("v1", "pods", Some("shop")).is_empty());
    running.abort();
}
// ANCHOR_END: server
