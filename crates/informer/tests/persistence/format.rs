//! Files of earlier versions: each is read, or rejected with a reason.

use super::{Disk, contents, is_warm, persistence, synced};
use crate::cluster::{EventLog, TIMEOUT, advance_time, config_map, log_events_with};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use informer::persistence::RestoredReads;
use informer::status::{ColdStartReason, StartKind};
use informer::{InformerOptions, Registration, SharedInformer};
use informer_apiserver::{ApiServer, faults};
use k8s_openapi::api::core::v1::ConfigMap;
use std::io::{Read as _, Write as _};
use std::time::Duration;

/// The file that version 1 of the format has written. `INFORMER_WRITE_SAVED_CACHE=PATH cargo test …` writes such a file
/// with the current version.
const VERSION_1: &[u8] = include_bytes!("saved-cache-1.redb.gz");
/// The name of the file depends on the cluster, the resource and the selection.
const NAME: &str = "configmaps.v1-d7774ee8dee01371.redb";

fn durable(informer: &SharedInformer<ConfigMap>) -> (Registration, EventLog) {
    log_events_with(informer.handler().durable("test"))
}

/// Writes a file: the objects `a` and `b`, and a durable handler that has not acknowledged the deletion of `c`.
async fn write() -> Vec<u8> {
    let (server, disk) = (ApiServer::new(), Disk::default());
    // The uid of the cluster is not saved, so that a test can use the file with any server.
    let _forbidden = server.inject(faults::forbid("namespaces"));
    for name in ["a", "b", "c"] {
        server.create(&config_map("default", name, "1")).unwrap();
    }
    let informer = synced(&server, InformerOptions::default().persist(persistence(&disk))).await;
    let mut events = informer.handler().durable("test").event_stream();
    events.wait_for_initial_list().await;
    assert_eq!(events.next_batch(10).await.len(), 3);
    server.delete("v1", "configmaps", Some("default"), "c").unwrap();
    assert_eq!(events.next_batch(10).await.len(), 1);
    advance_time(Duration::from_secs(3)).await;
    disk.kill();
    assert_eq!(disk.files(), [NAME]);
    disk.content()
}

fn version_1() -> Vec<u8> {
    let mut content = Vec::new();
    GzDecoder::new(VERSION_1).read_to_end(&mut content).unwrap();
    content
}

/// A program that is older than the one that has written the file, for example after a rollback.
#[tokio::test(start_paused = true)]
async fn file_of_a_newer_version_is_set_aside() {
    let mut content = version_1();
    // The value of `format` precedes the identity.
    let format = b"1cluster test";
    let positions: Vec<usize> = (0..content.len()).filter(|at| content[*at..].starts_with(format)).collect();
    assert!(!positions.is_empty());
    for position in positions {
        content[position] = b'2';
    }
    let (disk, server) = (Disk::default(), ApiServer::new());
    disk.insert(NAME, content);
    server.create(&config_map("default", "n", "1")).unwrap();
    let informer = synced(&server, InformerOptions::default().persist(persistence(&disk))).await;
    let start = informer.status().persistence.unwrap().start;
    let StartKind::Cold(reason) = start else { panic!("{start:?}") };
    assert_eq!(reason.to_string(), "saved in format \"2\"");
    assert_eq!(contents(&informer), ["n=1"]);
    assert!(disk.files().contains(&format!("{NAME}.discarded")), "{:?}", disk.files());
}

#[tokio::test(start_paused = true)]
async fn file_of_version_1_is_read_or_rejected_with_a_reason() {
    if let Ok(path) = std::env::var("INFORMER_WRITE_SAVED_CACHE") {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&write().await).unwrap();
        std::fs::write(path, encoder.finish().unwrap()).unwrap();
        return;
    }
    let disk = Disk::default();
    disk.insert(NAME, version_1());
    // A server that has not been restored: it is ahead of the file.
    let server = ApiServer::new();
    for name in ["a", "b", "x", "y", "z"] {
        for value in 0..10 {
            server.insert_unchecked(&config_map("default", name, &value.to_string())).unwrap();
        }
    }
    let options = persistence(&disk).restored_reads(RestoredReads::Serve);
    let informer = SharedInformer::<ConfigMap>::with_options(
        server.client(),
        InformerOptions::default().persist(options),
    );
    let (_registration, mut log) = durable(&informer);
    informer.start();
    informer.wait_for_sync(TIMEOUT).await.unwrap();
    if is_warm(&informer) {
        // The embedded server assigns the same uids to the same objects.
        log.expect(&["-c inferred", "+a initial", "+b initial", "+x initial"]).await;
    } else {
        let start = informer.status().persistence.unwrap().start;
        assert!(matches!(start, StartKind::Cold(ColdStartReason::OtherFormat { .. })), "{start:?}");
    }
}
