//! Small controllers with one bug each on purpose, in two variants: the simulation must find the bug, and must not
//! report anything about the fixed variant.
//!
//! The bugs follow the patterns that are known from studies of real operators: crashes between two writes, stale
//! caches after a restart, states that are never observed, missing preconditions, leaked finalizers.

mod allocated_id;
mod deleted_by_name;
mod endless_patch;
mod finalizer_after_create;
mod generated_name;
mod ignored_cleanup_error;
mod ignored_initial_list;
mod lost_condition;
mod missed_deletion;
mod progress_in_memory;
mod stale_owner_uid;
mod two_instances;

use std::collections::BTreeMap;
use std::future::{Future, ready};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use informer_testkit::{ApiServer, ProgramContext, Simulation};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ObjectMeta, Patch, PatchParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::watcher;
use kube::{CustomResource, CustomResourceExt as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The two variants of a controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Variant {
    Buggy,
    Fixed,
}

/// A request for something of this size. What it is differs between the controllers.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(group = "bugs.example", version = "v1", kind = "Claim", namespaced, status = "ClaimStatus")]
struct ClaimSpec {
    size: i64,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
struct ClaimStatus {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    phase: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<i64>,
    /// The conditions that are true, in alphabetical order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    conditions: Vec<String>,
}

fn claim(name: &str, size: i64) -> Claim {
    let mut claim = Claim::new(name, ClaimSpec { size });
    claim.metadata.namespace = Some("default".to_owned());
    claim
}

fn id_of(claim: &Claim) -> Option<i64> {
    claim.status.as_ref()?.id
}

/// Returns a config map, which stands for whatever a controller creates.
fn config_map(name: &str, data: &[(&str, String)]) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some("default".to_owned()),
            labels: Some(BTreeMap::from([("app".to_owned(), "bugs".to_owned())])),
            ..ObjectMeta::default()
        },
        data: Some(data.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect()),
        ..ConfigMap::default()
    }
}

fn api<K>(client: &kube::Client) -> Api<K>
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
{
    Api::namespaced(client.clone(), "default")
}

async fn merge_status(client: &kube::Client, name: &str, patch: Value) -> kube::Result<Claim> {
    api(client).patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await
}

/// Takes a response with this status for a success.
fn accept<T>(code: u16, result: kube::Result<T>) -> kube::Result<()> {
    match result {
        Err(kube::Error::Api(status)) if status.code == code => Ok(()),
        result => result.map(drop),
    }
}

const ALREADY_EXISTS: u16 = 409;
const CONFLICT: u16 = 409;
const NOT_FOUND: u16 = 404;

/// What the reconcile functions of kube-rs's controllers get.
struct Setting {
    client: kube::Client,
    variant: Variant,
}

/// Runs a controller of claims with kube-rs. A failed reconcile is repeated after five seconds.
async fn run_kube<R, E>(
    client: kube::Client,
    variant: Variant,
    reconcile: impl FnMut(Arc<Claim>, Arc<Setting>) -> R,
) where
    R: Future<Output = Result<Action, E>> + Send + 'static,
    E: std::error::Error + Send + 'static,
{
    Controller::new(Api::<Claim>::all(client.clone()), watcher::Config::default())
        .run(
            reconcile,
            |_, _, _| Action::requeue(Duration::from_secs(5)),
            Arc::new(Setting { client, variant }),
        )
        .for_each(|_| ready(()))
        .await;
}

fn define_claims(server: &ApiServer) {
    server.create(&Claim::crd()).unwrap();
}

/// Defines a simulation of a program in a cluster that serves claims.
fn simulation<F>(program: impl Fn(ProgramContext) -> F + Send + Sync + 'static) -> Simulation
where
    F: Future + Send + 'static,
    F::Output: std::fmt::Debug,
{
    Simulation::new(program).setup(define_claims)
}

/// Expects that the simulation finds the bug with few faults, and that one of these checks reports it.
fn find(simulation: Simulation, checks: &[&str]) {
    let started = Instant::now();
    let failure = simulation.seeds(0..1_000).try_run().expect_err("the bug was not found");
    let faults: Vec<String> = failure.faults.iter().map(ToString::to_string).collect();
    println!(
        "{}: seed {}, {} of {} faults: {}; {}: {} ({:.1?})",
        std::thread::current().name().unwrap_or_default(),
        failure.seed,
        failure.faults.len(),
        failure.chosen_faults,
        faults.join("; "),
        failure.check,
        failure.message,
        started.elapsed(),
    );
    if std::env::var_os("INFORMER_SIM_SHOW").is_some() {
        println!("{failure}");
    }
    assert!(checks.contains(&failure.check.as_str()), "{failure}");
    assert!(failure.is_repeatable, "{failure}");
    assert!((1..=3).contains(&failure.faults.len()), "{failure}");
}

/// Expects that the simulation finds nothing: in 60 runs, or in as many as `cargo xtask simulate` demands.
fn survive(simulation: Simulation) {
    let started = Instant::now();
    let seeds = std::env::var("INFORMER_SIM_TEST_SEEDS")
        .map_or(60, |seeds| seeds.parse().expect("a number of seeds"));
    let summary = simulation.seeds(0..seeds).run();
    let test = std::thread::current().name().unwrap_or_default().to_owned();
    println!("{test}: {} seeds in {:.1?}", summary.seeds, started.elapsed());
}

#[test]
fn two_runs_of_a_seed_are_equal_with_each_framework() {
    for (number, simulation) in [
        generated_name::controller(Variant::Fixed),
        missed_deletion::controller(Variant::Fixed),
        endless_patch::controller(Variant::Fixed),
        two_instances::controller(Variant::Fixed),
    ]
    .into_iter()
    .enumerate()
    {
        let summary = simulation.check_determinism().seeds(0..25).run();
        assert_eq!(summary.seeds, 25, "simulation {number}");
    }
}
