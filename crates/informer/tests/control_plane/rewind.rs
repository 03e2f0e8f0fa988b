//! etcd is restored to an older state: versions decrease, later writes are undone, and later deletions too.
//! The informer detects it, delivers ordinary events, counts a rewind, and continues from there (C1).

use std::sync::{Arc, Mutex};

use informer::error::VersionWaitReason;
use informer::status::{Diagnostic, InformerState};
use informer::{ResourceVersion, SharedInformerFactory};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Secret};
use serde_json::json;

use crate::control;
use crate::model::Model;
use crate::outage;
use crate::runner::{Needs, statements};
use crate::targets::{TIMEOUT, Target, map, until, value};

statements![
    needs: Needs::Control;
    restored_etcd_is_detected_and_delivered,
];

async fn restored_etcd_is_detected_and_delivered(target: &Target) {
    for name in ["comes-back", "goes-back", "stays"] {
        target.post("$ns/configmaps", &map(name, "old")).await;
    }
    control::save(target).await;

    let rewound = Arc::new(Mutex::new(Vec::new()));
    let reported = Arc::clone(&rewound);
    let options = outage::options(target).on_diagnostic(move |resource, diagnostic| {
        if matches!(diagnostic, Diagnostic::ServerRewound { .. }) {
            reported.lock().unwrap().push(resource.to_owned());
        }
    });
    let factory = SharedInformerFactory::with_options(target.client.clone(), options);
    let (maps, events) = (factory.informer::<ConfigMap>(), factory.informer::<Event>());
    let secrets = factory.metadata_informer::<Secret>();
    let (on, model) = Model::follow_rewind(&maps);
    let (_also, secrets_model) = Model::follow_rewind(&secrets);
    let (_too, events_model) = Model::follow_rewind(&events);
    factory.start();
    factory.wait_for_sync(TIMEOUT).await.unwrap();
    assert!(on.wait_for_sync().await);
    target.merge("$ns/configmaps/goes-back", &value("new")).await;
    target.delete("$ns/configmaps/comes-back").await;
    target.post("$ns/configmaps", &map("vanishes", "new")).await;
    // More versions than a starting server creates by itself.
    for number in 0..300 {
        target.merge("$ns/configmaps/vanishes", &value(&number.to_string())).await;
    }
    target.post("$ns/secrets", &json!({"metadata": {"name": "vanishes"}})).await;
    let about = json!({"kind": "Node", "name": "n", "namespace": target.namespace});
    target.post("$ns/events", &json!({"metadata": {"name": "vanishes"}, "involvedObject": about})).await;
    events_model.settles(&events, async || target.list::<Event>().await).await;
    model.settles(&maps, async || target.list::<ConfigMap>().await).await;
    secrets_model.settles(&secrets, async || target.list::<Secret>().await).await;
    let (before, undone) =
        (maps.resource_version().unwrap(), model.version(&key(target, "goes-back")).unwrap());
    model.lines();
    let waiting = tokio::spawn({
        let maps = maps.clone();
        async move { maps.wait_for_resource_version(&ResourceVersion::new("999999999"), 10 * TIMEOUT).await }
    });

    control::restore(target).await;
    until("the rewind is detected", async || maps.status().reflector.rewinds == 1).await;
    model.settles(&maps, async || target.list::<ConfigMap>().await).await;
    secrets_model.settles(&secrets, async || target.list::<Secret>().await).await;
    assert_eq!(model.lines(), ["-vanishes inferred", "+comes-back", "~goes-back"]);
    assert!(maps.resource_version().unwrap().is_before(&before));
    let back = model.version(&key(target, "goes-back")).unwrap();
    assert!(ResourceVersion::new(&back).is_before(&ResourceVersion::new(&undone)), "{back} {undone}");
    assert_eq!(waiting.await.unwrap().unwrap_err().reason, VersionWaitReason::Rewound);
    events_model.settles(&events, async || target.list::<Event>().await).await;
    assert!(secrets.lister().is_empty() && events.lister().is_empty());
    assert_eq!(rewound.lock().unwrap().len(), 3, "{rewound:?}");

    // The informer follows the server from its restored version.
    target.merge("$ns/configmaps/goes-back", &value("newest")).await;
    target.delete("$ns/configmaps/stays").await;
    model.settles(&maps, async || target.list::<ConfigMap>().await).await;
    assert_eq!(model.lines(), ["~goes-back", "-stays"]);
    assert_eq!(maps.status().state, InformerState::Live);
    factory.shutdown(TIMEOUT).await.unwrap();
}

fn key(target: &Target, name: &str) -> String {
    format!("{}/{name}", target.namespace)
}
