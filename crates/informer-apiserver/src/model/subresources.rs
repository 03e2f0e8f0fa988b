//! The subresources `scale`, `binding` and `eviction`, which have a kind of their own.
//!
//! Objects of these kinds are never stored: a scale is read from an object and written back into it; a
//! binding and an eviction change their pod.

use std::sync::Arc;

use informer_objects::definition;
use informer_objects::field_management::{self, Manager};
use informer_objects::schema::Node;
use informer_objects::status::{Status, StatusCause, StatusDetails};
use informer_objects::text::times;
use informer_schema::Type;
use serde_json::{Value, json};

use super::delete::{self, DeleteOptions};
use super::kinds::VersionedResource;
use super::meta::check_preconditions;
use super::patching::check_names;
use super::resource::Resource;
use super::selector::{LabelSelector, text_of};
use super::state::State;
use super::write_context::{WriteContext, WriteOrigin, WriteResult};
use super::write_target::WriteTarget;
use super::{Filter, Model, Paging, json_edit};

/// Built-in kinds with a scale subresource.
const SCALED: &[(&str, &str)] = &[
    ("apps", "deployments"),
    ("apps", "replicasets"),
    ("apps", "statefulsets"),
    ("", "replicationcontrollers"),
];

impl Resource {
    /// Returns whether a version has a scale subresource.
    pub(crate) fn has_scale(&self, version: usize) -> bool {
        if self.custom {
            return self.custom_version(version).is_some_and(|custom| custom.scale.is_some());
        }
        SCALED.iter().any(|(group, plural)| self.is(group, plural))
    }
}

impl Model {
    /// Returns the scale to which a patch is applied.
    ///
    /// If a custom object has no replicas, its scale gets a reserved number of replicas, as in
    /// kube-apiserver: a patch that does not replace this number is rejected.
    pub(crate) fn scale_to_change(&self, gvr: VersionedResource, state: &State) -> Result<Value, Status> {
        let resource = self.resource(gvr.id)?;
        match resource.custom_version(gvr.version).and_then(|custom| custom.scale.as_ref()) {
            Some(paths) => definition::scale_to_change(paths, &state.decode()).map_err(Status::bad_request),
            None => self.scale(gvr, state),
        }
    }

    /// Returns the scale of an object.
    pub(crate) fn scale(&self, gvr: VersionedResource, state: &State) -> Result<Value, Status> {
        let resource = self.resource(gvr.id)?;
        let object = state.decode();
        if resource.custom {
            let paths = resource.custom_version(gvr.version).and_then(|custom| custom.scale.as_ref());
            let paths =
                paths.ok_or_else(|| Status::not_found(&resource.group, &resource.plural, &state.name))?;
            return definition::scale(paths, &object).map_err(Status::bad_request);
        }
        let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64);
        let mut scale = json!({
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": {
                "name": state.name,
                "namespace": state.namespace,
                "uid": state.uid,
                "resourceVersion": state.version.to_string(),
                "creationTimestamp": object["metadata"]["creationTimestamp"],
            },
            "spec": {},
            "status": {"replicas": number("/status/replicas").unwrap_or(0)},
        });
        if let Some(replicas) = number("/spec/replicas").filter(|replicas| *replicas != 0) {
            scale["spec"]["replicas"] = json!(replicas);
        }
        let selector = text_of(&object["spec"]["selector"]);
        if !selector.is_empty() {
            scale["status"]["selector"] = json!(selector);
        }
        Ok(scale)
    }

    /// Writes a scale back into its object.
    pub(crate) fn update_scale(
        &mut self,
        context: &WriteContext,
        gvr: VersionedResource,
        before: Arc<State>,
        scale: &Value,
    ) -> Result<WriteResult, Status> {
        let old = self.scale_with_owners(gvr, &before)?;
        let mut new = scale.clone();
        let time = times::written(context.now);
        field_management::updated(scale_schema(), Some(&old), &mut new, &scale_manager(context, &time));
        self.write_scale(context, gvr, before, &new)
    }

    /// Applies a scale, and thereby its object, with server-side apply.
    pub(crate) fn apply_scale(
        &mut self,
        context: &WriteContext,
        gvr: VersionedResource,
        before: Arc<State>,
        config: &Value,
    ) -> Result<WriteResult, Status> {
        let old = self.scale_with_owners(gvr, &before)?;
        let time = times::written(context.now);
        let new = field_management::applied(
            scale_schema(),
            Some(&old),
            config,
            &scale_manager(context, &time),
            context.force,
        )
        .map_err(|error| error.to_status())?;
        self.write_scale(context, gvr, before, &new)
    }

    /// Writes a scale back into its object, with the owners in `managedFields` of the scale.
    fn write_scale(
        &mut self,
        context: &WriteContext,
        gvr: VersionedResource,
        before: Arc<State>,
        scale: &Value,
    ) -> Result<WriteResult, Status> {
        let resource = self.resource(gvr.id)?;
        check_names(&resource, (&before.namespace, &before.name), scale)?;
        let metadata = scale.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
        check_preconditions(&resource, &before, &metadata)?;
        let paths = resource.custom_version(gvr.version).and_then(|custom| custom.scale.as_ref());
        let path = paths.map_or("spec.replicas", |paths| paths.replicas());
        let replicas = scale.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(0);
        if replicas < 0 {
            return Err(negative_replicas(&resource, path, &before.name, replicas));
        }
        let mut object = before.decode();
        let api_version = resource.api_version(gvr.version);
        let owners = field_management::owners_after_scale(&object, scale, &api_version, path);
        match paths {
            Some(paths) => definition::write_scale(paths, &mut object, scale)?,
            None => json_edit::set(&mut object, &["spec", "replicas"], json!(replicas)),
        }
        json_edit::set(&mut object, &["metadata", "managedFields"], owners.unwrap_or_default());
        // `managedFields` is final, as after an apply.
        self.replace(context, gvr, WriteTarget::Scale, before, object, WriteOrigin::Apply)
    }

    /// Returns the scale of an object, with the owners of the object's replicas.
    fn scale_with_owners(&self, gvr: VersionedResource, state: &State) -> Result<Value, Status> {
        let resource = self.resource(gvr.id)?;
        let paths = resource.custom_version(gvr.version).and_then(|custom| custom.scale.as_ref());
        let replicas = paths.map_or("spec.replicas", |paths| paths.replicas());
        let mut scale = self.scale(gvr, state)?;
        if let Some(owners) = field_management::owners_of_scale(&state.decode(), replicas) {
            json_edit::set(&mut scale, &["metadata", "managedFields"], owners);
        }
        Ok(scale)
    }

    /// Assigns a pod to a node.
    pub(crate) fn bind(
        &mut self,
        context: &WriteContext,
        gvr: VersionedResource,
        key: (&str, &str),
        binding: &Value,
    ) -> Result<(), Status> {
        let node = binding.pointer("/target/name").and_then(Value::as_str).unwrap_or_default();
        check_target(node, binding.pointer("/target/kind").and_then(Value::as_str).unwrap_or_default())?;
        let before = self.get(gvr, key.0, key.1).ok_or_else(|| Status::not_found("", "pods", key.1))?;
        let mut pod = before.decode();
        let refused = |why: &str| Status::conflict("", "pods/binding", key.1, why);
        let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
        let uid = text(binding.pointer("/metadata/uid"));
        if !uid.is_empty() && uid != before.uid {
            return Err(Status::conflict(
                "",
                "pods/binding",
                key.1,
                "the UID in the precondition does not match",
            ));
        }
        if before.terminating {
            return Err(refused(&format!("pod {} is being deleted, cannot be assigned to a host", key.1)));
        }
        let assigned = text(pod.pointer("/spec/nodeName"));
        if !assigned.is_empty() {
            return Err(refused(&format!("pod {} is already assigned to node \"{assigned}\"", key.1)));
        }
        json_edit::set(&mut pod, &["spec", "nodeName"], json!(node));
        for (name, value) in
            binding.pointer("/metadata/annotations").and_then(Value::as_object).into_iter().flatten()
        {
            json_edit::set(&mut pod, &["metadata", "annotations", name], value.clone());
        }
        let condition = json!({
            "type": "PodScheduled", "status": "True", "lastProbeTime": null,
            "lastTransitionTime": times::written(context.now),
        });
        set_condition(&mut pod, condition);
        // In kube-apiserver, fields that a binding sets get no owner.
        self.overwrite_keeping_owners(context, gvr, before, &pod).map(|_| ())
    }

    /// Deletes a pod if its disruption budget allows this. Pods without a budget, and pods that are pending,
    /// finished or terminating, are always deleted.
    pub(crate) fn evict(
        &mut self,
        context: &WriteContext,
        gvr: VersionedResource,
        (namespace, name): (&str, &str),
        options: &DeleteOptions,
    ) -> Result<(), Status> {
        let pod = self.get(gvr, namespace, name).ok_or_else(|| Status::not_found("", "pods", name))?;
        let phase =
            pod.decode().pointer("/status/phase").and_then(Value::as_str).unwrap_or_default().to_owned();
        let resource = self.resource(gvr.id)?;
        delete::check(&resource, &pod, options)?;
        let needs_budget = !pod.terminating && !matches!(phase.as_str(), "Succeeded" | "Failed" | "Pending");
        if needs_budget {
            self.consume_disruption_budget(context, namespace, &pod, options.dry_run)?;
        }
        let mut options = options.clone();
        if !options.dry_run {
            let condition = json!({
                "type": "DisruptionTarget", "status": "True", "lastProbeTime": null,
                "lastTransitionTime": times::written(context.now),
                "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting",
            });
            let mut object = pod.decode();
            set_condition(&mut object, condition);
            let marked = self.overwrite(&as_server(context), gvr, WriteTarget::Status, pod, object)?;
            // The precondition was met by the version before this write.
            options.resource_version = options.resource_version.map(|_| marked.version.to_string());
        }
        self.delete(context.now, gvr, (namespace, name), &options).map(|_| ())
    }

    /// Reduces the disruption budget that selects a pod by one. Fails if the budget does not allow a
    /// disruption, or if several budgets select the pod.
    fn consume_disruption_budget(
        &mut self,
        context: &WriteContext,
        namespace: &str,
        pod: &State,
        dry_run: bool,
    ) -> Result<(), Status> {
        let Some(gvr) = self.registry.resource("policy", "v1", "poddisruptionbudgets") else { return Ok(()) };
        let listing = self.list(gvr, namespace, &super::ReadVersion::Newest, Paging::Unpaged)?;
        let filter = Filter::namespace(namespace);
        let mut matching: Vec<Arc<State>> = listing
            .states(&filter)
            .filter(|budget| {
                let selector = &budget.decode()["spec"]["selector"];
                LabelSelector::of_object(selector).is_some_and(|found| found.matches(&pod.labels))
            })
            .collect();
        if matching.len() > 1 {
            let message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            return Err(Status::new(500, "InternalError", message));
        }
        let Some(budget) = matching.pop() else { return Ok(()) };
        let mut object = budget.decode();
        let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
        let unobserved = number("/status/observedGeneration") < number("/metadata/generation");
        let allowed = number("/status/disruptionsAllowed");
        if unobserved || allowed <= 0 {
            return Err(over_budget(
                &budget.name,
                unobserved,
                number("/status/desiredHealthy"),
                number("/status/currentHealthy"),
            ));
        }
        if dry_run {
            return Ok(());
        }
        let observed = number("/status/observedGeneration");
        json_edit::set(&mut object, &["status", "disruptionsAllowed"], json!(allowed - 1));
        if allowed == 1 {
            let condition = json!({
                "type": "DisruptionAllowed", "status": "False", "observedGeneration": observed,
                "lastTransitionTime": times::written(context.now), "reason": "InsufficientPods", "message": "",
            });
            set_condition(&mut object, condition);
        }
        json_edit::set(
            &mut object,
            &["status", "disruptedPods", &pod.name],
            json!(times::written(context.now)),
        );
        self.overwrite(&as_server(context), gvr, WriteTarget::Status, budget, object).map(|_| ())
    }
}

/// Returns the context for a part of the write that the server makes itself.
fn as_server(context: &WriteContext) -> WriteContext {
    WriteContext { manager: "kube-apiserver".to_owned(), ..context.clone() }
}

/// Replaces the condition of the same type, or adds it.
fn set_condition(object: &mut Value, condition: Value) {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    let mut conditions = conditions.cloned().unwrap_or_default();
    conditions.retain(|other| other["type"] != condition["type"]);
    conditions.push(condition);
    json_edit::set(object, &["status", "conditions"], json!(conditions));
}

/// Requires that the target of a binding is a node.
fn check_target(name: &str, kind: &str) -> Result<(), Status> {
    let why = match (name, kind) {
        (_, kind) if !matches!(kind, "" | "Node") => {
            format!("target.kind: Unsupported value: \"{kind}\": supported values: \"Node\", \"<empty>\"")
        }
        ("", _) => "target.name: Required value".to_owned(),
        _ => return Ok(()),
    };
    // kube-apiserver gives no reason for this error.
    Err(Status::new(500, "", why))
}

fn negative_replicas(resource: &Resource, path: &str, name: &str, replicas: i64) -> Status {
    if !resource.custom {
        let message = format!("Invalid value: {replicas}: must be greater than or equal to 0");
        let cause = StatusCause::new("FieldValueInvalid", path, message);
        return Status::invalid("autoscaling", "Scale", name, vec![cause]);
    }
    let message = format!("Invalid value: {replicas}: should be a non-negative integer");
    let cause = StatusCause::new("FieldValueInvalid", &format!(".{path}"), message);
    Status::invalid(&resource.group, &resource.kind, name, vec![cause])
}

fn scale_manager<'a>(context: &'a WriteContext, time: &'a str) -> Manager<'a> {
    Manager {
        name: &context.manager,
        subresource: "scale",
        api_version: "autoscaling/v1",
        kind: "Scale",
        time,
        reset: &["status"],
    }
}

fn scale_schema() -> Node<'static> {
    Type::named("io.k8s.api.autoscaling.v1.Scale").map_or(Node::Unknown, Node::of)
}

fn over_budget(budget: &str, unobserved: bool, desired: i64, healthy: i64) -> Status {
    let why = "Cannot evict pod as it would violate the pod's disruption budget.";
    let (message, retry) = if unobserved {
        (format!("The disruption budget {budget} is still being processed by the server."), Some(10))
    } else {
        let needs = format!(
            "The disruption budget {budget} needs {desired} healthy pods and has {healthy} currently"
        );
        let denied = format!("The disruption budget {budget} does not allow evicting pods currently");
        (if healthy <= desired { needs } else { denied }, None)
    };
    let mut details = StatusDetails::default();
    details.causes = vec![StatusCause::new("DisruptionBudget", "", message)];
    details.retry_after_seconds = retry;
    let mut status = Status::new(429, "TooManyRequests", why);
    status.details = Some(Box::new(details));
    status
}

/// Returns the response to a binding or an eviction: a `Status` that reports success with code 201.
pub(crate) fn created_status() -> Vec<u8> {
    br#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}"#.to_vec()
}
