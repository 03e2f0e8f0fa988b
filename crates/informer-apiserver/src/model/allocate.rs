//! Allocates cluster addresses and node ports to services.
//!
//! A requested value must be in kube-apiserver's default range: `10.0.0.0/24` for addresses, 30000 to 32767
//! for node ports. A value that is not requested is the first free one, so runs are reproducible. Unlike
//! kube-apiserver, this allocation of addresses does not end with the range: `10.0.1.0` follows `10.0.0.255`.

use std::collections::BTreeSet;

use informer_objects::builtin::Wanted;
use informer_objects::status::StatusCause;
use serde_json::{Value, json};

use super::Model;
use super::resource::Resource;

/// `10.0.0.0`, the first address of `10.0.0.0/24`.
const FIRST_ADDRESS: u32 = 0x0a00_0000;

/// The range of node ports.
const NODE_PORTS: std::ops::RangeInclusive<u64> = 30_000..=32_767;

impl Model {
    /// Sets the cluster address and the node ports that a service needs and does not have. Returns an error
    /// if a value that the service requests is not free. Ignores other resources.
    pub(super) fn allocate(
        &self,
        resource: &Resource,
        old: Option<&Value>,
        service: &mut Value,
    ) -> Vec<StatusCause> {
        if !resource.is("", "services") {
            return Vec::new();
        }
        let wanted = Wanted::by(service);
        let requested_address =
            service.pointer("/spec/clusterIP").and_then(Value::as_str).unwrap_or_default().to_owned();
        let old_address = old.and_then(|old| old.pointer("/spec/clusterIP")).and_then(Value::as_str);
        let requests_address = !matches!(requested_address.as_str(), "" | "None")
            && old_address != Some(requested_address.as_str());
        let requested_ports = requested_ports(old, service);
        if wanted == Wanted::default() && !requests_address && requested_ports.is_empty() {
            return Vec::new();
        }
        let (addresses, mut ports) = self.taken();
        if requests_address && let Some(why) = address_not_free(&requested_address, &addresses) {
            let message = format!(
                "Invalid value: [\"{requested_address}\"]: failed to allocate IP {requested_address}: {why}"
            );
            return vec![StatusCause::new("FieldValueInvalid", "spec.clusterIPs", message)];
        }
        if let Some(cause) = port_not_free(&requested_ports, &ports) {
            return vec![cause];
        }
        ports.extend(requested_ports.iter().map(|requested| requested.port));
        if wanted.cluster_ip {
            // As in kube-apiserver, the first 16 addresses are left for services that request one, such as
            // DNS.
            let free = (FIRST_ADDRESS + 16..u32::MAX).map(address).find(|free| !addresses.contains(free));
            let free = free.unwrap_or_default();
            service["spec"]["clusterIP"] = json!(free);
            service["spec"]["clusterIPs"] = json!([free]);
        }
        let mut next_port = || {
            let free = NODE_PORTS.into_iter().find(|port| !ports.contains(port)).unwrap_or(0);
            ports.insert(free);
            free
        };
        for index in &wanted.node_ports {
            service["spec"]["ports"][*index]["nodePort"] = json!(next_port());
        }
        if wanted.health_check_node_port {
            service["spec"]["healthCheckNodePort"] = json!(next_port());
        }
        Vec::new()
    }

    /// Returns the addresses and ports of all services.
    fn taken(&self) -> (BTreeSet<String>, BTreeSet<u64>) {
        let (mut addresses, mut ports) = (BTreeSet::new(), BTreeSet::new());
        let gvr = self.registry.resource("", "v1", "services");
        let services = gvr.and_then(|gvr| self.collections.get(&gvr.id));
        for service in services.into_iter().flat_map(|services| services.live().values()) {
            let spec = &service.decode()["spec"];
            addresses.extend(spec["clusterIP"].as_str().map(str::to_owned));
            ports.extend(spec["healthCheckNodePort"].as_u64());
            let all = spec["ports"].as_array().into_iter().flatten();
            ports.extend(all.filter_map(|port| port["nodePort"].as_u64()));
        }
        (addresses, ports)
    }
}

/// Returns the reason why an address cannot be allocated, or `None` if it can.
fn address_not_free(requested: &str, taken: &BTreeSet<String>) -> Option<&'static str> {
    let inside = requested
        .parse()
        .is_ok_and(|requested: std::net::Ipv4Addr| u32::from(requested) >> 8 == FIRST_ADDRESS >> 8);
    if !inside {
        return Some("the provided network does not match the current range");
    }
    taken.contains(requested).then_some("provided IP is already allocated")
}

/// A node port that a service requests.
struct RequestedPort {
    /// Index among the ports of the service.
    index: usize,
    protocol: String,
    port: u64,
}

/// Returns the node ports that a service requests and did not have before.
fn requested_ports(old: Option<&Value>, service: &Value) -> Vec<RequestedPort> {
    let ports = |service: &Value| -> Vec<RequestedPort> {
        let all = service["spec"]["ports"].as_array().into_iter().flatten().enumerate();
        let requested = all.filter_map(|(index, port_spec)| {
            let port = port_spec["nodePort"].as_u64().filter(|port| *port != 0)?;
            Some(RequestedPort {
                index,
                protocol: port_spec["protocol"].as_str().unwrap_or_default().to_owned(),
                port,
            })
        });
        requested.collect()
    };
    let old_ports: BTreeSet<u64> =
        old.map(ports).unwrap_or_default().iter().map(|requested| requested.port).collect();
    ports(service).into_iter().filter(|requested| !old_ports.contains(&requested.port)).collect()
}

/// Returns the error for the first port that cannot be allocated. A service may use a port once per protocol.
fn port_not_free(requested: &[RequestedPort], taken: &BTreeSet<u64>) -> Option<StatusCause> {
    let mut own = BTreeSet::new();
    requested.iter().find_map(|RequestedPort { index, protocol, port }| {
        let why = if !NODE_PORTS.contains(port) {
            let (first, last) = (NODE_PORTS.start(), NODE_PORTS.end());
            format!("provided port is not in the valid range. The range of valid ports is {first}-{last}")
        } else if taken.contains(port) || !own.insert((protocol, port)) {
            "provided port is already allocated".to_owned()
        } else {
            return None;
        };
        let field = format!("spec.ports[{index}].nodePort");
        Some(StatusCause::new("FieldValueInvalid", &field, format!("Invalid value: {port}: {why}")))
    })
}

fn address(number: u32) -> String {
    std::net::Ipv4Addr::from(number).to_string()
}
