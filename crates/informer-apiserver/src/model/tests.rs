//! The model under random operations, compared with a reference model: the complete state of every version.
//!
//! A failing assertion prints its seed, which alone determines the run.

use informer_objects::status::Status;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;

/// The reference model: for every version the complete state, as `name -> value of k`.
type Reference = Vec<(u64, BTreeMap<String, String>)>;

struct World {
    model: Model,
    gvr: VersionedResource,
    reference: Reference,
    random: u64,
}

impl World {
    fn new(seed: u64, history: HistoryLimits) -> Self {
        let model = Model::new(Timestamp::UNIX_EPOCH, seed, history);
        let gvr = model.registry().resource("", "v1", "configmaps").unwrap();
        let reference = vec![(model.version(), BTreeMap::new())];
        World { model, gvr, reference, random: seed.wrapping_mul(2).wrapping_add(1) }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    /// Performs a random write in the model and in the reference model.
    fn act(&mut self) {
        let name = format!("m-{}", self.random(6));
        let value = self.random(3).to_string();
        let labels = if self.random(2) == 0 { json!({"on": "yes"}) } else { json!({}) };
        let object = json!({"metadata": {"name": name, "labels": labels}, "data": {"k": value}});
        let (now, key) = (Timestamp::UNIX_EPOCH, ("default", name.as_str()));
        let mut objects = self.reference.last().unwrap().1.clone();
        let before = self.model.version();
        match self.random(3) {
            0 => {
                if self
                    .model
                    .create(
                        &WriteContext::at(now, "test"),
                        self.gvr,
                        "default",
                        object,
                        WriteOrigin::Internal,
                    )
                    .is_ok()
                {
                    objects.insert(name.clone(), value);
                }
            }
            1 => {
                let target = WriteTarget::Object;
                if self
                    .model
                    .update(
                        &WriteContext::at(now, "test"),
                        self.gvr,
                        key,
                        target,
                        object,
                        WriteOrigin::Internal,
                    )
                    .is_ok()
                {
                    objects.insert(name.clone(), value);
                }
            }
            _ => {
                if self.model.delete(now, self.gvr, key, &DeleteOptions::default()).is_ok() {
                    objects.remove(&name);
                }
            }
        }
        assert!(self.model.version() <= before + 1, "a write must consume at most one version");
        if self.model.version() > before {
            self.reference.push((self.model.version(), objects));
        } else {
            assert_eq!(objects, self.reference.last().unwrap().1, "a change must consume a version");
        }
    }

    /// Returns the listed objects as `name -> value of k`.
    fn listed(&mut self, at: &ReadVersion) -> Result<BTreeMap<String, String>, Status> {
        let listing = self.model.list(self.gvr, "default", at, Paging::Unpaged)?;
        let filter = Filter::namespace("default");
        Ok(listing.states(&filter).map(|state| (state.name.clone(), value(&state))).collect())
    }
}

/// Returns limits with only a maximum number of changes per resource.
fn limited_to(changes: usize) -> HistoryLimits {
    HistoryLimits { changes, ..HistoryLimits::UNLIMITED }
}

fn value(state: &State) -> String {
    state.decode().pointer("/data/k").and_then(Value::as_str).unwrap_or_default().to_owned()
}

#[test]
fn every_retained_version_can_be_listed() {
    for seed in 0..200 {
        let mut world = World::new(seed, limited_to(20));
        for _ in 0..60 {
            world.act();
        }
        world.model.check_invariants();
        let floor = world.model.collections[&world.gvr.id].watch_floor();
        for (version, expected) in world.reference.clone() {
            let listed = world.listed(&ReadVersion::Exact(version));
            if version < floor {
                assert_eq!(listed.unwrap_err().code, 410, "seed {seed}, version {version}");
            } else {
                assert_eq!(listed.unwrap(), expected, "seed {seed}, version {version}");
            }
        }
    }
}

#[test]
fn watch_from_any_version_leads_to_the_same_state() {
    for seed in 0..200 {
        let mut world = World::new(seed, HistoryLimits::UNLIMITED);
        for _ in 0..40 {
            world.act();
        }
        let all = Filter::namespace("default");
        for (from, mut objects) in world.reference.clone() {
            let opened = world.model.open_watch(world.gvr, WatchStart::Version(from)).unwrap();
            let mut cursor = opened.cursor;
            let mut last = from;
            loop {
                let Step::Frames(frames, more) = world.model.step(&mut cursor, &all, 3) else {
                    panic!("seed {seed}: the watch ended")
                };
                for frame in frames {
                    assert!(frame.version > last, "seed {seed}: versions must increase");
                    last = frame.version;
                    let known = objects.contains_key(&frame.state.name);
                    match frame.kind.name() {
                        "ADDED" => assert!(!known, "seed {seed}: added twice"),
                        _ => assert!(known, "seed {seed}: changed, but never added"),
                    }
                    match frame.kind.name() {
                        "DELETED" => objects.remove(&frame.state.name),
                        _ => objects.insert(frame.state.name.clone(), value(&frame.state)),
                    };
                }
                if !more {
                    break;
                }
            }
            world.model.close_watch(&cursor);
            assert_eq!(objects, world.reference.last().unwrap().1, "seed {seed}, from {from}");
        }
    }
}

#[test]
fn watch_and_list_with_selector_agree() {
    for seed in 0..200 {
        let mut world = World::new(seed, HistoryLimits::UNLIMITED);
        let resource = world.model.registry().get(world.gvr.id).unwrap().clone();
        let filter =
            Filter::parse(&resource, "default", Selectors { labels: "on=yes", ..Selectors::default() })
                .unwrap();
        let mut cursor = world.model.open_watch(world.gvr, WatchStart::ExistingObjects).unwrap().cursor;
        let mut watched: BTreeMap<String, String> = BTreeMap::new();
        for _ in 0..40 {
            world.act();
            let Step::Frames(frames, _) = world.model.step(&mut cursor, &filter, usize::MAX) else {
                panic!("seed {seed}: the watch ended")
            };
            for frame in frames {
                match frame.kind.name() {
                    "DELETED" => watched.remove(&frame.state.name),
                    _ => watched.insert(frame.state.name.clone(), value(&frame.state)),
                };
            }
            let listing =
                world.model.list(world.gvr, "default", &ReadVersion::Newest, Paging::Unpaged).unwrap();
            let listed: BTreeMap<String, String> =
                listing.states(&filter).map(|state| (state.name.clone(), value(&state))).collect();
            assert_eq!(watched, listed, "seed {seed}");
        }
    }
}

/// Changes in other namespaces do not wake a watch of one namespace, so it may fall behind by more changes
/// than the history contains. It must still get all changes of its own namespace, or an error if one of those
/// was dropped.
#[test]
fn watch_of_one_namespace_survives_dropped_changes_of_others() {
    let (mut runs, mut expired) = (0, 0);
    for seed in 0..300 {
        let mut world = World::new(seed, limited_to(10));
        let filter = Filter::namespace("default");
        let mut cursor = world.model.open_watch(world.gvr, WatchStart::Now).unwrap().cursor;
        let (mut seen, mut seen_version) = (BTreeMap::new(), world.reference[0].0);
        for round in 0..60_u64 {
            if world.random(5) == 0 {
                world.act();
            } else {
                let object = json!({"metadata": {"name": format!("other-{round}")}});
                let context = WriteContext::at(Timestamp::UNIX_EPOCH, "test");
                world
                    .model
                    .create(&context, world.gvr, "kube-system", object, WriteOrigin::Internal)
                    .unwrap();
            }
            match world.random(30) {
                0 => world.model.compact(),
                1..6 => {}
                _ => continue,
            }
            let has_unseen_change = world.reference.iter().any(|(version, _)| *version > seen_version);
            match world.model.step(&mut cursor, &filter, usize::MAX) {
                Step::Frames(frames, _) => {
                    for frame in frames {
                        match frame.kind.name() {
                            "DELETED" => seen.remove(&frame.state.name),
                            _ => seen.insert(frame.state.name.clone(), value(&frame.state)),
                        };
                    }
                    assert_eq!(seen, world.reference.last().unwrap().1, "seed {seed}, round {round}");
                    seen_version = world.reference.last().unwrap().0;
                }
                _ if has_unseen_change => {
                    expired += 1;
                    break;
                }
                other => {
                    panic!(
                        "seed {seed}, round {round}: no change of its namespace was dropped, but {other:?}"
                    )
                }
            }
        }
        world.model.check_invariants();
        world.model.close_watch(&cursor);
        runs += 1;
    }
    assert!(expired > 50 && runs - expired > 50, "both outcomes must be common: {expired} of {runs} expired");
}

/// Regression: history was limited by the number of changes only, so 300 updates of a large object retained
/// 300 copies of it.
#[test]
fn history_is_limited_by_bytes() {
    let mut world = World::new(1, HistoryLimits { bytes: 64_000_000, ..HistoryLimits::UNLIMITED });
    let context = WriteContext::at(Timestamp::UNIX_EPOCH, "test");
    let large = |value: usize| json!({"metadata": {"name": "large"}, "data": {"k": value.to_string(), "l": "x".repeat(1_000_000)}});
    world.model.create(&context, world.gvr, "default", large(0), WriteOrigin::Internal).unwrap();
    let first = world.model.version();
    for value in 1..100 {
        let key = ("default", "large");
        world
            .model
            .update(&context, world.gvr, key, WriteTarget::Object, large(value), WriteOrigin::Internal)
            .unwrap();
    }
    world.model.check_invariants();
    let newest = world.model.version();
    assert_eq!(world.listed(&ReadVersion::Exact(first)).unwrap_err().code, 410);
    assert!(world.listed(&ReadVersion::Exact(newest - 50)).is_ok(), "more than 50 changes fit");
}

/// Regression: the size of the history was not recomputed when a changed definition encoded its objects
/// again. With smaller objects every write was dropped immediately; with larger ones the limit had no effect.
#[test]
fn history_size_is_recomputed_when_definition_changes() {
    let mut model = Model::new(Timestamp::UNIX_EPOCH, 1, HistoryLimits::UNLIMITED);
    let context = WriteContext::at(Timestamp::UNIX_EPOCH, "test");
    let definitions =
        model.registry().resource("apiextensions.k8s.io", "v1", "customresourcedefinitions").unwrap();
    let definition = |properties: Value| {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "foos.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced", "names": {"plural": "foos", "kind": "Foo"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
                }],
            },
        })
    };
    let text = json!({"type": "string"});
    model
        .create(
            &context,
            definitions,
            "",
            definition(json!({"small": text, "big": text})),
            WriteOrigin::Internal,
        )
        .unwrap();
    let foos = model.registry().resource("example.com", "v1", "foos").unwrap();
    let (api_version, kind) = ("example.com/v1", "Foo");
    for number in 0..20 {
        let object = json!({
            "apiVersion": api_version, "kind": kind, "metadata": {"name": format!("foo-{number}")},
            "small": "s", "big": "b".repeat(100_000),
        });
        model.create(&context, foos, "default", object, WriteOrigin::Internal).unwrap();
    }
    model.check_invariants();
    for properties in [
        json!({"small": text}),
        json!({"small": {"type": "string"}, "big": {"type": "string", "default": "d"}}),
    ] {
        let before = model.get(definitions, "", "foos.example.com").unwrap();
        let mut changed = definition(properties);
        changed["metadata"]["resourceVersion"] = json!(before.version.to_string());
        let key = ("", "foos.example.com");
        model
            .update(&context, definitions, key, WriteTarget::Object, changed, WriteOrigin::Internal)
            .unwrap();
        model.check_invariants();
    }
    model.compact();
    model.check_invariants();
}

#[test]
fn pages_add_up_to_the_list() {
    for seed in 0..50 {
        let mut world = World::new(seed, HistoryLimits::UNLIMITED);
        for _ in 0..30 {
            world.act();
        }
        let expected = world.listed(&ReadVersion::Newest).unwrap();
        let filter = Filter::namespace(if seed % 2 == 0 { "default" } else { "" });
        let limit = 1 + usize::try_from(world.random(3)).unwrap();
        let (mut at, mut found) = (ReadVersion::Newest, BTreeMap::new());
        loop {
            let listing = world.model.list(world.gvr, &filter.namespace, &at, Paging::Paged).unwrap();
            let page = listing.page(&filter, limit);
            found.extend(page.items.iter().map(|state| (state.name.clone(), value(state))));
            world.act();
            let Some(next) = page.next else { break };
            let token = Token::decode(&next.encode()).unwrap();
            assert_eq!(page.remaining, Some(expected.len() - found.len()), "seed {seed}");
            at = ReadVersion::Token(token);
        }
        assert_eq!(found, expected, "seed {seed}");
    }
}

#[test]
fn keys_are_sorted_as_text() {
    let mut world = World::new(0, HistoryLimits::UNLIMITED);
    let namespaces = world.model.registry().resource("", "v1", "namespaces").unwrap();
    let now = Timestamp::UNIX_EPOCH;
    for namespace in ["a", "a-b"] {
        world
            .model
            .create(
                &WriteContext::at(now, "test"),
                namespaces,
                "",
                json!({"metadata": {"name": namespace}}),
                WriteOrigin::Internal,
            )
            .unwrap();
        let object = json!({"metadata": {"name": "x"}});
        world
            .model
            .create(&WriteContext::at(now, "test"), world.gvr, namespace, object, WriteOrigin::Internal)
            .unwrap();
    }
    let listing = world.model.list(world.gvr, "", &ReadVersion::Newest, Paging::Unpaged).unwrap();
    let keys: Vec<String> = listing.states(&Filter::default()).map(|state| state.key()).collect();
    assert_eq!(keys, ["a-b/x", "a/x"], "'-' comes before '/'");
    let of_a = Filter::namespace("a");
    assert_eq!(listing.states(&of_a).count(), 1);
}

#[test]
fn same_seed_produces_same_uids() {
    let uids = |seed| {
        let mut world = World::new(seed, limited_to(10));
        for _ in 0..20 {
            world.act();
        }
        let listing = world.model.list(world.gvr, "", &ReadVersion::Newest, Paging::Unpaged).unwrap();
        listing.states(&Filter::default()).map(|state| state.uid.clone()).collect::<Vec<_>>()
    };
    assert_eq!(uids(3), uids(3));
    assert_ne!(uids(3), uids(4));
}

#[test]
fn malformed_bodies_never_break_the_model() {
    let mut world = World::new(0, limited_to(10));
    let now = Timestamp::UNIX_EPOCH;
    let resources: Vec<VersionedResource> =
        world.model.registry().iter().map(|(id, _)| VersionedResource { id, version: 0 }).collect();
    let bodies = [
        json!(null),
        json!([]),
        json!("text"),
        json!({"metadata": "x"}),
        json!({"metadata": {"name": 5}}),
        json!({"metadata": {"name": "x", "labels": "y"}}),
        json!({"metadata": {"name": "x", "labels": {"a": 1}}}),
        json!({"metadata": {"name": "x", "finalizers": {}}}),
        json!({"metadata": {"name": "x"}, "spec": "y", "status": "z", "data": [], "stringData": {"a": "b"}}),
        json!({"metadata": {"name": "x", "finalizers": ["a/b"]}, "spec": {"names": [], "versions": {}}}),
    ];
    for gvr in resources {
        for body in &bodies {
            let _ = world.model.create(
                &WriteContext::at(now, "test"),
                gvr,
                "default",
                body.clone(),
                WriteOrigin::Internal,
            );
            for target in [WriteTarget::Object, WriteTarget::Status, WriteTarget::Finalize] {
                let _ = world.model.update(
                    &WriteContext::at(now, "test"),
                    gvr,
                    ("default", "x"),
                    target,
                    body.clone(),
                    WriteOrigin::Internal,
                );
                let _ = world.model.update(
                    &WriteContext::at(now, "test"),
                    gvr,
                    ("", "x"),
                    target,
                    body.clone(),
                    WriteOrigin::Internal,
                );
            }
            let _ = world.model.delete(now, gvr, ("default", "x"), &DeleteOptions::default());
            let _ = world.model.delete(now, gvr, ("", "x"), &DeleteOptions::default());
        }
    }
    world.model.check_invariants();
}
