//! The API server is killed under load and started again. Writers continue; in the end every cache equals the
//! server, handlers received every final state and every deletion, and the states reported the outage.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use informer::status::InformerState;
use informer::{InformerOptions, SharedInformerFactory};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Secret};
use serde_json::json;

use crate::control;
use crate::model::Model;
use crate::proxy::Proxy;
use crate::runner::{Needs, statements};
use crate::targets::{TIMEOUT, Target, map, until, value};

statements![
    needs: Needs::Control;
    server_killed_under_load_loses_no_event,
    reconnect_after_expired_position_delivers_the_differences,
];

const WRITERS: usize = 4;

/// Shortens the backoff, so that informers reconnect before the test times out.
pub(crate) fn options(target: &Target) -> InformerOptions {
    let options = InformerOptions::default().namespace(target.namespace.clone());
    options.backoff(Duration::from_millis(100), Duration::from_secs(2))
}

/// Creates, changes and deletes its own config maps, and ignores requests that fail.
async fn write(target: Target, writer: usize, accepted: Arc<AtomicU64>, stopped: Arc<AtomicBool>) {
    let mut interval = tokio::time::interval(Duration::from_millis(5));
    for step in 0_u64.. {
        let name = format!("map-{writer}-{}", step % 7);
        let path = format!("$ns/configmaps/{name}");
        let outcome = match step % 5 {
            0 | 1 => target.request("POST", "$ns/configmaps", Some(&map(&name, "0"))).await,
            2 | 3 => target.request("PATCH", &path, Some(&value(&step.to_string()))).await,
            _ => target.request("DELETE", &path, None).await,
        };
        accepted.fetch_add(u64::from(outcome.is_ok()), Ordering::Relaxed);
        if stopped.load(Ordering::Relaxed) {
            return;
        }
        interval.tick().await;
    }
}

async fn server_killed_under_load_loses_no_event(target: &Target) {
    let options = options(target);
    let factory = SharedInformerFactory::with_options(target.client.clone(), options);
    let (maps, secrets) = (factory.informer::<ConfigMap>(), factory.metadata_informer::<Secret>());
    let events = factory.informer::<Event>();
    let (_maps, model) = Model::follow(&maps);
    let (_secrets, secrets_model) = Model::follow(&secrets);
    target.post("$ns/secrets", &json!({"metadata": {"name": "quiet"}})).await;
    factory.start();
    factory.wait_for_sync(TIMEOUT).await.unwrap();

    let (accepted, stopped) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            tokio::spawn(write(target.again(), writer, Arc::clone(&accepted), Arc::clone(&stopped)))
        })
        .collect();
    let goes_on = async |by: u64| {
        let goal = accepted.load(Ordering::Relaxed) + by;
        until("writes are accepted", async || accepted.load(Ordering::Relaxed) >= goal).await;
    };
    goes_on(200).await;
    for _ in 0..2 {
        control::kill(target).await;
        // C7: the failure is reported, and the cache can still be read.
        let is_backing_off = || maps.status().state.to_string().starts_with("backing off");
        until("the outage is reported", async || {
            is_backing_off() && events.status().state != InformerState::Live
        })
        .await;
        let status = maps.status();
        assert!(status.synced && status.staleness() > Some(Duration::ZERO), "{status:?}");
        assert!(!maps.lister().is_empty());
        control::start(target).await;
        until("the informer is live again", async || maps.status().state == InformerState::Live).await;
        goes_on(200).await;
    }
    stopped.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }
    model.settles(&maps, async || target.list::<ConfigMap>().await).await;
    until("all informers are live", async || {
        let states = [maps.status().state, secrets.status().state, events.status().state];
        states.iter().all(|state| *state == InformerState::Live)
    })
    .await;
    target.delete("$ns/secrets/quiet").await;
    secrets_model.settles(&secrets, async || target.list::<Secret>().await).await;
    assert_eq!(
        secrets_model.lines(),
        ["+quiet", "-quiet"],
        "only the creation and the deletion are delivered"
    );
    let status = maps.status();
    assert_eq!((status.staleness(), status.reflector.rewinds), (Some(Duration::ZERO), 0));
    assert!(status.reflector.failures >= 2, "{:?}", status.reflector);
    factory.shutdown(TIMEOUT).await.unwrap();
}

/// The watch cache of a restarted server begins at its start. Older positions have expired (410).
async fn reconnect_after_expired_position_delivers_the_differences(target: &Target) {
    let proxy = Proxy::to(&target.config.cluster_url).await;
    let options = options(target);
    let factory = SharedInformerFactory::with_options(target.client_by(proxy.address), options);
    let maps = factory.informer::<ConfigMap>();
    let (on, model) = Model::follow(&maps);
    for name in ["again", "changes", "goes", "stays"] {
        target.post("$ns/configmaps", &map(name, "1")).await;
    }
    factory.start();
    factory.wait_for_sync(TIMEOUT).await.unwrap();
    assert!(on.wait_for_sync().await);
    model.lines();

    proxy.block();
    until("the outage is noticed", async || maps.status().state != InformerState::Live).await;
    target.delete("$ns/configmaps/goes").await;
    target.delete("$ns/configmaps/again").await;
    target.post("$ns/configmaps", &map("again", "2")).await;
    target.merge("$ns/configmaps/changes", &value("2")).await;
    control::kill(target).await;
    control::start(target).await;
    target.post("$ns/configmaps", &map("new", "1")).await;
    proxy.unblock();
    let list = async || target.list::<ConfigMap>().await;
    until("the informer is live", async || maps.status().state == InformerState::Live).await;
    model.settles(&maps, list).await;
    let lines = model.lines();
    assert_eq!(lines, ["-again inferred", "-goes inferred", "+again", "~changes", "+new"]);
    let counters = maps.status().reflector;
    assert_eq!((counters.relists.expired, counters.rewinds), (1, 0), "{counters:?}");
}
