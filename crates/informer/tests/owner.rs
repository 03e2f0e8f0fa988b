//! Owners: what is written into a child, what is rejected, and how owners of cached and typed objects are
//! found.
#![allow(clippy::unwrap_used)]

use crate::cluster::{TIMEOUT, config_map};
use informer::error::OwnerError;
use informer::owner::{
    ObjectReference, ToObjectReference, controller_of, is_controlled_by, is_owned_by,
    set_controller_reference,
};
use informer::{InformerOptions, Object, SharedInformerFactory};
use informer_apiserver::ApiServer;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, PersistentVolume, Pod};
use kube::api::{ApiResource, DynamicObject};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn typed<K: DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

/// An owner in a namespace.
fn site() -> ConfigMap {
    typed(json!({"metadata": {"namespace": "shop", "name": "site", "uid": "u-1"}}))
}

fn node() -> Node {
    typed(json!({"metadata": {"name": "node-1", "uid": "u-2"}}))
}

fn pod(namespace: &str) -> Pod {
    typed(json!({"metadata": {"namespace": namespace, "name": "p"}}))
}

fn references(pod: &Pod) -> Value {
    json!(pod.metadata.owner_references)
}

#[test]
fn set_controller_writes_a_controller_reference() {
    let mut pod = pod("shop");
    set_controller_reference(&site(), &mut pod).unwrap();
    let expected = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "site", "uid": "u-1", "controller": true, "blockOwnerDeletion": true,
    }]);
    assert_eq!(references(&pod), expected);
    set_controller_reference(&site(), &mut pod).unwrap();
    assert_eq!(references(&pod), expected, "a second call changes nothing");
}

#[test]
fn other_owners_stay_and_our_reference_is_updated() {
    let mut pod = pod("shop");
    let other = json!({"apiVersion": "v1", "kind": "Secret", "name": "s", "uid": "u-9"});
    let old = json!({"apiVersion": "v1beta1", "kind": "ConfigMap", "name": "site", "uid": "u-1"});
    pod.metadata.owner_references = typed(json!([other, old]));
    assert!(is_owned_by(&pod, &site()) && !is_controlled_by(&pod, &site()));
    set_controller_reference(&site(), &mut pod).unwrap();
    let written = references(&pod);
    assert_eq!((written.as_array().unwrap().len(), &written[0]), (2, &other));
    assert_eq!((&written[1]["apiVersion"], &written[1]["controller"]), (&json!("v1"), &json!(true)));
    assert!(is_controlled_by(&pod, &site()));
}

#[test]
fn object_with_another_controller_is_rejected_and_unchanged() {
    let mut pod = pod("shop");
    set_controller_reference(&node(), &mut pod).unwrap();
    let before = pod.clone();
    let error = set_controller_reference(&site(), &mut pod).unwrap_err();
    let text = "own Pod shop/p by ConfigMap shop/site: already controlled by Node node-1 (uid u-2)";
    assert_eq!(error.to_string(), text);
    assert!(matches!(error, OwnerError::AlreadyControlled { controller, .. } if &*controller.uid == "u-2"));
    assert_eq!(pod, before);
    // An owner with the same name but another uid is another object.
    let mut again = site();
    again.metadata.uid = Some("u-3".to_owned());
    let mut pod: Pod = self::pod("shop");
    set_controller_reference(&site(), &mut pod).unwrap();
    assert!(matches!(set_controller_reference(&again, &mut pod), Err(OwnerError::AlreadyControlled { .. })));
    assert!(!is_controlled_by(&pod, &again) && !is_owned_by(&pod, &again));
}

#[test]
fn owner_must_be_in_the_same_namespace_or_cluster_scoped() {
    let error = set_controller_reference(&site(), &mut pod("other")).unwrap_err();
    let text =
        "own Pod other/p by ConfigMap shop/site: an owner must be in the same namespace or cluster-scoped";
    assert_eq!(error.to_string(), text);
    let mut volume = PersistentVolume::default();
    let error = set_controller_reference(&site(), &mut volume).unwrap_err();
    assert!(matches!(error, OwnerError::ClusterScopedChild { .. }), "{error}");
    assert_eq!(volume, PersistentVolume::default());
    // A namespace set on a cluster-scoped object is ignored.
    volume.metadata.namespace = Some("shop".to_owned());
    let error = set_controller_reference(&site(), &mut volume).unwrap_err();
    assert!(matches!(error, OwnerError::ClusterScopedChild { .. }), "{error}");
    set_controller_reference(&node(), &mut volume).unwrap();
    set_controller_reference(&node(), &mut pod("anywhere")).unwrap();
}

#[test]
fn child_without_namespace_gets_that_of_its_owner() {
    let mut deployment = Deployment::default();
    set_controller_reference(&site(), &mut deployment).unwrap();
    assert_eq!(deployment.metadata.namespace.as_deref(), Some("shop"));
    let mut deployment = Deployment::default();
    set_controller_reference(&node(), &mut deployment).unwrap();
    assert_eq!(deployment.metadata.namespace, None, "the owner is cluster-scoped");
    // Whether a kind known only at run time is namespaced is unknown.
    let resource = ApiResource::erase::<Deployment>(&());
    let mut dynamic = DynamicObject::new("d", &resource);
    let error = set_controller_reference(&site(), &mut dynamic).unwrap_err();
    assert!(error.to_string().ends_with("(set the child's namespace?)"), "{error}");
    let mut dynamic = dynamic.within("shop");
    set_controller_reference(&site(), &mut dynamic).unwrap();
    assert!(is_controlled_by(&dynamic, &site()));
}

#[test]
fn owner_without_uid_is_rejected() {
    let mut made = site();
    made.metadata.uid = None;
    let error = set_controller_reference(&made, &mut pod("shop")).unwrap_err();
    let text = "own objects by ConfigMap shop/site: it has no uid (use the object as read from the server)";
    assert_eq!(error.to_string(), text);
    assert!(!is_owned_by(&pod("shop"), &made), "two objects without uid are not equal");
}

/// Regression: `drop_fields(["metadata.ownerReferences"])` removed the owners from the heads, and a
/// controller that `owns` the kind received no events. Heads keep the owners, whatever is dropped from the
/// rest.
#[tokio::test(start_paused = true)]
async fn owners_are_kept_in_a_filtered_cache() {
    assert!(InformerOptions::default().drop_fields(["metadata.ownerReferences"]).is_err());
    let server = ApiServer::new();
    let mut child: ConfigMap = typed(config_map("shop", "child", "1"));
    server.create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})).unwrap();
    set_controller_reference(&site(), &mut child).unwrap();
    server.create(&child).unwrap();
    let factory = SharedInformerFactory::new(server.client());
    factory.configure::<ConfigMap>(InformerOptions::default().keep_fields::<&str>([]).unwrap()).unwrap();
    let maps = factory.informer::<ConfigMap>();
    factory.start();
    factory.wait_for_sync(TIMEOUT).await.unwrap();
    assert!(is_controlled_by(&maps.lister().get("shop", "child").unwrap(), &site()));
}

/// The head contains the owners; the kind of dynamic objects is in the bytes, that of metadata in the type.
#[tokio::test(start_paused = true)]
async fn cached_objects_can_be_owners_and_owned() {
    let server = ApiServer::new();
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": "default", "name": "d"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        },
    });
    let deployment: Deployment = typed(server.create(&deployment).unwrap());
    let factory = SharedInformerFactory::new(server.client());
    let (deployments, heads, maps) = (
        factory.informer::<Deployment>(),
        factory.metadata_informer::<Deployment>(),
        factory.informer::<ConfigMap>(),
    );
    let dynamic = factory.dynamic_informer(&ApiResource::erase::<Deployment>(&()));
    factory.start();
    factory.wait_for_sync(TIMEOUT).await.unwrap();
    let cached: Object<Deployment> = deployments.lister().get("default", "d").unwrap();
    let head = heads.lister().get("default", "d").unwrap();
    let dynamic = dynamic.lister().get("default", "d").unwrap();

    let reference = ObjectReference {
        api_version: "apps/v1".to_owned(),
        kind: "Deployment".to_owned(),
        namespace: Some("default".to_owned()),
        name: "d".to_owned(),
        uid: cached.uid().to_owned(),
    };
    let views = (cached.typed().unwrap(), dynamic.typed().unwrap());
    let references = [cached.reference(), head.reference(), dynamic.reference(), deployment.reference()];
    assert_eq!(references, [(); 4].map(|()| reference.clone()));
    assert_eq!([views.0.reference(), views.1.reference()], [(); 2].map(|()| reference.clone()));
    assert_eq!(
        [ToObjectReference::version(&views.0), ToObjectReference::version(&views.1)],
        [(); 2].map(|()| Some(cached.resource_version().clone()))
    );

    let mut child: ConfigMap = typed(config_map("default", "child", "1"));
    set_controller_reference(&cached, &mut child).unwrap();
    set_controller_reference(&head, &mut child).unwrap();
    set_controller_reference(&dynamic, &mut child).unwrap();
    set_controller_reference(&views.0, &mut child).unwrap();
    set_controller_reference(&views.1, &mut child).unwrap();
    set_controller_reference(&reference, &mut child).unwrap();
    assert_eq!(child.metadata.owner_references.as_ref().unwrap().len(), 1);
    let written = server.create(&child).unwrap();
    let version = informer::ResourceVersion::new(written["metadata"]["resourceVersion"].as_str().unwrap());
    maps.wait_for_resource_version(&version, TIMEOUT).await.unwrap();
    let child = maps.lister().get("default", "child").unwrap();
    assert!(
        is_controlled_by(&child, &cached) && is_controlled_by(&child, &dynamic) && is_owned_by(&child, &head)
    );
    assert_eq!(&*controller_of(&child).unwrap().name, "d");
    let namespace = Namespace::default();
    assert!(!is_controlled_by(&child, &namespace) && controller_of(&cached).is_none());
    // Another version of the group is the same kind; another group is not.
    let with_api_version =
        |api_version: &str| ObjectReference { api_version: api_version.to_owned(), ..reference.clone() };
    assert!(is_controlled_by(&child, &with_api_version("apps/v1beta2")));
    assert!(!is_controlled_by(&child, &with_api_version("example.com/v1")));
    // A uid alone is not enough: kind and name must match too.
    assert!(!is_controlled_by(
        &child,
        &ObjectReference { kind: "StatefulSet".to_owned(), ..reference.clone() }
    ));
    assert!(!is_owned_by(&child, &ObjectReference { name: "e".to_owned(), ..reference.clone() }));
    assert!(!is_owned_by(&child, &ObjectReference { uid: "another".to_owned(), ..reference.clone() }));
}
