//! Finding and running `kubectl`.
//!
//! Every run has a timeout and its own home folder, and ignores the user's settings.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, SystemTime};

use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};
use tokio::sync::OnceCell;

/// Time limit of a command, sufficient on a busy machine.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

/// Minor version with which the transcripts were recorded. Others have other options and messages, so they are not
/// taken from the PATH.
const RECORDED: u32 = 36;

/// A `kubectl` connected to one server.
pub(crate) struct Kubectl {
    pub(crate) program: PathBuf,
    /// Folder of its discovery cache.
    pub(crate) home: PathBuf,
    pub(crate) kubeconfig: OsString,
}

impl Kubectl {
    /// Runs a command and returns its output.
    pub(crate) async fn run(&self, args: &[String], input: &str) -> Output {
        let work = async {
            let mut child = self.start(args);
            let mut stdin = child.stdin.take().unwrap();
            // The command may exit without reading its input.
            let _unread = stdin.write_all(input.as_bytes()).await;
            drop(stdin);
            child.wait_with_output().await.unwrap()
        };
        let outcome = tokio::time::timeout(COMMAND_TIMEOUT, work).await;
        outcome.unwrap_or_else(|_| panic!("kubectl {args:?} hangs"))
    }

    /// Starts a command, which ends when its handle is dropped.
    pub(crate) fn start(&self, args: &[String]) -> Child {
        let path = env::var_os("PATH").unwrap_or_default();
        Command::new(&self.program)
            .args(args)
            .current_dir(&self.home)
            .env_clear()
            .envs([("PATH", path.as_os_str()), ("HOME", self.home.as_os_str()), ("TZ", OsStr::new("UTC"))])
            .env("TMPDIR", &self.home)
            .env("KUBECONFIG", &self.kubeconfig)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    }
}

/// Returns the `kubectl` to use, and prints which.
pub(crate) async fn find() -> Option<PathBuf> {
    static FOUND: OnceCell<Option<PathBuf>> = OnceCell::const_new();
    FOUND.get_or_init(choose).await.clone()
}

async fn choose() -> Option<PathBuf> {
    if let Some(named) = env::var_os("INFORMER_KUBECTL") {
        let (major, minor) =
            version(Path::new(&named)).await.expect("INFORMER_KUBECTL must name a working kubectl");
        notify(&format!("kubectl {major}.{minor}: {}", named.display()));
        return Some(named.into());
    }
    let on_path = env::var_os("PATH").unwrap_or_default();
    let on_path = env::split_paths(&on_path).map(|folder| folder.join("kubectl")).find(|file| file.is_file());
    for program in built().into_iter().chain(on_path) {
        if let Some((1, minor)) = version(&program).await
            && minor == RECORDED
        {
            notify(&format!("kubectl 1.{minor}: {}", program.display()));
            return Some(program);
        }
    }
    notify(&format!(
        "no kubectl found, tests skipped: build one with `cargo xtask control-plane kubectl` or put version 1.{RECORDED} on the PATH"
    ));
    None
}

/// Prints directly to stderr, because the test harness hides the output of passing tests.
fn notify(text: &str) {
    let _ignored = writeln!(std::io::stderr(), "{text}");
}

/// Returns the `kubectl` that `cargo xtask control-plane kubectl` built last.
fn built() -> Option<PathBuf> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    let builds = cache.join("informer/control-plane").read_dir().ok()?.flatten();
    let programs = builds.map(|build| build.path().join("kubectl")).filter(|file| file.is_file());
    programs
        .max_by_key(|file| file.metadata().and_then(|file| file.modified()).unwrap_or(SystemTime::UNIX_EPOCH))
}

async fn version(program: &Path) -> Option<(u32, u32)> {
    let run = Command::new(program)
        .args(["version", "--client", "-o", "json"])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(COMMAND_TIMEOUT, run).await.ok()?.ok()?;
    let response: Value = serde_json::from_slice(&output.stdout).ok()?;
    // The minor versions of some vendors end with a plus.
    let number =
        |field: &str| response["clientVersion"][field].as_str()?.trim_end_matches('+').parse::<u32>().ok();
    Some((number("major")?, number("minor")?))
}
