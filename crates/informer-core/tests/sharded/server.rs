//! The objects of the model server and their whole history.
//!
//! A key may belong to several incarnations, one after the other, each with its own uid. An object may get another
//! controlling owner, or lose it.

use super::dice::{Dice, Fault};
use super::selection::{Buckets, Selector, bucket, hash};
use informer_core::shard::ShardProperty;
use std::fmt::Write as _;

/// Number of keys.
pub(crate) const SLOTS: usize = 24;
const NAMESPACES: usize = 8;

/// One state of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) version: u64,
    pub(crate) is_readable: bool,
    /// Number of the controlling owner.
    owner: Option<u64>,
}

/// An object from its creation to its deletion.
#[derive(Debug)]
pub(crate) struct Incarnation {
    pub(crate) slot: usize,
    pub(crate) uid: String,
    /// The states, in order; a deletion is none of them.
    pub(crate) states: Vec<State>,
    pub(crate) deleted: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventKind {
    Added,
    Modified,
    Deleted,
}

/// A change: the kind, the number of the incarnation, and its state then.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Event {
    pub(crate) kind: EventKind,
    pub(crate) number: usize,
    pub(crate) state: State,
}

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) incarnations: Vec<Incarnation>,
    /// In the order of their versions.
    events: Vec<Event>,
    live: [Option<usize>; SLOTS],
    /// Number of keys that are used. With few, an object often changes several times while ranges are gained.
    slots: usize,
    pub(crate) version: u64,
    /// Watches and continue tokens of older versions have expired.
    pub(crate) oldest: u64,
}

pub(crate) fn namespace(slot: usize) -> String {
    format!("team-{}-{}", slot % NAMESPACES, hash(&format!("n{}", slot % NAMESPACES)) % 1000)
}

pub(crate) fn name(slot: usize) -> String {
    format!("web-{}", slot / NAMESPACES)
}

fn owner_uid(number: u64) -> String {
    format!("{:016x}", hash(&format!("owner {number}")))
}

fn random_owner(dice: &mut Dice) -> Option<u64> {
    let owners = if dice.one_in(2) { 5 } else { 14 };
    Some(dice.below(owners)).filter(|owner| *owner > 0)
}

impl Incarnation {
    /// Returns the text by whose hash the object is divided.
    fn property(&self, property: ShardProperty, state: State) -> Option<String> {
        match property {
            ShardProperty::Uid => Some(self.uid.clone()),
            ShardProperty::Namespace => Some(namespace(self.slot)),
            ShardProperty::ControllerUid => state.owner.map(owner_uid),
            other => unreachable!("{other:?}"),
        }
    }

    /// Returns the bucket of a state as a set; empty if it belongs to no range.
    pub(crate) fn bucket(&self, by: ShardProperty, state: State) -> Buckets {
        self.property(by, state).map_or(0, |text| bucket(&text))
    }

    /// Returns the bucket of what is cached, which may be the state of a deletion.
    pub(crate) fn bucket_of(&self, by: ShardProperty, version: u64) -> Buckets {
        let state = self.states.iter().rev().find(|state| state.version <= version);
        state.map_or(0, |state| self.bucket(by, *state))
    }

    /// Returns whether the object was in another bucket, or in none, after this version.
    pub(crate) fn leaves(&self, by: ShardProperty, version: u64, bucket: Buckets) -> bool {
        let mut later = self.states.iter().filter(|state| state.version > version);
        later.any(|state| self.bucket(by, *state) != bucket)
    }

    pub(crate) fn is_selected(&self, selector: Option<Selector>, state: State) -> bool {
        selector.is_none_or(|selector| self.bucket(selector.property, state) & selector.buckets != 0)
    }

    /// Returns the state at a version; `None` if the object did not exist.
    pub(crate) fn state_at(&self, version: u64) -> Option<State> {
        let state = self.states.iter().rev().find(|state| state.version <= version);
        state.copied().filter(|_| self.deleted.is_none_or(|deleted| deleted > version))
    }

    pub(crate) fn was_ever_unreadable(&self) -> bool {
        self.states.iter().any(|state| !state.is_readable)
    }

    /// Returns the object as JSON.
    pub(crate) fn json(&self, state: State) -> String {
        let (name, namespace) = (name(self.slot), namespace(self.slot));
        let uid = &self.uid;
        let State { version, is_readable, owner } = state;
        let mut out = String::from(r#"{"kind":"Pod","apiVersion":"v1","metadata":{"#);
        let _ = write!(
            out,
            r#""name":"{name}","namespace":"{namespace}","uid":"{uid}","resourceVersion":"{version}""#
        );
        if !is_readable {
            out.push_str(r#","labels":{"app":7}"#);
        }
        if let Some(owner) = owner.map(owner_uid) {
            let other = hash(&owner).is_multiple_of(2);
            let second = r#"{"apiVersion":"v1","kind":"Node","name":"n","uid":"node"},"#;
            let _ = write!(
                out,
                r#","ownerReferences":[{}{{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"r","uid":"{owner}","controller":true}}]"#,
                if other { second } else { "" }
            );
        }
        out.push_str(r#"},"spec":{"nodeName":"n"}}"#);
        out
    }
}

impl Server {
    pub(crate) fn new(dice: &mut Dice) -> Self {
        let slots = if dice.one_in(3) { 2 } else { SLOTS };
        let (incarnations, events, live) = (Vec::new(), Vec::new(), [None; SLOTS]);
        Self { incarnations, events, live, slots, version: 10, oldest: 0 }
    }

    /// Changes a random object; returns a description.
    pub(crate) fn write(&mut self, dice: &mut Dice) -> String {
        let slot = dice.index(self.slots);
        let is_readable = !dice.strikes(Fault::Unreadable);
        // Versions of other kinds are in between.
        self.version += dice.below(3);
        match self.live[slot] {
            None => self.create(slot, is_readable, dice),
            Some(number) if dice.one_in(4) => {
                self.delete(number, is_readable);
                if dice.one_in(2) {
                    self.create(slot, true, dice);
                }
            }
            Some(number) => {
                let owner = if dice.one_in(2) { random_owner(dice) } else { self.owner(number) };
                self.record(EventKind::Modified, number, is_readable, owner);
            }
        }
        let Event { kind, number, state } = self.events[self.events.len() - 1];
        let uid = &self.incarnations[number].uid;
        format!("{kind:?} {}/{} {uid} {state:?}", namespace(slot), name(slot))
    }

    /// Makes all objects readable.
    pub(crate) fn heal(&mut self) {
        for number in self.live.into_iter().flatten() {
            if self.incarnations[number].states.last().is_some_and(|state| !state.is_readable) {
                self.record(EventKind::Modified, number, true, self.owner(number));
            }
        }
    }

    fn create(&mut self, slot: usize, is_readable: bool, dice: &mut Dice) {
        let number = self.incarnations.len();
        let uid = format!("{:016x}-{number}", hash(&format!("{}-{number}", dice.below(1 << 40))));
        self.incarnations.push(Incarnation { slot, uid, states: Vec::new(), deleted: None });
        self.live[slot] = Some(number);
        let owner = random_owner(dice);
        self.record(EventKind::Added, number, is_readable, owner);
    }

    /// Returns the owner in the newest state.
    fn owner(&self, number: usize) -> Option<u64> {
        self.incarnations[number].states.last().and_then(|state| state.owner)
    }

    fn delete(&mut self, number: usize, is_readable: bool) {
        self.live[self.incarnations[number].slot] = None;
        self.record(EventKind::Deleted, number, is_readable, self.owner(number));
    }

    fn record(&mut self, kind: EventKind, number: usize, is_readable: bool, owner: Option<u64>) {
        self.version += 1;
        let state = State { version: self.version, is_readable, owner };
        let incarnation = &mut self.incarnations[number];
        if kind == EventKind::Deleted {
            incarnation.deleted = Some(self.version);
        } else {
            incarnation.states.push(state);
        }
        self.events.push(Event { kind, number, state });
    }

    /// Forgets a part of the history.
    pub(crate) fn compact(&mut self, dice: &mut Dice) {
        self.oldest = dice.between(self.oldest, self.version);
    }

    /// Returns the changes after a version.
    pub(crate) fn events_after(&self, version: u64) -> impl Iterator<Item = &Event> {
        let first = self.events.partition_point(|event| event.state.version <= version);
        self.events[first..].iter()
    }

    /// Returns the objects that existed at a version, in the order of their keys' numbers.
    pub(crate) fn at(&self, version: u64) -> Vec<(&Incarnation, State)> {
        let states = self.incarnations.iter();
        let mut states: Vec<_> =
            states.filter_map(|object| Some((object, object.state_at(version)?))).collect();
        states.sort_by_key(|(object, _)| object.slot);
        states
    }

    pub(crate) fn incarnation(&self, uid: &str) -> &Incarnation {
        // The number is behind the hyphen.
        let number: usize = uid.split('-').nth(1).unwrap().parse().unwrap();
        &self.incarnations[number]
    }

    /// Returns whether an incarnation of this key was ever unreadable.
    pub(crate) fn was_key_unreadable(&self, slot: usize) -> bool {
        let mut events = self.events.iter();
        events.any(|event| self.incarnations[event.number].slot == slot && !event.state.is_readable)
    }
}
