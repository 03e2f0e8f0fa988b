//! Every kind that the server has, at once: all sync on one factory, whole and as metadata alone, and what happens to objects of many of
//! them is told.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;

use informer::{Object, Options, SharedInformer, SharedInformerFactory};
use informer_core::{Encoding, Entry};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use k8s_openapi::api::rbac::v1::Role;
use kube::Resource;
use kube::core::{ApiResource, DynamicObject};
use kube::discovery::{Discovery, Scope, verbs};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::arm::{Arm, PATIENCE, until};
use crate::model::Model;
use crate::runner::statements;
use crate::types::{Visit, with_type};

statements![
    informers_of_every_kind_sync_on_one_factory_and_tell_what_happens,
    objects_of_every_kind_are_the_same_in_both_forms,
    typed_objects_are_what_the_server_has,
    a_list_in_pages_and_one_in_a_stream_are_the_same,
];

/// Every kind that can be listed and watched, in every version, without what other stories define.
async fn every_kind(arm: &Arm) -> Vec<(ApiResource, bool)> {
    let discovery = Discovery::new(arm.client.clone()).run().await.unwrap();
    let mut kinds = Vec::new();
    for group in discovery.groups().filter(|group| !group.name().ends_with(".example.com")) {
        for version in group.versions() {
            for (resource, can) in group.versioned_resources(version) {
                if can.supports_operation(verbs::LIST) && can.supports_operation(verbs::WATCH) {
                    kinds.push((resource, can.scope == Scope::Namespaced));
                }
            }
        }
    }
    kinds
}

async fn informers_of_every_kind_sync_on_one_factory_and_tell_what_happens(arm: &Arm) {
    let kinds = every_kind(arm).await;
    assert!(kinds.len() >= 50, "{}", kinds.len());
    let factory = SharedInformerFactory::new(arm.client.clone());
    let follow = |(resource, _): &(ApiResource, bool)| {
        let (whole, meta) = (factory.dynamic(resource), factory.dynamic_metadata(resource));
        let followed = (Model::follow(&whole), Model::follow(&meta));
        (format!("{}/{}", resource.api_version, resource.plural), (whole, meta, followed))
    };
    let informers: BTreeMap<String, _> = kinds.iter().map(follow).collect();
    factory.start();
    // More than a hundred, beside everything else.
    factory.wait_for_sync(3 * PATIENCE).await.unwrap();
    assert_eq!(factory.metrics().len(), 2 * kinds.len());

    let objects = objects(&arm.namespace);
    for object in &objects {
        let (version, plural, namespaced, _) = object;
        let (_, _, ((_on, whole), (_also, meta))) = &informers[&format!("{version}/{plural}")];
        let (path, made) = make(arm, object).await;
        let name = made["metadata"]["name"].as_str().unwrap();
        // Nobody would take out the finalizers that the server puts into some.
        let change = json!({"metadata": {"labels": {"told": "yes"}, "finalizers": null}});
        let changed = arm.merge(&path, &change).await;
        let (told, version) = (["+", "~", "-"].map(|sign| format!("{sign}{name}")), version_of(&changed));
        let key = if *namespaced { format!("{}/{name}", arm.namespace) } else { name.to_owned() };
        let at = |model: &Model| model.version(&key).is_some_and(|told| told.parse().ok() >= Some(version));
        until(&path, async || at(whole) && at(meta)).await;
        // Nobody collects what would be left to somebody else, so nothing is.
        let at_once = json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"});
        arm.request("DELETE", &path, Some(&at_once)).await.unwrap();
        until(&path, async || whole.has(&told[2]) && meta.has(&told[2])).await;
        assert!(whole.has(&told[0]) && meta.has(&told[0]), "{path}");
    }
    for (resource, namespaced) in &kinds {
        let (whole, meta, ((_on, told), (_also, told_of_meta))) =
            &informers[&format!("{}/{}", resource.api_version, resource.plural)];
        let list = async || arm.list_of(resource, *namespaced).await;
        // Others are at work in their namespaces, so that there all is only ever the same for a moment.
        let part = if *namespaced { format!("{}/", arm.namespace) } else { String::new() };
        told.settles_below(&part, whole, list).await;
        told_of_meta.settles_below(&part, meta, list).await;
    }
    factory.shutdown(PATIENCE).await.unwrap();
}

/// What is cached from protobuf says what is cached from JSON, of whole objects, as the types that users have, and of metadata alone.
async fn objects_of_every_kind_are_the_same_in_both_forms(arm: &Arm) {
    let kinds = every_kind(arm).await;
    let recorded = make_recorded(arm).await;
    assert!(recorded.len() >= 55, "{}", recorded.len());
    let factories = [true, false].map(|protobuf| {
        SharedInformerFactory::with_options(arm.client.clone(), Options::default().protobuf(protobuf))
    });
    let whole: Vec<_> =
        kinds.iter().map(|(kind, _)| factories.each_ref().map(|factory| factory.dynamic(kind))).collect();
    let meta: Vec<_> = kinds
        .iter()
        .map(|(kind, _)| factories.each_ref().map(|factory| factory.dynamic_metadata(kind)))
        .collect();
    for factory in &factories {
        factory.start();
        factory.wait_for_sync(3 * PATIENCE).await.unwrap();
    }
    for ((kind, _), (whole, meta)) in kinds.iter().zip(whole.iter().zip(&meta)) {
        let (of_objects, of_metadata) = (compare(Some(kind), whole), compare(None, meta));
        if recorded.contains(&(kind.api_version.clone(), kind.kind.clone())) {
            assert!(
                of_objects > 0 && of_metadata > 0,
                "{kind:?}: {of_objects} objects, {of_metadata} metadata"
            );
        }
    }
    for factory in &factories {
        factory.shutdown(PATIENCE).await.unwrap();
    }
}

/// Makes the objects that were recorded, one of each kind at least; their types.
async fn make_recorded(arm: &Arm) -> BTreeSet<(String, String)> {
    let recorded = include_str!("../../../../testdata/recordings/kinds/index.json");
    let recorded: Vec<Value> = serde_json::from_str(recorded).unwrap();
    let mut made = BTreeSet::new();
    for entry in recorded.iter().filter(|entry| entry["sent"].is_object()) {
        let sent = entry["sent"].to_string().replace("rec-kinds", &arm.namespace);
        let sent: Value = serde_json::from_str(&sent).unwrap();
        let types = ["apiVersion", "kind"].map(|name| sent[name].as_str().unwrap().to_owned());
        // Its group would be there and never answer, in the way of everybody's discovery.
        if types[1] == "APIService" {
            continue;
        }
        let path = entry["path"].as_str().unwrap().replace("rec-kinds", &arm.namespace);
        let collection = path.rsplit_once('/').unwrap().0;
        match arm.request("POST", collection, Some(&sent)).await {
            // A story that did not end may have left it.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            answer => assert!(answer.is_ok(), "POST {collection}: {answer:?}"),
        }
        arm.keep(&path);
        made.insert(types.into());
    }
    made
}

/// Decodes two entries of one object.
impl Visit for [&Arc<Entry>; 2] {
    type Found = ();

    fn visit<K: DeserializeOwned + PartialEq + Debug + Send + Sync + 'static>(self) {
        let [left, right] = self.map(|entry| Object::<K>::new(Arc::clone(entry)).typed().unwrap());
        assert_eq!(*left, *right);
    }
}

/// How many objects came as protobuf to the one and say the same as the JSON of the other, also as the type of a kind, if it is told.
fn compare<K>(kind: Option<&ApiResource>, [protobuf, json]: &[SharedInformer<K>; 2]) -> usize {
    let mut compared = 0;
    for object in protobuf.lister().list() {
        let Some(other) = json.lister().get_by_key(object.key()) else { continue };
        // Others are at work, so that one of the two may be ahead for a moment.
        if other.version() == object.version() {
            assert!(object.entry().is_identical(other.entry()), "{:?}: {:?}", object.key(), object.json());
            if let Some(ApiResource { api_version, kind, .. }) = kind {
                with_type(api_version, kind, [object.entry(), other.entry()]);
            }
            compared += usize::from(object.entry().encoding() != Encoding::Json);
        }
    }
    compared
}

fn version_of(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

/// An object that no controller is needed for: API version, plural, whether it is in the namespace, and the object.
type Made = (&'static str, &'static str, bool, Value);

/// Makes an object; its path, and what the server made of it.
async fn make(arm: &Arm, (version, plural, namespaced, body): &Made) -> (String, Value) {
    let group = if version.contains('/') { "/apis" } else { "/api" };
    let path = if *namespaced { format!("/namespaces/{}", arm.namespace) } else { String::new() };
    let path = format!("{group}/{version}{path}/{plural}");
    let made = if *namespaced { arm.post(&path, body).await } else { arm.post_outside(&path, body).await };
    let name = made["metadata"]["name"].as_str().unwrap();
    (format!("{path}/{name}"), made)
}

fn inside(version: &'static str, plural: &'static str, field: &str, value: &Value) -> Made {
    (version, plural, true, json!({"metadata": {"name": "a"}, field: value}))
}

/// One for each of many kinds.
fn objects(run: &str) -> Vec<Made> {
    let about = json!({"kind": "ConfigMap", "name": "a", "namespace": run});
    let claim = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let (selector, backend) = (
        json!({"matchLabels": {"app": "a"}}),
        json!({"defaultBackend": {"service": {"name": "a", "port": {"number": 80}}}}),
    );
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"});
    let scaler = json!({"maxReplicas": 2, "scaleTargetRef": target});
    let slice = json!({"metadata": {"name": "a"}, "addressType": "IPv4", "endpoints": []});
    let revision = json!({"metadata": {"name": "a"}, "revision": 1, "data": {"any": "thing"}});
    let rbac = "rbac.authorization.k8s.io/v1";
    let mut objects = workloads();
    objects.extend([
        inside("v1", "configmaps", "data", &json!({"a": "b"})),
        inside("v1", "secrets", "data", &json!({"a": "Yg=="})),
        inside("v1", "services", "spec", &json!({"ports": [{"port": 80}]})),
        inside("v1", "serviceaccounts", "secrets", &json!([])),
        inside("v1", "events", "involvedObject", &about),
        inside("v1", "persistentvolumeclaims", "spec", &claim),
        ("apps/v1", "controllerrevisions", true, revision),
        inside("coordination.k8s.io/v1", "leases", "spec", &json!({"holderIdentity": "me"})),
        ("discovery.k8s.io/v1", "endpointslices", true, slice),
        inside("networking.k8s.io/v1", "ingresses", "spec", &backend),
        inside("networking.k8s.io/v1", "networkpolicies", "spec", &json!({"podSelector": {}})),
        inside("policy/v1", "poddisruptionbudgets", "spec", &json!({"selector": selector})),
        inside(rbac, "roles", "rules", &json!([])),
        inside(rbac, "rolebindings", "roleRef", &role()),
        inside("autoscaling/v2", "horizontalpodautoscalers", "spec", &scaler),
    ]);
    objects.extend(outside(run));
    objects
}

fn role() -> Value {
    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"})
}

/// What would run pods.
fn workloads() -> Vec<Made> {
    let pod = json!({"containers": [{"name": "app", "image": "registry.example/app:1"}],
        "schedulerName": "nobody.example", "automountServiceAccountToken": false});
    let labels = json!({"app": "a"});
    let template = json!({"metadata": {"labels": labels}, "spec": pod});
    let mut once = template.clone();
    once["spec"]["restartPolicy"] = json!("Never");
    let job = json!({"suspend": true, "template": once});
    let spec = json!({"selector": {"matchLabels": labels}, "template": template});
    let mut stateful = spec.clone();
    stateful["serviceName"] = json!("a");
    let later = json!({"schedule": "0 0 1 1 *", "jobTemplate": {"spec": job}});
    vec![
        inside("v1", "pods", "spec", &pod),
        inside("v1", "podtemplates", "template", &template),
        inside("v1", "replicationcontrollers", "spec", &json!({"replicas": 0, "template": template})),
        inside("apps/v1", "deployments", "spec", &spec),
        inside("apps/v1", "replicasets", "spec", &spec),
        inside("apps/v1", "daemonsets", "spec", &spec),
        inside("apps/v1", "statefulsets", "spec", &stateful),
        inside("batch/v1", "jobs", "spec", &job),
        inside("batch/v1", "cronjobs", "spec", &later),
    ]
}

/// What lies outside of namespaces.
fn outside(run: &str) -> Vec<Made> {
    let outside = |version: &'static str, plural: &'static str, field: &str, value: Value| {
        (version, plural, false, json!({"metadata": {"name": format!("{run}-a")}, field: value}))
    };
    let rbac = "rbac.authorization.k8s.io/v1";
    vec![
        outside("v1", "nodes", "spec", json!({"unschedulable": true})),
        outside(rbac, "clusterroles", "rules", json!([])),
        outside(rbac, "clusterrolebindings", "roleRef", role()),
        outside("scheduling.k8s.io/v1", "priorityclasses", "value", json!(7)),
        outside("storage.k8s.io/v1", "storageclasses", "provisioner", json!("example.com/none")),
        outside("node.k8s.io/v1", "runtimeclasses", "handler", json!("none")),
        outside("networking.k8s.io/v1", "ingressclasses", "spec", json!({"controller": "example.com/none"})),
    ]
}

/// Follows a kind of the namespace; what is cached must decode to what the server gives to a typed client.
async fn same<K>(arm: &Arm, factory: &SharedInformerFactory)
where
    K: Resource<DynamicType = ()> + Serialize + DeserializeOwned + Send + Sync + 'static,
{
    let informer: SharedInformer<K> = factory.informer();
    let (_on, model) = Model::follow(&informer);
    model.settles(&informer, async || arm.list::<K>().await).await;
    let mut server = arm.list::<K>().await;
    let cached = informer.lister().list();
    assert!(!cached.is_empty(), "{}", informer.resource());
    assert_eq!(cached.len(), server.len());
    server.sort_by(|left, right| left.metadata.name.cmp(&right.metadata.name));
    for (cached, mut stored) in cached.into_iter().zip(server) {
        // The cache leaves out who wrote which field.
        stored.metadata.managed_fields = None;
        let typed: K = serde_json::from_value(serde_json::to_value(&stored).unwrap()).unwrap();
        let is = serde_json::to_value(&*cached.typed().unwrap()).unwrap();
        assert_eq!(is, serde_json::to_value(typed).unwrap(), "{cached:?}");
    }
}

async fn typed_objects_are_what_the_server_has(arm: &Arm) {
    for (version, plural, _, body) in objects(&arm.namespace).iter().filter(|(_, _, inside, _)| *inside) {
        let group = if version.contains('/') { "/apis" } else { "/api" };
        arm.post(&format!("{group}/{version}/namespaces/$name/{plural}"), body).await;
    }
    let factory = SharedInformerFactory::with_options(
        arm.client.clone(),
        Options::default().namespace(arm.namespace.clone()),
    );
    factory.start();
    same::<ConfigMap>(arm, &factory).await;
    same::<Secret>(arm, &factory).await;
    same::<Service>(arm, &factory).await;
    same::<Deployment>(arm, &factory).await;
    same::<Lease>(arm, &factory).await;
    same::<Role>(arm, &factory).await;
}

async fn a_list_in_pages_and_one_in_a_stream_are_the_same(arm: &Arm) {
    for number in 0..25 {
        arm.post("$ns/configmaps", &crate::arm::map(&format!("map-{number}"), "1")).await;
    }
    let options = || Options::default().namespace(arm.namespace.clone());
    let pages = options().watch_list(informer::WatchListPolicy::Never).page_size(7);
    let resource = ApiResource::erase::<ConfigMap>(&());
    for options in [options(), pages] {
        let maps: SharedInformer<DynamicObject> =
            SharedInformer::dynamic(arm.client.clone(), &resource, options);
        let (_on, model) = Model::follow(&maps);
        maps.start();
        maps.wait_for_sync(PATIENCE).await.unwrap();
        model.settles(&maps, async || arm.list::<ConfigMap>().await).await;
        assert!(maps.lister().len() >= 25);
        let counters = maps.status().counters;
        assert_eq!(counters.failures, 0, "{counters:?}");
    }
}
