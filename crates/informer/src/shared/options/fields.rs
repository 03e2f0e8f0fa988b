//! The options that leave fields out of cached objects.

use super::{FieldFilterMode, InformerOptions};
use crate::error::ConfigError;

impl InformerOptions {
    /// Drops fields of every object, given by paths, while it is read.
    ///
    /// Dropped fields cost neither memory nor decoding time, and are missing everywhere: in typed objects, in
    /// [`field`](crate::Object::field) and in indexes. An index by a dropped field has no values.
    ///
    /// - A path has the syntax of [`cache::FieldPath`](crate::cache::FieldPath). It names a whole value, also a
    ///   map or a list, and enters lists: `spec.containers.env` names the `env` of every container. The elements
    ///   of a list stay, even if nothing is left in them.
    /// - `apiVersion`, `kind` and these fields of `metadata` always stay: `name`, `namespace`, `uid`,
    ///   `resourceVersion`, `generation`, `creationTimestamp`, `deletionTimestamp`,
    ///   `deletionGracePeriodSeconds`, `ownerReferences` and `finalizers`. `metadata.managedFields` is
    ///   dropped, unless [`keep_managed_fields`](Self::keep_managed_fields) is set.
    /// - [`typed`](crate::Object::typed) decodes what is left. In the types of `k8s-openapi` a dropped field is
    ///   `None` or has its default (an empty string, 0, `false`), even if Kubernetes requires it. In your own
    ///   types it must be an `Option` or have `#[serde(default)]`, or `typed` fails.
    ///
    /// Replaces earlier calls of this method and of [`keep_fields`](Self::keep_fields). By default only
    /// `metadata.managedFields` is dropped.
    ///
    /// # Errors
    ///
    /// Returns an error if a path cannot be parsed, or names a field that always stays.
    ///
    /// ```
    /// use informer::InformerOptions;
    ///
    /// let options = InformerOptions::default().drop_fields([
    ///     "status",
    ///     "metadata.annotations['kubectl.kubernetes.io/last-applied-configuration']",
    /// ])?;
    /// # Ok::<(), informer::error::ConfigError>(())
    /// ```
    pub fn drop_fields<S: AsRef<str>>(
        mut self,
        paths: impl IntoIterator<Item = S>,
    ) -> Result<Self, ConfigError> {
        let mode = FieldFilterMode::Drop(paths.into_iter().map(|path| path.as_ref().to_owned()).collect());
        self.field_filter = Some((mode.build()?, mode));
        Ok(self)
    }

    /// Keeps only the given fields of every object, besides its labels and the fields that
    /// [`drop_fields`](Self::drop_fields) cannot drop.
    ///
    /// All other fields are dropped while the object is read, by the rules of `drop_fields`. The elements of a
    /// list on a path stay, with the kept fields only, so their number is right. Replaces earlier calls of both
    /// methods.
    ///
    /// # Errors
    ///
    /// Returns an error if a path cannot be parsed.
    ///
    /// ```
    /// use informer::{InformerOptions, SharedInformer};
    /// use k8s_openapi::api::core::v1::Pod;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), informer::Error> {
    /// # let server = informer_apiserver::ApiServer::new();
    /// # let client = server.client();
    /// # let container = |name| serde_json::json!({"name": name, "image": "nginx", "resources": {"limits": {"cpu": "1"}}});
    /// # server.create(&serde_json::json!({"apiVersion": "v1", "kind": "Pod",
    /// #     "metadata": {"name": "web", "namespace": "default", "annotations": {"a": "b"}},
    /// #     "spec": {"nodeName": "n1", "containers": [container("a"), container("b")]}})).unwrap();
    /// let fields = ["spec.nodeName", "spec.containers.resources", "status.phase"];
    /// let pods = SharedInformer::<Pod>::with_options(client, InformerOptions::default().keep_fields(fields)?);
    /// pods.start();
    /// pods.wait_for_sync(Duration::from_secs(30)).await?;
    ///
    /// let pod = pods.lister().get("default", "web").expect("the server has this pod");
    /// assert!(pod.creation_timestamp().is_some());
    /// assert_eq!(pod.field("spec.nodeName").as_deref(), Some("n1"));
    /// let pod = pod.typed()?;
    /// let containers = &pod.spec.as_ref().expect("a part of it is kept").containers;
    /// assert_eq!(containers.len(), 2);
    /// assert!(containers[0].resources.as_ref().is_some_and(|resources| resources.limits.is_some()));
    /// assert_eq!((containers[0].name.as_str(), &containers[0].image), ("", &None));
    /// assert_eq!(pod.metadata.annotations, None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn keep_fields<S: AsRef<str>>(
        mut self,
        paths: impl IntoIterator<Item = S>,
    ) -> Result<Self, ConfigError> {
        let mode = FieldFilterMode::Keep(paths.into_iter().map(|path| path.as_ref().to_owned()).collect());
        self.field_filter = Some((mode.build()?, mode));
        Ok(self)
    }

    /// Sets whether `metadata.managedFields` are cached. Defaults to `false`: they are dropped while objects are
    /// read.
    ///
    /// They record which field manager set which field, for server-side apply, and few programs read them. They
    /// take over a third of a typical pod, so a cache with them takes about half as much memory again, and
    /// objects are read more slowly. To keep the names of the managers alone, drop the rest:
    ///
    /// ```
    /// use informer::InformerOptions;
    ///
    /// let options =
    ///     InformerOptions::default().keep_managed_fields(true).drop_fields(["metadata.managedFields.fieldsV1"])?;
    /// # Ok::<(), informer::error::ConfigError>(())
    /// ```
    ///
    /// Paths of [`drop_fields`](Self::drop_fields) apply to them as to other fields;
    /// [`keep_fields`](Self::keep_fields) keeps them as a whole, besides its paths. They are part of
    /// [`raw_bytes`](crate::Object::raw_bytes) and [`typed`](crate::Object::typed), with both encodings and in
    /// informers of metadata. A [`transform`](Self::transform) receives them.
    pub fn keep_managed_fields(mut self, keep: bool) -> Self {
        self.keep_managed_fields = Some(keep);
        self
    }
}
