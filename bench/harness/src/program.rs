//! Client programs as child processes: one command per line of input, one response per line of output
//! (`bench/peers/README.md`).

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;

use crate::failure::Failure;
use crate::repo::Repo;

/// A measured client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Client {
    Informer,
    Go,
    KubeRs,
    Baseline,
}

impl Client {
    pub(super) const ALL: [Self; 4] = [Self::Informer, Self::Go, Self::KubeRs, Self::Baseline];

    /// Returns the name in result files.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Informer => "informer",
            Self::Go => "client_go",
            Self::KubeRs => "kube_rs",
            Self::Baseline => "baseline",
        }
    }

    /// Returns the name in tables and plots.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Informer => "informer",
            Self::Go => "client-go",
            Self::KubeRs => "kube-rs",
            Self::Baseline => "baseline",
        }
    }
}

/// The client programs.
pub(super) struct Programs {
    folder: PathBuf,
    /// `None` if Go is not installed.
    pub(super) client_go: Option<PathBuf>,
}

impl Programs {
    /// Builds all programs; the Go program only if Go is installed.
    pub(super) fn build(repo: &Repo) -> Result<Self, Failure> {
        let peers = ["-p", "peer-informer", "-p", "peer-kube-rs", "-p", "peer-baseline"];
        let args: Vec<&str> = ["build", "--release", "--locked"].into_iter().chain(peers).collect();
        repo.cargo_output(&args)?;
        let metadata = repo.cargo_output(&["metadata", "--no-deps", "--format-version=1"])?;
        let metadata: Value = serde_json::from_str(&metadata).map_err(|error| {
            Failure::Failed(format!("cannot parse the output of cargo metadata: {error}"))
        })?;
        let target = metadata["target_directory"].as_str().unwrap_or("target");
        let folder = Path::new(target).join("release");
        let client_go = build_go(&repo.path("bench/peers/client-go"), &folder.join("peer-client-go"))?;
        Ok(Self { folder, client_go })
    }

    pub(super) fn path(&self, client: Client) -> Option<PathBuf> {
        match client {
            Client::Informer => Some(self.folder.join("peer-informer")),
            Client::Go => self.client_go.clone(),
            Client::KubeRs => Some(self.folder.join("peer-kube-rs")),
            Client::Baseline => Some(self.folder.join("peer-baseline")),
        }
    }
}

fn build_go(module: &Path, program: &Path) -> Result<Option<PathBuf>, Failure> {
    let built = Command::new("go")
        .current_dir(module)
        // Reading the commit fails in a checkout that belongs to another user.
        .args(["build", "-buildvcs=false", "-o"])
        .arg(program)
        .arg(".")
        .status();
    match built {
        Ok(status) if status.success() => Ok(Some(program.to_owned())),
        Ok(status) => Err(Failure::Failed(format!("`go build` in {} failed: {status}", module.display()))),
        Err(_) => {
            eprintln!(
                "`go` is not on the PATH: client-go is skipped, and pods cannot be encoded as protobuf"
            );
            Ok(None)
        }
    }
}

/// A running program, killed on drop.
pub(super) struct Program {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Program {
    pub(super) fn start(path: &Path, kubeconfig: &Path) -> Result<Self, Failure> {
        let failed = || Failure::Failed(format!("cannot start {}", path.display()));
        let mut child = Command::new(path)
            .arg(kubeconfig)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|_| failed())?;
        let input = child.stdin.take().ok_or_else(failed)?;
        let output = BufReader::new(child.stdout.take().ok_or_else(failed)?);
        Ok(Self { child, input, output })
    }

    /// Sends a command and returns its response. A response with an error is a failure.
    pub(super) fn request(&mut self, command: &Value) -> Result<Value, Failure> {
        self.send(command)?;
        self.response()
    }

    pub(super) fn send(&mut self, command: &Value) -> Result<(), Failure> {
        writeln!(self.input, "{command}")
            .map_err(|error| Failure::Failed(format!("cannot send a command to the program: {error}")))
    }

    /// Waits for the next response.
    pub(super) fn response(&mut self) -> Result<Value, Failure> {
        let mut line = String::new();
        let read = self.output.read_line(&mut line);
        read.map_err(|error| Failure::Failed(format!("cannot read the response of the program: {error}")))?;
        let response: Value = serde_json::from_str(&line)
            .map_err(|_| Failure::Failed(format!("invalid response of the program: `{}`", line.trim())))?;
        match response["error"].as_str() {
            Some(reason) => Err(Failure::Failed(reason.to_owned())),
            None => Ok(response),
        }
    }

    /// Sends a signal, for example `STOP`.
    pub(super) fn signal(&self, name: &str) -> Result<(), Failure> {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status();
        match sent {
            Ok(status) if status.success() => Ok(()),
            _ => Err(Failure::Failed(format!("cannot send the signal {name} to the program"))),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // The program may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
