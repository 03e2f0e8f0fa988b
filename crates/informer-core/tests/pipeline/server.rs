//! A simple model of an API server: objects, one global version counter, and every state that ever existed.
//!
//! A restore from a backup begins a new *branch*, which shares its past with the previous branch. The model
//! keeps everything, so that checks can query the state at any version of any branch. It knows nothing about
//! the wire format except how an object is encoded.

use super::faults::{Dice, Fault};
use informer_core::{Key, ResourceVersion};
use std::collections::BTreeMap;
use std::rc::Rc;

const NAMESPACES: [&str; 3] = ["a", "a-b", "b"];
const NAMES: [&str; 3] = ["x", "x-y", "z"];
/// Maximum number of objects.
pub(crate) const SLOTS: usize = NAMESPACES.len() * NAMES.len();
/// Size limit of an object; oversized objects exceed it.
pub(crate) const OBJECT_LIMIT: usize = 700;

/// The objects of one state, by slot; slots are in key order.
pub(crate) type Slots = [Option<Rc<Obj>>; SLOTS];

/// The namespace and name of a slot.
pub(crate) fn names(slot: usize) -> (&'static str, &'static str) {
    (NAMESPACES[slot / NAMES.len()], NAMES[slot % NAMES.len()])
}

/// The key of a slot.
pub(crate) fn key(slot: usize) -> Key {
    let (namespace, name) = names(slot);
    Key::new(namespace, name)
}

/// The slot of a key.
pub(crate) fn slot_of(wanted: &Key) -> usize {
    (0..SLOTS).find(|slot| key(*slot) == *wanted).unwrap()
}

/// One state of one object.
#[derive(Debug)]
pub(crate) struct Obj {
    pub(crate) slot: usize,
    pub(crate) uid: u64,
    pub(crate) version: u64,
    /// Numbers all states ever written, also across restores; part of the content, so all states differ.
    pub(crate) stamp: u64,
    pub(crate) app: Option<u64>,
    pub(crate) node: u64,
    pub(crate) fit: Fit,
    /// The members of `metadata`, without `managedFields`.
    pub(crate) metadata: String,
    /// The member `spec`.
    pub(crate) spec: String,
    /// The part that a cache keeps.
    pub(crate) canonical: String,
}

/// Whether an object is readable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fit {
    Readable,
    TooLarge,
    BadHead,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventKind {
    Added,
    Modified,
    Deleted,
}

/// One change; for a deletion the last state, at the deletion's version.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) kind: EventKind,
    pub(crate) object: Rc<Obj>,
}

#[derive(Debug, Clone)]
struct Commit {
    version: u64,
    event: Option<Event>,
    after: Rc<Slots>,
}

/// One history: each commit with its resulting state.
#[derive(Debug, Clone)]
pub(crate) struct Branch {
    log: Vec<Commit>,
}

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) opaque: bool,
    /// The namespace that the client watches, if not all.
    pub(crate) namespace: Option<&'static str>,
    branches: Vec<Branch>,
    /// The newest version; other kinds advance it too.
    pub(crate) version: u64,
    /// Watches from before this version are rejected.
    pub(crate) oldest: u64,
    /// The client's position at a restore that decreased versions: until the client has detected it, versions
    /// stay below. Beyond it the two histories could not be distinguished.
    pub(crate) gate: Option<u64>,
    pub(crate) rewinds: u64,
    next_uid: u64,
    next_stamp: u64,
    /// Every state that ever existed, by stamp and version.
    states: BTreeMap<(u64, u64), Rc<Obj>>,
}

impl Server {
    pub(crate) fn new(opaque: bool, namespace: Option<&'static str>) -> Self {
        let start = Commit { version: 90, event: None, after: Rc::default() };
        Self {
            opaque,
            namespace,
            branches: vec![Branch { log: vec![start] }],
            version: 90,
            oldest: 90,
            gate: None,
            rewinds: 0,
            next_uid: 1,
            next_stamp: 1,
            states: BTreeMap::new(),
        }
    }

    /// Encodes a version.
    pub(crate) fn text(&self, version: u64) -> String {
        if self.opaque { format!("rv-{}", version ^ 0x5a) } else { version.to_string() }
    }

    /// Decodes a version.
    pub(crate) fn parse(&self, version: &ResourceVersion) -> u64 {
        let text = version.as_str();
        if self.opaque {
            text.strip_prefix("rv-").unwrap().parse::<u64>().unwrap() ^ 0x5a
        } else {
            text.parse().unwrap()
        }
    }

    /// The newest branch.
    pub(crate) fn branch(&self) -> usize {
        self.branches.len() - 1
    }

    /// Whether the client watches this slot.
    pub(crate) fn visible(&self, slot: usize) -> bool {
        self.namespace.is_none_or(|namespace| names(slot).0 == namespace)
    }

    /// The state of a branch at a version.
    pub(crate) fn state_at(&self, branch: usize, version: u64) -> &Slots {
        let log = &self.branches[branch].log;
        let behind = log.partition_point(|commit| commit.version <= version);
        &log[behind.max(1) - 1].after
    }

    /// The current state.
    pub(crate) fn state(&self) -> &Slots {
        self.state_at(self.branch(), self.version)
    }

    /// Changes after a version of the newest branch that the client watches.
    pub(crate) fn events_after(&self, version: u64) -> impl Iterator<Item = &Event> {
        let log = &self.branches[self.branch()].log;
        let behind = log.partition_point(|commit| commit.version <= version);
        log[behind..]
            .iter()
            .filter_map(|commit| commit.event.as_ref())
            .filter(|event| self.visible(event.object.slot))
    }

    /// A change up to `version` of an object that exists at that version, so that the client can detect the
    /// repetition.
    pub(crate) fn replayed(&self, version: u64, dice: &mut Dice) -> Option<&Event> {
        let known = self.state_at(self.branch(), version);
        let log = &self.branches[self.branch()].log;
        let behind = log.partition_point(|commit| commit.version <= version);
        let event = log[dice.index(behind.max(1))].event.as_ref()?;
        (self.visible(event.object.slot) && known[event.object.slot].is_some()).then_some(event)
    }

    /// The state with this stamp and version, if it ever existed.
    pub(crate) fn find(&self, stamp: u64, version: u64) -> Option<&Rc<Obj>> {
        self.states.get(&(stamp, version))
    }

    /// An older version of the newest branch, not before `floor`.
    pub(crate) fn older(&self, floor: u64, dice: &mut Dice) -> u64 {
        let versions: Vec<u64> = self.branches[self.branch()]
            .log
            .iter()
            .map(|commit| commit.version)
            .filter(|v| *v >= floor)
            .collect();
        if versions.is_empty() { self.version } else { versions[dice.index(versions.len())] }
    }

    /// Creates, changes or deletes an object of this or another kind. Returns `None` if that must wait.
    pub(crate) fn write(&mut self, dice: &mut Dice) -> Option<String> {
        let version = self.next_version(1 + dice.below(3))?;
        if dice.one_in(8) {
            self.version = version;
            return Some(format!("another kind advances to {version}"));
        }
        let slot = dice.index(SLOTS);
        let delete = self.state()[slot].is_some() && dice.one_in(3);
        let fit = match dice.strikes(Fault::Unfit) {
            true if dice.one_in(2) => Fit::TooLarge,
            true => Fit::BadHead,
            false => Fit::Readable,
        };
        Some(self.change(slot, version, delete, fit, dice))
    }

    /// Overwrites all unreadable objects.
    pub(crate) fn heal(&mut self, dice: &mut Dice) {
        for slot in 0..SLOTS {
            if self.state()[slot].as_ref().is_some_and(|object| object.fit != Fit::Readable) {
                let version = self.next_version(1).unwrap();
                self.change(slot, version, false, Fit::Readable, dice);
            }
        }
    }

    /// Restores an earlier state. `jump`: versions continue far ahead instead of decreasing.
    pub(crate) fn restore(&mut self, jump: bool, position: Option<u64>, dice: &mut Dice) -> String {
        let log = &self.branches[self.branch()].log;
        let back = dice.below(12).min(log.len() as u64 - 1);
        let kept = log[..log.len() - usize::try_from(back).unwrap()].to_vec();
        let point = kept.last().map_or(0, |commit| commit.version);
        self.branches.push(Branch { log: kept });
        if jump {
            self.version = self.version.max(self.gate.unwrap_or(0)) + 1000;
            self.oldest = self.version;
            self.gate = None;
        } else {
            self.version = point;
            self.oldest = if dice.one_in(2) { point } else { self.oldest.min(point) };
            self.rewinds += 1;
            self.gate = position.filter(|position| *position > point);
        }
        format!("restored to {point}, now at {}", self.version)
    }

    fn next_version(&self, step: u64) -> Option<u64> {
        let next = self.version + step;
        self.gate.is_none_or(|gate| next < gate).then_some(next)
    }

    fn change(&mut self, slot: usize, version: u64, delete: bool, fit: Fit, dice: &mut Dice) -> String {
        let mut after = self.state().clone();
        let (kind, object) = match &after[slot] {
            Some(old) if delete => (EventKind::Deleted, Obj { version, ..old.unwritten() }.written(self)),
            old => {
                let kind = if old.is_some() { EventKind::Modified } else { EventKind::Added };
                let uid = old.as_ref().map_or(self.next_uid, |old| old.uid);
                let (app, node) = (dice.below(4).checked_sub(1), dice.below(3));
                let object =
                    Obj { slot, uid, version, stamp: self.next_stamp, app, node, fit, ..Obj::default() };
                (kind, object.written(self))
            }
        };
        self.next_uid += u64::from(kind == EventKind::Added);
        self.next_stamp += 1;
        let line =
            format!("{kind:?} {} uid {} version {version} stamp {}", key(slot), object.uid, object.stamp);
        let object = Rc::new(object);
        self.states.insert((object.stamp, version), Rc::clone(&object));
        after[slot] = (kind != EventKind::Deleted).then(|| Rc::clone(&object));
        self.version = version;
        let branch = self.branch();
        let event = Some(Event { kind, object });
        self.branches[branch].log.push(Commit { version, event, after: Rc::new(after) });
        line
    }
}

impl Default for Obj {
    fn default() -> Self {
        Self {
            slot: 0,
            uid: 0,
            version: 0,
            stamp: 0,
            app: None,
            node: 0,
            fit: Fit::Readable,
            metadata: String::new(),
            spec: String::new(),
            canonical: String::new(),
        }
    }
}

impl Obj {
    /// A copy without its text.
    fn unwritten(&self) -> Self {
        let &Self { slot, uid, version, stamp, app, node, fit, .. } = self;
        Self { slot, uid, version, stamp, app, node, fit, ..Self::default() }
    }

    fn written(mut self, server: &Server) -> Self {
        let (namespace, name) = names(self.slot);
        let labels = match (self.fit, self.app) {
            (Fit::BadHead, _) => r#","labels":{"app":7}"#.to_owned(),
            (_, Some(app)) => format!(r#","labels":{{"tier":"t","app":"app-{app}"}}"#),
            (_, None) => String::new(),
        };
        self.metadata = format!(
            r#""name":"{name}","namespace":"{namespace}","uid":"u-{}","resourceVersion":"{}","generation":{}{labels}"#,
            self.uid,
            server.text(self.version),
            self.stamp,
        );
        let padding = if self.fit == Fit::TooLarge { OBJECT_LIMIT } else { 0 };
        self.spec = format!(
            r#""spec":{{"nodeName":"n-{}","stamp":{},"text":"}}\"]{{\\","ports":[{{"port":1}},null],"pad":"{:x<padding$}"}}"#,
            self.node, self.stamp, ""
        );
        self.canonical =
            format!(r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{{}}},{}}}"#, self.metadata, self.spec);
        self
    }
}
