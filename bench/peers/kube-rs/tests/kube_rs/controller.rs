//! A kube-rs `Controller` with a custom resource, owned config maps, a finalizer and a status.
//!
//! It deletes what it owns itself, because the embedded server has no garbage collector.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::finalizer::{Error as FinalizerError, Event, finalizer};
use kube::runtime::wait::{Condition, await_condition, conditions};
use kube::runtime::watcher::Config;
use kube::{Client, Resource, ResourceExt};
use serde_json::json;

use crate::site::{Site, define, site};
use crate::world::{World, merge, object, with_timeout};

const FINALIZER: &str = "peer.example.com/pages";
const MANAGER: &str = "site-controller";

struct Context {
    client: Client,
    cleanups: AtomicUsize,
}

#[derive(Debug, thiserror::Error)]
enum ReconcileError {
    #[error("a call failed: {0}")]
    Call(#[from] kube::Error),
    #[error("the finalizer: {0}")]
    Finalizer(#[from] Box<FinalizerError<ReconcileError>>),
}

async fn reconcile(site: Arc<Site>, context: Arc<Context>) -> Result<Action, ReconcileError> {
    let namespace = site.namespace().unwrap_or_default();
    let sites: Api<Site> = Api::namespaced(context.client.clone(), &namespace);
    let done = finalizer(&sites, FINALIZER, site, async |event| match event {
        Event::Apply(site) => write_pages(&site, &context).await,
        Event::Cleanup(site) => {
            context.cleanups.fetch_add(1, Ordering::SeqCst);
            remove_pages(&site, &context, 0).await?;
            Ok(Action::await_change())
        }
    });
    Ok(done.await.map_err(Box::new)?)
}

/// Creates the pages that the site specifies and updates its status.
async fn write_pages(site: &Site, context: &Context) -> Result<Action, ReconcileError> {
    let namespace = site.namespace().unwrap_or_default();
    let maps: Api<ConfigMap> = Api::namespaced(context.client.clone(), &namespace);
    let params = PatchParams::apply(MANAGER).force();
    for page in 0..site.spec.pages {
        let name = page_name(site, page);
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {
                "name": name, "labels": {"site": site.name_any(), "page": page.to_string()},
                "ownerReferences": [site.controller_owner_ref(&())],
            },
            "data": {"title": site.spec.title},
        });
        maps.patch(&name, &params, &Patch::Apply(map)).await?;
    }
    remove_pages(site, context, site.spec.pages).await?;
    let sites: Api<Site> = Api::namespaced(context.client.clone(), &namespace);
    let status = json!({
        "apiVersion": "peer.example.com/v1", "kind": "Site", "metadata": {"name": site.name_any()},
        "status": {"pages": site.spec.pages, "observed_generation": site.metadata.generation},
    });
    sites.patch_status(&site.name_any(), &params, &Patch::Apply(status)).await?;
    Ok(Action::await_change())
}

async fn remove_pages(site: &Site, context: &Context, from: u32) -> Result<(), ReconcileError> {
    let maps: Api<ConfigMap> = Api::namespaced(context.client.clone(), &site.namespace().unwrap_or_default());
    let params = ListParams::default().labels(&format!("site={}", site.name_any()));
    for map in maps.list(&params).await? {
        let page: u32 = map.labels()["page"].parse().unwrap_or_default();
        if page >= from {
            maps.delete(&map.name_any(), &DeleteParams::default()).await?;
        }
    }
    Ok(())
}

fn page_name(site: &Site, page: u32) -> String {
    format!("{}-{page}", site.name_any())
}

/// Retries after a short delay: a concurrent write may have caused a conflict.
fn error_policy(_: Arc<Site>, _: &ReconcileError, _: Arc<Context>) -> Action {
    Action::requeue(Duration::from_millis(10))
}

fn run(world: &World, config: Config) -> (Arc<Context>, tokio::task::JoinHandle<()>) {
    let context = Arc::new(Context { client: world.client.clone(), cleanups: AtomicUsize::new(0) });
    let controller = Controller::new(world.api::<Site>(), config.clone()).owns(world.maps(), config);
    let running = controller.run(reconcile, error_policy, context.clone()).for_each(|_| async {});
    (context, tokio::spawn(running))
}

fn has_pages(pages: u32) -> impl Condition<Site> {
    move |site: Option<&Site>| {
        site.is_some_and(|site| {
            let status = site.status.clone().unwrap_or_default();
            (status.pages, status.observed_generation) == (Some(pages), site.metadata.generation)
        })
    }
}

#[tokio::test]
async fn controller_restores_owned_objects() {
    for config in [Config::default(), Config::default().streaming_lists()] {
        let world = World::new().await;
        define(&world.client).await;
        let (sites, maps): (Api<Site>, _) = (world.api(), world.maps());
        // One site exists before the controller starts, one is created later.
        sites.create(&PostParams::default(), &object(site("early", 2))).await.unwrap();
        let (context, running) = run(&world, config);
        sites.create(&PostParams::default(), &object(site("late", 1))).await.unwrap();
        with_timeout(await_condition(sites.clone(), "early", has_pages(2))).await.unwrap();
        with_timeout(await_condition(sites.clone(), "late", has_pages(1))).await.unwrap();
        let early = sites.get("early").await.unwrap();
        assert_eq!(early.finalizers(), [FINALIZER]);
        let page = maps.get("early-1").await.unwrap();
        assert_eq!(page.owner_references(), [early.controller_owner_ref(&()).unwrap()]);

        // A deleted page and a modified page are both restored.
        maps.delete("early-0", &DeleteParams::default()).await.unwrap();
        with_timeout(await_condition(maps.clone(), "early-0", conditions::is_created())).await.unwrap();
        let defaced = merge(json!({"data": {"title": "mine now"}}));
        maps.patch("early-1", &PatchParams::default(), &defaced).await.unwrap();
        let restored = |map: Option<&ConfigMap>| {
            map.is_some_and(|map| map.data.as_ref().is_some_and(|data| data["title"] == "index"))
        };
        with_timeout(await_condition(maps.clone(), "early-1", restored)).await.unwrap();

        // With fewer pages, the rest is deleted.
        sites.patch("early", &PatchParams::default(), &merge(json!({"spec": {"pages": 1}}))).await.unwrap();
        with_timeout(await_condition(sites.clone(), "early", has_pages(1))).await.unwrap();
        assert!(maps.get_opt("early-1").await.unwrap().is_none());

        // The site is removed after its pages.
        let uid = early.uid().unwrap();
        sites.delete("early", &DeleteParams::default()).await.unwrap();
        with_timeout(await_condition(sites.clone(), "early", conditions::is_deleted(&uid))).await.unwrap();
        let left = maps.list(&ListParams::default()).await.unwrap();
        assert_eq!(left.items.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["late-0"]);
        assert_eq!(context.cleanups.load(Ordering::SeqCst), 1);
        running.abort();
    }
}

#[tokio::test]
async fn controller_survives_server_faults() {
    use informer_apiserver::{Verb, faults};
    let (server, world) = World::embedded().await;
    define(&world.client).await;
    let sites: Api<Site> = world.api();
    let (_, running) = run(&world, Config::default());
    for round in 1..=5 {
        let name = format!("site-{round}");
        let _broken = server.inject(faults::break_watch().max_hits(2).after_frames(round));
        let _busy = server.inject(faults::respond(503).for_verb(Verb::Patch).max_hits(1));
        sites.create(&PostParams::default(), &object(site(&name, 2))).await.unwrap();
        with_timeout(await_condition(sites.clone(), &name, has_pages(2))).await.unwrap();
        if round == 3 {
            server.compact();
        }
    }
    assert_eq!(world.maps().list(&ListParams::default()).await.unwrap().items.len(), 10);
    running.abort();
}
