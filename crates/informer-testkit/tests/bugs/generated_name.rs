//! Creates a volume for each claim, then marks the claim as bound. Written with kube-rs's `Controller`.
//!
//! The bug: the server generates the name of the volume, and only the mark shows that there is one.
//!
//! The pattern: a crash between two writes. If the program dies, or the response to the first write is lost, before
//! the mark is written, the next reconcile creates a second volume. A real cluster pays for disks that nothing uses.
//!
//! Fixed: the name is derived from the claim, so the second creation fails with a conflict.

use super::{
    ALREADY_EXISTS, Claim, Setting, Variant, accept, api, claim, config_map, find, merge_status, run_kube,
};
use super::{simulation, survive};
use informer_testkit::{Check, Simulation};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::runtime::controller::Action;
use kube::{Resource as _, ResourceExt as _};
use serde_json::json;
use std::sync::Arc;

async fn reconcile(claim: Arc<Claim>, setting: Arc<Setting>) -> kube::Result<Action> {
    if claim.status.as_ref().is_some_and(|status| status.phase.is_some()) {
        return Ok(Action::await_change());
    }
    let mut volume = config_map("", &[("size", claim.spec.size.to_string())]);
    volume.metadata.owner_references = claim.controller_owner_ref(&()).map(|owner| vec![owner]);
    let name = claim.name_any();
    match setting.variant {
        Variant::Buggy => {
            volume.metadata.name = None;
            volume.metadata.generate_name = Some(format!("{name}-volume-"));
        }
        Variant::Fixed => volume.metadata.name = Some(format!("{name}-volume")),
    }
    let created = api::<ConfigMap>(&setting.client).create(&PostParams::default(), &volume).await;
    accept(ALREADY_EXISTS, created)?;
    merge_status(&setting.client, &name, json!({"status": {"phase": "Bound"}})).await?;
    Ok(Action::await_change())
}

pub(super) fn controller(variant: Variant) -> Simulation {
    simulation(move |context| run_kube(context.client(), variant, reconcile)).scenario(|world| async move {
        world.create(&claim("a", 1)).await?;
        world.create(&claim("b", 2)).await.map(drop)
    })
}

#[test]
fn finds_second_volume_after_crash() {
    find(controller(Variant::Buggy), &[Check::FinalState.name()]);
}

#[test]
fn survives_with_derived_name() {
    survive(controller(Variant::Fixed));
}
