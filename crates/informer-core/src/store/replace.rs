//! Swapping in a complete list.
//!
//! A list speaks for its scope and for nothing else. It is applied by comparing it with what is there: equal entries stay the very
//! same, so a relist that finds little changed costs little. What it says is the truth even where its versions are lower (C1).

use super::change::{BatchResult, Change};
use super::writer::StoreWriter;
use crate::delta::Replaced;
use crate::key::Key;
use crate::object::Entry;
use crate::scope::Scope;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

impl StoreWriter {
    /// Makes the cache equal to the list, within its scope. Reported are deletions first, then the rest in key order (C5).
    pub(super) fn replace(&mut self, replaced: Replaced, applied: &mut BatchResult) {
        let Replaced { scope, version, entries, unreadable, audit } = replaced;
        let before = applied.changes.len();
        let entries = sort(entries, applied);
        let known = self.state.versions.get(&scope).and_then(Option::as_ref);
        let first = known.is_none();
        applied.server_rewound |= known.is_some_and(|known| version.is_before(known));
        applied.unreadable += unreadable.len() as u64;

        // What could not be read exists: its cached state stays, as a stale one.
        let hidden: BTreeSet<&Key> = unreadable.iter().filter_map(|object| object.key.as_ref()).collect();
        let (mut gone, mut lost_lives) = (Vec::new(), Vec::new());
        let mut listed = entries.iter().peekable();
        for old in self.in_scope(&scope) {
            while listed.next_if(|entry| entry.key() < old.key()).is_some() {}
            match listed.peek() {
                Some(new) if new.key() == old.key() => {
                    if old.is_other_incarnation(new) {
                        lost_lives.push(old.key().clone());
                        gone.push(Change::Deleted { last: Arc::clone(old), observed: false });
                    }
                }
                _ if hidden.contains(old.key()) => {}
                _ => gone.push(Change::Deleted { last: Arc::clone(old), observed: false }),
            }
        }
        for change in &gone {
            if lost_lives.binary_search(change.key()).is_err() {
                self.remove(change.key());
            }
        }
        applied.changes.append(&mut gone);
        if first {
            // A first set: all of it is new.
            applied.changes.reserve_exact(entries.len());
        }
        for entry in entries {
            self.replace_one(entry, applied);
        }
        self.forget_unreadable(&scope, &hidden);
        for object in &unreadable {
            object.key.iter().for_each(|key| self.note_unreadable(key, object));
        }
        self.state.versions.insert(scope, Some(version));
        if audit {
            applied.drift += (applied.changes.len() - before) as u64;
        }
    }

    fn replace_one(&mut self, new: Arc<Entry>, applied: &mut BatchResult) {
        let found = self.state.objects.find(new.key());
        let slot = found.map(|(slot, _)| slot);
        match found.map(|(_, old)| old) {
            // Versions are given out again after a restore, and a state that a restore undid may have stayed here beyond the list that
            // showed it, while what took its place could not be read. So only equal bytes are equal.
            Some(old) if Arc::ptr_eq(old, &new) || old.is_same_state(&new) => {
                old.set_stale(false);
                return;
            }
            Some(old) if !old.is_other_incarnation(&new) => {
                applied.changes.push(Change::Updated { old: Arc::clone(old), new: Arc::clone(&new) });
            }
            _ => applied.changes.push(Change::Added(Arc::clone(&new))),
        }
        self.insert_or_replace(slot, new);
    }

    /// Objects of the scope that were unreadable before this list and are readable, or gone, in it.
    fn forget_unreadable(&mut self, scope: &Scope, hidden: &BTreeSet<&Key>) {
        let known = self.state.unreadable.keys();
        let forgotten: Vec<Key> =
            known.filter(|key| scope.contains(key) && !hidden.contains(key)).cloned().collect();
        for key in forgotten {
            self.state.unreadable.remove(&key);
        }
    }

    /// The entries of a scope, in key order.
    fn in_scope(&self, scope: &Scope) -> Box<dyn Iterator<Item = &Arc<Entry>> + '_> {
        match scope {
            Scope::All => Box::new(self.state.objects.values()),
            Scope::Namespace(namespace) => {
                let rest = self.state.objects.from(Bound::Included(&Key::first_in(namespace)));
                let scope = scope.clone();
                Box::new(rest.take_while(move |entry| scope.contains(entry.key())))
            }
        }
    }
}

/// Orders a list by key; of two items with one key the later counts.
fn sort(mut entries: Vec<Arc<Entry>>, applied: &mut BatchResult) -> Vec<Arc<Entry>> {
    let count = entries.len();
    // Stable, so that among equal keys the later stays behind; then the earlier ones are dropped.
    entries.sort_by(|left, right| left.key().cmp(right.key()));
    entries.reverse();
    entries.dedup_by(|earlier, later| earlier.key() == later.key());
    entries.reverse();
    applied.duplicates += (count - entries.len()) as u64;
    entries
}
