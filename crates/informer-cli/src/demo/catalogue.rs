//! The programs that run in the demo cluster, and how many of everything there is for a number of pods.

/// A program.
#[derive(Debug, Clone, Copy)]
pub(super) struct Program {
    pub(super) namespace: &'static str,
    pub(super) name: &'static str,
    pub(super) image: &'static str,
    /// The version it begins with: `major.minor`, and patches from 0.
    pub(super) version: (u32, u32),
    pub(super) port: u16,
    /// Its share of the pods.
    pub(super) weight: usize,
    pub(super) cpu: &'static str,
    pub(super) memory: &'static str,
    /// Whether it has a Secret.
    pub(super) secret: bool,
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

/// Namespaces that the server does not have from the beginning.
pub(super) const NAMESPACES: &[&str] = &["shop", "payments", "data", "monitoring"];

/// One deployment to be.
#[derive(Debug, Clone)]
pub(super) struct Planned {
    pub(super) program: Program,
    pub(super) name: String,
    pub(super) replicas: usize,
}

/// The deployments for about so many pods.
pub(super) fn plan(pods: usize) -> Vec<Planned> {
    // A few pods make small deployments, many make larger and more ones.
    let each = match pods {
        0..100 => 4,
        100..1000 => 10,
        _ => 25,
    };
    let count = (pods / each).clamp(1, 1000);
    let weights: usize = (0..count).map(|at| at_round(at).0.weight).sum();
    (0..count)
        .map(|at| {
            let (program, round) = at_round(at);
            let name =
                if round == 0 { program.name.to_owned() } else { format!("{}-{}", program.name, round + 1) };
            Planned { program, name, replicas: (pods * program.weight / weights.max(1)).max(1) }
        })
        .collect()
}

/// How many nodes carry so many pods.
pub(super) fn nodes(pods: usize) -> usize {
    (pods / 12).clamp(3, 300)
}

fn at_round(at: usize) -> (Program, usize) {
    // The table is not empty, so the remainder is always in it.
    (PROGRAMS[at % PROGRAMS.len()], at / PROGRAMS.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn plans_have_about_as_many_pods_as_asked_for() {
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
    fn one_pod_is_enough() {
        assert_eq!(plan(1).len(), 1);
    }
}
