//! Writing from a reconcile: server-side apply, the time, conflicts.

use super::{Running, event_log};
use crate::cluster::{create_namespace, create_pods, requests_for};
use informer::controller::{Context, Controller, Outcome};
use informer::error::{ApplyError, ErrorKind, OwnerError};
use informer::{Error, SharedInformerFactory};
use informer_apiserver::{ApiServer, Verb, faults};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn config_map(metadata: Value, data: Value) -> ConfigMap {
    serde_json::from_value(Value::from_iter([("metadata", metadata), ("data", data)])).unwrap()
}

fn stored(server: &ApiServer, name: &str) -> Value {
    server.get("v1", "configmaps", Some("default"), name).unwrap()
}

/// Runs one reconcile of the pod `default/a` with the function, and returns what the function returned.
pub(crate) async fn in_a_reconcile<F, R, T>(server: &ApiServer, call: F) -> T
where
    F: Fn(informer::Object<Pod>, Arc<Context>) -> R + Send + Sync + 'static,
    R: Future<Output = T> + Send + 'static,
    T: Send + Sync + 'static,
{
    create_pods(server, &["a"]);
    let factory = SharedInformerFactory::new(server.client());
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let controller = Controller::new::<Pod>(&factory).owns::<ConfigMap>().name("tested");
    let running = Running::start(controller.reconcile(move |key, ctx| {
        let pod = ctx.lister::<Pod>().get_by_key(&key).unwrap();
        let (result, sender) = (call(pod, Arc::new(ctx)), sender.clone());
        async move {
            let _ = sender.send(result.await);
            Ok::<_, Error>(Outcome::Done)
        }
    }));
    let result = receiver.recv().await.unwrap();
    running.stop().await.unwrap();
    result
}

/// Applies a config map in a reconcile of the pod `default/a`, and returns the error.
async fn apply_error(server: &ApiServer, metadata: Value) -> ApplyError {
    let call = move |pod, ctx: Arc<Context>| {
        let map = config_map(metadata.clone(), json!({}));
        async move { ctx.apply(&pod, map).await.unwrap_err() }
    };
    in_a_reconcile(server, call).await
}

#[tokio::test(start_paused = true)]
async fn apply_creates_the_object_with_its_owner_and_field_manager() {
    let server = ApiServer::new();
    let written = in_a_reconcile(&server, |pod, ctx| async move {
        ctx.apply(&pod, config_map(json!({"name": "m"}), json!({"color": "blue"}))).await.unwrap()
    })
    .await;
    let map = stored(&server, "m");
    assert_eq!(map["data"]["color"], "blue");
    assert_eq!(map["metadata"]["resourceVersion"], json!(written.metadata.resource_version));
    let owner = &map["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["name"]), (&json!("Pod"), &json!("a")));
    assert_eq!(owner["controller"], true);
    let manager = &map["metadata"]["managedFields"][0];
    assert_eq!((&manager["manager"], &manager["operation"]), (&json!("tested"), &json!("Apply")));
}

/// The fields of an applied object belong to the controller: it takes them from others, and what it does not
/// apply any more is removed. Fields of others stay.
#[tokio::test(start_paused = true)]
async fn apply_takes_its_fields_and_leaves_others() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let uid = server.get("v1", "pods", Some("default"), "a").unwrap()["metadata"]["uid"].clone();
    server
        .create(&json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "m", "namespace": "default"}, "data": {"color": "red", "theirs": "1"}}))
        .unwrap();
    let factory = SharedInformerFactory::new(server.client());
    let (sender, mut results) = event_log();
    let controller = Controller::new::<Pod>(&factory).owns::<ConfigMap>().field_manager("painter");
    let running = Running::start(controller.reconcile(move |key, ctx| {
        let sender = sender.clone();
        async move {
            let pod = ctx.lister::<Pod>().get_by_key(&key).ok_or("the pod exists")?;
            for data in [json!({"color": "blue", "size": "1"}), json!({"color": "blue"})] {
                let map = ctx.apply(&pod, config_map(json!({"name": "m"}), data)).await?;
                let _ = sender.send(json!(map.data).to_string());
            }
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(Outcome::Done)
        }
    }));
    results
        .expect(&[r#"{"color":"blue","size":"1","theirs":"1"}"#, r#"{"color":"blue","theirs":"1"}"#])
        .await;
    running.stop().await.unwrap();
    let map = stored(&server, "m");
    assert_eq!(map["metadata"]["ownerReferences"][0]["uid"], uid);
    let managers = map["metadata"]["managedFields"].as_array().unwrap();
    assert!(managers.iter().any(|entry| entry["manager"] == "painter"), "{managers:?}");
}

/// The next reconcile reads the applied object, although the watch is late: no number is written twice.
#[tokio::test(start_paused = true)]
async fn next_reconcile_sees_the_applied_object() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let _late = server.inject(faults::delay(Duration::from_secs(2)).for_verb(Verb::Watch));
    let factory = SharedInformerFactory::new(server.client());
    let (sender, mut counts) = event_log();
    let controller = Controller::new::<Pod>(&factory).owns::<ConfigMap>();
    let running = Running::start(controller.reconcile(move |key, ctx| {
        let sender = sender.clone();
        async move {
            let Some(pod) = ctx.lister::<Pod>().get_by_key(&key) else { return Ok(Outcome::Done) };
            let map = ctx.lister::<ConfigMap>().get("default", "count").map(|map| map.typed()).transpose()?;
            let count: u32 = map.map_or(0, |map| map.data.as_ref().unwrap()["count"].parse().unwrap());
            let _ = sender.send(count.to_string());
            if count == 3 {
                return Ok(Outcome::Done);
            }
            let data = json!({"count": (count + 1).to_string()});
            ctx.apply(&pod, config_map(json!({"name": "count"}), data)).await?;
            Ok::<_, Error>(Outcome::RequeueAfter(Duration::ZERO))
        }
    }));
    counts.expect(&["0", "1", "2", "3"]).await;
    assert_eq!(running.reconciler.metrics().invisible_writes, 0);
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn object_in_another_namespace_or_without_name_is_refused_without_a_request() {
    let server = ApiServer::new();
    let error = apply_error(&server, json!({"name": "m", "namespace": "other"})).await;
    let text =
        "own ConfigMap other/m by Pod default/a: an owner must be in the same namespace or cluster-scoped";
    assert_eq!(error.to_string(), text);
    assert!(matches!(error, ApplyError::Owner(OwnerError::CrossNamespace { .. })));
    let server = ApiServer::new();
    let error = apply_error(&server, json!({"generateName": "m-"})).await;
    let text = "apply ConfigMap default/: it has no name (server-side apply does not generate names)";
    assert_eq!(error.to_string(), text);
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(requests_for(&server, Verb::Patch, "configmaps").is_empty());
}

#[tokio::test(start_paused = true)]
async fn cluster_scoped_owner_may_own_namespaced_and_cluster_scoped_objects() {
    let server = ApiServer::new();
    create_namespace(&server, "owner");
    let owner = server.get("v1", "namespaces", None, "owner").unwrap();
    let owner: Namespace = serde_json::from_value(owner).unwrap();
    let error = in_a_reconcile(&server, move |pod, ctx| {
        let owner = owner.clone();
        async move {
            let map = config_map(json!({"name": "m", "namespace": "default"}), json!({}));
            ctx.apply(&owner, map).await.unwrap();
            let class = json!({"metadata": {"name": "c"}, "value": 1});
            let class: PriorityClass = serde_json::from_value(class).unwrap();
            // Its kind is not a source, so that the write is not awaited; a warning is logged.
            ctx.apply(&owner, class.clone()).await.unwrap();
            let error = ctx.apply(&pod, class).await.unwrap_err();
            assert!(matches!(error, ApplyError::Owner(OwnerError::ClusterScopedChild { .. })), "{error}");
            ctx.apply(&owner, config_map(json!({"name": "m"}), json!({}))).await.unwrap_err()
        }
    })
    .await;
    let text =
        "apply ConfigMap m: it has no namespace, and its owner is cluster-scoped (set metadata.namespace)";
    assert_eq!(error.to_string(), text);
    let owner = |object: Value| object["metadata"]["ownerReferences"][0]["kind"].clone();
    assert_eq!(owner(stored(&server, "m")), "Namespace");
    let class = server.get("scheduling.k8s.io/v1", "priorityclasses", None, "c").unwrap();
    assert_eq!(owner(class), "Namespace");
}

#[tokio::test(start_paused = true)]
async fn errors_of_the_server_name_operation_object_and_hint() {
    use std::error::Error as _;
    let server = ApiServer::new();
    let _forbidden = server.inject(faults::respond(403).for_verb(Verb::Patch).for_resource("configmaps"));
    let error = apply_error(&server, json!({"name": "m"})).await;
    let text =
        "apply ConfigMap default/m as tested (server-side apply needs the permissions to patch and create)";
    assert_eq!(error.to_string(), text);
    assert_eq!(error.kind(), ErrorKind::Forbidden);
    assert!(error.source().is_some());

    // An object with the version from an earlier read conflicts.
    let server = ApiServer::new();
    server
        .create(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "namespace": "default"}}))
        .unwrap();
    let error = Error::from(apply_error(&server, json!({"name": "m", "resourceVersion": "1"})).await);
    assert!(error.is_conflict(), "{error}");
    assert!(error.to_string().ends_with("not one read from the server)"), "{error}");
    assert_eq!(error.kind(), ErrorKind::Conflict);
}

/// Regression: an applied object whose response did not decode was reported as a failed request.
#[tokio::test(start_paused = true)]
async fn response_that_does_not_decode_is_not_a_failed_apply() {
    let server = ApiServer::new();
    let _cut = server.inject(faults::truncate(10).with_clean_end().for_verb(Verb::Patch));
    let error = apply_error(&server, json!({"name": "m"})).await;
    assert_eq!(error.to_string(), "apply ConfigMap default/m: written, but the response does not decode");
    assert_eq!(error.kind(), ErrorKind::Decode);
    assert_eq!(stored(&server, "m")["metadata"]["name"], "m");
}

/// The cache may not show the other controller yet, so only the server can refuse it.
#[tokio::test(start_paused = true)]
async fn object_of_another_controller_is_refused_by_the_server() {
    let server = ApiServer::new();
    let other = json!({"apiVersion": "v1", "kind": "Pod", "name": "b", "uid": "u-b", "controller": true});
    server
        .create(&json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "m", "namespace": "default", "ownerReferences": [other]}}))
        .unwrap();
    let error = apply_error(&server, json!({"name": "m"})).await;
    let ApplyError::Request { source, .. } = &error else { panic!("{error}") };
    assert!(source.to_string().contains("Only one reference can have Controller set to true"), "{source}");
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[tokio::test(start_paused = true)]
async fn now_follows_the_paused_clock() {
    let server = ApiServer::new();
    in_a_reconcile(&server, |_, ctx| async move {
        let began = ctx.now();
        assert_eq!(ctx.now(), began);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(ctx.now(), began + Duration::from_secs(60));
    })
    .await;
}

/// Reads and writes a config map, with an update by another writer before each of the first `conflicts` writes.
async fn update_with_conflicts(server: &ApiServer, conflicts: u32) -> (Result<ConfigMap, Error>, u32) {
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    let attempts = AtomicU32::new(0);
    let result = informer::retry_on_conflict(|| async {
        let map = maps.get("m").await?;
        let attempt = attempts.fetch_add(1, Ordering::Relaxed);
        if attempt < conflicts {
            let other = config_map(json!({"name": "m"}), json!({"attempt": attempt.to_string()}));
            maps.replace("m", &PostParams::default(), &other).await?;
        }
        maps.replace("m", &PostParams::default(), &map).await
    })
    .await;
    (result, attempts.into_inner())
}

#[tokio::test(start_paused = true)]
async fn conflicts_are_retried_five_times_with_growing_delays() {
    let server = ApiServer::new();
    server
        .create(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "namespace": "default"}}))
        .unwrap();
    let (result, attempts) = update_with_conflicts(&server, 4).await;
    assert!(result.is_ok());
    assert_eq!(attempts, 5);
    let began = tokio::time::Instant::now();
    let (result, attempts) = update_with_conflicts(&server, 100).await;
    let error = result.unwrap_err();
    assert!(error.is_conflict() && matches!(error, Error::Client(_)), "{error}");
    assert_eq!(attempts, 5, "the last conflict is returned");
    let elapsed = began.elapsed();
    assert!(elapsed >= Duration::from_millis(150) && elapsed < Duration::from_millis(310), "{elapsed:?}");
}

#[tokio::test(start_paused = true)]
async fn other_errors_are_returned_immediately() {
    let server = ApiServer::new();
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    let calls = Mutex::new(0);
    let attempt = |result: Result<(), Error>| {
        *calls.lock().unwrap() += 1;
        std::future::ready(result)
    };
    let missing = informer::retry_on_conflict(|| maps.get("missing")).await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotServed);
    // `AlreadyExists` has the status code of a conflict, but the next attempt fails in the same way.
    let map = config_map(json!({"name": "m"}), json!({}));
    maps.create(&PostParams::default(), &map).await.unwrap();
    let mut errors = vec![Error::from(maps.create(&PostParams::default(), &map).await.unwrap_err())];
    let exists = informer::retry_on_conflict(|| attempt(errors.pop().map_or(Ok(()), Err))).await.unwrap_err();
    assert!(!exists.is_conflict() && exists.kind() == ErrorKind::Conflict, "{exists}");
    assert_eq!(*calls.lock().unwrap(), 1);
}
