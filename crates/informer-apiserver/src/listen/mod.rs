//! The server on a socket: HTTPS with a certificate of its own, or plain HTTP, for clients in other processes.
//!
//! [`ListenOptions`] says how, [`RunningServer`] is the guard: while it lives the server answers, and when it is dropped or
//! [shut down](RunningServer::shutdown) watches end and connections are closed. Nothing is decided here about requests;
//! they go to the same service as those in process.

mod certificate;
mod connection;
mod kubeconfig;

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

/// How a server listens. By default on a free port of `127.0.0.1`, with access control and a random token for an administrator.
///
/// ```
/// use informer_apiserver::{ApiServer, ListenOptions};
/// use k8s_openapi::api::core::v1::Namespace;
/// use kube::Api;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = ApiServer::new();
/// let listening = server.listen(ListenOptions::https()).await?;
///
/// let namespaces: Api<Namespace> = Api::all(listening.client());
/// assert_eq!(namespaces.get("default").await?.metadata.name.as_deref(), Some("default"));
/// listening.shutdown().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use]
pub struct ListenOptions {
    tls: bool,
    address: IpAddr,
    port: u16,
    /// The administrator's; a random one if none is given.
    token: Option<String>,
    /// None where everybody may do everything.
    access: Option<AccessControl>,
}

impl ListenOptions {
    /// With TLS, by a certificate that is made for this server and signed by an authority of its own.
    pub fn https() -> Self {
        ListenOptions {
            tls: true,
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 0,
            token: None,
            access: Some(AccessControl::new()),
        }
    }

    /// Without TLS.
    pub fn http() -> Self {
        ListenOptions { tls: false, ..ListenOptions::https() }
    }

    /// On this address. Any but a loopback address lets other machines in.
    pub fn address(self, address: impl Into<IpAddr>) -> Self {
        ListenOptions { address: address.into(), ..self }
    }

    /// On this port; 0 is a free one.
    pub fn port(self, port: u16) -> Self {
        ListenOptions { port, ..self }
    }

    /// The administrator's token, instead of a random one.
    pub fn token(self, token: impl Into<String>) -> Self {
        ListenOptions { token: Some(token.into()), ..self }
    }

    /// Somebody else, who has this token, and the rights that roles and bindings in the server give them.
    pub fn user(self, token: impl Into<String>, user: User) -> Self {
        ListenOptions { access: self.access.map(|access| access.token(token, user)), ..self }
    }

    /// Whether requests without a token are those of `system:anonymous`, as they are by default. If not, they get 401.
    pub fn anonymous(self, allowed: bool) -> Self {
        ListenOptions { access: self.access.map(|access| access.anonymous(allowed)), ..self }
    }

    /// Without access control: whoever reaches the port may do everything.
    pub fn without_access_control(self) -> Self {
        ListenOptions { access: None, ..self }
    }
}

impl fmt::Debug for ListenOptions {
    /// Tokens are secrets.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = SocketAddr::new(self.address, self.port);
        let mut out = out.debug_struct("Listen");
        out.field("tls", &self.tls)
            .field("address", &address)
            .field("access", &self.access)
            .finish_non_exhaustive()
    }
}

/// Why a server does not listen, or a kubeconfig was not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// Somebody else listens there.
    #[error("{address} is in use: choose another port, or port 0 for a free one")]
    InUse {
        /// Where the server was to listen.
        address: SocketAddr,
    },
    /// The system does not let us listen there.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// Where the server was to listen.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// No certificate could be made.
    #[error("cannot make a certificate: {0}")]
    Certificate(String),
    /// The system has no random numbers for a token.
    #[error("cannot make a random token")]
    Token,
    /// No client could be made for the address.
    #[error("cannot make a client: {0}")]
    Client(#[source] Box<kube::Error>),
    /// There is a file already, and it was not to be replaced.
    #[error("{} exists: remove it, or allow to overwrite it", path.display())]
    KubeconfigExists {
        /// The file.
        path: PathBuf,
    },
    /// The file could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// Whether a file that is there may be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overwrite {
    /// It stays, and writing fails.
    No,
    /// It is replaced as a whole.
    Yes,
}

/// A server on its socket. Dropping this ends it soon, [`RunningServer::shutdown`] ends it and waits.
#[must_use = "the server stops listening when this is dropped"]
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
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its URL: `https://127.0.0.1:…`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The administrator's token.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// The certificate of the authority that signed the server's, in PEM; none without TLS.
    pub fn ca_pem(&self) -> Option<&str> {
        self.identity.as_ref().map(|identity| identity.ca_pem.as_str())
    }

    /// An administrator's client that talks to the server through its socket.
    pub fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// A kubeconfig for the administrator. It has the token in it.
    pub fn kubeconfig(&self) -> String {
        kubeconfig::text(&self.url, self.ca_pem(), &self.token)
    }

    /// Writes the kubeconfig to a file that only its owner can read.
    pub fn write_kubeconfig(&self, path: impl AsRef<Path>, overwrite: Overwrite) -> Result<(), ListenError> {
        kubeconfig::write(path.as_ref(), &self.kubeconfig(), overwrite)
    }

    /// Stops listening, ends watches, lets other answers finish for a few seconds, and closes all connections.
    pub async fn shutdown(self) {
        self.stop.send_replace(true);
        // It ends by itself; a panic in it is told by the runtime.
        let _ended = self.serving.await;
    }
}

impl fmt::Debug for RunningServer {
    /// The token is a secret.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Listening").field("url", &self.url).finish_non_exhaustive()
    }
}

impl ApiServer {
    /// Listens on a socket, until the guard is dropped. A server can listen on several, each with its own users.
    pub async fn listen(&self, how: ListenOptions) -> Result<RunningServer, ListenError> {
        let wanted = SocketAddr::new(how.address, how.port);
        let identity = if how.tls { Some(Identity::new(how.address)?) } else { None };
        let listener = TcpListener::bind(wanted).await.map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => ListenError::InUse { address: wanted },
            _ => ListenError::Bind { address: wanted, source },
        })?;
        let address =
            listener.local_addr().map_err(|source| ListenError::Bind { address: wanted, source })?;
        let token = how.token.map_or_else(random_token, Ok)?;
        let service = match how.access {
            Some(access) => self.service_with_access(access.token(&token, User::admin("admin").uid("admin"))),
            None => self.service(),
        };
        let scheme = if how.tls { "https" } else { "http" };
        let url = format!("{scheme}://{}", reachable(address));
        let client = client(&url, identity.as_ref(), &token)?;
        let stop = watch::Sender::new(false);
        let tls = identity.as_ref().map(|identity| identity.acceptor.clone());
        let serving = tokio::spawn(connection::serve(listener, tls, service, stop.subscribe()));
        Ok(RunningServer { address, url, token, identity, client, stop, serving })
    }
}

/// Where this machine reaches a server that listens on all addresses.
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
    // A proxy of the environment is not for a server of this process.
    config.proxy_url = None;
    kube::Client::try_from(config).map_err(failed)
}
