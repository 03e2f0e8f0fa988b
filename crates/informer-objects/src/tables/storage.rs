//! Table cells of volumes, claims, storage classes and storage versions.

use serde_json::Value;

use super::cell::shortened_or_unset;
use super::fields::{amount, annotation, at, each, filled, given, is_terminating, list, text, texts};

/// Access modes and their abbreviations, in display order.
const MODES: &[(&str, &str)] = &[
    ("ReadWriteOnce", "RWO"),
    ("ReadOnlyMany", "ROX"),
    ("ReadWriteMany", "RWX"),
    ("ReadWriteOncePod", "RWOP"),
];

pub(super) fn volume_modes(volume: &Value) -> String {
    modes(volume, "/spec/accessModes")
}

/// The phase of a volume or a claim.
pub(super) fn phase(object: &Value) -> String {
    if is_terminating(object) { "Terminating" } else { text(object, "/status/phase") }.to_owned()
}

/// The claim bound to a volume.
pub(super) fn claim(volume: &Value) -> String {
    match at(volume, "/spec/claimRef") {
        Some(claim) => format!("{}/{}", text(claim, "/namespace"), text(claim, "/name")),
        None => String::new(),
    }
}

/// The storage class of a volume or a claim; the old annotation takes precedence.
pub(super) fn class(object: &Value) -> String {
    let annotated = annotation(object, "volume.beta.kubernetes.io/storage-class");
    annotated.unwrap_or_else(|| text(object, "/spec/storageClassName")).to_owned()
}

/// The capacity of a claim that is bound to a volume.
pub(super) fn claim_capacity(claim: &Value) -> String {
    match filled(claim, "/spec/volumeName") {
        Some(_) => amount(claim, "/status/capacity/storage").to_owned(),
        None => String::new(),
    }
}

pub(super) fn claim_modes(claim: &Value) -> String {
    match filled(claim, "/spec/volumeName") {
        Some(_) => modes(claim, "/status/accessModes"),
        None => String::new(),
    }
}

/// The name, and whether it is the default storage class.
pub(super) fn class_name(class: &Value) -> String {
    let annotations =
        ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
    named_default(class, &annotations)
}

/// Returns the name, with a suffix if one of these annotations is true.
pub(super) fn named_default(object: &Value, annotations: &[&str]) -> String {
    let is_default = annotations.iter().any(|key| annotation(object, key) == Some("true"));
    format!("{}{}", text(object, "/metadata/name"), if is_default { " (default)" } else { "" })
}

/// The audiences of the tokens requested by a driver.
pub(super) fn audiences(driver: &Value) -> String {
    match at(driver, "/spec/tokenRequests") {
        Some(_) => each(list(driver, "/spec/tokenRequests"), "/audience").join(","),
        None => "<unset>".to_owned(),
    }
}

/// The storage version that each API server encodes.
pub(super) fn versions(stored: &Value) -> String {
    let versions = list(stored, "/status/storageVersions").iter();
    let versions = versions.map(|version| {
        format!(
            "{}={}",
            text(version, "/apiServerID"),
            given(version, "/encodingVersion").unwrap_or_default()
        )
    });
    shortened_or_unset(&versions.collect::<Vec<_>>())
}

fn modes(object: &Value, pointer: &str) -> String {
    let present = texts(object, pointer);
    let short = MODES.iter().filter(|(mode, _)| present.contains(mode)).map(|(_, short)| *short);
    short.collect::<Vec<_>>().join(",")
}
