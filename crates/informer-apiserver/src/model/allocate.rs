//! What the server hands out to services: addresses and ports that no other service has.
//!
//! The ranges are those of the recorded server. The first free one is taken, so a run that is repeated gives the same ones.

use std::collections::BTreeSet;

use informer_objects::builtin::Wanted;
use informer_objects::status::StatusCause;
use serde_json::{Value, json};

use super::Model;
use super::resource::Resource;

/// Cluster addresses are `10.0.0.1` to `10.0.0.254`, as long as they last; then the ranges behind follow.
const FIRST_ADDRESS: u32 = 0x0a00_0000;

/// Ports of nodes.
const NODE_PORTS: std::ops::RangeInclusive<u64> = 30_000..=32_767;

impl Model {
    /// Gives a service what it needs and does not have. What it asks for must be free.
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
        let asked = service.pointer("/spec/clusterIP").and_then(Value::as_str).unwrap_or_default().to_owned();
        let had = old.and_then(|old| old.pointer("/spec/clusterIP")).and_then(Value::as_str);
        let fixed = !matches!(asked.as_str(), "" | "None") && had != Some(asked.as_str());
        let asked_ports = requested_ports(old, service);
        if wanted == Wanted::default() && !fixed && asked_ports.is_empty() {
            return Vec::new();
        }
        let (addresses, mut ports) = self.taken();
        if fixed && let Some(why) = not_free(&asked, &addresses) {
            let message = format!("Invalid value: [\"{asked}\"]: failed to allocate IP {asked}: {why}");
            return vec![StatusCause::new("FieldValueInvalid", "spec.clusterIPs", message)];
        }
        if let Some(cause) = port_not_free(&asked_ports, &ports) {
            return vec![cause];
        }
        ports.extend(asked_ports.iter().map(|asked| asked.port));
        if wanted.cluster_ip {
            // The first ones are for the server itself and for DNS.
            let free = (FIRST_ADDRESS + 16..u32::MAX).map(address).find(|free| !addresses.contains(free));
            let free = free.unwrap_or_default();
            service["spec"]["clusterIP"] = json!(free);
            service["spec"]["clusterIPs"] = json!([free]);
        }
        let mut next = || {
            let free = NODE_PORTS.into_iter().find(|port| !ports.contains(port)).unwrap_or(0);
            ports.insert(free);
            free
        };
        for place in &wanted.node_ports {
            service["spec"]["ports"][*place]["nodePort"] = json!(next());
        }
        if wanted.health_check_node_port {
            service["spec"]["healthCheckNodePort"] = json!(next());
        }
        Vec::new()
    }

    /// Addresses and ports that services have.
    fn taken(&self) -> (BTreeSet<String>, BTreeSet<u64>) {
        let (mut addresses, mut ports) = (BTreeSet::new(), BTreeSet::new());
        let place = self.registry.place("", "v1", "services");
        let services = place.and_then(|place| self.collections.get(&place.id));
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

/// Why an address cannot be had.
fn not_free(asked: &str, taken: &BTreeSet<String>) -> Option<&'static str> {
    let inside =
        asked.parse().is_ok_and(|asked: std::net::Ipv4Addr| u32::from(asked) >> 8 == FIRST_ADDRESS >> 8);
    if !inside {
        return Some("the provided network does not match the current range");
    }
    taken.contains(asked).then_some("provided IP is already allocated")
}

/// A port of nodes that a service asks for.
struct RequestedPort {
    /// Its place among the ports of the service.
    place: usize,
    protocol: String,
    port: u64,
}

/// The ports of nodes that a service asks for and did not have.
fn requested_ports(old: Option<&Value>, service: &Value) -> Vec<RequestedPort> {
    let ports = |service: &Value| -> Vec<RequestedPort> {
        let all = service["spec"]["ports"].as_array().into_iter().flatten().enumerate();
        let asked = all.filter_map(|(place, of)| {
            let port = of["nodePort"].as_u64().filter(|port| *port != 0)?;
            Some(RequestedPort {
                place,
                protocol: of["protocol"].as_str().unwrap_or_default().to_owned(),
                port,
            })
        });
        asked.collect()
    };
    let had: BTreeSet<u64> = old.map(ports).unwrap_or_default().iter().map(|had| had.port).collect();
    ports(service).into_iter().filter(|asked| !had.contains(&asked.port)).collect()
}

/// The first port that cannot be had. One service may have a port once for each protocol.
fn port_not_free(asked: &[RequestedPort], taken: &BTreeSet<u64>) -> Option<StatusCause> {
    let mut own = BTreeSet::new();
    asked.iter().find_map(|RequestedPort { place, protocol, port }| {
        let why = if !NODE_PORTS.contains(port) {
            let (first, last) = (NODE_PORTS.start(), NODE_PORTS.end());
            format!("provided port is not in the valid range. The range of valid ports is {first}-{last}")
        } else if taken.contains(port) || !own.insert((protocol, port)) {
            "provided port is already allocated".to_owned()
        } else {
            return None;
        };
        let field = format!("spec.ports[{place}].nodePort");
        Some(StatusCause::new("FieldValueInvalid", &field, format!("Invalid value: {port}: {why}")))
    })
}

fn address(number: u32) -> String {
    std::net::Ipv4Addr::from(number).to_string()
}
