//! Managers against the embedded server: what begins and ends when, who acts, what the pages say, what signals do.
#![allow(clippy::unwrap_used)]

#[path = "common/cluster.rs"]
mod cluster;

use cluster::{LONG, asked, create_pods, pass, until};
use informer::{
    Caches, Controller, LeaderElector, Manager, ManagerError, ManagerHandle, Outcome, Reconciler,
    SharedInformerFactory,
};
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
fn idle(factory: &SharedInformerFactory) -> Reconciler {
    Controller::new::<Pod>(factory).reconcile(|_, _| async { Ok::<_, Infallible>(Outcome::Done) })
}

fn start(manager: Manager) -> (ManagerHandle, JoinHandle<Result<(), ManagerError>>) {
    let handle = manager.handle();
    (handle, tokio::spawn(manager.run_until(std::future::pending())))
}

async fn end(task: JoinHandle<Result<(), ManagerError>>) -> Result<(), ManagerError> {
    tokio::time::timeout(LONG, task).await.expect("it ends").unwrap()
}

/// What a page says.
async fn page(address: std::net::SocketAddr, request: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("{request} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// A controller of pods that owns secrets, and config maps where there are any.
fn owner(server: &ApiServer) -> Reconciler {
    Controller::new::<Pod>(&SharedInformerFactory::new(server.client()))
        .owns::<Secret>()
        .owns::<ConfigMap>()
        .optional()
        .reconcile(|_, _| async { Ok::<_, Infallible>(Outcome::Done) })
}

#[tokio::test]
async fn the_pages_say_why_it_is_not_ready() {
    let server = ApiServer::new();
    let _forbidden = server.fault(faults::forbid("secrets"));
    let _absent = server.fault(faults::forbid("configmaps"));
    let warmed_up = Arc::new(Mutex::new(Err("is loading".to_owned())));
    let warm = Arc::clone(&warmed_up);
    let check = move || warm.lock().unwrap().clone();
    let manager = Manager::new().controller(owner(&server)).ready_when("model", check).serve(0);
    assert_eq!(manager.handle().not_ready(), ["not started"]);
    let (handle, task) = start(manager);
    let address = handle.address().await.unwrap();
    assert!(address.ip().is_loopback());
    let waiting = |reasons: &[String]| reasons.len() == 3 && reasons[1].contains("forbidden");
    until(|| waiting(&handle.not_ready())).await;
    let (code, text) = page(address, "GET /readyz").await;
    assert_eq!(code, 503);
    let said = "model: is loading\n\
        informer: secrets in all namespaces: forbidden: 403 Forbidden: secrets is forbidden: User";
    assert!(text.starts_with(said), "{text}");
    assert!(text.contains("\ncontroller pods: waits for secrets in all namespaces: forbidden"), "{text}");
    assert!(!text.contains("configmaps"), "nobody waits for what is optional: {text}");
    assert_eq!(page(address, "GET /healthz").await, (200, "ok\n".to_owned()));
    *warmed_up.lock().unwrap() = Ok(());
    assert!(page(address, "GET /readyz").await.1.starts_with("informer: secrets"));
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn it_is_ready_when_everything_that_it_needs_is_there() {
    let server = ApiServer::new();
    let forbidden = server.fault(faults::forbid("secrets"));
    let _absent = server.fault(faults::forbid("configmaps"));
    let controller = owner(&server);
    let (handle, task) = start(Manager::new().controller(controller.clone()));
    pass(Duration::from_mins(5)).await;
    assert_eq!(handle.not_ready().len(), 2);
    drop(forbidden);
    controller.running().await;
    assert_eq!(handle.not_ready(), <[&str; 0]>::default());
    handle.stop();
    end(task).await.unwrap();
}

#[tokio::test]
async fn the_pages_say_that_it_is_well_and_what_it_does() {
    let server = ApiServer::new();
    let manager = Manager::new().controller(owner(&server)).metrics(|| "mine 1\n".to_owned()).serve(0);
    let (handle, task) = start(manager);
    let address = handle.address().await.unwrap();
    until(|| handle.not_ready().is_empty()).await;
    assert_eq!(page(address, "GET /readyz?verbose").await, (200, "ok\n".to_owned()));
    let (code, text) = page(address, "GET /metrics").await;
    assert_eq!(code, 200);
    for line in ["informer_objects{", "controller_runtime_reconcile_total{controller=\"pods\"", "\nmine 1\n"]
    {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert_eq!(page(address, "GET /other").await.0, 404);
    assert_eq!(page(address, "POST /healthz").await.0, 405);
    handle.stop();
    end(task).await.unwrap();
    assert_eq!((handle.not_ready(), handle.address().await), (vec!["ended".to_owned()], None));
    assert!(TcpStream::connect(address).await.is_err(), "nothing is served any more");
}

/// A check that panics is an answer, and the next request is answered too.
#[tokio::test]
async fn a_check_that_fails_or_panics_is_told() {
    let manager = Manager::new()
        .healthy_when("disk", || Err("is full".to_owned()))
        .ready_when("bad", || panic!("on purpose"))
        .serve(0);
    let (handle, task) = start(manager);
    let address = handle.address().await.unwrap();
    assert_eq!(page(address, "GET /readyz").await, (500, "a check panicked\n".to_owned()));
    assert_eq!(page(address, "GET /healthz").await, (503, "disk: is full\n".to_owned()));
    // Those who connect and say nothing keep nobody from being answered, or the manager from ending: a probe waits for a second.
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    let asked = std::time::Instant::now();
    assert_eq!(page(address, "GET /livez").await.0, 503);
    assert!(asked.elapsed() < Duration::from_secs(5), "answered after {:?}", asked.elapsed());
    // And they are not kept: the first of them was let go for others, the last because it said nothing.
    let mut nothing = Vec::new();
    silent[0].read_to_end(&mut nothing).await.ok();
    silent[199].read_to_end(&mut nothing).await.ok();
    handle.stop();
    let began = std::time::Instant::now();
    end(task).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(8), "it waited for somebody who says nothing");
}

#[tokio::test]
async fn what_cannot_be_is_an_error_before_anything_begins() {
    let server = ApiServer::new();
    let factory = SharedInformerFactory::new(server.client());
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let manager = Manager::new().factory(&factory).serve_on(address);
    let error = manager.run_until(std::future::pending()).await.unwrap_err();
    assert!(error.to_string().starts_with(&format!("cannot serve on {address}: ")), "{error}");
    let twins = Manager::new().controller(idle(&factory)).controller(idle(&factory));
    let error = twins.run_until(std::future::pending()).await.unwrap_err();
    assert_eq!(error.to_string(), "two controllers are called pods (give one another name)");
    assert!(server.requests().is_empty());
}

/// Whoever holds a handle of a manager that is gone was told that it is ready, and kept its informers alive.
#[tokio::test(start_paused = true)]
async fn a_manager_that_was_dropped_has_ended() {
    let server = ApiServer::new();
    let (handle, task) = {
        let factory = SharedInformerFactory::new(server.client());
        start(Manager::new().controller(idle(&factory)))
    };
    until(|| handle.not_ready().is_empty()).await;
    assert_eq!(handle.address().await, None, "nothing is served");
    task.abort();
    until(|| handle.not_ready() == ["ended"]).await;
    until(|| server.open_watches() == 0).await;
    assert!(handle.not_healthy().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_fails_ends_everything_with_its_error() {
    let server = ApiServer::new();
    let (bad, good) =
        (SharedInformerFactory::new(server.client()), SharedInformerFactory::new(server.client()));
    let other =
        Controller::new::<ConfigMap>(&good).reconcile(|_, _| async { Ok::<_, Infallible>(Outcome::Done) });
    let (_, task) = start(Manager::new().controller(idle(&bad)).controller(other.clone()));
    other.running().await;
    bad.shutdown(Duration::from_secs(1)).await.unwrap();
    let error = end(task).await.unwrap_err();
    assert!(error.to_string().contains("the informer for pods in all namespaces has stopped"), "{error}");
    assert_eq!(server.open_watches(), 0);
}

/// Who acts, checked whenever somebody begins to.
#[derive(Clone, Default)]
struct Stage(Arc<Mutex<Vec<String>>>);

struct Acting(Stage, String);

impl Stage {
    fn enter(&self, who: &str) -> Acting {
        let mut acting = self.0.lock().unwrap();
        assert!(acting.iter().all(|other| other == who), "{who} acts beside {acting:?}");
        acting.push(who.to_owned());
        Acting(self.clone(), who.to_owned())
    }
}

impl Drop for Acting {
    fn drop(&mut self) {
        let mut acting = self.0.0.lock().unwrap();
        let place = acting.iter().position(|name| *name == self.1).unwrap();
        acting.remove(place);
    }
}

/// One of several that elect a leader, all with the same identity: its controller acts all the time.
fn candidate(server: &ApiServer, stage: &Stage, who: &'static str) -> (Manager, Reconciler) {
    let factory = SharedInformerFactory::new(server.client());
    let stage = stage.clone();
    let controller = Controller::new::<Pod>(&factory).concurrency(2).reconcile(move |_, ctx| {
        let stage = stage.clone();
        async move {
            let _acting = stage.enter(who);
            assert!(ctx.fence().is_some());
            pass(Duration::from_millis(700)).await;
            Ok::<_, Infallible>(Outcome::RequeueAfter(Duration::from_millis(300)))
        }
    });
    let elector = LeaderElector::new(server.client(), "default", "shop").identity("same");
    (Manager::new().controller(controller.clone()).elect(elector), controller)
}

fn holder(server: &ApiServer) -> String {
    let lease = server.get("coordination.k8s.io/v1", "leases", Some("default"), "shop").unwrap();
    lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
}

/// Two managers with the same identity, one of which is stopped, another killed, and one cut off from the server: never two act, and there is always a
/// next one.
#[tokio::test(start_paused = true)]
async fn only_the_leader_acts_and_another_takes_over() {
    let server = ApiServer::new();
    create_pods(&server, &["a", "b", "c"]);
    let stage = Stage::default();
    let (first, controller) = candidate(&server, &stage, "first");
    let (handle, task) = start(first);
    until(|| controller.metrics().requeued > 3).await;
    let (second, next) = candidate(&server, &stage, "second");
    let (_, second) = start(second);
    let (third, last) = candidate(&server, &stage, "third");
    let (_, third) = start(third);
    pass(Duration::from_mins(1)).await;
    assert_eq!((next.metrics().requeued, last.metrics().requeued), (0, 0));
    // Gently: the last turn ends, then the lease is given back, and nobody waits for it to run out.
    handle.stop();
    end(task).await.unwrap();
    until(|| next.metrics().requeued + last.metrics().requeued > 3).await;
    // Killed: the next one waits until the lease has run out.
    let (leads, stands_by, task, waits) =
        if next.metrics().requeued > 0 { (next, last, second, third) } else { (last, next, third, second) };
    task.abort();
    until(|| stands_by.metrics().requeued > 3).await;
    let done = leads.metrics().requeued;
    // Cut off: it stops acting by itself, and goes on when it leads again.
    let gone = server.fault(faults::drop_connection());
    pass(Duration::from_mins(1)).await;
    assert!(stage.0.lock().unwrap().is_empty());
    let before = stands_by.metrics().requeued;
    drop(gone);
    until(|| stands_by.metrics().requeued > before + 3).await;
    assert_eq!(leads.metrics().requeued, done);
    waits.abort();
}

/// The order of the end: no turn after the stop, the lease is held until the last turn has ended, and informers outlive both.
#[tokio::test(start_paused = true)]
async fn it_ends_in_the_reverse_order() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let factory = SharedInformerFactory::new(server.client());
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let (notes, leases) = (Arc::clone(&seen), server.clone());
    let controller = Controller::new::<Pod>(&factory).reconcile(move |_, ctx| {
        let (notes, leases) = (Arc::clone(&notes), leases.clone());
        async move {
            ctx.stopping().await;
            pass(Duration::from_secs(20)).await;
            let held = !holder(&leases).is_empty();
            let live = ctx.lister::<Pod>().has_synced() && leases.open_watches() == 1;
            notes.lock().unwrap().push(format!("held: {held}, live: {live}"));
            Ok::<_, Infallible>(Outcome::Done)
        }
    });
    let elector = LeaderElector::new(server.client(), "default", "shop");
    let (handle, task) = start(Manager::new().controller(controller.clone()).elect(elector));
    until(|| controller.metrics().active == 1).await;
    handle.stop();
    // From the first moment on nobody should send it anything.
    until(|| handle.not_ready() == ["stopping"]).await;
    assert!(!task.is_finished());
    end(task).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), ["held: true, live: true"]);
    assert_eq!((holder(&server).as_str(), server.open_watches()), ("", 0));
}

#[tokio::test(start_paused = true)]
async fn caches_are_warm_or_filled_when_it_leads() {
    for (caches, warm) in [(Caches::Warm, true), (Caches::WhenLeading, false)] {
        let server = ApiServer::new();
        create_pods(&server, &["a"]);
        let stage = Stage::default();
        let (leader, leading) = candidate(&server, &stage, "leader");
        let (handle, task) = start(leader);
        until(|| leading.metrics().requeued > 0).await;
        let watches = asked(&server, Verb::Watch, "pods").len();
        let (standby, standing_by) = candidate(&server, &stage, "standby");
        let (ready, second) = start(standby.caches(caches));
        pass(Duration::from_secs(30)).await;
        assert_eq!(ready.not_ready(), <[&str; 0]>::default(), "whoever stands by is ready to");
        assert_eq!(asked(&server, Verb::Watch, "pods").len() > watches, warm, "{caches:?}");
        handle.stop();
        end(task).await.unwrap();
        until(|| standing_by.metrics().requeued > 0).await;
        ready.stop();
        end(second).await.unwrap();
    }
}

/// Without a controller, too, the informers begin when it leads.
#[tokio::test(start_paused = true)]
async fn caches_that_wait_for_leadership_need_no_controller() {
    let server = ApiServer::new();
    let factory = SharedInformerFactory::new(server.client());
    let pods = factory.lister::<Pod>();
    let elector = LeaderElector::new(server.client(), "default", "shop");
    let (handle, task) = start(Manager::new().factory(&factory).elect(elector).caches(Caches::WhenLeading));
    until(|| pods.has_synced()).await;
    handle.stop();
    end(task).await.unwrap();
}

/// A turn blocks its thread and cannot be ended. Whoever takes the lease would act beside it, so it is not given back.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn the_lease_is_not_given_back_while_a_turn_goes_on() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let factory = SharedInformerFactory::new(server.client());
    let (let_go, gate) = std::sync::mpsc::channel::<()>();
    let gate = Arc::new(Mutex::new(gate));
    let controller = Controller::new::<Pod>(&factory).grace(Duration::ZERO).reconcile(move |_, _| {
        let gate = Arc::clone(&gate);
        async move {
            let _over = gate.lock().unwrap().recv().is_err();
            Ok::<_, Infallible>(Outcome::Done)
        }
    });
    let elector = LeaderElector::new(server.client(), "default", "shop");
    let (handle, task) = start(Manager::new().controller(controller.clone()).elect(elector));
    until(|| controller.metrics().active == 1).await;
    handle.stop();
    let error = end(task).await.unwrap_err();
    assert!(error.to_string().contains("not all of them let go"), "{error}");
    assert_ne!(holder(&server), "");
    drop(let_go);
}

/// LE-19: the figures of elections, by client-go's names.
#[tokio::test]
async fn le_19_the_figures_of_an_election() {
    let server = ApiServer::new();
    let elector = LeaderElector::new(server.client(), "default", "shop");
    let mut leadership = elector.leadership();
    let (handle, task) = start(Manager::new().elect(elector).serve(0));
    while !leadership.is_leader() {
        assert!(leadership.changed().await);
    }
    let (_, text) = page(handle.address().await.unwrap(), "GET /metrics").await;
    assert!(text.contains("\nleader_election_master_status{name=\"default/shop\"} 1\n"), "{text}");
    assert!(text.contains("\nleader_election_slowpath_total{name=\"default/shop\"} 0\n"), "{text}");
    handle.stop();
    end(task).await.unwrap();
    assert!(!leadership.is_leader());
}

/// LE-18: a leader whose time is over and who does not notice, because nothing of it runs any more, is not well.
#[tokio::test(start_paused = true)]
async fn le_18_a_leader_that_does_not_notice_its_end_is_not_healthy() {
    let server = ApiServer::new();
    let elector = LeaderElector::new(server.client(), "default", "shop");
    let leadership = elector.leadership();
    let manager = Manager::new().elect(elector);
    let handle = manager.handle();
    let mut running = Box::pin(manager.run_until(std::future::pending()));
    tokio::select! {
        _ = &mut running => panic!("it ends"),
        () = until(|| leadership.is_leader()) => {}
    }
    assert_eq!(handle.not_healthy(), <[&str; 0]>::default());
    // From here on it does not run. It leads no more after ten seconds, and twenty later somebody should do something.
    tokio::time::advance(Duration::from_secs(25)).await;
    assert!(!leadership.is_leader() && handle.not_healthy().is_empty());
    tokio::time::advance(Duration::from_secs(10)).await;
    let reasons = handle.not_healthy();
    assert!(
        matches!(&reasons[..], [one] if one.starts_with("election default/shop: its end was due 2")),
        "{reasons:?}"
    );
    // As soon as it runs again, it notices, and leads again.
    tokio::select! {
        _ = &mut running => panic!("it ends"),
        () = until(|| leadership.is_leader()) => {}
    }
    assert_eq!(handle.not_healthy(), <[&str; 0]>::default());
}

/// The program that the tests of signals run: a manager with a turn that takes as long as the test says.
#[tokio::test(flavor = "current_thread")]
async fn a_program_for_the_tests_of_signals() {
    let Ok(way) = std::env::var("INFORMER_TEST_SIGNALS") else { return };
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let factory = SharedInformerFactory::new(server.client());
    let controller = Controller::new::<Pod>(&factory).reconcile(move |_, ctx| {
        let way = way.clone();
        async move {
            println!("working");
            if way == "blocks" {
                // The one thread there is does nothing else any more.
                std::thread::park();
            }
            ctx.stopping().await;
            println!("stopping");
            Ok::<_, Infallible>(Outcome::Done)
        }
    });
    if std::env::var("INFORMER_TEST_SIGNALS").unwrap() == "second" {
        // One that has ended by itself leaves the signals to the next.
        let first = Manager::new();
        first.handle().stop();
        first.run().await.unwrap();
    }
    Manager::new().controller(controller).run().await.unwrap();
    println!("ended");
}

/// Runs that program and sends it signals; what it wrote, and its code.
fn signalled(way: &str, signals: &[&str]) -> (String, Option<i32>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_program_for_the_tests_of_signals", "--nocapture", "--test-threads=1"])
        .env("INFORMER_TEST_SIGNALS", way)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("working") {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "it ended without working");
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
fn a_signal_stops_it_gently() {
    for signal in ["-TERM", "-INT"] {
        let (text, code) = signalled("ends", &[signal]);
        assert!(text.contains("stopping\nended\n") && code == Some(0), "{signal}: {code:?} {text}");
    }
}

/// The second manager of a process died of its first signal: the one before it still listened.
#[cfg(unix)]
#[test]
fn a_signal_stops_the_second_manager_of_a_process_gently() {
    let (text, code) = signalled("second", &["-TERM"]);
    assert!(text.contains("stopping\nended\n") && code == Some(0), "{code:?} {text}");
}

/// The only thread of the program is blocked; the second signal ends it all the same.
#[cfg(unix)]
#[test]
fn a_second_signal_ends_it_at_once() {
    let (text, code) = signalled("blocks", &["-TERM", "-INT"]);
    // Which of the two it heard first is the system's affair.
    assert!(!text.contains("stopping") && matches!(code, Some(130 | 143)), "{code:?} {text}");
}
