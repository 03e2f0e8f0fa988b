//! Damaged files: the start is cold, or the cache is right. No damage leads to a panic.
//!
//! Found by attack: the database panicked when it opened a file that was shorter than its header said. The panic was
//! caught, but the panic hook of the program ran before: a program whose hook exits, or that is built with
//! `panic = "abort"`, was restarted for ever with the same file. A flipped bit in the saved position led to a synced cache
//! that had skipped changes, because only the objects had checksums. The test of damaged bytes tried 100 bytes, did not
//! look at panics that were caught, and changed nothing on the server that a wrong position could have skipped.

use super::{Disk, contents, is_warm, saved_on, synced, wait_for_save};
use crate::cluster::{TIMEOUT, advance_time, config_map, log_events_with, until};
use informer_apiserver::ApiServer;
use std::panic;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The panics outside of tests, also if they were caught.
static PANICS: AtomicUsize = AtomicUsize::new(0);

fn count_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let file = info.location().map_or("", |location| location.file());
            // Other tests of this program let handlers and disks panic.
            if !file.contains("tests/") {
                PANICS.fetch_add(1, Ordering::Relaxed);
            }
            previous(info);
        }));
    });
}

/// A server with the objects `a` and `c`, and files that were saved from it before `c` was created. They contain `a`,
/// and a durable handler that has not acknowledged the deletion of `b`.
struct Saved {
    server: ApiServer,
    name: String,
    content: Vec<u8>,
    /// The content after many more saves.
    later: Vec<u8>,
}

impl Saved {
    async fn new() -> Self {
        let (server, disk) = (ApiServer::new(), Disk::default());
        server.create(&config_map("default", "a", "1")).unwrap();
        server.create(&config_map("default", "b", "gone")).unwrap();
        let informer = synced(&server, saved_on(&disk)).await;
        let mut events = informer.handler().durable("test").event_stream();
        events.wait_for_initial_list().await;
        assert_eq!(events.next_batch(10).await.len(), 2);
        server.delete("v1", "configmaps", Some("default"), "b").unwrap();
        assert_eq!(events.next_batch(10).await.len(), 1);
        wait_for_save(&informer).await;
        let content = disk.content();
        for value in 0..20 {
            server.insert_unchecked(&config_map("default", "c", &value.to_string().repeat(20_000))).unwrap();
            wait_for_save(&informer).await;
        }
        server.insert_unchecked(&config_map("default", "c", "1")).unwrap();
        wait_for_save(&informer).await;
        let (later, name) = (disk.content(), disk.files().remove(0));
        disk.kill();
        Self { server, name, content, later }
    }

    /// Starts with a file; returns whether the start was warm.
    async fn start_with(&self, content: Vec<u8>, damage: &str) -> bool {
        let disk = Disk::default();
        disk.insert(&self.name, content);
        let informer = synced(&self.server, saved_on(&disk)).await;
        assert_eq!(contents(&informer), ["a=1", "c=1"], "{damage}");
        let is_warm = is_warm(&informer);
        let (registration, mut log) = log_events_with(informer.handler().durable("test"));
        // C2: either everything that the handler knows is forgotten, or nothing.
        let deletion = if is_warm { &["-b inferred"][..] } else { &[] };
        log.expect(&[deletion, &["+a initial", "+c initial"]].concat()).await;
        // Damage of pages that describe free space is found by a save, which replaces the file.
        until(|| informer.status().persistence.is_some_and(|status| status.saved_at.is_some())).await;
        informer.shutdown(TIMEOUT).await.unwrap();
        drop(registration);
        assert_eq!(PANICS.load(Ordering::Relaxed), 0, "{damage}");
        is_warm
    }
}

#[tokio::test(start_paused = true)]
async fn file_that_is_truncated_anywhere_causes_a_cold_start_without_a_panic() {
    count_panics();
    let saved = Saved::new().await;
    let length = saved.content.len();
    let pages = (0..length).step_by(4096).chain([512]);
    let random = (0..200).map(|sample| sample * 7919 * 127 % length);
    for truncated in pages.chain(random).chain([length - 1]) {
        let damage = format!("truncated to {truncated} of {length} bytes");
        assert!(!saved.start_with(saved.content[..truncated].to_vec(), &damage).await, "{damage}");
    }
    assert!(saved.start_with(saved.content.clone(), "none").await);
}

/// `INFORMER_FLIPPED_BITS` changes the number of samples.
#[tokio::test(start_paused = true)]
async fn file_with_any_flipped_bit_is_not_used_or_leads_to_a_right_cache() {
    count_panics();
    let saved = Saved::new().await;
    let content = &saved.content;
    // Half of the samples are in the parts of the file that are in use, the others anywhere.
    let used: Vec<usize> = (0..content.len()).filter(|at| content[*at] != 0).collect();
    let samples = std::env::var("INFORMER_FLIPPED_BITS").map_or(400, |samples| samples.parse().unwrap());
    let (mut warm, mut cold) = (0, 0);
    for sample in 0..samples {
        let position = if sample % 2 == 0 {
            sample * content.len() / samples
        } else {
            used[sample * used.len() / samples]
        };
        let bit = sample / 2 % 8;
        let mut content = content.clone();
        content[position] ^= 1 << bit;
        if saved.start_with(content, &format!("bit {bit} of byte {position}")).await {
            warm += 1;
        } else {
            cold += 1;
        }
    }
    assert!(warm > samples / 10 && cold > samples / 10, "{warm} warm, {cold} cold");
}

/// Copies of a file that a process is using, as a backup makes them: a part of the copy is older than the rest.
#[tokio::test(start_paused = true)]
async fn copy_of_a_file_in_use_is_not_used_or_leads_to_a_right_cache() {
    count_panics();
    let saved = Saved::new().await;
    for (what, first, second) in
        [("newer", &saved.content, &saved.later), ("older", &saved.later, &saved.content)]
    {
        let (mut warm, mut cold) = (0, 0);
        for sample in 0..60 {
            let position = (sample * first.len() / 60).max(600).min(second.len());
            let mixed = [&first[..position], &second[position..]].concat();
            let is_warm = saved.start_with(mixed, &format!("{what} from byte {position} on")).await;
            *(if is_warm { &mut warm } else { &mut cold }) += 1;
        }
        // Parts that are not in use may differ.
        assert!(cold > 10, "{what}: {warm} warm, {cold} cold");
    }
}

/// Files full of one byte, of other programs, and with a valid start only.
#[tokio::test(start_paused = true)]
async fn file_of_other_content_causes_a_cold_start_without_a_panic() {
    count_panics();
    let saved = Saved::new().await;
    let length = saved.content.len();
    let start = |rest: u8| [saved.content[..512].to_vec(), vec![rest; length - 512]].concat();
    let contents =
        [vec![0; length], vec![0xff; length], b"informer".to_vec(), b"redb".repeat(1000), start(0), start(1)];
    for (number, content) in contents.into_iter().enumerate() {
        assert!(!saved.start_with(content, &format!("content {number}")).await, "content {number}");
    }
}

/// A process that was restarted for ever with a damaged file did not set it aside.
#[tokio::test(start_paused = true)]
async fn damaged_file_is_set_aside_and_the_next_start_is_warm() {
    let saved = Saved::new().await;
    let disk = Disk::default();
    disk.insert(&saved.name, saved.content[..saved.content.len() / 2].to_vec());
    let informer = synced(&saved.server, saved_on(&disk)).await;
    assert!(!is_warm(&informer));
    advance_time(Duration::from_secs(3)).await;
    informer.shutdown(TIMEOUT).await.unwrap();
    assert_eq!(disk.files(), [saved.name.clone(), format!("{}.discarded", saved.name)]);
    assert!(is_warm(&synced(&saved.server, saved_on(&disk)).await));
}
