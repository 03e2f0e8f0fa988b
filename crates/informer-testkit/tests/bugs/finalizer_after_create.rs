//! Creates a volume outside of the namespace's ownership for each claim, and deletes it when the claim is deleted:
//! a finalizer keeps the claim until then. Written with this library's `Controller` and `Finalizer`.
//!
//! The bug: the finalizer is added after the volume was created.
//!
//! The pattern: a leaked resource because of an intermediate state. If the program dies between the two writes, or
//! the second one fails, the claim can be deleted at once, and nothing remembers the volume. In a real cluster, a disk
//! or a load balancer of the cloud is never deleted.
//!
//! Fixed: the finalizer is added first.

use super::{
    ALREADY_EXISTS, Claim, NOT_FOUND, Variant, accept, api, claim, config_map, find, simulation, survive,
};
use informer::controller::{Context, Controller, Outcome};
use informer::finalizer::{Finalizer, FinalizerAction};
use informer::{Key, SharedInformerFactory};
use informer_testkit::{Check, FaultKind, ProgramContext, Simulation};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, PostParams};
use std::time::Duration;

type Error = Box<dyn std::error::Error + Send + Sync>;

struct Volumes {
    api: Api<ConfigMap>,
    claims: Api<Claim>,
    finalizer: Finalizer<Claim>,
    variant: Variant,
}

impl Volumes {
    async fn create(&self, name: &str) -> kube::Result<()> {
        // The cache may show a claim that is already gone, for which nothing would be cleaned up.
        if self.claims.get(name).await?.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        accept(ALREADY_EXISTS, self.api.create(&PostParams::default(), &config_map(name, &[])).await)
    }
}

async fn reconcile(key: Key, ctx: Context<Volumes>) -> Result<Outcome, Error> {
    let Some(claim) = ctx.lister::<Claim>().get_by_key(&key) else { return Ok(Outcome::Done) };
    let volumes = ctx.state();
    if volumes.variant == Variant::Buggy && claim.deletion_timestamp().is_none() {
        volumes.create(key.name()).await?;
    }
    match volumes.finalizer.ensure(&claim).await? {
        FinalizerAction::Apply(_) => {
            if volumes.variant == Variant::Fixed {
                volumes.create(key.name()).await?;
            }
        }
        FinalizerAction::Cleanup(cleanup) => {
            accept(NOT_FOUND, volumes.api.delete(key.name(), &DeleteParams::default()).await)?;
            cleanup.complete().await?;
        }
        FinalizerAction::Gone => {}
    }
    Ok(Outcome::Done)
}

fn controller(variant: Variant) -> Simulation {
    let program = move |context: ProgramContext| async move {
        let factory = SharedInformerFactory::new(context.client());
        context.register(&factory);
        let finalizer = Finalizer::new(context.client(), "bugs.example/volume");
        let client = context.client();
        let volumes = Volumes { api: api(&client), claims: api(&client), finalizer, variant };
        Controller::new::<Claim>(&factory).state(volumes).run(reconcile).await
    };
    simulation(program)
        // Without leader election, an instance that does not know of the deletion may create the volume again.
        .without_fault(FaultKind::SecondInstance)
        .without_fault(FaultKind::StaleLeader)
        .scenario(|world| async move {
            world.create(&claim("a", 1)).await?;
            world.wait_until(|state| state.get::<ConfigMap>("default", "a").is_some()).await;
            world.sleep(Duration::from_secs(2)).await;
            world.delete::<Claim>("default", "a").await
        })
}

#[test]
fn finds_leaked_volume() {
    find(controller(Variant::Buggy), &[Check::FinalState.name()]);
}

#[test]
fn survives_with_finalizer_first() {
    survive(controller(Variant::Fixed));
}

/// A 404 because the kind is not served must not be taken for the deletion of the claim.
#[test]
fn survives_while_claims_are_not_served() {
    let faults = [FaultKind::UnservedDefinition, FaultKind::SlowResponse];
    survive(controller(Variant::Fixed).only_faults(&faults));
}
