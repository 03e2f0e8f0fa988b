//! Which changes enqueue which keys.

use super::{Running, event_log};
use crate::cluster::{TIMEOUT, advance_time, config_map, create_pods, pod, with};
use futures::StreamExt as _;
use informer::controller::{Context, Controller, Outcome, predicates};
use informer::{Key, SharedInformerFactory};
use informer_apiserver::ApiServer;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, Secret};
use k8s_openapi::api::networking::v1::Ingress;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::{ApiResource, PartialObjectMeta};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::future::Ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// A reconcile function that logs its keys.
fn log_key(
    reconciles: mpsc::UnboundedSender<String>,
) -> impl Fn(Key, Context) -> Ready<Result<Outcome, Infallible>> + Send + Sync + 'static {
    move |key, _| {
        let _ = reconciles.send(key.to_string());
        std::future::ready(Ok(Outcome::Done))
    }
}

fn owned(mut object: Value, api_version: &str, kind: &str, name: &str, controller: bool) -> Value {
    object["metadata"]["ownerReferences"] = json!([{"apiVersion": api_version, "kind": kind, "name": name, "uid": "u", "controller": controller}]);
    object
}

#[tokio::test(start_paused = true)]
async fn existing_added_changed_and_deleted_objects_are_reconciled() {
    let server = ApiServer::new();
    create_pods(&server, &["a", "b"]);
    let (sender, mut reconciles) = event_log();
    let factory = SharedInformerFactory::new(server.client());
    let running = Running::start(Controller::new::<Pod>(&factory).reconcile(log_key(sender)));
    reconciles.expect(&["default/a", "default/b"]).await;
    create_pods(&server, &["c"]);
    reconciles.expect(&["default/c"]).await;
    server.update(&with(pod("default", "a"), "/spec/containers/0/image", "other")).unwrap();
    reconciles.expect(&["default/a"]).await;
    server.delete("v1", "pods", Some("default"), "b").unwrap();
    reconciles.expect(&["default/b"]).await;
    running.stop().await.unwrap();
    assert!(reconciles.is_empty());
}

/// Bug: an update was often reconciled twice, because its key was added for the old and for the new state, and a worker
/// took the key between the two adds. Tests with one thread did not see it: no worker ran in between.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn update_is_reconciled_once_even_if_a_worker_is_faster_than_the_mapper() {
    let server = ApiServer::new();
    server.create(&config_map("default", "map", "old")).unwrap();
    let (sender, mut reconciles) = event_log();
    let factory = SharedInformerFactory::new(server.client());
    let count = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&count);
    let controller = Controller::new::<Pod>(&factory).watches::<ConfigMap>(move |map| {
        if map.name() == "last" {
            return vec![Key::new("default", "last")];
        }
        // For the new state, wait until the key of the old state was processed.
        let began = Instant::now();
        let is_new = map.field("data.v").as_deref() == Some("new");
        let is_waiting = || is_new && seen.load(Ordering::SeqCst) < 2 && began.elapsed() < TIMEOUT;
        tokio::task::block_in_place(|| {
            while is_waiting() {
                std::thread::yield_now();
            }
        });
        vec![Key::new("default", "p")]
    });
    let running = Running::start(controller.reconcile(move |key, _| {
        count.fetch_add(1, Ordering::SeqCst);
        let _ = sender.send(key.to_string());
        std::future::ready(Ok::<_, Infallible>(Outcome::Done))
    }));
    reconciles.expect(&["default/p"]).await;
    server.update(&config_map("default", "map", "new")).unwrap();
    reconciles.expect(&["default/p"]).await;
    server.create(&config_map("default", "last", "")).unwrap();
    reconciles.expect(&["default/last"]).await;
    running.stop().await.unwrap();
    assert!(reconciles.is_empty());
}

#[tokio::test(start_paused = true)]
async fn owned_object_enqueues_its_controlling_owner() {
    let server = ApiServer::new();
    let (sender, mut reconciles) = event_log();
    let factory = SharedInformerFactory::new(server.client());
    let controller = Controller::new::<Deployment>(&factory).owns::<PartialObjectMeta<ConfigMap>>();
    let running = Running::start(controller.reconcile(log_key(sender)));
    running.reconciler.wait_until_running().await;
    let child = |name: &str| config_map("default", name, "1");
    server.create(&owned(child("mine"), "apps/v1", "Deployment", "web", true)).unwrap();
    reconciles.expect(&["default/web"]).await;
    // Another version of the kind is the same kind; another group is not, and neither is an owner that is not
    // the controller.
    server.create(&owned(child("older"), "apps/v1beta1", "Deployment", "old", true)).unwrap();
    reconciles.expect(&["default/old"]).await;
    server.create(&owned(child("foreign"), "shops/v1", "Deployment", "shop", true)).unwrap();
    server.create(&owned(child("shared"), "apps/v1", "Deployment", "web", false)).unwrap();
    server.create(&owned(child("kindred"), "apps/v1", "ReplicaSet", "web", true)).unwrap();
    advance_time(Duration::from_secs(1)).await;
    assert_eq!(reconciles.take(), <[&str; 0]>::default());
    // The previous owner and the new one are both reconciled.
    server.update(&owned(child("mine"), "apps/v1", "Deployment", "new-owner", true)).unwrap();
    reconciles.expect(&["default/web", "default/new-owner"]).await;
    server.delete("v1", "configmaps", Some("default"), "mine").unwrap();
    reconciles.expect(&["default/new-owner"]).await;
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn cluster_scoped_owners_are_enqueued() {
    let server = ApiServer::new();
    let (sender, mut reconciles) = event_log();
    let factory = SharedInformerFactory::new(server.client());
    let resource = ApiResource::erase::<Node>(&());
    let controller = Controller::dynamic(&factory, &resource, &kube::discovery::Scope::Cluster)
        .owns_informer(factory.dynamic_informer(&ApiResource::erase::<ConfigMap>(&())));
    let running = Running::start(controller.reconcile(log_key(sender)));
    running.reconciler.wait_until_running().await;
    server.create(&owned(config_map("default", "c", "1"), "v1", "Node", "n1", true)).unwrap();
    reconciles.expect(&["n1"]).await;
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn watched_object_enqueues_mapped_keys_of_old_and_new_state() {
    let server = ApiServer::new();
    let (sender, mut reconciles) = event_log();
    let factory = SharedInformerFactory::new(server.client());
    let users = |map: &informer::Object<ConfigMap>| -> Vec<Key> {
        let data = map.typed().ok().and_then(|map| map.data.clone()).unwrap_or_default();
        data.values().map(|name| Key::new("default", name)).collect()
    };
    let controller = Controller::new::<Pod>(&factory).watches::<ConfigMap>(users);
    let running = Running::start(controller.reconcile(log_key(sender)));
    running.reconciler.wait_until_running().await;
    server.create(&config_map("default", "c", "a")).unwrap();
    reconciles.expect(&["default/a"]).await;
    server.update(&config_map("default", "c", "b")).unwrap();
    reconciles.expect(&["default/a", "default/b"]).await;
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn keys_of_streams_are_reconciled_and_ended_streams_are_ignored() {
    let server = ApiServer::new();
    let (sender, mut reconciles) = event_log();
    let factory = SharedInformerFactory::new(server.client());
    let (keys, receiver) = mpsc::unbounded_channel();
    let stream = futures::stream::unfold(receiver, async |mut receiver: mpsc::UnboundedReceiver<Key>| {
        receiver.recv().await.map(|key| (key, receiver))
    });
    // A stream that ends immediately and one that never ends do not block each other.
    let busy = futures::stream::repeat_with(|| Key::new("default", "busy"));
    let controller = Controller::new::<Pod>(&factory)
        .watches_stream(futures::stream::empty())
        .watches_stream(stream.boxed())
        .watches_stream(busy.take(1_000));
    let running = Running::start(controller.reconcile(log_key(sender)));
    running.reconciler.wait_until_running().await;
    keys.send(Key::new("default", "x")).unwrap();
    while reconciles.0.recv().await.unwrap() != "default/x" {}
    drop(keys);
    create_pods(&server, &["a"]);
    while reconciles.0.recv().await.unwrap() != "default/a" {}
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn predicate_applies_to_the_last_added_source() {
    let server = ApiServer::new();
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": "default", "name": "web"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "replicas": 1,
            "template": {"metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "main", "image": "nginx"}]}}},
    });
    let stored = server.create(&deployment).unwrap();
    let (sender, mut reconciles) = event_log();
    let factory = SharedInformerFactory::new(server.client());
    let controller = Controller::new::<Deployment>(&factory)
        .with_predicate(|event| {
            predicates::generation_changed(event) || predicates::annotations_changed(event)
        })
        .watches::<Secret>(|secret| vec![secret.key().clone()])
        .with_predicate(predicates::labels_changed)
        .with_predicate(|event| !event.object().name().starts_with("ignored"));
    let running = Running::start(controller.reconcile(log_key(sender)));
    reconciles.expect(&["default/web"]).await;

    // A status update does not change the generation.
    server.update_status(&with(stored.clone(), "/status", json!({"replicas": 1}))).unwrap();
    advance_time(Duration::from_secs(1)).await;
    assert!(reconciles.is_empty());
    let stored = server.update(&with(deployment.clone(), "/spec/replicas", 2)).unwrap();
    reconciles.expect(&["default/web"]).await;
    server.update(&with(stored, "/metadata/annotations", json!({"a": "b"}))).unwrap();
    reconciles.expect(&["default/web"]).await;

    let secret = |name: &str, label: &str, data: &str| {
        json!({"apiVersion": "v1", "kind": "Secret", "stringData": {"d": data},
            "metadata": {"namespace": "default", "name": name, "labels": {"l": label}}})
    };
    server.create(&secret("ignored", "1", "1")).unwrap();
    server.create(&secret("s", "1", "1")).unwrap();
    reconciles.expect(&["default/s"]).await;
    server.update(&secret("s", "1", "2")).unwrap();
    advance_time(Duration::from_secs(1)).await;
    assert!(reconciles.is_empty());
    server.update(&secret("s", "2", "2")).unwrap();
    reconciles.expect(&["default/s"]).await;
    running.stop().await.unwrap();
}

/// C2, C14: a label was changed and changed back before the handler ran; coalesced, that is no change. But a
/// reconcile triggered by another source may have acted on the state in between, so the key must be
/// reconciled again.
#[tokio::test(start_paused = true)]
async fn change_that_was_reverted_is_reconciled() {
    let server = ApiServer::new();
    let labelled =
        |label: &str| with(config_map("default", "c", "1"), "/metadata/labels", json!({"l": label}));
    server.create(&labelled("1")).unwrap();
    let (sender, mut reconciles) = event_log();
    let factory = SharedInformerFactory::new(server.client());
    let controller = Controller::new::<ConfigMap>(&factory).with_predicate(predicates::labels_changed);
    let running = Running::start(controller.reconcile(log_key(sender)));
    reconciles.expect(&["default/c"]).await;
    // No other task runs between these writes.
    server.update(&labelled("2")).unwrap();
    server.update(&labelled("1")).unwrap();
    reconciles.expect(&["default/c"]).await;
    // Created and deleted without a task running in between.
    server.create(&config_map("default", "brief", "1")).unwrap();
    server.delete("v1", "configmaps", Some("default"), "brief").unwrap();
    reconciles.expect(&["default/brief"]).await;
    running.stop().await.unwrap();
}

/// The keys of a state that existed only briefly are reconciled too.
#[tokio::test(start_paused = true)]
async fn map_function_is_called_for_every_state() {
    let server = ApiServer::new();
    server.create(&config_map("default", "c", "a")).unwrap();
    let (sender, mut reconciles) = event_log();
    let factory = SharedInformerFactory::new(server.client());
    let users = |map: &informer::Object<ConfigMap>| -> Vec<Key> {
        let data = map.typed().ok().and_then(|map| map.data.clone()).unwrap_or_default();
        data.values().map(|name| Key::new("default", name)).collect()
    };
    let running = Running::start(
        Controller::new::<Pod>(&factory).watches::<ConfigMap>(users).reconcile(log_key(sender)),
    );
    reconciles.expect(&["default/a"]).await;
    server.update(&config_map("default", "c", "b")).unwrap();
    server.update(&config_map("default", "c", "c")).unwrap();
    reconciles.expect(&["default/a", "default/b", "default/c"]).await;
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn panicking_stream_ends_and_affects_nothing_else() {
    let server = ApiServer::new();
    let (sender, mut log) = event_log();
    let factory = SharedInformerFactory::new(server.client());
    let panicking = futures::stream::iter(0..2).map(|number| {
        assert_eq!(number, 0, "intended panic");
        Key::new("default", "first")
    });
    let running = Running::start(
        Controller::new::<Pod>(&factory).watches_stream(panicking).reconcile(log_key(sender.clone())),
    );
    log.expect(&["default/first"]).await;
    create_pods(&server, &["a"]);
    log.expect(&["default/a"]).await;
    let reconciler = running.reconciler.clone();
    running.stop().await.unwrap();
    // The next run continues without the stream.
    let again = Running::start(reconciler);
    log.expect(&["default/a"]).await;
    again.stop().await.unwrap();
}

/// Regression: a config map has no generation, so a controller that waited for a new generation never
/// received a change.
#[tokio::test(start_paused = true)]
async fn kinds_without_generation_pass_the_generation_predicate() {
    let server = ApiServer::new();
    server.create(&config_map("default", "c", "1")).unwrap();
    let (sender, mut reconciles) = event_log();
    let factory = SharedInformerFactory::new(server.client());
    let controller = Controller::new::<ConfigMap>(&factory).with_predicate(predicates::generation_changed);
    let running = Running::start(controller.reconcile(log_key(sender)));
    reconciles.expect(&["default/c"]).await;
    server.update(&config_map("default", "c", "2")).unwrap();
    reconciles.expect(&["default/c"]).await;
    running.stop().await.unwrap();
}

/// Regression: the deletion of a custom resource definition with a finalizer did not pass, because the server
/// does not raise its generation: the reconcile that has to clean up was never called. Only kinds whose
/// generation is raised, or that have none, were tested.
#[tokio::test(start_paused = true)]
async fn beginning_deletion_passes_the_generation_predicate() {
    async fn check<K>(server: &ApiServer, stored: &Value, plural: &str, is_raised: bool)
    where
        K: kube::Resource<DynamicType = ()> + serde::de::DeserializeOwned + Send + Sync + 'static,
    {
        let text = |pointer: &str| stored.pointer(pointer).and_then(Value::as_str);
        let (api_version, name) = (text("/apiVersion").unwrap(), text("/metadata/name").unwrap());
        let namespace = text("/metadata/namespace");
        let (sender, mut reconciles) = event_log();
        let factory = SharedInformerFactory::new(server.client());
        let controller = Controller::new::<K>(&factory).with_predicate(predicates::generation_changed);
        let running = Running::start(controller.reconcile(log_key(sender)));
        let key = namespace.map_or(name.to_owned(), |namespace| format!("{namespace}/{name}"));
        reconciles.expect(&[&key]).await;
        let before = server.get(api_version, plural, namespace, name).unwrap();
        server.delete(api_version, plural, namespace, name).unwrap();
        let after = server.get(api_version, plural, namespace, name).unwrap();
        assert!(after["metadata"]["deletionTimestamp"].is_string());
        let generation = |object: &Value| object["metadata"]["generation"].as_i64();
        assert_eq!(generation(&before) != generation(&after), is_raised, "{plural}");
        reconciles.expect(&[&key]).await;
        running.stop().await.unwrap();
    }
    let server = ApiServer::new();
    let create =
        |object: Value| server.create(&with(object, "/metadata/finalizers", json!(["example.com/f"])));
    let ingress = json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": {"name": "i", "namespace": "default"},
        "spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}});
    check::<Ingress>(&server, &create(ingress).unwrap(), "ingresses", true).await;
    let map = create(config_map("default", "c", "1")).unwrap();
    check::<ConfigMap>(&server, &map, "configmaps", false).await;
    let version = json!({"name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object"}}});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "sites.example.com"},
        "spec": {"group": "example.com", "scope": "Cluster", "names": {"plural": "sites", "kind": "Site"},
            "versions": [version]}});
    let definition = create(definition).unwrap();
    // The definition stays as long as this object.
    create(json!({"apiVersion": "example.com/v1", "kind": "Site", "metadata": {"name": "s"}})).unwrap();
    check::<CustomResourceDefinition>(&server, &definition, "customresourcedefinitions", false).await;
}

/// A mapper may hold a lister of the controller's own kind: the informers end with the controller.
#[tokio::test(start_paused = true)]
async fn lister_in_a_mapper_does_not_outlive_the_controller() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let (sender, mut reconciles) = event_log();
    let factory = SharedInformerFactory::new(server.client());
    let pods = factory.lister::<Pod>();
    let controller = Controller::new::<Pod>(&factory).watches::<PartialObjectMeta<Secret>>(move |_| {
        pods.list().iter().map(|pod| pod.key().clone()).collect()
    });
    let running = Running::start(controller.reconcile(log_key(sender)));
    drop(factory);
    reconciles.expect(&["default/a"]).await;
    server
        .create(
            &json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"}}),
        )
        .unwrap();
    reconciles.expect(&["default/a"]).await;
    assert_eq!(server.open_watches(), 2);
    running.stop().await.unwrap();
    crate::cluster::until(|| server.open_watches() == 0).await;
}

/// An event is delivered if its predicate panics.
#[tokio::test(start_paused = true)]
async fn panicking_predicate_counts_as_true() {
    let server = ApiServer::new();
    let (sender, mut reconciles) = event_log();
    let factory = SharedInformerFactory::new(server.client());
    let pods = factory.informer::<Pod>();
    let controller = Controller::new::<Pod>(&factory).with_predicate(|event| {
        assert_ne!(event.object().name(), "bad", "intended panic");
        event.object().name() != "ignored"
    });
    let running = Running::start(controller.reconcile(log_key(sender)));
    running.reconciler.wait_until_running().await;
    create_pods(&server, &["bad", "good", "ignored"]);
    reconciles.expect(&["default/bad", "default/good"]).await;
    assert_eq!(pods.metrics().handlers[0].panics, 1);
    running.stop().await.unwrap();
    assert!(reconciles.is_empty());
}

/// Regression: the map function panicked for the old state of an object, so the keys of its valid new state
/// were not enqueued.
#[tokio::test(start_paused = true)]
async fn map_function_panicking_for_the_old_state_is_called_for_the_new_one() {
    let server = ApiServer::new();
    server.create(&config_map("default", "c", "bad")).unwrap();
    let (sender, mut reconciles) = event_log();
    let factory = SharedInformerFactory::new(server.client());
    let controller = Controller::new::<Pod>(&factory).watches::<ConfigMap>(|map| {
        let value = map.typed().unwrap().data.clone().unwrap()["v"].clone();
        assert_ne!(value, "bad", "intended panic");
        vec![Key::new("default", &value)]
    });
    let running = Running::start(controller.reconcile(log_key(sender)));
    running.reconciler.wait_until_running().await;
    server.update(&config_map("default", "c", "good")).unwrap();
    reconciles.expect(&["default/good"]).await;
    running.stop().await.unwrap();
}

/// Regression: keys of a stream that were not reconciled when the run ended were lost, because the stream
/// does not repeat them.
#[tokio::test(start_paused = true)]
async fn stream_keys_are_pending_until_reconciled_successfully() {
    let server = ApiServer::new();
    let (sender, mut reconciles) = event_log();
    let factory = SharedInformerFactory::new(server.client());
    let keys = futures::stream::iter(["a", "fails", "b", "c"]).map(|name| Key::new("default", name));
    let controller = Controller::new::<Pod>(&factory).watches_stream(keys).reconcile(move |key, ctx| {
        let sender = sender.clone();
        async move {
            let _ = sender.send(key.name().to_owned());
            if key.name() == "b" {
                ctx.stop_requested().await;
                advance_time(Duration::from_secs(60)).await;
            }
            if key.name() == "fails" { Err("always") } else { Ok(Outcome::Done) }
        }
    });
    let first = Running::start(controller.clone());
    reconciles.expect(&["a", "fails", "b"]).await;
    first.task.abort();
    advance_time(Duration::from_secs(1)).await;
    reconciles.take();
    let again = Running::start(controller);
    let mut pending = Vec::new();
    while pending.len() < 3 {
        let name = reconciles.0.recv().await.unwrap();
        if !pending.contains(&name) {
            pending.push(name);
        }
    }
    pending.sort();
    assert_eq!(pending, ["b", "c", "fails"]);
    again.task.abort();
}

/// A stream that always has another key lets other tasks run.
#[tokio::test]
async fn endless_stream_does_not_block_its_thread() {
    let server = ApiServer::new();
    let (sender, mut reconciles) = event_log();
    let factory = SharedInformerFactory::new(server.client());
    let busy = futures::stream::repeat_with(|| Key::new("default", "busy"));
    let running =
        Running::start(Controller::new::<Pod>(&factory).watches_stream(busy).reconcile(move |key, _| {
            if key.name() != "busy" {
                let _ = sender.send(key.to_string());
            }
            std::future::ready(Ok::<_, Infallible>(Outcome::Done))
        }));
    running.reconciler.wait_until_running().await;
    create_pods(&server, &["a"]);
    reconciles.expect(&["default/a"]).await;
    running.stop().await.unwrap();
}

/// A panicking map function affects only its own source, and only for that event (C9).
#[tokio::test(start_paused = true)]
async fn panicking_map_function_affects_only_itself() {
    let server = ApiServer::new();
    let (sender, mut reconciles) = event_log();
    let factory = SharedInformerFactory::new(server.client());
    let controller = Controller::new::<Pod>(&factory).watches::<ConfigMap>(|map| {
        assert_ne!(map.name(), "bad", "intended panic");
        vec![map.key().clone()]
    });
    let running = Running::start(controller.reconcile(log_key(sender)));
    running.reconciler.wait_until_running().await;
    server.create(&config_map("default", "bad", "1")).unwrap();
    server.create(&config_map("default", "good", "1")).unwrap();
    reconciles.expect(&["default/good"]).await;
    create_pods(&server, &["a"]);
    reconciles.expect(&["default/a"]).await;
    running.stop().await.unwrap();
}
