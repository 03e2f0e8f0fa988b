//! What the tests against the embedded server share: objects in short, notes of what a handler was told, waits with a deadline.
#![allow(dead_code, reason = "each test uses its part")]

use informer::{Event, HandlerBuilder, Object, Options, Problem, Registration, SharedInformer};
use informer_apiserver::faults::{Fault, Rule};
use informer_apiserver::{ApiServer, Seen, Verb, faults};
use kube::Resource;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;

/// Longer than anything takes; a test that waits so long has failed.
pub(crate) const LONG: Duration = Duration::from_mins(10);

/// A pod. `web` is its label `app`, and its node says nothing unless it is set.
pub(crate) fn pod(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name, "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": "nginx"}]},
    })
}

/// The pod with something set in it, by JSON pointer.
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

/// What an event says, in short: `+name initial`, `~name`, `=name` for a resync, `-name`, `-name inferred`.
pub(crate) fn describe<K>(event: &Event<K>) -> String {
    match event {
        Event::Added { object, initial: true, .. } => format!("+{} initial", object.name()),
        Event::Added { object, .. } => format!("+{}", object.name()),
        Event::Updated { new, cause: informer::Cause::Resync, .. } => format!("={}", new.name()),
        Event::Updated { new, .. } => format!("~{}", new.name()),
        Event::Deleted { last, observed: true, .. } => format!("-{}", last.name()),
        Event::Deleted { last, .. } => format!("-{} inferred", last.name()),
    }
}

/// What a handler was told.
pub(crate) struct Notes(pub(crate) mpsc::UnboundedReceiver<String>);

impl Notes {
    /// The next notes are these.
    #[track_caller]
    pub(crate) fn expect(&mut self, expected: &[&str]) -> impl Future<Output = ()> {
        let place = std::panic::Location::caller();
        let expected: Vec<String> = expected.iter().map(ToString::to_string).collect();
        async move {
            for line in expected {
                let note = tokio::time::timeout(LONG, self.0.recv()).await;
                assert_eq!(note.expect("nothing was told"), Some(line), "at {place}");
            }
        }
    }

    pub(crate) fn is_empty(&mut self) -> bool {
        self.0.try_recv().is_err()
    }

    /// What was told and not looked at yet.
    pub(crate) fn take(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.0.try_recv().ok()).collect()
    }
}

/// A handler that writes down what it is told.
pub(crate) fn notes<K: 'static>(informer: &SharedInformer<K>) -> (Registration, Notes) {
    notes_of(informer.handler())
}

/// The same for a handler with options.
pub(crate) fn notes_of<K: 'static>(handler: HandlerBuilder<K>) -> (Registration, Notes) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let registration = handler.on(move |event| {
        let _ = sender.send(describe(&event));
    });
    (registration, Notes(receiver))
}

/// The names of some objects.
pub(crate) fn names<K>(objects: &[Object<K>]) -> Vec<String> {
    objects.iter().map(|object| object.name().to_owned()).collect()
}

/// Waits until something holds, looking again whenever other tasks have run.
#[track_caller]
pub(crate) fn until(mut holds: impl FnMut() -> bool) -> impl Future<Output = ()> {
    let place = std::panic::Location::caller();
    async move {
        let look = async {
            let mut looks = tokio::time::interval(Duration::from_millis(5));
            while !holds() {
                looks.tick().await;
            }
        };
        assert!(tokio::time::timeout(LONG, look).await.is_ok(), "never came true, at {place}");
    }
}

/// Lets time pass, everything that is due meanwhile in its turn. For paused time, where it takes none.
pub(crate) async fn pass(time: Duration) {
    let _ = tokio::time::timeout(time, std::future::pending::<()>()).await;
}

/// An informer that is started and synced.
pub(crate) async fn live<K>(server: &ApiServer, options: Options) -> SharedInformer<K>
where
    K: Resource<DynamicType = ()>,
{
    let informer = SharedInformer::with_options(server.client(), options);
    informer.start();
    informer.wait_for_sync(LONG).await.unwrap();
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

/// Breaks every open watch; nothing else happens.
pub(crate) fn cut(server: &ApiServer) {
    server.restore(&server.backup());
}

/// Breaks every open watch, and has this rule for those who come back.
pub(crate) fn cut_and(server: &ApiServer, rule: Rule) -> Fault {
    let fault = server.fault(rule);
    cut(server);
    fault
}

/// A rule that disturbs streams, for all of them from their first frame on: open ones are opened anew for it.
pub(crate) async fn disturb(server: &ApiServer, rule: Rule) -> Fault {
    let open = server.open_watches();
    let waiting = cut_and(server, faults::hold().on(Verb::Watch));
    until(|| waiting.hits() == open as u64).await;
    server.fault(rule)
}

/// Changes that the watches of a resource do not see: they break, and when they come back their position is lost (410).
pub(crate) async fn gap(server: &ApiServer, plural: &str, changes: impl FnOnce()) {
    gap_for(server, faults::hold().on(Verb::Watch).of(plural), changes).await;
}

/// The same for the watches that a rule holds up.
pub(crate) async fn gap_for(server: &ApiServer, rule: Rule, changes: impl FnOnce()) {
    let held = cut_and(server, rule);
    until(|| held.hits() > 0).await;
    changes();
    // Whoever is not held up sees the changes before they are forgotten.
    pass(Duration::from_millis(5)).await;
    server.compact();
}

/// A gap in which a pod came and went, so that nothing is different afterwards.
pub(crate) async fn gap_without_change(server: &ApiServer) {
    gap(server, "pods", || {
        create_pods(server, &["brief"]);
        server.delete("v1", "pods", Some("default"), "brief").unwrap();
    })
    .await;
}

/// The requests of one verb for one resource.
pub(crate) fn asked(server: &ApiServer, verb: Verb, plural: &str) -> Vec<Seen> {
    server.requests().into_iter().filter(|seen| seen.verb == verb && seen.plural == plural).collect()
}

/// A frame of a watch.
pub(crate) fn frame(kind: &str, object: &Value) -> String {
    json!({"type": kind, "object": object}).to_string() + "\n"
}

/// What an error hook heard.
#[derive(Clone, Default)]
pub(crate) struct Heard(Arc<Mutex<Vec<Problem>>>);

impl Heard {
    /// The options with a hook that listens.
    pub(crate) fn hook(&self, options: Options) -> Options {
        let heard = self.clone();
        options.on_error(move |_, problem| heard.lock().push(problem.clone()))
    }

    /// Whether there was such a problem.
    pub(crate) fn any(&self, which: impl Fn(&Problem) -> bool) -> bool {
        self.lock().iter().any(which)
    }

    /// How the problems read.
    pub(crate) fn texts(&self) -> Vec<String> {
        self.lock().iter().map(ToString::to_string).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Problem>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
