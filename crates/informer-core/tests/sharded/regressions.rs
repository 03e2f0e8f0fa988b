//! Bugs found by random schedules, each as the shortest schedule that reproduces it.

use super::selection::{Buckets, bucket, ranges};
use informer_core::reflector::{Action, Config, ResponseHead, ShardedReflector, StreamId, WatchListPolicy};
use informer_core::shard::{HashRanges, ShardFilter, ShardProperty};
use informer_core::{Moment, Scope, StoreReader, StoreWriter, TypeMeta};

/// A sharded reflector and its store.
struct Client {
    reflector: ShardedReflector,
    writer: StoreWriter,
    reader: StoreReader,
    /// The newest request.
    open: StreamId,
    /// The newest list.
    listing: StreamId,
    changes: Vec<String>,
}

impl Client {
    /// Starts a reflector of the range that contains this uid.
    fn new(uid: &str) -> Self {
        Self::of(ShardProperty::Uid, uid)
    }

    fn of(property: ShardProperty, uid: &str) -> Self {
        let mut config = Config::new(TypeMeta::new("v1", "Pod"), Scope::All);
        config.shard = Some(ShardFilter::new(property, HashRanges::default()));
        config.watch_list = WatchListPolicy::Never;
        let (writer, reader) = StoreWriter::new([Scope::All]);
        let reflector = ShardedReflector::new(config, 1, Some(reader.clone()));
        let (writer, open, changes) = (writer.sharded(), StreamId(0), Vec::new());
        let listing = open;
        let mut client = Self { reflector, writer, reader, open, listing, changes };
        client.reflector.start(Moment::default());
        client.reflector.set_ranges(Moment::default(), &ranges(bucket(uid)), true);
        client.carry_out();
        client
    }

    fn carry_out(&mut self) {
        let deltas: Vec<_> = self.reflector.deltas().drain(..).collect();
        let applied = self.writer.apply(&Scope::All, deltas);
        self.changes.extend(applied.changes.iter().map(|change| format!("{change:?}")));
        while let Some(action) = self.reflector.poll_action() {
            if let Action::List(id, _) | Action::Watch(id, _) = action {
                self.open = id;
                self.listing = if matches!(action, Action::List(..)) { id } else { self.listing };
            }
        }
    }

    /// Sets the ranges that are held.
    fn gain(&mut self, held: Buckets) {
        self.reflector.set_ranges(Moment::default(), &ranges(held), true);
        self.carry_out();
    }

    /// Sends headers and a part of the body.
    fn send(&mut self, status: u16, body: &str) {
        self.reflector.handle_response(Moment::default(), self.open, ResponseHead::new(status));
        self.receive(body);
    }

    /// Sends a further part of the body.
    fn receive(&mut self, body: &str) {
        self.reflector.handle_bytes(Moment::default(), self.open, body.as_bytes());
        self.carry_out();
    }

    /// Sends a complete response.
    fn respond(&mut self, status: u16, body: &str) {
        let id = self.open;
        self.send(status, body);
        self.reflector.handle_end(Moment::default(), id);
        self.carry_out();
    }
}

fn pod(uid: &str, version: u64, more: &str) -> String {
    format!(
        r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"x","namespace":"a","uid":"{uid}","resourceVersion":"{version}"{more}}}}}"#
    )
}

/// Bug: the hash of an owned object changes if it gets another owner. The frame with the new owner was dropped like any
/// of another range, so that the object stayed in the cache, and the reconcile of its earlier owner still saw it.
#[test]
fn c2_object_with_another_owner_leaves_the_cache() {
    let [first, second] = &owners();
    for more in [owner(second), String::new()] {
        let mut client = Client::of(ShardProperty::ControllerUid, first);
        client.respond(200, &list(5, &pod("u", 3, &owner(first))));
        let frame = |version, more: &str| {
            format!(r#"{{"type":"MODIFIED","object":{}}}"#, pod("u", version, more)) + "\n"
        };
        client.send(200, &frame(7, &more));
        assert_eq!(client.changes, ["Added(a/x@3)", "Deleted { last: a/x@3, observed: true }"]);
        client.reflector.handle_bytes(Moment::default(), client.open, frame(8, &more).as_bytes());
        client.carry_out();
        client.reflector.handle_bytes(Moment::default(), client.open, frame(9, &owner(first)).as_bytes());
        client.carry_out();
        assert_eq!(client.changes[2..], ["Added(a/x@9)"]);
        assert_eq!(client.reader.snapshot().len(), 1);
    }
}

/// Returns two owners of different ranges.
fn owners() -> [String; 2] {
    let first = "owner-1".to_owned();
    let is_other = |uid: &String| bucket(uid) != bucket(&first);
    let second = (2..99).map(|number| format!("owner-{number}")).find(is_other).unwrap();
    [first, second]
}

fn owner(uid: &str) -> String {
    format!(
        r#","ownerReferences":[{{"apiVersion":"v1","kind":"Job","name":"o","uid":"{uid}","controller":true}}]"#
    )
}

fn frame(kind: &str, version: u64, more: &str) -> String {
    format!(r#"{{"type":"{kind}","object":{}}}"#, pod("u", version, more)) + "\n"
}

/// Bug: an object had moved from a gained range to a held one and was deleted there, after the gained range was listed.
/// The list revived it, and the frame of its deletion was dropped, because the held range had received it before: the
/// object stayed in the cache.
#[test]
fn c1_list_of_gained_range_does_not_revive_object_that_left_it() {
    let [held, gained] = &owners();
    let moves = [frame("MODIFIED", 8, &owner(held)), frame("DELETED", 9, &owner(held))];
    let stays = [frame("MODIFIED", 8, &owner(gained)), frame("MODIFIED", 9, &owner(gained))];
    let deleted = "Deleted { last: a/x@9, observed: true }";
    for (frames, expected) in [(moves, &["Added(a/x@8)", deleted][..]), (stays, &["Added(a/x@9)"])] {
        let mut client = Client::of(ShardProperty::ControllerUid, held);
        client.respond(200, &list(5, ""));
        let watch = client.open;
        client.gain(bucket(held) | bucket(gained));
        let gained_list = std::mem::replace(&mut client.open, watch);
        client.send(200, &frames.concat());
        client.open = gained_list;
        client.respond(200, &list(5, &pod("u", 3, &owner(gained))));
        assert_eq!(client.changes, expected);
        client.send(200, &frame("ADDED", 12, &owner(gained)));
        assert_eq!(client.changes.len(), expected.len() + 1);
        client.reflector.check_invariants();
    }
}

/// Bug: an object had moved to a gained range and was deleted there, before that range was listed, but the held range had
/// not received this yet. Both frames were dropped, because the gained range did not need them: the object stayed in the
/// cache.
#[test]
fn c2_object_that_moved_to_a_newer_range_is_deleted() {
    let [held, gained] = &owners();
    let moved = frame("MODIFIED", 8, &owner(gained));
    let updated = "Updated { old: a/x@4, new: a/x@8 }";
    let deleted = |version: u64| format!("Deleted {{ last: a/x@{version}, observed: true }}");
    // Either deleted before the list, or after it.
    for (item, deletion, expected) in [
        (String::new(), 9, vec![deleted(4)]),
        (pod("u", 8, &owner(gained)), 12, vec![updated.to_owned(), deleted(12)]),
    ] {
        let mut client = Client::of(ShardProperty::ControllerUid, held);
        client.respond(200, &list(5, &pod("u", 4, &owner(held))));
        client.gain(bucket(held) | bucket(gained));
        client.respond(200, &list(10, &item));
        client.send(200, &moved);
        assert_eq!(client.changes[1..], expected[..1], "as soon as it is known that it moved");
        client.receive(&frame("DELETED", deletion, &owner(gained)));
        assert_eq!(client.changes[1..], expected);
        assert!(client.reader.snapshot().is_empty());
        client.reflector.check_invariants();
    }
}

/// Bug: the server was restored from a backup while ranges were held, and a list of gained ranges had a version of the new
/// history. It counted as one that the held ranges had passed, so that their frames were dropped until the server reached
/// the old version again.
#[test]
fn c1_held_ranges_are_listed_again_if_a_gained_list_shows_a_restored_server() {
    for property in [ShardProperty::Uid, ShardProperty::ControllerUid] {
        let [held, gained] = &owners();
        let uid = if property == ShardProperty::Uid { held } else { "u" };
        let object = |version| pod(uid, version, &owner(held));
        let mut client = Client::of(property, held);
        client.respond(200, &list(900, &object(800)));
        client.gain(bucket(held) | bucket(gained));
        client.respond(200, &list(100, ""));
        client.open = client.listing;
        client.respond(200, &list(100, &object(40)));
        let frame = format!(r#"{{"type":"MODIFIED","object":{}}}"#, object(101));
        client.send(200, &frame);
        let updated = |old, new| format!("Updated {{ old: a/x@{old}, new: a/x@{new} }}");
        assert_eq!(client.changes[1..], [updated(800, 40), updated(40, 101)]);
        assert_eq!(client.reflector.complete_ranges(), Some(ranges(bucket(held) | bucket(gained))));
        assert_eq!(client.reflector.counters().rewinds, 1);
        client.reflector.check_invariants();
    }
}

/// A list of gained ranges is older than what the watch has brought meanwhile. This is no sign of a restored server.
#[test]
fn gained_list_may_be_older_than_the_newest_frames() {
    let [held, gained] = &owners();
    let mut client = Client::new(held);
    client.respond(200, &list(5, &pod(held, 4, "")));
    let watch = client.open;
    client.gain(bucket(held) | bucket(gained));
    let gained_list = std::mem::replace(&mut client.open, watch);
    let frame = format!(r#"{{"type":"MODIFIED","object":{}}}"#, pod(held, 8, ""));
    client.send(200, &frame);
    client.open = gained_list;
    client.respond(200, &list(6, ""));
    assert_eq!(client.reflector.complete_ranges(), Some(ranges(bucket(held) | bucket(gained))));
    let counters = client.reflector.counters();
    assert_eq!((counters.relists.initial, counters.relists.expired), (2, 0));
}

fn list(version: u64, item: &str) -> String {
    format!(
        r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"{version}"}},"items":[{item}]}}"#
    )
}

/// Bug: a server that ignores selectors had an unreadable object of another range under the key of a cached one, and
/// a relist showed only this. The cached object was kept, because the range of an unreadable object is unknown. When the
/// object became readable, or was deleted, the frame was dropped like any of another range: the cached object, which
/// had been deleted, stayed (C2).
#[test]
fn c2_object_with_unreadable_successor_of_another_range_is_deleted() {
    let first = "u-1";
    let second =
        (2..99).map(|number| format!("u-{number}")).find(|uid| bucket(uid) != bucket(first)).unwrap();
    for kind in ["MODIFIED", "DELETED"] {
        let mut client = Client::new(first);
        client.respond(200, &list(5, &pod(first, 3, "")));
        client.respond(410, "");
        client.respond(200, &list(10, &pod(&second, 9, r#","labels":7"#)));
        assert!(client.reader.snapshot().list().all(|entry| entry.is_stale()));
        assert_eq!(client.changes, ["Added(a/x@3)"], "the unreadable object may be the cached one");
        client.send(200, &format!(r#"{{"type":"{kind}","object":{}}}"#, pod(&second, 12, "")));
        assert_eq!(client.changes[1..], ["Deleted { last: a/x@3, observed: false }"]);
        client.reflector.check_invariants();
    }
}
