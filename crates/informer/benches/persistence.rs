//! Costs of saved caches: time and memory of saving and loading, size of the file, CPU time while objects change.
//!
//! `cargo bench -p informer --features persistence --bench persistence [-- OBJECTS SIZE]`, with the size `pod`
//! (7 KB of JSON), `kilobyte` or `small`. The objects come from this process, and each phase runs in a process of
//! its own.

#![allow(
    clippy::cast_precision_loss,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a program that measures"
)]

use bench_data::pods::{Pod as Data, Random};
use futures::{StreamExt as _, stream};
use informer::persistence::{Persistence, RestoredReads};
use informer::source::{Response, ResponseFuture, Source};
use informer::{InformerOptions, SharedInformer};
use informer_core::reflector::{ListRequest, WatchRequest};
use k8s_openapi::api::core::v1::Pod;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Number of changes per second while the cost of saving is measured, and the duration.
const CHANGES_PER_SECOND: usize = 1000;
const CHURN: Duration = Duration::from_secs(20);

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let arg = |index: usize, default: &str| args.get(index).cloned().unwrap_or_else(|| default.to_owned());
    let (objects, size): (usize, String) = (arg(0, "20000").parse().unwrap(), arg(1, "pod"));
    if let Some(phase) = args.get(2) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        return runtime.unwrap().block_on(run(phase, Path::new(&args[3]), objects, &size));
    }
    let directory = std::env::temp_dir().join(format!("informer-persistence-{}", std::process::id()));
    println!("{objects} objects ({size})");
    for phase in ["save", "load", "plain", "churn-without", "churn"] {
        let program = std::env::current_exe().unwrap();
        let path = directory.display().to_string();
        let status = Command::new(program).args([&objects.to_string(), &size, phase, &path]).status();
        assert!(status.unwrap().success(), "{phase}");
    }
    std::fs::remove_dir_all(directory).unwrap();
}

/// A server with a number of pods, some of which change.
struct Pods {
    objects: usize,
    size: String,
    changes: bool,
}

impl Pods {
    fn item(&self, number: usize, version: u64, random: &mut Random) -> String {
        let pod = Data::new(number, version);
        match &*self.size {
            "small" => pod.small(random),
            "kilobyte" => pod.kilobyte(random),
            _ => pod.kept(random),
        }
    }
}

impl Source for Pods {
    fn list(&self, request: ListRequest) -> ResponseFuture {
        let count = if request.limit == Some(1) { 1 } else { self.objects };
        let pods = Self { size: self.size.clone(), ..*self };
        let version = self.objects + 1;
        let head = format!(
            r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"{version}"}},"items":["#
        );
        let mut random = Random::new(1);
        let items = (0..count).map(move |number| {
            let comma = if number == 0 { "" } else { "," };
            format!("{comma}{}", pods.item(number, number as u64 + 1, &mut random))
        });
        let chunks = std::iter::once(head).chain(items).chain(std::iter::once("]}".to_owned()));
        let response = Response::from_chunks(200, chunks).with_content_type("application/json");
        Box::pin(async { Ok(response) })
    }

    fn watch(&self, _: WatchRequest) -> ResponseFuture {
        let pods = Self { size: self.size.clone(), ..*self };
        let (changes, objects, mut version) = (self.changes, self.objects, self.objects as u64 + 1);
        let mut random = Random::new(2);
        let ticks = stream::unfold(tokio::time::interval(Duration::from_millis(10)), |mut ticks| async {
            ticks.tick().await;
            Some(((), ticks))
        });
        let frames = ticks.map(move |()| {
            let mut chunk = String::new();
            for _ in 0..if changes { CHANGES_PER_SECOND / 100 } else { 0 } {
                version += 1;
                let number = random.below(objects);
                let item = pods.item(number, version, &mut random);
                let object = r#"{"type":"MODIFIED","object":{"apiVersion":"v1","kind":"Pod","#;
                chunk.extend([object, &item[1..], "}\n"]);
            }
            Ok(chunk.into())
        });
        let response = Response::new(200, frames).with_content_type("application/json");
        Box::pin(async { Ok(response) })
    }

    fn supports_watch_lists(&self) -> bool {
        false
    }
}

async fn run(phase: &str, directory: &Path, objects: usize, size: &str) {
    let source = Pods { objects, size: size.to_owned(), changes: phase.starts_with("churn") };
    let mut options = InformerOptions::default();
    if !phase.contains("without") && phase != "plain" {
        let persistence = Persistence::for_cluster(directory, "bench").restored_reads(RestoredReads::Serve);
        options = options.persist(persistence);
    }
    let started = Instant::now();
    let pods = SharedInformer::<Pod>::with_source(source, options);
    pods.start();
    while pods.lister().len() < objects {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let readable = started.elapsed();
    pods.wait_for_sync(Duration::MAX).await.unwrap();
    let synced = started.elapsed();
    if phase.starts_with("churn") {
        tokio::time::sleep(Duration::from_secs(3)).await;
        let before = cpu_seconds();
        tokio::time::sleep(CHURN).await;
        let share = (cpu_seconds() - before) / CHURN.as_secs_f64();
        println!("{phase:14} {:.1} % of a core, peak {} MB", share * 100.0, memory("VmHWM"));
        return;
    }
    let bytes = pods.metrics().memory_bytes;
    print!("{phase:14} readable {readable:.3?}, synced {synced:.3?}");
    if phase == "save" {
        while pods.status().persistence.unwrap().saved_at.is_none() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let file: u64 = files(directory).iter().map(|file| disk_bytes(file)).sum();
        let saved = started.elapsed().saturating_sub(synced);
        let ratio = file as f64 / bytes as f64;
        print!(", saved after {saved:.3?}, file {:.1} MB = {ratio:.2} x cached", file as f64 / 1e6);
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (settled, peak) = (memory("VmRSS"), memory("VmHWM"));
    println!(", cached {:.1} MB, settled {settled} MB, peak {peak} MB", bytes as f64 / 1e6);
    pods.shutdown(Duration::from_secs(60)).await.unwrap();
}

fn files(directory: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(directory).unwrap().map(|file| file.unwrap().path()).collect()
}

/// Returns the space that a file occupies; parts that were never written occupy none.
fn disk_bytes(file: &Path) -> u64 {
    let metadata = file.metadata().unwrap();
    #[cfg(unix)]
    return std::os::unix::fs::MetadataExt::blocks(&metadata) * 512;
    #[cfg(not(unix))]
    metadata.len()
}

/// Returns a field of the status of this process in megabytes; 0 where the kernel does not have it.
fn memory(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok()).unwrap_or(0) / 1024
}

/// Returns the CPU time of this process.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}
