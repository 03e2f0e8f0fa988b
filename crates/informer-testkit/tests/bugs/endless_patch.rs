//! Keeps an annotation of a volume equal to the size of its claim, and compares both every ten seconds. Written with
//! this library's `Controller`.
//!
//! The bug: the comparison is with all annotations of the volume, but the patch does not remove those of others.
//!
//! The pattern: a write that never reaches its goal. As soon as another program annotates the volume, each comparison
//! fails, and the controller writes forever. In a real cluster, this is load on the API server for each object, and
//! with a time in the patch also an endless loop, because each write causes the next reconcile.
//!
//! Fixed: only the annotation of the controller is compared.

use super::{Claim, Variant, api, claim, config_map, find, simulation, survive};
use informer::controller::{Context, Controller, Outcome};
use informer::{Key, SharedInformerFactory};
use informer_testkit::{Check, ProgramContext, Simulation};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Resource as _;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

type Error = Box<dyn std::error::Error + Send + Sync>;

async fn reconcile(key: Key, ctx: Context<(kube::Client, Variant)>) -> Result<Outcome, Error> {
    let Some(claim) = ctx.lister::<Claim>().get_by_key(&key) else { return Ok(Outcome::Done) };
    let claim = claim.typed()?;
    let (client, variant) = ctx.state();
    let volumes = api::<ConfigMap>(client);
    let wanted = BTreeMap::from([("bugs.example/size".to_owned(), claim.spec.size.to_string())]);
    if let Some(volume) = ctx.lister::<ConfigMap>().get_by_key(&key) {
        let annotations = volume.annotations()?;
        let is_equal = match variant {
            Variant::Buggy => annotations == wanted,
            Variant::Fixed => wanted.iter().all(|(name, value)| annotations.get(name) == Some(value)),
        };
        if !is_equal {
            let patch = Patch::Merge(json!({"metadata": {"annotations": wanted}}));
            ctx.record_write(&volumes.patch(key.name(), &PatchParams::default(), &patch).await?);
        }
    } else {
        let mut volume = config_map(key.name(), &[]);
        volume.metadata.owner_references = claim.controller_owner_ref(&()).map(|owner| vec![owner]);
        volume.metadata.annotations = Some(wanted);
        ctx.record_write(&volumes.create(&PostParams::default(), &volume).await?);
    }
    Ok(Outcome::RequeueAfter(Duration::from_secs(10)))
}

pub(super) fn controller(variant: Variant) -> Simulation {
    let program = move |context: ProgramContext| async move {
        let factory = SharedInformerFactory::new(context.client());
        context.register(&factory);
        let state = (context.client(), variant);
        Controller::new::<Claim>(&factory).owns::<ConfigMap>().state(state).run(reconcile).await
    };
    simulation(program).scenario(|world| async move {
        world.create(&claim("a", 1)).await?;
        world.wait_until(|state| state.get::<ConfigMap>("default", "a").is_some()).await;
        world.modify::<Claim>("default", "a", |claim| claim.spec.size = 2).await
    })
}

#[test]
fn finds_writes_without_end() {
    find(controller(Variant::Buggy), &[Check::WritesStop.name()]);
}

#[test]
fn survives_with_comparison_of_own_annotation() {
    survive(controller(Variant::Fixed));
}
