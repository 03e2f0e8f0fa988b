//! Constructors of objects and changes, and a short text form of deliveries, for unit tests.

use crate::event::{Delivery, Event, Untyped, UpdateCause};
use informer_core::wire::{Limits, ListItem, ListReader};
use informer_core::{Change, Entry, Object, Retention, TypeMeta};
use std::sync::Arc;

pub(crate) fn entry(name: &str, version: u64) -> Arc<Entry> {
    let body = format!(
        r#"{{"kind":"PodList","metadata":{{"resourceVersion":"9"}},
            "items":[{{"metadata":{{"name":"{name}","resourceVersion":"{version}"}}}}]}}"#
    );
    let mut entry = None;
    let mut reader = ListReader::new(TypeMeta::new("v1", "Pod"), Limits::default());
    let read = reader.read(body.as_bytes(), |item| {
        if let ListItem::Object(scanned) = item {
            entry = Some(Arc::new(Entry::new(scanned, Retention::Bytes)));
        }
    });
    read.unwrap();
    entry.unwrap()
}

pub(crate) fn object<K>(name: &str, version: u64) -> Object<K> {
    Object::new(entry(name, version))
}

pub(crate) fn added(name: &str, version: u64) -> Change {
    Change::Added(entry(name, version))
}

pub(crate) fn updated(name: &str, old: u64, new: u64) -> Change {
    Change::Updated { old: entry(name, old), new: entry(name, new) }
}

pub(crate) fn deleted(name: &str, version: u64) -> Change {
    Change::Deleted { last: entry(name, version), observed: true }
}

pub(crate) fn released(name: &str, version: u64) -> Change {
    Change::Released(entry(name, version))
}

/// Formats a delivery: `+a@1!` initial add, `+a@1` add, `~a@1>a@2` update, `=a@1` resync, `-a@1` delete,
/// `lagged 1`, `released a@1`.
pub(crate) fn text(delivery: &Delivery<Untyped>) -> String {
    let event = match delivery {
        Delivery::Event(event) => event,
        Delivery::Lagged { skipped } => return format!("lagged {skipped}"),
        Delivery::Released { last } => return format!("released {last:?}"),
    };
    match event {
        Event::Added { object, initial, .. } => format!("+{object:?}{}", if *initial { "!" } else { "" }),
        Event::Updated { old, new, cause: UpdateCause::Change } => format!("~{old:?}>{new:?}"),
        Event::Updated { new, .. } => format!("={new:?}"),
        Event::Deleted { last, .. } => format!("-{last:?}"),
    }
}
