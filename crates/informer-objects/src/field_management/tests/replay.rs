//! Every write of the recordings whose answer shows its owners, done again here.
//!
//! The object before a step is the one that the last answer about it showed. What the server filled in after it had settled
//! the owners is taken out of the answer first: the table `FILLED_IN` says what that is.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use informer_schema::Type;
use serde_json::{Map, Value, json};

use super::super::{Manager, applied, owners_after_scale, owners_of_scale, updated};
use super::{built_in, structural};
use crate::schema::{Node, Structural};

/// By kind, what is not in an object when its owners are settled, but in the answer.
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

/// What of that was sent for an object of `kinds/`.
const SENT: &[(&str, &[&str])] = &[
    ("core_v1_Namespace", &["/spec/finalizers"]),
    ("core_v1_Node", &["/spec/taints"]),
    ("core_v1_Pod", &["/spec/tolerations", "/spec/preemptionPolicy"]),
    ("core_v1_Service", &["/spec/clusterIP", "/spec/ipFamilyPolicy", "/spec/ports/0/nodePort"]),
];

/// Steps whose objects the recordings do not show as they were.
const UNSEEN: &[&str] = &[
    // A field of a feature that is off is owned before it is dropped.
    "leases_events/lease-strategy-without-holder",
    "coordination.k8s.io_v1_Lease",
    // A binding has changed the pod before.
    "watch/pod-running",
    "watch/pod-succeeded",
    // Not an object yet: reading YAML is not done here.
    "patch/apply-bad-yaml",
];

/// What cannot be written, by kind and subresource, where it is not `status` or for the status `spec`.
const RESET: &[(&str, &str, &[&str])] = &[
    ("Deployment", "status", &["spec", "metadata.labels"]),
    ("Pod", "status", &["spec", "metadata.deletionTimestamp", "metadata.ownerReferences"]),
    ("CertificateSigningRequest", "", &["spec", "status"]),
];

#[test]
fn owners_after_updates_are_those_recorded() {
    let mut replay = Replay::default();
    for file in ["patch", "crud", "delete", "list", "leases_events", "namespaces", "crd", "watch", "gzip"] {
        replay.run(file);
    }
    replay.finish();
    assert!(replay.updates > 200, "{}", replay.updates);
    assert!(replay.applies > 15, "{}", replay.applies);
    assert!(replay.refusals > 7, "{}", replay.refusals);
}

/// One object of each kind: owned as what was created, beside what later writes of the status own.
#[test]
fn owners_of_created_objects_are_those_recorded() {
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
        let wanted = timeless(&object);
        let wanted =
            wanted.as_array().into_iter().flatten().filter(|entry| entry.get("subresource").is_none());
        let wanted: Vec<&Value> = wanted.collect();
        // Those of the server itself are not as they were created, others were created in another version.
        let ours = |entry: &&Value| entry["manager"] == "recorder" && entry["apiVersion"] == version;
        let named = object["metadata"]["name"].is_string();
        if !named || UNSEEN.contains(&name.as_str()) || !wanted.iter().all(ours) {
            continue;
        }
        let mut new = object.clone();
        new["metadata"].as_object_mut().unwrap().remove("managedFields");
        let sent = SENT.iter().find(|(of, _)| *of == name).map_or(&[][..], |(_, sent)| sent);
        fill_out(&mut new, |path| sent.contains(&path));
        let time = newest_time(&object);
        let reset = reset(kind, "");
        let manager =
            Manager { name: "recorder", subresource: "", api_version: version, kind, time: &time, reset };
        updated(node, None, &mut new, &manager);
        count += 1;
        if timeless(&new) != json!(wanted) {
            failures.push(format!("{name}:\n  is     {}\n  wanted {}", timeless(&new), json!(wanted)));
        }
    }
    assert!(failures.is_empty(), "{} of {count}:\n{}", failures.len(), failures.join("\n"));
    assert!(count > 60, "{count}");
}

#[derive(Default)]
struct Replay {
    file: String,
    /// By path.
    objects: BTreeMap<String, Value>,
    /// By group, version and kind.
    definitions: BTreeMap<(String, String), Structural>,
    /// Those that have a status of its own.
    with_status: BTreeSet<(String, String)>,
    updates: usize,
    applies: usize,
    refusals: usize,
    failures: Vec<String>,
}

/// A request as this room sees it.
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
        if UNSEEN.contains(&name.as_str()) {
            return;
        }
        let answer = &step["response"]["body"];
        let status = step["response"]["status"].as_u64().unwrap_or_default();
        let apply =
            step["request"]["headers"]["content-type"].as_str() == Some("application/apply-patch+yaml");
        let object = status < 300 && answer["metadata"]["name"].is_string() && answer["kind"] != "Status";
        let method = step["request"]["method"].as_str().unwrap_or_default();
        if write.subresource == "scale" {
            self.scale(&write, answer, method);
        } else if apply {
            self.apply(&write, answer);
        } else if object && matches!(method, "POST" | "PUT" | "PATCH") {
            self.update(&write, answer, method == "POST" || status == 201);
        }
        let dry = step["request"]["path"].as_str().unwrap_or_default().contains("dryRun=All");
        if object && !dry && answer["kind"] != "PartialObjectMetadata" && answer["kind"] != "Scale" {
            self.remember(&write, answer);
        }
    }

    fn remember(&mut self, write: &Write<'_>, answer: &Value) {
        let path = write.object_path(answer);
        self.objects.insert(path, answer.clone());
        if answer["kind"] == "CustomResourceDefinition" {
            for version in answer["spec"]["versions"].as_array().into_iter().flatten() {
                let name = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let group = name(&answer["spec"]["group"]);
                let id =
                    (format!("{group}/{}", name(&version["name"])), name(&answer["spec"]["names"]["kind"]));
                if version["subresources"].get("status").is_some() {
                    self.with_status.insert(id.clone());
                }
                self.definitions.insert(id, structural(&version["schema"]["openAPIV3Schema"]));
            }
        }
    }

    /// Writes a scale, and what it does to its object.
    fn scale(&mut self, write: &Write<'_>, answer: &Value, method: &str) {
        let Some(object) = self.objects.get_mut(&write.path).filter(|_| method != "GET") else { return };
        let version = object["apiVersion"].as_str().unwrap_or_default().to_owned();
        let mut old = json!({"metadata": {"uid": "u"}, "spec": object["spec"].get("replicas").map(|r| json!({"replicas": r}))});
        old["metadata"]["managedFields"] = owners_of_scale(object, "spec.replicas").unwrap_or_default();
        let mut new = json!({"metadata": {"uid": "u"}, "spec": answer["spec"].clone()});
        let node = built_in("autoscaling/v1", "Scale")
            .or(Type::named("io.k8s.api.autoscaling.v1.Scale").map(Node::of));
        let time = newest_time(answer);
        let manager = Manager { reset: &[], ..write.manager("autoscaling/v1", "Scale", &time) };
        updated(node.unwrap(), Some(&old), &mut new, &manager);
        let owners = owners_after_scale(object, &new, &version, "spec.replicas");
        object["metadata"]["managedFields"] = owners.unwrap_or_default();
        object["spec"]["replicas"] = answer["spec"]["replicas"].clone();
    }

    fn update(&mut self, write: &Write<'_>, answer: &Value, create: bool) {
        let text = |name: &str| answer[name].as_str().unwrap_or_default().to_owned();
        let (version, kind) = (text("apiVersion"), text("kind"));
        let Some(node) = self.node(&version, &kind) else { return };
        let old = self.objects.get(&write.object_path(answer)).filter(|_| !create);
        let mut new = answer.clone();
        let has = |object: &Value, path: &str| object.pointer(path).is_some_and(|value| value != &json!([]));
        let body = &write.step["request"]["body"];
        fill_out(&mut new, |path| has(body, path) || old.is_some_and(|old| has(old, path)));
        let given = write.step["request"]["body"]["metadata"].get("managedFields").cloned();
        let metadata = new["metadata"].as_object_mut().unwrap();
        metadata.remove("managedFields");
        metadata.extend(given.map(|given| ("managedFields".to_owned(), given)));
        let time = newest_time(answer);
        let mut manager = write.manager(&version, &kind, &time);
        let id = (version.clone(), kind.clone());
        if self.definitions.contains_key(&id) && !self.with_status.contains(&id) {
            manager.reset = &[];
        }
        updated(node, old, &mut new, &manager);
        self.updates += 1;
        self.check(write, &timeless(&new), &timeless(answer));
    }

    fn apply(&mut self, write: &Write<'_>, answer: &Value) {
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
        let time = newest_time(answer);
        let manager = write.manager(version, kind, &time);
        match applied(node, live.as_ref(), &config, &manager, write.force) {
            Ok(object) if answer["kind"] == kind => {
                self.applies += 1;
                self.check(write, &timeless(&object), &timeless(answer));
                let unowned = |object: &Value| {
                    let mut object = object.clone();
                    object["metadata"].as_object_mut().unwrap().remove("managedFields");
                    object
                };
                if let Err(why) = within("", &unowned(&object), &unowned(answer), live.is_some()) {
                    self.failures.push(format!("{}/{name}: {why}", self.file));
                }
            }
            Ok(_) => {}
            Err(error) => {
                self.refusals += 1;
                let status: Value = serde_json::from_slice(&error.to_status().to_json()).unwrap();
                if &status != answer {
                    self.failures
                        .push(format!("{}/{name}:\n  is     {status}\n  wanted {answer}", self.file));
                }
            }
        }
    }

    fn node(&self, version: &str, kind: &str) -> Option<Node<'_>> {
        let custom = self.definitions.get(&(version.to_owned(), kind.to_owned()));
        custom.map(Node::Custom).or_else(|| built_in(version, kind))
    }

    fn check(&mut self, write: &Write<'_>, is: &Value, wanted: &Value) {
        if is != wanted {
            let name = &write.step["name"];
            self.failures.push(format!("{}/{name}:\n  is     {is}\n  wanted {wanted}", self.file));
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

    fn object_path(&self, answer: &Value) -> String {
        match self.step["request"]["method"].as_str() {
            Some("POST") => {
                format!("{}/{}", self.path, answer["metadata"]["name"].as_str().unwrap_or_default())
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

/// Takes out what the server filled in after the owners were settled, unless it was given.
fn fill_out(new: &mut Value, given: impl Fn(&str) -> bool) {
    let kind = new["kind"].clone();
    for (_, path) in FILLED_IN.iter().filter(|(of, path)| (of.is_empty() || *of == kind) && !given(path)) {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        if let Some(fields) = new.pointer_mut(parent).and_then(Value::as_object_mut) {
            fields.remove(&name.replace("~1", "/"));
        }
    }
}

/// The owners without their times, but with whether they have one.
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

/// Whether everything in `part` is in `all`, and if `exact`, nothing else but what the server sets itself.
fn within(at: &str, part: &Value, all: &Value, exact: bool) -> Result<(), String> {
    const SERVERS: [&str; 4] = ["resourceVersion", "generation", "uid", "creationTimestamp"];
    match (part, all) {
        (Value::Object(part), Value::Object(all)) => {
            for (name, value) in
                part.iter().filter(|(name, value)| !SERVERS.contains(&name.as_str()) && !value.is_null())
            {
                let there = all.get(name).ok_or_else(|| format!("{at}.{name} should not be there"))?;
                within(&format!("{at}.{name}"), value, there, exact)?;
            }
            let missing = all.keys().find(|name| {
                exact && part.get(*name).is_none_or(Value::is_null) && !SERVERS.contains(&name.as_str())
            });
            missing.map_or(Ok(()), |name| Err(format!("{at}.{name} is missing")))
        }
        (Value::Array(part), Value::Array(all)) if part.len() == all.len() => {
            part.iter().zip(all).try_for_each(|(part, all)| within(at, part, all, exact))
        }
        _ if part == all => Ok(()),
        _ => Err(format!("{at} is {part}, wanted {all}")),
    }
}

fn read(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/recordings").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
