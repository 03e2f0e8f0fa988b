//! The names that generated code has, from the names that Kubernetes has.
//!
//! Groups are called as in client-go, methods by the words of a kind: `ReplicaSet` and `replicasets` make `replica_sets`. What
//! cannot be named is an error; nothing here guesses. Rust's keywords are not known: the compiler would say so.

/// The method for a group: its first label, `core` for the group without a name.
pub(super) fn group_method(group: &str) -> &str {
    match group.split('.').next() {
        None | Some("") => "core",
        Some(label) => label,
    }
}

/// A lower-case name as (a part of) the name of a type: `v1beta1` → `V1beta1`.
pub(super) fn capitalised(name: &str) -> String {
    let mut chars = name.chars();
    chars.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(chars).collect()
}

/// The method for a kind: all words of the kind but the last, then what the plural has left of it.
pub(super) fn kind_method(kind: &str, plural: &str) -> Result<String, String> {
    let refuse = || format!("cannot name the method for `{kind}`: its plural `{plural}` has other words");
    let words = words(kind);
    let (last, head) = words.split_last().ok_or_else(refuse)?;
    let ending = plural.strip_prefix(&head.concat()).ok_or_else(refuse)?;
    // `policies` and `policy` part before their last letter; less in common means another word.
    let stem = &last[..last.len() - 1];
    if !ending.starts_with(stem) {
        return Err(refuse());
    }
    Ok(head.iter().map(String::as_str).chain([ending]).collect::<Vec<_>>().join("_"))
}

/// The words of a name in camel case, in lower case. A run of capitals is one word, up to the one that begins the next:
/// `CSIStorageCapacity` → `csi`, `storage`, `capacity`.
fn words(name: &str) -> Vec<String> {
    let chars: Vec<char> = name.chars().collect();
    let mut words: Vec<String> = Vec::new();
    for (at, c) in chars.iter().enumerate() {
        let after_lower = at > 0 && !chars[at - 1].is_ascii_uppercase();
        let before_lower = chars.get(at + 1).is_some_and(char::is_ascii_lowercase);
        if at == 0 || (c.is_ascii_uppercase() && (after_lower || before_lower)) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut() {
            word.push(c.to_ascii_lowercase());
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(kind: &str, plural: &str, expected: &str) {
        assert_eq!(kind_method(kind, plural).as_deref(), Ok(expected));
    }

    #[test]
    fn methods_have_the_words_of_the_kind() {
        check("Pod", "pods", "pods");
        check("ReplicaSet", "replicasets", "replica_sets");
        check("ConfigMap", "configmaps", "config_maps");
        check(
            "ValidatingWebhookConfiguration",
            "validatingwebhookconfigurations",
            "validating_webhook_configurations",
        );
    }

    #[test]
    fn plurals_end_as_kubernetes_has_them() {
        check("NetworkPolicy", "networkpolicies", "network_policies");
        check("Ingress", "ingresses", "ingresses");
        check("StorageClass", "storageclasses", "storage_classes");
        check("ComponentStatus", "componentstatuses", "component_statuses");
        check("Endpoints", "endpoints", "endpoints");
    }

    #[test]
    fn an_acronym_is_one_word() {
        check("CSIDriver", "csidrivers", "csi_drivers");
        check("CSIStorageCapacity", "csistoragecapacities", "csi_storage_capacities");
        check("APIService", "apiservices", "api_services");
        check("IPAddress", "ipaddresses", "ip_addresses");
        check("ServiceCIDR", "servicecidrs", "service_cidrs");
    }

    #[test]
    fn a_digit_begins_no_word() {
        check("Http2Route", "http2routes", "http2_routes");
    }

    #[test]
    fn a_plural_with_other_words_is_an_error() {
        for (kind, plural) in
            [("PodGroup", "teams"), ("PodGroup", "podteams"), ("PodGroup", "pod"), ("", "pods")]
        {
            let reason = kind_method(kind, plural).unwrap_err();
            assert!(reason.starts_with(&format!("cannot name the method for `{kind}`")), "{reason}");
        }
    }

    #[test]
    fn groups_are_called_as_in_client_go() {
        assert_eq!(group_method(""), "core");
        assert_eq!(group_method("apps"), "apps");
        assert_eq!(group_method("rbac.authorization.k8s.io"), "rbac");
        assert_eq!(group_method("internal.apiserver.k8s.io"), "internal");
    }

    #[test]
    fn types_begin_with_a_capital() {
        assert_eq!(capitalised("admissionregistration"), "Admissionregistration");
        assert_eq!(capitalised("v1beta1"), "V1beta1");
        assert_eq!(capitalised(""), "");
    }
}
