//! Throughput of scanning objects: megabytes of 10 KB pods per second on one core, through the list and the
//! watch reader, compared with two baselines (the bytes parsed and ignored by `serde_json`, and only copied).
//! Also measured: these pods as protobuf, and decoding typed objects from both encodings. With the feature
//! `compression`, also compressed objects.
//!
//! `cargo bench -p informer-core --bench scan --features compression`
#![allow(clippy::unwrap_used, clippy::cast_precision_loss)]

#[cfg(feature = "compression")]
mod compressed;
#[path = "../tests/protobuf/encode.rs"]
mod encode;

use bench_data::pods::{Pod, Random};
use informer_core::wire::{
    Frame, Limits, ListItem, ListReader, ProtobufListReader, ProtobufWatchReader, ScannedObject, WatchReader,
    message_of,
};
use informer_core::{Entry, FieldFilter, Object, Projections, Retention, TypeMeta};
use serde::de::{DeserializeOwned, IgnoredAny};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

const PODS: usize = 4000;
const RUNS: usize = 15;
/// Bytes that a socket returns per read.
const CHUNK_BYTES: usize = 16 * 1024;
/// Target in megabytes per second.
const TARGET: f64 = 800.0;

type Row<'a> = (&'static str, Option<f64>, &'a [u8], Box<dyn Fn(&[u8]) + 'a>);

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

    let dropped = FieldFilter::drop(["status", "metadata.annotations", "spec.containers[*].env"]).unwrap();
    let two_fields = FieldFilter::keep(["spec.nodeName", "status.phase"]).unwrap();
    let (pb_list, pb_watch) = (protobuf_list(&items), protobuf_watch(&items));
    println!("as protobuf {} bytes", pb_list.len() / PODS);
    let mut rows: [Row<'_>; 10] = [
        ("list, 16 KiB chunks", Some(TARGET), list.as_bytes(), Box::new(|body| read_list(body, None))),
        ("list, fields dropped", None, list.as_bytes(), Box::new(|body| read_list(body, Some(&dropped)))),
        ("list, two fields kept", None, list.as_bytes(), Box::new(|body| read_list(body, Some(&two_fields)))),
        ("watch, 16 KiB chunks", Some(TARGET), watch.as_bytes(), Box::new(read_watch)),
        ("protobuf list", None, &pb_list, Box::new(|body| read_protobuf_list(body, None))),
        (
            "protobuf list, fields dropped",
            None,
            &pb_list,
            Box::new(|body| read_protobuf_list(body, Some(&dropped))),
        ),
        (
            "protobuf list, two kept",
            None,
            &pb_list,
            Box::new(|body| read_protobuf_list(body, Some(&two_fields))),
        ),
        ("protobuf watch", None, &pb_watch, Box::new(read_protobuf_watch)),
        ("baseline: serde_json IgnoredAny", None, list.as_bytes(), Box::new(ignore)),
        ("baseline: memcpy", None, list.as_bytes(), Box::new(copy)),
    ];
    let mut speeds = vec![Vec::new(); rows.len()];
    for _ in 0..RUNS {
        // Interleaved, so that noise affects all rows equally.
        for ((_, _, bytes, run), speeds) in rows.iter_mut().zip(&mut speeds) {
            let start = Instant::now();
            run(black_box(bytes));
            speeds.push(bytes.len() as f64 / 1e6 / start.elapsed().as_secs_f64());
        }
    }
    println!("{:<30} {:>9} {:>9} {:>9} {:>7}", "MB/s, one core", "median", "min", "max", "target");
    for ((name, target, ..), speeds) in rows.iter().zip(&mut speeds) {
        speeds.sort_by(f64::total_cmp);
        let median = speeds[RUNS / 2];
        let verdict = target.map_or(String::new(), |target| {
            format!("{target:>7.0} {}", if median >= target { "met" } else { "MISSED" })
        });
        println!("{name:<30} {median:>9.0} {:>9.0} {:>9.0} {verdict}", speeds[0], speeds[RUNS - 1]);
    }
    typed_views(list.as_bytes(), &pb_list);
}

/// Time of `typed()` and of dropping its result.
fn typed_views(json: &[u8], protobuf: &[u8]) {
    let types = TypeMeta::new("v1", "Pod");
    let mut from_json = Vec::new();
    let mut reader = ListReader::new(types.clone(), Limits::default());
    reader.read(json, |item| from_json.extend(object_of(item))).unwrap();
    let mut from_protobuf = Vec::new();
    let mut reader = ProtobufListReader::new(types, Limits::default()).unwrap();
    reader.read(protobuf, |item| from_protobuf.extend(object_of(item))).unwrap();
    println!(
        "{:<30} {:>9} {:>9} {:>9} {:>7}",
        "us each, quickest run", "JSON", "protobuf", "ratio", "target"
    );
    let bytes = |all: &[ScannedObject]| all.iter().map(|one| one.bytes.len()).sum::<usize>() / all.len();
    println!("{:<30} {:>9} {:>9}", "bytes stored", bytes(&from_json), bytes(&from_protobuf));
    view::<k8s_openapi::api::core::v1::Pod>("typed(): Pod", &from_json, &from_protobuf, Some(3.0));
    clone_baseline(&from_protobuf);
    view::<PodLite>("cast().typed(): 6 fields", &from_json, &from_protobuf, None);
    projection(&from_json, &from_protobuf);
    view::<serde_json::Value>("typed(): Value", &from_json, &from_protobuf, None);
    view::<IgnoredAny>("typed(): IgnoredAny", &from_json, &from_protobuf, None);
    #[cfg(feature = "compression")]
    compressed::rows(&from_json, &from_protobuf);
}

fn view<K: DeserializeOwned + Send + Sync + 'static>(
    name: &str,
    json: &[ScannedObject],
    protobuf: &[ScannedObject],
    target: Option<f64>,
) {
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..RUNS {
        for (all, times) in [json, protobuf].into_iter().zip(&mut times) {
            // Several at a time, each a new entry without a decoded value.
            let objects: Vec<Object<K>> = all
                .iter()
                .take(500)
                .map(|one| Object::new(Arc::new(Entry::new(one.clone(), Retention::Bytes))))
                .collect();
            let start = Instant::now();
            for object in &objects {
                black_box(object.typed().unwrap());
            }
            times.push(start.elapsed().as_secs_f64() * 1e6 / objects.len() as f64);
        }
    }
    let [json, protobuf] = times.map(quickest);
    let ratio = json / protobuf;
    let verdict = target.map_or(String::new(), |target| {
        format!("{target:>7.1} {}", if ratio >= target { "met" } else { "MISSED" })
    });
    println!("{name:<30} {json:>9.1} {protobuf:>9.1} {ratio:>9.1} {verdict}");
}

/// Six fields of a pod: phase, node, images, restarts, requests and owner.
#[derive(serde::Deserialize)]
#[expect(dead_code, reason = "only decoded")]
struct PodLite {
    metadata: MetadataLite,
    spec: SpecLite,
    status: StatusLite,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "only decoded")]
struct MetadataLite {
    owner_references: Option<Vec<OwnerLite>>,
}

#[derive(serde::Deserialize)]
#[expect(dead_code, reason = "only decoded")]
struct OwnerLite {
    kind: String,
    name: String,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "only decoded")]
struct SpecLite {
    node_name: Option<String>,
    containers: Vec<ContainerLite>,
}

#[derive(serde::Deserialize)]
#[expect(dead_code, reason = "only decoded")]
struct ContainerLite {
    image: Option<String>,
    resources: Option<ResourcesLite>,
}

#[derive(serde::Deserialize)]
#[expect(dead_code, reason = "only decoded")]
struct ResourcesLite {
    requests: Option<BTreeMap<String, String>>,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "only decoded")]
struct StatusLite {
    phase: Option<String>,
    container_statuses: Option<Vec<ContainerStatusLite>>,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "only decoded")]
struct ContainerStatusLite {
    restart_count: i32,
}

/// Time to decode the value of a projection, and to read it.
fn projection(json: &[ScannedObject], protobuf: &[ScannedObject]) {
    let projections = Projections::default();
    let lite = projections.add::<PodLite>(usize::MAX, || {});
    let mut decode = [Vec::new(), Vec::new()];
    let mut read = [Vec::new(), Vec::new()];
    for _ in 0..RUNS {
        for (at, all) in [json, protobuf].into_iter().enumerate() {
            let objects: Vec<Object<PodLite>> = all
                .iter()
                .take(500)
                .map(|one| Object::new(Arc::new(Entry::new(one.clone(), Retention::Bytes))))
                .collect();
            for times in [&mut decode[at], &mut read[at]] {
                let start = Instant::now();
                for object in &objects {
                    black_box(object.projected(&lite).unwrap());
                }
                times.push(start.elapsed().as_secs_f64() * 1e6 / objects.len() as f64);
            }
        }
    }
    for (name, times) in [("projection: decode 6 fields", decode), ("projection: read", read)] {
        let [json, protobuf] = times.map(quickest);
        println!("{name:<30} {json:>9.3} {protobuf:>9.3} {:>9.1}", json / protobuf);
    }
}

/// Baseline for decoders: cloning and dropping a decoded pod.
fn clone_baseline(all: &[ScannedObject]) {
    let pods: Vec<_> = all
        .iter()
        .take(500)
        .map(|one| Object::new(Arc::new(Entry::new(one.clone(), Retention::Bytes))))
        .map(|object: Object<k8s_openapi::api::core::v1::Pod>| object.typed().unwrap())
        .collect();
    let times = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            for pod in &pods {
                black_box(k8s_openapi::api::core::v1::Pod::clone(pod));
            }
            start.elapsed().as_secs_f64() * 1e6 / pods.len() as f64
        })
        .collect();
    println!("{:<30} {:>9} {:>9.1}", "baseline: Pod::clone", "", quickest(times));
}

/// The smallest time, since noise only adds.
fn quickest(times: Vec<f64>) -> f64 {
    times.into_iter().fold(f64::INFINITY, f64::min)
}

fn object_of(item: ListItem) -> Option<ScannedObject> {
    match item {
        ListItem::Object(object) => Some(object),
        _ => None,
    }
}

/// Encodes the items as protobuf messages.
fn messages(items: &[String]) -> Vec<Vec<u8>> {
    let of = message_of(&TypeMeta::new("v1", "Pod")).unwrap().get();
    items.iter().map(|item| encode::message(of, &serde_json::from_str(item).unwrap())).collect()
}

fn envelope(kind: &str, message: &[u8]) -> Vec<u8> {
    let (mut types, mut out) = (Vec::new(), b"k8s\0".to_vec());
    encode::data(&mut types, 1, b"v1");
    encode::data(&mut types, 2, kind.as_bytes());
    encode::data(&mut out, 1, &types);
    encode::data(&mut out, 2, message);
    encode::data(&mut out, 3, b"");
    encode::data(&mut out, 4, b"");
    out
}

fn protobuf_list(items: &[String]) -> Vec<u8> {
    let (mut metadata, mut list) = (Vec::new(), Vec::new());
    encode::data(&mut metadata, 2, b"9");
    encode::data(&mut list, 1, &metadata);
    for message in messages(items) {
        encode::data(&mut list, 2, &message);
    }
    envelope("PodList", &list)
}

fn protobuf_watch(items: &[String]) -> Vec<u8> {
    let mut out = Vec::new();
    for message in messages(items) {
        let (mut extension, mut event) = (Vec::new(), Vec::new());
        encode::data(&mut extension, 1, &envelope("Pod", &message));
        encode::data(&mut event, 1, b"MODIFIED");
        encode::data(&mut event, 2, &extension);
        out.extend(u32::try_from(event.len()).unwrap().to_be_bytes());
        out.extend(event);
    }
    out
}

/// Number of objects in a list item.
fn objects_in(item: ListItem) -> usize {
    match item {
        ListItem::Object(object) => {
            black_box(object);
            1
        }
        ListItem::Meta(_) => 0,
        ListItem::Unreadable(unreadable) => panic!("{unreadable}"),
    }
}

/// Number of objects in a frame.
fn objects_of(frame: Frame) -> usize {
    match frame {
        Frame::Modified(object) => {
            black_box(object);
            1
        }
        other => panic!("{other:?}"),
    }
}

fn read_protobuf_list(body: &[u8], by: Option<&FieldFilter>) {
    let types = TypeMeta::new("v1", "Pod");
    let mut reader =
        ProtobufListReader::new(types, Limits::default()).unwrap().with_field_filter(by.cloned());
    let mut objects = 0;
    for chunk in body.chunks(CHUNK_BYTES) {
        reader.read(chunk, |item| objects += objects_in(item)).unwrap();
    }
    reader.finish().unwrap();
    assert_eq!(objects, PODS);
}

fn read_protobuf_watch(body: &[u8]) {
    let mut reader = ProtobufWatchReader::new(TypeMeta::new("v1", "Pod"), Limits::default()).unwrap();
    let mut objects = 0;
    for chunk in body.chunks(CHUNK_BYTES) {
        reader.read(chunk, |frame| objects += objects_of(frame)).unwrap();
    }
    reader.finish().unwrap();
    assert_eq!(objects, PODS);
}

fn managed_bytes(item: &str) -> usize {
    let start = item.find("\"managedFields\"").unwrap();
    item[start..].find("],\"spec\"").or_else(|| item[start..].find("]},\"spec\"")).unwrap()
}

fn read_list(body: &[u8], by: Option<&FieldFilter>) {
    let mut reader =
        ListReader::new(TypeMeta::new("v1", "Pod"), Limits::default()).with_field_filter(by.cloned());
    let mut objects = 0;
    for chunk in body.chunks(CHUNK_BYTES) {
        reader.read(chunk, |item| objects += objects_in(item)).unwrap();
    }
    reader.finish().unwrap();
    assert_eq!(objects, PODS);
}

fn read_watch(body: &[u8]) {
    let mut reader = WatchReader::new(TypeMeta::new("v1", "Pod"), Limits::default());
    let mut objects = 0;
    for chunk in body.chunks(CHUNK_BYTES) {
        reader.read(chunk, |frame| objects += objects_of(frame)).unwrap();
    }
    reader.finish().unwrap();
    assert_eq!(objects, PODS);
}

fn ignore(body: &[u8]) {
    serde_json::from_slice::<IgnoredAny>(body).unwrap();
}

/// Copies each chunk to a reused buffer.
fn copy(body: &[u8]) {
    let mut buffer = Vec::with_capacity(CHUNK_BYTES);
    for chunk in body.chunks(CHUNK_BYTES) {
        buffer.clear();
        buffer.extend_from_slice(black_box(chunk));
        black_box(&buffer);
    }
}
