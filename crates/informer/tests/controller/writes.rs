//! Reading one's own writes: the next turn of a key sees what the last one wrote.

use crate::cluster::{create_pods, cut, disturb, pass, until};
use crate::{Running, diary};
use informer::{Controller, Outcome, SharedInformerFactory};
use informer_apiserver::{ApiServer, faults};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use std::time::Duration;

/// A controller that counts up a label of its object, from what the cache says. If a turn acted on an old state it would write the same
/// number twice.
fn counter(
    server: &ApiServer,
    factory: &SharedInformerFactory,
    turns: tokio::sync::mpsc::UnboundedSender<String>,
    concurrency: usize,
) -> informer::Reconciler {
    let api: Api<Pod> = Api::default_namespaced(server.client());
    Controller::new::<Pod>(factory).reads::<ConfigMap>().concurrency(concurrency).reconcile(
        move |key, ctx| {
            let (api, turns) = (api.clone(), turns.clone());
            async move {
                let Some(pod) = ctx.lister::<Pod>().get_by_key(&key) else { return Ok(Outcome::Done) };
                let count = pod.labels().get("count").map_or(0, |count| count.parse::<u32>().unwrap());
                let _ = turns.send(format!("{} {count}", key.name()));
                if key.name() == "quiet" || count == 3 {
                    return Ok(Outcome::Done);
                }
                let patch = json!({"metadata": {"labels": {"count": (count + 1).to_string()}}});
                let params = PatchParams::default();
                let written = api.patch(key.name(), &params, &Patch::Merge(&patch)).await?;
                ctx.wrote(&written);
                // At once, long before the watch can have told it.
                Ok::<_, kube::Error>(Outcome::RequeueAfter(Duration::ZERO))
            }
        },
    )
}

/// A counter whose first write the cache does not see, because the watch is silent from then on.
async fn unseen(server: &ApiServer, places: usize) -> (Running, crate::cluster::Notes, faults::Fault) {
    let (sender, mut turns) = diary();
    let factory = SharedInformerFactory::new(server.client());
    let running = Running::start(counter(server, &factory, sender, places));
    running.reconciler.running().await;
    let stalled = disturb(server, faults::stall_watch().of("pods").after_frames(1)).await;
    create_pods(server, &["a"]);
    turns.expect(&["a 0"]).await;
    (running, turns, stalled)
}

#[tokio::test(start_paused = true)]
async fn a_turn_sees_what_the_last_one_wrote() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let _slow = server.fault(faults::delay(Duration::from_secs(2)).on(informer_apiserver::Verb::Watch));
    let (sender, mut turns) = diary();
    let factory = SharedInformerFactory::new(server.client());
    let running = Running::start(counter(&server, &factory, sender, 2));
    turns.expect(&["a 0", "a 1", "a 2", "a 3"]).await;
    pass(Duration::from_mins(1)).await;
    running.stop().await.unwrap();
    assert_eq!(turns.take(), ["a 3"], "what the watch told of the last write, and nothing else");
}

/// With one place only, the loop that waited for keys held it, and the key that had waited for its write never got it back: no turn in a day.
#[tokio::test(start_paused = true)]
async fn a_key_that_has_waited_gets_its_turn_though_nobody_else_comes() {
    for places in [1, 2] {
        let server = ApiServer::new();
        let (running, mut turns, stalled) = unseen(&server, places).await;
        pass(Duration::from_secs(5)).await;
        drop(stalled);
        cut(&server);
        turns.expect(&["a 1", "a 2", "a 3"]).await;
        assert_eq!(running.reconciler.metrics().unseen_writes, 0);
        running.stop().await.unwrap();
    }
}

/// A source that is not there shows nothing: every turn came 30 seconds late. And of ten writes that were not seen each was given 30 seconds.
#[tokio::test(start_paused = true)]
async fn what_will_not_be_seen_is_not_waited_for_and_all_together_once() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let _absent = server.fault(faults::forbid("secrets"));
    let (sender, mut turns) = diary();
    let factory = SharedInformerFactory::new(server.client());
    let began = tokio::time::Instant::now();
    let controller = Controller::new::<Pod>(&factory).reads::<ConfigMap>().reads::<Secret>().optional();
    let running = Running::start(controller.reconcile(move |_, ctx| {
        let _ = turns_at(&sender, began);
        let mut secret = Secret::default();
        secret.metadata.resource_version = Some("1000000".to_owned());
        ctx.wrote(&secret);
        if ctx.retries() > 0 {
            for number in 0..10 {
                let mut map = ConfigMap::default();
                map.metadata.namespace = Some(format!("n{number}"));
                map.metadata.resource_version = Some("1000000".to_owned());
                ctx.wrote(&map);
            }
        }
        let ended = if ctx.retries() < 2 { Err("again") } else { Ok(Outcome::Done) };
        async move { ended }
    }));
    turns.expect(&["0", "0", "30"]).await;
    assert_eq!(running.reconciler.metrics().unseen_writes, 1, "a turn counts once");
    running.stop().await.unwrap();
}

fn turns_at(turns: &tokio::sync::mpsc::UnboundedSender<String>, began: tokio::time::Instant) -> bool {
    turns.send(began.elapsed().as_secs().to_string()).is_ok()
}

/// While the watch is silent the key waits, and only that key: others get their turns, though they have but two places.
#[tokio::test(start_paused = true)]
async fn waiting_for_a_write_keeps_nobody_else_from_working() {
    let server = ApiServer::new();
    let (sender, mut turns) = diary();
    let factory = SharedInformerFactory::new(server.client());
    let running = Running::start(counter(&server, &factory, sender, 2));
    running.reconciler.running().await;
    let stalled = disturb(&server, faults::stall_watch().of("pods").after_frames(3)).await;
    create_pods(&server, &["a", "b", "quiet"]);
    let mut first: Vec<String> = Vec::new();
    while first.len() < 3 {
        first.push(turns.0.recv().await.unwrap());
    }
    first.sort();
    assert_eq!(first, ["a 0", "b 0", "quiet 0"]);
    pass(Duration::from_secs(5)).await;
    assert!(turns.is_empty(), "the cache has not seen the writes");
    running.reconciler.enqueue(informer::Key::new("default", "quiet"));
    turns.expect(&["quiet 0"]).await;
    drop(stalled);
    cut(&server);
    // Nobody acted on an old state: each number was written once.
    let mut rest = Vec::new();
    while !rest.contains(&"a 3".to_owned()) || !rest.contains(&"b 3".to_owned()) {
        rest.push(turns.0.recv().await.unwrap());
    }
    rest.retain(|turn| !turn.ends_with('3'));
    rest.sort();
    assert_eq!(rest, ["a 1", "a 2", "b 1", "b 2"]);
    assert_eq!(running.reconciler.metrics().unseen_writes, 0);
    running.stop().await.unwrap();
}

/// A write that is never seen delays its key for as long as was said, and no longer; that is counted.
#[tokio::test(start_paused = true)]
async fn a_write_that_is_never_seen_does_not_hold_a_key_for_ever() {
    let server = ApiServer::new();
    let (running, mut turns, _stalled) = unseen(&server, 2).await;
    pass(Duration::from_secs(29)).await;
    assert!(turns.is_empty());
    turns.expect(&["a 0"]).await;
    assert_eq!(running.reconciler.metrics().unseen_writes, 1);
    running.stop().await.unwrap();
}

/// A stop does not wait for the cache.
#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_for_writes_to_be_seen() {
    let server = ApiServer::new();
    let (running, mut turns, _stalled) = unseen(&server, 2).await;
    until(|| !running.reconciler.turns().is_empty()).await;
    let began = tokio::time::Instant::now();
    running.stop().await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(1));
    assert!(turns.is_empty());
}
