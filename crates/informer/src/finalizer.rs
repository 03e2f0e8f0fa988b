//! Finalizers: a deleted object stays until its controller has cleaned up.
//!
//! Every write is a JSON patch that tests its preconditions: the object's uid, and the finalizers on which
//! the decision was based. So a write fails if one of them has changed, and finalizers of other controllers
//! are neither lost nor reordered. kube-apiserver responds to a failed test as to any other patch that cannot
//! be applied (422); this module then reads the object and decides again.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use informer_core::wire::{Frame, Limits, WatchReader};
use informer_core::{DecodeError, Entry, Key, Object, Retention};
use kube::Resource;
use kube::api::DynamicObject;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::access::RequiredAccess;
use crate::discovery::DynamicResource;
use crate::error::FinalizerError;
use crate::resource::ResourceType;

/// Maximum number of attempts of a write before the conflict is returned to the caller.
const MAX_ATTEMPTS: usize = 4;

/// A finalizer of objects of kind `K`: a name in `metadata.finalizers` that keeps a deleted object until the
/// name is removed.
///
/// A name has a domain as prefix, as in `websites.example.com/cleanup`, and is used by one controller only.
/// [`Finalizer::ensure`] returns what a reconcile has to do. The cleanup must be idempotent, and must also
/// work if nothing was ever applied. The controller needs the permissions to patch and get its objects.
///
/// An added finalizer need not be [recorded](crate::controller::Context::record_write): if the cache does not
/// show it yet, the next [`ensure`](Self::ensure) finds it on the server, with two requests more. For its
/// removal, see [`Cleanup::complete`].
///
/// ```no_run
/// use informer::Object;
/// use informer::error::FinalizerError;
/// use informer::finalizer::{Finalizer, FinalizerAction};
/// # use k8s_openapi::api::core::v1::ConfigMap as Website;
/// # async fn apply(_: &Object<Website>) {}
/// # async fn delete_bucket(_: &Object<Website>) {}
///
/// async fn reconcile(finalizer: &Finalizer<Website>, website: &Object<Website>) -> Result<(), FinalizerError> {
///     match finalizer.ensure(website).await? {
///         FinalizerAction::Apply(website) => apply(&website).await,
///         FinalizerAction::Cleanup(cleanup) => {
///             delete_bucket(cleanup.object()).await;
///             cleanup.complete().await?;
///         }
///         FinalizerAction::Gone => {}
///     }
///     Ok(())
/// }
/// ```
pub struct Finalizer<K> {
    client: kube::Client,
    resource: ResourceType,
    name: Arc<str>,
    kind: PhantomData<fn() -> K>,
}

/// The action that a reconcile has to take for an object with a finalizer.
#[must_use = "the reconcile has to act on it"]
pub enum FinalizerAction<'a, K> {
    /// The object is not being deleted and has the finalizer: apply the desired state.
    ///
    /// If the finalizer was missing, this is the newest state as returned by the server, which the cache may
    /// not show yet; otherwise it is the object passed to [`Finalizer::ensure`].
    Apply(Object<K>),
    /// The object is being deleted and still has the finalizer: clean up, then call [`Cleanup::complete`].
    Cleanup(Cleanup<'a, K>),
    /// Nothing to do: the object does not exist any more, or is being deleted and does not have the
    /// finalizer.
    Gone,
}

/// An object that is being deleted and still has the finalizer.
///
/// If a `Cleanup` is dropped, the finalizer stays, and the next reconcile receives
/// [`FinalizerAction::Cleanup`] again.
#[must_use = "the object stays until complete() removes the finalizer"]
pub struct Cleanup<'a, K> {
    finalizer: &'a Finalizer<K>,
    object: Object<K>,
}

impl<K: Resource<DynamicType = ()>> Finalizer<K> {
    /// Creates a finalizer with this name.
    pub fn new(client: kube::Client, name: &str) -> Self {
        Self::from_resource(client, ResourceType::of::<K>(&()), name)
    }
}

impl Finalizer<DynamicObject> {
    /// Creates a finalizer with this name, for a kind that is known only at run time.
    pub fn dynamic(client: kube::Client, resource: &impl DynamicResource, name: &str) -> Self {
        Self::from_resource(client, ResourceType::of::<DynamicObject>(&resource.to_api_resource()), name)
    }
}

impl<K> Finalizer<K> {
    fn from_resource(client: kube::Client, resource: ResourceType, name: &str) -> Self {
        Finalizer { client, resource, name: name.into(), kind: PhantomData }
    }

    /// Returns the name of the finalizer.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the permissions that the finalizer needs, in all namespaces, for the roles of the program.
    pub fn required_access(&self) -> RequiredAccess {
        let mut access = RequiredAccess::default();
        access.add_verbs(None, &self.resource.group, &self.resource.plural, None, &["get", "patch"]);
        access
    }

    /// Adds the finalizer to an object that is not being deleted and does not have it, and returns the action
    /// to take.
    ///
    /// Sends no request if the finalizer need not be added.
    ///
    /// Continue with the object in [`FinalizerAction::Apply`], not with the one passed to this call: it is as
    /// new as the write, so that [`Context::patch_status`](crate::controller::Context::patch_status) does not
    /// conflict with it.
    pub async fn ensure(&self, object: &Object<K>) -> Result<FinalizerAction<'_, K>, FinalizerError> {
        let decide = |state: &State| match state.position_of(&self.name) {
            None if !state.being_deleted => Some(state.add_patch(&self.name)),
            _ => None,
        };
        let Some(object) = self.write(object, Operation::Add, decide).await? else {
            return Ok(FinalizerAction::Gone);
        };
        if object.deletion_timestamp().is_none() {
            return Ok(FinalizerAction::Apply(object));
        }
        let has_finalizer = self.state(&object)?.position_of(&self.name).is_some();
        Ok(if has_finalizer {
            FinalizerAction::Cleanup(Cleanup { finalizer: self, object })
        } else {
            FinalizerAction::Gone
        })
    }

    /// Removes the finalizer whether or not the object is being deleted, for controllers that do not need it
    /// any more.
    ///
    /// Returns the object as written, or unchanged if it does not have the finalizer. Returns `None` if the
    /// object does not exist any more, for example because the server deleted it as a result of this write.
    /// After a cleanup, use [`Cleanup::complete`].
    pub async fn remove(&self, object: &Object<K>) -> Result<Option<Object<K>>, FinalizerError> {
        let decide =
            |state: &State| state.position_of(&self.name).map(|position| state.remove_patch(position));
        self.write(object, Operation::Remove, decide).await
    }

    /// Sends the patch that `decide` returns for the state of an object. If that state is outdated, reads the
    /// newest state, decides again and sends the new patch.
    ///
    /// Returns `None` if the object does not exist any more, and the newest known state if `decide` returns
    /// no patch.
    async fn write(
        &self,
        object: &Object<K>,
        operation: Operation,
        decide: impl Fn(&State) -> Option<Value>,
    ) -> Result<Option<Object<K>>, FinalizerError> {
        let mut newest = object.clone();
        for _ in 0..MAX_ATTEMPTS {
            let Some(patch) = decide(&self.state(&newest)?) else { return Ok(Some(newest)) };
            let patch_error = match self.patch(object.key(), &patch).await {
                Ok(body) => {
                    let written = self.read(object, body.as_bytes())?;
                    let is_removed = self.state(&written)?.is_removed_by_server();
                    return Ok((!is_removed).then_some(written));
                }
                Err(error) => error,
            };
            match status_code(&patch_error) {
                404 if is_missing_object(&patch_error) => return Ok(None),
                // 409: the server could not apply the patch because of concurrent writes.
                // 422: a test failed, or the patch was rejected for another reason; see below.
                409 | 422 => {}
                _ => return Err(self.write_error(object, operation, patch_error)),
            }
            let before = self.state(&newest)?;
            newest = match self.get(object.key()).await {
                Ok(body) => self.read(object, body.as_bytes())?,
                Err(error) if is_missing_object(&error) => return Ok(None),
                Err(error) => return Err(self.write_error(object, operation, error)),
            };
            if newest.uid() != object.uid() {
                // Another incarnation: the object was deleted and re-created.
                return Ok(None);
            }
            if status_code(&patch_error) == 422 && self.state(&newest)? == before {
                // The preconditions still hold, so the patch was rejected for another reason.
                return Err(self.write_error(object, operation, patch_error));
            }
        }
        Err(FinalizerError::Conflict { object: self.describe(object), finalizer: Arc::clone(&self.name) })
    }

    async fn patch(&self, key: &Key, patch: &Value) -> Result<String, kube::Error> {
        let request = http::Request::patch(self.path(key))
            .header(http::header::CONTENT_TYPE, "application/json-patch+json")
            .header(http::header::ACCEPT, "application/json")
            .body(patch.to_string().into_bytes())
            .map_err(kube::Error::HttpError)?;
        self.client.request_text(request).await
    }

    async fn get(&self, key: &Key) -> Result<String, kube::Error> {
        let request = http::Request::get(self.path(key))
            .header(http::header::ACCEPT, "application/json")
            .body(Vec::new())
            .map_err(kube::Error::HttpError)?;
        self.client.request_text(request).await
    }

    fn path(&self, key: &Key) -> String {
        format!("{}/{}", self.resource.url_path(key.namespace()), key.name())
    }

    /// Parses the object in a response with the parser of the cache, which expects watch frames.
    fn read(&self, requested: &Object<K>, body: &[u8]) -> Result<Object<K>, FinalizerError> {
        let read_error = |message: String| FinalizerError::Read { object: self.describe(requested), message };
        let mut entry = Err("the response contains no object".to_owned());
        let mut reader = WatchReader::new(self.resource.types(), Limits::default());
        let frame = [br#"{"type":"MODIFIED","object":"#, body, b"}"].concat();
        let read = reader.read(&frame, |frame| match frame {
            Frame::Modified(scanned) => entry = Ok(Entry::new(scanned, Retention::Bytes)),
            Frame::Unreadable(_, problem) => entry = Err(problem.to_string()),
            _ => {}
        });
        read.map_err(|error| read_error(error.to_string()))?;
        entry.map(|entry| Object::new(Arc::new(entry))).map_err(read_error)
    }

    fn state(&self, object: &Object<K>) -> Result<State, FinalizerError> {
        let read_error = |error: DecodeError| FinalizerError::Read {
            object: self.describe(object),
            message: error.to_string(),
        };
        let meta: Meta = object.metadata().map_err(read_error)?;
        Ok(State {
            uid: object.uid().to_owned(),
            finalizers: meta.finalizers.unwrap_or_default(),
            being_deleted: object.deletion_timestamp().is_some(),
            grace_period_seconds: meta.deletion_grace_period_seconds.unwrap_or_default(),
        })
    }

    fn write_error(&self, object: &Object<K>, operation: Operation, source: kube::Error) -> FinalizerError {
        let (object, finalizer, source) = (self.describe(object), Arc::clone(&self.name), Box::new(source));
        match operation {
            Operation::Add => FinalizerError::Add { object, finalizer, source },
            Operation::Remove => FinalizerError::Remove { object, finalizer, source },
        }
    }

    fn describe(&self, object: &Object<K>) -> String {
        format!("{} {}", self.resource.kind, object.key())
    }
}

impl<K> Cleanup<'_, K> {
    /// Returns the object that is being deleted.
    pub fn object(&self) -> &Object<K> {
        &self.object
    }

    /// Removes the finalizer after the cleanup, so that the server can delete the object.
    ///
    /// Returns the object as written if it still has other finalizers; `None` if it does not exist any more.
    /// The next reconcile may see an older state that still has the finalizer, and clean up once more. If other
    /// finalizers are left, passing the returned object to
    /// [`Context::record_write`](crate::controller::Context::record_write) avoids that.
    ///
    /// # Errors
    ///
    /// After an error the finalizer may still be set; the next reconcile then receives
    /// [`FinalizerAction::Cleanup`] again.
    pub async fn complete(self) -> Result<Option<Object<K>>, FinalizerError> {
        self.finalizer.remove(&self.object).await
    }
}

/// Shows the key of the object, not its contents.
impl<K> fmt::Debug for FinalizerAction<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Apply(object) => f.debug_tuple("Apply").field(object).finish(),
            Self::Cleanup(cleanup) => cleanup.fmt(f),
            Self::Gone => f.write_str("Gone"),
        }
    }
}

impl<K> fmt::Debug for Cleanup<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cleanup").field(&self.object).finish()
    }
}

impl<K> Clone for Finalizer<K> {
    fn clone(&self) -> Self {
        Finalizer {
            client: self.client.clone(),
            resource: self.resource.clone(),
            name: Arc::clone(&self.name),
            kind: PhantomData,
        }
    }
}

impl<K> fmt::Debug for Finalizer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Finalizer({} of {})", self.name, self.resource.name())
    }
}

/// The change that a write makes to the finalizer. It decides which error is returned.
#[derive(Clone, Copy)]
enum Operation {
    Add,
    Remove,
}

/// The part of an object on which decisions are based.
#[derive(PartialEq)]
struct State {
    uid: String,
    finalizers: Vec<String>,
    being_deleted: bool,
    /// `metadata.deletionGracePeriodSeconds`: until it has passed, the server keeps the object even without
    /// finalizers.
    grace_period_seconds: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    finalizers: Option<Vec<String>>,
    deletion_grace_period_seconds: Option<i64>,
}

impl State {
    fn position_of(&self, finalizer: &str) -> Option<usize> {
        self.finalizers.iter().position(|name| name == finalizer)
    }

    /// Returns whether the server deletes an object that is written with this state. The response to such a
    /// write is the last state, with the resource version from before the write.
    fn is_removed_by_server(&self) -> bool {
        self.being_deleted && self.finalizers.is_empty() && self.grace_period_seconds == 0
    }

    /// Returns a patch that appends the finalizer if the existing finalizers are unchanged. Without that test
    /// the finalizer could be added twice, because kube-apiserver accepts duplicates.
    fn add_patch(&self, finalizer: &str) -> Value {
        let (expected, path, value) = if self.finalizers.is_empty() {
            // In kube-apiserver, the test of a JSON patch treats a missing field as null.
            (Value::Null, "/metadata/finalizers", json!([finalizer]))
        } else {
            (json!(self.finalizers), "/metadata/finalizers/-", json!(finalizer))
        };
        json!([
            {"op": "test", "path": "/metadata/uid", "value": self.uid},
            {"op": "test", "path": "/metadata/finalizers", "value": expected},
            {"op": "add", "path": path, "value": value},
        ])
    }

    /// Returns a patch that removes the finalizer at `position` if it is still there. Other finalizers may
    /// have changed.
    fn remove_patch(&self, position: usize) -> Value {
        let path = format!("/metadata/finalizers/{position}");
        json!([
            {"op": "test", "path": "/metadata/uid", "value": self.uid},
            {"op": "test", "path": path, "value": self.finalizers[position]},
            {"op": "remove", "path": path},
        ])
    }
}

/// Whether a response reports that the object does not exist. While a custom resource is not served, requests for its
/// objects also get 404, but as text, or with details that do not name the object. A client of `testing` sends no details.
fn is_missing_object(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let names_object = status.details.as_ref().is_none_or(|details| !details.name.is_empty());
    status.code == 404 && status.reason == "NotFound" && names_object
}

/// Returns the status code of an unsuccessful response; 0 if there was no response.
fn status_code(error: &kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        _ => 0,
    }
}
