//! The resource of an informer: a kind, as complete objects or as metadata only.
//!
//! Two handles of a factory share one cache exactly if their resource and their selection are equal. The
//! Rust type of the objects is not part of the resource.

use informer_core::TypeMeta;
use kube::Resource;
use kube::core::ClusterResourceScope;
use std::any::TypeId;

/// A kind as the API names it, as complete objects or as metadata only.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ResourceType {
    pub(crate) group: Box<str>,
    pub(crate) version: Box<str>,
    pub(crate) kind: Box<str>,
    pub(crate) plural: Box<str>,
    /// Whether only the metadata of the objects is requested.
    pub(crate) metadata_only: bool,
}

impl ResourceType {
    /// Returns the resource of a Rust type; for dynamic types, `dynamic` names the resource.
    pub(crate) fn of<K: Resource>(dynamic: &K::DynamicType) -> Self {
        Self {
            group: K::group(dynamic).into(),
            version: K::version(dynamic).into(),
            kind: K::kind(dynamic).into(),
            plural: K::plural(dynamic).into(),
            metadata_only: K::metadata_api(),
        }
    }

    /// Returns the URL path of the collection, in one namespace or in all.
    pub(crate) fn url_path(&self, namespace: Option<&str>) -> String {
        let root = if self.group.is_empty() { "api" } else { "apis" };
        let namespace = namespace.map(|namespace| format!("namespaces/{namespace}/")).unwrap_or_default();
        format!("/{root}/{}/{namespace}{}", self.api_version(), self.plural)
    }

    /// Returns the `apiVersion` and `kind` that received objects must have.
    pub(crate) fn types(&self) -> TypeMeta {
        let complete = TypeMeta::new(self.api_version(), &*self.kind);
        if self.metadata_only {
            TypeMeta::new("meta.k8s.io/v1", "PartialObjectMetadata").also_accept(complete)
        } else {
            complete
        }
    }

    /// Returns the name for messages: `pods`, `deployments.apps`, `leases.v1beta1.coordination.k8s.io`,
    /// `pods (metadata)`.
    pub(crate) fn name(&self) -> String {
        let mut name = self.plural.to_string();
        for part in [&*self.version, &*self.group].iter().filter(|part| !matches!(**part, "" | "v1")) {
            name = format!("{name}.{part}");
        }
        format!("{name}{}", if self.metadata_only { " (metadata)" } else { "" })
    }

    /// Returns whether the objects are Secrets. Their contents must not be copied into dictionaries, nor be
    /// cached unchanged if a transform fails.
    ///
    /// Compares the kind without case and the plural, because a resource given at run time may be spelled
    /// in any way.
    pub(crate) fn is_secret(&self) -> bool {
        self.group.is_empty() && (self.kind.eq_ignore_ascii_case("Secret") || &*self.plural == "secrets")
    }

    /// Returns the `apiVersion`, `v1` or `group/version`.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

/// Returns whether the objects of a type are known to be cluster-scoped.
pub(crate) fn is_cluster_scoped<K: Resource + 'static>() -> bool {
    TypeId::of::<K::Scope>() == TypeId::of::<ClusterResourceScope>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::core::v1::{Node, Pod};
    use kube::core::{ApiResource, DynamicObject, PartialObjectMeta};

    #[test]
    fn paths_and_names_follow_the_api() {
        let deployments = ResourceType::of::<Deployment>(&());
        assert_eq!(deployments.url_path(None), "/apis/apps/v1/deployments");
        assert_eq!(deployments.url_path(Some("shop")), "/apis/apps/v1/namespaces/shop/deployments");
        assert_eq!(deployments.name(), "deployments.apps");
        assert_eq!(ResourceType::of::<Pod>(&()).url_path(None), "/api/v1/pods");
        assert_eq!(ResourceType::of::<PartialObjectMeta<Pod>>(&()).name(), "pods (metadata)");
    }

    #[test]
    fn dynamic_type_has_the_same_resource() {
        let erased = ApiResource::erase::<Deployment>(&());
        assert_eq!(ResourceType::of::<DynamicObject>(&erased), ResourceType::of::<Deployment>(&()));
        assert_ne!(
            ResourceType::of::<PartialObjectMeta<Deployment>>(&()),
            ResourceType::of::<Deployment>(&())
        );
    }

    /// Regression: a dictionary was trained on Secrets whose kind was given as `secret`.
    #[test]
    fn secrets_are_recognized_in_any_spelling() {
        let secrets = ResourceType::of::<k8s_openapi::api::core::v1::Secret>(&());
        assert!(secrets.is_secret());
        assert!(ResourceType { kind: "secret".into(), ..secrets.clone() }.is_secret());
        assert!(ResourceType { kind: "Anything".into(), ..secrets.clone() }.is_secret());
        assert!(!ResourceType { group: "example.com".into(), ..secrets }.is_secret());
    }

    #[test]
    fn cluster_scoped_kinds_are_recognized() {
        assert!(is_cluster_scoped::<Node>() && !is_cluster_scoped::<Pod>());
    }
}
