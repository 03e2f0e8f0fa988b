//! The prefix of the envelope of objects, and the message of each kind.
//!
//! A kind has at most one message. Nothing here reads or writes bytes.

use informer_schema::{Message, MessageId, RESOURCES};

use crate::text::versions::split_api_version;

/// The prefix of every object.
pub(super) const MAGIC: &[u8] = b"k8s\0";

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const META_BETA: &str = "io.k8s.apimachinery.pkg.apis.meta.v1beta1";
const DISCOVERY: &str = "io.k8s.api.apidiscovery.v2";

/// Returns the message of a kind.
///
/// Kinds that belong to no particular group (`Status`, `DeleteOptions`) are found in every group.
pub(super) fn message_of(api_version: &str, kind: &str) -> Option<MessageId> {
    let (group, version) = split_api_version(api_version);
    let package = match (group, version) {
        ("meta.k8s.io", "v1beta1") => Some(META_BETA),
        ("apidiscovery.k8s.io", "v2") => Some(DISCOVERY),
        _ => {
            // All kinds of a group and version are in one package, so any resource will do.
            let row = RESOURCES.iter().find(|row| (row.group, row.version) == (group, version));
            row.and_then(|row| Some(row.type_id?.get().name.rsplit_once('.')?.0))
        }
    };
    let named =
        |package: &str| Message::named(&format!("{package}.{kind}")).filter(|message| message.get().is_kind);
    package.and_then(named).or_else(|| named(META))
}
