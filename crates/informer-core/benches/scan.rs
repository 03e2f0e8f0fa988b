//! How fast objects are scanned: megabytes of 10 KB pods per second on one core, through the list and the watch reader, beside two
//! floors (the same bytes parsed and ignored by `serde_json`, and merely copied).
//!
//! `cargo bench -p informer-core --bench scan`
#![allow(clippy::unwrap_used, clippy::cast_precision_loss)]

mod pods;

use informer_core::wire::{Frame, Limits, ListItem, ListReader, WatchReader};
use informer_core::{Projection, TypeMeta};
use pods::{Pod, Random};
use serde::de::IgnoredAny;
use std::hint::black_box;
use std::time::Instant;

const PODS: usize = 4000;
const RUNS: usize = 15;
/// What a socket hands over at a time.
const CHUNK: usize = 16 * 1024;
/// Megabytes per second.
const BAR: f64 = 800.0;

type Arm<'a> = (&'static str, Option<f64>, &'a [u8], Box<dyn Fn(&[u8]) + 'a>);

fn main() {
    let mut random = Random::new(1);
    let items: Vec<String> = (0..PODS).map(|number| Pod::new(number, 1000).item(&mut random)).collect();
    let list = format!(
        r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"9"}},"items":[{}]}}"#,
        items.join(",")
    );
    let mut random = Random::new(1);
    let frames: Vec<String> = (0..PODS).map(|number| Pod::new(number, 1000).frame(&mut random)).collect();
    let watch = frames.join("\n");
    let fields = items.iter().map(|item| managed_bytes(item)).sum::<usize>();
    println!("{PODS} pods of {} bytes, managedFields {} of them", list.len() / PODS, fields / PODS);

    let lean = Projection::drop(["status", "metadata.annotations", "spec.containers[*].env"]).unwrap();
    let placed = Projection::keep(["spec.nodeName", "status.phase"]).unwrap();
    let mut arms: [Arm<'_>; 6] = [
        ("list, 16 KiB chunks", Some(BAR), list.as_bytes(), Box::new(|body| read_list(body, None))),
        ("list, parts dropped", None, list.as_bytes(), Box::new(|body| read_list(body, Some(&lean)))),
        ("list, two fields kept", None, list.as_bytes(), Box::new(|body| read_list(body, Some(&placed)))),
        ("watch, 16 KiB chunks", Some(BAR), watch.as_bytes(), Box::new(read_watch)),
        ("floor: serde_json IgnoredAny", None, list.as_bytes(), Box::new(ignore)),
        ("floor: memcpy", None, list.as_bytes(), Box::new(copy)),
    ];
    let mut speeds = vec![Vec::new(); arms.len()];
    for _ in 0..RUNS {
        // Interleaved, so that a noisy moment hurts all arms alike.
        for ((_, _, bytes, run), speeds) in arms.iter_mut().zip(&mut speeds) {
            let start = Instant::now();
            run(black_box(bytes));
            speeds.push(bytes.len() as f64 / 1e6 / start.elapsed().as_secs_f64());
        }
    }
    println!("{:<30} {:>9} {:>9} {:>9} {:>7}", "MB/s, one core", "median", "min", "max", "bar");
    for ((name, bar, ..), speeds) in arms.iter().zip(&mut speeds) {
        speeds.sort_by(f64::total_cmp);
        let median = speeds[RUNS / 2];
        let verdict = bar.map_or(String::new(), |bar| {
            format!("{bar:>7.0} {}", if median >= bar { "met" } else { "MISSED" })
        });
        println!("{name:<30} {median:>9.0} {:>9.0} {:>9.0} {verdict}", speeds[0], speeds[RUNS - 1]);
    }
}

fn managed_bytes(item: &str) -> usize {
    let start = item.find("\"managedFields\"").unwrap();
    item[start..].find("],\"spec\"").or_else(|| item[start..].find("]},\"spec\"")).unwrap()
}

fn read_list(body: &[u8], by: Option<&Projection>) {
    let mut reader = ListReader::new(TypeMeta::new("v1", "Pod"), Limits::default()).projecting(by.cloned());
    let mut seen = 0;
    for chunk in body.chunks(CHUNK) {
        let on = |item| match item {
            ListItem::Object(object) => {
                black_box(object);
                seen += 1;
            }
            ListItem::Meta(_) => {}
            ListItem::Unreadable(unreadable) => panic!("{unreadable}"),
        };
        reader.read(chunk, on).unwrap();
    }
    reader.finish().unwrap();
    assert_eq!(seen, PODS);
}

fn read_watch(body: &[u8]) {
    let mut reader = WatchReader::new(TypeMeta::new("v1", "Pod"), Limits::default());
    let mut seen = 0;
    for chunk in body.chunks(CHUNK) {
        let on = |frame| match frame {
            Frame::Modified(object) => {
                black_box(object);
                seen += 1;
            }
            other => panic!("{other:?}"),
        };
        reader.read(chunk, on).unwrap();
    }
    reader.finish().unwrap();
    assert_eq!(seen, PODS);
}

fn ignore(body: &[u8]) {
    serde_json::from_slice::<IgnoredAny>(body).unwrap();
}

/// Each chunk to a buffer that is used again.
fn copy(body: &[u8]) {
    let mut buffer = Vec::with_capacity(CHUNK);
    for chunk in body.chunks(CHUNK) {
        buffer.clear();
        buffer.extend_from_slice(black_box(chunk));
        black_box(&buffer);
    }
}
