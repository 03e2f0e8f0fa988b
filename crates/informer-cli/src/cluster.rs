//! Selects the cluster and discovers its resources.
//!
//! A kubeconfig given by option or environment, or in its default place, is used or causes an error; it is
//! never replaced silently. Single exception: a kubeconfig without clusters in the default place is ignored.
//! If there is neither a kubeconfig nor a service account, the program without a command starts the demo
//! cluster, and every other command fails. Only names in a kubeconfig are printed, because other values may be
//! credentials.

use crate::args::{self, DEFAULT_DEMO_PODS, Watch, WithoutCluster};
use crate::cli_error::{CliError, NO_CLUSTER, UNUSABLE_KUBECONFIG, chain, failure_hint};
use crate::demo;
use crate::resolve::Served;
use crate::terminal::Terminal;
use informer::persistence::Persistence;
use informer::source::classify;
use kube::client::AuthError;
use kube::config::{Config, KubeConfigOptions, Kubeconfig, KubeconfigError};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::Instant;

/// Time to wait for the demo cluster to be complete before watching it anyway.
const DEMO_READY_TIMEOUT: Duration = Duration::from_secs(1);
/// Path of the service account token in a pod.
const SERVICE_ACCOUNT_TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// A cluster to watch.
pub(crate) struct Cluster {
    pub(crate) client: kube::Client,
    /// Default namespace; `None` means all.
    pub(crate) namespace: Option<String>,
    /// Name in messages.
    pub(crate) name: String,
    /// Where the state of `--state` is saved.
    pub(crate) persistence: Option<Persistence>,
    /// Keeps the demo cluster running.
    _demo: Option<demo::Running>,
}

/// Connects to the cluster of the command line or the environment and discovers its resources, within `--timeout`.
///
/// # Cancel safety
///
/// The future can be dropped at any time: blocking calls run on other threads.
pub(crate) async fn reach(args: &Watch, terminal: &Terminal) -> Result<(Cluster, Vec<Served>), CliError> {
    let deadline = Instant::now() + args.timeout;
    let timeout = args.timeout;
    let cluster = connect(args, terminal).await?;
    let served = tokio::time::timeout_at(deadline, discover(&cluster, terminal)).await.map_err(|_| {
        CliError::new(
            format!("{}: no response within {timeout:?}", cluster.name),
            "check the address, or increase --timeout",
        )
    })??;
    Ok((cluster, served))
}

/// Connects to the cluster of the command line or the environment, within `--timeout`, without discovering its resources.
pub(crate) async fn connect(args: &Watch, terminal: &Terminal) -> Result<Cluster, CliError> {
    let timeout = args.timeout;
    tokio::time::timeout(timeout, select(args, terminal)).await.map_err(|_| {
        let hint = match args.demo.size() {
            Some(_) => "increase --timeout",
            None => "does a credential plugin wait for input?",
        };
        let action = match args.demo.size() {
            Some(pods) => format!("start demo cluster of {}", format_pods(pods)),
            None => "create client".to_owned(),
        };
        CliError::new(format!("{action}: timed out after {timeout:?}"), hint)
    })?
}

/// Selects the cluster of the command line or the environment.
async fn select(args: &Watch, terminal: &Terminal) -> Result<Cluster, CliError> {
    if let Some(pods) = args.demo.size() {
        return start_demo(pods, "", args.once, terminal).await;
    }
    let Some(source) = ConfigSource::find(args)? else {
        if args.context.is_some() {
            return Err(CliError::new("--context given, but no kubeconfig found", "pass --kubeconfig FILE"));
        }
        // The demo cluster does not survive the process, so there is no state to continue from.
        if args.without_cluster == WithoutCluster::Fail || args.state.is_some() {
            return Err(CliError::new("no kubeconfig and no service account found", NO_CLUSTER));
        }
        let reason = "no kubeconfig and no service account found: ";
        return start_demo(DEFAULT_DEMO_PODS, reason, args.once, terminal).await;
    };
    let config = source.config(args, terminal).await?;
    let name = config.cluster_url.to_string().trim_end_matches('/').to_owned();
    let namespace = Some(check_namespace(&config.default_namespace)?);
    let persistence = args.state.as_ref().map(|directory| Persistence::new(directory, &config));
    // This may run a credential plugin that waits for a login.
    let client = tokio::task::spawn_blocking(|| informer::client(config)).await;
    let client = client.map_err(|error| CliError::new(format!("create client for {name}: {error}"), ""))?;
    let client = client.map_err(|error| client_error(&name, &error))?;
    Ok(Cluster { client, namespace, name, persistence, _demo: None })
}

/// Discovers all resources of a cluster, with the preferred version of each group first.
async fn discover(cluster: &Cluster, terminal: &Terminal) -> Result<Vec<Served>, CliError> {
    let discovered = informer::discovery::discover(&cluster.client).await;
    let discovered = discovered.map_err(|error| discovery_error(&cluster.name, &error))?;
    // The server of an aggregated group may be down, which does not affect other resources.
    for (version, error) in &discovered.failures {
        terminal.warn(&format!("discover {version}: {}", chain(error)));
    }
    Ok(discovered.resources)
}

/// Source of the client configuration.
enum ConfigSource {
    File(PathBuf),
    /// Files of `$KUBECONFIG`.
    Environment,
    /// The service account of the pod in which this program runs.
    ServiceAccount,
}

impl ConfigSource {
    /// Finds the configuration; `None` if there is none.
    fn find(args: &Watch) -> Result<Option<Self>, CliError> {
        if let Some(path) = &args.kubeconfig {
            return Ok(Some(Self::File(path.clone())));
        }
        if std::env::var_os("KUBECONFIG").is_some_and(|value| !value.is_empty()) {
            return Ok(Some(Self::Environment));
        }
        let home = std::env::home_dir().map(|home| home.join(".kube").join("config"));
        if let Some(path) = home.filter(|path| path.exists())
            && has_clusters(&path)?
        {
            return Ok(Some(Self::File(path)));
        }
        let in_pod = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
            && Path::new(SERVICE_ACCOUNT_TOKEN).exists();
        Ok(in_pod.then_some(Self::ServiceAccount))
    }

    async fn config(&self, args: &Watch, terminal: &Terminal) -> Result<Config, CliError> {
        let options = KubeConfigOptions { context: args.context.clone(), ..KubeConfigOptions::default() };
        let (file, name) = match self {
            Self::ServiceAccount => {
                let incluster = Config::incluster();
                return incluster
                    .map_err(|error| CliError::new(format!("read service account: {}", chain(&error)), ""));
            }
            Self::File(path) => (read(path)?, path.display().to_string()),
            Self::Environment => {
                let file = Kubeconfig::from_env().map_err(|error| kubeconfig_error("$KUBECONFIG", &error))?;
                (file.unwrap_or_default(), "$KUBECONFIG".to_owned())
            }
        };
        if let Some(user) = missing_user(&file, args.context.as_deref()) {
            terminal
                .warn(&format!("kubeconfig {name} has no user \"{user}\"; connecting without credentials"));
        }
        let contexts: Vec<String> = file.contexts.iter().map(|context| context.name.clone()).collect();
        Config::from_custom_kubeconfig(file, &options)
            .await
            .map_err(|error| context_error(&name, &contexts, &error))
    }
}

/// Returns the user of the context if the kubeconfig lacks it; such a context works, but is anonymous.
fn missing_user<'a>(file: &'a Kubeconfig, context: Option<&str>) -> Option<&'a str> {
    let context = context.or(file.current_context.as_deref())?;
    let context = file.contexts.iter().find(|known| known.name == context)?.context.as_ref()?;
    let user = context.user.as_deref().filter(|user| !user.is_empty())?;
    file.auth_infos.iter().all(|known| known.name != user).then_some(user)
}

/// Whether a kubeconfig has clusters; some tools leave an empty kubeconfig behind.
fn has_clusters(path: &Path) -> Result<bool, CliError> {
    Ok(!read(path)?.clusters.is_empty())
}

fn read(path: &Path) -> Result<Kubeconfig, CliError> {
    Kubeconfig::read_from(path).map_err(|error| kubeconfig_error(&path.display().to_string(), &error))
}

fn kubeconfig_error(name: &str, error: &KubeconfigError) -> CliError {
    let hint = UNUSABLE_KUBECONFIG;
    match error {
        KubeconfigError::ReadConfig(error, path) => {
            CliError::new(format!("read kubeconfig {}: {error}", path.display()), hint)
        }
        // The parser's message quotes the file.
        KubeconfigError::Parse(error) => {
            let place = error.location().map(|at| format!(" at line {}", at.line())).unwrap_or_default();
            CliError::new(format!("kubeconfig {name} is invalid{place}"), hint)
        }
        error => CliError::new(format!("kubeconfig {name}: {}", chain(error)), hint),
    }
}

fn context_error(name: &str, contexts: &[String], error: &KubeconfigError) -> CliError {
    let contexts = || match contexts {
        [] => "it has no contexts".to_owned(),
        contexts => format!("available: {}", contexts.join(", ")),
    };
    match error {
        KubeconfigError::CurrentContextNotSet => CliError::new(
            format!("kubeconfig {name} has no current context"),
            format!("choose one with --context; {}", contexts()),
        ),
        KubeconfigError::LoadContext(context) => {
            CliError::new(format!("kubeconfig {name} has no context \"{context}\""), contexts())
        }
        error => kubeconfig_error(name, error),
    }
}

/// Validates the namespace of a context; as in kubectl, an empty one means `default`.
fn check_namespace(namespace: &str) -> Result<String, CliError> {
    if namespace.is_empty() {
        return Ok("default".to_owned());
    }
    args::namespace(namespace).map_err(|_| {
        let hint = "a namespace has at most 63 lower-case letters, digits and '-'";
        CliError::new(format!("the context has an invalid namespace \"{namespace}\""), hint)
    })
}

/// Converts an error of the client's creation.
fn client_error(name: &str, error: &kube::Error) -> CliError {
    let hint = match error {
        kube::Error::Auth(AuthError::InvalidBearerToken(_)) => "does the user's token contain a line break?",
        kube::Error::Auth(AuthError::AuthExecStart(_)) => "is the user's credential plugin installed?",
        kube::Error::Auth(_) => "check the user in the kubeconfig",
        _ => "check the certificates in the kubeconfig",
    };
    CliError::new(format!("create client for {name}: {}", classify(error)), hint)
}

/// Converts an error of discovery.
fn discovery_error(name: &str, error: &kube::Error) -> CliError {
    match error {
        kube::Error::Api(status) if status.code == 401 => {
            CliError::new(format!("{name}: credentials rejected"), "have they expired?")
        }
        kube::Error::Api(status) => {
            CliError::new(format!("discover resources of {name}: {}", status.message), "")
        }
        error => {
            let failure = classify(error);
            CliError::new(format!("connect to {name}: {failure}"), failure_hint(&failure))
        }
    }
}

/// Formats a number of pods: `1 pod`, `40 pods`.
pub(crate) fn format_pods(pods: u64) -> String {
    if pods == 1 { "1 pod".to_owned() } else { format!("{pods} pods") }
}

async fn start_demo(pods: u64, reason: &str, once: bool, terminal: &Terminal) -> Result<Cluster, CliError> {
    terminal.info(&format!(
        "{reason}starting an embedded API server with a demo cluster of about {}",
        format_pods(pods)
    ));
    let server = informer_apiserver::ApiServer::builder().seed(demo::any_seed()).build();
    let running = demo::start(&server, pods).map_err(|_| CliError::no_threads())?;
    if once {
        running.wait_until_ready().await;
    } else {
        // A large cluster is watched while it is being built.
        drop(tokio::time::timeout(DEMO_READY_TIMEOUT, running.wait_until_ready()).await);
    }
    Ok(Cluster {
        client: server.client(),
        namespace: None,
        name: "the demo cluster".to_owned(),
        persistence: None,
        _demo: Some(running),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: an empty namespace in a context selected all namespaces, and any text became a part of a URL path.
    #[test]
    fn namespace_of_context_is_validated() {
        assert_eq!(check_namespace(""), Ok("default".to_owned()));
        assert_eq!(check_namespace("shop"), Ok("shop".to_owned()));
        for text in ["../../x", "a/b", "A", "a b", " "] {
            assert!(check_namespace(text).is_err(), "{text}");
        }
    }
}
