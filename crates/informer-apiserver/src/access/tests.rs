//! Cases that are not in the recorded responses of kube-apiserver: unusual paths, every kind of rule and each
//! mode of impersonation.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde_json::{Value, json};

use super::authenticate::{Tokens, authenticate};
use super::impersonate::impersonate;
use super::policy::Rule;
use super::rules::{Decision, Rights, Rules};
use super::{AccessControl, Attributes};
use crate::user::User;

fn attributes(method: &str, target: &str) -> Attributes {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    Attributes::of(&method.parse::<Method>().unwrap(), path, query)
}

#[test]
fn request_is_mapped_to_attributes() {
    let described = |method: &str, target: &str| {
        let found = attributes(method, target);
        let Attributes { verb, group, version, namespace, name, path, .. } = &found;
        if let Some(path) = path {
            return format!("{verb} {path}");
        }
        format!("{verb} {group}/{version} {} in {namespace:?} named {name:?}", found.combined_resource())
    };
    for (method, target, expected) in [
        ("GET", "/", "get /"),
        ("POST", "/api", "post /api"),
        ("GET", "/api/v1/", "get /api/v1/"),
        ("GET", "/apis/apps/v1", "get /apis/apps/v1"),
        ("GET", "/openapi/v3/a%20b", "get /openapi/v3/a b"),
        ("GET", "/api/v1/pods", r#"list /v1 pods in "" named """#),
        ("HEAD", "/api/v1/pods", r#"list /v1 pods in "" named """#),
        ("GET", "/api/v1/pods?watch=true", r#"watch /v1 pods in "" named """#),
        ("GET", "/api/v1/pods?watch=False", r#"list /v1 pods in "" named """#),
        ("GET", "/api/v1/pods?watch", r#"watch /v1 pods in "" named """#),
        ("GET", "/api/v1/pods?fieldSelector=metadata.name%3Da", r#"list /v1 pods in "" named "a""#),
        ("GET", "/api/v1/pods?fieldSelector=x=y,metadata.name==a", r#"list /v1 pods in "" named "a""#),
        ("GET", "/api/v1/pods?fieldSelector=metadata.name!=a", r#"list /v1 pods in "" named """#),
        ("GET", "/api/v1/pods?fieldSelector=metadata.name=a/b", r#"list /v1 pods in "" named """#),
        ("DELETE", "/api/v1/namespaces/n/pods", r#"deletecollection /v1 pods in "n" named """#),
        ("PATCH", "/api/v1/namespaces/n/pods/p/status", r#"patch /v1 pods/status in "n" named "p""#),
        ("GET", "/api/v1/namespaces/n/pods/p/proxy/a/b", r#"get /v1 pods/proxy in "n" named "p""#),
        ("PUT", "/api/v1/namespaces/n/finalize", r#"update /v1 namespaces/finalize in "n" named "n""#),
        ("POST", "/api/v1/namespaces", r#"create /v1 namespaces in "" named """#),
        ("GET", "/api/v1/watch/namespaces/n/pods", r#"watch /v1 pods in "n" named """#),
        // Authorized as a watch, although only GET requests can watch: the server rejects the method later.
        ("DELETE", "/api/v1/watch/namespaces/n/pods/p", r#"watch /v1 pods in "n" named "p""#),
        (
            "GET",
            "/api/v1/pods?fieldSelector=metadata.name!=z\\,metadata.name=a",
            r#"list /v1 pods in "" named """#,
        ),
        ("FROB", "/apis/apps/v1/deployments", r#" apps/v1 deployments in "" named """#),
        ("GET", "/api/v1/namespaces/a%2Fb/pods", r#"list /v1 pods in "a/b" named """#),
    ] {
        assert_eq!(described(method, target), expected, "{method} {target}");
    }
}

#[test]
fn rule_permits_matching_requests() {
    let rule = |rule: Value| serde_json::from_value::<Rule>(rule).unwrap();
    let all = rule(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}));
    let scale = rule(json!({"verbs": ["get"], "apiGroups": ["apps"], "resources": ["*/scale"]}));
    let status = rule(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods/status"]}));
    let named = rule(
        json!({"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}),
    );
    let paths =
        rule(json!({"verbs": ["get"], "nonResourceURLs": ["/healthz", "/apis/*"], "resources": null}));
    for (rule, method, target, allowed) in [
        (&all, "DELETE", "/apis/x/v1/ys/z/status", true),
        (&all, "GET", "/healthz", false),
        (&scale, "GET", "/apis/apps/v1/namespaces/n/deployments/d/scale", true),
        (&scale, "GET", "/apis/apps/v1/namespaces/n/deployments/d", false),
        (&scale, "PUT", "/apis/apps/v1/namespaces/n/deployments/d/scale", false),
        (&status, "GET", "/api/v1/namespaces/n/pods/p/status", true),
        (&status, "GET", "/api/v1/namespaces/n/pods/p", false),
        (&status, "GET", "/api/v1/namespaces/n/pods/p/log", false),
        (&named, "GET", "/api/v1/namespaces/n/pods/a", true),
        (&named, "GET", "/api/v1/namespaces/n/pods/b", false),
        (&named, "GET", "/api/v1/namespaces/n/pods", false),
        (&named, "GET", "/api/v1/namespaces/n/pods?fieldSelector=metadata.name=a", true),
        (&named, "GET", "/api/v1/namespaces/n/pods/a/status", false),
        (&paths, "GET", "/healthz", true),
        (&paths, "GET", "/healthz/etcd", false),
        (&paths, "GET", "/apis/apps", true),
        (&paths, "GET", "/apis", false),
        (&paths, "POST", "/healthz", false),
        (&paths, "GET", "/apis/apps/v1/deployments", false),
    ] {
        assert_eq!(rule.allows(&attributes(method, target)), allowed, "{rule:?} {method} {target}");
    }
}

/// Returns rules that permit a subject to list pods: everywhere, or in the namespace `n`.
fn bound(namespaced: bool, subject: &Value) -> Rules {
    let rules = json!([{"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]}]);
    let role = json!({"metadata": {"name": "r"}, "rules": rules});
    let mut binding = json!({
        "metadata": {"name": "b"}, "subjects": [{"kind": "User", "name": "bob"}, subject],
        "roleRef": {"kind": "ClusterRole", "name": "r"},
    });
    let (mut cluster_wide, mut local) = (Vec::new(), Vec::new());
    if namespaced {
        binding["metadata"]["namespace"] = json!("n");
        local.push(binding);
    } else {
        cluster_wide.push(binding);
    }
    Rules::new([role].into_iter(), std::iter::empty(), cluster_wide.into_iter(), local.into_iter())
}

#[test]
fn binding_applies_to_its_subjects() {
    let account = User::new("system:serviceaccount:n:robot");
    let member = User::new("alice").group("team");
    let list = attributes("GET", "/api/v1/namespaces/n/pods");
    let other_namespace = attributes("GET", "/api/v1/namespaces/m/pods");
    for (namespaced, user, subject, expected) in [
        (
            false,
            &member,
            json!({"kind": "User", "name": "alice"}),
            "ClusterRoleBinding \"b\" of ClusterRole \"r\" to User \"alice\"",
        ),
        (
            true,
            &member,
            json!({"kind": "Group", "name": "team"}),
            "RoleBinding \"b/n\" of ClusterRole \"r\" to Group \"team\"",
        ),
        (
            true,
            &account,
            json!({"kind": "ServiceAccount", "name": "robot"}),
            "RoleBinding \"b/n\" of ClusterRole \"r\" to ServiceAccount \"robot/n\"",
        ),
        (
            false,
            &account,
            json!({"kind": "ServiceAccount", "name": "robot", "namespace": "n"}),
            "ClusterRoleBinding \"b\" of ClusterRole \"r\" to ServiceAccount \"robot/n\"",
        ),
    ] {
        let rules = bound(namespaced, &subject);
        let reason = format!("RBAC: allowed by {expected}");
        assert_eq!(rules.decide(user, &list), Decision::Allowed(reason), "{subject}");
        let decision = rules.decide(user, &other_namespace);
        assert_eq!(decision == Decision::NoOpinion(String::new()), namespaced, "{subject}: {decision:?}");
    }
    for subject in [
        json!({"kind": "ServiceAccount", "name": "robot"}),
        json!({"kind": "Group", "name": "alice"}),
        json!({"kind": "Thing", "name": "alice"}),
        json!("no subject at all"),
    ] {
        let rules = bound(false, &subject);
        assert_eq!(rules.decide(&account, &list), Decision::NoOpinion(String::new()), "{subject}");
        assert_eq!(rules.decide(&member, &list), Decision::NoOpinion(String::new()), "{subject}");
    }
}

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let pair = |(name, value): &(&str, &str)| {
        (name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap())
    };
    let mut all = HeaderMap::new();
    for (name, value) in pairs.iter().map(pair) {
        all.append(name, value);
    }
    all
}

#[test]
fn token_is_known_or_invalid_or_missing() {
    let tokens = Tokens::new(AccessControl::new().token("good", User::new("alice")));
    let identify = |value: &str| {
        let result = authenticate(&tokens, &headers(&[("authorization", value)]), |_| None);
        result
            .map_or_else(|status| status.code.to_string(), |user| format!("{} {:?}", user.name, user.groups))
    };
    let known = r#"alice ["system:authenticated"]"#;
    let anonymous = r#"system:anonymous ["system:unauthenticated"]"#;
    for (value, expected) in [
        ("Bearer good", known),
        ("bearer good", known),
        ("Bearer good and more", known),
        ("Bearer bad", "401"),
        ("Bearer", anonymous),
        ("Bearer  good", anonymous),
        ("Basic Z29vZDpnb29k", anonymous),
        ("good", anonymous),
    ] {
        assert_eq!(identify(value), expected, "{value:?}");
    }
}

/// Returns rules that permit `actor` some verbs on some resources of any group.
fn actor_may(verbs: &[&str], resources: &[&str]) -> Rights {
    let role = json!({
        "metadata": {"name": "r"}, "rules": [{"verbs": verbs, "apiGroups": ["*"], "resources": resources}],
    });
    let binding = json!({
        "metadata": {"name": "b"}, "subjects": [{"kind": "User", "name": "actor"}],
        "roleRef": {"kind": "ClusterRole", "name": "r"},
    });
    let none = std::iter::empty;
    Rights::Rules(Arc::new(Rules::new([role].into_iter(), none(), [binding].into_iter(), none())))
}

#[test]
fn impersonation_requires_permission_for_each_attribute() {
    let list = attributes("GET", "/api/v1/namespaces/n/pods");
    let outcome = |rights: &Rights, pairs: &[(&str, &str)]| match impersonate(
        rights,
        User::new("actor"),
        &list,
        &headers(pairs),
    ) {
        Ok(user) => format!("{} {} {:?} {:?}", user.name, user.uid, user.groups, user.extra),
        Err(status) => format!("{} {}", status.code, status.message),
    };
    let users = actor_may(&["impersonate"], &["users"]);
    let all = actor_may(&["impersonate"], &["*"]);
    let constrained = actor_may(&["impersonate:user-info", "impersonate-on:user-info:list"], &["*"]);
    let nothing = actor_may(&[], &[]);
    let on = r#"pods is forbidden: User "actor" cannot impersonate-on:user-info:list resource "pods" in API group "" in the namespace "n""#;
    let robot = "system:serviceaccount:n:robot";
    let extra = ("impersonate-extra-a%2fb", "x");
    for (rights, pairs, expected) in [
        (&nothing, &[][..], "actor  [] {}".to_owned()),
        (&users, &[("impersonate-user", "u")], r#"u  ["system:authenticated"] {}"#.to_owned()),
        (&users, &[("impersonate-user", "u"), ("impersonate-group", "g")], format!("403 {on}")),
        (&users, &[("impersonate-user", "system:anonymous")], r#"system:anonymous  ["system:unauthenticated"] {}"#.to_owned()),
        (&all, &[("impersonate-user", "u"), ("impersonate-group", "g"), ("impersonate-group", "h"), ("impersonate-uid", "7"), extra], r#"u 7 ["g", "h", "system:authenticated"] {"a/b": ["x"]}"#.to_owned()),
        (&all, &[("impersonate-user", robot)], format!(r#"{robot}  ["system:serviceaccounts", "system:serviceaccounts:n", "system:authenticated"] {{}}"#)),
        (&all, &[("impersonate-user", "u"), ("impersonate-group", "system:masters")], r#"u  ["system:masters", "system:authenticated"] {}"#.to_owned()),
        (&constrained, &[("impersonate-user", "u")], r#"u  ["system:authenticated"] {}"#.to_owned()),
        (&constrained, &[("impersonate-user", "u"), ("impersonate-group", "system:masters")], r#"403 groups.authentication.k8s.io "system:masters" is forbidden: User "actor" cannot impersonate:user-info resource "groups" in API group "authentication.k8s.io" at the cluster scope: impersonating the system:masters group is not allowed"#.to_owned()),
        (&nothing, &[("impersonate-user", robot)], on.replace("user-info", "serviceaccount").replacen("pods", "403 pods", 1)),
        (&all, &[("impersonate-group", "g")], r#"400 requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string{"g"}, Extra:map[string][]string(nil)} without impersonating a user name"#.to_owned()),
    ] {
        assert_eq!(outcome(rights, pairs), expected, "{pairs:?}");
    }
}
