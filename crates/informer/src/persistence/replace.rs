//! Replacing a file that cannot be saved any more.
//!
//! The database needs new pages to give up old ones, so a file that has filled its disk stays as large as it is, although
//! the cache has become small. And it reads pages that describe free space only when it writes, so damage of these is not
//! found before.

use super::base::Base;
use super::file::{AnyError, CacheFile, SaveInfo};
use super::handlers::{self, Handlers};
use super::pages::CheckedPages;
use super::storage::Storage;
use informer_core::StoreSnapshot;
use informer_core::reflector::Config;
use std::io::ErrorKind;

/// Upper bound on the space of a file without objects.
const EMPTY_FILE_BYTES: u64 = 512 << 10;

/// Replaces a file that cannot be saved any more by a new one that contains only this snapshot.
///
/// The new file is written beside the old one. If there is no space for both, the old one is deleted first, provided that it
/// is clearly larger than the new one: until the new one is complete, a crash leads to a cold start.
///
/// # Errors
///
/// Returns the error of the failed save if the new file would not help, or that of writing the new file.
pub(crate) fn replace(
    storage: &dyn Storage,
    config: &Config,
    snapshot: &StoreSnapshot,
    info: &SaveInfo<'_>,
    error: AnyError,
) -> Result<(), AnyError> {
    let is_full = is_full(&error);
    if !is_full && !is_damaged(&error) {
        return Err(error);
    }
    let (name, new_name) = (&info.identity.file_name, info.identity.replacement_name());
    // Opening the file cuts off what the failed save has added to it, and no other process can open it meanwhile.
    let old = CheckedPages::open(storage.open(name)?).map_err(|reason| reason.to_string())?;
    let needed_bytes = (snapshot.bytes() + handlers::bytes(info.handlers.1)) as u64 + EMPTY_FILE_BYTES;
    let is_much_larger = old.used_bytes() >= needed_bytes + needed_bytes / 4;
    if is_full {
        storage.remove(&info.identity.discarded_name())?;
        if !is_much_larger {
            return Err(error);
        }
    }
    let write_new = || {
        let written = write_replacement(storage, config, snapshot, info);
        if written.is_err() {
            storage.remove(&new_name)?;
        }
        written
    };
    match write_new() {
        Err(error) if self::is_full(&error) && is_much_larger => {
            storage.remove(name)?;
            // A deleted file occupies space until it is closed.
            drop(old);
            write_new()?;
        }
        written => written?,
    }
    Ok(storage.rename(&new_name, name)?)
}

fn write_replacement(
    storage: &dyn Storage,
    config: &Config,
    snapshot: &StoreSnapshot,
    info: &SaveInfo<'_>,
) -> Result<(), AnyError> {
    let name = info.identity.replacement_name();
    // A process that has crashed may have left it.
    storage.remove(&name)?;
    let mut file = CacheFile::create(storage, &name, config)?;
    file.save(
        &Base::default(),
        snapshot,
        &SaveInfo { handlers: (&Handlers::new(), info.handlers.1), ..*info },
    )?;
    Ok(())
}

/// Returns whether there is no space for what was to be written.
fn is_full(error: &AnyError) -> bool {
    matches!(io_kind(error), Some(ErrorKind::StorageFull | ErrorKind::QuotaExceeded))
}

/// Returns whether a part of the file that is needed to write to it is damaged.
fn is_damaged(error: &AnyError) -> bool {
    matches!(error.downcast_ref(), Some(redb::Error::Corrupted(_)))
        || matches!(io_kind(error), Some(ErrorKind::InvalidData | ErrorKind::UnexpectedEof))
}

fn io_kind(error: &AnyError) -> Option<ErrorKind> {
    match error.downcast_ref()? {
        redb::Error::Io(error) => Some(error.kind()),
        _ => None,
    }
}
