//! A server with actors in virtual time, and objects for tests.

use informer_actors::{Action, ActionVerb, Actors};
use informer_apiserver::ApiServer;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

/// Maximum number of steps until a cluster is at rest.
const MAX_STEPS: usize = 20_000;

/// A server with actors, and the time.
pub(crate) struct Simulation {
    pub(crate) server: ApiServer,
    pub(crate) actors: Actors,
    pub(crate) now: Timestamp,
    pub(crate) actions: Vec<Action>,
}

impl Simulation {
    pub(crate) fn new(seed: u64) -> Self {
        Simulation::with(seed, |actors| actors)
    }

    /// Creates a simulation with actors that have settings.
    pub(crate) fn with(seed: u64, settings: impl FnOnce(Actors) -> Actors) -> Self {
        let server = ApiServer::builder().seed(seed).build();
        let actors = settings(Actors::new(server.clone(), seed));
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        Simulation { server, actors, now, actions: Vec::new() }
    }

    /// Steps until nothing is due, and returns the number of actions.
    pub(crate) fn settle(&mut self) -> usize {
        let before = self.actions.len();
        for _ in 0..MAX_STEPS {
            match self.step() {
                Some(due) => self.now = due,
                None => return self.actions.len() - before,
            }
        }
        panic!("not at rest after {MAX_STEPS} steps: {:#?}", &self.actions[self.actions.len() - 20..]);
    }

    /// Steps until `seconds` have passed.
    pub(crate) fn run_for(&mut self, seconds: i64) {
        let end = self.now + SignedDuration::from_secs(seconds);
        while let Some(due) = self.step().filter(|due| *due <= end) {
            self.now = due;
        }
        self.now = end;
    }

    /// Steps once at the current time.
    pub(crate) fn step(&mut self) -> Option<Timestamp> {
        let due = self.actors.step(self.now).unwrap();
        let actions = self.actors.take_actions();
        for action in &actions {
            assert!(action.rejected.is_none(), "{action}");
            if action.verb == ActionVerb::UpdateStatus {
                self.check_status(action);
            }
        }
        self.actions.extend(actions);
        if let Some(due) = due {
            assert!(due > self.now, "a step handles everything that is due");
        }
        due
    }

    /// Requires that a status is valid and complete: the server accepts it and changes nothing.
    fn check_status(&self, action: &Action) {
        let resources = self.server.served_resources();
        let resource = resources.iter().find(|resource| resource.kind == action.kind).unwrap();
        let object =
            self.server.get(&resource.api_version, &resource.plural, Some(&action.namespace), &action.name);
        if let Some(object) = object {
            let written = self.server.update_status(&object).unwrap();
            assert_eq!(written["status"], object["status"], "{action}");
            assert_eq!(
                written["metadata"]["resourceVersion"], object["metadata"]["resourceVersion"],
                "{action}"
            );
        }
    }

    /// Steps until the condition holds.
    pub(crate) fn run_until(&mut self, mut condition: impl FnMut(&ApiServer) -> bool) {
        for _ in 0..MAX_STEPS {
            let due = self.step();
            if condition(&self.server) {
                return;
            }
            self.now = due.expect("the condition holds before the cluster is at rest");
        }
        panic!("the condition does not hold after {MAX_STEPS} steps");
    }

    pub(crate) fn create(&self, object: &Value) -> Value {
        self.server.create(object).unwrap()
    }

    /// Changes an object in the namespace `default` or without one.
    pub(crate) fn edit(&self, api_version: &str, plural: &str, name: &str, change: impl FnOnce(&mut Value)) {
        let mut object = self.get(api_version, plural, name).unwrap();
        change(&mut object);
        self.server.update(&object).unwrap();
    }

    /// Returns an object in the namespace `default` or without one.
    pub(crate) fn get(&self, api_version: &str, plural: &str, name: &str) -> Option<Value> {
        let in_default = self.server.get(api_version, plural, Some("default"), name);
        in_default.or_else(|| self.server.get(api_version, plural, None, name))
    }

    pub(crate) fn delete(&self, api_version: &str, plural: &str, name: &str) {
        self.server.delete(api_version, plural, Some("default"), name).unwrap();
    }

    pub(crate) fn pods(&self) -> Vec<Value> {
        self.server.list("v1", "pods", None)
    }

    pub(crate) fn pod_names(&self) -> Vec<String> {
        self.pods().iter().map(|pod| name(pod).to_owned()).collect()
    }

    pub(crate) fn ready_pods(&self) -> usize {
        self.pods().iter().filter(|pod| is_ready(pod)).count()
    }
}

pub(crate) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

pub(crate) fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap()
}

pub(crate) fn is_ready(pod: &Value) -> bool {
    condition(pod, "Ready") == "True"
}

/// Returns the status of a condition; empty if there is none.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> &'a str {
    let conditions = object["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions
        .find(|condition| condition["type"] == kind)
        .map_or("", |condition| condition["status"].as_str().unwrap())
}

/// Returns a pod template with the label `app`.
pub(crate) fn template(app: &str, image: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": app}},
        "spec": {"containers": [{"name": "main", "image": image}]},
    })
}

/// Returns a workload of the group `apps`.
pub(crate) fn workload(kind: &str, name: &str, replicas: usize) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": template(name, "web:1"),
        },
    })
}

pub(crate) fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "web:1"}]},
    })
}

/// Returns a configuration map with owner references.
pub(crate) fn map(name: &str, owners: &[&Value]) -> Value {
    let reference = |owner: &&Value| {
        json!({
            "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true,
        })
    };
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "ownerReferences": owners.iter().map(reference).collect::<Vec<_>>()},
    })
}
