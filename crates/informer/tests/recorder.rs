//! Recorded events against the embedded server: what is stored, how many requests are sent, and what is
//! counted on failure.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::cluster::{TIMEOUT, config_map, create_namespace};
use informer::SharedInformerFactory;
use informer::owner::ObjectReference;
use informer::recorder::{EventRecorder, EventType};
use informer_apiserver::{ApiServer, ApiService, Verb, faults};
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::Service;

/// Reference to an object with this name in the namespace `default`.
fn object(name: &str) -> ObjectReference {
    let text = |text: &str| text.to_owned();
    let namespace = Some(text("default"));
    ObjectReference {
        api_version: text("v1"),
        kind: text("ConfigMap"),
        namespace,
        name: text(name),
        uid: text("u"),
    }
}

fn note(recorder: &EventRecorder, name: &str, note: &str) {
    recorder.record(&object(name), EventType::Normal, "Done", "DoIt", note);
}

fn events(server: &ApiServer) -> Vec<Value> {
    server.list("events.k8s.io/v1", "events", None)
}

/// Verbs of the requests that the server received.
fn verbs(server: &ApiServer) -> Vec<Verb> {
    server.recorded_requests().iter().map(|seen| seen.verb).collect()
}

/// Runs the recorder until it has done everything that is due.
async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// Advances the time in small steps, so that tasks run in between.
async fn advance_time(time: Duration) {
    let end = Instant::now() + time;
    settle().await;
    while Instant::now() < end {
        tokio::time::advance((end - Instant::now()).min(Duration::from_secs(1))).await;
        settle().await;
    }
}

async fn end(recorder: &EventRecorder) {
    recorder.shutdown(TIMEOUT).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn event_has_all_fields_required_by_the_api() {
    let server = ApiServer::new();
    server.create(&config_map("default", "a", "1")).unwrap();
    let factory = SharedInformerFactory::new(server.client());
    let maps = factory.informer::<ConfigMap>();
    factory.start();
    factory.wait_for_sync(TIMEOUT).await.unwrap();
    let map = maps.lister().get("default", "a").unwrap();
    let mut node = Node::default();
    node.metadata.name = Some("node-1".to_owned());

    let recorder = EventRecorder::new(server.client(), "website-controller");
    // The typed object refers to the same object.
    let map = map.typed().unwrap();
    recorder.record_related(&map, &node, EventType::Warning, "Created", "CreateDeployment", "created it");
    end(&recorder).await;
    let event = &events(&server)[0];
    let expected = json!({
        "type": "Warning", "reason": "Created", "action": "CreateDeployment", "note": "created it",
        "regarding": {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "default", "name": "a", "uid": map.metadata.uid},
        "related": {"apiVersion": "v1", "kind": "Node", "name": "node-1"},
        "reportingController": "website-controller", "reportingInstance": recorder.reporting_instance(),
    });
    for (field, value) in expected.as_object().unwrap() {
        assert_eq!(&event[field], value, "{field}");
    }
    assert_eq!(event["metadata"]["namespace"], "default");
    assert!(event["metadata"]["name"].as_str().unwrap().starts_with("a."), "{event}");
    assert_eq!(event["eventTime"].as_str().unwrap().len(), "2026-01-01T00:00:00.000000Z".len());
    assert_eq!(event["series"], Value::Null);
    // The legacy API that `kubectl describe` reads shows it too.
    assert_eq!(server.list("v1", "events", None)[0]["message"], "created it");
}

#[tokio::test(start_paused = true)]
async fn events_of_cluster_scoped_objects_are_in_default() {
    let server = ApiServer::new();
    let recorder = EventRecorder::new(server.client(), "c");
    let mut node = Node::default();
    node.metadata.name = Some("node-1".to_owned());
    recorder.record(&node, EventType::Normal, "Ready", "Probe", "");
    // Names that an event name cannot contain, or that leave no space for a suffix.
    for name in ["system:node", &"x".repeat(253), "UPPER", "-", ""] {
        let regarding = ObjectReference { namespace: None, ..object(name) };
        recorder.record(&regarding, EventType::Normal, "Ready", "Probe", "");
    }
    end(&recorder).await;
    assert_eq!((events(&server).len(), recorder.metrics().failed), (6, 0));
    assert!(events(&server).iter().all(|event| event["metadata"]["namespace"] == "default"));
}

#[tokio::test(start_paused = true)]
async fn repeated_event_becomes_a_series() {
    let server = ApiServer::new();
    let recorder = EventRecorder::new(server.client(), "c");
    note(&recorder, "a", "same");
    advance_time(Duration::from_secs(1)).await;
    for _ in 0..5 {
        note(&recorder, "a", "same");
        advance_time(Duration::from_secs(1)).await;
    }
    assert_eq!(
        verbs(&server),
        [Verb::Create, Verb::Patch],
        "the first repetition is written, the others are delayed"
    );
    assert_eq!(events(&server)[0]["series"]["count"], 2);
    // A series ends six minutes after its last repetition.
    advance_time(Duration::from_secs(300)).await;
    assert_eq!(verbs(&server).len(), 2);
    advance_time(Duration::from_secs(120)).await;
    let all = events(&server);
    assert_eq!((all.len(), &all[0]["series"]["count"], verbs(&server).len()), (1, &json!(6), 3));
    let last = all[0]["series"]["lastObservedTime"].as_str().unwrap();
    assert!(last > all[0]["eventTime"].as_str().unwrap(), "{}", all[0]);

    // Anything else is a different event: other note, type, reason, action or objects, and the same again
    // after the end of the series.
    let (a, b) = (object("a"), object("b"));
    recorder.record(&a, EventType::Normal, "Done", "DoIt", "same");
    recorder.record(&a, EventType::Warning, "Done", "DoIt", "same");
    recorder.record(&a, EventType::Normal, "Undone", "DoIt", "same");
    recorder.record(&a, EventType::Normal, "Done", "Undo", "same");
    recorder.record(&b, EventType::Normal, "Done", "DoIt", "same");
    recorder.record_related(&a, &b, EventType::Normal, "Done", "DoIt", "same");
    end(&recorder).await;
    assert_eq!(events(&server).len(), 7);
    let m = recorder.metrics();
    assert_eq!((m.sent, m.aggregated, m.updated, m.dropped, m.failed), (7, 5, 2, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn ongoing_series_is_written_every_half_hour() {
    let server = ApiServer::new();
    let recorder = EventRecorder::new(server.client(), "c");
    for _ in 0..70 {
        note(&recorder, "a", "same");
        advance_time(Duration::from_secs(60)).await;
    }
    assert_eq!(verbs(&server), [Verb::Create, Verb::Patch, Verb::Patch, Verb::Patch]);
    let written = events(&server)[0]["series"]["count"].as_u64().unwrap();
    assert!((60..64).contains(&written), "{written}");
    end(&recorder).await;
    assert_eq!(events(&server)[0]["series"]["count"], 70, "the final count is written at shutdown");
}

/// Servers delete events after an hour. A deleted event is created again, with its series.
#[tokio::test(start_paused = true)]
async fn deleted_event_is_recreated_with_its_series() {
    let server = ApiServer::new();
    let recorder = EventRecorder::new(server.client(), "c");
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
async fn events_of_one_object_are_rate_limited() {
    let server = ApiServer::new();
    let recorder = EventRecorder::new(server.client(), "c");
    for number in 0..100 {
        note(&recorder, "a", &number.to_string());
    }
    note(&recorder, "b", "unrelated");
    settle().await;
    assert_eq!((events(&server).len(), recorder.metrics().limited), (26, 75));
    advance_time(Duration::from_secs(300)).await;
    note(&recorder, "a", "one more");
    note(&recorder, "a", "and not two");
    end(&recorder).await;
    assert_eq!((events(&server).len(), recorder.metrics().limited), (27, 76));
}

#[tokio::test(start_paused = true)]
async fn unavailable_server_costs_bounded_buffer_and_few_requests() {
    let server = ApiServer::new();
    let recorder = EventRecorder::new(server.client(), "c");
    let unavailable = server.inject(faults::respond(503));
    for number in 0..1_500 {
        note(&recorder, &format!("o-{number}"), "x");
    }
    let m = recorder.metrics();
    assert_eq!((m.waiting, m.dropped, m.sent), (1_000, 500, 0), "no caller waited and the buffer is bounded");
    advance_time(Duration::from_secs(60)).await;
    assert!(unavailable.hits() >= 3 && unavailable.hits() < 10, "{} requests", unavailable.hits());
    drop(unavailable);
    advance_time(Duration::from_secs(60)).await;
    let m = recorder.metrics();
    assert_eq!((m.waiting, m.sent, events(&server).len()), (0, 1_000, 1_000));
}

/// Regression: every write in the namespace `bad` was answered with 500, as with a broken webhook. An event
/// in `default` was written 355 seconds later, after the twelve attempts of the event before it: a failed
/// write stayed first in the queue and blocked all others.
#[tokio::test(start_paused = true)]
async fn failing_namespace_does_not_delay_others() {
    let server = ApiServer::new();
    create_namespace(&server, "bad");
    let recorder = EventRecorder::new(server.client(), "c");
    let broken = server.inject(faults::respond(500).in_namespace("bad"));
    let bad = |name: &str| ObjectReference { namespace: Some("bad".to_owned()), ..object(name) };
    for number in 0..100 {
        recorder.record(&bad(&format!("b-{number}")), EventType::Warning, "Failed", "DoIt", "x");
    }
    note(&recorder, "a", "x");
    settle().await;
    assert_eq!(events(&server).len(), 1, "the other namespace was not delayed");
    advance_time(Duration::from_secs(60)).await;
    note(&recorder, "b", "x");
    settle().await;
    assert_eq!(events(&server).len(), 2);
    assert!(
        broken.hits() >= 3 && broken.hits() < 10,
        "and not every event sends a request: {}",
        broken.hits()
    );
    drop(broken);
    advance_time(Duration::from_secs(60)).await;
    let m = recorder.metrics();
    assert_eq!((m.sent, m.failed, m.dropped, events(&server).len()), (102, 0, 0, 102));
}

/// An expired token is renewed and a conflicting writer finishes eventually: neither is a reason to drop an
/// event.
#[tokio::test(start_paused = true)]
async fn expired_token_and_conflict_are_retried() {
    for code in [401, 409] {
        let server = ApiServer::new();
        let recorder = EventRecorder::new(server.client(), "c");
        let fault = server.inject(faults::respond(code).for_verb(Verb::Create).max_hits(2));
        note(&recorder, "a", "x");
        advance_time(Duration::from_secs(30)).await;
        note(&recorder, "a", "x");
        let conflict = server.inject(faults::respond(code).for_verb(Verb::Patch).max_hits(2));
        advance_time(Duration::from_secs(30)).await;
        let m = recorder.metrics();
        assert_eq!((fault.hits(), conflict.hits(), m.sent, m.updated, m.failed), (2, 2, 1, 1, 0), "{code}");
        assert_eq!((events(&server).len(), &events(&server)[0]["series"]["count"]), (1, &json!(2)));
    }
}

/// Two processes record the same event for the same object: neither reuses the event of the other.
#[tokio::test(start_paused = true)]
async fn two_recorders_use_separate_events() {
    let server = ApiServer::new();
    let recorders = [(); 2].map(|()| EventRecorder::new(server.client(), "c"));
    for recorder in &recorders {
        note(recorder, "a", "same");
        note(recorder, "a", "another");
        end(recorder).await;
        assert_eq!((recorder.metrics().sent, recorder.metrics().failed), (2, 0));
    }
    let names: BTreeSet<_> =
        events(&server).iter().map(|event| event["metadata"]["name"].to_string()).collect();
    assert_eq!(names.len(), 4);
    assert_ne!(recorders[0].reporting_instance(), recorders[1].reporting_instance());
}

/// A write that the server keeps rejecting is dropped after twelve attempts, and the next one is sent.
#[tokio::test(start_paused = true)]
async fn failing_write_is_dropped_after_twelve_attempts() {
    let server = ApiServer::new();
    let recorder = EventRecorder::new(server.client(), "c");
    let _away = server.inject(faults::drop_connection().max_hits(24));
    for name in ["a", "b", "c"] {
        note(&recorder, name, "x");
        settle().await;
    }
    // Attempts are interleaved: each write is attempted eight times before the others are written.
    advance_time(Duration::from_secs(1800)).await;
    let m = recorder.metrics();
    assert_eq!((m.failed, m.sent, verbs(&server).len()), (0, 3, 27));
    let _away = server.inject(faults::drop_connection().max_hits(12));
    note(&recorder, "d", "x");
    advance_time(Duration::from_secs(900)).await;
    note(&recorder, "e", "x");
    advance_time(Duration::from_secs(60)).await;
    let m = recorder.metrics();
    assert_eq!((m.failed, m.sent, verbs(&server).len()), (1, 4, 40));
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_honoured() {
    let server = ApiServer::new();
    let recorder = EventRecorder::new(server.client(), "c");
    let _busy = server.inject(faults::too_many_requests(120).max_hits(1));
    note(&recorder, "a", "x");
    advance_time(Duration::from_secs(119)).await;
    assert_eq!(verbs(&server).len(), 1);
    advance_time(Duration::from_secs(120)).await;
    assert_eq!(recorder.metrics().sent, 1);
}

/// The response to a create is lost: the next attempt finds the event, and there are not two.
#[tokio::test(start_paused = true)]
async fn lost_response_creates_no_second_event() {
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
    let recorder = EventRecorder::new(kube::Client::new(lossy, "default"), "c");
    note(&recorder, "a", "x");
    advance_time(Duration::from_secs(10)).await;
    let m = recorder.metrics();
    assert_eq!((events(&server).len(), m.sent, m.failed, verbs(&server).len()), (1, 1, 0, 2));
}

#[tokio::test(start_paused = true)]
async fn unanswered_request_is_retried() {
    let server = ApiServer::new();
    let recorder = EventRecorder::new(server.client(), "c");
    let _mute = server.inject(faults::stall_request().for_verb(Verb::Create).max_hits(1));
    note(&recorder, "a", "x");
    advance_time(Duration::from_secs(40)).await;
    assert_eq!((recorder.metrics().sent, verbs(&server).len()), (1, 2));
}

/// Counts log events of level WARN and above.
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
async fn forbidden_namespace_is_logged_once() {
    let warnings = Warnings::default();
    let _log = tracing::subscriber::set_default(warnings.clone());
    let server = ApiServer::new();
    let recorder = EventRecorder::new(server.client(), "c");
    let forbidden = server.inject(faults::forbid("events"));
    for name in ["a", "b", "c"] {
        note(&recorder, name, "x");
    }
    end(&recorder).await;
    assert_eq!((forbidden.hits(), recorder.metrics().failed, warnings.0.load(Ordering::Relaxed)), (3, 3, 1));
}

#[tokio::test(start_paused = true)]
async fn forbidden_events_are_counted_and_rarely_retried() {
    let server = ApiServer::new();
    let recorder = EventRecorder::new(server.client(), "c");
    let forbidden = server.inject(faults::forbid("events"));
    for _ in 0..50 {
        note(&recorder, "a", "same");
        advance_time(Duration::from_secs(1)).await;
    }
    let m = recorder.metrics();
    assert_eq!((forbidden.hits(), m.failed, m.sent), (1, 50, 0));
    drop(forbidden);
    note(&recorder, "b", "x");
    advance_time(Duration::from_secs(420)).await;
    note(&recorder, "a", "same");
    end(&recorder).await;
    assert_eq!(events(&server).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn missing_namespace_is_not_retried() {
    let server = ApiServer::new();
    let recorder = EventRecorder::new(server.client(), "c");
    let lost = ObjectReference { namespace: Some("nowhere".to_owned()), ..object("a") };
    recorder.record(&lost, EventType::Normal, "Done", "DoIt", "x");
    end(&recorder).await;
    assert_eq!((recorder.metrics().failed, verbs(&server).len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn reason_and_action_lengths_are_validated() {
    let server = ApiServer::new();
    let recorder = EventRecorder::new(server.client(), "c");
    let (a, long) = (object("a"), "x".repeat(129));
    recorder.record(&a, EventType::Normal, "", "DoIt", "no reason");
    recorder.record(&a, EventType::Normal, "Done", "", "no action");
    recorder.record(&a, EventType::Normal, &long, "DoIt", "long reason");
    recorder.record(&a, EventType::Normal, "Done", &long, "long action");
    recorder.record(&a, EventType::Normal, &long[..128], &long[..128], "ä".repeat(600));
    end(&recorder).await;
    assert_eq!((recorder.metrics().failed, recorder.metrics().sent), (4, 1));
    let events = events(&server);
    let note = events[0]["note"].as_str().unwrap();
    assert!(note.len() <= 1024 && note.ends_with("ä..."), "{note}");
    assert!(recorder.reporting_instance().len() <= 128);
}

#[tokio::test(start_paused = true)]
async fn shutdown_timeout_reports_lost_writes() {
    let server = ApiServer::new();
    let recorder = EventRecorder::new(server.client(), "c");
    let unavailable = server.inject(faults::respond(503));
    note(&recorder, "a", "x");
    note(&recorder, "b", "x");
    let begun = Instant::now();
    let error = recorder.shutdown(Duration::from_secs(5)).await.unwrap_err();
    assert_eq!(error.to_string(), "shutdown: timed out after 5s: 2 writes of recorded events are lost");
    assert_eq!((begun.elapsed(), recorder.metrics().dropped), (Duration::from_secs(5), 2));
    drop(unavailable);
    let before = verbs(&server).len();
    note(&recorder, "c", "too late");
    advance_time(Duration::from_secs(60)).await;
    assert_eq!((recorder.metrics().dropped, verbs(&server).len()), (3, before), "no request after shutdown");
    assert_eq!(recorder.clone().shutdown(TIMEOUT).await, Ok(()), "nothing is pending any more");
}

#[tokio::test(start_paused = true)]
async fn task_ends_with_the_last_handle() {
    let server = ApiServer::new();
    let recorder = EventRecorder::new(server.client(), "c");
    let unavailable = server.inject(faults::respond(503));
    note(&recorder, "a", "x");
    settle().await;
    let other = recorder.clone();
    drop(recorder);
    let before = verbs(&server).len();
    advance_time(Duration::from_secs(5)).await;
    assert!(verbs(&server).len() > before, "another handle keeps the task alive");
    drop((other, unavailable));
    let before = verbs(&server).len();
    advance_time(Duration::from_secs(60)).await;
    assert_eq!(verbs(&server).len(), before);
}
