//! What a reflector is told at its birth.

use super::failure::ResponseHead;
use crate::backoff::BackoffConfig;
#[cfg(feature = "compression")]
use crate::compressor::Compressor;
use crate::object::Entry;
use crate::retention::{Interner, Retention};
use crate::scope::Scope;
use crate::transform::{Transform, TransformFallback};
use crate::wire::{BodyEncoding, FieldFilter, Limits, ListBody, TypeMeta, WatchBody};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// Whether the initial set is asked for as a stream (watch-list) or as a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum WatchListPolicy {
    /// As a stream, unless lists are said to come sooner (a slow connection, for which they can be compressed), and until this server
    /// shows that it cannot.
    #[default]
    Auto,
    /// As a stream, until this server shows that it cannot.
    Always,
    /// Always as a list.
    Never,
}

/// The settings of one reflector. The defaults suit a production cluster.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// Type of the objects.
    pub type_meta: TypeMeta,
    /// What it reflects.
    pub scope: Scope,
    /// What the cache keeps of each object.
    pub retention: Retention,
    /// What compresses them, with [`Retention::Compressed`]; all reflectors of one cache should share it.
    #[cfg(feature = "compression")]
    pub compressor: Option<Arc<Compressor>>,
    /// What is refused.
    pub limits: Limits,
    /// What of each object is read at all.
    pub field_filter: Option<FieldFilter>,
    /// What changes each object before it is cached.
    pub transform: Option<Transform>,
    /// What is cached of an object that the transform fails on.
    pub transform_fallback: TransformFallback,
    /// Whether to stream the initial set.
    pub watch_list: WatchListPolicy,
    /// Items per page, for every list. By default only lists that may reach the server's storage are paged.
    pub page_size: Option<u32>,
    /// How often the cache is compared with a fresh list; `None` for never.
    pub audit_period: Option<Duration>,
    /// The shortest time a watch asks for; the longest is twice that.
    pub watch_timeout: Duration,
    /// How waits grow after failures.
    pub backoff: BackoffConfig,
    /// How long to wait before asking again for what is forbidden or not served; stretched by up to twice.
    pub unavailable_retry_delay: Duration,
    /// A watch-list that brings next to nothing new for so long has stalled.
    pub watch_list_progress_timeout: Duration,
    /// A request without response headers for so long has failed. A source should have given up before.
    pub response_header_timeout: Duration,
    /// A list whose body brings nothing for so long has stalled.
    pub list_idle_timeout: Duration,
    /// Counts the objects that did not decode when somebody looked at them.
    pub decode_errors: Option<Arc<AtomicU64>>,
    /// What its objects have in common.
    pub(crate) interner: Arc<Interner>,
}

impl Config {
    /// The defaults, for objects of this type in this scope.
    pub fn new(types: TypeMeta, scope: Scope) -> Self {
        Self {
            type_meta: types,
            scope,
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
            watch_timeout: Duration::from_mins(5),
            backoff: BackoffConfig::default(),
            unavailable_retry_delay: Duration::from_secs(30),
            watch_list_progress_timeout: Duration::from_secs(10),
            response_header_timeout: Duration::from_mins(2),
            list_idle_timeout: Duration::from_mins(1),
            decode_errors: None,
            interner: Arc::default(),
        }
    }

    /// What reads the body of a list with these headers; none if nothing does.
    pub(super) fn list_body(&self, head: &ResponseHead) -> Option<ListBody> {
        ListBody::new(self.body_encoding_of(head)?, &self.type_meta, self.limits, self.field_filter.as_ref())
    }

    /// What reads the body of a watch with these headers; none if nothing does.
    pub(super) fn watch_body(&self, head: &ResponseHead) -> Option<WatchBody> {
        WatchBody::new(self.body_encoding_of(head)?, &self.type_meta, self.limits, self.field_filter.as_ref())
    }

    /// The form in which an answer is read. Each answer is taken as it comes: the next one may have another form.
    fn body_encoding_of(&self, head: &ResponseHead) -> Option<BodyEncoding> {
        // A transform is a function from JSON to JSON.
        head.body_encoding().filter(|form| *form == BodyEncoding::Json || self.transform.is_none())
    }

    /// An entry that was just made, as the cache is to keep it.
    pub(super) fn finish_entry(&self, entry: Entry) -> Entry {
        let entry = entry.sharing(&self.interner);
        #[cfg(feature = "compression")]
        if let Some(compressor) = &self.compressor
            && self.retention == Retention::Compressed
        {
            return compressor.compress(entry);
        }
        entry
    }
}
