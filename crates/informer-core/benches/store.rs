//! Throughput of upserts and lookups of the store: one writer thread and one reader thread on 50,000 objects
//! in 200 namespaces with two indexes, and whether a lookup ever waits for the writer (C5).
//!
//! Entries are created before the measurement and freed after it. `cargo bench -p informer-core --bench
//! store`
#![allow(clippy::unwrap_used, clippy::cast_precision_loss)]

use bench_data::pods::{Pod, Random};
use informer_core::wire::{Limits, ListItem, ListReader};
use informer_core::{
    Delta, Entry, Index, Key, Replaced, ResourceVersion, Retention, Scope, StoreReader, StoreWriter, TypeMeta,
};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const OBJECTS: usize = 50_000;
const UPDATES: usize = 64_000;
const RUNS: usize = 9;
const GET_ROUNDS: usize = 20;
const BATCHES: [usize; 4] = [1, 16, 64, 256];
/// Target per second at a batch size of 64.
const UPSERTS_TARGET: f64 = 300_000.0;
const GETS_TARGET: f64 = 3_000_000.0;

/// How an object is encoded.
type Write = fn(&Pod, &mut Random) -> String;

fn main() {
    let only = std::env::args().nth(1).filter(|name| !name.starts_with('-'));
    let sizes: [(&str, Write); 2] = [("small", Pod::small), ("pods", Pod::kept)];
    for (name, write) in sizes.into_iter().filter(|(name, _)| only.as_ref().is_none_or(|only| only == name)) {
        let set = Set::new(write);
        let bytes: usize = set.base.iter().map(|entry| entry.bytes().len()).sum();
        println!(
            "\n{OBJECTS} {name} of {} bytes; a label and a field index; writer and reader in parallel",
            bytes / OBJECTS
        );
        println!("{:<36}{:>19}{:>21}", "thousands per second: median (best)", "upserts", "gets");
        for (variant, updates) in [("values unchanged", &set.same), ("10 % change both values", &set.moved)] {
            report(&set, variant, updates);
        }
        lookup_latency(&set);
        gets_without_writer(&set);
    }
}

/// Prints what a lookup takes while nothing is written: from one snapshot, and from the newest one.
fn gets_without_writer(set: &Set) {
    let (_writer, reader) = set.store();
    let snapshot = reader.snapshot();
    let time = |get: &dyn Fn(&Key)| {
        let mut runs: Vec<f64> = (0..RUNS)
            .map(|_| {
                let clock = Clock::start();
                // Long enough for a clock that counts ticks of some milliseconds.
                (0..GET_ROUNDS).for_each(|_| set.keys.iter().for_each(get));
                1e9 / clock.rate(GET_ROUNDS * set.keys.len())
            })
            .collect();
        runs.sort_by(f64::total_cmp);
        (runs[RUNS / 2], runs[0])
    };
    let (median, best) = time(&|key| {
        black_box(snapshot.get(key));
    });
    println!("get from a snapshot, no writer: {median:.0} ns (best {best:.0})");
    let (median, best) = time(&|key| {
        black_box(reader.get(key));
    });
    println!("get from the newest state, no writer: {median:.0} ns (best {best:.0})");
}

fn report(set: &Set, variant: &str, updates: &[Arc<Entry>]) {
    let mut results = BATCHES.map(|batch| (batch, Vec::new(), Vec::new()));
    for _ in 0..RUNS {
        for (batch, upserts, gets) in &mut results {
            let (upsert, get) = write_and_read(set, updates, *batch);
            upserts.push(upsert);
            gets.push(get);
        }
    }
    for (batch, upserts, gets) in &mut results {
        let (upsert, get) = (Rates::of(upserts), Rates::of(gets));
        let verdict = if *batch == 64 { verdict(upsert.median, get.median) } else { String::new() };
        println!("{:<34}{upsert}{get}  {verdict}", format!("batch {batch:>3}, {variant}"));
    }
}

/// Rates of several runs; the best one is closest to an idle machine.
struct Rates {
    median: f64,
    best: f64,
}

impl Rates {
    fn of(runs: &mut [f64]) -> Self {
        runs.sort_by(f64::total_cmp);
        Self { median: runs[runs.len() / 2], best: runs[runs.len() - 1] }
    }
}

impl std::fmt::Display for Rates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:>12.0} ({:>6.0})", self.median / 1e3, self.best / 1e3)
    }
}

/// Measures a thread by its CPU time where the system provides it, since other programs use the cores too.
struct Clock {
    start: Instant,
    cpu_time: Option<Duration>,
}

impl Clock {
    fn start() -> Self {
        Self { start: Instant::now(), cpu_time: cpu_time() }
    }

    /// Operations per second.
    fn rate(&self, count: usize) -> f64 {
        let wall = self.start.elapsed();
        let cpu = cpu_time().zip(self.cpu_time).map_or(wall, |(now, then)| now.saturating_sub(then));
        count as f64 / cpu.as_secs_f64()
    }
}

/// CPU time of this thread, where the system provides it.
fn cpu_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

fn verdict(upserts: f64, gets: f64) -> String {
    let result = |met| if met { "met" } else { "MISSED" };
    format!(
        "targets {:.0} {}, {:.0} {}",
        UPSERTS_TARGET / 1e3,
        result(upserts >= UPSERTS_TARGET),
        GETS_TARGET / 1e3,
        result(gets >= GETS_TARGET)
    )
}

/// The objects, and two series of newer states of random ones.
struct Set {
    base: Vec<Arc<Entry>>,
    same: Vec<Arc<Entry>>,
    moved: Vec<Arc<Entry>>,
    /// Keys of random objects.
    keys: Vec<Key>,
}

impl Set {
    fn new(write: Write) -> Self {
        let mut random = Random::new(7);
        let base: Vec<Pod> = (0..OBJECTS).map(|number| Pod::new(number, 1000)).collect();
        let updates = |random: &mut Random, moves: usize| -> Vec<Pod> {
            let mut now = base.clone();
            let mut update = |step: usize| {
                let pod = &mut now[random.below(OBJECTS)];
                pod.version = 1001 + step as u64;
                if random.below(100) < moves {
                    (pod.node, pod.app) = (random.below(500), random.below(400));
                }
                *pod
            };
            (0..UPDATES).map(&mut update).collect()
        };
        let (same, moved) = (updates(&mut random, 0), updates(&mut random, 10));
        let mut build = |pods: &[Pod]| entries(pods.iter().map(|pod| write(pod, &mut random)));
        let (base, same, moved) = (build(&base), build(&same), build(&moved));
        // New keys, as a caller creates them, not those of the cache.
        let key = |entry: &Arc<Entry>| Key::new(entry.key().namespace().unwrap(), entry.key().name());
        let keys: Vec<Key> = (0..OBJECTS).map(|_| key(&base[random.below(OBJECTS)])).collect();
        Self { base, same, moved, keys }
    }

    /// Creates a store with the objects and its indexes.
    fn store(&self) -> (StoreWriter, StoreReader) {
        let (mut writer, reader) = StoreWriter::new([Scope::All]);
        writer.add_index(Index::label("app").build().unwrap());
        writer.add_index(Index::field("spec.nodeName").build().unwrap());
        let (version, entries) = (ResourceVersion::new("1000"), self.base.clone());
        let replaced = Replaced { scope: Scope::All, version, entries, unreadable: Vec::new(), audit: false };
        writer.apply(&Scope::All, [Delta::Replaced(replaced)]);
        (writer, reader)
    }
}

fn entries(items: impl Iterator<Item = String>) -> Vec<Arc<Entry>> {
    let mut reader = ListReader::new(TypeMeta::new("v1", "Pod"), Limits::default());
    let mut entries = Vec::new();
    let mut read = |bytes: &[u8]| {
        let on = |item| match item {
            ListItem::Object(object) => {
                entries.push(Arc::new(Entry::new(object, Retention::Bytes)));
            }
            other => panic!("{other:?}"),
        };
        reader.read(bytes, on).unwrap();
    };
    read(b"{\"items\":[");
    for (count, item) in items.enumerate() {
        read(if count > 0 { b"," } else { b"" });
        read(item.as_bytes());
    }
    entries
}

/// Applies all updates and returns the rate per second.
fn write(writer: &mut StoreWriter, updates: &[Arc<Entry>], batch: usize) -> f64 {
    let clock = Clock::start();
    for batch in updates.chunks(batch) {
        black_box(writer.apply(&Scope::All, batch.iter().map(|entry| Delta::Updated(Arc::clone(entry)))));
    }
    clock.rate(updates.len())
}

/// Writes on this thread while another one reads. Returns upserts and lookups per second.
fn write_and_read(set: &Set, updates: &[Arc<Entry>], batch: usize) -> (f64, f64) {
    let (mut writer, reader) = set.store();
    let (go, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    let result = thread::scope(|scope| {
        let reading = scope.spawn(|| {
            go.store(true, Ordering::Release);
            let (clock, mut gets) = (Clock::start(), 0_usize);
            while !stop.load(Ordering::Relaxed) {
                for key in &set.keys[gets % OBJECTS..][..OBJECTS / 1000] {
                    assert!(reader.get(black_box(key)).is_some());
                }
                gets += OBJECTS / 1000;
            }
            clock.rate(gets)
        });
        while !go.load(Ordering::Acquire) {
            thread::yield_now();
        }
        let upserts = write(&mut writer, updates, batch);
        stop.store(true, Ordering::Relaxed);
        (upserts, reading.join().unwrap())
    });
    let newest = updates.last().unwrap();
    assert!(Arc::ptr_eq(newest, &reader.get(newest.key()).unwrap()));
    result
}

/// The slowest lookups with a writer in batches of 64, and without one.
fn lookup_latency(set: &Set) {
    println!(
        "{:<44} {:>12} {:>12} {:>12}",
        "single gets, each timed (median run)", "p99.99 µs", "max µs", "over 1 ms"
    );
    let mut rows = [("with a writer, batch 64", true, Vec::new()), ("without a writer", false, Vec::new())];
    for _ in 0..RUNS {
        for (_, with_writer, runs) in &mut rows {
            runs.push(timed_gets(set, *with_writer));
        }
    }
    for (name, _, runs) in &mut rows {
        runs.sort_by_key(|times| times.1);
        let (tail, longest, over) = runs[RUNS / 2];
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        println!("{name:<44} {:>12.1} {:>12.1} {over:>12}", micros(tail), micros(longest));
    }
}

/// The 99.99th percentile, the maximum, and the number of lookups over a millisecond.
fn timed_gets(set: &Set, with_writer: bool) -> (Duration, Duration, usize) {
    let (mut writer, reader) = set.store();
    let stop = AtomicBool::new(false);
    let mut times = thread::scope(|scope| {
        if with_writer {
            scope.spawn(|| {
                for batch in set.same.chunks(64) {
                    writer.apply(&Scope::All, batch.iter().map(|entry| Delta::Updated(Arc::clone(entry))));
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
        }
        let mut times = Vec::with_capacity(4 * OBJECTS);
        let mut before = Instant::now();
        for key in set.keys.iter().cycle().take(4 * OBJECTS) {
            assert!(reader.get(black_box(key)).is_some());
            let now = Instant::now();
            times.push(now - before);
            before = now;
        }
        stop.store(true, Ordering::Relaxed);
        times
    });
    times.sort_unstable();
    let over = times.iter().filter(|time| **time > Duration::from_millis(1)).count();
    (times[times.len() - times.len() / 10_000], times[times.len() - 1], over)
}
