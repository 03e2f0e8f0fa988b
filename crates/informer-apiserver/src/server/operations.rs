//! Direct operations of the kind that controllers use: deletions with options, bindings, finalized namespaces.
//!
//! Like all direct writes, they use the model operations of requests.

use serde_json::{Value, json};

use super::ApiServer;
use crate::model::{DeleteOptions, DeleteResponse, Policy, VersionedResource, WriteOrigin, WriteTarget};
use informer_objects::status::Status;

/// What happens to the dependents of a deleted object, for [`DeleteParams::propagation`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Propagation {
    /// A garbage collector deletes the dependents later.
    Background,
    /// The object stays, with the finalizer `foregroundDeletion`, until its dependents are deleted.
    Foreground,
    /// The object stays, with the finalizer `orphan`, until its dependents do not refer to it any more.
    Orphan,
}

/// Options of a deletion, for [`ApiServer::delete_with`].
///
/// ```
/// use informer_apiserver::{ApiServer, DeleteParams, Propagation};
/// # use serde_json::json;
///
/// # fn main() -> Result<(), informer_apiserver::Status> {
/// let server = ApiServer::new();
/// let map = server.create(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}))?;
/// let uid = map["metadata"]["uid"].as_str().unwrap_or_default();
///
/// let params = DeleteParams::new().uid(uid).propagation(Propagation::Foreground);
/// let marked = server.delete_with("v1", "configmaps", Some("default"), "a", &params)?;
/// assert_eq!(marked.map(|map| map["metadata"]["finalizers"].clone()), Some(json!(["foregroundDeletion"])));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct DeleteParams(DeleteOptions);

impl DeleteParams {
    /// Returns the options of a DELETE request without a body: the defaults of the kind.
    pub fn new() -> Self {
        DeleteParams::default()
    }

    /// Sets the grace period of a pod. Other kinds ignore it.
    pub fn grace_period_seconds(mut self, seconds: i64) -> Self {
        self.0.grace = Some(seconds);
        self
    }

    /// Sets what happens to the dependents.
    pub fn propagation(mut self, propagation: Propagation) -> Self {
        self.0.policy = Some(match propagation {
            Propagation::Background => Policy::Background,
            Propagation::Foreground => Policy::Foreground,
            Propagation::Orphan => Policy::Orphan,
        });
        self
    }

    /// Deletes the object only if it has this uid.
    pub fn uid(mut self, uid: impl Into<String>) -> Self {
        self.0.uid = Some(uid.into());
        self
    }

    /// Deletes the object only if it has this resource version.
    pub fn resource_version(mut self, version: impl Into<String>) -> Self {
        self.0.resource_version = Some(version.into());
        self
    }
}

impl ApiServer {
    /// Creates an object like [`ApiServer::create`], and returns its name.
    ///
    /// This method neither copies the object nor decodes the stored one.
    ///
    /// # Errors
    ///
    /// The `Status` that a client would receive.
    pub fn create_value(&self, object: Value) -> Result<String, Status> {
        let write = self.locate(object)?;
        let context = self.write_context();
        let created = self.shared.model(|model| {
            model.create(&context, write.gvr, &write.namespace, write.object, WriteOrigin::Internal)
        })?;
        Ok(created.state.name.clone())
    }

    /// Replaces an object like [`ApiServer::update`], without decoding the stored one.
    ///
    /// # Errors
    ///
    /// The `Status` that a client would receive.
    pub fn update_value(&self, object: Value) -> Result<(), Status> {
        self.replace_value(object, WriteTarget::Object)
    }

    /// Replaces the status of an object like [`ApiServer::update_status`], without decoding the stored one.
    ///
    /// # Errors
    ///
    /// The `Status` that a client would receive.
    pub fn update_status_value(&self, object: Value) -> Result<(), Status> {
        self.replace_value(object, WriteTarget::Status)
    }

    /// Replaces the status of an object with that of `object`, without defaulting, validation or field
    /// management.
    ///
    /// This method takes a fraction of the time of [`ApiServer::update_status`], for simulations that write many
    /// statuses. The caller is responsible for a valid status.
    ///
    /// # Errors
    ///
    /// 404 if the object does not exist, 409 if it does not have the resource version of `object`.
    pub fn set_status_unchecked(&self, object: Value) -> Result<(), Status> {
        let mut write = self.locate(object)?;
        let status = write.object["status"].take();
        let text = |path: &str| write.object.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let (name, version) = (text("/metadata/name"), text("/metadata/resourceVersion"));
        let key = (write.namespace.as_str(), name);
        let context = self.write_context();
        let gvr = write.gvr;
        self.shared.model(|model| model.set_status_unchecked(&context, gvr, key, version, status))
    }

    /// Deletes an object, or marks it as terminating, with options.
    ///
    /// Returns the object, or `None` where kube-apiserver returns a `Status`. See also [`ApiServer::delete`],
    /// which deletes without a grace period.
    ///
    /// # Errors
    ///
    /// The `Status` that a client would receive; 409 if a precondition is not met.
    pub fn delete_with(
        &self,
        api_version: &str,
        plural: &str,
        namespace: Option<&str>,
        name: &str,
        params: &DeleteParams,
    ) -> Result<Option<Value>, Status> {
        let gvr = self.resource(api_version, plural)?;
        let key = (namespace.unwrap_or_default(), name);
        let now = self.now();
        let deleted = self.shared.model(|model| model.delete(now, gvr, key, &params.0))?;
        Ok(match deleted {
            DeleteResponse::Status(_) => None,
            DeleteResponse::Object(state) => Some(self.show(gvr, &state)),
        })
    }

    /// Binds a pod to a node, as a scheduler does.
    ///
    /// # Errors
    ///
    /// The `Status` that a client would receive; 409 if the pod has a node already or is terminating.
    ///
    /// ```
    /// # use serde_json::json;
    /// let server = informer_apiserver::ApiServer::new();
    /// server.create(&json!({
    ///     "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
    ///     "spec": {"containers": [{"name": "web", "image": "web:1"}]},
    /// }))?;
    /// server.bind_pod("default", "web", "node-1")?;
    /// let pod = server.get("v1", "pods", Some("default"), "web");
    /// assert_eq!(pod.map(|pod| pod["spec"]["nodeName"].clone()), Some(json!("node-1")));
    /// # Ok::<(), informer_apiserver::Status>(())
    /// ```
    pub fn bind_pod(&self, namespace: &str, name: &str, node: &str) -> Result<(), Status> {
        let gvr = self.resource("v1", "pods")?;
        let binding = json!({"target": {"apiVersion": "v1", "kind": "Node", "name": node}});
        let context = self.write_context();
        self.shared.model(|model| model.bind(&context, gvr, (namespace, name), &binding))
    }

    /// Removes the finalizers in the spec of a namespace, as the namespace controller does when a terminating
    /// namespace is empty. A terminating namespace without other finalizers is then removed.
    ///
    /// # Errors
    ///
    /// The `Status` that a client would receive.
    ///
    /// ```
    /// # use serde_json::json;
    /// let server = informer_apiserver::ApiServer::new();
    /// server.create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}))?;
    /// server.delete("v1", "namespaces", None, "shop")?;
    /// assert!(server.get("v1", "namespaces", None, "shop").is_some(), "the namespace is terminating");
    /// server.finalize_namespace("shop")?;
    /// assert!(server.get("v1", "namespaces", None, "shop").is_none());
    /// # Ok::<(), informer_apiserver::Status>(())
    /// ```
    pub fn finalize_namespace(&self, name: &str) -> Result<Value, Status> {
        let gvr: VersionedResource = self.resource("v1", "namespaces")?;
        let Some(mut namespace) = self.get("v1", "namespaces", None, name) else {
            return Err(Status::not_found("", "namespaces", name));
        };
        namespace["spec"]["finalizers"] = json!([]);
        let context = self.write_context();
        let target = WriteTarget::Finalize;
        let written = self.shared.model(|model| {
            model.update(&context, gvr, ("", name), target, namespace, WriteOrigin::Internal)
        })?;
        Ok(self.show(gvr, &written.state))
    }

    fn replace_value(&self, object: Value, target: WriteTarget) -> Result<(), Status> {
        let write = self.locate(object)?;
        let context = self.write_context();
        let name = write.object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        let name = name.to_owned();
        let key = (write.namespace.as_str(), name.as_str());
        let written = self.shared.model(|model| {
            model.update(&context, write.gvr, key, target, write.object, WriteOrigin::Internal)
        });
        written.map(|_| ())
    }
}
