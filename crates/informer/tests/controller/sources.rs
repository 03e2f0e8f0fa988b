//! Which changes become turns of which keys.

use crate::cluster::{config_map, create_pods, pass, pod, with};
use crate::{Running, diary};
use futures::StreamExt as _;
use informer::{Context, Controller, Key, Outcome, SharedInformerFactory, changed};
use informer_apiserver::ApiServer;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, Secret};
use kube::core::{ApiResource, PartialObjectMeta};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::future::Ready;
use std::time::Duration;
use tokio::sync::mpsc;

/// A reconcile function that writes its keys down.
fn note(
    turns: mpsc::UnboundedSender<String>,
) -> impl Fn(Key, Context) -> Ready<Result<Outcome, Infallible>> + Send + Sync + 'static {
    move |key, _| {
        let _ = turns.send(key.to_string());
        std::future::ready(Ok(Outcome::Done))
    }
}

fn owned(mut object: Value, api_version: &str, kind: &str, name: &str, controller: bool) -> Value {
    object["metadata"]["ownerReferences"] = json!([{"apiVersion": api_version, "kind": kind, "name": name, "uid": "u", "controller": controller}]);
    object
}

#[tokio::test(start_paused = true)]
async fn what_is_there_comes_goes_or_changes_gets_a_turn() {
    let server = ApiServer::new();
    create_pods(&server, &["a", "b"]);
    let (sender, mut turns) = diary();
    let factory = SharedInformerFactory::new(server.client());
    let running = Running::start(Controller::new::<Pod>(&factory).reconcile(note(sender)));
    turns.expect(&["default/a", "default/b"]).await;
    create_pods(&server, &["c"]);
    turns.expect(&["default/c"]).await;
    server.update(&with(pod("default", "a"), "/spec/containers/0/image", "other")).unwrap();
    turns.expect(&["default/a"]).await;
    server.delete("v1", "pods", Some("default"), "b").unwrap();
    turns.expect(&["default/b"]).await;
    running.stop().await.unwrap();
    assert!(turns.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_it_owns_concerns_the_owner_that_is_its_controller() {
    let server = ApiServer::new();
    let (sender, mut turns) = diary();
    let factory = SharedInformerFactory::new(server.client());
    let controller = Controller::new::<Deployment>(&factory).owns::<PartialObjectMeta<ConfigMap>>();
    let running = Running::start(controller.reconcile(note(sender)));
    running.reconciler.running().await;
    let child = |name: &str| config_map("default", name, "1");
    server.create(&owned(child("mine"), "apps/v1", "Deployment", "web", true)).unwrap();
    turns.expect(&["default/web"]).await;
    // Another version of the kind is the same kind; another group is not, and neither is an owner that does not control.
    server.create(&owned(child("older"), "apps/v1beta1", "Deployment", "old", true)).unwrap();
    turns.expect(&["default/old"]).await;
    server.create(&owned(child("foreign"), "shops/v1", "Deployment", "shop", true)).unwrap();
    server.create(&owned(child("shared"), "apps/v1", "Deployment", "web", false)).unwrap();
    server.create(&owned(child("kindred"), "apps/v1", "ReplicaSet", "web", true)).unwrap();
    pass(Duration::from_secs(1)).await;
    assert_eq!(turns.take(), <[&str; 0]>::default());
    // Who lost it learns of it, and so does who got it.
    server.update(&owned(child("mine"), "apps/v1", "Deployment", "heir", true)).unwrap();
    turns.expect(&["default/web", "default/heir"]).await;
    server.delete("v1", "configmaps", Some("default"), "mine").unwrap();
    turns.expect(&["default/heir"]).await;
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn owners_without_a_namespace_are_found() {
    let server = ApiServer::new();
    let (sender, mut turns) = diary();
    let factory = SharedInformerFactory::new(server.client());
    let resource = ApiResource::erase::<Node>(&());
    let controller = Controller::dynamic(&factory, &resource, &kube::discovery::Scope::Cluster)
        .owns_informer(factory.dynamic(&ApiResource::erase::<ConfigMap>(&())));
    let running = Running::start(controller.reconcile(note(sender)));
    running.reconciler.running().await;
    server.create(&owned(config_map("default", "c", "1"), "v1", "Node", "n1", true)).unwrap();
    turns.expect(&["n1"]).await;
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_it_watches_concerns_whom_the_map_says_before_and_after() {
    let server = ApiServer::new();
    let (sender, mut turns) = diary();
    let factory = SharedInformerFactory::new(server.client());
    let users = |map: &informer::Object<ConfigMap>| -> Vec<Key> {
        let data = map.typed().ok().and_then(|map| map.data.clone()).unwrap_or_default();
        data.values().map(|name| Key::new("default", name)).collect()
    };
    let controller = Controller::new::<Pod>(&factory).watches::<ConfigMap>(users);
    let running = Running::start(controller.reconcile(note(sender)));
    running.reconciler.running().await;
    server.create(&config_map("default", "c", "a")).unwrap();
    turns.expect(&["default/a"]).await;
    server.update(&config_map("default", "c", "b")).unwrap();
    turns.expect(&["default/a", "default/b"]).await;
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn keys_from_elsewhere_count_and_their_end_does_not_matter() {
    let server = ApiServer::new();
    let (sender, mut turns) = diary();
    let factory = SharedInformerFactory::new(server.client());
    let (keys, receiver) = mpsc::unbounded_channel();
    let stream = futures::stream::unfold(receiver, async |mut receiver: mpsc::UnboundedReceiver<Key>| {
        receiver.recv().await.map(|key| (key, receiver))
    });
    // One that is over at once, and one that never is: neither keeps the other from coming.
    let busy = futures::stream::repeat_with(|| Key::new("default", "busy"));
    let controller =
        Controller::new::<Pod>(&factory).on(futures::stream::empty()).on(stream.boxed()).on(busy.take(1_000));
    let running = Running::start(controller.reconcile(note(sender)));
    running.reconciler.running().await;
    keys.send(Key::new("default", "x")).unwrap();
    while turns.0.recv().await.unwrap() != "default/x" {}
    drop(keys);
    create_pods(&server, &["a"]);
    while turns.0.recv().await.unwrap() != "default/a" {}
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn predicates_speak_of_the_source_named_last() {
    let server = ApiServer::new();
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": "default", "name": "web"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "replicas": 1,
            "template": {"metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "main", "image": "nginx"}]}}},
    });
    let stored = server.create(&deployment).unwrap();
    let (sender, mut turns) = diary();
    let factory = SharedInformerFactory::new(server.client());
    let controller = Controller::new::<Deployment>(&factory)
        .when(|event| changed::generation(event) || changed::annotations(event))
        .watches::<Secret>(|secret| vec![secret.key().clone()])
        .when(changed::labels)
        .when(|event| !event.object().name().starts_with("ignored"));
    let running = Running::start(controller.reconcile(note(sender)));
    turns.expect(&["default/web"]).await;

    // A status is no new generation.
    server.update_status(&with(stored.clone(), "/status", json!({"replicas": 1}))).unwrap();
    pass(Duration::from_secs(1)).await;
    assert!(turns.is_empty());
    let stored = server.update(&with(deployment.clone(), "/spec/replicas", 2)).unwrap();
    turns.expect(&["default/web"]).await;
    server.update(&with(stored, "/metadata/annotations", json!({"a": "b"}))).unwrap();
    turns.expect(&["default/web"]).await;

    let secret = |name: &str, label: &str, data: &str| {
        json!({"apiVersion": "v1", "kind": "Secret", "stringData": {"d": data},
            "metadata": {"namespace": "default", "name": name, "labels": {"l": label}}})
    };
    server.create(&secret("ignored", "1", "1")).unwrap();
    server.create(&secret("s", "1", "1")).unwrap();
    turns.expect(&["default/s"]).await;
    server.update(&secret("s", "1", "2")).unwrap();
    pass(Duration::from_secs(1)).await;
    assert!(turns.is_empty());
    server.update(&secret("s", "2", "2")).unwrap();
    turns.expect(&["default/s"]).await;
    running.stop().await.unwrap();
}

/// C2, C14: a label that was changed and changed back before the handler looked: merged, the two are no change at all. But a turn that another source asked for
/// may have acted on what was there in between, and nobody would have taken that back.
#[tokio::test(start_paused = true)]
async fn what_changed_and_changed_back_gets_a_turn() {
    let server = ApiServer::new();
    let labelled =
        |label: &str| with(config_map("default", "c", "1"), "/metadata/labels", json!({"l": label}));
    server.create(&labelled("1")).unwrap();
    let (sender, mut turns) = diary();
    let factory = SharedInformerFactory::new(server.client());
    let controller = Controller::new::<ConfigMap>(&factory).when(changed::labels);
    let running = Running::start(controller.reconcile(note(sender)));
    turns.expect(&["default/c"]).await;
    // Nothing else runs between these.
    server.update(&labelled("2")).unwrap();
    server.update(&labelled("1")).unwrap();
    turns.expect(&["default/c"]).await;
    // Nor between these: it came and went.
    server.create(&config_map("default", "brief", "1")).unwrap();
    server.delete("v1", "configmaps", Some("default"), "brief").unwrap();
    turns.expect(&["default/brief"]).await;
    running.stop().await.unwrap();
}

/// Whom a state concerned that was there only briefly learns of it too.
#[tokio::test(start_paused = true)]
async fn a_map_is_asked_about_every_state() {
    let server = ApiServer::new();
    server.create(&config_map("default", "c", "a")).unwrap();
    let (sender, mut turns) = diary();
    let factory = SharedInformerFactory::new(server.client());
    let users = |map: &informer::Object<ConfigMap>| -> Vec<Key> {
        let data = map.typed().ok().and_then(|map| map.data.clone()).unwrap_or_default();
        data.values().map(|name| Key::new("default", name)).collect()
    };
    let running =
        Running::start(Controller::new::<Pod>(&factory).watches::<ConfigMap>(users).reconcile(note(sender)));
    turns.expect(&["default/a"]).await;
    server.update(&config_map("default", "c", "b")).unwrap();
    server.update(&config_map("default", "c", "c")).unwrap();
    turns.expect(&["default/a", "default/b", "default/c"]).await;
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_panics_has_ended_and_harms_nobody() {
    let server = ApiServer::new();
    let (sender, mut turns) = diary();
    let factory = SharedInformerFactory::new(server.client());
    let bad = futures::stream::iter(0..2).map(|number| {
        assert_eq!(number, 0, "on purpose");
        Key::new("default", "first")
    });
    let running = Running::start(Controller::new::<Pod>(&factory).on(bad).reconcile(note(sender.clone())));
    turns.expect(&["default/first"]).await;
    create_pods(&server, &["a"]);
    turns.expect(&["default/a"]).await;
    let reconciler = running.reconciler.clone();
    running.stop().await.unwrap();
    // The next run does without it.
    let again = Running::start(reconciler);
    turns.expect(&["default/a"]).await;
    again.stop().await.unwrap();
}

/// A config map has no generation: a controller that waits for a new one never heard of a change.
#[tokio::test(start_paused = true)]
async fn kinds_without_a_generation_pass_the_generation() {
    let server = ApiServer::new();
    server.create(&config_map("default", "c", "1")).unwrap();
    let (sender, mut turns) = diary();
    let factory = SharedInformerFactory::new(server.client());
    let controller = Controller::new::<ConfigMap>(&factory).when(changed::generation);
    let running = Running::start(controller.reconcile(note(sender)));
    turns.expect(&["default/c"]).await;
    server.update(&config_map("default", "c", "2")).unwrap();
    turns.expect(&["default/c"]).await;
    running.stop().await.unwrap();
}

/// A predicate that panics hides nothing.
#[tokio::test(start_paused = true)]
async fn a_predicate_that_panics_counts_as_true() {
    let server = ApiServer::new();
    let (sender, mut turns) = diary();
    let factory = SharedInformerFactory::new(server.client());
    let pods = factory.informer::<Pod>();
    let controller = Controller::new::<Pod>(&factory).when(|event| {
        assert_ne!(event.object().name(), "bad", "on purpose");
        event.object().name() != "ignored"
    });
    let running = Running::start(controller.reconcile(note(sender)));
    running.reconciler.running().await;
    create_pods(&server, &["bad", "good", "ignored"]);
    turns.expect(&["default/bad", "default/good"]).await;
    assert_eq!(pods.metrics().handlers[0].panics, 1);
    running.stop().await.unwrap();
    assert!(turns.is_empty());
}

/// The old state of an object was one that the map panicked at; so nobody learned of the new one that was right.
#[tokio::test(start_paused = true)]
async fn a_map_that_panics_at_the_old_state_is_asked_about_the_new_one() {
    let server = ApiServer::new();
    server.create(&config_map("default", "c", "bad")).unwrap();
    let (sender, mut turns) = diary();
    let factory = SharedInformerFactory::new(server.client());
    let controller = Controller::new::<Pod>(&factory).watches::<ConfigMap>(|map| {
        let value = map.typed().unwrap().data.clone().unwrap()["v"].clone();
        assert_ne!(value, "bad", "on purpose");
        vec![Key::new("default", &value)]
    });
    let running = Running::start(controller.reconcile(note(sender)));
    running.reconciler.running().await;
    server.update(&config_map("default", "c", "good")).unwrap();
    turns.expect(&["default/good"]).await;
    running.stop().await.unwrap();
}

/// Keys of a stream that had no turn when the run ended were lost: nobody tells them again.
#[tokio::test(start_paused = true)]
async fn keys_from_elsewhere_are_owed_until_a_turn_went_well() {
    let server = ApiServer::new();
    let (sender, mut turns) = diary();
    let factory = SharedInformerFactory::new(server.client());
    let keys = futures::stream::iter(["a", "fails", "b", "c"]).map(|name| Key::new("default", name));
    let controller = Controller::new::<Pod>(&factory).on(keys).reconcile(move |key, ctx| {
        let sender = sender.clone();
        async move {
            let _ = sender.send(key.name().to_owned());
            if key.name() == "b" {
                ctx.stopping().await;
                pass(Duration::from_mins(1)).await;
            }
            if key.name() == "fails" { Err("always") } else { Ok(Outcome::Done) }
        }
    });
    let first = Running::start(controller.clone());
    turns.expect(&["a", "fails", "b"]).await;
    first.task.abort();
    pass(Duration::from_secs(1)).await;
    turns.take();
    let again = Running::start(controller);
    let mut owed = Vec::new();
    while owed.len() < 3 {
        let name = turns.0.recv().await.unwrap();
        if !owed.contains(&name) {
            owed.push(name);
        }
    }
    owed.sort();
    assert_eq!(owed, ["b", "c", "fails"]);
    again.task.abort();
}

/// A stream that always has another key leaves room for everybody else.
#[tokio::test]
async fn a_stream_without_end_keeps_no_thread() {
    let server = ApiServer::new();
    let (sender, mut turns) = diary();
    let factory = SharedInformerFactory::new(server.client());
    let busy = futures::stream::repeat_with(|| Key::new("default", "busy"));
    let running = Running::start(Controller::new::<Pod>(&factory).on(busy).reconcile(move |key, _| {
        if key.name() != "busy" {
            let _ = sender.send(key.to_string());
        }
        std::future::ready(Ok::<_, Infallible>(Outcome::Done))
    }));
    running.reconciler.running().await;
    create_pods(&server, &["a"]);
    turns.expect(&["default/a"]).await;
    running.stop().await.unwrap();
}

/// A map that panics hurts its own source, and that once (C9).
#[tokio::test(start_paused = true)]
async fn a_map_that_panics_hurts_only_itself() {
    let server = ApiServer::new();
    let (sender, mut turns) = diary();
    let factory = SharedInformerFactory::new(server.client());
    let controller = Controller::new::<Pod>(&factory).watches::<ConfigMap>(|map| {
        assert_ne!(map.name(), "bad", "on purpose");
        vec![map.key().clone()]
    });
    let running = Running::start(controller.reconcile(note(sender)));
    running.reconciler.running().await;
    server.create(&config_map("default", "bad", "1")).unwrap();
    server.create(&config_map("default", "good", "1")).unwrap();
    turns.expect(&["default/good"]).await;
    create_pods(&server, &["a"]);
    turns.expect(&["default/a"]).await;
    running.stop().await.unwrap();
}
