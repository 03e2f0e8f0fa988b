//! Writing the status from a reconcile.

use super::apply::in_a_reconcile;
use super::{Running, event_log};
use crate::cluster::{config_map, create_pods, requests_for};
use informer::controller::{Context, Controller, Outcome};
use informer::error::{ErrorKind, PatchStatusError};
use informer::{Error, Object, SharedInformerFactory};
use informer_apiserver::{ApiServer, Verb, faults};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::core::{ApiResource, DynamicObject};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

fn stored_pod(server: &ApiServer) -> Value {
    server.get("v1", "pods", Some("default"), "a").unwrap()
}

/// Writes a label of the pod `default/a`, as another client would.
fn label_pod(server: &ApiServer) {
    let mut pod = stored_pod(server);
    pod["metadata"]["labels"]["changed"] = json!("yes");
    server.update(&pod).unwrap();
}

/// A cached, a typed and a plain object are accepted, and fields that are not in the new status disappear.
#[tokio::test(start_paused = true)]
async fn status_replaces_the_previous_one() {
    let server = ApiServer::new();
    in_a_reconcile(&server, |pod, ctx| async move {
        let first = json!({"phase": "Running", "message": "m", "hostIP": "10.0.0.1"});
        let first = ctx.patch_status(&pod, &first).await.unwrap();
        assert_eq!(first.status.as_ref().unwrap().message.as_deref(), Some("m"));
        let second = ctx.patch_status(&first, &json!({"phase": "Running", "reason": "r"})).await.unwrap();
        let written: Value = serde_json::to_value(&second.status).unwrap();
        assert_eq!((written.get("message"), written.get("hostIP")), (None, None));
    })
    .await;
    let pod = stored_pod(&server);
    assert_eq!((&pod["status"]["reason"], &pod["status"]["message"]), (&json!("r"), &Value::Null));
    assert_eq!(pod["spec"]["containers"][0]["image"], "nginx");
    let managers = pod["metadata"]["managedFields"].as_array().unwrap();
    let is_ours = |entry: &Value| entry["manager"] == "tested" && entry["subresource"] == "status";
    assert!(managers.iter().any(is_ours), "{managers:?}");

    let server = ApiServer::new();
    let typed = |pod: Object<Pod>, ctx: Arc<Context>| async move {
        let typed = pod.typed().unwrap();
        ctx.patch_status(&typed, &json!({"message": "typed"})).await.map(drop)
    };
    in_a_reconcile(&server, typed).await.unwrap();
    assert_eq!(stored_pod(&server)["status"]["message"], "typed");
}

/// A status that was computed from an old state is not written. The error causes a retry, which reads the new
/// state.
#[tokio::test(start_paused = true)]
async fn status_of_a_changed_object_is_a_conflict_and_retried() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let factory = SharedInformerFactory::new(server.client());
    let (sender, mut results) = event_log();
    let writer = server.clone();
    let running = Running::start(Controller::new::<Pod>(&factory).reconcile(move |key, ctx| {
        let (sender, writer) = (sender.clone(), writer.clone());
        async move {
            let pod = ctx.lister::<Pod>().get_by_key(&key).ok_or("the pod exists")?;
            if pod.labels().get("changed").is_none() {
                label_pod(&writer);
            }
            let status = json!({"message": pod.labels().get("changed").unwrap_or("outdated")});
            let error = match ctx.patch_status(&pod, &status).await {
                Ok(_) => return Ok(Outcome::Done),
                Err(error) => Error::from(error),
            };
            assert!(error.is_conflict() && error.kind() == ErrorKind::Conflict, "{error:?}");
            let _ = sender.send(error.to_string());
            Err::<_, Box<dyn std::error::Error + Send + Sync>>(error.into())
        }
    }));
    let text = "patch status of Pod default/a (the object has changed since it was read: return the error, so \
                that the reconcile is retried)";
    results.expect(&[text]).await;
    crate::cluster::until(|| stored_pod(&server)["status"]["message"] == "yes").await;
    running.stop().await.unwrap();
}

/// The next reconcile reads the written status, although the watch is late: no number is written twice.
#[tokio::test(start_paused = true)]
async fn next_reconcile_sees_the_written_status() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let _late = server.inject(faults::delay(Duration::from_secs(2)).for_verb(Verb::Watch));
    let factory = SharedInformerFactory::new(server.client());
    let (sender, mut counts) = event_log();
    let running = Running::start(Controller::new::<Pod>(&factory).reconcile(move |key, ctx| {
        let sender = sender.clone();
        async move {
            let Some(pod) = ctx.lister::<Pod>().get_by_key(&key) else { return Ok(Outcome::Done) };
            let count = pod.field("status.message").map_or(0, |count| count.parse::<u32>().unwrap());
            let _ = sender.send(count.to_string());
            if count == 3 {
                return Ok(Outcome::Done);
            }
            ctx.patch_status(&pod, &json!({"message": (count + 1).to_string()})).await?;
            Ok::<_, Error>(Outcome::RequeueAfter(Duration::ZERO))
        }
    }));
    counts.expect(&["0", "1", "2", "3"]).await;
    assert_eq!(running.reconciler.metrics().invisible_writes, 0);
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn status_of_a_deleted_object_or_of_a_kind_without_status_is_not_found() {
    let server = ApiServer::new();
    server.create(&config_map("default", "m", "1")).unwrap();
    let deleting = server.clone();
    let errors = in_a_reconcile(&server, move |pod, ctx| {
        let server = deleting.clone();
        async move {
            let map = ctx.lister::<ConfigMap>().get("default", "m").unwrap();
            let without_status = ctx.patch_status(&map, &json!({})).await.unwrap_err();
            server.delete("v1", "pods", Some("default"), "a").unwrap();
            [without_status, ctx.patch_status(&pod, &json!({"message": "m"})).await.unwrap_err()]
        }
    })
    .await;
    for (error, object) in errors.into_iter().zip(["ConfigMap default/m", "Pod default/a"]) {
        let hint = "(was the object deleted, or does its kind not have the subresource `status`?)";
        assert_eq!(error.to_string(), format!("patch status of {object} {hint}"));
        assert_eq!(error.kind(), ErrorKind::NotServed);
    }
}

/// The response is cut off after the write.
#[tokio::test(start_paused = true)]
async fn response_that_does_not_decode_is_not_a_failed_write() {
    let server = ApiServer::new();
    let _cut = server.inject(faults::truncate(10).with_clean_end().for_verb(Verb::Patch));
    let error = in_a_reconcile(&server, |pod, ctx| async move {
        ctx.patch_status(&pod, &json!({"message": "m"})).await.unwrap_err()
    })
    .await;
    assert_eq!(error.to_string(), "patch status of Pod default/a: written, but the response does not decode");
    assert_eq!(error.kind(), ErrorKind::Decode);
    assert_eq!(stored_pod(&server)["status"]["message"], "m");
}

#[tokio::test(start_paused = true)]
async fn object_without_version_or_of_another_kind_is_refused_without_a_request() {
    let server = ApiServer::new();
    let errors = in_a_reconcile(&server, |_, ctx| async move {
        let mut secret = Secret::default();
        secret.metadata.name = Some("s".to_owned());
        let without_version = ctx.patch_status(&secret, &json!({})).await.unwrap_err();
        secret.metadata.resource_version = Some("1".to_owned());
        [without_version, ctx.patch_status(&secret, &json!({})).await.unwrap_err()]
    })
    .await;
    let texts = [
        "patch status of Secret s: it has no resource version (use the object as read from the server)",
        "patch status of Secret s: its kind (v1) is not a source of controller tested (declare it with `reads`)",
    ];
    assert_eq!(errors.each_ref().map(ToString::to_string), texts);
    assert!(matches!(errors[1], PatchStatusError::NotASource { .. }));
    assert!(requests_for(&server, Verb::Patch, "secrets").is_empty());
}

/// The path of a kind that is known only at run time comes from the source. A definition that does not declare
/// the subresource has no status to write.
#[tokio::test(start_paused = true)]
async fn status_of_a_dynamic_kind_needs_the_subresource_in_its_definition() {
    for (subresources, expected) in [(json!({"status": {}}), "written"), (json!({}), "NotServed")] {
        let server = ApiServer::new();
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let version = json!({"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": schema}, "subresources": subresources});
        server
            .create(&json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": "sites.example.com"}, "spec": {"group": "example.com", "scope": "Cluster",
                "names": {"plural": "sites", "kind": "Site"}, "versions": [version]}}))
            .unwrap();
        server
            .create(&json!({"apiVersion": "example.com/v1", "kind": "Site", "metadata": {"name": "s"}}))
            .unwrap();
        let resource = ApiResource {
            group: "example.com".into(),
            version: "v1".into(),
            api_version: "example.com/v1".into(),
            kind: "Site".into(),
            plural: "sites".into(),
        };
        let factory = SharedInformerFactory::new(server.client());
        let controller = Controller::dynamic(&factory, &resource, &kube::discovery::Scope::Cluster);
        let (sender, mut results) = event_log();
        let running = Running::start(controller.reconcile(move |key, ctx| {
            let (sender, resource) = (sender.clone(), resource.clone());
            async move {
                let Some(site) = ctx.dynamic_lister(&resource).get_by_key(&key) else {
                    return Ok(Outcome::Done);
                };
                let result: Result<DynamicObject, _> = ctx.patch_status(&site, &json!({"ready": 1})).await;
                let text = result.map_or_else(
                    |error| format!("{:?}", error.kind()),
                    |site| {
                        format!("written{}", if site.data["status"]["ready"] == 1 { "" } else { " wrong" })
                    },
                );
                let _ = sender.send(text);
                Ok::<_, Error>(Outcome::Done)
            }
        }));
        results.expect(&[expected]).await;
        running.stop().await.unwrap();
    }
}
