//! Controllers that continue after a restart instead of reconciling every key.

use super::{Disk, persistence};
use crate::cluster::{TIMEOUT, advance_time, config_map, until, with};
use informer::controller::{Controller, Outcome, RunnableController};
use informer::persistence::Persistence;
use informer::{Event, InformerOptions, Key, SharedInformerFactory};
use informer_apiserver::ApiServer;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

type Behaviour = fn(&str) -> Result<Outcome, &'static str>;

/// A result for which the reconcile does not end.
const STUCK: &str = "stuck";

/// Every reconcile succeeds.
const DONE: Behaviour = |_| Ok(Outcome::Done);

/// A process with a controller of config maps, which own secrets.
struct Process {
    factory: SharedInformerFactory,
    controller: RunnableController,
    run: JoinHandle<()>,
    stop: oneshot::Sender<()>,
    reconciled: Arc<Mutex<BTreeSet<String>>>,
}

impl Process {
    async fn start(server: &ApiServer, disk: &Disk, version: &'static str, behaviour: Behaviour) -> Self {
        Self::with_keys(server, disk, version, behaviour, Vec::new()).await
    }

    /// Starts a process whose controller also receives these keys from a stream.
    async fn with_keys(
        server: &ApiServer,
        disk: &Disk,
        version: &'static str,
        behaviour: Behaviour,
        keys: Vec<Key>,
    ) -> Self {
        let persistence = persistence(disk).include_secrets();
        Self::with_persistence(server, persistence, version, behaviour, keys).await
    }

    async fn with_persistence(
        server: &ApiServer,
        persistence: Persistence,
        version: &'static str,
        behaviour: Behaviour,
        keys: Vec<Key>,
    ) -> Self {
        let options = InformerOptions::default().persist(persistence);
        let factory = SharedInformerFactory::with_options(server.client(), options);
        let reconciled: Arc<Mutex<BTreeSet<String>>> = Arc::default();
        let log = Arc::clone(&reconciled);
        let controller = Controller::new::<ConfigMap>(&factory)
            .owns::<Secret>()
            .watches_stream(futures::stream::iter(keys))
            .resume(version)
            .reconcile(move |key, _| {
                log.lock().unwrap().insert(key.name().to_owned());
                async move {
                    match behaviour(key.name()) {
                        Err(STUCK) => std::future::pending().await,
                        result => result,
                    }
                }
            });
        let (stop, stopped) = oneshot::channel::<()>();
        let running = controller.clone();
        let run = tokio::spawn(async move {
            // An error if a reconcile does not end.
            let _aborted = running.run_until(async { drop(stopped.await) }).await.is_err();
        });
        controller.wait_until_running().await;
        Self { factory, controller, run, stop, reconciled }
    }

    /// The keys that were reconciled since the last call, after everything is saved.
    async fn reconciled(&self) -> Vec<String> {
        until(|| self.controller.queue_metrics().depth == 0).await;
        advance_time(Duration::from_secs(3)).await;
        std::mem::take(&mut *self.reconciled.lock().unwrap()).into_iter().collect()
    }

    async fn end(self) {
        let _ended = self.stop.send(()).is_err();
        self.run.await.unwrap();
        self.factory.shutdown(TIMEOUT).await.unwrap();
    }

    async fn die(self, disk: &Disk) {
        disk.kill();
        self.run.abort();
        drop(self.factory);
        advance_time(Duration::from_secs(1)).await;
    }
}

fn create(server: &ApiServer, names: &[&str]) {
    for name in names {
        server.create(&config_map("default", name, "1")).unwrap();
    }
}

fn delete(server: &ApiServer, name: &str) {
    server.delete("v1", "configmaps", Some("default"), name).unwrap();
}

/// The names of a controller's first process, all of which were reconciled successfully.
async fn first(server: &ApiServer, disk: &Disk, names: &[&str]) {
    create(server, names);
    let process = Process::start(server, disk, "1", DONE).await;
    assert_eq!(process.reconciled().await, names);
    process.end().await;
}

#[tokio::test(start_paused = true)]
async fn restart_reconciles_what_has_changed() {
    let (server, disk) = (ApiServer::new(), Disk::default());
    first(&server, &disk, &["changed", "deleted", "kept"]).await;
    server.insert_unchecked(&config_map("default", "changed", "2")).unwrap();
    delete(&server, "deleted");
    create(&server, &["new"]);
    let process = Process::start(&server, &disk, "1", DONE).await;
    assert_eq!(process.reconciled().await, ["changed", "deleted", "new"]);
    // A running controller works as usual.
    server.insert_unchecked(&config_map("default", "kept", "3")).unwrap();
    until(|| process.reconciled.lock().unwrap().contains("kept")).await;
    assert_eq!(process.reconciled().await, ["kept"]);
    process.end().await;
    let process = Process::start(&server, &disk, "1", DONE).await;
    assert_eq!(process.reconciled().await, [""; 0]);
}

/// Makes a secret owned by a config map.
fn own(server: &ApiServer, owner: &str) {
    let map = server.get("v1", "configmaps", Some("default"), owner).unwrap();
    let uid = map.pointer("/metadata/uid").unwrap();
    let owner =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uid, "controller": true}]);
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"}});
    server.insert_unchecked(&with(secret, "/metadata/ownerReferences", owner)).unwrap();
}

#[tokio::test(start_paused = true)]
async fn change_of_an_owned_object_reconciles_its_owner() {
    let (server, disk) = (ApiServer::new(), Disk::default());
    first(&server, &disk, &["a", "b"]).await;
    own(&server, "b");
    let process = Process::start(&server, &disk, "1", DONE).await;
    assert_eq!(process.reconciled().await, ["b"]);
}

/// The process dies after it has handled a change of the owner, and before it has saved that. The next owner is
/// another one: all three are reconciled, because each of them may have acted on the secret.
#[tokio::test(start_paused = true)]
async fn every_owner_on_which_a_reconcile_may_have_acted_is_reconciled() {
    let (server, disk) = (ApiServer::new(), Disk::default());
    create(&server, &["a", "b", "c", "d", "e"]);
    own(&server, "a");
    let process = Process::start(&server, &disk, "1", DONE).await;
    process.reconciled().await;
    // Both changes are in the same save.
    own(&server, "b");
    own(&server, "c");
    until(|| process.reconciled.lock().unwrap().len() == 3).await;
    process.die(&disk).await;
    own(&server, "d");
    let process = Process::start(&server, &disk, "1", DONE).await;
    assert_eq!(process.reconciled().await, ["a", "b", "c", "d"]);
}

/// The deletion of an owned object while no process runs is not known without a saved cache of its kind.
#[tokio::test(start_paused = true)]
async fn source_without_a_saved_cache_reconciles_everything() {
    let (server, disk) = (ApiServer::new(), Disk::default());
    first(&server, &disk, &["a", "b"]).await;
    let process = Process::with_persistence(&server, persistence(&disk), "1", DONE, Vec::new()).await;
    assert_eq!(process.reconciled().await, ["a", "b"]);
}

/// If every key is to be reconciled, a predicate must not reject an object because it has changed since the last
/// process: on a cold start, it would pass. The caches of the sources are complete only when all of them are ready, so
/// the keys cannot be queued before.
#[tokio::test(start_paused = true)]
async fn every_key_is_reconciled_although_a_predicate_rejects_updates() {
    let (server, disk) = (ApiServer::new(), Disk::default());
    create(&server, &["a", "b"]);
    for expected in [&["a", "b"][..], &["a", "b", "c"]] {
        // The cache of the secrets is not saved.
        let options = InformerOptions::default().persist(persistence(&disk));
        let factory = SharedInformerFactory::with_options(server.client(), options);
        let reconciled: Arc<Mutex<BTreeSet<String>>> = Arc::default();
        let log = Arc::clone(&reconciled);
        let controller = Controller::new::<ConfigMap>(&factory)
            .with_predicate(|event| !matches!(event, Event::Updated { .. }))
            .owns::<Secret>()
            .resume("1")
            .reconcile(move |key, _| {
                log.lock().unwrap().insert(key.name().to_owned());
                async { Ok::<_, &str>(Outcome::Done) }
            });
        let running = controller.clone();
        let run = tokio::spawn(async move { drop(running.run().await) });
        controller.wait_until_running().await;
        until(|| controller.queue_metrics().depth == 0).await;
        advance_time(Duration::from_secs(3)).await;
        assert_eq!(reconciled.lock().unwrap().iter().collect::<Vec<_>>(), expected);
        run.abort();
        factory.shutdown(TIMEOUT).await.unwrap();
        server.insert_unchecked(&config_map("default", "a", "2")).unwrap();
        server.insert_unchecked(&config_map("default", "c", "1")).unwrap();
    }
}

/// A second run in the same process continues, too.
#[tokio::test(start_paused = true)]
async fn second_run_reconciles_what_has_changed() {
    let (server, disk) = (ApiServer::new(), Disk::default());
    create(&server, &["a", "b", "failing"]);
    let behaviour: Behaviour = |name| if name == "failing" { Err("not possible") } else { Ok(Outcome::Done) };
    let Process { factory, controller, run, stop, reconciled } =
        Process::start(&server, &disk, "1", behaviour).await;
    until(|| reconciled.lock().unwrap().len() == 3).await;
    advance_time(Duration::from_secs(3)).await;
    let _ended = stop.send(()).is_err();
    run.await.unwrap();
    reconciled.lock().unwrap().clear();
    delete(&server, "a");
    let run = tokio::spawn({
        let controller = controller.clone();
        async move { drop(controller.run().await) }
    });
    until(|| reconciled.lock().unwrap().len() == 2).await;
    advance_time(Duration::from_secs(3)).await;
    let names: Vec<String> = reconciled.lock().unwrap().iter().cloned().collect();
    assert_eq!(names, ["a", "failing"]);
    run.abort();
    drop(factory);
}

#[tokio::test(start_paused = true)]
async fn other_version_of_the_logic_reconciles_everything() {
    let (server, disk) = (ApiServer::new(), Disk::default());
    first(&server, &disk, &["a", "b"]).await;
    let process = Process::start(&server, &disk, "2", DONE).await;
    assert_eq!(process.reconciled().await, ["a", "b"]);
    process.end().await;
    // The first version continues where it ended.
    server.insert_unchecked(&config_map("default", "b", "2")).unwrap();
    let process = Process::start(&server, &disk, "1", DONE).await;
    assert_eq!(process.reconciled().await, ["b"]);
}

/// Queued, failed, delayed and external keys are reconciled again, whether the process ends in order or dies.
#[tokio::test(start_paused = true)]
async fn restart_reconciles_keys_that_have_not_succeeded() {
    for dies in [false, true] {
        let (server, disk) = (ApiServer::new(), Disk::default());
        create(&server, &["delayed", "failing", "rejected", "succeeded"]);
        let behaviour: Behaviour = |name| match name {
            "delayed" => Ok(Outcome::RequeueAfter(Duration::from_secs(3600))),
            "failing" | "outside" => Err("not possible"),
            "stuck" => Err(STUCK),
            "rejected" => Ok(Outcome::Terminal("invalid".into())),
            _ => Ok(Outcome::Done),
        };
        let keys = vec![Key::new("default", "outside")];
        let process = Process::with_keys(&server, &disk, "1", behaviour, keys).await;
        let all = ["delayed", "failing", "outside", "rejected", "succeeded"];
        until(|| process.reconciled.lock().unwrap().len() == all.len()).await;
        // The only worker is occupied, and a key waits.
        create(&server, &["stuck"]);
        until(|| process.reconciled.lock().unwrap().contains("stuck")).await;
        create(&server, &["waiting"]);
        advance_time(Duration::from_secs(3)).await;
        if dies {
            process.die(&disk).await;
        } else {
            process.end().await;
        }
        delete(&server, "stuck");
        let process = Process::start(&server, &disk, "1", DONE).await;
        let names = process.reconciled().await;
        assert_eq!(names, ["delayed", "failing", "outside", "rejected", "stuck", "waiting"], "dies: {dies}");
        process.end().await;
        let process = Process::start(&server, &disk, "1", DONE).await;
        assert_eq!(process.reconciled().await, [""; 0]);
    }
}
