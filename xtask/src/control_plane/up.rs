//! `up`: starts etcd and kube-apiserver in the background and waits until the server is ready.
//!
//! In the end, either everything is running, or nothing is and the state folder is removed: every failure,
//! including a signal, ends the processes that were started.

use std::env;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::build::{self, Programs};
use super::config::{self, Tokens};
use super::interrupt::Interrupt;
use super::process::Process;
use super::state::{Condition, DATA, KUBECONFIG, State, StateFolder};
use super::{failed, info};
use crate::failure::Failure;

/// File to which etcd writes its address, in the state folder.
pub(super) const ETCD_ADDRESS: &str = "etcd.address";

const ETCD: &str = "etcd";
const APISERVER: &str = "kube-apiserver";

/// Environment variable with other feature gates of kube-apiserver than [`config::FEATURE_GATES`].
const FEATURE_GATES: &str = "INFORMER_CONTROL_PLANE_FEATURE_GATES";

/// Time limit until a server is ready, on a busy machine.
const READY_TIMEOUT: Duration = Duration::from_secs(180);

/// Number of ports that are tried if other processes take them.
const MAX_PORTS: usize = 5;

/// Number of restarts at a port that another process uses for a short time.
const MAX_RESTARTS: usize = 10;

/// Advice for a control plane that is up and not usable.
const HINT: &str = "run `cargo xtask control-plane down` first";

/// Number of lines of a log that are shown.
const LOG_LINES: usize = 15;

/// Fails if a control plane of another build is up. Checked before the build, which would be useless then.
pub(super) fn check_build(folder: &StateFolder, wanted: &str) -> Result<(), Failure> {
    match folder.load()? {
        Some(state) if state.build != wanted && state.condition(Process::is_alive) == Condition::Up => {
            Err(Failure::Failed(format!("{} is running, but {wanted} is needed ({HINT})", state.build)))
        }
        _ => Ok(()),
    }
}

/// Starts the control plane unless it is up; returns the path of the kubeconfig.
pub(super) fn up(
    folder: &StateFolder,
    programs: &Programs,
    interrupt: &Interrupt,
) -> Result<PathBuf, Failure> {
    if let Some(state) = folder.load()? {
        match state.condition(Process::is_alive) {
            Condition::Up => return found_up(folder, programs),
            Condition::Stale(reason) => {
                info(&format!("{} is stale: {reason}; starting again", folder.path().display()));
                folder.clear(&state)?;
            }
        }
    }
    folder.create()?;
    let mut start = Start { folder, programs, interrupt, state: State::default() };
    match start.run() {
        Ok(()) => Ok(folder.kubeconfig()),
        Err(failure) => {
            if let Err(also) = folder.clear(&start.state) {
                info(&format!("error: {}", also.message()));
            }
            Err(failure)
        }
    }
}

fn found_up(folder: &StateFolder, programs: &Programs) -> Result<PathBuf, Failure> {
    if !is_ready(folder, programs) {
        let log = folder.file("kube-apiserver.log");
        return Err(Failure::Failed(format!(
            "the control plane is up but not ready, see {} ({HINT})",
            log.display()
        )));
    }
    info("the control plane is already up");
    Ok(folder.kubeconfig())
}

/// Returns whether the server reports that it is ready. Uses kubectl, so that the kubeconfig is tested too.
fn is_ready(folder: &StateFolder, programs: &Programs) -> bool {
    let status = Command::new(programs.path("kubectl"))
        .arg("--kubeconfig")
        .arg(folder.kubeconfig())
        .args(["--request-timeout=10s", "get", "--raw=/readyz"])
        // The preferences of the user must not affect the call.
        .env("KUBERC", "off")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

/// The start of a control plane. `state` contains every started process and is saved after each change.
pub(super) struct Start<'a> {
    folder: &'a StateFolder,
    programs: &'a Programs,
    interrupt: &'a Interrupt,
    state: State,
}

/// A program that was just started.
struct Started {
    child: Child,
    /// Length of its log before the start.
    log_offset: usize,
}

/// The result of waiting for a server.
enum Outcome<T> {
    Ready(T),
    /// The server ended; contains its log.
    Ended(String),
}

impl<'a> Start<'a> {
    /// Continues with servers of which some or all are running.
    pub(super) fn resumed(
        folder: &'a StateFolder,
        programs: &'a Programs,
        interrupt: &'a Interrupt,
        state: State,
    ) -> Self {
        Self { folder, programs, interrupt, state }
    }

    /// Kills the API server, as in a machine failure. Succeeds if it has already ended.
    pub(super) fn kill_apiserver(&self) -> Result<(), Failure> {
        self.recorded(APISERVER).try_for_each(Process::kill)
    }

    /// Stops etcd.
    pub(super) fn stop_etcd(&self) -> Result<(), Failure> {
        self.recorded(ETCD).try_for_each(Process::stop)
    }

    /// Starts etcd with its existing data.
    pub(super) fn restart_etcd(&mut self) -> Result<(), Failure> {
        self.start_etcd().map(drop)
    }

    /// Starts the API server again, at its old address and with the current etcd.
    pub(super) fn restart_apiserver(&mut self) -> Result<(), Failure> {
        let kubeconfig = read_lossy(&self.folder.kubeconfig());
        let port = config::port(&kubeconfig)
            .ok_or_else(|| Failure::Failed("the kubeconfig contains no port".to_owned()))?;
        let etcd = read_lossy(&self.folder.file(ETCD_ADDRESS));
        let (folder, programs) = (self.folder, self.programs);
        let mut log = String::new();
        // The port may be in use for a short time, for example as the source port of a client that tried to
        // connect.
        for _ in 0..MAX_RESTARTS {
            let started = self.start(APISERVER, self.apiserver(etcd.trim(), port))?;
            match self.wait(APISERVER, started, || is_ready(folder, programs).then_some(()))? {
                Outcome::Ready(()) => return Ok(()),
                Outcome::Ended(output) if config::is_port_taken(&output) => log = output,
                Outcome::Ended(output) => return Err(ended(APISERVER, &output)),
            }
        }
        Err(ended(APISERVER, &log))
    }

    fn recorded(&self, name: &'static str) -> impl Iterator<Item = &Process> {
        self.state.processes.iter().filter(move |process| process.name == name)
    }

    fn run(&mut self) -> Result<(), Failure> {
        self.programs.build_name().clone_into(&mut self.state.build);
        self.folder.save(&self.state)?;
        let tokens = Tokens::from_random(random()?, random()?);
        self.folder.write(config::TOKEN_FILE, &tokens.file())?;
        self.folder.write(config::ACCOUNT_KEY, &self.account_key()?)?;
        let etcd = self.start_etcd()?;
        let port = self.start_apiserver(&etcd, &tokens)?;
        self.state.ready = true;
        self.folder.save(&self.state)?;
        info(&format!(
            "kube-apiserver at https://127.0.0.1:{port}, etcd at {etcd}; contexts: admin, limited"
        ));
        info(&format!(
            "logs and data are in {}; stop it with `cargo xtask control-plane down`",
            self.folder.path().display()
        ));
        Ok(())
    }

    fn account_key(&self) -> Result<String, Failure> {
        let output = Command::new(self.programs.path("keygen")).output();
        let output = output.map_err(|error| failed("cannot run keygen", &error))?;
        if !output.status.success() {
            return Err(failed("keygen", &String::from_utf8_lossy(&output.stderr)));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Starts etcd and returns its address.
    fn start_etcd(&mut self) -> Result<String, Failure> {
        let address = self.folder.file(ETCD_ADDRESS);
        // The address of an earlier etcd is no longer valid.
        match fs::remove_file(&address) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed(&format!("cannot remove {}", address.display()), &error));
            }
            _ => {}
        }
        let mut command = Command::new(self.programs.path(ETCD));
        command.arg(self.folder.file(DATA)).arg(&address);
        let started = self.start(ETCD, command)?;
        let ready = || fs::read_to_string(&address).ok().map(|address| address.trim().to_owned());
        match self.wait(ETCD, started, ready)? {
            Outcome::Ready(address) => Ok(address),
            Outcome::Ended(log) => Err(ended(ETCD, &log)),
        }
    }

    /// Starts the API server and returns its port.
    ///
    /// The server needs a fixed port, so a free one is chosen before the start; another process may take it
    /// first. Only this conflict is retried.
    fn start_apiserver(&mut self, etcd: &str, tokens: &Tokens) -> Result<u16, Failure> {
        let mut log = String::new();
        for _ in 0..MAX_PORTS {
            let port = free_port()?;
            let started = self.start(APISERVER, self.apiserver(etcd, port))?;
            let chain = self.folder.file(config::CERTIFICATES).join("apiserver.crt");
            let kubeconfig = || {
                let chain = fs::read_to_string(&chain).ok()?;
                Some(config::kubeconfig(port, config::authority(&chain)?, tokens))
            };
            let mut written = false;
            let (folder, programs) = (self.folder, self.programs);
            let outcome = self.wait(APISERVER, started, || {
                if !written {
                    written = folder.write(KUBECONFIG, &kubeconfig()?).is_ok();
                }
                is_ready(folder, programs).then_some(())
            })?;
            match outcome {
                Outcome::Ready(()) => return Ok(port),
                Outcome::Ended(output) if config::is_port_taken(&output) => {
                    info(&format!("port {port} was taken by another process; trying another port"));
                    log = output;
                }
                Outcome::Ended(output) => return Err(ended(APISERVER, &output)),
            }
        }
        Err(ended(APISERVER, &log))
    }

    fn apiserver(&self, etcd: &str, port: u16) -> Command {
        let mut command = Command::new(self.programs.path(APISERVER));
        let gates = env::var(FEATURE_GATES).unwrap_or_else(|_| config::FEATURE_GATES.to_owned());
        command.args(config::apiserver_args(self.folder.path(), etcd, port, &gates));
        command
    }

    /// Starts a program in the background and records it, replacing an ended process of the same name.
    fn start(&mut self, name: &str, mut command: Command) -> Result<Started, Failure> {
        info(&format!("starting {name}"));
        command.current_dir(self.folder.path());
        let log_offset =
            fs::metadata(self.log(name)).map_or(0, |log| usize::try_from(log.len()).unwrap_or(0));
        let (process, child) = Process::start(name, command, &self.log(name))?;
        self.state.processes.retain(|process| process.name != name || process.is_alive());
        self.state.processes.push(process);
        if let Err(failure) = self.folder.save(&self.state) {
            // `down` could not find it.
            build::kill_group(&child);
            return Err(failure);
        }
        Ok(Started { child, log_offset })
    }

    /// Waits until `ready` returns a value or the process ends.
    fn wait<T>(
        &self,
        name: &str,
        started: Started,
        mut ready: impl FnMut() -> Option<T>,
    ) -> Result<Outcome<T>, Failure> {
        let Started { mut child, log_offset } = started;
        let outcome = self.interrupt.wait_for(READY_TIMEOUT, || {
            // Checked first: if the process has ended, another one may be ready at its address.
            match child.try_wait() {
                Ok(None) => Ok(ready().map(Outcome::Ready)),
                Ok(Some(_)) => Ok(Some(Outcome::Ended(self.log_since(name, log_offset)))),
                Err(error) => Err(failed(&format!("cannot wait for {name}"), &error)),
            }
        })?;
        outcome.ok_or_else(|| {
            let log = last_lines(&self.log_since(name, log_offset));
            let seconds = READY_TIMEOUT.as_secs();
            Failure::Failed(format!(
                "{name} is not ready after {seconds} seconds; last lines of its log:\n{log}"
            ))
        })
    }

    fn log(&self, name: &str) -> PathBuf {
        self.folder.file(&format!("{name}.log"))
    }

    /// Returns the log of a program from this offset.
    fn log_since(&self, name: &str, offset: usize) -> String {
        let log = fs::read(self.log(name)).unwrap_or_default();
        String::from_utf8_lossy(log.get(offset..).unwrap_or_default()).into_owned()
    }
}

fn read_lossy(file: &Path) -> String {
    fs::read(file).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

fn ended(name: &str, log: &str) -> Failure {
    Failure::Failed(format!("{name} ended before it was ready; last lines of its log:\n{}", last_lines(log)))
}

fn last_lines(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}

fn free_port() -> Result<u16, Failure> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(|error| failed("cannot find a free port", &error))
}

fn random() -> Result<[u8; 32], Failure> {
    let mut bytes = [0; 32];
    File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .map_err(|error| failed("cannot read /dev/urandom", &error))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_contains_the_end_of_the_log() {
        let log: Vec<String> = (0..100).map(|line| format!("line {line}")).collect();
        let Failure::Failed(reason) = ended("etcd", &log.join("\n")) else { panic!("not a failed command") };
        assert!(
            reason.starts_with("etcd ended before it was ready; last lines of its log:\nline 85\n"),
            "{reason}"
        );
        assert!(reason.ends_with("\nline 99"));
        assert_eq!(last_lines(""), "");
    }

    #[test]
    fn secrets_differ() {
        assert_ne!(random().ok(), random().ok());
    }
}
