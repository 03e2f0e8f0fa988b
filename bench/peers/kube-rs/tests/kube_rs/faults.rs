//! Behaviour of kube-rs's watcher with a faulty server. Faults of kube-rs are named by their number.

use futures::StreamExt;
use informer_apiserver::{ApiServer, Verb, faults};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{DeleteParams, PatchParams};
use kube::runtime::watcher::{Config, Error, Event};
use serde_json::json;

use crate::watching::{Events, next_events, watch};
use crate::world::{World, merge, with_timeout};

/// Formats the next event as kube-rs prints it; an error by its kind and code.
async fn next(events: &mut Events<ConfigMap>) -> String {
    match with_timeout(events.next()).await.unwrap() {
        Ok(event) => event.to_string(),
        Err(Error::WatchError(status)) => format!("WatchError {} {}", status.code, status.reason),
        Err(Error::WatchStartFailed(error)) => format!("WatchStartFailed {}", code(&error)),
        Err(Error::InitialListFailed(error)) => format!("InitialListFailed {}", code(&error)),
        Err(Error::WatchFailed(_)) => "WatchFailed".to_owned(),
        Err(other) => other.to_string(),
    }
}

async fn all(events: &mut Events<ConfigMap>, count: usize) -> Vec<String> {
    let mut received = Vec::new();
    for _ in 0..count {
        received.push(next(events).await);
    }
    received
}

fn code(error: &kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        _ => 0,
    }
}

fn requests(server: &ApiServer, verb: Verb) -> usize {
    server.recorded_requests().iter().filter(|seen| seen.verb == verb && seen.plural == "configmaps").count()
}

/// Returns a server with config maps, and a watcher that has received them.
async fn watched(names: &[&str], config: Config) -> (ApiServer, World, Events<ConfigMap>) {
    let (server, world) = World::embedded().await;
    world.create_maps(names).await;
    let mut events = watch(world.maps(), config);
    assert_eq!(next_events(&mut events, names.len() + 2).await.last().unwrap(), "InitDone");
    open(&server, &mut events).await;
    (server, world, events)
}

/// Polls until the watch is open: a watcher opens it only when polled for the next event.
async fn open(server: &ApiServer, events: &mut Events<ConfigMap>) {
    let open = async {
        while server.open_watches() == 0 {
            tokio::task::yield_now().await;
        }
    };
    with_timeout(async {
        tokio::select! {
            biased;
            event = events.next() => panic!("{event:?}"),
            () = open => {}
        }
    })
    .await;
}

/// Changes without an open watch: deletes `gone`, updates `stays`, creates `new`.
async fn change(world: &World) {
    let maps = world.maps();
    maps.delete("gone", &DeleteParams::default()).await.unwrap();
    maps.patch("stays", &PatchParams::default(), &merge(json!({"data": {"k": "2"}}))).await.unwrap();
    world.create_maps(&["new"]).await;
}

#[tokio::test]
async fn broken_watch_resumes_at_its_version() {
    // Over a socket, kube-rs treats a broken body like a complete one: no error is reported.
    for rule in [faults::break_watch(), faults::break_watch().with_clean_end()] {
        let (server, world, mut events) = watched(&["gone", "stays"], Config::default()).await;
        let cut = server.inject(rule.max_hits(1).after_frames(1));
        change(&world).await;
        assert_eq!(all(&mut events, 3).await, ["Delete(gone)", "Apply(stays)", "Apply(new)"]);
        assert_eq!((cut.hits(), requests(&server, Verb::List), requests(&server, Verb::Watch)), (1, 1, 2));
    }
}

#[tokio::test]
async fn p5_immediately_ended_watch_is_reopened_without_backoff() {
    // Without backoff, many requests follow in no time; no event is lost.
    let (server, world, mut events) = watched(&["gone", "stays"], Config::default()).await;
    let ends = server.inject(faults::break_watch().with_clean_end().max_hits(100));
    let first = async {
        let first = next(&mut events).await;
        assert_eq!(ends.hits(), 100);
        first
    };
    let writes = async {
        while ends.hits() < 100 {
            tokio::task::yield_now().await;
        }
        change(&world).await;
    };
    let (first, ()) = with_timeout(async { futures::join!(first, writes) }).await;
    assert_eq!(first, "Delete(gone)");
    assert_eq!(all(&mut events, 2).await, ["Apply(stays)", "Apply(new)"]);
    assert_eq!((requests(&server, Verb::List), requests(&server, Verb::Watch)), (1, 101));
}

#[tokio::test]
async fn p8_expired_version_causes_relist_without_delete_events() {
    // The server sends 410 in an ERROR frame, like kube-apiserver. The missing `gone` in the new list is the
    // only trace of its deletion.
    for streaming in [false, true] {
        let config = if streaming { Config::default().streaming_lists() } else { Config::default() };
        let (server, world, mut events) = watched(&["gone", "stays"], config).await;
        let stalled = server.inject(faults::stall_request().for_verb(Verb::Watch));
        let cut = server.inject(faults::break_watch().with_clean_end().max_hits(1));
        let relisted = async {
            let mut received = vec![next(&mut events).await];
            while received.last().is_some_and(|last| last != "InitDone") {
                received.push(next(&mut events).await);
            }
            received
        };
        let gap = async {
            while cut.hits() == 0 || stalled.hits() == 0 {
                tokio::task::yield_now().await;
            }
            change(&world).await;
            server.compact();
            drop(stalled);
        };
        let (received, ()) = with_timeout(async { futures::join!(relisted, gap) }).await;
        let expected = ["WatchError 410 Expired", "Init", "InitApply(new)", "InitApply(stays)", "InitDone"];
        assert_eq!(received, expected, "streaming: {streaming}");
    }
}

#[tokio::test]
async fn p16_rejected_version_is_requested_forever() {
    // A 410 as the response to the request causes no relist: the loop ends only because the fault does.
    let (server, world, mut events) = watched(&["gone", "stays"], Config::default()).await;
    let fault = server.inject(faults::respond(410).for_verb(Verb::Watch).max_hits(5));
    let _cut = server.inject(faults::break_watch().with_clean_end().max_hits(1));
    assert_eq!(all(&mut events, 5).await, ["WatchStartFailed 410"; 5]);
    assert_eq!((fault.hits(), requests(&server, Verb::List)), (5, 1));
    world.create_maps(&["new"]).await;
    assert_eq!(next(&mut events).await, "Apply(new)");
}

#[tokio::test]
async fn p15_unsupported_streaming_list_is_requested_forever() {
    let (server, world) = World::embedded().await;
    world.create_maps(&["a"]).await;
    let fault = server.inject(faults::refuse_watch_list().max_hits(4));
    let mut events = watch(world.maps(), Config::default().streaming_lists());
    assert_eq!(all(&mut events, 4).await, ["WatchStartFailed 422"; 4]);
    assert_eq!((fault.hits(), requests(&server, Verb::List)), (4, 0));
    assert_eq!(all(&mut events, 3).await, ["Init", "InitApply(a)", "InitDone"]);
}

#[tokio::test]
async fn p14_expired_page_restarts_the_list() {
    let (server, world) = World::embedded().await;
    world.create_maps(&["a", "b", "c"]).await;
    let _expired = server.inject(faults::respond(410).for_verb(Verb::List).page(2).max_hits(2));
    let mut events = watch(world.maps(), Config::default().page_size(2));
    let restarted = ["Init", "InitApply(a)", "InitApply(b)", "InitialListFailed 410"];
    assert_eq!(all(&mut events, 4).await, restarted);
    assert_eq!(all(&mut events, 4).await, restarted);
    assert_eq!(all(&mut events, 3).await, ["Init", "InitApply(a)", "InitApply(b)"]);
    assert_eq!(all(&mut events, 2).await, ["InitApply(c)", "InitDone"]);
}

#[tokio::test]
async fn p11_unreadable_frame_is_an_error_and_skipped() {
    let (server, world, mut events) = watched(&["gone", "stays"], Config::default()).await;
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "stays"}, "data": 7});
    let frame = format!("{}\n", json!({"type": "MODIFIED", "object": object}));
    let raw = server.inject(faults::raw_frame(frame).after_frames(1));
    change(&world).await;
    let received = all(&mut events, 4).await;
    assert_eq!(raw.hits(), 1);
    assert_eq!(
        [&received[0], &received[2], &received[3]],
        ["Delete(gone)", "Apply(stays)", "Apply(new)"],
        "{received:?}"
    );
    assert!(received[1].starts_with("Watch"), "{received:?}");
}

#[tokio::test]
async fn silent_watch_ends_with_its_timeout() {
    // The server enforces the timeout that the client requested, so the watcher needs none of its own.
    let (server, world, mut events) = watched(&["a"], Config::default().timeout(1)).await;
    let reopened = async {
        while requests(&server, Verb::Watch) < 2 {
            tokio::task::yield_now().await;
        }
        world.create_maps(&["b"]).await;
    };
    let (event, ()) = with_timeout(async { futures::join!(events.next(), reopened) }).await;
    let Some(Ok(Event::Apply(map))) = event else { panic!("{event:?}") };
    assert_eq!(map.name_any(), "b");
}
