//! Reference model of the store: a sorted map of plain objects, every result computed from scratch.
//!
//! It states the guarantees C1 to C3 and C5 a second time, in the simplest way.

use crate::objects::{Broken, Name, Plain, key};
use informer_core::{Change, Entry, Index, IndexHandle, Object, Scope, StoreReader, StoreSnapshot};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::Arc;

/// An object, and the entry that the cache must contain for it.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub(crate) plain: Plain,
    pub(crate) entry: Arc<Entry>,
}

/// A state of the model; a clone does not change, like a snapshot.
#[derive(Debug, Clone, Default)]
pub(crate) struct Model {
    pub(crate) objects: BTreeMap<Name, Held>,
    pub(crate) versions: BTreeMap<Scope, Option<String>>,
    /// Version of each object whose newest state is unreadable.
    pub(crate) unreadable: BTreeMap<Name, Option<String>>,
    /// Which indexes are installed.
    pub(crate) installed: Vec<bool>,
}

/// Expected report of a batch.
#[derive(Debug, Default)]
pub(crate) struct Reported {
    pub(crate) changes: Vec<Change>,
    pub(crate) outdated: u64,
    pub(crate) unknown_deletes: u64,
    pub(crate) duplicates: u64,
    pub(crate) unreadable: u64,
    pub(crate) rewound: bool,
}

/// Order of two versions, if they are comparable.
fn ordered(left: &str, right: &str) -> Option<Ordering> {
    let comparable = |text: &str| text.parse::<u64>().ok().filter(|_| !text.starts_with('0'));
    Some(comparable(left)?.cmp(&comparable(right)?))
}

fn is_before(left: &str, right: &str) -> bool {
    ordered(left, right).is_some_and(Ordering::is_lt)
}

fn is_other_incarnation(left: &Plain, right: &Plain) -> bool {
    !left.uid.is_empty() && !right.uid.is_empty() && left.uid != right.uid
}

fn is_in(scope: &Scope, name: &Name) -> bool {
    match scope {
        Scope::All => true,
        Scope::Namespace(namespace) => **namespace == *name.0,
    }
}

impl Model {
    fn newest(&self, name: &Name) -> Option<&str> {
        match self.unreadable.get(name) {
            Some(version) => version.as_deref(),
            None => self.objects.get(name).map(|held| held.plain.version.as_str()),
        }
    }

    /// C1: a watch event must be newer than the cached state, if comparable.
    fn is_outdated(&self, name: &Name, version: &str) -> bool {
        self.newest(name).and_then(|newest| ordered(version, newest)).is_some_and(Ordering::is_le)
    }

    pub(crate) fn advance(&mut self, scope: &Scope, version: &str) {
        let known = self.versions.get_mut(scope).unwrap();
        if !known.as_ref().is_some_and(|known| is_before(version, known)) {
            *known = Some(version.to_owned());
        }
    }

    pub(crate) fn upsert(&mut self, scope: &Scope, new: Held, reported: &mut Reported) {
        let (name, version) = (new.plain.name.clone(), new.plain.version.clone());
        if self.is_outdated(&name, &version) {
            reported.outdated += 1;
            return;
        }
        self.unreadable.remove(&name);
        let entry = Arc::clone(&new.entry);
        match self.objects.get(&name).cloned() {
            None => reported.changes.push(Change::Added(entry)),
            Some(old) if is_other_incarnation(&old.plain, &new.plain) => {
                reported.changes.push(Change::Deleted { last: old.entry, observed: false });
                reported.changes.push(Change::Added(entry));
            }
            Some(old) => reported.changes.push(Change::Updated { old: old.entry, new: entry }),
        }
        self.objects.insert(name, new);
        self.advance(scope, &version);
    }

    pub(crate) fn delete(
        &mut self,
        scope: &Scope,
        name: &Name,
        version: Option<&str>,
        last: Option<Arc<Entry>>,
        reported: &mut Reported,
    ) {
        if let (Some(version), Some(newest)) = (version, self.newest(name))
            && is_before(version, newest)
        {
            reported.outdated += 1;
            return;
        }
        self.unreadable.remove(name);
        match self.objects.remove(name) {
            Some(old) => {
                let observed = last.as_ref().is_none_or(|last| {
                    let (old, last) = (&old.entry.head().uid, &last.head().uid);
                    old.is_empty() || last.is_empty() || old == last
                });
                let last = last.filter(|_| observed).unwrap_or(old.entry);
                reported.changes.push(Change::Deleted { last, observed });
            }
            None => reported.unknown_deletes += 1,
        }
        if let Some(version) = version {
            self.advance(scope, version);
        }
    }

    pub(crate) fn mark(&mut self, scope: &Scope, broken: &Broken, reported: &mut Reported) {
        reported.unreadable += 1;
        if let (Some(name), Some(version)) = (&broken.name, &broken.version)
            && self.is_outdated(name, version)
        {
            reported.outdated += 1;
            return;
        }
        if let Some(name) = &broken.name {
            self.unreadable.insert(name.clone(), broken.version.clone());
        }
        if let Some(version) = &broken.version {
            self.advance(scope, version);
        }
    }

    /// C5: the list replaces the whole scope; deletions first, then the rest in key order.
    pub(crate) fn replace(
        &mut self,
        scope: &Scope,
        version: &str,
        list: Vec<Held>,
        broken: &[Broken],
        reported: &mut Reported,
    ) {
        let known = self.versions.insert(scope.clone(), Some(version.to_owned())).flatten();
        reported.rewound |= known.is_some_and(|known| is_before(version, &known));
        reported.unreadable += broken.len() as u64;
        reported.duplicates += list.len() as u64;
        let list: BTreeMap<Name, Held> =
            list.into_iter().map(|held| (held.plain.name.clone(), held)).collect();
        reported.duplicates -= list.len() as u64;
        self.unreadable.retain(|name, _| !is_in(scope, name));
        for broken in broken {
            if let Some(name) = &broken.name {
                self.unreadable.insert(name.clone(), broken.version.clone());
            }
        }

        let before = self.objects.clone();
        for (name, old) in before.iter().filter(|(name, _)| is_in(scope, name)) {
            let gone = match list.get(name) {
                Some(new) => is_other_incarnation(&old.plain, &new.plain),
                None => !self.unreadable.contains_key(name),
            };
            if gone {
                self.objects.remove(name);
                reported.changes.push(Change::Deleted { last: Arc::clone(&old.entry), observed: false });
            }
        }
        for (name, new) in list {
            let entry = Arc::clone(&new.entry);
            match self.objects.get(&name) {
                Some(old) if old.plain == new.plain => continue,
                Some(old) => {
                    reported.changes.push(Change::Updated { old: Arc::clone(&old.entry), new: entry });
                }
                None => reported.changes.push(Change::Added(entry)),
            }
            self.objects.insert(name, new);
        }
    }

    /// Compares all results of a snapshot with this state.
    pub(crate) fn check(&self, snapshot: &StoreSnapshot, rules: &[Rule]) {
        let all: Vec<&Arc<Entry>> = self.objects.values().map(|held| &held.entry).collect();
        same(snapshot.list(), &all, "list");
        assert_eq!((snapshot.len(), snapshot.is_empty()), (all.len(), all.is_empty()));
        for namespace in ["", "a", "a-b", "b", "nowhere"] {
            let expected: Vec<_> = all
                .iter()
                .copied()
                .filter(|entry| entry.key().namespace().unwrap_or_default() == namespace)
                .collect();
            same(snapshot.namespace(namespace), &expected, namespace);
        }
        for (name, held) in &self.objects {
            let key = key(name);
            assert_eq!(held.entry.key(), &key);
            assert!(snapshot.get(&key).is_some_and(|entry| Arc::ptr_eq(entry, &held.entry)), "get {key}");
        }
        assert!(snapshot.get(&key(&("a", "missing".to_owned()))).is_none());
        self.check_versions(snapshot);
        for (rule, installed) in rules.iter().zip(&self.installed) {
            self.check_index(snapshot, rule, *installed);
        }
    }

    /// Reads of the newest state return what its snapshot contains.
    pub(crate) fn check_reader(&self, reader: &StoreReader, rules: &[Rule]) {
        let snapshot = reader.snapshot();
        for (name, held) in &self.objects {
            let key = key(name);
            assert!(reader.get(&key).is_some_and(|entry| Arc::ptr_eq(&entry, &held.entry)), "get {key}");
        }
        assert!(reader.get(&key(&("a", "missing".to_owned()))).is_none());
        for (rule, installed) in rules.iter().zip(&self.installed) {
            // Without the index every lookup scans all objects, so one is enough.
            let looked_up = if *installed { usize::MAX } else { 1 };
            for value in snapshot.index_values(&rule.handle).take(looked_up) {
                let mut expected: Vec<_> = snapshot.by_index(&rule.handle, &value).collect();
                expected.sort_unstable_by_key(|entry| entry.key());
                same(reader.by_index(&rule.handle, &value).iter(), &expected, &value);
            }
        }
    }

    /// Staleness is checked for the newest state only, since an entry can become stale later.
    pub(crate) fn check_stale(&self) {
        for (name, held) in &self.objects {
            assert_eq!(held.entry.is_stale(), self.unreadable.contains_key(name), "{name:?} is stale");
        }
    }

    fn check_versions(&self, snapshot: &StoreSnapshot) {
        for (scope, version) in &self.versions {
            let found = snapshot.scope_version(scope).map(informer_core::ResourceVersion::as_str);
            assert_eq!(found, version.as_deref(), "the version of {scope}");
        }
        let known: Option<Vec<&str>> = self.versions.values().map(Option::as_deref).collect();
        let smallest = known.and_then(|known| {
            let is_smallest = |one: &&&str| {
                known.iter().all(|other| one == &other || ordered(one, other).is_some_and(Ordering::is_le))
            };
            known.iter().find(is_smallest).copied()
        });
        assert_eq!(
            snapshot.resource_version().map(informer_core::ResourceVersion::as_str),
            smallest,
            "the version"
        );
        let unreadable: Vec<_> = snapshot.unreadable().map(|(key, _)| key.clone()).collect();
        let expected: Vec<_> = self.unreadable.keys().map(key).collect();
        assert_eq!(unreadable, expected, "unreadable");
    }

    fn check_index(&self, snapshot: &StoreSnapshot, rule: &Rule, installed: bool) {
        assert_eq!(snapshot.has_index(&rule.handle), installed, "{:?} is installed", rule.handle);
        let mut expected: BTreeMap<String, Vec<&Arc<Entry>>> = BTreeMap::new();
        for held in self.objects.values() {
            let mut values = (rule.values)(&held.plain);
            values.sort();
            values.dedup();
            for value in values {
                expected.entry(value).or_default().push(&held.entry);
            }
        }
        let values: Vec<_> = snapshot.index_values(&rule.handle).map(Cow::into_owned).collect();
        assert!(values.iter().eq(expected.keys()), "values of {:?}: {values:?} {expected:?}", rule.handle);
        // Without the index every lookup scans all objects, so few lookups are enough.
        let looked_up = if installed { expected.len() } else { 1 };
        for (value, entries) in expected.iter().take(looked_up) {
            let mut found: Vec<_> = snapshot.by_index(&rule.handle, value).collect();
            found.sort_unstable_by_key(|entry| entry.key());
            same(found.into_iter(), entries, value);
            if installed {
                let keys = snapshot.index_keys(&rule.handle, value);
                assert!(keys.iter().eq(entries.iter().map(|entry| entry.key())), "keys of {value}");
            }
        }
        for absent in ["n3", "n1-", "zz"].into_iter().take(looked_up) {
            assert!(snapshot.index_keys(&rule.handle, absent).is_empty(), "{absent}");
        }
    }
}

/// Whether an iteration returns exactly these entries in this order.
#[track_caller]
fn same<'a>(walk: impl Iterator<Item = &'a Arc<Entry>>, expected: &[&Arc<Entry>], what: &str) {
    let walked: Vec<_> = walk.collect();
    let equal = walked.len() == expected.len()
        && walked.iter().zip(expected).all(|(left, right)| Arc::ptr_eq(left, right));
    assert!(equal, "{what}: {walked:?} instead of {expected:?}");
}

/// An index, and its expected values for a plain object.
pub(crate) struct Rule {
    pub(crate) handle: IndexHandle,
    pub(crate) values: fn(&Plain) -> Vec<String>,
}

/// All kinds of indexes: fields, a list of values, labels, closures, one that panics, and a second one on the
/// same field.
pub(crate) fn rules() -> Vec<Rule> {
    fn node(plain: &Plain) -> Vec<String> {
        plain.node.iter().map(ToString::to_string).collect()
    }
    let initial = |object: &Object<()>| object.name().chars().take(1).map(String::from).collect::<Vec<_>>();
    let picky = |object: &Object<()>| match object.labels().get("app") {
        // Unwinds without calling the panic hook, so that nothing is printed.
        None if object.name() == "x0" => resume_unwind(Box::new("no label")),
        None => Vec::new(),
        Some(app) => vec![app.to_owned(), object.namespace().unwrap_or("-").to_owned()],
    };
    let rule = |index: Index, values| Rule { handle: index.build().unwrap(), values };
    vec![
        rule(Index::field("spec.node"), node),
        rule(Index::label("app"), |plain| plain.app.iter().map(ToString::to_string).collect()),
        rule(Index::from_fn("initial", initial), |plain| {
            plain.name.1.chars().take(1).map(String::from).collect()
        }),
        rule(Index::field("spec.tags"), |plain| plain.tags.iter().map(ToString::to_string).collect()),
        rule(Index::from_fn("picky", picky), |plain| match plain.app {
            None => Vec::new(),
            Some(app) => {
                vec![app.to_owned(), Some(plain.name.0).filter(|ns| !ns.is_empty()).unwrap_or("-").to_owned()]
            }
        }),
        rule(Index::field(".spec.node"), node),
    ]
}
