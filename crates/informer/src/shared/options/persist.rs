//! The option that persists the cache, and the identity of the saved cache.

use super::{FieldFilterMode, InformerOptions};
use crate::persistence::{Identity, Persistence};
use crate::resource::ResourceType;
use crate::source::QueryParameters;
use crate::status::ColdStartReason;

impl InformerOptions {
    /// Saves the cache to a file, so that the next process starts from it instead of listing all objects. See
    /// [`Persistence`].
    ///
    /// Secrets, and kinds with a transform whose version has no name, are not persisted by default. An informer
    /// that is no longer needed leaves its file in the directory. Defaults to none.
    pub fn persist(mut self, persistence: Persistence) -> Self {
        self.persistence = Some(persistence);
        self
    }

    pub(crate) fn persistence(&self) -> Option<&Persistence> {
        self.persistence.as_ref()
    }

    /// Returns the identity of the saved cache, or why there is none.
    pub(crate) fn identity(
        &self,
        resource: &ResourceType,
        parameters: &QueryParameters,
        persistence: &Persistence,
    ) -> Result<Identity, ColdStartReason> {
        if resource.is_secret() && !resource.metadata_only && !persistence.includes_secrets {
            return Err(ColdStartReason::Secrets);
        }
        if self.shard().is_some() {
            return Err(ColdStartReason::Sharded);
        }
        let transform = match (self.transform_of(resource), &persistence.transform_version) {
            (None, _) => String::new(),
            (Some(_), Some(version)) => format!("{version} {:?}", self.transform_fallback),
            (Some(_), None) => return Err(ColdStartReason::UnnamedTransform),
        };
        let key = self.selection_key();
        let selection = [
            ("namespaces", key.namespaces.join(",")),
            ("label-selector", key.labels),
            ("field-selector", key.fields),
            ("source", self.has_source().to_string()),
        ];
        let filter = match &self.field_filter {
            None => String::new(),
            Some((_, FieldFilterMode::Drop(paths))) => format!("drop {paths:?}"),
            Some((_, FieldFilterMode::Keep(paths))) => format!("keep {paths:?}"),
        };
        let content = [
            ("query-parameters", format!("{parameters:?}")),
            ("field-filter", filter),
            ("managed-fields", self.keeps_managed_fields().to_string()),
            ("transform", transform),
            ("max-object-bytes", format!("{:?}", self.max_object_bytes)),
        ];
        let representation = if resource.metadata_only { ".metadata" } else { "" };
        let (group, version) = (&resource.group, &resource.version);
        let name = format!("{}.{version}.{group}{representation}", resource.plural);
        Ok(Identity::new(&persistence.cluster, name.trim_end_matches('.'), &selection, &content))
    }
}
