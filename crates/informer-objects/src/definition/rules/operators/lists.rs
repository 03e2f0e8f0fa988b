//! Lists of list type `set`, whose entries are identified by their values, and of list type `map`, whose
//! entries are identified by some of their fields.
//!
//! CEL has only one type of list, so the list type is stored separately, by the address of the list. A list
//! with a stored type is kept alive, so that its address is not reused.

use std::collections::HashMap;
use std::sync::Arc;

use kube_cel::cel::Value as Cel;
use kube_cel::cel::objects::{Key, KeyRef};

use super::super::budget::{EvalAbort, Meter, UNIT, length, size};
use super::equal;

/// The identity of the entries of a list.
#[derive(Debug, Clone)]
pub(crate) enum ListIdentity {
    Set,
    /// Entries are identified by these fields.
    Map(Arc<Vec<String>>),
}

/// The types of lists, by their addresses; other lists are ordinary lists.
#[derive(Debug, Default)]
pub(crate) struct ListTypes(HashMap<usize, (Arc<Vec<Cel>>, ListIdentity)>);

impl ListTypes {
    pub(crate) fn insert(&mut self, list: &Arc<Vec<Cel>>, identity: ListIdentity) {
        self.0.insert(address(list), (list.clone(), identity));
    }
}

/// The list types known during an evaluation: those of its input and of lists derived from it.
#[derive(Debug, Default)]
pub(crate) struct Lists<'a> {
    input: Option<&'a ListTypes>,
    derived: ListTypes,
}

impl<'a> Lists<'a> {
    pub(crate) fn new(input: &'a ListTypes) -> Self {
        Lists { input: Some(input), derived: ListTypes::default() }
    }

    fn get(&self, list: &Arc<Vec<Cel>>) -> Option<&ListIdentity> {
        let input = || self.input.and_then(|input| input.0.get(&address(list)));
        self.derived.0.get(&address(list)).or_else(input).map(|(_, identity)| identity)
    }

    /// Whether two lists are equal in any order; `None` if the first is neither a set nor a map.
    pub(super) fn equal(
        &self,
        meter: &mut Meter,
        left: &Arc<Vec<Cel>>,
        right: &[Cel],
    ) -> Option<Result<bool, EvalAbort>> {
        let identity = self.get(left)?;
        Some(self.same(meter, identity, left, right))
    }

    fn same(
        &self,
        meter: &mut Meter,
        identity: &ListIdentity,
        left: &[Cel],
        right: &[Cel],
    ) -> Result<bool, EvalAbort> {
        if left.len() != right.len() {
            return Ok(false);
        }
        let index = Index::new(meter, identity, left)?;
        for item in right {
            let Some(found) = index.find(meter, self, left, item)?.and_then(|at| left.get(at)) else {
                return Ok(false);
            };
            if !matches!(identity, ListIdentity::Set) && !equal(meter, self, found, item)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the union of two lists; `None` if the first is neither a set nor a map.
    ///
    /// An entry of the second list that is also in the first is omitted in a set, and replaces the entry of
    /// the first in a map. Other entries are appended.
    pub(super) fn add(
        &mut self,
        meter: &mut Meter,
        left: &Arc<Vec<Cel>>,
        right: &[Cel],
    ) -> Option<Result<Cel, EvalAbort>> {
        let identity = self.get(left)?.clone();
        Some(self.union(meter, identity, left, right))
    }

    fn union(
        &mut self,
        meter: &mut Meter,
        identity: ListIdentity,
        left: &[Cel],
        right: &[Cel],
    ) -> Result<Cel, EvalAbort> {
        meter.charge(size(left.len()).saturating_add(size(right.len())))?;
        let mut index = Index::new(meter, &identity, left)?;
        let mut items = left.to_vec();
        for item in right {
            match (index.find(meter, self, &items, item)?, &identity) {
                (Some(_), ListIdentity::Set) => {}
                (Some(at), ListIdentity::Map(_)) => items[at] = item.clone(),
                (None, _) => {
                    // As in kube-apiserver, entries of the second map are not compared with each other.
                    if matches!(identity, ListIdentity::Set) {
                        index.insert(item, items.len());
                    }
                    items.push(item.clone());
                }
            }
        }
        let items = Arc::new(items);
        self.derived.insert(&items, identity);
        Ok(Cel::List(items))
    }
}

/// The value of an entry of a set, or of one key field of an entry of a map.
#[derive(Debug, PartialEq, Eq, Hash)]
enum EntryKey {
    Key(Key),
    Float(u64),
    Absent,
}

/// The positions of the entries of a list by their identity.
struct Index<'e> {
    identity: &'e ListIdentity,
    positions: HashMap<Vec<EntryKey>, usize>,
    /// Whether some entries have no key and must be compared one by one.
    has_unkeyed: bool,
}

impl<'e> Index<'e> {
    fn new(meter: &mut Meter, identity: &'e ListIdentity, items: &[Cel]) -> Result<Self, EvalAbort> {
        let mut index =
            Index { identity, positions: HashMap::with_capacity(items.len()), has_unkeyed: false };
        for (at, item) in items.iter().enumerate() {
            meter.charge(UNIT.saturating_add(length(item)))?;
            index.insert(item, at);
        }
        Ok(index)
    }

    fn insert(&mut self, item: &Cel, at: usize) {
        match self.entry_keys(item) {
            Some(entry_keys) => {
                self.positions.insert(entry_keys, at);
            }
            None => self.has_unkeyed = true,
        }
    }

    /// Returns the position of the entry with the identity of `item` in the indexed list `items`.
    fn find(
        &self,
        meter: &mut Meter,
        lists: &Lists<'_>,
        items: &[Cel],
        item: &Cel,
    ) -> Result<Option<usize>, EvalAbort> {
        meter.charge(UNIT.saturating_add(length(item)))?;
        if let Some(entry_keys) = self.entry_keys(item) {
            return Ok(self.positions.get(&entry_keys).copied());
        }
        for (at, other) in items.iter().enumerate().filter(|_| self.has_unkeyed) {
            if equal(meter, lists, other, item)? {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    /// Returns the identity of an entry; `None` if it must be compared as a whole.
    fn entry_keys(&self, item: &Cel) -> Option<Vec<EntryKey>> {
        match (self.identity, item) {
            (ListIdentity::Set, item) => Some(vec![entry_key(item)?]),
            (ListIdentity::Map(keys), Cel::Map(map)) => {
                let entry_key = |key: &String| match map.get(&KeyRef::String(key)) {
                    Some(value) => entry_key(value),
                    None => Some(EntryKey::Absent),
                };
                keys.iter().map(entry_key).collect()
            }
            (ListIdentity::Map(_), _) => None,
        }
    }
}

fn entry_key(value: &Cel) -> Option<EntryKey> {
    match value {
        Cel::Float(number) => Some(EntryKey::Float(number.to_bits())),
        value => value.clone().try_into().ok().map(EntryKey::Key),
    }
}

fn address(list: &Arc<Vec<Cel>>) -> usize {
    Arc::as_ptr(list).addr()
}
