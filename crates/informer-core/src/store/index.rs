//! Indexes: from a value to the objects that have it.
//!
//! An index is a rule (a field path, a label, or a closure) and, in each snapshot, a sorted sequence of (value, slot). It holds slots, not
//! objects: an update that leaves the values alone does not touch it. It holds each value once, under a number, however many objects have it. A
//! rule that panics is caught and counted, and the object has no values in that index (C9); nothing else notices.

use super::objects::{Objects, Slot};
use super::pages::PagedVec;
use super::sorted::SortedSeq;
use crate::error::ParseError;
use crate::object::{Entry, Object};
use crate::wire::FieldPath;
use std::cmp::Ordering as Order;
use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
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
    Field(Result<FieldPath, ParseError>),
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
    pub fn from_fn<K, V>(name: &str, values: impl Fn(&Object<K>) -> V + Send + Sync + 'static) -> Self
    where
        V: IntoIterator<Item = String>,
    {
        let rule = move |entry: &Arc<Entry>| values(&Object::new(Arc::clone(entry))).into_iter().collect();
        Self { name: name.into(), by: By::Rule(Box::new(rule)) }
    }

    /// The handle through which the index is asked.
    pub fn build(self) -> Result<IndexHandle, ParseError> {
        if let By::Field(Err(error)) = &self.by {
            return Err(error.clone());
        }
        Ok(IndexHandle(Arc::new(Shared { index: self, panics: AtomicU64::new(0) })))
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
    panics: AtomicU64,
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
    pub fn panics(&self) -> u64 {
        self.0.panics.load(Ordering::Relaxed)
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
    fn still_has<'a>(&self, entry: &Entry, values: impl Iterator<Item = &'a str>) -> bool {
        let mut rest = values;
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
                self.0.panics.fetch_add(1, Ordering::Relaxed);
                Vec::new()
            }),
        };
        values.sort_unstable();
        values.dedup();
        values
    }
}

/// The number of a value, for as long as an object has it.
type Number = NonZeroU32;

/// The texts of the values, by number. They are compared far more often than they change, so on larger pages; where each object has a value of
/// its own, adding one copies such a page.
type Texts = PagedVec<Option<Arc<str>>, 32>;

/// Postings in a leaf: few enough to be copied at once.
const POSTINGS: usize = 64;

/// One value of one object. Orders by the value's text, then by slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Posting {
    value: Number,
    slot: Slot,
}

impl Posting {
    fn text(self, texts: &Texts) -> &str {
        text(texts, self.value).map_or("", |text| text)
    }

    fn compare(self, other: Self, texts: &Texts) -> Order {
        let by_text =
            if self.value == other.value { Order::Equal } else { self.text(texts).cmp(other.text(texts)) };
        by_text.then(self.slot.cmp(&other.slot))
    }
}

fn text(texts: &Texts, value: Number) -> Option<&Arc<str>> {
    texts.get(value.get() as usize)?.as_ref()
}

/// The published part of an index: what readers see.
#[derive(Clone)]
pub(crate) struct Postings {
    pub(crate) handle: IndexHandle,
    sorted: SortedSeq<Posting, POSTINGS>,
    /// Invariant: the texts of exactly the values that occur, each once.
    texts: Texts,
}

impl Postings {
    /// The slots of the objects with this value.
    pub(crate) fn slots(&self, value: &str) -> impl Iterator<Item = Slot> {
        let mut postings = self.sorted.from(|posting| posting.text(&self.texts) < value).peekable();
        let first = postings.peek().filter(|posting| posting.text(&self.texts) == value);
        let wanted = first.map(|posting| posting.value);
        postings.take_while(move |posting| Some(posting.value) == wanted).map(|posting| posting.slot)
    }

    /// The values, in order. Each costs one look-up, however many keys it has.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Arc<str>> {
        let mut next = self.sorted.first_from(|_| false);
        std::iter::from_fn(move || {
            let value = text(&self.texts, next?.value)?;
            next = self.sorted.first_from(|posting| posting.text(&self.texts) <= &**value);
            Some(value)
        })
    }

    /// The number of a value, if an object has it.
    fn find(&self, value: &str) -> Option<Number> {
        let found = self.sorted.first_from(|posting| posting.text(&self.texts) < value)?;
        (found.text(&self.texts) == value).then_some(found.value)
    }

    fn add(&mut self, posting: Posting) {
        self.sorted.insert(posting, |known| known.compare(posting, &self.texts));
    }

    /// Takes a posting out; returns whether no object has its value any more.
    fn remove(&mut self, posting: Posting) -> bool {
        let Self { sorted, texts, .. } = self;
        sorted.remove(|known| known.compare(posting, texts));
        let first = Posting { slot: 0, ..posting };
        let next = sorted.first_from(|known| known.compare(first, texts).is_lt());
        let is_last = next.is_none_or(|next| next.value != posting.value);
        if is_last {
            // Until here the others were compared with it.
            texts.set(posting.value.get() as usize, None);
        }
        is_last
    }
}

impl fmt::Debug for Postings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} postings of {:?}", self.sorted.len(), self.handle.0.index)
    }
}

/// An index as the writer keeps it: the postings, and what each object contributed to them.
#[derive(Debug)]
pub(crate) struct IndexWriter {
    pub(crate) postings: Postings,
    /// Invariant: `postings` holds exactly these pairs.
    values: Values,
    /// Numbers that were given out and belong to no value any more.
    free: Vec<Number>,
    /// The first number that was never given out.
    next: Number,
}

impl IndexWriter {
    pub(crate) fn new(handle: IndexHandle) -> Self {
        let postings = Postings { handle, sorted: SortedSeq::default(), texts: Texts::default() };
        Self { postings, values: Values::default(), free: Vec::new(), next: Number::MIN }
    }

    /// Takes in what is in a slot now.
    pub(crate) fn update(&mut self, slot: Slot, entry: Option<&Arc<Entry>>) {
        let texts = &self.postings.texts;
        let old = || self.values.of(slot).filter_map(|value| text(texts, value)).map(|text| &**text);
        if entry.is_some_and(|entry| self.postings.handle.still_has(entry, old())) {
            return;
        }
        let new = entry.map(|entry| self.postings.handle.values(entry)).unwrap_or_default();
        if old().eq(new.iter().map(String::as_str)) {
            return;
        }
        for value in self.values.of(slot) {
            if self.postings.remove(Posting { value, slot }) {
                self.free.push(value);
            }
        }
        let new: Vec<Number> = new.iter().map(|value| self.number(value)).collect();
        for value in &new {
            self.postings.add(Posting { value: *value, slot });
        }
        self.values.set(slot, &new);
    }

    /// The number of a value, which may be a new one.
    fn number(&mut self, value: &str) -> Number {
        if let Some(known) = self.postings.find(value) {
            return known;
        }
        let number = self.free.pop().unwrap_or_else(|| {
            let next = self.next.saturating_add(1);
            std::mem::replace(&mut self.next, next)
        });
        self.postings.texts.set(number.get() as usize, Some(value.into()));
        number
    }

    /// Panics if the index is not what its rule makes of the objects.
    pub(crate) fn check_invariants(&self, objects: &Objects) {
        let Postings { handle, sorted, texts } = &self.postings;
        let name = handle.name();
        let mut expected = Vec::new();
        for (slot, entry) in objects.slots().filter_map(|slot| Some((slot, objects.at(slot)?))) {
            let wanted = handle.values(entry);
            let known = self.values.of(slot).filter_map(|value| text(texts, value));
            assert!(known.map(|text| &**text).eq(&wanted), "index {name}: values and rule differ");
            expected.extend(wanted.into_iter().map(|value| (value, slot)));
        }
        expected.sort_unstable();
        let postings = sorted.iter().map(|posting| (posting.text(texts), posting.slot));
        let expected_pairs = expected.iter().map(|(value, slot)| (value.as_str(), *slot));
        assert!(postings.eq(expected_pairs), "index {name} is not what its rule says");
        sorted.check_invariants(|left, right| left.compare(*right, texts));
        self.values.check_invariants(sorted.len());

        expected.dedup_by(|left, right| left.0 == right.0);
        let given = (1..self.next.get()).filter_map(Number::new);
        let (taken, free): (Vec<_>, Vec<_>) = given.partition(|number| text(texts, *number).is_some());
        assert_eq!(taken.len(), expected.len(), "index {name}: each value has one number");
        let mut known = self.free.clone();
        known.sort_unstable();
        assert_eq!(free, known, "index {name}: numbers are taken or free");
    }
}

/// The values of the object in each slot, in order of their texts. Most objects have one, so the first has its place and the others an
/// extra one.
#[derive(Debug, Default)]
struct Values {
    firsts: Vec<Option<Number>>,
    /// The values behind the first. Invariant: only of objects that have such.
    others: BTreeMap<Slot, Box<[Number]>>,
}

impl Values {
    fn of(&self, slot: Slot) -> impl Iterator<Item = Number> {
        let first = self.firsts.get(slot as usize).copied().flatten();
        let others = if self.others.is_empty() { None } else { self.others.get(&slot) };
        first.into_iter().chain(others.into_iter().flatten().copied())
    }

    fn set(&mut self, slot: Slot, values: &[Number]) {
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

    /// Panics unless there are this many.
    fn check_invariants(&self, count: usize) {
        assert!(
            self.others.values().all(|others| !others.is_empty()),
            "others have a place if there are any"
        );
        let others: usize = self.others.values().map(|others| others.len()).sum();
        assert_eq!(self.firsts.iter().flatten().count() + others, count, "values and postings agree");
    }
}
