//! A disk that the file of a saved cache has filled.

use super::{Disk, contents, is_warm, saved_on, synced, wait_for_save};
use crate::cluster::{TIMEOUT, config_map, log_events_with, until};
use informer_apiserver::ApiServer;

/// Found by attack: a cache had filled its volume. Then it shrank to a few objects, but they could not be saved, not even
/// by further processes: the database needs new pages to give up old ones. The test of a full disk gave the disk more
/// space afterwards.
#[tokio::test(start_paused = true)]
async fn cache_that_has_filled_its_disk_and_shrinks_is_saved_again() {
    // With some space beside the file, and with none; and with more objects than fit beside the file.
    for (spare, left) in [(3 << 20, 10_usize), (100_000, 10), (0, 10), (0, 110)] {
        let (server, disk) = (ApiServer::new(), Disk::default());
        let create = |names: std::ops::Range<u32>| {
            for name in names {
                let map = config_map("default", &format!("m{name:04}"), &name.to_string().repeat(2_000));
                server.insert_unchecked(&map).unwrap();
            }
        };
        create(0..200);
        let informer = synced(&server, saved_on(&disk)).await;
        let (registration, mut log) = log_events_with(informer.handler().durable("test"));
        let mut received = 0;
        until(|| {
            received += log.take().len();
            received == 200
        })
        .await;
        wait_for_save(&informer).await;
        let full = disk.used();
        disk.set_capacity(Some(full + spare));
        create(200..1_200);
        until(|| informer.status().persistence.unwrap().error.is_some()).await;
        for name in left..1_200 {
            server.delete("v1", "configmaps", Some("default"), &format!("m{name:04}")).unwrap();
        }
        until(|| informer.snapshot().len() == left).await;
        // The next attempt follows after up to 30 s, or in the next process.
        let (informer, _registration) = if spare == 0 {
            disk.kill();
            let next = synced(&server, saved_on(&disk)).await;
            let (registration, mut log) = log_events_with(next.handler().durable("test"));
            let mut events = Vec::new();
            until(|| {
                events.extend(log.take());
                events.len() == 200
            })
            .await;
            // C2: nothing was saved since the disk is full, so the handler learns again what has vanished.
            assert_eq!(events.iter().filter(|event| event.ends_with(" inferred")).count(), 200 - left);
            (next, registration)
        } else {
            (informer, registration)
        };
        let status = || informer.status().persistence.unwrap();
        until(|| status().saved_at.is_some() && status().error.is_none()).await;
        // Found by a review: the old file was deleted while it was open, so there was no space for the new one, and for up to
        // 30 s there was no file at all.
        assert!(!disk.was_full_of_deleted_files());
        informer.shutdown(TIMEOUT).await.unwrap();
        let warm = synced(&server, saved_on(&disk)).await;
        assert!(is_warm(&warm), "{:?}", warm.status().persistence);
        assert_eq!(contents(&warm).len(), left);
    }
}
