//! Sets the condition `Ready` of claims that are within the quota. Other programs set other conditions. Written with
//! kube-rs's `Controller`.
//!
//! The bug: the patch contains the whole list of conditions as the cache shows it, and no resource version.
//!
//! The pattern: a stale read is written back. A condition that another program has set in the meantime is lost. In a
//! real cluster, an approval or the report of a node disappears, and what waits for it never continues.
//!
//! Fixed: the patch contains the resource version, so the server refuses it if the claim has changed.

use super::{
    Claim, Setting, Variant, api, claim, config_map, find, merge_status, run_kube, simulation, survive,
};
use informer_testkit::{Check, Simulation};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::runtime::controller::Action;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

fn set_condition(claim: &mut Claim, name: &str) {
    let conditions = &mut claim.status.get_or_insert_default().conditions;
    conditions.push(name.to_owned());
    conditions.sort();
}

async fn reconcile(claim: Arc<Claim>, setting: Arc<Setting>) -> kube::Result<Action> {
    let conditions = claim.status.iter().flat_map(|status| &status.conditions);
    if conditions.into_iter().any(|condition| condition == "Ready") {
        return Ok(Action::await_change());
    }
    let quota = api::<ConfigMap>(&setting.client).get("quota").await?;
    let limit = quota.data.as_ref().and_then(|data| data.get("size")?.parse().ok()).unwrap_or(0);
    if claim.spec.size > limit {
        return Ok(Action::requeue(Duration::from_secs(60)));
    }
    let mut changed = (*claim).clone();
    set_condition(&mut changed, "Ready");
    let mut patch = json!({"status": changed.status});
    if setting.variant == Variant::Fixed {
        patch["metadata"] = json!({"resourceVersion": claim.resource_version()});
    }
    merge_status(&setting.client, &claim.name_any(), patch).await?;
    Ok(Action::await_change())
}

fn controller(variant: Variant) -> Simulation {
    simulation(move |context| run_kube(context.client(), variant, reconcile))
        .setup(|server| drop(server.create(&config_map("quota", &[("size", "10".to_owned())]))))
        .scenario(|world| async move {
            world.create(&claim("a", 1)).await?;
            world.sleep(Duration::from_secs(1)).await;
            world.modify_status::<Claim>("default", "a", |claim| set_condition(claim, "Approved")).await
        })
}

#[test]
fn finds_overwritten_condition() {
    find(controller(Variant::Buggy), &[Check::FinalState.name()]);
}

#[test]
fn survives_with_resource_version() {
    survive(controller(Variant::Fixed));
}
