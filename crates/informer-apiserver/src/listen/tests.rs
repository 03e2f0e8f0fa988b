//! Connections that do not send requests, on in-memory streams with a paused clock.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::*;

/// The start of an HTTP/2 connection: the preface and an empty SETTINGS frame.
const HTTP2_START: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// A server with one connection, whose client side is a stream in memory.
struct Connected {
    server: ApiServer,
    client: DuplexStream,
    started: Instant,
    _stop: watch::Sender<bool>,
}

fn connect(tls: Option<TlsAcceptor>) -> Connected {
    let server = ApiServer::new();
    let (client, stream) = tokio::io::duplex(1024);
    let stop = watch::Sender::new(false);
    let service = server.service();
    tokio::spawn(connection::connection(stream, tls, service, ConnectionLimits::default(), stop.subscribe()));
    Connected { server, client, started: Instant::now(), _stop: stop }
}

/// Reads until the server closes the connection; returns what it sent.
async fn read_to_end(client: &mut (impl AsyncRead + Unpin)) -> Vec<u8> {
    let mut received = Vec::new();
    // A connection that is closed in the middle of TLS is an error.
    let _result = client.read_to_end(&mut received).await;
    received
}

/// Reads until `end` was received.
async fn read_until(client: &mut (impl AsyncRead + Unpin), end: &str) -> String {
    let mut received = Vec::new();
    while !String::from_utf8_lossy(&received).contains(end) {
        received.push(client.read_u8().await.expect("the connection is open"));
    }
    String::from_utf8_lossy(&received).into_owned()
}

fn seconds(connected: &Connected) -> u64 {
    connected.started.elapsed().as_secs()
}

/// Bug: a client that connected and then sent nothing, also after the TLS handshake, kept its connection
/// forever: hyper's timeout starts after the first bytes, which select HTTP/1 or HTTP/2. The tests only had
/// clients that sent something.
#[tokio::test(start_paused = true)]
async fn silent_connection_is_closed() {
    let mut connected = connect(None);
    assert!(read_to_end(&mut connected.client).await.is_empty());
    assert_eq!(seconds(&connected), 32);
}

/// Bug: see [`silent_connection_is_closed`].
#[tokio::test(start_paused = true)]
async fn connection_that_is_silent_during_or_after_tls_handshake_is_closed() {
    let identity = Identity::new(IpAddr::V4(Ipv4Addr::LOCALHOST)).unwrap();
    let mut connected = connect(Some(identity.acceptor.clone()));
    read_to_end(&mut connected.client).await;
    assert_eq!(seconds(&connected), 32);

    let mut roots = rustls::RootCertStore::empty();
    roots.add(identity.ca_der.clone().into()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.unwrap().with_root_certificates(roots).with_no_client_auth();
    let Connected { client, started, _stop, .. } = connect(Some(identity.acceptor.clone()));
    let name = IpAddr::V4(Ipv4Addr::LOCALHOST).into();
    let mut client = TlsConnector::from(Arc::new(config)).connect(name, client).await.unwrap();
    read_to_end(&mut client).await;
    assert_eq!(started.elapsed().as_secs(), 32);
}

/// Bug: see [`silent_connection_is_closed`].
#[tokio::test(start_paused = true)]
async fn slow_request_head_is_not_waited_for() {
    let connected = connect(None);
    let (mut reader, mut writer) = tokio::io::split(connected.client);
    let dribble = async {
        let head = b"GET /version HTTP/1.1\r\nx: ".iter().chain(std::iter::repeat(&b'x'));
        for byte in head {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if writer.write_u8(*byte).await.is_err() {
                break;
            }
        }
    };
    let (_received, ()) = tokio::join!(read_to_end(&mut reader), dribble);
    let elapsed = connected.started.elapsed().as_secs();
    assert!((32..=35).contains(&elapsed), "{elapsed}");
}

/// An HTTP/2 client that answers no pings is disconnected even earlier, but this one has no request either.
#[tokio::test(start_paused = true)]
async fn http2_connection_without_requests_is_closed() {
    let mut connected = connect(None);
    connected.client.write_all(HTTP2_START).await.unwrap();
    assert!(!read_to_end(&mut connected.client).await.is_empty(), "the server sends its settings");
    assert!((32..=34).contains(&seconds(&connected)), "{}", seconds(&connected));
}

#[tokio::test(start_paused = true)]
async fn idle_connection_is_closed_later() {
    let mut connected = connect(None);
    for round in 1..=3 {
        connected.client.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        assert!(read_until(&mut connected.client, "ok").await.starts_with("HTTP/1.1 200"));
        assert_eq!(seconds(&connected), (round - 1) * 80, "an idle connection can be used for 90 s");
        tokio::time::sleep(Duration::from_secs(80)).await;
    }
    assert!(read_to_end(&mut connected.client).await.is_empty());
    assert_eq!(seconds(&connected), 2 * 80 + 90);
}

#[tokio::test(start_paused = true)]
async fn silent_watch_is_not_cut() {
    let mut connected = connect(None);
    let path = "/api/v1/configmaps?watch=1&resourceVersion=0&timeoutSeconds=7200";
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
    connected.client.write_all(request.as_bytes()).await.unwrap();
    read_until(&mut connected.client, "\r\n\r\n").await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let map = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "late"}});
    connected.server.create(&map).unwrap();
    read_until(&mut connected.client, r#""name":"late""#).await;
    assert_eq!(seconds(&connected), 3600);
}

/// Bug: a client could keep a connection open forever by announcing a body and never sending it.
#[tokio::test(start_paused = true)]
async fn body_that_does_not_arrive_is_not_waited_for() {
    let mut connected = connect(None);
    let head =
        "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{";
    connected.client.write_all(head.as_bytes()).await.unwrap();
    let received = String::from_utf8(read_to_end(&mut connected.client).await).unwrap();
    assert!(received.starts_with("HTTP/1.1 504"), "{received}");
    assert!((60..=61).contains(&seconds(&connected)), "{}", seconds(&connected));
}

/// A response that consists of one large buffer is open until the client has read almost all of it.
#[tokio::test(start_paused = true)]
async fn slow_reader_receives_the_whole_response() {
    let mut connected = connect(None);
    for name in ["a", "b"] {
        let data = serde_json::json!({"k": "x".repeat(900_000)});
        let map = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data});
        connected.server.create(&map).unwrap();
    }
    let request = b"GET /api/v1/configmaps?limit=5 HTTP/1.1\r\nhost: x\r\n\r\n";
    connected.client.write_all(request).await.unwrap();
    let head = read_until(&mut connected.client, "\r\n\r\n").await.to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let length: usize = length.parse().unwrap();
    assert!(length > 1_000_000, "{head}");
    let mut body = vec![0; length];
    for part in body.chunks_mut(64 * 1024) {
        tokio::time::sleep(Duration::from_secs(10)).await;
        connected.client.read_exact(part).await.expect("the connection is open");
    }
    assert!(seconds(&connected) > 120 && body.ends_with(b"}\n"), "{}", seconds(&connected));
}

async fn get(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) {
    stream.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    read_until(stream, "ok").await;
}

/// Bug: the number of connections was not limited, so clients could use all memory.
#[tokio::test(start_paused = true)]
async fn number_of_connections_is_limited() {
    let server = ApiServer::new();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = watch::Sender::new(false);
    let limits = ConnectionLimits {
        first_request_timeout: Duration::from_secs(3_600_000),
        max_connections: 2,
        ..ConnectionLimits::default()
    };
    tokio::spawn(connection::serve(listener, None, server.service(), limits, stop.subscribe()));
    let mut first = TcpStream::connect(address).await.unwrap();
    let mut second = TcpStream::connect(address).await.unwrap();
    get(&mut first).await;
    get(&mut second).await;
    let mut third = TcpStream::connect(address).await.unwrap();
    let early = tokio::time::timeout(Duration::from_secs(1), get(&mut third)).await;
    assert!(early.is_err(), "the third client waits");
    drop(first);
    read_until(&mut third, "ok").await;
    get(&mut second).await;
}
