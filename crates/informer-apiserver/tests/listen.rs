//! The server on sockets, with clients that connect over TCP.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use http_body_util::BodyExt;
use informer_apiserver::{ApiServer, ListenError, ListenOptions, Overwrite, RunningServer, User};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{ListParams, ObjectMeta, PostParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Fails the test if it hangs. Sockets need real time, so it is not paused.
async fn with_timeout<T>(test: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), test).await.expect("the test timed out")
}

fn map(name: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        ..ConfigMap::default()
    }
}

/// Creates, lists and watches through a client.
async fn exercise(client: Client) {
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    maps.create(&PostParams::default(), &map("a")).await.unwrap();
    let list = maps.list(&ListParams::default()).await.unwrap();
    assert_eq!(list.items.len(), 1);
    let version = list.metadata.resource_version.unwrap();
    let mut watch = maps.watch(&WatchParams::default(), &version).await.unwrap().boxed();
    maps.create(&PostParams::default(), &map("b")).await.unwrap();
    let Some(WatchEvent::Added(seen)) = watch.try_next().await.unwrap() else { panic!("an event") };
    assert_eq!(seen.metadata.name.as_deref(), Some("b"));
}

/// Returns the client configuration of the server's kubeconfig.
async fn config(listening: &RunningServer) -> Config {
    let kubeconfig = Kubeconfig::from_yaml(&listening.kubeconfig()).unwrap();
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap()
}

fn code(error: kube::Error) -> u16 {
    let kube::Error::Api(status) = error else { panic!("{error:?}") };
    status.code
}

#[tokio::test]
async fn clients_list_and_watch_over_tls() {
    with_timeout(async {
        let server = ApiServer::new();
        let listening = server.listen(ListenOptions::https()).await.unwrap();
        assert!(listening.url().starts_with("https://127.0.0.1:"), "{}", listening.url());
        assert!(listening.ca_pem().unwrap().starts_with("-----BEGIN CERTIFICATE-----"));
        exercise(listening.client()).await;
        assert!(server.recorded_requests().iter().all(|seen| seen.user == "admin"));
    })
    .await;
}

#[tokio::test]
async fn clients_list_and_watch_without_tls() {
    with_timeout(async {
        let listening = ApiServer::new().listen(ListenOptions::http().token("given")).await.unwrap();
        assert_eq!((listening.token(), listening.ca_pem()), ("given", None));
        exercise(listening.client()).await;
    })
    .await;
}

#[tokio::test]
async fn client_connects_with_kubeconfig() {
    with_timeout(async {
        let listening = ApiServer::new().listen(ListenOptions::https()).await.unwrap();
        exercise(Client::try_from(config(&listening).await).unwrap()).await;
    })
    .await;
}

#[tokio::test]
async fn token_determines_user_and_permissions() {
    with_timeout(async {
        let server = ApiServer::new();
        let how = ListenOptions::https().anonymous(false).user("other", User::new("limited"));
        let listening = server.listen(how).await.unwrap();
        for (token, expected) in [(Some("wrong"), 401), (None, 401), (Some("other"), 403)] {
            let mut config = config(&listening).await;
            config.auth_info.token = token.map(|token| token.to_owned().into());
            let namespaces: Api<Namespace> = Api::all(Client::try_from(config).unwrap());
            assert_eq!(code(namespaces.get("default").await.unwrap_err()), expected, "{token:?}");
        }
        let open = server.listen(ListenOptions::http().without_access_control()).await.unwrap();
        let mut config = config(&open).await;
        config.auth_info.token = None;
        let namespaces: Api<Namespace> = Api::all(Client::try_from(config).unwrap());
        namespaces.get("default").await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_certificate_of_another_server_is_not_trusted() {
    with_timeout(async {
        let (one, other) = (ApiServer::new(), ApiServer::new());
        let one = one.listen(ListenOptions::https()).await.unwrap();
        let other = other.listen(ListenOptions::https()).await.unwrap();
        let mut config = config(&one).await;
        config.cluster_url = other.url().parse().unwrap();
        config.default_retry = false;
        let namespaces: Api<Namespace> = Api::all(Client::try_from(config).unwrap());
        let error = namespaces.get("default").await.unwrap_err();
        assert!(!matches!(error, kube::Error::Api(_)), "{error:?}");
    })
    .await;
}

#[tokio::test]
async fn servers_are_independent() {
    with_timeout(async {
        let (one, other) = (ApiServer::new(), ApiServer::new());
        let one = one.listen(ListenOptions::https()).await.unwrap();
        let two = other.listen(ListenOptions::https()).await.unwrap();
        assert_ne!(one.address(), two.address());
        assert_ne!(one.token(), two.token());
        exercise(one.client()).await;
        one.shutdown().await;
        exercise(two.client()).await;
    })
    .await;
}

#[tokio::test]
async fn port_in_use_is_reported() {
    with_timeout(async {
        let server = ApiServer::new();
        let listening = server.listen(ListenOptions::http()).await.unwrap();
        let port = listening.address().port();
        let error = server.listen(ListenOptions::http().port(port)).await.unwrap_err();
        assert!(matches!(error, ListenError::InUse { address } if address.port() == port), "{error:?}");
        assert!(error.to_string().contains("port 0"), "{error}");
        listening.shutdown().await;
        server.listen(ListenOptions::http().port(port)).await.unwrap().shutdown().await;
    })
    .await;
}

#[tokio::test]
async fn shutdown_ends_watches_cleanly() {
    with_timeout(async {
        for how in [ListenOptions::https(), ListenOptions::http()] {
            let server = ApiServer::new();
            let listening = server.listen(how).await.unwrap();
            let maps: Api<ConfigMap> = Api::default_namespaced(listening.client());
            let mut watch = maps
                .watch(&WatchParams::default(), &server.resource_version().to_string())
                .await
                .unwrap()
                .boxed();
            server.create(&map_value("a")).unwrap();
            assert!(matches!(watch.try_next().await.unwrap(), Some(WatchEvent::Added(_))));
            let address = listening.address();
            let (ended, ()) = tokio::join!(watch.try_next(), listening.shutdown());
            assert!(ended.unwrap().is_none(), "a clean end");
            assert!(TcpStream::connect(address).await.is_err(), "the listener must be closed");
            // The connection task drops the stream, and shutdown waits for that task.
            assert_eq!(server.open_watches(), 0);
        }
    })
    .await;
}

#[tokio::test]
async fn dropping_running_server_ends_watches() {
    with_timeout(async {
        let server = ApiServer::new();
        let listening = server.listen(ListenOptions::https()).await.unwrap();
        let maps: Api<ConfigMap> = Api::default_namespaced(listening.client());
        let mut watch = maps
            .watch(&WatchParams::default(), &server.resource_version().to_string())
            .await
            .unwrap()
            .boxed();
        drop(listening);
        assert!(watch.try_next().await.unwrap().is_none());
    })
    .await;
}

fn map_value(name: &str) -> serde_json::Value {
    serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}})
}

/// Sends raw bytes and reads the response until the server closes the connection.
async fn raw(listening: &RunningServer, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(listening.address()).await.unwrap();
    // The server may close the connection before it has read everything.
    let _sent = stream.write_all(bytes).await;
    let mut response = Vec::new();
    let _read = stream.read_to_end(&mut response).await;
    String::from_utf8_lossy(&response).into_owned()
}

#[tokio::test]
async fn malformed_requests_do_not_affect_other_clients() {
    with_timeout(async {
        let listening = ApiServer::new().listen(ListenOptions::http()).await.unwrap();
        let post = format!(
            "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n",
            listening.token()
        );
        // An incomplete request line, incomplete headers and an incomplete body, all on open connections.
        let mut stuck = Vec::new();
        for bytes in ["GET /ver".to_owned(), post.clone(), format!("{post}content-length: 100\r\n\r\n{{")] {
            let mut stream = TcpStream::connect(listening.address()).await.unwrap();
            stream.write_all(bytes.as_bytes()).await.unwrap();
            stuck.push(stream);
        }
        assert!(raw(&listening, b"no http at all\r\n\r\n").await.starts_with("HTTP/1.1 400"));
        let headers = format!("GET /version HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n", "x".repeat(1 << 20));
        assert!(raw(&listening, headers.as_bytes()).await.starts_with("HTTP/1.1 431"));
        exercise(listening.client()).await;
        drop(stuck);
        listening.shutdown().await;
    })
    .await;
}

#[tokio::test]
async fn too_large_body_is_rejected_while_it_is_received() {
    with_timeout(async {
        let listening = ApiServer::new().listen(ListenOptions::http()).await.unwrap();
        let head = format!(
            "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\
             content-length: 100000000\r\n\r\n",
            listening.token()
        );
        let mut stream = TcpStream::connect(listening.address()).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&vec![b' '; 3 * 1024 * 1024 + 1]).await.unwrap();
        let mut start = [0; 12];
        stream.read_exact(&mut start).await.unwrap();
        assert_eq!(&start, b"HTTP/1.1 413");
    })
    .await;
}

/// A temporary folder of one test, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("informer-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _gone = std::fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
async fn kubeconfig_file_is_private_and_overwritten_only_on_request() {
    with_timeout(async {
        let folder = Folder::new("kubeconfig");
        let path = folder.0.join("config");
        let server = ApiServer::new();
        let one = server.listen(ListenOptions::https()).await.unwrap();
        let two = server.listen(ListenOptions::https()).await.unwrap();
        one.write_kubeconfig(&path, Overwrite::No).unwrap();
        let error = two.write_kubeconfig(&path, Overwrite::No).unwrap_err();
        assert!(matches!(error, ListenError::KubeconfigExists { .. }), "{error:?}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), one.kubeconfig());
        two.write_kubeconfig(&path, Overwrite::Yes).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), two.kubeconfig());
        assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 1, "no temporary file may remain");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        // Regression: overwriting `/dev/null` replaced the device by a regular file.
        #[cfg(unix)]
        {
            let socket = folder.0.join("socket");
            let _bound = std::os::unix::net::UnixListener::bind(&socket).unwrap();
            let error = one.write_kubeconfig(&socket, Overwrite::Yes).unwrap_err();
            assert!(matches!(error, ListenError::Kubeconfig { .. }), "{error:?}");
            assert!(
                !std::fs::symlink_metadata(&socket).unwrap().is_file(),
                "the socket must not be replaced"
            );
        }
        let nowhere = folder.0.join("none").join("config");
        let error = one.write_kubeconfig(nowhere, Overwrite::Yes).unwrap_err();
        assert!(matches!(error, ListenError::Kubeconfig { .. }), "{error:?}");
    })
    .await;
}

#[tokio::test]
async fn http2_clients_are_supported() {
    with_timeout(async {
        let server = ApiServer::new();
        let listening = server.listen(ListenOptions::http()).await.unwrap();
        let client = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new())
            .http2_only(true)
            .build_http::<String>();
        let get = |path: &str| {
            let request = http::Request::get(format!("{}{path}", listening.url()));
            let request = request.header("authorization", format!("Bearer {}", listening.token()));
            client.request(request.body(String::new()).unwrap())
        };
        let watch = get("/api/v1/configmaps?watch=1&resourceVersion=1").await.unwrap();
        assert_eq!((watch.status().as_u16(), watch.version()), (200, http::Version::HTTP_2));
        let responses = futures::future::join_all((0..50).map(|_| get("/api/v1/namespaces"))).await;
        assert!(responses.into_iter().all(|response| response.unwrap().status() == 200));
        let (ended, ()) = tokio::join!(watch.into_body().collect(), listening.shutdown());
        assert!(ended.unwrap().to_bytes().is_empty(), "a clean end");
    })
    .await;
}
