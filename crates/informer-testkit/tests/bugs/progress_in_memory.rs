//! Keeps as many members as the claim asks for. Surplus members are drained first and deleted in the next round. A
//! plain loop over `kube::Api`.
//!
//! The bug: only the memory of the program knows which members it has drained. A member that is marked as drained, and
//! is not in memory, is taken for one that somebody else drains.
//!
//! The pattern: progress that does not survive a restart. In a real cluster, a scale-down stops halfway: members stay
//! drained, use resources and serve nothing.
//!
//! Fixed: the mark on the member is the progress.

use super::{
    ALREADY_EXISTS, Claim, NOT_FOUND, Variant, accept, api, claim, config_map, find, simulation, survive,
};
use informer_testkit::{Check, Simulation};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;

async fn round(client: &kube::Client, variant: Variant, drained: &mut BTreeSet<String>) -> kube::Result<()> {
    let members: Api<ConfigMap> = api(client);
    let claim = api::<Claim>(client).get("a").await?;
    let existing = members.list(&ListParams::default().labels("app=bugs")).await?;
    let wanted: Vec<String> = (0..claim.spec.size).map(|number| format!("a-{number}")).collect();
    for name in &wanted {
        if !existing.iter().any(|member| member.name_any() == *name) {
            accept(ALREADY_EXISTS, members.create(&PostParams::default(), &config_map(name, &[])).await)?;
        }
    }
    for member in existing.iter().filter(|member| !wanted.contains(&member.name_any())) {
        let name = member.name_any();
        let is_marked = member.annotations().contains_key("drained");
        let can_be_deleted = match variant {
            Variant::Buggy => drained.contains(&name),
            Variant::Fixed => is_marked,
        };
        if can_be_deleted {
            accept(NOT_FOUND, members.delete(&name, &DeleteParams::default()).await)?;
            drained.remove(&name);
        } else if !is_marked {
            let mark = Patch::Merge(json!({"metadata": {"annotations": {"drained": "true"}}}));
            members.patch(&name, &PatchParams::default(), &mark).await?;
            drained.insert(name);
        }
    }
    Ok(())
}

async fn run(client: kube::Client, variant: Variant) {
    let mut drained = BTreeSet::new();
    loop {
        // The next round repeats what has failed.
        let _failed = round(&client, variant, &mut drained).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
}

fn controller(variant: Variant) -> Simulation {
    simulation(move |context| run(context.client(), variant))
        // A loop needs only a few rounds.
        .settle_timeout(Duration::from_secs(300))
        .scenario(|world| async move {
            world.create(&claim("a", 3)).await?;
            world.wait_until(|state| state.get::<ConfigMap>("default", "a-2").is_some()).await;
            world.modify::<Claim>("default", "a", |claim| claim.spec.size = 1).await
        })
}

#[test]
fn finds_member_that_stays_drained() {
    find(controller(Variant::Buggy), &[Check::FinalState.name()]);
}

#[test]
fn survives_with_progress_in_objects() {
    survive(controller(Variant::Fixed));
}
