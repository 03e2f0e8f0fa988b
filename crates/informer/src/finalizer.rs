//! Finalizers: an object is not gone before its controller has cleaned up behind it.
//!
//! Every write here is a JSON patch that tests what it was decided on: the object's uid, and the finalizers as they were. So it fails where
//! that has changed, and only there, and finalizers of others are neither lost nor reordered. Servers answer a test that fails
//! like any other patch that does not apply (422), so the object is read then, and it is decided anew.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use informer_core::wire::{Frame, Limits, WatchReader};
use informer_core::{DecodeError, Entry, Key, Object, Retention};
use kube::Resource;
use kube::api::{ApiResource, DynamicObject};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::FinalizerError;
use crate::resource::ResourceType;

/// So often a write is decided anew before it is the caller's turn to wait.
const MAX_ATTEMPTS: usize = 4;

/// A finalizer of objects of kind `K`: a name in `metadata.finalizers` that keeps a deleted object until it is taken out.
///
/// Names have a domain in front, as in `websites.example.com/cleanup`, and are used by one controller. [`Finalizer::ensure`] says what a
/// reconcile has to do. Cleaning up must bear being done again, and being done when nothing was ever applied. The controller needs the rights to
/// patch and to get its objects.
///
/// ```no_run
/// use informer::Object;
/// use informer::error::FinalizerError;
/// use informer::finalizer::{Finalizer, FinalizerAction};
/// # use k8s_openapi::api::core::v1::ConfigMap as Website;
/// # async fn make_it_so(_: &Object<Website>) {}
/// # async fn delete_bucket(_: &Object<Website>) {}
///
/// async fn reconcile(finalizer: &Finalizer<Website>, website: &Object<Website>) -> Result<(), FinalizerError> {
///     match finalizer.ensure(website).await? {
///         FinalizerAction::Apply(website) => make_it_so(&website).await,
///         FinalizerAction::Cleanup(clean_up) => {
///             delete_bucket(clean_up.object()).await;
///             clean_up.complete().await?; // the server may delete it now; what it answers with goes to `ctx.wrote`
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

/// What is to be done with an object that has a finalizer.
#[must_use = "it says what is to be done"]
pub enum FinalizerAction<'a, K> {
    /// The object is wanted, and has the finalizer: do your work. If the finalizer was missing, this is the object as it was written, which
    /// the cache may not have seen yet.
    Apply(Object<K>),
    /// The object is being deleted and waits for you: clean up, then say that it is [`done`](Cleanup::complete).
    Cleanup(Cleanup<'a, K>),
    /// There is nothing to do: the object is not there any more, or goes without waiting for you.
    Gone,
}

/// An object that is being deleted and has the finalizer still. Dropped, it keeps it, and the next reconcile comes here again.
#[must_use = "the object stays until it is done"]
pub struct Cleanup<'a, K> {
    finalizer: &'a Finalizer<K>,
    object: Object<K>,
}

impl<K: Resource<DynamicType = ()>> Finalizer<K> {
    /// The finalizer of this name.
    pub fn new(client: kube::Client, name: &str) -> Self {
        Self::of(client, ResourceType::of::<K>(&()), name)
    }
}

impl Finalizer<DynamicObject> {
    /// The finalizer of this name, of a kind that is known at run time.
    pub fn dynamic(client: kube::Client, resource: &ApiResource, name: &str) -> Self {
        Self::of(client, ResourceType::of::<DynamicObject>(resource), name)
    }
}

impl<K> Finalizer<K> {
    fn of(client: kube::Client, resource: ResourceType, name: &str) -> Self {
        Finalizer { client, resource, name: name.into(), kind: PhantomData }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What is to be done with an object: puts the finalizer in if the object is wanted and does not have it. Otherwise nothing is asked of the server.
    pub async fn ensure(&self, object: &Object<K>) -> Result<FinalizerAction<'_, K>, FinalizerError> {
        let deciding = |state: &State| match state.place_of(&self.name) {
            None if !state.deleted => Some(state.adding(&self.name)),
            _ => None,
        };
        let Some(object) = self.write(object, Phase::Add, deciding).await? else {
            return Ok(FinalizerAction::Gone);
        };
        if object.deletion_timestamp().is_none() {
            return Ok(FinalizerAction::Apply(object));
        }
        let waits = self.state(&object)?.place_of(&self.name).is_some();
        Ok(if waits {
            FinalizerAction::Cleanup(Cleanup { finalizer: self, object })
        } else {
            FinalizerAction::Gone
        })
    }

    /// Takes the finalizer out, whatever the object's state: for a controller that does not need it any more. Answers with the object as it was
    /// written, or as it was given if it did not have it; `None` if it is gone, through this or before. After cleaning up there is [`Cleanup::complete`].
    pub async fn remove(&self, object: &Object<K>) -> Result<Option<Object<K>>, FinalizerError> {
        let deciding = |state: &State| state.place_of(&self.name).map(|place| state.removing(place));
        self.write(object, Phase::Remove, deciding).await
    }

    /// Writes what is decided on the state of an object, and on its newest state if that was not the one. `None` if it is gone.
    async fn write(
        &self,
        object: &Object<K>,
        phase: Phase,
        deciding: impl Fn(&State) -> Option<Value>,
    ) -> Result<Option<Object<K>>, FinalizerError> {
        let mut newest = object.clone();
        for _ in 0..MAX_ATTEMPTS {
            let Some(patch) = deciding(&self.state(&newest)?) else { return Ok(Some(newest)) };
            let refused = match self.patch(object.key(), &patch).await {
                Ok(body) => {
                    let written = self.read(object, body.as_bytes())?;
                    let goes = self.state(&written)?.is_removed_by_server();
                    return Ok((!goes).then_some(written));
                }
                Err(error) => error,
            };
            match code(&refused) {
                404 => return Ok(None),
                // 409: a server that could not get the patch in between the writes of others.
                409 | 422 => {}
                _ => return Err(self.failed(object, phase, refused)),
            }
            let before = self.state(&newest)?;
            newest = match self.get(object.key()).await {
                Ok(body) => self.read(object, body.as_bytes())?,
                Err(error) if code(&error) == 404 => return Ok(None),
                Err(error) => return Err(self.failed(object, phase, error)),
            };
            if newest.uid() != object.uid() {
                return Ok(None);
            }
            if code(&refused) == 422 && self.state(&newest)? == before {
                // Nothing has changed, so it was not a test that failed.
                return Err(self.failed(object, phase, refused));
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

    /// An object as a server answered it, read as a cache reads it.
    fn read(&self, asked: &Object<K>, body: &[u8]) -> Result<Object<K>, FinalizerError> {
        let unread = |message: String| FinalizerError::Read { object: self.describe(asked), message };
        let mut entry = Err("the server answered with no object".to_owned());
        let mut reader = WatchReader::new(self.resource.types(), Limits::default());
        let frame = [br#"{"type":"MODIFIED","object":"#, body, b"}"].concat();
        let read = reader.read(&frame, |frame| match frame {
            Frame::Modified(scanned) => entry = Ok(Entry::new(scanned, Retention::Bytes)),
            Frame::Unreadable(_, problem) => entry = Err(problem.to_string()),
            _ => {}
        });
        read.map_err(|error| unread(error.to_string()))?;
        entry.map(|entry| Object::new(Arc::new(entry))).map_err(unread)
    }

    fn state(&self, object: &Object<K>) -> Result<State, FinalizerError> {
        let unread = |error: DecodeError| FinalizerError::Read {
            object: self.describe(object),
            message: error.to_string(),
        };
        let meta: Meta = object.metadata().map_err(unread)?;
        Ok(State {
            uid: object.uid().to_owned(),
            finalizers: meta.finalizers.unwrap_or_default(),
            deleted: object.deletion_timestamp().is_some(),
            grace: meta.deletion_grace_period_seconds.unwrap_or_default(),
        })
    }

    fn failed(&self, object: &Object<K>, phase: Phase, source: kube::Error) -> FinalizerError {
        let (object, finalizer, source) = (self.describe(object), Arc::clone(&self.name), Box::new(source));
        match phase {
            Phase::Add => FinalizerError::Add { object, finalizer, source },
            Phase::Remove => FinalizerError::Remove { object, finalizer, source },
        }
    }

    fn describe(&self, object: &Object<K>) -> String {
        format!("{} {}", self.resource.kind, object.key())
    }
}

impl<K> Cleanup<'_, K> {
    /// What is to be cleaned up behind.
    pub fn object(&self) -> &Object<K> {
        &self.object
    }

    /// It is cleaned up: takes the finalizer out, so that the server may delete the object. Answers with the object as it was written if it still
    /// waits for others; `None` if it is gone. After an error the next reconcile comes here again.
    ///
    /// What it answers with goes to [`Context::record_write`](crate::controller::Context::record_write): otherwise the next turn may see the object from before, with the finalizer
    /// in it, and clean up once more.
    pub async fn complete(self) -> Result<Option<Object<K>>, FinalizerError> {
        self.finalizer.remove(&self.object).await
    }
}

/// Which object, not what is in it.
impl<K> fmt::Debug for FinalizerAction<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Apply(object) => f.debug_tuple("Apply").field(object).finish(),
            Self::Cleanup(clean_up) => clean_up.fmt(f),
            Self::Gone => f.write_str("Gone"),
        }
    }
}

impl<K> fmt::Debug for Cleanup<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CleanUp").field(&self.object).finish()
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

#[derive(Clone, Copy)]
enum Phase {
    Add,
    Remove,
}

/// What of an object is decided on.
#[derive(PartialEq)]
struct State {
    uid: String,
    finalizers: Vec<String>,
    deleted: bool,
    /// How long something else still has, in seconds.
    grace: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    finalizers: Option<Vec<String>>,
    deletion_grace_period_seconds: Option<i64>,
}

impl State {
    fn place_of(&self, finalizer: &str) -> Option<usize> {
        self.finalizers.iter().position(|name| name == finalizer)
    }

    /// Whether a server that is left with this deletes the object. It answers with the last state, under the version before.
    fn is_removed_by_server(&self) -> bool {
        self.deleted && self.finalizers.is_empty() && self.grace == 0
    }

    /// Behind the others, if they are still these: a server does not mind having one twice.
    fn adding(&self, finalizer: &str) -> Value {
        let (seen, path, value) = if self.finalizers.is_empty() {
            // A field that is not there is null to a test.
            (Value::Null, "/metadata/finalizers", json!([finalizer]))
        } else {
            (json!(self.finalizers), "/metadata/finalizers/-", json!(finalizer))
        };
        json!([
            {"op": "test", "path": "/metadata/uid", "value": self.uid},
            {"op": "test", "path": "/metadata/finalizers", "value": seen},
            {"op": "add", "path": path, "value": value},
        ])
    }

    /// This one, if it is still there: others may come and go behind it.
    fn removing(&self, place: usize) -> Value {
        let path = format!("/metadata/finalizers/{place}");
        json!([
            {"op": "test", "path": "/metadata/uid", "value": self.uid},
            {"op": "test", "path": path, "value": self.finalizers[place]},
            {"op": "remove", "path": path},
        ])
    }
}

/// The code of an answer; nothing that any server says if there was none.
fn code(error: &kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        _ => 0,
    }
}
