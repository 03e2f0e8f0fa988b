//! Gives each claim a number from a pool: takes the next number of the pool, then writes it into the status of the
//! claim. Written with this library's `Controller`.
//!
//! The bug: the pool does not record for which claim a number was taken.
//!
//! The pattern: a crash between two writes. If the second write fails, with a conflict for example, or the program
//! dies before it, the next reconcile takes another number. In a real cluster the pool, of addresses or ports, runs
//! empty.
//!
//! Fixed: the same write that takes a number records the claim in the pool, and a reconcile looks there first.

use super::{Claim, Variant, api, claim, config_map, find, id_of, simulation, survive};
use informer::controller::{Context, Controller, Outcome};
use informer::{Key, SharedInformerFactory};
use informer_testkit::{Check, ProgramContext, Simulation, State};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use serde_json::json;

type Error = Box<dyn std::error::Error + Send + Sync>;

async fn reconcile(key: Key, ctx: Context<(kube::Client, Variant)>) -> Result<Outcome, Error> {
    let Some(claim) = ctx.lister::<Claim>().get_by_key(&key) else { return Ok(Outcome::Done) };
    let claim = claim.typed()?;
    if id_of(&claim).is_some() {
        return Ok(Outcome::Done);
    }
    let (client, variant) = ctx.state();
    let pools = api::<ConfigMap>(client);
    let mut pool = pools.get("pool").await?;
    let numbers = pool.data.get_or_insert_default();
    let taken = numbers.get(key.name()).filter(|_| *variant == Variant::Fixed).cloned();
    let id: i64 = if let Some(id) = taken {
        id.parse()?
    } else {
        let id: i64 = numbers.get("next").ok_or("the pool is broken")?.parse()?;
        numbers.insert("next".to_owned(), (id + 1).to_string());
        if *variant == Variant::Fixed {
            numbers.insert(key.name().to_owned(), id.to_string());
        }
        pools.replace("pool", &PostParams::default(), &pool).await?;
        id
    };
    ctx.patch_status(&*claim, &json!({"id": id})).await?;
    Ok(Outcome::Done)
}

fn controller(variant: Variant) -> Simulation {
    let program = move |context: ProgramContext| async move {
        let factory = SharedInformerFactory::new(context.client());
        context.register(&factory);
        Controller::new::<Claim>(&factory).state((context.client(), variant)).run(reconcile).await
    };
    let has_id = |state: &State, name: &str| {
        state.get::<Claim>("default", name).is_some_and(|claim| id_of(&claim).is_some())
    };
    simulation(program)
        .setup(|server| drop(server.create(&config_map("pool", &[("next", "1".to_owned())]))))
        .scenario(move |world| async move {
            world.create(&claim("a", 1)).await?;
            world.wait_until(|state| has_id(state, "a")).await;
            world.create(&claim("b", 1)).await.map(drop)
        })
}

#[test]
fn finds_lost_number_after_crash() {
    find(controller(Variant::Buggy), &[Check::FinalState.name()]);
}

#[test]
fn survives_with_recorded_owner() {
    survive(controller(Variant::Fixed));
}
