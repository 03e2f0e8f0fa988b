//! A store that is filled by hand.

use super::{object, texts, typed, value};
use informer::cache::{Delta, Store};
use informer::status::Scope;
use informer::{Event, Index, IndexHandle, Key, Object, ResourceVersion};
use informer_core::random::Random;
use k8s_openapi::api::core::v1::ConfigMap;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

fn objects<const N: usize>(list: [&str; N]) -> Vec<Object<ConfigMap>> {
    list.iter().map(|text| object(text)).collect()
}

/// As in client-go, a store that is filled by hand takes what it is given: versions are not compared.
#[test]
fn insert_replaces_whatever_the_versions() {
    let store = Store::new();
    assert_eq!(texts(&store.insert(objects(["a/x u1 7 red"]))), ["+ a/x@7"]);
    assert_eq!(texts(&store.insert(objects(["a/x u1 3 blue"]))), ["~ a/x@7>3"]);
    assert_eq!(texts(&store.insert(objects(["a/x u1 3 blue"]))), [""; 0], "equal state: no change");
    assert_eq!(texts(&store.insert(objects(["a/x u1 3 red"]))), ["~ a/x@3>3"], "equal version, other state");
    // C3: another uid is another object.
    assert_eq!(texts(&store.insert(objects(["a/x u2 4 red"]))), ["- a/x@3 inferred", "+ a/x@4"]);
    assert_eq!(texts(&store.remove([&Key::new("a", "x"), &Key::new("a", "unknown")])), ["- a/x@4"]);
    assert!(store.snapshot().is_empty() && store.snapshot().resource_version().is_none());
}

#[test]
fn replace_reports_deletions_first_and_keeps_the_last_duplicate() {
    let store = Store::new();
    store.insert(objects(["a/x u1 7 red", "b/x u2 8 red", "b/y u3 9 red"]));
    let events = store.replace(objects(["c/z u4 1 red", "b/y u3 9 red", "a/x u1 2 old", "a/x u1 1 new"]));
    assert_eq!(texts(&events), ["- b/x@8", "~ a/x@7>1", "+ c/z@1"]);
    assert_eq!(value(&store.lister().get("a", "x").unwrap()), "new");
    assert_eq!(texts(&store.replace([])), ["- a/x@1", "- b/y@9", "- c/z@1"]);
}

#[test]
fn object_without_a_name_is_an_error_before_it_is_stored() {
    let error = Object::from_typed(ConfigMap::default()).unwrap_err().to_string();
    assert!(error.ends_with("ConfigMap is not a Kubernetes object: metadata.name is missing"), "{error}");
}

/// C4: an event is returned after the store contains its change; C9: an index closure that panics affects its
/// own object only.
#[test]
fn c9_panicking_index_affects_one_object() {
    let store = Store::new();
    let values = |map: &Object<ConfigMap>| {
        // Unwinds without calling the panic hook, so that nothing is printed.
        let name = (map.name() != "bad").then(|| map.name().to_owned());
        vec![name.unwrap_or_else(|| std::panic::resume_unwind(Box::new("bad")))]
    };
    let index = store.add_index(Index::from_fn("name", values)).unwrap();
    assert!(store.add_index(Index::field("spec[")).is_err());
    let events = store.insert(objects(["a/bad u1 1 red", "a/good u2 2 red"]));
    assert_eq!((events.len(), store.snapshot().len()), (2, 2));
    assert_eq!(store.lister().by_index(&index, "good").len(), 1);
    assert_eq!((store.lister().by_index(&index, "bad").len(), index.panics()), (0, 1));
    store.insert(objects(["a/good u2 3 red"]));
    assert_eq!(store.lister().by_index(&index, "good").len(), 1);
}

/// C1, C2: applied deltas follow the rules of an informer's cache.
#[test]
fn c1_apply_drops_outdated_states_and_infers_deletions() {
    let store = Store::new();
    let version = ResourceVersion::new;
    let list = |texts: Vec<Object<ConfigMap>>, at: &str| Delta::replaced(texts, version(at));
    assert_eq!(texts(&store.apply([list(objects(["a/x u1 5 red"]), "9")])), ["+ a/x@5 initial"]);
    assert_eq!(texts(&store.apply([Delta::Updated(object("a/x u1 4 old"))])), [""; 0], "an older state");
    let events = store.apply([
        Delta::Updated(object("a/x u1 10 blue")),
        Delta::Added(object("a/y u2 11 red")),
        Delta::deleted(object("a/x u1 12 blue")),
        Delta::deleted(object("a/unknown u9 13 red")),
        Delta::Bookmark(version("20")),
    ]);
    assert_eq!(texts(&events), ["~ a/x@5>10", "+ a/y@11", "- a/x@12"]);
    assert_eq!(store.snapshot().resource_version(), Some(&version("20")));
    let events = store.apply([list(objects(["a/z u3 21 red"]), "21"), Delta::Added(object("a/q u4 22 red"))]);
    assert_eq!(texts(&events), ["- a/y@11 inferred", "+ a/z@21", "+ a/q@22"]);
}

/// C5: a list of one namespace does not affect another one, and each has its own version.
#[test]
fn c5_apply_keeps_namespaces_apart() {
    let store = Store::new();
    let list = |namespace: &str, text: &str, at: &str| Delta::Replaced {
        scope: Scope::namespace(namespace),
        version: ResourceVersion::new(at),
        objects: vec![object(text)],
        unreadable: Vec::new(),
    };
    store.apply([list("a", "a/x u1 5 red", "9"), list("b", "b/x u2 6 red", "10")]);
    store.apply([Delta::Updated(object("a/x u1 12 blue")), Delta::Bookmark(ResourceVersion::new("99"))]);
    assert_eq!(store.snapshot().resource_version(), Some(&ResourceVersion::new("10")), "the lowest");
    assert_eq!(texts(&store.apply([list("b", "b/y u3 14 red", "14")])), ["- b/x@6 inferred", "+ b/y@14"]);
    assert_eq!(store.snapshot().resource_version(), Some(&ResourceVersion::new("12")));
    assert_eq!(store.lister().namespace("a").len(), 1);
}

#[test]
fn c4_projection_has_values_when_insert_returns() {
    #[derive(serde::Deserialize)]
    struct Lite {
        data: BTreeMap<String, String>,
    }
    let store = Store::new();
    store.insert(objects(["a/x u1 1 red"]));
    let lite = store.add_projection::<Lite>();
    let events = store.insert(objects(["a/y u2 2 blue"]));
    assert_eq!(lite.metrics().values, 1);
    assert_eq!(events[0].object().projected(&lite).unwrap().data["value"], "blue");
    // Decoded on its first read, because it was stored before.
    assert_eq!(store.lister().get("a", "x").unwrap().projected(&lite).unwrap().data["value"], "red");
    store.replace([]);
    store.insert([]); // frees what the previous state still used
    drop(events);
    assert_eq!(lite.metrics().values, 0);
    drop(lite);
    let small = store.add_projection_with_limit::<Lite>(1);
    let events = store.insert(objects(["a/x u1 1 red", "a/y u2 2 blue"]));
    let values = events.iter().filter(|event| event.object().projected(&small).is_ok()).count();
    assert!(values < 2, "{values} values");
}

/// An object as the model knows it: uid, version and value.
type Plain = (String, u64, u64);

/// A map that recomputes every event from plain objects.
#[derive(Default)]
struct Model(BTreeMap<Key, Plain>);

impl Model {
    fn insert(&mut self, key: &Key, new: &Plain, expected: &mut Vec<String>) {
        let version = new.1;
        match self.0.insert(key.clone(), new.clone()) {
            Some(old) if old == *new => {}
            Some(old) if old.0 != new.0 => {
                expected.push(format!("- {key}@{} inferred", old.1));
                expected.push(format!("+ {key}@{version}"));
            }
            Some(old) => expected.push(format!("~ {key}@{}>{version}", old.1)),
            None => expected.push(format!("+ {key}@{version}")),
        }
    }

    fn remove(&mut self, key: &Key, expected: &mut Vec<String>) {
        if let Some(old) = self.0.remove(key) {
            expected.push(format!("- {key}@{}", old.1));
        }
    }

    fn replace(&mut self, list: &[(Key, Plain)], expected: &mut Vec<String>) {
        let listed: BTreeMap<_, _> = list.iter().cloned().collect();
        let missing: Vec<Key> = self.0.keys().filter(|key| !listed.contains_key(*key)).cloned().collect();
        for key in &missing {
            self.remove(key, expected);
        }
        for (key, new) in &listed {
            self.insert(key, new, expected);
        }
    }

    fn check(&self, store: &Store<ConfigMap>, index: &IndexHandle<ConfigMap>) {
        let snapshot = store.snapshot();
        assert!(snapshot.iter().map(Object::key).eq(self.0.keys()));
        for value in 0..3 {
            let text = value.to_string();
            let mut found: Vec<_> = snapshot.index_keys(index, &text).collect();
            found.sort_unstable();
            let expected = self.0.iter().filter(|(_, state)| state.2 == value).map(|(key, _)| key);
            assert!(found.into_iter().eq(expected), "value {value}");
        }
    }
}

fn random_objects(random: &mut Random) -> Vec<(Key, Plain)> {
    let one = |random: &mut Random| {
        let namespace = if random.below(2) == 0 { "a" } else { "b" };
        let key = Key::new(namespace, &format!("x{}", random.below(6)));
        (key, (format!("u{}", random.below(2)), 1 + random.below(3), random.below(3)))
    };
    (0..random.below(5)).map(|_| one(random)).collect()
}

/// Random writes to a store and to its model: equal events, contents and look-ups after each.
#[test]
fn store_matches_its_model() {
    for seed in 0..300 {
        let (mut random, mut model, store) = (Random::new(seed), Model::default(), Store::new());
        let mut index = None;
        for step in 0..40 {
            let (chosen, mut expected) = (random_objects(&mut random), Vec::new());
            let objects = chosen
                .iter()
                .map(|(key, (uid, version, value))| object(&format!("{key} {uid} {version} {value}")));
            let events = match random.below(7) {
                0 => {
                    model.replace(&chosen, &mut expected);
                    store.replace(objects)
                }
                1 | 2 => {
                    for (key, _) in &chosen {
                        model.remove(key, &mut expected);
                    }
                    store.remove(chosen.iter().map(|(key, _)| key))
                }
                _ => {
                    for (key, new) in &chosen {
                        model.insert(key, new, &mut expected);
                    }
                    store.insert(objects)
                }
            };
            assert_eq!(texts(&events), expected, "seed {seed}, step {step}");
            let index = index.get_or_insert_with(|| store.add_index(Index::label("value")).unwrap());
            model.check(&store, index);
        }
    }
}

/// C5: two writers and two readers; a reader sees all of a write or nothing of it.
#[test]
fn c5_store_filled_from_two_threads_publishes_whole_writes() {
    const ROUNDS: u64 = 300;
    let (store, done) = (Store::new(), AtomicBool::new(false));
    let by_value = store.add_index(Index::label("value")).unwrap();
    let write = |writer: &str| {
        let mut balance = 0;
        for round in 1..=ROUNDS {
            // Each write sets both objects of a pair to the same value. The pair `shared` has two writers.
            for name in [writer, "shared"] {
                let pair = ["a", "b"]
                    .map(|namespace| object(&format!("{namespace}/{name} - {round} {writer}-{round}")));
                balance += count(&store.insert(pair));
            }
            if round % 3 == 0 {
                balance += count(&store.remove([&Key::new("a", writer), &Key::new("b", writer)]));
            }
        }
        balance
    };
    let read = || {
        let (mut reads, mut last) = (0, 0);
        while !done.load(Ordering::Relaxed) || reads == 0 {
            let snapshot = store.snapshot();
            for name in ["one", "two", "shared"] {
                let [left, right] =
                    ["a", "b"].map(|namespace| snapshot.get(&Key::new(namespace, name)).map(value));
                assert_eq!(left, right, "a part of a write is visible");
                if let Some(value) = left {
                    assert_eq!(
                        snapshot.by_index(&by_value, &value).filter(|map| map.name() == name).count(),
                        2
                    );
                }
            }
            // The writes of one thread become visible in order.
            if let Some(one) = snapshot.get(&Key::new("a", "one")) {
                let round = one.resource_version().as_str().parse::<u64>().unwrap();
                assert!(round >= last, "{round} after {last}");
                last = round;
            }
            reads += 1;
        }
    };
    let balance = std::thread::scope(|scope| {
        let readers = [scope.spawn(read), scope.spawn(read)];
        let writers = [scope.spawn(|| write("one")), scope.spawn(|| write("two"))];
        let balance: i64 = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
        done.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.join().unwrap();
        }
        balance
    });
    assert_eq!(balance, i64::try_from(store.snapshot().len()).unwrap(), "no addition is reported twice");
}

/// Returns the number of additions less the number of deletions.
fn count(events: &[Event<ConfigMap>]) -> i64 {
    let one = |event: &Event<ConfigMap>| match event {
        Event::Added { .. } => 1,
        Event::Deleted { .. } => -1,
        Event::Updated { .. } => 0,
    };
    events.iter().map(one).sum()
}

#[test]
fn typed_value_is_kept() {
    let store = Store::new();
    let map = typed("a/x u1 7 red");
    store.insert([Object::from_typed(map.clone()).unwrap()]);
    assert_eq!(*store.lister().get("a", "x").unwrap().typed().unwrap(), map);
}
