//! `KubeSource` over real sockets, with the client that `kube` builds by default and with the recommended
//! one: what is sent, what is received, and how each failure is reported.
#![allow(clippy::unwrap_used)]

use crate::loopback::{Loopback, Reply};
use flate2::{Compression, write::GzEncoder};
use futures::{StreamExt as _, TryStreamExt as _};
use informer::source::{KubeSource, Response, Source as _, SourceError};
use informer_core::reflector::{Consistency, ListRequest, WatchRequest, WatchStart};
use informer_core::version::ResourceVersion;
use kube::{Client, Config};
use std::io::Write as _;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;

const JSON: (&str, &str) = ("content-type", "application/json");
const GZIP: (&str, &str) = ("content-encoding", "gzip");
/// Long enough for a loopback response on a busy machine, short enough for a test.
const SHORT_TIMEOUT: Duration = Duration::from_millis(300);

/// A client built by `kube` itself, with its built-in retries.
fn default_client(server: &Loopback) -> Client {
    Client::try_from(Config::new(server.url("http"))).unwrap()
}

fn recommended_client(server: &Loopback) -> Client {
    informer::client(Config::new(server.url("http"))).unwrap()
}

fn both_clients(server: &Loopback) -> [Client; 2] {
    [default_client(server), recommended_client(server)]
}

fn pods(client: Client) -> KubeSource {
    KubeSource::new(client, "/api/v1/pods")
}

fn list_request() -> ListRequest {
    ListRequest::new(Consistency::Any, None)
}

fn watch_request() -> WatchRequest {
    WatchRequest::new(WatchStart::After(ResourceVersion::new("7")), Duration::from_secs(300))
}

async fn text(response: Response) -> Result<String, SourceError> {
    let chunks: Vec<_> = response.body.try_collect().await?;
    Ok(String::from_utf8(chunks.concat()).unwrap())
}

fn member(plain: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(plain.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

/// The error and its causes in one line.
fn error_chain(error: &SourceError) -> String {
    let causes = std::iter::successors(Some(error as &dyn std::error::Error), |&cause| cause.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[tokio::test]
async fn list_request_has_expected_line_and_headers() {
    let mut server = Loopback::start([Reply::new("200 OK", &[JSON], "{}")]).await;
    for client in both_clients(&server) {
        let source = pods(client)
            .label_selector("app in (a, b),!canary")
            .field_selector("spec.nodeName=node 1,metadata.name!=x&y");
        let at_nine = Consistency::NotOlderThan(ResourceVersion::new("9"));
        let response = source.list(ListRequest::new(at_nine, Some(500))).await.unwrap();
        assert_eq!((response.status, response.content_type.as_deref()), (200, Some("application/json")));
        assert_eq!(text(response).await.unwrap(), "{}");
        let request = server.request().await;
        assert_eq!(
            request.line,
            "GET /api/v1/pods?limit=500&resourceVersion=9&resourceVersionMatch=NotOlderThan\
             &labelSelector=app+in+%28a%2C+b%29%2C%21canary\
             &fieldSelector=spec.nodeName%3Dnode+1%2Cmetadata.name%21%3Dx%26y HTTP/1.1"
        );
        let host = format!("host: {}", server.url("http").authority().unwrap());
        assert_eq!(request.headers, ["accept-encoding: identity", "accept: application/json", &host]);
    }
}

#[tokio::test]
async fn watch_request_has_expected_line_and_headers() {
    let mut server = Loopback::start([Reply::endless("200 OK", &[JSON], ["{}\n"])]).await;
    for client in both_clients(&server) {
        let source = pods(client).label_selector("tier in (web,db)").field_selector("").gzip_lists(true);
        let mut response = source.watch(watch_request()).await.unwrap();
        // The stream is open and returns what has arrived.
        assert_eq!(response.body.next().await.unwrap().unwrap(), "{}\n");
        let request = server.request().await;
        assert_eq!(
            request.line,
            "GET /api/v1/pods?watch=1&allowWatchBookmarks=true&timeoutSeconds=300&resourceVersion=7\
             &labelSelector=tier+in+%28web%2Cdb%29 HTTP/1.1"
        );
        let host = format!("host: {}", server.url("http").authority().unwrap());
        assert_eq!(request.headers, ["accept-encoding: identity", "accept: application/json", &host]);
    }
}

#[tokio::test]
async fn default_client_hides_throttling_until_the_timeout() {
    // Guards against a reflector that waits inside the client for minutes without an error to report.
    for (status, headers, attempts) in [
        ("429 Too Many Requests", [JSON, ("retry-after", "2")].as_slice(), 1),
        ("503 Service Unavailable", &[JSON], 2),
        ("504 Gateway Timeout", &[JSON], 2),
    ] {
        let server = Loopback::start([Reply::new(status, headers, "{}")]).await;
        let source = pods(default_client(&server)).response_header_timeout(SHORT_TIMEOUT);
        let error = source.watch(watch_request()).await.unwrap_err();
        assert!(
            matches!(error, SourceError::ResponseHeaderTimeout { timeout } if timeout == SHORT_TIMEOUT),
            "{status}: {error:?}"
        );
        assert!(server.pending() >= attempts, "{status}: {} attempts", server.pending());
    }
}

#[tokio::test]
async fn recommended_client_reports_throttling() {
    for (status, headers, code, delay) in [
        ("429 Too Many Requests", [JSON, ("retry-after", "2")].as_slice(), 429, Some(2)),
        ("503 Service Unavailable", &[JSON, ("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT")], 503, None),
        ("504 Gateway Timeout", &[JSON], 504, None),
    ] {
        let server = Loopback::start([Reply::new(status, headers, "busy")]).await;
        let response = pods(recommended_client(&server)).watch(watch_request()).await.unwrap();
        assert_eq!((response.status, response.retry_after), (code, delay.map(Duration::from_secs)));
        assert_eq!(text(response).await.unwrap(), "busy");
        assert_eq!(server.pending(), 1, "one call is one attempt");
    }
}

#[tokio::test]
async fn gzip_lists_are_requested_and_decoded() {
    let single = member("{\"items\":[]}");
    let several = [member("{\"items\":"), member(""), member("[]}")].concat();
    for body in [single, several] {
        let mut server = Loopback::start([Reply::new("200 OK", &[JSON, GZIP], &body)]).await;
        for client in both_clients(&server) {
            let response = pods(client).gzip_lists(true).list(list_request()).await.unwrap();
            assert_eq!(text(response).await.unwrap(), "{\"items\":[]}");
            assert_eq!(server.request().await.header("accept-encoding"), Some("gzip"));
        }
    }
}

#[tokio::test]
async fn unrequested_gzip_watch_is_decoded_member_by_member() {
    let frames = [member("{\"type\":1}\n"), member("{\"type\":2}\n")];
    let mut server = Loopback::start([Reply::endless("200 OK", &[JSON, GZIP], &frames)]).await;
    for client in both_clients(&server) {
        let response = pods(client).watch(watch_request()).await.unwrap();
        let pieces: Vec<_> = response.body.take(2).try_collect().await.unwrap();
        assert_eq!(pieces, ["{\"type\":1}\n", "{\"type\":2}\n"]);
        assert_eq!(server.request().await.header("accept-encoding"), Some("identity"));
    }
}

#[tokio::test]
async fn truncated_gzip_body_is_an_error() {
    let whole = member("{\"items\":[]}");
    let server = Loopback::start([Reply::new("200 OK", &[JSON, GZIP], &whole[..whole.len() - 3])]).await;
    let response = pods(default_client(&server)).list(list_request()).await.unwrap();
    let error = text(response).await.unwrap_err();
    assert_eq!(error_chain(&error), "the gzip body is truncated: it ended inside a member");
}

#[tokio::test]
async fn an_unknown_encoding_is_an_error_before_the_body() {
    let server = Loopback::start([Reply::new("200 OK", &[("content-encoding", "Br")], "?")]).await;
    let error = pods(default_client(&server)).list(list_request()).await.unwrap_err();
    assert_eq!(
        error_chain(&error),
        "the body has the unknown content-encoding \"br\" (is a proxy compressing?)"
    );
    let server = Loopback::start([Reply::new("200 OK", &[("content-encoding", "identity")], "plain")]).await;
    let response = pods(default_client(&server)).list(list_request()).await.unwrap();
    assert_eq!(text(response).await.unwrap(), "plain");
}

#[tokio::test]
async fn refused_connection_is_reported_as_refused() {
    let server = Loopback::start([Reply::silence()]).await;
    let clients = both_clients(&server);
    server.stop().await;
    for client in clients {
        let error = pods(client).list(list_request()).await.unwrap_err();
        assert!(matches!(error, SourceError::Connect { refused: true, .. }), "{}", error_chain(&error));
        assert!(
            error_chain(&error).starts_with("no connection to the API server (refused: is it running?): ")
        );
    }
}

#[tokio::test]
async fn connection_broken_in_body_is_an_error_after_the_received_bytes() {
    let short = Reply::new("200 OK", &[JSON], "0123456789").without_last(4).then_close();
    let chunked = Reply::endless("200 OK", &[JSON], ["012345"]).then_close();
    for reply in [short, chunked] {
        let server = Loopback::start([reply]).await;
        for client in both_clients(&server) {
            let mut response = pods(client).watch(watch_request()).await.unwrap();
            assert_eq!(response.body.next().await.unwrap().unwrap(), "012345");
            let error = response.body.next().await.unwrap().unwrap_err();
            assert!(matches!(error, SourceError::BodyInterrupted { .. }), "{}", error_chain(&error));
            assert!(response.body.next().await.is_none());
        }
    }
}

#[tokio::test]
async fn connection_broken_before_headers_is_an_error() {
    let server = Loopback::start([Reply::new("200 OK", &[], "").without_last(4).then_close()]).await;
    for client in both_clients(&server) {
        let error = pods(client).list(list_request()).await.unwrap_err();
        assert!(matches!(error, SourceError::ConnectionLost { .. }), "{}", error_chain(&error));
    }
}

#[tokio::test]
async fn unanswered_request_times_out() {
    let server = Loopback::start([Reply::silence()]).await;
    for client in both_clients(&server) {
        let error =
            pods(client).response_header_timeout(SHORT_TIMEOUT).list(list_request()).await.unwrap_err();
        assert!(matches!(error, SourceError::ResponseHeaderTimeout { .. }), "{}", error_chain(&error));
        assert!(error.to_string().starts_with("no response headers within 300ms (the server may be slow"));
    }
}

#[tokio::test]
async fn path_with_reserved_characters_is_rejected() {
    let server = Loopback::start([Reply::silence()]).await;
    for namespace in ["a?watch=1&", "a#", "a b"] {
        let path = format!("/api/v1/namespaces/{namespace}/pods");
        let source = KubeSource::new(default_client(&server), path);
        let error = source.list(list_request()).await.unwrap_err();
        assert!(matches!(error, SourceError::InvalidRequest { .. }), "{}", error_chain(&error));
    }
    assert_eq!(server.pending(), 0);
}

#[tokio::test]
async fn recommended_client_sends_credentials_and_extra_headers() {
    let mut server = Loopback::start([Reply::new("200 OK", &[JSON], "{}")]).await;
    let mut config = Config::new(server.url("http"));
    config.auth_info.token = Some("let-me-in".into());
    config.auth_info.impersonate = Some("jane".to_owned());
    pods(informer::client(config).unwrap()).list(list_request()).await.unwrap();
    let request = server.request().await;
    assert_eq!(request.header("authorization"), Some("Bearer let-me-in"));
    assert_eq!(request.header("impersonate-user"), Some("jane"));
}

#[tokio::test]
async fn unreadable_token_file_is_a_credentials_error() {
    let server = Loopback::start([Reply::silence()]).await;
    let mut config = Config::new(server.url("http"));
    config.auth_info.token_file = Some("/nonexistent/token".to_owned());
    let message = match informer::client(config) {
        Ok(client) => error_chain(&pods(client).list(list_request()).await.unwrap_err()),
        Err(error) => error.to_string(),
    };
    assert!(message.contains("/nonexistent/token"), "{message}");
    assert_eq!(server.pending(), 0);
}

/// Regression: a token with a line break, as a YAML block leaves one, was put into a header unchecked, and
/// the program panicked.
#[tokio::test]
async fn token_with_control_characters_is_an_error() {
    let config = || Config::new("http://127.0.0.1:1".parse().unwrap());
    let message_of = |config: Config| informer::client(config).err().expect("an error").to_string();
    for token in ["line\nbreak", "at the end\n", "a\u{7f}b"] {
        let mut inline = config();
        inline.auth_info.token = Some(token.into());
        let mut provided = config();
        let oidc = serde_json::json!({"name": "oidc", "config": {"id-token": token}});
        provided.auth_info.auth_provider = Some(serde_json::from_value(oidc).unwrap());
        let mut plugin = config();
        let answer = serde_json::json!({
            "kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1", "status": {"token": token},
        });
        let exec = serde_json::json!({
            "apiVersion": "client.authentication.k8s.io/v1", "command": "echo", "args": [answer.to_string()],
            "interactiveMode": "Never",
        });
        plugin.auth_info.exec = Some(serde_json::from_value(exec).unwrap());
        for config in [inline, provided, plugin] {
            let message = message_of(config);
            assert!(message.contains("token") && !message.contains(token), "{message}");
        }
    }
}

/// The kernel's connection table names the timer that each connection has running; 02 is keep-alive.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn recommended_client_enables_keep_alive() {
    let mut server = Loopback::start([Reply::endless("200 OK", &[JSON], ["{}\n"])]).await;
    let address = |port| format!("0100007F:{port:04X}");
    let mut timers = Vec::new();
    for client in both_clients(&server) {
        let mut response = pods(client).watch(watch_request()).await.unwrap();
        response.body.next().await.unwrap().unwrap();
        let local = address(server.request().await.peer.port());
        let remote = address(server.url("http").port_u16().unwrap());
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let mut rows = table.lines().map(|row| row.split_whitespace().collect::<Vec<_>>());
        let row = rows.find(|row| row[1] == local && row[2] == remote).unwrap();
        timers.push(row[5][..2].to_owned());
    }
    assert_eq!(timers, ["00", "02"]);
}

/// Without a TLS feature the client crate reports what is missing; with one, the handshake fails here.
#[tokio::test]
async fn https_needs_a_tls_feature() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let no_tls = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"this is no TLS").await.unwrap();
        std::future::pending::<()>().await;
    };
    match informer::client(Config::new(url.parse().unwrap())) {
        Ok(client) => {
            let source = pods(client);
            let response = tokio::select! {
                response = source.list(list_request()) => response,
                () = no_tls => unreachable!("pending forever"),
            };
            let error = response.unwrap_err();
            assert!(matches!(error, SourceError::Certificate { .. }), "{}", error_chain(&error));
        }
        Err(error) => assert!(matches!(error, kube::Error::TlsRequired), "{error}"),
    }
}
