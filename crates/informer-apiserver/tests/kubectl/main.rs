//! Runs `kubectl` against the server: terminal transcripts recorded with kube-apiserver 1.36.4.
//!
//! A transcript is a text file in this folder: commands (`$ kubectl …`), their input (`> …`) and their output. The
//! same commands run against the embedded server must produce the same output. To record all of them anew with one
//! server:
//!
//!     INFORMER_KUBECTL_RECORD=$(cargo xtask control-plane up) cargo test -p informer-apiserver --test kubectl
//!
//! `kubectl` is the program that `INFORMER_KUBECTL` names, the one built by `cargo xtask control-plane kubectl`, or one on the
//! PATH. These tests build nothing: without a `kubectl` they print a notice and pass.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod program;
mod transcript;
mod watch;

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use informer_apiserver::{ApiServer, ListenOptions, Overwrite, RunningServer, User};
use program::Kubectl;
use similar::TextDiff;

/// Token of a user without permissions.
const LIMITED: &str = "limited";

/// Transcripts that differ from kube-apiserver on purpose: there are no kubelets, no descriptions of built-in fields, and
/// no difference of Go structs after the rejection of a pod update (`refused`).
const OWN: &[&str] = &["fields", "not_served", "refused"];

macro_rules! transcripts {
    ($($name:ident),* $(,)?) => {$(
        #[tokio::test]
        async fn $name() {
            check(stringify!($name)).await;
        }
    )*};
}

transcripts! {
    access, apply, changes, create, custom, delete, describe, discovery, fields, get, nodes, not_served, refused, rollout,
    server_side, wait,
}

/// Runs the commands of a transcript and compares or records the output.
async fn check(name: &str) {
    let Some(program) = program::find().await else { return };
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/kubectl/{name}.txt"));
    let expected = fs::read_to_string(&file).unwrap();
    let record = env::var_os("INFORMER_KUBECTL_RECORD");
    let stage = Fixture::set(program, record.clone().filter(|_| !OWN.contains(&name))).await;
    let seen = transcript::play(&expected, &stage.kubectl).await;
    if record.is_some() {
        fs::write(&file, seen).unwrap();
    } else if seen != expected {
        let diff = TextDiff::from_lines(&expected, &seen);
        panic!(
            "{name}.txt: - is kube-apiserver, + is this server\n{}",
            diff.unified_diff().context_radius(4)
        );
    }
}

/// A `kubectl` with a server and a temporary folder.
struct Fixture {
    kubectl: Kubectl,
    folder: PathBuf,
    _listening: Option<RunningServer>,
}

impl Fixture {
    /// Uses the server of a kubeconfig, or starts one.
    async fn set(program: PathBuf, kubeconfig: Option<OsString>) -> Fixture {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = env::temp_dir().join(format!("informer-kubectl-{}-{count}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        if let Some(kubeconfig) = kubeconfig {
            let kubectl = Kubectl { program, home: folder.clone(), kubeconfig };
            return Fixture { kubectl, folder, _listening: None };
        }
        let limited = User::new("limited").uid("limited-user").group("");
        let listening = ApiServer::new().listen(ListenOptions::https().user(LIMITED, limited)).await.unwrap();
        let (admin, other) = (folder.join("admin"), folder.join("limited"));
        listening.write_kubeconfig(&admin, Overwrite::No).unwrap();
        fs::write(&other, limited_kubeconfig()).unwrap();
        let kubeconfig = env::join_paths([admin, other]).unwrap();
        let kubectl = Kubectl { program, home: folder.clone(), kubeconfig };
        Fixture { kubectl, folder, _listening: Some(listening) }
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        // A leftover in the folder of temporary files is harmless.
        let _gone = fs::remove_dir_all(&self.folder);
    }
}

/// Adds a second context to the kubeconfig of a server.
fn limited_kubeconfig() -> String {
    format!(
        "apiVersion: v1\nkind: Config\nusers:\n- name: limited\n  user:\n    token: {LIMITED}\ncontexts:\n- name: \
         limited\n  context:\n    cluster: informer\n    user: limited\n"
    )
}
