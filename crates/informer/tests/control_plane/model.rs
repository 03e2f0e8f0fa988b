//! Events of a handler folded into a map, compared with the cache and the server.
//!
//! Events that violate the guarantees are recorded as faults: an object added twice, an update of an unknown
//! object or from a state that was not delivered, a version that decreases (C1, C3). Only a rewind may
//! decrease versions.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use informer::{Event, Object, Registration, SharedInformer};
use kube::core::DynamicObject;

use crate::targets::until;

/// Uid and version by key.
type State = BTreeMap<String, (String, String)>;

/// Events delivered to one handler.
#[derive(Clone, Default)]
pub(crate) struct Model(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    state: State,
    faults: Vec<String>,
    /// Short form: `+name`, `~name`, `-name`, `-name inferred`.
    lines: Vec<String>,
    may_rewind: bool,
}

impl Model {
    /// Adds a handler that updates the model.
    pub(crate) fn follow<K: 'static>(informer: &SharedInformer<K>) -> (Registration, Self) {
        Self::default().following(informer)
    }

    /// Adds a handler that updates the model, for a server that will be restored to an older state.
    pub(crate) fn follow_rewind<K: 'static>(informer: &SharedInformer<K>) -> (Registration, Self) {
        let model = Self::default();
        model.lock().may_rewind = true;
        model.following(informer)
    }

    fn following<K: 'static>(self, informer: &SharedInformer<K>) -> (Registration, Self) {
        let delivered = self.clone();
        (informer.on_event(move |event| delivered.lock().take(&event)), self)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }

    /// Events delivered since the last call, in short form.
    pub(crate) fn lines(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().lines)
    }

    /// Whether this event was delivered.
    pub(crate) fn has(&self, line: &str) -> bool {
        self.lock().lines.iter().any(|delivered| delivered == line)
    }

    /// The last delivered version of an object.
    pub(crate) fn version(&self, key: &str) -> Option<String> {
        self.lock().state.get(key).map(|(_, version)| version.clone())
    }

    /// Waits until delivered events, cache and server agree. Fails if they do not in time, or if an event
    /// violated the guarantees.
    #[track_caller]
    pub(crate) fn settles<K>(
        &self,
        informer: &SharedInformer<K>,
        list: impl AsyncFn() -> Vec<DynamicObject>,
    ) -> impl Future<Output = ()> {
        self.settles_below("", informer, list)
    }

    /// Waits as [`Model::settles`] does, for objects whose keys begin with `part`.
    #[track_caller]
    pub(crate) fn settles_below<K>(
        &self,
        part: &str,
        informer: &SharedInformer<K>,
        list: impl AsyncFn() -> Vec<DynamicObject>,
    ) -> impl Future<Output = ()> {
        let (model, informer, part) = (self.clone(), informer.clone(), part.to_owned());
        let what = format!("{} delivered and cached as the server has them", informer.description());
        let settled = until(&what, async move || {
            let server: State = list().await.iter().map(listed).collect();
            let below = |(key, _): &(String, _)| key.starts_with(&part);
            let cached: State = informer.lister().list().iter().map(entry).filter(below).collect();
            let delivered: State = model.lock().state.clone().into_iter().filter(below).collect();
            server == cached && server == delivered
        });
        let model = self.clone();
        async move {
            settled.await;
            assert_eq!(model.lock().faults, Vec::<String>::new());
        }
    }
}

impl Inner {
    fn take<K>(&mut self, event: &Event<K>) {
        let (key, state) = entry(event.object());
        let known = self.state.get(&key).cloned();
        let fault = match (event, &known) {
            (Event::Added { .. }, None) => None,
            (Event::Updated { old, new, .. }, Some(known)) => {
                let back = new.resource_version().is_before(old.resource_version()) && !self.may_rewind;
                let other = entry(old).1 != *known || new.uid() != old.uid();
                (back || other).then(|| format!("{event:?} after {known:?}"))
            }
            (Event::Deleted { last, .. }, Some((uid, _))) => {
                (last.uid() != uid).then(|| format!("{event:?} has another uid than {uid}"))
            }
            (event, known) => Some(format!("{event:?} after {known:?}")),
        };
        self.faults.extend(fault);
        let name = event.object().name();
        self.lines.push(match event {
            Event::Added { .. } => format!("+{name}"),
            Event::Updated { .. } => format!("~{name}"),
            Event::Deleted { observed: true, .. } => format!("-{name}"),
            Event::Deleted { .. } => format!("-{name} inferred"),
        });
        match event {
            Event::Deleted { .. } => self.state.remove(&key),
            _ => self.state.insert(key, state),
        };
    }
}

fn entry<K>(object: &Object<K>) -> (String, (String, String)) {
    (object.key().to_string(), (object.uid().to_owned(), object.resource_version().as_str().to_owned()))
}

fn listed(object: &DynamicObject) -> (String, (String, String)) {
    let meta = &object.metadata;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let key = match &meta.namespace {
        Some(namespace) => format!("{namespace}/{}", text(&meta.name)),
        None => text(&meta.name),
    };
    (key, (text(&meta.uid), text(&meta.resource_version)))
}
