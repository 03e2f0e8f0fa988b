//! Creates a volume for each claim, with the claim as its owner. Written with this library's `Controller`.
//!
//! The bug: the uids of claims are remembered by name, until a reconcile finds that the claim is gone.
//!
//! The pattern: an indirect effect of an unobserved state. If a claim is deleted and created again before a reconcile
//! runs, the new volume refers to the old claim. In a real cluster, the garbage collector deletes the new volume.
//!
//! Fixed: the uid is that of the claim in the cache.

use super::{Claim, Variant, api, claim, config_map, find, simulation, survive};
use informer::controller::{Context, Controller, Outcome};
use informer::{Key, SharedInformerFactory};
use informer_testkit::{Check, ProgramContext, Simulation};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::{Resource as _, ResourceExt as _};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

type Error = Box<dyn std::error::Error + Send + Sync>;

struct Owners {
    client: kube::Client,
    variant: Variant,
    uids: Mutex<BTreeMap<Key, String>>,
}

async fn reconcile(key: Key, ctx: Context<Owners>) -> Result<Outcome, Error> {
    let owners = ctx.state();
    let Some(claim) = ctx.lister::<Claim>().get_by_key(&key) else {
        owners.uids.lock().unwrap().remove(&key);
        return Ok(Outcome::Done);
    };
    let claim = claim.typed()?;
    let uid = claim.uid().unwrap_or_default();
    let uid = match owners.variant {
        Variant::Buggy => owners.uids.lock().unwrap().entry(key.clone()).or_insert(uid).clone(),
        Variant::Fixed => uid,
    };
    match ctx.lister::<ConfigMap>().get_by_key(&key) {
        Some(volume) if volume.owners().iter().any(|owner| owner.uid == uid) => return Ok(Outcome::Done),
        Some(_) => return Err("the volume of the previous claim still exists".into()),
        None => {}
    }
    let mut volume = config_map(key.name(), &[]);
    let owner = claim.controller_owner_ref(&()).ok_or("the claim has no name")?;
    volume.metadata.owner_references =
        Some(vec![k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference { uid, ..owner }]);
    let volume = api::<ConfigMap>(&owners.client).create(&PostParams::default(), &volume).await?;
    ctx.record_write(&volume);
    Ok(Outcome::Done)
}

fn controller(variant: Variant) -> Simulation {
    let program = move |context: ProgramContext| async move {
        let factory = SharedInformerFactory::new(context.client());
        context.register(&factory);
        let owners = Owners { client: context.client(), variant, uids: Mutex::default() };
        Controller::new::<Claim>(&factory).owns::<ConfigMap>().state(owners).run(reconcile).await
    };
    simulation(program).scenario(|world| async move {
        world.create(&claim("a", 1)).await?;
        world.wait_until(|state| state.get::<ConfigMap>("default", "a").is_some()).await;
        world.delete::<Claim>("default", "a").await?;
        world.wait_until(|state| state.get::<ConfigMap>("default", "a").is_none()).await;
        world.sleep(Duration::from_secs(1)).await;
        world.create(&claim("a", 1)).await.map(drop)
    })
}

#[test]
fn finds_reference_to_previous_claim() {
    find(controller(Variant::Buggy), &[Check::OwnerReferences.name(), Check::Orphans.name()]);
}

#[test]
fn survives_with_uid_of_cached_claim() {
    survive(controller(Variant::Fixed));
}
