//! The projection: phase, node, images, restarts, requests and owner of a pod.

use serde::Deserialize;

#[derive(Deserialize)]
pub(crate) struct PodLite {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    owner_references: Vec<Owner>,
}

#[derive(Deserialize)]
struct Owner {
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    node_name: Option<String>,
    containers: Vec<Container>,
}

#[derive(Deserialize)]
struct Container {
    image: Option<String>,
    #[serde(default)]
    resources: Resources,
}

#[derive(Default, Deserialize)]
struct Resources {
    #[serde(default)]
    requests: Requests,
}

#[derive(Default, Deserialize)]
struct Requests {
    cpu: Option<String>,
    memory: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    phase: Option<String>,
    #[serde(default)]
    container_statuses: Vec<ContainerStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContainerStatus {
    restart_count: u32,
}

impl PodLite {
    pub(crate) fn has_containers(&self) -> bool {
        !self.spec.containers.is_empty()
    }

    /// Reads all fields and returns the same sum as [`peer_protocol::sum_of_fields`].
    pub(crate) fn sum_of_fields(&self) -> usize {
        let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let requested = |text: &Option<String>| usize::from(text.as_ref().is_some_and(|size| size != "0"));
        let containers = self.spec.containers.iter().map(|container| {
            let Requests { cpu, memory } = &container.resources.requests;
            length(&container.image) + requested(cpu) + requested(memory)
        });
        let restarts = self.status.container_statuses.iter().map(|status| status.restart_count as usize);
        let owners = self.metadata.owner_references.iter().map(|owner| owner.name.len());
        length(&self.status.phase)
            + length(&self.spec.node_name)
            + containers.chain(restarts).chain(owners).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sum_equals_that_of_the_whole_pod() {
        let pod = serde_json::json!({
            "metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ReplicaSet", "name": "web", "uid": "1"}]},
            "spec": {"nodeName": "node", "containers": [
                {"name": "a", "image": "nginx", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}},
                {"name": "b", "resources": {"requests": {"cpu": "0"}}},
            ]},
            "status": {"phase": "Running", "containerStatuses": [
                {"name": "a", "image": "nginx", "imageID": "", "ready": true, "restartCount": 30},
            ]},
        });
        let lite: PodLite = serde_json::from_value(pod.clone()).unwrap();
        let whole = serde_json::from_value(pod).unwrap();
        assert_eq!(lite.sum_of_fields(), peer_protocol::sum_of_fields(&whole));
        assert!(lite.has_containers());
    }
}
