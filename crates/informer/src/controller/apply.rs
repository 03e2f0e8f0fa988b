//! Server-side apply from a reconcile.

use super::context::Context;
use crate::error::ApplyError;
use crate::owner::set_controller_reference;
use crate::reference::{Plain, ToObjectReference};
use crate::resource::is_cluster_scoped;
use kube::Resource;
use kube::api::{Patch, PatchParams, Request};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;

impl<S> Context<S> {
    /// Creates or updates an object controlled by `owner`, with server-side apply, and returns it as written.
    ///
    /// - The object gets an owner reference to `owner`, as by
    ///   [`set_controller_reference`](crate::owner::set_controller_reference), so that
    ///   [`Controller::owns`](super::Controller::owns) finds it and the garbage collector deletes it with its
    ///   owner. Without a namespace, it gets the namespace of its owner.
    /// - The server sets the fields in `object`, also those last set by others, and removes those that earlier
    ///   calls set and this one does not. All other fields keep their values. So `object` should contain the
    ///   fields that the controller decides on, and nothing read from the server: build it anew in each
    ///   reconcile. The name in `managedFields` is
    ///   [`Controller::field_manager`](super::Controller::field_manager).
    /// - The write is [recorded](Self::record_write): the next reconcile of this key starts once the cache
    ///   shows it.
    ///
    /// Every call sends a request. If the object already is as described, the server changes nothing, and no
    /// event follows. The controller needs the permissions to create and patch the kind.
    ///
    /// ```
    /// use informer::controller::{Context, Outcome};
    /// use informer::{Error, Key};
    /// use k8s_openapi::api::apps::v1::Deployment;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    ///
    /// async fn reconcile(key: Key, ctx: Context) -> Result<Outcome, Error> {
    ///     let Some(deployment) = ctx.lister::<Deployment>().get_by_key(&key) else { return Ok(Outcome::Done) };
    ///     let mut settings = ConfigMap::default();
    ///     settings.metadata.name = Some(format!("{}-settings", key.name()));
    ///     settings.data = Some([("color".to_owned(), "blue".to_owned())].into());
    ///     ctx.apply(&deployment, settings).await?;
    ///     Ok(Outcome::Done)
    /// }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use informer::{SharedInformerFactory, controller::Controller};
    /// # let server = informer_apiserver::ApiServer::new();
    /// # let pod = serde_json::json!({"metadata": {"labels": {"app": "web"}},
    /// #     "spec": {"containers": [{"name": "web", "image": "nginx"}]}});
    /// # server.create(&serde_json::json!({"apiVersion": "apps/v1", "kind": "Deployment",
    /// #     "metadata": {"name": "web", "namespace": "default"},
    /// #     "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": pod}}))?;
    /// # let factory = SharedInformerFactory::new(server.client());
    /// # let maps = factory.informer::<ConfigMap>();
    /// # let controller = Controller::new::<Deployment>(&factory).owns::<ConfigMap>().reconcile(reconcile);
    /// # let written = async {
    /// #     let mut events = maps.event_stream();
    /// #     while events.next().await.is_some_and(|event| event.object().name() != "web-settings") {}
    /// # };
    /// # controller.run_until(written).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error, and sends no request, if the owner cannot own the object (see
    /// [`OwnerError`](crate::error::OwnerError): for example, it is in another namespace), if the object has no
    /// name, or if an object of a namespaced kind has no namespace and its owner is cluster-scoped. Otherwise
    /// the request failed, for example because another object already controls this one; or it succeeded, and
    /// its response does not decode ([`ApplyError::Response`]), so that the write is not recorded.
    pub async fn apply<K, Form>(
        &self,
        owner: &impl ToObjectReference<Form>,
        mut object: K,
    ) -> Result<K, ApplyError>
    where
        K: Resource<DynamicType = ()> + Serialize + DeserializeOwned + 'static,
    {
        set_controller_reference::<_, Plain, _>(owner, &mut object)?;
        let reference = Box::new(ToObjectReference::<Plain>::reference(&object));
        let namespace = match &reference.namespace {
            _ if is_cluster_scoped::<K>() => None,
            Some(namespace) => Some(namespace.as_str()),
            None => return Err(ApplyError::MissingNamespace { object: reference }),
        };
        if reference.name.is_empty() {
            return Err(ApplyError::MissingName { object: reference });
        }
        let shared = &self.request.shared;
        let field_manager = Arc::clone(shared.field_manager());
        let params = PatchParams::apply(&field_manager).force();
        let request = Request::new(K::url_path(&(), namespace))
            .patch(&reference.name, &params, &Patch::Apply(&object))
            .map_err(kube::Error::BuildRequest);
        let result = match request {
            Ok(request) => shared.factory.client().request::<K>(request).await,
            Err(error) => Err(error),
        };
        let written = result.map_err(|source| {
            let (object, field_manager, source) = (reference, Arc::clone(&field_manager), Box::new(source));
            match *source {
                // The client decodes only the body of a successful response.
                kube::Error::SerdeError(_) => ApplyError::Response { object, source },
                _ => ApplyError::Request { object, field_manager, source },
            }
        })?;
        self.record_write::<Plain>(&written);
        Ok(written)
    }
}
