//! Members of one group in one runtime with a paused clock, and their objects on the embedded server.

pub(crate) use crate::shard_members::{Groups, Member, acting};
use informer::shard::{ShardGroup, ShardGroupBuilder};
use informer_apiserver::ApiServer;
use serde_json::Value;
use std::time::Duration;
use tokio::time::Instant;

pub(crate) const NAMESPACE: &str = "default";

impl Member {
    pub(crate) fn start(server: &ApiServer, groups: &Groups, identity: &str) -> Self {
        Self::start_with(server, groups, identity, |builder| builder)
    }

    pub(crate) fn start_with(
        server: &ApiServer,
        groups: &Groups,
        identity: &str,
        set: impl FnOnce(ShardGroupBuilder) -> ShardGroupBuilder,
    ) -> Self {
        let builder = ShardGroup::builder(server.client(), NAMESPACE, "shop").identity(identity);
        groups.run(set(builder).build().unwrap())
    }
}

pub(crate) async fn pass(duration: Duration) {
    tokio::time::sleep_until(Instant::now() + duration).await;
}

pub(crate) fn lease(server: &ApiServer, identity: &str) -> Option<Value> {
    let name = format!("shop-{identity}");
    server.get("coordination.k8s.io/v1", "leases", Some(NAMESPACE), &name)
}

pub(crate) fn delete_lease(server: &ApiServer, identity: &str) {
    let name = format!("shop-{identity}");
    server.delete("coordination.k8s.io/v1", "leases", Some(NAMESPACE), &name).unwrap();
}

pub(crate) fn assignment(server: &ApiServer) -> Option<Value> {
    server.get("v1", "configmaps", Some(NAMESPACE), "shop-assignment")
}
