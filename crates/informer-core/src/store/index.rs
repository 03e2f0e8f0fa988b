//! Indexes: lookup of objects by value.
//!
//! An index is a rule (a field path, a label or a closure) and, in each snapshot, a sorted sequence of
//! postings: pairs of the id of a value and the slot of an object (its number in the store). An update that leaves
//! the values of an object unchanged does not touch the index. Each value is stored once under an id, regardless
//! of the number of objects that have it, and a hash table finds the id. If a closure panics, the panic is caught and counted, and the
//! object has no values in that index; nothing else is affected (C9).

use super::objects::{Objects, Slot};
use super::pages::PagedVec;
use super::sorted::SortedSeq;
use super::table::Table;
use crate::error::ParseError;
use crate::key::hash;
use crate::object::{Entry, Object};
use crate::wire::FieldPath;
use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

type ValuesFn = dyn Fn(&Arc<Entry>) -> Vec<String> + Send + Sync;

/// The definition of an index over cached objects.
pub struct Index {
    name: Box<str>,
    rule: Rule,
}

enum Rule {
    Field(Result<FieldPath, ParseError>),
    Label,
    Closure(Box<ValuesFn>),
}

impl Index {
    /// Indexes objects by the value of a field, for example `spec.nodeName`, without decoding them.
    ///
    /// An invalid path is reported where the index is added to an informer (`SharedInformer::add_index`). An
    /// object without the field has no value.
    pub fn field(path: &str) -> Self {
        Self { name: path.into(), rule: Rule::Field(path.parse()) }
    }

    /// Indexes objects by the value of a label.
    pub fn label(name: &str) -> Self {
        Self { name: name.into(), rule: Rule::Label }
    }

    /// Indexes objects by the values that a closure returns. The name is used in messages.
    ///
    /// `K` is the type of the informer's objects. An object for which the closure panics has no value.
    pub fn from_fn<K, V>(name: &str, values: impl Fn(&Object<K>) -> V + Send + Sync + 'static) -> Self
    where
        V: IntoIterator<Item = String>,
    {
        let closure = move |entry: &Arc<Entry>| values(&Object::new(Arc::clone(entry))).into_iter().collect();
        Self { name: name.into(), rule: Rule::Closure(Box::new(closure)) }
    }

    /// Creates the handle that queries use. The contents of the index are built by the store.
    ///
    /// Hidden, because users of an informer call `SharedInformer::add_index`.
    ///
    /// # Errors
    ///
    /// If the path of a field index is invalid.
    #[doc(hidden)]
    pub fn build(self) -> Result<IndexHandle, ParseError> {
        if let Rule::Field(Err(error)) = &self.rule {
            return Err(error.clone());
        }
        Ok(IndexHandle(Arc::new(Shared { index: self, panics: AtomicU64::new(0) })))
    }
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = match &self.rule {
            Rule::Field(_) => "field",
            Rule::Label => "label",
            Rule::Closure(_) => "closure",
        };
        write!(f, "index by {by} {}", self.name)
    }
}

#[derive(Debug)]
struct Shared {
    index: Index,
    panics: AtomicU64,
}

/// The handle of an index, for lookups in snapshots.
///
/// A lookup cannot fail: until the store has built the index, it examines every object.
#[derive(Debug, Clone)]
pub struct IndexHandle(Arc<Shared>);

impl IndexHandle {
    /// Returns the field path, the label name, or the name given to the closure.
    pub fn name(&self) -> &str {
        &self.0.index.name
    }

    /// Returns how often the closure panicked. The objects for which it panicked have no values in this
    /// index.
    pub fn panics(&self) -> u64 {
        self.0.panics.load(Ordering::Relaxed)
    }

    /// Returns whether both handles select the same values: they are clones, or use the same field or label.
    pub(crate) fn is_same_rule(&self, other: &Self) -> bool {
        match (&self.0.index.rule, &other.0.index.rule) {
            (Rule::Field(Ok(left)), Rule::Field(Ok(right))) => left == right,
            (Rule::Label, Rule::Label) => self.name() == other.name(),
            _ => Arc::ptr_eq(&self.0, &other.0),
        }
    }

    /// Returns `true` only if an object has exactly these values; `false` proves nothing.
    ///
    /// This check allocates nothing, unlike [`IndexHandle::values`], and suffices for most updates, which
    /// leave the values unchanged. For closures it always returns `false`.
    fn certainly_has_values<'a>(&self, entry: &Entry, values: impl Iterator<Item = &'a str>) -> bool {
        let mut remaining = values;
        match &self.0.index.rule {
            Rule::Field(Ok(path)) => {
                let mut equal = true;
                entry.each_value(path, &mut |value| equal &= remaining.next() == Some(value));
                equal && remaining.next().is_none()
            }
            Rule::Label => remaining.eq(entry.head().labels.get(self.name())),
            Rule::Field(Err(_)) | Rule::Closure(_) => false,
        }
    }

    /// Returns the values of an object, sorted and without duplicates.
    pub(crate) fn values(&self, entry: &Arc<Entry>) -> Vec<String> {
        let mut values = match &self.0.index.rule {
            Rule::Field(Ok(path)) => entry.values_at(path),
            Rule::Field(Err(_)) => Vec::new(),
            Rule::Label => entry.head().labels.get(self.name()).map(ToOwned::to_owned).into_iter().collect(),
            Rule::Closure(closure) => {
                catch_unwind(AssertUnwindSafe(|| closure(entry))).unwrap_or_else(|_| {
                    self.0.panics.fetch_add(1, Ordering::Relaxed);
                    Vec::new()
                })
            }
        };
        values.sort_unstable();
        values.dedup();
        values
    }
}

/// The id of a value for as long as any object has the value.
type ValueId = NonZeroU32;

/// The texts of the values, by id.
///
/// Lookups read texts far more often than texts change, so the pages are larger than those of entries. If each
/// object has a value of its own, each added object copies such a page.
type Texts = PagedVec<Option<Arc<str>>, 32, 16>;

/// Number of postings per leaf: few enough for a cheap copy of a leaf.
const POSTINGS_PER_LEAF: usize = 64;

/// One value of one object, ordered by the id of the value, then by slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Posting {
    value: ValueId,
    slot: Slot,
}

fn text(texts: &Texts, value: ValueId) -> Option<&Arc<str>> {
    texts.get(value.get() as usize)?.as_ref()
}

/// The published part of an index, which readers use.
#[derive(Clone)]
pub(crate) struct Postings {
    pub(crate) handle: IndexHandle,
    sorted: SortedSeq<Posting, POSTINGS_PER_LEAF>,
    /// Invariant: contains the text of every value that occurs, once each, and no other.
    texts: Texts,
    /// The ids in `texts`, by the hash of the text.
    ids: Table,
}

impl Postings {
    /// Returns the slots of the objects with this value.
    pub(crate) fn slots(&self, value: &str) -> impl Iterator<Item = Slot> {
        let value = self.find(value);
        let postings = value.map(|value| self.sorted.iter_from(move |posting| posting.value < value));
        let same_value = move |posting: &&Posting| Some(posting.value) == value;
        postings.into_iter().flatten().take_while(same_value).map(|posting| posting.slot)
    }

    /// Returns the values in order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Arc<str>> {
        // Ids are assigned in order, so the first page that was never used ends the texts.
        let mut values: Vec<_> = (0..).map_while(|id| self.texts.get(id)).flatten().collect();
        values.sort_unstable();
        values.into_iter()
    }

    /// Returns the id of a value if an object has it.
    fn find(&self, value: &str) -> Option<ValueId> {
        let check =
            |id| ValueId::new(id).filter(|id| text(&self.texts, *id).is_some_and(|text| **text == *value));
        self.ids.find(hash(value.as_bytes()), check).map(|(_, value)| value)
    }

    fn add(&mut self, posting: Posting) {
        self.sorted.insert(posting, |existing| existing.cmp(&posting));
    }

    /// Removes a posting; returns whether no object has its value any more.
    fn remove(&mut self, posting: Posting) -> bool {
        self.sorted.remove(|existing| existing.cmp(&posting));
        let next = self.sorted.first_from(|existing| existing.value < posting.value);
        let was_last = next.is_none_or(|next| next.value != posting.value);
        if was_last {
            if let Some(text) = text(&self.texts, posting.value) {
                self.ids.remove(hash(text.as_bytes()), posting.value.get());
            }
            self.texts.set(posting.value.get() as usize, None);
        }
        was_last
    }
}

impl fmt::Debug for Postings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} postings of {:?}", self.sorted.len(), self.handle.0.index)
    }
}

/// The writer's side of an index: the postings, and the values that each object contributed.
#[derive(Debug)]
pub(crate) struct IndexWriter {
    pub(crate) postings: Postings,
    /// Invariant: `postings` contains exactly these pairs of value and slot.
    values: Values,
    /// Ids that were assigned before and are free again.
    free: Vec<ValueId>,
    /// The lowest id that was never assigned.
    next: ValueId,
}

impl IndexWriter {
    pub(crate) fn new(handle: IndexHandle) -> Self {
        let (sorted, texts, ids) = (SortedSeq::default(), Texts::default(), Table::default());
        let postings = Postings { handle, sorted, texts, ids };
        Self { postings, values: Values::default(), free: Vec::new(), next: ValueId::MIN }
    }

    /// Updates the postings for the new entry of a slot; `None` if the slot becomes free.
    pub(crate) fn update(&mut self, slot: Slot, entry: Option<&Arc<Entry>>) {
        let texts = &self.postings.texts;
        let old = || self.values.in_slot(slot).filter_map(|value| text(texts, value)).map(|text| &**text);
        if entry.is_some_and(|entry| self.postings.handle.certainly_has_values(entry, old())) {
            return;
        }
        let new = entry.map(|entry| self.postings.handle.values(entry)).unwrap_or_default();
        if old().eq(new.iter().map(String::as_str)) {
            return;
        }
        for value in self.values.in_slot(slot) {
            if self.postings.remove(Posting { value, slot }) {
                self.free.push(value);
            }
        }
        let new: Vec<ValueId> = new.iter().map(|value| self.value_id(value)).collect();
        for value in &new {
            self.postings.add(Posting { value: *value, slot });
        }
        self.values.set(slot, &new);
    }

    /// Returns the id of a value, assigning one if the value is new.
    fn value_id(&mut self, value: &str) -> ValueId {
        if let Some(existing) = self.postings.find(value) {
            return existing;
        }
        let value_id = self.free.pop().unwrap_or_else(|| {
            let next = self.next.saturating_add(1);
            std::mem::replace(&mut self.next, next)
        });
        self.postings.texts.set(value_id.get() as usize, Some(value.into()));
        self.postings.ids.add(hash(value.as_bytes()), value_id.get());
        value_id
    }

    /// Checks the index against its rule.
    ///
    /// # Panics
    ///
    /// If the index differs from the values that the rule returns for the objects.
    pub(crate) fn check_invariants(&self, objects: &Objects) {
        let Postings { handle, sorted, texts, ids } = &self.postings;
        let name = handle.name();
        let mut expected = Vec::new();
        for (slot, entry) in objects.slots().filter_map(|slot| Some((slot, objects.at(slot)?))) {
            let expected_values = handle.values(entry);
            let stored = self.values.in_slot(slot).filter_map(|value| text(texts, value));
            assert!(
                stored.map(|text| &**text).eq(&expected_values),
                "index {name}: the stored values differ from the rule's"
            );
            expected.extend(expected_values.into_iter().map(|value| (value, slot)));
        }
        expected.sort_unstable();
        let text_of = |posting: &Posting| text(texts, posting.value).map_or("", |text| &**text).to_owned();
        let mut postings: Vec<_> = sorted.iter().map(|posting| (text_of(posting), posting.slot)).collect();
        postings.sort_unstable();
        assert_eq!(postings, expected, "index {name}: the postings differ from the rule's values");
        sorted.check_invariants(Ord::cmp);
        self.values.check_invariants(sorted.len());

        expected.dedup_by(|left, right| left.0 == right.0);
        let assigned = (1..self.next.get()).filter_map(ValueId::new);
        let (used, free): (Vec<_>, Vec<_>) = assigned.partition(|value_id| text(texts, *value_id).is_some());
        assert_eq!(used.len(), expected.len(), "index {name}: each value has one id");
        assert_eq!(ids.len(), used.len(), "index {name}: each id is in the hash table");
        let found = expected.iter().filter_map(|(value, _)| self.postings.find(value)).count();
        assert_eq!(found, expected.len(), "index {name}: the hash table finds each value");
        let mut recorded = self.free.clone();
        recorded.sort_unstable();
        assert_eq!(free, recorded, "index {name}: every assigned id is used or free");
    }
}

/// The values of the object in each slot, ordered by text.
///
/// Most objects have one value, so the first is stored inline and further ones in a map.
#[derive(Debug, Default)]
struct Values {
    firsts: Vec<Option<ValueId>>,
    /// The values after the first. Invariant: contains only objects with more than one value.
    others: BTreeMap<Slot, Box<[ValueId]>>,
}

impl Values {
    /// Returns the values of the object in a slot.
    fn in_slot(&self, slot: Slot) -> impl Iterator<Item = ValueId> {
        let first = self.firsts.get(slot as usize).copied().flatten();
        let others = if self.others.is_empty() { None } else { self.others.get(&slot) };
        first.into_iter().chain(others.into_iter().flatten().copied())
    }

    fn set(&mut self, slot: Slot, values: &[ValueId]) {
        let at = slot as usize;
        if self.firsts.len() <= at {
            self.firsts.resize(at + 1, None);
        }
        self.firsts[at] = values.first().copied();
        match values {
            [] | [_] => drop(self.others.remove(&slot)),
            [_, others @ ..] => drop(self.others.insert(slot, others.into())),
        }
    }

    /// Checks that there are `count` values.
    ///
    /// # Panics
    ///
    /// If the number of values differs or an invariant is violated.
    fn check_invariants(&self, count: usize) {
        assert!(
            self.others.values().all(|others| !others.is_empty()),
            "further values are stored only if there are any"
        );
        let others: usize = self.others.values().map(|others| others.len()).sum();
        assert_eq!(self.firsts.iter().flatten().count() + others, count, "every value has one posting");
    }
}
