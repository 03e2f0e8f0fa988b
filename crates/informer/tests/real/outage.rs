//! The API server is killed in the middle of everything and started again. Writers go on through it; in the end every cache is what the server
//! has, handlers were told every final state and every delete, and meanwhile everybody could see that something was wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use informer::{Options, SharedInformerFactory, State};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Secret};
use serde_json::json;

use crate::arm::{Arm, PATIENCE, map, until, value};
use crate::control;
use crate::model::Model;
use crate::proxy::Proxy;
use crate::runner::{Needs, statements};

statements![
    needs: Needs::Control;
    a_server_that_is_killed_under_load_costs_nothing_but_time,
    who_comes_back_after_the_server_has_forgotten_is_told_the_differences,
];

const WRITERS: usize = 4;

/// Whoever waits for as long as is usual may still do so when the story runs out of patience.
pub(crate) fn options(arm: &Arm) -> Options {
    let options = Options::default().namespace(arm.namespace.clone());
    options.backoff(Duration::from_millis(100), Duration::from_secs(2))
}

/// Makes, changes and removes config maps of its own, and does not mind a server that is away.
async fn write(arm: Arm, writer: usize, accepted: Arc<AtomicU64>, over: Arc<AtomicBool>) {
    let mut pace = tokio::time::interval(Duration::from_millis(5));
    for turn in 0_u64.. {
        let name = format!("map-{writer}-{}", turn % 7);
        let path = format!("$ns/configmaps/{name}");
        let outcome = match turn % 5 {
            0 | 1 => arm.request("POST", "$ns/configmaps", Some(&map(&name, "0"))).await,
            2 | 3 => arm.request("PATCH", &path, Some(&value(&turn.to_string()))).await,
            _ => arm.request("DELETE", &path, None).await,
        };
        accepted.fetch_add(u64::from(outcome.is_ok()), Ordering::Relaxed);
        if over.load(Ordering::Relaxed) {
            return;
        }
        pace.tick().await;
    }
}

async fn a_server_that_is_killed_under_load_costs_nothing_but_time(arm: &Arm) {
    let options = options(arm);
    let factory = SharedInformerFactory::with_options(arm.client.clone(), options);
    let (maps, secrets) = (factory.informer::<ConfigMap>(), factory.metadata::<Secret>());
    let events = factory.informer::<Event>();
    let (_maps, told) = Model::follow(&maps);
    let (_secrets, told_of_secrets) = Model::follow(&secrets);
    arm.post("$ns/secrets", &json!({"metadata": {"name": "quiet"}})).await;
    factory.start();
    factory.wait_for_sync(PATIENCE).await.unwrap();

    let (accepted, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| tokio::spawn(write(arm.again(), writer, Arc::clone(&accepted), Arc::clone(&over))))
        .collect();
    let goes_on = async |by: u64| {
        let goal = accepted.load(Ordering::Relaxed) + by;
        until("writes are accepted", async || accepted.load(Ordering::Relaxed) >= goal).await;
    };
    goes_on(200).await;
    for _ in 0..2 {
        control::kill(arm).await;
        // C7: what is wrong is said, and what is cached can still be read.
        let waits = || maps.status().state.to_string().starts_with("backing off");
        until("it is said", async || waits() && events.status().state != State::Live).await;
        let status = maps.status();
        assert!(status.synced && status.staleness() > Some(Duration::ZERO), "{status:?}");
        assert!(!maps.lister().is_empty());
        control::start(arm).await;
        until("it is live again", async || maps.status().state == State::Live).await;
        goes_on(200).await;
    }
    over.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }
    told.settles(&maps, async || arm.list::<ConfigMap>().await).await;
    until("all are live", async || {
        let states = [maps.status().state, secrets.status().state, events.status().state];
        states.iter().all(|state| *state == State::Live)
    })
    .await;
    arm.delete("$ns/secrets/quiet").await;
    told_of_secrets.settles(&secrets, async || arm.list::<Secret>().await).await;
    assert_eq!(told_of_secrets.lines(), ["+quiet", "-quiet"], "nothing happened to it meanwhile");
    let status = maps.status();
    assert_eq!((status.staleness(), status.counters.rewinds), (Some(Duration::ZERO), 0));
    assert!(status.counters.failures >= 2, "{:?}", status.counters);
    factory.shutdown(PATIENCE).await.unwrap();
}

/// The cache of a server that was started again begins at that moment. Whoever stood before it has lost its position (410).
async fn who_comes_back_after_the_server_has_forgotten_is_told_the_differences(arm: &Arm) {
    let proxy = Proxy::to(&arm.config.cluster_url).await;
    let options = options(arm);
    let factory = SharedInformerFactory::with_options(arm.client_by(proxy.address), options);
    let maps = factory.informer::<ConfigMap>();
    let (on, told) = Model::follow(&maps);
    for name in ["again", "changes", "goes", "stays"] {
        arm.post("$ns/configmaps", &map(name, "1")).await;
    }
    factory.start();
    factory.wait_for_sync(PATIENCE).await.unwrap();
    assert!(on.synced().await);
    told.lines();

    proxy.block();
    until("it is noticed", async || maps.status().state != State::Live).await;
    arm.delete("$ns/configmaps/goes").await;
    arm.delete("$ns/configmaps/again").await;
    arm.post("$ns/configmaps", &map("again", "2")).await;
    arm.merge("$ns/configmaps/changes", &value("2")).await;
    control::kill(arm).await;
    control::start(arm).await;
    arm.post("$ns/configmaps", &map("new", "1")).await;
    proxy.unblock();
    let list = async || arm.list::<ConfigMap>().await;
    until("it is live", async || maps.status().state == State::Live).await;
    told.settles(&maps, list).await;
    let lines = told.lines();
    assert_eq!(lines, ["-again inferred", "-goes inferred", "+again", "~changes", "+new"]);
    let counters = maps.status().counters;
    assert_eq!((counters.relists.forgotten, counters.rewinds), (1, 0), "{counters:?}");
}
