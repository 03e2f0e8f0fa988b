//! The server on a socket: HTTPS with a generated certificate, or plain HTTP, for clients in other processes.
//!
//! [`ListenOptions`] configures the socket. [`RunningServer`] is the guard: the server listens until the
//! guard is dropped or [shut down](RunningServer::shutdown); then watches end and connections are closed.
//! Requests are passed to an [`ApiService`](crate::ApiService); nothing about them is decided here.

mod activity;
mod certificate;
mod connection;
mod kubeconfig;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::{fmt, io};

use kube::config::AuthInfo;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::access::AccessControl;
use crate::server::ApiServer;
use crate::user::User;
use certificate::Identity;
use connection::ConnectionLimits;

/// Options of a server that listens on a socket.
///
/// By default the server listens on a free port of `127.0.0.1`, with access control and a random token for
/// the administrator, a member of `system:masters`.
///
/// ```
/// use informer_apiserver::{ApiServer, ListenOptions};
/// use k8s_openapi::api::core::v1::Namespace;
/// use kube::Api;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = ApiServer::new();
/// let running = server.listen(ListenOptions::https()).await?;
///
/// let namespaces: Api<Namespace> = Api::all(running.client());
/// assert_eq!(namespaces.get("default").await?.metadata.name.as_deref(), Some("default"));
/// running.shutdown().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use]
pub struct ListenOptions {
    tls: bool,
    address: IpAddr,
    port: u16,
    /// The administrator's token; random if `None`.
    token: Option<String>,
    /// `None` if every request has full access.
    access: Option<AccessControl>,
}

impl ListenOptions {
    /// Returns options with TLS. The certificate is generated for this server and signed by its own
    /// authority.
    pub fn https() -> Self {
        ListenOptions {
            tls: true,
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 0,
            token: None,
            access: Some(AccessControl::new()),
        }
    }

    /// Returns options without TLS.
    pub fn http() -> Self {
        ListenOptions { tls: false, ..ListenOptions::https() }
    }

    /// Sets the address. Any address but a loopback one is reachable from other machines.
    pub fn address(self, address: impl Into<IpAddr>) -> Self {
        ListenOptions { address: address.into(), ..self }
    }

    /// Sets the port; 0 selects a free one.
    pub fn port(self, port: u16) -> Self {
        ListenOptions { port, ..self }
    }

    /// Sets the administrator's token. Defaults to a random one.
    pub fn token(self, token: impl Into<String>) -> Self {
        ListenOptions { token: Some(token.into()), ..self }
    }

    /// Adds a user who authenticates with this token. RBAC roles and bindings in the server determine the
    /// user's permissions. No effect after [`without_access_control`](Self::without_access_control).
    pub fn user(self, token: impl Into<String>, user: User) -> Self {
        ListenOptions { access: self.access.map(|access| access.token(token, user)), ..self }
    }

    /// Sets whether requests without a token are accepted as user `system:anonymous`. Defaults to `true`.
    ///
    /// If `false`, such requests get 401. No effect after
    /// [`without_access_control`](Self::without_access_control).
    pub fn anonymous(self, allowed: bool) -> Self {
        ListenOptions { access: self.access.map(|access| access.anonymous(allowed)), ..self }
    }

    /// Disables access control: every client that reaches the port has full access.
    pub fn without_access_control(self) -> Self {
        ListenOptions { access: None, ..self }
    }
}

impl fmt::Debug for ListenOptions {
    /// Omits the tokens.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = SocketAddr::new(self.address, self.port);
        let mut out = out.debug_struct("ListenOptions");
        out.field("tls", &self.tls)
            .field("address", &address)
            .field("access", &self.access)
            .finish_non_exhaustive()
    }
}

/// An error while starting to listen or while writing a kubeconfig.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// The address is in use.
    #[error("listen on {address}: address in use (choose another port, or port 0 for a free one)")]
    InUse {
        /// The requested address.
        address: SocketAddr,
    },
    /// The operating system refused to listen on the address.
    #[error("listen on {address}: {source}")]
    Bind {
        /// The requested address.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The certificate could not be generated.
    #[error("generate certificate: {0}")]
    Certificate(String),
    /// The operating system provided no random numbers for a token.
    #[error("generate random token: no random numbers available")]
    Token,
    /// A client for the server could not be created.
    #[error("create client: {0}")]
    Client(#[source] Box<kube::Error>),
    /// The kubeconfig file exists and [`Overwrite::No`] was given.
    #[error("write kubeconfig: {}: file exists (remove it or allow overwriting)", path.display())]
    KubeconfigExists {
        /// The file.
        path: PathBuf,
    },
    /// The kubeconfig file could not be written.
    #[error("write kubeconfig: {}: {source}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// Whether an existing file may be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overwrite {
    /// Writing fails and the existing file stays.
    No,
    /// The existing file is replaced atomically.
    Yes,
}

/// A server that listens on a socket.
///
/// Dropping this value closes the socket and its connections in the background;
/// [`RunningServer::shutdown`] also waits until they are closed. Clients in this process are not affected.
#[must_use = "the server stops listening when this value is dropped"]
pub struct RunningServer {
    address: SocketAddr,
    url: String,
    token: String,
    identity: Option<Identity>,
    client: kube::Client,
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
}

impl RunningServer {
    /// Returns the address the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL, for example `https://127.0.0.1:40123`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the administrator's token.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Returns the certificate of the server's authority as PEM, or `None` without TLS.
    pub fn ca_pem(&self) -> Option<&str> {
        self.identity.as_ref().map(|identity| identity.ca_pem.as_str())
    }

    /// Returns a client with the administrator's token that connects through the socket.
    pub fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// Returns a kubeconfig for the administrator. It contains the token.
    pub fn kubeconfig(&self) -> String {
        kubeconfig::text(&self.url, self.ca_pem(), &self.token)
    }

    /// Writes the kubeconfig to a file that only its owner can read (mode 0600 on Unix).
    ///
    /// # Errors
    ///
    /// [`ListenError::KubeconfigExists`] if the file exists and `overwrite` is [`Overwrite::No`];
    /// [`ListenError::Kubeconfig`] if it cannot be written.
    pub fn write_kubeconfig(&self, path: impl AsRef<Path>, overwrite: Overwrite) -> Result<(), ListenError> {
        kubeconfig::write(path.as_ref(), &self.kubeconfig(), overwrite)
    }

    /// Stops listening and waits until all connections are closed.
    ///
    /// Responses that have nothing to send, such as idle watches, end immediately. All other responses have
    /// 5 s to finish; then their connections are aborted.
    pub async fn shutdown(self) {
        self.stop.send_replace(true);
        // The task cannot fail; the runtime reports a panic in it.
        let _ended = self.serving.await;
    }
}

impl fmt::Debug for RunningServer {
    /// Omits the token.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("RunningServer").field("url", &self.url).finish_non_exhaustive()
    }
}

impl ApiServer {
    /// Listens on a socket until the returned guard is dropped.
    ///
    /// A server can listen on several sockets, each with its own users.
    ///
    /// # Errors
    ///
    /// An address that is in use or not available, or a failure to create certificate, token or client.
    pub async fn listen(&self, options: ListenOptions) -> Result<RunningServer, ListenError> {
        let requested = SocketAddr::new(options.address, options.port);
        let identity = if options.tls { Some(Identity::new(options.address)?) } else { None };
        let listener = TcpListener::bind(requested).await.map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => ListenError::InUse { address: requested },
            _ => ListenError::Bind { address: requested, source },
        })?;
        let address =
            listener.local_addr().map_err(|source| ListenError::Bind { address: requested, source })?;
        let token = options.token.map_or_else(random_token, Ok)?;
        let service = match options.access {
            Some(access) => self.service_with_access(access.token(&token, User::admin("admin").uid("admin"))),
            None => self.service(),
        };
        let scheme = if options.tls { "https" } else { "http" };
        let url = format!("{scheme}://{}", reachable(address));
        let client = client(&url, identity.as_ref(), &token)?;
        let stop = watch::Sender::new(false);
        let limits = ConnectionLimits::default();
        let tls = identity.as_ref().map(|identity| identity.acceptor.clone());
        let serving = tokio::spawn(connection::serve(listener, tls, service, limits, stop.subscribe()));
        Ok(RunningServer { address, url, token, identity, client, stop, serving })
    }
}

/// Returns the address for clients on this machine: a server that listens on all addresses is reached through
/// the loopback address.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(std::net::Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

fn random_token() -> Result<String, ListenError> {
    let mut bytes = [0_u8; 16];
    let provider = rustls::crypto::ring::default_provider();
    provider.secure_random.fill(&mut bytes).map_err(|_| ListenError::Token)?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}

fn client(url: &str, identity: Option<&Identity>, token: &str) -> Result<kube::Client, ListenError> {
    let failed = |error: kube::Error| ListenError::Client(Box::new(error));
    let uri =
        url.parse().map_err(|error: http::uri::InvalidUri| failed(kube::Error::HttpError(error.into())))?;
    let mut config = kube::Config::new(uri);
    config.root_cert = identity.map(|identity| vec![identity.ca_der.clone()]);
    config.auth_info = AuthInfo { token: Some(token.to_owned().into()), ..AuthInfo::default() };
    // A proxy from the environment must not be used for a server in this process.
    config.proxy_url = None;
    kube::Client::try_from(config).map_err(failed)
}
