//! The text of a kubeconfig, and writing it to a file.
//!
//! On Unix, only the owner can read the file from the moment of its creation. A new file is written in place;
//! an existing one is replaced by a complete file, so no reader sees a partial one.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::{ListenError, Overwrite, random_token};

/// Returns a kubeconfig with one cluster, one user and one context. Strings are quoted as in JSON, a subset
/// of YAML.
pub(super) fn text(url: &str, ca_pem: Option<&str>, token: &str) -> String {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let ca = ca_pem.map_or_else(String::new, |pem| {
        format!("    certificate-authority-data: {}\n", STANDARD.encode(pem))
    });
    let (url, token) = (quoted(url), quoted(token));
    format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: informer\n  cluster:\n    server: {url}\n{ca}users:\n- name: \
         admin\n  user:\n    token: {token}\ncontexts:\n- name: informer\n  context:\n    cluster: informer\n    user: \
         admin\n    namespace: default\ncurrent-context: informer\n"
    )
}

/// Writes the text to a file.
pub(super) fn write(path: &Path, text: &str, overwrite: Overwrite) -> Result<(), ListenError> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::AlreadyExists => ListenError::KubeconfigExists { path: path.to_owned() },
        _ => ListenError::Kubeconfig { path: path.to_owned(), source },
    };
    match overwrite {
        Overwrite::No => create(path, text).map_err(failed),
        Overwrite::Yes => {
            let failed = |source| ListenError::Kubeconfig { path: path.to_owned(), source };
            check_replaceable(path).map_err(failed)?;
            let temporary = temporary(path)?;
            create(&temporary, text).map_err(failed)?;
            std::fs::rename(&temporary, path).map_err(|source| {
                // The temporary file contains the token. If removing it fails too, the first error is the
                // useful one.
                let _removed = std::fs::remove_file(&temporary);
                failed(source)
            })
        }
    }
}

/// Rejects everything but regular files and symbolic links: overwriting `/dev/null` would replace the device.
fn check_replaceable(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(metadata) if !metadata.is_file() && !metadata.is_symlink() => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "exists and is not a regular file"))
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Returns a random name in the same directory.
fn temporary(path: &Path) -> Result<PathBuf, ListenError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    Ok(path.with_file_name(format!(".{name}.{}", random_token()?)))
}

fn create(path: &Path, text: &str) -> io::Result<()> {
    let mut file: File = owner_only(OpenOptions::new().write(true).create_new(true)).open(path)?;
    file.write_all(text.as_bytes())
}

#[cfg(unix)]
fn owner_only(options: &mut OpenOptions) -> &mut OpenOptions {
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600)
}

#[cfg(not(unix))]
fn owner_only(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}
