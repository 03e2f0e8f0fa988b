//! Indexes: from a value to the objects that have it.
//!
//! An index is a rule (a field path, a label, or a closure) and, in each snapshot, an ordered set of (value, slot). It holds slots, not
//! objects: an update that leaves the values alone does not touch it. A rule that panics is caught and counted, and the
//! object has no values in that index (C9); nothing else notices.

use super::objects::{Objects, Slot};
use crate::object::{Entry, Object};
use crate::wire::{FieldPath, FieldPathError};
use imbl::OrdSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

type Rule = dyn Fn(&Arc<Entry>) -> Vec<String> + Send + Sync;

/// What to index objects by.
pub struct Index {
    name: Box<str>,
    by: By,
}

enum By {
    Field(Result<FieldPath, FieldPathError>),
    Label,
    Rule(Box<Rule>),
}

impl Index {
    /// By the value of a field, as in `spec.nodeName`. Objects are not decoded for it.
    pub fn field(path: &str) -> Self {
        Self { name: path.into(), by: By::Field(path.parse()) }
    }

    /// By the value of a label.
    pub fn label(name: &str) -> Self {
        Self { name: name.into(), by: By::Label }
    }

    /// By whatever values a closure finds in an object. The name is for messages.
    pub fn by<K, V>(name: &str, values: impl Fn(&Object<K>) -> V + Send + Sync + 'static) -> Self
    where
        V: IntoIterator<Item = String>,
    {
        let rule = move |entry: &Arc<Entry>| values(&Object::new(Arc::clone(entry))).into_iter().collect();
        Self { name: name.into(), by: By::Rule(Box::new(rule)) }
    }

    /// The handle through which the index is asked.
    pub fn into_handle(self) -> Result<IndexHandle, FieldPathError> {
        if let By::Field(Err(error)) = &self.by {
            return Err(error.clone());
        }
        Ok(IndexHandle(Arc::new(Shared { index: self, failures: AtomicU64::new(0) })))
    }
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = match &self.by {
            By::Field(_) => "field",
            By::Label => "label",
            By::Rule(_) => "closure",
        };
        write!(f, "index by {by} {}", self.name)
    }
}

#[derive(Debug)]
struct Shared {
    index: Index,
    failures: AtomicU64,
}

/// An index that was added to a cache. Look-ups through it cannot fail: until the index is built they walk the objects instead.
#[derive(Debug, Clone)]
pub struct IndexHandle(Arc<Shared>);

impl IndexHandle {
    /// The field path, the label, or the name that was given.
    pub fn name(&self) -> &str {
        &self.0.index.name
    }

    /// How often the closure panicked. Those objects have no values in this index.
    pub fn failures(&self) -> u64 {
        self.0.failures.load(Ordering::Relaxed)
    }

    /// Whether both ask for the same: one handle, or the same field or label.
    pub(crate) fn is_same_rule(&self, other: &Self) -> bool {
        match (&self.0.index.by, &other.0.index.by) {
            (By::Field(Ok(left)), By::Field(Ok(right))) => left == right,
            (By::Label, By::Label) => self.name() == other.name(),
            _ => Arc::ptr_eq(&self.0, &other.0),
        }
    }

    /// Whether an object has exactly these values, as far as that shows at a glance; most updates leave them alone.
    fn still_has(&self, entry: &Entry, values: &[Arc<str>]) -> bool {
        let mut rest = values.iter().map(|value| &**value);
        match &self.0.index.by {
            By::Field(Ok(path)) => {
                let mut equal = true;
                entry.each_value(path, &mut |value| equal &= rest.next() == Some(value));
                equal && rest.next().is_none()
            }
            By::Label => rest.eq(entry.head().labels.get(self.name())),
            By::Field(Err(_)) | By::Rule(_) => false,
        }
    }

    /// The values of an object, sorted, each once.
    pub(crate) fn values(&self, entry: &Arc<Entry>) -> Vec<String> {
        let mut values = match &self.0.index.by {
            By::Field(Ok(path)) => entry.values_at(path),
            By::Field(Err(_)) => Vec::new(),
            By::Label => entry.head().labels.get(self.name()).map(ToOwned::to_owned).into_iter().collect(),
            By::Rule(rule) => catch_unwind(AssertUnwindSafe(|| rule(entry))).unwrap_or_else(|_| {
                self.0.failures.fetch_add(1, Ordering::Relaxed);
                Vec::new()
            }),
        };
        values.sort_unstable();
        values.dedup();
        values
    }
}

/// One value of one object. Orders by value, then by slot.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Posting {
    value: Arc<str>,
    slot: Slot,
}

impl Posting {
    /// Where the postings of `value` begin.
    fn first(value: &str) -> Self {
        Self { value: value.into(), slot: 0 }
    }
}

/// The published part of an index: what readers see.
#[derive(Debug, Clone)]
pub(crate) struct Postings {
    pub(crate) handle: IndexHandle,
    set: OrdSet<Posting>,
}

impl Postings {
    /// The slots of the objects with this value.
    pub(crate) fn slots(&self, value: &str) -> impl Iterator<Item = Slot> {
        self.set
            .range(Posting::first(value)..)
            .take_while(move |p| &*p.value == value)
            .map(|posting| posting.slot)
    }

    /// The values, in order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Arc<str>> {
        let mut next = self.set.range(Posting::first("")..).next();
        std::iter::from_fn(move || {
            let value = &next?.value;
            // The smallest text greater than this value; so each value costs one look-up, however many keys it has.
            let behind = format!("{value}\0");
            next = self.set.range(Posting::first(&behind)..).next();
            Some(value)
        })
    }

    fn intern(&self, value: &str) -> Arc<str> {
        match self.set.range(Posting::first(value)..).next() {
            Some(posting) if &*posting.value == value => Arc::clone(&posting.value),
            _ => value.into(),
        }
    }
}

/// An index as the writer keeps it: the postings, and what each object contributed to them.
#[derive(Debug)]
pub(crate) struct IndexWriter {
    pub(crate) postings: Postings,
    /// The values of the object in each slot. Invariant: `postings.set` holds exactly these pairs.
    values: Vec<Box<[Arc<str>]>>,
}

impl IndexWriter {
    pub(crate) fn new(handle: IndexHandle) -> Self {
        Self { postings: Postings { handle, set: OrdSet::new() }, values: Vec::new() }
    }

    /// Takes in what is in a slot now.
    pub(crate) fn update(&mut self, slot: Slot, entry: Option<&Arc<Entry>>) {
        let at = slot as usize;
        let old: &[Arc<str>] = self.values.get(at).map_or(&[], |values| values);
        if entry.is_some_and(|entry| self.postings.handle.still_has(entry, old)) {
            return;
        }
        let new = entry.map(|entry| self.postings.handle.values(entry)).unwrap_or_default();
        if old.iter().map(|value| &**value).eq(new.iter().map(String::as_str)) {
            return;
        }
        if self.values.len() <= at {
            self.values.resize_with(at + 1, Box::default);
        }
        for value in std::mem::take(&mut self.values[at]) {
            self.postings.set.remove(&Posting { value, slot });
        }
        let values: Box<[Arc<str>]> = new.iter().map(|value| self.postings.intern(value)).collect();
        for value in &values {
            self.postings.set.insert(Posting { value: Arc::clone(value), slot });
        }
        self.values[at] = values;
    }

    /// Panics if the index is not what its rule makes of the objects.
    pub(crate) fn check_invariants(&self, objects: &Objects) {
        let mut expected = OrdSet::new();
        for slot in objects.slots() {
            for value in objects.at(slot).map(|entry| self.postings.handle.values(entry)).unwrap_or_default()
            {
                expected.insert(Posting { value: value.into(), slot });
            }
        }
        assert!(
            expected == self.postings.set,
            "index {} is not what its rule says",
            self.postings.handle.name()
        );
        let pairs: usize = self.values.iter().map(|values| values.len()).sum();
        assert_eq!(
            pairs,
            self.postings.set.len(),
            "index {}: values and postings differ",
            self.postings.handle.name()
        );
    }
}
