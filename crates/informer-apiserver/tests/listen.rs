//! The server on sockets: clients of other processes, as far as one process can play them.

#![allow(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use http_body_util::BodyExt;
use informer_apiserver::{ApiServer, Listen, ListenError, Listening, Overwrite, User};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{ListParams, ObjectMeta, PostParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// No test may hang. Sockets know no paused time.
async fn by<T>(test: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_mins(1), test).await.expect("the test hangs")
}

fn map(name: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        ..ConfigMap::default()
    }
}

/// Creates, lists and watches through a client.
async fn use_it(client: Client) {
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

/// The configuration that a kubeconfig leads to.
async fn config(listening: &Listening) -> Config {
    let kubeconfig = Kubeconfig::from_yaml(&listening.kubeconfig()).unwrap();
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap()
}

fn code(error: kube::Error) -> u16 {
    let kube::Error::Api(status) = error else { panic!("{error:?}") };
    status.code
}

#[tokio::test]
async fn clients_list_and_watch_over_tls() {
    by(async {
        let server = ApiServer::new();
        let listening = server.listen(Listen::https()).await.unwrap();
        assert!(listening.url().starts_with("https://127.0.0.1:"), "{}", listening.url());
        assert!(listening.ca_pem().unwrap().starts_with("-----BEGIN CERTIFICATE-----"));
        use_it(listening.client()).await;
        assert!(server.requests().iter().all(|seen| seen.user == "admin"));
    })
    .await;
}

#[tokio::test]
async fn clients_list_and_watch_without_tls() {
    by(async {
        let listening = ApiServer::new().listen(Listen::http().token("given")).await.unwrap();
        assert_eq!((listening.token(), listening.ca_pem()), ("given", None));
        use_it(listening.client()).await;
    })
    .await;
}

#[tokio::test]
async fn a_kubeconfig_leads_there() {
    by(async {
        let listening = ApiServer::new().listen(Listen::https()).await.unwrap();
        use_it(Client::try_from(config(&listening).await).unwrap()).await;
    })
    .await;
}

#[tokio::test]
async fn tokens_decide() {
    by(async {
        let server = ApiServer::new();
        let how = Listen::https().anonymous(false).user("other", User::new("limited"));
        let listening = server.listen(how).await.unwrap();
        for (token, expected) in [(Some("wrong"), 401), (None, 401), (Some("other"), 403)] {
            let mut config = config(&listening).await;
            config.auth_info.token = token.map(|token| token.to_owned().into());
            let namespaces: Api<Namespace> = Api::all(Client::try_from(config).unwrap());
            assert_eq!(code(namespaces.get("default").await.unwrap_err()), expected, "{token:?}");
        }
        let open = server.listen(Listen::http().open()).await.unwrap();
        let mut config = config(&open).await;
        config.auth_info.token = None;
        let namespaces: Api<Namespace> = Api::all(Client::try_from(config).unwrap());
        namespaces.get("default").await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_certificate_of_another_server_is_not_trusted() {
    by(async {
        let (one, other) = (ApiServer::new(), ApiServer::new());
        let one = one.listen(Listen::https()).await.unwrap();
        let other = other.listen(Listen::https()).await.unwrap();
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
async fn servers_stand_side_by_side() {
    by(async {
        let (one, other) = (ApiServer::new(), ApiServer::new());
        let one = one.listen(Listen::https()).await.unwrap();
        let two = other.listen(Listen::https()).await.unwrap();
        assert_ne!(one.address(), two.address());
        assert_ne!(one.token(), two.token());
        use_it(one.client()).await;
        one.shutdown().await;
        use_it(two.client()).await;
    })
    .await;
}

#[tokio::test]
async fn a_port_belongs_to_one() {
    by(async {
        let server = ApiServer::new();
        let listening = server.listen(Listen::http()).await.unwrap();
        let port = listening.address().port();
        let error = server.listen(Listen::http().port(port)).await.unwrap_err();
        assert!(matches!(error, ListenError::InUse { address } if address.port() == port), "{error:?}");
        assert!(error.to_string().contains("port 0"), "{error}");
        listening.shutdown().await;
        server.listen(Listen::http().port(port)).await.unwrap().shutdown().await;
    })
    .await;
}

#[tokio::test]
async fn shutdown_ends_watches_cleanly() {
    by(async {
        for how in [Listen::https(), Listen::http()] {
            let server = ApiServer::new();
            let listening = server.listen(how).await.unwrap();
            let maps: Api<ConfigMap> = Api::default_namespaced(listening.client());
            let mut watch =
                maps.watch(&WatchParams::default(), &server.version().to_string()).await.unwrap().boxed();
            server.create(&map_value("a")).unwrap();
            assert!(matches!(watch.try_next().await.unwrap(), Some(WatchEvent::Added(_))));
            let address = listening.address();
            let (ended, ()) = tokio::join!(watch.try_next(), listening.shutdown());
            assert!(ended.unwrap().is_none(), "a clean end");
            assert!(TcpStream::connect(address).await.is_err(), "nobody listens");
            // The stream is dropped by whoever served it, which is done when shutdown is.
            assert_eq!(server.open_watches(), 0);
        }
    })
    .await;
}

#[tokio::test]
async fn dropping_the_guard_ends_it_too() {
    by(async {
        let server = ApiServer::new();
        let listening = server.listen(Listen::https()).await.unwrap();
        let maps: Api<ConfigMap> = Api::default_namespaced(listening.client());
        let mut watch =
            maps.watch(&WatchParams::default(), &server.version().to_string()).await.unwrap().boxed();
        drop(listening);
        assert!(watch.try_next().await.unwrap().is_none());
    })
    .await;
}

fn map_value(name: &str) -> serde_json::Value {
    serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}})
}

/// Sends bytes as they are and reads what comes until the server closes.
async fn raw(listening: &Listening, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(listening.address()).await.unwrap();
    // A server that has read enough may close before it has read all.
    let _sent = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let _read = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn a_bad_client_hurts_nobody_else() {
    by(async {
        let listening = ApiServer::new().listen(Listen::http()).await.unwrap();
        let post = format!(
            "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n",
            listening.token()
        );
        // Half a request line, half the headers, and half a body: all stay open.
        let mut held = Vec::new();
        for bytes in ["GET /ver".to_owned(), post.clone(), format!("{post}content-length: 100\r\n\r\n{{")] {
            let mut stream = TcpStream::connect(listening.address()).await.unwrap();
            stream.write_all(bytes.as_bytes()).await.unwrap();
            held.push(stream);
        }
        assert!(raw(&listening, b"no http at all\r\n\r\n").await.starts_with("HTTP/1.1 400"));
        let headers = format!("GET /version HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n", "x".repeat(1 << 20));
        assert!(raw(&listening, headers.as_bytes()).await.starts_with("HTTP/1.1 431"));
        use_it(listening.client()).await;
        drop(held);
        listening.shutdown().await;
    })
    .await;
}

#[tokio::test]
async fn a_body_that_is_too_long_is_refused_while_it_comes() {
    by(async {
        let listening = ApiServer::new().listen(Listen::http()).await.unwrap();
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

/// A folder of this test's own, removed with it.
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
async fn a_kubeconfig_file_is_for_its_owner_and_replaced_only_on_request() {
    by(async {
        let folder = Folder::new("kubeconfig");
        let path = folder.0.join("config");
        let server = ApiServer::new();
        let one = server.listen(Listen::https()).await.unwrap();
        let two = server.listen(Listen::https()).await.unwrap();
        one.write_kubeconfig(&path, Overwrite::No).unwrap();
        let error = two.write_kubeconfig(&path, Overwrite::No).unwrap_err();
        assert!(matches!(error, ListenError::KubeconfigExists { .. }), "{error:?}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), one.kubeconfig());
        two.write_kubeconfig(&path, Overwrite::Yes).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), two.kubeconfig());
        assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 1, "nothing is left beside it");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        // `--kubeconfig /dev/null --force` once put a file in the place of the device.
        #[cfg(unix)]
        {
            let socket = folder.0.join("socket");
            let _bound = std::os::unix::net::UnixListener::bind(&socket).unwrap();
            let error = one.write_kubeconfig(&socket, Overwrite::Yes).unwrap_err();
            assert!(matches!(error, ListenError::Kubeconfig { .. }), "{error:?}");
            assert!(!std::fs::symlink_metadata(&socket).unwrap().is_file(), "it is still what it was");
        }
        let nowhere = folder.0.join("none").join("config");
        let error = one.write_kubeconfig(nowhere, Overwrite::Yes).unwrap_err();
        assert!(matches!(error, ListenError::Kubeconfig { .. }), "{error:?}");
    })
    .await;
}

#[tokio::test]
async fn clients_may_speak_http2() {
    by(async {
        let server = ApiServer::new();
        let listening = server.listen(Listen::http()).await.unwrap();
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
        let answers = futures::future::join_all((0..50).map(|_| get("/api/v1/namespaces"))).await;
        assert!(answers.into_iter().all(|answer| answer.unwrap().status() == 200));
        let (ended, ()) = tokio::join!(watch.into_body().collect(), listening.shutdown());
        assert!(ended.unwrap().to_bytes().is_empty(), "a clean end");
    })
    .await;
}
