//! A source that is not an API server: objects in memory, with a log of changes.

use super::typed;
use futures::stream::{self, Stream};
use informer::source::{ListWatch, ListWatchError, WatchEvent};
use informer::{Key, ResourceVersion};
use k8s_openapi::api::core::v1::ConfigMap;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::Notify;

#[derive(Clone, Default)]
pub(crate) struct Database(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
pub(crate) struct State {
    version: u64,
    objects: BTreeMap<Key, ConfigMap>,
    /// Each change with its version.
    log: Vec<(u64, WatchEvent<ConfigMap>)>,
    /// Watches after an older version, or after one newer than `version`, are answered with `Expired`.
    oldest: u64,
    pub(crate) lists: u64,
    /// The versions from which watches were opened.
    pub(crate) watches: Vec<String>,
}

impl Database {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap()
    }

    /// Stores `namespace/name` with a uid and a value.
    pub(crate) fn put(&self, name: &str, uid: &str, value: &str) {
        self.change(|state| {
            let map = typed(&format!("{name} {uid} {} {value}", state.version));
            let known = state.objects.insert(name.parse().unwrap(), map.clone());
            if known.is_some() { WatchEvent::Modified(map) } else { WatchEvent::Added(map) }
        });
    }

    pub(crate) fn delete(&self, name: &str) {
        self.change(|state| {
            let mut map = state.objects.remove(&name.parse().unwrap()).unwrap();
            map.metadata.resource_version = Some(state.version.to_string());
            WatchEvent::Deleted(map)
        });
    }

    fn change(&self, change: impl FnOnce(&mut State) -> WatchEvent<ConfigMap>) {
        let mut state = self.state();
        state.version += 1;
        let event = change(&mut state);
        let version = state.version;
        state.log.push((version, event));
        drop(state);
        self.0.changed.notify_waiters();
    }

    /// Forgets the changes so far, and ends all watches with `Expired`.
    pub(crate) fn compact(&self) {
        let mut state = self.state();
        state.version += 1; // not even a watch that has received everything can continue
        state.oldest = state.version;
        state.log.clear();
        drop(state);
        self.0.changed.notify_waiters();
    }

    /// Restarts without objects and with the counter at 0, as a source without a disk.
    pub(crate) fn restart(&self) {
        let mut state = self.state();
        (state.version, state.oldest) = (0, 0);
        state.objects.clear();
        state.log.clear();
        drop(state);
        self.0.changed.notify_waiters();
    }

    pub(crate) fn list(&self) -> (Vec<ConfigMap>, ResourceVersion) {
        let mut state = self.state();
        state.lists += 1;
        (state.objects.values().cloned().collect(), ResourceVersion::new(&state.version.to_string()))
    }

    pub(crate) fn watch(
        &self,
        after: &ResourceVersion,
    ) -> impl Stream<Item = Result<WatchEvent<ConfigMap>, ListWatchError>> + use<> {
        self.state().watches.push(after.to_string());
        let after: u64 = after.as_str().parse().unwrap();
        stream::unfold((self.clone(), Some(after)), |(database, after)| async move {
            let after = after?;
            loop {
                let mut changed = std::pin::pin!(database.0.changed.notified());
                changed.as_mut().enable();
                match database.next_after(after) {
                    Ok(Some((version, event))) => {
                        return Some((Ok(event), (database.clone(), Some(version))));
                    }
                    Ok(None) => changed.await,
                    Err(error) => return Some((Err(error), (database.clone(), None))),
                }
            }
        })
    }

    fn next_after(&self, after: u64) -> Result<Option<(u64, WatchEvent<ConfigMap>)>, ListWatchError> {
        let state = self.state();
        if after < state.oldest || after > state.version {
            return Err(ListWatchError::Expired);
        }
        Ok(state.log.iter().find(|(version, _)| *version > after).cloned())
    }

    pub(crate) fn source(&self) -> ListWatch<ConfigMap> {
        let (lists, watches) = (self.clone(), self.clone());
        ListWatch::new(
            move || {
                let lists = lists.clone();
                async move { Ok(lists.list()) }
            },
            move |after| {
                let watches = watches.clone();
                async move { Ok(watches.watch(&after)) }
            },
        )
    }
}
