//! The building blocks of `informer::cache`, each on its own.
#![allow(clippy::unwrap_used)]

mod database;
mod fifo;
mod list_watch;
mod reflector;
mod store;
mod ttl;

use informer::{Event, Key, Object};
use k8s_openapi::api::core::v1::ConfigMap;
use std::time::Duration;

/// Advances the paused clock and runs everything that becomes due.
async fn advance_time(time: Duration) {
    let _ = tokio::time::timeout(time, std::future::pending::<()>()).await;
}

/// Returns the object `namespace/name` with a uid (`-` for none), a version and a value: `a/x u1 7 red`.
fn object(text: &str) -> Object<ConfigMap> {
    Object::from_typed(typed(text)).unwrap()
}

fn typed(text: &str) -> ConfigMap {
    let words: Vec<&str> = text.split(' ').collect();
    let [name, uid, version, value] = words[..] else { panic!("{text}: expected four words") };
    let key: Key = name.parse().unwrap();
    let mut map = ConfigMap::default();
    map.metadata.name = Some(key.name().to_owned());
    map.metadata.namespace = key.namespace().map(ToOwned::to_owned);
    map.metadata.uid = Some(uid).filter(|uid| *uid != "-").map(ToOwned::to_owned);
    map.metadata.resource_version = Some(version.to_owned());
    map.metadata.labels = Some([("value".to_owned(), value.to_owned())].into());
    map.data = Some([("value".to_owned(), value.to_owned())].into());
    map
}

fn value(object: &Object<ConfigMap>) -> String {
    object.typed().unwrap().data.as_ref().unwrap()["value"].clone()
}

/// Prints events as `+ a/x@1`, `~ a/x@1>2` and `- a/x@2`, with `initial` and `inferred` where they apply.
fn texts(events: &[Event<ConfigMap>]) -> Vec<String> {
    let text = |event: &Event<ConfigMap>| match event {
        Event::Added { object, initial, .. } => {
            let initial = if *initial { " initial" } else { "" };
            format!("+ {}@{}{initial}", object.key(), object.resource_version())
        }
        Event::Updated { old, new, .. } => {
            format!("~ {}@{}>{}", new.key(), old.resource_version(), new.resource_version())
        }
        Event::Deleted { last, observed, .. } => {
            let inferred = if *observed { "" } else { " inferred" };
            format!("- {}@{}{inferred}", last.key(), last.resource_version())
        }
    };
    events.iter().map(text).collect()
}
