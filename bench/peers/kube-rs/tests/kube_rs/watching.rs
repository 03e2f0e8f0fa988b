//! kube-rs's `watcher` and `reflector`: their events and caches match the server.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::pin::Pin;

use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, PatchParams, PostParams};
use kube::core::{GroupVersionKind, PartialObjectMeta};
use kube::runtime::watcher::{self, Config, Event, watcher};
use kube::runtime::{WatchStreamExt, reflector};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::world::{World, config_map, merge, object, pod, with_timeout};

pub(crate) type Events<K> = Pin<Box<dyn Stream<Item = watcher::Result<Event<K>>> + Send>>;

/// The strategies of a watcher for the initial list.
fn strategies() -> [Config; 3] {
    [Config::default(), Config::default().page_size(2), Config::default().streaming_lists()]
}

pub(crate) fn watch<K>(api: Api<K>, config: Config) -> Events<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    watcher(api, config).boxed()
}

/// Returns the next events, as kube-rs prints them.
pub(crate) async fn next_events<K: Resource>(events: &mut Events<K>, count: usize) -> Vec<String> {
    with_timeout(events.take(count).map_ok(|event| event.to_string()).try_collect()).await.unwrap()
}

#[tokio::test]
async fn watcher_receives_initial_list_and_changes() {
    for config in strategies() {
        let world = World::new().await;
        world.create_maps(&["a", "b", "c"]).await;
        let mut events = watch(world.maps(), config);
        let initial = ["Init", "InitApply(a)", "InitApply(b)", "InitApply(c)", "InitDone"];
        assert_eq!(next_events(&mut events, 5).await, initial);

        let maps = world.maps();
        world.create_maps(&["d"]).await;
        maps.patch("a", &PatchParams::default(), &merge(json!({"data": {"k": "2"}}))).await.unwrap();
        // No change, no event.
        maps.patch("a", &PatchParams::default(), &merge(json!({"data": {"k": "2"}}))).await.unwrap();
        maps.delete("b", &DeleteParams::default()).await.unwrap();
        world.create_maps(&["b"]).await;
        assert_eq!(next_events(&mut events, 4).await, ["Apply(d)", "Apply(a)", "Delete(b)", "Apply(b)"]);
    }
}

#[tokio::test]
async fn watcher_of_empty_collection_completes_initial_list() {
    for config in strategies() {
        let world = World::new().await;
        let mut events = watch(world.maps(), config);
        assert_eq!(next_events(&mut events, 2).await, ["Init", "InitDone"]);
        world.create_maps(&["a"]).await;
        assert_eq!(next_events(&mut events, 1).await, ["Apply(a)"]);
    }
}

#[tokio::test]
async fn selector_turns_updates_into_apply_and_delete() {
    for config in strategies() {
        let world = World::new().await;
        let pods = world.pods();
        for name in ["a", "b"] {
            pods.create(&PostParams::default(), &pod(name)).await.unwrap();
        }
        let mut labelled = watch(pods.clone(), config.clone().labels("app in (web), !hidden"));
        let mut named = watch(pods.clone(), config.clone().fields("metadata.name!=a,spec.nodeName="));
        assert_eq!(next_events(&mut labelled, 4).await, ["Init", "InitApply(a)", "InitApply(b)", "InitDone"]);
        assert_eq!(next_events(&mut named, 3).await, ["Init", "InitApply(b)", "InitDone"]);

        let label = |value| merge(json!({"metadata": {"labels": {"hidden": value}}}));
        pods.patch("a", &PatchParams::default(), &label(json!("yes"))).await.unwrap();
        pods.patch("a", &PatchParams::default(), &label(json!(null))).await.unwrap();
        pods.patch("b", &PatchParams::default(), &label(json!("yes"))).await.unwrap();
        assert_eq!(next_events(&mut labelled, 3).await, ["Delete(a)", "Apply(a)", "Delete(b)"]);
        assert_eq!(next_events(&mut named, 1).await, ["Apply(b)"]);
    }
}

#[tokio::test]
async fn metadata_can_be_watched() {
    for config in strategies() {
        let world = World::new().await;
        world.pods().create(&PostParams::default(), &pod("a")).await.unwrap();
        let mut events = watch::<PartialObjectMeta<Pod>>(world.api(), config);
        let Event::InitApply(pod) = with_timeout(events.by_ref().skip(1).next()).await.unwrap().unwrap()
        else {
            panic!("no initial object");
        };
        assert_eq!(pod.labels(), &BTreeMap::from([("app".to_owned(), "web".to_owned())]));
        assert!(pod.uid().is_some() && pod.creation_timestamp().is_some());
        assert_eq!(next_events(&mut events, 1).await, ["InitDone"]);
        let patch = merge(json!({"metadata": {"annotations": {"a": "b"}}}));
        world.pods().patch("a", &PatchParams::default(), &patch).await.unwrap();
        assert_eq!(next_events(&mut events, 1).await, ["Apply(a)"]);
    }
}

#[tokio::test]
async fn dynamic_kind_can_be_watched() {
    for config in strategies() {
        let world = World::new().await;
        world.create_maps(&["a"]).await;
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap"));
        let api: Api<DynamicObject> = Api::namespaced_with(world.client.clone(), &world.namespace, &kind);
        let mut events = watcher(api, config).boxed();
        let Event::InitApply(map) = with_timeout(events.by_ref().skip(1).next()).await.unwrap().unwrap()
        else {
            panic!("no initial object");
        };
        assert_eq!((map.name_any().as_str(), &map.data["data"]), ("a", &json!({"k": "1"})));
    }
}

/// A deterministic random number generator.
struct TestRng(u64);

impl TestRng {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Performs random writes; errors are expected and ignored.
async fn write_at_random(maps: &Api<ConfigMap>, rng: &mut TestRng) {
    let name = format!("map-{}", rng.below(12));
    let value = rng.below(1_000).to_string();
    let written = match rng.below(6) {
        0 => maps.delete(&name, &DeleteParams::default()).await.map(drop),
        1 | 2 => maps.create(&PostParams::default(), &config_map(&name, &value)).await.map(drop),
        3 => maps.replace(&name, &PostParams::default(), &config_map(&name, &value)).await.map(drop),
        4 => {
            let patch = merge(json!({"data": {value.as_str(): "x"}}));
            maps.patch(&name, &PatchParams::default(), &patch).await.map(drop)
        }
        _ => {
            let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"applied": value}});
            let patch = kube::api::Patch::Apply(config);
            maps.patch(&name, &PatchParams::apply("dice").force(), &patch).await.map(drop)
        }
    };
    match written {
        Err(kube::Error::Api(status)) => assert!(matches!(status.code, 404 | 409), "{status:?}"),
        other => other.unwrap(),
    }
}

fn contents<'a>(maps: impl IntoIterator<Item = &'a ConfigMap>) -> BTreeMap<String, String> {
    maps.into_iter().map(|map| (map.name_any(), serde_json::to_string(map).unwrap())).collect()
}

/// Reads events until the cache equals the server's state.
async fn settle(maps: &Api<ConfigMap>, store: &reflector::Store<ConfigMap>, events: &mut Events<ConfigMap>) {
    let stored = maps.list(&ListParams::default()).await.unwrap();
    let stored = contents(&stored.items);
    let cached = || contents(store.state().iter().map(AsRef::as_ref));
    let caught_up = async {
        while cached() != stored {
            // A broken watch yields an error and restarts with the next poll.
            let _event = events.next().await.unwrap();
        }
    };
    with_timeout(caught_up).await;
}

fn reflect(maps: Api<ConfigMap>, config: Config) -> (reflector::Store<ConfigMap>, Events<ConfigMap>) {
    let (store, writer) = reflector::store();
    (store, watcher(maps, config).reflect(writer).boxed())
}

#[tokio::test]
async fn reflector_matches_server() {
    for (seed, config) in (1..).zip(strategies()) {
        let world = World::new().await;
        let (store, mut events) = reflect(world.maps(), config);
        let mut rng = TestRng(seed);
        for _ in 0..10 {
            for _ in 0..20 {
                write_at_random(&world.maps(), &mut rng).await;
            }
            settle(&world.maps(), &store, &mut events).await;
        }
    }
}

#[tokio::test]
async fn reflector_matches_server_after_every_fault() {
    use informer_apiserver::faults;
    for (seed, config) in (11..).zip(strategies()) {
        let (server, world) = World::embedded().await;
        let (store, mut events) = reflect(world.maps(), config);
        let mut rng = TestRng(seed);
        for round in 0..12 {
            let cut = || faults::break_watch().max_hits(1).after_frames(round % 4);
            let _fault = match round % 3 {
                0 => Some(server.inject(cut())),
                1 => Some(server.inject(cut().with_clean_end())),
                _ => None,
            };
            for _ in 0..10 {
                write_at_random(&world.maps(), &mut rng).await;
            }
            if round % 4 == 3 {
                // A watcher that restarts finds its version compacted.
                server.compact();
                let _cut = server.inject(faults::break_watch().max_hits(1));
            }
            settle(&world.maps(), &store, &mut events).await;
        }
    }
}

#[tokio::test]
async fn watcher_covers_all_namespaces() {
    let world = World::new().await;
    let marked = |name: &str| {
        let mut map = config_map(name, "1");
        map.metadata.labels = Some(BTreeMap::from([("world".to_owned(), world.namespace.clone())]));
        map
    };
    let other: k8s_openapi::api::core::v1::Namespace = object(json!({"metadata": {"generateName": "peer-"}}));
    let other =
        Api::all(world.client.clone()).create(&PostParams::default(), &other).await.unwrap().name_any();
    let other: Api<ConfigMap> = Api::namespaced(world.client.clone(), &other);
    world.maps().create(&PostParams::default(), &marked("a")).await.unwrap();
    let config = Config::default().labels(&format!("world={}", world.namespace));
    let mut events = watch(Api::<ConfigMap>::all(world.client.clone()), config);
    assert_eq!(next_events(&mut events, 3).await, ["Init", "InitApply(a)", "InitDone"]);
    other.create(&PostParams::default(), &marked("b")).await.unwrap();
    assert_eq!(next_events(&mut events, 1).await, ["Apply(b)"]);
}
