//! The six fields of a pod that a walk reads: phase, node, images, restarts, requests and owner.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Reads the fields of a decoded pod and returns a sum, which is the same in all programs: lengths of texts,
/// restarts, and one for each request of CPU and memory.
pub fn sum_of_fields(pod: &Pod) -> usize {
    let (spec, status) = (pod.spec.as_ref(), pod.status.as_ref());
    let phase = status.and_then(|status| status.phase.as_deref()).map_or(0, str::len);
    let node = spec.and_then(|spec| spec.node_name.as_deref()).map_or(0, str::len);
    let containers = spec.map_or(&[][..], |spec| &spec.containers);
    let statuses = status.and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
    let restarts = statuses.iter().map(|status| usize::try_from(status.restart_count).unwrap_or(0));
    let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
    let owner = owners.iter().map(|owner| owner.name.len());
    phase + node + containers.iter().map(container_sum).sum::<usize>() + restarts.chain(owner).sum::<usize>()
}

fn container_sum(container: &Container) -> usize {
    let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let requested = |requests: &BTreeMap<String, Quantity>| {
        ["cpu", "memory"].iter().filter(|name| requests.get(**name).is_some_and(|size| size.0 != "0")).count()
    };
    container.image.as_ref().map_or(0, String::len) + requests.map_or(0, requested)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_counts() {
        let pod = serde_json::json!({
            "metadata": {"ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "1"}]},
            "spec": {"nodeName": "node", "containers": [
                {"name": "a", "image": "nginx", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}},
                {"name": "b", "resources": {"requests": {"cpu": "0"}}},
            ]},
            "status": {"phase": "Running", "containerStatuses": [
                {"name": "a", "image": "nginx", "imageID": "", "ready": true, "restartCount": 30},
            ]},
        });
        let pod: Pod = serde_json::from_value(pod).unwrap();
        assert_eq!(
            sum_of_fields(&pod),
            "web".len() + "node".len() + "nginx".len() + 2 + 30 + "Running".len()
        );
    }
}
