//! Small programs and objects that the tests share.

use std::time::Duration;

use informer_testkit::{ProgramContext, Simulation, Status, World};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, PostParams};
use serde_json::json;

pub(crate) fn map(name: &str, label: &str) -> ConfigMap {
    let map = json!({"metadata": {"name": name, "namespace": "default", "labels": {"role": label}}, "data": {"k": "1"}});
    serde_json::from_value(map).unwrap()
}

pub(crate) fn maps(client: kube::Client) -> Api<ConfigMap> {
    Api::namespaced(client, "default")
}

pub(crate) fn name_of(map: &ConfigMap) -> String {
    map.metadata.name.clone().unwrap()
}

/// Waits for some seconds of virtual time.
pub(crate) async fn pause(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// Creates a copy of each source, and ignores copies that exist.
pub(crate) async fn copy(client: kube::Client) -> Result<(), kube::Error> {
    let maps = maps(client);
    loop {
        for source in maps.list(&ListParams::default().labels("role=source")).await? {
            let copy = map(&format!("{}-copy", name_of(&source)), "copy");
            match maps.create(&PostParams::default(), &copy).await {
                Err(kube::Error::Api(status)) if status.is_already_exists() => {}
                result => drop(result?),
            }
        }
        pause(10).await;
    }
}

/// A correct program with a scenario of two steps.
pub(crate) fn copy_simulation() -> Simulation {
    Simulation::new(|context: ProgramContext| copy(context.client())).scenario(two_sources)
}

pub(crate) async fn two_sources(world: World) -> Result<(), Status> {
    world.create(&map("a", "source")).await?;
    world.create(&map("b", "source")).await.map(drop)
}
