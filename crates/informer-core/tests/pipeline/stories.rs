//! Bugs that random schedules found, each as the shortest schedule that shows it.

use informer_core::reflector::{Action, Config, Reflector, ResponseHead, State, StreamId, WatchListPolicy};
use informer_core::{Delta, Index, Key, Moment, Scope, Snapshot, StoreReader, StoreWriter, TypeMeta};
use std::time::Duration;

const GONE: &str = r#"{"kind":"Status","code":410,"reason":"Expired"}"#;
const TOO_LARGE: &str = r#"{"code":504,"details":{"causes":[{"reason":"ResourceVersionTooLarge"}]}}"#;

/// A reflector and its cache, and what it last asked for.
struct Client {
    now: Moment,
    reflector: Reflector,
    writer: StoreWriter,
    reader: StoreReader,
    open: StreamId,
    asked: Vec<String>,
    /// What was handed on and not applied yet.
    deltas: Vec<Delta>,
}

impl Client {
    fn new(watch_list: WatchListPolicy) -> Self {
        let (writer, reader) = StoreWriter::new([Scope::All]);
        let mut config = Config::new(TypeMeta::new("v1", "Pod"), Scope::All);
        config.watch_list = watch_list;
        let mut reflector = Reflector::new(config, 1, Some(reader.clone()));
        let now = Moment::default();
        reflector.start(now);
        let (open, asked, deltas) = (StreamId(0), Vec::new(), Vec::new());
        let mut client = Self { now, reflector, writer, reader, open, asked, deltas };
        client.carry_out();
        client
    }

    fn carry_out(&mut self) {
        while let Some(action) = self.reflector.poll_action() {
            match action {
                Action::List(id, ask) => self.ask(id, "list", &ask.query()),
                Action::Watch(id, ask) => self.ask(id, "watch", &ask.query()),
                Action::Push(delta) => self.deltas.push(delta),
                Action::Cancel(_) | Action::Report(_) => {}
            }
        }
    }

    fn ask(&mut self, id: StreamId, what: &str, query: &[(&'static str, String)]) {
        self.open = id;
        let version =
            query.iter().find(|(name, _)| *name == "resourceVersion").map_or("", |(_, value)| value);
        self.asked.push(format!("{what} {version}").trim().to_owned());
    }

    /// Headers and some bytes for the open request.
    fn send(&mut self, status: u16, body: &str) -> &mut Self {
        self.reflector.handle_response(self.now, self.open, ResponseHead::new(status));
        self.more(body)
    }

    /// More bytes.
    fn more(&mut self, body: &str) -> &mut Self {
        self.reflector.handle_bytes(self.now, self.open, body.as_bytes());
        self.carry_out();
        self
    }

    /// A whole answer.
    fn answer(&mut self, status: u16, body: &str) -> &mut Self {
        let id = self.open;
        self.send(status, body);
        self.reflector.handle_end(self.now, id);
        self.carry_out();
        self
    }

    /// The watch has lost its position, and the server has not come that far: it was restored.
    fn restored(&mut self) -> &mut Self {
        self.answer(410, GONE).answer(504, TOO_LARGE)
    }

    fn apply(&mut self) -> Snapshot {
        for delta in std::mem::take(&mut self.deltas) {
            self.writer.apply(&Scope::All, [delta]);
            self.writer.check_invariants();
        }
        self.reader.snapshot()
    }
}

fn pod(name: &str, version: u64, node: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"a","uid":"u-{name}","resourceVersion":"{version}"}},"spec":{{"nodeName":"{node}"}}}}"#
    )
}

/// A state whose labels do not read.
fn unreadable(name: &str, version: u64) -> String {
    pod(name, version, "n").replace("\"uid\"", "\"labels\":7,\"uid\"")
}

fn service(name: &str) -> String {
    pod(name, 99, "n").replacen('{', r#"{"kind":"Service","apiVersion":"v1","#, 1)
}

fn list(version: u64, items: &[String]) -> String {
    format!(
        r#"{{"kind":"PodList","metadata":{{"resourceVersion":"{version}"}},"items":[{}]}}"#,
        items.join(",")
    )
}

fn frame(kind: &str, object: &str) -> String {
    format!(r#"{{"type":"{kind}","object":{object}}}"#)
}

fn contents(snapshot: &Snapshot) -> Vec<String> {
    let entry = |entry: &std::sync::Arc<informer_core::Entry>| {
        let bytes = entry.bytes();
        let text = String::from_utf8_lossy(&bytes);
        let node = text.split("nodeName\":\"").nth(1).unwrap().split('"').next().unwrap();
        let stale = if entry.is_stale() { " stale" } else { "" };
        format!("{entry:?} {node}{stale}")
    };
    snapshot.list().map(entry).collect()
}

/// An object was changed, the server restored to before the change, and the object changed otherwise: by chance at the same version
/// number. The cache took uid and version for proof that nothing had changed, and kept a state that never was (C1, C2).
#[test]
fn a_version_that_was_given_out_twice_is_not_the_same_state() {
    let mut client = Client::new(WatchListPolicy::Never);
    client.answer(200, &list(9, &[pod("x", 5, "before")])).apply();
    let snapshot = client.restored().answer(200, &list(7, &[pod("x", 5, "after")])).apply();
    assert_eq!(contents(&snapshot), ["a/x@5 after"]);
    assert_eq!(client.asked, ["list 0", "watch 9", "list 9", "list", "watch 7"]);
}

/// The same, met by an index that was built before the restore and installed behind it: only differences between the two states are
/// added to it, and these were found by uid and version.
#[test]
fn an_index_built_before_a_restore_is_brought_up_to_date() {
    let by_node = Index::field("spec.nodeName").into_handle().unwrap();
    let mut client = Client::new(WatchListPolicy::Never);
    client.answer(200, &list(9, &[pod("x", 5, "before")])).apply();
    let built = client.reader.build_index(by_node.clone());
    client.restored().answer(200, &list(7, &[pod("x", 5, "after")])).apply();
    client.writer.install_index(built);
    client.writer.check_invariants();
    assert_eq!(client.reader.snapshot().index_keys(&by_node, "after"), [Key::new("a", "x")]);
}

/// In a watch-list the deletion of something of another kind took the pod of the same name out of the set.
#[test]
fn a_deletion_of_another_kind_deletes_nothing() {
    let mut client = Client::new(WatchListPolicy::Auto);
    let bookmark = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}}"#;
    client.send(200, &frame("ADDED", &pod("x", 5, "n"))).more(&frame("DELETED", &service("x")));
    let snapshot = client.more(&frame("BOOKMARK", bookmark)).apply();
    assert_eq!(contents(&snapshot), ["a/x@5 n"]);
}

/// After a restore an object could not be read, so its cached state was kept as a stale one, with the version that the restore had
/// undone. Whatever the watch then said of the object was below that version, and dropped (C2).
#[test]
fn a_state_that_a_restore_undid_does_not_block_what_follows() {
    let restored = || {
        let mut client = Client::new(WatchListPolicy::Never);
        client.answer(200, &list(20, &[pod("x", 20, "before")])).apply();
        client.restored().answer(200, &list(15, &[unreadable("x", 12)])).apply();
        assert_eq!(contents(&client.reader.snapshot()), ["a/x@20 before stale"]);
        client
    };
    let snapshot = restored().send(200, &frame("MODIFIED", &pod("x", 16, "after"))).apply();
    assert_eq!(contents(&snapshot), ["a/x@16 after"]);
    let snapshot = restored().send(200, &frame("DELETED", &pod("x", 16, "after"))).apply();
    assert!(snapshot.is_empty());
    // What is older than the unreadable state itself is still dropped (C1).
    let snapshot = restored().send(200, &frame("MODIFIED", &pod("x", 11, "old"))).apply();
    assert_eq!(contents(&snapshot), ["a/x@20 before stale"]);
}

/// The same, and then the object was changed to something readable, by chance at the version that the restore had undone. The list that
/// showed it did not go back, so uid and version were believed, and the state that never was stayed for good.
#[test]
fn a_state_that_a_restore_undid_is_not_taken_for_what_follows() {
    let mut client = Client::new(WatchListPolicy::Never);
    client.answer(200, &list(20, &[pod("x", 20, "before")])).apply();
    client.restored().answer(200, &list(15, &[unreadable("x", 12)])).apply();
    client.send(200, "").now = Moment::at(Duration::from_mins(1));
    let snapshot =
        client.more(&frame("ERROR", GONE)).answer(200, &list(25, &[pod("x", 20, "after")])).apply();
    assert_eq!(contents(&snapshot), ["a/x@20 after"]);
}

/// An entry that had been overtaken by something unreadable was found equal to an item of the list after a restore, used again, and
/// called stale for ever, though it was the newest state.
#[test]
fn an_entry_that_is_used_again_is_not_stale() {
    let mut client = Client::new(WatchListPolicy::Never);
    client.answer(200, &list(5, &[pod("x", 5, "n")])).apply();
    client.send(200, &frame("MODIFIED", &unreadable("x", 6))).apply();
    assert_eq!(contents(&client.reader.snapshot()), ["a/x@5 n stale"]);
    // The deletion is still in the queue when the list comes.
    client.more(&frame("DELETED", &pod("x", 7, "n"))).more(&frame("ERROR", GONE));
    let snapshot = client.answer(504, TOO_LARGE).answer(200, &list(5, &[pod("x", 5, "n")])).apply();
    assert_eq!(contents(&snapshot), ["a/x@5 n"]);
}

/// kube-apiserver accepts a watch from a version it has not reached and says nothing until it has (kubernetes#107457): after a restore
/// the reflector stayed live, and deaf, for as long as the new history took to overtake the old (C1, C11).
#[test]
fn a_position_that_no_frame_confirms_is_asked_for_anew() {
    let mut client = Client::new(WatchListPolicy::Never);
    client.answer(200, &list(90, &[pod("x", 90, "before")])).apply();
    let mut ends = 0;
    while client.asked.last().unwrap().starts_with("watch") {
        client.send(200, "");
        client.now = client.now + Duration::from_mins(5);
        client.reflector.handle_end(client.now, client.open);
        client.carry_out();
        ends += 1;
        assert!(ends < 10, "{:?}", client.asked);
    }
    client.answer(504, TOO_LARGE).answer(200, &list(70, &[pod("x", 70, "after")]));
    assert_eq!(contents(&client.apply()), ["a/x@70 after"]);
    assert!(client.now <= Moment::at(Duration::from_mins(30)), "after {:?}", client.now);
}

/// A server that hands out pages nobody asked for, with tokens that are dead at once, was asked again and again without a pause (C11).
#[test]
fn dead_tokens_are_no_hot_loop() {
    let mut client = Client::new(WatchListPolicy::Never);
    let page = list(9, &[pod("x", 5, "n")]).replace("\"9\"", "\"9\",\"continue\":\"t\"");
    for _ in 0..10 {
        if matches!(client.reflector.state(), State::BackingOff { .. }) {
            break;
        }
        client.answer(200, &page).answer(410, GONE);
    }
    assert!(matches!(client.reflector.state(), State::BackingOff { .. }), "{:?}", client.asked);
    assert!(client.reader.get(&Key::new("a", "x")).is_none());
}
