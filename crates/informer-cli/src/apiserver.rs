//! `informer apiserver`: the embedded server on a socket, for kubectl and any other client.

use crate::args::Apiserver;
use crate::cli_error::{CliError, chain};
use crate::cluster::format_pods;
use crate::demo;
use crate::terminal::Terminal;
use crate::watch::stop_signal;
use informer_apiserver::{ApiServer, ListenError, ListenOptions, Overwrite, RunningServer};
use std::path::Path;

/// Runs the server until Ctrl-C.
pub(crate) async fn run(args: Apiserver) -> Result<(), CliError> {
    let terminal = Terminal::new();
    let server = ApiServer::builder().seed(demo::any_seed()).build();
    let stop = stop_signal(&terminal)?;
    let options = ListenOptions::https().address(args.address).port(args.port);
    let listening = server.listen(options).await.map_err(|error| listen_error(&error))?;
    let demo = args.demo.size().map(|pods| demo::start(&server, pods)).transpose();
    let demo = demo.map_err(|_| CliError::no_threads())?;
    let overwrite = if args.overwrite { Overwrite::Yes } else { Overwrite::No };
    listening.write_kubeconfig(&args.kubeconfig, overwrite).map_err(|error| listen_error(&error))?;
    let written = content(&args.kubeconfig);
    greet(&terminal, &listening, &args);
    stop.await;
    drop(demo);
    listening.shutdown().await;
    if written.is_some() && content(&args.kubeconfig) == written {
        // The kubeconfig is useless without the server. If it cannot be removed, --overwrite replaces it.
        drop(std::fs::remove_file(&args.kubeconfig));
    }
    terminal.info("stopped");
    Ok(())
}

/// Returns the content of a regular file; reading a pipe would block.
fn content(path: &Path) -> Option<Vec<u8>> {
    std::fs::symlink_metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    std::fs::read(path).ok()
}

/// Prints the address and how to connect; the token is only in the file.
fn greet(terminal: &Terminal, listening: &RunningServer, args: &Apiserver) {
    let cluster = args
        .demo
        .size()
        .map(|pods| format!(" with a demo cluster of about {}", format_pods(pods)))
        .unwrap_or_default();
    terminal.info(&format!("serving Kubernetes{cluster} at {}; press Ctrl-C to stop", listening.url()));
    if !args.address.is_loopback() {
        terminal.warn("the server is reachable from other machines; the kubeconfig grants full access");
    }
    terminal.info(&format!("try: kubectl --kubeconfig {} get pods -A", quoted(&args.kubeconfig)));
}

/// Quotes a path for a shell.
fn quoted(path: &Path) -> String {
    let path = path.display().to_string();
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+:@%".contains(letter);
    if !path.is_empty() && path.chars().all(plain) {
        path
    } else {
        format!("'{}'", path.replace('\'', r"'\''"))
    }
}

fn listen_error(error: &ListenError) -> CliError {
    match error {
        ListenError::InUse { address } => CliError::new(
            format!("listen on {address}: address in use"),
            "choose another with --port; 0 selects a free one",
        ),
        ListenError::KubeconfigExists { path } => CliError::new(
            format!("write kubeconfig: {} already exists", path.display()),
            "use --overwrite, or --kubeconfig FILE for another file",
        ),
        error => CliError::new(chain(error), ""),
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
