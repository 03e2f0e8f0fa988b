//! Gives each claim a number that no other claim has. A ledger records all numbers. Between reading and writing the
//! ledger, the controller asks a slow external service. A plain loop over `kube::Api`.
//!
//! The bug: the ledger is replaced without its resource version, because "there is only one instance".
//!
//! The pattern: two instances at the same time, after an upgrade without leader election, or because a leader was
//! suspended and does not know that its lease has passed to another one. Both write the ledger; two claims get the same
//! number. In a real cluster, two machines get the same address.
//!
//! Fixed: the update of the ledger contains the resource version, so only one of two instances succeeds.

use super::{Claim, Variant, api, claim, config_map, find, id_of, merge_status, simulation, survive};
use informer_testkit::{Check, Simulation, State};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::{ListParams, PostParams};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;

async fn round(client: &kube::Client, variant: Variant) -> kube::Result<()> {
    let (claims, ledgers) = (api::<Claim>(client), api::<ConfigMap>(client));
    let mut ledger = ledgers.get("ledger").await?;
    let claims = claims.list(&ListParams::default()).await?;
    let numbers = ledger.data.get_or_insert_default();
    for claim in &claims {
        let next = (numbers.len() + 1).to_string();
        numbers.entry(claim.name_any()).or_insert(next);
    }
    tokio::time::sleep(Duration::from_secs(1)).await; // asks the external service
    if variant == Variant::Buggy {
        ledger.metadata.resource_version = None;
    }
    if claims.iter().any(|claim| id_of(claim).is_none()) {
        ledgers.replace("ledger", &PostParams::default(), &ledger).await?;
    }
    for claim in claims.iter().filter(|claim| id_of(claim).is_none()) {
        let number = ledger.data.as_ref().and_then(|data| data.get(&claim.name_any())?.parse::<i64>().ok());
        merge_status(client, &claim.name_any(), json!({"status": {"id": number}})).await?;
    }
    Ok(())
}

async fn run(client: kube::Client, variant: Variant) {
    loop {
        // The next round repeats what has failed.
        let _failed = round(&client, variant).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

fn has_unique_numbers(state: &State) -> Result<(), String> {
    let mut numbers = BTreeSet::new();
    let claims = state.list::<Claim>();
    let repeated = claims.iter().filter_map(|claim| id_of(claim)).find(|number| !numbers.insert(*number));
    repeated.map_or(Ok(()), |number| Err(format!("two claims have the number {number}")))
}

pub(super) fn controller(variant: Variant) -> Simulation {
    simulation(move |context| run(context.client(), variant))
        .setup(|server| drop(server.create(&config_map("ledger", &[]))))
        .scenario(|world| async move {
            for name in ["d", "c", "b", "a"] {
                world.create(&claim(name, 1)).await?;
            }
            Ok::<_, informer_apiserver::Status>(())
        })
        .always("numbers are unique", has_unique_numbers)
        .eventually("each claim has a number", |state| {
            state.list::<Claim>().iter().all(|claim| id_of(claim).is_some())
        })
        // Which claim gets which number depends on time.
        .without_check(Check::FinalState)
}

#[test]
fn finds_number_given_twice() {
    find(controller(Variant::Buggy), &["numbers are unique"]);
}

#[test]
fn survives_with_resource_version_of_ledger() {
    survive(controller(Variant::Fixed));
}
