//! Shared parts of the examples: command line, cluster configuration, error messages. Each example is
//! complete in its `run`, in the files next to the package's manifest; `pod_informer` does not use this crate
//! and shows a whole program.

use informer::InformerOptions;
use informer::error::SyncError;
use informer::status::InformerState;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use std::error::Error;
use std::process::ExitCode;

/// Command line arguments of an example.
#[derive(Debug)]
pub struct Arguments {
    usage: &'static str,
    kubeconfig: Option<String>,
    /// Arguments that were not read yet.
    rest: Vec<String>,
}

/// Runs an example: prints its usage if requested, and the error with a hint if it fails.
pub async fn program(
    usage: &'static str,
    run: impl AsyncFnOnce(Arguments) -> Result<(), Box<dyn Error>>,
) -> ExitCode {
    let rest: Vec<String> = std::env::args().skip(1).collect();
    if rest.iter().any(|argument| argument == "--help" || argument == "-h") {
        println!("{usage}");
        return ExitCode::SUCCESS;
    }
    let result = match Arguments::new(usage, rest) {
        Ok(arguments) => run(arguments).await,
        Err(error) => Err(error),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}{}", hint(&*error));
            ExitCode::FAILURE
        }
    }
}

/// Completes on Ctrl-C or SIGTERM, which a cluster sends to stop a pod. Until it is polled, both end the
/// program as usual.
pub async fn stop_signal() {
    eprintln!("press Ctrl-C to stop");
    // If a signal handler cannot be installed, there is nothing to wait for.
    tokio::select! {
        ended = tokio::signal::ctrl_c() => drop(ended),
        () = terminated() => {}
    }
}

#[cfg(unix)]
async fn terminated() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut signals) => drop(signals.recv().await),
        Err(_) => std::future::pending().await,
    }
}

#[cfg(not(unix))]
async fn terminated() {
    std::future::pending().await
}

impl Arguments {
    fn new(usage: &'static str, rest: Vec<String>) -> Result<Self, Box<dyn Error>> {
        let mut arguments = Self { usage, kubeconfig: None, rest };
        arguments.kubeconfig = arguments.option("--kubeconfig")?;
        Ok(arguments)
    }

    /// Whether this flag is present.
    pub fn flag(&mut self, name: &str) -> bool {
        let found = self.rest.iter().position(|argument| argument == name);
        found.map(|at| self.rest.remove(at)).is_some()
    }

    /// The value of this option, if present.
    pub fn option(&mut self, name: &str) -> Result<Option<String>, Box<dyn Error>> {
        let Some(at) = self.rest.iter().position(|argument| argument == name) else { return Ok(None) };
        let taken: Vec<String> = self.rest.drain(at..self.rest.len().min(at + 2)).collect();
        taken.into_iter().nth(1).map(Some).ok_or_else(|| self.usage_error(&format!("{name} needs a value")))
    }

    /// The parsed value of this option, if present.
    pub fn parsed<T: std::str::FromStr<Err: Error>>(
        &mut self,
        name: &str,
    ) -> Result<Option<T>, Box<dyn Error>> {
        let Some(value) = self.option(name)? else { return Ok(None) };
        value.parse().map(Some).map_err(|error| self.usage_error(&format!("{name} {value}: {error}")))
    }

    /// The parsed value of this option, or of the environment variable of the same name: `PROBE_ADDRESS` for
    /// `--probe-address`. In a cluster, variables are easier to set than arguments.
    pub fn setting<T: std::str::FromStr<Err: Error>>(
        &mut self,
        name: &str,
    ) -> Result<Option<T>, Box<dyn Error>> {
        self.setting_from(name, |variable| std::env::var(variable).ok())
    }

    fn setting_from<T: std::str::FromStr<Err: Error>>(
        &mut self,
        name: &str,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<T>, Box<dyn Error>> {
        if let Some(value) = self.parsed(name)? {
            return Ok(Some(value));
        }
        let variable = name.trim_start_matches('-').replace('-', "_").to_uppercase();
        let Some(value) = environment(&variable).filter(|value| !value.is_empty()) else { return Ok(None) };
        value.parse().map(Some).map_err(|error| self.usage_error(&format!("{variable}={value}: {error}")))
    }

    /// The informer options set by `--namespace`.
    pub fn options(&mut self) -> Result<InformerOptions, Box<dyn Error>> {
        let namespace = self.option("--namespace")?;
        Ok(namespace.map_or_else(InformerOptions::default, |namespace| {
            InformerOptions::default().namespace(namespace)
        }))
    }

    /// The first positional argument; read the options before.
    pub fn value(&mut self, name: &str) -> Result<String, Box<dyn Error>> {
        let found = self.rest.iter().position(|argument| !argument.starts_with('-'));
        found.map(|at| self.rest.remove(at)).ok_or_else(|| self.usage_error(&format!("{name} is missing")))
    }

    /// Rejects arguments that were not read.
    pub fn end(&self) -> Result<(), Box<dyn Error>> {
        match self.rest.first() {
            Some(unknown) => Err(self.usage_error(&format!("unknown argument {unknown}"))),
            None => Ok(()),
        }
    }

    /// The client for the cluster of `--kubeconfig` or of the environment. Call it last: it rejects arguments
    /// that were not read.
    pub async fn client(self) -> Result<kube::Client, Box<dyn Error>> {
        self.end()?;
        let config = match self.kubeconfig {
            Some(path) => {
                let file = Kubeconfig::read_from(path)?;
                Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?
            }
            None => Config::infer().await.map_err(|error| {
                format!("no cluster found: {error} (set KUBECONFIG, or pass --kubeconfig PATH)")
            })?,
        };
        Ok(informer::client(config)?)
    }

    fn usage_error(&self, message: &str) -> Box<dyn Error> {
        format!("{message}\n\n{}", self.usage).into()
    }
}

/// A hint for an error, derived from the informer's state.
fn hint(error: &(dyn Error + 'static)) -> &'static str {
    let failed = error.downcast_ref::<SyncError>().and_then(|error| error.failed().next());
    match failed.map(|informer| &informer.state) {
        Some(InformerState::Forbidden { .. }) => {
            " (the user needs the verbs list and watch; --namespace NAME needs fewer rights)"
        }
        Some(InformerState::NotServed { .. }) => " (is its definition installed with this version?)",
        Some(InformerState::Connecting | InformerState::BackingOff { .. }) => {
            " (is the server running and reachable?)"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(line: &str) -> Arguments {
        Arguments::new("usage: test", line.split_whitespace().map(str::to_owned).collect()).unwrap()
    }

    #[test]
    fn options_may_precede_or_follow_the_positional_argument() {
        for line in ["pods --namespace shop --crd", "--crd --kubeconfig file --namespace shop pods"] {
            let mut arguments = arguments(line);
            assert!(arguments.flag("--crd"));
            assert_eq!(arguments.option("--namespace").unwrap().as_deref(), Some("shop"));
            assert_eq!(arguments.value("KIND").unwrap(), "pods");
            assert!(arguments.rest.is_empty());
        }
    }

    #[test]
    fn option_takes_precedence_over_the_environment() {
        let read = |line: &str, value: &'static str| {
            arguments(line).setting_from::<u16>("--probe-port", |variable| {
                assert_eq!(variable, "PROBE_PORT");
                Some(value.to_owned())
            })
        };
        assert_eq!(read("", "1").unwrap(), Some(1));
        assert_eq!(read("--probe-port 2", "1").unwrap(), Some(2));
        assert_eq!(read("", "").unwrap(), None);
        let wrong = read("", "x").unwrap_err().to_string();
        assert_eq!(wrong, "PROBE_PORT=x: invalid digit found in string\n\nusage: test");
    }

    #[tokio::test]
    async fn missing_or_unknown_arguments_are_errors_with_the_usage() {
        let missing = arguments("--namespace").options().err().unwrap();
        assert_eq!(missing.to_string(), "--namespace needs a value\n\nusage: test");
        let wrong = arguments("--port x").parsed::<u16>("--port").unwrap_err();
        assert_eq!(wrong.to_string(), "--port x: invalid digit found in string\n\nusage: test");
        let missing = arguments("").value("KIND").unwrap_err();
        assert_eq!(missing.to_string(), "KIND is missing\n\nusage: test");
        let unknown = arguments("--kubeconfig a --nope").client().await.err().unwrap();
        assert_eq!(unknown.to_string(), "unknown argument --nope\n\nusage: test");
    }

    /// Regression: a leading scheduler was stopped by SIGTERM, as every pod is, and did not release its
    /// lease; the next one waited until it had expired. Only Ctrl-C was handled.
    #[cfg(unix)]
    #[tokio::test]
    async fn sigterm_completes_the_stop_signal() {
        let mut stopped = std::pin::pin!(stop_signal());
        // The first poll installs the signal handler.
        assert!(tokio::time::timeout(std::time::Duration::ZERO, &mut stopped).await.is_err());
        let kill = format!("kill -TERM {}", std::process::id());
        assert!(std::process::Command::new("sh").args(["-c", &kill]).status().unwrap().success());
        tokio::time::timeout(std::time::Duration::from_secs(60), stopped).await.unwrap();
    }
}
