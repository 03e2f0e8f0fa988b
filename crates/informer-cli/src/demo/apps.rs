//! Deployments and their replica sets: rolling updates, scaling, and the number of pods.
//!
//! A replica set is identified by its image, as a real one is by its pod template: returning to an earlier
//! image reuses its replica set. `app_index` is the index of a deployment in `Demo::apps`, `set_index` the
//! index of a replica set in `App::sets`.

use super::app::{App, Ownership, Set, image_of, surge};
use super::catalogue::Planned;
use super::objects::{self, EventDetails, Owner};
use super::pods::{NewPod, OwnerId, Pod};
use super::status::{self, Count, Phase};
use super::write::{Kind, ObjectId, Operation, Write, WriteResult};
use super::{Demo, ScheduledAction};
use serde_json::json;
use std::collections::BTreeSet;

/// Number of replica sets without pods that are kept, the `revisionHistoryLimit` of the deployments.
const REVISION_HISTORY_LIMIT: usize = 2;

impl Demo {
    pub(super) fn add_app(&mut self, planned: Planned) {
        let Planned { program, name, replicas } = planned;
        let image = image_of(&program, 0);
        let namespace = program.namespace;
        let id_of = |kind, name: &str| ObjectId::new(kind, namespace, name);
        self.create(
            id_of(Kind::ConfigMap, &format!("{name}-config")),
            objects::config_map(&program, &name, "info"),
        );
        if program.secret {
            let password = self.rng.suffix(24);
            self.create(
                id_of(Kind::Secret, &format!("{name}-credentials")),
                objects::secret(&program, &name, &password),
            );
        }
        self.create(id_of(Kind::Service, &name), objects::service(&program, &name));
        let object_id = id_of(Kind::Deployment, &name);
        self.create(object_id.clone(), objects::deployment(&program, &name, replicas, &image));
        self.apps.push(App {
            program,
            object_id,
            uid: String::new(),
            generation: 1,
            replicas,
            planned: replicas,
            patch: 0,
            previous_image: image.clone(),
            image,
            revision: 0,
            sets: Vec::new(),
            written_status: None,
            sync_scheduled: false,
            ownership: Ownership::Demo,
            stuck: false,
        });
    }

    /// Schedules a sync of a deployment, unless one is scheduled already.
    pub(super) fn schedule_sync(&mut self, app_index: usize) {
        if let Some(app) = self.apps.get_mut(app_index).filter(|app| !app.sync_scheduled) {
            app.sync_scheduled = true;
            self.schedule_after(80, ScheduledAction::Sync(app_index));
        }
    }

    /// Moves a deployment closer to its desired state.
    pub(super) fn sync(&mut self, app_index: usize) {
        let Some(app) = self.apps.get_mut(app_index) else { return };
        app.sync_scheduled = false;
        if app.uid.is_empty() {
            return;
        }
        if app.is_gone() {
            return self.delete_dependents(app_index);
        }
        if !app.sets.iter().any(|set| set.image == app.image) {
            return self.add_set(app_index);
        }
        self.share_out(app_index);
        for set_index in 0..self.apps.get(app_index).map_or(0, |app| app.sets.len()) {
            self.fill(app_index, set_index);
        }
        self.write_app_status(app_index);
        self.delete_old_sets(app_index);
    }

    /// Starts an update to the next version. Unless it is `healthy`, its image cannot be pulled, and the
    /// update is rolled back later.
    pub(super) fn roll_out(&mut self, app_index: usize, healthy: bool) {
        let Some(app) = self.apps.get_mut(app_index).filter(|app| app.is_free()) else { return };
        app.patch += 1;
        let image = image_of(&app.program, app.patch);
        let image = if healthy { image } else { format!("{image}-rc1") };
        app.previous_image = std::mem::replace(&mut app.image, image);
        app.stuck = !healthy;
        self.update_image(app_index);
        if !healthy {
            let wait = self.rng.between(12_000, 20_000);
            self.schedule_after(wait, ScheduledAction::Rollback(app_index));
        }
    }

    pub(super) fn roll_back(&mut self, app_index: usize) {
        let Some(app) = self.apps.get_mut(app_index).filter(|app| app.stuck && !app.is_gone()) else {
            return;
        };
        app.stuck = false;
        app.image = app.previous_image.clone();
        self.update_image(app_index);
    }

    /// Scales a deployment slightly and randomly.
    pub(super) fn scale(&mut self, app_index: usize) {
        let Some(app) = self.apps.get(app_index).filter(|app| app.is_free()) else { return };
        let (min, max) = ((app.planned / 2).max(1), app.planned + app.planned.div_ceil(2));
        let replicas = min + self.rng.below(max - min + 1);
        let Some(app) = self.apps.get_mut(app_index).filter(|app| app.replicas != replicas) else { return };
        app.replicas = replicas;
        let object_id = app.object_id.clone();
        self.write(object_id, Operation::Merge(json!({"spec": {"replicas": replicas}})));
        self.schedule_sync(app_index);
    }

    /// Changes the configuration or the password in the secret.
    pub(super) fn reconfigure(&mut self, app_index: usize) {
        let Some(app) = self.apps.get(app_index).filter(|app| !app.is_gone()) else { return };
        let (program, name) = (app.program, app.object_id.name.clone());
        if program.secret && self.rng.percent(50) {
            let secret = ObjectId::new(Kind::Secret, program.namespace, &format!("{name}-credentials"));
            let password = self.rng.suffix(24);
            self.write(secret, Operation::Merge(json!({"stringData": {"password": password}})));
            return;
        }
        let level = ["debug", "info", "warn"].get(self.rng.below(3)).copied().unwrap_or("info");
        let map = ObjectId::new(Kind::ConfigMap, program.namespace, &format!("{name}-config"));
        let data = objects::config_map(&program, &name, level)["data"].take();
        self.write(map, Operation::Merge(json!({"data": data})));
    }

    /// Reads a deployment, because a user may have changed or deleted it.
    pub(super) fn read_app(&mut self, app_index: usize) {
        let Some(app) = self.apps.get(app_index).filter(|app| !app.is_gone()) else { return };
        let object_id = app.object_id.clone();
        self.write(object_id, Operation::Read);
        let wait = 2000 + 5 * i64::try_from(self.apps.len()).unwrap_or(0);
        self.schedule_after(wait, ScheduledAction::ReadApp(app_index));
    }

    pub(super) fn handle_app_result(&mut self, write: &Write, result: &WriteResult) {
        let Some(app_index) = self.apps.iter().position(|app| app.object_id == write.object_id) else {
            return;
        };
        let Some(app) = self.apps.get_mut(app_index) else { return };
        match result {
            WriteResult::Done(object) => {
                object["metadata"]["uid"].as_str().unwrap_or_default().clone_into(&mut app.uid);
                app.generation = object["metadata"]["generation"].as_i64().unwrap_or(app.generation);
                if object["metadata"]["deletionTimestamp"].is_string() {
                    // The demo is the garbage collector: it deletes the dependents and removes the finalizers
                    // of the deployment.
                    app.ownership = Ownership::Deleted;
                    self.write(
                        write.object_id.clone(),
                        Operation::Merge(json!({"metadata": {"finalizers": null}})),
                    );
                } else if matches!(write.operation, Operation::Read) {
                    app.adopt(object);
                }
                self.schedule_sync(app_index);
            }
            WriteResult::Gone if !matches!(write.operation, Operation::Create(_)) => {
                app.ownership = Ownership::Deleted;
                self.schedule_sync(app_index);
            }
            _ => {}
        }
    }

    pub(super) fn handle_set_result(&mut self, object_id: &ObjectId, result: &WriteResult) {
        let position = self.apps.iter().enumerate().find_map(|(app_index, app)| {
            Some((app_index, app.sets.iter().position(|set| set.object_id == *object_id)?))
        });
        let Some((app_index, set_index)) = position else { return };
        let Some(set) = self.apps.get_mut(app_index).and_then(|app| app.sets.get_mut(set_index)) else {
            return;
        };
        match result {
            WriteResult::Done(object) => {
                let new = set.uid.is_empty();
                object["metadata"]["uid"].as_str().unwrap_or_default().clone_into(&mut set.uid);
                set.generation = object["metadata"]["generation"].as_i64().unwrap_or(set.generation);
                if new {
                    self.schedule_sync(app_index);
                }
            }
            WriteResult::Gone => {
                // The pods of the set are deleted too; a new set replaces it if it is still needed.
                set.uid.clear();
                for pod in std::mem::take(&mut set.pods).into_iter().collect::<Vec<_>>() {
                    self.delete_orphan(pod);
                }
                if let Some(app) = self.apps.get_mut(app_index) {
                    app.sets.remove(set_index);
                }
                self.schedule_sync(app_index);
            }
            WriteResult::Rejected => {}
        }
    }

    /// Removes a pod, which no longer exists, from its replica set.
    pub(super) fn remove_pod_from_set(&mut self, app_index: usize, set_id: u32, pod: u64) {
        let app = self.apps.get_mut(app_index);
        if let Some(set) = app.and_then(|app| app.sets.iter_mut().find(|set| set.id == set_id)) {
            set.pods.remove(&pod);
        }
        self.schedule_sync(app_index);
    }

    /// Deletes a pod whose replica set is gone.
    fn delete_orphan(&mut self, pod: u64) {
        let Some(object_id) = self.pods.get(&pod).map(|pod| pod.object_id.clone()) else { return };
        self.write(object_id, Operation::DeleteNow);
        self.remove_pod(pod);
    }

    fn update_image(&mut self, app_index: usize) {
        let Some(app) = self.apps.get(app_index) else { return };
        let mut deployment = objects::deployment(&app.program, &app.object_id.name, app.replicas, &app.image);
        let containers = deployment["spec"]["template"]["spec"]["containers"].take();
        let object_id = app.object_id.clone();
        self.write(
            object_id,
            Operation::Merge(json!({"spec": {"template": {"spec": {"containers": containers}}}})),
        );
        self.schedule_sync(app_index);
    }

    fn add_set(&mut self, app_index: usize) {
        let (hash, id) = (self.rng.suffix(9), self.next_number());
        let Some(app) = self.apps.get_mut(app_index) else { return };
        app.revision += 1;
        // A set that replaces others starts with the surge only.
        let wanted = if app.sets.is_empty() { app.replicas } else { surge(app.replicas) };
        let owner = Owner { kind: Kind::Deployment, name: &app.object_id.name, uid: &app.uid };
        let object = objects::replica_set(&app.program, &owner, (&hash, app.revision), &app.image, wanted);
        let object_id = ObjectId::new(
            Kind::ReplicaSet,
            &app.object_id.namespace,
            &format!("{}-{hash}", app.object_id.name),
        );
        let message = format!("Scaled up replica set {} from 0 to {wanted}", object_id.name);
        app.sets.push(Set {
            id: u32::try_from(id).unwrap_or(u32::MAX),
            object_id: object_id.clone(),
            hash,
            image: app.image.clone(),
            healthy: !app.stuck,
            uid: String::new(),
            generation: 1,
            wanted,
            written_status: None,
            pods: BTreeSet::new(),
        });
        let (app_id, uid) = (app.object_id.clone(), app.uid.clone());
        self.create(object_id, object);
        self.record_event(&EventDetails {
            regarding: &app_id,
            uid: &uid,
            reason: "ScalingReplicaSet",
            message: &message,
            component: "deployment-controller",
        });
    }

    /// Sets the size of each replica set during a rolling update, with a `maxSurge` and a `maxUnavailable` of
    /// 25 %: the set of the current image grows as far as the surge allows, the others shrink as far as
    /// enough pods stay ready.
    fn share_out(&mut self, app_index: usize) {
        let Some(app) = self.apps.get(app_index) else { return };
        let counts: Vec<Count> = app.sets.iter().map(|set| self.count(set)).collect();
        let ready: usize = counts.iter().map(|count| count.ready).sum();
        let wanted: usize = app.sets.iter().map(|set| set.wanted).sum();
        let max_pods = app.replicas + surge(app.replicas);
        let min_ready = app.replicas - app.replicas / 4;
        let mut spare = ready.saturating_sub(min_ready);
        let mut changes = Vec::new();
        for (set_index, (set, count)) in app.sets.iter().zip(&counts).enumerate() {
            let target = if set.image == app.image {
                let growth = max_pods.saturating_sub(wanted);
                if app.sets.len() == 1 { app.replicas } else { (set.wanted + growth).min(app.replicas) }
            } else {
                // Pods that are not ready can always be removed; ready ones only as far as they are spare.
                let kept = count.ready.min(set.wanted);
                let removed = kept.min(spare);
                spare -= removed;
                kept - removed
            };
            if target != set.wanted {
                changes.push((set_index, target));
            }
        }
        for (set_index, target) in changes {
            self.resize(app_index, set_index, target);
        }
    }

    fn resize(&mut self, app_index: usize, set_index: usize, target: usize) {
        let Some(app) = self.apps.get_mut(app_index) else { return };
        let (app_id, uid) = (app.object_id.clone(), app.uid.clone());
        let Some(set) = app.sets.get_mut(set_index) else { return };
        let direction = if target > set.wanted { "up" } else { "down" };
        let message =
            format!("Scaled {direction} replica set {} from {} to {target}", set.object_id.name, set.wanted);
        set.wanted = target;
        let object_id = set.object_id.clone();
        self.write(object_id, Operation::Merge(json!({"spec": {"replicas": target}})));
        self.record_event(&EventDetails {
            regarding: &app_id,
            uid: &uid,
            reason: "ScalingReplicaSet",
            message: &message,
            component: "deployment-controller",
        });
    }

    /// Creates missing pods of a replica set or deletes surplus ones, and writes the status of the set.
    fn fill(&mut self, app_index: usize, set_index: usize) {
        let Some(app) = self.apps.get(app_index) else { return };
        let Some(set) = app.sets.get(set_index).filter(|set| !set.uid.is_empty()) else { return };
        let mut active: Vec<u64> = set.pods.iter().copied().filter(|pod| self.is_active(*pod)).collect();
        let missing = set.wanted.saturating_sub(active.len());
        // Pods that are not ready are deleted first, then the newest.
        active.sort_by_key(|pod| (self.is_ready(*pod), std::cmp::Reverse(*pod)));
        let surplus = active.len().saturating_sub(set.wanted);
        active.truncate(surplus);
        let (program, name, id) = (app.program, app.object_id.name.clone(), set.id);
        let (set_name, uid, hash) = (set.object_id.name.clone(), set.uid.clone(), set.hash.clone());
        let (image, healthy) = (set.image.clone(), set.healthy);
        for _ in 0..missing {
            let pod = self.create_pod(&NewPod {
                owner: OwnerId::Set(app_index, id),
                controller: Owner { kind: Kind::ReplicaSet, name: &set_name, uid: &uid },
                program: &program,
                app: &name,
                hash: &hash,
                image: &image,
                healthy,
            });
            if let Some(set) = self.apps.get_mut(app_index).and_then(|app| app.sets.get_mut(set_index)) {
                set.pods.insert(pod);
            }
        }
        for pod in active {
            self.terminate(pod);
        }
        self.write_set_status(app_index, set_index);
    }

    fn write_set_status(&mut self, app_index: usize, set_index: usize) {
        let Some(set) = self.apps.get(app_index).and_then(|app| app.sets.get(set_index)) else { return };
        let now = (self.count(set), set.generation);
        if set.written_status == Some(now) {
            return;
        }
        let object_id = set.object_id.clone();
        self.write(object_id, Operation::MergeStatus(status::replica_set(now.0, now.1)));
        if let Some(set) = self.apps.get_mut(app_index).and_then(|app| app.sets.get_mut(set_index)) {
            set.written_status = Some(now);
        }
    }

    fn write_app_status(&mut self, app_index: usize) {
        let Some(app) = self.apps.get(app_index) else { return };
        let mut sum = Count::default();
        for set in &app.sets {
            let count = self.count(set);
            sum.all += count.all;
            sum.ready += count.ready;
            sum.updated += if set.image == app.image { count.all } else { 0 };
        }
        let now = (sum, app.replicas, app.generation);
        if app.written_status == Some(now) {
            return;
        }
        let status = status::deployment(sum, app.replicas, app.generation, (self.now, self.now));
        let object_id = app.object_id.clone();
        self.write(object_id, Operation::MergeStatus(status));
        if let Some(app) = self.apps.get_mut(app_index) {
            app.written_status = Some(now);
        }
    }

    /// Marks the deployments of a deleted namespace as deleted, and deletes their dependents.
    pub(super) fn clear_namespace(&mut self, name: &str) {
        for app_index in 0..self.apps.len() {
            let Some(app) = self.apps.get_mut(app_index).filter(|app| app.object_id.namespace == name) else {
                continue;
            };
            app.ownership = Ownership::Deleted;
            self.delete_dependents(app_index);
        }
    }

    /// Deletes the dependents of a deleted deployment.
    fn delete_dependents(&mut self, app_index: usize) {
        let Some(app) = self.apps.get_mut(app_index) else { return };
        for set in std::mem::take(&mut app.sets) {
            for pod in set.pods {
                self.delete_orphan(pod);
            }
            self.write(set.object_id, Operation::DeleteNow);
        }
    }

    /// Deletes replica sets without pods, except for the last few.
    fn delete_old_sets(&mut self, app_index: usize) {
        let Some(app) = self.apps.get_mut(app_index) else { return };
        let is_empty = |set: &Set| set.wanted == 0 && set.pods.is_empty() && set.image != app.image;
        let mut surplus =
            app.sets.iter().filter(|set| is_empty(set)).count().saturating_sub(REVISION_HISTORY_LIMIT);
        let mut deleted = Vec::new();
        app.sets.retain(|set| {
            let delete = surplus > 0 && is_empty(set);
            if delete {
                surplus -= 1;
                deleted.push(set.object_id.clone());
            }
            !delete
        });
        for set in deleted {
            self.write(set, Operation::DeleteNow);
        }
    }

    fn count(&self, set: &Set) -> Count {
        let active = set.pods.iter().filter(|pod| self.is_active(**pod)).count();
        let ready = set.pods.iter().filter(|pod| self.is_ready(**pod)).count();
        Count { all: active, ready, updated: 0 }
    }

    fn is_active(&self, pod: u64) -> bool {
        self.pods.get(&pod).is_some_and(|pod| !matches!(pod.phase, Phase::Evicted | Phase::Terminating))
    }

    /// Whether the status of a pod is ready. A pod on a lost node does not report, so it is not ready.
    fn is_ready(&self, pod: u64) -> bool {
        let on_ready_node = |node: usize| self.nodes.get(node).is_some_and(|node| node.ready);
        let ready = |pod: &Pod| pod.phase == Phase::Ready && pod.node.is_some_and(on_ready_node);
        self.pods.get(&pod).is_some_and(ready)
    }
}
