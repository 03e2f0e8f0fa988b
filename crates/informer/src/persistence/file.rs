//! The file of one saved cache: a redb database on checked pages (see `pages`).
//!
//! | table | key | value |
//! |---|---|---|
//! | `meta` | `identity`, `saved-at`, `cluster-uid`, `uses`, `running-seconds` | text |
//! | `positions` | a namespace, or empty for all namespaces | resource version |
//! | `dictionaries` | number, from 1 | zstd dictionary |
//! | `objects` | start of a range of keys | block of records (see `blocks` and `informer_core::image`) |
//! | `unreadable` | namespace, NUL, name | resource version (may be empty), NUL, reason |
//!
//! Invariant: the objects are the state of the cluster at the positions. Each save is one transaction, so this
//! holds after a crash, too. A file without positions was never completely written.
//!
//! A damaged file causes errors, because the database reads only pages whose checksums are right. Should redb panic all
//! the same, that counts as damage.

use super::base::Base;
use super::blocks::{Layout, RowChange, records};
use super::handlers::{self, Handlers};
use super::identity::Identity;
use super::pages::CheckedPages;
use super::storage::{FileId, Storage};
use super::usage::Usage;
use crate::status::ColdStartReason;
use informer_core::image::{RecordDecoder, RecordEncoder};
use informer_core::reflector::Config;
use informer_core::wire::{BodyLocation, ObjectError, UnreadableObject};
use informer_core::{Entry, Key, ResourceVersion, Scope, StoreSnapshot};
use jiff::Timestamp;
use redb::{
    AccessGuard, Builder, Database, DatabaseError, ReadOnlyTable, ReadableDatabase as _, ReadableTable as _,
    StorageError, TableDefinition, TableError, TransactionError, WriteTransaction,
};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

const META: TableDefinition<'_, &str, &str> = TableDefinition::new("meta");
const POSITIONS: TableDefinition<'_, &str, &str> = TableDefinition::new("positions");
const DICTIONARIES: TableDefinition<'_, u32, &[u8]> = TableDefinition::new("dictionaries");
const OBJECTS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("objects");
const UNREADABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("unreadable");

/// Upper bound on the memory of redb's page cache. Rows are read once, and written pages leave it early.
const CACHE_BYTES: usize = 8 << 20;
/// Number of rows that are passed to a decoding thread together.
const ROWS_PER_BATCH: usize = 16;
/// Number of batches that may wait for the decoding threads.
const MAX_QUEUED_BATCHES: usize = 8;
/// Upper bound on the threads that decode: one thread reads blocks for about this many.
const MAX_DECODING_THREADS: usize = 3;

/// An open file.
pub(crate) struct CacheFile {
    database: Database,
    id: Option<FileId>,
    encoder: RecordEncoder,
    layout: Layout,
}

/// The content of a file.
pub(crate) struct Contents {
    pub(crate) saved_at: Timestamp,
    /// The uid of the namespace `kube-system`, if it was known.
    pub(crate) cluster_uid: Option<String>,
    /// For how long the cache had been in use when it was saved.
    pub(crate) usage: Usage,
    pub(crate) positions: BTreeMap<Scope, ResourceVersion>,
    /// In key order.
    pub(crate) entries: Vec<Arc<Entry>>,
    pub(crate) unreadable: Vec<UnreadableObject>,
    /// What the durable handlers have not acknowledged.
    pub(crate) handlers: Handlers,
}

/// What a save writes besides the snapshot.
#[derive(Clone, Copy)]
pub(crate) struct SaveInfo<'a> {
    pub(crate) identity: &'a Identity,
    pub(crate) saved_at: Timestamp,
    pub(crate) cluster_uid: Option<&'a str>,
    pub(crate) usage: Usage,
    /// The durable handlers in the file, and as they are to be saved.
    pub(crate) handlers: (&'a Handlers, &'a Handlers),
}

/// Opens a file and reads its content. If the content cannot be used, the file is set aside. In its place comes the new file
/// of a process that has ended before it could replace the file with it, or an empty one.
///
/// # Errors
///
/// Returns an error if there is no usable file, not even an empty one.
pub(crate) fn open(
    storage: &dyn Storage,
    identity: &Identity,
    config: &Config,
) -> Result<(CacheFile, Result<Contents, ColdStartReason>), ColdStartReason> {
    let inaccessible = |error: io::Error| ColdStartReason::inaccessible(&error);
    let (name, new_name) = (&identity.file_name, identity.replacement_name());
    let mut unusable = None;
    loop {
        let mut existed = storage.id(name).is_some();
        if !existed && storage.id(&new_name).is_some() {
            storage.rename(&new_name, name).map_err(inaccessible)?;
            existed = true;
        }
        let reason = match open_once(storage, name, identity, config) {
            Err(reason @ (ColdStartReason::InUse | ColdStartReason::Inaccessible { .. })) => {
                return Err(reason);
            }
            Ok((_, Err(reason))) if existed && reason.is_failure() => reason,
            Err(reason) if !existed => return Err(reason),
            Err(reason) => reason,
            Ok((file, contents)) => {
                storage.remove(&new_name).map_err(inaccessible)?;
                // Why there is no content, unless the new file has it.
                return Ok((file, contents.map_err(|reason| unusable.unwrap_or(reason))));
            }
        };
        storage.rename(name, &identity.discarded_name()).map_err(inaccessible)?;
        unusable.get_or_insert(reason);
    }
}

type Opened = (CacheFile, Result<Contents, ColdStartReason>);

fn open_once(
    storage: &dyn Storage,
    name: &str,
    identity: &Identity,
    config: &Config,
) -> Result<Opened, ColdStartReason> {
    let open = || {
        let file = storage.open(name).map_err(|error| open_error(&error))?;
        let pages = CheckedPages::open(file)?;
        let is_new = pages.is_new();
        let database = database(pages).map_err(|error| open_error(&error))?;
        let mut decoder = RecordDecoder::new(&config.type_meta, config.retention);
        let mut starts = Vec::new();
        let contents = if is_new {
            Err(ColdStartReason::NothingSaved)
        } else {
            read(&database, identity, config, &mut decoder, &mut starts)
        };
        let id = storage.id(name);
        let layout = Layout::from_rows(starts);
        Ok((CacheFile { database, id, encoder: decoder.encoder(), layout }, contents))
    };
    catch_unwind(AssertUnwindSafe(open))
        .unwrap_or_else(|_| Err(ColdStartReason::damaged("the database panicked")))
}

fn database(pages: CheckedPages) -> Result<Database, DatabaseError> {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES);
    builder.create_with_backend(pages)
}

fn read(
    database: &Database,
    identity: &Identity,
    config: &Config,
    decoder: &mut RecordDecoder,
    starts: &mut Vec<Box<[u8]>>,
) -> Result<Contents, ColdStartReason> {
    let transaction = database.begin_read().map_err(|error| read_error(&error.into()))?;
    let meta = match transaction.open_table(META) {
        Ok(meta) => meta,
        // The first transaction was not committed.
        Err(TableError::TableDoesNotExist(_)) => return Err(ColdStartReason::NothingSaved),
        Err(error) => return Err(read_error(&error.into())),
    };
    let text = |name: &str| match meta.get(name) {
        Ok(value) => Ok(value.map(|value| value.value().to_owned())),
        Err(error) => Err(read_error(&error.into())),
    };
    if let Some(setting) = identity.difference(&text("identity")?.unwrap_or_default()) {
        return Err(ColdStartReason::OtherOptions { setting: setting.into() });
    }
    let saved_at = text("saved-at")?.and_then(|time| time.parse().ok());
    let saved_at = saved_at.ok_or_else(|| ColdStartReason::damaged("the time is malformed"))?;
    let cluster_uid = text("cluster-uid")?;
    let number = |name: &str| {
        let number = text(name)?.and_then(|text| text.parse().ok());
        number.ok_or_else(|| ColdStartReason::damaged("the number of uses is malformed"))
    };
    let usage = Usage { uses: number("uses")?, seconds: number("running-seconds")? };
    read_tables(&transaction, config, decoder, starts)
        .map(|tables| Contents { saved_at, cluster_uid, usage, ..tables })
        .map_err(|error| read_error(&error))
}

fn read_tables(
    transaction: &redb::ReadTransaction,
    config: &Config,
    decoder: &mut RecordDecoder,
    starts: &mut Vec<Box<[u8]>>,
) -> Result<Contents, AnyError> {
    for row in transaction.open_table(DICTIONARIES)?.iter()? {
        decoder.add_dictionary(row?.1.value())?;
    }
    let objects = transaction.open_table(OBJECTS)?;
    let entries = read_objects(&objects, config, decoder, starts)?;
    #[cfg(feature = "compression")]
    if let (Some(compressor), Some(dictionary)) = (&config.compressor, decoder.last_dictionary()) {
        compressor.restore(dictionary, entries.len());
    }
    let mut positions = BTreeMap::new();
    for row in transaction.open_table(POSITIONS)?.iter()? {
        let (scope, version) = row?;
        positions.insert(scope_of(scope.value()), ResourceVersion::new(version.value()));
    }
    let mut unreadable = Vec::new();
    for row in transaction.open_table(UNREADABLE)?.iter()? {
        let (key, value) = row?;
        let (version, reason) = std::str::from_utf8(value.value())?.split_once('\0').ok_or("malformed")?;
        unreadable.push(UnreadableObject {
            key: Some(Key::from_bytes(key.value()).ok_or("malformed")?),
            version: Some(version).filter(|version| !version.is_empty()).map(ResourceVersion::new),
            location: BodyLocation { index: 0, byte: 0 },
            error: ObjectError::Saved(reason.into()),
        });
    }
    let handlers = handlers::read(transaction, config, decoder)?;
    let (saved_at, cluster_uid, usage) = (Timestamp::UNIX_EPOCH, None, Usage::default());
    Ok(Contents { saved_at, cluster_uid, usage, positions, entries, unreadable, handlers })
}

/// Reads the table of objects: this thread reads blocks, and others decode them meanwhile. Most of the time is spent
/// on the memory of the objects, which several threads get faster.
fn read_objects(
    table: &ReadOnlyTable<&'static [u8], &'static [u8]>,
    config: &Config,
    decoder: &RecordDecoder,
    starts: &mut Vec<Box<[u8]>>,
) -> Result<Vec<Arc<Entry>>, AnyError> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_DECODING_THREADS);
    std::thread::scope(|scope| {
        let (sender, receiver) = sync_channel::<Batch>(MAX_QUEUED_BATCHES);
        let receiver = Arc::new(Mutex::new(receiver));
        let decode = |receiver: Arc<Mutex<Receiver<Batch>>>| {
            move || {
                let next = || receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
                let mut done = Vec::new();
                while let Ok((number, rows)) = next() {
                    let mut entries = Vec::new();
                    for (_, block) in &rows {
                        decode_block(block.value(), config, decoder, &mut entries)?;
                    }
                    done.push((number, entries));
                }
                Ok::<_, AnyError>(done)
            }
        };
        let decoding: Vec<_> = (0..threads).map(|_| scope.spawn(decode(Arc::clone(&receiver)))).collect();
        // Sending fails when all of them have failed.
        drop(receiver);
        let mut rows = table.range::<&[u8]>(..)?;
        for number in 0.. {
            let batch = rows.by_ref().take(ROWS_PER_BATCH).collect::<Result<Vec<Row>, _>>()?;
            starts.extend(batch.iter().map(|(start, _)| start.value().into()));
            if batch.is_empty() || sender.send((number, batch)).is_err() {
                break;
            }
        }
        drop(sender);
        let mut batches = Vec::new();
        for thread in decoding {
            batches.append(&mut thread.join().map_err(|_| "decoding panicked")??);
        }
        in_order(batches)
    })
}

/// Joins the entries of all batches.
fn in_order(mut batches: Vec<(usize, Vec<Arc<Entry>>)>) -> Result<Vec<Arc<Entry>>, AnyError> {
    batches.sort_unstable_by_key(|(number, _)| *number);
    let entries: Vec<_> = batches.into_iter().flat_map(|(_, entries)| entries).collect();
    if entries.is_sorted_by(|left, right| left.key() < right.key()) {
        Ok(entries)
    } else {
        Err("the objects are not in order".into())
    }
}

/// The number of a batch, and its rows.
type Batch = (usize, Vec<Row>);
type Row = (AccessGuard<'static, &'static [u8]>, AccessGuard<'static, &'static [u8]>);
pub(crate) type AnyError = Box<dyn std::error::Error + Send + Sync>;

fn decode_block(
    block: &[u8],
    config: &Config,
    decoder: &RecordDecoder,
    entries: &mut Vec<Arc<Entry>>,
) -> Result<(), AnyError> {
    for record in records(block) {
        let (key, record) = record.ok_or("a block is malformed")?;
        entries.push(config.restore_entry(decoder.decode(key, record)?));
    }
    Ok(())
}

impl CacheFile {
    /// Creates a file.
    pub(super) fn create(storage: &dyn Storage, name: &str, config: &Config) -> Result<Self, AnyError> {
        let file = storage.open(name).map_err(redb::Error::from)?;
        let pages = CheckedPages::open(file).map_err(|reason| reason.to_string())?;
        let database = database(pages).map_err(redb::Error::from)?;
        let encoder = RecordDecoder::new(&config.type_meta, config.retention).encoder();
        Ok(Self { database, id: None, encoder, layout: Layout::default() })
    }

    /// Returns whether this is still the file with its name, not one that was deleted or replaced.
    pub(crate) fn is_current(&self, storage: &dyn Storage, identity: &Identity) -> bool {
        self.id.is_some() && storage.id(&identity.file_name) == self.id
    }

    /// Saves a snapshot in one transaction, by writing its differences from `base`. After an error the file
    /// must be opened again.
    ///
    /// # Errors
    ///
    /// Returns an error if the database cannot write; the file then contains the previous state or this one.
    pub(crate) fn save(
        &mut self,
        base: &Base,
        snapshot: &StoreSnapshot,
        info: &SaveInfo<'_>,
    ) -> Result<u64, redb::Error> {
        let mut transaction = self.database.begin_write()?;
        // After a crash, redb would otherwise read the whole file before it can be used.
        transaction.set_quick_repair(true);
        let written = self.write_objects(&transaction, base, snapshot)?;
        let (saved, handlers) = info.handlers;
        handlers::write(&transaction, saved, handlers, &mut self.encoder)?;
        {
            let mut dictionaries = transaction.open_table(DICTIONARIES)?;
            let saved = u32::try_from(redb::ReadableTableMetadata::len(&dictionaries)?).unwrap_or(u32::MAX);
            for (number, bytes) in self.encoder.dictionaries().filter(|(number, _)| *number > saved) {
                dictionaries.insert(number, bytes)?;
            }
        }
        write_state(&transaction, snapshot, info)?;
        transaction.commit()?;
        Ok(written)
    }

    /// Writes the blocks with differences; returns their number.
    fn write_objects(
        &mut self,
        transaction: &WriteTransaction,
        base: &Base,
        snapshot: &StoreSnapshot,
    ) -> Result<u64, redb::Error> {
        let mut objects = transaction.open_table(OBJECTS)?;
        let mut changed = BTreeSet::new();
        base.for_each_change(snapshot, |key, _, _| {
            changed.insert(key.clone());
        });
        let written = self.layout.update(&changed, snapshot, &mut self.encoder, |change| match change {
            RowChange::Insert(start, block) => objects.insert(start, block).map(drop),
            RowChange::Remove(start) => objects.remove(start).map(drop),
        })?;
        Ok(written)
    }
}

fn write_state(
    transaction: &WriteTransaction,
    snapshot: &StoreSnapshot,
    info: &SaveInfo<'_>,
) -> Result<(), redb::Error> {
    let mut positions = transaction.open_table(POSITIONS)?;
    for scope in snapshot.scopes() {
        if let Some(version) = snapshot.scope_version(scope) {
            positions.insert(scope_name(scope), version.as_str())?;
        }
    }
    let mut unreadable = transaction.open_table(UNREADABLE)?;
    if !redb::ReadableTableMetadata::is_empty(&unreadable)? {
        unreadable.retain(|_, _| false)?;
    }
    for (key, reason) in snapshot.unreadable() {
        let version = snapshot.unreadable_version(key).map(ResourceVersion::as_str).unwrap_or_default();
        unreadable.insert(key.as_bytes(), format!("{version}\0{reason}").as_bytes())?;
    }
    let mut meta = transaction.open_table(META)?;
    meta.insert("identity", info.identity.text())?;
    meta.insert("saved-at", &*info.saved_at.to_string())?;
    meta.insert("uses", &*info.usage.uses.to_string())?;
    meta.insert("running-seconds", &*info.usage.seconds.to_string())?;
    match info.cluster_uid {
        Some(uid) => drop(meta.insert("cluster-uid", uid)?),
        None => drop(meta.remove("cluster-uid")?),
    }
    Ok(())
}

fn scope_name(scope: &Scope) -> &str {
    match scope {
        Scope::All => "",
        Scope::Namespace(namespace) => namespace,
    }
}

fn scope_of(name: &str) -> Scope {
    if name.is_empty() { Scope::All } else { Scope::namespace(name) }
}

fn open_error(error: &DatabaseError) -> ColdStartReason {
    match error {
        DatabaseError::DatabaseAlreadyOpen => ColdStartReason::InUse,
        DatabaseError::Storage(StorageError::Io(error)) if !is_damage(error) => {
            ColdStartReason::inaccessible(error)
        }
        error => ColdStartReason::damaged(&error.to_string()),
    }
}

/// Returns whether an error means that the file can be read, but is not as it was written.
fn is_damage(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof)
}

/// A failed read is no damage.
fn read_error(error: &AnyError) -> ColdStartReason {
    let of_table = || match error.downcast_ref()? {
        TableError::Storage(error) => Some(error),
        _ => None,
    };
    let of_transaction = || match error.downcast_ref()? {
        TransactionError::Storage(error) => Some(error),
        _ => None,
    };
    match error.downcast_ref().or_else(of_table).or_else(of_transaction) {
        Some(StorageError::Io(error)) if !is_damage(error) => ColdStartReason::inaccessible(error),
        _ => ColdStartReason::damaged(&error.to_string()),
    }
}
