//! Random lives of a process with a durable handler, against a model of what the handler has written elsewhere.
//!
//! Every step of a save, of the delivery and of the acknowledgement is one step of the test, and the process can die
//! between any two of them.

use super::super::listener::{ListenerOptions, Mode};
use super::*;
use crate::clock::Clock;
use crate::event::{Delivery, Event, Untyped};
use crate::status::DiagnosticSink;
use futures::task::noop_waker_ref;
use informer_core::{Object, Scope, StoreReader, StoreWriter};
use k8s_openapi::api::core::v1::ConfigMap;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

const DAY: u64 = 24 * 3_600;
const NOW: Usage = Usage { uses: 100, seconds: 400 * DAY };

#[derive(Debug, Clone)]
enum Step {
    /// Creates, updates or deletes an object in the cluster.
    Change {
        name: u8,
        kind: u8,
    },
    Cut,
    Prepare,
    Write,
    Deliver,
    /// The four steps before.
    Save,
    /// Acknowledges what was received, and receives this many events.
    Receive(usize),
    Join,
    Leave,
    /// The process dies, and the next one starts.
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0_u8..4, 0_u8..4).prop_map(|(name, kind)| Step::Change { name, kind }),
        3 => Just(Step::Cut),
        3 => Just(Step::Prepare),
        3 => Just(Step::Write),
        3 => Just(Step::Deliver),
        4 => Just(Step::Save),
        6 => (1_usize..4).prop_map(Step::Receive),
        2 => Just(Step::Join),
        1 => Just(Step::Leave),
        1 => Just(Step::Crash),
    ]
}

fn object(name: u8, uid: u64, version: u64) -> Arc<Entry> {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(format!("m{name}"));
    map.metadata.uid = Some(format!("u{uid}"));
    map.metadata.resource_version = Some(version.to_string());
    Arc::clone(Object::from_typed(map).unwrap().entry())
}

/// What the handler has written elsewhere, in all lives.
#[derive(Default)]
struct External {
    /// The uid and version of each object.
    objects: BTreeMap<String, (String, u64)>,
    /// The uids of deleted objects, and the life in which the deletion was received last.
    deleted: BTreeMap<String, u64>,
    life: u64,
    /// The uids and versions of the states that were received in this life and not acknowledged.
    received: BTreeSet<(String, u64)>,
    /// Those of earlier lives.
    unacknowledged: BTreeSet<(String, u64)>,
    /// Those that were acknowledged in any life.
    acknowledged: BTreeSet<(String, u64)>,
    /// The uids of objects whose deletion was received and not acknowledged.
    received_deletions: BTreeSet<String>,
    /// What was known as acknowledged when this life began, and what is now.
    known_at_begin: Acknowledged,
    known: Acknowledged,
    /// Whether the handler is a controller, which receives earlier states again.
    is_controller: bool,
}

/// Acknowledged states, and uids of objects whose deletion is acknowledged.
#[derive(Clone, Default)]
struct Acknowledged {
    states: BTreeSet<(String, u64)>,
    deletions: BTreeSet<String>,
}

/// The keys of a controller of which one is not finished.
#[derive(Default)]
struct TestKeys {
    cuts: AtomicU64,
    /// The number of the last cut that was saved.
    saved: AtomicU64,
}

impl ControllerKeys for TestKeys {
    fn unfinished(&self) -> Unfinished {
        Unfinished { all: false, keys: [Key::cluster("gone")].into_iter().collect() }
    }

    fn begin(&self) {}

    fn resume(&self, _: Unfinished) {}

    fn cut(&self) -> u64 {
        self.cuts.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn saved(&self, cut: u64) {
        self.saved.store(cut, Ordering::Relaxed);
    }
}

impl External {
    fn acknowledge(&mut self) {
        self.unacknowledged.retain(|state| !self.received.contains(state));
        self.known.states.extend(self.received.iter().cloned());
        self.known.deletions.append(&mut self.received_deletions);
        self.acknowledged.append(&mut self.received);
    }

    /// Begins a life in which this is known as acknowledged.
    fn begin_life(&mut self, known: Acknowledged) {
        self.life += 1;
        (self.known_at_begin, self.known) = (known.clone(), known);
        self.received_deletions.clear();
        let received = std::mem::take(&mut self.received);
        self.unacknowledged.extend(received.difference(&self.acknowledged).cloned());
    }

    fn fold(&mut self, event: &Event<Untyped>) {
        let object = event.object();
        let (name, uid) = (object.name().to_owned(), object.uid().to_owned());
        let version: u64 = object.resource_version().as_str().parse().unwrap();
        self.received.insert((uid.clone(), version));
        if self.is_controller {
            return;
        }
        let known = self.objects.get(&name).cloned();
        if let Event::Deleted { observed, .. } = event {
            assert!(
                !self.known_at_begin.deletions.contains(&uid),
                "{name}: an acknowledged deletion is repeated"
            );
            self.received_deletions.insert(uid.clone());
            let deleted_in = self.deleted.insert(uid.clone(), self.life);
            assert_ne!(deleted_in, Some(self.life), "{name}: deleted twice in one life");
            if known.as_ref().is_some_and(|known| known.0 == uid) {
                self.objects.remove(&name);
            } else if known.is_some() {
                // An object that the handler could have received before the process died, and has not.
                let is_saved = !observed && self.life > 0;
                assert!(
                    deleted_in.is_some() || is_saved,
                    "{name}: the deleted object was neither received nor saved"
                );
            }
            return;
        }
        assert!(!self.deleted.contains_key(&uid), "{name} was deleted, but exists");
        if let Some((known, known_version)) = known {
            assert_eq!(known, uid, "C2: {name}: the deletion of the previous object is missing");
            assert!(known_version <= version, "C1: {name} went back from {known_version} to {version}");
        }
        if let Event::Added { previous, .. } = event
            && self.known_at_begin.states.contains(&(uid.clone(), version))
        {
            let previous = previous.as_ref().map(|previous| previous.resource_version().to_string());
            assert_eq!(
                previous,
                Some(version.to_string()),
                "{name}: an acknowledged state is repeated as new"
            );
        }
        if let Event::Added { previous: Some(previous), .. } = event {
            let previous: u64 = previous.resource_version().as_str().parse().unwrap();
            let (_, known) = self.objects.get(&name).expect("the handler has received the previous state");
            assert!(previous <= *known, "the previous state was received");
        }
        self.objects.insert(name, (uid, version));
    }
}

/// The process, and what its file contains.
struct World {
    cluster: BTreeMap<u8, (u64, u64)>,
    version: u64,
    writer: StoreWriter,
    reader: StoreReader,
    durable: DurableHandlers,
    listener: Option<Arc<Listener>>,
    cut: Option<Cut>,
    prepared: Option<(Cut, Handlers, Prepared)>,
    /// What was acknowledged when the save was prepared, and when the one in the file was.
    prepared_acknowledged: Acknowledged,
    file_acknowledged: Acknowledged,
    is_written: bool,
    /// The capacity of the outbox, if it is uncoalesced.
    capacity: Option<usize>,
    now: Usage,
    file: (Vec<Arc<Entry>>, Handlers),
    external: External,
    keys: Arc<TestKeys>,
}

impl World {
    fn new(capacity: Option<usize>) -> Self {
        let (writer, reader) = StoreWriter::new([Scope::All]);
        Self {
            cluster: BTreeMap::new(),
            version: 0,
            writer,
            reader,
            durable: DurableHandlers::default(),
            listener: None,
            cut: None,
            prepared: None,
            prepared_acknowledged: Acknowledged::default(),
            file_acknowledged: Acknowledged::default(),
            is_written: false,
            capacity,
            now: NOW,
            file: (Vec::new(), Handlers::new()),
            external: External::default(),
            keys: Arc::default(),
        }
    }

    fn change(&mut self, name: u8, kind: u8) {
        self.version += 1;
        let version = self.version;
        match (self.cluster.get(&name).copied(), kind) {
            (Some(_), 0) => drop(self.cluster.remove(&name)),
            // Re-created before the cache has seen the deletion.
            (Some(_), 1) | (None, _) => drop(self.cluster.insert(name, (version, version))),
            (Some((uid, _)), _) => drop(self.cluster.insert(name, (uid, version))),
        }
        self.apply();
    }

    /// Makes the cache equal to the cluster.
    fn apply(&mut self) {
        let objects = self.cluster.iter().map(|(name, (uid, version))| object(*name, *uid, *version));
        let applied = self.writer.replace_unversioned(objects);
        // As the pump does.
        if self.listener.is_some() {
            self.durable.record(applied.changes);
        }
    }

    fn cut(&mut self) {
        if self.cut.is_none() && self.prepared.is_none() {
            self.cut = Some(self.durable.cut(self.reader.snapshot()));
        }
    }

    fn prepare(&mut self) {
        if let Some(cut) = self.cut.take() {
            let (handlers, prepared) = self.durable.prepare(&cut, self.now);
            self.prepared = Some((cut, handlers, prepared));
            self.prepared_acknowledged = self.external.known.clone();
            self.is_written = false;
        }
    }

    fn write(&mut self) {
        if let Some((cut, handlers, _)) = &self.prepared {
            self.file = (cut.snapshot.list().cloned().collect(), handlers.clone());
            self.file.0.sort_by(|left, right| left.key().cmp(right.key()));
            self.file_acknowledged = self.prepared_acknowledged.clone();
            self.is_written = true;
        }
    }

    fn deliver(&mut self) {
        if self.is_written
            && let Some((cut, _, prepared)) = self.prepared.take()
        {
            self.durable.deliver(cut, prepared, self.now, true);
            self.is_written = false;
        }
    }

    fn save(&mut self) {
        self.cut();
        self.prepare();
        self.write();
        self.deliver();
    }

    fn receive(&mut self, max: usize) -> bool {
        let Some(listener) = &self.listener else { return false };
        self.external.acknowledge();
        let (mut context, mut received) = (Context::from_waker(noop_waker_ref()), false);
        for index in 0..max {
            let polled = match index {
                0 => listener.poll_next(&mut context),
                _ => listener.poll_further(&mut context),
            };
            let Poll::Ready(Some(delivery)) = polled else { break };
            if let Delivery::Event(event) = &delivery {
                self.external.fold(event);
            }
            received = true;
        }
        received
    }

    fn join(&mut self) {
        let keys: Option<Arc<dyn ControllerKeys>> =
            if self.external.is_controller { Some(self.keys.clone()) } else { None };
        self.join_as(DurableName { name: "test".into(), versions: None, keys });
    }

    fn join_as(&mut self, name: DurableName) {
        if self.listener.is_none() {
            let options = ListenerOptions {
                name: "test".into(),
                resync_period: Duration::ZERO,
                mode: Mode::Inline,
                uncoalesced_capacity: self.capacity,
                deliver_transient_deletes: false,
                durable: Some(name),
                is_filtered: false,
            };
            let diagnostics = DiagnosticSink { resource: "configmaps".into(), hook: None };
            let listener = Arc::new(Listener::new(0, options, None, Clock::new(), diagnostics));
            self.durable.join(&listener).unwrap();
            self.listener = Some(listener);
        }
    }

    fn leave(&mut self) {
        if let Some(listener) = self.listener.take() {
            self.durable.leave(&listener);
            // A handler that is added again in the same process begins with the initial list.
            self.external.begin_life(self.external.known.clone());
        }
    }

    fn crash(&mut self) {
        let (writer, reader) = StoreWriter::new([Scope::All]);
        (self.writer, self.reader) = (writer, reader);
        (self.durable, self.listener) = (DurableHandlers::default(), None);
        (self.cut, self.prepared) = (None, None);
        let (entries, handlers) = self.file.clone();
        self.durable.load(&entries, handlers);
        self.external.begin_life(self.file_acknowledged.clone());
        self.apply();
    }

    fn run(&mut self, step: &Step) {
        match step {
            Step::Change { name, kind } => self.change(*name, *kind),
            Step::Cut => self.cut(),
            Step::Prepare => self.prepare(),
            Step::Write => self.write(),
            Step::Deliver => self.deliver(),
            Step::Save => self.save(),
            Step::Receive(max) => drop(self.receive(*max)),
            Step::Join => self.join(),
            Step::Leave => self.leave(),
            Step::Crash => self.crash(),
        }
    }

    /// Lets the handler receive everything; returns the objects that it then knows.
    fn settle(&mut self) -> Vec<(String, String, u64)> {
        self.join();
        for _ in 0..3 {
            self.save();
            while self.receive(1) {}
        }
        let objects = self.external.objects.iter();
        objects.map(|(name, (uid, version))| (name.clone(), uid.clone(), *version)).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    /// C2 across restarts: whenever the process dies, the events of all lives lead to the objects of the cluster, no
    /// deletion is missing, and no state is older than one that was received.
    #[test]
    fn c2_events_of_all_lives_lead_to_the_objects_of_the_cluster(
        capacity in prop::option::of(prop_oneof![Just(1_usize), Just(100)]),
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let mut world = World::new(capacity);
        for step in &steps {
            world.run(step);
        }
        let known = world.settle();
        let cluster = world.cluster.iter();
        let expected: Vec<_> =
            cluster.map(|(name, (uid, version))| (format!("m{name}"), format!("u{uid}"), *version)).collect();
        prop_assert_eq!(known, expected);
        // A handler that has acknowledged everything differs in nothing from the saved objects.
        world.cut();
        world.prepare();
        world.write();
        prop_assert!(world.file.1.values().all(|handler| handler.differences.is_empty()), "{:?}", world.file.1);
    }

    /// A controller receives every state again on which it may have acted, also if the object has changed or was
    /// deleted since: the keys to which these states are mapped have to be reconciled.
    #[test]
    fn controllers_receive_unacknowledged_states_again(steps in prop::collection::vec(step(), 1..80)) {
        let mut world = World::new(Some(1_000));
        world.external.is_controller = true;
        for step in &steps {
            world.run(step);
        }
        world.settle();
        prop_assert!(world.external.unacknowledged.is_empty(), "{:?}", world.external.unacknowledged);
    }
}

/// An inactive handler receives nothing, so the number of states that it may have received does not grow.
#[test]
fn inactive_handlers_remember_only_what_they_have_received() {
    let mut world = World::new(None);
    world.join();
    world.change(0, 2);
    for receives in [true, false] {
        world.save();
        if receives {
            world.receive(1);
        }
    }
    world.crash();
    for _ in 0..10 {
        world.change(0, 2);
        world.save();
    }
    let differences = &world.file.1["test"].differences;
    let difference = differences.values().next().unwrap();
    let SavedState::Received(states) = &difference.saved else { panic!("{difference:?}") };
    assert!(states.acknowledged.is_none() && !states.includes_saved, "{states:?}");
    assert_eq!(states.others.len(), 1, "{states:?}");
}

/// The day on which a handler was used last was saved, and compared with the current one when the file was read. A clock
/// that was wrong by a month in one process, forwards, made it forget handlers that every process adds, and their
/// deletions were lost. No test had another date, and nothing reported it.
#[test]
fn names_are_forgotten_after_a_month_of_use_without_them() {
    for (days, is_kept) in [(29, true), (31, false)] {
        let last_used = Usage { uses: 99, seconds: NOW.seconds - days * DAY };
        let mut differences = Differences::new();
        let gone = Difference { gone: vec![object(1, 1, 1)], ..Difference::default() };
        differences.insert(Key::new("default", "gone"), Arc::new(gone));
        let old = SavedHandler { last_used, differences: Arc::new(differences), ..SavedHandler::default() };
        let mut world = World::new(None);
        world.durable.load(&[], Handlers::from([("old".into(), old.clone()), ("test".into(), old)]));
        world.join();
        let forgotten = world.durable.forget_unused(NOW);
        let expected = ForgottenHandler { name: "old".into(), missed_deletions: 1 };
        assert_eq!(forgotten, if is_kept { vec![] } else { vec![expected] });
        world.save();
        assert_eq!(world.file.1.contains_key("old"), is_kept, "{days} days");
        assert_eq!(world.file.1["test"].last_used, NOW, "a handler that is added is never forgotten");
    }
}

/// A handler counted as used when it began. A process that had run for a month, and then removed its handlers to shut down,
/// forgot all of them.
#[test]
fn handler_of_a_process_that_runs_for_months_is_not_forgotten() {
    let mut world = World::new(None);
    world.change(0, 2);
    world.join();
    world.save();
    world.now.seconds += 40 * DAY;
    world.save();
    world.leave();
    assert_eq!(world.durable.forget_unused(world.now), []);
    world.save();
    assert_eq!(world.file.1["test"].last_used, world.now);
}

/// A handler that has never begun is not saved: the next process would take it for one that has.
#[test]
fn handler_that_has_not_begun_leaves_no_trace() {
    let mut world = World::new(None);
    world.cut();
    world.join();
    world.prepare();
    world.write();
    world.deliver();
    assert!(!world.file.1.contains_key("test"));
    world.leave();
    world.save();
    assert!(!world.file.1.contains_key("test"));
    assert_eq!(world.durable.forget_unused(NOW), []);
}

/// A controller that begins for the first time has to reconcile every key. If the process dies before that is recorded
/// otherwise, the next one has to.
#[test]
fn controller_that_has_just_begun_is_saved_with_every_key() {
    let mut world = World::new(Some(10));
    world.external.is_controller = true;
    world.change(0, 2);
    world.join();
    world.save();
    assert!(world.file.1["test"].unfinished.all);
    world.save();
    assert!(!world.file.1["test"].unfinished.all);
}

/// States that a controller has skipped are not in the file. Until it has queued every key instead, the file contains
/// that it has to.
#[test]
fn controller_that_skips_events_is_saved_with_every_key() {
    let mut world = World::new(Some(1));
    world.external.is_controller = true;
    world.join();
    world.save();
    for _ in 0..5 {
        world.change(0, 2);
    }
    world.save();
    world.save();
    assert!(world.file.1["test"].unfinished.all);
    // Keys of objects that do not exist are not among all keys.
    assert_eq!(world.file.1["test"].unfinished.keys.len(), 1);
    while world.receive(1) {}
    world.save();
    assert!(!world.file.1["test"].unfinished.all);
}

/// A source that leaves during a save does not receive what is saved. So the reconciles before may have acted on states
/// that no source delivers.
#[test]
fn source_that_leaves_during_a_save_has_not_saved_what_reconciles_have_read() {
    let mut world = World::new(Some(10));
    world.external.is_controller = true;
    world.join();
    world.save();
    world.save();
    assert_eq!(world.keys.saved.load(Ordering::Relaxed), 1);
    world.cut();
    world.prepare();
    world.write();
    world.leave();
    world.deliver();
    assert_eq!(world.keys.saved.load(Ordering::Relaxed), 1);
}

/// The states of one key in a file are limited.
#[test]
fn controller_with_too_many_states_is_saved_with_every_key() {
    for is_controller in [true, false] {
        let mut world = World::new(Some(10_000));
        world.external.is_controller = is_controller;
        world.join();
        world.save();
        for _ in 0..MAX_SAVED_STATES + 2 {
            world.change(0, 2);
        }
        world.save();
        let saved = &world.file.1["test"];
        assert_eq!(saved.unfinished.all, is_controller);
        assert_eq!(saved.differences.values().next().unwrap().states(), 0);
    }
}

/// A program that is released often changes the version of its controllers often. Only the last older one is kept.
#[test]
fn old_versions_of_a_controller_are_forgotten_when_the_file_is_read() {
    let saved = |uses| {
        let last_used = Usage { uses, seconds: 0 };
        SavedHandler { last_used, ..SavedHandler::default() }
    };
    let names = ["c:1", "c:2", "c:3", "other:1"];
    let handlers: Handlers =
        names.into_iter().zip(1..).map(|(name, uses)| (name.into(), saved(uses))).collect();
    let mut world = World::new(None);
    world.join_as(DurableName { name: "c:4".into(), versions: Some("c:".into()), keys: None });
    world.durable.load(&[], handlers);
    world.save();
    let names: Vec<&str> = world.file.1.keys().map(|name| &**name).collect();
    assert_eq!(names, ["c:3", "c:4", "other:1"]);
}
