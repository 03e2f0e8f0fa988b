//! The objects of a new server: namespaces, priority classes, and the service `kubernetes`, through which
//! programs in a cluster find the server.
//!
//! kube-apiserver creates the same objects. The model does not know on which address the server listens, so
//! the endpoint of the service is not real.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Model, WriteContext, WriteOrigin};

/// Namespaces that every server has.
const NAMESPACES: &[&str] = &["kube-system", "kube-public", "default", "kube-node-lease"];

/// The address of the service `kubernetes`: the first one of the range from which services get theirs.
const SERVICE_ADDRESS: &str = "10.0.0.1";

/// The endpoint of the service `kubernetes`: an address for documentation (RFC 5737), which no machine has.
/// Loopback addresses are not valid in endpoints.
const ENDPOINT_ADDRESS: &str = "192.0.2.1";

/// The port of the endpoint: kube-apiserver's default.
const ENDPOINT_PORT: u16 = 6443;

impl Model {
    /// Creates the objects of a new server.
    pub(super) fn create_initial_objects(&mut self, now: Timestamp) {
        for name in NAMESPACES {
            self.create_initial_object(now, ("", "namespaces"), "", json!({"metadata": {"name": name}}));
        }
        self.create_priority_classes(now);
        self.create_kubernetes_service(now);
    }

    /// Creates the service `kubernetes` and its endpoints, in both representations.
    fn create_kubernetes_service(&mut self, now: Timestamp) {
        let mut create = |resource, labels: Value, mut object: Value| {
            object["metadata"] = json!({"name": "kubernetes", "labels": labels});
            self.create_initial_object(now, resource, "default", object);
        };
        let port = json!({"name": "https", "protocol": "TCP", "port": 443, "targetPort": ENDPOINT_PORT});
        let labels = json!({"component": "apiserver", "provider": "kubernetes"});
        let spec = json!({"clusterIP": SERVICE_ADDRESS, "ports": [port]});
        create(("", "services"), labels, json!({"spec": spec}));
        let port = json!({"name": "https", "protocol": "TCP", "port": ENDPOINT_PORT});
        let endpoint = json!({"addresses": [ENDPOINT_ADDRESS], "conditions": {"ready": true}});
        let slice = json!({"addressType": "IPv4", "endpoints": [endpoint], "ports": [port]});
        create(
            ("discovery.k8s.io", "endpointslices"),
            json!({"kubernetes.io/service-name": "kubernetes"}),
            slice,
        );
        let subset = json!({"addresses": [{"ip": ENDPOINT_ADDRESS}], "ports": [port]});
        let labels = json!({"endpointslice.kubernetes.io/skip-mirror": "true"});
        create(("", "endpoints"), labels, json!({"subsets": [subset]}));
    }

    fn create_initial_object(
        &mut self,
        now: Timestamp,
        (group, plural): (&str, &str),
        namespace: &str,
        object: Value,
    ) {
        let Some(gvr) = self.registry.resource(group, "v1", plural) else { return };
        let context = WriteContext::at(now, "kube-apiserver");
        let created = self.create(&context, gvr, namespace, object, WriteOrigin::Internal);
        debug_assert!(created.is_ok(), "{plural}: {created:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::super::HistoryLimits;
    use super::*;

    fn spec_of_new_service(model: &mut Model, spec: &Value) -> Result<Value, String> {
        let services = model.registry.resource("", "v1", "services").unwrap();
        let context = WriteContext::at(Timestamp::UNIX_EPOCH, "test");
        let object = json!({"metadata": {"name": "s"}, "spec": spec});
        let created = model.create(&context, services, "default", object, WriteOrigin::Internal);
        created.map(|created| created.state.decode()["spec"].clone()).map_err(|status| status.message)
    }

    /// Bug: a new server had no service `kubernetes`, so clients that look for the address of the server did
    /// not find it, and another service could take its address. No test listed the services of a new server.
    #[test]
    fn service_kubernetes_exists_and_keeps_its_address() {
        let mut model = Model::new(Timestamp::UNIX_EPOCH, 1, HistoryLimits::default());
        let get = |group, plural| {
            let gvr = model.registry.resource(group, "v1", plural).unwrap();
            model.get(gvr, "default", "kubernetes").unwrap().decode()
        };
        let service = get("", "services");
        let recorded = json!({
            "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": 6443}],
            "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "type": "ClusterIP", "sessionAffinity": "None",
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "internalTrafficPolicy": "Cluster",
        });
        assert_eq!(service["spec"], recorded);
        assert_eq!(service["status"], json!({"loadBalancer": {}}));
        let owner = &service["metadata"]["managedFields"][0];
        assert_eq!((&owner["manager"], &owner["operation"]), (&json!("kube-apiserver"), &json!("Update")));
        let slice = get("discovery.k8s.io", "endpointslices");
        assert_eq!(slice["metadata"]["labels"]["kubernetes.io/service-name"], "kubernetes");
        assert_eq!(slice["metadata"]["generation"], 1);
        assert_eq!(
            (&slice["ports"][0]["port"], &get("", "endpoints")["subsets"][0]["ports"][0]["port"]),
            (&json!(6443), &json!(6443))
        );

        let spec = json!({"ports": [{"port": 80}], "clusterIP": "10.0.0.1"});
        let refusal = spec_of_new_service(&mut model, &spec).unwrap_err();
        assert!(refusal.contains("provided IP is already allocated"), "{refusal}");
        let other = spec_of_new_service(&mut model, &json!({"ports": [{"port": 80}]})).unwrap();
        assert_ne!(other["clusterIP"], "10.0.0.1");
    }
}
