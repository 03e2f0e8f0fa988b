//! Jobs.

use serde_json::{Value, json};

use crate::common::{Simulation, condition};

fn job(spec: &Value) -> Value {
    let mut job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "work"},
        "spec": {"template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "main", "image": "work:1"}],
        }}},
    });
    for (field, value) in spec.as_object().unwrap() {
        job["spec"][field] = value.clone();
    }
    job
}

/// Returns a template whose pods have an outcome.
fn template(outcome: &str, restart_policy: &str) -> Value {
    json!({
        "metadata": {"annotations": {"informer-actors/outcome": outcome}},
        "spec": {"restartPolicy": restart_policy, "containers": [{"name": "main", "image": "work:1"}]},
    })
}

fn settled(spec: &Value) -> (Simulation, Value) {
    let mut simulation = Simulation::new(11);
    simulation.create(&job(spec));
    simulation.settle();
    assert_eq!(simulation.settle(), 0);
    let job = simulation.get("batch/v1", "jobs", "work").unwrap();
    (simulation, job)
}

#[test]
fn job_completes_with_its_pods() {
    let mut simulation = Simulation::new(12);
    simulation.create(&job(&json!({"completions": 5, "parallelism": 2})));
    simulation.run_until(|server| {
        let pods = server.list("v1", "pods", None);
        let active = pods.iter().filter(|pod| pod["status"]["phase"] != "Succeeded").count();
        assert!(active <= 2, "at most two pods run in parallel");
        let job = server.get("batch/v1", "jobs", Some("default"), "work").unwrap();
        condition(&job, "Complete") == "True"
    });
    simulation.settle();
    let job = simulation.get("batch/v1", "jobs", "work").unwrap();
    assert_eq!((&job["status"]["succeeded"], job["status"].get("active")), (&json!(5), None));
    assert!(job["status"]["startTime"].is_string() && job["status"]["completionTime"].is_string());
    assert_eq!(simulation.pods().len(), 5);
}

#[test]
fn job_fails_after_its_backoff_limit() {
    let (simulation, job) = settled(&json!({"backoffLimit": 2, "template": template("fail", "Never")}));
    assert_eq!((condition(&job, "Failed"), &job["status"]["failed"]), ("True", &json!(3)));
    assert_eq!(simulation.pods().len(), 3);
    let (_, job) = settled(&json!({"backoffLimit": 3, "template": template("crash", "OnFailure")}));
    assert_eq!(condition(&job, "Failed"), "True", "restarts count too");
}

#[test]
fn job_fails_after_its_deadline() {
    let (simulation, job) =
        settled(&json!({"activeDeadlineSeconds": 30, "template": template("never-ready", "Never")}));
    assert_eq!(condition(&job, "Failed"), "True");
    assert!(simulation.pods().is_empty(), "active pods are deleted");
}

#[test]
fn suspended_job_has_no_pods() {
    let mut simulation = Simulation::new(13);
    simulation.create(&job(&json!({"suspend": true})));
    simulation.settle();
    let work = simulation.get("batch/v1", "jobs", "work").unwrap();
    assert_eq!((condition(&work, "Suspended"), simulation.pods().len()), ("True", 0));
    simulation.edit("batch/v1", "jobs", "work", |job| job["spec"]["suspend"] = json!(false));
    simulation.settle();
    let work = simulation.get("batch/v1", "jobs", "work").unwrap();
    assert_eq!(condition(&work, "Complete"), "True");
}

#[test]
fn results_of_deleted_pods_count() {
    let mut simulation = Simulation::new(14);
    simulation.create(&job(&json!({"completions": 3, "parallelism": 1})));
    simulation.run_until(|server| {
        let pods = server.list("v1", "pods", None);
        pods.iter().any(|pod| pod["status"]["phase"] == "Succeeded")
    });
    let done = simulation.pods().into_iter().find(|pod| pod["status"]["phase"] == "Succeeded").unwrap();
    simulation.delete("v1", "pods", crate::common::name(&done));
    simulation.settle();
    let created =
        simulation.actions.iter().filter(|action| action.verb.name() == "create" && action.kind == "Pod");
    assert_eq!(created.count(), 3);
    assert_eq!(simulation.get("batch/v1", "jobs", "work").unwrap()["status"]["succeeded"], 3);
}

#[test]
fn finished_job_is_deleted_after_its_time_to_live() {
    let mut simulation = Simulation::new(15);
    simulation.create(&job(&json!({"ttlSecondsAfterFinished": 100})));
    simulation.run_for(60);
    assert_eq!(condition(&simulation.get("batch/v1", "jobs", "work").unwrap(), "Complete"), "True");
    simulation.settle();
    assert!(simulation.get("batch/v1", "jobs", "work").is_none() && simulation.pods().is_empty());
}
