//! Deployments and their sets: rolling from one version to the next, scaling, and keeping as many pods as wanted.
//!
//! A set is told apart by its image, as real ones are by their template: going back to an image goes back to its set.

use super::app::{App, Set, Whose, image_of, surge};
use super::catalogue::Planned;
use super::objects::{self, Owner, Report};
use super::pods::{Birth, OwnerId, Pod};
use super::status::{self, Count, Phase};
use super::write::{Answer, At, Kind, What, Write};
use super::{Demo, Due};
use serde_json::json;
use std::collections::BTreeSet;

/// So many sets without pods are kept.
const HISTORY: usize = 2;

impl Demo {
    pub(super) fn add_app(&mut self, planned: Planned) {
        let Planned { program, name, replicas } = planned;
        let image = image_of(&program, 0);
        let namespace = program.namespace;
        let at = |kind, name: &str| At::new(kind, namespace, name);
        self.create(
            at(Kind::ConfigMap, &format!("{name}-config")),
            objects::config_map(&program, &name, "info"),
        );
        if program.secret {
            let password = self.chance.suffix(24);
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
            told: None,
            due: false,
            whose: Whose::Ours,
            stuck: false,
        });
    }

    /// Has a deployment looked after soon.
    pub(super) fn want_sync(&mut self, at: usize) {
        if let Some(app) = self.apps.get_mut(at).filter(|app| !app.due) {
            app.due = true;
            self.after(80, Due::Sync(at));
        }
    }

    /// Brings a deployment nearer to what it should be.
    pub(super) fn sync(&mut self, at: usize) {
        let Some(app) = self.apps.get_mut(at) else { return };
        app.due = false;
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
        self.tell_app(at);
        self.forget_sets(at);
    }

    /// Puts another version in place.
    pub(super) fn roll_out(&mut self, at: usize, sound: bool) {
        let Some(app) = self.apps.get_mut(at).filter(|app| app.is_free()) else { return };
        app.patch += 1;
        let image = image_of(&app.program, app.patch);
        let image = if sound { image } else { format!("{image}-rc1") };
        app.previous = std::mem::replace(&mut app.image, image);
        app.stuck = !sound;
        self.update_image(at);
        if !sound {
            let wait = self.chance.between(12_000, 20_000);
            self.after(wait, Due::Rollback(at));
        }
    }

    pub(super) fn roll_back(&mut self, at: usize) {
        let Some(app) = self.apps.get_mut(at).filter(|app| app.stuck && !app.is_gone()) else { return };
        app.stuck = false;
        app.image = app.previous.clone();
        self.update_image(at);
    }

    /// Scales it a little, by chance.
    pub(super) fn scale(&mut self, at: usize) {
        let Some(app) = self.apps.get(at).filter(|app| app.is_free()) else { return };
        let (least, most) = ((app.planned / 2).max(1), app.planned + app.planned.div_ceil(2));
        let replicas = least + self.chance.below(most - least + 1);
        let Some(app) = self.apps.get_mut(at).filter(|app| app.replicas != replicas) else { return };
        app.replicas = replicas;
        let place = app.at.clone();
        self.write(place, What::Merge(json!({"spec": {"replicas": replicas}})));
        self.want_sync(at);
    }

    /// Changes its configuration, or the password in its secret.
    pub(super) fn reconfigure(&mut self, at: usize) {
        let Some(app) = self.apps.get(at).filter(|app| !app.is_gone()) else { return };
        let (program, name) = (app.program, app.at.name.clone());
        if program.secret && self.chance.percent(50) {
            let secret = At::new(Kind::Secret, program.namespace, &format!("{name}-credentials"));
            let password = self.chance.suffix(24);
            self.write(secret, What::Merge(json!({"stringData": {"password": password}})));
            return;
        }
        let level = ["debug", "info", "warn"].get(self.chance.below(3)).copied().unwrap_or("info");
        let map = At::new(Kind::ConfigMap, program.namespace, &format!("{name}-config"));
        let data = objects::config_map(&program, &name, level)["data"].take();
        self.write(map, What::Merge(json!({"data": data})));
    }

    pub(super) fn look_at_app(&mut self, at: usize) {
        let Some(app) = self.apps.get(at).filter(|app| !app.is_gone()) else { return };
        let place = app.at.clone();
        self.write(place, What::Look);
        let wait = 2000 + 5 * i64::try_from(self.apps.len()).unwrap_or(0);
        self.after(wait, Due::LookApp(at));
    }

    pub(super) fn app_answered(&mut self, write: &Write, answer: &Answer) {
        let Some(at) = self.apps.iter().position(|app| app.at == write.at) else { return };
        let Some(app) = self.apps.get_mut(at) else { return };
        match answer {
            Answer::Done(object) => {
                object["metadata"]["uid"].as_str().unwrap_or_default().clone_into(&mut app.uid);
                app.generation = object["metadata"]["generation"].as_i64().unwrap_or(app.generation);
                if object["metadata"]["deletionTimestamp"].is_string() {
                    // Whoever waits for what belongs to it waits for us.
                    app.whose = Whose::Gone;
                    self.write(write.at.clone(), What::Merge(json!({"metadata": {"finalizers": null}})));
                } else if matches!(write.what, What::Look) {
                    app.adopt(object);
                }
                self.want_sync(at);
            }
            Answer::Gone if !matches!(write.what, What::Create(_)) => {
                app.whose = Whose::Gone;
                self.want_sync(at);
            }
            _ => {}
        }
    }

    pub(super) fn set_answered(&mut self, place: &At, answer: &Answer) {
        let found = self
            .apps
            .iter()
            .enumerate()
            .find_map(|(at, app)| Some((at, app.sets.iter().position(|set| set.at == *place)?)));
        let Some((at, number)) = found else { return };
        let Some(set) = self.apps.get_mut(at).and_then(|app| app.sets.get_mut(number)) else { return };
        match answer {
            Answer::Done(object) => {
                let new = set.uid.is_empty();
                object["metadata"]["uid"].as_str().unwrap_or_default().clone_into(&mut set.uid);
                set.generation = object["metadata"]["generation"].as_i64().unwrap_or(set.generation);
                if new {
                    self.want_sync(at);
                }
            }
            Answer::Gone => {
                // Its pods go with it; another one takes its place if it is still wanted.
                set.uid.clear();
                for pod in std::mem::take(&mut set.pods).into_iter().collect::<Vec<_>>() {
                    self.orphan(pod);
                }
                if let Some(app) = self.apps.get_mut(at) {
                    app.sets.remove(number);
                }
                self.want_sync(at);
            }
            Answer::Refused => {}
        }
    }

    /// A pod of a set is gone.
    pub(super) fn set_lost(&mut self, at: usize, set: u32, pod: u64) {
        let found = self.apps.get_mut(at).and_then(|app| app.sets.iter_mut().find(|known| known.id == set));
        if let Some(set) = found {
            set.pods.remove(&pod);
        }
        self.want_sync(at);
    }

    /// Kills a pod whose set is gone.
    fn orphan(&mut self, pod: u64) {
        let Some(at) = self.pods.get(&pod).map(|pod| pod.at.clone()) else { return };
        self.write(at, What::Kill);
        self.lose(pod);
    }

    fn update_image(&mut self, at: usize) {
        let Some(app) = self.apps.get(at) else { return };
        let mut whole = objects::deployment(&app.program, &app.at.name, app.replicas, &app.image);
        let containers = whole["spec"]["template"]["spec"]["containers"].take();
        let place = app.at.clone();
        self.write(place, What::Merge(json!({"spec": {"template": {"spec": {"containers": containers}}}})));
        self.want_sync(at);
    }

    fn add_set(&mut self, at: usize) {
        let (hash, number) = (self.chance.suffix(9), self.number());
        let Some(app) = self.apps.get_mut(at) else { return };
        app.revision += 1;
        // Beside other sets it begins with what may be more than wanted for a while.
        let wanted = if app.sets.is_empty() { app.replicas } else { surge(app.replicas) };
        let owner = Owner { kind: Kind::Deployment, name: &app.at.name, uid: &app.uid };
        let object = objects::replica_set(&app.program, &owner, (&hash, app.revision), &app.image, wanted);
        let place = At::new(Kind::ReplicaSet, &app.at.namespace, &format!("{}-{hash}", app.at.name));
        let message = format!("Scaled up replica set {} from 0 to {wanted}", place.name);
        app.sets.push(Set {
            id: u32::try_from(number).unwrap_or(u32::MAX),
            at: place.clone(),
            hash,
            image: app.image.clone(),
            sound: !app.stuck,
            uid: String::new(),
            generation: 1,
            wanted,
            told: None,
            pods: BTreeSet::new(),
        });
        let (about, uid) = (app.at.clone(), app.uid.clone());
        self.create(place, object);
        self.say(&Report {
            about: &about,
            uid: &uid,
            reason: "ScalingReplicaSet",
            message: &message,
            component: "deployment-controller",
        });
    }

    /// Says how many pods each set should have: the newest grows as far as there may be more, the others shrink as far as
    /// there may be fewer.
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
                let room = most.saturating_sub(wanted);
                if app.sets.len() == 1 { app.replicas } else { (set.wanted + room).min(app.replicas) }
            } else {
                // What is not ready is of no use; of what is, only what can be spared.
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
        self.write(place, What::Merge(json!({"spec": {"replicas": target}})));
        self.say(&Report {
            about: &about,
            uid: &uid,
            reason: "ScalingReplicaSet",
            message: &message,
            component: "deployment-controller",
        });
    }

    /// Gives a set the pods that it lacks, or takes those that are too many, and tells its status.
    fn fill(&mut self, at: usize, number: usize) {
        let Some(app) = self.apps.get(at) else { return };
        let Some(set) = app.sets.get(number).filter(|set| !set.uid.is_empty()) else { return };
        let mut active: Vec<u64> = set.pods.iter().copied().filter(|pod| self.is_active(*pod)).collect();
        let missing = set.wanted.saturating_sub(active.len());
        // Those that are not ready go first, then the youngest.
        active.sort_by_key(|pod| (self.is_ready(*pod), std::cmp::Reverse(*pod)));
        let surplus = active.len().saturating_sub(set.wanted);
        active.truncate(surplus);
        let (program, name, id) = (app.program, app.at.name.clone(), set.id);
        let (place, uid, hash) = (set.at.name.clone(), set.uid.clone(), set.hash.clone());
        let (image, sound) = (set.image.clone(), set.sound);
        for _ in 0..missing {
            let pod = self.bear(&Birth {
                owner: OwnerId::Set(at, id),
                by: Owner { kind: Kind::ReplicaSet, name: &place, uid: &uid },
                program: &program,
                app: &name,
                hash: &hash,
                image: &image,
                sound,
            });
            if let Some(set) = self.apps.get_mut(at).and_then(|app| app.sets.get_mut(number)) {
                set.pods.insert(pod);
            }
        }
        for pod in active {
            self.terminate(pod);
        }
        self.tell_set(at, number);
    }

    fn tell_set(&mut self, at: usize, number: usize) {
        let Some(set) = self.apps.get(at).and_then(|app| app.sets.get(number)) else { return };
        let now = (self.count(set), set.generation);
        if set.told == Some(now) {
            return;
        }
        let place = set.at.clone();
        self.write(place, What::MergeStatus(status::replica_set(now.0, now.1)));
        if let Some(set) = self.apps.get_mut(at).and_then(|app| app.sets.get_mut(number)) {
            set.told = Some(now);
        }
    }

    fn tell_app(&mut self, at: usize) {
        let Some(app) = self.apps.get(at) else { return };
        let mut sum = Count::default();
        for set in &app.sets {
            let count = self.count(set);
            sum.all += count.all;
            sum.ready += count.ready;
            sum.updated += if set.image == app.image { count.all } else { 0 };
        }
        let now = (sum, app.replicas, app.generation);
        if app.told == Some(now) {
            return;
        }
        let status = status::deployment(sum, app.replicas, app.generation, (self.now, self.now));
        let place = app.at.clone();
        self.write(place, What::MergeStatus(status));
        if let Some(app) = self.apps.get_mut(at) {
            app.told = Some(now);
        }
    }

    /// Forgets the deployments of a namespace that is deleted.
    pub(super) fn clear_namespace(&mut self, name: &str) {
        for at in 0..self.apps.len() {
            let Some(app) = self.apps.get_mut(at).filter(|app| app.at.namespace == name) else { continue };
            app.whose = Whose::Gone;
            self.clear(at);
        }
    }

    /// Removes what is left of a deployment that was deleted.
    fn clear(&mut self, at: usize) {
        let Some(app) = self.apps.get_mut(at) else { return };
        for set in std::mem::take(&mut app.sets) {
            for pod in set.pods {
                self.orphan(pod);
            }
            self.write(set.at, What::Kill);
        }
    }

    /// Deletes sets without pods, but for the last few.
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
            self.write(set, What::Kill);
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

    /// Whether its status says so: nobody hears of a pod whose node is lost.
    fn is_ready(&self, pod: u64) -> bool {
        let on_ready_node = |node: usize| self.nodes.get(node).is_some_and(|node| node.ready);
        let ready = |pod: &Pod| pod.phase == Phase::Ready && pod.node.is_some_and(on_ready_node);
        self.pods.get(&pod).is_some_and(ready)
    }
}
