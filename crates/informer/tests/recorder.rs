//! Recorded events on the embedded server: what is there, how often it was asked, and what is counted when it does not work.
#![allow(clippy::unwrap_used)]

#[path = "common/cluster.rs"]
mod cluster;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cluster::{LONG, config_map, create_namespace};
use informer::{EventType, Recorder, Reference, SharedInformerFactory};
use informer_apiserver::{ApiServer, ApiService, Verb, faults};
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::Service;

/// An object of this name in the namespace `default`.
fn object(name: &str) -> Reference {
    let text = |text: &str| text.to_owned();
    let namespace = Some(text("default"));
    Reference {
        api_version: text("v1"),
        kind: text("ConfigMap"),
        namespace,
        name: text(name),
        uid: text("u"),
    }
}

fn note(recorder: &Recorder, name: &str, note: &str) {
    recorder.event(&object(name), EventType::Normal, "Done", "DoIt", note);
}

fn events(server: &ApiServer) -> Vec<Value> {
    server.list("events.k8s.io/v1", "events", None)
}

/// The writes that the server saw.
fn asked(server: &ApiServer) -> Vec<Verb> {
    server.requests().iter().map(|seen| seen.verb).collect()
}

/// Lets the recorder do what is due.
async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// So much time goes by, in steps in which everything happens.
async fn pass(time: Duration) {
    let end = Instant::now() + time;
    settle().await;
    while Instant::now() < end {
        tokio::time::advance((end - Instant::now()).min(Duration::from_secs(1))).await;
        settle().await;
    }
}

async fn end(recorder: &Recorder) {
    recorder.shutdown(LONG).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_event_says_everything_the_api_asks_for() {
    let server = ApiServer::new();
    server.create(&config_map("default", "a", "1")).unwrap();
    let factory = SharedInformerFactory::new(server.client());
    let maps = factory.informer::<ConfigMap>();
    factory.start();
    factory.wait_for_sync(LONG).await.unwrap();
    let map = maps.lister().get("default", "a").unwrap();
    let mut node = Node::default();
    node.metadata.name = Some("node-1".to_owned());

    let recorder = Recorder::new(server.client(), "website-controller");
    // A typed view of a cached object is pointed at as it is.
    let map = map.typed().unwrap();
    recorder.event_with(&map, &node, EventType::Warning, "Created", "CreateDeployment", "created it");
    end(&recorder).await;
    let event = &events(&server)[0];
    let expected = json!({
        "type": "Warning", "reason": "Created", "action": "CreateDeployment", "note": "created it",
        "regarding": {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "default", "name": "a", "uid": map.metadata.uid},
        "related": {"apiVersion": "v1", "kind": "Node", "name": "node-1"},
        "reportingController": "website-controller", "reportingInstance": recorder.instance(),
    });
    for (field, value) in expected.as_object().unwrap() {
        assert_eq!(&event[field], value, "{field}");
    }
    assert_eq!(event["metadata"]["namespace"], "default");
    assert!(event["metadata"]["name"].as_str().unwrap().starts_with("a."), "{event}");
    assert_eq!(event["eventTime"].as_str().unwrap().len(), "2026-01-01T00:00:00.000000Z".len());
    assert_eq!(event["series"], Value::Null);
    // In the old form that `kubectl describe` reads, too.
    assert_eq!(server.list("v1", "events", None)[0]["message"], "created it");
}

#[tokio::test(start_paused = true)]
async fn what_is_outside_namespaces_has_its_events_in_default() {
    let server = ApiServer::new();
    let recorder = Recorder::new(server.client(), "c");
    let mut node = Node::default();
    node.metadata.name = Some("node-1".to_owned());
    recorder.event(&node, EventType::Normal, "Ready", "Probe", "");
    // Some kinds have names that no event can have, or such that nothing fits behind them.
    for name in ["system:node", &"x".repeat(253), "UPPER", "-", ""] {
        let regarding = Reference { namespace: None, ..object(name) };
        recorder.event(&regarding, EventType::Normal, "Ready", "Probe", "");
    }
    end(&recorder).await;
    assert_eq!((events(&server).len(), recorder.metrics().failed), (6, 0));
    assert!(events(&server).iter().all(|event| event["metadata"]["namespace"] == "default"));
}

#[tokio::test(start_paused = true)]
async fn the_same_again_is_a_series() {
    let server = ApiServer::new();
    let recorder = Recorder::new(server.client(), "c");
    note(&recorder, "a", "same");
    pass(Duration::from_secs(1)).await;
    for _ in 0..5 {
        note(&recorder, "a", "same");
        pass(Duration::from_secs(1)).await;
    }
    assert_eq!(asked(&server), [Verb::Create, Verb::Patch], "the first repeat is told, the others wait");
    assert_eq!(events(&server)[0]["series"]["count"], 2);
    // The end of the series is six minutes after its last.
    pass(Duration::from_mins(5)).await;
    assert_eq!(asked(&server).len(), 2);
    pass(Duration::from_mins(2)).await;
    let all = events(&server);
    assert_eq!((all.len(), &all[0]["series"]["count"], asked(&server).len()), (1, &json!(6), 3));
    let last = all[0]["series"]["lastObservedTime"].as_str().unwrap();
    assert!(last > all[0]["eventTime"].as_str().unwrap(), "{}", all[0]);

    // Anything else is another event: note, type, reason, action, the objects, and the same after the end.
    let (a, b) = (object("a"), object("b"));
    recorder.event(&a, EventType::Normal, "Done", "DoIt", "same");
    recorder.event(&a, EventType::Warning, "Done", "DoIt", "same");
    recorder.event(&a, EventType::Normal, "Undone", "DoIt", "same");
    recorder.event(&a, EventType::Normal, "Done", "Undo", "same");
    recorder.event(&b, EventType::Normal, "Done", "DoIt", "same");
    recorder.event_with(&a, &b, EventType::Normal, "Done", "DoIt", "same");
    end(&recorder).await;
    assert_eq!(events(&server).len(), 7);
    let m = recorder.metrics();
    assert_eq!((m.sent, m.aggregated, m.updated, m.dropped, m.failed), (7, 5, 2, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_series_that_goes_on_is_told_every_half_hour() {
    let server = ApiServer::new();
    let recorder = Recorder::new(server.client(), "c");
    for _ in 0..70 {
        note(&recorder, "a", "same");
        pass(Duration::from_mins(1)).await;
    }
    assert_eq!(asked(&server), [Verb::Create, Verb::Patch, Verb::Patch, Verb::Patch]);
    let told = events(&server)[0]["series"]["count"].as_u64().unwrap();
    assert!((60..64).contains(&told), "{told}");
    end(&recorder).await;
    assert_eq!(events(&server)[0]["series"]["count"], 70, "the last word is said at the end");
}

/// Events live for an hour on a server. One that is gone is made again, as the series that it is.
#[tokio::test(start_paused = true)]
async fn an_event_that_is_gone_comes_back_with_its_series() {
    let server = ApiServer::new();
    let recorder = Recorder::new(server.client(), "c");
    note(&recorder, "a", "same");
    settle().await;
    let name = events(&server)[0]["metadata"]["name"].as_str().unwrap().to_owned();
    server.delete("events.k8s.io/v1", "events", Some("default"), &name).unwrap();
    note(&recorder, "a", "same");
    end(&recorder).await;
    let event = &events(&server)[0];
    assert_eq!(
        (event["metadata"]["name"].as_str().unwrap(), &event["series"]["count"]),
        (name.as_str(), &json!(2))
    );
}

#[tokio::test(start_paused = true)]
async fn one_object_cannot_flood_the_server() {
    let server = ApiServer::new();
    let recorder = Recorder::new(server.client(), "c");
    for number in 0..100 {
        note(&recorder, "a", &number.to_string());
    }
    note(&recorder, "b", "not its fault");
    settle().await;
    assert_eq!((events(&server).len(), recorder.metrics().limited), (26, 75));
    pass(Duration::from_mins(5)).await;
    note(&recorder, "a", "one more");
    note(&recorder, "a", "and not two");
    end(&recorder).await;
    assert_eq!((events(&server).len(), recorder.metrics().limited), (27, 76));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_costs_a_bounded_buffer_and_few_requests() {
    let server = ApiServer::new();
    let recorder = Recorder::new(server.client(), "c");
    let away = server.fault(faults::status(503));
    for number in 0..1_500 {
        note(&recorder, &format!("o-{number}"), "x");
    }
    let m = recorder.metrics();
    assert_eq!((m.waiting, m.dropped, m.sent), (1_000, 500, 0), "nobody waited, nothing grew");
    pass(Duration::from_mins(1)).await;
    assert!(away.hits() >= 3 && away.hits() < 10, "{} requests", away.hits());
    drop(away);
    pass(Duration::from_mins(1)).await;
    let m = recorder.metrics();
    assert_eq!((m.waiting, m.sent, events(&server).len()), (0, 1_000, 1_000));
}

/// Seen in review: in the namespace `bad` every write was answered with 500, as where a webhook is broken. An event in `default` was written 355 seconds
/// later, after the twelve tries of the one before it: what failed stayed the first, and everything waited with it.
#[tokio::test(start_paused = true)]
async fn a_namespace_in_which_nothing_works_holds_up_no_other() {
    let server = ApiServer::new();
    create_namespace(&server, "bad");
    let recorder = Recorder::new(server.client(), "c");
    let broken = server.fault(faults::status(500).in_namespace("bad"));
    let bad = |name: &str| Reference { namespace: Some("bad".to_owned()), ..object(name) };
    for number in 0..100 {
        recorder.event(&bad(&format!("b-{number}")), EventType::Warning, "Failed", "DoIt", "x");
    }
    note(&recorder, "a", "x");
    settle().await;
    assert_eq!(events(&server).len(), 1, "it did not wait");
    pass(Duration::from_mins(1)).await;
    note(&recorder, "b", "x");
    settle().await;
    assert_eq!(events(&server).len(), 2);
    assert!(broken.hits() >= 3 && broken.hits() < 10, "nor is the server asked for each: {}", broken.hits());
    drop(broken);
    pass(Duration::from_mins(1)).await;
    let m = recorder.metrics();
    assert_eq!((m.sent, m.failed, m.dropped, events(&server).len()), (102, 0, 0, 102));
}

/// A token that has run out is renewed, and others who write the same are done sometime: neither is a reason to lose an event.
#[tokio::test(start_paused = true)]
async fn a_token_that_ran_out_and_a_conflict_are_tried_again() {
    for code in [401, 409] {
        let server = ApiServer::new();
        let recorder = Recorder::new(server.client(), "c");
        let fault = server.fault(faults::status(code).on(Verb::Create).times(2));
        note(&recorder, "a", "x");
        pass(Duration::from_secs(30)).await;
        note(&recorder, "a", "x");
        let conflict = server.fault(faults::status(code).on(Verb::Patch).times(2));
        pass(Duration::from_secs(30)).await;
        let m = recorder.metrics();
        assert_eq!((fault.hits(), conflict.hits(), m.sent, m.updated, m.failed), (2, 2, 1, 1, 0), "{code}");
        assert_eq!((events(&server).len(), &events(&server)[0]["series"]["count"]), (1, &json!(2)));
    }
}

/// Two processes record the same of the same object: neither takes the other's event for its own.
#[tokio::test(start_paused = true)]
async fn two_recorders_have_events_of_their_own() {
    let server = ApiServer::new();
    let recorders = [(); 2].map(|()| Recorder::new(server.client(), "c"));
    for recorder in &recorders {
        note(recorder, "a", "same");
        note(recorder, "a", "another");
        end(recorder).await;
        assert_eq!((recorder.metrics().sent, recorder.metrics().failed), (2, 0));
    }
    let names: BTreeSet<_> =
        events(&server).iter().map(|event| event["metadata"]["name"].to_string()).collect();
    assert_eq!(names.len(), 4);
    assert_ne!(recorders[0].instance(), recorders[1].instance());
}

/// What a server refuses for as long as it is asked is given up after twelve tries, and the next has its turn.
#[tokio::test(start_paused = true)]
async fn a_write_is_not_tried_for_ever() {
    let server = ApiServer::new();
    let recorder = Recorder::new(server.client(), "c");
    let _away = server.fault(faults::drop_connection().times(24));
    for name in ["a", "b", "c"] {
        note(&recorder, name, "x");
        settle().await;
    }
    // In turn: each has been asked for eight times before the others are written.
    pass(Duration::from_mins(30)).await;
    let m = recorder.metrics();
    assert_eq!((m.failed, m.sent, asked(&server).len()), (0, 3, 27));
    let _away = server.fault(faults::drop_connection().times(12));
    note(&recorder, "d", "x");
    pass(Duration::from_mins(15)).await;
    note(&recorder, "e", "x");
    pass(Duration::from_mins(1)).await;
    let m = recorder.metrics();
    assert_eq!((m.failed, m.sent, asked(&server).len()), (1, 4, 40));
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_honoured() {
    let server = ApiServer::new();
    let recorder = Recorder::new(server.client(), "c");
    let _busy = server.fault(faults::too_many_requests(120).times(1));
    note(&recorder, "a", "x");
    pass(Duration::from_secs(119)).await;
    assert_eq!(asked(&server).len(), 1);
    pass(Duration::from_mins(2)).await;
    assert_eq!(recorder.metrics().sent, 1);
}

/// The answer to a create is lost: the next try finds it there, and there are not two.
#[tokio::test(start_paused = true)]
async fn a_lost_answer_makes_no_second_event() {
    let server = ApiServer::new();
    let (mut service, mut first) = (server.service(), true);
    let lossy = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (answer, lost) = (service.call(request), std::mem::take(&mut first));
        async move {
            let mut answer = answer.await?;
            if lost {
                *answer.status_mut() = http::StatusCode::BAD_GATEWAY;
            }
            Ok::<_, <ApiService as Service<http::Request<kube::client::Body>>>::Error>(answer)
        }
    });
    let recorder = Recorder::new(kube::Client::new(lossy, "default"), "c");
    note(&recorder, "a", "x");
    pass(Duration::from_secs(10)).await;
    let m = recorder.metrics();
    assert_eq!((events(&server).len(), m.sent, m.failed, asked(&server).len()), (1, 1, 0, 2));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_is_asked_again() {
    let server = ApiServer::new();
    let recorder = Recorder::new(server.client(), "c");
    let _mute = server.fault(faults::hold().on(Verb::Create).times(1));
    note(&recorder, "a", "x");
    pass(Duration::from_secs(40)).await;
    assert_eq!((recorder.metrics().sent, asked(&server).len()), (1, 2));
}

/// Counts what is said loudly.
#[derive(Clone, Default)]
struct Warnings(Arc<AtomicUsize>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN && metadata.target().contains("recorder")
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::Id {
        tracing::Id::from_u64(1)
    }

    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn record(&self, _: &tracing::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::Id, _: &tracing::Id) {}

    fn enter(&self, _: &tracing::Id) {}

    fn exit(&self, _: &tracing::Id) {}
}

#[tokio::test(start_paused = true)]
async fn what_is_forbidden_is_said_once() {
    let warnings = Warnings::default();
    let _log = tracing::subscriber::set_default(warnings.clone());
    let server = ApiServer::new();
    let recorder = Recorder::new(server.client(), "c");
    let forbidden = server.fault(faults::forbid("events"));
    for name in ["a", "b", "c"] {
        note(&recorder, name, "x");
    }
    end(&recorder).await;
    assert_eq!((forbidden.hits(), recorder.metrics().failed, warnings.0.load(Ordering::Relaxed)), (3, 3, 1));
}

#[tokio::test(start_paused = true)]
async fn what_is_forbidden_is_counted_and_not_asked_again_and_again() {
    let server = ApiServer::new();
    let recorder = Recorder::new(server.client(), "c");
    let forbidden = server.fault(faults::forbid("events"));
    for _ in 0..50 {
        note(&recorder, "a", "same");
        pass(Duration::from_secs(1)).await;
    }
    let m = recorder.metrics();
    assert_eq!((forbidden.hits(), m.failed, m.sent), (1, 50, 0));
    drop(forbidden);
    note(&recorder, "b", "x");
    pass(Duration::from_mins(7)).await;
    note(&recorder, "a", "same");
    end(&recorder).await;
    assert_eq!(events(&server).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_is_not_there_is_no_reason_to_try_again() {
    let server = ApiServer::new();
    let recorder = Recorder::new(server.client(), "c");
    let lost = Reference { namespace: Some("nowhere".to_owned()), ..object("a") };
    recorder.event(&lost, EventType::Normal, "Done", "DoIt", "x");
    end(&recorder).await;
    assert_eq!((recorder.metrics().failed, asked(&server).len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn words_have_their_lengths() {
    let server = ApiServer::new();
    let recorder = Recorder::new(server.client(), "c");
    let (a, long) = (object("a"), "x".repeat(129));
    recorder.event(&a, EventType::Normal, "", "DoIt", "no reason");
    recorder.event(&a, EventType::Normal, "Done", "", "no action");
    recorder.event(&a, EventType::Normal, &long, "DoIt", "long reason");
    recorder.event(&a, EventType::Normal, "Done", &long, "long action");
    recorder.event(&a, EventType::Normal, &long[..128], &long[..128], "ä".repeat(600));
    end(&recorder).await;
    assert_eq!((recorder.metrics().failed, recorder.metrics().sent), (4, 1));
    let events = events(&server);
    let note = events[0]["note"].as_str().unwrap();
    assert!(note.len() <= 1024 && note.ends_with("ä..."), "{note}");
    assert!(recorder.instance().len() <= 128);
}

#[tokio::test(start_paused = true)]
async fn the_end_has_a_deadline_and_says_what_is_lost() {
    let server = ApiServer::new();
    let recorder = Recorder::new(server.client(), "c");
    let away = server.fault(faults::status(503));
    note(&recorder, "a", "x");
    note(&recorder, "b", "x");
    let begun = Instant::now();
    let error = recorder.shutdown(Duration::from_secs(5)).await.unwrap_err();
    assert_eq!(error.to_string(), "2 writes of events were not done within 5s and are lost");
    assert_eq!((begun.elapsed(), recorder.metrics().dropped), (Duration::from_secs(5), 2));
    drop(away);
    let before = asked(&server).len();
    note(&recorder, "c", "too late");
    pass(Duration::from_mins(1)).await;
    assert_eq!(
        (recorder.metrics().dropped, asked(&server).len()),
        (3, before),
        "nothing is asked after the end"
    );
    assert_eq!(recorder.clone().shutdown(LONG).await, Ok(()), "there is nothing left to lose");
}

#[tokio::test(start_paused = true)]
async fn the_task_ends_with_the_last_handle() {
    let server = ApiServer::new();
    let recorder = Recorder::new(server.client(), "c");
    let away = server.fault(faults::status(503));
    note(&recorder, "a", "x");
    settle().await;
    let other = recorder.clone();
    drop(recorder);
    let before = asked(&server).len();
    pass(Duration::from_secs(5)).await;
    assert!(asked(&server).len() > before, "another handle keeps it");
    drop((other, away));
    let before = asked(&server).len();
    pass(Duration::from_mins(1)).await;
    assert_eq!(asked(&server).len(), before);
}
