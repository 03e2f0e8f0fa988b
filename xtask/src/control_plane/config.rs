//! The configuration of the servers: tokens, flags and the kubeconfig, as texts.
//!
//! Pure: secrets, ports and paths are parameters. Flags that affect responses are equal to those of the
//! server recorded in `testdata/recordings`, so that responses can be compared.

use std::fmt::Write as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The tokens of the users.
pub(super) struct Tokens {
    /// Token of a user with all permissions.
    pub(super) admin: String,
    /// Token of an authenticated user without permissions.
    pub(super) limited: String,
}

impl Tokens {
    /// Creates the tokens from random bytes.
    pub(super) fn from_random(admin: [u8; 32], limited: [u8; 32]) -> Self {
        Self { admin: hex(&admin), limited: hex(&limited) }
    }

    /// Returns the token file of the server: token, name, uid, groups. The last comma gives the limited user
    /// a group with an empty name, as in the recordings.
    pub(super) fn file(&self) -> String {
        let Self { admin, limited } = self;
        format!("{admin},admin,admin,system:masters\n{limited},limited,limited-user,\n")
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Files of the server, in the state folder.
pub(super) const TOKEN_FILE: &str = "tokens.csv";
pub(super) const ACCOUNT_KEY: &str = "service-account.key";
pub(super) const CERTIFICATES: &str = "certificates";

/// Feature gates of kube-apiserver. Disabled by default in 1.36; changes nothing for requests without the parameter
/// `shardSelector`.
pub(super) const FEATURE_GATES: &str = "ShardedListAndWatch=true";

/// Returns the arguments of kube-apiserver.
pub(super) fn apiserver_args(folder: &Path, etcd: &str, port: u16, feature_gates: &str) -> Vec<String> {
    let file = |name: &str| folder.join(name).display().to_string();
    let key = file(ACCOUNT_KEY);
    vec![
        format!("--etcd-servers={etcd}"),
        "--bind-address=127.0.0.1".to_owned(),
        // Otherwise the server would look for an address that other machines can reach.
        "--advertise-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        // The server creates its own certificate in this folder.
        format!("--cert-dir={}", file(CERTIFICATES)),
        format!("--token-auth-file={}", file(TOKEN_FILE)),
        format!("--service-account-key-file={key}"),
        format!("--service-account-signing-key-file={key}"),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        "--authorization-mode=RBAC".to_owned(),
        // No controller creates service accounts here, and pods must not wait for them.
        "--disable-admission-plugins=ServiceAccount".to_owned(),
        "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
        // As in most clusters, and as the embedded server behaves. Recorded responses do not depend on it.
        "--allow-privileged=true".to_owned(),
        // Tests decide when old versions expire.
        "--etcd-compaction-interval=0".to_owned(),
        "--event-ttl=2h".to_owned(),
        format!("--feature-gates={feature_gates}"),
    ]
}

/// Returns whether the log of an ended server shows that another process uses its port.
pub(super) fn is_port_taken(log: &str) -> bool {
    log.contains("address already in use")
}

/// Returns the certificate authority in the server's certificate file: the last certificate of a complete
/// chain.
pub(super) fn authority(chain: &str) -> Option<&str> {
    const END: &str = "-----END CERTIFICATE-----\n";
    let issuers = &chain[chain.find(END)? + END.len()..];
    let issuers = &issuers[..issuers.rfind(END)? + END.len()];
    issuers.rfind("-----BEGIN CERTIFICATE-----").map(|begin| &issuers[begin..])
}

/// Returns a kubeconfig with a context for each user.
pub(super) fn kubeconfig(port: u16, authority: &str, tokens: &Tokens) -> String {
    let Tokens { admin, limited } = tokens;
    let authority = STANDARD.encode(authority);
    format!(
        "\
apiVersion: v1
kind: Config
clusters:
- name: control-plane
  cluster:
    server: https://127.0.0.1:{port}
    certificate-authority-data: {authority}
users:
- name: admin
  user:
    token: \"{admin}\"
- name: limited
  user:
    token: \"{limited}\"
contexts:
- name: admin
  context:
    cluster: control-plane
    user: admin
- name: limited
  context:
    cluster: control-plane
    user: limited
current-context: admin
"
    )
}

/// Returns the port in a kubeconfig of [`kubeconfig`].
pub(super) fn port(kubeconfig: &str) -> Option<u16> {
    let server = kubeconfig.lines().find_map(|line| line.trim().strip_prefix("server: "))?;
    server.rsplit_once(':')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens() -> Tokens {
        Tokens::from_random([0x0a; 32], [0xff; 32])
    }

    #[test]
    fn token_file_has_admin_and_limited_user() {
        let (admin, limited) = ("0a".repeat(32), "ff".repeat(32));
        let expected = format!("{admin},admin,admin,system:masters\n{limited},limited,limited-user,\n");
        assert_eq!(tokens().file(), expected);
    }

    #[test]
    fn apiserver_args_contain_paths_and_recorded_flags() {
        let args = apiserver_args(Path::new("/s"), "http://127.0.0.1:1", 6443, "A=false");
        for flag in [
            "--etcd-servers=http://127.0.0.1:1",
            "--bind-address=127.0.0.1",
            "--secure-port=6443",
            "--cert-dir=/s/certificates",
            "--token-auth-file=/s/tokens.csv",
            "--service-account-signing-key-file=/s/service-account.key",
            "--authorization-mode=RBAC",
            "--disable-admission-plugins=ServiceAccount",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--allow-privileged=true",
            "--etcd-compaction-interval=0",
            "--event-ttl=2h",
            "--feature-gates=A=false",
        ] {
            assert!(args.iter().any(|arg| arg == flag), "{flag}");
        }
    }

    #[test]
    fn port_conflict_is_distinguished_from_other_failures() {
        let taken = "E0101 run.go:72] \"command failed\" err=\"failed to create listener: failed to listen on \
                     127.0.0.1:1: listen tcp 127.0.0.1:1: bind: address already in use\"";
        assert!(is_port_taken(taken));
        assert!(!is_port_taken("command failed: error creating self-signed certificates"));
    }

    #[test]
    fn authority_is_the_last_certificate_of_a_complete_chain() {
        let pem = |body: &str| format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n");
        let chain = pem("leaf") + &pem("authority");
        assert_eq!(authority(&chain), Some(pem("authority").as_str()));
        // The server may still be writing the file.
        for end in 0..chain.len() {
            assert_eq!(authority(&chain[..end]), None, "{end}");
        }
    }

    #[test]
    fn kubeconfig_has_a_context_for_each_user() {
        let text = kubeconfig(6443, "A", &tokens());
        assert!(text.contains("    server: https://127.0.0.1:6443\n    certificate-authority-data: QQ==\n"));
        // Quoted, because a token of digits and one `e` would be a number.
        assert!(text.contains(&format!("- name: limited\n  user:\n    token: \"{}\"\n", "ff".repeat(32))));
        assert!(
            text.contains("- name: limited\n  context:\n    cluster: control-plane\n    user: limited\n")
        );
        assert!(text.ends_with("current-context: admin\n"));
        assert_eq!((port(&text), port("")), (Some(6443), None));
    }
}
