//! Names in generated code, derived from the names in Kubernetes.
//!
//! Groups have the names of client-go; methods are made of the words of a kind: `ReplicaSet` and
//! `replicasets` give `replica_sets`. A name that cannot be derived is an error. Rust keywords are not
//! checked; the compiler reports them.

/// Returns the method name of a group: its first label, or `core` for the core group.
pub(super) fn group_method(group: &str) -> &str {
    match group.split('.').next() {
        None | Some("") => "core",
        Some(label) => label,
    }
}

/// Capitalises the first letter, for names of types: `v1beta1` → `V1beta1`.
pub(super) fn capitalised(name: &str) -> String {
    let mut chars = name.chars();
    chars.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(chars).collect()
}

/// Returns the method name of a kind: all words of the kind except the last, then the rest of the plural.
pub(super) fn kind_method(kind: &str, plural: &str) -> Result<String, String> {
    let mismatch =
        || format!("cannot derive a method name for `{kind}`: its plural `{plural}` has different words");
    let words = words(kind);
    let (last, head) = words.split_last().ok_or_else(mismatch)?;
    let ending = plural.strip_prefix(&head.concat()).ok_or_else(mismatch)?;
    // `policies` and `policy` differ only after the last but one letter of `policy`.
    let stem = &last[..last.len() - 1];
    if !ending.starts_with(stem) {
        return Err(mismatch());
    }
    Ok(head.iter().map(String::as_str).chain([ending]).collect::<Vec<_>>().join("_"))
}

/// Splits a camel-case name into words in lower case. A run of capitals is one word, except its last letter
/// if a lower-case letter follows: `CSIStorageCapacity` → `csi`, `storage`, `capacity`.
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
    fn method_has_the_words_of_the_kind() {
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
    fn irregular_plurals_are_kept() {
        check("NetworkPolicy", "networkpolicies", "network_policies");
        check("Ingress", "ingresses", "ingresses");
        check("StorageClass", "storageclasses", "storage_classes");
        check("ComponentStatus", "componentstatuses", "component_statuses");
        check("Endpoints", "endpoints", "endpoints");
    }

    #[test]
    fn acronym_is_one_word() {
        check("CSIDriver", "csidrivers", "csi_drivers");
        check("CSIStorageCapacity", "csistoragecapacities", "csi_storage_capacities");
        check("APIService", "apiservices", "api_services");
        check("IPAddress", "ipaddresses", "ip_addresses");
        check("ServiceCIDR", "servicecidrs", "service_cidrs");
    }

    #[test]
    fn digit_does_not_start_a_word() {
        check("Http2Route", "http2routes", "http2_routes");
    }

    #[test]
    fn plural_with_different_words_is_an_error() {
        for (kind, plural) in
            [("PodGroup", "teams"), ("PodGroup", "podteams"), ("PodGroup", "pod"), ("", "pods")]
        {
            let reason = kind_method(kind, plural).unwrap_err();
            assert!(reason.starts_with(&format!("cannot derive a method name for `{kind}`")), "{reason}");
        }
    }

    #[test]
    fn groups_have_names_of_client_go() {
        assert_eq!(group_method(""), "core");
        assert_eq!(group_method("apps"), "apps");
        assert_eq!(group_method("rbac.authorization.k8s.io"), "rbac");
        assert_eq!(group_method("internal.apiserver.k8s.io"), "internal");
    }

    #[test]
    fn type_names_are_capitalised() {
        assert_eq!(capitalised("admissionregistration"), "Admissionregistration");
        assert_eq!(capitalised("v1beta1"), "V1beta1");
        assert_eq!(capitalised(""), "");
    }
}
