//! Finalizers against the embedded server: when one is added and removed, with concurrent writers.
#![allow(clippy::unwrap_used)]

use crate::cluster::{TIMEOUT, config_map, with};
use informer::error::{ErrorKind, FinalizerError};
use informer::finalizer::{Finalizer, FinalizerAction};
use informer::{InformerOptions, Lister, Object, ResourceVersion, SharedInformer, SharedInformerFactory};
use informer_apiserver::{ApiServer, Verb, faults};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{ApiResource, DynamicObject};
use serde_json::{Value, json};

const OURS: &str = "example.com/cleanup";

/// A server with one object `default/a` that has these finalizers, and an informer for it.
struct Cluster {
    server: ApiServer,
    _factory: SharedInformerFactory,
    maps: SharedInformer<ConfigMap>,
    finalizer: Finalizer<ConfigMap>,
}

impl Cluster {
    async fn with(finalizers: &[&str]) -> Self {
        Self::with_options(finalizers, InformerOptions::default()).await
    }

    /// Uses an informer with these options.
    async fn with_options(finalizers: &[&str], options: InformerOptions) -> Self {
        let server = ApiServer::new();
        server.create(&map(finalizers)).unwrap();
        let factory = SharedInformerFactory::new(server.client());
        factory.configure::<ConfigMap>(options).unwrap();
        let maps = factory.informer::<ConfigMap>();
        factory.start();
        factory.wait_for_sync(TIMEOUT).await.unwrap();
        let finalizer = Finalizer::new(server.client(), OURS);
        Cluster { server, _factory: factory, maps, finalizer }
    }

    /// The cached object.
    fn cached(&self) -> Object<ConfigMap> {
        lister(&self.maps).get("default", "a").unwrap()
    }

    /// The object once the cache has reached the server's version.
    async fn fresh(&self) -> Object<ConfigMap> {
        let newest = self.stored().unwrap()["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
        self.maps.wait_for_resource_version(&ResourceVersion::new(&newest), TIMEOUT).await.unwrap();
        self.cached()
    }

    fn stored(&self) -> Option<Value> {
        self.server.get("v1", "configmaps", Some("default"), "a")
    }

    fn finalizers(&self) -> Value {
        self.stored().unwrap()["metadata"]["finalizers"].clone()
    }

    /// Sets the finalizers, as another writer.
    fn set(&self, finalizers: &[&str]) {
        self.server.update(&with(self.stored().unwrap(), "/metadata/finalizers", json!(finalizers))).unwrap();
    }

    fn delete(&self) {
        self.server.delete("v1", "configmaps", Some("default"), "a").unwrap();
    }

    /// Number of requests other than lists and watches.
    fn requests(&self) -> usize {
        self.server
            .recorded_requests()
            .iter()
            .filter(|seen| !matches!(seen.verb, Verb::List | Verb::Watch))
            .count()
    }
}

fn map(finalizers: &[&str]) -> Value {
    with(config_map("default", "a", "1"), "/metadata/finalizers", json!(finalizers))
}

fn lister(maps: &SharedInformer<ConfigMap>) -> Lister<ConfigMap> {
    maps.lister()
}

fn step_name<K>(step: &FinalizerAction<'_, K>) -> &'static str {
    match step {
        FinalizerAction::Apply(_) => "apply",
        FinalizerAction::Cleanup(_) => "clean up",
        FinalizerAction::Gone => "gone",
    }
}

#[tokio::test(start_paused = true)]
async fn finalizer_is_added_and_removed_over_the_life_of_an_object() {
    let cluster = Cluster::with(&[]).await;
    let FinalizerAction::Apply(written) = cluster.finalizer.ensure(&cluster.cached()).await.unwrap() else {
        panic!()
    };
    assert_eq!(cluster.finalizers(), json!([OURS]));
    assert_eq!(
        cluster.stored().unwrap()["metadata"]["resourceVersion"],
        written.resource_version().to_string()
    );
    assert_eq!(
        written.typed().unwrap().data.as_ref().unwrap()["v"],
        "1",
        "the written object can be decoded"
    );
    cluster.maps.wait_for_resource_version(written.resource_version(), TIMEOUT).await.unwrap();
    assert!(
        cluster.cached().entry().is_same_state(written.entry()),
        "equal to the cached object in either encoding"
    );

    // The finalizer is present: no request is sent.
    assert_eq!(
        (step_name(&cluster.finalizer.ensure(&written).await.unwrap()), cluster.requests()),
        ("apply", 1)
    );

    cluster.delete();
    let deleted = cluster.fresh().await;
    let step = cluster.finalizer.ensure(&deleted).await.unwrap();
    assert_eq!(format!("{step:?}"), format!("Cleanup(default/a@{})", deleted.resource_version()));
    let FinalizerAction::Cleanup(clean_up) = step else { panic!() };
    assert_eq!((clean_up.object().resource_version(), cluster.requests()), (deleted.resource_version(), 1));
    assert!(cluster.stored().is_some(), "the object still exists");
    assert!(clean_up.complete().await.unwrap().is_none(), "it was the last finalizer");
    assert_eq!((cluster.stored(), cluster.requests()), (None, 2));
}

/// The server responds to a write that deletes the object with the previous state and version. Waiting until
/// the cache shows that version would return immediately, with the object still cached.
#[tokio::test(start_paused = true)]
async fn written_object_is_returned_only_if_it_still_exists() {
    let cluster = Cluster::with(&[OURS, "example.com/other"]).await;
    cluster.delete();
    let deleted = cluster.fresh().await;
    let left = cluster.finalizer.remove(&deleted).await.unwrap().expect("another finalizer is left");
    assert_eq!(cluster.stored().unwrap()["metadata"]["resourceVersion"], left.resource_version().to_string());
    let other: Finalizer<ConfigMap> = Finalizer::new(cluster.server.client(), "example.com/other");
    assert!(other.remove(&left).await.unwrap().is_none());
    // A pod has a grace period: it exists until that is over, even without finalizers.
    let pod = with(crate::cluster::pod("default", "p"), "/metadata/finalizers", json!([OURS]));
    let pod = with(pod, "/spec/nodeName", "node-1");
    cluster.server.create(&pod).unwrap();
    let pods: kube::Api<Pod> = kube::Api::namespaced(cluster.server.client(), "default");
    let _marked = pods.delete("p", &kube::api::DeleteParams::default()).await.unwrap();
    let factory = SharedInformerFactory::new(cluster.server.client());
    let informer = factory.informer::<Pod>();
    factory.start();
    factory.wait_for_sync(TIMEOUT).await.unwrap();
    let finalizer = Finalizer::new(cluster.server.client(), OURS);
    let FinalizerAction::Cleanup(clean_up) =
        finalizer.ensure(&informer.lister().get("default", "p").unwrap()).await.unwrap()
    else {
        panic!()
    };
    assert!(clean_up.complete().await.unwrap().is_some());
    assert!(cluster.server.get("v1", "pods", Some("default"), "p").is_some());
}

/// Regression: a cache that kept only `data` had dropped the finalizers. For an object that was being deleted
/// and had our finalizer, the step was `Gone`, and it was never deleted. All tests used a cache of full
/// objects. Now no field filter drops fields that controllers need, and a transform that removes them is an
/// error.
#[tokio::test(start_paused = true)]
async fn filtered_cache_keeps_finalizers() {
    let stripping = InformerOptions::default().transform(|map: &mut ConfigMap| {
        map.metadata.finalizers = None;
        Ok(())
    });
    let lean = [
        InformerOptions::default().keep_fields(["data"]).unwrap(),
        InformerOptions::default().keep_fields::<&str>([]).unwrap(),
        InformerOptions::default().drop_fields(["data", "metadata.annotations"]).unwrap(),
        stripping,
    ];
    for options in lean {
        let cluster = Cluster::with_options(&[OURS], options).await;
        assert_eq!(step_name(&cluster.finalizer.ensure(&cluster.cached()).await.unwrap()), "apply");
        assert_eq!(cluster.requests(), 0, "the finalizer is present already");
        cluster.delete();
        let FinalizerAction::Cleanup(clean_up) =
            cluster.finalizer.ensure(&cluster.fresh().await).await.unwrap()
        else {
            panic!("expected Cleanup")
        };
        assert!(clean_up.complete().await.unwrap().is_none());
        assert_eq!(cluster.stored(), None);
    }
    let error = InformerOptions::default().drop_fields(["metadata.finalizers"]).err().unwrap();
    let text = "field filter: `metadata.finalizers` cannot be dropped (it identifies the object, or controllers depend on it)";
    assert_eq!(error.to_string(), text);
}

/// Regression: a step of a kind without `Debug` could not be printed, so a test could not unwrap it.
#[test]
fn debug_of_a_step_omits_the_object() {
    struct NotDebug;
    assert_eq!(format!("{:?}", FinalizerAction::<NotDebug>::Gone), "Gone");
}

#[tokio::test(start_paused = true)]
async fn unfinished_cleanup_keeps_the_object() {
    let cluster = Cluster::with(&[OURS]).await;
    cluster.delete();
    let deleted = cluster.fresh().await;
    for _ in 0..2 {
        assert_eq!(step_name(&cluster.finalizer.ensure(&deleted).await.unwrap()), "clean up");
    }
    assert_eq!((cluster.finalizers(), cluster.requests()), (json!([OURS]), 0));
}

#[tokio::test(start_paused = true)]
async fn deleted_object_without_our_finalizer_is_gone() {
    let cluster = Cluster::with(&["example.com/other"]).await;
    let wanted = cluster.cached();
    cluster.delete();
    assert_eq!(step_name(&cluster.finalizer.ensure(&cluster.fresh().await).await.unwrap()), "gone");
    assert_eq!(cluster.requests(), 0, "a finalizer is never added to an object being deleted");
    // The cache has not seen the deletion: the server rejects the write, which is not an error.
    assert_eq!(step_name(&cluster.finalizer.ensure(&wanted).await.unwrap()), "gone");
    assert_eq!(cluster.finalizers(), json!(["example.com/other"]));
}

#[tokio::test(start_paused = true)]
async fn foreign_finalizers_keep_their_order() {
    let others = ["example.com/z", "example.com/a"];
    let cluster = Cluster::with(&others).await;
    let FinalizerAction::Apply(written) = cluster.finalizer.ensure(&cluster.cached()).await.unwrap() else {
        panic!()
    };
    assert_eq!(cluster.finalizers(), json!([others[0], others[1], OURS]));
    cluster.set(&[others[0], OURS, others[1]]);
    // The cached list says that ours is the last finalizer, so removal by index would remove another one.
    let left = cluster.finalizer.remove(&written).await.unwrap().unwrap();
    assert_eq!(cluster.finalizers(), json!(others));
    // The object does not have our finalizer any more: no request is sent.
    let before = cluster.requests();
    assert_eq!(
        cluster.finalizer.remove(&left).await.unwrap().unwrap().resource_version(),
        left.resource_version()
    );
    assert_eq!(cluster.requests(), before);
}

/// Other writers write between the read of the cache and the write.
#[tokio::test(start_paused = true)]
async fn stale_object_loses_and_duplicates_no_finalizer() {
    let cluster = Cluster::with(&[]).await;
    let stale = cluster.cached();
    cluster.set(&["example.com/other"]);
    let FinalizerAction::Apply(written) = cluster.finalizer.ensure(&stale).await.unwrap() else { panic!() };
    assert_eq!(cluster.finalizers(), json!(["example.com/other", OURS]));
    // Again from the same stale object: the finalizer is present already.
    let FinalizerAction::Apply(again) = cluster.finalizer.ensure(&stale).await.unwrap() else { panic!() };
    assert_eq!(
        (again.resource_version(), cluster.finalizers()),
        (written.resource_version(), json!(["example.com/other", OURS]))
    );
    // A change of any other field is no conflict: one request.
    cluster.set(&[]);
    let stale = cluster.fresh().await;
    cluster.server.update(&with(cluster.stored().unwrap(), "/data/v", "2")).unwrap();
    let before = cluster.requests();
    assert_eq!(step_name(&cluster.finalizer.ensure(&stale).await.unwrap()), "apply");
    assert_eq!(cluster.requests() - before, 1);
}

#[tokio::test(start_paused = true)]
async fn object_with_another_uid_is_left_unchanged() {
    let cluster = Cluster::with(&[]).await;
    let first = cluster.cached();
    cluster.delete();
    assert_eq!(step_name(&cluster.finalizer.ensure(&first).await.unwrap()), "gone", "404");
    assert!(
        cluster.finalizer.remove(&first).await.unwrap().is_some(),
        "it had no finalizer: no request is sent"
    );
    cluster.server.create(&map(&[])).unwrap();
    assert_eq!(step_name(&cluster.finalizer.ensure(&first).await.unwrap()), "gone", "another uid");
    assert_eq!(cluster.finalizers(), Value::Null);

    let FinalizerAction::Apply(second) = cluster.finalizer.ensure(&cluster.fresh().await).await.unwrap()
    else {
        panic!()
    };
    cluster.set(&[]);
    cluster.delete();
    assert!(cluster.finalizer.remove(&second).await.unwrap().is_none(), "404");
    cluster.server.create(&map(&[OURS])).unwrap();
    assert!(cluster.finalizer.remove(&second).await.unwrap().is_none(), "another uid");
    assert_eq!(cluster.finalizers(), json!([OURS]), "it belongs to the other object");
}

#[tokio::test(start_paused = true)]
async fn endless_races_end_in_a_conflict_error() {
    let cluster = Cluster::with(&[]).await;
    let busy = cluster.server.inject(faults::respond(409).for_verb(Verb::Patch));
    let error = cluster.finalizer.ensure(&cluster.cached()).await.unwrap_err();
    assert!(error.is_conflict(), "{error}");
    let text = "change finalizer example.com/cleanup of ConfigMap default/a: other writers changed its finalizers (try again later)";
    assert_eq!((error.to_string().as_str(), busy.hits()), (text, 4));
    drop(busy);
    let _once = cluster.server.inject(faults::respond(409).for_verb(Verb::Patch).max_hits(1));
    assert_eq!(step_name(&cluster.finalizer.ensure(&cluster.cached()).await.unwrap()), "apply");
}

/// Bug: while a custom resource is not served, requests for its objects get a 404 that does not name an object. The
/// finalizer took it for a deleted object, so that a controller skipped the cleanup.
#[tokio::test(start_paused = true)]
async fn kind_that_is_not_served_is_not_a_deleted_object() {
    let cluster = Cluster::with(&[]).await;
    let object = cluster.cached();
    let unserved =
        cluster.server.inject(faults::respond_with(404, "404 page not found\n").for_resource("configmaps"));
    assert!(cluster.finalizer.ensure(&object).await.is_err());
    drop(unserved);
    assert_eq!(step_name(&cluster.finalizer.ensure(&object).await.unwrap()), "apply");
}

#[tokio::test(start_paused = true)]
async fn errors_name_phase_and_object() {
    let cluster = Cluster::with(&[]).await;
    let forbidden = cluster.server.inject(faults::forbid("configmaps").for_verb(Verb::Patch));
    let error = cluster.finalizer.ensure(&cluster.cached()).await.unwrap_err();
    assert!(matches!(error, FinalizerError::Add { .. }) && !error.is_conflict());
    assert_eq!(error.to_string(), "add finalizer example.com/cleanup to ConfigMap default/a");
    assert_eq!(error.kind(), ErrorKind::Forbidden);
    drop(forbidden);

    // A name that every server rejects: the error is returned after one read that rules out a race.
    let invalid_name: Finalizer<ConfigMap> = Finalizer::new(cluster.server.client(), "not a name");
    let error = invalid_name.ensure(&cluster.cached()).await.unwrap_err();
    assert!(matches!(error, FinalizerError::Add { .. }), "{error}");
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("nor is it fully qualified]"), "{source}");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!(cluster.finalizers(), Value::Null);

    let FinalizerAction::Apply(object) = cluster.finalizer.ensure(&cluster.cached()).await.unwrap() else {
        panic!()
    };
    let _broken = cluster.server.inject(faults::respond(500));
    let error = cluster.finalizer.remove(&object).await.unwrap_err();
    assert!(matches!(error, FinalizerError::Remove { .. }), "{error}");
    assert_eq!(cluster.finalizers(), json!([OURS]));
}

/// Two controllers finish their cleanup at the same time, and a third one waits: none has to retry.
#[tokio::test(start_paused = true)]
async fn concurrent_removals_do_not_conflict() {
    let names = ["example.com/a", "example.com/b", "example.com/c"];
    let cluster = Cluster::with(&names).await;
    cluster.delete();
    let deleted = cluster.fresh().await;
    let finalizers = names.map(|name| Finalizer::<ConfigMap>::new(cluster.server.client(), name));
    let ended =
        futures::future::join_all(finalizers.iter().map(|finalizer| finalizer.remove(&deleted))).await;
    for removed in ended {
        removed.unwrap();
    }
    assert_eq!(cluster.stored(), None);
}

#[tokio::test(start_paused = true)]
async fn dynamic_kinds_metadata_and_cluster_scoped_objects_are_supported() {
    let cluster = Cluster::with(&[]).await;
    let server = &cluster.server;
    server.create(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})).unwrap();
    let factory = SharedInformerFactory::new(server.client());
    let resource = ApiResource::erase::<ConfigMap>(&());
    let (dynamic, heads, nodes) = (
        factory.dynamic_informer(&resource),
        factory.metadata_informer::<ConfigMap>(),
        factory.informer::<Node>(),
    );
    factory.start();
    factory.wait_for_sync(TIMEOUT).await.unwrap();

    // Both kinds of dynamic resources are accepted.
    let maps = informer::resolve(&server.client(), "configmaps").await.unwrap();
    assert_eq!(Finalizer::dynamic(server.client(), &maps, "example.com/served").name(), "example.com/served");
    let finalizer = Finalizer::dynamic(server.client(), &resource, "example.com/dynamic");
    let step: FinalizerAction<'_, DynamicObject> =
        finalizer.ensure(&dynamic.lister().get("default", "a").unwrap()).await.unwrap();
    let FinalizerAction::Apply(object) = step else { panic!() };
    assert_eq!(object.typed().unwrap().data["data"]["v"], "1");
    let head = heads.lister().get("default", "a").unwrap();
    let finalizer = Finalizer::new(server.client(), "example.com/head");
    assert_eq!(step_name(&finalizer.ensure(&head).await.unwrap()), "apply");
    assert_eq!(cluster.finalizers(), json!(["example.com/dynamic", "example.com/head"]));
    let finalizer = Finalizer::new(server.client(), OURS);
    let FinalizerAction::Apply(node) = finalizer.ensure(&nodes.lister().get("", "n").unwrap()).await.unwrap()
    else {
        panic!()
    };
    assert_eq!(server.get("v1", "nodes", None, "n").unwrap()["metadata"]["finalizers"], json!([OURS]));
    assert!(finalizer.remove(&node).await.unwrap().is_some());
}
