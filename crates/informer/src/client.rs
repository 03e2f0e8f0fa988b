//! The recommended client: what `kube::Client::try_from` builds, without its hidden retry and with TCP keep-alive.
//!
//! Invariant: a client from here shows every answer of the server to its caller, 429, 503 and 504 included.
//!
//! It does not choose a TLS implementation: that is the application's, through cargo features. Nor does it read
//! kubeconfigs; `kube::Config` does.

use http::HeaderValue;
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::connect::{Connect, HttpConnector};
use hyper_util::rt::TokioExecutor;
use kube::client::{AuthError, ConfigExt as _};
use kube::config::AuthInfo;
use kube::{Client, Config};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;
use tower::{BoxError, ServiceBuilder};

/// An idle connection is probed after this long, then every [`KEEPALIVE_PERIOD`]: a dead peer is noticed within 75 s,
/// before the shortest silence deadline of a watch.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_PERIOD: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBES: u32 = 3;

/// Builds the client that informers work best with.
///
/// Against `kube::Client::try_from(config)`:
/// - 429, 503 and 504 are answers, not reasons to retry inside the client, whatever `config.default_retry` says:
///   informers back off by themselves, honour `Retry-After`, and say so in their state.
/// - TCP keep-alive is on, so that a peer that vanished is noticed by the kernel, and address translators on the way
///   keep the connection.
///
/// Keep-alive cannot be set through the client crate's own builder, so it takes a stack built here, which lacks that
/// builder's HTTP tracing spans and gzip layer (informers decompress by themselves). Where such a stack could not do
/// what the configuration asks, the client crate builds it, without keep-alive: behind a proxy; with an exec credential
/// plugin, whose certificates expire (`Client::valid_until`); and for `https` unless this crate's feature `rustls-tls`
/// is on. Informers then rely on their silence deadline alone.
///
/// A token that no header can carry, for a line break in it, is an error, as it is to kubectl; the client crate would
/// panic.
///
/// Must be called inside a tokio runtime, as every `kube::Client` must.
pub fn client(mut config: Config) -> Result<Client, kube::Error> {
    config.default_retry = false;
    check_tokens(&config.auth_info)?;
    if config.auth_info.exec.is_some() {
        // Only the client crate runs the plugin, so nobody can look at its token before it becomes a header.
        let built = catch_unwind(AssertUnwindSafe(|| Client::try_from(config)));
        let unfit = "the credential plugin's token does not fit into a header";
        return built.unwrap_or_else(|_| Err(kube::Error::Auth(AuthError::AuthExec(unfit.to_owned()))));
    }
    if config.proxy_url.is_some() {
        return Client::try_from(config);
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_keepalive(Some(KEEPALIVE_IDLE));
    tcp.set_keepalive_interval(Some(KEEPALIVE_PERIOD));
    tcp.set_keepalive_retries(Some(KEEPALIVE_PROBES));
    if config.cluster_url.scheme() == Some(&http::uri::Scheme::HTTPS) {
        over_tls(&config, tcp)
    } else {
        stack(&config, timed(&config, TimeoutConnector::new(tcp)))
    }
}

/// Whether the tokens of a configuration fit into a header.
fn check_tokens(auth: &AuthInfo) -> Result<(), kube::Error> {
    // The token is behind a type of a crate that we do not have; its serialized form is the text.
    let inline = serde_json::to_value(auth).map_err(kube::Error::SerdeError)?;
    let inline = inline.get("token").and_then(serde_json::Value::as_str);
    let settings = auth.auth_provider.iter().flat_map(|provider| &provider.config);
    let given = settings.filter(|(name, _)| matches!(name.as_str(), "id-token" | "access-token"));
    for token in inline.into_iter().chain(given.map(|(_, token)| token.as_str())) {
        HeaderValue::try_from(format!("Bearer {token}"))
            .map_err(|error| kube::Error::Auth(AuthError::InvalidBearerToken(error)))?;
    }
    Ok(())
}

#[cfg(feature = "rustls-tls")]
fn over_tls(config: &Config, tcp: HttpConnector) -> Result<Client, kube::Error> {
    use rustls::crypto::{CryptoProvider, ring};
    // With two providers linked and none chosen rustls panics. An error means that somebody chose in between.
    if CryptoProvider::get_default().is_none() {
        let _ = ring::default_provider().install_default();
    }
    let tls = config.rustls_https_connector_with_connector(tcp)?;
    stack(config, timed(config, TimeoutConnector::new(tls)))
}

/// The TLS features of the client crate cannot be seen from here; it alone knows which connector to take.
#[cfg(not(feature = "rustls-tls"))]
fn over_tls(config: &Config, _tcp: HttpConnector) -> Result<Client, kube::Error> {
    Client::try_from(config.clone())
}

/// The connector with the timeouts of the configuration.
fn timed<C>(config: &Config, mut connector: TimeoutConnector<C>) -> TimeoutConnector<C> {
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    connector
}

/// The layers of the client crate's builder, in its order, without the retry.
fn stack<C>(config: &Config, connector: C) -> Result<Client, kube::Error>
where
    C: Connect + Clone + Send + Sync + 'static,
{
    let http = hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http);
    Ok(Client::new(service, config.default_namespace.clone()))
}
