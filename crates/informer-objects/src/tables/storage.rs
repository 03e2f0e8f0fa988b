//! What is shown of volumes, their claims and classes, and of where versions are stored.

use serde_json::Value;

use super::cell::set_or_unset;
use super::fields::{amount, annotation, at, each, filled, given, is_leaving, list, text, texts};

/// Access modes and what they are called for short, in the order they are shown in.
const MODES: &[(&str, &str)] = &[
    ("ReadWriteOnce", "RWO"),
    ("ReadOnlyMany", "ROX"),
    ("ReadWriteMany", "RWX"),
    ("ReadWriteOncePod", "RWOP"),
];

pub(super) fn volume_modes(volume: &Value) -> String {
    modes(volume, "/spec/accessModes")
}

/// Of a volume and of a claim.
pub(super) fn phase(object: &Value) -> String {
    if is_leaving(object) { "Terminating" } else { text(object, "/status/phase") }.to_owned()
}

/// The claim that has a volume.
pub(super) fn claim(volume: &Value) -> String {
    match at(volume, "/spec/claimRef") {
        Some(claim) => format!("{}/{}", text(claim, "/namespace"), text(claim, "/name")),
        None => String::new(),
    }
}

/// The storage class of a volume or of a claim; an old annotation comes first.
pub(super) fn class(object: &Value) -> String {
    let annotated = annotation(object, "volume.beta.kubernetes.io/storage-class");
    annotated.unwrap_or_else(|| text(object, "/spec/storageClassName")).to_owned()
}

/// What a claim got, once it has a volume.
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

/// The name, and whether it is the class of claims that name none.
pub(super) fn class_name(class: &Value) -> String {
    let annotations =
        ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
    named_default(class, &annotations)
}

/// The name, with a word if one of these annotations is true.
pub(super) fn named_default(object: &Value, annotations: &[&str]) -> String {
    let is_default = annotations.iter().any(|key| annotation(object, key) == Some("true"));
    format!("{}{}", text(object, "/metadata/name"), if is_default { " (default)" } else { "" })
}

/// For whom a driver gets tokens.
pub(super) fn audiences(driver: &Value) -> String {
    match at(driver, "/spec/tokenRequests") {
        Some(_) => each(list(driver, "/spec/tokenRequests"), "/audience").join(","),
        None => "<unset>".to_owned(),
    }
}

/// Which server writes which version.
pub(super) fn versions(stored: &Value) -> String {
    let versions = list(stored, "/status/storageVersions").iter();
    let versions = versions.map(|one| {
        format!("{}={}", text(one, "/apiServerID"), given(one, "/encodingVersion").unwrap_or_default())
    });
    set_or_unset(&versions.collect::<Vec<_>>())
}

fn modes(object: &Value, place: &str) -> String {
    let given = texts(object, place);
    let short = MODES.iter().filter(|(mode, _)| given.contains(mode)).map(|(_, short)| *short);
    short.collect::<Vec<_>>().join(",")
}
