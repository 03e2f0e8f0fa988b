//! The server as `kubectl` sees it: transcripts of a terminal, recorded with a real kube-apiserver 1.36.4 behind it.
//!
//! A transcript is a text file beside this one: commands (`$ kubectl …`), what they read (`> …`), and what they say. Here the same
//! commands go to the embedded server, and it must look the same. Record them anew, one server for all of them, with
//!
//!     INFORMER_KUBECTL_RECORD=$(cargo xtask real up) cargo test -p informer-apiserver --test kubectl
//!
//! `kubectl` is the one that `INFORMER_KUBECTL` names, or that `cargo xtask real kubectl` has built, or one on the PATH. Nothing
//! is built for these tests: without one they say so and pass.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

mod program;
mod transcript;
mod watch;

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use informer_apiserver::{ApiServer, Listen, Listening, Overwrite, User};
use program::Kubectl;
use similar::TextDiff;

/// Whoever has this token is known and may nothing.
const LIMITED: &str = "limited";

/// Where this server knowingly says something else: it has no nodes to ask, and no descriptions of built-in fields.
const OWN: &[&str] = &["fields", "not_served"];

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

/// Plays a transcript, and compares or records what is said.
async fn check(name: &str) {
    let Some(program) = program::find().await else { return };
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/kubectl/{name}.txt"));
    let expected = fs::read_to_string(&file).unwrap();
    let record = env::var_os("INFORMER_KUBECTL_RECORD");
    let stage = Stage::set(program, record.clone().filter(|_| !OWN.contains(&name))).await;
    let seen = transcript::play(&expected, &stage.kubectl).await;
    if record.is_some() {
        fs::write(&file, seen).unwrap();
    } else if seen != expected {
        let diff = TextDiff::from_lines(&expected, &seen);
        panic!("{name}.txt: - is a real server, + is this one\n{}", diff.unified_diff().context_radius(4));
    }
}

/// A `kubectl` with a server, in a folder that goes away.
struct Stage {
    kubectl: Kubectl,
    folder: PathBuf,
    _listening: Option<Listening>,
}

impl Stage {
    /// With the server of a kubeconfig, or with one of its own.
    async fn set(program: PathBuf, kubeconfig: Option<OsString>) -> Stage {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = env::temp_dir().join(format!("informer-kubectl-{}-{count}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        if let Some(kubeconfig) = kubeconfig {
            let kubectl = Kubectl { program, home: folder.clone(), kubeconfig };
            return Stage { kubectl, folder, _listening: None };
        }
        let limited = User::new("limited").uid("limited-user").group("");
        let listening = ApiServer::new().listen(Listen::https().user(LIMITED, limited)).await.unwrap();
        let (admin, other) = (folder.join("admin"), folder.join("limited"));
        listening.write_kubeconfig(&admin, Overwrite::No).unwrap();
        fs::write(&other, limited_kubeconfig()).unwrap();
        let kubeconfig = env::join_paths([admin, other]).unwrap();
        let kubectl = Kubectl { program, home: folder.clone(), kubeconfig };
        Stage { kubectl, folder, _listening: Some(listening) }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // What is left in a folder for temporary files does no harm.
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
