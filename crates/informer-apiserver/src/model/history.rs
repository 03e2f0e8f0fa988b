//! How much history a server retains: changes per resource, bytes in total, and age.
//!
//! kube-apiserver has etcd compacted every five minutes, and its watch cache retains at least the last 100
//! changes of a resource. The limits here have the same effect: a resource that changes rarely can be watched
//! from an old version, and memory stays bounded however fast objects change. Changes are dropped when
//! objects are written, so the history of a server without writes stays.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::Model;
use super::collection::Collection;
use super::kinds::ResourceId;

/// Default number of changes retained per resource.
const DEFAULT_MAX_CHANGES: usize = 100_000;

/// Default upper bound on the memory for the history of all resources.
const DEFAULT_MAX_BYTES: usize = 32 * 1024 * 1024;

/// Default age at which a change is dropped: the period in which kube-apiserver compacts etcd.
const DEFAULT_MAX_AGE: Duration = Duration::from_secs(300);

/// Number of changes of a resource that are retained at any age, as in kube-apiserver's watch cache. Does not
/// apply to resources without a watch cache.
const MIN_CHANGES: usize = 100;

/// Period in which the age of changes is checked.
const AGE_CHECK_PERIOD: SignedDuration = SignedDuration::from_secs(10);

/// The limits are checked whenever this fraction of the maximum size was written, instead of after every write.
const CHECKS_PER_MAX_BYTES: usize = 16;

/// The limits of a server's history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HistoryLimits {
    /// Maximum number of changes per resource.
    pub(crate) changes: usize,
    /// Maximum size of the changes of all resources together, including what an entry takes besides its JSON.
    pub(crate) bytes: usize,
    /// Maximum age of a change.
    pub(crate) age: Duration,
}

impl HistoryLimits {
    /// Limits that nothing reaches.
    pub(crate) const UNLIMITED: Self =
        HistoryLimits { changes: usize::MAX, bytes: usize::MAX, age: Duration::MAX };
}

impl Default for HistoryLimits {
    fn default() -> Self {
        HistoryLimits { changes: DEFAULT_MAX_CHANGES, bytes: DEFAULT_MAX_BYTES, age: DEFAULT_MAX_AGE }
    }
}

/// When the limits of the history are checked next.
#[derive(Debug)]
pub(super) struct TrimSchedule {
    /// Size of the changes recorded since the last check.
    bytes: usize,
    /// Time of the last check.
    checked: Timestamp,
}

impl TrimSchedule {
    pub(super) fn new(now: Timestamp) -> Self {
        TrimSchedule { bytes: 0, checked: now }
    }

    /// Counts a recorded change of this size. Returns whether a check is due; the next one is then scheduled.
    fn is_due(&mut self, now: Timestamp, bytes: usize, limits: &HistoryLimits) -> bool {
        self.bytes = self.bytes.saturating_add(bytes);
        let is_due =
            self.bytes > check_interval(limits) || now.duration_since(self.checked).abs() >= AGE_CHECK_PERIOD;
        if is_due {
            *self = TrimSchedule::new(now);
        }
        is_due
    }
}

/// Number of bytes written between two checks.
fn check_interval(limits: &HistoryLimits) -> usize {
    limits.bytes / CHECKS_PER_MAX_BYTES
}

impl Model {
    /// Drops the changes beyond the limits, after a change of this size was recorded.
    pub(super) fn trim_history(&mut self, now: Timestamp, recorded: usize) {
        if !self.trim_schedule.is_due(now, recorded, &self.limits) {
            return;
        }
        let oldest =
            SignedDuration::try_from(self.limits.age).ok().and_then(|max_age| now.checked_sub(max_age).ok());
        if let Some(oldest) = oldest {
            for (id, collection) in &mut self.collections {
                let is_cached = self.registry.get(*id).is_some_and(|resource| resource.is_cached());
                collection.drop_before(oldest, if is_cached { MIN_CHANGES } else { 0 });
            }
        }
        self.trim_bytes();
    }

    /// Drops changes of the resource with the largest history until the limit on bytes holds, also after the
    /// writes up to the next check. So the history of a quiet resource survives the changes of others.
    fn trim_bytes(&mut self) {
        let target = self.limits.bytes - check_interval(&self.limits);
        let mut total = self.collections.values().map(Collection::history_bytes).sum::<usize>();
        while total > target {
            let size = |(_, collection): &(&ResourceId, &mut Collection)| collection.history_bytes();
            let Some((_, largest)) = self.collections.iter_mut().max_by_key(size) else { return };
            let before = largest.history_bytes();
            largest.drop_oldest();
            total -= before - largest.history_bytes();
            if largest.history_bytes() == before {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::super::{
        Cursor, Filter, Objects, Paging, ReadVersion, Registry, State, Step, VersionedResource, WatchStart,
        WriteContext, WriteOrigin, WriteTarget,
    };
    use super::*;

    const SECOND: SignedDuration = SignedDuration::from_secs(1);

    fn model(limits: HistoryLimits) -> Model {
        Model::new(Timestamp::UNIX_EPOCH, 1, limits)
    }

    fn resource(model: &Model, plural: &str) -> VersionedResource {
        model.registry().resource("", "v1", plural).unwrap()
    }

    /// Creates or updates an object in `default`; returns the version after the write.
    fn write(model: &mut Model, now: Timestamp, gvr: VersionedResource, name: &str, value: &str) -> u64 {
        let about = json!({"kind": "Node", "name": "n", "namespace": "default"});
        let object = json!({"metadata": {"name": name}, "data": {"k": value}, "involvedObject": about, "message": value});
        write_to(model, now, gvr, "default", object)
    }

    fn write_to(
        model: &mut Model,
        now: Timestamp,
        gvr: VersionedResource,
        namespace: &str,
        object: Value,
    ) -> u64 {
        let context = WriteContext::at(now, "test");
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let written = if model.get(gvr, namespace, &name).is_some() {
            let key = (namespace, name.as_str());
            model.update(&context, gvr, key, WriteTarget::Object, object, WriteOrigin::Internal)
        } else {
            model.create(&context, gvr, namespace, object, WriteOrigin::Internal)
        };
        written.unwrap();
        model.version()
    }

    fn retained(model: &Model, gvr: VersionedResource) -> usize {
        let collection = &model.collections[&gvr.id];
        usize::try_from(collection.next_sequence() - collection.next_retained(0)).unwrap()
    }

    fn total(model: &Model) -> usize {
        model.collections.values().map(Collection::history_bytes).sum()
    }

    /// Returns 200 or the code of the error.
    fn list_code(model: &mut Model, gvr: VersionedResource, at: &ReadVersion) -> u16 {
        model.list(gvr, "default", at, Paging::Unpaged).map_or_else(|status| status.code, |_| 200)
    }

    fn watch_code(model: &mut Model, gvr: VersionedResource, version: u64) -> u16 {
        match model.open_watch(gvr, WatchStart::Version(version)) {
            Ok(opened) => {
                model.close_watch(&opened.cursor);
                200
            }
            Err(status) => status.code,
        }
    }

    /// Bug: the history was limited per resource (100,000 changes, 64 MiB of JSON) and not by age. A demo
    /// cluster of 100 pods, which writes 100 times a second, grew by 24 MB a minute to more than 500 MB. No
    /// test let time pass.
    #[test]
    fn old_changes_are_dropped() {
        let mut model = model(HistoryLimits::default());
        let (maps, events) = (resource(&model, "configmaps"), resource(&model, "events"));
        let mut now = Timestamp::UNIX_EPOCH;
        let first = write(&mut model, now, maps, "m", "first");
        let page = {
            write(&mut model, now, maps, "n", "first");
            let listing = model.list(maps, "default", &ReadVersion::Newest, Paging::Paged).unwrap();
            listing.page(&Filter::namespace("default"), 1).next.unwrap()
        };
        for number in 0..900 {
            now += SECOND;
            write(&mut model, now, maps, "m", &number.to_string());
            write(&mut model, now, events, "e", &number.to_string());
            model.check_invariants();
        }
        // The age is checked every ten seconds.
        for gvr in [maps, events] {
            assert!((300..=311).contains(&retained(&model, gvr)), "{}", retained(&model, gvr));
        }
        assert_eq!(list_code(&mut model, maps, &ReadVersion::Exact(first)), 410);
        assert_eq!(list_code(&mut model, maps, &ReadVersion::Token(page)), 410);
        assert_eq!(watch_code(&mut model, maps, first), 410);
        let recent = model.version() - 500;
        assert_eq!(list_code(&mut model, maps, &ReadVersion::Exact(recent)), 200);
        assert_eq!(watch_code(&mut model, maps, recent), 200);

        // A resource with a watch cache keeps its last changes; a quiet resource can be watched from any
        // version since its last change.
        let last = model.version();
        now += 3_600 * SECOND;
        let secrets = resource(&model, "secrets");
        write(&mut model, now, secrets, "s", "");
        assert_eq!((retained(&model, maps), retained(&model, events)), (MIN_CHANGES, 0));
        assert_eq!(watch_code(&mut model, maps, last - 100), 200);
        assert_eq!(watch_code(&mut model, maps, last - 500), 410);
        assert_eq!(watch_code(&mut model, events, last), 200);
        assert_eq!(watch_code(&mut model, events, last - 3), 410);
        model.check_invariants();
    }

    #[test]
    fn open_watch_is_not_affected_by_dropped_changes_that_it_has_seen() {
        let mut model = model(HistoryLimits::default());
        let maps = resource(&model, "configmaps");
        let filter = Filter::namespace("default");
        let mut now = Timestamp::UNIX_EPOCH;
        let open = |model: &mut Model| -> Cursor { model.open_watch(maps, WatchStart::Now).unwrap().cursor };
        let (mut current, mut behind) = (open(&mut model), open(&mut model));
        let mut seen = 0;
        for number in 0..1_000 {
            now += SECOND;
            write(&mut model, now, maps, "m", &number.to_string());
            let Step::Frames(frames, _) = model.step(&mut current, &filter, usize::MAX) else {
                panic!("the watch ended")
            };
            seen += frames.len();
        }
        assert_eq!(seen, 1_000);
        assert!(matches!(model.step(&mut behind, &filter, 1), Step::Expired(status) if status.code == 410));
    }

    /// Bug: see [`old_changes_are_dropped`]. Only JSON was counted, and each resource had its own limit.
    #[test]
    fn size_of_all_histories_is_limited() {
        let max_bytes = 1_000_000;
        let mut model = model(HistoryLimits { bytes: max_bytes, ..HistoryLimits::default() });
        let now = Timestamp::UNIX_EPOCH;
        let quiet = resource(&model, "limitranges");
        let context = WriteContext::at(now, "test");
        let object = json!({"metadata": {"name": "quiet"}});
        model.create(&context, quiet, "default", object, WriteOrigin::Internal).unwrap();
        let before = model.version() - 1;
        let busy = ["configmaps", "secrets", "events"].map(|plural| resource(&model, plural));
        for number in 0..3_000_u64 {
            let large = number.is_multiple_of(100);
            let value = if large { "x".repeat(20_000) } else { number.to_string() };
            for gvr in busy {
                // Secrets contain base64.
                let object = json!({"metadata": {"name": "a", "annotations": {"k": value}}, "involvedObject": {"namespace": "default"}});
                write_to(&mut model, now, gvr, "default", object);
            }
            assert!(total(&model) <= max_bytes, "{} bytes after {number} writes", total(&model));
        }
        assert!(total(&model) > max_bytes / 2, "{}", total(&model));
        model.check_invariants();
        assert_eq!(watch_code(&mut model, quiet, before), 200, "the history of a quiet resource is kept");
        assert_eq!(watch_code(&mut model, busy[0], before), 410);
    }

    /// A small object takes several times the size of its JSON.
    #[test]
    fn size_of_a_change_includes_more_than_json() {
        let mut model = model(HistoryLimits::default());
        let maps = resource(&model, "configmaps");
        let before = total(&model);
        write(&mut model, Timestamp::UNIX_EPOCH, maps, "m", "1");
        let json = model.get(maps, "default", "m").unwrap().len();
        let recorded = total(&model) - before;
        assert!(recorded > json + 300, "{recorded} for {json} bytes of JSON");
    }

    /// Bug: the namespaces of dropped changes were remembered forever, so a server whose tests each use a new
    /// namespace grew without bound. No test used many namespaces.
    #[test]
    fn namespaces_of_dropped_changes_are_limited() {
        let registry = Registry::builtin();
        let maps = registry.get(registry.find("", "configmaps").unwrap()).unwrap();
        let mut collection = Collection::new(Objects::new(), 0, 1);
        for version in 1..=10_100 {
            let metadata = json!({"name": "m", "namespace": format!("n-{version}")});
            let state = State::encode(maps, version, &json!({"metadata": metadata}));
            collection.put(Timestamp::UNIX_EPOCH, None, Arc::new(state));
        }
        assert!(collection.dropped_namespaces() <= 10_000);
        assert!(
            collection.has_dropped_since(0, "quiet"),
            "it is not known whether the watch missed a change"
        );
        let next = collection.next_sequence();
        assert!(!collection.has_dropped_since(next, "quiet") && !collection.has_dropped_since(next, "n-1"));
    }

    /// Bug: the objects of a paged list were retained until eight later lists, even if its version was
    /// dropped from the history and no page could be requested any more.
    #[test]
    fn objects_of_paged_lists_are_dropped_with_their_version() {
        let mut model = model(HistoryLimits { changes: 10, ..HistoryLimits::default() });
        let maps = resource(&model, "configmaps");
        let now = Timestamp::UNIX_EPOCH;
        write(&mut model, now, maps, "m", "first");
        let first = Arc::downgrade(&model.get(maps, "default", "m").unwrap());
        drop(model.list(maps, "default", &ReadVersion::Newest, Paging::Paged).unwrap());
        for number in 0..20 {
            write(&mut model, now, maps, "m", &number.to_string());
        }
        assert!(first.upgrade().is_none(), "the first state is not retained");
    }
}
