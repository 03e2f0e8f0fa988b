//! Who may do what, as far as no recording shows it: `replay` asks the recorded questions about tokens, roles and reviews again.

#![allow(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

use http::Request;
use http_body_util::BodyExt;
use informer_apiserver::{Access, ApiServer, ApiService, User, Verb};
use serde_json::{Value, json};
use tower::ServiceExt;

const ADMIN: &str = "admin-token";
const LIMITED: &str = "limited-token";

fn users() -> Access {
    let limited = User::new("limited").uid("limited-user").group("");
    Access::new().token(ADMIN, User::admin("admin").uid("admin")).token(LIMITED, limited)
}

async fn send(
    service: &ApiService,
    asked: &Value,
    authorization: Option<String>,
) -> (u16, http::HeaderMap, Value) {
    let mut request = Request::builder()
        .method(asked["method"].as_str().unwrap())
        .uri(asked["path"].as_str().unwrap())
        .header("user-agent", "recorder/1.0");
    for (name, value) in asked["headers"].as_object().into_iter().flatten() {
        request = request.header(name, value.as_str().unwrap());
    }
    if let Some(authorization) = authorization {
        request = request.header("authorization", authorization);
    }
    let text = asked.get("text").and_then(Value::as_str).map(str::to_owned);
    let body = text.or_else(|| asked.get("body").map(Value::to_string)).unwrap_or_default();
    let answer = service.clone().oneshot(request.body(body).unwrap()).await.unwrap();
    let (parts, body) = answer.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    let text = || Value::from(String::from_utf8_lossy(&bytes).into_owned());
    (parts.status.as_u16(), parts.headers, serde_json::from_slice(&bytes).unwrap_or_else(|_| text()))
}

async fn ask(service: &ApiService, token: &str, method: &str, path: &str, body: Value) -> (u16, Value) {
    let headers = json!({"accept": "application/json", "content-type": "application/json"});
    let mut asked = json!({"method": method, "path": path, "headers": headers});
    if !body.is_null() {
        asked["body"] = body;
    }
    let (code, _, body) = send(service, &asked, Some(format!("Bearer {token}"))).await;
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
async fn the_usual_roles_are_there() {
    let server = ApiServer::new();
    let service = server.guarded(users());
    let pods = "/api/v1/namespaces/default/pods";
    let secrets = "/api/v1/namespaces/default/secrets";
    assert_eq!(ask(&service, LIMITED, "GET", pods, Value::Null).await.0, 403);
    bind(&server, "view");
    assert_eq!(ask(&service, LIMITED, "GET", pods, Value::Null).await.0, 200);
    assert_eq!(
        ask(&service, LIMITED, "GET", secrets, Value::Null).await.0,
        403,
        "secrets are not for viewers"
    );
    bind(&server, "edit");
    assert_eq!(ask(&service, LIMITED, "GET", secrets, Value::Null).await.0, 200);
    let elsewhere = "/api/v1/namespaces/kube-system/pods";
    assert_eq!(ask(&service, LIMITED, "GET", elsewhere, Value::Null).await.0, 403);
    assert_eq!(server.guarded(users()).oneshot(Request::new(String::new())).await.unwrap().status(), 403);
}

/// What was sent was looked at as JSON, so that a role in YAML, or one with an entry that no reader of rules took, was not looked at
/// at all.
#[tokio::test]
async fn nobody_grants_what_they_do_not_have_however_it_is_sent() {
    let server = ApiServer::new();
    let service = server.guarded(users());
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
        let asked = json!({
            "method": "POST", "path": "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles", "text": text,
            "headers": {"accept": "application/json", "content-type": content_type},
        });
        let (code, _, body) = send(&service, &asked, Some(format!("Bearer {LIMITED}"))).await;
        let stored = server.get("rbac.authorization.k8s.io/v1", "roles", Some("default"), "all");
        let granted = stored.is_some_and(|role| role["rules"].to_string().contains('*'));
        assert!(!granted, "{code} for {text}: {body}");
    }
}

#[tokio::test]
async fn nobody_grants_what_they_do_not_have() {
    let server = ApiServer::new();
    let service = server.guarded(users());
    bind(&server, "admin");
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
    let role = |name: &str, group: &str, verbs: Value| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name},
            "rules": [{"apiGroups": [group], "resources": ["pods", "nodes"], "verbs": verbs}],
        })
    };
    let (code, body) =
        ask(&service, LIMITED, "POST", roles, role("too-much", "", json!(["get", "escape"]))).await;
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
    assert_eq!(ask(&service, LIMITED, "POST", roles, fine).await.0, 201);
    let patch = json!({"method": "PATCH", "path": format!("{roles}/fine"),
        "headers": {"accept": "application/json", "content-type": "application/merge-patch+json"},
        "body": {"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}});
    let patched = send(&service, &patch, Some(format!("Bearer {LIMITED}"))).await;
    assert_eq!(patched.0, 403, "nor by a patch: {:?}", patched.2);
    let update = role("fine", "apps", json!(["*"]));
    assert_eq!(ask(&service, LIMITED, "PUT", &format!("{roles}/fine"), update).await.0, 403);
    assert_eq!(ask(&service, ADMIN, "POST", roles, role("too-much", "", json!(["*"]))).await.0, 201);

    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    let binding = |role: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": role},
            "roleRef": {"kind": "Role", "name": role, "apiGroup": "rbac.authorization.k8s.io"},
        })
    };
    assert_eq!(ask(&service, LIMITED, "POST", bindings, binding("too-much")).await.0, 403);
    assert_eq!(ask(&service, LIMITED, "POST", bindings, binding("fine")).await.0, 201);
    let (code, body) = ask(&service, LIMITED, "POST", bindings, binding("none")).await;
    assert_eq!((code, &body["message"]), (404, &json!("role.rbac.authorization.k8s.io \"none\" not found")));
}

#[tokio::test]
async fn reviews_about_others_and_about_tokens() {
    let server = ApiServer::new();
    let service = server.guarded(users());
    bind(&server, "view");
    let review = |kind: &str, spec: Value| json!({"kind": kind, "apiVersion": "authorization.k8s.io/v1", "spec": spec});
    let pods = json!({"namespace": "default", "verb": "list", "resource": "pods"});

    let spec = json!({"user": "limited", "resourceAttributes": pods});
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let (code, body) = ask(&service, ADMIN, "POST", path, review("SubjectAccessReview", spec.clone())).await;
    let reason = r#"RBAC: allowed by RoleBinding "view/default" of ClusterRole "view" to User "limited""#;
    assert_eq!((code, &body["status"]), (201, &json!({"allowed": true, "reason": reason})));
    assert_eq!(
        ask(&service, LIMITED, "POST", path, review("SubjectAccessReview", spec.clone())).await.0,
        403
    );
    assert_eq!(ask(&service, ADMIN, "GET", path, Value::Null).await.0, 405);

    let local = "/apis/authorization.k8s.io/v1/namespaces/kube-system/localsubjectaccessreviews";
    let (code, body) = ask(&service, ADMIN, "POST", local, review("LocalSubjectAccessReview", spec)).await;
    assert_eq!(code, 422);
    assert_eq!(
        body["message"],
        ".authorization.k8s.io \"\" is invalid: spec.resourceAttributes.namespace: Invalid value: \"default\": \
         must match metadata.namespace"
    );

    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let (code, body) =
        ask(&service, ADMIN, "POST", path, review("TokenReview", json!({"token": LIMITED}))).await;
    let user = json!({"username": "limited", "uid": "limited-user", "groups": ["", "system:authenticated"]});
    assert_eq!((code, &body["status"]), (201, &json!({"authenticated": true, "user": user})));
    let (_, body) = ask(&service, ADMIN, "POST", path, review("TokenReview", json!({"token": "x"}))).await;
    assert_eq!(body["status"], json!({"user": {}, "error": "invalid bearer token"}));
}

#[tokio::test]
async fn without_access_control_everybody_is_an_administrator() {
    let server = ApiServer::new();
    let service = server.service();
    let whoami = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let (code, body) = ask(&service, "whatever", "POST", whoami, json!({})).await;
    let user = json!({"username": "admin", "groups": ["system:masters", "system:authenticated"]});
    assert_eq!((code, &body["status"]["userInfo"]), (201, &user));
    assert_eq!(server.list("rbac.authorization.k8s.io/v1", "clusterroles", None), Vec::<Value>::new());
}

#[tokio::test]
async fn the_log_says_who_asked() {
    let server = ApiServer::new();
    let service = server.guarded(users());
    let pods = "/api/v1/namespaces/default/pods";
    for token in [ADMIN, LIMITED, "wrong"] {
        ask(&service, token, "GET", pods, Value::Null).await;
    }
    let seen: Vec<(Verb, String, String)> =
        server.requests().into_iter().map(|seen| (seen.verb, seen.user, seen.accept)).collect();
    let expected =
        ["admin", "limited", ""].map(|user| (Verb::List, user.to_owned(), "application/json".to_owned()));
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn a_body_has_a_limit() {
    let service = ApiServer::new().service();
    let data = "x".repeat(3 * 1024 * 1024 + 200);
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": data}});
    let (code, body) = ask(&service, ADMIN, "POST", "/api/v1/namespaces/default/configmaps", map).await;
    let recorded = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "Request entity too large: limit is 3145728", "reason": "RequestEntityTooLarge", "code": 413,
    });
    assert_eq!((code, body), (413, recorded));
}
