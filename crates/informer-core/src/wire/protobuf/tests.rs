//! Checks that the field numbers known to the readers agree with the table of `informer-schema`.

use super::head::numbers;
use super::{METADATA, message_of, metadata_message};
use crate::wire::TypeMeta;
use informer_schema::{MESSAGES, Message, RESOURCES, Wire};

/// Kinds whose objects have metadata.
fn kinds() -> impl Iterator<Item = &'static Message> {
    MESSAGES.iter().filter(|message| {
        message.is_kind && metadata_of(message).is_some_and(|name| name.ends_with(".ObjectMeta"))
    })
}

fn metadata_of(message: &Message) -> Option<&'static str> {
    let part = message.parts.iter().find(|part| part.name == "metadata")?;
    match part.wire {
        Wire::Message(metadata) => Some(metadata.get().name),
        _ => None,
    }
}

fn number(message: &Message, name: &str) -> Option<u16> {
    message.parts.iter().find(|part| part.name == name).map(|part| part.number)
}

#[test]
fn metadata_field_numbers_agree_with_the_table() {
    for message in kinds() {
        assert_eq!(number(message, "metadata").map(u32::from), Some(METADATA), "{}", message.name);
    }
    let pod = message_of(&TypeMeta::new("v1", "Pod")).unwrap();
    let metadata = metadata_message(pod).unwrap().get();
    for (name, known) in [
        ("name", numbers::NAME),
        ("namespace", numbers::NAMESPACE),
        ("uid", numbers::UID),
        ("resourceVersion", numbers::VERSION),
        ("generation", numbers::GENERATION),
        ("creationTimestamp", numbers::CREATED),
        ("deletionTimestamp", numbers::DELETED),
        ("labels", numbers::LABELS),
        ("annotations", numbers::ANNOTATIONS),
        ("ownerReferences", numbers::OWNERS),
        ("managedFields", numbers::MANAGED),
    ] {
        assert_eq!(number(metadata, name).map(u32::from), Some(known), "{name}");
    }
    let owner = MESSAGES.iter().find(|message| message.name.ends_with("meta.v1.OwnerReference")).unwrap();
    let names = ["kind", "name", "uid", "apiVersion", "controller"];
    assert_eq!(names.map(|name| number(owner, name)), [1, 3, 4, 5, 6].map(Some));
    let list = MESSAGES.iter().find(|message| message.name.ends_with("meta.v1.ListMeta")).unwrap();
    let names = ["resourceVersion", "continue", "remainingItemCount"];
    assert_eq!(names.map(|name| number(list, name)), [2, 3, 4].map(Some));
}

#[test]
fn list_field_numbers_agree_with_the_table() {
    let mut count = 0;
    for message in kinds() {
        let Some(list) = Message::of_kind(message.api_version, &format!("{}List", message.kind())) else {
            continue;
        };
        // The older version of metadata-only objects is never requested.
        if message.api_version != "meta.k8s.io/v1beta1" {
            let names = ["metadata", "items"];
            assert_eq!(names.map(|name| number(list.get(), name)), [Some(1), Some(2)], "{}", message.name);
            count += 1;
        }
    }
    assert!(count > 80, "{count}");
}

/// Inline messages (their fields are members of the object around them in JSON) are not nested deeper than
/// the decoder supports.
#[test]
fn nesting_of_inline_messages_is_supported() {
    fn depth(message: &Message) -> usize {
        let inline = message.parts.iter().filter(|part| part.name.is_empty());
        let depths = inline.map(|part| match part.wire {
            Wire::Message(inner) => 1 + depth(inner.get()),
            _ => panic!("{}", message.name),
        });
        depths.max().unwrap_or_default()
    }
    let deepest = MESSAGES.iter().map(depth).max();
    assert_eq!(deepest, Some(super::decode::MAX_INLINE));
}

/// The decoder relies on tags of at most two bytes.
#[test]
fn field_numbers_fit_into_two_tag_bytes() {
    assert!(MESSAGES.iter().flat_map(|message| message.parts).all(|part| part.number < 2048));
}

#[test]
fn stable_kinds_have_messages() {
    for resource in RESOURCES.iter().filter(|row| row.version == "v1" && row.verbs.contains(&"list")) {
        let api_version = format!("{}/{}", resource.group, resource.version);
        let message = message_of(&TypeMeta::new(api_version.trim_start_matches('/'), resource.kind));
        assert!(message.is_some(), "{} of {api_version}", resource.kind);
    }
    assert_eq!(message_of(&TypeMeta::new("example.com/v1", "Widget")), None);
    assert!(message_of(&TypeMeta::new("meta.k8s.io/v1", "PartialObjectMetadata")).is_some());
}
