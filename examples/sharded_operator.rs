//! An operator that several processes run together: for every deployment with more than one replica a disruption budget,
//! so that a drained node does not stop all of its pods. Each process acts for the namespaces of its shard.
//!
//!     cargo example sharded_operator -- [--kubeconfig PATH] [--lease-namespace NAME] [--revision TEXT]
//!         [--probe-address IP:PORT] [--roles]

// ANCHOR: imports
use informer::access::RequiredAccess;
use informer::controller::{Context, Controller, Outcome};
use informer::manager::Manager;
use informer::shard::{ShardGroup, ShardKey};
use informer::{Error, Key, SharedInformerFactory};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
// ANCHOR_END: imports

use informer_examples::program;
use kube::Api;
use kube::api::{DeleteParams, Preconditions};
use serde_json::json;
use std::net::SocketAddr;
use std::process::ExitCode;

const USAGE: &str = "usage: sharded_operator [--kubeconfig PATH] [--lease-namespace NAME] [--revision TEXT]
                        [--probe-address IP:PORT] [--roles]

Keeps a disruption budget for each deployment with more than one replica until Ctrl-C. Start it several times: the processes
divide the namespaces among themselves, and `informer shards NAMESPACE/budget-operator` shows how.

The leases are in the namespace of --lease-namespace, or in that of the kubeconfig or pod. The name of each process in the group
is the host name with a random suffix. In a rolling update, processes with another --revision take over only what processes of
earlier revisions leave. /healthz, /readyz and /metrics are served on --probe-address, if given. With --roles, prints the roles
of the service account budget-operator in the namespace of the leases, and their bindings, as JSON.";

#[tokio::main]
async fn main() -> ExitCode {
    program(USAGE, async |mut arguments| {
        let namespace: Option<String> = arguments.setting("--lease-namespace")?;
        let revision: Option<String> = arguments.setting("--revision")?;
        let address: Option<SocketAddr> = arguments.setting("--probe-address")?;
        let print_roles = arguments.flag("--roles");
        let client = arguments.client().await?;
        let namespace = namespace.unwrap_or_else(|| client.default_namespace().to_owned());
        let group = group(client.clone(), &namespace, &revision.unwrap_or_default())?;
        let mut manager = manager(client, &group);
        if print_roles {
            for manifest in required_access(&manager).manifests(NAME, &namespace) {
                println!("{}", serde_json::to_string_pretty(&manifest)?);
            }
            return Ok(());
        }
        tracing_subscriber::fmt().with_writer(std::io::stderr).init();
        tracing::info!(%group, identity = group.identity(), "starting, until SIGTERM or Ctrl-C");
        if let Some(address) = address {
            manager = manager.serve_on(address);
        }
        Ok(manager.run().await?)
    })
    .await
}

// ANCHOR: group
/// The name of the operator, of its group and of its service account.
const NAME: &str = "budget-operator";

/// Creates the membership of this process in the group whose Leases are in `namespace`.
fn group(client: kube::Client, namespace: &str, revision: &str) -> Result<ShardGroup, Error> {
    // Deployments and their budgets are in the same namespace, so every process has both.
    let group = ShardGroup::builder(client, namespace, NAME)
        .shard_by(ShardKey::Namespace)
        .revision(revision)
        .build()?;
    Ok(group)
}
// ANCHOR_END: group

// ANCHOR: manager
/// Creates the operator: the membership in the group, and the controller for the namespaces of its shard.
pub(crate) fn manager(client: kube::Client, group: &ShardGroup) -> Manager {
    let factory = SharedInformerFactory::new(client.clone());
    let controller = Controller::new::<Deployment>(&factory)
        .owns::<PodDisruptionBudget>()
        .sharded(group)
        .field_manager(NAME)
        .concurrency(4)
        .state(client)
        .reconcile(reconcile);
    Manager::new().add_shard_group(group).controller(controller)
}
// ANCHOR_END: manager

// ANCHOR: access
/// Returns the permissions of the informers and of the group, and those of `reconcile`.
pub(crate) fn required_access(manager: &Manager) -> RequiredAccess {
    let mut access = manager.required_access();
    // An apply may create the budget.
    for verb in ["create", "patch", "delete"] {
        access.add(None, "policy", "poddisruptionbudgets", verb);
    }
    access
}
// ANCHOR_END: access

/// Reconciles the budget of one deployment. No other process does so at the same time.
pub(crate) async fn reconcile(key: Key, ctx: Context<kube::Client>) -> Result<Outcome, Error> {
    let Some(deployment) = ctx.lister::<Deployment>().get_by_key(&key) else { return Ok(Outcome::Done) };
    let spec = deployment.typed()?.spec.clone();
    if spec.replicas.unwrap_or(1) > 1 {
        let budget: PodDisruptionBudget = serde_json::from_value(json!({
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": key.name(), "namespace": key.namespace()},
            "spec": {"maxUnavailable": 1, "selector": spec.selector},
        }))
        .expect("these fields have the types of the API");
        ctx.apply(&deployment, budget).await?;
    } else if let Some(budget) = ctx.lister::<PodDisruptionBudget>().get_by_key(&key) {
        // A budget with another owner stays, and so does one that was created again.
        if informer::owner::is_controlled_by(&budget, &deployment) {
            let budgets = Api::<PodDisruptionBudget>::namespaced(
                ctx.state().clone(),
                key.namespace().unwrap_or_default(),
            );
            let preconditions = Preconditions { uid: Some(budget.uid().to_owned()), resource_version: None };
            let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
            budgets.delete(key.name(), &parameters).await?;
        }
    }
    Ok(Outcome::Done)
}
