//! The `scale` subresource of custom objects: the paths of replicas, and the `Scale` built from them.

use serde_json::{Map, Value, json};

use super::field;
use crate::status::{Status, StatusCause};

/// The paths of replicas and selector, from `subresources.scale`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScalePaths {
    spec: String,
    status: String,
    selector: Option<String>,
}

impl ScalePaths {
    /// Returns the path of the desired replicas without its leading dot, `spec.replicas`.
    pub fn replicas(&self) -> &str {
        self.spec.trim_start_matches('.')
    }

    /// Reads the paths of a version; `None` if it has no scale.
    pub(crate) fn read(version: &Value) -> Option<Self> {
        let scale = version.pointer("/subresources/scale").filter(|scale| scale.is_object())?;
        let text = |name: &str| scale.get(name).and_then(Value::as_str).map(str::to_owned);
        Some(ScalePaths {
            spec: text("specReplicasPath")?,
            status: text("statusReplicasPath")?,
            selector: text("labelSelectorPath"),
        })
    }
}

/// Stands for replicas that are not set while a `Scale` is being changed, as in kube-apiserver.
const NOT_SET: i64 = -2_147_483_648;

/// Returns the `Scale` of an object. An error is the message of a response with status 400.
pub fn scale(paths: &ScalePaths, object: &Value) -> Result<Value, String> {
    make(paths, object, 0)
}

/// Returns the `Scale` of an object for patching. If the object has no replicas, [`write_scale`] rejects a
/// patch that does not set them.
pub fn scale_to_change(paths: &ScalePaths, object: &Value) -> Result<Value, String> {
    make(paths, object, NOT_SET)
}

/// Writes the replicas of a changed `Scale` into its object, and the resource version if the `Scale` has one.
pub fn write_scale(paths: &ScalePaths, object: &mut Value, scale: &Value) -> Result<(), Status> {
    let replicas = scale.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or_default();
    if replicas == NOT_SET {
        let path = field::quote(&paths.spec);
        return Err(Status::bad_request(format!("the spec replicas field {path} cannot be empty")));
    }
    let mut target = &mut *object;
    for name in steps(&paths.spec) {
        if !target.is_object() {
            *target = Value::Object(Map::new());
        }
        let Some(fields) = target.as_object_mut() else { return Ok(()) };
        target = fields.entry(name).or_insert(Value::Null);
    }
    *target = json!(replicas);
    let version = scale.pointer("/metadata/resourceVersion").and_then(Value::as_str);
    if let (Some(version), Some(metadata)) =
        (version, object.get_mut("metadata").and_then(Value::as_object_mut))
    {
        metadata.insert("resourceVersion".to_owned(), json!(version));
    }
    Ok(())
}

/// Checks the replicas and the selector of an object; the replicas of the spec only with `includes_spec`.
pub(super) fn check(paths: &ScalePaths, object: &Value, includes_spec: bool) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    let counts = includes_spec.then_some(&paths.spec).into_iter().chain([&paths.status]);
    for path in counts {
        match number(object, path) {
            Err(why) => causes.push(field::invalid(path, &json!(0), &why)),
            Ok(Some(count)) if count < 0 => {
                causes.push(field::invalid(path, &json!(count), "should be a non-negative integer"));
            }
            Ok(Some(count)) if count > i64::from(i32::MAX) => {
                let why = format!("should be less than or equal to {}", i32::MAX);
                causes.push(field::invalid(path, &json!(count), &why));
            }
            Ok(_) => {}
        }
    }
    if let Some(path) = &paths.selector
        && let Err(why) = text(object, path)
    {
        causes.push(field::invalid(path, &json!(""), &why));
    }
    causes
}

/// Builds a `Scale`; `unset_replicas` is used if the object has no replicas in its spec.
fn make(paths: &ScalePaths, object: &Value, unset_replicas: i64) -> Result<Value, String> {
    let replicas = number(object, &paths.spec)?.unwrap_or(unset_replicas);
    let observed = number(object, &paths.status)?.unwrap_or_default();
    let selector = paths.selector.as_deref().filter(|path| !path.is_empty());
    let selector = selector.map_or(Ok(None), |path| text(object, path))?.unwrap_or_default();
    let mut metadata = Map::new();
    for name in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object.get("metadata").and_then(|metadata| metadata.get(name)) {
            metadata.insert(name.to_owned(), value.clone());
        }
    }
    let mut spec = Map::new();
    if replicas != 0 {
        spec.insert("replicas".to_owned(), json!(replicas));
    }
    let mut status = Map::from_iter([("replicas".to_owned(), json!(observed))]);
    if !selector.is_empty() {
        status.insert("selector".to_owned(), json!(selector));
    }
    Ok(json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status,
    }))
}

fn number(object: &Value, path: &str) -> Result<Option<i64>, String> {
    match find(object, path)? {
        None => Ok(None),
        Some(value) if value.is_i64() => Ok(value.as_i64()),
        Some(other) => Err(mismatch(path, other, "int64")),
    }
}

fn text<'a>(object: &'a Value, path: &str) -> Result<Option<&'a str>, String> {
    match find(object, path)? {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(mismatch(path, other, "string")),
    }
}

fn find<'a>(object: &'a Value, path: &str) -> Result<Option<&'a Value>, String> {
    let mut value = object;
    let mut walked = String::new();
    for name in steps(path) {
        walked = format!("{walked}.{name}");
        match value {
            Value::Null => return Ok(None),
            Value::Object(fields) => match fields.get(&name) {
                None => return Ok(None),
                Some(found) => value = found,
            },
            other => return Err(mismatch(&walked, other, "map[string]interface{}")),
        }
    }
    Ok(Some(value))
}

fn steps(path: &str) -> impl Iterator<Item = String> {
    path.strip_prefix('.').unwrap_or(path).split('.').map(str::to_owned).collect::<Vec<_>>().into_iter()
}

fn mismatch(path: &str, value: &Value, wanted: &str) -> String {
    let (shown, found) = match value {
        Value::Null => ("<nil>".to_owned(), "<nil>"),
        Value::Bool(flag) => (flag.to_string(), "bool"),
        Value::Number(number) if number.is_i64() => (number.to_string(), "int64"),
        Value::Number(number) => (number.to_string(), "float64"),
        Value::String(text) => (text.clone(), "string"),
        Value::Array(_) => (value.to_string(), "[]interface {}"),
        Value::Object(_) => (value.to_string(), "map[string]interface {}"),
    };
    format!("{path} accessor error: {shown} is of the type {found}, expected {wanted}")
}
