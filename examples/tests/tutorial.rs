//! The programs of the tutorial in the book: each step runs against the embedded server. The tests of step 7 are
//! tests here too, and run the controller of step 5.
#![allow(clippy::unwrap_used, clippy::duplicate_mod)]

#[path = "../tutorial/cleanup.rs"]
mod cleanup;
mod common;
#[path = "../tutorial/step1.rs"]
#[allow(dead_code)]
mod step1;
#[path = "../tutorial/step2.rs"]
#[allow(dead_code)]
mod step2;
#[path = "../tutorial/step3.rs"]
#[allow(dead_code)]
mod step3;
#[path = "../tutorial/step4.rs"]
#[allow(dead_code)]
mod step4;
#[path = "../tutorial/step5.rs"]
#[allow(dead_code)]
mod step5;
#[path = "../tutorial/step6.rs"]
#[allow(dead_code)]
mod step6;
#[path = "../tutorial/tests.rs"]
mod tests;

use common::cluster::{TIMEOUT, pod, with};
use common::server;
use informer::{Index, InformerOptions, SharedInformer, testing};
use k8s_openapi::api::core::v1::Pod;
use kube::CustomResourceExt as _;
use serde_json::{Value, json};

fn decode(pod: &Value) -> Pod {
    serde_json::from_value(pod.clone()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn step1_lists_the_pods() {
    let server = server();
    server.create(&pod("shop", "a")).unwrap();
    step1::run(server.client()).await.unwrap();
}

// ANCHOR: options
fn web_pods(client: kube::Client) -> Result<SharedInformer<Pod>, informer::Error> {
    let options = InformerOptions::default().namespace("shop").label_selector("app=web".parse()?);
    Ok(SharedInformer::with_options(client, options))
}
// ANCHOR_END: options

#[tokio::test(start_paused = true)]
async fn step1_with_options_contains_one_namespace_and_label() {
    let server = server();
    server.create(&pod("shop", "a")).unwrap();
    server.create(&with(pod("shop", "b"), "/metadata/labels/app", "db")).unwrap();
    server.create(&pod("default", "c")).unwrap();
    let pods = web_pods(server.client()).unwrap();
    pods.start();
    pods.wait_for_sync(TIMEOUT).await.unwrap();
    let names: Vec<String> = pods.snapshot().iter().map(|pod| pod.key().to_string()).collect();
    assert_eq!(names, ["shop/a"]);
}

#[tokio::test(start_paused = true)]
async fn step2_counts_pods_by_node() {
    let server = server();
    for (name, node) in [("a", "node-1"), ("b", "node-2"), ("c", "node-1")] {
        server.create(&with(pod("shop", name), "/spec/nodeName", node)).unwrap();
    }
    step2::run(server.client()).await.unwrap();

    let pods = SharedInformer::<Pod>::new(server.client());
    let by_node = pods.add_index(Index::field("spec.nodeName")).unwrap();
    pods.start();
    pods.wait_for_sync(TIMEOUT).await.unwrap();
    let counts = step2::count(&pods.snapshot(), &by_node);
    assert_eq!(counts, [("node-1".to_owned(), 2), ("node-2".to_owned(), 1)]);
}

#[tokio::test(start_paused = true)]
async fn step3_describes_changed_phases_only() {
    let pending = with(pod("shop", "a"), "/status", json!({"phase": "Pending"}));
    let running = with(pod("shop", "a"), "/status", json!({"phase": "Running"}));
    let labeled = with(running.clone(), "/metadata/labels/x", "y");
    let describe = |event| step3::describe(&event);
    assert_eq!(describe(testing::initial(decode(&pending))).as_deref(), Some("shop/a is Pending"));
    assert_eq!(describe(testing::added(decode(&pending))).as_deref(), Some("shop/a was created"));
    let changed = testing::updated(decode(&pending), decode(&running));
    assert_eq!(describe(changed).as_deref(), Some("shop/a: Pending → Running"));
    assert_eq!(describe(testing::updated(decode(&running), decode(&labeled))), None);
    assert_eq!(describe(testing::deleted(decode(&running))).as_deref(), Some("shop/a was deleted"));

    let server = server();
    step3::run(server.client(), async {}).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn step4_deletes_pods_that_finished_long_ago() {
    let server = server();
    let finish = |name: &str, time: &str| {
        let terminated = json!({"exitCode": 1, "finishedAt": time});
        let container = json!({"name": "main", "image": "nginx", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": terminated}});
        let status = json!({"phase": "Failed", "containerStatuses": [container]});
        server.create(&pod("shop", name)).unwrap();
        server.update_status(&with(pod("shop", name), "/status", status)).unwrap();
    };
    finish("old", "2026-01-01T00:00:00Z");
    finish("new", "2100-01-01T00:00:00Z");
    server.create(&pod("shop", "running")).unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(step4::run(server.client(), async { drop(stopped.await) }));
    let names = |server: &informer_apiserver::ApiServer| -> Vec<String> {
        let pods = server.list("v1", "pods", Some("shop"));
        pods.iter().map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    };
    server.wait_until(TIMEOUT, |server| names(server) == ["new", "running"]).await.unwrap();
    stop.send(()).unwrap();
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn step6_is_ready_after_its_election() {
    let server = server();
    server.create(&step6::Cleanup::crd()).unwrap();
    let manager = step6::manager(server.client()).unwrap();
    let handle = manager.handle();
    let running = tokio::spawn(manager.run_until(std::future::pending()));
    handle.wait_until_ready(TIMEOUT).await.unwrap();
    server
        .wait_until(TIMEOUT, |server| !server.list("coordination.k8s.io/v1", "leases", None).is_empty())
        .await
        .unwrap();
    handle.stop();
    running.await.unwrap().unwrap();
}
