//! Rows of the benchmark `scan` for compressed objects: size, and time of compression and decoding.

use informer_core::wire::ScannedObject;
use informer_core::{Compressor, Entry, Object, Retention, Scope, StoreWriter};
use k8s_openapi::api::core::v1::Pod;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

const RUNS: usize = 5;
/// Target of `typed()` in microseconds.
const TYPED_TARGET: f64 = 60.0;

/// Results for one encoding of the pods.
struct Results {
    plain: usize,
    stored: usize,
    train: f64,
    compress: f64,
    typed: f64,
}

pub(crate) fn rows(json: &[ScannedObject], protobuf: &[ScannedObject]) {
    let [json, protobuf] = [json, protobuf].map(measure);
    let row = |what: &str, of: fn(&Results) -> f64, digits: usize, target: Option<f64>| {
        let target = target.map_or(String::new(), |target| {
            format!(
                "{target:>17.0} {}",
                if of(&json).max(of(&protobuf)) <= target { "met" } else { "MISSED" }
            )
        });
        println!("{what:<30} {:>9.digits$} {:>9.digits$}{target}", of(&json), of(&protobuf));
    };
    println!("{:<30} {:>9} {:>9} {:>16}", "compressed", "JSON", "protobuf", "target");
    row("bytes stored, plain", |of| of.plain as f64, 0, None);
    row("bytes stored, compressed", |of| of.stored as f64, 0, None);
    row("training, ms", |of| of.train * 1e3, 0, None);
    row("compressing, us", |of| of.compress * 1e6, 1, None);
    row("typed(): compressed Pod, us", |of| of.typed * 1e6, 1, Some(TYPED_TARGET));
}

fn measure(pods: &[ScannedObject]) -> Results {
    let (_, reader) = StoreWriter::new([Scope::All]);
    let (compressor, cached) = (Compressor::with_training(), reader.snapshot());
    let entry = |pod: &ScannedObject| Entry::new(pod.clone(), Retention::Compressed);
    let mut samples = pods.iter();
    while !compressor.needs_training(&cached) {
        compressor.compress(entry(samples.next().expect("enough pods to train on")));
    }
    let begun = Instant::now();
    compressor.train(&cached);
    let train = begun.elapsed().as_secs_f64();
    let (mut compress, mut typed) = (f64::INFINITY, f64::INFINITY);
    let mut objects = Vec::new();
    for _ in 0..RUNS {
        let entries: Vec<Entry> = pods.iter().map(entry).collect();
        let begun = Instant::now();
        let packed: Vec<Entry> = entries.into_iter().map(|entry| compressor.compress(entry)).collect();
        compress = compress.min(begun.elapsed().as_secs_f64() / pods.len() as f64);
        objects = packed.into_iter().map(|entry| Object::<Pod>::new(Arc::new(entry))).collect();
        let begun = Instant::now();
        for object in &objects {
            drop(black_box(object.typed().unwrap()));
        }
        typed = typed.min(begun.elapsed().as_secs_f64() / pods.len() as f64);
    }
    let cost = |entries: &mut dyn Iterator<Item = usize>| entries.sum::<usize>() / pods.len();
    let plain = cost(&mut pods.iter().map(|pod| pod.bytes.len()));
    let saved = cost(&mut pods.iter().map(|pod| entry(pod).memory_size()))
        - cost(&mut objects.iter().map(|object| object.entry().memory_size()));
    Results { plain, stored: plain - saved, train, compress, typed }
}
