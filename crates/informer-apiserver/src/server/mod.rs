//! The handle: one server, as many clones as needed, and direct writes beside the HTTP way.
//!
//! Direct writes go through the same operations of the model as requests do, so they obey the same rules and wake the same
//! watchers. They do not appear in the log of requests, and no fault stops them.

mod play;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use informer_objects::status::Status;
use informer_objects::text::versions::split_api_version;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::access::{AccessControl, AccessMode};
use crate::faults::{FaultGuard, FaultRule};
use crate::http::{ApiService, Documents};
use crate::log::RecordedRequest;
use crate::model::{
    DeleteOptions, EncodingCounters, Filter, Model, ModelBackup, ObjectShape, Policy, ReadVersion, Registry,
    State, VersionedResource, WriteContext, WriteOrigin, WriteTarget,
};
use crate::shared::Shared;

/// How many changes of each resource are remembered unless said otherwise.
const HISTORY: usize = 100_000;

/// Who owns what is written directly.
const DIRECT_FIELD_MANAGER: &str = "informer-apiserver";

/// An API server in this process. Clones are the same server.
///
/// ```
/// use informer_apiserver::ApiServer;
/// use serde_json::json;
///
/// # fn main() -> Result<(), informer_apiserver::Status> {
/// let server = ApiServer::new();
/// let mut map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "1"}});
/// let created = server.create(&map)?;
/// assert_eq!(created["metadata"]["resourceVersion"], server.resource_version().to_string());
///
/// map["data"]["k"] = json!("2");
/// server.update(&map)?;
/// server.delete("v1", "configmaps", Some("default"), "a")?;
/// assert!(server.get("v1", "configmaps", Some("default"), "a").is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct ApiServer {
    shared: Arc<Shared>,
    /// Descriptions of the API, made once for all services.
    documents: Arc<Documents>,
}

/// Options of a server.
///
/// ```
/// let server = informer_apiserver::ApiServer::builder().history_limit(10).build();
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct ApiServerBuilder {
    history_limit: usize,
    seed: u64,
    all_versions: bool,
}

/// A copy of a server's objects and versions, for [`ApiServer::restore`].
#[derive(Debug, Clone)]
pub struct Backup(Arc<ModelBackup>);

impl ApiServerBuilder {
    /// Remembers so many changes of each resource. A watcher that falls further behind gets 410.
    pub fn history_limit(self, changes: usize) -> Self {
        ApiServerBuilder { history_limit: changes, ..self }
    }

    /// Forgets nothing unless told to.
    pub fn unlimited_history(self) -> Self {
        self.history_limit(usize::MAX)
    }

    /// Where uids and generated names come from. The same seed and the same requests give the same ones.
    pub fn seed(self, seed: u64) -> Self {
        ApiServerBuilder { seed, ..self }
    }

    /// Serves alpha and beta versions too. By default they are off, as on a real server.
    pub fn all_versions(self) -> Self {
        ApiServerBuilder { all_versions: true, ..self }
    }

    /// Starts it.
    pub fn build(self) -> ApiServer {
        let now = Timestamp::now();
        let registry = if self.all_versions { Registry::all_versions() } else { Registry::builtin() };
        let model = Model::serving(registry, now, self.seed, self.history_limit);
        ApiServer { shared: Arc::new(Shared::new(model, now)), documents: Arc::default() }
    }
}

impl Default for ApiServer {
    fn default() -> Self {
        ApiServer::new()
    }
}

impl ApiServer {
    /// A server with the usual namespaces and nothing else.
    pub fn new() -> Self {
        ApiServer::builder().build()
    }

    /// A server with options.
    pub fn builder() -> ApiServerBuilder {
        ApiServerBuilder { history_limit: HISTORY, seed: 0, all_versions: false }
    }

    /// A client that talks to this server. It needs a tokio runtime to be there.
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.service(), "default")
    }

    /// The server as a service, for clients that are built another way.
    pub fn service(&self) -> ApiService {
        ApiService::new(self.shared.clone(), self.documents.clone(), AccessMode::Open)
    }

    /// The server as a service that asks who is there: each request needs a token in its `Authorization` header, and
    /// its user the rights that roles and bindings in the server give. The roles that every cluster has
    /// (`cluster-admin`, `admin`, `edit`, `view` and a few of `system:…`) are created if they are missing.
    pub fn service_with_access(&self, access: AccessControl) -> ApiService {
        let door = AccessMode::enforced(&self.shared, access);
        ApiService::new(self.shared.clone(), self.documents.clone(), door)
    }

    /// Creates an object; apiVersion, kind and namespace (`default` if there is none) are taken from it.
    pub fn create(&self, object: &impl Serialize) -> Result<Value, Status> {
        let direct = self.direct(object)?;
        let place = direct.place;
        let ask = self.write_context();
        let created = self.shared.model(|model| {
            model.create(&ask, place, &direct.namespace, direct.object, WriteOrigin::Internal)
        })?;
        Ok(self.show(place, &created.state))
    }

    /// Replaces an object, all but its status.
    pub fn update(&self, object: &impl Serialize) -> Result<Value, Status> {
        self.update_part(object, WriteTarget::Object)
    }

    /// Replaces an object's status.
    pub fn update_status(&self, object: &impl Serialize) -> Result<Value, Status> {
        self.update_part(object, WriteTarget::Status)
    }

    /// Stores an object as it is, whatever it is: nothing is completed, nothing is refused but what has no name or no kind. For tests
    /// of what becomes of objects that no server takes any more. A custom object is shown as any: what its definition does not know is left
    /// out, and defaults are put in.
    ///
    /// ```
    /// # use serde_json::json;
    /// let server = informer_apiserver::ApiServer::new();
    /// let odd = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": "none"}});
    /// assert!(server.create(&odd).is_err());
    /// assert_eq!(server.insert_unchecked(&odd)?["spec"]["containers"], "none");
    /// # Ok::<(), informer_apiserver::Status>(())
    /// ```
    pub fn insert_unchecked(&self, object: &impl Serialize) -> Result<Value, Status> {
        let direct = self.direct(object)?;
        let (place, ask) = (direct.place, self.write_context());
        let state = self
            .shared
            .model(|model| model.insert_unchecked(&ask, place, &direct.namespace, direct.object))?;
        Ok(self.show(place, &state))
    }

    /// Deletes an object, a pod without grace, a job without keeping it for its pods; answers with its last state if that is shown, and with nothing otherwise.
    /// What has finalizers stays, marked.
    pub fn delete(
        &self,
        api_version: &str,
        plural: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Value>, Status> {
        let place = self.place(api_version, plural)?;
        let key = (namespace.unwrap_or_default(), name);
        let options =
            DeleteOptions { grace: Some(0), policy: Some(Policy::Background), ..DeleteOptions::default() };
        let now = self.shared.now();
        let deleted = self.shared.model(|model| model.delete(now, place, key, &options))?;
        Ok(match deleted {
            crate::model::Deleted::Gone(_) => None,
            crate::model::Deleted::Shown(state) => Some(self.show(place, &state)),
        })
    }

    /// Reads an object.
    pub fn get(&self, api_version: &str, plural: &str, namespace: Option<&str>, name: &str) -> Option<Value> {
        let place = self.place(api_version, plural).ok()?;
        let found = self.shared.model(|model| model.get(place, namespace.unwrap_or_default(), name))?;
        Some(self.show(place, &found))
    }

    /// Reads a collection, of one namespace or of all. What is not served is empty.
    pub fn list(&self, api_version: &str, plural: &str, namespace: Option<&str>) -> Vec<Value> {
        let Ok(place) = self.place(api_version, plural) else { return Vec::new() };
        let filter = Filter::namespace(namespace.unwrap_or_default());
        let listing =
            self.shared.model(|model| model.list(place, &filter.namespace, &ReadVersion::Newest, false));
        let Ok(listing) = listing else { return Vec::new() };
        listing.states(&filter).map(|state| self.show(place, &state)).collect()
    }

    /// The version of the last write.
    pub fn resource_version(&self) -> u64 {
        self.shared.model(|model| model.version())
    }

    /// Forgets history up to now: older watches, pages and exact lists get 410.
    pub fn compact(&self) {
        self.shared.model(Model::compact);
    }

    /// What a compaction of etcd does, as seen from outside: kinds that the server does not cache (events) forget their history
    /// at once; of all others only what their cache has forgotten too is gone.
    pub fn compact_etcd(&self) {
        self.shared.model(Model::compact_etcd);
    }

    /// Makes the cache of a resource begin at a version: watches from before it get 410.
    pub fn expire_watches(&self, api_version: &str, plural: &str, version: u64) {
        if let Ok(place) = self.place(api_version, plural) {
            self.shared.model(|model| model.expire_watches(place, version));
        }
    }

    /// Copies all objects, as a backup of etcd does.
    pub fn backup(&self) -> Backup {
        Backup(Arc::new(self.shared.model(|model| model.backup())))
    }

    /// Goes back to a backup: versions go back too, open watches break, and nothing is known of the time before.
    pub fn restore(&self, backup: &Backup) {
        self.shared.model(|model| model.restore(&backup.0));
    }

    /// Starts anew, as a server does whose process was replaced: objects and versions stay, open watches break, and nothing is
    /// known of the time before. Together with an older [`Backup`] versions go back too: see [`ApiServer::restore`].
    pub fn restart(&self) {
        self.restore(&self.backup());
    }

    /// The last requests for resources, up to ten thousand, the oldest first.
    pub fn recorded_requests(&self) -> Vec<RecordedRequest> {
        self.shared.log.all()
    }

    /// How many watches are open.
    pub fn open_watches(&self) -> usize {
        self.shared.open_watches.load(Ordering::SeqCst)
    }

    /// How often the server has encoded objects, its own namespaces among them.
    pub fn encoding_counters(&self) -> EncodingCounters {
        self.shared.model(|model| model.encoding_counters())
    }

    /// Makes something go wrong, until the guard is dropped.
    pub fn inject(&self, rule: FaultRule) -> FaultGuard {
        self.shared.faults.add(rule)
    }

    fn update_part(&self, object: &impl Serialize, part: WriteTarget) -> Result<Value, Status> {
        let direct = self.direct(object)?;
        let (place, ask) = (direct.place, self.write_context());
        let name = direct.object.pointer("/metadata/name").and_then(Value::as_str);
        let name = name.unwrap_or_default().to_owned();
        let key = (direct.namespace.as_str(), name.as_str());
        let written = self
            .shared
            .model(|model| model.update(&ask, place, key, part, direct.object, WriteOrigin::Internal))?;
        Ok(self.show(place, &written.state))
    }

    fn write_context(&self) -> WriteContext {
        WriteContext::at(self.shared.now(), DIRECT_FIELD_MANAGER)
    }

    /// Finds out where an object belongs.
    fn direct(&self, object: &impl Serialize) -> Result<Direct, Status> {
        let object = serde_json::to_value(object).map_err(|error| Status::bad_request(error.to_string()))?;
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (api_version, kind) = (text("/apiVersion"), text("/kind"));
        let found = self.shared.model(|model| {
            let place = model.registry().place_of(api_version, kind)?;
            Some((place, model.registry().get(place.id)?.namespaced))
        });
        let (place, namespaced) = found.ok_or_else(|| {
            Status::bad_request(format!("no kind \"{kind}\" is registered for version \"{api_version}\""))
        })?;
        let namespace = match (namespaced, text("/metadata/namespace")) {
            (false, _) => String::new(),
            (true, "") => "default".to_owned(),
            (true, namespace) => namespace.to_owned(),
        };
        Ok(Direct { place, namespace, object })
    }

    fn place(&self, api_version: &str, plural: &str) -> Result<VersionedResource, Status> {
        let (group, version) = split_api_version(api_version);
        let found = self.shared.model(|model| model.registry().place(group, version, plural));
        found.ok_or_else(Status::no_such_resource)
    }

    fn show(&self, place: VersionedResource, state: &State) -> Value {
        let view = self.shared.model(|model| model.view(place, ObjectShape::Whole));
        let bytes = state.bytes(&view);
        serde_json::from_slice(&bytes).unwrap_or_default()
    }
}

/// An object on its way into the model.
struct Direct {
    place: VersionedResource,
    namespace: String,
    object: Value,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Documents take long to make: all services of a server share them.
    #[test]
    fn services_of_one_server_share_its_documents() {
        let server = ApiServer::new();
        let services = [server.service(), server.service_with_access(AccessControl::new())];
        assert_eq!(Arc::strong_count(&server.documents), 1 + services.len());
    }
}
