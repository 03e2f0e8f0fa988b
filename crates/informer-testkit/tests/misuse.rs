//! Programs, scenarios and actors that misbehave are named, and never make a test hang.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use informer_testkit::{Actor, Cluster, ProgramContext, Simulation, SimulationFailure};
use kube::api::ListParams;

use crate::programs::{copy_simulation, maps, pause};

fn failure_of(simulation: Simulation) -> SimulationFailure {
    *simulation.seeds(0..3).threads(1).try_run().expect_err("the simulation must fail")
}

fn idle(_: ProgramContext) -> impl Future<Output = ()> {
    std::future::pending()
}

#[test]
fn scenario_that_never_ends() {
    let failure = failure_of(copy_simulation().scenario(|world| async move {
        drop(world.create(&crate::programs::map("a", "source")).await);
        world.wait_until(|_| false).await;
    }));
    assert_eq!(failure.check, "scenario");
    assert_eq!(failure.message, "it has not ended after 3600s; its last step: create ConfigMap default/a");
}

#[test]
fn scenario_that_fails() {
    let failure = failure_of(Simulation::new(idle).scenario(|world| async move {
        world.delete::<k8s_openapi::api::core::v1::Pod>("default", "a").await
    }));
    assert_eq!(failure.message, "the scenario failed: pods \"a\" not found");
}

#[test]
fn scenario_that_uses_timers_of_tokio() {
    let failure = failure_of(Simulation::new(idle).scenario(|_| tokio::time::sleep(Duration::from_secs(1))));
    assert!(failure.message.contains("there is no reactor running"), "{failure}");
}

#[test]
fn actor_that_panics() {
    struct Broken;
    impl Actor for Broken {
        fn name(&self) -> &'static str {
            "broken"
        }

        fn step(&mut self, _: &mut Cluster<'_>) -> Option<jiff::Timestamp> {
            panic!("no idea")
        }
    }
    let failure = failure_of(Simulation::new(idle).actor(|| Broken));
    assert_eq!(failure.check, "actors");
    assert!(failure.message.starts_with("the actor `broken` panicked: no idea"), "{failure}");
}

/// The thread of the run is left behind. The test ends it, so that it does not slow down other tests.
#[test]
fn program_that_never_waits() {
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    let simulation = Simulation::new(|_: ProgramContext| async {
        while !IS_OVER.load(Ordering::Relaxed) {
            tokio::task::yield_now().await;
        }
    });
    let failure = failure_of(simulation.run_timeout(Duration::from_secs(2)));
    IS_OVER.store(true, Ordering::Relaxed);
    assert_eq!(failure.check, "watchdog");
    assert!(
        failure.message.contains("Program 1 was running: it blocks its thread or never waits"),
        "{failure}"
    );
    assert!(
        failure.timeline.iter().any(|entry| entry.actor == "program 1"),
        "the timeline up to then: {failure}"
    );
}

#[test]
fn program_that_sleeps_on_the_clock_of_the_system() {
    if !informer_virtual::is_supported() {
        return;
    }
    let failure = failure_of(Simulation::new(|_: ProgramContext| async {
        std::thread::sleep(Duration::from_secs(7));
        std::future::pending::<()>().await;
    }));
    let expected = "the program blocks its thread with a sleep of 7s; tokio::time::sleep does not";
    assert_eq!((failure.check.as_str(), failure.message.as_str()), ("blocked thread", expected));
}

#[test]
fn program_with_its_own_randomness() {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let simulation = Simulation::new(|context: ProgramContext| async move {
        pause(1 + RUNS.fetch_add(1, Ordering::Relaxed)).await;
        drop(maps(context.client()).list(&ListParams::default()).await);
        std::future::pending::<()>().await;
    });
    let failure = failure_of(simulation.check_determinism());
    assert_eq!(failure.check, "two runs of one seed are equal");
    assert!(
        failure.message.contains("first run:") && failure.message.contains("list configmaps"),
        "{failure}"
    );
}

#[test]
fn program_that_sends_requests_forever() {
    let simulation = Simulation::new(|context: ProgramContext| async move {
        let maps = maps(context.client());
        loop {
            drop(maps.list(&ListParams::default()).await);
        }
    });
    let simulation =
        simulation.scenario(|world| async move { world.sleep(Duration::from_secs(1_000)).await });
    let failure = failure_of(simulation.request_limit(500));
    assert!(failure.message.ends_with("500 requests: the program never waits"), "{failure}");
}

#[test]
fn program_that_ends_without_faults() {
    let simulation = Simulation::new(|context: ProgramContext| async move {
        maps(context.client()).get("missing").await.map(drop).map_err(|error| error.to_string())
    });
    let failure = failure_of(simulation);
    assert_eq!(failure.check, "program");
    assert!(failure.message.contains("not found"), "{failure}");
}

/// Bug: the text of a panic in `setup`, or in the function that creates the program, was lost.
#[test]
fn setup_or_program_that_panics() {
    let failure = failure_of(Simulation::new(idle).setup(|_| panic!("no definition")));
    assert!(failure.message.starts_with("no definition ("), "{failure}");
    let new = |_: ProgramContext| -> std::future::Pending<()> { panic!("no configuration") };
    let failure = failure_of(Simulation::new(new));
    assert!(failure.message.starts_with("no configuration ("), "{failure}");
}

/// Bug: the time to settle was counted from the last fault, so that a long scenario left none.
#[test]
fn long_scenario_leaves_time_to_settle() {
    let simulation = copy_simulation().scenario(|world| async move {
        world.sleep(Duration::from_secs(3_000)).await;
        world.create(&crate::programs::map("a", "source")).await
    });
    simulation.seeds(0..10).run();
}

#[test]
#[should_panic(expected = "there are no seeds in 3..3")]
fn empty_range_of_seeds() {
    drop(Simulation::new(idle).seeds(3..3).try_run());
}
