//! The recommended client: like `kube::Client::try_from`, but without its built-in retry and with TCP
//! keep-alive.
//!
//! Invariant: the client returns every response of the server to its caller, including 429, 503 and 504.
//!
//! The application chooses the TLS implementation with cargo features; `kube::Config` reads kubeconfigs.

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

/// How long a connection is idle before the first keep-alive probe.
///
/// With [`KEEPALIVE_PERIOD`] and [`KEEPALIVE_PROBES`], a dead peer is noticed within 75 s.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
/// The time between keep-alive probes.
const KEEPALIVE_PERIOD: Duration = Duration::from_secs(15);
/// Number of unanswered keep-alive probes after which a connection is closed.
const KEEPALIVE_PROBES: u32 = 3;

/// Builds a client with the settings recommended for informers.
///
/// Differences from `kube::Client::try_from(config)`:
/// - The client does not retry 429, 503 and 504, whatever `config.default_retry` says: informers back off
///   themselves, honour `Retry-After`, and show the delay in their state.
/// - TCP keep-alive is enabled, so that the kernel notices a peer that vanished, and address translators
///   (NAT) keep the connection.
///
/// kube's own builder cannot enable keep-alive, so the service stack is built here, without that builder's
/// HTTP tracing spans and gzip layer (informers decompress themselves). In the cases that this stack does not
/// support, kube builds the client, without keep-alive: with a proxy; with an exec credential plugin, whose
/// certificates expire (`Client::valid_until`); and for `https` unless the feature `rustls-tls` of this crate
/// is enabled. Informers then rely on their checks of silent watches only.
///
/// # Errors
///
/// Returns the errors of `kube::Client::try_from`. In addition, a token that is not a valid header value, for
/// example because it contains a line break, is an error, as in kubectl; kube would panic.
///
/// # Panics
///
/// Panics if called outside a tokio runtime, as with every `kube::Client`.
pub fn client(mut config: Config) -> Result<Client, kube::Error> {
    config.default_retry = false;
    check_tokens(&config.auth_info)?;
    if config.auth_info.exec.is_some() {
        // kube runs the plugin and converts the token to a header. The token cannot be checked before that,
        // and the conversion of an invalid token panics.
        let result = catch_unwind(AssertUnwindSafe(|| Client::try_from(config)));
        let message = "the token of the credential plugin is not a valid header value";
        return result.unwrap_or_else(|_| Err(kube::Error::Auth(AuthError::AuthExec(message.to_owned()))));
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
        build_tls_client(&config, tcp)
    } else {
        build_client(&config, with_timeouts(&config, TimeoutConnector::new(tcp)))
    }
}

/// Checks that the tokens of a configuration are valid header values.
fn check_tokens(auth: &AuthInfo) -> Result<(), kube::Error> {
    // The token has a type of a crate that is not a dependency here; its serialized form is the plain text.
    let serialized = serde_json::to_value(auth).map_err(kube::Error::SerdeError)?;
    let token = serialized.get("token").and_then(serde_json::Value::as_str);
    let settings = auth.auth_provider.iter().flat_map(|provider| &provider.config);
    let provider_tokens = settings.filter(|(name, _)| matches!(name.as_str(), "id-token" | "access-token"));
    for token in token.into_iter().chain(provider_tokens.map(|(_, token)| token.as_str())) {
        HeaderValue::try_from(format!("Bearer {token}"))
            .map_err(|error| kube::Error::Auth(AuthError::InvalidBearerToken(error)))?;
    }
    Ok(())
}

#[cfg(feature = "rustls-tls")]
fn build_tls_client(config: &Config, tcp: HttpConnector) -> Result<Client, kube::Error> {
    use rustls::crypto::{CryptoProvider, ring};
    // rustls panics if several providers are linked and none is installed. An error here means that another
    // thread has installed one in the meantime.
    if CryptoProvider::get_default().is_none() {
        let _ = ring::default_provider().install_default();
    }
    let tls = config.rustls_https_connector_with_connector(tcp)?;
    build_client(config, with_timeouts(config, TimeoutConnector::new(tls)))
}

/// Lets kube build the client: which of its TLS features are enabled, and so which connector to use, is
/// unknown here.
#[cfg(not(feature = "rustls-tls"))]
fn build_tls_client(config: &Config, _tcp: HttpConnector) -> Result<Client, kube::Error> {
    Client::try_from(config.clone())
}

/// Sets the timeouts of the configuration on a connector.
fn with_timeouts<C>(config: &Config, mut connector: TimeoutConnector<C>) -> TimeoutConnector<C> {
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    connector
}

/// Builds the client with the layers of kube's builder, in the same order, without the retry.
fn build_client<C>(config: &Config, connector: C) -> Result<Client, kube::Error>
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
