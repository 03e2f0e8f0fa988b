//! Equal seeds give equal runs, also in different processes.

use std::time::Duration;

use informer::controller::{Context, Controller, Outcome};
use informer::{Key, SharedInformerFactory};
use informer_testkit::{FaultKind, ProgramContext, Simulation};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams};

use crate::programs::{copy_simulation, map, two_sources};

type Error = Box<dyn std::error::Error + Send + Sync>;

async fn reconcile(key: Key, context: Context<kube::Client>) -> Result<Outcome, Error> {
    let Some(source) = context.lister::<ConfigMap>().get_by_key(&key) else { return Ok(Outcome::Done) };
    if source.labels().get("role") != Some("source") {
        return Ok(Outcome::Done);
    }
    let maps: Api<ConfigMap> = Api::namespaced(context.state().clone(), key.namespace().unwrap_or_default());
    let copy = map(&format!("{}-copy", key.name()), "copy");
    maps.patch(&format!("{}-copy", key.name()), &PatchParams::apply("copier"), &Patch::Apply(&copy)).await?;
    Ok(Outcome::Done)
}

/// A controller of this library with several workers.
fn controller_simulation() -> Simulation {
    Simulation::new(|context: ProgramContext| async move {
        let factory = SharedInformerFactory::new(context.client());
        context.register(&factory);
        let controller = Controller::new::<ConfigMap>(&factory)
            .concurrency(4)
            .state(context.client())
            .reconcile(reconcile);
        informer::manager::Manager::new().controller(controller).run_until(std::future::pending()).await
    })
    .scenario(two_sources)
    .eventually("copies exist", |state| {
        ["a-copy", "b-copy"].iter().all(|name| state.get::<ConfigMap>("default", name).is_some())
    })
}

#[test]
fn equal_seeds_give_equal_runs() {
    copy_simulation().check_determinism().seeds(0..50).run();
    controller_simulation().check_determinism().seeds(0..50).run();
}

/// Runs a seed of a failing simulation in two other processes and compares their reports.
#[test]
fn equal_seeds_give_equal_runs_in_other_processes() {
    if std::env::var_os("SIMULATION_CHILD").is_some() {
        let failing = controller_simulation().eventually("never", |_| false);
        let failure = failing.seeds(11..12).try_run().expect_err("fails on purpose");
        println!("{failure}");
        return;
    }
    let program = std::env::current_exe().unwrap();
    let run = || {
        let mut child = std::process::Command::new(&program);
        child.args(["--exact", "determinism::equal_seeds_give_equal_runs_in_other_processes", "--nocapture"]);
        let output = child.env("SIMULATION_CHILD", "1").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let report = text.lines().skip_while(|line| !line.contains("the simulation failed"));
        report.take_while(|line| !line.starts_with("Replay")).collect::<Vec<_>>().join("\n")
    };
    let (first, second) = (run(), run());
    assert!(first.lines().count() > 30, "{first}");
    assert_eq!(first, second);
}

/// Time passes only virtually, for the program and for the server.
#[test]
fn clocks_of_program_and_server_agree() {
    let simulation = Simulation::new(|_: ProgramContext| async {
        let (started, time) = (std::time::Instant::now(), jiff::Timestamp::now());
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        if informer_virtual::is_supported() {
            assert_eq!(started.elapsed(), Duration::from_secs(3_600));
            assert_eq!(jiff::Timestamp::now().duration_since(time).as_secs(), 3_600);
            assert_eq!(informer::now(), jiff::Timestamp::now());
        }
        std::future::pending::<()>().await;
    });
    simulation
        .only_faults(&[])
        .quiet_period(Duration::from_secs(4_000))
        .settle_timeout(Duration::from_secs(9_000))
        .seeds(0..1)
        .run();
}

/// Bug: an instance that was behind another one saw the clock of the other one, and `informer::now` took its time from
/// a value of the process.
#[test]
fn clocks_agree_with_two_instances() {
    // Another test of the process has used the clock of a paused runtime on a real thread.
    let real =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    real.block_on(async {
        tokio::time::advance(Duration::from_secs(10)).await;
        informer::now()
    });
    let simulation = Simulation::new(|context: ProgramContext| async move {
        let (started, time) = (tokio::time::Instant::now(), informer::now());
        for _ in 0..2_000 {
            tokio::time::sleep(Duration::from_millis(u64::from(37 + context.instance()))).await;
            let passed = Duration::try_from(informer::now().duration_since(time)).unwrap();
            assert!(!informer_virtual::is_supported() || passed == started.elapsed(), "{passed:?}");
        }
        std::future::pending::<()>().await;
    });
    simulation.only_faults(&[FaultKind::SecondInstance]).seeds(0..10).run();
}
