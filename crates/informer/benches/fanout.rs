//! A hundred handlers on one informer, on one thread: what it costs, and that one that sleeps costs the others nothing.
//!
//! `cargo bench -p informer --bench fanout`. 200,000 events of 1,000 pods; each round is written, then waited for until the handlers that
//! do not sleep have been told. Once with a hundred such handlers, once with ninety-nine and a `blocking` one that is always in
//! `std::thread::sleep`; both in turn, so that a busy machine disturbs them alike. The embedded server runs in the same process and keeps
//! a history of constant length.
#![allow(clippy::unwrap_used)]

use informer::{Event, Registration, SharedInformer};
use informer_apiserver::ApiServer;
use k8s_openapi::api::core::v1::Pod;
use peak_alloc::PeakAlloc;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const OBJECTS: usize = 1_000;
const EVENTS: usize = 200_000;
const ROUND: usize = 500;
const HANDLERS: usize = 100;

fn main() {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let events = if quick { EVENTS / 10 } else { EVENTS };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let met = runtime.block_on(measure(events));
    // The sleeper sleeps on, on a thread that nobody waits for.
    runtime.shutdown_background();
    assert!(met, "a bar was missed");
}

/// One server and one informer with its handlers.
struct Arm {
    server: ApiServer,
    pods: SharedInformer<Pod>,
    /// How many events the handlers that do not sleep were told, together.
    told: Arc<AtomicU64>,
    free: u64,
    handlers: Vec<Registration>,
    sleeper: Option<Registration>,
    took: Duration,
    revision: usize,
}

impl Arm {
    async fn new(with_sleeper: bool) -> Self {
        let server = ApiServer::builder().history(2 * ROUND).build();
        for number in 0..OBJECTS {
            server.create(&pod(number, 0)).unwrap();
        }
        let pods = SharedInformer::<Pod>::new(server.client());
        pods.start();
        pods.wait_for_sync(Duration::from_mins(1)).await.unwrap();
        let told = Arc::new(AtomicU64::new(0));
        let sleeper = with_sleeper.then(|| {
            pods.handler().name("sleeper").blocking().on(|_| std::thread::sleep(Duration::from_hours(1)))
        });
        let free = HANDLERS - usize::from(with_sleeper);
        let handler = |_| {
            let told = Arc::clone(&told);
            pods.on(move |event| {
                if let Event::Updated { .. } = event {
                    told.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let handlers: Vec<Registration> = (0..free).map(handler).collect();
        for registration in &handlers {
            assert!(registration.synced().await);
        }
        let free = free as u64;
        Self { server, pods, told, free, handlers, sleeper, took: Duration::ZERO, revision: 0 }
    }

    /// Writes a round of updates, each to another pod, and waits until every handler that does not sleep has been told all of them.
    async fn round(&mut self) {
        self.revision += 1;
        let start = Instant::now();
        for number in 0..ROUND {
            self.server.update(&pod((self.revision * ROUND + number) % OBJECTS, self.revision)).unwrap();
        }
        let wanted = (self.revision * ROUND) as u64 * self.free;
        let told = async {
            while self.told.load(Ordering::Relaxed) < wanted {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_mins(2), told).await.expect("the handlers stand still");
        self.took += start.elapsed();
    }
}

fn pod(number: usize, revision: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "namespace": "default", "name": format!("pod-{number:05}"), "labels": {"app": "web"},
            "annotations": {"revision": revision.to_string()},
        },
        "spec": {"nodeName": "node-1", "containers": [{"name": "main", "image": "nginx"}]},
    })
}

async fn measure(events: usize) -> bool {
    let (mut all, mut one_sleeps) = (Arm::new(false).await, Arm::new(true).await);
    let rounds = events / ROUND;
    // The sleeper has one pending step for each pod after two rounds; from then on memory must stand still.
    let warm = 4;
    for _ in 0..warm {
        all.round().await;
        one_sleeps.round().await;
    }
    (all.took, one_sleeps.took) = (Duration::ZERO, Duration::ZERO);
    let before = MEMORY.current_usage();
    let mut most = before;
    for done in warm..rounds {
        all.round().await;
        one_sleeps.round().await;
        most = most.max(MEMORY.current_usage());
        if done % (rounds / 10).max(1) == 0 {
            eprintln!("{} of {events} events", done * ROUND);
        }
    }
    report(&all, &one_sleeps, (before, most), (rounds - warm) * ROUND)
}

fn report(all: &Arm, one_sleeps: &Arm, (before, most): (usize, usize), events: usize) -> bool {
    let rate = |arm: &Arm| events as u128 * u128::from(arm.free) * 1000 / arm.took.as_millis().max(1);
    println!("{events} events of {OBJECTS} pods, one thread, the server on it too");
    println!("100 handlers:                       {:>9} calls/s, {:.2?}", rate(all), all.took);
    println!("99 handlers beside one that sleeps: {:>9} calls/s, {:.2?}", rate(one_sleeps), one_sleeps.took);
    let pending = one_sleeps.sleeper.as_ref().map_or(0, Registration::pending);
    let lag: usize = one_sleeps.handlers.iter().map(Registration::pending).sum();
    println!("the sleeper has {pending} pending steps for {OBJECTS} objects; the others have {lag}");
    println!("live memory: {} KB after warming up, at most {} KB later", before / 1024, most / 1024);
    let bars = [
        ("one sleeper costs the others at most 10 %", 10 * one_sleeps.took <= 11 * all.took),
        ("memory is flat: at most 3 % more", most <= before + before / 33),
        ("one pending step per object", pending <= OBJECTS),
        ("nobody else lags", lag == 0),
        ("every pod is in the cache", one_sleeps.pods.lister().len() == OBJECTS),
    ];
    for (bar, met) in bars {
        println!("bar: {bar}: {}", if met { "met" } else { "MISSED" });
    }
    bars.iter().all(|(_, met)| *met)
}
