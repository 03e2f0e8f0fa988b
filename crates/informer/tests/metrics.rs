//! The text of `/metrics`, checked by a strict parser: informers, handlers, controllers, queues, elections,
//! recorders and collectors of the application.
#![allow(clippy::unwrap_used, clippy::float_cmp, reason = "the samples are small whole numbers")]

use crate::cluster::{TIMEOUT, create_pods, log_events_with, until};
use crate::prometheus::{Sample, parse};
use informer::controller::{Controller, Outcome};
use informer::election::LeaderElector;
use informer::manager::{Manager, ManagerHandle};
use informer::metrics::{self, Collect, Encoder, Histogram};
use informer::recorder::EventRecorder;
use informer::shard::ShardGroup;
use informer::workqueue::WorkQueue;
use informer::{Selection, SharedInformerFactory};
use informer_apiserver::ApiServer;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::core::PartialObjectMeta;
use std::collections::BTreeSet;
use std::convert::Infallible;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The samples of collectors, whose text must be valid.
#[track_caller]
fn samples<'a>(collectors: impl IntoIterator<Item = &'a dyn Collect>) -> Vec<Sample> {
    let text = metrics::encode(collectors);
    parse(&text).unwrap_or_else(|reason| panic!("{reason}\n{text}"))
}

/// The value of the only sample with this name and these labels, possibly among others.
#[track_caller]
fn value(samples: &[Sample], name: &str, labels: &[(&str, &str)]) -> f64 {
    let has = |sample: &Sample, (label, value): &(&str, &str)| {
        sample.labels.get(*label).map_or("", String::as_str) == *value
    };
    let found: Vec<&Sample> = samples
        .iter()
        .filter(|sample| sample.name == name && labels.iter().all(|label| has(sample, label)))
        .collect();
    assert_eq!(found.len(), 1, "{name} {labels:?}: {found:#?}");
    found[0].value
}

#[test]
fn strict_parser_rejects_what_prometheus_rejects() {
    let family = "# HELP a_total A.\n# TYPE a_total counter\n";
    for (rest, reason) in [
        ("a_total 1", "the last line does not end with a line break"),
        ("a_total 1\n# HELP a_total A.\n# TYPE a_total counter\n", "second HELP"),
        ("# HELP b B.\n# HELP c C.\n", "no TYPE"),
        ("# TYPE b gauge\n", "a comment"),
        ("b 1\n", "not a sample"),
        ("a_total 1\na_total 2\n", "second sample"),
        ("a_total{x=\"1\",y=\"2\"} 1\na_total{y=\"2\",x=\"1\"} 1\n", "second sample"),
        ("a_total{x=\"1\",x=\"2\"} 1\n", "malformed"),
        ("a_total{x=\"a\"b\"} 1\n", "malformed"),
        ("a_total{x=\"\\t\"} 1\n", "malformed"),
        ("a_total{x-y=\"1\"} 1\n", "malformed"),
        ("a_total one\n", "malformed"),
        ("a_total -1\n", "not a value of a counter"),
        ("# HELP b_total B.\n# TYPE b_total gauge\n", "counters, and only counters"),
        ("# HELP h H.\n# TYPE h histogram\nh_bucket{le=\"+Inf\"} 2\nh_sum 1\nh_count 3\n", "inconsistent"),
        (
            "# HELP h H.\n# TYPE h histogram\nh_bucket{le=\"1\"} 0\nh_bucket{le=\"+Inf\"} 3\nh_sum 0.000\nh_count 3\n",
            "the sum of h",
        ),
        ("# HELP b B.\n# TYPE b gauge\nb 1\na_total 1\n", "not a sample"),
    ] {
        let error = parse(&format!("{family}{rest}")).unwrap_err();
        assert!(error.contains(reason), "{rest}: {error}");
    }
    assert_eq!(parse(&format!("{family}a_total{{x=\"\\\\\\\"\\n\"}} 1\n")).unwrap()[0].labels["x"], "\\\"\n");
}

/// Regression: a program with a controller and a work queue of its own joined the texts of two calls of
/// `encode`, as the documentation of the queue's metrics suggested. `HELP` and `TYPE` of the `workqueue_…`
/// families appeared twice, so Prometheus rejected everything. The tests of the encoder compared single
/// families, and no test read the response of `/metrics` as Prometheus does.
#[tokio::test]
async fn all_metrics_of_a_manager_are_valid() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let (factory, others) =
        (SharedInformerFactory::new(server.client()), SharedInformerFactory::new(server.client()));
    let controller = |name: &'static str| {
        Controller::new::<Pod>(&factory)
            .name(name)
            .owns::<ConfigMap>()
            .reconcile(|_, _| async { Ok::<_, Infallible>(Outcome::Done) })
    };
    let (shop, queues) = (controller("shop"), [WorkQueue::new(), WorkQueue::new(), WorkQueue::new()]);
    let _same_informer = others.informer::<Pod>();
    for queue in &queues {
        queue.add("key");
    }
    let elector = LeaderElector::new(server.client(), "default", "shop");
    let manager = Manager::new()
        .factory(&others)
        .controller(shop.clone())
        .controller(controller("stock"))
        .leader_election(elector)
        .recorder(EventRecorder::new(server.client(), "shop"))
        .queue("pods", &queues[0])
        .queue("nodes", &queues[1])
        .queue("nodes", &queues[2])
        .add_collector(Hostile)
        .serve(0);
    let handle = manager.handle();
    let task = tokio::spawn(manager.run_until(std::future::pending()));
    until(|| shop.metrics().succeeded > 0).await;
    let text = served_text(&handle).await;
    let samples = parse(&text).unwrap_or_else(|reason| panic!("{reason}\n{text}"));
    for name in ["shop", "stock", "pods", "nodes", "nodes #2"] {
        assert!(value(&samples, "workqueue_adds_total", &[("name", name)]) >= 1.0, "{name}");
    }
    assert_eq!(value(&samples, "leader_election_master_status", &[("name", "default/shop")]), 1.0);
    for (name, labels) in samples.iter().map(|sample| (&sample.name, &sample.labels)) {
        let informer = ["group", "version", "resource", "namespace"];
        let is_informer = name.starts_with("informer_") && !name.starts_with("informer_controller_");
        assert_eq!(
            is_informer,
            informer.iter().all(|label| labels.contains_key(*label)),
            "{name} {labels:?}"
        );
        assert!(labels.values().all(|value| !value.contains(" in ")), "a sentence: {name} {labels:?}");
    }
    handle.stop();
    tokio::time::timeout(TIMEOUT, task).await.expect("the manager ends").unwrap().unwrap();
}

/// The metrics that a manager serves.
async fn served_text(handle: &ManagerHandle) -> String {
    let mut stream = TcpStream::connect(handle.address().await.unwrap()).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    response.split_once("\r\n\r\n").unwrap().1.to_owned()
}

/// The page `reference/metrics.md` of the book has a row for every metric that a program with all components serves, and no others.
#[tokio::test]
async fn documentation_lists_all_metrics_with_labels_and_meaning() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let factory = SharedInformerFactory::new(server.client());
    let controller = Controller::new::<Pod>(&factory)
        .name("shop")
        .reconcile(|_, _| async { Ok::<_, Infallible>(Outcome::Done) });
    let queue = WorkQueue::<&str>::new();
    let pods = factory.informer::<Pod>();
    let _projection = pods.add_projection::<serde_json::Value>();
    let group = ShardGroup::builder(server.client(), "default", "shop").build().unwrap();
    let manager = Manager::new()
        .controller(controller.clone())
        .leader_election(LeaderElector::new(server.client(), "default", "shop"))
        .recorder(EventRecorder::new(server.client(), "shop"))
        .queue("pods", &queue)
        .serve(0);
    let handle = manager.handle();
    let task = tokio::spawn(manager.run_until(std::future::pending()));
    until(|| controller.metrics().succeeded > 0).await;
    // One manager cannot have both leader election and a shard group.
    let text = served_text(&handle).await + &metrics::encode([&group as &dyn Collect]);
    handle.stop();
    tokio::time::timeout(TIMEOUT, task).await.expect("the manager ends").unwrap().unwrap();

    let is_row = |line: &&str| line.starts_with("| `");
    let mut documented: Vec<&str> =
        include_str!("../../../docs/book/src/reference/metrics.md").lines().filter(is_row).collect();
    let mut expected = documentation_rows(&text);
    documented.sort_unstable();
    expected.sort_unstable();
    assert!(
        documented == expected,
        "docs/book/src/reference/metrics.md must contain exactly these rows:\n{}",
        expected.join("\n")
    );
}

/// The rows of the table of all metrics: name, type, labels, help text.
fn documentation_rows(text: &str) -> Vec<String> {
    let samples = parse(text).unwrap();
    let help = text.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split_once(' '));
    let row = |(name, help): (&str, &str)| {
        let kind = text.lines().find_map(|line| line.strip_prefix(&format!("# TYPE {name} ")));
        let is_of_family = |sample: &&Sample| {
            let suffix = sample.name.strip_prefix(name);
            suffix.is_some_and(|suffix| matches!(suffix, "" | "_bucket" | "_sum" | "_count"))
        };
        let labels: BTreeSet<&str> = samples
            .iter()
            .filter(is_of_family)
            .flat_map(|sample| sample.labels.keys().map(String::as_str))
            .filter(|label| *label != "le")
            .collect();
        let of_informer = ["group", "namespace", "resource", "version"];
        let is_informer = of_informer.iter().all(|label| labels.contains(label));
        let own = labels.iter().filter(|label| !(is_informer && of_informer.contains(label)));
        let own = own.map(|label| format!("`{label}`"));
        let labels: Vec<String> =
            is_informer.then(|| "*informer*".to_owned()).into_iter().chain(own).collect();
        format!("| `{name}` | {} | {} | {help} |", kind.unwrap_or_default(), labels.join(", "))
    };
    help.map(row).collect()
}

/// A collector whose names, labels and values are wrong in many ways.
struct Hostile;

impl Collect for Hostile {
    fn collect(&self, encoder: &mut Encoder) {
        encoder.gauge("", "No name.", &[("", "no name"), ("", "twice")], f64::INFINITY);
        encoder.gauge("workqueue_work_duration_seconds_count", "Part of a histogram.", &[], 1.0);
        encoder.gauge("mine_sum", "A name that a later histogram needs.", &[], -0.5);
        encoder.histogram("mine", "Overlaps with mine_sum.", &[], &Histogram::default());
        encoder.histogram(
            "buckets",
            "Has a label le.",
            &[("le", "1"), ("a", "\\\"\n")],
            &Histogram::default(),
        );
        for _ in 0..3 {
            encoder.gauge("marked", "Several\nlines \\.", &[("duplicate", "2"), ("a-b", "x")], f64::NAN);
        }
        encoder.counter("workqueue_depth", "Another type.", &[], 1);
    }
}

#[tokio::test(start_paused = true)]
async fn prometheus_text_is_valid_and_follows_changes() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let factory = SharedInformerFactory::new(server.client());
    let (pods, maps) = (factory.informer::<Pod>(), factory.informer::<ConfigMap>());
    let name = "says \"hi\"\\\nand goes";
    let (_registration, mut log) = log_events_with(pods.handler().name(name));
    let (_same_name, _) = log_events_with(pods.handler().name(name));
    let find =
        |name: &str, labels: &[(&str, &str)]| value(&samples([&factory as &dyn Collect]), name, labels);
    let pods_of = |name: &str| find(name, &[("resource", "pods")]);
    assert!(pods_of("informer_staleness_seconds").is_nan());
    factory.start();
    factory.wait_for_sync(TIMEOUT).await.unwrap();
    log.expect(&["+a initial"]).await;
    assert_eq!((pods_of("informer_objects"), pods_of("informer_synced")), (1.0, 1.0));
    assert_eq!(pods_of("informer_staleness_seconds"), 0.0);
    let delivered = || {
        let labels = [("resource", "pods"), ("handler", name), ("id", "0")];
        find("informer_handler_events_total", &labels)
    };
    assert_eq!(delivered(), 1.0);
    create_pods(&server, &["b"]);
    log.expect(&["+b"]).await;
    assert_eq!((pods_of("informer_objects"), delivered()), (2.0, 2.0));
    assert_eq!(find("informer_events_total", &[("resource", "pods"), ("kind", "added")]), 2.0);
    assert_eq!(find("informer_state", &[("resource", "pods"), ("state", "live")]), 1.0);
    let initial = [("resource", "configmaps"), ("reason", "initial")];
    assert_eq!(find("informer_relists_total", &initial), 1.0);
    assert_eq!(maps.metrics().objects, 0);
    assert_eq!(metrics::encode([]), "");
}

/// Regression: the label of an informer was a sentence, `pods in all namespaces`, so queries could not select
/// or join by group, version, resource or namespace. An earlier version wrote equal sentences for different
/// selections: duplicate series, which Prometheus rejects.
#[tokio::test(start_paused = true)]
async fn labels_name_the_resource_and_the_selection() {
    let server = ApiServer::new();
    let (factory, same) =
        (SharedInformerFactory::new(server.client()), SharedInformerFactory::new(server.client()));
    let _pods = factory.informer::<Pod>();
    let _deployments = factory.informer::<Deployment>();
    let _metadata = factory.informer::<PartialObjectMeta<Pod>>();
    let web = Selection::default()
        .label_selector("app=web".parse().unwrap())
        .field_selector("spec.nodeName=n1".parse().unwrap());
    let _web = factory.select(web).informer::<Pod>();
    let many: Vec<String> = (0..10).map(|number| format!("n{number}")).collect();
    let _many = factory.select(Selection::default().namespaces(many)).informer::<Pod>();
    let _other = factory.select(Selection::default().namespaces(["b", "a"])).informer::<Pod>();
    let pods_again = same.informer::<Pod>();
    let _registration = pods_again.on_event(|_| {});
    let samples = samples([&factory as &dyn Collect, &same]);
    let labels = |name: &str| -> Vec<String> {
        let series = samples.iter().filter(|sample| sample.name == name);
        let mut all: Vec<String> = series
            .map(|sample| {
                let pairs = sample.labels.iter().filter(|(label, _)| *label != "handler");
                pairs.map(|(label, value)| format!("{label}={value}")).collect::<Vec<_>>().join(" ")
            })
            .collect();
        all.sort();
        all
    };
    assert_eq!(
        labels("informer_objects"),
        [
            "duplicate=2 group= namespace= resource=pods version=v1",
            "field_selector=spec.nodeName=n1 group= label_selector=app=web namespace= resource=pods version=v1",
            "group= namespace= representation=metadata resource=pods version=v1",
            "group= namespace= resource=pods version=v1",
            "group= namespace=a,b resource=pods version=v1",
            "group= namespace=n0,n1,n2,n3,n4,n5,n6,n7,+2 resource=pods version=v1",
            "group=apps namespace= resource=deployments version=v1",
        ]
    );
    // The handler belongs to the second informer, also where that one is the only one with a handler.
    assert_eq!(
        labels("informer_handler_pending"),
        ["duplicate=2 group= id=0 namespace= resource=pods version=v1"]
    );
}
