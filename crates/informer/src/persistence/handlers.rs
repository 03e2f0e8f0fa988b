//! The tables of durable handlers.
//!
//! | table | key | value |
//! |---|---|---|
//! | `handlers` | length of the name (2 bytes), name | when it was used last: the number of processes that had used the cache (8 bytes), and for how many seconds (8 bytes) |
//! | `unfinished` | length of the name (2 bytes), name, key | nothing: the controller has to reconcile this key, or every key if it is empty |
//! | `differences` | length of the name (2 bytes), name, key of the object | what the handler knows of the saved object (1 byte), whether it has acknowledged an earlier state (1 byte), the number of other states that it may have received (2 bytes), then records with their lengths (4 bytes): these states, and the states of objects that are gone |
//!
//! Each value begins with a CRC-32 of the key and the rest of the value (4 bytes).

use super::file::AnyError;
use super::knowledge::{Difference, Differences, ReceivedStates, SavedState};
use super::usage::Usage;
use imbl::OrdSet;
use imbl::ordset::DiffItem;
use informer_core::image::{RecordDecoder, RecordEncoder, checksum};
use informer_core::reflector::Config;
use informer_core::{Entry, Key};
use redb::{ReadTransaction, ReadableTable as _, TableDefinition, TableError, WriteTransaction};
use std::collections::BTreeMap;
use std::sync::Arc;

const HANDLERS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("handlers");
const UNFINISHED: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("unfinished");
const DIFFERENCES: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("differences");

const ACKNOWLEDGED: u8 = 0;
const UNKNOWN: u8 = 1;
const RECEIVED: u8 = 2;
const RECEIVED_EARLIER: u8 = 3;

/// The durable handlers of a file, by name.
pub(crate) type Handlers = BTreeMap<Arc<str>, SavedHandler>;

/// What is saved of a durable handler.
#[derive(Debug, Clone, Default)]
pub(crate) struct SavedHandler {
    /// When it was used last.
    pub(crate) last_used: Usage,
    pub(crate) differences: Arc<Differences>,
    pub(crate) unfinished: Unfinished,
}

/// The keys that a controller has to reconcile.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Unfinished {
    /// Whether the keys of all objects have to be reconciled: it is not known which of them are finished.
    pub(crate) all: bool,
    /// Other keys, also of objects that do not exist. Clones share their contents, and many differ in few keys.
    pub(crate) keys: OrdSet<Key>,
}

impl Unfinished {
    fn is_same(&self, other: &Self) -> bool {
        self.all == other.all && (self.keys.ptr_eq(&other.keys) || self.keys == other.keys)
    }

    /// Adds a stored key. A key that no object can have stands for all of them, too.
    fn insert(&mut self, key: &[u8]) {
        match Key::from_bytes(key) {
            Some(key) => drop(self.keys.insert(key)),
            None => self.all = true,
        }
    }

    /// Returns the rows that differ, as keys of objects, and whether each is to be written or removed. An empty key
    /// stands for the keys of all objects.
    fn changed_rows<'a>(&'a self, after: &'a Self) -> impl Iterator<Item = (&'a [u8], bool)> {
        let all = (self.all != after.all).then_some((&[][..], after.all));
        let keys = (!self.keys.ptr_eq(&after.keys)).then(|| self.keys.diff(&after.keys));
        let keys = keys.into_iter().flatten().map(|item| match item {
            DiffItem::Add(key) => (key.as_bytes(), true),
            DiffItem::Remove(key) => (key.as_bytes(), false),
        });
        all.into_iter().chain(keys)
    }
}

impl SavedHandler {
    fn is_same(&self, other: &Self) -> bool {
        self.last_used == other.last_used
            && self.unfinished.is_same(&other.unfinished)
            && are_same_differences(&self.differences, &other.differences)
    }
}

/// Returns the approximate size of the handlers in bytes.
pub(super) fn bytes(handlers: &Handlers) -> usize {
    let differences = handlers.values().flat_map(|handler| handler.differences.values());
    differences.map(|difference| difference.bytes()).sum()
}

fn are_same_differences(left: &Arc<Differences>, right: &Arc<Differences>) -> bool {
    Arc::ptr_eq(left, right)
        || left.len() == right.len()
            && left.iter().zip(&**right).all(|(left, right)| left.0 == right.0 && is_same(left.1, right.1))
}

fn is_same(left: &Arc<Difference>, right: &Arc<Difference>) -> bool {
    Arc::ptr_eq(left, right) || left.is_same(right)
}

/// Returns whether two sets of handlers are stored in the same way.
pub(crate) fn are_same(left: &Handlers, right: &Handlers) -> bool {
    left.len() == right.len()
        && left.iter().all(|(name, left)| right.get(name).is_some_and(|right| left.is_same(right)))
}

/// Reads the handlers of a file.
pub(super) fn read(
    transaction: &ReadTransaction,
    config: &Config,
    decoder: &RecordDecoder,
) -> Result<Handlers, AnyError> {
    let mut handlers = Handlers::new();
    match transaction.open_table(HANDLERS) {
        Ok(names) => {
            for row in names.iter()? {
                let (row_key, value) = row?;
                let (name, _) = split_row_key(row_key.value()).ok_or("malformed")?;
                let (uses, seconds) =
                    checked(row_key.value(), value.value())?.split_first_chunk().ok_or("malformed")?;
                let seconds = u64::from_le_bytes(seconds.try_into()?);
                let last_used = Usage { uses: u64::from_le_bytes(*uses), seconds };
                handlers.insert(name.into(), SavedHandler { last_used, ..SavedHandler::default() });
            }
        }
        Err(TableError::TableDoesNotExist(_)) => return Ok(handlers),
        Err(error) => return Err(error.into()),
    }
    for row in transaction.open_table(UNFINISHED)?.iter()? {
        let (row_key, value) = row?;
        checked(row_key.value(), value.value())?;
        let (name, key) = split_row_key(row_key.value()).ok_or("malformed")?;
        handlers.get_mut(name).ok_or("malformed")?.unfinished.insert(key);
    }
    for row in transaction.open_table(DIFFERENCES)?.iter()? {
        let (row_key, value) = row?;
        let (name, key) = split_row_key(row_key.value()).ok_or("malformed")?;
        let value = checked(row_key.value(), value.value())?;
        let difference = decode(value, |record| Ok(config.restore_entry(decoder.decode(key, record)?)))?;
        let key = Key::from_bytes(key).ok_or("malformed")?;
        let handler = handlers.get_mut(name).ok_or("malformed")?;
        Arc::make_mut(&mut handler.differences).insert(key, Arc::new(difference));
    }
    Ok(handlers)
}

/// Writes what differs between the handlers in the file and these.
pub(super) fn write(
    transaction: &WriteTransaction,
    saved: &Handlers,
    handlers: &Handlers,
    encoder: &mut RecordEncoder,
) -> Result<(), redb::Error> {
    if saved.is_empty() && handlers.is_empty() {
        return Ok(());
    }
    let mut names = transaction.open_table(HANDLERS)?;
    let mut rows = transaction.open_table(DIFFERENCES)?;
    let mut unfinished = transaction.open_table(UNFINISHED)?;
    let none = SavedHandler::default();
    for name in saved.keys().chain(handlers.keys()) {
        let (before, after) = (saved.get(name), handlers.get(name));
        let row = row_key(name, &[]);
        match (before, after) {
            (Some(before), Some(after)) if before.last_used == after.last_used => {}
            (_, Some(after)) => {
                let Usage { uses, seconds } = after.last_used;
                let value = [uses.to_le_bytes(), seconds.to_le_bytes()].concat();
                names.insert(&*row, &*with_checksum(&row, &value))?;
            }
            (_, None) => drop(names.remove(&*row)?),
        }
        let (before, after) = (before.unwrap_or(&none), after.unwrap_or(&none));
        for (key, is_unfinished) in before.unfinished.changed_rows(&after.unfinished) {
            let row = row_key(name, key);
            if is_unfinished {
                unfinished.insert(&*row, &*with_checksum(&row, &[]))?;
            } else {
                unfinished.remove(&*row)?;
            }
        }
        let (before, after) = (&before.differences, &after.differences);
        if Arc::ptr_eq(before, after) {
            continue;
        }
        for key in before.keys().filter(|key| !after.contains_key(key)) {
            rows.remove(&*row_key(name, key.as_bytes()))?;
        }
        let mut value = Vec::new();
        for (key, difference) in &**after {
            if before.get(key).is_none_or(|before| !is_same(before, difference)) {
                encode(difference, encoder, &mut value);
                let row = row_key(name, key.as_bytes());
                rows.insert(&*row, &*with_checksum(&row, &value))?;
            }
        }
    }
    Ok(())
}

fn with_checksum(row_key: &[u8], value: &[u8]) -> Vec<u8> {
    [&checksum(row_key, value).to_le_bytes(), value].concat()
}

/// Returns a value without its checksum, which is verified.
fn checked<'a>(row_key: &[u8], value: &'a [u8]) -> Result<&'a [u8], AnyError> {
    let (stored, value) = value.split_first_chunk().ok_or("malformed")?;
    if u32::from_le_bytes(*stored) != checksum(row_key, value) {
        return Err("wrong checksum of a durable handler".into());
    }
    Ok(value)
}

fn row_key(name: &str, key: &[u8]) -> Vec<u8> {
    let length = u16::try_from(name.len()).unwrap_or(u16::MAX).to_be_bytes();
    [&length, name.as_bytes(), key].concat()
}

fn split_row_key(row_key: &[u8]) -> Option<(&str, &[u8])> {
    let (length, rest) = row_key.split_first_chunk()?;
    let (name, key) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
    Some((std::str::from_utf8(name).ok()?, key))
}

fn encode(difference: &Difference, encoder: &mut RecordEncoder, value: &mut Vec<u8>) {
    value.clear();
    let none = ReceivedStates::default();
    let (tag, states) = match &difference.saved {
        SavedState::Acknowledged => (ACKNOWLEDGED, &none),
        SavedState::Unknown => (UNKNOWN, &none),
        SavedState::Received(states) if states.includes_saved => (RECEIVED, states),
        SavedState::Received(states) => (RECEIVED_EARLIER, states),
    };
    // Of more states, the last ones are saved.
    let others = &states.others[states.others.len().saturating_sub(usize::from(u16::MAX))..];
    value.extend([tag, u8::from(states.acknowledged.is_some())]);
    value.extend(u16::try_from(others.len()).unwrap_or_default().to_le_bytes());
    let mut record = Vec::new();
    for entry in states.acknowledged.iter().chain(others).chain(&difference.gone) {
        encoder.encode(entry, &mut record);
        value.extend(u32::try_from(record.len()).unwrap_or(u32::MAX).to_le_bytes());
        value.extend_from_slice(&record);
    }
}

fn decode(
    value: &[u8],
    entry: impl Fn(&[u8]) -> Result<Arc<Entry>, AnyError>,
) -> Result<Difference, AnyError> {
    let ([tag, acknowledged, others @ ..], mut rest) = value.split_first_chunk::<4>().ok_or("malformed")?;
    let mut entries = Vec::new();
    while let Some((length, after)) = rest.split_first_chunk() {
        let length = usize::try_from(u32::from_le_bytes(*length))?;
        let (record, after) = after.split_at_checked(length).ok_or("malformed")?;
        entries.push(entry(record)?);
        rest = after;
    }
    let (acknowledged, others) = (usize::from(*acknowledged), usize::from(u16::from_le_bytes(*others)));
    if !rest.is_empty() || acknowledged > 1 || entries.len() < acknowledged + others {
        return Err("malformed".into());
    }
    let gone = entries.split_off(acknowledged + others);
    let others = entries.split_off(acknowledged);
    let saved = match *tag {
        ACKNOWLEDGED => SavedState::Acknowledged,
        UNKNOWN => SavedState::Unknown,
        RECEIVED | RECEIVED_EARLIER => {
            let includes_saved = *tag == RECEIVED;
            SavedState::Received(ReceivedStates { acknowledged: entries.pop(), others, includes_saved })
        }
        _ => return Err("malformed".into()),
    };
    Ok(Difference { gone, saved })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn unfinished(keys: &BTreeSet<u16>, all: bool) -> Unfinished {
        Unfinished { all, keys: keys.iter().map(|key| Key::cluster(&key.to_string())).collect() }
    }

    fn rows(unfinished: &Unfinished) -> BTreeSet<Vec<u8>> {
        let all = unfinished.all.then(Vec::new);
        unfinished.keys.iter().map(|key| key.as_bytes().to_vec()).chain(all).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// The rows of a file lead from one set to any later one, whether or not they share their contents.
        #[test]
        fn changed_rows_lead_to_the_other_set(
            before in prop::collection::btree_set(0..4_000_u16, 0..3_000),
            changed in prop::collection::vec(0..4_000_u16, 0..200),
            other in prop::collection::btree_set(0..4_000_u16, 0..3_000),
            all in any::<(bool, bool)>(),
        ) {
            let before = unfinished(&before, all.0);
            let mut shared = Unfinished { all: all.1, ..before.clone() };
            for key in changed {
                let key = Key::cluster(&key.to_string());
                if shared.keys.remove(&key).is_none() {
                    shared.keys.insert(key);
                }
            }
            for after in [shared, unfinished(&other, all.1)] {
                let mut stored = rows(&before);
                for (key, is_unfinished) in before.changed_rows(&after) {
                    let is_changed =
                        if is_unfinished { stored.insert(key.to_vec()) } else { stored.remove(key) };
                    prop_assert!(is_changed);
                }
                prop_assert_eq!(&stored, &rows(&after));
                prop_assert_eq!(before.is_same(&after), stored == rows(&before));
            }
        }
    }
}
