//! The history of the server: its state at every version of every branch, and the writer that creates it.
//!
//! A restore begins a branch: versions decrease and are used again for other states. A state is therefore
//! identified by its stamp, a label that is unique per write.

use std::collections::BTreeMap;
use std::fmt;

use informer::Object;
use informer_apiserver::{ApiServer, Backup};
use informer_core::random::Random;
use serde_json::{Value, json};

use crate::log::Log;

pub(crate) const NAMESPACES: [&str; 3] = ["a", "b", "c"];
const NAMES: u64 = 7;

/// One state of one pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct State {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) version: u64,
    pub(crate) stamp: u64,
    pub(crate) app: String,
}

impl State {
    pub(crate) fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    fn of_json(object: &Value) -> Self {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        Self {
            namespace: text("/metadata/namespace").to_owned(),
            name: text("/metadata/name").to_owned(),
            uid: text("/metadata/uid").to_owned(),
            version: text("/metadata/resourceVersion").parse().unwrap(),
            stamp: text("/metadata/labels/stamp").parse().unwrap(),
            app: text("/metadata/labels/app").to_owned(),
        }
    }

    pub(crate) fn of<K>(object: &Object<K>) -> Self {
        let label = |name: &str| object.labels().get(name).unwrap_or_default();
        Self {
            namespace: object.namespace().unwrap_or_default().to_owned(),
            name: object.name().to_owned(),
            uid: object.uid().to_owned(),
            version: object.resource_version().as_str().parse().unwrap(),
            stamp: label("stamp").parse().unwrap(),
            app: label("app").to_owned(),
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, name, version, stamp, app, .. } = self;
        write!(out, "{namespace}/{name} {app} v{version} s{stamp}")
    }
}

/// Which objects an informer selects.
#[derive(Debug, Clone, Default)]
pub(crate) struct View {
    /// Empty means all.
    pub(crate) namespaces: Vec<&'static str>,
    pub(crate) app: Option<&'static str>,
}

impl View {
    pub(crate) fn selects(&self, state: &State) -> bool {
        (self.namespaces.is_empty() || self.namespaces.contains(&&*state.namespace))
            && self.app.is_none_or(|app| app == state.app)
    }
}

/// One write: the new state of an object, or its deletion.
#[derive(Debug, Clone)]
pub(crate) struct Write {
    pub(crate) version: u64,
    pub(crate) key: String,
    pub(crate) after: Option<State>,
}

pub(crate) type Objects = BTreeMap<String, State>;

#[derive(Debug, Clone)]
pub(crate) struct Branch {
    base: Objects,
    /// Range of versions at which the base was the current state.
    base_versions: (u64, u64),
    pub(crate) writes: Vec<Write>,
}

impl Branch {
    fn last(&self) -> u64 {
        self.writes.last().map_or(self.base_versions.1, |write| write.version)
    }

    /// The state at a version; `None` if the branch never had that version.
    pub(crate) fn at(&self, version: u64) -> Option<Objects> {
        if version < self.base_versions.0 || version > self.last() {
            return None;
        }
        let mut objects = self.base.clone();
        for write in self.writes.iter().take_while(|write| write.version <= version) {
            match &write.after {
                Some(state) => objects.insert(write.key.clone(), state.clone()),
                None => objects.remove(&write.key),
            };
        }
        Some(objects)
    }
}

/// The server and its complete history.
pub(crate) struct Oracle {
    pub(crate) server: ApiServer,
    pub(crate) branches: Vec<Branch>,
    /// Current objects.
    pub(crate) now: Objects,
    /// Every state that ever existed, by stamp and version.
    pub(crate) states: BTreeMap<(u64, u64), State>,
    stamps: u64,
    backup: Option<(Backup, Objects, u64)>,
    log: Log,
}

impl Oracle {
    pub(crate) fn new(server: ApiServer, log: Log) -> Self {
        for name in NAMESPACES {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            server.create(&namespace).unwrap();
        }
        let first = Branch {
            base: Objects::new(),
            base_versions: (1, server.resource_version()),
            writes: Vec::new(),
        };
        Self {
            server,
            branches: vec![first],
            now: Objects::new(),
            states: BTreeMap::new(),
            stamps: 0,
            backup: None,
            log,
        }
    }

    /// Writes a random pod.
    pub(crate) fn write(&mut self, random: &mut Random) {
        let namespace = NAMESPACES[usize::try_from(random.below(3)).unwrap()];
        let name = format!("pod-{}", random.below(NAMES));
        let app = if random.below(3) == 0 { "db" } else { "web" };
        match self.server.get("v1", "pods", Some(namespace), &name) {
            None => self.create(namespace, &name, app),
            Some(pod) => match random.below(10) {
                0..=2 => self.delete(namespace, &name),
                3 => {
                    self.delete(namespace, &name);
                    // With finalizers it still exists.
                    if !self.now.contains_key(&format!("{namespace}/{name}")) {
                        self.create(namespace, &name, app);
                    }
                }
                4 => self.update(pod, app, Some(json!(["example.com/wait"]))),
                5 | 6 => self.update(pod, app, Some(json!([]))),
                _ => self.update(pod, app, None),
            },
        }
    }

    pub(crate) fn create(&mut self, namespace: &str, name: &str, app: &str) {
        self.stamps += 1;
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"namespace": namespace, "name": name, "labels": {"app": app, "stamp": self.stamps.to_string()}},
            "spec": {"containers": [{"name": "main", "image": "nginx"}]},
        });
        let before = self.server.resource_version();
        let created = self.server.create(&pod).unwrap();
        self.record_write(before, namespace, name, Some(app), Some(&created));
    }

    fn delete(&mut self, namespace: &str, name: &str) {
        let before = self.server.resource_version();
        self.server.delete("v1", "pods", Some(namespace), name).unwrap();
        let after = self.server.get("v1", "pods", Some(namespace), name);
        self.record_write(before, namespace, name, None, after.as_ref());
    }

    fn update(&mut self, mut pod: Value, app: &str, finalizers: Option<Value>) {
        self.stamps += 1;
        let (namespace, name) = (State::of_json(&pod).namespace, State::of_json(&pod).name);
        pod["metadata"]["labels"] = json!({"app": app, "stamp": self.stamps.to_string()});
        if let Some(finalizers) = finalizers {
            // An object being deleted accepts no new finalizers.
            if pod["metadata"].get("deletionTimestamp").is_none() || finalizers == json!([]) {
                pod["metadata"]["finalizers"] = finalizers;
            }
        }
        let before = self.server.resource_version();
        let updated = self.server.update(&pod).unwrap();
        // An object being deleted is removed with its last finalizer.
        let marked = pod["metadata"].get("deletionTimestamp").is_some();
        let there = !marked || self.server.get("v1", "pods", Some(&namespace), &name).is_some();
        self.record_write(before, &namespace, &name, Some(app), Some(&updated).filter(|_| there));
    }

    /// Records what an operation did that began at version `before` and, if given, set stamp and app of a
    /// pod. A deleted pod is marked as deleted first, which is a separate state.
    fn record_write(
        &mut self,
        before: u64,
        namespace: &str,
        name: &str,
        app: Option<&str>,
        after: Option<&Value>,
    ) {
        let (version, key) = (self.server.resource_version(), format!("{namespace}/{name}"));
        let after = after.map(State::of_json);
        for version in before + 1..version {
            let mut state = State { version, ..self.now[&key].clone() };
            if let Some(app) = app {
                state = State { stamp: self.stamps, app: app.to_owned(), ..state };
            }
            self.record_state(key.clone(), version, Some(state));
        }
        if version > before {
            self.record_state(key, version, after);
        }
    }

    fn record_state(&mut self, key: String, version: u64, after: Option<State>) {
        if let Some(state) = &after {
            self.log.note(format_args!("server: {state}"));
            self.states.insert((state.stamp, state.version), state.clone());
            self.now.insert(key.clone(), state.clone());
        } else {
            self.log.note(format_args!("server: {key} deleted v{version}"));
            // A deletion carries the last state with the version of the deletion.
            if let Some(last) = self.now.remove(&key) {
                self.states.insert((last.stamp, version), State { version, ..last });
            }
        }
        self.branches.last_mut().unwrap().writes.push(Write { version, key, after });
    }

    pub(crate) fn back_up(&mut self) {
        self.backup = Some((self.server.backup(), self.now.clone(), self.server.resource_version()));
    }

    /// Restores the last backup. Returns `false` if there is none.
    pub(crate) fn restore(&mut self) -> bool {
        let Some((backup, objects, version)) = &self.backup else { return false };
        self.log
            .note(format_args!("server: restored from v{} to v{version}", self.server.resource_version()));
        self.server.restore(backup);
        self.now.clone_from(objects);
        let branch =
            Branch { base: objects.clone(), base_versions: (*version, *version), writes: Vec::new() };
        self.branches.push(branch);
        true
    }

    /// The objects that a view selects now.
    pub(crate) fn objects_in(&self, view: &View) -> Vec<State> {
        self.now.values().filter(|state| view.selects(state)).cloned().collect()
    }
}
