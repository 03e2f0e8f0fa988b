//! Unit tests of the reconcile function of the operator example, without a server: the objects in its caches and
//! the responses to its requests are given, its writes are checked.
#![allow(clippy::unwrap_used)]

use crate::programs::operator;
use crate::programs::operator::{State, Website};
use informer::controller::Outcome;
use informer::error::PatchStatusError;
use informer::recorder::EventRecorder;
use informer::testing::{self, RecordedRequest};
use informer::{Error, Key};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::time::Duration;

const SERVICE: &str = "PATCH /api/v1/namespaces/shop/services/blog";
const DEPLOYMENT: &str = "PATCH /apis/apps/v1/namespaces/shop/deployments/blog";
const FINALIZER: &str = "PATCH /apis/informer.example/v1/namespaces/shop/websites/blog";
const STATUS: &str = "PATCH /apis/informer.example/v1/namespaces/shop/websites/blog/status";

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Response = http::Response<Vec<u8>>;

fn decode<K: DeserializeOwned>(object: &Value) -> K {
    serde_json::from_value(object.clone()).unwrap()
}

/// A website as it is after its first reconcile.
fn website() -> Value {
    json!({"apiVersion": "informer.example/v1", "kind": "Website",
        "metadata": {"namespace": "shop", "name": "blog", "uid": "w", "resourceVersion": "7", "generation": 1,
            "finalizers": ["informer.example/website"]},
        "spec": {"image": "nginx", "replicas": 2},
        "status": {"ready": 2, "conditions": [{"type": "Ready", "status": "True", "reason": "AllReady",
            "message": "2 of 2 replicas are ready", "observedGeneration": 1,
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]}})
}

/// The metadata of an object that the website owns.
fn owned() -> Value {
    let owner = json!({"apiVersion": "informer.example/v1", "kind": "Website", "name": "blog", "uid": "w",
        "controller": true, "blockOwnerDeletion": true});
    json!({"namespace": "shop", "name": "blog", "uid": "o", "resourceVersion": "8", "generation": 1,
        "ownerReferences": [owner]})
}

/// The deployment of the website, with all replicas ready.
fn deployment() -> Value {
    let labels = json!({"website": "blog"});
    let container =
        json!({"name": "web", "image": "nginx", "ports": [{"containerPort": 80, "protocol": "TCP"}]});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": owned(),
        "spec": {"replicas": 2, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}}},
        "status": {"observedGeneration": 1, "replicas": 2, "readyReplicas": 2, "updatedReplicas": 2}})
}

/// The service of the website.
fn service() -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": owned(),
        "spec": {"selector": {"website": "blog"}, "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}]}})
}

/// Responds as a server in which each write of an object succeeds.
fn accept(request: &RecordedRequest) -> Response {
    if request.content_type == "application/apply-patch+yaml" {
        return testing::ok(&request.body); // written as sent
    }
    let mut written = website();
    written["metadata"]["resourceVersion"] = "9".into();
    testing::ok(&written)
}

/// Reconciles the website with these objects in the caches, and returns the result, the writes of objects and the
/// reasons of the recorded events.
async fn reconcile(
    objects: (Option<Value>, Option<Value>, Option<Value>),
    respond: impl Fn(&RecordedRequest) -> Response + Send + 'static,
) -> (Result<Outcome, BoxError>, Vec<RecordedRequest>, Vec<String>) {
    let (website, deployment, service) = objects;
    let (client, requests) = testing::client(respond);
    let (event_client, events) = testing::client(|request| testing::ok(&request.body));
    let recorder = EventRecorder::new(event_client, "website-operator");
    let ctx = testing::context(client.clone(), Key::new("shop", "blog"))
        .objects(website.iter().map(decode::<Website>))
        .objects(deployment.iter().map(decode::<Deployment>))
        .objects(service.iter().map(decode::<Service>))
        .state(State::new(client, recorder.clone()))
        .build();
    let result = operator::reconcile(ctx.key().clone(), ctx).await;
    recorder.shutdown(Duration::from_secs(60)).await.unwrap(); // writes the events
    let reason = |event: &RecordedRequest| event.body["reason"].as_str().unwrap_or_default().to_owned();
    let events = events.writes().iter().map(reason).collect();
    (result, requests.writes(), events)
}

fn lines(requests: &[RecordedRequest]) -> Vec<String> {
    requests.iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn new_website_gets_its_finalizer_objects_and_status() {
    let mut new = website();
    new["metadata"]["finalizers"] = json!([]);
    new["status"] = Value::Null;
    // The response to the finalizer is the website that the reconcile continues with.
    let with_finalizer = {
        let mut website = website();
        website["status"] = Value::Null;
        website
    };
    let respond = move |request: &RecordedRequest| match request.to_string() {
        line if line == FINALIZER => testing::ok(&with_finalizer),
        _ => accept(request),
    };
    let (result, writes, events) = reconcile((Some(new), None, None), respond).await;
    assert_eq!(result.unwrap(), Outcome::Done);
    assert_eq!(lines(&writes), [FINALIZER, DEPLOYMENT, SERVICE, STATUS]);
    let deployment = &writes[1].body;
    assert_eq!(deployment["spec"]["replicas"], 2);
    assert_eq!(deployment["spec"]["template"]["spec"]["containers"][0]["image"], "nginx");
    for child in &writes[1..3] {
        assert_eq!(child.body["metadata"]["ownerReferences"][0]["uid"], "w");
        assert_eq!(child.parameter("force"), Some("true"));
    }
    // The status is written at the version that was read.
    assert_eq!(writes[3].body[0]["value"], "7");
    let status = &writes[3].body[1]["value"];
    assert_eq!((&status["ready"], &status["conditions"][0]["reason"]), (&json!(0), &json!("Starting")));
    assert_eq!(events, ["Applied", "Applied", "Starting"]);
}

#[tokio::test]
async fn website_that_is_up_to_date_causes_no_request() {
    let respond = |request: &RecordedRequest| panic!("unexpected request: {request}");
    let objects = (Some(website()), Some(deployment()), Some(service()));
    let (result, writes, events) = reconcile(objects, respond).await;
    assert_eq!(result.unwrap(), Outcome::Done);
    assert_eq!((writes, events), (vec![], vec![]));
}

#[tokio::test]
async fn website_that_does_not_exist_causes_no_request() {
    let respond = |request: &RecordedRequest| panic!("unexpected request: {request}");
    let (result, writes, _) = reconcile((None, None, None), respond).await;
    assert_eq!(result.unwrap(), Outcome::Done);
    assert_eq!(writes, []);
}

#[tokio::test]
async fn changed_replicas_are_applied() {
    let mut scaled = website();
    scaled["spec"]["replicas"] = json!(3);
    let objects = (Some(scaled), Some(deployment()), Some(service()));
    let (result, writes, _) = reconcile(objects, accept).await;
    assert_eq!(result.unwrap(), Outcome::Done);
    assert_eq!(lines(&writes), [DEPLOYMENT, STATUS]);
    assert_eq!(writes[0].body["spec"]["replicas"], 3);
}

#[tokio::test]
async fn status_follows_the_deployment() {
    let mut starting = deployment();
    starting["status"]["readyReplicas"] = json!(1);
    let objects = (Some(website()), Some(starting), Some(service()));
    let (result, writes, events) = reconcile(objects, accept).await;
    assert_eq!(result.unwrap(), Outcome::Done);
    assert_eq!(lines(&writes), [STATUS]);
    let status = &writes[0].body[1]["value"];
    assert_eq!((&status["ready"], &status["conditions"][0]["status"]), (&json!(1), &json!("False")));
    assert_eq!(events, ["Starting"]);
}

/// Another writer changed the website after it was read. The reconcile fails, so that the controller retries it
/// with the newer website.
#[tokio::test]
async fn conflict_is_returned_to_the_controller() {
    let mut starting = deployment();
    starting["status"]["readyReplicas"] = json!(1);
    let objects = (Some(website()), Some(starting), Some(service()));
    let (result, writes, events) = reconcile(objects, |_| testing::failure(409, "Conflict")).await;
    let error = result.unwrap_err().downcast::<PatchStatusError>().unwrap();
    assert!(Error::from(*error).is_conflict());
    assert_eq!(lines(&writes), [STATUS]);
    assert!(events.is_empty(), "the status is not written yet: {events:?}");
}

#[tokio::test]
async fn too_many_replicas_are_not_applied() {
    let mut large = website();
    large["spec"]["replicas"] = json!(1_000);
    let (result, writes, events) = reconcile((Some(large), None, None), accept).await;
    assert_eq!(result.unwrap(), Outcome::terminal("too many replicas"));
    assert_eq!(lines(&writes), [STATUS]);
    assert_eq!(writes[0].body[1]["value"]["conditions"][0]["reason"], "TooMany");
    assert_eq!(events, ["TooMany"]);
}

#[tokio::test]
async fn deleted_website_loses_its_finalizer() {
    let mut deleted = website();
    deleted["metadata"]["deletionTimestamp"] = json!("2026-01-02T00:00:00Z");
    let (result, writes, events) = reconcile((Some(deleted), Some(deployment()), None), accept).await;
    assert_eq!(result.unwrap(), Outcome::Done);
    assert_eq!(lines(&writes), [FINALIZER]);
    assert_eq!(events, ["Stopped"]);
}
