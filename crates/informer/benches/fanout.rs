//! A hundred handlers on one informer, on one thread: the cost, and that a sleeping handler does not slow
//! down the others.
//!
//! `cargo bench -p informer --bench fanout`. 200,000 events of 1,000 pods; each round is written, then
//! awaited until the handlers that do not sleep have received it. Once with a hundred such handlers, once
//! with ninety-nine and a `blocking` one that always sleeps in `std::thread::sleep`; both alternate, so that
//! noise affects them equally. The embedded server runs in the same process and keeps a history of constant
//! length.
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
    // The sleeping handler continues on a thread that is not joined.
    runtime.shutdown_background();
    assert!(met, "a target was missed");
}

/// One server and one informer with its handlers.
struct Setup {
    server: ApiServer,
    pods: SharedInformer<Pod>,
    /// Number of events delivered to the handlers that do not sleep, in total.
    delivered: Arc<AtomicU64>,
    free: u64,
    handlers: Vec<Registration>,
    sleeper: Option<Registration>,
    took: Duration,
    revision: usize,
}

impl Setup {
    async fn new(with_sleeper: bool) -> Self {
        let server = ApiServer::builder().history_limit(2 * ROUND).build();
        for number in 0..OBJECTS {
            server.create(&pod(number, 0)).unwrap();
        }
        let pods = SharedInformer::<Pod>::new(server.client());
        pods.start();
        pods.wait_for_sync(Duration::from_secs(60)).await.unwrap();
        let delivered = Arc::new(AtomicU64::new(0));
        let sleeper = with_sleeper.then(|| {
            pods.handler()
                .name("sleeper")
                .blocking()
                .on_event(|_| std::thread::sleep(Duration::from_secs(3600)))
        });
        let free = HANDLERS - usize::from(with_sleeper);
        let handler = |_| {
            let delivered = Arc::clone(&delivered);
            pods.on_event(move |event| {
                if let Event::Updated { .. } = event {
                    delivered.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let handlers: Vec<Registration> = (0..free).map(handler).collect();
        for registration in &handlers {
            assert!(registration.wait_for_sync().await);
        }
        let free = free as u64;
        Self { server, pods, delivered, free, handlers, sleeper, took: Duration::ZERO, revision: 0 }
    }

    /// Writes a round of updates, each of another pod, and waits until every handler that does not sleep has
    /// received all of them.
    async fn round(&mut self) {
        self.revision += 1;
        let start = Instant::now();
        for number in 0..ROUND {
            self.server.update(&pod((self.revision * ROUND + number) % OBJECTS, self.revision)).unwrap();
        }
        let wanted = (self.revision * ROUND) as u64 * self.free;
        let delivered = async {
            while self.delivered.load(Ordering::Relaxed) < wanted {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(120), delivered)
            .await
            .expect("the handlers make no progress");
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
    let (mut all, mut one_sleeps) = (Setup::new(false).await, Setup::new(true).await);
    let rounds = events / ROUND;
    // The sleeping handler has one pending event per pod after two rounds; from then on memory must not grow.
    let warm = 4;
    for _ in 0..warm {
        all.round().await;
        one_sleeps.round().await;
    }
    (all.took, one_sleeps.took) = (Duration::ZERO, Duration::ZERO);
    let before = MEMORY.current_usage();
    let mut peak = before;
    for done in warm..rounds {
        all.round().await;
        one_sleeps.round().await;
        peak = peak.max(MEMORY.current_usage());
        if done % (rounds / 10).max(1) == 0 {
            eprintln!("{} of {events} events", done * ROUND);
        }
    }
    report(&all, &one_sleeps, (before, peak), (rounds - warm) * ROUND)
}

fn report(all: &Setup, one_sleeps: &Setup, (before, peak): (usize, usize), events: usize) -> bool {
    let rate = |arm: &Setup| events as u128 * u128::from(arm.free) * 1000 / arm.took.as_millis().max(1);
    println!("{events} events of {OBJECTS} pods, one thread, including the server");
    println!("100 handlers:                       {:>9} calls/s, {:.2?}", rate(all), all.took);
    println!("99 handlers and one that sleeps:   {:>9} calls/s, {:.2?}", rate(one_sleeps), one_sleeps.took);
    let pending = one_sleeps.sleeper.as_ref().map_or(0, Registration::pending_events);
    let lag: usize = one_sleeps.handlers.iter().map(Registration::pending_events).sum();
    println!(
        "the sleeping handler has {pending} pending events for {OBJECTS} objects; the others have {lag}"
    );
    println!("live memory: {} KB after warm-up, at most {} KB later", before / 1024, peak / 1024);
    let targets = [
        ("a sleeping handler costs the others at most 10 %", 10 * one_sleeps.took <= 11 * all.took),
        ("memory is flat: at most 3 % more", peak <= before + before / 33),
        ("at most one pending event per object", pending <= OBJECTS),
        ("no other handler lags", lag == 0),
        ("every pod is in the cache", one_sleeps.pods.lister().len() == OBJECTS),
    ];
    for (target, met) in targets {
        println!("target: {target}: {}", if met { "met" } else { "MISSED" });
    }
    targets.iter().all(|(_, met)| *met)
}
