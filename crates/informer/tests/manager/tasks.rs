//! Tasks of the program: `Manager::add_task`.

use super::{end, get_endpoint, idle, start};
use crate::cluster::{TIMEOUT, advance_time, until};
use informer::SharedInformerFactory;
use informer::election::LeaderElector;
use informer::error::{ErrorKind, ManagerError};
use informer::manager::{Manager, ManagerHandle};
use informer_apiserver::{ApiServer, faults};
use k8s_openapi::api::core::v1::Pod;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Tasks run from the start of the informers until after the stop request, together with the controllers; the
/// informers and endpoints outlive them.
#[tokio::test]
async fn task_ends_before_informers_and_endpoints() {
    let server = ApiServer::new();
    let factory = SharedInformerFactory::new(server.client());
    let pods = factory.lister::<Pod>();
    let (sender, receiver) = tokio::sync::oneshot::channel::<ManagerHandle>();
    let (watches, log) = (server.clone(), Arc::new(Mutex::new(Vec::new())));
    let seen = Arc::clone(&log);
    let manager = Manager::new().factory(&factory).serve(0).add_task("worker", |stop| async move {
        let handle = receiver.await?;
        until(|| pods.has_synced()).await;
        seen.lock().unwrap().push("synced".to_owned());
        stop.await;
        let address = handle.address().await.ok_or("the endpoints are served")?;
        let (_, readiness) = get_endpoint(address, "GET /readyz").await;
        seen.lock().unwrap().push(format!("{} watch, {readiness}", watches.open_watches()));
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
    });
    let (handle, task) = start(manager);
    sender.send(handle.clone()).unwrap();
    handle.wait_until_ready(TIMEOUT).await.unwrap();
    until(|| !log.lock().unwrap().is_empty()).await;
    handle.stop();
    end(task).await.unwrap();
    assert_eq!(*log.lock().unwrap(), ["synced", "1 watch, stopping\n"]);
    assert_eq!(server.open_watches(), 0);
}

#[tokio::test(start_paused = true)]
async fn failing_or_panicking_task_stops_the_manager_with_its_error() {
    for (panics, expected) in [(false, "no more keys"), (true, "panicked: intended panic")] {
        let server = ApiServer::new();
        let controller = idle(&SharedInformerFactory::new(server.client()));
        let running = controller.clone();
        let manager = Manager::new()
            .controller(controller)
            .add_task("short", |_| async { Ok::<_, Infallible>(()) })
            .add_task("failing", move |_| async move {
                running.wait_until_running().await;
                assert!(!panics, "intended panic");
                Err("no more keys")
            })
            .add_task("other", |stop| async {
                stop.await;
                Ok::<_, Infallible>(())
            });
        let error = end(start(manager).1).await.unwrap_err();
        assert_eq!(error.to_string(), "task failing failed");
        assert_eq!(error.kind(), ErrorKind::Internal);
        let ManagerError::Task { source, .. } = error else { panic!("{error}") };
        assert_eq!(source.to_string(), expected);
        assert_eq!(server.open_watches(), 0);
    }
}

/// Notes when it is dropped.
struct Dropped(Arc<Mutex<bool>>);

impl Drop for Dropped {
    fn drop(&mut self) {
        *self.0.lock().unwrap() = true;
    }
}

#[tokio::test(start_paused = true)]
async fn task_that_does_not_end_is_aborted() {
    for dropped_manager in [false, true] {
        let server = ApiServer::new();
        let factory = SharedInformerFactory::new(server.client());
        let _pods = factory.lister::<Pod>();
        let is_dropped = Arc::new(Mutex::new(false));
        let guard = Dropped(Arc::clone(&is_dropped));
        let manager = Manager::new().factory(&factory).add_task("stuck", |_| async move {
            let _guard = guard;
            std::future::pending::<Result<(), Infallible>>().await
        });
        let (handle, task) = start(manager);
        handle.wait_until_ready(TIMEOUT).await.unwrap();
        if dropped_manager {
            task.abort();
        } else {
            handle.stop();
            let error = end(task).await.unwrap_err().to_string();
            let expected =
                "shutdown: timed out after 10s: task stuck has not ended (does it wait for `stop`?)";
            assert_eq!(error, expected);
            assert_eq!(server.open_watches(), 0);
        }
        until(|| *is_dropped.lock().unwrap()).await;
    }
}

/// A task runs on a standby too; one with a lease of its own does not.
#[tokio::test(start_paused = true)]
async fn tasks_run_on_a_standby() {
    let server = ApiServer::new();
    let runs = Arc::new(Mutex::new(Vec::new()));
    let manager = |name: &'static str| {
        let (all, leading) = (Arc::clone(&runs), Arc::clone(&runs));
        let lease = |name| LeaderElector::new(server.client(), "default", name);
        let own_lease = lease("report");
        Manager::new()
            .leader_election(lease("shop"))
            .add_task("all", move |stop| async move {
                all.lock().unwrap().push(format!("{name}: all"));
                stop.await;
                Ok::<_, Infallible>(())
            })
            .add_task("report", move |stop| async move {
                let work = |term: informer::election::Term| {
                    leading.lock().unwrap().push(format!("{name}: report"));
                    async move { term.stop_requested().await }
                };
                own_lease.run(work, stop).await.map(drop)
            })
    };
    let (leader, task) = start(manager("first"));
    until(|| runs.lock().unwrap().len() == 2).await;
    let (standby, second) = start(manager("second"));
    standby.wait_until_ready(TIMEOUT).await.unwrap();
    advance_time(Duration::from_secs(60)).await;
    assert_eq!(*runs.lock().unwrap(), ["first: all", "first: report", "second: all"]);
    leader.stop();
    end(task).await.unwrap();
    until(|| runs.lock().unwrap().len() == 4).await;
    assert_eq!(runs.lock().unwrap()[3], "second: report");
    standby.stop();
    end(second).await.unwrap();
}

/// The task in the documentation of `add_task`: it fails if the informers cannot sync, and ends with `stop`
/// while it waits. Without `stop`, it would be aborted after the shutdown timeout, because informers stop after
/// tasks.
#[tokio::test(start_paused = true)]
async fn task_that_waits_for_the_sync_fails_or_ends_with_stop() {
    for (fault, expected) in
        [(faults::forbid("pods"), Some(ErrorKind::Forbidden)), (faults::drop_connection(), None)]
    {
        let server = ApiServer::new();
        let _fault = server.inject(fault);
        let factory = SharedInformerFactory::new(server.client());
        let _pods = factory.lister::<Pod>();
        let manager = Manager::new().factory(&factory).add_task("sync", |stop| async move {
            tokio::select! {
                result = factory.wait_for_sync(Duration::from_secs(3600)) => result.map_err(informer::Error::from),
                () = stop => Ok(()),
            }
        });
        let (handle, task) = start(manager);
        advance_time(Duration::from_secs(60)).await;
        assert_eq!(task.is_finished(), expected.is_some());
        handle.stop();
        assert_eq!(end(task).await.map_err(|error| error.kind()).err(), expected);
    }
}
