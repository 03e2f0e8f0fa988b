//! Files that cannot be used: the start is cold, with a named reason, and the next one is warm.

use super::{Disk, cold_reason, contents, is_warm, persistence, save, saved_on, start, synced};
use crate::cluster::{TIMEOUT, advance_time, config_map, log_events_with, until};
use informer::persistence::{FileId, Persistence, Storage};
use informer::status::{ColdStartReason, StartKind};
use informer::{InformerOptions, SharedInformer};
use informer_apiserver::ApiServer;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

async fn saved_server() -> (ApiServer, Disk) {
    let (server, disk) = (ApiServer::new(), Disk::default());
    server.create(&config_map("default", "a", "1")).unwrap();
    save(&server, saved_on(&disk)).await;
    (server, disk)
}

/// Starts cold for the expected reason, and warm afterwards.
async fn check_cold(server: &ApiServer, disk: &Disk, expected: impl Fn(&ColdStartReason) -> bool) {
    let cold = synced(server, saved_on(disk)).await;
    let reason = cold_reason(&cold);
    assert!(expected(&reason), "{reason}");
    assert_eq!(contents(&cold), ["a=1"]);
    until(|| cold.status().persistence.unwrap().saved_at.is_some()).await;
    cold.shutdown(TIMEOUT).await.unwrap();
    let warm = synced(server, saved_on(disk)).await;
    assert!(is_warm(&warm), "{:?}", warm.status().persistence);
    assert_eq!(contents(&warm), ["a=1"]);
    warm.shutdown(TIMEOUT).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn first_start_is_cold() {
    let (server, disk) = (ApiServer::new(), Disk::default());
    server.create(&config_map("default", "a", "1")).unwrap();
    check_cold(&server, &disk, |reason| *reason == ColdStartReason::NothingSaved).await;
}

#[tokio::test(start_paused = true)]
async fn damaged_file_is_set_aside() {
    let damages: [fn(&mut Vec<u8>); 5] = [
        |content| content.truncate(content.len() / 2),
        |content| content.truncate(100),
        |content| content.fill(0),
        |content| content[..64].fill(0xff),
        |content| content.clone_from(&b"not a database".to_vec()),
    ];
    for damage in damages {
        let (server, disk) = saved_server().await;
        disk.change(damage);
        check_cold(&server, &disk, |reason| matches!(reason, ColdStartReason::Damaged { .. })).await;
        assert!(disk.files().iter().any(|name| name.ends_with(".discarded")), "{:?}", disk.files());
    }
}

#[tokio::test(start_paused = true)]
async fn file_in_use_is_not_read_and_saved_after_its_release() {
    let (server, disk) = saved_server().await;
    let first = synced(&server, saved_on(&disk)).await;
    assert!(is_warm(&first));
    let second = synced(&server, saved_on(&disk)).await;
    assert_eq!(cold_reason(&second), ColdStartReason::InUse);
    first.shutdown(TIMEOUT).await.unwrap();
    until(|| second.status().persistence.unwrap().saved_at.is_some()).await;
    second.shutdown(TIMEOUT).await.unwrap();
    assert!(is_warm(&synced(&server, saved_on(&disk)).await));
}

#[tokio::test(start_paused = true)]
async fn other_options_start_cold_and_name_the_setting() {
    let (server, disk) = saved_server().await;
    let cases: [(InformerOptions, Option<&str>); 5] = [
        (saved_on(&disk).drop_fields(["data.x"]).unwrap(), Some("field filter")),
        (saved_on(&disk).keep_managed_fields(true), Some("managed fields")),
        (saved_on(&disk).max_object_bytes(5000), Some("max object bytes")),
        (saved_on(&disk).query_parameters(|query| query.set("x", "y")), Some("query parameters")),
        // Another selection is another file.
        (saved_on(&disk).namespace("default"), None),
    ];
    for (options, setting) in cases {
        save(&server, saved_on(&disk)).await;
        let informer = synced(&server, options).await;
        let expected = match setting {
            Some(setting) => format!("saved with another {setting}"),
            None => "nothing was saved before".to_owned(),
        };
        assert_eq!(cold_reason(&informer).to_string(), expected);
        assert_eq!(contents(&informer), ["a=1"]);
        informer.shutdown(TIMEOUT).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn transform_needs_a_version() {
    let (server, disk) = (ApiServer::new(), Disk::default());
    server.create(&config_map("default", "a", "1")).unwrap();
    let options = |persistence: Persistence| {
        let transform = |_: &mut ConfigMap| Ok(());
        InformerOptions::default().transform(transform).persist(persistence)
    };
    let unnamed = synced(&server, options(persistence(&disk))).await;
    assert_eq!(cold_reason(&unnamed), ColdStartReason::UnnamedTransform);
    assert_eq!(disk.files(), [""; 0]);
    save(&server, options(persistence(&disk).transform_version("v1"))).await;
    let same = synced(&server, options(persistence(&disk).transform_version("v1"))).await;
    assert!(is_warm(&same));
    same.shutdown(TIMEOUT).await.unwrap();
    let other = synced(&server, options(persistence(&disk).transform_version("v2"))).await;
    assert_eq!(cold_reason(&other).to_string(), "saved with another transform");
}

#[tokio::test(start_paused = true)]
async fn secrets_are_saved_only_on_request() {
    let (server, disk) = (ApiServer::new(), Disk::default());
    let secret = serde_json::json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"namespace": "default", "name": "s"}, "stringData": {"password": "hunter2"}});
    server.create(&secret).unwrap();
    for (persistence, files) in [(persistence(&disk), 0), (persistence(&disk).include_secrets(), 1)] {
        let options = InformerOptions::default().persist(persistence);
        let secrets = SharedInformer::<Secret>::with_options(server.client(), options);
        secrets.start();
        secrets.wait_for_sync(TIMEOUT).await.unwrap();
        secrets.shutdown(TIMEOUT).await.unwrap();
        assert_eq!(disk.files().len(), files);
        let start = secrets.status().persistence.unwrap().start;
        let expected = if files == 0 { ColdStartReason::Secrets } else { ColdStartReason::NothingSaved };
        assert_eq!(start, StartKind::Cold(expected));
    }
}

#[tokio::test(start_paused = true)]
async fn cluster_that_was_set_up_again_is_recognised() {
    let (server, disk) = saved_server().await;
    save(&server, saved_on(&disk)).await;
    let other = ApiServer::builder().seed(1).build();
    other.create(&config_map("default", "b", "1")).unwrap();
    for number in 0..50 {
        other.create(&config_map("default", &format!("n{number}"), "1")).unwrap();
    }
    let informer = synced(&other, saved_on(&disk)).await;
    assert_eq!(cold_reason(&informer), ColdStartReason::OtherCluster);
    assert_eq!(contents(&informer).len(), 51);
    until(|| informer.status().persistence.unwrap().saved_at.is_some()).await;
    informer.shutdown(TIMEOUT).await.unwrap();
    let warm = synced(&other, saved_on(&disk)).await;
    assert!(is_warm(&warm));
    assert_eq!(contents(&warm).len(), 51);
}

#[tokio::test(start_paused = true)]
async fn read_only_directory_and_full_disk_do_not_disturb_the_informer() {
    let (server, disk) = (ApiServer::new(), Disk::default());
    server.create(&config_map("default", "a", "1")).unwrap();
    disk.set_read_only(true);
    let informer = synced(&server, saved_on(&disk)).await;
    assert!(matches!(cold_reason(&informer), ColdStartReason::Inaccessible { .. }));
    until(|| informer.status().persistence.unwrap().error.is_some()).await;
    disk.set_capacity(Some(10_000));
    disk.set_read_only(false);
    until(|| informer.status().persistence.unwrap().error.is_some_and(|error| !error.contains("read"))).await;
    assert_eq!(contents(&informer), ["a=1"]);
    disk.set_capacity(None);
    until(|| informer.status().persistence.unwrap().saved_at.is_some()).await;
    assert_eq!(informer.status().persistence.unwrap().error, None);
    informer.shutdown(TIMEOUT).await.unwrap();
    assert!(is_warm(&synced(&server, saved_on(&disk)).await));
}

/// Found by a review: if a disk failed to read a root of the file for a moment, this counted as damage: the good file was set
/// aside, and its durable handlers began as new ones.
#[tokio::test(start_paused = true)]
async fn failed_read_is_tried_again() {
    let (server, disk) = saved_server().await;
    for after in 0.. {
        disk.fail_reads(after, 1);
        let informer = synced(&server, saved_on(&disk)).await;
        assert!(is_warm(&informer), "read {after}: {:?}", informer.status().persistence);
        disk.kill();
        if disk.failing_reads() > 0 {
            assert!(after > 10, "{after} reads");
            break;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn file_is_kept_if_its_disk_cannot_be_read() {
    let (server, disk) = saved_server().await;
    for after in 0..10 {
        disk.fail_reads(after, u64::MAX);
        let informer = synced(&server, saved_on(&disk)).await;
        let reason = cold_reason(&informer);
        assert!(matches!(reason, ColdStartReason::Inaccessible { .. }), "read {after}: {reason}");
        disk.kill();
        disk.fail_reads(0, 0);
        assert!(is_warm(&synced(&server, saved_on(&disk)).await), "after read {after}");
        disk.kill();
    }
}

/// Found by a review: if a process ended before it could rename a complete new file, and the old file was damaged as well,
/// nothing used the new one.
#[tokio::test(start_paused = true)]
async fn complete_new_file_is_used_if_the_file_is_damaged() {
    let (server, disk) = saved_server().await;
    let (name, content) = (disk.files().remove(0), disk.content());
    let new_name = format!("{name}.new");
    disk.change(|content| content.truncate(100));
    disk.insert(&new_name, content);
    let informer = synced(&server, saved_on(&disk)).await;
    assert!(is_warm(&informer), "{:?}", informer.status().persistence);
    informer.shutdown(TIMEOUT).await.unwrap();
    // Both are damaged.
    disk.insert(&new_name, b"no cache".to_vec());
    disk.change(|content| content.truncate(100));
    check_cold(&server, &disk, |reason| matches!(reason, ColdStartReason::Damaged { .. })).await;
    assert!(!disk.files().contains(&new_name), "{:?}", disk.files());
}

/// A disk of which the next operation does not return before a sender is dropped.
#[derive(Debug)]
struct HangingDisk {
    disk: Disk,
    hangs: Arc<Mutex<Option<mpsc::Receiver<()>>>>,
}

impl Storage for HangingDisk {
    fn id(&self, name: &str) -> Option<FileId> {
        let hangs = self.hangs.lock().unwrap().take();
        if let Some(released) = hangs {
            assert!(released.recv().is_err());
        }
        self.disk.id(name)
    }

    fn open(&self, name: &str) -> Result<Box<dyn redb::StorageBackend>, redb::DatabaseError> {
        self.disk.open(name)
    }

    fn rename(&self, from: &str, to: &str) -> std::io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> std::io::Result<()> {
        self.disk.remove(name)
    }
}

/// A network file system can hang for minutes. Handlers that are not durable are not delayed, and the status tells why
/// the durable ones are.
#[tokio::test]
async fn disk_that_does_not_respond_is_reported() {
    let (server, hangs) = (ApiServer::new(), Arc::<Mutex<_>>::default());
    let disk = HangingDisk { disk: Disk::default(), hangs: Arc::clone(&hangs) };
    let options = InformerOptions::default().persist(Persistence::with_storage(Arc::new(disk), "test"));
    let informer = synced(&server, options).await;
    let (_durable, mut durable) = log_events_with(informer.handler().durable("test"));
    let (_usual, mut usual) = log_events_with(informer.handler());
    super::wait_for_save(&informer).await;
    let (release, released) = mpsc::channel();
    *hangs.lock().unwrap() = Some(released);
    server.create(&config_map("default", "a", "1")).unwrap();
    usual.expect(&["+a"]).await;
    // Time does not pass by itself while a thread is blocked.
    tokio::time::pause();
    let error = || informer.status().persistence.unwrap().error;
    for _ in 0..1_000 {
        if error().is_none() {
            tokio::time::advance(Duration::from_millis(100)).await;
        }
    }
    assert_eq!(error().as_deref(), Some("the disk does not respond"));
    assert_eq!(durable.take(), [""; 0]);
    drop(release);
    tokio::time::resume();
    durable.expect(&["+a"]).await;
    until(|| error().is_none()).await;
}

/// Checks that the informer saves a complete file again, although its file is gone.
async fn check_written_again(server: &ApiServer, disk: &Disk, informer: SharedInformer<ConfigMap>) {
    server.create(&config_map("default", "b", "1")).unwrap();
    until(|| contents(&informer).len() == 2).await;
    super::wait_for_save(&informer).await;
    informer.shutdown(TIMEOUT).await.unwrap();
    let second = synced(server, saved_on(disk)).await;
    assert!(is_warm(&second));
    assert_eq!(contents(&second), ["a=1", "b=1"]);
}

/// A file that another program puts in place of the open one is not used, and is replaced by a complete one.
#[tokio::test(start_paused = true)]
async fn replaced_file_is_written_again() {
    let (server, disk) = saved_server().await;
    let informer = synced(&server, saved_on(&disk)).await;
    let name = disk.files().remove(0);
    disk.delete_files();
    disk.insert(&name, b"not a database".to_vec());
    check_written_again(&server, &disk, informer).await;
}

/// The time at which a cache was saved is only shown: a clock that was set back changes nothing.
#[tokio::test(start_paused = true)]
async fn file_from_the_future_is_used() {
    let (server, disk) = (ApiServer::new(), Disk::default());
    server.create(&config_map("default", "a", "1")).unwrap();
    advance_time(Duration::from_secs(86_400)).await;
    save(&server, saved_on(&disk)).await;
    // A new runtime: its clock is a day behind.
    let second = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.unwrap().block_on(async {
            let informer = synced(&server, saved_on(&disk)).await;
            let StartKind::Warm { as_of, .. } = informer.status().persistence.unwrap().start else {
                panic!("{:?}", informer.status());
            };
            (as_of, informer::now())
        })
    });
    let (as_of, now) = second.join().unwrap();
    assert!(as_of > now, "saved at {as_of}, now {now}");
}

#[tokio::test(start_paused = true)]
async fn deleted_file_is_written_again() {
    let (server, disk) = saved_server().await;
    let informer = synced(&server, saved_on(&disk)).await;
    disk.delete_files();
    check_written_again(&server, &disk, informer).await;
}

#[cfg(unix)]
#[tokio::test]
async fn files_in_a_directory_are_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory =
        std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("saved-{}", std::process::id()));
    let server = ApiServer::new();
    server.create(&config_map("default", "a", "1")).unwrap();
    let options = || InformerOptions::default().persist(Persistence::for_cluster(&directory, "test"));
    save(&server, options()).await;
    let files: Vec<_> = std::fs::read_dir(&directory).unwrap().map(|file| file.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    for (path, mode) in [(&directory, 0o700), (&files[0], 0o600)] {
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, mode, "{}", path.display());
    }
    let second = start(&server, options());
    second.wait_for_sync(TIMEOUT).await.unwrap();
    assert!(is_warm(&second));
    // Damage, and a file that was replaced while it is open.
    second.shutdown(TIMEOUT).await.unwrap();
    std::fs::write(&files[0], b"damaged").unwrap();
    let third = synced(&server, options()).await;
    assert!(matches!(cold_reason(&third), ColdStartReason::Damaged { .. }));
    until(|| third.status().persistence.unwrap().saved_at.is_some()).await;
    std::fs::remove_file(&files[0]).unwrap();
    server.create(&config_map("default", "b", "1")).unwrap();
    until(|| files[0].exists()).await;
    third.shutdown(TIMEOUT).await.unwrap();
    let fourth = synced(&server, options()).await;
    assert!(is_warm(&fourth));
    assert_eq!(contents(&fourth), ["a=1", "b=1"]);
    std::fs::remove_dir_all(&directory).unwrap();
}
