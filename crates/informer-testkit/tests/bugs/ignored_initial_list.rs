//! Keeps the size of a volume equal to that of its claim. Written with this library's `Controller`.
//!
//! The bug: a predicate ignores the objects of the initial list, to avoid a wave of reconciles at the start.
//!
//! The pattern: a change that is never observed. A claim that was changed while the program was down is part of the
//! initial list, and stays unhandled until it is changed again. In a real cluster, an upgrade of the operator loses
//! the changes that users make at the same time.
//!
//! Fixed: no predicate. The reconcile function compares the states, so it need not know what has changed.

use super::{Claim, Variant, claim, config_map, find, simulation, survive};
use informer::controller::{Context, Controller, Outcome};
use informer::{Event, Key, SharedInformerFactory};
use informer_testkit::{Check, ProgramContext, Simulation};
use std::time::Duration;

type Error = Box<dyn std::error::Error + Send + Sync>;

async fn reconcile(key: Key, ctx: Context) -> Result<Outcome, Error> {
    let Some(claim) = ctx.lister::<Claim>().get_by_key(&key) else { return Ok(Outcome::Done) };
    let claim = claim.typed()?;
    ctx.apply(&*claim, config_map(key.name(), &[("size", claim.spec.size.to_string())])).await?;
    Ok(Outcome::Done)
}

fn controller(variant: Variant) -> Simulation {
    let program = move |context: ProgramContext| async move {
        let factory = SharedInformerFactory::new(context.client());
        context.register(&factory);
        let mut controller = Controller::new::<Claim>(&factory).field_manager("bugs");
        if variant == Variant::Buggy {
            controller =
                controller.with_predicate(|event| !matches!(event, Event::Added { initial: true, .. }));
        }
        controller.run(reconcile).await
    };
    simulation(program).scenario(|world| async move {
        // The program is running when the first claim is created.
        world.sleep(Duration::from_secs(1)).await;
        world.create(&claim("a", 1)).await?;
        world.modify::<Claim>("default", "a", |claim| claim.spec.size = 2).await?;
        world.modify::<Claim>("default", "a", |claim| claim.spec.size = 3).await
    })
}

#[test]
fn finds_change_during_restart() {
    find(controller(Variant::Buggy), &[Check::FinalState.name()]);
}

#[test]
fn survives_without_predicate() {
    survive(controller(Variant::Fixed));
}
