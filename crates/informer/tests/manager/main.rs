//! Managers against the embedded server: start and stop order, leadership, HTTP endpoints, signals.
#![allow(clippy::unwrap_used)]

mod tasks;

use crate::cluster::{TIMEOUT, advance_time, create_pods, requests_for, until};
use futures::FutureExt as _;
use informer::SharedInformerFactory;
use informer::controller::{Controller, Outcome, RunnableController};
use informer::election::{ElectionConfig, LeaderElector};
use informer::error::{ErrorKind, ManagerError};
use informer::manager::{CacheStart, Manager, ManagerHandle};
use informer::metrics::{Collect, Encoder};
use informer::shard::ShardGroup;
use informer_apiserver::{ApiServer, Verb, faults};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use std::convert::Infallible;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// A controller of pods that does nothing.
fn idle(factory: &SharedInformerFactory) -> RunnableController {
    Controller::new::<Pod>(factory).reconcile(|_, _| async { Ok::<_, Infallible>(Outcome::Done) })
}

fn start(manager: Manager) -> (ManagerHandle, JoinHandle<Result<(), ManagerError>>) {
    let handle = manager.handle();
    (handle, tokio::spawn(manager.run_until(std::future::pending())))
}

async fn end(task: JoinHandle<Result<(), ManagerError>>) -> Result<(), ManagerError> {
    tokio::time::timeout(TIMEOUT, task).await.expect("the manager ends").unwrap()
}

/// Status code and body of an endpoint.
async fn get_endpoint(address: std::net::SocketAddr, request: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("{request} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// A controller of pods that owns secrets and, optionally, config maps.
fn owner(server: &ApiServer) -> RunnableController {
    Controller::new::<Pod>(&SharedInformerFactory::new(server.client()))
        .owns::<Secret>()
        .owns::<ConfigMap>()
        .optional()
        .reconcile(|_, _| async { Ok::<_, Infallible>(Outcome::Done) })
}

/// A collector of the application.
struct Mine;

impl Collect for Mine {
    fn collect(&self, encoder: &mut Encoder) {
        encoder.gauge("mine", "A metric of the application.", &[("shop", "main")], 1.0);
    }
}

#[tokio::test]
async fn readyz_reports_the_reasons() {
    let server = ApiServer::new();
    let _forbidden = server.inject(faults::forbid("secrets"));
    let _absent = server.inject(faults::forbid("configmaps"));
    let warmed_up = Arc::new(Mutex::new(Err("is loading".to_owned())));
    let warm = Arc::clone(&warmed_up);
    let check = move || warm.lock().unwrap().clone();
    let manager = Manager::new().controller(owner(&server)).add_readyz_check("model", check).serve(0);
    assert_eq!(manager.handle().readiness_failures(), ["not started"]);
    let (handle, task) = start(manager);
    let address = handle.address().await.unwrap();
    assert!(address.ip().is_loopback());
    let waiting = |reasons: &[String]| reasons.len() == 3 && reasons[1].contains("forbidden");
    until(|| waiting(&handle.readiness_failures())).await;
    let (code, text) = get_endpoint(address, "GET /readyz").await;
    assert_eq!(code, 503);
    let expected = "model: is loading\n\
        informer: secrets in all namespaces: forbidden: 403 Forbidden: secrets is forbidden: User";
    assert!(text.starts_with(expected), "{text}");
    assert!(text.contains("\ncontroller pods: waits for secrets in all namespaces: forbidden"), "{text}");
    assert!(!text.contains("configmaps"), "optional informers are not required: {text}");
    assert_eq!(get_endpoint(address, "GET /healthz").await, (200, "ok\n".to_owned()));
    *warmed_up.lock().unwrap() = Ok(());
    assert!(get_endpoint(address, "GET /readyz").await.1.starts_with("informer: secrets"));
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn ready_once_all_required_caches_are_synced() {
    let server = ApiServer::new();
    let forbidden = server.inject(faults::forbid("secrets"));
    let _absent = server.inject(faults::forbid("configmaps"));
    let controller = owner(&server);
    let (handle, task) = start(Manager::new().controller(controller.clone()));
    advance_time(Duration::from_secs(300)).await;
    assert_eq!(handle.readiness_failures().len(), 2);
    drop(forbidden);
    controller.wait_until_running().await;
    assert_eq!(handle.readiness_failures(), <[&str; 0]>::default());
    handle.stop();
    end(task).await.unwrap();
}

#[tokio::test]
async fn readyz_shows_ranges_epoch_and_moves_of_shard_groups() {
    let server = ApiServer::new();
    // A new group is divided after a retry period.
    let second = Duration::from_secs(1);
    let config = ElectionConfig::new(15 * second, 10 * second, second / 5);
    let group = ShardGroup::builder(server.client(), "default", "shop").identity("one");
    let group = group.config(config).unwrap().build().unwrap();
    let (handle, task) = start(Manager::new().add_shard_group(&group).serve(0));
    let address = handle.address().await.unwrap();
    until(|| group.status().is_settled).await;
    let (code, text) = get_endpoint(address, "GET /readyz").await;
    let expected = "ok\nshard group default/shop: 256 ranges held, 0 releasing, 0 claimed, highest epoch 1; \
        moves so far: 256 gained (last in ";
    assert!(code == 200 && text.starts_with(expected), "{code} {text}");
    assert!(text.ends_with(" s), 0 released, 0 lost\n"), "{text}");
    assert_eq!(get_endpoint(address, "GET /healthz").await, (200, "ok\n".to_owned()));
    task.abort();
}

#[tokio::test]
async fn healthz_and_metrics_are_served() {
    let server = ApiServer::new();
    let manager = Manager::new().controller(owner(&server)).add_collector(Mine).serve(0);
    let (handle, task) = start(manager);
    let address = handle.address().await.unwrap();
    until(|| handle.readiness_failures().is_empty()).await;
    assert_eq!(get_endpoint(address, "GET /readyz?verbose").await, (200, "ok\n".to_owned()));
    let (code, text) = get_endpoint(address, "GET /metrics").await;
    assert_eq!(code, 200);
    for line in [
        "informer_objects{",
        "controller_runtime_reconcile_total{controller=\"pods\"",
        "\nmine{shop=\"main\"} 1\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert_eq!(get_endpoint(address, "GET /other").await.0, 404);
    assert_eq!(get_endpoint(address, "POST /healthz").await.0, 405);
    handle.stop();
    end(task).await.unwrap();
    assert_eq!((handle.readiness_failures(), handle.address().await), (vec!["ended".to_owned()], None));
    assert!(TcpStream::connect(address).await.is_err(), "the server has stopped");
}

/// A panicking check results in a response, and the next request is answered too.
#[tokio::test]
async fn failing_and_panicking_checks_are_reported() {
    let manager = Manager::new()
        .add_healthz_check("disk", || Err("is full".to_owned()))
        .add_readyz_check("bad", || panic!("intended panic"))
        .serve(0);
    let (handle, task) = start(manager);
    let address = handle.address().await.unwrap();
    assert_eq!(get_endpoint(address, "GET /readyz").await, (500, "a check panicked\n".to_owned()));
    assert_eq!(get_endpoint(address, "GET /healthz").await, (503, "disk: is full\n".to_owned()));
    // Clients that connect and send nothing block neither other requests nor the end of the manager: each is
    // limited to a second.
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    let requested = std::time::Instant::now();
    assert_eq!(get_endpoint(address, "GET /livez").await.0, 503);
    assert!(requested.elapsed() < Duration::from_secs(5), "answered after {:?}", requested.elapsed());
    // The silent connections are closed: the first to make space for others, the last because it timed out.
    let mut nothing = Vec::new();
    silent[0].read_to_end(&mut nothing).await.ok();
    silent[199].read_to_end(&mut nothing).await.ok();
    handle.stop();
    let began = std::time::Instant::now();
    end(task).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(8), "shutdown waited for a silent client");
}

/// A kubelet connects to the address of the pod, which is an IPv4 or an IPv6 address.
#[tokio::test]
async fn all_addresses_are_served() {
    let (handle, task) = start(Manager::new().serve_on_all_addresses(0));
    let port = handle.address().await.unwrap().port();
    let addresses: [std::net::IpAddr; 2] =
        [std::net::Ipv4Addr::LOCALHOST.into(), std::net::Ipv6Addr::LOCALHOST.into()];
    // A host without IPv6 serves IPv4.
    let exists = |address: &&std::net::IpAddr| std::net::TcpListener::bind((**address, 0)).is_ok();
    for address in addresses.iter().filter(exists) {
        assert_eq!(get_endpoint((*address, port).into(), "GET /healthz").await, (200, "ok\n".to_owned()));
        assert_eq!(get_endpoint((*address, port).into(), "GET /readyz").await, (200, "ok\n".to_owned()));
    }
    handle.stop();
    end(task).await.unwrap();
}

#[tokio::test]
async fn invalid_setup_is_an_error_before_anything_starts() {
    let server = ApiServer::new();
    let factory = SharedInformerFactory::new(server.client());
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let manager = Manager::new().factory(&factory).serve_on(address);
    let error = manager.run_until(std::future::pending()).await.unwrap_err();
    assert!(error.to_string().starts_with(&format!("serve on {address} ")), "{error}");
    let duplicates = Manager::new().controller(idle(&factory)).controller(idle(&factory));
    let error = duplicates.run_until(std::future::pending()).await.unwrap_err();
    assert_eq!(error.to_string(), "two controllers are named pods (rename one)");
    assert!(server.recorded_requests().is_empty());
}

/// Regression: a handle of a dropped manager reported it as ready and kept its informers alive.
#[tokio::test(start_paused = true)]
async fn dropped_manager_has_ended() {
    let server = ApiServer::new();
    let (handle, task) = {
        let factory = SharedInformerFactory::new(server.client());
        start(Manager::new().controller(idle(&factory)))
    };
    until(|| handle.readiness_failures().is_empty()).await;
    assert_eq!(handle.address().await, None, "no server");
    task.abort();
    until(|| handle.readiness_failures() == ["ended"]).await;
    until(|| server.open_watches() == 0).await;
    assert!(handle.health_failures().is_empty());
}

#[tokio::test(start_paused = true)]
async fn failing_controller_stops_the_manager_with_its_error() {
    let server = ApiServer::new();
    let (failing, healthy) =
        (SharedInformerFactory::new(server.client()), SharedInformerFactory::new(server.client()));
    let other =
        Controller::new::<ConfigMap>(&healthy).reconcile(|_, _| async { Ok::<_, Infallible>(Outcome::Done) });
    let (_, task) = start(Manager::new().controller(idle(&failing)).controller(other.clone()));
    other.wait_until_running().await;
    failing.shutdown(Duration::from_secs(1)).await.unwrap();
    let error = end(task).await.unwrap_err();
    assert!(error.to_string().contains("informer pods in all namespaces has stopped"), "{error}");
    assert_eq!(server.open_watches(), 0);
}

/// Names of the managers whose controllers are reconciling; fails if two managers reconcile at the same time.
#[derive(Clone, Default)]
struct Exclusive(Arc<Mutex<Vec<String>>>);

struct ActiveGuard(Exclusive, String);

impl Exclusive {
    fn enter(&self, name: &str) -> ActiveGuard {
        let mut active = self.0.lock().unwrap();
        assert!(active.iter().all(|other| other == name), "{name} reconciles at the same time as {active:?}");
        active.push(name.to_owned());
        ActiveGuard(self.clone(), name.to_owned())
    }
}

impl Drop for ActiveGuard {
    fn drop(&mut self) {
        let mut active = self.0.0.lock().unwrap();
        let place = active.iter().position(|name| *name == self.1).unwrap();
        active.remove(place);
    }
}

/// One of several managers that elect a leader, all with the same identity; its controller reconciles
/// continuously.
fn candidate(server: &ApiServer, exclusive: &Exclusive, name: &'static str) -> (Manager, RunnableController) {
    let factory = SharedInformerFactory::new(server.client());
    let exclusive = exclusive.clone();
    let controller = Controller::new::<Pod>(&factory).concurrency(2).reconcile(move |_, ctx| {
        let exclusive = exclusive.clone();
        async move {
            let _acting = exclusive.enter(name);
            assert!(ctx.fencing_token().is_some());
            advance_time(Duration::from_millis(700)).await;
            Ok::<_, Infallible>(Outcome::RequeueAfter(Duration::from_millis(300)))
        }
    });
    let elector = LeaderElector::new(server.client(), "default", "shop").identity("same");
    (Manager::new().controller(controller.clone()).leader_election(elector), controller)
}

fn holder(server: &ApiServer) -> String {
    let lease = server.get("coordination.k8s.io/v1", "leases", Some("default"), "shop").unwrap();
    lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
}

/// Of several managers with the same identity, one is stopped, one is killed and one is disconnected from the
/// server: at most one reconciles at any time, and another always takes over.
#[tokio::test(start_paused = true)]
async fn only_the_leader_reconciles_and_another_takes_over() {
    let server = ApiServer::new();
    create_pods(&server, &["a", "b", "c"]);
    let exclusive = Exclusive::default();
    let (first, controller) = candidate(&server, &exclusive, "first");
    let (handle, task) = start(first);
    until(|| controller.metrics().requeued > 3).await;
    let (second, next) = candidate(&server, &exclusive, "second");
    let (_, second) = start(second);
    let (third, last) = candidate(&server, &exclusive, "third");
    let (_, third) = start(third);
    advance_time(Duration::from_secs(60)).await;
    assert_eq!((next.metrics().requeued, last.metrics().requeued), (0, 0));
    // Clean stop: the last reconcile finishes, then the lease is released, and the next manager does not wait
    // for it to expire.
    handle.stop();
    end(task).await.unwrap();
    until(|| next.metrics().requeued + last.metrics().requeued > 3).await;
    // Killed: the next manager waits until the lease has expired.
    let (leads, standby, task, waiting) =
        if next.metrics().requeued > 0 { (next, last, second, third) } else { (last, next, third, second) };
    task.abort();
    until(|| standby.metrics().requeued > 3).await;
    let done = leads.metrics().requeued;
    // Disconnected: the manager stops reconciling by itself and continues when it leads again.
    let disconnected = server.inject(faults::drop_connection());
    advance_time(Duration::from_secs(60)).await;
    assert!(exclusive.0.lock().unwrap().is_empty());
    let before = standby.metrics().requeued;
    drop(disconnected);
    until(|| standby.metrics().requeued > before + 3).await;
    assert_eq!(leads.metrics().requeued, done);
    waiting.abort();
}

/// Order of the shutdown: no reconcile starts after the stop, the lease is held until the last reconcile has
/// finished, and informers outlive both.
#[tokio::test(start_paused = true)]
async fn manager_stops_in_reverse_order() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let factory = SharedInformerFactory::new(server.client());
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let (observed, leases) = (Arc::clone(&seen), server.clone());
    let controller = Controller::new::<Pod>(&factory).reconcile(move |_, ctx| {
        let (observed, leases) = (Arc::clone(&observed), leases.clone());
        async move {
            ctx.stop_requested().await;
            advance_time(Duration::from_secs(20)).await;
            let held = !holder(&leases).is_empty();
            let live = ctx.lister::<Pod>().has_synced() && leases.open_watches() == 1;
            observed.lock().unwrap().push(format!("held: {held}, live: {live}"));
            Ok::<_, Infallible>(Outcome::Done)
        }
    });
    let elector = LeaderElector::new(server.client(), "default", "shop");
    let (handle, task) = start(Manager::new().controller(controller.clone()).leader_election(elector));
    until(|| controller.metrics().active == 1).await;
    handle.stop();
    // The manager is not ready from the moment it stops.
    until(|| handle.readiness_failures() == ["stopping"]).await;
    assert!(!task.is_finished());
    end(task).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), ["held: true, live: true"]);
    assert_eq!((holder(&server).as_str(), server.open_watches()), ("", 0));
}

#[tokio::test(start_paused = true)]
async fn caches_start_immediately_or_once_leading() {
    for (caches, warm) in [(CacheStart::Immediate, true), (CacheStart::OnceLeading, false)] {
        let server = ApiServer::new();
        create_pods(&server, &["a"]);
        let exclusive = Exclusive::default();
        let (leader, leading) = candidate(&server, &exclusive, "leader");
        let (handle, task) = start(leader);
        until(|| leading.metrics().requeued > 0).await;
        let watches = requests_for(&server, Verb::Watch, "pods").len();
        let (standby_manager, standby) = candidate(&server, &exclusive, "standby");
        let (ready, second) = start(standby_manager.cache_start(caches));
        advance_time(Duration::from_secs(30)).await;
        assert_eq!(ready.readiness_failures(), <[&str; 0]>::default(), "a standby is ready");
        assert_eq!(requests_for(&server, Verb::Watch, "pods").len() > watches, warm, "{caches:?}");
        handle.stop();
        end(task).await.unwrap();
        until(|| standby.metrics().requeued > 0).await;
        ready.stop();
        end(second).await.unwrap();
    }
}

/// Informers start with leadership even without a controller.
#[tokio::test(start_paused = true)]
async fn caches_started_once_leading_need_no_controller() {
    let server = ApiServer::new();
    let factory = SharedInformerFactory::new(server.client());
    let pods = factory.lister::<Pod>();
    let elector = LeaderElector::new(server.client(), "default", "shop");
    let (handle, task) =
        start(Manager::new().factory(&factory).leader_election(elector).cache_start(CacheStart::OnceLeading));
    until(|| pods.has_synced()).await;
    handle.stop();
    end(task).await.unwrap();
}

/// A controller whose reconciles block their thread until the sender is dropped.
fn blocked_controller(factory: &SharedInformerFactory) -> (RunnableController, std::sync::mpsc::Sender<()>) {
    let (let_go, gate) = std::sync::mpsc::channel::<()>();
    let gate = Arc::new(Mutex::new(gate));
    let controller = Controller::new::<Pod>(factory).shutdown_timeout(Duration::ZERO);
    let controller = controller.reconcile(move |_, _| {
        let gate = Arc::clone(&gate);
        async move {
            let _over = gate.lock().unwrap().recv().is_err();
            Ok::<_, Infallible>(Outcome::Done)
        }
    });
    (controller, let_go)
}

/// A reconcile blocks its thread and cannot be aborted. Another manager would reconcile at the same time, so
/// the lease is not released.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn lease_is_not_released_while_a_reconcile_runs() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let factory = SharedInformerFactory::new(server.client());
    let (controller, let_go) = blocked_controller(&factory);
    let elector = LeaderElector::new(server.client(), "default", "shop");
    let (handle, task) = start(Manager::new().controller(controller.clone()).leader_election(elector));
    until(|| controller.metrics().active == 1).await;
    handle.stop();
    let error = end(task).await.unwrap_err();
    assert!(error.to_string().contains("some still run"), "{error}");
    assert_ne!(holder(&server), "");
    drop(let_go);
}

/// Regression: if an informer stopped while a reconcile blocked its thread, the controller reported the
/// stopped informer only, and the manager released the lease, so that the next leader reconciled at the same
/// time. The error of the stop was dropped if the run had ended with another one. The test above stops the
/// manager, not an informer.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn lease_is_not_released_if_an_informer_stops_while_a_reconcile_runs() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let factory = SharedInformerFactory::new(server.client());
    let (controller, let_go) = blocked_controller(&factory);
    let elector = LeaderElector::new(server.client(), "default", "shop");
    let (_handle, task) = start(Manager::new().controller(controller.clone()).leader_election(elector));
    until(|| controller.metrics().active == 1).await;
    factory.shutdown(TIMEOUT).await.unwrap();
    let error = end(task).await.unwrap_err();
    assert!(error.to_string().contains("some still run"), "{error}");
    assert_ne!(holder(&server), "");
    drop(let_go);
}

/// A forbidden kind is no error: the manager is not ready, and continues when the kind becomes available.
#[tokio::test(start_paused = true)]
async fn manager_runs_with_a_forbidden_kind_and_is_not_ready() {
    let server = ApiServer::new();
    let forbidden = server.inject(faults::forbid("secrets"));
    let factory = SharedInformerFactory::new(server.client());
    let secrets = factory.lister::<Secret>();
    let (handle, task) = start(Manager::new().factory(&factory));
    advance_time(Duration::from_secs(3600)).await;
    assert!(!task.is_finished());
    let reasons = handle.readiness_failures();
    let reason = "informer: secrets in all namespaces: forbidden: 403 Forbidden";
    assert!(reasons.len() == 1 && reasons[0].starts_with(reason), "{reasons:?}");
    assert!(handle.health_failures().is_empty());
    drop(forbidden);
    handle.wait_until_ready(TIMEOUT).await.unwrap();
    assert!(secrets.has_synced());
    handle.stop();
    end(task).await.unwrap();
}

/// C7: the wait for readiness ends with the reasons: after its timeout, when the manager stops, and after its end.
#[tokio::test(start_paused = true)]
async fn c7_wait_until_ready_ends_with_the_reasons() {
    let server = ApiServer::new();
    let _forbidden = server.inject(faults::forbid("secrets"));
    let factory = SharedInformerFactory::new(server.client());
    let _secrets = factory.lister::<Secret>();
    let (release, released) = tokio::sync::oneshot::channel::<()>();
    let manager = Manager::new().factory(&factory).add_task("slow", |_| released);
    let handle = manager.handle();
    let wait = async |timeout| handle.wait_until_ready(timeout).await.unwrap_err();
    let error = wait(Duration::from_secs(5)).await;
    assert_eq!(error.to_string(), "wait until ready: timed out after 5s: not started");
    let (_, task) = start(manager);
    let error = wait(Duration::from_secs(5)).await;
    let prefix = "wait until ready: timed out after 5s: informer: secrets in all namespaces: forbidden: 403";
    assert!(error.to_string().starts_with(prefix) && error.kind() == ErrorKind::Timeout, "{error}");
    let (stopping, ()) = tokio::join!(wait(TIMEOUT), async { handle.stop() });
    assert_eq!(stopping.to_string(), "wait until ready: manager: stopping (see the result of its run)");
    assert!(stopping.kind() == ErrorKind::Stopped && !task.is_finished());
    release.send(()).unwrap();
    end(task).await.unwrap();
    assert_eq!(wait(TIMEOUT).await.failures, ["ended"]);
}

/// `wait_for_sync` waits for informers that a manager starts later. If the manager is stopped meanwhile, the
/// wait ends with `Stopped`, and the manager without an error.
#[tokio::test(start_paused = true)]
async fn wait_for_sync_before_the_start_waits_for_the_manager() {
    let server = ApiServer::new();
    let unavailable = server.inject(faults::drop_connection());
    let factory = SharedInformerFactory::new(server.client());
    let _pods = factory.lister::<Pod>();
    let waits: Vec<_> = (0..2)
        .map(|_| {
            let factory = factory.clone();
            tokio::spawn(async move { factory.wait_for_sync(Duration::from_secs(3600)).await })
        })
        .collect();
    advance_time(Duration::from_secs(60)).await;
    assert!(waits.iter().all(|wait| !wait.is_finished()));
    let (handle, task) = start(Manager::new().factory(&factory));
    advance_time(Duration::from_secs(60)).await;
    assert!(waits.iter().all(|wait| !wait.is_finished()));
    handle.stop();
    for wait in waits {
        assert_eq!(wait.await.unwrap().unwrap_err().kind(), ErrorKind::Stopped);
    }
    end(task).await.unwrap();
    drop(unavailable);

    let other = SharedInformerFactory::new(server.client());
    let _pods = other.lister::<Pod>();
    let error = other.wait_for_sync(Duration::from_secs(5)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "wait for sync: timed out after 5s: pods in all namespaces: not started (call start)"
    );
    let (handle, task) = start(Manager::new().factory(&other));
    other.wait_for_sync(TIMEOUT).await.unwrap();
    handle.stop();
    end(task).await.unwrap();
}

/// LE-19: metrics of elections have the names of client-go.
#[tokio::test]
async fn le_19_election_metrics_have_client_go_names() {
    let server = ApiServer::new();
    let elector = LeaderElector::new(server.client(), "default", "shop");
    let mut leadership = elector.leadership();
    let (handle, task) = start(Manager::new().leader_election(elector).serve(0));
    while !leadership.is_leader() {
        assert!(leadership.changed().await);
    }
    let (_, text) = get_endpoint(handle.address().await.unwrap(), "GET /metrics").await;
    assert!(text.contains("\nleader_election_master_status{name=\"default/shop\"} 1\n"), "{text}");
    assert!(text.contains("\nleader_election_slowpath_total{name=\"default/shop\"} 0\n"), "{text}");
    handle.stop();
    end(task).await.unwrap();
    assert!(!leadership.is_leader());
}

/// LE-18: a leader whose term has expired without noticing, because its task does not run, is unhealthy.
#[tokio::test(start_paused = true)]
async fn le_18_leader_with_unnoticed_expiry_is_unhealthy() {
    let server = ApiServer::new();
    let elector = LeaderElector::new(server.client(), "default", "shop");
    let leadership = elector.leadership();
    let manager = Manager::new().leader_election(elector);
    let handle = manager.handle();
    let mut running = Box::pin(manager.run_until(std::future::pending()));
    tokio::select! {
        _ = &mut running => panic!("the manager ended"),
        () = until(|| leadership.is_leader()) => {}
    }
    assert_eq!(handle.health_failures(), <[&str; 0]>::default());
    // From here on no task runs. The term is over after ten seconds; twenty seconds later the process is
    // unhealthy.
    // Advances the clock without running any task, as if every thread of the runtime was blocked.
    let advance = |time| {
        let _ = tokio::time::advance(time).now_or_never();
    };
    advance(Duration::from_secs(25));
    assert!(!leadership.is_leader() && handle.health_failures().is_empty());
    advance(Duration::from_secs(10));
    let reasons = handle.health_failures();
    assert!(
        matches!(&reasons[..], [one] if one.starts_with("election default/shop: the term expired 2")),
        "{reasons:?}"
    );
    // Once the task runs again, it notices the end of its term and leads again.
    tokio::select! {
        _ = &mut running => panic!("the manager ended"),
        () = until(|| leadership.is_leader()) => {}
    }
    assert_eq!(handle.health_failures(), <[&str; 0]>::default());
}

/// The program that the signal tests run: a manager with a reconcile of a given duration.
#[tokio::test(flavor = "current_thread")]
async fn signal_test_program() {
    let Ok(way) = std::env::var("INFORMER_TEST_SIGNALS") else { return };
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let factory = SharedInformerFactory::new(server.client());
    let controller = Controller::new::<Pod>(&factory).reconcile(move |_, ctx| {
        let way = way.clone();
        async move {
            println!("working");
            if way == "blocks" {
                // Blocks the only thread of the program.
                std::thread::park();
            }
            ctx.stop_requested().await;
            println!("stopping");
            Ok::<_, Infallible>(Outcome::Done)
        }
    });
    if std::env::var("INFORMER_TEST_SIGNALS").unwrap() == "second" {
        // A manager that ended by itself leaves the signals to the next one.
        let first = Manager::new();
        first.handle().stop();
        first.run().await.unwrap();
    }
    Manager::new().controller(controller).run().await.unwrap();
    println!("ended");
}

/// Runs that program and sends it signals. Returns its output and exit code.
fn signalled(way: &str, signals: &[&str]) -> (String, Option<i32>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "manager::signal_test_program", "--nocapture", "--test-threads=1"])
        .env("INFORMER_TEST_SIGNALS", way)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("working") {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "the program ended before its first reconcile");
    }
    for signal in signals {
        let sent = Command::new("kill").args([*signal, &child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    (rest, child.wait().unwrap().code())
}

#[cfg(unix)]
#[test]
fn signal_stops_the_manager_cleanly() {
    for signal in ["-TERM", "-INT"] {
        let (text, code) = signalled("ends", &[signal]);
        assert!(text.contains("stopping\nended\n") && code == Some(0), "{signal}: {code:?} {text}");
    }
}

/// Regression: the second manager of a process was killed by its first signal, because the previous manager
/// still handled signals.
#[cfg(unix)]
#[test]
fn signal_stops_the_second_manager_of_a_process_cleanly() {
    let (text, code) = signalled("second", &["-TERM"]);
    assert!(text.contains("stopping\nended\n") && code == Some(0), "{code:?} {text}");
}

/// The only thread of the program is blocked; the second signal ends it nevertheless.
#[cfg(unix)]
#[test]
fn second_signal_ends_the_process_immediately() {
    let (text, code) = signalled("blocks", &["-TERM", "-INT"]);
    // The system decides which of the two signals arrives first.
    assert!(!text.contains("stopping") && matches!(code, Some(130 | 143)), "{code:?} {text}");
}
