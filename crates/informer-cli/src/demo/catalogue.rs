//! The programs of the demo cluster, and how many deployments, replicas and nodes there are for a number of
//! pods.

/// A program.
#[derive(Debug, Clone, Copy)]
pub(super) struct Program {
    pub(super) namespace: &'static str,
    pub(super) name: &'static str,
    pub(super) image: &'static str,
    /// Initial version: `major.minor`, with patches from 0.
    pub(super) version: (u32, u32),
    pub(super) port: u16,
    /// Relative share of the pods.
    pub(super) weight: usize,
    pub(super) cpu: &'static str,
    pub(super) memory: &'static str,
    /// Whether the program has a Secret.
    pub(super) secret: bool,
}

impl Program {
    /// Returns the image of a version.
    pub(super) fn image(&self, patch: u32) -> String {
        let (major, minor) = self.version;
        format!("{}:{major}.{minor}.{patch}", self.image)
    }
}

const fn program(
    (namespace, name): (&'static str, &'static str),
    image: &'static str,
    version: (u32, u32),
    port: u16,
    (weight, cpu, memory, secret): (usize, &'static str, &'static str, bool),
) -> Program {
    Program { namespace, name, image, version, port, weight, cpu, memory, secret }
}

pub(super) const PROGRAMS: &[Program] = &[
    program(("shop", "web"), "registry.example.com/shop/web", (2, 14), 8080, (6, "250m", "256Mi", false)),
    program(("shop", "cart"), "registry.example.com/shop/cart", (1, 8), 8080, (4, "200m", "256Mi", true)),
    program(
        ("shop", "catalog"),
        "registry.example.com/shop/catalog",
        (3, 2),
        9000,
        (5, "200m", "384Mi", true),
    ),
    program(("shop", "search"), "registry.example.com/shop/search", (0, 31), 9200, (3, "500m", "1Gi", false)),
    program(
        ("payments", "checkout"),
        "registry.example.com/pay/checkout",
        (5, 1),
        8443,
        (4, "300m", "512Mi", true),
    ),
    program(
        ("payments", "ledger"),
        "registry.example.com/pay/ledger",
        (1, 0),
        8443,
        (3, "300m", "512Mi", true),
    ),
    program(("data", "ingest"), "registry.example.com/data/ingest", (4, 7), 7000, (5, "500m", "768Mi", true)),
    program(("data", "scorer"), "registry.example.com/data/scorer", (2, 2), 7001, (3, "1", "1536Mi", false)),
    program(
        ("monitoring", "collector"),
        "registry.example.com/ops/collector",
        (0, 99),
        9090,
        (3, "100m", "192Mi", false),
    ),
    program(
        ("monitoring", "alerts"),
        "registry.example.com/ops/alerts",
        (1, 4),
        9093,
        (2, "50m", "96Mi", true),
    ),
];

/// Namespaces that the server does not create itself.
pub(super) const NAMESPACES: &[&str] = &["shop", "payments", "data", "monitoring"];

/// A planned deployment.
#[derive(Debug, Clone)]
pub(super) struct Planned {
    pub(super) program: Program,
    pub(super) name: String,
    pub(super) replicas: usize,
}

/// Plans the deployments for about this many pods.
pub(super) fn plan(pods: usize) -> Vec<Planned> {
    // Few pods result in small deployments, many in larger and more deployments.
    let pods_per_deployment = match pods {
        0..100 => 4,
        100..1000 => 10,
        _ => 25,
    };
    let count = (pods / pods_per_deployment).clamp(1, 1000);
    let weights: usize = (0..count).map(|index| program_and_round(index).0.weight).sum();
    (0..count)
        .map(|index| {
            let (program, round) = program_and_round(index);
            let name =
                if round == 0 { program.name.to_owned() } else { format!("{}-{}", program.name, round + 1) };
            Planned { program, name, replicas: (pods * program.weight / weights.max(1)).max(1) }
        })
        .collect()
}

/// Returns the number of nodes for this many pods.
pub(super) fn nodes(pods: usize) -> usize {
    (pods / 12).clamp(3, 300)
}

/// Returns the program of a deployment. The table is used several times; the round counts these times from 0.
fn program_and_round(index: usize) -> (Program, usize) {
    // The table is not empty, so the remainder is a valid index.
    (PROGRAMS[index % PROGRAMS.len()], index / PROGRAMS.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn plan_has_about_the_requested_number_of_pods() {
        for pods in [10, 40, 99, 500, 5000, 20_000] {
            let plan = plan(pods);
            let sum: usize = plan.iter().map(|planned| planned.replicas).sum();
            assert!(sum * 10 >= pods * 7 && sum <= pods, "{pods}: {sum}");
            let names: BTreeSet<_> =
                plan.iter().map(|planned| (planned.program.namespace, &planned.name)).collect();
            assert_eq!(names.len(), plan.len());
            assert!(plan.iter().all(|planned| NAMESPACES.contains(&planned.program.namespace)));
        }
    }

    #[test]
    fn plan_supports_one_pod() {
        assert_eq!(plan(1).len(), 1);
    }
}
