//! The types and resources: what everybody knows is in them, and every id leads somewhere.

use informer_schema::{
    Field, GROUPS, ListType, MESSAGES, MapType, Message, RESOURCES, Resource, Shape, Type, TypeId,
};

fn resource(group: &str, plural: &str) -> &'static Resource {
    let found = RESOURCES.iter().find(|row| (row.group, row.version, row.plural) == (group, "v1", plural));
    found.unwrap_or_else(|| panic!("no {group}/v1/{plural}"))
}

/// The field at a path, through lists and maps.
fn field(of: &str, path: &str) -> &'static Field {
    let mut at = Type::named(of).unwrap_or_else(|| panic!("no {of}"));
    let mut found = None;
    for name in path.split('.') {
        let field = at.get().field(name).unwrap_or_else(|| panic!("no {name} in {}", at.get().name));
        at = object(&field.shape).unwrap_or(at);
        found = Some(field);
    }
    found.unwrap_or_else(|| panic!("no path"))
}

fn object(shape: &Shape) -> Option<TypeId> {
    match shape {
        Shape::Object(id) => Some(*id),
        Shape::List(inner, _) | Shape::Map(inner, _) => object(inner),
        _ => None,
    }
}

const POD: &str = "io.k8s.api.core.v1.Pod";

/// Lookups by name are binary searches.
#[test]
fn tables_are_sorted() {
    assert!(MESSAGES.is_sorted_by(|one, next| one.name < next.name));
    assert!(MESSAGES.iter().all(|message| message.parts.is_sorted_by(|one, next| one.number < next.number)));
    let key = |row: &Resource| (row.group, row.version, row.plural);
    assert!(RESOURCES.is_sorted_by(|one, next| key(one) < key(next)));
}

#[test]
fn every_resource_has_a_type_with_its_own_metadata() {
    for row in RESOURCES {
        let of = row.type_id.unwrap_or_else(|| panic!("no type: {row:?}")).get();
        assert!(of.name.ends_with(&format!(".{}.{}", row.version, row.kind)), "{row:?}");
        assert!(of.field("metadata").is_some(), "{row:?}");
    }
}

/// JSON has the fields of `VolumeSource` in `Volume`, and the type members of kinds, which protobuf has in an envelope.
#[test]
fn fields_of_inline_messages_belong_to_the_type_around_them() {
    assert!(Message::named("io.k8s.api.core.v1.Volume").unwrap().get().parts.len() < 3);
    assert!(matches!(field("io.k8s.api.core.v1.Volume", "hostPath").shape, Shape::Object(_)));
    assert_eq!(field(POD, "apiVersion").shape, Shape::String);
}

#[test]
fn what_makes_an_entry_the_same_entry() {
    let list = |path, keys| match field(POD, path).shape {
        Shape::List(_, ListType::Map(found)) => assert_eq!(found, keys, "{path}"),
        ref other => panic!("{path}: {other:?}"),
    };
    list("spec.containers", ["name"].as_slice());
    list("spec.containers.ports", &["containerPort", "protocol"]);
    list("spec.topologySpreadConstraints", &["topologyKey", "whenUnsatisfiable"]);
    list("metadata.ownerReferences", &["uid"]);
    assert_eq!(field(POD, "metadata.finalizers").shape, Shape::List(&Shape::String, ListType::Set));
    assert!(matches!(field(POD, "spec.containers.args").shape, Shape::List(_, ListType::Atomic)));
    assert!(matches!(field(POD, "spec.nodeSelector").shape, Shape::Map(_, MapType::Atomic)));
    assert!(matches!(field(POD, "metadata.labels").shape, Shape::Map(_, MapType::Granular)));
    assert!(Type::named("io.k8s.api.core.v1.SecretKeySelector").unwrap().get().atomic);
    assert_eq!(
        field("io.k8s.api.core.v1.PersistentVolumeSpec", "claimRef").map_type,
        Some(MapType::Granular)
    );
}

#[test]
fn how_a_patch_merges() {
    let patch = |of, path| {
        let patch = field(of, path).patch;
        (patch.merge, patch.replace, patch.retain_keys, patch.key)
    };
    assert_eq!(patch(POD, "spec.containers"), (true, false, false, "name"));
    assert_eq!(patch(POD, "spec.containers.ports"), (true, false, false, "containerPort"));
    assert_eq!(patch(POD, "spec.volumes"), (true, false, true, "name"));
    assert_eq!(patch(POD, "metadata.finalizers"), (true, false, false, ""));
    assert_eq!(patch(POD, "spec.tolerations"), (false, false, false, ""));
    let deployment = "io.k8s.api.apps.v1.DeploymentSpec";
    assert_eq!(patch(deployment, "strategy"), (false, false, true, ""));
    assert_eq!(patch("io.k8s.api.policy.v1.PodDisruptionBudgetSpec", "selector"), (false, true, false, ""));
}

#[test]
fn shapes_and_defaults() {
    let is = |path, shape| assert_eq!(field(POD, path).shape, shape, "{path}");
    is("metadata.creationTimestamp", Shape::Time);
    is("metadata.managedFields.fieldsV1", Shape::Any);
    is("spec.containers.livenessProbe.httpGet.port", Shape::IntOrString);
    is("spec.containers.resources.limits", Shape::Map(&Shape::Quantity, MapType::Granular));
    is("spec.containers.ports.containerPort", Shape::Int32);
    is("spec.terminationGracePeriodSeconds", Shape::Int64);
    is("spec.hostNetwork", Shape::Boolean);
    assert_eq!(
        field("io.k8s.api.core.v1.Secret", "data").shape,
        Shape::Map(&Shape::Bytes, MapType::Granular)
    );
    assert_eq!(field("io.k8s.api.coordination.v1.LeaseSpec", "renewTime").shape, Shape::MicroTime);
    assert_eq!(field(POD, "spec.containers.resources").default, Some("{}"));
    assert_eq!(field(POD, "spec.containers.ports.protocol").default, Some("\"TCP\""));
    assert!(field(POD, "spec.containers").required);
}

#[test]
fn what_is_served() {
    let pods = resource("", "pods");
    assert_eq!((pods.kind, pods.singular, pods.short_names), ("Pod", "pod", ["po"].as_slice()));
    assert_eq!((pods.categories, pods.storage_hash), (["all"].as_slice(), "xPOwRZ+Yhw8="));
    let eviction = pods.subresources.iter().find(|part| part.name == "eviction").unwrap();
    assert_eq!((eviction.group, eviction.version, eviction.kind), ("policy", "v1", "Eviction"));
    assert_eq!(eviction.type_id, Type::named("io.k8s.api.policy.v1.Eviction"));
    assert_eq!(resource("", "bindings").verbs, ["create"]);
    assert_eq!(resource("authorization.k8s.io", "subjectaccessreviews").verbs, ["create"]);
    let scale =
        resource("apps", "deployments").subresources.iter().find(|part| part.name == "scale").unwrap();
    assert_eq!((scale.group, scale.kind), ("autoscaling", "Scale"));
}

#[test]
fn groups_have_the_versions_of_their_resources() {
    for row in RESOURCES {
        let group = GROUPS.iter().find(|group| group.name == row.group);
        assert!(group.is_some_and(|group| group.versions.contains(&row.version)), "{row:?}");
    }
    assert_eq!(GROUPS[0].name, "");
}
