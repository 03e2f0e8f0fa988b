//! Rejected objects with the errors of kube-apiserver, and a check that no required field can be omitted.

use informer_schema::{Shape, Type};

use super::*;

/// Required fields that kube-apiserver accepts empty, as `Type.field`.
const MAY_BE_EMPTY: &[&str] = &[
    "HTTPHeader.value",
    "Sysctl.value",
    "TokenRequest.audience",
    "StatefulSetSpec.serviceName",
    "ScopedResourceSelectorRequirement.scopeName",
    "PreferredSchedulingTerm.preference",
    "CSIDriver.spec",
    "CSINode.spec",
    "DeviceClass.spec",
    "ResourceClaim.spec",
    "ResourceClaimTemplate.spec",
    "ResourceClaimTemplateSpec.spec",
    "RoleRef.apiGroup",
    "Event.involvedObject",
];

fn now() -> Timestamp {
    "2024-01-02T03:04:05Z".parse().unwrap()
}

/// Returns the causes for a new object, one per line, or the error of the decoder.
fn errors(sent: Value) -> String {
    let (group, version, kind) = type_text(&sent);
    let type_id = type_of(&group, &version, &kind).unwrap_or_else(|| panic!("no type {kind}"));
    let mut object = match read(type_id, sent) {
        Ok(read) => read.object,
        Err(why) => return why,
    };
    default(&group, &version, &kind, &mut object);
    let metadata = object["metadata"].as_object_mut().unwrap();
    metadata.insert("uid".to_owned(), "u".into());
    if RESOURCES.iter().any(|known| known.group == group && known.kind == kind && known.namespaced) {
        metadata.insert("namespace".to_owned(), "default".into());
    }
    prepare_create(&group, &kind, &mut object, now());
    let causes = validate::create(&group, &kind, &object);
    causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect::<Vec<_>>().join("\n")
}

/// Collects the required fields that an object has outside `metadata` and `status`: path and `Type.field`.
fn collect_required(
    object_type: &'static Type,
    value: &Value,
    path: &str,
    paths: &mut Vec<(String, String)>,
) {
    for field in &object_type.fields {
        if matches!(field.name, "metadata" | "status" | "apiVersion" | "kind") && path.is_empty() {
            continue;
        }
        let Some(value) = value.get(field.name) else { continue };
        let path = format!("{path}/{}", field.name);
        let simple = matches!(field.shape, Shape::String | Shape::Object(_));
        if field.required && simple && !value.is_null() && *value != "" && *value != json!({}) {
            let short = object_type.name.rsplit('.').next().unwrap();
            paths.push((path.clone(), format!("{short}.{}", field.name)));
        }
        collect_required_inside(field.shape, value, &path, paths);
    }
}

fn collect_required_inside(shape: Shape, value: &Value, path: &str, paths: &mut Vec<(String, String)>) {
    match (shape, value) {
        (Shape::Object(id), value) if path.len() < 200 => collect_required(id.get(), value, path, paths),
        (Shape::List(items, _), Value::Array(entries)) => {
            for (index, entry) in entries.iter().enumerate() {
                collect_required_inside(*items, entry, &format!("{path}/{index}"), paths);
            }
        }
        _ => {}
    }
}

/// Every kind must reject an object without a field that its type requires.
#[test]
fn required_field_cannot_be_omitted() {
    let mut lines = Vec::new();
    let mut checked = 0;
    for (name, sent, _) in super::kinds::objects() {
        let Some(sent) = sent else { continue };
        let (group, version, kind) = type_text(&sent);
        let Some(type_id) = type_of(&group, &version, &kind) else { continue };
        let mut paths = Vec::new();
        collect_required(type_id.get(), &sent, "", &mut paths);
        for (path, short) in paths {
            let (parent, field) = path.rsplit_once('/').unwrap();
            let mut without_field = sent.clone();
            without_field.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(field);
            checked += 1;
            if errors(without_field).is_empty() && !MAY_BE_EMPTY.contains(&short.as_str()) {
                lines.push(format!("{name}: {path} ({short})"));
            }
        }
    }
    assert!(checked > 300, "only {checked}");
    assert!(lines.is_empty(), "{}", lines.join("\n"));
}

/// Invalid objects and their causes.
#[test]
fn errors_equal_those_of_kube_apiserver() {
    let container = json!({"name": "a", "image": "i"});
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}});
    let job_template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"restartPolicy": "Never", "containers": [container]}});
    let cases: &[(Value, &str)] = &[
        (
            json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "a", "image": "i", "env": [{"name": ""}],
            "volumeMounts": [{"name": "gone", "mountPath": "/x"}], "imagePullPolicy": "Sometimes"}], "volumes": [{"name": "v", "hostPath": {"path": ""}}]}}),
            "spec.volumes[0].hostPath.path: Required value\n\
          spec.containers[0].env[0].name: Required value\n\
          spec.containers[0].volumeMounts[0].name: Not found: \"gone\"\n\
          spec.containers[0].imagePullPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"IfNotPresent\", \"Never\"",
        ),
        (
            json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "a", "image": "i", "livenessProbe": {}}]}}),
            "spec.containers[0].livenessProbe: Required value: must specify a handler type",
        ),
        (
            json!({"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": 0}, {"name": "b", "port": 80, "protocol": "ICMP"}]}}),
            "spec.ports[0].name: Required value\n\
          spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive\n\
          spec.ports[0].targetPort: Invalid value: 0: must be between 1 and 65535, inclusive\n\
          spec.ports[1].protocol: Unsupported value: \"ICMP\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
        ),
        (
            json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": {"selector": {"matchLabels": {"a": "c"}}, "template": template}}),
            "spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` does not match template `labels`",
        ),
        (
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": -1, "selector": {}, "template": template}}),
            "spec.replicas: Invalid value: -1: must be greater than or equal to 0\n\
          spec.selector: Invalid value: {}: empty selector is invalid for deployment",
        ),
        (
            json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": template}}),
            "spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\"",
        ),
        (
            json!({"apiVersion": "batch/v1", "kind": "CronJob", "spec": {"schedule": "often", "jobTemplate": {"spec": {"template": job_template}}}}),
            "spec.schedule: Invalid value: \"often\": expected exactly 5 fields, found 1: [often]",
        ),
        (
            json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": {}}),
            "spec.accessModes: Required value: at least 1 access mode is required\nspec.resources[storage]: Required value",
        ),
        (
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "rules": [{"verbs": []}]}),
            "rules[0].verbs: Required value: verbs must contain at least one value\n\
          rules[0].apiGroups: Required value: resource rules must supply at least one api group\n\
          rules[0].resources: Required value: resource rules must supply at least one resource",
        ),
        (
            json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "spec": {"rules": [{"http": {"paths": [{"path": "x", "pathType": "Prefix", "backend": {}}]}}]}}),
            "spec.rules[0].http.paths[0].path: Invalid value: \"x\": must be an absolute path\n\
          spec.rules[0].http.paths[0].backend: Invalid value: \"\": resource or service backend is required",
        ),
        (
            json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "stringData": {"tls.crt": "x"}}),
            "data[tls.key]: Required value",
        ),
    ];
    for (sent, expected) in cases {
        let mut sent = sent.clone();
        sent["metadata"] = json!({"name": "x"});
        assert_eq!(&errors(sent.clone()), expected, "{sent}");
    }
}

#[test]
fn rarely_violated_rules_are_checked() {
    let pod = |fields: Value| {
        let mut spec = json!({"containers": [{"name": "c", "image": "i"}]});
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        json!({"apiVersion": "v1", "kind": "Pod", "spec": spec})
    };
    let service = |spec: Value| json!({"apiVersion": "v1", "kind": "Service", "spec": spec});
    let port = |port: Value| {
        let spec = json!({"podSelector": {}, "ingress": [{"ports": [port]}]});
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "spec": spec})
    };
    for (sent, expected) in [
        (
            pod(json!({"shareProcessNamespace": true, "hostPID": true})),
            "spec.securityContext.shareProcessNamespace: Invalid value: true: ShareProcessNamespace and HostPID \
             cannot both be enabled",
        ),
        (
            pod(json!({"hostAliases": [{"ip": "x", "hostnames": ["ok"]}]})),
            "spec.hostAliases[0].ip: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or \
             2001:db8::ffff)",
        ),
        (
            pod(json!({"topologySpreadConstraints": [
                {"maxSkew": 0, "topologyKey": "k", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}},
            ]})),
            "spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
        ),
        (
            service(json!({"ports": [{"port": 1}], "ipFamilyPolicy": "RequireDualStack"})),
            "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not configured for \
             dual-stack services",
        ),
        (
            json!({"apiVersion": "v1", "kind": "ResourceQuota", "spec": {"hard": {"pods": "-2", "stuff": "1"}}}),
            "spec.hard[pods]: Invalid value: \"-2\": must be greater than or equal to 0\n\
             spec.hard[stuff]: Invalid value: \"stuff\": must be a standard resource for quota",
        ),
        (
            json!({"apiVersion": "v1", "kind": "LimitRange", "spec": {"limits": [
                {"type": "Pod", "min": {"cpu": "2"}, "max": {"cpu": "1"}},
            ]}}),
            "spec.limits[0].min[cpu]: Invalid value: \"2\": min value 2 is greater than max value 1",
        ),
        (
            json!({
                "apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "spec": {"controller": "x"},
            }),
            "spec.controller: Invalid value: \"x\": must be a domain-prefixed path (such as \"acme.io/foo\")",
        ),
        (
            port(json!({"port": 5, "endPort": 4})),
            "spec.ingress[0].ports[0].endPort: Invalid value: 5: must be greater than or equal to `port`",
        ),
        (
            port(json!({"port": "http", "endPort": 4})),
            "spec.ingress[0].ports[0].endPort: Invalid value: 4: may not be specified when `port` is non-numeric",
        ),
    ] {
        let mut sent = sent.clone();
        sent["metadata"] = json!({"name": "x"});
        assert_eq!(errors(sent.clone()), expected, "{sent}");
    }
}

#[test]
fn ingress_with_two_classes_is_rejected() {
    let ingress = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": {"name": "x", "annotations": {"kubernetes.io/ingress.class": "a"}},
        "spec": {
            "ingressClassName": "b",
            "defaultBackend": {"service": {"name": "s", "port": {"number": 1}}},
        },
    });
    let expected = "annotations.kubernetes.io/ingress.class: Invalid value: \"a\": must match `ingressClassName` when \
                both are specified";
    assert_eq!(errors(ingress), expected);
}

/// Errors of Go for bodies that do not match its types.
#[test]
fn mismatching_bodies_are_rejected_as_by_go() {
    let pod =
        |spec: Value| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": spec});
    for (sent, expected) in [
        (
            pod(json!("none")),
            "json: cannot unmarshal string into Go struct field Pod.spec of type v1.PodSpec",
        ),
        (
            pod(json!({"restartPolicy": 1})),
            "json: cannot unmarshal number into Go struct field PodSpec.spec.restartPolicy of type string",
        ),
        (
            pod(json!({"priority": 4_000_000_000_u64})),
            "json: cannot unmarshal number 4000000000 into Go struct field PodSpec.spec.priority of type int32",
        ),
        (
            pod(json!({"nodeSelector": []})),
            "json: cannot unmarshal array into Go struct field PodSpec.spec.nodeSelector of type map[string]string",
        ),
        (
            pod(json!({"containers": [{"resources": {"limits": {"cpu": "much"}}}]})),
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        (
            json!({"apiVersion": "v1", "kind": "Secret", "data": {"k": "%"}}),
            "illegal base64 data at input byte 0",
        ),
        (
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"creationTimestamp": 5}}),
            "json: cannot unmarshal number into Go value of type string",
        ),
    ] {
        assert_eq!(errors(sent), expected);
    }
    let type_id = type_of("", "v1", "Pod").unwrap();
    let odd = pod(json!({"containers": [{"name": "a", "imagee": 1, "ports": [{"Port": 1}]}], "nothing": {}}));
    let decoded = decode(type_id, "Pod", "v1", odd).unwrap();
    assert_eq!(
        decoded.unknown,
        ["spec.containers[0].ports[0].Port", "spec.containers[0].imagee", "spec.nothing"]
    );
}
