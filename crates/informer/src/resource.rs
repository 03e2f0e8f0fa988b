//! What an informer is about: a kind, and whether whole objects or only their metadata.
//!
//! Two handles are views of one cache exactly if they agree in this and in what they select. Which Rust type looks at it is no
//! part of it.

use informer_core::TypeMeta;
use kube::Resource;
use kube::core::ClusterResourceScope;
use std::any::TypeId;

/// A kind as the API names it, in one of its forms.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ResourceType {
    pub(crate) group: Box<str>,
    pub(crate) version: Box<str>,
    pub(crate) kind: Box<str>,
    pub(crate) plural: Box<str>,
    /// Only the objects' metadata is asked for.
    pub(crate) metadata_only: bool,
}

impl ResourceType {
    /// The resource that a type stands for, together with what is known only at run time.
    pub(crate) fn of<K: Resource>(dynamic: &K::DynamicType) -> Self {
        Self {
            group: K::group(dynamic).into(),
            version: K::version(dynamic).into(),
            kind: K::kind(dynamic).into(),
            plural: K::plural(dynamic).into(),
            metadata_only: K::metadata_api(),
        }
    }

    /// The path of its collection, in one namespace or in all.
    pub(crate) fn url_path(&self, namespace: Option<&str>) -> String {
        let root = if self.group.is_empty() { "api" } else { "apis" };
        let namespace = namespace.map(|namespace| format!("namespaces/{namespace}/")).unwrap_or_default();
        format!("/{root}/{}/{namespace}{}", self.api_version(), self.plural)
    }

    /// The type that its objects say they have, in this form.
    pub(crate) fn types(&self) -> TypeMeta {
        let whole = TypeMeta::new(self.api_version(), &*self.kind);
        if self.metadata_only {
            TypeMeta::new("meta.k8s.io/v1", "PartialObjectMetadata").also_accept(whole)
        } else {
            whole
        }
    }

    /// As people say it: `pods`, `deployments.apps`, `leases.v1beta1.coordination.k8s.io`; with the form if it is not the usual one.
    pub(crate) fn name(&self) -> String {
        let mut name = self.plural.to_string();
        for part in [&*self.version, &*self.group].iter().filter(|part| !matches!(**part, "" | "v1")) {
            name = format!("{name}.{part}");
        }
        format!("{name}{}", if self.metadata_only { " (metadata)" } else { "" })
    }

    /// Whether its objects hold secrets, so that parts of them must not be kept by accident. Whoever names the resource at run time may spell its
    /// kind in any way.
    pub(crate) fn is_secret(&self) -> bool {
        self.group.is_empty() && (self.kind.eq_ignore_ascii_case("Secret") || &*self.plural == "secrets")
    }

    fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

/// Whether a type's objects are known to live outside namespaces.
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
    fn paths_and_names_are_the_apis() {
        let deployments = ResourceType::of::<Deployment>(&());
        assert_eq!(deployments.url_path(None), "/apis/apps/v1/deployments");
        assert_eq!(deployments.url_path(Some("shop")), "/apis/apps/v1/namespaces/shop/deployments");
        assert_eq!(deployments.name(), "deployments.apps");
        assert_eq!(ResourceType::of::<Pod>(&()).url_path(None), "/api/v1/pods");
        assert_eq!(ResourceType::of::<PartialObjectMeta<Pod>>(&()).name(), "pods (metadata)");
    }

    #[test]
    fn a_dynamic_view_names_the_same_resource() {
        let erased = ApiResource::erase::<Deployment>(&());
        assert_eq!(ResourceType::of::<DynamicObject>(&erased), ResourceType::of::<Deployment>(&()));
        assert_ne!(
            ResourceType::of::<PartialObjectMeta<Deployment>>(&()),
            ResourceType::of::<Deployment>(&())
        );
    }

    /// A dictionary was learnt from Secrets whose kind somebody had spelt `secret`.
    #[test]
    fn secrets_are_known_however_they_are_spelt() {
        let secrets = ResourceType::of::<k8s_openapi::api::core::v1::Secret>(&());
        assert!(secrets.is_secret());
        assert!(ResourceType { kind: "secret".into(), ..secrets.clone() }.is_secret());
        assert!(ResourceType { kind: "Anything".into(), ..secrets.clone() }.is_secret());
        assert!(!ResourceType { group: "example.com".into(), ..secrets }.is_secret());
    }

    #[test]
    fn what_has_no_namespace_is_known() {
        assert!(is_cluster_scoped::<Node>() && !is_cluster_scoped::<Pod>());
    }
}
