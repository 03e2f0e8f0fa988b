//! Pods as in a production cluster, generated from a seed: about 10 KB of JSON each, half of it
//! `managedFields`.
//!
//! A pod has two containers with env, probes, resources and mounts, an owner reference, five labels, a full
//! status and the fields of two managers. Pods come from 40 templates, which differ in env, images, labels
//! and annotations; values vary from pod to pod. Used by the benchmarks of the crates and by
//! `cargo xtask bench`; it does not depend on them.

use std::fmt::Write;

/// A small random number generator (splitmix64): equal seeds give equal pods.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// Creates a generator from a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number.
    #[allow(clippy::should_implement_trait, reason = "an infinite sequence needs no `Option`")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap_or_default()
    }
}

/// The identity of a pod, and the fields that the benchmarks use.
#[derive(Debug, Clone, Copy)]
pub struct Pod {
    /// Number of the pod, which determines its namespace (of 200) and its name. The key is 40 bytes long.
    pub number: usize,
    /// Resource version.
    pub version: u64,
    /// Number of its node (of 500): `spec.nodeName`.
    pub node: usize,
    /// Number of its app (of 400): the label `app`.
    pub app: usize,
}

/// Number of templates.
const TEMPLATES: usize = 40;

const SERVICES: [&str; 8] =
    ["web-front", "checkout", "search", "cart", "billing", "catalogue", "mailer", "gateway"];
const TEAMS: [&str; 5] = ["shop", "payments", "platform", "search-and-discovery", "growth"];

const ENV: [&str; 10] = [
    "LOG_LEVEL",
    "DATABASE_URL",
    "CACHE_HOST",
    "FEATURE_FLAGS",
    "QUEUE_URL",
    "TRACE_ENDPOINT",
    "SEARCH_HOST",
    "SESSION_STORE",
    "JAVA_TOOL_OPTIONS",
    "RATE_LIMITS",
];

/// The common part of the pods of one deployment.
#[derive(Debug, Clone, Copy)]
struct Template(usize);

impl Template {
    fn service(self) -> &'static str {
        SERVICES[self.0 % SERVICES.len()]
    }

    fn team(self) -> &'static str {
        TEAMS[self.0 / SERVICES.len() % TEAMS.len()]
    }

    /// Returns two to six variables; every container also has the pod's name.
    fn env(self) -> impl Iterator<Item = &'static str> {
        ENV.iter().copied().cycle().skip(self.0 * 3 % ENV.len()).take(2 + self.0 % 5)
    }

    fn annotations(self, random: &mut Random) -> String {
        let mut text = format!(
            r#""kubectl.kubernetes.io/restartedAt":"{}","prometheus.io/port":"{}","prometheus.io/scrape":"true""#,
            time(random),
            8000 + random.below(1000)
        );
        if self.0.is_multiple_of(2) {
            let _ = write!(text, r#","checksum/config":"{:016x}{:016x}""#, random.next(), random.next());
        }
        if self.0.is_multiple_of(5) {
            let owner = self.team();
            let _ = write!(
                text,
                r#","example.com/owner":"{owner}@example.com","example.com/tier":"{}""#,
                self.0 % 3
            );
        }
        text
    }
}

impl Pod {
    fn template(&self) -> Template {
        Template(self.number % TEMPLATES)
    }

    /// Creates the pod with this number, which also determines node and app.
    pub fn new(number: usize, version: u64) -> Self {
        Self { number, version, node: number * 7 % 500, app: number * 11 % 400 }
    }

    /// Returns the namespace, which is 13 bytes long.
    pub fn namespace(&self) -> String {
        format!("team-{:03}-prod", self.number % 200)
    }

    /// Returns the name, which is 26 bytes long.
    pub fn name(&self) -> String {
        format!("web-front-{:05}-{}", self.number, self.name_suffix())
    }

    /// Returns the pod as an item of a list: without `apiVersion` and `kind`.
    pub fn item(&self, random: &mut Random) -> String {
        let (metadata, fields) = (self.metadata(random), managed_fields(self.template(), random));
        format!(
            "{{\"metadata\":{{{metadata},{fields}}},\"spec\":{},\"status\":{}}}",
            self.spec(random),
            self.status(random)
        )
    }

    /// Returns the pod as the cache stores it: without `managedFields`.
    pub fn kept(&self, random: &mut Random) -> String {
        let metadata = self.metadata(random);
        format!(
            "{{\"metadata\":{{{metadata}}},\"spec\":{},\"status\":{}}}",
            self.spec(random),
            self.status(random)
        )
    }

    /// Returns the pod as a frame of a watch, without a line end.
    pub fn frame(&self, random: &mut Random) -> String {
        let item = self.item(random);
        format!(r#"{{"type":"MODIFIED","object":{{"apiVersion":"v1","kind":"Pod",{}}}"#, &item[1..])
    }

    /// Returns an object of half a kilobyte with equal key, labels and node.
    pub fn small(&self, random: &mut Random) -> String {
        format!(
            r#"{{"metadata":{{{}}},"spec":{{"nodeName":"node-{:04}"}},"status":{{"phase":"Running"}}}}"#,
            self.short_metadata(random),
            self.node
        )
    }

    /// Returns a pod of 1 KB with equal key, node and owner, and with its [`group`](Self::group) as a label.
    pub fn kilobyte(&self, random: &mut Random) -> String {
        let (group, template) = (self.group(), self.template());
        let metadata = self.short_metadata(random).replacen(
            r#""labels":{"#,
            &format!(r#""labels":{{"group":"{group}","#),
            1,
        );
        let (owner, time, image) = (self.owner(), time(random), image("app", template));
        let (a, b) = (random.below(250), random.below(250));
        format!(
            r#"{{"metadata":{{{metadata},"annotations":{{"prometheus.io/scrape":"true"}},{owner}}},"spec":{{"containers":[{{"name":"app","image":"{image}:v1.{b}.0","resources":{{"requests":{{"cpu":"100m","memory":"{}Mi"}}}}}}],"nodeName":"node-{:04}"}},"status":{{"phase":"Running","podIP":"10.244.{a}.{b}","startTime":"{time}","containerStatuses":[{{"name":"app","ready":true,"restartCount":{},"image":"{image}:v1.{b}.0","imageID":""}}]}}}}"#,
            128 + random.below(128),
            self.node,
            random.below(9),
        )
    }

    /// Returns the group of the pod: its size and its number. Each 122 pods are a group of 2, one of 20 and one
    /// of 100, so that the number of pods of a group is independent of the number of all pods.
    pub fn group(&self) -> String {
        let size = match self.number % 122 {
            0..2 => 2,
            2..22 => 20,
            _ => 100,
        };
        format!("{size:03}-{:07}", self.number / 122)
    }

    /// Returns the texts that only this pod contains, each once and with a fixed length: a part of its name, its
    /// uid, its template hash and the uid of its owner.
    pub fn identity(&self) -> [String; 4] {
        [self.name_suffix(), uid(self.number), self.template_hash(), self.owner_uid()]
    }

    fn name_suffix(&self) -> String {
        format!("{:010x}", self.number * 7919)
    }

    fn template_hash(&self) -> String {
        format!("{:010x}", Random::new(!(self.number as u64)).next() >> 24)
    }

    fn owner_uid(&self) -> String {
        uid(self.number + 1_000_000)
    }

    fn short_metadata(&self, random: &mut Random) -> String {
        let (name, namespace, app) = (self.name(), self.namespace(), self.app);
        format!(
            r#""name":"{name}","namespace":"{namespace}","uid":"{}","resourceVersion":"{}","creationTimestamp":"{}","labels":{{"app":"app-{app:03}","pod-template-hash":"{}","app.kubernetes.io/name":"app-{app:03}","app.kubernetes.io/version":"v1.{}.0","team":"{}"}}"#,
            uid(self.number),
            self.version,
            time(random),
            self.template_hash(),
            random.below(90),
            self.template().team(),
        )
    }

    fn metadata(&self, random: &mut Random) -> String {
        format!(
            r#"{},"annotations":{{{}}},{}"#,
            self.short_metadata(random),
            self.template().annotations(random),
            self.owner(),
        )
    }

    fn owner(&self) -> String {
        format!(
            r#""ownerReferences":[{{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web-front-{:05}","uid":"{}","controller":true,"blockOwnerDeletion":true}}]"#,
            self.number,
            self.owner_uid(),
        )
    }

    fn spec(&self, random: &mut Random) -> String {
        let volumes = r#"{"name":"config","configMap":{"name":"web-config","defaultMode":420}},{"name":"cache","emptyDir":{"sizeLimit":"1Gi"}},{"name":"kube-api-access-x2x7z","projected":{"sources":[{"serviceAccountToken":{"expirationSeconds":3607,"path":"token"}},{"configMap":{"name":"kube-root-ca.crt","items":[{"key":"ca.crt","path":"ca.crt"}]}},{"downwardAPI":{"items":[{"path":"namespace","fieldRef":{"apiVersion":"v1","fieldPath":"metadata.namespace"}}]}}],"defaultMode":420}}"#;
        let template = self.template();
        let (app, sidecar) = (container("app", template, random), container("sidecar", template, random));
        format!(
            r#"{{"volumes":[{volumes}],"containers":[{app},{sidecar}],"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","serviceAccountName":"web","serviceAccount":"web","nodeName":"node-{:04}","securityContext":{{"runAsUser":{},"fsGroup":2000}},"schedulerName":"default-scheduler","tolerations":[{{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}},{{"key":"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}}],"priority":0,"enableServiceLinks":true,"preemptionPolicy":"PreemptLowerPriority"}}"#,
            self.node,
            1000 + random.below(1000),
        )
    }

    fn status(&self, random: &mut Random) -> String {
        let mut conditions = String::new();
        for kind in ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"] {
            let comma = if conditions.is_empty() { "" } else { "," };
            let at = time(random);
            let _ = write!(
                conditions,
                r#"{comma}{{"type":"{kind}","status":"True","lastProbeTime":null,"lastTransitionTime":"{at}"}}"#
            );
        }
        let (a, b) = (random.below(250), random.below(250));
        format!(
            r#"{{"observedGeneration":1,"phase":"Running","conditions":[{conditions}],"hostIP":"10.0.{b}.{a}","hostIPs":[{{"ip":"10.0.{b}.{a}"}}],"podIP":"10.244.{a}.{b}","podIPs":[{{"ip":"10.244.{a}.{b}"}}],"startTime":"{}","containerStatuses":[{},{}],"qosClass":"Burstable"}}"#,
            time(random),
            container_status("app", self.template(), random),
            container_status("sidecar", self.template(), random),
        )
    }
}

fn uid(number: usize) -> String {
    let mut random = Random::new(number as u64);
    let (high, low) = (random.next(), random.next());
    format!(
        "{:08x}-{:04x}-4{:03x}-a{:03x}-{:012x}",
        high >> 32,
        high & 0xffff,
        (high >> 16) & 0xfff,
        low >> 52,
        low & 0xffff_ffff_ffff
    )
}

fn time(random: &mut Random) -> String {
    let (day, hour) = (1 + random.below(28), random.below(24));
    format!("2026-10-{day:02}T{hour:02}:{:02}:{:02}Z", random.below(60), random.below(60))
}

fn container(name: &str, template: Template, random: &mut Random) -> String {
    let mut env = String::from(
        r#"{"name":"POD_NAME","valueFrom":{"fieldRef":{"apiVersion":"v1","fieldPath":"metadata.name"}}}"#,
    );
    for variable in template.env() {
        let value = random.next();
        let _ = write!(env, r#",{{"name":"{variable}","value":"{name}-{value:016x}.internal:5432"}}"#);
    }
    let port = 8000 + random.below(1000);
    let image = image(name, template);
    format!(
        r#"{{"name":"{name}","image":"{image}:v1.{}.{}","ports":[{{"name":"http","containerPort":{port},"protocol":"TCP"}}],"env":[{env}],"resources":{{"limits":{{"cpu":"{}m","memory":"512Mi"}},"requests":{{"cpu":"100m","memory":"{}Mi"}}}},"volumeMounts":[{{"name":"config","mountPath":"/etc/app"}},{{"name":"cache","mountPath":"/var/cache"}},{{"name":"kube-api-access-x2x7z","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}}],"livenessProbe":{{"httpGet":{{"path":"/healthz","port":{port},"scheme":"HTTP"}},"initialDelaySeconds":10,"timeoutSeconds":1,"periodSeconds":10,"successThreshold":1,"failureThreshold":3}},"readinessProbe":{{"httpGet":{{"path":"/ready","port":{port},"scheme":"HTTP"}},"timeoutSeconds":1,"periodSeconds":5,"successThreshold":1,"failureThreshold":3}},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent"}}"#,
        random.below(90),
        random.below(90),
        500 + random.below(500),
        128 + random.below(128),
    )
}

fn image(container: &str, template: Template) -> String {
    format!("registry.example.com/{}/{}-{container}", template.team(), template.service())
}

fn container_status(name: &str, template: Template, random: &mut Random) -> String {
    let (id, digest) = (random.next(), random.next());
    let image = image(name, template);
    format!(
        r#"{{"name":"{name}","state":{{"running":{{"startedAt":"{}"}}}},"lastState":{{}},"ready":true,"restartCount":{},"image":"{image}:v1.2.3","imageID":"{image}@sha256:{digest:016x}{id:016x}{id:016x}{digest:016x}","containerID":"containerd://{id:016x}{digest:016x}{digest:016x}{id:016x}","started":true}}"#,
        time(random),
        random.below(9),
    )
}

/// Returns `managedFields` of two managers: field names, and keys of list elements that contain quotes.
fn managed_fields(template: Template, random: &mut Random) -> String {
    let mut env = String::new();
    for variable in template.env() {
        let _ = write!(env, r#""k:{{\"name\":\"{variable}\"}}":{{".":{{}},"f:name":{{}},"f:value":{{}}}},"#);
    }
    let container = |name: &str| {
        format!(
            r#""k:{{\"name\":\"{name}\"}}":{{".":{{}},"f:env":{{".":{{}},{env}"k:{{\"name\":\"POD_NAME\"}}":{{".":{{}},"f:name":{{}},"f:valueFrom":{{".":{{}},"f:fieldRef":{{}}}}}}}},"f:image":{{}},"f:imagePullPolicy":{{}},"f:livenessProbe":{{".":{{}},"f:failureThreshold":{{}},"f:httpGet":{{".":{{}},"f:path":{{}},"f:port":{{}},"f:scheme":{{}}}},"f:initialDelaySeconds":{{}},"f:periodSeconds":{{}},"f:successThreshold":{{}},"f:timeoutSeconds":{{}}}},"f:name":{{}},"f:ports":{{".":{{}},"k:{{\"containerPort\":8080,\"protocol\":\"TCP\"}}":{{".":{{}},"f:containerPort":{{}},"f:name":{{}},"f:protocol":{{}}}}}},"f:readinessProbe":{{".":{{}},"f:failureThreshold":{{}},"f:httpGet":{{".":{{}},"f:path":{{}},"f:port":{{}},"f:scheme":{{}}}},"f:periodSeconds":{{}},"f:successThreshold":{{}},"f:timeoutSeconds":{{}}}},"f:resources":{{".":{{}},"f:limits":{{".":{{}},"f:cpu":{{}},"f:memory":{{}}}},"f:requests":{{".":{{}},"f:cpu":{{}},"f:memory":{{}}}}}},"f:terminationMessagePath":{{}},"f:terminationMessagePolicy":{{}},"f:volumeMounts":{{".":{{}},"k:{{\"mountPath\":\"/etc/app\"}}":{{".":{{}},"f:mountPath":{{}},"f:name":{{}}}},"k:{{\"mountPath\":\"/var/cache\"}}":{{".":{{}},"f:mountPath":{{}},"f:name":{{}}}}}}}}"#
        )
    };
    let condition = |kind: &str| {
        format!(
            r#""k:{{\"type\":\"{kind}\"}}":{{".":{{}},"f:lastProbeTime":{{}},"f:lastTransitionTime":{{}},"f:status":{{}},"f:type":{{}}}}"#
        )
    };
    let (app, sidecar) = (container("app"), container("sidecar"));
    let conditions = ["ContainersReady", "Initialized", "PodReadyToStartContainers", "Ready"].map(condition);
    format!(
        r#""managedFields":[{{"manager":"kube-controller-manager","operation":"Update","apiVersion":"v1","time":"{}","fieldsType":"FieldsV1","fieldsV1":{{"f:metadata":{{"f:generateName":{{}},"f:labels":{{".":{{}},"f:app":{{}},"f:app.kubernetes.io/name":{{}},"f:app.kubernetes.io/version":{{}},"f:pod-template-hash":{{}},"f:team":{{}}}},"f:ownerReferences":{{".":{{}},"k:{{\"uid\":\"{}\"}}":{{}}}}}},"f:spec":{{"f:containers":{{{app},{sidecar}}},"f:dnsPolicy":{{}},"f:enableServiceLinks":{{}},"f:restartPolicy":{{}},"f:schedulerName":{{}},"f:securityContext":{{".":{{}},"f:fsGroup":{{}},"f:runAsUser":{{}}}},"f:serviceAccount":{{}},"f:serviceAccountName":{{}},"f:terminationGracePeriodSeconds":{{}},"f:volumes":{{".":{{}},"k:{{\"name\":\"cache\"}}":{{".":{{}},"f:emptyDir":{{".":{{}},"f:sizeLimit":{{}}}},"f:name":{{}}}},"k:{{\"name\":\"config\"}}":{{".":{{}},"f:configMap":{{".":{{}},"f:defaultMode":{{}},"f:name":{{}}}},"f:name":{{}}}}}}}}}}}},{{"manager":"kubelet","operation":"Update","apiVersion":"v1","time":"{}","fieldsType":"FieldsV1","fieldsV1":{{"f:status":{{"f:conditions":{{{}}},"f:containerStatuses":{{}},"f:hostIP":{{}},"f:hostIPs":{{}},"f:phase":{{}},"f:podIP":{{}},"f:podIPs":{{".":{{}},"k:{{\"ip\":\"10.244.1.2\"}}":{{".":{{}},"f:ip":{{}}}}}},"f:startTime":{{}}}}}},"subresource":"status"}}]"#,
        time(random),
        uid(random.below(1_000_000)),
        time(random),
        conditions.join(","),
    )
}
