//! Applies the same random batches to a store and its model.

use crate::model::{Held, Model, Reported, Rule, rules};
use crate::objects::{Broken, Name, Plain, key, listed, version, watched, watched_broken};
use informer_core::random::Random;
use informer_core::{
    BatchResult, BuiltIndex, Change, Deleted, Delta, Replaced, Scope, StoreReader, StoreSnapshot, StoreWriter,
};
use std::sync::Arc;

/// Two indexes on the same field, which share one index in the store.
const SAME_RULE: [usize; 2] = [0, 5];

pub(crate) fn run(seed: u64) {
    let mut random = Random::new(seed);
    let names = 2 + random.below(7);
    Run::new(random, names).go(16);
}

/// More objects than one node of a tree contains.
pub(crate) fn run_large(seed: u64) {
    Run::new(Random::new(seed), 300).go(24);
}

struct Run {
    random: Random,
    writer: StoreWriter,
    reader: StoreReader,
    model: Model,
    rules: Vec<Rule>,
    building: Vec<(usize, BuiltIndex)>,
    /// Earlier snapshots, each with the model's state at that time.
    snapshots: Vec<(StoreSnapshot, Model)>,
    scopes: Vec<Scope>,
    /// Number of names per namespace.
    names: u64,
    /// The server's version; a restore decreases it.
    clock: u64,
}

impl Run {
    fn new(mut random: Random, names: u64) -> Self {
        let scopes = if random.below(2) == 0 {
            vec![Scope::All]
        } else {
            vec![Scope::namespace("a"), Scope::namespace("a-b")]
        };
        let (writer, reader) = StoreWriter::new(scopes.clone());
        let rules = rules();
        let versions = scopes.iter().map(|scope| (scope.clone(), None)).collect();
        let model = Model { versions, installed: vec![false; rules.len()], ..Model::default() };
        let (building, snapshots) = (Vec::new(), Vec::new());
        Self { random, writer, reader, model, rules, building, snapshots, scopes, names, clock: 95 }
    }

    fn go(mut self, batches: u64) {
        for index in 0..self.rules.len() {
            if self.random.below(3) == 0 {
                self.writer.add_index(self.rules[index].handle.clone());
                self.mark_installed(index);
            }
        }
        for _ in 0..batches {
            self.batch();
            self.indexes();
            self.take_snapshot();
        }
        for (index, built) in std::mem::take(&mut self.building) {
            self.install(index, built);
        }
        self.check();
        for (snapshot, then) in &self.snapshots {
            then.check(snapshot, &self.rules);
        }
    }

    fn check(&self) {
        self.model.check(&self.reader.snapshot(), &self.rules);
        self.model.check_reader(&self.reader, &self.rules);
        self.model.check_stale();
        self.writer.check_invariants();
    }

    /// Applies one batch for one scope, as the pump does.
    fn batch(&mut self) {
        let scope = self.pick_scope();
        let (mut deltas, mut reported) = (Vec::new(), Reported::default());
        for _ in 0..=self.random.below(5) {
            deltas.push(self.operation(&scope, &mut reported));
        }
        let applied = self.writer.apply(&scope, deltas);
        compare(&applied, &reported);
        self.check();
    }

    fn operation(&mut self, scope: &Scope, reported: &mut Reported) -> Delta {
        match self.random.below(19) {
            0..10 => self.upsert(scope, reported),
            10..14 => self.delete(scope, reported),
            14..16 => self.replace(reported),
            16 => {
                let text = self.version();
                self.model.advance(scope, &text);
                Delta::Bookmark(version(&text))
            }
            _ => {
                let broken = self.broken(scope);
                self.model.mark(scope, &broken, reported);
                Delta::Unreadable(watched_broken(&broken))
            }
        }
    }

    fn upsert(&mut self, scope: &Scope, reported: &mut Reported) -> Delta {
        let name = self.pick_name(scope);
        let plain = self.plain(name);
        let held = Held { entry: watched(&plain), plain };
        let entry = Arc::clone(&held.entry);
        self.model.upsert(scope, held, reported);
        if self.random.below(2) == 0 { Delta::Added(entry) } else { Delta::Updated(entry) }
    }

    fn delete(&mut self, scope: &Scope, reported: &mut Reported) -> Delta {
        let name = self.pick_name(scope);
        let plain = self.plain(name.clone());
        let text = (self.random.below(8) > 0).then_some(plain.version.as_str());
        let last = (self.random.below(3) > 0).then(|| watched(&plain));
        self.model.delete(scope, &name, text, last.clone(), reported);
        Delta::Deleted(Deleted { key: key(&name), version: text.map(version), last })
    }

    /// A relist: most objects, some changed, deleted, new or repeated; sometimes from a restored server.
    fn replace(&mut self, reported: &mut Reported) -> Delta {
        let scope = self.pick_scope();
        if self.random.below(4) == 0 {
            self.clock = self.clock.saturating_sub(20).max(1);
        }
        let mut plains: Vec<Plain> = self.model.objects.values().map(|held| held.plain.clone()).collect();
        plains.retain(|plain| scope.contains(&key(&plain.name)) && self.random.below(5) > 0);
        for plain in &mut plains {
            if self.random.below(4) == 0 {
                *plain = self.plain(plain.name.clone());
            }
        }
        for _ in 0..self.random.below(1 + self.names / 2) {
            let name = self.pick_name(&scope);
            plains.push(self.plain(name));
        }
        for index in (1..plains.len()).rev() {
            plains.swap(index, usize::try_from(self.random.below(index as u64 + 1)).unwrap());
        }
        let broken: Vec<Broken> = (0..self.random.below(3)).map(|_| self.broken(&scope)).collect();
        let (entries, unreadable) = listed(&plains, &broken);
        let held = plains.into_iter().zip(&entries);
        let list = held.map(|(plain, entry)| Held { plain, entry: Arc::clone(entry) }).collect();
        let text = self.version();
        self.model.replace(&scope, &text, list, &broken, reported);
        Delta::Replaced(Replaced { scope, version: version(&text), entries, unreadable, audit: false })
    }

    /// Index builds start from some snapshot and are installed some batches later.
    fn indexes(&mut self) {
        let index = self.pick(self.rules.len());
        if self.random.below(4) == 0 {
            self.building.push((index, self.reader.build_index(self.rules[index].handle.clone())));
        }
        if !self.building.is_empty() && self.random.below(5) == 0 {
            let waiting = self.pick(self.building.len());
            let (index, built) = self.building.swap_remove(waiting);
            self.install(index, built);
            self.check();
        }
    }

    fn install(&mut self, index: usize, built: BuiltIndex) {
        self.writer.install_index(built);
        self.mark_installed(index);
    }

    fn mark_installed(&mut self, index: usize) {
        let all = if SAME_RULE.contains(&index) { &SAME_RULE[..] } else { &[index] };
        for index in all {
            self.model.installed[*index] = true;
        }
    }

    /// C5: snapshots never change.
    fn take_snapshot(&mut self) {
        if self.random.below(6) == 0 {
            self.snapshots.push((self.reader.snapshot(), self.model.clone()));
        }
        if !self.snapshots.is_empty() && self.random.below(4) == 0 {
            let index = self.pick(self.snapshots.len());
            let (snapshot, then) = &self.snapshots[index];
            then.check(snapshot, &self.rules);
            if self.random.below(2) == 0 {
                self.snapshots.swap_remove(index);
                self.writer.release();
            }
        }
    }

    fn pick(&mut self, count: usize) -> usize {
        usize::try_from(self.random.below(count as u64)).unwrap()
    }

    fn pick_of<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.pick(from.len())]
    }

    fn pick_scope(&mut self) -> Scope {
        let index = self.pick(self.scopes.len());
        self.scopes[index].clone()
    }

    fn pick_name(&mut self, scope: &Scope) -> Name {
        let namespace = match scope {
            Scope::All => self.pick_of(&["", "a", "a-b", "b"]),
            Scope::Namespace(name) if **name == *"a" => "a",
            Scope::Namespace(_) => "a-b",
        };
        let number = self.random.below(self.names);
        (namespace, format!("{}{number}", if number.is_multiple_of(3) { "x" } else { "y" }))
    }

    /// Usually the next version; sometimes an older one, rarely one that is not comparable.
    fn version(&mut self) -> String {
        match self.random.below(12) {
            0 => self.clock.saturating_sub(self.random.below(12)).max(1).to_string(),
            1 if self.random.below(3) == 0 => format!("0{}", self.random.below(3)),
            _ => {
                self.clock += self.random.below(3);
                self.clock.to_string()
            }
        }
    }

    fn plain(&mut self, name: Name) -> Plain {
        let known = self.model.objects.get(&name).map(|held| held.plain.uid.clone());
        let uid = match self.random.below(8) {
            0 => String::new(),
            1 => format!("u{}", self.random.below(4)),
            _ => known.unwrap_or_else(|| "u0".to_owned()),
        };
        let tags = (0..self.random.below(4)).map(|_| self.pick_of(&["", "t", "t0", "t\0", "ü"])).collect();
        Plain {
            name,
            uid,
            version: self.version(),
            node: self.pick_of(&[None, Some(""), Some("n1"), Some("n1\0"), Some("n10"), Some("n2")]),
            app: self.pick_of(&[None, Some("web"), Some("we"), Some("db")]),
            tags,
        }
    }

    fn broken(&mut self, scope: &Scope) -> Broken {
        if self.random.below(6) == 0 {
            return Broken { name: None, version: None };
        }
        let name = Some(self.pick_name(scope));
        Broken { name, version: (self.random.below(4) > 0).then(|| self.version()) }
    }
}

/// Compares reported and expected changes: the same entries in the same order.
fn compare(applied: &BatchResult, reported: &Reported) {
    let counts = (applied.stale_deltas, applied.deletes_of_unknown, applied.duplicates, applied.unreadable);
    assert_eq!(
        counts,
        (reported.outdated, reported.unknown_deletes, reported.duplicates, reported.unreadable),
        "counts"
    );
    assert_eq!(applied.server_rewound, reported.rewound, "rewound");
    let same = |left: &Change, right: &Change| match (left, right) {
        (Change::Added(left), Change::Added(right)) => Arc::ptr_eq(left, right),
        (Change::Updated { old, new }, Change::Updated { old: from, new: to }) => {
            Arc::ptr_eq(old, from) && Arc::ptr_eq(new, to)
        }
        (Change::Deleted { last, observed }, Change::Deleted { last: expected, observed: seen }) => {
            Arc::ptr_eq(last, expected) && observed == seen
        }
        _ => false,
    };
    let equal = applied.changes.len() == reported.changes.len()
        && applied.changes.iter().zip(&reported.changes).all(|(left, right)| same(left, right));
    assert!(equal, "changes: {:?} instead of {:?}", applied.changes, reported.changes);
}
