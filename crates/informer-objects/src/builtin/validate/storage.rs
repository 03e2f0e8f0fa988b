//! Validation of volumes, claims and storage classes.

use serde_json::Value;

use super::containers;
use super::meta::{self, immutable};
use super::report::{Position, Report};
use crate::text::{Quantity, formats};

const MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const SOURCES: &[&str] = &[
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
];

pub(super) fn claim_spec(spec: &Position<'_>, report: &mut Report) {
    if spec.at("accessModes").is_empty() {
        report.required(&spec.at("accessModes"), "at least 1 access mode is required");
    }
    meta::selector(&spec.at("selector"), report);
    modes(spec, report);
    let size = spec.at("resources.requests").key("storage");
    // kube-apiserver omits `requests` from the path.
    let position = Position { value: size.value, path: format!("{}[storage]", spec.at("resources").path) };
    match Quantity::parse(position.text()) {
        Err(_) => report.required(&position, ""),
        Ok(quantity) if quantity.is_zero() || quantity.is_negative() => {
            report.invalid_text(&position, &quantity.canonical(), "must be greater than zero");
        }
        Ok(_) => {}
    }
    class_name(&spec.at("storageClassName"), report);
    volume_mode(spec, report);
    for source in ["dataSource", "dataSourceRef"] {
        let position = spec.at(source);
        for field in ["name", "kind"] {
            if position.is_set() && position.at(field).is_empty() {
                report.required(&position.at(field), "");
            }
        }
    }
}

pub(super) fn claim_update(old: &Position<'_>, new: &Position<'_>, report: &mut Report) {
    let bound = new.at("status.phase").text() == "Bound";
    let immutable_fields = |claim: &Position<'_>| {
        let mut spec = claim.at("spec").value.as_object().cloned().unwrap_or_default();
        if old.at("spec.volumeName").is_empty() {
            spec.remove("volumeName");
        }
        if bound {
            spec.remove("volumeAttributesClassName");
            if let Some(requests) =
                spec.get_mut("resources").and_then(|resources| resources.get_mut("requests"))
            {
                requests.as_object_mut().map(|requests| requests.remove("storage"));
            }
        }
        spec
    };
    if immutable_fields(old) != immutable_fields(new) {
        let why = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        report.forbidden(&new.at("spec"), why);
    }
    let size = |claim: &Position<'_>, path: &str| Quantity::parse(claim.at(path).text()).ok();
    let (before, after) =
        (size(old, "spec.resources.requests.storage"), size(new, "spec.resources.requests.storage"));
    let zero = Quantity::parse("0").ok();
    let current = size(old, "status.capacity.storage").or(zero);
    if after < before && after <= current {
        let position = new.at("spec.resources.requests.storage");
        report.forbidden(&position, "field can not be less than status.capacity");
    }
    let (before, after) = (old.at("spec.volumeMode"), new.at("spec.volumeMode"));
    // kube-apiserver omits `spec` from the path.
    let position = Position { value: after.value, path: "volumeMode".to_owned() };
    immutable(&before, &position, report);
}

/// Checks that the source of a volume does not change; a secret for expansion may be added.
pub(super) fn volume_update(old: &Position<'_>, new: &Position<'_>, report: &mut Report) {
    let sources = |volume: &Position<'_>| {
        let mut spec = volume.at("spec").value.as_object().cloned().unwrap_or_default();
        spec.retain(|field, _| SOURCES.contains(&field.as_str()));
        Value::Object(spec)
    };
    let (before, mut after) = (sources(old), sources(new));
    let secret = "controllerExpandSecretRef";
    if before.pointer("/csi").is_some_and(|csi| csi.get(secret).is_none())
        && let Some(csi) = after.pointer_mut("/csi").and_then(Value::as_object_mut)
    {
        csi.remove(secret);
    }
    if before != after {
        let why = "spec.persistentvolumesource is immutable after creation";
        report.forbidden(&new.at("spec.persistentvolumesource"), why);
    }
    // kube-apiserver omits `spec` from the path.
    let mode = Position { value: new.at("spec.volumeMode").value, path: "volumeMode".to_owned() };
    immutable(&old.at("spec.volumeMode"), &mode, report);
}

pub(super) fn volume(object: &Position<'_>, report: &mut Report) {
    let spec = object.at("spec");
    if spec.at("accessModes").is_empty() {
        report.required(&spec.at("accessModes"), "");
    }
    modes(&spec, report);
    let capacity = spec.at("capacity");
    if capacity.is_empty() {
        report.required(&capacity, "");
    }
    if !capacity.at("storage").is_set() || spec.entries("capacity").len() > 1 {
        let message = format!(
            "Unsupported value: {}: supported values: \"storage\"",
            super::report::shown(capacity.value)
        );
        report.causes.push(crate::status::StatusCause::new(
            "FieldValueNotSupported",
            &capacity.path,
            message,
        ));
    }
    for (_, quantity) in spec.entries("capacity") {
        if Quantity::parse(quantity.text()).is_ok_and(|quantity| quantity.is_zero() || quantity.is_negative())
        {
            report.invalid(&quantity, "must be greater than zero");
        }
    }
    let policy = spec.at("persistentVolumeReclaimPolicy");
    if !policy.is_empty() {
        containers::one_of(&policy, &["Delete", "Recycle", "Retain"], report);
    }
    let specified: Vec<Position<'_>> =
        SOURCES.iter().map(|source| spec.at(source)).filter(Position::is_set).collect();
    if specified.is_empty() {
        report.required(&spec, "must specify a volume type");
    }
    for extra in specified.iter().skip(1) {
        report.forbidden(extra, "may not specify more than 1 volume type");
    }
    if spec.at("local").is_set() && !spec.at("nodeAffinity.required").is_set() {
        report.required(&spec.at("nodeAffinity"), "Local volume requires node affinity");
    }
    class_name(&spec.at("storageClassName"), report);
    volume_mode(&spec, report);
}

pub(super) fn class(object: &Position<'_>, report: &mut Report) {
    let provisioner = object.at("provisioner");
    if provisioner.is_empty() {
        report.required(&provisioner, "");
    } else {
        let name = provisioner.text().to_lowercase();
        report.invalid_each(&provisioner, &name, formats::qualified_name(&name));
    }
    containers::one_of(&object.at("reclaimPolicy"), &["Delete", "Retain"], report);
    containers::one_of(&object.at("volumeBindingMode"), &["Immediate", "WaitForFirstConsumer"], report);
}

pub(super) fn attachment(object: &Position<'_>, report: &mut Report) {
    let source = object.at("spec.source");
    let why = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    match (source.at("inlineVolumeSpec").is_set(), source.at("persistentVolumeName").is_set()) {
        (false, false) => report.required(&source, why),
        (true, true) => report.forbidden(&source, why),
        (false, true) if source.at("persistentVolumeName").is_empty() => {
            report
                .required(&source.at("persistentVolumeName"), "must specify non empty persistentVolumeName");
        }
        _ => {}
    }
}

fn modes(spec: &Position<'_>, report: &mut Report) {
    let list = spec.at("accessModes");
    let all = spec.each("accessModes");
    for mode in all.iter().filter(|mode| !MODES.contains(&mode.text())) {
        report.unsupported(&Position { value: mode.value, path: list.path.clone() }, MODES);
    }
    let is_once_per_pod = all.iter().any(|mode| mode.text() == "ReadWriteOncePod");
    if is_once_per_pod
        && all.iter().any(|mode| mode.text() != "ReadWriteOncePod" && MODES.contains(&mode.text()))
    {
        report.forbidden(&list, "may not use ReadWriteOncePod with other access modes");
    }
}

fn class_name(position: &Position<'_>, report: &mut Report) {
    if !position.is_empty() {
        report.invalid_each(position, position.text(), formats::dns_subdomain(position.text()));
    }
}

fn volume_mode(spec: &Position<'_>, report: &mut Report) {
    let mode = spec.at("volumeMode");
    if mode.is_set() {
        containers::one_of(&mode, &["Block", "Filesystem"], report);
    }
}
