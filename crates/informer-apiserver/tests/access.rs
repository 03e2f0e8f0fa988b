//! Authentication and authorization beyond the recordings; `replay` covers the recorded requests about tokens, roles
//! and access reviews.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::time::Duration;

use http::Request;
use http_body_util::BodyExt;
use informer_apiserver::{AccessControl, ApiServer, ApiService, User, Verb};
use serde_json::{Value, json};
use tower::ServiceExt;

const ADMIN: &str = "admin-token";
const LIMITED: &str = "limited-token";

fn users() -> AccessControl {
    let limited = User::new("limited").uid("limited-user").group("");
    AccessControl::new().token(ADMIN, User::admin("admin").uid("admin")).token(LIMITED, limited)
}

async fn send(
    service: &ApiService,
    request: &Value,
    authorization: Option<String>,
) -> (u16, http::HeaderMap, Value) {
    let mut builder = Request::builder()
        .method(request["method"].as_str().unwrap())
        .uri(request["path"].as_str().unwrap())
        .header("user-agent", "recorder/1.0");
    for (name, value) in request["headers"].as_object().into_iter().flatten() {
        builder = builder.header(name, value.as_str().unwrap());
    }
    if let Some(authorization) = authorization {
        builder = builder.header("authorization", authorization);
    }
    let text = request.get("text").and_then(Value::as_str).map(str::to_owned);
    let body = text.or_else(|| request.get("body").map(Value::to_string)).unwrap_or_default();
    let response = service.clone().oneshot(builder.body(body).unwrap()).await.unwrap();
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    let text = || Value::from(String::from_utf8_lossy(&bytes).into_owned());
    (parts.status.as_u16(), parts.headers, serde_json::from_slice(&bytes).unwrap_or_else(|_| text()))
}

async fn send_request(
    service: &ApiService,
    token: &str,
    method: &str,
    path: &str,
    body: Value,
) -> (u16, Value) {
    let headers = json!({"accept": "application/json", "content-type": "application/json"});
    let mut request = json!({"method": method, "path": path, "headers": headers});
    if !body.is_null() {
        request["body"] = body;
    }
    let (code, _, body) = send(service, &request, Some(format!("Bearer {token}"))).await;
    (code, body)
}

fn bind(server: &ApiServer, cluster_role: &str) {
    server
        .create(&json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": cluster_role, "namespace": "default"},
            "subjects": [{"kind": "User", "name": "limited", "apiGroup": "rbac.authorization.k8s.io"}],
            "roleRef": {"kind": "ClusterRole", "name": cluster_role, "apiGroup": "rbac.authorization.k8s.io"},
        }))
        .unwrap();
}

#[tokio::test]
async fn view_and_edit_cluster_roles_grant_access() {
    let server = ApiServer::new();
    let service = server.service_with_access(users());
    let pods = "/api/v1/namespaces/default/pods";
    let secrets = "/api/v1/namespaces/default/secrets";
    assert_eq!(send_request(&service, LIMITED, "GET", pods, Value::Null).await.0, 403);
    bind(&server, "view");
    assert_eq!(send_request(&service, LIMITED, "GET", pods, Value::Null).await.0, 200);
    assert_eq!(
        send_request(&service, LIMITED, "GET", secrets, Value::Null).await.0,
        403,
        "`view` must not grant secrets"
    );
    bind(&server, "edit");
    assert_eq!(send_request(&service, LIMITED, "GET", secrets, Value::Null).await.0, 200);
    let other_namespace = "/api/v1/namespaces/kube-system/pods";
    assert_eq!(send_request(&service, LIMITED, "GET", other_namespace, Value::Null).await.0, 403);
    assert_eq!(
        server.service_with_access(users()).oneshot(Request::new(String::new())).await.unwrap().status(),
        403
    );
}

/// Regression: the escalation check parsed the body as JSON only, so a role sent as YAML, or with an entry that could
/// not be parsed as a rule, was not checked at all.
#[tokio::test]
async fn privilege_escalation_is_rejected_in_every_encoding() {
    let server = ApiServer::new();
    let service = server.service_with_access(users());
    bind(&server, "admin");
    let everything = r#"{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}"#;
    let role = |rules: &str| {
        format!(
            r#"{{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {{"name": "all"}}, {rules}}}"#
        )
    };
    let yaml = "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: all}\nrules:\n\
                - apiGroups: ['*']\n  resources: ['*']\n  verbs: ['*']\n";
    let sent = [
        ("application/yaml", yaml.to_owned()),
        ("application/json", role(&format!(r#""rules": [null, {everything}]"#))),
        ("application/json", role(&format!(r#""rules": [{everything}], "rules": []"#))),
        ("application/json", role(&format!(r#""rules": [], "rules": [{everything}]"#))),
    ];
    for (content_type, text) in sent {
        let request = json!({
            "method": "POST", "path": "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles", "text": text,
            "headers": {"accept": "application/json", "content-type": content_type},
        });
        let (code, _, body) = send(&service, &request, Some(format!("Bearer {LIMITED}"))).await;
        let stored = server.get("rbac.authorization.k8s.io/v1", "roles", Some("default"), "all");
        let granted = stored.is_some_and(|role| role["rules"].to_string().contains('*'));
        assert!(!granted, "{code} for {text}: {body}");
    }
}

#[tokio::test]
async fn privilege_escalation_by_roles_and_bindings_is_rejected() {
    let server = ApiServer::new();
    let service = server.service_with_access(users());
    bind(&server, "admin");
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
    let role = |name: &str, group: &str, verbs: Value| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name},
            "rules": [{"apiGroups": [group], "resources": ["pods", "nodes"], "verbs": verbs}],
        })
    };
    let (code, body) =
        send_request(&service, LIMITED, "POST", roles, role("too-much", "", json!(["get", "escape"]))).await;
    assert_eq!(code, 403);
    assert_eq!(
        body["message"],
        "roles.rbac.authorization.k8s.io \"too-much\" is forbidden: user \"limited\" (groups=[\"\" \
         \"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], \
         Resources:[\"nodes\"], Verbs:[\"get\" \"escape\"]}\n{APIGroups:[\"\"], Resources:[\"pods\"], \
         Verbs:[\"escape\"]}"
    );
    let fine = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "fine"},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
    });
    assert_eq!(send_request(&service, LIMITED, "POST", roles, fine).await.0, 201);
    let patch = json!({"method": "PATCH", "path": format!("{roles}/fine"),
        "headers": {"accept": "application/json", "content-type": "application/merge-patch+json"},
        "body": {"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}});
    let patched = send(&service, &patch, Some(format!("Bearer {LIMITED}"))).await;
    assert_eq!(patched.0, 403, "escalation by patch: {:?}", patched.2);
    let update = role("fine", "apps", json!(["*"]));
    assert_eq!(send_request(&service, LIMITED, "PUT", &format!("{roles}/fine"), update).await.0, 403);
    assert_eq!(send_request(&service, ADMIN, "POST", roles, role("too-much", "", json!(["*"]))).await.0, 201);

    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    let binding = |role: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": role},
            "roleRef": {"kind": "Role", "name": role, "apiGroup": "rbac.authorization.k8s.io"},
        })
    };
    assert_eq!(send_request(&service, LIMITED, "POST", bindings, binding("too-much")).await.0, 403);
    assert_eq!(send_request(&service, LIMITED, "POST", bindings, binding("fine")).await.0, 201);
    let (code, body) = send_request(&service, LIMITED, "POST", bindings, binding("none")).await;
    assert_eq!((code, &body["message"]), (404, &json!("role.rbac.authorization.k8s.io \"none\" not found")));
}

#[tokio::test]
async fn subject_access_reviews_and_token_reviews() {
    let server = ApiServer::new();
    let service = server.service_with_access(users());
    bind(&server, "view");
    let review = |kind: &str, spec: Value| json!({"kind": kind, "apiVersion": "authorization.k8s.io/v1", "spec": spec});
    let pods = json!({"namespace": "default", "verb": "list", "resource": "pods"});

    let spec = json!({"user": "limited", "resourceAttributes": pods});
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let (code, body) =
        send_request(&service, ADMIN, "POST", path, review("SubjectAccessReview", spec.clone())).await;
    let reason = r#"RBAC: allowed by RoleBinding "view/default" of ClusterRole "view" to User "limited""#;
    assert_eq!((code, &body["status"]), (201, &json!({"allowed": true, "reason": reason})));
    assert_eq!(
        send_request(&service, LIMITED, "POST", path, review("SubjectAccessReview", spec.clone())).await.0,
        403
    );
    assert_eq!(send_request(&service, ADMIN, "GET", path, Value::Null).await.0, 405);

    let local = "/apis/authorization.k8s.io/v1/namespaces/kube-system/localsubjectaccessreviews";
    let (code, body) =
        send_request(&service, ADMIN, "POST", local, review("LocalSubjectAccessReview", spec)).await;
    assert_eq!(code, 422);
    assert_eq!(
        body["message"],
        ".authorization.k8s.io \"\" is invalid: spec.resourceAttributes.namespace: Invalid value: \"default\": \
         must match metadata.namespace"
    );

    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let (code, body) =
        send_request(&service, ADMIN, "POST", path, review("TokenReview", json!({"token": LIMITED}))).await;
    let user = json!({"username": "limited", "uid": "limited-user", "groups": ["", "system:authenticated"]});
    assert_eq!(
        (code, &body["status"]),
        (201, &json!({"authenticated": true, "user": user, "audiences": [ISSUER]}))
    );
    let (_, body) =
        send_request(&service, ADMIN, "POST", path, review("TokenReview", json!({"token": "x"}))).await;
    assert_eq!(body["status"], json!({"user": {}, "error": "invalid bearer token"}));
}

#[tokio::test]
async fn without_access_control_every_user_is_admin() {
    let server = ApiServer::new();
    let service = server.service();
    let whoami = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let (code, body) = send_request(&service, "whatever", "POST", whoami, json!({})).await;
    let user = json!({"username": "admin", "groups": ["system:masters", "system:authenticated"]});
    assert_eq!((code, &body["status"]["userInfo"]), (201, &user));
    assert_eq!(server.list("rbac.authorization.k8s.io/v1", "clusterroles", None), Vec::<Value>::new());
}

#[tokio::test]
async fn recorded_requests_contain_the_user() {
    let server = ApiServer::new();
    let service = server.service_with_access(users());
    let pods = "/api/v1/namespaces/default/pods";
    for token in [ADMIN, LIMITED, "wrong"] {
        send_request(&service, token, "GET", pods, Value::Null).await;
    }
    let seen: Vec<(Verb, String, String)> =
        server.recorded_requests().into_iter().map(|seen| (seen.verb, seen.user, seen.accept)).collect();
    let expected =
        ["admin", "limited", ""].map(|user| (Verb::List, user.to_owned(), "application/json".to_owned()));
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn clients_of_users_are_distinguished_by_roles_rules_and_log() {
    let server = ApiServer::new();
    let list = async |client: &kube::Client| {
        let pods: kube::Api<k8s_openapi::api::core::v1::Pod> = kube::Api::default_namespaced(client.clone());
        match pods.list(&kube::api::ListParams::default()).await {
            Ok(_) => 200,
            Err(kube::Error::Api(status)) => status.code,
            Err(error) => panic!("{error}"),
        }
    };
    let users = [User::new("limited"), User::admin("first"), User::admin("second")];
    let [limited, first, second] = users.map(|user| server.client_as(user));
    assert_eq!([list(&limited).await, list(&first).await, list(&second).await], [403, 200, 200]);
    bind(&server, "view");
    assert_eq!(list(&limited).await, 200, "roles that are created later apply");

    let guard = server.inject(informer_apiserver::faults::respond(503).for_user("second"));
    assert_eq!([list(&limited).await, list(&first).await, list(&second).await], [200, 200, 503]);
    assert_eq!(guard.hits(), 1);
    let users: Vec<String> = server.recorded_requests().into_iter().map(|request| request.user).collect();
    assert_eq!(users, ["limited", "first", "second", "limited", "limited", "first", "second"]);
}

#[tokio::test(start_paused = true)]
async fn clock_of_the_server_follows_tokio() {
    let server = ApiServer::new();
    let started = server.now();
    tokio::time::advance(Duration::from_secs(7200)).await;
    assert_eq!(server.now().duration_since(started).as_hours(), 2);
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let created = server.create(&map).unwrap();
    let timestamp: jiff::Timestamp =
        created["metadata"]["creationTimestamp"].as_str().unwrap().parse().unwrap();
    assert!(server.now().duration_since(timestamp).as_secs() < 1);
}

#[tokio::test]
async fn too_large_body_is_rejected() {
    let service = ApiServer::new().service();
    let data = "x".repeat(3 * 1024 * 1024 + 200);
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": data}});
    let (code, body) =
        send_request(&service, ADMIN, "POST", "/api/v1/namespaces/default/configmaps", map).await;
    let recorded = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "Request entity too large: limit is 3145728", "reason": "RequestEntityTooLarge", "code": 413,
    });
    assert_eq!((code, body), (413, recorded));
}

/// The audience of the server itself.
const ISSUER: &str = "https://kubernetes.default.svc";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const TOKEN_REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const WHO_AM_I: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// Returns a server with the account `robot`, which may list pods.
fn server_with_account() -> (ApiServer, ApiService) {
    let server = ApiServer::new();
    let service = server.service_with_access(users());
    for object in [
        account("robot"),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "robot", "namespace": "default"},
            "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": "default"}],
            "roleRef": {"kind": "ClusterRole", "name": "view", "apiGroup": "rbac.authorization.k8s.io"},
        }),
    ] {
        server.create(&object).unwrap();
    }
    (server, service)
}

fn account(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "default"}})
}

async fn request_token(service: &ApiService, name: &str, spec: Value) -> (u16, Value) {
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    send_request(service, ADMIN, "POST", &format!("{ACCOUNTS}/{name}/token"), request).await
}

async fn token_of(service: &ApiService, spec: Value) -> String {
    let (code, body) = request_token(service, "robot", spec).await;
    assert_eq!(code, 201, "{body}");
    body["status"]["token"].as_str().unwrap().to_owned()
}

/// Returns the status of a `TokenReview`.
async fn review_token(service: &ApiService, token: &str, audiences: &[&str]) -> Value {
    let spec = json!({"token": token, "audiences": audiences});
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec});
    send_request(service, ADMIN, "POST", TOKEN_REVIEWS, review).await.1["status"].clone()
}

/// Returns the code of a request that the account may make.
async fn list_pods(service: &ApiService, token: &str) -> u16 {
    send_request(service, token, "GET", "/api/v1/namespaces/default/pods", Value::Null).await.0
}

fn refusal(why: &str) -> Value {
    json!({"user": {}, "error": format!("[invalid bearer token, {why}]")})
}

#[tokio::test]
async fn token_of_an_account_authenticates_it() {
    let (server, service) = server_with_account();
    let (code, body) = request_token(&service, "robot", json!({})).await;
    assert_eq!(code, 201, "{body}");
    let robot = server.get("v1", "serviceaccounts", Some("default"), "robot").unwrap();
    let metadata = &body["metadata"];
    assert_eq!((&metadata["name"], &metadata["uid"]), (&json!("robot"), &robot["metadata"]["uid"]));
    assert_eq!(metadata["managedFields"][0]["fieldsV1"], json!({"f:spec": {"f:expirationSeconds": {}}}));
    assert_eq!(metadata["managedFields"][0]["subresource"], "token");
    let spec = json!({"audiences": [ISSUER], "expirationSeconds": 3600, "boundObjectRef": null});
    assert_eq!(body["spec"], spec);
    let token = body["status"]["token"].as_str().unwrap();

    assert_eq!(list_pods(&service, token).await, 200);
    let (code, body) =
        send_request(&service, token, "GET", "/api/v1/namespaces/default/secrets", Value::Null).await;
    assert_eq!(code, 403);
    let user = "User \"system:serviceaccount:default:robot\" cannot list resource \"secrets\"";
    assert!(body["message"].as_str().unwrap().contains(user), "{body}");
    let (_, me) = send_request(&service, token, "POST", WHO_AM_I, json!({})).await;
    let me = &me["status"]["userInfo"];
    let credential = me["extra"]["authentication.kubernetes.io/credential-id"][0].as_str().unwrap();
    assert!(credential.starts_with("JTI=") && credential.len() == 40, "{credential}");
    let expected = json!({
        "username": "system:serviceaccount:default:robot", "uid": robot["metadata"]["uid"],
        "groups": ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"],
        "extra": {"authentication.kubernetes.io/credential-id": [credential]},
    });
    assert_eq!(me, &expected);
    let status = json!({"authenticated": true, "user": expected, "audiences": [ISSUER]});
    assert_eq!(review_token(&service, token, &[]).await, status);
    // Without access control there are no other tokens, but those of accounts can be reviewed.
    assert_eq!(review_token(&server.service(), token, &[]).await, status);
}

#[tokio::test]
async fn token_of_an_account_requires_permission_to_create_it() {
    let (_server, service) = server_with_account();
    let path = format!("{ACCOUNTS}/robot/token");
    let (code, body) = send_request(&service, LIMITED, "POST", &path, json!({})).await;
    assert_eq!(code, 403);
    let denied = "serviceaccounts \"robot\" is forbidden: User \"limited\" cannot create resource \
                  \"serviceaccounts/token\" in API group \"\" in the namespace \"default\"";
    assert_eq!(body["message"], denied);
    assert_eq!(send_request(&service, ADMIN, "GET", &path, Value::Null).await.0, 405);
}

#[tokio::test]
async fn token_is_meant_for_its_audiences() {
    let (_server, service) = server_with_account();
    let foreign = token_of(&service, json!({"audiences": ["vault", "db"]})).await;
    assert_eq!(list_pods(&service, &foreign).await, 401);
    let own = r#"token audiences ["vault" "db"] is invalid for the target audiences"#;
    let refused = refusal(&format!(r#"{own} ["https://kubernetes.default.svc"]"#));
    assert_eq!(review_token(&service, &foreign, &[]).await, refused);
    assert_eq!(review_token(&service, &foreign, &["x"]).await, refusal(&format!(r#"{own} ["x"]"#)));
    let status = review_token(&service, &foreign, &["x", "db", ISSUER]).await;
    assert_eq!((&status["authenticated"], &status["audiences"]), (&json!(true), &json!(["db"])));
    let both = token_of(&service, json!({"audiences": ["vault", ISSUER]})).await;
    assert_eq!(list_pods(&service, &both).await, 200);
    // Other tokens are meant for the server only.
    assert_eq!(review_token(&service, LIMITED, &["x", ISSUER]).await["audiences"], json!([ISSUER]));
    let refused = json!({"user": {}, "error": "invalid bearer token"});
    assert_eq!(review_token(&service, LIMITED, &["x"]).await, refused);
}

#[tokio::test(start_paused = true)]
async fn token_expires() {
    let (_server, service) = server_with_account();
    let short = token_of(&service, json!({"expirationSeconds": 600})).await;
    let long = token_of(&service, json!({})).await;
    // Clocks may differ by a minute.
    tokio::time::advance(Duration::from_secs(655)).await;
    assert_eq!((list_pods(&service, &short).await, list_pods(&service, &long).await), (200, 200));
    tokio::time::advance(Duration::from_secs(10)).await;
    assert_eq!((list_pods(&service, &short).await, list_pods(&service, &long).await), (401, 200));
    assert_eq!(review_token(&service, &short, &[]).await, refusal("service account token has expired"));
    tokio::time::advance(Duration::from_secs(3000)).await;
    assert_eq!(list_pods(&service, &long).await, 401);
}

#[tokio::test(start_paused = true)]
async fn token_is_revoked_with_its_account() {
    let (server, service) = server_with_account();
    let token = token_of(&service, json!({})).await;
    server.delete("v1", "serviceaccounts", Some("default"), "robot").unwrap();
    assert_eq!(list_pods(&service, &token).await, 401);
    let missing = refusal("serviceaccounts \"robot\" not found");
    assert_eq!(review_token(&service, &token, &[]).await, missing);
    server.create(&account("robot")).unwrap();
    let error = review_token(&service, &token, &[]).await["error"].to_string();
    assert!(error.contains("service account UID (") && error.contains(") does not match claim ("), "{error}");
    assert_eq!(list_pods(&service, &token).await, 401);
    assert_eq!(list_pods(&service, &token_of(&service, json!({})).await).await, 200);

    // An account that waits for a finalizer is deleted after a minute.
    let mut waiting = account("waiting");
    waiting["metadata"]["finalizers"] = json!(["example.com/x"]);
    server.create(&waiting).unwrap();
    let (_, body) = request_token(&service, "waiting", json!({})).await;
    let token = body["status"]["token"].as_str().unwrap();
    server.delete("v1", "serviceaccounts", Some("default"), "waiting").unwrap();
    assert_eq!(review_token(&service, token, &[]).await["authenticated"], true);
    tokio::time::advance(Duration::from_secs(62)).await;
    let deleted = refusal("service account default/waiting has been deleted");
    assert_eq!(review_token(&service, token, &[]).await, deleted);
}

#[tokio::test]
async fn token_is_bound_to_an_object() {
    let (server, service) = server_with_account();
    let container = json!([{"name": "c", "image": "i"}]);
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"},
        "spec": {"serviceAccountName": "robot", "nodeName": "n", "containers": container},
    });
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"}});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
    for (kind, plural, object) in
        [("Secret", "secrets", secret), ("Node", "nodes", node), ("Pod", "pods", pod)]
    {
        let made = server.create(&object).unwrap();
        let name = object["metadata"]["name"].as_str().unwrap();
        let reference = json!({"kind": kind, "apiVersion": "v1", "name": name});
        let token = token_of(&service, json!({"boundObjectRef": reference})).await;
        assert_eq!(list_pods(&service, &token).await, 200, "{kind}");
        let (_, me) = send_request(&service, &token, "POST", WHO_AM_I, json!({})).await;
        let uid = format!("authentication.kubernetes.io/{}-uid", kind.to_lowercase());
        let extra = &me["status"]["userInfo"]["extra"];
        if kind == "Secret" {
            assert_eq!(extra.as_object().unwrap().len(), 1);
        } else {
            assert_eq!(extra[uid], json!([made["metadata"]["uid"]]));
        }
        assert!(kind != "Pod" || extra["authentication.kubernetes.io/node-name"] == json!(["n"]));
        let namespace = (kind != "Node").then_some("default");
        server.delete("v1", plural, namespace, name).unwrap();
        let refused = refusal("service account token has been invalidated");
        assert_eq!(review_token(&service, &token, &[]).await, refused, "{kind}");
        assert_eq!(list_pods(&service, &token).await, 401, "{kind}");
        server.create(&object).unwrap();
        let error = review_token(&service, &token, &[]).await["error"].to_string();
        let low = kind.to_lowercase();
        assert!(error.contains(&format!("does not match service account {low} ref claim (")), "{error}");
    }
}

#[tokio::test]
async fn malformed_token_request_is_rejected() {
    let (server, service) = server_with_account();
    server
        .create(&json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "other", "namespace": "default"},
            "spec": {"serviceAccountName": "other", "containers": [{"name": "c", "image": "i"}]},
        }))
        .unwrap();
    let invalid = "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value";
    let reference = |kind: &str, api_version: &str, name: &str, uid: &str| {
        let reference = json!({"kind": kind, "apiVersion": api_version, "name": name, "uid": uid});
        json!({"spec": {"boundObjectRef": reference}})
    };
    let uids = "Operation cannot be fulfilled on Pod \"other\": the UID in the bound object reference (u)";
    for (name, request, code, why) in [
        ("nobody", json!({}), 404, "serviceaccounts \"nobody\" not found".to_owned()),
        (
            "robot",
            json!({"spec": {"expirationSeconds": 599}}),
            422,
            format!("{invalid}: 599: may not specify a duration less than 10 minutes"),
        ),
        (
            "robot",
            json!({"spec": {"expirationSeconds": 4_294_967_297_u64}}),
            422,
            format!("{invalid}: 4294967297: may not specify a duration larger than 2^32 seconds"),
        ),
        (
            "robot",
            json!({"metadata": {"name": "x"}}),
            422,
            "metadata.name: Invalid value: \"x\": must match the service account name if specified".to_owned(),
        ),
        ("robot", json!({"metadata": {"namespace": "x"}}), 400, "does not match the namespace".to_owned()),
        ("robot", json!({"metadata": {"uid": "u"}}), 409, "the UID in the token request (u)".to_owned()),
        ("robot", json!({"spec": {"expirationSeconds": "a"}}), 400, "cannot unmarshal string".to_owned()),
        ("robot", json!([]), 400, String::new()),
        ("robot", json!("text"), 400, String::new()),
        ("robot", json!({"metadata": [], "spec": {}}), 400, String::new()),
        ("robot", json!({"spec": {"boundObjectRef": []}}), 400, String::new()),
        ("robot", json!({"spec": {"audiences": {}}}), 400, String::new()),
        ("robot", json!({"apiVersion": "v1", "kind": "Pod"}), 400, "cannot be handled as a TokenRequest".to_owned()),
        ("robot", reference("Pod", "v1", "p", ""), 404, "pods \"p\" not found".to_owned()),
        ("robot", reference("Pod", "v1", "", ""), 400, "Name parameter required.".to_owned()),
        (
            "robot",
            reference("Pod", "apps/v1", "p", ""),
            400,
            "cannot bind token to object of type apps/v1, Kind=Pod".to_owned(),
        ),
        (
            "robot",
            reference("Pod", "v1", "other", ""),
            400,
            "cannot bind token for serviceaccount \"robot\" to pod running with different serviceaccount name."
                .to_owned(),
        ),
        ("other", reference("Pod", "v1", "other", "u"), 409, uids.to_owned()),
    ] {
        if name == "other" {
            server.create(&account("other")).unwrap();
        }
        let path = format!("{ACCOUNTS}/{name}/token");
        let (found, body) = send_request(&service, ADMIN, "POST", &path, request.clone()).await;
        let message = body["message"].as_str().unwrap_or_default();
        assert!(found == code && message.contains(&why), "{request}: {found} {body}");
    }
    let path = "/api/v1/namespaces/nowhere/serviceaccounts/a/token";
    let (code, body) = send_request(&service, ADMIN, "POST", path, json!({})).await;
    assert_eq!((code, &body["message"]), (404, &json!("namespaces \"nowhere\" not found")));
}

#[tokio::test]
async fn token_of_another_server_is_rejected() {
    let ((_one, one), (_two, two)) = (server_with_account(), server_with_account());
    let token = token_of(&one, json!({})).await;
    assert_eq!(list_pods(&one, &token).await, 200);
    assert_eq!(list_pods(&two, &token).await, 401);
    let refused = refusal("go-jose/go-jose: error in cryptographic primitive");
    assert_eq!(review_token(&two, &token, &[]).await, refused);
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let changed = if signature.starts_with('A') { 'B' } else { 'A' };
    for forged in [format!("{signed}."), format!("{signed}.{changed}{}", &signature[1..])] {
        assert_eq!(list_pods(&one, &forged).await, 401, "{forged}");
    }
}
