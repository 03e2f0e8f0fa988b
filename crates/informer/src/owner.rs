//! Owner references: setting the controller of an object, and finding the owners of an object.
//!
//! These functions work on the objects passed to them and send no requests. To build owner references by
//! hand, use [`kube::Resource`].

pub use crate::reference::{ObjectReference, ToObjectReference};
pub use informer_core::OwnerReference;

use kube::Resource;
use kube::core::NamespaceResourceScope;
use std::any::TypeId;

use crate::error::OwnerError;
use crate::resource::is_cluster_scoped;

/// Makes `owner` the controller of `child` by setting an owner reference with `controller` and
/// `blockOwnerDeletion`.
///
/// The garbage collector deletes the child together with its owner; a foreground deletion of the owner waits
/// until the child is deleted.
///
/// An existing reference to the owner is updated; other owner references stay unchanged. A child of a
/// namespaced kind without a namespace gets the namespace of its owner. If the kind of the child is known
/// only at run time, set the namespace of the child first.
///
/// # Errors
///
/// Returns an error, and changes nothing, in these cases:
/// - The owner has no kind, name or uid.
/// - The child already has another controller.
/// - The owner is namespaced, and the child is in another namespace or cluster-scoped. The garbage collector
///   would delete the child, because it would not find the owner.
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
    let (owner, child_reference) = (Box::new(owner.reference()), Box::new(child.reference()));
    let fields = [("kind", &owner.kind), ("name", &owner.name), ("uid", &owner.uid)];
    if let Some((missing, _)) = fields.iter().find(|(_, value)| value.is_empty()).copied() {
        return Err(OwnerError::IncompleteOwner { owner, missing });
    }
    let namespace = namespace_for::<C>(&owner, &child_reference)?;
    if let Some(controller) = controller_of(child).filter(|controller| *controller.uid != *owner.uid) {
        let (child, controller) = (child_reference, Box::new(controller));
        return Err(OwnerError::AlreadyControlled { child, owner, controller });
    }
    let meta = child.meta_mut();
    meta.namespace = namespace;
    let references = meta.owner_references.get_or_insert_default();
    let position = references.iter().position(|existing| existing.uid == owner.uid).unwrap_or_else(|| {
        // Appends an empty reference, which is filled in below.
        references.resize_with(references.len() + 1, Default::default);
        references.len() - 1
    });
    let reference = &mut references[position];
    (reference.api_version, reference.kind) = (owner.api_version, owner.kind);
    (reference.name, reference.uid) = (owner.name, owner.uid);
    (reference.controller, reference.block_owner_deletion) = (Some(true), Some(true));
    Ok(())
}

/// Returns the controller of an object: its owner reference with `controller: true`.
///
/// ```
/// # use informer::{Key, Lister};
/// # use k8s_openapi::api::core::v1::Pod;
/// /// The replica set of a pod, found without decoding the pod.
/// fn replica_set(pods: &Lister<Pod>, pod: &Key) -> Option<Key> {
///     let controller = informer::owner::controller_of(&pods.get_by_key(pod)?)?;
///     (&*controller.kind == "ReplicaSet").then(|| Key::new(pod.namespace().unwrap_or_default(), &controller.name))
/// }
/// ```
pub fn controller_of<Form>(object: &impl ToObjectReference<Form>) -> Option<OwnerReference> {
    object.owners().into_iter().find(|owner| owner.controller)
}

/// Returns whether `owner` is the controller of `object`. Another incarnation of the controller, with another
/// uid, does not match.
pub fn is_controlled_by<Form, OwnerForm>(
    object: &impl ToObjectReference<Form>,
    owner: &impl ToObjectReference<OwnerForm>,
) -> bool {
    controller_of(object).is_some_and(|controller| owner.reference().is_target_of(&controller))
}

/// Returns whether `owner` is an owner of `object`. Another incarnation of an owner, with another uid, does
/// not match.
pub fn is_owned_by<Form, OwnerForm>(
    object: &impl ToObjectReference<Form>,
    owner: &impl ToObjectReference<OwnerForm>,
) -> bool {
    let owner = owner.reference();
    object.owners().iter().any(|reference| owner.is_target_of(reference))
}

/// Returns the namespace that `child` must have to be owned by `owner`, or an error if it cannot be owned.
fn namespace_for<C: Resource + 'static>(
    owner: &ObjectReference,
    child: &ObjectReference,
) -> Result<Option<String>, OwnerError> {
    let Some(required) = &owner.namespace else { return Ok(child.namespace.clone()) };
    let is_namespaced = TypeId::of::<C::Scope>() == TypeId::of::<NamespaceResourceScope>();
    let (owner, child) = (Box::new(owner.clone()), Box::new(child.clone()));
    match &child.namespace {
        _ if is_cluster_scoped::<C>() => Err(OwnerError::ClusterScopedChild { child, owner }),
        Some(namespace) if namespace != required => Err(OwnerError::CrossNamespace { child, owner }),
        None if !is_namespaced => Err(OwnerError::ClusterScopedChild { child, owner }),
        _ => Ok(Some(required.clone())),
    }
}
