//! What a handler was told, folded into a map as a naive program would, and compared with the cache and the server.
//!
//! Whatever is told out of order is written down as a fault: an object added twice, an update of what is not there or from a state that was
//! never told, a version that goes back (C1, C3). A rewind alone may take versions back.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use informer::{Event, Object, Registration, SharedInformer};
use kube::core::DynamicObject;

use crate::arm::until;

/// Uid and version by key.
type State = BTreeMap<String, (String, String)>;

/// What one handler was told.
#[derive(Clone, Default)]
pub(crate) struct Model(Arc<Mutex<Told>>);

#[derive(Default)]
struct Told {
    state: State,
    faults: Vec<String>,
    /// In short: `+name`, `~name`, `-name`, `-name inferred`.
    lines: Vec<String>,
    may_go_back: bool,
}

impl Model {
    /// Registers a handler that keeps the model.
    pub(crate) fn follow<K: 'static>(informer: &SharedInformer<K>) -> (Registration, Self) {
        Self::default().following(informer)
    }

    /// The same for a server that will be taken back to an older state.
    pub(crate) fn follow_back<K: 'static>(informer: &SharedInformer<K>) -> (Registration, Self) {
        let model = Self::default();
        model.lock().may_go_back = true;
        model.following(informer)
    }

    fn following<K: 'static>(self, informer: &SharedInformer<K>) -> (Registration, Self) {
        let told = self.clone();
        (informer.on(move |event| told.lock().take(&event)), self)
    }

    fn lock(&self) -> MutexGuard<'_, Told> {
        self.0.lock().unwrap()
    }

    /// What was told since the last call, in short.
    pub(crate) fn lines(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().lines)
    }

    /// Whether something was told.
    pub(crate) fn has(&self, line: &str) -> bool {
        self.lock().lines.iter().any(|told| told == line)
    }

    /// The version of an object, as it was told.
    pub(crate) fn version(&self, key: &str) -> Option<String> {
        self.lock().state.get(key).map(|(_, version)| version.clone())
    }

    /// Fails unless what was told, what is cached and what the server has come to be the same, and nothing was told out of order.
    #[track_caller]
    pub(crate) fn settles<K>(
        &self,
        informer: &SharedInformer<K>,
        list: impl AsyncFn() -> Vec<DynamicObject>,
    ) -> impl Future<Output = ()> {
        self.settles_below("", informer, list)
    }

    /// The same for those alone whose keys begin with `part`.
    #[track_caller]
    pub(crate) fn settles_below<K>(
        &self,
        part: &str,
        informer: &SharedInformer<K>,
        list: impl AsyncFn() -> Vec<DynamicObject>,
    ) -> impl Future<Output = ()> {
        let (model, informer, part) = (self.clone(), informer.clone(), part.to_owned());
        let what = format!("{} told and cached as the server has them", informer.resource());
        let settled = until(&what, async move || {
            let server: State = list().await.iter().map(listed).collect();
            let below = |(key, _): &(String, _)| key.starts_with(&part);
            let cached: State = informer.lister().list().iter().map(entry).filter(below).collect();
            let told: State = model.lock().state.clone().into_iter().filter(below).collect();
            server == cached && server == told
        });
        let model = self.clone();
        async move {
            settled.await;
            assert_eq!(model.lock().faults, Vec::<String>::new());
        }
    }
}

impl Told {
    fn take<K>(&mut self, event: &Event<K>) {
        let (key, state) = entry(event.object());
        let known = self.state.get(&key).cloned();
        let fault = match (event, &known) {
            (Event::Added { .. }, None) => None,
            (Event::Updated { old, new, .. }, Some(known)) => {
                let back = new.version().is_before(old.version()) && !self.may_go_back;
                let other = entry(old).1 != *known || new.uid() != old.uid();
                (back || other).then(|| format!("{event:?} after {known:?}"))
            }
            (Event::Deleted { last, .. }, Some((uid, _))) => {
                (last.uid() != uid).then(|| format!("{event:?} of another than {uid}"))
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
    (object.key().to_string(), (object.uid().to_owned(), object.version().as_str().to_owned()))
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
