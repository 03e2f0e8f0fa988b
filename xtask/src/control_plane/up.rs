//! `up`: starts etcd and kube-apiserver in the background, and waits until the server answers.
//!
//! Either everything runs in the end, or nothing does and the state folder is gone: every failure on the way, a signal
//! too, takes back what was begun.

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

/// The name of the file in which etcd says where it listens.
pub(super) const ETCD_ADDRESS: &str = "etcd.address";

const ETCD: &str = "etcd";
const APISERVER: &str = "kube-apiserver";

/// How long a server may take to be ready, on a machine that has other work.
const READY: Duration = Duration::from_mins(3);

/// How many ports are tried when others take them first.
const PORTS: usize = 5;

/// How often a server is started again at a port that others have for a moment.
const RESTARTS: usize = 10;

/// What to do about something that is up and of no use.
const ADVICE: &str = "run `cargo xtask control-plane down` first";

/// How many lines of a log are shown.
const LOG_LINES: usize = 15;

/// Fails if something else than that build is up: asked before a build that could not be used anyway.
pub(super) fn check_build(folder: &StateFolder, wanted: &str) -> Result<(), Failure> {
    match folder.load()? {
        Some(state) if state.build != wanted && state.condition(Process::is_alive) == Condition::Up => {
            Err(Failure::Failed(format!("{} is up and {wanted} is wanted: {ADVICE}", state.build)))
        }
        _ => Ok(()),
    }
}

/// Makes sure that it is up; gives back the kubeconfig.
pub(super) fn up(
    folder: &StateFolder,
    programs: &Programs,
    interrupt: &Interrupt,
) -> Result<PathBuf, Failure> {
    if let Some(state) = folder.load()? {
        match state.condition(Process::is_alive) {
            Condition::Up => return found_up(folder, programs),
            Condition::Stale(reason) => {
                info(&format!("{} is stale: {reason}; starting anew", folder.path().display()));
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
    if !answers(folder, programs) {
        let log = folder.file("kube-apiserver.log");
        return Err(Failure::Failed(format!(
            "it is up and does not answer (see {}): {ADVICE}",
            log.display()
        )));
    }
    info("it is up already");
    Ok(folder.kubeconfig())
}

/// Whether the server says to the admin that it is ready. kubectl asks, so the kubeconfig is tried with it.
fn answers(folder: &StateFolder, programs: &Programs) -> bool {
    let status = Command::new(programs.path("kubectl"))
        .arg("--kubeconfig")
        .arg(folder.kubeconfig())
        .args(["--request-timeout=10s", "get", "--raw=/readyz"])
        // The preferences of the person are for the person.
        .env("KUBERC", "off")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

/// A start under way. `state` names everything that was started, and is recorded each time it changes.
pub(super) struct Start<'a> {
    folder: &'a StateFolder,
    programs: &'a Programs,
    interrupt: &'a Interrupt,
    state: State,
}

/// A program that was just started.
struct Started {
    child: Child,
    /// Where its words begin in the log.
    log_offset: usize,
}

/// How waiting for a server ended.
enum Outcome<T> {
    Ready(T),
    /// It ended by itself, with these words.
    Ended(String),
}

impl<'a> Start<'a> {
    /// One for servers of which some or all run already.
    pub(super) fn resumed(
        folder: &'a StateFolder,
        programs: &'a Programs,
        interrupt: &'a Interrupt,
        state: State,
    ) -> Self {
        Self { folder, programs, interrupt, state }
    }

    /// Ends the API server without asking it, as a machine that fails does. One that is gone is no failure.
    pub(super) fn kill_apiserver(&self) -> Result<(), Failure> {
        self.recorded(APISERVER).try_for_each(Process::kill)
    }

    /// Asks etcd to end.
    pub(super) fn stop_etcd(&self) -> Result<(), Failure> {
        self.recorded(ETCD).try_for_each(Process::stop)
    }

    /// Starts etcd with the data that it finds.
    pub(super) fn restart_etcd(&mut self) -> Result<(), Failure> {
        self.start_etcd().map(drop)
    }

    /// Starts the API server again: at its old address, which clients know, and with the etcd that runs now.
    pub(super) fn restart_apiserver(&mut self) -> Result<(), Failure> {
        let kubeconfig = read_lossy(&self.folder.kubeconfig());
        let port = config::port(&kubeconfig)
            .ok_or_else(|| Failure::Failed("the kubeconfig names no port".to_owned()))?;
        let etcd = read_lossy(&self.folder.file(ETCD_ADDRESS));
        let (folder, programs) = (self.folder, self.programs);
        let mut log = String::new();
        // Somebody who calls from this very port has it for a moment: a client that tried to reach the server may be given it.
        for _ in 0..RESTARTS {
            let started = self.start(APISERVER, self.apiserver(etcd.trim(), port))?;
            match self.wait(APISERVER, started, || answers(folder, programs).then_some(()))? {
                Outcome::Ready(()) => return Ok(()),
                Outcome::Ended(said) if config::is_port_taken(&said) => log = said,
                Outcome::Ended(said) => return Err(ended(APISERVER, &said)),
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
            "logs and data are in {}; end it with `cargo xtask control-plane down`",
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

    /// Gives back where etcd listens.
    fn start_etcd(&mut self) -> Result<String, Failure> {
        let address = self.folder.file(ETCD_ADDRESS);
        // What an earlier one has said is true no more.
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

    /// Gives back the port.
    ///
    /// The server must be told its port, so one that is free is looked for; another program may take it before the
    /// server does. That race is worth another try, any other end is not.
    fn start_apiserver(&mut self, etcd: &str, tokens: &Tokens) -> Result<u16, Failure> {
        let mut log = String::new();
        for _ in 0..PORTS {
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
                answers(folder, programs).then_some(())
            })?;
            match outcome {
                Outcome::Ready(()) => return Ok(port),
                Outcome::Ended(said) if config::is_port_taken(&said) => {
                    info(&format!("port {port} was taken meanwhile; trying another"));
                    log = said;
                }
                Outcome::Ended(said) => return Err(ended(APISERVER, &said)),
            }
        }
        Err(ended(APISERVER, &log))
    }

    fn apiserver(&self, etcd: &str, port: u16) -> Command {
        let mut command = Command::new(self.programs.path(APISERVER));
        command.args(config::apiserver_args(self.folder.path(), etcd, port));
        command
    }

    /// Starts a program in the background, and records it at once, in place of one of its name that has ended.
    fn start(&mut self, name: &str, mut command: Command) -> Result<Started, Failure> {
        info(&format!("starting {name}"));
        command.current_dir(self.folder.path());
        let said_from = fs::metadata(self.log(name)).map_or(0, |log| usize::try_from(log.len()).unwrap_or(0));
        let (process, child) = Process::start(name, command, &self.log(name))?;
        self.state.processes.retain(|process| process.name != name || process.is_alive());
        self.state.processes.push(process);
        if let Err(failure) = self.folder.save(&self.state) {
            // Nobody could find it later.
            build::end(&child);
            return Err(failure);
        }
        Ok(Started { child, log_offset: said_from })
    }

    /// Waits until `ready` has an answer or the process ends.
    fn wait<T>(
        &self,
        name: &str,
        started: Started,
        mut ready: impl FnMut() -> Option<T>,
    ) -> Result<Outcome<T>, Failure> {
        let Started { mut child, log_offset: said_from } = started;
        let outcome = self.interrupt.wait_for(READY, || {
            // Looked at first: whatever answers when it has ended is somebody else.
            match child.try_wait() {
                Ok(None) => Ok(ready().map(Outcome::Ready)),
                Ok(Some(_)) => Ok(Some(Outcome::Ended(self.log_since(name, said_from)))),
                Err(error) => Err(failed(&format!("cannot wait for {name}"), &error)),
            }
        })?;
        outcome.ok_or_else(|| {
            let said = last_lines(&self.log_since(name, said_from));
            let seconds = READY.as_secs();
            Failure::Failed(format!("{name} is not ready after {seconds} seconds; it said last:\n{said}"))
        })
    }

    fn log(&self, name: &str) -> PathBuf {
        self.folder.file(&format!("{name}.log"))
    }

    /// What is in its log from there on.
    fn log_since(&self, name: &str, from: usize) -> String {
        let log = fs::read(self.log(name)).unwrap_or_default();
        String::from_utf8_lossy(log.get(from..).unwrap_or_default()).into_owned()
    }
}

fn read_lossy(file: &Path) -> String {
    fs::read(file).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

fn ended(name: &str, log: &str) -> Failure {
    Failure::Failed(format!("{name} ended before it was ready; it said last:\n{}", last_lines(log)))
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
    fn a_failure_shows_the_end_of_the_log() {
        let log: Vec<String> = (0..100).map(|line| format!("line {line}")).collect();
        let Failure::Failed(reason) = ended("etcd", &log.join("\n")) else { panic!("a usage error") };
        assert!(reason.starts_with("etcd ended before it was ready; it said last:\nline 85\n"), "{reason}");
        assert!(reason.ends_with("\nline 99"));
        assert_eq!(last_lines(""), "");
    }

    #[test]
    fn secrets_differ() {
        assert_ne!(random().ok(), random().ok());
    }
}
