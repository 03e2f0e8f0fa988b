//! Crashes at random moments on a simulated disk.

use super::{Disk, contents, is_warm, saved_on, synced};
use crate::cluster::{TIMEOUT, advance_time, config_map, until};
use informer::{Event, SharedInformer};
use informer_apiserver::ApiServer;
use k8s_openapi::api::core::v1::ConfigMap;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The number of lives of one run, and of runs. `INFORMER_CRASH_SEEDS` changes the latter.
const LIVES: u64 = 20;
const SEEDS: u64 = 150;

/// A small generator (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((value ^ (value >> 31)) % limit as u64).unwrap()
    }
}

/// The objects of the server, as `name=value`.
fn truth(server: &ApiServer) -> Vec<String> {
    let objects = server.list("v1", "configmaps", None);
    let mut all: Vec<String> = objects
        .iter()
        .map(|object| {
            let text = |pointer: &str| object.pointer(pointer).unwrap().as_str().unwrap().to_owned();
            format!("{}={}", text("/metadata/name"), text("/data/v"))
        })
        .collect();
    all.sort();
    all
}

/// Creates, changes or deletes a random object.
fn change(server: &ApiServer, random: &mut Random) {
    let name = format!("m{}", random.below(12));
    let exists = server.get("v1", "configmaps", Some("default"), &name).is_some();
    if exists && random.below(3) == 0 {
        server.delete("v1", "configmaps", Some("default"), &name).unwrap();
    } else {
        let value = random.below(1000).to_string().repeat(1 + random.below(300));
        server.insert_unchecked(&config_map("default", &name, &value)).unwrap();
    }
}

/// Runs lives that end with a crash at a random operation of the disk; returns the number of warm starts.
async fn run(seed: u64) -> u64 {
    let (server, disk, mut random) = (ApiServer::new(), Disk::default(), Random(seed));
    let mut warm_starts = 0;
    let external = Arc::new(Mutex::new(External::default()));
    for life in 0..LIVES {
        let informer = synced(&server, saved_on(&disk)).await;
        let mut expected = truth(&server);
        assert_eq!(sorted(contents(&informer)), expected, "seed {seed}, life {life}");
        warm_starts += u64::from(is_warm(&informer));
        // C1, C3: the events of this life lead to the state of the server.
        let folded = Arc::new(Mutex::new(BTreeMap::new()));
        let ordinary = informer.on_event({
            let folded = Arc::clone(&folded);
            move |event| fold(&mut folded.lock().unwrap(), &event)
        });
        // C2 across restarts: the events of all lives lead to the state of the server.
        external.lock().unwrap().life += 1;
        let is_present = random.below(4) > 0;
        let pause = Duration::from_millis([0, 0, 1, 50, 400][random.below(5)]);
        let durable =
            is_present.then(|| tokio::spawn(handle(informer.clone(), external.clone(), disk.clone(), pause)));
        disk.stop_after(random.below(400) as u64);
        for _ in 0..random.below(6) {
            for _ in 0..random.below(8) {
                change(&server, &mut random);
            }
            expected = truth(&server);
            until(|| sorted(contents(&informer)) == expected).await;
            until(|| sorted(folded.lock().unwrap().values().cloned().collect()) == expected).await;
            if is_present {
                until(|| disk.is_stopped() || external.lock().unwrap().texts() == expected).await;
            }
            advance_time(Duration::from_millis(random.below(3000) as u64)).await;
        }
        // The process dies, or ends in order.
        match random.below(3) {
            0 => {
                drop(ordinary);
                informer.shutdown(TIMEOUT).await.unwrap();
                disk.kill();
            }
            1 => disk.kill(),
            _ => disk.crash(|limit| random.below(limit)),
        }
        durable.inspect(tokio::task::JoinHandle::abort);
        for _ in 0..random.below(6) {
            change(&server, &mut random);
        }
        match random.below(8) {
            0 => server.compact(),
            1 => advance_time(Duration::from_secs(400)).await,
            _ => {}
        }
    }
    warm_starts
}

/// A durable handler that needs some time for each event.
async fn handle(
    informer: SharedInformer<ConfigMap>,
    external: Arc<Mutex<External>>,
    disk: Disk,
    pause: Duration,
) {
    let mut events = informer.handler().durable("test").event_stream();
    drop(informer);
    loop {
        for event in events.next_batch(3).await {
            // A process without a disk is dead in this test.
            if disk.is_stopped() {
                return;
            }
            external.lock().unwrap().fold(&event);
        }
        advance_time(pause).await;
    }
}

/// What a durable handler has written outside of the process.
#[derive(Default)]
struct External {
    life: u64,
    /// The object, and the life in which its last event was delivered.
    objects: BTreeMap<String, Known>,
    /// The uids of objects that were deleted, and the life in which.
    deleted: BTreeMap<String, u64>,
}

struct Known {
    uid: String,
    version: u64,
    text: String,
    life: u64,
}

impl External {
    fn texts(&self) -> Vec<String> {
        sorted(self.objects.values().map(|known| known.text.clone()).collect())
    }

    fn fold(&mut self, event: &Event<ConfigMap>) {
        let (object, life) = (event.object(), self.life);
        let (name, uid) = (object.name().to_owned(), object.uid().to_owned());
        let version: u64 = object.resource_version().as_str().parse().unwrap();
        let known = self.objects.get(&name);
        if matches!(event, Event::Deleted { .. }) {
            // A deletion that was not acknowledged is repeated by the next process, and one of an object that was
            // saved but not delivered before the process died is delivered.
            let earlier = self.deleted.insert(uid.clone(), life);
            assert_ne!(earlier, Some(life), "{name} was deleted twice in one life");
            if known.is_some_and(|known| known.uid == uid) {
                self.objects.remove(&name);
            } else {
                assert!(
                    known.is_none() || earlier.is_some(),
                    "{name}: not the object that the handler knows"
                );
            }
            return;
        }
        assert!(!self.deleted.contains_key(&uid), "{name} was deleted, but exists");
        if let Some(known) = known {
            // C2: another incarnation follows the deletion of the one that the handler knows.
            assert_eq!(known.uid, uid, "{name}: the deletion of the previous incarnation was lost");
            assert!(known.version <= version, "C1: {name} went back from {} to {version}", known.version);
            let is_first = known.life < life;
            assert_eq!(matches!(event, Event::Added { .. }), is_first, "C3 in one life: {event:?}");
        }
        let text = format!("{name}={}", object.field("data.v").unwrap());
        self.objects.insert(name, Known { uid, version, text, life });
    }
}

fn sorted(mut texts: Vec<String>) -> Vec<String> {
    texts.sort();
    texts
}

fn fold(state: &mut BTreeMap<String, String>, event: &Event<ConfigMap>) {
    let object = event.object();
    let text = format!("{}={}", object.name(), object.field("data.v").unwrap());
    let previous = match event {
        Event::Deleted { .. } => state.remove(object.name()),
        _ => state.insert(object.name().to_owned(), text),
    };
    assert_eq!(previous.is_none(), matches!(event, Event::Added { .. }), "C3: {event:?}");
}

/// Whenever the process ends, the next one has the state of the server: 3,000 lives. A third of them ends in order, a
/// third is killed, and a third loses or tears what was not synced, as if the machine had stopped.
#[test]
fn crash_at_any_operation_leads_to_the_state_of_the_server() {
    let seeds = std::env::var("INFORMER_CRASH_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    let mut warm_starts = 0;
    let seeds = seeds.unwrap_or(SEEDS);
    for seed in 0..seeds {
        println!("seed {seed}");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        warm_starts += runtime.unwrap().block_on(run(seed));
    }
    // Most lives save their state before they end.
    assert!(warm_starts > seeds * LIVES / 3, "{warm_starts} warm starts");
}

/// The start of the file refers to everything else. If only the start had reached the disk when the machine stopped, the
/// file would be damaged, and durable handlers would miss deletions.
#[tokio::test(start_paused = true)]
async fn start_of_the_file_is_written_when_everything_else_is_synced() {
    let (server, disk) = (ApiServer::new(), Disk::default());
    let informer = synced(&server, saved_on(&disk)).await;
    advance_time(Duration::from_secs(2)).await;
    let small = disk.content().len();
    for index in 0..200 {
        let map = config_map("default", &format!("m{index}"), &"x".repeat(50_000));
        server.insert_unchecked(&map).unwrap();
    }
    until(|| contents(&informer).len() == 200).await;
    until(|| disk.content().len() > small).await;
    informer.shutdown(TIMEOUT).await.unwrap();
    assert!(!disk.was_start_written_early());
}
