//! Objects, listers, events, a client and contexts for unit tests of handlers, of reconcile functions, and of
//! other functions that read a cache, without a server.
//!
//! [`context`] shows how a test calls a reconcile function, and [`client()`] how it checks what was written. For
//! tests of whole controllers, use the embedded API server of the crate `informer-apiserver`.
//!
//! ```
//! use informer::{Event, Lister, testing};
//! use k8s_openapi::api::core::v1::Pod;
//!
//! /// The code under test.
//! fn running_on(pods: &Lister<Pod>, node: &str) -> usize {
//!     pods.list().iter().filter(|pod| pod.field("spec.nodeName").as_deref() == Some(node)).count()
//! }
//!
//! fn describe(event: &Event<Pod>) -> String {
//!     match event {
//!         Event::Added { object, .. } => format!("new pod {}", object.name()),
//!         Event::Updated { new, .. } => format!("changed pod {}", new.name()),
//!         Event::Deleted { last, .. } => format!("deleted pod {}", last.name()),
//!     }
//! }
//!
//! let pod = |name: &str, node: &str| -> Pod {
//!     let json = serde_json::json!({"metadata": {"name": name, "namespace": "shop"},
//!         "spec": {"nodeName": node, "containers": []}});
//!     serde_json::from_value(json).unwrap()
//! };
//! let pods = testing::lister([pod("a", "node-1"), pod("b", "node-2"), pod("c", "node-1")]);
//! assert_eq!(running_on(&pods, "node-1"), 2);
//!
//! let event = testing::updated(pod("a", "node-1"), pod("a", "node-2"));
//! assert_eq!(describe(&event), "changed pod a");
//! ```

mod client;
mod context;
#[cfg(feature = "persistence")]
mod disk;

pub use client::{RecordedRequest, Requests, client, failure, ok};
pub use context::{ContextBuilder, context};
#[cfg(feature = "persistence")]
pub use disk::MemoryDisk;

use crate::event::{Event, UpdateCause};
use crate::lister::Lister;
use informer_core::{Delta, Object, Replaced, ResourceVersion, Scope, StoreWriter};
use serde::Serialize;
use std::sync::Arc;

/// Returns an object as an informer delivers it.
///
/// # Panics
///
/// Panics if the value has no type or name; [`Object::from_typed`] returns an error instead.
pub fn object<K: Serialize + Send + Sync + 'static>(value: K) -> Object<K> {
    Object::from_typed(value).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns a synced lister of these objects. If two have the same key, the last one counts.
///
/// # Panics
///
/// Panics if a value has no type or name.
pub fn lister<K: Serialize + Send + Sync + 'static>(values: impl IntoIterator<Item = K>) -> Lister<K> {
    let (mut writer, reader) = StoreWriter::new([Scope::All]);
    writer.apply(&Scope::All, [Delta::Replaced(complete_list(values))]);
    Lister::from_reader(reader)
}

/// Returns these objects as a complete list of all namespaces.
fn complete_list<K: Serialize + Send + Sync + 'static>(values: impl IntoIterator<Item = K>) -> Replaced {
    let entries = values.into_iter().map(|value| Arc::clone(object(value).entry())).collect();
    let (scope, version, unreadable) = (Scope::All, ResourceVersion::new("1"), Vec::new());
    Replaced { scope, version, entries, unreadable, audit: false }
}

/// Returns the event of an object that was added after the initial list of a handler.
///
/// # Panics
///
/// Panics if the value has no type or name. The same holds for the other events.
pub fn added<K: Serialize + Send + Sync + 'static>(value: K) -> Event<K> {
    Event::Added { object: object(value), initial: false, previous: None }
}

/// Returns the event of an object in the initial list of a handler.
pub fn initial<K: Serialize + Send + Sync + 'static>(value: K) -> Event<K> {
    Event::Added { object: object(value), initial: true, previous: None }
}

/// Returns the event of a changed object.
pub fn updated<K: Serialize + Send + Sync + 'static>(old: K, new: K) -> Event<K> {
    Event::Updated { old: object(old), new: object(new), cause: UpdateCause::Change }
}

/// Returns the event by which a resync delivers an object again.
pub fn resynced<K: Serialize + Send + Sync + 'static>(value: K) -> Event<K> {
    let object = object(value);
    Event::Updated { old: object.clone(), new: object, cause: UpdateCause::Resync }
}

/// Returns the event of a deletion that the server reported.
pub fn deleted<K: Serialize + Send + Sync + 'static>(last: K) -> Event<K> {
    Event::Deleted { last: object(last), observed: true }
}

/// Returns the event of a deletion that was found later, in a list without the object.
pub fn deletion_found<K: Serialize + Send + Sync + 'static>(last: K) -> Event<K> {
    Event::Deleted { last: object(last), observed: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use informer_core::Key;
    use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    use kube::Api;
    use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams};

    fn map(name: &str, value: &str) -> ConfigMap {
        let mut map = ConfigMap::default();
        map.metadata.name = Some(name.to_owned());
        map.data = Some([("key".to_owned(), value.to_owned())].into());
        map
    }

    #[test]
    fn last_of_two_objects_with_the_same_key_counts() {
        let maps = lister([map("a", "1"), map("b", "1"), map("a", "2")]);
        assert!(maps.has_synced());
        let values: Vec<_> =
            maps.list().iter().map(|map| (map.name().to_owned(), map.field("data.key"))).collect();
        assert_eq!(values, [("a".to_owned(), Some("2".to_owned())), ("b".to_owned(), Some("1".to_owned()))]);
    }

    #[test]
    fn events_have_the_fields_that_an_informer_sets() {
        let new = || map("a", "1");
        assert!(matches!(added(new()), Event::Added { initial: false, .. }));
        assert!(matches!(initial(new()), Event::Added { initial: true, .. }));
        assert!(matches!(updated(new(), new()), Event::Updated { cause: UpdateCause::Change, .. }));
        assert!(matches!(resynced(new()), Event::Updated { cause: UpdateCause::Resync, .. }));
        assert!(matches!(deleted(new()), Event::Deleted { observed: true, .. }));
        assert!(matches!(deletion_found(new()), Event::Deleted { observed: false, .. }));
    }

    #[tokio::test]
    async fn request_is_recorded_with_its_query_and_body() {
        let (client, requests) = client(|request| match request.method.as_str() {
            "PATCH" => ok(&request.body),
            _ => failure(404, "NotFound"),
        });
        let maps: Api<ConfigMap> = Api::namespaced(client, "shop");
        assert!(maps.get_opt("a").await.unwrap().is_none());
        let patch = Patch::Merge(serde_json::json!({"metadata": {"name": "a"}}));
        maps.patch("a", &PatchParams::apply("me & you"), &patch).await.unwrap();
        maps.delete("a", &DeleteParams::default()).await.unwrap_err();

        assert_eq!(requests.all().len(), 3);
        let writes = requests.writes();
        assert_eq!(writes[0].to_string(), "PATCH /api/v1/namespaces/shop/configmaps/a");
        assert_eq!(writes[0].parameter("fieldManager"), Some("me & you"));
        assert_eq!(writes[0].parameter("dryRun"), None);
        assert_eq!(writes[0].content_type, "application/merge-patch+json");
        assert_eq!(writes[0].body["metadata"]["name"], "a");
        assert_eq!(writes[1].method, "DELETE");
    }

    #[tokio::test]
    async fn body_that_is_not_json_is_recorded_as_text() {
        let (client, requests) = client(|_| ok(&()));
        for body in ["", "a: b"] {
            let request = http::Request::post("/").body(body.as_bytes().to_vec()).unwrap();
            client.request::<serde_json::Value>(request).await.unwrap();
        }
        let bodies: Vec<_> = requests.all().into_iter().map(|request| request.body).collect();
        assert_eq!(bodies, [serde_json::Value::Null, "a: b".into()]);
    }

    fn context_of(maps: impl IntoIterator<Item = ConfigMap>) -> ContextBuilder {
        let (client, _) = client(|request| panic!("unexpected request: {request}"));
        context(client, Key::cluster("a")).objects(maps)
    }

    #[tokio::test]
    async fn context_has_the_objects_and_settings_of_the_test() {
        let ctx = context_of([map("a", "1")]).retries(3).state("state").build();
        assert_eq!(ctx.lister::<ConfigMap>().get_by_key(ctx.key()).unwrap().name(), "a");
        assert!(ctx.lister::<ConfigMap>().has_synced());
        assert_eq!((ctx.retries(), *ctx.state(), ctx.is_stop_requested()), (3, "state", false));
        assert!(ctx.fencing_token().is_none());
        // A reconcile that waits for a stop request does not end.
        let stop_requested = std::pin::pin!(ctx.stop_requested());
        assert!(futures::poll!(stop_requested).is_pending());
    }

    #[tokio::test]
    async fn context_has_dynamic_objects() {
        let resource = ApiResource::erase::<ConfigMap>(&());
        let (client, _) = client(|request| panic!("unexpected request: {request}"));
        let mut object = DynamicObject::new("a", &resource);
        object.data["data"]["key"] = "1".into();
        let ctx = context(client, Key::cluster("a")).dynamic_objects(&resource, [object]).build();
        let object = ctx.dynamic_lister(&resource).get_by_key(ctx.key()).unwrap();
        assert_eq!(object.field("data.key").as_deref(), Some("1"));
        // The typed lister reads the same cache.
        assert_eq!(ctx.lister::<ConfigMap>().len(), 1);
    }

    #[tokio::test]
    #[should_panic = "the reconcile reads secrets, which the test context does not contain (add \
                      `.objects::<Secret>([])`)"]
    async fn reading_a_kind_without_objects_panics() {
        context_of([]).build().lister::<Secret>();
    }

    #[tokio::test]
    #[should_panic = "the objects of configmaps are already set"]
    async fn setting_the_objects_of_a_kind_twice_panics() {
        let _context = context_of([]).objects([map("a", "1")]);
    }
}
