//! Writing the status of an object from a reconcile.

use super::context::Context;
use crate::error::PatchStatusError;
use crate::reference::ToObjectReference;
use crate::resource::ResourceType;
use informer_core::ResourceVersion;
use kube::core::request;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

impl<S> Context<S> {
    /// Writes the status of an object and returns the object as written.
    ///
    /// - The new status replaces the old one completely: fields that are not in `status` are removed.
    /// - `object` is the state from which the status was computed: an `Object<K>`, its typed value, or a `K`
    ///   that another write returned. If the object has changed since, nothing is written, and the error is a
    ///   [conflict](crate::Error::is_conflict). Return it: the reconcile is retried, with the newer object once
    ///   the cache shows it.
    /// - The write is [recorded](Self::record_write): the next reconcile of this key starts once the cache
    ///   shows it.
    ///
    /// The kind must be a source of the controller; its own kind always is. Every call sends one request, a JSON
    /// patch of the subresource `status`, which needs the permission to patch it, as in `websites/status`. If
    /// the status is equal, the server changes nothing, and no event follows; compare with the status that was
    /// read to save the request.
    ///
    /// ```
    /// use informer::controller::{Context, Controller, Outcome, predicates};
    /// use informer::{Error, Key};
    /// use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus};
    ///
    /// async fn reconcile(key: Key, ctx: Context) -> Result<Outcome, Error> {
    ///     let Some(deployment) = ctx.lister::<Deployment>().get_by_key(&key) else { return Ok(Outcome::Done) };
    ///     let status = DeploymentStatus { observed_generation: deployment.generation(), ..Default::default() };
    ///     if deployment.typed()?.status.as_ref() != Some(&status) {
    ///         ctx.patch_status(&deployment, &status).await?;
    ///     }
    ///     Ok(Outcome::Done)
    /// }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use informer::SharedInformerFactory;
    /// # let server = informer_apiserver::ApiServer::new();
    /// # let pod = serde_json::json!({"metadata": {"labels": {"app": "web"}},
    /// #     "spec": {"containers": [{"name": "web", "image": "nginx"}]}});
    /// # server.create(&serde_json::json!({"apiVersion": "apps/v1", "kind": "Deployment",
    /// #     "metadata": {"name": "web", "namespace": "default"},
    /// #     "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": pod}}))?;
    /// # let factory = SharedInformerFactory::new(server.client());
    /// # let deployments = factory.informer::<Deployment>();
    /// let controller = Controller::new::<Deployment>(&factory)
    ///     .with_predicate(predicates::generation_changed) // ignores the status that it writes itself
    ///     .reconcile(reconcile);
    /// # let written = async {
    /// #     let mut events = deployments.event_stream();
    /// #     while let Some(event) = events.next().await {
    /// #         if event.object().field("status.observedGeneration").as_deref() == Some("1") { break }
    /// #     }
    /// # };
    /// # controller.run_until(written).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error, and sends no request, if the object has no resource version, because it was not read
    /// from the server, or if its kind is not a source of the controller. Otherwise the request failed, for
    /// example with a conflict, or because the object was deleted. A kind without the subresource, such as a
    /// custom resource whose definition does not declare it, is reported like a deleted object. If only the
    /// response does not decode, the status was written; the error is [`PatchStatusError::Response`].
    pub async fn patch_status<O, Form>(
        &self,
        object: &O,
        status: &impl Serialize,
    ) -> Result<O::Kind, PatchStatusError>
    where
        O: ToObjectReference<Form>,
        O::Kind: DeserializeOwned,
    {
        let shared = &self.request.shared;
        let reference = object.reference();
        let Some(version) = object.version() else {
            return Err(PatchStatusError::MissingVersion { object: Box::new(reference) });
        };
        let is_kind = |kind: &&ResourceType| {
            *kind.kind == *reference.kind && *kind.api_version() == *reference.api_version
        };
        let Some(kind) = shared.sources.iter().map(|source| &source.engine.kind).find(is_kind) else {
            let controller = shared.name.clone();
            return Err(PatchStatusError::NotASource { object: Box::new(reference), controller });
        };
        let query = form_urlencoded::Serializer::new(String::new())
            .append_pair("fieldManager", shared.field_manager())
            .finish();
        let collection = kind.url_path(reference.namespace.as_deref());
        let path = format!("{collection}/{}/status?{query}", reference.name);
        let result: Result<Value, kube::Error> = match patch_request(&path, &version, status) {
            Ok(request) => shared.factory.client().request(request).await,
            Err(error) => Err(error),
        };
        let written = result.and_then(|written| {
            let version = written.pointer("/metadata/resourceVersion").and_then(Value::as_str);
            if let Some(version) = version {
                self.record(&reference, &ResourceVersion::new(version));
            }
            serde_json::from_value(written).map_err(kube::Error::SerdeError)
        });
        written.map_err(|source| {
            let (object, source) = (Box::new(reference), Box::new(source));
            match *source {
                // The client decodes only the body of a successful response.
                kube::Error::SerdeError(_) => PatchStatusError::Response { object, source },
                _ => PatchStatusError::Request { object, source },
            }
        })
    }
}

/// Returns a request that replaces the status of the object at `path`, if the object has this version.
///
/// A merge patch would keep the fields that are not in the new status, and an update would need the whole
/// object. The version is set instead of tested, because kube-apiserver responds with a conflict to another
/// version, but to a failed test as to an invalid patch.
fn patch_request(
    path: &str,
    version: &ResourceVersion,
    status: &impl Serialize,
) -> Result<http::Request<Vec<u8>>, kube::Error> {
    let body_error = |error| kube::Error::BuildRequest(request::Error::SerializeBody(error));
    let status = serde_json::to_value(status).map_err(body_error)?;
    let operations = json!([
        {"op": "replace", "path": "/metadata/resourceVersion", "value": version.as_str()},
        // Replaces the status if there is one.
        {"op": "add", "path": "/status", "value": status},
    ]);
    http::Request::patch(path)
        .header(http::header::CONTENT_TYPE, "application/json-patch+json")
        .header(http::header::ACCEPT, "application/json")
        .body(operations.to_string().into_bytes())
        .map_err(kube::Error::HttpError)
}
