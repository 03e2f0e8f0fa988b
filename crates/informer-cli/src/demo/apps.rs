//! Deployments and their replica sets: rolling updates, scaling, and the number of pods.
//!
//! A replica set is identified by its image, as real ones are by their template: returning to an image reuses its
//! set.

use super::app::{App, Ownership, Set, image_of, surge};
use super::catalogue::Planned;
use super::objects::{self, EventDetails, Owner};
use super::pods::{NewPod, OwnerId, Pod};
use super::status::{self, Count, Phase};
use super::write::{Kind, ObjectId, Operation, Write, WriteResult};
use super::{Demo, ScheduledAction};
use serde_json::json;
use std::collections::BTreeSet;

/// Number of replica sets without pods that are kept.
const HISTORY: usize = 2;

impl Demo {
    pub(super) fn add_app(&mut self, planned: Planned) {
        let Planned { program, name, replicas } = planned;
        let image = image_of(&program, 0);
        let namespace = program.namespace;
        let at = |kind, name: &str| ObjectId::new(kind, namespace, name);
        self.create(
            at(Kind::ConfigMap, &format!("{name}-config")),
            objects::config_map(&program, &name, "info"),
        );
        if program.secret {
            let password = self.rng.suffix(24);
            self.create(
                at(Kind::Secret, &format!("{name}-credentials")),
                objects::secret(&program, &name, &password),
            );
        }
        self.create(at(Kind::Service, &name), objects::service(&program, &name));
        let place = at(Kind::Deployment, &name);
        self.create(place.clone(), objects::deployment(&program, &name, replicas, &image));
        self.apps.push(App {
            program,
            at: place,
            uid: String::new(),
            generation: 1,
            replicas,
            planned: replicas,
            patch: 0,
            previous: image.clone(),
            image,
            revision: 0,
            sets: Vec::new(),
            written_status: None,
            sync_scheduled: false,
            ownership: Ownership::Demo,
            stuck: false,
        });
    }

    /// Schedules a reconcile of a deployment.
    pub(super) fn want_sync(&mut self, at: usize) {
        if let Some(app) = self.apps.get_mut(at).filter(|app| !app.sync_scheduled) {
            app.sync_scheduled = true;
            self.after(80, ScheduledAction::Sync(at));
        }
    }

    /// Moves a deployment closer to its desired state.
    pub(super) fn sync(&mut self, at: usize) {
        let Some(app) = self.apps.get_mut(at) else { return };
        app.sync_scheduled = false;
        if app.uid.is_empty() {
            return;
        }
        if app.is_gone() {
            return self.clear(at);
        }
        if !app.sets.iter().any(|set| set.image == app.image) {
            return self.add_set(at);
        }
        self.share_out(at);
        for number in 0..self.apps.get(at).map_or(0, |app| app.sets.len()) {
            self.fill(at, number);
        }
        self.write_app_status(at);
        self.forget_sets(at);
    }

    /// Starts an update to another version.
    pub(super) fn roll_out(&mut self, at: usize, healthy: bool) {
        let Some(app) = self.apps.get_mut(at).filter(|app| app.is_free()) else { return };
        app.patch += 1;
        let image = image_of(&app.program, app.patch);
        let image = if healthy { image } else { format!("{image}-rc1") };
        app.previous = std::mem::replace(&mut app.image, image);
        app.stuck = !healthy;
        self.update_image(at);
        if !healthy {
            let wait = self.rng.between(12_000, 20_000);
            self.after(wait, ScheduledAction::Rollback(at));
        }
    }

    pub(super) fn roll_back(&mut self, at: usize) {
        let Some(app) = self.apps.get_mut(at).filter(|app| app.stuck && !app.is_gone()) else { return };
        app.stuck = false;
        app.image = app.previous.clone();
        self.update_image(at);
    }

    /// Scales a deployment slightly and randomly.
    pub(super) fn scale(&mut self, at: usize) {
        let Some(app) = self.apps.get(at).filter(|app| app.is_free()) else { return };
        let (least, most) = ((app.planned / 2).max(1), app.planned + app.planned.div_ceil(2));
        let replicas = least + self.rng.below(most - least + 1);
        let Some(app) = self.apps.get_mut(at).filter(|app| app.replicas != replicas) else { return };
        app.replicas = replicas;
        let place = app.at.clone();
        self.write(place, Operation::Merge(json!({"spec": {"replicas": replicas}})));
        self.want_sync(at);
    }

    /// Changes the configuration or the password in the secret.
    pub(super) fn reconfigure(&mut self, at: usize) {
        let Some(app) = self.apps.get(at).filter(|app| !app.is_gone()) else { return };
        let (program, name) = (app.program, app.at.name.clone());
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

    pub(super) fn reconcile_app(&mut self, at: usize) {
        let Some(app) = self.apps.get(at).filter(|app| !app.is_gone()) else { return };
        let place = app.at.clone();
        self.write(place, Operation::Read);
        let wait = 2000 + 5 * i64::try_from(self.apps.len()).unwrap_or(0);
        self.after(wait, ScheduledAction::ReconcileApp(at));
    }

    pub(super) fn handle_app_result(&mut self, write: &Write, result: &WriteResult) {
        let Some(at) = self.apps.iter().position(|app| app.at == write.at) else { return };
        let Some(app) = self.apps.get_mut(at) else { return };
        match result {
            WriteResult::Done(object) => {
                object["metadata"]["uid"].as_str().unwrap_or_default().clone_into(&mut app.uid);
                app.generation = object["metadata"]["generation"].as_i64().unwrap_or(app.generation);
                if object["metadata"]["deletionTimestamp"].is_string() {
                    // Finalizers of its dependents are ours to remove.
                    app.ownership = Ownership::Deleted;
                    self.write(write.at.clone(), Operation::Merge(json!({"metadata": {"finalizers": null}})));
                } else if matches!(write.operation, Operation::Read) {
                    app.adopt(object);
                }
                self.want_sync(at);
            }
            WriteResult::Gone if !matches!(write.operation, Operation::Create(_)) => {
                app.ownership = Ownership::Deleted;
                self.want_sync(at);
            }
            _ => {}
        }
    }

    pub(super) fn handle_set_result(&mut self, place: &ObjectId, result: &WriteResult) {
        let found = self
            .apps
            .iter()
            .enumerate()
            .find_map(|(at, app)| Some((at, app.sets.iter().position(|set| set.at == *place)?)));
        let Some((at, number)) = found else { return };
        let Some(set) = self.apps.get_mut(at).and_then(|app| app.sets.get_mut(number)) else { return };
        match result {
            WriteResult::Done(object) => {
                let new = set.uid.is_empty();
                object["metadata"]["uid"].as_str().unwrap_or_default().clone_into(&mut set.uid);
                set.generation = object["metadata"]["generation"].as_i64().unwrap_or(set.generation);
                if new {
                    self.want_sync(at);
                }
            }
            WriteResult::Gone => {
                // Its pods are deleted too; another set replaces it if it is still needed.
                set.uid.clear();
                for pod in std::mem::take(&mut set.pods).into_iter().collect::<Vec<_>>() {
                    self.orphan(pod);
                }
                if let Some(app) = self.apps.get_mut(at) {
                    app.sets.remove(number);
                }
                self.want_sync(at);
            }
            WriteResult::Rejected => {}
        }
    }

    /// Handles the removal of a pod of a replica set.
    pub(super) fn set_lost(&mut self, at: usize, set: u32, pod: u64) {
        let found = self.apps.get_mut(at).and_then(|app| app.sets.iter_mut().find(|known| known.id == set));
        if let Some(set) = found {
            set.pods.remove(&pod);
        }
        self.want_sync(at);
    }

    /// Deletes a pod whose replica set is gone.
    fn orphan(&mut self, pod: u64) {
        let Some(at) = self.pods.get(&pod).map(|pod| pod.at.clone()) else { return };
        self.write(at, Operation::DeleteNow);
        self.remove_pod(pod);
    }

    fn update_image(&mut self, at: usize) {
        let Some(app) = self.apps.get(at) else { return };
        let mut whole = objects::deployment(&app.program, &app.at.name, app.replicas, &app.image);
        let containers = whole["spec"]["template"]["spec"]["containers"].take();
        let place = app.at.clone();
        self.write(
            place,
            Operation::Merge(json!({"spec": {"template": {"spec": {"containers": containers}}}})),
        );
        self.want_sync(at);
    }

    fn add_set(&mut self, at: usize) {
        let (hash, number) = (self.rng.suffix(9), self.number());
        let Some(app) = self.apps.get_mut(at) else { return };
        app.revision += 1;
        // Next to other sets it starts with the surge.
        let wanted = if app.sets.is_empty() { app.replicas } else { surge(app.replicas) };
        let owner = Owner { kind: Kind::Deployment, name: &app.at.name, uid: &app.uid };
        let object = objects::replica_set(&app.program, &owner, (&hash, app.revision), &app.image, wanted);
        let place = ObjectId::new(Kind::ReplicaSet, &app.at.namespace, &format!("{}-{hash}", app.at.name));
        let message = format!("Scaled up replica set {} from 0 to {wanted}", place.name);
        app.sets.push(Set {
            id: u32::try_from(number).unwrap_or(u32::MAX),
            at: place.clone(),
            hash,
            image: app.image.clone(),
            healthy: !app.stuck,
            uid: String::new(),
            generation: 1,
            wanted,
            written_status: None,
            pods: BTreeSet::new(),
        });
        let (about, uid) = (app.at.clone(), app.uid.clone());
        self.create(place, object);
        self.record_event(&EventDetails {
            about: &about,
            uid: &uid,
            reason: "ScalingReplicaSet",
            message: &message,
            component: "deployment-controller",
        });
    }

    /// Sets the size of each replica set: the newest grows up to the maximal number of pods, the others shrink down
    /// to the minimal number.
    fn share_out(&mut self, at: usize) {
        let Some(app) = self.apps.get(at) else { return };
        let counts: Vec<Count> = app.sets.iter().map(|set| self.count(set)).collect();
        let ready: usize = counts.iter().map(|count| count.ready).sum();
        let wanted: usize = app.sets.iter().map(|set| set.wanted).sum();
        let most = app.replicas + surge(app.replicas);
        let least = app.replicas - app.replicas / 4;
        let mut spare = ready.saturating_sub(least);
        let mut changes = Vec::new();
        for (number, (set, count)) in app.sets.iter().zip(&counts).enumerate() {
            let target = if set.image == app.image {
                let surplus = most.saturating_sub(wanted);
                if app.sets.len() == 1 { app.replicas } else { (set.wanted + surplus).min(app.replicas) }
            } else {
                // Pods that are not ready can always be removed; ready ones only as far as they are spare.
                let usable = count.ready.min(set.wanted);
                let less = usable.min(spare);
                spare -= less;
                usable - less
            };
            if target != set.wanted {
                changes.push((number, target));
            }
        }
        for (number, target) in changes {
            self.resize(at, number, target);
        }
    }

    fn resize(&mut self, at: usize, number: usize, target: usize) {
        let Some(app) = self.apps.get_mut(at) else { return };
        let (about, uid) = (app.at.clone(), app.uid.clone());
        let Some(set) = app.sets.get_mut(number) else { return };
        let direction = if target > set.wanted { "up" } else { "down" };
        let message =
            format!("Scaled {direction} replica set {} from {} to {target}", set.at.name, set.wanted);
        set.wanted = target;
        let place = set.at.clone();
        self.write(place, Operation::Merge(json!({"spec": {"replicas": target}})));
        self.record_event(&EventDetails {
            about: &about,
            uid: &uid,
            reason: "ScalingReplicaSet",
            message: &message,
            component: "deployment-controller",
        });
    }

    /// Creates missing pods of a set or deletes surplus ones, and writes its status.
    fn fill(&mut self, at: usize, number: usize) {
        let Some(app) = self.apps.get(at) else { return };
        let Some(set) = app.sets.get(number).filter(|set| !set.uid.is_empty()) else { return };
        let mut active: Vec<u64> = set.pods.iter().copied().filter(|pod| self.is_active(*pod)).collect();
        let missing = set.wanted.saturating_sub(active.len());
        // Pods that are not ready are deleted first, then the newest.
        active.sort_by_key(|pod| (self.is_ready(*pod), std::cmp::Reverse(*pod)));
        let surplus = active.len().saturating_sub(set.wanted);
        active.truncate(surplus);
        let (program, name, id) = (app.program, app.at.name.clone(), set.id);
        let (place, uid, hash) = (set.at.name.clone(), set.uid.clone(), set.hash.clone());
        let (image, healthy) = (set.image.clone(), set.healthy);
        for _ in 0..missing {
            let pod = self.create_pod(&NewPod {
                owner: OwnerId::Set(at, id),
                by: Owner { kind: Kind::ReplicaSet, name: &place, uid: &uid },
                program: &program,
                app: &name,
                hash: &hash,
                image: &image,
                healthy,
            });
            if let Some(set) = self.apps.get_mut(at).and_then(|app| app.sets.get_mut(number)) {
                set.pods.insert(pod);
            }
        }
        for pod in active {
            self.terminate(pod);
        }
        self.write_set_status(at, number);
    }

    fn write_set_status(&mut self, at: usize, number: usize) {
        let Some(set) = self.apps.get(at).and_then(|app| app.sets.get(number)) else { return };
        let now = (self.count(set), set.generation);
        if set.written_status == Some(now) {
            return;
        }
        let place = set.at.clone();
        self.write(place, Operation::MergeStatus(status::replica_set(now.0, now.1)));
        if let Some(set) = self.apps.get_mut(at).and_then(|app| app.sets.get_mut(number)) {
            set.written_status = Some(now);
        }
    }

    fn write_app_status(&mut self, at: usize) {
        let Some(app) = self.apps.get(at) else { return };
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
        let place = app.at.clone();
        self.write(place, Operation::MergeStatus(status));
        if let Some(app) = self.apps.get_mut(at) {
            app.written_status = Some(now);
        }
    }

    /// Forgets the deployments of a deleted namespace.
    pub(super) fn clear_namespace(&mut self, name: &str) {
        for at in 0..self.apps.len() {
            let Some(app) = self.apps.get_mut(at).filter(|app| app.at.namespace == name) else { continue };
            app.ownership = Ownership::Deleted;
            self.clear(at);
        }
    }

    /// Deletes the dependents of a deleted deployment.
    fn clear(&mut self, at: usize) {
        let Some(app) = self.apps.get_mut(at) else { return };
        for set in std::mem::take(&mut app.sets) {
            for pod in set.pods {
                self.orphan(pod);
            }
            self.write(set.at, Operation::DeleteNow);
        }
    }

    /// Deletes replica sets without pods, except for the last few.
    fn forget_sets(&mut self, at: usize) {
        let Some(app) = self.apps.get_mut(at) else { return };
        let is_empty = |set: &Set| set.wanted == 0 && set.pods.is_empty() && set.image != app.image;
        let mut surplus = app.sets.iter().filter(|set| is_empty(set)).count().saturating_sub(HISTORY);
        let mut forgotten = Vec::new();
        app.sets.retain(|set| {
            let forget = surplus > 0 && is_empty(set);
            if forget {
                surplus -= 1;
                forgotten.push(set.at.clone());
            }
            !forget
        });
        for set in forgotten {
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

    /// Whether its status is ready: a pod on a lost node does not report.
    fn is_ready(&self, pod: u64) -> bool {
        let on_ready_node = |node: usize| self.nodes.get(node).is_some_and(|node| node.ready);
        let ready = |pod: &Pod| pod.phase == Phase::Ready && pod.node.is_some_and(on_ready_node);
        self.pods.get(&pod).is_some_and(ready)
    }
}
