//! The examples that write, in simulations: restarts, races and an unreliable server, chosen by seeds.

use crate::programs::operator::{Website, WebsiteSpec};
use crate::programs::{operator, scheduler, to_database};
use informer::election::LeaderElector;
use informer::manager::Manager;
use informer::recorder::EventRecorder;
use informer::testing::MemoryDisk;
use informer::{InformerOptions, SharedInformer, SharedInformerFactory};
use informer_testkit::{ApiServer, FaultKind, ProgramContext, Simulation, State};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;
use serde_json::json;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

fn website(name: &str, replicas: i32) -> Website {
    let mut website = Website::new(name, WebsiteSpec { image: "nginx".to_owned(), replicas });
    website.metadata.namespace = Some("shop".to_owned());
    website
}

fn is_ready(state: &State, name: &str, replicas: i32) -> bool {
    let website = state.get::<Website>("shop", name);
    let status = website.as_ref().and_then(|website| website.status.as_ref());
    status.is_some_and(|status| {
        status.ready == replicas && status.conditions.iter().all(|c| c.status == "True")
    })
}

fn operator_simulation() -> Simulation {
    simulate_operator(|context| operator::manager(context.client()))
}

/// The operator with caches on a disk that survives its restarts.
fn simulate_saved_operator(resumes: bool) -> Simulation {
    simulate_operator(move |context| {
        let options = InformerOptions::default().persist(context.external::<MemoryDisk>().persistence());
        let factory = SharedInformerFactory::with_options(context.client(), options);
        let recorder = EventRecorder::new(context.client(), "website-operator");
        let state = operator::State::new(context.client(), recorder.clone());
        let mut controller = operator::controller(&factory, state);
        if resumes {
            controller = controller.resume("1");
        }
        Manager::new().controller(controller.reconcile(operator::reconcile)).recorder(recorder)
    })
}

fn simulate_operator(manager: impl Fn(&ProgramContext) -> Manager + Send + Sync + 'static) -> Simulation {
    Simulation::new(move |context: ProgramContext| {
        let identity = format!("operator-{}", context.instance());
        let elector = LeaderElector::new(context.client(), "default", "website-operator").identity(&identity);
        let manager = manager(&context).leader_election(elector);
        async move { manager.run_until(std::future::pending()).await }
    })
    .setup(|server| {
        // Computing the schema takes as long as some writes.
        static CRD: LazyLock<CustomResourceDefinition> = LazyLock::new(Website::crd);
        create_namespace(server);
        server.create(&*CRD).unwrap();
    })
    .scenario(|world| async move {
        world.create(&website("blog", 2)).await?;
        world.create(&website("news", 1)).await?;
        world.modify::<Website>("shop", "blog", |website| website.spec.replicas = 3).await?;
        world.delete::<Website>("shop", "news").await
    })
    .always("at most one deployment per website", |state| {
        let deployments = state.list::<Deployment>();
        let owners =
            deployments.iter().flat_map(|deployment| deployment.metadata.owner_references.iter().flatten());
        let mut uids: Vec<&str> = owners.map(|owner| owner.uid.as_str()).collect();
        uids.sort_unstable();
        uids.windows(2).all(|pair| pair[0] != pair[1])
    })
    .quiet_period(Duration::from_secs(30))
    .eventually("the website is ready", |state| is_ready(state, "blog", 3))
    .eventually("the deleted website has no deployment", |state| {
        state.get::<Deployment>("shop", "news").is_none()
    })
}

#[test]
fn operator_runs_are_equal_for_equal_seeds() {
    operator_simulation().check_determinism().seeds(0..100).run();
}

#[test]
fn operator_with_saved_caches_survives() {
    simulate_saved_operator(false).seeds(seeds(100)).run();
}

/// A restart reconciles only what has changed. Other leaders are left out: what they leave unfinished is not noticed.
#[test]
fn operator_that_resumes_survives() {
    simulate_saved_operator(true).without_fault(FaultKind::SecondInstance).seeds(seeds(100)).run();
}

#[test]
fn saved_caches_are_deterministic() {
    let simulation = simulate_saved_operator(true).without_fault(FaultKind::SecondInstance);
    simulation.check_determinism().seeds(0..20).run();
}

fn pod(name: &str) -> Pod {
    let pod = json!({
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"schedulerName": "example", "containers": [{"name": "web", "image": "nginx"}]},
    });
    serde_json::from_value(pod).unwrap()
}

fn create_namespace(server: &ApiServer) {
    server.create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})).unwrap();
}

fn is_placed(pod: &Pod) -> bool {
    pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())
}

#[test]
fn scheduler_survives() {
    Simulation::new(|context: ProgramContext| async move {
        let result = scheduler::run(context.client(), "default", |_| {}, std::future::pending()).await;
        result.map_err(|error| error.to_string())
    })
    .setup(create_namespace)
    .scenario(|world| async move {
        world.create(&pod("a")).await?;
        world.create(&pod("b")).await?;
        world.delete::<Pod>("shop", "a").await?;
        world.create(&pod("c")).await
    })
    .eventually("all pods are placed", |state: &State| {
        let pods = state.list::<Pod>();
        pods.len() == 2 && pods.iter().all(|pod| is_placed(pod))
    })
    .seeds(seeds(60))
    .run();
}

/// A database in memory that survives restarts: it exists as long as there is a connection.
struct Database {
    uri: String,
    connection: Mutex<rusqlite::Connection>,
}

impl Default for Database {
    fn default() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let uri = format!("file:simulation-{number}?mode=memory&cache=shared");
        let connection = Mutex::new(rusqlite::Connection::open(&uri).unwrap());
        Database { uri, connection }
    }
}

impl Database {
    /// The names of the pods in the table.
    fn pods(&self) -> Vec<String> {
        let connection = self.connection.lock().unwrap();
        let Ok(mut rows) = connection.prepare("SELECT name FROM pods ORDER BY name") else {
            return Vec::new();
        };
        rows.query_map((), |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    }
}

#[test]
fn table_is_correct_after_faults() {
    Simulation::new(|context: ProgramContext| async move {
        let (pods, database) = (SharedInformer::new(context.client()), context.external::<Database>());
        let result = to_database::run(&pods, &database.uri, |_| {}, std::future::pending()).await;
        result.map_err(|error| error.to_string())
    })
    .setup(create_namespace)
    .scenario(|world| async move {
        world.create(&pod("a")).await?;
        world.create(&pod("b")).await?;
        world.delete::<Pod>("shop", "a").await
    })
    .eventually("the table contains the pods", |state: &State| {
        let pods = state.list::<Pod>();
        let pods: Vec<&str> = pods.iter().filter_map(|pod| pod.metadata.name.as_deref()).collect();
        let rows = state.external::<Database>().pods();
        if rows == pods { Ok(()) } else { Err(format!("{rows:?} instead of {pods:?}")) }
    })
    // The program must have its file alone.
    .without_fault(FaultKind::SecondInstance)
    .without_fault(FaultKind::StaleLeader)
    .seeds(seeds(60))
    .run();
}

/// This many seeds, or as many as `cargo xtask simulate` demands.
fn seeds(default: u64) -> std::ops::Range<u64> {
    0..std::env::var("INFORMER_SIM_TEST_SEEDS")
        .map_or(default, |seeds| seeds.parse().expect("a number of seeds"))
}

#[test]
fn operator_survives() {
    let started = std::time::Instant::now();
    let summary = operator_simulation().seeds(seeds(100)).run();
    println!("{} seeds in {:?}\n{}", summary.seeds, started.elapsed(), summary.coverage);
}
