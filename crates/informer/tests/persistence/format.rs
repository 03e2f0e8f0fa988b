//! Files of earlier versions: each is read, or rejected with a reason.

use super::{Disk, contents, is_warm, persistence, synced};
use crate::cluster::{EventLog, TIMEOUT, advance_time, config_map, log_events_with};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use informer::persistence::RestoredReads;
use informer::status::StartKind;
use informer::{InformerOptions, Registration, SharedInformer};
use informer_apiserver::{ApiServer, faults};
use k8s_openapi::api::core::v1::ConfigMap;
use std::io::{Read as _, Write as _};
use std::time::Duration;

/// The files that versions 1 and 2 of the format have written. `INFORMER_WRITE_SAVED_CACHE=PATH cargo test …` writes such
/// a file with the current version.
const VERSIONS: [(&str, &[u8]); 2] =
    [("1", include_bytes!("saved-cache-1.redb.gz")), ("2", include_bytes!("saved-cache-2.redb.gz"))];
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

fn decompress(file: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    GzDecoder::new(file).read_to_end(&mut content).unwrap();
    content
}

/// A program that is older than the one that has written the file, for example after a rollback.
#[tokio::test(start_paused = true)]
async fn file_of_a_newer_version_is_set_aside() {
    let mut content = write().await;
    // The version follows the name of the format.
    assert_eq!(content[..12], *b"informer\x02\0\0\0");
    content[8] = 3;
    let (disk, server) = (Disk::default(), ApiServer::new());
    disk.insert(NAME, content);
    server.create(&config_map("default", "n", "1")).unwrap();
    let informer = synced(&server, InformerOptions::default().persist(persistence(&disk))).await;
    let start = informer.status().persistence.unwrap().start;
    let StartKind::Cold(reason) = start else { panic!("{start:?}") };
    assert_eq!(reason.to_string(), "saved in format \"3\"");
    assert_eq!(contents(&informer), ["n=1"]);
    assert!(disk.files().contains(&format!("{NAME}.discarded")), "{:?}", disk.files());
}

#[tokio::test(start_paused = true)]
async fn file_of_each_version_is_read_or_rejected_with_a_reason() {
    if let Ok(path) = std::env::var("INFORMER_WRITE_SAVED_CACHE") {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&write().await).unwrap();
        std::fs::write(path, encoder.finish().unwrap()).unwrap();
        return;
    }
    for (version, file) in VERSIONS {
        let disk = Disk::default();
        disk.insert(NAME, decompress(file));
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
            assert_eq!(version, "2");
            // The embedded server assigns the same uids to the same objects.
            log.expect(&["-c inferred", "+a initial", "+b initial", "+x initial"]).await;
        } else {
            let StartKind::Cold(reason) = informer.status().persistence.unwrap().start else { panic!() };
            assert_eq!(reason.to_string(), format!("saved in format {version:?}"));
        }
    }
}
