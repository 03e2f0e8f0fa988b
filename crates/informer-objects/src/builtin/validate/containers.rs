//! Containers of pods: names, ports, environment, mounts, probes, resources.

use std::collections::{BTreeMap, BTreeSet};

use super::meta::non_negative;
use super::report::{Place, Report, quoted};
use crate::text::{Quantity, formats};

const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];
const STANDARD_RESOURCES: &[&str] = &["cpu", "ephemeral-storage", "memory"];
const HANDLERS: &[&str] = &["exec", "httpGet", "tcpSocket", "grpc", "sleep"];

/// Volumes of the pod by name, with whether they can be block devices.
pub(super) type Volumes<'a> = BTreeMap<&'a str, bool>;

/// The containers of a pod in the order in which a server looks at them.
pub(super) fn all(spec: &Place<'_>, volumes: &Volumes<'_>, report: &mut Report) {
    let containers = spec.each("containers");
    if containers.is_empty() {
        report.required(&spec.at("containers"), "");
    }
    let mut names = BTreeSet::new();
    let mut host_ports = BTreeSet::new();
    for container in &containers {
        common(container, volumes, report);
        if !names.insert(container.at("name").text()) {
            report.duplicate(&container.at("name"));
        }
        lifecycle(container, report);
    }
    for container in &containers {
        host_port_conflicts(container, &mut host_ports, report);
    }
    for container in spec.each("initContainers") {
        common(&container, volumes, report);
        let name = container.at("name");
        if !names.insert(name.text()) && !name.is_empty() {
            report.duplicate(&name);
        }
        if container.at("restartPolicy").text() == "Always" {
            lifecycle(&container, report);
        } else {
            for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                let place = container.at(field);
                if place.is_set() {
                    report
                        .forbidden(&place, "may not be set for init containers without restartPolicy=Always");
                }
            }
        }
    }
    ephemeral(spec, names, volumes, report);
}

/// What an ephemeral container cannot have, in the order of its type.
const NOT_EPHEMERAL: &[&str] = &[
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
];

/// Containers that look into others.
fn ephemeral<'a>(spec: &Place<'a>, mut names: BTreeSet<&'a str>, volumes: &Volumes<'_>, report: &mut Report) {
    let others = names.clone();
    for container in spec.each("ephemeralContainers") {
        common(&container, volumes, report);
        let (name, target) = (container.at("name"), container.at("targetContainerName"));
        if !names.insert(name.text()) {
            report.duplicate(&name);
        }
        if !target.is_empty() && !others.contains(target.text()) {
            report.not_found(&target);
        }
        let why = "cannot be set for an Ephemeral Container";
        for place in NOT_EPHEMERAL.iter().map(|field| container.at(field)).filter(|place| !place.is_empty()) {
            report.forbidden(&place, why);
        }
        for mount in container.each("volumeMounts") {
            for place in [mount.at("subPath"), mount.at("subPathExpr")] {
                if !place.is_empty() {
                    report.forbidden(&place, why);
                }
            }
        }
    }
}

fn common(container: &Place<'_>, volumes: &Volumes<'_>, report: &mut Report) {
    let name = container.at("name");
    if name.is_empty() {
        report.required(&name, "");
    } else {
        report.invalid_each(&name, name.text(), formats::dns_label(name.text()));
    }
    if container.at("image").is_empty() {
        report.required(&container.at("image"), "");
    }
    let policy = container.at("terminationMessagePolicy");
    one_of(&policy, &["File", "FallbackToLogsOnError"], report);
    ports(container, report);
    environment(container, report);
    mounts(container, volumes, report);
    devices(container, volumes, report);
    one_of(&container.at("imagePullPolicy"), &["Always", "IfNotPresent", "Never"], report);
    resources(&container.at("resources"), report);
}

/// A field that must have one of these values.
pub(super) fn one_of(place: &Place<'_>, values: &[&str], report: &mut Report) {
    if place.is_empty() {
        report.required(place, "");
    } else if !values.contains(&place.text()) {
        report.unsupported(place, values);
    }
}

fn ports(container: &Place<'_>, report: &mut Report) {
    let mut names = BTreeSet::new();
    for port in container.each("ports") {
        let name = port.at("name");
        if !name.is_empty() {
            let wrong = formats::port_name(name.text());
            if !wrong.is_empty() {
                report.invalid_each(&name, name.text(), wrong);
            } else if !names.insert(name.text()) {
                report.duplicate(&name);
            }
        }
        let number = port.at("containerPort");
        if number.number() == 0 {
            report.required(&number, "");
        } else {
            port_number(&number, report);
        }
        if port.at("hostPort").number() != 0 {
            port_number(&port.at("hostPort"), report);
        }
        one_of(&port.at("protocol"), PROTOCOLS, report);
    }
}

/// A port must be between 1 and 65535.
pub(super) fn port_number(place: &Place<'_>, report: &mut Report) {
    for why in formats::port_number(place.number()) {
        report.invalid_value(place, &place.number().to_string(), &why);
    }
}

/// A port by number or by name.
pub(super) fn port_or_name(place: &Place<'_>, report: &mut Report) {
    match place.value.as_str() {
        Some(name) => report.invalid_each(place, name, formats::port_name(name)),
        None => port_number(place, report),
    }
}

fn host_port_conflicts(container: &Place<'_>, seen: &mut BTreeSet<String>, report: &mut Report) {
    for port in container.each("ports") {
        let number = port.at("hostPort");
        if number.number() == 0 {
            continue;
        }
        let (ip, protocol) = (port.at("hostIP").text(), port.at("protocol").text());
        let key = format!("{protocol}/{ip}/{}", number.number());
        if !seen.insert(key.clone()) {
            let message = format!("Duplicate value: {}", quoted(&key));
            report.causes.push(crate::status::StatusCause::new("FieldValueDuplicate", &number.path, message));
        }
    }
}

fn environment(container: &Place<'_>, report: &mut Report) {
    for variable in container.each("env") {
        let name = variable.at("name");
        if name.is_empty() {
            report.required(&name, "");
        } else {
            report.invalid_each(&name, name.text(), formats::env_name(name.text()));
        }
        let from = variable.at("valueFrom");
        if !from.is_set() {
            continue;
        }
        let sources = ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"];
        let given: Vec<Place<'_>> =
            sources.iter().map(|source| from.at(source)).filter(Place::is_set).collect();
        for source in &given {
            reference(source, report);
        }
        if given.is_empty() {
            let why = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
            report.invalid_text(&from, "", why);
        } else if !variable.at("value").is_empty() {
            report.invalid_text(&from, "", "may not be specified when `value` is not empty");
        } else if given.len() > 1 {
            report.invalid_text(&from, "", "may not have more than one field specified at a time");
        }
    }
    for source in container.each("envFrom") {
        let prefix = source.at("prefix");
        if !prefix.is_empty() {
            report.invalid_each(&prefix, prefix.text(), formats::env_name(prefix.text()));
        }
        let given: Vec<Place<'_>> = ["configMapRef", "secretRef"]
            .iter()
            .map(|field| source.at(field))
            .filter(Place::is_set)
            .collect();
        for reference in &given {
            if reference.at("name").is_empty() {
                report.required(&reference.at("name"), "");
            }
        }
        let list = container.at("envFrom");
        match given.len() {
            0 => report.invalid_text(&list, "", "must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => report.invalid_text(&list, "", "may not have more than one field specified at a time"),
        }
    }
}

/// What the value of a variable is taken from.
fn reference(source: &Place<'_>, report: &mut Report) {
    let wanted: &[&str] = match source.path.rsplit('.').next() {
        Some("fieldRef") => &["apiVersion", "fieldPath"],
        Some("resourceFieldRef") => &["resource"],
        Some("fileKeyRef") => &["key", "path", "volumeName"],
        _ => &["name", "key"],
    };
    for field in wanted {
        let place = source.at(field);
        if place.is_empty() {
            report.required(&place, "");
        } else if *field == "key" && wanted.contains(&"name") {
            report.invalid_each(&place, place.text(), formats::config_key(place.text()));
        }
    }
}

fn mounts(container: &Place<'_>, volumes: &Volumes<'_>, report: &mut Report) {
    let mut paths = BTreeSet::new();
    let list = container.at("volumeMounts");
    for mount in container.each("volumeMounts") {
        let (name, path) = (mount.at("name"), mount.at("mountPath"));
        if name.is_empty() {
            report.required(&name, "");
        }
        if !volumes.contains_key(name.text()) {
            report.not_found(&name);
        }
        if path.is_empty() {
            report.required(&path, "");
        }
        if !paths.insert(path.text()) {
            report.invalid(&path, "must be unique");
        }
        for field in ["subPath", "subPathExpr"] {
            let text = mount.at(field).text();
            if text.starts_with('/') {
                report.invalid_text(&list.at(field), text, "must be a relative path");
            }
            no_back_steps(&list.at(field), text, report);
        }
    }
}

pub(super) fn no_back_steps(place: &Place<'_>, path: &str, report: &mut Report) {
    if path.split('/').any(|part| part == "..") {
        report.invalid_text(place, path, "must not contain '..'");
    }
}

fn devices(container: &Place<'_>, volumes: &Volumes<'_>, report: &mut Report) {
    for device in container.each("volumeDevices") {
        let (name, path) = (device.at("name"), device.at("devicePath"));
        if name.is_empty() {
            report.required(&name, "");
        }
        match volumes.get(name.text()) {
            None => report.not_found(&name),
            Some(false) => {
                let why =
                    "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                report.invalid(&name, why);
            }
            Some(true) => {}
        }
        if path.is_empty() {
            report.required(&path, "");
        }
    }
}

fn lifecycle(container: &Place<'_>, report: &mut Report) {
    for hook in ["postStart", "preStop"] {
        let place = container.at("lifecycle").at(hook);
        if place.is_set() {
            handler(&place, report);
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = container.at(name);
        if !probe.is_set() {
            continue;
        }
        handler(&probe, report);
        for field in
            ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
        {
            non_negative(&probe.at(field), report);
        }
        let grace = probe.at("terminationGracePeriodSeconds");
        if grace.is_set() && grace.number() <= 0 {
            report.invalid(&grace, "must be greater than 0");
        }
        if name == "readinessProbe" {
            if grace.is_set() {
                report.invalid(&grace, "must not be set for readinessProbes");
            }
        } else if probe.at("successThreshold").number() != 1 {
            report.invalid(&probe.at("successThreshold"), "must be 1");
        }
    }
}

fn handler(place: &Place<'_>, report: &mut Report) {
    let given: Vec<Place<'_>> = HANDLERS.iter().map(|name| place.at(name)).filter(Place::is_set).collect();
    let Some(first) = given.first() else {
        report.required(place, "must specify a handler type");
        return;
    };
    match first.path.rsplit('.').next() {
        Some("exec") if first.at("command").is_empty() => report.required(&first.at("command"), ""),
        Some("httpGet") => {
            if first.at("path").is_empty() {
                report.required(&first.at("path"), "");
            }
            port_or_name(&first.at("port"), report);
            if !["HTTP", "HTTPS"].contains(&first.at("scheme").text()) {
                report.unsupported(&first.at("scheme"), &["HTTP", "HTTPS"]);
            }
            for header in first.each("httpHeaders") {
                let name = header.at("name").text();
                report.invalid_each(&first.at("httpHeaders"), name, formats::header_name(name));
            }
        }
        Some("tcpSocket") => port_or_name(&first.at("port"), report),
        Some("grpc") => port_number(&first.at("port"), report),
        _ => {}
    }
    for other in given.iter().skip(1) {
        report.forbidden(other, "may not specify more than 1 handler type");
    }
}

fn resources(place: &Place<'_>, report: &mut Report) {
    let amount = |entry: &Place<'_>| Quantity::parse(entry.text()).ok();
    for (name, limit) in place.entries("limits") {
        resource(name, &limit, report);
    }
    for (name, request) in place.entries("requests") {
        resource(name, &request, report);
        let (asked, limit) = (amount(&request), amount(&place.at("limits").key(name)));
        let overcommit = !name.contains('/') && !name.starts_with("hugepages-");
        match (asked, limit) {
            (Some(asked), Some(limit))
                if !overcommit && asked.partial_cmp(&limit) != Some(std::cmp::Ordering::Equal) =>
            {
                let why = format!("must be equal to {name} limit of {}", limit.canonical());
                report.invalid_text(&place.at("requests"), &asked.canonical(), &why);
            }
            (Some(asked), Some(limit)) if asked > limit => {
                let why = format!("must be less than or equal to {name} limit of {}", limit.canonical());
                report.invalid_text(&place.at("requests"), &asked.canonical(), &why);
            }
            (Some(_), None) if !overcommit => {
                report.required(&place.at("limits"), "Limit must be set for non overcommitable resources");
            }
            _ => {}
        }
    }
}

fn resource(name: &str, place: &Place<'_>, report: &mut Report) {
    let wrong = formats::qualified_name(name);
    if !wrong.is_empty() {
        report.invalid_each(place, name, wrong);
    } else if !name.contains('/') && !STANDARD_RESOURCES.contains(&name) && !name.starts_with("hugepages-") {
        if !matches!(name, "storage" | "pods") {
            report.invalid_text(place, name, "must be a standard resource type or fully qualified");
        }
        report.invalid_text(place, name, "must be a standard resource for containers");
    }
    let Ok(amount) = Quantity::parse(place.text()) else { return };
    if amount.is_negative() {
        report.invalid_text(place, &amount.canonical(), "must be greater than or equal to 0");
    }
    if name.contains('/') && !amount.is_whole() {
        report.invalid_text(place, &amount.canonical(), "must be an integer");
    }
}
