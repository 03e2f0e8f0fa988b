//! Validation of pods and pod templates.

use std::collections::BTreeSet;

use serde_json::Value;

use super::containers::{self, Volumes, no_parent_segments, one_of};
use super::meta;
use super::report::{Position, Report};
use crate::text::formats;

/// Volume types in the order of kube-apiserver.
const VOLUME_TYPES: &[&str] = &[
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
];

const FILE_MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

pub(super) fn create(pod: &Position<'_>, report: &mut Report) {
    meta::check_strictly(pod, "", "Pod", report);
    pod_spec(pod, report);
    if !pod.at("spec.ephemeralContainers").is_empty() {
        report.forbidden(&pod.at("spec.ephemeralContainers"), "cannot be set on create");
    }
    if !pod.at("spec.nodeName").is_empty() && !pod.at("spec.schedulingGates").is_empty() {
        report
            .forbidden(&pod.at("spec.nodeName"), "cannot be set until all schedulingGates have been cleared");
    }
}

pub(super) fn update(old: &Position<'_>, new: &Position<'_>, report: &mut Report) {
    meta::check_update(old, new, report);
    meta::check_strictly(new, "", "Pod", report);
    pod_spec(new, report);
    for list in ["containers", "initContainers"] {
        let (before, after) = (old.each(&format!("spec.{list}")), new.each(&format!("spec.{list}")));
        if before.len() != after.len() {
            report
                .forbidden(&new.at(&format!("spec.{list}")), "pod updates may not add or remove containers");
            return;
        }
        images(&after, report);
    }
    if !active_deadline(old, new, report) {
        return;
    }
    tolerations_update(old, new, report);
    super::pod_update::check_allowed_fields(old, new, report);
}

/// Validates the spec of a pod: by the rules of [`spec`], and those that do not apply to templates.
pub(super) fn pod_spec(pod: &Position<'_>, report: &mut Report) {
    spec(&pod.at("spec"), report);
    if pod.at("spec.serviceAccountName").is_empty() {
        for volume in pod.each("spec.volumes") {
            for source in volume.each("projected.sources") {
                let token = source.at("serviceAccountToken");
                if token.is_set() {
                    report.forbidden(&token, "must not be specified when serviceAccountName is not set");
                }
            }
        }
    }
    for list in ["spec.containers", "spec.initContainers"] {
        for image in pod.each(list).iter().map(|container| container.at("image")) {
            if image.text().trim() != image.text() {
                report.invalid(&image, "must not have leading or trailing whitespace");
            }
        }
    }
}

/// Validates a pod template.
pub(super) fn template(template: &Position<'_>, report: &mut Report) {
    meta::labels(&template.at("metadata.labels"), report);
    meta::annotations(&template.at("metadata.annotations"), report);
    spec(&template.at("spec"), report);
    if !template.at("spec.ephemeralContainers").is_empty() {
        let position = template.at("spec.ephemeralContainers");
        report.forbidden(&position, "ephemeral containers not allowed in pod template");
    }
}

pub(super) fn spec(spec: &Position<'_>, report: &mut Report) {
    let grace = spec.at("terminationGracePeriodSeconds");
    if !grace.is_set() {
        report.required(&grace, "");
    }
    let volumes = volumes(spec, report);
    containers::all(spec, &volumes, report);
    one_of(&spec.at("restartPolicy"), &["Always", "OnFailure", "Never"], report);
    one_of(&spec.at("dnsPolicy"), &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"], report);
    meta::labels(&spec.at("nodeSelector"), report);
    for secret in spec.each("imagePullSecrets") {
        if secret.at("name").is_empty() {
            report.required(&secret.at("name"), "");
        }
    }
    if spec.at("dnsPolicy").text() == "None" && spec.at("dnsConfig.nameservers").is_empty() {
        let why = "must provide at least one DNS nameserver when `dnsPolicy` is None";
        if spec.at("dnsConfig").is_set() {
            report.required(&spec.at("dnsConfig.nameservers"), why);
        } else {
            report.required(&spec.at("dnsConfig"), "must provide `dnsConfig` when `dnsPolicy` is None");
        }
    }
    for gate in spec.each("readinessGates") {
        let condition = gate.at("conditionType");
        report.invalid_each(&condition, condition.text(), formats::qualified_name(condition.text()));
    }
    for (field, check) in [
        ("serviceAccountName", formats::dns_subdomain as fn(&str) -> Vec<String>),
        ("nodeName", formats::dns_subdomain),
        ("hostname", formats::dns_label),
        ("subdomain", formats::dns_label),
        ("priorityClassName", formats::dns_subdomain),
        ("runtimeClassName", formats::dns_subdomain),
    ] {
        let position = spec.at(field);
        if !position.is_empty() {
            report.invalid_each(&position, position.text(), check(position.text()));
        }
    }
    let share = spec.at("shareProcessNamespace");
    if share.value == true && spec.at("hostPID").value == true {
        // kube-apiserver reports the field under `securityContext`.
        let path = format!("{}.shareProcessNamespace", spec.at("securityContext").path);
        let why = "ShareProcessNamespace and HostPID cannot both be enabled";
        report.invalid(&Position { value: share.value, path }, why);
    }
    for alias in spec.each("hostAliases") {
        super::services::ip(&alias.at("ip"), report);
        for name in alias.each("hostnames") {
            report.invalid_each(&name, name.text(), formats::dns_subdomain(name.text()));
        }
    }
    for skew in spec.each("topologySpreadConstraints").iter().map(|spread| spread.at("maxSkew")) {
        if skew.number() <= 0 {
            let shown = skew.number().to_string();
            report.invalid_value(&skew, &shown, "must be greater than zero");
        }
    }
    let deadline = spec.at("activeDeadlineSeconds");
    if deadline.is_set() {
        for why in formats::in_range(deadline.number(), 1, i64::from(i32::MAX)) {
            report.invalid(&deadline, &why);
        }
    }
    tolerations(spec, report);
    let policy = spec.at("preemptionPolicy");
    if policy.is_set() {
        one_of(&policy, &["PreemptLowerPriority", "Never"], report);
    }
}

/// Validates volumes and returns the valid ones.
fn volumes<'a>(spec: &Position<'a>, report: &mut Report) -> Volumes<'a> {
    let mut valid = Volumes::new();
    for volume in spec.each("volumes") {
        let before = report.causes.len();
        let name = volume.at("name");
        let specified: Vec<&str> =
            VOLUME_TYPES.iter().copied().filter(|kind| volume.at(kind).is_set()).collect();
        match specified.first() {
            None => report.required(&volume, "must specify a volume type"),
            Some(first) => volume_source(&volume.at(first), first, report),
        }
        for extra in specified.iter().skip(1) {
            report.forbidden(&volume.at(extra), "may not specify more than 1 volume type");
        }
        if name.is_empty() {
            report.required(&name, "");
        } else {
            report.invalid_each(&name, name.text(), formats::dns_label(name.text()));
        }
        if valid.contains_key(name.text()) {
            report.duplicate(&name);
        }
        if report.causes.len() == before {
            let can_be_block_device =
                matches!(specified.first(), Some(&("persistentVolumeClaim" | "ephemeral")));
            valid.insert(name.text(), can_be_block_device);
        }
    }
    valid
}

fn volume_source(source: &Position<'_>, kind: &str, report: &mut Report) {
    let required: &[&str] = match kind {
        "hostPath" => &["path"],
        "secret" => &["secretName"],
        "configMap" => &["name"],
        "persistentVolumeClaim" => &["claimName"],
        "nfs" => &["server", "path"],
        "csi" => &["driver"],
        "gitRepo" => &["repository"],
        "iscsi" => &["targetPortal", "iqn"],
        _ => &[],
    };
    for field in required {
        if source.at(field).is_empty() {
            report.required(&source.at(field), "");
        }
    }
    if kind == "hostPath" {
        no_parent_segments(&source.at("path"), source.at("path").text(), report);
    }
    if kind == "ephemeral" {
        let template = source.at("volumeClaimTemplate");
        if template.is_set() {
            super::storage::claim_spec(&template.at("spec"), report);
        } else {
            report.required(&template, "");
        }
    }
    let mode = source.at("defaultMode");
    if mode.is_set() && !(0..=0o777).contains(&mode.number()) {
        report.invalid(&mode, FILE_MODE);
    }
    for item in source.each("items") {
        let required = if kind == "downwardAPI" { &["path"][..] } else { &["key", "path"] };
        for field in required {
            if item.at(field).is_empty() {
                report.required(&item.at(field), "");
            }
        }
        no_parent_segments(&item.at("path"), item.at("path").text(), report);
        let mode = item.at("mode");
        if mode.is_set() && !(0..=0o777).contains(&mode.number()) {
            report.invalid(&mode, FILE_MODE);
        }
    }
}

fn tolerations(spec: &Position<'_>, report: &mut Report) {
    for toleration in spec.each("tolerations") {
        let (key, operator, effect) =
            (toleration.at("key"), toleration.at("operator"), toleration.at("effect"));
        if !key.is_empty() {
            report.invalid_each(&key, key.text(), formats::qualified_name(key.text()));
        } else if operator.text() != "Exists" {
            let why =
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            report.invalid_text(&operator, operator.text(), why);
        }
        if toleration.at("tolerationSeconds").is_set() && effect.text() != "NoExecute" {
            let why = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            report.invalid_text(&effect, effect.text(), why);
        }
        let value = toleration.at("value").text();
        match operator.text() {
            "" | "Equal" => {
                let messages = formats::label_value(value);
                if !messages.is_empty() {
                    report.invalid_text(&operator, value, &messages.join(";"));
                }
            }
            "Exists" if !value.is_empty() => {
                report.invalid_text(&operator, value, "value must be empty when `operator` is 'Exists'");
            }
            "Exists" => {}
            "Lt" | "Gt" => report.unsupported(&operator, &["Equal", "Exists", "Lt", "Gt"]),
            _ => report.unsupported(&operator, &["Equal", "Exists"]),
        }
        if !effect.is_empty() && !["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect.text()) {
            report.unsupported(&effect, &["NoSchedule", "PreferNoSchedule", "NoExecute"]);
        }
    }
}

fn images(containers: &[Position<'_>], report: &mut Report) {
    for image in containers.iter().map(|container| container.at("image")) {
        if image.is_empty() {
            report.required(&image, "");
        }
        if image.text().trim() != image.text() {
            report.invalid(&image, "must not have leading or trailing whitespace");
        }
    }
}

/// Checks the active deadline, and returns whether the other rules for an update should be checked.
fn active_deadline(old: &Position<'_>, new: &Position<'_>, report: &mut Report) -> bool {
    let (before, after) = (old.at("spec.activeDeadlineSeconds"), new.at("spec.activeDeadlineSeconds"));
    if !after.is_set() {
        if before.is_set() {
            report.invalid(&after, "must not update from a positive integer to nil value");
        }
        return true;
    }
    let messages = formats::in_range(after.number(), 0, i64::from(i32::MAX));
    for why in &messages {
        report.invalid(&after, why);
    }
    if messages.is_empty() && before.is_set() && before.number() < after.number() {
        report.invalid(&after, "must be less than or equal to previous value");
        return false;
    }
    messages.is_empty()
}

fn tolerations_update(old: &Position<'_>, new: &Position<'_>, report: &mut Report) {
    let without_seconds = |toleration: &Value| {
        let mut fields = toleration.as_object().cloned().unwrap_or_default();
        fields.remove("tolerationSeconds");
        Value::Object(fields).to_string()
    };
    let after: BTreeSet<String> =
        new.each("spec.tolerations").iter().map(|toleration| without_seconds(toleration.value)).collect();
    let are_kept = old
        .each("spec.tolerations")
        .iter()
        .all(|toleration| after.contains(&without_seconds(toleration.value)));
    if are_kept {
        tolerations(&new.at("spec"), report);
    } else {
        let why = "existing toleration can not be modified except its tolerationSeconds";
        report.forbidden(&new.at("spec.tolerations"), why);
    }
}
