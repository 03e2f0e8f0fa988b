//! Shared parts of the tests against the embedded server: objects, logs of delivered events, waiting with a
//! timeout.
#![allow(dead_code, reason = "each test uses a part of it")]

use informer::handler::HandlerBuilder;
use informer::status::Diagnostic;
use informer::{Event, InformerOptions, Object, Registration, SharedInformer};
use informer_apiserver::faults::{FaultGuard, FaultRule};
use informer_apiserver::{ApiServer, RecordedRequest, Verb, faults};
use kube::Resource;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;

/// Longer than any operation takes; a test that waits this long has failed.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(600);

/// A pod with the label `app=web` and no node.
pub(crate) fn pod(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name, "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": "nginx"}]},
    })
}

/// The object with the value at this JSON pointer replaced.
pub(crate) fn with(mut object: Value, pointer: &str, value: impl Into<Value>) -> Value {
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    let parent = object.pointer_mut(parent).unwrap();
    parent[name] = value.into();
    object
}

/// A config map with one value.
pub(crate) fn config_map(namespace: &str, name: &str, value: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": namespace, "name": name},
        "data": {"v": value},
    })
}

/// Short form of an event: `+name initial`, `~name`, `=name` for a resync, `-name`, `-name inferred`.
pub(crate) fn describe<K>(event: &Event<K>) -> String {
    match event {
        Event::Added { object, initial: true, .. } => format!("+{} initial", object.name()),
        Event::Added { object, .. } => format!("+{}", object.name()),
        Event::Updated { new, cause: informer::UpdateCause::Resync, .. } => format!("={}", new.name()),
        Event::Updated { new, .. } => format!("~{}", new.name()),
        Event::Deleted { last, observed: true, .. } => format!("-{}", last.name()),
        Event::Deleted { last, .. } => format!("-{} inferred", last.name()),
    }
}

/// Events delivered to a handler, in short form.
pub(crate) struct EventLog(pub(crate) mpsc::UnboundedReceiver<String>);

impl EventLog {
    /// Fails unless the next events are these.
    #[track_caller]
    pub(crate) fn expect(&mut self, expected: &[&str]) -> impl Future<Output = ()> {
        let location = std::panic::Location::caller();
        let expected: Vec<String> = expected.iter().map(ToString::to_string).collect();
        async move {
            for line in expected {
                let event = tokio::time::timeout(TIMEOUT, self.0.recv()).await;
                assert_eq!(event.expect("no event was delivered"), Some(line), "at {location}");
            }
        }
    }

    pub(crate) fn is_empty(&mut self) -> bool {
        self.0.try_recv().is_err()
    }

    /// Delivered events that were not read yet.
    pub(crate) fn take(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.0.try_recv().ok()).collect()
    }
}

/// Adds a handler that logs its events.
pub(crate) fn log_events<K: 'static>(informer: &SharedInformer<K>) -> (Registration, EventLog) {
    log_events_with(informer.handler())
}

/// Adds a handler with options that logs its events.
pub(crate) fn log_events_with<K: 'static>(handler: HandlerBuilder<K>) -> (Registration, EventLog) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let registration = handler.on_event(move |event| {
        let _ = sender.send(describe(&event));
    });
    (registration, EventLog(receiver))
}

/// Names of the objects.
pub(crate) fn names<K>(objects: &[Object<K>]) -> Vec<String> {
    objects.iter().map(|object| object.name().to_owned()).collect()
}

/// Waits until a condition holds, checking it again every 5 ms.
#[track_caller]
pub(crate) fn until(mut condition: impl FnMut() -> bool) -> impl Future<Output = ()> {
    let location = std::panic::Location::caller();
    async move {
        let poll = async {
            let mut interval = tokio::time::interval(Duration::from_millis(5));
            while !condition() {
                interval.tick().await;
            }
        };
        assert!(
            tokio::time::timeout(TIMEOUT, poll).await.is_ok(),
            "condition not met in time, at {location}"
        );
    }
}

/// Advances the paused clock and runs everything that becomes due.
pub(crate) async fn advance_time(time: Duration) {
    let _ = tokio::time::timeout(time, std::future::pending::<()>()).await;
}

/// Creates an informer, starts it and waits until it has synced.
pub(crate) async fn synced_informer<K>(server: &ApiServer, options: InformerOptions) -> SharedInformer<K>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
{
    let informer = SharedInformer::with_options(server.client(), options);
    informer.start();
    informer.wait_for_sync(TIMEOUT).await.unwrap();
    informer
}

/// Creates pods in the namespace `default`.
pub(crate) fn create_pods(server: &ApiServer, names: &[&str]) {
    for name in names {
        server.create(&pod("default", name)).unwrap();
    }
}

/// Creates a namespace.
pub(crate) fn create_namespace(server: &ApiServer, name: &str) {
    server.create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})).unwrap();
}

/// Breaks every open watch without other effects.
pub(crate) fn break_watches(server: &ApiServer) {
    server.restore(&server.backup());
}

/// Breaks every open watch and injects this rule for the watches that are reopened.
pub(crate) fn break_watches_with(server: &ApiServer, rule: FaultRule) -> FaultGuard {
    let fault = server.inject(rule);
    break_watches(server);
    fault
}

/// Reopens all watches and injects a stream rule that applies to each from its first frame.
pub(crate) async fn inject_from_first_frame(server: &ApiServer, rule: FaultRule) -> FaultGuard {
    let open = server.open_watches();
    let stalled = break_watches_with(server, faults::stall_request().for_verb(Verb::Watch));
    until(|| stalled.hits() == open as u64).await;
    server.inject(rule)
}

/// Applies changes that the watches of a resource miss: the watches break, and their position has expired
/// (410) when they reconnect.
pub(crate) async fn gap(server: &ApiServer, plural: &str, changes: impl FnOnce()) {
    gap_for(server, faults::stall_request().for_verb(Verb::Watch).for_resource(plural), changes).await;
}

/// Applies changes that the watches stalled by this rule miss.
pub(crate) async fn gap_for(server: &ApiServer, rule: FaultRule, changes: impl FnOnce()) {
    let stalled = break_watches_with(server, rule);
    until(|| stalled.hits() > 0).await;
    changes();
    // Watches that are not stalled receive the changes before the server compacts them.
    advance_time(Duration::from_millis(5)).await;
    server.compact();
}

/// A gap in which the pod `a` was scheduled, `gone` deleted and `zoe` created.
pub(crate) async fn gap_with_changes(server: &ApiServer) {
    gap(server, "pods", || {
        server.insert_unchecked(&with(pod("default", "a"), "/spec/nodeName", "node-1")).unwrap();
        server.delete("v1", "pods", Some("default"), "gone").unwrap();
        create_pods(server, &["zoe"]);
    })
    .await;
}

/// A gap in which a pod was created and deleted, so that nothing differs afterwards.
pub(crate) async fn gap_without_change(server: &ApiServer) {
    gap(server, "pods", || {
        create_pods(server, &["brief"]);
        server.delete("v1", "pods", Some("default"), "brief").unwrap();
    })
    .await;
}

/// Requests with this verb for this resource.
pub(crate) fn requests_for(server: &ApiServer, verb: Verb, plural: &str) -> Vec<RecordedRequest> {
    server.recorded_requests().into_iter().filter(|seen| seen.verb == verb && seen.plural == plural).collect()
}

/// A watch frame as JSON.
pub(crate) fn frame(kind: &str, object: &Value) -> String {
    json!({"type": kind, "object": object}).to_string() + "\n"
}

/// Diagnostics that an error hook received.
#[derive(Clone, Default)]
pub(crate) struct Diagnostics(Arc<Mutex<Vec<Diagnostic>>>);

impl Diagnostics {
    /// Adds a hook to the options that records diagnostics.
    pub(crate) fn hook(&self, options: InformerOptions) -> InformerOptions {
        let diagnostics = self.clone();
        options.on_diagnostic(move |_, diagnostic| diagnostics.lock().push(diagnostic.clone()))
    }

    /// Whether a matching diagnostic was reported.
    pub(crate) fn any(&self, which: impl Fn(&Diagnostic) -> bool) -> bool {
        self.lock().iter().any(which)
    }

    /// Texts of the diagnostics.
    pub(crate) fn texts(&self) -> Vec<String> {
        self.lock().iter().map(ToString::to_string).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Diagnostic>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
