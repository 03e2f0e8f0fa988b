//! The tables of durable handlers.
//!
//! | table | key | value |
//! |---|---|---|
//! | `handlers` | name | the day on which it was used last, as the number of days since 1970 |
//! | `unfinished` | length of the name (2 bytes), name, key | empty: the controller has to reconcile this key |
//! | `differences` | length of the name (2 bytes), name, key of the object | what the handler knows of the saved object (1 byte), whether it has acknowledged an earlier state (1 byte), the number of other states that it may have received (2 bytes), then records with their lengths (4 bytes): these states, and the objects that are gone |

use super::file::AnyError;
use super::knowledge::{Difference, Differences, ReceivedStates, SavedState};
use informer_core::image::{RecordDecoder, RecordEncoder};
use informer_core::reflector::Config;
use informer_core::{Entry, Key};
use redb::{ReadTransaction, ReadableTable as _, TableDefinition, TableError, WriteTransaction};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const HANDLERS: TableDefinition<'_, &str, u32> = TableDefinition::new("handlers");
const UNFINISHED: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("unfinished");
const DIFFERENCES: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("differences");

const ACKNOWLEDGED: u8 = 0;
const UNKNOWN: u8 = 1;
const RECEIVED: u8 = 2;
const RECEIVED_EARLIER: u8 = 3;

/// The number of days after which a name that is no longer used is forgotten.
const FORGET_AFTER_DAYS: u32 = 30;

/// The durable handlers of a file, by name.
pub(crate) type Handlers = BTreeMap<Arc<str>, SavedHandler>;

/// What is saved of a durable handler.
#[derive(Debug, Clone, Default)]
pub(crate) struct SavedHandler {
    /// The day on which it was used last, as the number of days since 1970.
    pub(crate) used_on: u32,
    pub(crate) differences: Differences,
    /// The keys that its controller has to reconcile.
    pub(crate) unfinished: BTreeSet<Key>,
}

impl SavedHandler {
    /// Returns whether the handler was not used for a long time.
    pub(crate) fn is_forgotten(&self, today: u32) -> bool {
        today.saturating_sub(self.used_on) > FORGET_AFTER_DAYS
    }

    fn is_same(&self, other: &Self) -> bool {
        let (left, right) = (&self.differences, &other.differences);
        self.used_on == other.used_on
            && self.unfinished == other.unfinished
            && left.len() == right.len()
            && left.iter().zip(right).all(|(left, right)| left.0 == right.0 && left.1.is_same(right.1))
    }
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
                let (name, used_on) = row?;
                let handler = SavedHandler { used_on: used_on.value(), ..SavedHandler::default() };
                handlers.insert(name.value().into(), handler);
            }
        }
        Err(TableError::TableDoesNotExist(_)) => return Ok(handlers),
        Err(error) => return Err(error.into()),
    }
    for row in transaction.open_table(UNFINISHED)?.iter()? {
        let (row_key, _) = row?;
        let (name, key) = split_row_key(row_key.value()).ok_or("malformed")?;
        let key = Key::from_bytes(key).ok_or("malformed")?;
        handlers.get_mut(name).ok_or("malformed")?.unfinished.insert(key);
    }
    for row in transaction.open_table(DIFFERENCES)?.iter()? {
        let (row_key, value) = row?;
        let (name, key) = split_row_key(row_key.value()).ok_or("malformed")?;
        let difference =
            decode(value.value(), |record| Ok(config.restore_entry(decoder.decode(key, record)?)))?;
        let key = Key::from_bytes(key).ok_or("malformed")?;
        handlers.get_mut(name).ok_or("malformed")?.differences.insert(key, difference);
    }
    Ok(handlers)
}

/// Writes what differs between the handlers in the file and these.
pub(super) fn write(
    transaction: &WriteTransaction,
    saved: &Handlers,
    handlers: &Handlers,
    encoder: &mut RecordEncoder,
) -> Result<(), AnyError> {
    if saved.is_empty() && handlers.is_empty() {
        return Ok(());
    }
    let mut names = transaction.open_table(HANDLERS)?;
    let mut rows = transaction.open_table(DIFFERENCES)?;
    let mut unfinished = transaction.open_table(UNFINISHED)?;
    let none = SavedHandler::default();
    for name in saved.keys().chain(handlers.keys()) {
        let (before, after) = (saved.get(name), handlers.get(name));
        match (before, after) {
            (Some(before), Some(after)) if before.used_on == after.used_on => {}
            (_, Some(after)) => drop(names.insert(&**name, after.used_on)?),
            (_, None) => drop(names.remove(&**name)?),
        }
        let (before, after) = (before.unwrap_or(&none), after.unwrap_or(&none));
        for key in before.unfinished.difference(&after.unfinished) {
            unfinished.remove(&*row_key(name, key))?;
        }
        for key in after.unfinished.difference(&before.unfinished) {
            unfinished.insert(&*row_key(name, key), &[][..])?;
        }
        let (before, after) = (&before.differences, &after.differences);
        for key in before.keys().filter(|key| !after.contains_key(key)) {
            rows.remove(&*row_key(name, key))?;
        }
        let mut value = Vec::new();
        for (key, difference) in after {
            if before.get(key).is_none_or(|before| !before.is_same(difference)) {
                encode(difference, encoder, &mut value);
                rows.insert(&*row_key(name, key), &*value)?;
            }
        }
    }
    Ok(())
}

fn row_key(name: &str, key: &Key) -> Vec<u8> {
    let length = u16::try_from(name.len()).unwrap_or(u16::MAX).to_be_bytes();
    [&length, name.as_bytes(), key.as_bytes()].concat()
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
