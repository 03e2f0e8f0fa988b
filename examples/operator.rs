//! An operator: for every `Website` a deployment and a service, a status with the ready replicas, and a
//! finalizer for cleanup.
//!
//!     cargo example operator -- --crd | kubectl apply -f -
//!     cargo example operator -- [--kubeconfig PATH] [--lease-namespace NAME] [--pod-name NAME]
//!         [--probe-address IP:PORT] [--log-format text|json]

use informer::conditions::{self, ConditionChange};
use informer::controller::predicates;
use informer::controller::{Context, Controller, Outcome};
use informer::election::LeaderElector;
use informer::finalizer::{Finalizer, FinalizerAction};
use informer::manager::Manager;
use informer::recorder::{EventRecorder, EventType};
use informer::{Key, Object, SharedInformerFactory};
use informer_examples::program;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, CustomResourceExt as _, Resource};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::str::FromStr;

const USAGE: &str = "usage: operator [--kubeconfig PATH] [--lease-namespace NAME] [--pod-name NAME]
                [--probe-address IP:PORT] [--log-format text|json] | --crd

Manages a deployment and a service for each website until Ctrl-C. With --crd, prints the definition of the kind Website
for kubectl and exits.

Options can also be given as environment variables, such as LEASE_NAMESPACE. The lease is in the namespace of
--lease-namespace, or in that of the kubeconfig or pod, and shows --pod-name (default: the host name) as its holder.
/healthz, /readyz and /metrics are served on --probe-address (default 127.0.0.1:8080; in a pod [::]:8080, all addresses,
so that the kubelet reaches it). Logs are written to standard error.";

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(group = "informer.example", version = "v1", kind = "Website", namespaced, status = "WebsiteStatus")]
pub(crate) struct WebsiteSpec {
    pub(crate) image: String,
    pub(crate) replicas: i32,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct WebsiteStatus {
    pub(crate) ready: i32,
    #[serde(default)]
    #[schemars(schema_with = "conditions_schema")]
    pub(crate) conditions: Vec<Condition>,
}

/// Written by hand, because k8s-openapi has schemas only with its feature `schemars`, and not this list type:
/// one condition of each type.
fn conditions_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object", "required": ["type", "status", "reason", "message", "lastTransitionTime"],
            "properties": {
                "type": {"type": "string"},
                "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
                "reason": {"type": "string"},
                "message": {"type": "string"},
                "lastTransitionTime": {"type": "string", "format": "date-time"},
                "observedGeneration": {"type": "integer", "format": "int64"},
            },
        },
    })
}

/// More is taken for a mistake.
const MAX_REPLICAS: i32 = 100;

type Error = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> ExitCode {
    program(USAGE, async |mut arguments| {
        if arguments.flag("--crd") {
            println!("{}", serde_json::to_string_pretty(&Website::crd())?);
            return Ok(());
        }
        let address: Option<SocketAddr> = arguments.setting("--probe-address")?;
        let namespace: Option<String> = arguments.setting("--lease-namespace")?;
        let pod_name: Option<String> = arguments.setting("--pod-name")?;
        let log_format: Option<LogFormat> = arguments.setting("--log-format")?;
        let client = arguments.client().await?;
        let namespace = namespace.unwrap_or_else(|| client.default_namespace().to_owned());
        let mut elector = LeaderElector::new(client.clone(), &namespace, "website-operator");
        if let Some(name) = pod_name {
            elector = elector.identity(&name); // `kubectl get lease` shows which pod leads
        }
        let is_in_pod = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
        let address = address.unwrap_or(default_probe_address(is_in_pod));
        log_format.unwrap_or(LogFormat::Text).init();
        tracing::info!(%address, "starting, until SIGTERM or Ctrl-C");
        Ok(manager(client).leader_election(elector).serve_on(address).run().await?)
    })
    .await
}

/// How logs are written, the library's too.
enum LogFormat {
    Text,
    /// One JSON object per line, for programs that collect logs.
    Json,
}

impl FromStr for LogFormat {
    type Err = std::io::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(std::io::Error::other("expected text or json")),
        }
    }
}

impl LogFormat {
    fn init(self) {
        let logs = tracing_subscriber::fmt().with_writer(std::io::stderr);
        match self {
            Self::Text => logs.init(),
            Self::Json => logs.json().flatten_event(true).init(),
        }
    }
}

/// In a pod, the kubelet connects to the address of the pod. Elsewhere, other hosts have no access.
pub(crate) fn default_probe_address(is_in_pod: bool) -> SocketAddr {
    if is_in_pod { (Ipv6Addr::UNSPECIFIED, 8080).into() } else { (Ipv4Addr::LOCALHOST, 8080).into() }
}

/// Creates the operator with its controller, event sources and endpoints.
pub(crate) fn manager(client: kube::Client) -> Manager {
    let recorder = EventRecorder::new(client.clone(), "website-operator");
    let state = State::new(client.clone(), recorder.clone());
    let controller = controller(&SharedInformerFactory::new(client), state).reconcile(reconcile);
    Manager::new().controller(controller).recorder(recorder)
}

/// Creates the controller without its reconcile function.
pub(crate) fn controller(factory: &SharedInformerFactory, state: State) -> Controller<Service, State> {
    Controller::new::<Website>(factory)
        .with_predicate(predicates::generation_changed) // ignores its own status updates
        .owns::<Deployment>()
        .owns::<Service>()
        .field_manager("website-operator")
        .concurrency(8)
        .state(state)
}

pub(crate) struct State {
    finalizer: Finalizer<Website>,
    recorder: EventRecorder,
}

impl State {
    pub(crate) fn new(client: kube::Client, recorder: EventRecorder) -> Self {
        Self { finalizer: Finalizer::new(client, "informer.example/website"), recorder }
    }
}

/// Reconciles one website. Errors, including conflicts, are retried with backoff.
pub(crate) async fn reconcile(key: Key, ctx: Context<State>) -> Result<Outcome, Error> {
    let Some(website) = ctx.lister::<Website>().get_by_key(&key) else { return Ok(Outcome::Done) };
    let recorder = &ctx.state().recorder;
    let website = match ctx.state().finalizer.ensure(&website).await? {
        FinalizerAction::Apply(website) => website,
        FinalizerAction::Cleanup(clean_up) => {
            // Release external resources here: DNS names, buckets, certificates.
            recorder.record(&website, EventType::Normal, "Stopped", "TidyUp", "the website was deleted");
            clean_up.complete().await?;
            return Ok(Outcome::Done);
        }
        FinalizerAction::Gone => return Ok(Outcome::Done),
    };
    let site = website.typed()?;
    if site.spec.replicas > MAX_REPLICAS {
        let message = format!("at most {MAX_REPLICAS} replicas");
        recorder.record(&website, EventType::Warning, "TooMany", "Scale", &message);
        let ready = site.status.as_ref().map_or(0, |status| status.ready);
        let _change = update_status(&ctx, &site, ready, ("False", "TooMany", &message)).await?;
        return Ok(Outcome::terminal("too many replicas")); // a retry cannot help, a change of the website can
    }
    let (deployment, is_applied) =
        ensure::<Deployment>(&ctx, &website, deployment_of(&key, &site.spec)).await?;
    if is_applied {
        recorder.record(&website, EventType::Normal, "Applied", "Apply", "updated the deployment");
    }
    let (_, is_applied) = ensure::<Service>(&ctx, &website, service_of(&key)).await?;
    if is_applied {
        recorder.record(&website, EventType::Normal, "Applied", "Apply", "updated the service");
    }
    let ready = deployment.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or_default();
    let message = format!("{ready} of {} replicas are ready", site.spec.replicas);
    let (is_ready, reason, message) = match (ready >= site.spec.replicas, is_rolled_out(&deployment)) {
        (true, true) => ("True", "AllReady", message),
        (true, false) => ("False", "Starting", format!("{message}, but not all are updated")),
        (false, _) => ("False", "Starting", message),
    };
    let change = update_status(&ctx, &site, ready, (is_ready, reason, &message)).await?;
    if change == ConditionChange::Transitioned {
        recorder.record(&website, EventType::Normal, reason, "Check", &message);
    }
    Ok(Outcome::Done)
}

/// Whether only pods of the current spec are left. The ready replicas include those of the previous spec, and
/// the whole status describes the previous spec until the controller of deployments has seen the current one.
fn is_rolled_out(deployment: &Deployment) -> bool {
    let Some(status) = &deployment.status else { return false };
    let count = |replicas: Option<i32>| replicas.unwrap_or_default(); // zero is omitted
    let updated = count(status.updated_replicas);
    status.observed_generation >= deployment.metadata.generation
        && updated >= count(deployment.spec.replicas)
        && updated >= count(status.replicas)
}

/// Creates or repairs an object of the website, unless the cache shows it as desired. Returns the object, which
/// is newer than the cache after a write, and whether it was written. The next reconcile waits until the cache
/// shows the write.
async fn ensure<K>(
    ctx: &Context<State>,
    website: &Object<Website>,
    desired: Value,
) -> Result<(K, bool), Error>
where
    K: Resource<DynamicType = ()> + Serialize + DeserializeOwned + 'static,
{
    if let Some(cached) = ctx.lister::<K>().get_by_key(ctx.key())
        && cached.owners().controller().is_some_and(|owner| owner.uid == website.uid())
    {
        let cached = serde_json::from_slice(&cached.to_json()?)?;
        if contains(&cached, &desired) {
            return Ok((serde_json::from_value(cached)?, false));
        }
    }
    Ok((ctx.apply(website, serde_json::from_value::<K>(desired)?).await?, true))
}

/// Whether an object has all desired values. It has more: defaults of the server, and fields and list items of
/// other writers, which an apply would keep.
fn contains(object: &Value, desired: &Value) -> bool {
    match (object, desired) {
        (Value::Object(object), Value::Object(desired)) => desired
            .iter()
            .all(|(name, desired)| object.get(name).is_some_and(|value| contains(value, desired))),
        (Value::Array(object), Value::Array(desired)) => {
            desired.iter().all(|desired| object.iter().any(|item| contains(item, desired)))
        }
        (object, desired) => object == desired,
    }
}

/// Writes the status if it has changed, with the condition `Ready` of this status, reason and message. Returns
/// the change of the condition.
async fn update_status(
    ctx: &Context<State>,
    site: &Website,
    ready: i32,
    (is_ready, reason, message): (&str, &str, &str),
) -> Result<ConditionChange, Error> {
    let mut status = WebsiteStatus { ready, ..site.status.clone().unwrap_or_default() };
    let condition = Condition {
        type_: "Ready".to_owned(),
        status: is_ready.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        // Tells readers whether this describes the spec they see.
        observed_generation: site.metadata.generation,
        last_transition_time: Time(ctx.now()), // kept if the status is the same
    };
    let change = conditions::set(&mut status.conditions, condition);
    if site.status.as_ref() != Some(&status) {
        // If the website has changed since it was read, this fails, and the retry reads the change.
        ctx.patch_status(site, &status).await?;
    }
    Ok(change)
}

fn deployment_of(key: &Key, spec: &WebsiteSpec) -> Value {
    let labels = json!({"website": key.name()});
    let pod = json!({"containers": [{"name": "web", "image": spec.image, "ports": [{"containerPort": 80}]}]});
    let template = json!({"metadata": {"labels": labels}, "spec": pod});
    json!({"metadata": {"name": key.name()},
        "spec": {"replicas": spec.replicas, "selector": {"matchLabels": labels}, "template": template}})
}

fn service_of(key: &Key) -> Value {
    let spec = json!({"selector": {"website": key.name()}, "ports": [{"port": 80}]});
    json!({"metadata": {"name": key.name()}, "spec": spec})
}
