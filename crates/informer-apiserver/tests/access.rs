//! Authentication and authorization beyond the recordings; `replay` covers the recorded requests about tokens, roles
//! and access reviews.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

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
    assert_eq!((code, &body["status"]), (201, &json!({"authenticated": true, "user": user})));
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
