//! Objects, listers, events and a client for unit tests of handlers and of functions that read a cache,
//! without a server.
//!
//! For tests of whole controllers, use the embedded API server of the crate `informer-apiserver`.
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

use crate::event::{Event, UpdateCause};
use crate::lister::Lister;
use http::{Request, Response};
use informer_core::{Delta, Object, Replaced, ResourceVersion, Scope, StoreWriter};
use kube::client::Body;
use serde::Serialize;
use std::convert::Infallible;
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
    let entries = values.into_iter().map(|value| Arc::clone(object(value).entry())).collect();
    let (mut writer, reader) = StoreWriter::new([Scope::All]);
    let (scope, version, unreadable) = (Scope::All, ResourceVersion::new("1"), Vec::new());
    writer.apply(
        &scope,
        [Delta::Replaced(Replaced { scope: Scope::All, version, entries, unreadable, audit: false })],
    );
    Lister::from_reader(reader)
}

/// Returns the event of an object that was added after the initial list of a handler.
///
/// # Panics
///
/// Panics if the value has no type or name. The same holds for the other events.
pub fn added<K: Serialize + Send + Sync + 'static>(value: K) -> Event<K> {
    Event::Added { object: object(value), initial: false }
}

/// Returns the event of an object in the initial list of a handler.
pub fn initial<K: Serialize + Send + Sync + 'static>(value: K) -> Event<K> {
    Event::Added { object: object(value), initial: true }
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

/// Returns a client that sends no request: `respond` is called with each one and returns the response.
///
/// ```
/// use informer::testing;
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kube::Api;
/// use std::sync::{Arc, Mutex};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), kube::Error> {
/// let requests = Arc::new(Mutex::new(Vec::new()));
/// let seen = Arc::clone(&requests);
/// let client = testing::client(move |request| {
///     seen.lock().unwrap().push(format!("{} {}", request.method(), request.uri().path()));
///     let body = br#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}}"#;
///     http::Response::new(body.to_vec())
/// });
///
/// let maps: Api<ConfigMap> = Api::namespaced(client, "shop");
/// assert_eq!(maps.get("settings").await?.metadata.name.as_deref(), Some("settings"));
/// assert_eq!(*requests.lock().unwrap(), ["GET /api/v1/namespaces/shop/configmaps/settings"]);
/// # Ok(())
/// # }
/// ```
pub fn client(
    respond: impl Fn(Request<Vec<u8>>) -> Response<Vec<u8>> + Send + Sync + 'static,
) -> kube::Client {
    use http_body_util::BodyExt as _;
    let respond = Arc::new(respond);
    let service = tower::service_fn(move |request: Request<Body>| {
        let respond = Arc::clone(&respond);
        async move {
            let (head, body) = request.into_parts();
            // A body that cannot be read is one that the test made; it arrives empty.
            let body = body.collect().await.map(|body| body.to_bytes().to_vec()).unwrap_or_default();
            let response = respond(Request::from_parts(head, body));
            Ok::<_, Infallible>(response.map(Body::from))
        }
    });
    kube::Client::new(service, "default")
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;

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
}
