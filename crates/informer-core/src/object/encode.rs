//! [`Object::from_typed`]: objects that no server sent.

use super::typed::{Decoded, Reservation};
use super::{Entry, Object};
use crate::retention::Retention;
use crate::wire::{Limits, ManagedFields, ReadObjectError, TypeMeta, read_object};
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;

/// A value that is not an object of a Kubernetes API.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a {type_name} is not a Kubernetes object: {message}")]
#[non_exhaustive]
pub struct EncodeError {
    /// The Rust type of the value.
    pub type_name: &'static str,
    /// What is missing or wrong.
    pub message: Box<str>,
}

impl<K: Serialize + Send + Sync + 'static> Object<K> {
    /// Creates an object from a typed value, for tests and for caches that are filled by hand.
    ///
    /// The object behaves as one that a server sent as JSON, and its bytes do not contain `metadata.managedFields`. It
    /// keeps the value as given, which [`typed`](Self::typed) returns. Without a resource version, its version is 0.
    ///
    /// # Errors
    ///
    /// Returns an error if the value does not serialize as an object with `apiVersion`, `kind` and
    /// `metadata.name`.
    pub fn from_typed(value: K) -> Result<Self, EncodeError> {
        let failed =
            |message: String| EncodeError { type_name: std::any::type_name::<K>(), message: message.into() };
        let mut json = serde_json::to_value(&value).map_err(|error| failed(error.to_string()))?;
        let text = |name: &str| json.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        let (Some(api_version), Some(kind)) = (text("apiVersion"), text("kind")) else {
            return Err(failed("apiVersion or kind is missing".to_owned()));
        };
        let type_meta = TypeMeta::new(api_version, kind);
        if let Some(Value::Object(metadata)) = json.get_mut("metadata") {
            let version = metadata.entry("resourceVersion").or_insert(Value::Null);
            if version.is_null() || version == "" {
                *version = "0".into();
            }
        }
        let json = json.to_string();
        let scanned = read_object(&type_meta, Limits::new(usize::MAX), ManagedFields::Drop, json.as_bytes())
            .map_err(|error: ReadObjectError| failed(error.to_string()))?;
        let entry = Entry::new(scanned, Retention::Decoded);
        entry.kept.get_or_add(Decoded::new(value, Reservation::default()));
        Ok(Self::new(Arc::new(entry)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    fn pod(json: Value) -> Pod {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn object_reads_as_if_a_server_had_sent_it() {
        let object = Object::from_typed(pod(json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "u1", "resourceVersion": "7",
                "generation": 3, "labels": {"app": "web"}, "managedFields": [{"manager": "m"}]},
            "spec": {"nodeName": "n1", "containers": []},
        })))
        .unwrap();
        assert_eq!((object.key().to_string().as_str(), object.uid()), ("shop/web", "u1"));
        assert_eq!((object.resource_version().to_string().as_str(), object.generation()), ("7", Some(3)));
        assert_eq!(
            (object.labels().get("app"), object.field("spec.nodeName").as_deref()),
            (Some("web"), Some("n1"))
        );
        assert_eq!(object.cast::<Value>().typed().unwrap()["kind"], "Pod");
        assert!(object.typed().unwrap().metadata.managed_fields.is_some(), "the value as it was given");
        assert!(!String::from_utf8_lossy(&object.raw_bytes()).contains("managedFields"));
    }

    #[test]
    fn version_is_optional_and_type_and_name_are_not() {
        let object = Object::from_typed(pod(json!({"metadata": {"name": "web"}}))).unwrap();
        assert_eq!((object.resource_version().to_string().as_str(), object.uid()), ("0", ""));
        let error = Object::from_typed(Pod::default()).unwrap_err().to_string();
        assert!(error.ends_with("Pod is not a Kubernetes object: metadata.name is missing"), "{error}");
        let error = Object::from_typed(json!({"metadata": {"name": "web"}})).unwrap_err().to_string();
        assert!(error.ends_with("apiVersion or kind is missing"), "{error}");
        let error = Object::from_typed(7).unwrap_err().to_string();
        assert!(error.ends_with("apiVersion or kind is missing"), "{error}");
    }
}
