//! Which cluster is meant, and what it serves.
//!
//! A kubeconfig that was named (by flag or environment), or that lies where everybody looks for it, is used or is an error; never is it
//! silently replaced. Only where there is none, and no account of a pod either, the demo cluster is started. What a kubeconfig holds is never
//! quoted: it has credentials.

use crate::args::{self, Watch};
use crate::demo;
use crate::failure::{Failure, chain, reach_hint};
use crate::resolve::Served;
use crate::talk::Talk;
use futures::stream::{self, StreamExt as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, APIResourceList};
use kube::client::AuthError;
use kube::config::{Config, KubeConfigOptions, Kubeconfig, KubeconfigError};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::Instant;

/// How many pods the demo has where nobody says it.
const DEMO_PODS: u64 = 40;
/// So many requests for discovery at a time.
const AT_A_TIME: usize = 8;
/// How long the demo cluster may take to stand before it is watched.
const SOON: Duration = Duration::from_secs(1);
/// Where a pod finds its account.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// A cluster to watch.
pub(crate) struct Cluster {
    pub(crate) client: kube::Client,
    /// The namespace that counts where none is said; `None` means all.
    pub(crate) namespace: Option<String>,
    /// What it is called in messages.
    pub(crate) name: String,
    /// Keeps the demo cluster moving.
    _demo: Option<demo::Running>,
}

/// Finds the cluster that the command line or the environment means, and what it serves, in the time that the command line gives.
///
/// It can be dropped at any time: nothing that waits does so on this task.
pub(crate) async fn reach(args: &Watch, talk: &Talk) -> Result<(Cluster, Vec<Served>), Failure> {
    let deadline = Instant::now() + args.timeout;
    let limit = args.timeout;
    let cluster =
        tokio::time::timeout_at(deadline, find(args, talk)).await.map_err(|_| match args.demo {
            Some(pods) => Failure::new(
                format!("the demo cluster of {} does not stand within {limit:?}", counted(pods)),
                "--timeout gives it longer",
            ),
            None => Failure::new(
                format!("no client for the cluster within {limit:?}"),
                "does the user's credential plugin wait for something?",
            ),
        })??;
    let served = tokio::time::timeout_at(deadline, discover(&cluster, talk)).await.map_err(|_| {
        Failure::new(
            format!("{} does not answer within {limit:?}", cluster.name),
            "is it the right address? --timeout waits longer",
        )
    })??;
    Ok((cluster, served))
}

/// Finds the cluster that the command line or the environment means.
async fn find(args: &Watch, talk: &Talk) -> Result<Cluster, Failure> {
    if let Some(pods) = args.demo {
        return Ok(start_demo(pods, "", args.once, talk).await);
    }
    let Some(source) = Source::find(args)? else {
        if args.context.is_some() {
            return Err(Failure::new(
                "no kubeconfig was found that could have a context",
                "pass --kubeconfig FILE",
            ));
        }
        let why = "no kubeconfig and no service account found: ";
        return Ok(start_demo(DEMO_PODS, why, args.once, talk).await);
    };
    let config = source.config(args, talk).await?;
    let name = config.cluster_url.to_string().trim_end_matches('/').to_owned();
    let namespace = Some(namespace_of(&config.default_namespace)?);
    // A credential plugin runs in there, and may wait for somebody to log in.
    let client = tokio::task::spawn_blocking(|| informer::client(config)).await;
    let client = client.map_err(|error| Failure::new(format!("no client for {name}: {error}"), ""))?;
    let client = client.map_err(|error| without_client(&name, &error))?;
    Ok(Cluster { client, namespace, name, _demo: None })
}

/// Everything that a cluster serves, of each group the preferred version first.
async fn discover(cluster: &Cluster, talk: &Talk) -> Result<Vec<Served>, Failure> {
    let client = &cluster.client;
    let everything = async {
        let (core, groups) =
            futures::try_join!(client.list_core_api_resources("v1"), client.list_api_groups())?;
        let versions: Vec<String> = groups.groups.iter().flat_map(versions).collect();
        let answers = stream::iter(versions).map(async |version: String| {
            let answer = client.list_api_group_resources(&version).await;
            (version, answer)
        });
        Ok::<_, kube::Error>((core, answers.buffered(AT_A_TIME).collect::<Vec<_>>().await))
    };
    let (core, others) = everything.await.map_err(|error| refused(&cluster.name, &error))?;
    let mut served: Vec<Served> = resources(core).collect();
    for (version, answer) in others {
        match answer {
            Ok(list) => served.extend(resources(list)),
            // The server behind an aggregated group may be down; that is no reason not to watch pods.
            Err(error) => talk.warn(&format!("what {version} serves cannot be told: {}", chain(&error))),
        }
    }
    Ok(served)
}

/// Where the way to the cluster is written.
enum Source {
    File(PathBuf),
    /// What `$KUBECONFIG` names.
    Environment,
    Account,
}

impl Source {
    fn find(args: &Watch) -> Result<Option<Self>, Failure> {
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
        let in_pod = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() && Path::new(ACCOUNT).exists();
        Ok(in_pod.then_some(Self::Account))
    }

    async fn config(&self, args: &Watch, talk: &Talk) -> Result<Config, Failure> {
        let options = KubeConfigOptions { context: args.context.clone(), ..KubeConfigOptions::default() };
        let (file, name) = match self {
            Self::Account => {
                let incluster = Config::incluster();
                return incluster.map_err(|error| {
                    Failure::new(format!("the pod's account is of no use: {}", chain(&error)), "")
                });
            }
            Self::File(path) => (read(path)?, path.display().to_string()),
            Self::Environment => {
                let file = Kubeconfig::from_env().map_err(|error| broken("$KUBECONFIG", &error))?;
                (file.unwrap_or_default(), "$KUBECONFIG".to_owned())
            }
        };
        if let Some(user) = missing_user(&file, args.context.as_deref()) {
            talk.warn(&format!("the kubeconfig {name} has no user \"{user}\"; asking without credentials"));
        }
        let contexts: Vec<String> = file.contexts.iter().map(|context| context.name.clone()).collect();
        Config::from_custom_kubeconfig(file, &options)
            .await
            .map_err(|error| without_context(&name, &contexts, &error))
    }
}

/// The user that a context names and the kubeconfig does not have; such a context works, and is nobody.
fn missing_user<'a>(file: &'a Kubeconfig, context: Option<&str>) -> Option<&'a str> {
    let context = context.or(file.current_context.as_deref())?;
    let context = file.contexts.iter().find(|known| known.name == context)?.context.as_ref()?;
    let user = context.user.as_deref().filter(|user| !user.is_empty())?;
    file.auth_infos.iter().all(|known| known.name != user).then_some(user)
}

/// Whether a kubeconfig leads anywhere; tools leave empty ones behind.
fn has_clusters(path: &Path) -> Result<bool, Failure> {
    Ok(!read(path)?.clusters.is_empty())
}

fn read(path: &Path) -> Result<Kubeconfig, Failure> {
    Kubeconfig::read_from(path).map_err(|error| broken(&path.display().to_string(), &error))
}

fn broken(name: &str, error: &KubeconfigError) -> Failure {
    let hint = "pass another with --kubeconfig, or use the demo cluster with --demo";
    match error {
        KubeconfigError::ReadConfig(error, path) => {
            Failure::new(format!("the kubeconfig {} cannot be read: {error}", path.display()), hint)
        }
        // What the parser says quotes the file.
        KubeconfigError::Parse(error) => {
            let place = error.location().map(|at| format!(" at line {}", at.line())).unwrap_or_default();
            Failure::new(format!("the kubeconfig {name} is not valid{place}"), hint)
        }
        error => Failure::new(format!("the kubeconfig {name} is of no use: {}", chain(error)), hint),
    }
}

fn without_context(name: &str, contexts: &[String], error: &KubeconfigError) -> Failure {
    let contexts = || match contexts {
        [] => "it has none".to_owned(),
        contexts => format!("it has {}", contexts.join(", ")),
    };
    match error {
        KubeconfigError::CurrentContextNotSet => Failure::new(
            format!("the kubeconfig {name} has no current context"),
            format!("choose one with --context; {}", contexts()),
        ),
        KubeconfigError::LoadContext(context) => {
            Failure::new(format!("the kubeconfig {name} has no context \"{context}\""), contexts())
        }
        error => broken(name, error),
    }
}

/// The namespace of a context: as for kubectl, nothing means `default`.
fn namespace_of(context: &str) -> Result<String, Failure> {
    if context.is_empty() {
        return Ok("default".to_owned());
    }
    args::namespace(context).map_err(|_| {
        let hint = "a namespace has lower-case letters, digits and '-', 63 at most";
        Failure::new(format!("the context's namespace \"{context}\" is none"), hint)
    })
}

/// Why the configuration makes no client.
fn without_client(name: &str, error: &kube::Error) -> Failure {
    let hint = match error {
        kube::Error::Auth(AuthError::InvalidBearerToken(_)) => "is there a line break in the user's token?",
        kube::Error::Auth(AuthError::AuthExecStart(_)) => "is the user's credential plugin installed?",
        kube::Error::Auth(_) => "what does the kubeconfig say about the user?",
        _ => "are its certificates right?",
    };
    Failure::new(format!("no client for {name}: {}", chain(error)), hint)
}

/// Why the cluster did not say what it serves.
fn refused(name: &str, error: &kube::Error) -> Failure {
    match error {
        kube::Error::Api(status) if status.code == 401 => {
            Failure::new(format!("{name} does not accept the credentials"), "have they expired?")
        }
        kube::Error::Api(status) => {
            Failure::new(format!("{name} does not say what it serves: {}", status.message), "")
        }
        error => {
            let because = chain(error);
            Failure::new(format!("{name} cannot be reached: {because}"), reach_hint(&because))
        }
    }
}

/// `1 pod`, `40 pods`.
pub(crate) fn counted(pods: u64) -> String {
    if pods == 1 { "1 pod".to_owned() } else { format!("{pods} pods") }
}

async fn start_demo(pods: u64, why: &str, once: bool, talk: &Talk) -> Cluster {
    talk.say(&format!("{why}starting an embedded API server with a demo cluster of about {}", counted(pods)));
    let server = informer_apiserver::ApiServer::builder().seed(demo::any_seed()).build();
    let running = demo::start(&server, pods);
    if once {
        running.stands().await;
    } else {
        // A large one is nice to see growing.
        drop(tokio::time::timeout(SOON, running.stands()).await);
    }
    Cluster {
        client: server.client(),
        namespace: None,
        name: "the demo cluster".to_owned(),
        _demo: Some(running),
    }
}

/// The versions of a group, the preferred one first.
fn versions(group: &APIGroup) -> Vec<String> {
    let preferred = group.preferred_version.iter().map(|version| version.group_version.clone());
    let mut versions: Vec<String> = preferred.collect();
    for version in &group.versions {
        if !versions.contains(&version.group_version) {
            versions.push(version.group_version.clone());
        }
    }
    versions
}

fn resources(list: APIResourceList) -> impl Iterator<Item = Served> {
    let (group, version) = match list.group_version.split_once('/') {
        Some((group, version)) => (group.to_owned(), version.to_owned()),
        None => (String::new(), list.group_version),
    };
    // With a slash in its name it is a part of a resource.
    let whole = list.resources.into_iter().filter(|resource| !resource.name.contains('/'));
    whole.map(move |resource| Served {
        group: group.clone(),
        version: version.clone(),
        plural: resource.name,
        singular: resource.singular_name,
        kind: resource.kind,
        short_names: resource.short_names.unwrap_or_default(),
        namespaced: resource.namespaced,
        verbs: resource.verbs,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A context with an empty namespace meant all of them, and any text became a part of a path.
    #[test]
    fn the_namespace_of_a_context_is_a_namespace() {
        assert_eq!(namespace_of(""), Ok("default".to_owned()));
        assert_eq!(namespace_of("shop"), Ok("shop".to_owned()));
        for text in ["../../x", "a/b", "A", "a b", " "] {
            assert!(namespace_of(text).is_err(), "{text}");
        }
    }
}
