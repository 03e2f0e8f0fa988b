//! The handle: one server, as many clones as needed, and direct writes beside the HTTP way.
//!
//! Direct writes go through the same operations of the model as requests do, so they obey the same rules and wake the same
//! watchers. They do not appear in the log of requests, and no fault stops them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::faults::{Fault, Rule};
use crate::http::ApiService;
use crate::log::Seen;
use crate::model::{
    At, Copy, DeleteOptions, Filter, Model, Part, Place, Shape, State, Status, View, split_api_version,
};
use crate::shared::Shared;

/// How many changes of each resource are remembered unless said otherwise.
const HISTORY: usize = 100_000;

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
/// assert_eq!(created["metadata"]["resourceVersion"], server.version().to_string());
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
}

/// Options of a server.
///
/// ```
/// let server = informer_apiserver::ApiServer::builder().history(10).build();
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct Builder {
    history: usize,
    seed: u64,
}

/// A copy of a server's objects and versions, for [`ApiServer::restore`].
#[derive(Debug, Clone)]
pub struct Backup(Arc<Copy>);

impl Builder {
    /// Remembers so many changes of each resource. A watcher that falls further behind gets 410.
    pub fn history(self, changes: usize) -> Self {
        Builder { history: changes, ..self }
    }

    /// Forgets nothing unless told to.
    pub fn unlimited_history(self) -> Self {
        self.history(usize::MAX)
    }

    /// Where uids and generated names come from. The same seed and the same requests give the same ones.
    pub fn seed(self, seed: u64) -> Self {
        Builder { seed, ..self }
    }

    /// Starts it.
    pub fn build(self) -> ApiServer {
        let model = Model::new(Timestamp::now(), self.seed, self.history);
        ApiServer { shared: Arc::new(Shared::new(model)) }
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
    pub fn builder() -> Builder {
        Builder { history: HISTORY, seed: 0 }
    }

    /// A client that talks to this server. It needs a tokio runtime to be there.
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.service(), "default")
    }

    /// The server as a service, for clients that are built another way.
    pub fn service(&self) -> ApiService {
        ApiService::new(self.shared.clone())
    }

    /// Creates an object; apiVersion, kind and namespace (`default` if there is none) are taken from it.
    pub fn create(&self, object: &impl Serialize) -> Result<Value, Status> {
        let direct = self.direct(object)?;
        let place = direct.place;
        let now = Timestamp::now();
        let created =
            self.shared.model(|model| model.create(now, place, &direct.namespace, direct.object))?;
        Ok(self.show(place, &created))
    }

    /// Replaces an object, all but its status.
    pub fn update(&self, object: &impl Serialize) -> Result<Value, Status> {
        self.update_part(object, Part::Main)
    }

    /// Replaces an object's status.
    pub fn update_status(&self, object: &impl Serialize) -> Result<Value, Status> {
        self.update_part(object, Part::Status)
    }

    /// Deletes an object; answers with its last state if that is shown, and with nothing otherwise.
    pub fn delete(
        &self,
        api_version: &str,
        plural: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Value>, Status> {
        let place = self.place(api_version, plural)?;
        let key = (namespace.unwrap_or_default(), name);
        let options = DeleteOptions::default();
        let deleted = self.shared.model(|model| model.delete(Timestamp::now(), place, key, &options))?;
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
        let listing = self.shared.model(|model| model.list(place, &filter.namespace, &At::Newest, false));
        let Ok(listing) = listing else { return Vec::new() };
        listing.states(&filter).map(|state| self.show(place, &state)).collect()
    }

    /// The version of the last write.
    pub fn version(&self) -> u64 {
        self.shared.model(|model| model.version())
    }

    /// Forgets history up to now: older watches, pages and exact lists get 410.
    pub fn compact(&self) {
        self.shared.model(Model::compact);
    }

    /// Copies all objects, as a backup of etcd does.
    pub fn backup(&self) -> Backup {
        Backup(Arc::new(self.shared.model(|model| model.backup())))
    }

    /// Goes back to a backup: versions go back too, open watches break, and nothing is known of the time before.
    pub fn restore(&self, backup: &Backup) {
        self.shared.model(|model| model.restore(&backup.0));
    }

    /// The last requests for resources, up to ten thousand, the oldest first.
    pub fn requests(&self) -> Vec<Seen> {
        self.shared.log.all()
    }

    /// How many watches are open.
    pub fn open_watches(&self) -> usize {
        self.shared.open_watches.load(Ordering::SeqCst)
    }

    /// Makes something go wrong, until the guard is dropped.
    pub fn fault(&self, rule: Rule) -> Fault {
        self.shared.faults.add(rule)
    }

    fn update_part(&self, object: &impl Serialize, part: Part) -> Result<Value, Status> {
        let direct = self.direct(object)?;
        let (place, now) = (direct.place, Timestamp::now());
        let name = direct.object.pointer("/metadata/name").and_then(Value::as_str);
        let name = name.unwrap_or_default().to_owned();
        let key = (direct.namespace.as_str(), name.as_str());
        let (state, _) = self.shared.model(|model| model.update(now, place, key, part, direct.object))?;
        Ok(self.show(place, &state))
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

    fn place(&self, api_version: &str, plural: &str) -> Result<Place, Status> {
        let (group, version) = split_api_version(api_version);
        let found = self.shared.model(|model| model.registry().place(group, version, plural));
        found.ok_or_else(Status::no_such_resource)
    }

    fn show(&self, place: Place, state: &State) -> Value {
        let api_version = self.shared.model(|model| model.api_version_shown(place));
        let bytes = state.bytes(&View { shape: Shape::Whole, api_version });
        serde_json::from_slice(&bytes).unwrap_or_default()
    }
}

/// An object on its way into the model.
struct Direct {
    place: Place,
    namespace: String,
    object: Value,
}
