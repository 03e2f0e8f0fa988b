//! Whether a pod fits on a node: readiness, taints, labels and free resources. Knows nothing of informers.

use k8s_openapi::api::core::v1::{Container, Node, Pod, Taint, Toleration};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeMap;

/// Amounts by resource: `cpu`, `memory`, `pods`, `nvidia.com/gpu`. In thousandths, which are whole numbers, so
/// that sums are exact.
pub(crate) type Resources = BTreeMap<String, f64>;

/// The first reason why the pod cannot run on the node; `requested` is what the pods on it request together.
pub(crate) fn misfit(pod: &Pod, requests: &Resources, node: &Node, requested: &Resources) -> Option<String> {
    let status = node.status.as_ref();
    let mut conditions = status.and_then(|status| status.conditions.as_ref()).into_iter().flatten();
    if !conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True") {
        return Some("not ready".to_owned());
    }
    let spec = node.spec.as_ref();
    if spec.is_some_and(|spec| spec.unschedulable == Some(true)) {
        return Some("unschedulable".to_owned());
    }
    let pod = pod.spec.as_ref();
    let tolerations = pod.and_then(|pod| pod.tolerations.as_deref()).unwrap_or_default();
    for taint in spec.and_then(|spec| spec.taints.as_ref()).into_iter().flatten() {
        // `PreferNoSchedule` only asks.
        let repels = matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute");
        if repels && !tolerations.iter().any(|toleration| tolerates(toleration, taint)) {
            return Some(format!("tainted {}", taint.key));
        }
    }
    let label = |name: &String| node.metadata.labels.as_ref()?.get(name);
    let mut wanted = pod.and_then(|pod| pod.node_selector.as_ref()).into_iter().flatten();
    if !wanted.all(|(name, value)| label(name) == Some(value)) {
        return Some("without the selected labels".to_owned());
    }
    let allocatable = status.and_then(|status| status.allocatable.as_ref());
    let room = |name: &String| allocatable.and_then(|all| all.get(name)).map_or(0.0, thousandths);
    let taken = |name: &String| requested.get(name).copied().unwrap_or_default();
    let lacking = requests.iter().find(|(name, amount)| taken(name) + **amount > room(name));
    lacking.map(|(name, _)| format!("with too little {name}"))
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    // An empty effect or key means every effect or key.
    let covers =
        |text: &Option<String>, of: &str| text.as_deref().is_none_or(|text| text.is_empty() || text == of);
    let value = |text: &Option<String>| text.clone().unwrap_or_default();
    let is_match = match toleration.operator.as_deref() {
        Some("Exists") => true,
        None | Some("" | "Equal") => value(&toleration.value) == value(&taint.value),
        Some(_) => false,
    };
    is_match && covers(&toleration.key, &taint.key) && covers(&toleration.effect, &taint.effect)
}

/// What a pod needs at once: all containers, or an init container, whichever is more; and one of `pods`.
pub(crate) fn requests_of(pod: &Pod) -> Resources {
    let (mut running, mut peak) = (Resources::new(), Resources::new());
    if let Some(spec) = &pod.spec {
        for container in spec.init_containers.iter().flatten() {
            let mut starting = running.clone();
            add(&mut starting, &requests(container));
            // A sidecar starts like an init container and keeps running.
            if container.restart_policy.as_deref() == Some("Always") {
                running.clone_from(&starting);
            }
            raise(&mut peak, &starting);
        }
        spec.containers.iter().for_each(|container| add(&mut running, &requests(container)));
        raise(&mut peak, &running);
        add(&mut peak, &spec.overhead.iter().flatten().map(amount).collect());
    }
    add(&mut peak, &Resources::from([("pods".to_owned(), 1_000.0)]));
    peak
}

fn requests(container: &Container) -> Resources {
    let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    requests.into_iter().flatten().map(amount).collect()
}

fn amount((name, quantity): (&String, &Quantity)) -> (String, f64) {
    (name.clone(), thousandths(quantity))
}

/// Adds the amounts of `more` to a sum.
pub(crate) fn add(sum: &mut Resources, more: &Resources) {
    for (name, amount) in more {
        *sum.entry(name.clone()).or_default() += amount;
    }
}

/// Raises each amount to at least the one in `other`.
fn raise(peak: &mut Resources, other: &Resources) {
    for (name, amount) in other {
        let peak = peak.entry(name.clone()).or_default();
        *peak = peak.max(*amount);
    }
}

/// A quantity such as `250m`, `2`, `1.5`, `1e3`, `500M` or `64Gi`, in thousandths and rounded up as Kubernetes
/// does. The server rejects other texts.
pub(crate) fn thousandths(quantity: &Quantity) -> f64 {
    let number = quantity.0.trim_end_matches(|end: char| end.is_ascii_alphabetic());
    let factor = match &quantity.0[number.len()..] {
        "n" => 1e-9,
        "u" => 1e-6,
        "m" => 1e-3,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "E" => 1e18,
        "Ki" => 2_f64.powi(10),
        "Mi" => 2_f64.powi(20),
        "Gi" => 2_f64.powi(30),
        "Ti" => 2_f64.powi(40),
        "Pi" => 2_f64.powi(50),
        "Ei" => 2_f64.powi(60),
        _ => 1.0,
    };
    let exact = number.parse::<f64>().unwrap_or_default() * factor * 1_000.0;
    // 0.29 is not exactly 290 thousandths in binary.
    if (exact - exact.round()).abs() < 1e-6 { exact.round() } else { exact.ceil() }
}
