//! Validation of containers: names, ports, environment, mounts, probes, resources.

use std::collections::{BTreeMap, BTreeSet};

use super::meta::non_negative;
use super::report::{Position, Report, quoted};
use crate::text::{Quantity, formats};

const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];
const STANDARD_RESOURCES: &[&str] = &["cpu", "ephemeral-storage", "memory"];
const HANDLERS: &[&str] = &["exec", "httpGet", "tcpSocket", "grpc", "sleep"];

/// The volumes of the pod by name, with whether they can be block devices.
pub(super) type Volumes<'a> = BTreeMap<&'a str, bool>;

/// Validates the containers of a pod in the order of kube-apiserver.
pub(super) fn all(spec: &Position<'_>, volumes: &Volumes<'_>, report: &mut Report) {
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
                let position = container.at(field);
                if position.is_set() {
                    report.forbidden(
                        &position,
                        "may not be set for init containers without restartPolicy=Always",
                    );
                }
            }
        }
    }
    ephemeral(spec, names, volumes, report);
}

/// Fields that an ephemeral container cannot have, in the order of its type.
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

/// Validates ephemeral containers.
fn ephemeral<'a>(
    spec: &Position<'a>,
    mut names: BTreeSet<&'a str>,
    volumes: &Volumes<'_>,
    report: &mut Report,
) {
    let target_names = names.clone();
    for container in spec.each("ephemeralContainers") {
        common(&container, volumes, report);
        let (name, target) = (container.at("name"), container.at("targetContainerName"));
        if !names.insert(name.text()) {
            report.duplicate(&name);
        }
        if !target.is_empty() && !target_names.contains(target.text()) {
            report.not_found(&target);
        }
        let why = "cannot be set for an Ephemeral Container";
        for position in
            NOT_EPHEMERAL.iter().map(|field| container.at(field)).filter(|position| !position.is_empty())
        {
            report.forbidden(&position, why);
        }
        for mount in container.each("volumeMounts") {
            for position in [mount.at("subPath"), mount.at("subPathExpr")] {
                if !position.is_empty() {
                    report.forbidden(&position, why);
                }
            }
        }
    }
}

/// Validates what containers of all types have in common.
fn common(container: &Position<'_>, volumes: &Volumes<'_>, report: &mut Report) {
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

/// Checks a field that must have one of these values.
pub(super) fn one_of(position: &Position<'_>, values: &[&str], report: &mut Report) {
    if position.is_empty() {
        report.required(position, "");
    } else if !values.contains(&position.text()) {
        report.unsupported(position, values);
    }
}

fn ports(container: &Position<'_>, report: &mut Report) {
    let mut names = BTreeSet::new();
    for port in container.each("ports") {
        let name = port.at("name");
        if !name.is_empty() {
            let messages = formats::port_name(name.text());
            if !messages.is_empty() {
                report.invalid_each(&name, name.text(), messages);
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

/// Checks that a port is between 1 and 65535.
pub(super) fn port_number(position: &Position<'_>, report: &mut Report) {
    for why in formats::port_number(position.number()) {
        report.invalid_value(position, &position.number().to_string(), &why);
    }
}

/// Checks a port given by number or by name.
pub(super) fn port_or_name(position: &Position<'_>, report: &mut Report) {
    match position.value.as_str() {
        Some(name) => report.invalid_each(position, name, formats::port_name(name)),
        None => port_number(position, report),
    }
}

fn host_port_conflicts(container: &Position<'_>, seen: &mut BTreeSet<String>, report: &mut Report) {
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

fn environment(container: &Position<'_>, report: &mut Report) {
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
        let specified: Vec<Position<'_>> =
            sources.iter().map(|source| from.at(source)).filter(Position::is_set).collect();
        for source in &specified {
            reference(source, report);
        }
        if specified.is_empty() {
            let why = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
            report.invalid_text(&from, "", why);
        } else if !variable.at("value").is_empty() {
            report.invalid_text(&from, "", "may not be specified when `value` is not empty");
        } else if specified.len() > 1 {
            report.invalid_text(&from, "", "may not have more than one field specified at a time");
        }
    }
    for source in container.each("envFrom") {
        let prefix = source.at("prefix");
        if !prefix.is_empty() {
            report.invalid_each(&prefix, prefix.text(), formats::env_name(prefix.text()));
        }
        let specified: Vec<Position<'_>> = ["configMapRef", "secretRef"]
            .iter()
            .map(|field| source.at(field))
            .filter(Position::is_set)
            .collect();
        for reference in &specified {
            if reference.at("name").is_empty() {
                report.required(&reference.at("name"), "");
            }
        }
        let list = container.at("envFrom");
        match specified.len() {
            0 => report.invalid_text(&list, "", "must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => report.invalid_text(&list, "", "may not have more than one field specified at a time"),
        }
    }
}

/// Checks the source of the value of a variable.
fn reference(source: &Position<'_>, report: &mut Report) {
    let required: &[&str] = match source.path.rsplit('.').next() {
        Some("fieldRef") => &["apiVersion", "fieldPath"],
        Some("resourceFieldRef") => &["resource"],
        Some("fileKeyRef") => &["key", "path", "volumeName"],
        _ => &["name", "key"],
    };
    for field in required {
        let position = source.at(field);
        if position.is_empty() {
            report.required(&position, "");
        } else if *field == "key" && required.contains(&"name") {
            // A key of a `ConfigMap` or a `Secret`, which are the sources with a name.
            report.invalid_each(&position, position.text(), formats::config_key(position.text()));
        }
    }
}

fn mounts(container: &Position<'_>, volumes: &Volumes<'_>, report: &mut Report) {
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
            // kube-apiserver omits the index of the mount from the path.
            let text = mount.at(field).text();
            if text.starts_with('/') {
                report.invalid_text(&list.at(field), text, "must be a relative path");
            }
            no_parent_segments(&list.at(field), text, report);
        }
    }
}

pub(super) fn no_parent_segments(position: &Position<'_>, path: &str, report: &mut Report) {
    if path.split('/').any(|part| part == "..") {
        report.invalid_text(position, path, "must not contain '..'");
    }
}

fn devices(container: &Position<'_>, volumes: &Volumes<'_>, report: &mut Report) {
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

fn lifecycle(container: &Position<'_>, report: &mut Report) {
    for hook in ["postStart", "preStop"] {
        let position = container.at("lifecycle").at(hook);
        if position.is_set() {
            handler(&position, report);
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

fn handler(position: &Position<'_>, report: &mut Report) {
    let specified: Vec<Position<'_>> =
        HANDLERS.iter().map(|name| position.at(name)).filter(Position::is_set).collect();
    let Some(first) = specified.first() else {
        report.required(position, "must specify a handler type");
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
    for extra in specified.iter().skip(1) {
        report.forbidden(extra, "may not specify more than 1 handler type");
    }
}

fn resources(position: &Position<'_>, report: &mut Report) {
    let quantity = |entry: &Position<'_>| Quantity::parse(entry.text()).ok();
    for (name, limit) in position.entries("limits") {
        resource(name, &limit, report);
    }
    for (name, request) in position.entries("requests") {
        resource(name, &request, report);
        let (requested, limit) = (quantity(&request), quantity(&position.at("limits").key(name)));
        let can_be_overcommitted = !name.contains('/') && !name.starts_with("hugepages-");
        match (requested, limit) {
            (Some(requested), Some(limit))
                if !can_be_overcommitted
                    && requested.partial_cmp(&limit) != Some(std::cmp::Ordering::Equal) =>
            {
                let why = format!("must be equal to {name} limit of {}", limit.canonical());
                report.invalid_text(&position.at("requests"), &requested.canonical(), &why);
            }
            (Some(requested), Some(limit)) if requested > limit => {
                let why = format!("must be less than or equal to {name} limit of {}", limit.canonical());
                report.invalid_text(&position.at("requests"), &requested.canonical(), &why);
            }
            (Some(_), None) if !can_be_overcommitted => {
                report.required(&position.at("limits"), "Limit must be set for non overcommitable resources");
            }
            _ => {}
        }
    }
}

fn resource(name: &str, position: &Position<'_>, report: &mut Report) {
    let messages = formats::qualified_name(name);
    if !messages.is_empty() {
        report.invalid_each(position, name, messages);
    } else if !name.contains('/') && !STANDARD_RESOURCES.contains(&name) && !name.starts_with("hugepages-") {
        if !matches!(name, "storage" | "pods") {
            report.invalid_text(position, name, "must be a standard resource type or fully qualified");
        }
        report.invalid_text(position, name, "must be a standard resource for containers");
    }
    let Ok(quantity) = Quantity::parse(position.text()) else { return };
    if quantity.is_negative() {
        report.invalid_text(position, &quantity.canonical(), "must be greater than or equal to 0");
    }
    if name.contains('/') && !quantity.is_whole() {
        report.invalid_text(position, &quantity.canonical(), "must be an integer");
    }
}
