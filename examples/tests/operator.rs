//! The operator example against an embedded server: what it creates, repairs and cleans up, with and without
//! faults.
#![allow(clippy::unwrap_used)]

use crate::common::cluster::{advance_time, break_watches, requests_for, until};
use crate::common::server;
use crate::programs::operator;
use crate::programs::operator::{Website, WebsiteSpec};
use informer::manager::ManagerHandle;
use informer_apiserver::{ApiServer, Verb, faults};
use kube::CustomResourceExt as _;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::task::JoinHandle;

fn start(server: &ApiServer) -> (ManagerHandle, JoinHandle<()>) {
    let manager = operator::manager(server.client());
    let handle = manager.handle();
    (handle, tokio::spawn(async { manager.run_until(std::future::pending()).await.unwrap() }))
}

fn website(name: &str, replicas: i32) -> Website {
    let mut website = Website::new(name, WebsiteSpec { image: "nginx".to_owned(), replicas });
    website.metadata.namespace = Some("shop".to_owned());
    website
}

fn get(server: &ApiServer, api_version: &str, plural: &str, name: &str) -> Option<Value> {
    server.get(api_version, plural, Some("shop"), name)
}

fn deployment(server: &ApiServer, name: &str) -> Option<Value> {
    get(server, "apps/v1", "deployments", name)
}

fn replicas(server: &ApiServer, name: &str) -> Option<i64> {
    deployment(server, name)?["spec"]["replicas"].as_i64()
}

fn site(server: &ApiServer, name: &str) -> Option<Value> {
    get(server, "informer.example/v1", "websites", name)
}

/// Marks the pods of a deployment as ready with its current spec, as its controller would.
fn make_ready(server: &ApiServer, name: &str, ready: i64) {
    set_status(server, name, &json!({"replicas": ready, "readyReplicas": ready, "updatedReplicas": ready}));
}

/// Writes the status of a deployment, as its controller does after it has seen the current spec.
fn set_status(server: &ApiServer, name: &str, status: &Value) {
    let mut deployment = deployment(server, name).unwrap();
    deployment["status"] = status.clone();
    deployment["status"]["observedGeneration"] = deployment["metadata"]["generation"].clone();
    server.update_status(&deployment).unwrap();
}

fn events(server: &ApiServer) -> Vec<String> {
    let events = server.list("events.k8s.io/v1", "events", Some("shop"));
    let text = |event: &Value| {
        let part = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
        format!("{} {}: {}", part("type"), part("reason"), part("note"))
    };
    events.iter().map(text).collect()
}

#[tokio::test(start_paused = true)]
async fn creates_repairs_and_cleans_up_a_website() {
    let server = server();
    server.create(&Website::crd()).unwrap();
    let (handle, task) = start(&server);
    server.create(&website("blog", 2)).unwrap();
    until(|| deployment(&server, "blog").is_some() && get(&server, "v1", "services", "blog").is_some()).await;
    let made = deployment(&server, "blog").unwrap();
    let owner = &made["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["kind"], &owner["name"], &owner["controller"]),
        (&json!("Website"), &json!("blog"), &json!(true))
    );
    assert_eq!(site(&server, "blog").unwrap()["metadata"]["finalizers"], json!(["informer.example/website"]));

    make_ready(&server, "blog", 2);
    until(|| site(&server, "blog").unwrap()["status"]["ready"] == 2).await;
    let mut changed = site(&server, "blog").unwrap();
    changed["spec"]["replicas"] = json!(5);
    server.update(&changed).unwrap();
    until(|| replicas(&server, "blog") == Some(5)).await;
    server.delete("apps/v1", "deployments", Some("shop"), "blog").unwrap();
    until(|| replicas(&server, "blog") == Some(5)).await;

    server.delete("informer.example/v1", "websites", Some("shop"), "blog").unwrap();
    until(|| site(&server, "blog").is_none()).await;
    handle.stop();
    task.await.unwrap();
    // Events recorded in the last reconcile are written before the end.
    for event in [
        "Normal Applied: updated the deployment",
        "Normal AllReady: 2 of 2 replicas are ready",
        "Normal Stopped: the website was deleted",
    ] {
        assert!(events(&server).contains(&event.to_owned()), "{event}: {:?}", events(&server));
    }
}

/// Number of attempted status writes of websites.
fn status_writes(server: &ApiServer) -> usize {
    let patches = requests_for(server, Verb::Patch, "websites");
    patches.iter().filter(|patch| patch.subresource.as_deref() == Some("status")).count()
}

/// Regression: every test passed with errors of status writes ignored, because no status write ever failed in
/// a test.
#[tokio::test(start_paused = true)]
async fn failed_status_write_is_retried() {
    let server = server();
    server.create(&Website::crd()).unwrap();
    let (handle, task) = start(&server);
    server.create(&website("blog", 2)).unwrap();
    until(|| site(&server, "blog").unwrap()["status"]["ready"] == 0).await;
    advance_time(Duration::from_secs(1)).await;
    let conflicts =
        server.inject(faults::respond(409).for_verb(Verb::Patch).for_resource("websites").max_hits(3));
    make_ready(&server, "blog", 2);
    until(|| site(&server, "blog").unwrap()["status"]["ready"] == 2).await;
    assert_eq!(conflicts.hits(), 3);

    // A real conflict: the website is changed between read and write. Its generation stays the same, so only
    // the error causes another reconcile.
    let stalled = server.inject(faults::stall_request().for_verb(Verb::Patch).for_resource("websites"));
    let before = status_writes(&server);
    make_ready(&server, "blog", 1);
    until(|| stalled.hits() == 1).await;
    let mut annotated = site(&server, "blog").unwrap();
    annotated["metadata"]["annotations"] = json!({"by": "another-writer"});
    server.update(&annotated).unwrap();
    drop(stalled);
    until(|| site(&server, "blog").unwrap()["status"]["ready"] == 1).await;
    assert_eq!(site(&server, "blog").unwrap()["metadata"]["annotations"]["by"], "another-writer");
    assert_eq!(status_writes(&server) - before, 2, "the first write was rejected");
    handle.stop();
    task.await.unwrap();
}

/// Regression: every test passed without `ctx.wrote`. A reconcile that does not see its own deployment yet
/// applies it again.
#[tokio::test(start_paused = true)]
async fn waits_for_its_own_writes() {
    let server = server();
    server.create(&Website::crd()).unwrap();
    let (handle, task) = start(&server);
    server.create(&website("first", 1)).unwrap();
    until(|| site(&server, "first").unwrap()["status"]["ready"] == 0).await;
    let applies = || requests_for(&server, Verb::Patch, "deployments").len();
    let before = applies();
    let silent_watch = server.inject(faults::stall_watch().for_resource("deployments"));
    until(|| silent_watch.affected_watches() == 1).await;
    server.create(&website("blog", 2)).unwrap();
    until(|| deployment(&server, "blog").is_some()).await;
    // Its service, its status and this change cause reconciles.
    let mut changed = site(&server, "blog").unwrap();
    changed["spec"]["replicas"] = json!(3);
    server.update(&changed).unwrap();
    advance_time(Duration::from_secs(2)).await;
    assert_eq!(applies() - before, 1, "the first write is not visible yet");
    drop(silent_watch);
    until(|| replicas(&server, "blog") == Some(3)).await;
    advance_time(Duration::from_secs(30)).await;
    assert_eq!(applies() - before, 2);
    handle.stop();
    task.await.unwrap();
}

/// An error that a retry cannot fix is reported and not retried.
#[tokio::test(start_paused = true)]
async fn invalid_website_is_reported_once() {
    let server = server();
    server.create(&Website::crd()).unwrap();
    server.create(&website("huge", 1_000)).unwrap();
    let (handle, task) = start(&server);
    until(|| events(&server) == ["Warning TooMany: at most 100 replicas"]).await;
    advance_time(Duration::from_secs(600)).await;
    assert!(deployment(&server, "huge").is_none());
    assert_eq!(events(&server).len(), 1);
    handle.stop();
    task.await.unwrap();
}

/// Broken watches, failing and conflicting writes, an unavailable server: everything converges in the end.
#[tokio::test(start_paused = true)]
async fn converges_after_faults() {
    let server = server();
    server.create(&Website::crd()).unwrap();
    let (handle, task) = start(&server);
    let rules = [
        faults::respond(500).for_verb(Verb::Patch).probability_percent(30, 1),
        faults::respond(409).for_verb(Verb::Patch).for_resource("websites").probability_percent(30, 1),
        faults::drop_connection().probability_percent(5, 2),
        faults::break_watch().probability_percent(10, 3),
    ];
    let injected: Vec<_> = rules.into_iter().map(|rule| server.inject(rule)).collect();
    for number in 0..20 {
        server.create(&website(&format!("site-{number}"), 1)).unwrap();
    }
    for round in 2..6 {
        advance_time(Duration::from_secs(5)).await;
        break_watches(&server);
        for number in 0..20 {
            let mut site = site(&server, &format!("site-{number}")).unwrap();
            site["spec"]["replicas"] = json!(round);
            server.update(&site).unwrap();
        }
        let unavailable = server.inject(faults::drop_connection());
        advance_time(Duration::from_secs(20)).await;
        drop(unavailable);
    }
    drop(injected);
    let all = |holds: &dyn Fn(&str) -> bool| (0..20).all(|number| holds(&format!("site-{number}")));
    until(|| all(&|name| replicas(&server, name) == Some(5))).await;
    for number in 0..20 {
        make_ready(&server, &format!("site-{number}"), 5);
    }
    until(|| all(&|name| site(&server, name).unwrap()["status"]["ready"] == 5)).await;
    for number in 0..20 {
        server.delete("informer.example/v1", "websites", Some("shop"), &format!("site-{number}")).unwrap();
    }
    until(|| all(&|name| site(&server, name).is_none())).await;
    handle.stop();
    task.await.unwrap();
}

/// The condition `Ready` of a website.
fn ready(server: &ApiServer, name: &str) -> Value {
    site(server, name).unwrap()["status"]["conditions"][0].clone()
}

#[tokio::test(start_paused = true)]
async fn condition_has_generation_and_time_of_its_transition() {
    let server = server();
    server.create(&Website::crd()).unwrap();
    let (handle, task) = start(&server);
    server.create(&website("blog", 2)).unwrap();
    until(|| ready(&server, "blog")["message"] == "0 of 2 replicas are ready").await;
    let first = ready(&server, "blog");
    assert_eq!(
        (&first["type"], &first["status"], &first["reason"]),
        (&json!("Ready"), &json!("False"), &json!("Starting"))
    );
    assert_eq!(first["observedGeneration"], 1);

    // The status of the condition stays, and with it the time.
    advance_time(Duration::from_secs(60)).await;
    make_ready(&server, "blog", 1);
    until(|| ready(&server, "blog")["message"] == "1 of 2 replicas are ready").await;
    assert_eq!(ready(&server, "blog")["lastTransitionTime"], first["lastTransitionTime"]);
    make_ready(&server, "blog", 2);
    until(|| ready(&server, "blog")["status"] == "True").await;
    assert_ne!(ready(&server, "blog")["lastTransitionTime"], first["lastTransitionTime"]);

    // A change of the spec is invalid, and then valid again.
    for (replicas, reason, generation) in [(1_000, "TooMany", 2), (2, "AllReady", 3)] {
        let mut changed = site(&server, "blog").unwrap();
        changed["spec"]["replicas"] = json!(replicas);
        server.update(&changed).unwrap();
        until(|| ready(&server, "blog")["observedGeneration"] == generation).await;
        assert_eq!(ready(&server, "blog")["reason"], reason);
    }
    let writes = status_writes(&server);
    advance_time(Duration::from_secs(600)).await;
    assert_eq!(status_writes(&server), writes, "nothing changes, nothing is written");
    handle.stop();
    task.await.unwrap();
}

/// Regression: after a change of the image, the condition said `True` for the new spec while all pods still had
/// the old one. Only the ready replicas were read, and no test changed a website whose pods were ready.
#[tokio::test(start_paused = true)]
async fn website_is_ready_after_the_rollout_of_its_spec() {
    let server = server();
    server.create(&Website::crd()).unwrap();
    let (handle, task) = start(&server);
    server.create(&website("blog", 2)).unwrap();
    until(|| deployment(&server, "blog").is_some()).await;
    make_ready(&server, "blog", 2);
    until(|| ready(&server, "blog")["status"] == "True").await;

    // The status of the deployment is that of the old spec.
    let mut changed = site(&server, "blog").unwrap();
    changed["spec"]["image"] = json!("nginx:2");
    server.update(&changed).unwrap();
    until(|| ready(&server, "blog")["observedGeneration"] == 2).await;
    let starting = |server: &ApiServer| {
        let condition = ready(server, "blog");
        assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("Starting")));
        condition["message"].clone()
    };
    assert_eq!(starting(&server), "2 of 2 replicas are ready, but not all are updated");
    advance_time(Duration::from_secs(60)).await;
    starting(&server);

    // Pods of the old spec are left: two, and then one.
    for (ready, updated) in [(3, 1), (2, 2)] {
        let status = json!({"replicas": 3, "readyReplicas": ready, "updatedReplicas": updated});
        set_status(&server, "blog", &status);
        until(|| site(&server, "blog").unwrap()["status"]["ready"] == ready).await;
        starting(&server);
    }
    make_ready(&server, "blog", 2);
    until(|| ready(&server, "blog")["status"] == "True").await;
    assert_eq!(ready(&server, "blog")["observedGeneration"], 2);
    handle.stop();
    task.await.unwrap();
}

/// Regression: a service changed by another user stayed as it was, because only its existence was checked.
#[tokio::test(start_paused = true)]
async fn changed_service_and_image_are_repaired() {
    let server = server();
    server.create(&Website::crd()).unwrap();
    let (handle, task) = start(&server);
    server.create(&website("blog", 2)).unwrap();
    let service = || get(&server, "v1", "services", "blog");
    until(|| service().is_some() && ready(&server, "blog")["status"] == "False").await;
    advance_time(Duration::from_secs(10)).await;
    let applies = || requests_for(&server, Verb::Patch, "services").len();
    assert_eq!(applies(), 1, "defaults of the server are no difference");

    let mut changed = service().unwrap();
    changed["spec"]["selector"]["website"] = json!("other");
    server.update(&changed).unwrap();
    until(|| service().unwrap()["spec"]["selector"]["website"] == "blog").await;
    let image = |object: &Value| object["spec"]["template"]["spec"]["containers"][0]["image"].clone();
    let mut changed = deployment(&server, "blog").unwrap();
    changed["spec"]["template"]["spec"]["containers"][0]["image"] = json!("other");
    server.update(&changed).unwrap();
    until(|| image(&deployment(&server, "blog").unwrap()) == "nginx").await;
    advance_time(Duration::from_secs(600)).await;
    assert_eq!(applies(), 2);
    handle.stop();
    task.await.unwrap();
}

/// Regression: in a pod, the endpoints could not be reached by the kubelet. The usage promised all addresses there,
/// but the default was always localhost, and no test read it.
#[test]
fn endpoints_in_a_pod_are_reachable_from_outside() {
    assert_eq!(operator::default_probe_address(true).to_string(), "[::]:8080");
    assert_eq!(operator::default_probe_address(false).to_string(), "127.0.0.1:8080");
}
