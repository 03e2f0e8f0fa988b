//! Owners and what they own: putting an owner into an object, and asking an object whose it is.
//!
//! Everything here is about objects in hand; nothing is asked of a server. [`kube::Resource`] has references to write by hand.

pub use crate::reference::{ObjectReference, ToObjectReference};
pub use informer_core::OwnerReference;

use kube::Resource;
use kube::core::NamespaceResourceScope;
use std::any::TypeId;

use crate::error::OwnerError;
use crate::resource::is_cluster_scoped;

/// Makes `owner` the controller of `child`: it is deleted with its owner, not before it if somebody waits for that
/// (`blockOwnerDeletion`), and nobody else may control it.
///
/// An object that is its already is brought up to date; other owners stay as they are. A child without a namespace is put into its owner's. What the
/// garbage collector would take for an orphan is an error, as is a child that somebody else controls; then nothing is changed.
///
/// ```
/// use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
/// # fn website() -> ConfigMap {
/// #     serde_json::from_str(r#"{"metadata": {"name": "site", "namespace": "shop", "uid": "1"}}"#).unwrap()
/// # }
/// let website = website();
/// let mut deployment = Deployment::default();
/// deployment.metadata.name = Some("site".to_owned());
///
/// informer::owner::set_controller_reference(&website, &mut deployment)?;
///
/// assert!(informer::owner::is_controlled_by(&deployment, &website));
/// assert_eq!(deployment.metadata.namespace.as_deref(), Some("shop"));
/// # Ok::<(), informer::error::OwnerError>(())
/// ```
pub fn set_controller_reference<OwnerForm, Form, C>(
    owner: &impl ToObjectReference<OwnerForm>,
    child: &mut C,
) -> Result<(), OwnerError>
where
    C: Resource + ToObjectReference<Form> + 'static,
{
    let (owner, reference) = (Box::new(owner.reference()), Box::new(child.reference()));
    let parts = [("kind", &owner.kind), ("name", &owner.name), ("uid", &owner.uid)];
    if let Some((missing, _)) = parts.iter().find(|(_, part)| part.is_empty()).copied() {
        return Err(OwnerError::IncompleteOwner { owner, missing });
    }
    let namespace = namespace_for::<C>(&owner, &reference)?;
    if let Some(by) = controller_of(child).filter(|by| *by.uid != *owner.uid) {
        return Err(OwnerError::AlreadyControlled { child: reference, owner, by: Box::new(by) });
    }
    let meta = child.meta_mut();
    meta.namespace = namespace;
    let references = meta.owner_references.get_or_insert_default();
    let place = references.iter().position(|other| other.uid == owner.uid).unwrap_or_else(|| {
        references.resize_with(references.len() + 1, Default::default);
        references.len() - 1
    });
    let reference = &mut references[place];
    (reference.api_version, reference.kind) = (owner.api_version, owner.kind);
    (reference.name, reference.uid) = (owner.name, owner.uid);
    (reference.controller, reference.block_owner_deletion) = (Some(true), Some(true));
    Ok(())
}

/// Who controls an object: the one of its owners that manages it.
///
/// ```
/// # use informer::{Key, Lister};
/// # use k8s_openapi::api::core::v1::Pod;
/// /// The replica set of a pod. Nothing is decoded for this.
/// fn replica_set(pods: &Lister<Pod>, pod: &Key) -> Option<Key> {
///     let controller = informer::owner::controller_of(&pods.get_by_key(pod)?)?;
///     (&*controller.kind == "ReplicaSet").then(|| Key::new(pod.namespace().unwrap_or_default(), &controller.name))
/// }
/// ```
pub fn controller_of<Form>(object: &impl ToObjectReference<Form>) -> Option<OwnerReference> {
    object.owners().into_iter().find(|owner| owner.controller)
}

/// Whether `owner` controls `object`: this very owner, not another of the same name.
pub fn is_controlled_by<Form, OwnerForm>(
    object: &impl ToObjectReference<Form>,
    owner: &impl ToObjectReference<OwnerForm>,
) -> bool {
    controller_of(object).is_some_and(|controller| owner.reference().refers_to(&controller))
}

/// Whether `owner` is among the owners of `object`: this very owner, not another of the same name.
pub fn is_owned_by<Form, OwnerForm>(
    object: &impl ToObjectReference<Form>,
    owner: &impl ToObjectReference<OwnerForm>,
) -> bool {
    let owner = owner.reference();
    object.owners().iter().any(|other| owner.refers_to(other))
}

/// The namespace in which a child of this owner is, or is to be.
fn namespace_for<C: Resource + 'static>(
    owner: &ObjectReference,
    child: &ObjectReference,
) -> Result<Option<String>, OwnerError> {
    let Some(needed) = &owner.namespace else { return Ok(child.namespace.clone()) };
    let is_namespaced = TypeId::of::<C::Scope>() == TypeId::of::<NamespaceResourceScope>();
    let (owner, child) = (Box::new(owner.clone()), Box::new(child.clone()));
    match &child.namespace {
        _ if is_cluster_scoped::<C>() => Err(OwnerError::ClusterScopedChild { child, owner }),
        Some(namespace) if namespace != needed => Err(OwnerError::CrossNamespace { child, owner }),
        None if !is_namespaced => Err(OwnerError::ClusterScopedChild { child, owner }),
        _ => Ok(Some(needed.clone())),
    }
}
