//! Replay of all recorded writes whose response contains owners.
//!
//! The object before a step is the one in the last response about it. Fields that the server set after it had
//! determined the owners are removed from the response first; they are listed in `FILLED_IN`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use informer_schema::Type;
use serde_json::{Map, Value, json};

use super::super::{Manager, applied, owners_after_scale, owners_of_scale, updated};
use super::{built_in, structural};
use crate::schema::{Node, Structural};

/// Fields by kind that the server sets after it has determined the owners.
const FILLED_IN: &[(&str, &str)] = &[
    ("", "/metadata/deletionTimestamp"),
    ("", "/metadata/deletionGracePeriodSeconds"),
    ("Pod", "/spec/priority"),
    ("Pod", "/spec/preemptionPolicy"),
    ("Pod", "/spec/tolerations"),
    ("Node", "/spec/taints"),
    ("Namespace", "/spec/finalizers"),
    ("Service", "/spec/clusterIP"),
    ("Service", "/spec/clusterIPs"),
    ("Service", "/spec/ipFamilies"),
    ("Service", "/spec/ipFamilyPolicy"),
    ("Service", "/spec/ports/0/nodePort"),
    ("HorizontalPodAutoscaler", "/metadata/annotations/autoscaling.alpha.kubernetes.io~1current-metrics"),
    ("PersistentVolume", "/metadata/finalizers"),
    ("PersistentVolumeClaim", "/metadata/finalizers"),
    ("PersistentVolumeClaim", "/spec/dataSourceRef"),
    ("VolumeAttributesClass", "/metadata/finalizers"),
];

/// Fields of `FILLED_IN` that the recorder sent when it created the object in this file of `kinds/`.
const SENT: &[(&str, &[&str])] = &[
    ("core_v1_Namespace", &["/spec/finalizers"]),
    ("core_v1_Node", &["/spec/taints"]),
    ("core_v1_Pod", &["/spec/tolerations", "/spec/preemptionPolicy"]),
    ("core_v1_Service", &["/spec/clusterIP", "/spec/ipFamilyPolicy", "/spec/ports/0/nodePort"]),
];

/// Steps whose objects are not in the recordings in their original state.
const NOT_RECORDED: &[&str] = &[
    // A field of a disabled feature is owned before it is dropped.
    "leases_events/lease-strategy-without-holder",
    "coordination.k8s.io_v1_Lease",
    // The pod was bound to a node before, which changed it.
    "watch/pod-running",
    "watch/pod-succeeded",
    // Not an object yet: YAML is decoded elsewhere.
    "patch/apply-bad-yaml",
];

/// Fields that a write cannot change, by kind and subresource, where they are not the usual ones: `spec` for
/// the status, `status` otherwise.
const RESET: &[(&str, &str, &[&str])] = &[
    ("Deployment", "status", &["spec", "metadata.labels"]),
    ("Pod", "status", &["spec", "metadata.deletionTimestamp", "metadata.ownerReferences"]),
    ("CertificateSigningRequest", "", &["spec", "status"]),
];

#[test]
fn owners_after_writes_equal_the_recorded_ones() {
    let mut replay = Replay::default();
    for file in ["patch", "crud", "delete", "list", "leases_events", "namespaces", "crd", "watch", "gzip"] {
        replay.run(file);
    }
    replay.finish();
    assert!(replay.updates > 200, "{}", replay.updates);
    assert!(replay.applies > 15, "{}", replay.applies);
    assert!(replay.rejections > 7, "{}", replay.rejections);
}

/// One object of each kind: its entry after the create, ignoring entries of later writes of the status.
#[test]
fn owners_of_created_objects_equal_the_recorded_ones() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/recordings/kinds");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files: BTreeSet<PathBuf> =
        files.filter(|file| file.extension().is_some_and(|ending| ending == "json")).collect();
    let (mut count, mut failures) = (0, Vec::new());
    for file in files {
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        let Ok(object) = serde_json::from_str::<Value>(&std::fs::read_to_string(&file).unwrap()) else {
            continue;
        };
        let text = |name: &str| object[name].as_str().unwrap_or_default();
        let (version, kind) = (text("apiVersion"), text("kind"));
        let Some(node) = built_in(version, kind) else { continue };
        let expected = timeless(&object);
        let expected =
            expected.as_array().into_iter().flatten().filter(|entry| entry.get("subresource").is_none());
        let expected: Vec<&Value> = expected.collect();
        // Skipped: objects of the server itself, which have changed since their creation, and objects that
        // were created in another version.
        let is_by_recorder =
            |entry: &&Value| entry["manager"] == "recorder" && entry["apiVersion"] == version;
        let named = object["metadata"]["name"].is_string();
        if !named || NOT_RECORDED.contains(&name.as_str()) || !expected.iter().all(is_by_recorder) {
            continue;
        }
        let mut new = object.clone();
        new["metadata"].as_object_mut().unwrap().remove("managedFields");
        let sent = SENT.iter().find(|(of, _)| *of == name).map_or(&[][..], |(_, sent)| sent);
        remove_filled_in(&mut new, |path| sent.contains(&path));
        let time = newest_time(&object);
        let reset = reset(kind, "");
        let manager =
            Manager { name: "recorder", subresource: "", api_version: version, kind, time: &time, reset };
        updated(node, None, &mut new, &manager);
        count += 1;
        if timeless(&new) != json!(expected) {
            failures.push(format!("{name}:\n  is     {}\n  wanted {}", timeless(&new), json!(expected)));
        }
    }
    assert!(failures.is_empty(), "{} of {count}:\n{}", failures.len(), failures.join("\n"));
    assert!(count > 60, "{count}");
}

#[derive(Default)]
struct Replay {
    file: String,
    /// Objects by path.
    objects: BTreeMap<String, Value>,
    /// Schemas by group, version and kind.
    definitions: BTreeMap<(String, String), Structural>,
    /// Kinds whose status is a subresource.
    with_status: BTreeSet<(String, String)>,
    updates: usize,
    applies: usize,
    rejections: usize,
    failures: Vec<String>,
}

/// A request as field management sees it.
struct Write<'a> {
    step: &'a Value,
    path: String,
    subresource: String,
    manager: String,
    force: bool,
}

impl Replay {
    fn run(&mut self, file: &str) {
        file.clone_into(&mut self.file);
        let steps: Vec<Value> = serde_json::from_str(&read(&format!("{file}.json"))).unwrap();
        for step in &steps {
            self.step(step);
        }
    }

    fn step(&mut self, step: &Value) {
        let Some(write) = Write::new(step) else { return };
        let name = format!("{}/{}", self.file, step["name"].as_str().unwrap_or_default());
        if NOT_RECORDED.contains(&name.as_str()) {
            return;
        }
        let response = &step["response"]["body"];
        let status = step["response"]["status"].as_u64().unwrap_or_default();
        let is_apply =
            step["request"]["headers"]["content-type"].as_str() == Some("application/apply-patch+yaml");
        let is_object =
            status < 300 && response["metadata"]["name"].is_string() && response["kind"] != "Status";
        let method = step["request"]["method"].as_str().unwrap_or_default();
        if write.subresource == "scale" {
            self.scale(&write, response, method);
        } else if is_apply {
            self.apply(&write, response);
        } else if is_object && matches!(method, "POST" | "PUT" | "PATCH") {
            self.update(&write, response, method == "POST" || status == 201);
        }
        let is_dry_run = step["request"]["path"].as_str().unwrap_or_default().contains("dryRun=All");
        if is_object
            && !is_dry_run
            && response["kind"] != "PartialObjectMetadata"
            && response["kind"] != "Scale"
        {
            self.record_object(&write, response);
        }
    }

    fn record_object(&mut self, write: &Write<'_>, response: &Value) {
        let path = write.object_path(response);
        self.objects.insert(path, response.clone());
        if response["kind"] == "CustomResourceDefinition" {
            for version in response["spec"]["versions"].as_array().into_iter().flatten() {
                let name = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let group = name(&response["spec"]["group"]);
                let id =
                    (format!("{group}/{}", name(&version["name"])), name(&response["spec"]["names"]["kind"]));
                if version["subresources"].get("status").is_some() {
                    self.with_status.insert(id.clone());
                }
                self.definitions.insert(id, structural(&version["schema"]["openAPIV3Schema"]));
            }
        }
    }

    /// Replays a write of a scale with its effect on the object.
    fn scale(&mut self, write: &Write<'_>, response: &Value, method: &str) {
        let Some(object) = self.objects.get_mut(&write.path).filter(|_| method != "GET") else { return };
        let version = object["apiVersion"].as_str().unwrap_or_default().to_owned();
        let mut old = json!({"metadata": {"uid": "u"}, "spec": object["spec"].get("replicas").map(|r| json!({"replicas": r}))});
        old["metadata"]["managedFields"] = owners_of_scale(object, "spec.replicas").unwrap_or_default();
        let mut new = json!({"metadata": {"uid": "u"}, "spec": response["spec"].clone()});
        let node = built_in("autoscaling/v1", "Scale")
            .or(Type::named("io.k8s.api.autoscaling.v1.Scale").map(Node::of));
        let time = newest_time(response);
        let manager = Manager { reset: &[], ..write.manager("autoscaling/v1", "Scale", &time) };
        updated(node.unwrap(), Some(&old), &mut new, &manager);
        let owners = owners_after_scale(object, &new, &version, "spec.replicas");
        object["metadata"]["managedFields"] = owners.unwrap_or_default();
        object["spec"]["replicas"] = response["spec"]["replicas"].clone();
    }

    fn update(&mut self, write: &Write<'_>, response: &Value, create: bool) {
        let text = |name: &str| response[name].as_str().unwrap_or_default().to_owned();
        let (version, kind) = (text("apiVersion"), text("kind"));
        let Some(node) = self.node(&version, &kind) else { return };
        let old = self.objects.get(&write.object_path(response)).filter(|_| !create);
        let mut new = response.clone();
        let has = |object: &Value, path: &str| object.pointer(path).is_some_and(|value| value != &json!([]));
        let body = &write.step["request"]["body"];
        remove_filled_in(&mut new, |path| has(body, path) || old.is_some_and(|old| has(old, path)));
        let requested = write.step["request"]["body"]["metadata"].get("managedFields").cloned();
        let metadata = new["metadata"].as_object_mut().unwrap();
        metadata.remove("managedFields");
        metadata.extend(requested.map(|requested| ("managedFields".to_owned(), requested)));
        let time = newest_time(response);
        let mut manager = write.manager(&version, &kind, &time);
        let id = (version.clone(), kind.clone());
        if self.definitions.contains_key(&id) && !self.with_status.contains(&id) {
            manager.reset = &[];
        }
        updated(node, old, &mut new, &manager);
        self.updates += 1;
        self.check(write, &timeless(&new), &timeless(response));
    }

    fn apply(&mut self, write: &Write<'_>, response: &Value) {
        let name = write.step["name"].as_str().unwrap_or_default();
        let body = &write.step["request"]["body"];
        let config = match name {
            "apply-yaml-body" => json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "ssa-yaml", "labels": {"from": "yaml"}}, "data": {"text": "two\nlines\n"}}),
            _ => body.clone(),
        };
        let live = self.objects.get(&write.path).cloned();
        let (version, kind) = match write.path.split('/').collect::<Vec<_>>().as_slice() {
            [_, "api", "v1", ..] => ("v1", "ConfigMap"),
            [_, "apis", "apps", "v1", ..] => ("apps/v1", "Deployment"),
            _ => ("rec.example.com/v1", "Widget"),
        };
        let Some(node) = self.node(version, kind) else { return };
        let time = newest_time(response);
        let manager = write.manager(version, kind, &time);
        match applied(node, live.as_ref(), &config, &manager, write.force) {
            Ok(object) if response["kind"] == kind => {
                self.applies += 1;
                self.check(write, &timeless(&object), &timeless(response));
                let unowned = |object: &Value| {
                    let mut object = object.clone();
                    object["metadata"].as_object_mut().unwrap().remove("managedFields");
                    object
                };
                if let Err(why) = check_contained("", &unowned(&object), &unowned(response), live.is_some()) {
                    self.failures.push(format!("{}/{name}: {why}", self.file));
                }
            }
            Ok(_) => {}
            Err(error) => {
                self.rejections += 1;
                let status: Value = serde_json::from_slice(&error.to_status().to_json()).unwrap();
                if &status != response {
                    self.failures
                        .push(format!("{}/{name}:\n  is     {status}\n  wanted {response}", self.file));
                }
            }
        }
    }

    fn node(&self, version: &str, kind: &str) -> Option<Node<'_>> {
        let custom = self.definitions.get(&(version.to_owned(), kind.to_owned()));
        custom.map(Node::Custom).or_else(|| built_in(version, kind))
    }

    fn check(&mut self, write: &Write<'_>, actual: &Value, expected: &Value) {
        if actual != expected {
            let name = &write.step["name"];
            self.failures.push(format!("{}/{name}:\n  is     {actual}\n  wanted {expected}", self.file));
        }
    }

    fn finish(&self) {
        assert!(
            self.failures.is_empty(),
            "{} of {}:\n{}",
            self.failures.len(),
            self.updates,
            self.failures.join("\n")
        );
    }
}

impl<'a> Write<'a> {
    fn new(step: &'a Value) -> Option<Self> {
        let path = step["request"]["path"].as_str()?;
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let mut parts: Vec<&str> = path.trim_end_matches('/').split('/').collect();
        let mut subresource = String::new();
        if let Some(last @ ("status" | "scale" | "finalize")) = parts.last().copied() {
            last.clone_into(&mut subresource);
            parts.pop();
        }
        let value = |name: &str| {
            let pair = query.split('&').filter_map(|pair| pair.split_once('=')).find(|(n, _)| *n == name);
            pair.map(|(_, value)| value.to_owned())
        };
        let manager = value("fieldManager").unwrap_or_else(|| "recorder".to_owned());
        let force = value("force").is_some_and(|force| force == "true");
        Some(Write { step, path: parts.join("/"), subresource, manager, force })
    }

    fn object_path(&self, response: &Value) -> String {
        match self.step["request"]["method"].as_str() {
            Some("POST") => {
                format!("{}/{}", self.path, response["metadata"]["name"].as_str().unwrap_or_default())
            }
            _ => self.path.clone(),
        }
    }

    fn manager<'b>(&'b self, api_version: &'b str, kind: &'b str, time: &'b str) -> Manager<'b> {
        let reset = reset(kind, &self.subresource);
        Manager { name: &self.manager, subresource: &self.subresource, api_version, kind, time, reset }
    }
}

fn reset(kind: &str, subresource: &str) -> &'static [&'static str] {
    let special = RESET.iter().find(|(of, part, _)| *of == kind && *part == subresource);
    match (special, subresource) {
        (Some((_, _, reset)), _) => reset,
        (None, "status") => &["spec"],
        (None, _) => &["status"],
    }
}

/// Removes fields that the server set after the owners were determined, unless the request contained them.
fn remove_filled_in(new: &mut Value, is_requested: impl Fn(&str) -> bool) {
    let kind = new["kind"].clone();
    for (_, path) in
        FILLED_IN.iter().filter(|(of, path)| (of.is_empty() || *of == kind) && !is_requested(path))
    {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        if let Some(fields) = new.pointer_mut(parent).and_then(Value::as_object_mut) {
            fields.remove(&name.replace("~1", "/"));
        }
    }
}

/// Returns the owners with their times replaced by a placeholder.
fn timeless(object: &Value) -> Value {
    let entries = object["metadata"].get("managedFields").and_then(Value::as_array).into_iter().flatten();
    let entries = entries.map(|entry| {
        let mut entry: Map<String, Value> = entry.as_object().cloned().unwrap_or_default();
        if let Some(time) = entry.get_mut("time") {
            *time = "T".into();
        }
        Value::Object(entry)
    });
    entries.collect()
}

fn newest_time(object: &Value) -> String {
    let entries = object["metadata"].get("managedFields").and_then(Value::as_array).into_iter().flatten();
    let times = entries.filter_map(|entry| entry["time"].as_str());
    let created = object["metadata"]["creationTimestamp"].as_str();
    times.chain(created).max().unwrap_or("2026-11-15T00:00:00Z").to_owned()
}

/// Checks that `part` is contained in `all` and, if `exact`, that `all` has only additional fields set by the
/// server.
fn check_contained(at: &str, part: &Value, all: &Value, exact: bool) -> Result<(), String> {
    const SERVER_FIELDS: [&str; 4] = ["resourceVersion", "generation", "uid", "creationTimestamp"];
    match (part, all) {
        (Value::Object(part), Value::Object(all)) => {
            for (name, value) in part
                .iter()
                .filter(|(name, value)| !SERVER_FIELDS.contains(&name.as_str()) && !value.is_null())
            {
                let value_in_all = all.get(name).ok_or_else(|| format!("{at}.{name} should not be there"))?;
                check_contained(&format!("{at}.{name}"), value, value_in_all, exact)?;
            }
            let missing = all.keys().find(|name| {
                exact && part.get(*name).is_none_or(Value::is_null) && !SERVER_FIELDS.contains(&name.as_str())
            });
            missing.map_or(Ok(()), |name| Err(format!("{at}.{name} is missing")))
        }
        (Value::Array(part), Value::Array(all)) if part.len() == all.len() => {
            part.iter().zip(all).try_for_each(|(part, all)| check_contained(at, part, all, exact))
        }
        _ if part == all => Ok(()),
        _ => Err(format!("{at} is {part}, wanted {all}")),
    }
}

fn read(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/recordings").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
