//! An operator: for every `Website` a deployment and a service, a status with the ready replicas, and a
//! finalizer for cleanup.
//!
//!     cargo run --example operator -- --crd | kubectl apply -f -
//!     cargo run --example operator -- [--kubeconfig PATH] [--lease-namespace NAME] [--probe-address IP:PORT]

use informer::Key;
use informer::SharedInformerFactory;
use informer::controller::predicates;
use informer::controller::{Context, Controller, Outcome};
use informer::election::LeaderElector;
use informer::finalizer::Finalizer;
use informer::finalizer::FinalizerAction;
use informer::manager::Manager;
use informer::owner::set_controller_reference;
use informer::recorder::EventRecorder;
use informer::recorder::EventType;
use informer_examples::program;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{CustomResource, CustomResourceExt as _, Resource, core::NamespaceResourceScope as Namespaced};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr};
use std::{fmt::Debug, process::ExitCode};

const USAGE: &str = "usage: operator [--kubeconfig PATH] [--lease-namespace NAME] [--probe-address IP:PORT] | --crd

Manages a deployment and a service for each website until Ctrl-C. With --crd, prints the definition of the kind Website
for kubectl and exits.

The lease is in the namespace of --lease-namespace or LEASE_NAMESPACE, or in that of the kubeconfig or pod. /healthz,
/readyz and /metrics are served on --probe-address or PROBE_ADDRESS (default 127.0.0.1:8080; in a pod 0.0.0.0:8080, so
that the kubelet reaches it).";

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(group = "informer.example", version = "v1", kind = "Website", namespaced, status = "WebsiteStatus")]
pub(crate) struct WebsiteSpec {
    pub(crate) image: String,
    pub(crate) replicas: i32,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct WebsiteStatus {
    pub(crate) ready: i32,
}

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
        let client = arguments.client().await?;
        let namespace = namespace.unwrap_or_else(|| client.default_namespace().to_owned());
        let elector = LeaderElector::new(client.clone(), &namespace, "website-operator");
        let address = address.unwrap_or((Ipv4Addr::LOCALHOST, 8080).into());
        tracing_subscriber::fmt().with_writer(std::io::stderr).init(); // logs of the library
        eprintln!("press Ctrl-C to stop");
        Ok(manager(client).leader_election(elector).serve_on(address).run().await?)
    })
    .await
}

/// Creates the operator with its controller, event sources and endpoints.
pub(crate) fn manager(client: kube::Client) -> Manager {
    let recorder = EventRecorder::new(client.clone(), "website-operator");
    let finalizer = Finalizer::new(client.clone(), "informer.example/website");
    let state = State { client: client.clone(), finalizer, recorder: recorder.clone() };
    let controller = Controller::new::<Website>(&SharedInformerFactory::new(client))
        .with_predicate(predicates::generation_changed) // ignores its own status updates
        .owns::<Deployment>()
        .owns::<Service>()
        .concurrency(8)
        .state(state)
        .reconcile(reconcile);
    Manager::new().controller(controller).recorder(recorder)
}

struct State {
    client: kube::Client,
    finalizer: Finalizer<Website>,
    recorder: EventRecorder,
}

/// Reconciles one website. Errors, including conflicts, are retried with backoff.
async fn reconcile(key: Key, ctx: Context<State>) -> Result<Outcome, Error> {
    let Some(website) = ctx.lister::<Website>().get_by_key(&key) else { return Ok(Outcome::Done) };
    let recorder = &ctx.state().recorder;
    let website = match ctx.state().finalizer.ensure(&website).await? {
        FinalizerAction::Apply(website) => website,
        FinalizerAction::Cleanup(clean_up) => {
            // Release external resources here: DNS names, buckets, certificates.
            recorder.record(&website, EventType::Normal, "Stopped", "TidyUp", "the website was deleted");
            if let Some(left) = clean_up.complete().await? {
                ctx.record_write(&left); // other finalizers are left
            }
            return Ok(Outcome::Done);
        }
        FinalizerAction::Gone => return Ok(Outcome::Done),
    };
    ctx.record_write(&website); // the finalizer may have been added just now
    let site = website.typed()?;
    if site.spec.replicas > 100 {
        recorder.record(&website, EventType::Warning, "TooMany", "Scale", "at most 100 replicas");
        return Ok(Outcome::terminal("too many replicas"));
    }
    let deployment = ctx.lister::<Deployment>().get_by_key(&key).map(|is| is.typed()).transpose()?;
    let image = |is: &Deployment| is.spec.template.spec.as_ref()?.containers.first()?.image.clone();
    let is = deployment.as_ref().map(|is| (is.spec.replicas, image(is)));
    if is != Some((Some(site.spec.replicas), Some(site.spec.image.clone()))) {
        apply::<Deployment>(&ctx, &site, deployment_of(&key, &site.spec)).await?;
        recorder.record(&website, EventType::Normal, "Applied", "Apply", "updated the deployment");
    }
    if ctx.lister::<Service>().get_by_key(&key).is_none() {
        apply::<Service>(&ctx, &site, service_of(&key)).await?;
    }
    let ready = deployment.and_then(|is| is.status.as_ref()?.ready_replicas).unwrap_or_default();
    let status = Some(WebsiteStatus { ready });
    if site.status != status {
        // Contains the version that was read: if the website has changed since, this fails, and the retry
        // reads the change.
        let changed = Website { status, ..(*site).clone() };
        ctx.record_write(&api(&ctx).replace_status(key.name(), &PostParams::default(), &changed).await?);
    }
    Ok(Outcome::Done)
}

/// Applies an object owned by the website; the next reconcile waits until the cache shows it.
async fn apply<K>(ctx: &Context<State>, owner: &Website, object: Value) -> Result<(), Error>
where
    K: Resource<DynamicType = (), Scope = Namespaced>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
        + 'static,
{
    let mut object: K = serde_json::from_value(object)?;
    set_controller_reference(owner, &mut object)?;
    let params = PatchParams::apply("website-operator").force();
    ctx.record_write(&api::<K>(ctx).patch(ctx.key().name(), &params, &Patch::Apply(&object)).await?);
    Ok(())
}

fn api<K: Resource<DynamicType = (), Scope = Namespaced>>(ctx: &Context<State>) -> Api<K> {
    Api::namespaced(ctx.state().client.clone(), ctx.key().namespace().unwrap_or_default())
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
