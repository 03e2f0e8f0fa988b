//! Creates a volume for each claim, and deletes it before the claim is gone. Written with kube-rs's `Controller` and
//! `finalizer`.
//!
//! The bug: an error of the deletion is ignored, so the finalizer is removed all the same.
//!
//! The pattern: a leaked resource because of an error that is not returned. A real cluster leaks whatever the cleanup
//! did not reach: disks, DNS names, accounts.
//!
//! Fixed: the error is returned, so the cleanup is repeated. Only 404 (Not Found) is a success.

use super::{
    ALREADY_EXISTS, Claim, NOT_FOUND, Setting, Variant, accept, api, claim, config_map, find, run_kube,
};
use super::{simulation, survive};
use informer_testkit::{Check, FaultKind, Simulation};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, PostParams};
use kube::runtime::controller::Action;
use kube::runtime::finalizer::{Error, Event, finalizer};
use std::sync::Arc;

async fn reconcile(claim: Arc<Claim>, setting: Arc<Setting>) -> Result<Action, Error<kube::Error>> {
    let volumes = api::<ConfigMap>(&setting.client);
    let name = format!("{}-volume", claim.name_any());
    let (client, variant) = (setting.client.clone(), setting.variant);
    finalizer(&api(&client), "bugs.example/volume", claim, |event| async move {
        match event {
            Event::Apply(_) => {
                accept(
                    ALREADY_EXISTS,
                    volumes.create(&PostParams::default(), &config_map(&name, &[])).await,
                )?;
            }
            Event::Cleanup(_) => {
                let deleted = accept(NOT_FOUND, volumes.delete(&name, &DeleteParams::default()).await);
                if variant == Variant::Fixed {
                    deleted?;
                }
            }
        }
        Ok(Action::await_change())
    })
    .await
}

fn controller(variant: Variant) -> Simulation {
    simulation(move |context| run_kube(context.client(), variant, reconcile))
        // Without leader election, an instance that does not know of the deletion may create the volume again.
        .without_fault(FaultKind::SecondInstance)
        .without_fault(FaultKind::StaleLeader)
        .scenario(|world| async move {
            world.create(&claim("a", 1)).await?;
            world.create(&claim("b", 1)).await?;
            world.wait_until(|state| state.get::<ConfigMap>("default", "a-volume").is_some()).await;
            world.delete::<Claim>("default", "a").await
        })
}

#[test]
fn finds_volume_that_was_not_deleted() {
    find(controller(Variant::Buggy), &[Check::FinalState.name()]);
}

#[test]
fn survives_with_repeated_cleanup() {
    survive(controller(Variant::Fixed));
}
