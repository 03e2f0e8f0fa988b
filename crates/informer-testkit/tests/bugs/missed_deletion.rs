//! Copies each claim into a config map, and deletes the copy when the claim is deleted. Written with kube-rs's
//! `watcher`; an error ends the program, which is then started again.
//!
//! The bug: copies are deleted only when a deletion is observed.
//!
//! The pattern: a state that is never observed. A deletion while the program is down, or between a broken watch and
//! the next list, leaves the copy behind. In a real cluster, deleted users keep their access.
//!
//! Fixed: after each list, copies without a claim are deleted.

use super::{
    ALREADY_EXISTS, Claim, NOT_FOUND, Variant, accept, api, claim, config_map, find, simulation, survive,
};
use futures::TryStreamExt as _;
use informer_testkit::{Check, FaultKind, Simulation};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::runtime::watcher::{Config, Event, watcher};
use std::collections::BTreeSet;
use std::time::Duration;

async fn copy(client: kube::Client, variant: Variant) -> Result<(), Box<dyn std::error::Error>> {
    let copies: Api<ConfigMap> = api(&client);
    let mut events = std::pin::pin!(watcher(api::<Claim>(&client), Config::default()));
    let mut listed = BTreeSet::new();
    while let Some(event) = events.try_next().await? {
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(claim) | Event::Apply(claim) => {
                listed.insert(claim.name_any());
                let copy = config_map(&claim.name_any(), &[("size", claim.spec.size.to_string())]);
                accept(ALREADY_EXISTS, copies.create(&PostParams::default(), &copy).await)?;
            }
            Event::Delete(claim) => {
                accept(NOT_FOUND, copies.delete(&claim.name_any(), &DeleteParams::default()).await)?;
            }
            Event::InitDone if variant == Variant::Fixed => {
                for copy in copies.list(&ListParams::default().labels("app=bugs")).await? {
                    if !listed.contains(&copy.name_any()) {
                        accept(NOT_FOUND, copies.delete(&copy.name_any(), &DeleteParams::default()).await)?;
                    }
                }
            }
            Event::InitDone => {}
        }
    }
    Ok(())
}

pub(super) fn controller(variant: Variant) -> Simulation {
    let program = move |client| async move { copy(client, variant).await.map_err(|error| error.to_string()) };
    simulation(move |context| program(context.client()))
        // Without leader election, the last copy of an instance that is then killed may come after the deletion.
        .without_fault(FaultKind::SecondInstance)
        .without_fault(FaultKind::StaleLeader)
        .scenario(|world| async move {
            world.create(&claim("a", 1)).await?;
            world.create(&claim("b", 2)).await?;
            world.wait_until(|state| state.get::<ConfigMap>("default", "a").is_some()).await;
            world.sleep(Duration::from_secs(1)).await;
            world.delete::<Claim>("default", "a").await
        })
}

#[test]
fn finds_copy_of_deleted_claim() {
    find(controller(Variant::Buggy), &[Check::FinalState.name()]);
}

#[test]
fn survives_with_comparison_after_list() {
    survive(controller(Variant::Fixed));
}
