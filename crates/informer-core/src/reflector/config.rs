//! Settings of a reflector.

use super::failure::ResponseHead;
use crate::backoff::BackoffConfig;
#[cfg(feature = "compression")]
use crate::compressor::Compressor;
use crate::key::Key;
use crate::object::{Decoding, Entry, Projections};
use crate::retention::{Interner, Retention};
use crate::scope::Scope;
use crate::shard::ShardFilter;
use crate::transform::{Transform, TransformFallback};
use crate::wire::{BodyEncoding, FieldFilter, Head, Limits, ListBody, TypeMeta, WatchBody};
use std::sync::Arc;
use std::time::Duration;

/// The choice between watch-lists (watches with `sendInitialEvents`) and lists for the initial list and
/// relists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum WatchListPolicy {
    /// Watch-lists, unless lists are expected to arrive faster, or the server turns out not to support
    /// watch-lists.
    ///
    /// Lists are faster on a slow connection, because they can be compressed with gzip.
    #[default]
    Auto,
    /// Watch-lists, unless the server turns out not to support them.
    Always,
    /// Lists only.
    Never,
}

/// Settings of one reflector. The defaults suit a production cluster.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// Type of the objects.
    pub type_meta: TypeMeta,
    /// The namespace to list and watch, or all of them.
    pub scope: Scope,
    /// The hash ranges to list and watch; `None` for all objects of the scope. Other objects are dropped while they are
    /// read, because servers may ignore the selector.
    pub shard: Option<ShardFilter>,
    /// The form in which the cache stores objects.
    pub retention: Retention,
    /// The compressor for [`Retention::Compressed`]. All reflectors of one cache should share it.
    #[cfg(feature = "compression")]
    pub compressor: Option<Arc<Compressor>>,
    /// The size limit of objects.
    pub limits: Limits,
    /// The fields of each object that are read; `None` for all.
    pub field_filter: Option<FieldFilter>,
    /// A function that changes each object before it is cached.
    pub transform: Option<Transform>,
    /// The part of an object that is cached if the transform fails on it.
    pub transform_fallback: TransformFallback,
    /// The choice between watch-lists and lists.
    pub watch_list: WatchListPolicy,
    /// Page size of full lists.
    ///
    /// By default only lists that may reach the server's storage are paged, with 500 items per page. A list
    /// whose paging fails is requested once more without pages, whatever this setting.
    pub page_size: Option<u32>,
    /// The period at which the cache is compared with a full list; `None` disables audits.
    pub audit_period: Option<Duration>,
    /// The minimum timeout of a watch. Each watch requests a random timeout between this and twice this.
    pub watch_timeout: Duration,
    /// The backoff after failures.
    pub backoff: BackoffConfig,
    /// The minimum delay before a request that was forbidden or not served is retried.
    ///
    /// The delay is random between this and twice this.
    pub unavailable_retry_delay: Duration,
    /// The length of a progress window: if the number of keys of a watch-list grows by 1 % or less in one
    /// window, a list replaces the watch-list.
    pub watch_list_progress_timeout: Duration,
    /// The timeout of the response headers.
    ///
    /// The header timeout of the source should be shorter, because its error describes possible causes.
    pub response_header_timeout: Duration,
    /// The time without notable progress after which a list fails.
    pub list_progress_timeout: Duration,
    /// The metrics of decoded objects, and their limit. All reflectors of one cache share it.
    pub decoding: Arc<Decoding>,
    /// The projections for which the values of each object are decoded. All reflectors of one cache share
    /// them.
    pub projections: Arc<Projections>,
    /// The interner for labels and owners.
    pub(crate) interner: Arc<Interner>,
}

impl Config {
    /// Creates the default settings for objects of this type in this scope.
    pub fn new(type_meta: TypeMeta, scope: Scope) -> Self {
        Self {
            type_meta,
            scope,
            shard: None,
            retention: Retention::default(),
            #[cfg(feature = "compression")]
            compressor: None,
            limits: Limits::default(),
            field_filter: None,
            transform: None,
            transform_fallback: TransformFallback::default(),
            watch_list: WatchListPolicy::default(),
            page_size: None,
            audit_period: None,
            watch_timeout: Duration::from_secs(300),
            backoff: BackoffConfig::default(),
            unavailable_retry_delay: Duration::from_secs(30),
            watch_list_progress_timeout: Duration::from_secs(10),
            response_header_timeout: Duration::from_secs(120),
            list_progress_timeout: Duration::from_secs(60),
            decoding: Arc::default(),
            projections: Arc::default(),
            interner: Arc::default(),
        }
    }

    /// Returns the maximum number of bytes from the end of one item or frame to the end of the next.
    ///
    /// An object has fields that are received and not stored, and one that is too large is skipped.
    pub(super) fn max_item_bytes(&self) -> u64 {
        const MIN_BYTES: u64 = 64 << 20;
        (2 * self.limits.max_object_bytes as u64).max(MIN_BYTES)
    }

    /// Returns whether an object is in the hash ranges.
    pub(super) fn selects(&self, head: &Head) -> bool {
        self.shard.as_ref().is_none_or(|shard| shard.contains(head))
    }

    /// Returns whether an object of which only the key is known is in the hash ranges; `None` if the key does not tell.
    pub(super) fn key_decides(&self, key: &Key) -> Option<bool> {
        self.shard.as_ref().map_or(Some(true), |shard| shard.contains_key(key))
    }

    /// Returns the hash ranges as a query parameter; `None` if there is nothing to select.
    pub(super) fn shard_selector(&self) -> Option<Box<str>> {
        self.shard.as_ref()?.selector().map(Into::into)
    }

    /// Returns the reader for the body of a list with these headers; `None` if it cannot be read.
    pub(super) fn list_body(&self, head: &ResponseHead) -> Option<ListBody> {
        ListBody::new(self.body_encoding_of(head)?, &self.type_meta, self.limits, self.field_filter.as_ref())
    }

    /// Returns the reader for the body of a watch with these headers; `None` if its encoding cannot be read.
    pub(super) fn watch_body(&self, head: &ResponseHead) -> Option<WatchBody> {
        WatchBody::new(self.body_encoding_of(head)?, &self.type_meta, self.limits, self.field_filter.as_ref())
    }

    /// Returns the encoding of a response; `None` if it cannot be read. The encodings of two responses may
    /// differ.
    fn body_encoding_of(&self, head: &ResponseHead) -> Option<BodyEncoding> {
        // A transform is a function from JSON to JSON, so with a transform only JSON can be read.
        head.body_encoding().filter(|encoding| *encoding == BodyEncoding::Json || self.transform.is_none())
    }

    /// Returns the entry of a saved object as it is cached: interned, and with the values of projections. It
    /// stays compressed if it was saved so.
    pub fn restore_entry(&self, entry: Entry) -> Arc<Entry> {
        let entry = entry.sharing_decoding(&self.decoding).sharing(&self.interner);
        self.projections.prepare(&entry);
        Arc::new(entry)
    }

    /// Returns a new entry as it is cached: interned, with the values of projections, and compressed if so
    /// configured.
    pub(super) fn finish_entry(&self, entry: Entry) -> Entry {
        let entry = entry.sharing(&self.interner);
        self.projections.prepare(&entry);
        #[cfg(feature = "compression")]
        if let Some(compressor) = &self.compressor
            && self.retention == Retention::Compressed
        {
            return compressor.compress(entry);
        }
        entry
    }
}
