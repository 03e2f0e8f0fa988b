//! Replacing a file for which there is no more space.
//!
//! The database needs new pages to give up old ones, so a file that has filled its disk stays as large as it is, although
//! the cache has become small.

use super::base::Base;
use super::file::{AnyError, CacheFile, SaveInfo};
use super::handlers::{self, Handlers};
use super::pages::CheckedPages;
use super::storage::Storage;
use informer_core::StoreSnapshot;
use informer_core::reflector::Config;
use redb::StorageBackend as _;
use std::io::ErrorKind;

/// Upper bound on the space of a file without objects.
const EMPTY_FILE_BYTES: u64 = 512 << 10;

/// Replaces a file for which there is no more space by a new one that contains only this snapshot. The file must not
/// be open.
///
/// The new file is written beside the old one. If there is no space for both, and the old file is much larger than what
/// it has to contain, the old one is deleted first: until the new one is complete, a crash leads to a cold start.
///
/// # Errors
///
/// Returns an error if there is no space for the new file either.
pub(crate) fn replace(
    storage: &dyn Storage,
    config: &Config,
    snapshot: &StoreSnapshot,
    info: &SaveInfo<'_>,
) -> Result<(), AnyError> {
    let name = &info.identity.file_name;
    // Opening the file cuts off what the failed save has added to it.
    let old_bytes = CheckedPages::open(storage.open(name)?).map_err(|reason| reason.to_string())?.len()?;
    let write_new = || {
        let written = write_replacement(storage, config, snapshot, info);
        if written.is_err() {
            storage.remove(&info.identity.replacement_name())?;
        }
        written
    };
    let needed_bytes = (snapshot.bytes() + handlers::bytes(info.handlers.1)) as u64 + EMPTY_FILE_BYTES;
    match write_new() {
        Err(error) if is_full(&error) && old_bytes / 2 > needed_bytes => {
            storage.remove(name)?;
            write_new()?;
        }
        written => written?,
    }
    Ok(storage.rename(&info.identity.replacement_name(), name)?)
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
pub(crate) fn is_full(error: &AnyError) -> bool {
    match error.downcast_ref() {
        Some(redb::Error::Io(error)) => {
            matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
        }
        _ => false,
    }
}
