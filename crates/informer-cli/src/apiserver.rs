//! `informer apiserver`: the embedded server on a socket, for kubectl and any other client.

use crate::args::Apiserver;
use crate::cluster::counted;
use crate::demo;
use crate::failure::{Failure, chain};
use crate::talk::Talk;
use crate::watch::stop_signal;
use informer_apiserver::{ApiServer, Listen, ListenError, Listening, Overwrite};
use std::path::Path;

/// Runs it until Ctrl-C.
pub(crate) async fn run(args: Apiserver) -> Result<(), Failure> {
    let talk = Talk::new();
    let server = ApiServer::builder().seed(demo::any_seed()).build();
    let stop = stop_signal(&talk)?;
    let how = Listen::https().address(args.address).port(args.port);
    let listening = server.listen(how).await.map_err(|error| failure(&error))?;
    let overwrite = if args.force { Overwrite::Yes } else { Overwrite::No };
    listening.write_kubeconfig(&args.kubeconfig, overwrite).map_err(|error| failure(&error))?;
    let written = content(&args.kubeconfig);
    let demo = args.demo.map(|pods| demo::start(&server, pods));
    greet(&talk, &listening, &args);
    stop.await;
    drop(demo);
    listening.shutdown().await;
    if written.is_some() && content(&args.kubeconfig) == written {
        // It leads nowhere any more. What cannot be removed stays; --force replaces it.
        drop(std::fs::remove_file(&args.kubeconfig));
    }
    talk.say("stopped");
    Ok(())
}

/// What a file holds, if it is one: a pipe would be waited for.
fn content(path: &Path) -> Option<Vec<u8>> {
    std::fs::symlink_metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    std::fs::read(path).ok()
}

/// Says where it is and how to get there; the token is in the file alone.
fn greet(talk: &Talk, listening: &Listening, args: &Apiserver) {
    let cluster =
        args.demo.map(|pods| format!(" with a demo cluster of about {}", counted(pods))).unwrap_or_default();
    talk.say(&format!("serving Kubernetes{cluster} at {}; Ctrl-C ends it", listening.url()));
    if !args.address.is_loopback() {
        talk.warn("other machines can reach it; whoever has the kubeconfig is its administrator");
    }
    talk.say(&format!("try: kubectl --kubeconfig {} get pods -A", quoted(&args.kubeconfig)));
}

/// A path as a shell takes it.
fn quoted(path: &Path) -> String {
    let path = path.display().to_string();
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+:@%".contains(letter);
    if !path.is_empty() && path.chars().all(plain) {
        path
    } else {
        format!("'{}'", path.replace('\'', r"'\''"))
    }
}

fn failure(error: &ListenError) -> Failure {
    match error {
        ListenError::InUse { address } => Failure::new(
            format!("{address} is in use"),
            "choose another with --port; 0 means any that is free",
        ),
        ListenError::KubeconfigExists { path } => Failure::new(
            format!("the file {} is there already", path.display()),
            "--force replaces it, --kubeconfig FILE takes another",
        ),
        error => Failure::new(chain(error), ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_quoted_where_a_shell_needs_it() {
        for (path, expected) in [("/tmp/k", "/tmp/k"), ("a b", "'a b'"), ("it's", r"'it'\''s'"), ("", "''")] {
            assert_eq!(quoted(Path::new(path)), expected);
        }
    }
}
