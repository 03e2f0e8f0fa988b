//! Lists that are sets, or maps by some of their fields.
//!
//! The language knows one kind of list, so what else a list is stands beside it, found by its place in memory. What is known
//! is also held, so that no other list comes to stand there.

use std::collections::HashMap;
use std::sync::Arc;

use kube_cel::cel::Value as Cel;
use kube_cel::cel::objects::{Key, KeyRef};

use super::super::budget::{EvalAbort, Meter, UNIT, length, size};
use super::equal;

/// What a list is besides a list.
#[derive(Debug, Clone)]
pub(crate) enum Entries {
    Set,
    /// By these fields of its entries.
    Map(Arc<Vec<String>>),
}

/// What is known of lists.
#[derive(Debug, Default)]
pub(crate) struct Kinds(HashMap<usize, (Arc<Vec<Cel>>, Entries)>);

impl Kinds {
    pub(crate) fn insert(&mut self, list: &Arc<Vec<Cel>>, entries: Entries) {
        self.0.insert(place(list), (list.clone(), entries));
    }
}

/// What is known while a rule runs: of what it was given, and of what it made of that.
#[derive(Debug, Default)]
pub(crate) struct Lists<'a> {
    given: Option<&'a Kinds>,
    made: Kinds,
}

impl<'a> Lists<'a> {
    pub(crate) fn new(given: &'a Kinds) -> Self {
        Lists { given: Some(given), made: Kinds::default() }
    }

    fn get(&self, list: &Arc<Vec<Cel>>) -> Option<&Entries> {
        let given = || self.given.and_then(|given| given.0.get(&place(list)));
        self.made.0.get(&place(list)).or_else(given).map(|(_, entries)| entries)
    }

    /// Whether two lists are the same, if the first is one whose order does not matter.
    pub(super) fn equal(
        &self,
        meter: &mut Meter,
        left: &Arc<Vec<Cel>>,
        right: &[Cel],
    ) -> Option<Result<bool, EvalAbort>> {
        let entries = self.get(left)?;
        Some(self.same(meter, entries, left, right))
    }

    fn same(
        &self,
        meter: &mut Meter,
        entries: &Entries,
        left: &[Cel],
        right: &[Cel],
    ) -> Result<bool, EvalAbort> {
        if left.len() != right.len() {
            return Ok(false);
        }
        let index = Index::new(meter, entries, left)?;
        for item in right {
            let Some(found) = index.find(meter, self, left, item)?.and_then(|at| left.get(at)) else {
                return Ok(false);
            };
            if !matches!(entries, Entries::Set) && !equal(meter, self, found, item)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The union of two lists, if the first is a set or a map. Entries keep their places; those of a map are replaced.
    pub(super) fn add(
        &mut self,
        meter: &mut Meter,
        left: &Arc<Vec<Cel>>,
        right: &[Cel],
    ) -> Option<Result<Cel, EvalAbort>> {
        let entries = self.get(left)?.clone();
        Some(self.union(meter, entries, left, right))
    }

    fn union(
        &mut self,
        meter: &mut Meter,
        entries: Entries,
        left: &[Cel],
        right: &[Cel],
    ) -> Result<Cel, EvalAbort> {
        meter.pay(size(left.len()).saturating_add(size(right.len())))?;
        let mut index = Index::new(meter, &entries, left)?;
        let mut items = left.to_vec();
        for item in right {
            match (index.find(meter, self, &items, item)?, &entries) {
                (Some(_), Entries::Set) => {}
                (Some(at), Entries::Map(_)) => items[at] = item.clone(),
                (None, _) => {
                    if matches!(entries, Entries::Set) {
                        index.insert(item, items.len());
                    }
                    items.push(item.clone());
                }
            }
        }
        let items = Arc::new(items);
        self.made.insert(&items, entries);
        Ok(Cel::List(items))
    }
}

/// What an entry is found by.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Mark {
    Key(Key),
    Float(u64),
    Nothing,
}

/// The places of entries.
struct Index<'e> {
    entries: &'e Entries,
    places: HashMap<Vec<Mark>, usize>,
    /// Whether some have no mark, and must be compared one by one.
    rest: bool,
}

impl<'e> Index<'e> {
    fn new(meter: &mut Meter, entries: &'e Entries, items: &[Cel]) -> Result<Self, EvalAbort> {
        let mut index = Index { entries, places: HashMap::with_capacity(items.len()), rest: false };
        for (at, item) in items.iter().enumerate() {
            meter.pay(UNIT.saturating_add(length(item)))?;
            index.insert(item, at);
        }
        Ok(index)
    }

    fn insert(&mut self, item: &Cel, at: usize) {
        match self.marks(item) {
            Some(marks) => {
                self.places.insert(marks, at);
            }
            None => self.rest = true,
        }
    }

    fn find(
        &self,
        meter: &mut Meter,
        lists: &Lists<'_>,
        items: &[Cel],
        item: &Cel,
    ) -> Result<Option<usize>, EvalAbort> {
        meter.pay(UNIT.saturating_add(length(item)))?;
        if let Some(marks) = self.marks(item) {
            return Ok(self.places.get(&marks).copied());
        }
        for (at, other) in items.iter().enumerate().filter(|_| self.rest) {
            if equal(meter, lists, other, item)? {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    fn marks(&self, item: &Cel) -> Option<Vec<Mark>> {
        match (self.entries, item) {
            (Entries::Set, item) => Some(vec![mark(item)?]),
            (Entries::Map(keys), Cel::Map(map)) => {
                let mark = |key: &String| match map.get(&KeyRef::String(key)) {
                    Some(value) => mark(value),
                    None => Some(Mark::Nothing),
                };
                keys.iter().map(mark).collect()
            }
            (Entries::Map(_), _) => None,
        }
    }
}

fn mark(value: &Cel) -> Option<Mark> {
    match value {
        Cel::Float(number) => Some(Mark::Float(number.to_bits())),
        value => value.clone().try_into().ok().map(Mark::Key),
    }
}

fn place(list: &Arc<Vec<Cel>>) -> usize {
    Arc::as_ptr(list).addr()
}
