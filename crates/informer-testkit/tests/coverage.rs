//! Every fault happens, and the report shows what was tried.

use informer_testkit::{FaultKind, ProgramContext, Simulation};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, Patch, PatchParams, VersionMatch};
use kube::core::DynamicObject;
use kube::discovery::ApiResource;
use serde_json::json;

use crate::programs::{map, maps, name_of, pause};

/// A CRD without a schema.
pub(crate) fn widgets() -> serde_json::Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    })
}

/// Applies a widget for each config map with a role. Lists and watches, so that all faults can happen.
async fn program(context: ProgramContext) -> Result<(), kube::Error> {
    let kind = kube::core::GroupVersionKind::gvk("example.com", "v1", "Widget");
    let widgets: Api<DynamicObject> = Api::namespaced_with(
        context.client(),
        "default",
        &ApiResource::from_gvk_with_plural(&kind, "widgets"),
    );
    loop {
        let params = ListParams::default().labels("role");
        let newest =
            maps(context.client()).list(&params).await?.metadata.resource_version.unwrap_or_default();
        // A list at an exact version, which may have expired.
        let exact = params.at(&newest).matching(VersionMatch::Exact);
        for map in maps(context.client()).list(&exact).await? {
            let name = name_of(&map);
            if widgets.get_opt(&name).await?.is_none() {
                let widget =
                    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}});
                widgets.patch(&name, &PatchParams::apply("test"), &Patch::Apply(&widget)).await?;
                let change = json!({"metadata": {"labels": {"seen": "true"}}});
                widgets.patch(&name, &PatchParams::default(), &Patch::Merge(&change)).await?;
            }
        }
        pause(10).await;
    }
}

#[test]
fn every_fault_happens_within_a_few_hundred_seeds() {
    let summary = Simulation::new(program)
        .setup(|server| drop(server.create(&widgets()).unwrap()))
        .scenario(|world| async move { world.create(&map("a", "x")).await })
        // The program does not repair a widget without its label: a crash between the two writes loses it.
        .without_check(informer_testkit::Check::FinalState)
        .eventually("there is a map", |state| state.get::<ConfigMap>("default", "a").is_some())
        .seeds(0..400)
        .run();
    let coverage = &summary.coverage;
    for kind in FaultKind::ALL {
        assert!(coverage.fired(*kind) > 0, "{kind} never happened:\n{coverage}");
    }
    let requests: Vec<&str> = coverage.requests().map(|(label, _)| label).collect();
    assert_eq!(requests, ["get widgets", "list configmaps", "patch widgets"]);
    assert_eq!(coverage.never_tried().count(), 0, "{coverage}");
    assert!(coverage.to_string().contains("  500 Internal Server Error\n"), "{coverage}");
}

#[test]
fn pairs_that_were_never_tried_are_reported() {
    let summary = Simulation::new(program)
        .setup(|server| drop(server.create(&widgets()).unwrap()))
        .scenario(|world| async move { world.create(&map("a", "x")).await })
        .only_faults(&[FaultKind::InternalError])
        .without_check(informer_testkit::Check::FinalState)
        .seeds(0..1)
        .run();
    let text = summary.coverage.to_string();
    let (_, never) = text.split_once("never tried:\n").unwrap();
    let is_expected = |line: &str| line.ends_with(": 500 Internal Server Error");
    assert!(!never.is_empty() && never.lines().all(is_expected), "{text}");
}
