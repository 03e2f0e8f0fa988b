//! The custom resource of these tests: a site has pages, each a config map that it owns.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, CustomResource, CustomResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(CustomResource, Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(group = "peer.example.com", version = "v1", kind = "Site", namespaced, status = "SiteStatus")]
#[kube(
    scale(
        spec_replicas_path = ".spec.pages",
        status_replicas_path = ".status.pages",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Pages", type_ = "integer", json_path = ".spec.pages")
)]
pub(crate) struct SiteSpec {
    #[schemars(range(min = 0, max = 9))]
    pub(crate) pages: u32,
    #[serde(default = "index")]
    pub(crate) title: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub(crate) struct SiteStatus {
    pub(crate) pages: Option<u32>,
    pub(crate) observed_generation: Option<i64>,
    pub(crate) selector: Option<String>,
}

fn index() -> String {
    "index".to_owned()
}

pub(crate) fn site(name: &str, pages: u32) -> Value {
    json!({
        "apiVersion": "peer.example.com/v1", "kind": "Site", "metadata": {"name": name},
        "spec": {"pages": pages},
    })
}

/// Creates the definition of sites and waits until they are served.
pub(crate) async fn define(client: &Client) {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let params = PatchParams::apply("peer").force();
    definitions.patch("sites.peer.example.com", &params, &Patch::Apply(Site::crd())).await.unwrap();
    let established =
        await_condition(definitions, "sites.peer.example.com", conditions::is_crd_established());
    crate::world::with_timeout(established).await.unwrap();
}
