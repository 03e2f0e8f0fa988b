//! Checks that every simulation makes, and what they need to know: which objects existed, and what the program was
//! shown.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use informer_apiserver::{Change, ChangedObject};
use serde_json::Value;

use crate::request::Operation;
use crate::state::State;

macro_rules! checks {
    ($($(#[doc = $doc:literal])+ $variant:ident => $name:literal;)+) => {
        /// The checks that a simulation makes without being asked. Each can be switched off with
        /// [`Simulation::without_check`](crate::Simulation::without_check).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Check {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl Check {
            /// All checks.
            pub const ALL: &[Check] = &[$(Check::$variant,)+];

            /// Returns the name of the check in reports.
            pub fn name(self) -> &'static str {
                match self {
                    $(Check::$variant => $name,)+
                }
            }
        }
    };
}

checks! {
    /// The final state equals that of a run without faults. The documentation of the crate lists what may differ.
    FinalState => "the final state equals that of a run without faults";
    /// Once nothing changes, the program writes nothing. Leases and events are exempt.
    WritesStop => "writes stop once nothing changes";
    /// A deletion does not hit an object that replaced the one that the program has seen.
    DeletedIncarnation => "no deletion hits another object of the same name";
    /// An owner reference names an object in the same namespace, with its own uid, and not one that the program
    /// has known to be replaced for over a minute. A reconcile that began before may still use what it has read.
    OwnerReferences => "owner references are right";
    /// At the end, each object with owners has one that exists.
    Orphans => "no orphans";
    /// At the end, no object waits for its deletion.
    Finalizers => "no leaked finalizers";
    /// Nothing panics.
    Panics => "no panic";
    /// The queues of registered informers stay short and are empty at the end.
    Queues => "bounded queues";
    /// Versions and generations of an object grow, its uid stays, and a deletion is not revoked.
    VersionHistory => "legal version history";
}

impl fmt::Display for Check {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// The longest time from what a reconcile has read to the write that depends on it. Longer than any response is
/// delayed by a fault.
const MAX_RECONCILE: Duration = Duration::from_secs(60);

/// The identity of an object without its uid: API group, plural name, namespace, name.
pub(crate) type ObjectKey = (String, String, String, String);

/// An object that exists or existed.
#[derive(Debug, Clone)]
struct Incarnation {
    uid: String,
    version: u64,
    generation: i64,
    is_terminating: bool,
}

/// The history of all objects, and what each instance of the program was shown.
#[derive(Debug, Default)]
pub(crate) struct Knowledge {
    /// All incarnations of each object, the newest last, and whether that one exists.
    objects: BTreeMap<ObjectKey, (Vec<Incarnation>, bool)>,
    /// The object of each uid, with its kind.
    uids: BTreeMap<String, (ObjectKey, String)>,
    /// The bodies that were delivered to each instance, and when. Uids are plain text in JSON and in protobuf.
    shown: BTreeMap<u32, Vec<(Duration, Bytes)>>,
}

impl Knowledge {
    /// Records a change. Returns what is wrong with it.
    pub(crate) fn record(&mut self, change: &Change) -> Option<String> {
        let (object, is_deleted) = match change {
            Change::Written(object) => (object, false),
            Change::Deleted(object) => (object, true),
            _ => return None,
        };
        let key = key_of(object);
        if is_deleted {
            if let Some((_, exists)) = self.objects.get_mut(&key) {
                *exists = false;
            }
            return None;
        }
        let new = Incarnation {
            uid: object.uid().to_owned(),
            version: object.resource_version(),
            generation: object.generation(),
            is_terminating: object.is_terminating(),
        };
        let (incarnations, exists) = self.objects.entry(key.clone()).or_default();
        let problem = match incarnations.last_mut().filter(|_| *exists) {
            Some(last) if last.uid == new.uid => {
                let problem = history_problem(last, &new);
                *last = new;
                problem
            }
            Some(last) => {
                // Several changes may be read together, of which only the newest state is known.
                let problem = (new.version <= last.version).then(|| "its uid has changed".to_owned());
                self.uids.insert(new.uid.clone(), (key.clone(), object.resource().kind.clone()));
                incarnations.push(new);
                problem
            }
            None => {
                self.uids.insert(new.uid.clone(), (key.clone(), object.resource().kind.clone()));
                incarnations.push(new);
                *exists = true;
                None
            }
        };
        problem.map(|problem| format!("{}: {problem}", title(&key)))
    }

    /// Records a body that an instance has received.
    pub(crate) fn record_shown(&mut self, instance: u32, now: Duration, body: Bytes) {
        self.shown.entry(instance).or_default().push((now, body));
    }

    /// Forgets an instance that no longer exists.
    pub(crate) fn forget(&mut self, instance: u32) {
        self.shown.remove(&instance);
    }

    /// Returns what is wrong with a deletion, if it hits an object that the program does not know.
    pub(crate) fn deletion_problem(
        &self,
        instance: u32,
        operation: &Operation,
        body: &[u8],
    ) -> Option<String> {
        if operation.verb != "delete" || !operation.subresource.is_empty() {
            return None;
        }
        let options: Value = serde_json::from_slice(body).unwrap_or_default();
        if options.pointer("/preconditions/uid").is_some_and(Value::is_string)
            || options.pointer("/preconditions/resourceVersion").is_some_and(Value::is_string)
        {
            return None;
        }
        let key = key_of_operation(operation);
        let (incarnations, exists) = self.objects.get(&key)?;
        let (current, earlier) = incarnations.split_last().filter(|_| *exists)?;
        if self.was_shown(instance, &current.uid, Duration::MAX) {
            return None;
        }
        let known =
            earlier.iter().find(|incarnation| self.was_shown(instance, &incarnation.uid, Duration::MAX))?;
        Some(format!(
            "the program deletes {} without a precondition. It has seen uid {}; the object now has uid {}",
            title(&key),
            known.uid,
            current.uid
        ))
    }

    /// Returns what is wrong with the owner references in a write, except for owners that the object has already.
    pub(crate) fn owner_problem(
        &self,
        instance: u32,
        now: Duration,
        operation: &Operation,
        body: &[u8],
        kept: &[String],
    ) -> Option<String> {
        if !matches!(operation.verb, "create" | "update" | "patch") || !operation.subresource.is_empty() {
            return None;
        }
        let object: Value = serde_json::from_slice(body).ok()?;
        let owners = object.pointer("/metadata/ownerReferences")?.as_array()?;
        let known = now.saturating_sub(MAX_RECONCILE);
        let is_kept = |owner: &&Value| kept.iter().any(|uid| owner["uid"].as_str() == Some(uid));
        let mut new = owners.iter().filter(|owner| !is_kept(owner));
        new.find_map(|owner| self.reference_problem(instance, known, operation, owner))
    }

    /// The program is expected to know what it was shown before the time `known`.
    fn reference_problem(
        &self,
        instance: u32,
        known: Duration,
        operation: &Operation,
        owner: &Value,
    ) -> Option<String> {
        let text = |name: &str| owner[name].as_str().unwrap_or_default();
        let (uid, kind, name) = (text("uid"), text("kind"), text("name"));
        let reference = format!("the reference of {operation} to its owner {kind} {name}");
        let Some((key, actual_kind)) = self.uids.get(uid) else {
            return Some(format!("{reference} has uid {uid}, which no object has or had"));
        };
        if actual_kind != kind || key.3 != name {
            return Some(format!("{reference} has the uid of {actual_kind} {}", key.3));
        }
        if !key.2.is_empty() && key.2 != operation.namespace {
            return Some(format!("{reference} is to another namespace, {}", key.2));
        }
        let (incarnations, exists) = self.objects.get(key)?;
        let current = incarnations.last().filter(|current| *exists && current.uid != uid)?;
        self.was_shown(instance, &current.uid, known).then(|| {
            format!(
                "{reference} is to a deleted object (uid {uid}), although the program has seen its successor"
            )
        })
    }

    /// Returns whether an instance was shown a uid before this time.
    fn was_shown(&self, instance: u32, uid: &str, before: Duration) -> bool {
        let bodies = self.shown.get(&instance).into_iter().flatten();
        let mut bodies = bodies.take_while(|(time, _)| *time < before);
        bodies.any(|(_, body)| contains(body, uid.as_bytes()))
    }
}

/// Returns what is wrong with two consecutive states of one object.
fn history_problem(before: &Incarnation, after: &Incarnation) -> Option<String> {
    // A resource whose definition changes is read again, with the same versions.
    if after.version < before.version {
        return Some(format!("version {} follows version {}", after.version, before.version));
    }
    if after.generation < before.generation {
        return Some(format!("generation {} follows generation {}", after.generation, before.generation));
    }
    (before.is_terminating && !after.is_terminating).then(|| "its deletion was revoked".to_owned())
}

/// Returns the first object whose owners are all gone.
pub(crate) fn orphan(state: &State) -> Option<String> {
    let uids: std::collections::BTreeSet<&str> = state.all().map(|(_, object)| object.uid()).collect();
    state.all().find_map(|(resource, object)| {
        let metadata = &object.value()["metadata"];
        let owners = metadata["ownerReferences"].as_array().filter(|owners| !owners.is_empty())?;
        let is_owned = owners.iter().any(|owner| owner["uid"].as_str().is_some_and(|uid| uids.contains(uid)));
        (!is_owned).then(|| {
            let (kind, name) = (&owners[0]["kind"], &owners[0]["name"]);
            let owner =
                format!("{} {}", kind.as_str().unwrap_or_default(), name.as_str().unwrap_or_default());
            format!("{} exists, but its owner {owner} does not", object_title(&resource.kind, metadata))
        })
    })
}

/// Returns the first object that waits for its deletion.
pub(crate) fn terminating(state: &State) -> Option<String> {
    state.all().find_map(|(resource, object)| {
        let metadata = &object.value()["metadata"];
        metadata["deletionTimestamp"].is_string().then(|| {
            let title = object_title(&resource.kind, metadata);
            match metadata["finalizers"].as_array().filter(|finalizers| !finalizers.is_empty()) {
                Some(finalizers) => {
                    let names: Vec<&str> = finalizers.iter().filter_map(Value::as_str).collect();
                    format!("{title} waits for its deletion, with the finalizers {}", names.join(", "))
                }
                None => format!("{title} waits for its deletion"),
            }
        })
    })
}

fn object_title(kind: &str, metadata: &Value) -> String {
    let name = metadata["name"].as_str().unwrap_or_default();
    match metadata["namespace"].as_str() {
        Some(namespace) => format!("{kind} {namespace}/{name}"),
        None => format!("{kind} {name}"),
    }
}

fn key_of(object: &ChangedObject) -> ObjectKey {
    let resource = object.resource();
    let (namespace, name) = (object.namespace().to_owned(), object.name().to_owned());
    (resource.group.clone(), resource.plural.clone(), namespace, name)
}

pub(crate) fn key_of_operation(operation: &Operation) -> ObjectKey {
    let Operation { group, plural, namespace, name, .. } = operation.clone();
    (group, plural, namespace, name)
}

fn title((_, plural, namespace, name): &ObjectKey) -> String {
    if namespace.is_empty() { format!("{plural} {name}") } else { format!("{plural} {namespace}/{name}") }
}

fn contains(body: &[u8], text: &[u8]) -> bool {
    !text.is_empty() && body.windows(text.len()).any(|window| window == text)
}
