//! The handle of a server, and direct access to its objects without HTTP.
//!
//! Direct writes use the same model operations as requests, so watches see them and the same rules apply,
//! except for `insert_unchecked`. They are not recorded as requests, and neither access control nor fault
//! rules affect them.

mod builder;
mod changes;
mod operations;
mod schedule;
mod wait;

use std::sync::Arc;

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
    DeleteOptions, DeleteResponse, EncodingCounters, Filter, Model, ModelBackup, ObjectShape, Paging, Policy,
    ReadVersion, State, VersionedResource, WriteContext, WriteOrigin, WriteTarget,
};
use crate::shared::Shared;
use crate::user::User;

pub use builder::ApiServerBuilder;
pub use changes::{Change, ChangeReader, ChangedObject, ServedResource};
pub use operations::{DeleteParams, Propagation};
pub use wait::WaitError;

/// Field manager of objects that are written directly.
const DIRECT_FIELD_MANAGER: &str = "informer-apiserver";

/// A Kubernetes API server in this process.
///
/// Clones are handles of the same server. Its objects are only in memory: they are gone when the last handle,
/// client and service is dropped.
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
    /// `OpenAPI` documents, generated once and shared by all services.
    documents: Arc<Documents>,
}

/// A copy of a server's objects and versions, for [`ApiServer::restore`].
#[derive(Debug, Clone)]
pub struct Backup(Arc<ModelBackup>);

impl Default for ApiServer {
    fn default() -> Self {
        ApiServer::new()
    }
}

impl ApiServer {
    /// Creates a server that contains only the objects that every cluster has: namespaces, priority classes and
    /// the service `kubernetes`.
    pub fn new() -> Self {
        ApiServer::builder().build()
    }

    /// Returns a client of this server with full access. Must be called in a tokio runtime.
    ///
    /// Its requests are those of the user `admin`.
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.service(), "default")
    }

    /// Returns a client whose requests are those of `user`, with access control. Must be called in a tokio
    /// runtime.
    ///
    /// The RBAC roles and bindings in the server decide what the user may do. As in
    /// [`ApiServer::service_with_access`], the user is a member of `system:authenticated`, and missing default
    /// roles are created. A [`User::admin`] may do everything: with one client per program under test, fault
    /// rules ([`for_user`](crate::faults::FaultRule::for_user)) and [`ApiServer::recorded_requests`] can tell
    /// the programs apart.
    ///
    /// ```
    /// use informer_apiserver::{ApiServer, User};
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use kube::{Api, api::ListParams};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = ApiServer::new();
    /// let maps: Api<ConfigMap> = Api::default_namespaced(server.client_as(User::new("jane")));
    /// assert!(maps.list(&ListParams::default()).await.is_err());
    ///
    /// server.create(&serde_json::json!({
    ///     "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
    ///     "metadata": {"name": "jane-views", "namespace": "default"},
    ///     "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
    ///     "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}],
    /// }))?;
    /// assert!(maps.list(&ListParams::default()).await.is_ok());
    /// # Ok(())
    /// # }
    /// ```
    pub fn client_as(&self, user: User) -> kube::Client {
        let mode = AccessMode::of_user(&self.shared, user);
        let service = ApiService::new(self.shared.clone(), self.documents.clone(), mode);
        kube::Client::new(service, "default")
    }

    /// Returns the server as a `tower` service with full access, for clients that are built in another way.
    pub fn service(&self) -> ApiService {
        self.service_for(User::admin("admin"))
    }

    /// Returns the server as a `tower` service whose requests are those of `user`, with full access.
    ///
    /// With one service per program under test, fault rules ([`for_user`](crate::faults::FaultRule::for_user)) and
    /// [`ApiServer::recorded_requests`] can tell the programs apart. See [`ApiServer::client_as`] for access control.
    pub fn service_for(&self, user: User) -> ApiService {
        ApiService::new(self.shared.clone(), self.documents.clone(), AccessMode::Open(Arc::new(user)))
    }

    /// Returns the server as a `tower` service with access control.
    ///
    /// A request is authenticated by the token in its `Authorization` header and authorized by the RBAC roles
    /// and bindings in the server. The default roles of a cluster (`cluster-admin`, `admin`, `edit`, `view`
    /// and some of `system:…`) are created if they are missing.
    pub fn service_with_access(&self, access: AccessControl) -> ApiService {
        let mode = AccessMode::enforced(&self.shared, access);
        ApiService::new(self.shared.clone(), self.documents.clone(), mode)
    }

    /// Creates an object and returns it as stored.
    ///
    /// Resource and namespace are taken from the object; the namespace defaults to `default`. The rules are
    /// those of a POST request: the status is ignored if the kind has a status subresource, as pods and most
    /// custom resources have. Set it with [`ApiServer::update_status`].
    ///
    /// # Errors
    ///
    /// The `Status` that a client would receive.
    pub fn create(&self, object: &impl Serialize) -> Result<Value, Status> {
        let write = self.direct_write(object)?;
        let gvr = write.gvr;
        let context = self.write_context();
        let created = self.shared.model(|model| {
            model.create(&context, gvr, &write.namespace, write.object, WriteOrigin::Internal)
        })?;
        Ok(self.show(gvr, &created.state))
    }

    /// Replaces an object and returns it as stored.
    ///
    /// The rules are those of a PUT request: the status stays unchanged if the kind has a status subresource,
    /// and an object of some kinds, for example a lease, is created if it is missing. Resource and namespace
    /// are determined as in [`ApiServer::create`].
    ///
    /// # Errors
    ///
    /// The `Status` that a client would receive.
    pub fn update(&self, object: &impl Serialize) -> Result<Value, Status> {
        self.update_target(object, WriteTarget::Object)
    }

    /// Replaces the status of an object and returns the object as stored.
    ///
    /// The rules are those of a PUT request to the subresource `status`: the spec and most of the metadata
    /// stay unchanged, and the status is validated.
    ///
    /// # Errors
    ///
    /// The `Status` that a client would receive.
    ///
    /// ```
    /// # use serde_json::json;
    /// let server = informer_apiserver::ApiServer::new();
    /// let mut pod = json!({
    ///     "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
    ///     "spec": {"containers": [{"name": "web", "image": "web:1"}]},
    ///     "status": {"phase": "Running"},
    /// });
    /// assert_eq!(server.create(&pod)?["status"]["phase"], "Pending");
    /// pod["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    /// assert_eq!(server.update_status(&pod)?["status"]["phase"], "Running");
    /// # Ok::<(), informer_apiserver::Status>(())
    /// ```
    pub fn update_status(&self, object: &impl Serialize) -> Result<Value, Status> {
        self.update_target(object, WriteTarget::Status)
    }

    /// Stores an object without defaulting or validation, and returns it.
    ///
    /// Use this method to test how a client handles objects that the server no longer accepts. The server
    /// sets uid, creation time and resource version; an existing object keeps its generation. Custom objects
    /// are returned as their definition shows them: unknown fields are pruned and defaults are applied.
    ///
    /// # Errors
    ///
    /// An object without a name, of an unknown kind, or with malformed metadata is rejected.
    ///
    /// ```
    /// # use serde_json::json;
    /// let server = informer_apiserver::ApiServer::new();
    /// let invalid = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": "none"}});
    /// assert!(server.create(&invalid).is_err());
    /// assert_eq!(server.insert_unchecked(&invalid)?["spec"]["containers"], "none");
    /// # Ok::<(), informer_apiserver::Status>(())
    /// ```
    pub fn insert_unchecked(&self, object: &impl Serialize) -> Result<Value, Status> {
        let write = self.direct_write(object)?;
        let (gvr, context) = (write.gvr, self.write_context());
        let state = self
            .shared
            .model(|model| model.insert_unchecked(&context, gvr, &write.namespace, write.object))?;
        Ok(self.show(gvr, &state))
    }

    /// Deletes an object with grace period 0 and propagation policy `Background`.
    ///
    /// Returns what kube-apiserver's response to this deletion contains: the object, or `None` for a
    /// `Status`. Namespaces, and objects with finalizers, are marked as terminating and stay.
    ///
    /// # Errors
    ///
    /// The `Status` that a client would receive.
    pub fn delete(
        &self,
        api_version: &str,
        plural: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Value>, Status> {
        let gvr = self.resource(api_version, plural)?;
        let key = (namespace.unwrap_or_default(), name);
        let options =
            DeleteOptions { grace: Some(0), policy: Some(Policy::Background), ..DeleteOptions::default() };
        let now = self.now();
        let deleted = self.shared.model(|model| model.delete(now, gvr, key, &options))?;
        Ok(match deleted {
            DeleteResponse::Status(_) => None,
            DeleteResponse::Object(state) => Some(self.show(gvr, &state)),
        })
    }

    /// Returns an object, or `None` if the object does not exist or its resource is not served.
    pub fn get(&self, api_version: &str, plural: &str, namespace: Option<&str>, name: &str) -> Option<Value> {
        let gvr = self.resource(api_version, plural).ok()?;
        let found = self.shared.model(|model| model.get(gvr, namespace.unwrap_or_default(), name))?;
        Some(self.show(gvr, &found))
    }

    /// Returns the objects of a resource in one namespace, or in all. Empty if the resource is not served.
    pub fn list(&self, api_version: &str, plural: &str, namespace: Option<&str>) -> Vec<Value> {
        let Ok(gvr) = self.resource(api_version, plural) else { return Vec::new() };
        let filter = Filter::namespace(namespace.unwrap_or_default());
        let listing = self
            .shared
            .model(|model| model.list(gvr, &filter.namespace, &ReadVersion::Newest, Paging::Unpaged));
        let Ok(listing) = listing else { return Vec::new() };
        listing.states(&filter).map(|state| self.show(gvr, &state)).collect()
    }

    /// Returns the resource version of the last write.
    pub fn resource_version(&self) -> u64 {
        self.shared.model(|model| model.version())
    }

    /// Discards all history: watches, pages and exact lists from older versions get 410.
    ///
    /// An open watch continues if it has already sent all changes.
    pub fn compact(&self) {
        self.shared.model(Model::compact);
    }

    /// Compacts storage as an etcd compaction does.
    ///
    /// Resources without a watch cache (events) lose all history. All other resources keep the versions that
    /// their watch cache contains.
    pub fn compact_etcd(&self) {
        self.shared.model(Model::compact_etcd);
    }

    /// Drops the versions before `version` from the watch cache of a resource: new watches from these
    /// versions get 410.
    ///
    /// Open watches continue. Exact lists are not affected as long as storage contains their version.
    pub fn compact_watch_cache(&self, api_version: &str, plural: &str, version: u64) {
        if let Ok(gvr) = self.resource(api_version, plural) {
            self.shared.model(|model| model.compact_watch_cache(gvr, version));
        }
    }

    /// Returns a copy of all objects and versions, like a backup of etcd.
    pub fn backup(&self) -> Backup {
        Backup(Arc::new(self.shared.model(|model| model.backup())))
    }

    /// Restores a backup, like an etcd that is restored from a backup.
    ///
    /// Versions go back to those of the backup, open watches break, and all history is discarded.
    pub fn restore(&self, backup: &Backup) {
        self.shared.model(|model| model.restore(&backup.0));
    }

    /// Sets whether lists, watches and deletions of collections honour the parameter `shardSelector` (KEP-5866), as
    /// kube-apiserver 1.36 does with the feature gate `ShardedListAndWatch`.
    ///
    /// Enabled at first. Without it, the parameter is ignored, even if it is invalid, as older servers do. Open watches
    /// keep their selector; [`ApiServer::restart`] ends them.
    pub fn set_shard_selectors(&self, enabled: bool) {
        self.shared.set_shard_selectors(enabled);
    }

    /// Restarts the server, as if its process was replaced.
    ///
    /// Objects and versions stay, open watches break, and all history is discarded. A client that has received
    /// all changes resumes its watch from the last version and does not list again; one that has missed a
    /// change gets 410. Requests are accepted immediately. See also [`faults::gone`](crate::faults::gone) to
    /// make clients list again, [`faults::outage`](crate::faults::outage) for a server that stays unreachable,
    /// and [`ApiServer::restore`] to go back to older versions.
    pub fn restart(&self) {
        self.restore(&self.backup());
    }

    /// Returns the time of the server's clock, from which creation timestamps and expiry times come.
    ///
    /// It is the time of its [`ManualClock`](crate::ManualClock), or the system's time. In a test that pauses tokio's clock, it follows that clock: only
    /// `tokio::time::advance` and timers move it. All servers of a process have the same time, and so has
    /// `informer::now`, to well under a second if nobody sets the system's clock during the test. In objects,
    /// times are in whole seconds, rounded down. Use the result for times in objects:
    /// `k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(server.now())`. The type is that of the crate
    /// `jiff`, which `k8s_openapi::jiff` exports.
    pub fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    /// Returns the last requests for resources, oldest first: at most 10,000, and at most 16 MiB.
    pub fn recorded_requests(&self) -> Vec<RecordedRequest> {
        self.shared.recorded_requests()
    }

    /// Returns the number of open watches.
    pub fn open_watches(&self) -> usize {
        self.shared.open_watches()
    }

    /// Returns how often the server has encoded objects, including those that it creates itself.
    pub fn encoding_counters(&self) -> EncodingCounters {
        self.shared.model(|model| model.encoding_counters())
    }

    /// Makes the server misbehave according to `rule` until the guard is dropped.
    ///
    /// See the module [`faults`](crate::faults).
    pub fn inject(&self, mut rule: FaultRule) -> FaultGuard {
        rule.cache_version = self.resource_version().saturating_sub(rule.lag_writes).max(1);
        self.shared.faults.add(rule)
    }

    fn write_context(&self) -> WriteContext {
        WriteContext::at(self.now(), DIRECT_FIELD_MANAGER)
    }

    fn update_target(&self, object: &impl Serialize, target: WriteTarget) -> Result<Value, Status> {
        let write = self.direct_write(object)?;
        let (gvr, context) = (write.gvr, self.write_context());
        let name = write.object.pointer("/metadata/name").and_then(Value::as_str);
        let name = name.unwrap_or_default().to_owned();
        let key = (write.namespace.as_str(), name.as_str());
        let result = self
            .shared
            .model(|model| model.update(&context, gvr, key, target, write.object, WriteOrigin::Internal))?;
        Ok(self.show(gvr, &result.state))
    }

    /// Determines resource and namespace of an object.
    fn direct_write(&self, object: &impl Serialize) -> Result<DirectWrite, Status> {
        let object = serde_json::to_value(object).map_err(|error| Status::bad_request(error.to_string()))?;
        self.locate(object)
    }

    fn locate(&self, object: Value) -> Result<DirectWrite, Status> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (api_version, kind) = (text("/apiVersion"), text("/kind"));
        let found = self.shared.model(|model| {
            let gvr = model.registry().resource_for_kind(api_version, kind)?;
            Some((gvr, model.registry().get(gvr.id)?.namespaced))
        });
        let (gvr, namespaced) = found.ok_or_else(|| {
            Status::bad_request(format!("no kind \"{kind}\" is registered for version \"{api_version}\""))
        })?;
        let namespace = match (namespaced, text("/metadata/namespace")) {
            (false, _) => String::new(),
            (true, "") => "default".to_owned(),
            (true, namespace) => namespace.to_owned(),
        };
        Ok(DirectWrite { gvr, namespace, object })
    }

    fn resource(&self, api_version: &str, plural: &str) -> Result<VersionedResource, Status> {
        let (group, version) = split_api_version(api_version);
        let found = self.shared.model(|model| model.registry().resource(group, version, plural));
        found.ok_or_else(Status::no_such_resource)
    }

    /// Returns an object as clients see it.
    fn show(&self, gvr: VersionedResource, state: &State) -> Value {
        let view = self.shared.model(|model| model.view(gvr, ObjectShape::Whole));
        let bytes = state.bytes(&view);
        serde_json::from_slice(&bytes).unwrap_or_default()
    }
}

/// An object with the resource and the namespace to write it to.
struct DirectWrite {
    gvr: VersionedResource,
    namespace: String,
    object: Value,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Generating the documents is slow, so all services of a server share them.
    #[test]
    fn services_of_one_server_share_its_documents() {
        let server = ApiServer::new();
        let services = [server.service(), server.service_with_access(AccessControl::new())];
        assert_eq!(Arc::strong_count(&server.documents), 1 + services.len());
    }
}
