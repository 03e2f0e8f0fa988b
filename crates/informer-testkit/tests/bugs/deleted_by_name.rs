//! Deletes sessions five seconds after they have expired. Written with kube-rs's `Controller`.
//!
//! The bug: the deletion names the session, but not its uid.
//!
//! The pattern: a missing precondition. If the cache is behind, the user has deleted the expired session and created
//! a new one of the same name, which the deletion then hits. In a real cluster, the data of the new object is lost.
//!
//! Fixed: the uid of the session that has expired is a precondition of the deletion.

use super::{CONFLICT, NOT_FOUND, Variant, accept, api, config_map, find, simulation, survive};
use futures::StreamExt as _;
use informer_testkit::{Check, ProgramContext, Simulation};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Preconditions};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::watcher;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

const EXPIRY_DELAY: Duration = Duration::from_secs(5);

struct Sessions {
    client: kube::Client,
    variant: Variant,
    /// When each expired session, by its uid, is to be deleted.
    due: Mutex<HashMap<String, Instant>>,
}

async fn reconcile(session: Arc<ConfigMap>, sessions: Arc<Sessions>) -> kube::Result<Action> {
    let has_expired = session.data.as_ref().is_some_and(|data| data.contains_key("expired"));
    let Some(uid) = session.uid().filter(|_| has_expired) else { return Ok(Action::await_change()) };
    let now = Instant::now();
    let due = *sessions.due.lock().unwrap().entry(uid.clone()).or_insert(now + EXPIRY_DELAY);
    if now < due {
        return Ok(Action::requeue(due - now));
    }
    let params = match sessions.variant {
        Variant::Buggy => DeleteParams::default(),
        Variant::Fixed => DeleteParams::default()
            .preconditions(Preconditions { uid: Some(uid), ..Preconditions::default() }),
    };
    let deleted = api::<ConfigMap>(&sessions.client).delete(&session.name_any(), &params).await;
    accept(NOT_FOUND, deleted).or_else(|error| accept::<()>(CONFLICT, Err(error)))?;
    Ok(Action::await_change())
}

fn controller(variant: Variant) -> Simulation {
    let program = move |context: ProgramContext| async move {
        let client = context.client();
        let sessions = Arc::new(Sessions { client: client.clone(), variant, due: Mutex::default() });
        Controller::new(api::<ConfigMap>(&client), watcher::Config::default().labels("app=bugs"))
            .run(reconcile, |_, _, _| Action::requeue(Duration::from_secs(5)), sessions)
            .for_each(|_| std::future::ready(()))
            .await;
    };
    simulation(program).scenario(|world| async move {
        world.create(&config_map("session", &[("expired", "true".to_owned())])).await?;
        world.delete::<ConfigMap>("default", "session").await?;
        world.create(&config_map("session", &[])).await?;
        world.create(&config_map("old", &[("expired", "true".to_owned())])).await.map(drop)
    })
}

#[test]
fn finds_deletion_of_the_successor() {
    find(controller(Variant::Buggy), &[Check::DeletedIncarnation.name(), Check::FinalState.name()]);
}

#[test]
fn survives_with_uid_as_precondition() {
    survive(controller(Variant::Fixed));
}
