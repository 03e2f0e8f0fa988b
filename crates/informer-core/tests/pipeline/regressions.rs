//! Bugs found by random schedules, each as the shortest schedule that reproduces it.

use informer_core::reflector::{
    Action, Config, InformerState, Reflector, ResponseHead, StreamId, WatchListPolicy,
};
use informer_core::{Delta, Index, Key, Moment, Scope, StoreReader, StoreSnapshot, StoreWriter, TypeMeta};
use std::time::Duration;

const GONE: &str = r#"{"kind":"Status","code":410,"reason":"Expired"}"#;
const TOO_LARGE: &str = r#"{"code":504,"details":{"causes":[{"reason":"ResourceVersionTooLarge"}]}}"#;

/// A reflector and its cache, and the requests it sent.
struct Client {
    now: Moment,
    reflector: Reflector,
    writer: StoreWriter,
    reader: StoreReader,
    open: StreamId,
    requests: Vec<String>,
    /// Deltas that were handed over and not applied yet.
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
        let (open, requests, deltas) = (StreamId(0), Vec::new(), Vec::new());
        let mut client = Self { now, reflector, writer, reader, open, requests, deltas };
        client.carry_out();
        client
    }

    fn carry_out(&mut self) {
        self.deltas.extend(self.reflector.deltas().drain(..));
        while let Some(action) = self.reflector.poll_action() {
            match action {
                Action::List(id, record_request) => self.record_request(id, "list", &record_request.query()),
                Action::Watch(id, record_request) => {
                    self.record_request(id, "watch", &record_request.query());
                }
                Action::Cancel(_) | Action::Report(_) => {}
            }
        }
    }

    fn record_request(&mut self, id: StreamId, what: &str, query: &[(&'static str, String)]) {
        self.open = id;
        let version =
            query.iter().find(|(name, _)| *name == "resourceVersion").map_or("", |(_, value)| value);
        self.requests.push(format!("{what} {version}").trim().to_owned());
    }

    /// Sends headers and some bytes for the open request.
    fn send(&mut self, status: u16, body: &str) -> &mut Self {
        self.reflector.handle_response(self.now, self.open, ResponseHead::new(status));
        self.more(body)
    }

    /// Sends more bytes.
    fn more(&mut self, body: &str) -> &mut Self {
        self.reflector.handle_bytes(self.now, self.open, body.as_bytes());
        self.carry_out();
        self
    }

    /// Sends a complete response.
    fn respond(&mut self, status: u16, body: &str) -> &mut Self {
        let id = self.open;
        self.send(status, body);
        self.reflector.handle_end(self.now, id);
        self.carry_out();
        self
    }

    /// The watch's position has expired, and the server has not reached that version: it was restored.
    fn restored(&mut self) -> &mut Self {
        self.respond(410, GONE).respond(504, TOO_LARGE)
    }

    fn apply(&mut self) -> StoreSnapshot {
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

/// A state with invalid labels.
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

fn contents(snapshot: &StoreSnapshot) -> Vec<String> {
    let entry = |entry: &std::sync::Arc<informer_core::Entry>| {
        let bytes = entry.bytes();
        let text = String::from_utf8_lossy(&bytes);
        let node = text.split("nodeName\":\"").nth(1).unwrap().split('"').next().unwrap();
        let stale = if entry.is_stale() { " stale" } else { "" };
        format!("{entry:?} {node}{stale}")
    };
    snapshot.list().map(entry).collect()
}

/// Regression: an object was changed, the server was restored to before the change, and the object was
/// changed differently, by chance at the same version. The cache took equal uid and version as proof of
/// equality and kept a state that no longer existed (C1, C2).
#[test]
fn reused_version_is_not_the_same_state() {
    let mut client = Client::new(WatchListPolicy::Never);
    client.respond(200, &list(9, &[pod("x", 5, "before")])).apply();
    let snapshot = client.restored().respond(200, &list(7, &[pod("x", 5, "after")])).apply();
    assert_eq!(contents(&snapshot), ["a/x@5 after"]);
    assert_eq!(client.requests, ["list 0", "watch 9", "list 9", "list", "watch 7"]);
}

/// The previous bug in an index that was built before the restore and installed after it: only differences
/// between the two states are added to it, and these were found by uid and version.
#[test]
fn index_built_before_a_restore_is_updated() {
    let by_node = Index::field("spec.nodeName").build().unwrap();
    let mut client = Client::new(WatchListPolicy::Never);
    client.respond(200, &list(9, &[pod("x", 5, "before")])).apply();
    let built = client.reader.build_index(by_node.clone());
    client.restored().respond(200, &list(7, &[pod("x", 5, "after")])).apply();
    client.writer.install_index(built);
    client.writer.check_invariants();
    assert_eq!(client.reader.snapshot().index_keys(&by_node, "after"), [Key::new("a", "x")]);
}

/// Regression: in a watch-list the deletion of an object of another kind removed the pod with the same name.
/// Such a watch-list is replaced by a list.
#[test]
fn deletion_of_another_kind_deletes_nothing() {
    let mut client = Client::new(WatchListPolicy::Auto);
    let bookmark = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}}"#;
    client.send(200, &frame("ADDED", &pod("x", 5, "n"))).more(&frame("DELETED", &service("x")));
    assert!(client.more(&frame("BOOKMARK", bookmark)).apply().is_empty());
    let snapshot = client.respond(200, &list(9, &[pod("x", 5, "n")])).apply();
    assert_eq!(contents(&snapshot), ["a/x@5 n"]);
}

/// Regression: after a restore an object was unreadable, so its cached state was kept as stale, with the
/// version that the restore had undone. All later watch events of the object were below that version and were
/// dropped (C2).
#[test]
fn undone_state_does_not_block_later_states() {
    let restored = || {
        let mut client = Client::new(WatchListPolicy::Never);
        client.respond(200, &list(20, &[pod("x", 20, "before")])).apply();
        client.restored().respond(200, &list(15, &[unreadable("x", 12)])).apply();
        assert_eq!(contents(&client.reader.snapshot()), ["a/x@20 before stale"]);
        client
    };
    let snapshot = restored().send(200, &frame("MODIFIED", &pod("x", 16, "after"))).apply();
    assert_eq!(contents(&snapshot), ["a/x@16 after"]);
    let snapshot = restored().send(200, &frame("DELETED", &pod("x", 16, "after"))).apply();
    assert!(snapshot.is_empty());
    // States older than the unreadable one are still dropped (C1).
    let snapshot = restored().send(200, &frame("MODIFIED", &pod("x", 11, "old"))).apply();
    assert_eq!(contents(&snapshot), ["a/x@20 before stale"]);
}

/// Regression: as before, and then the object became readable, by chance at the version that the restore had
/// undone. The list that contained it was no rewind, so equal uid and version were trusted, and the undone
/// state stayed forever.
#[test]
fn undone_state_is_not_mistaken_for_a_later_one() {
    let mut client = Client::new(WatchListPolicy::Never);
    client.respond(200, &list(20, &[pod("x", 20, "before")])).apply();
    client.restored().respond(200, &list(15, &[unreadable("x", 12)])).apply();
    client.send(200, "").now = Moment::at(Duration::from_secs(60));
    let snapshot =
        client.more(&frame("ERROR", GONE)).respond(200, &list(25, &[pod("x", 20, "after")])).apply();
    assert_eq!(contents(&snapshot), ["a/x@20 after"]);
}

/// Regression: an entry replaced by an unreadable object was equal to an item of the list after a restore,
/// was reused, and stayed marked as stale although it was the newest state.
#[test]
fn reused_entry_is_not_stale() {
    let mut client = Client::new(WatchListPolicy::Never);
    client.respond(200, &list(5, &[pod("x", 5, "n")])).apply();
    client.send(200, &frame("MODIFIED", &unreadable("x", 6))).apply();
    assert_eq!(contents(&client.reader.snapshot()), ["a/x@5 n stale"]);
    // The deletion is still queued when the list arrives.
    client.more(&frame("DELETED", &pod("x", 7, "n"))).more(&frame("ERROR", GONE));
    let snapshot = client.respond(504, TOO_LARGE).respond(200, &list(5, &[pod("x", 5, "n")])).apply();
    assert_eq!(contents(&snapshot), ["a/x@5 n"]);
}

/// Regression: kube-apiserver accepts a watch from a version it has not reached and sends nothing until it
/// has (kubernetes#107457): after a restore the reflector stayed live without receiving anything until the
/// new history had passed the old one (C1, C11).
#[test]
fn unconfirmed_position_is_relisted() {
    let mut client = Client::new(WatchListPolicy::Never);
    client.respond(200, &list(90, &[pod("x", 90, "before")])).apply();
    let mut ends = 0;
    while client.requests.last().unwrap().starts_with("watch") {
        client.send(200, "");
        client.now = client.now + Duration::from_secs(300);
        client.reflector.handle_end(client.now, client.open);
        client.carry_out();
        ends += 1;
        assert!(ends < 10, "{:?}", client.requests);
    }
    client.respond(504, TOO_LARGE).respond(200, &list(70, &[pod("x", 70, "after")]));
    assert_eq!(contents(&client.apply()), ["a/x@70 after"]);
    assert!(client.now <= Moment::at(Duration::from_secs(1800)), "after {:?}", client.now);
}

/// Regression: a server that sends unrequested pages with expired tokens was sent requests without a pause
/// (C11).
#[test]
fn expired_tokens_cause_no_hot_loop() {
    let mut client = Client::new(WatchListPolicy::Never);
    let page = list(9, &[pod("x", 5, "n")]).replace("\"9\"", "\"9\",\"continue\":\"t\"");
    for _ in 0..10 {
        if matches!(client.reflector.state(), InformerState::BackingOff { .. }) {
            break;
        }
        client.respond(200, &page).respond(410, GONE);
    }
    assert!(matches!(client.reflector.state(), InformerState::BackingOff { .. }), "{:?}", client.requests);
    assert!(client.reader.get(&Key::new("a", "x")).is_none());
}
