//! etcd is restored to an older state: versions go back, what was written since is gone, what was deleted since is there again. The informer
//! notices, tells it as ordinary events, counts it as a rewind, and goes on from there (C1).

use std::sync::{Arc, Mutex};

use informer::{NotReached, Problem, Report, ResourceVersion, SharedInformerFactory, State};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Secret};
use serde_json::json;

use crate::arm::{Arm, PATIENCE, map, until, value};
use crate::control;
use crate::model::Model;
use crate::outage;
use crate::runner::{Needs, statements};

statements![
    needs: Needs::Control;
    a_restored_etcd_is_noticed_and_told,
];

async fn a_restored_etcd_is_noticed_and_told(arm: &Arm) {
    for name in ["comes-back", "goes-back", "stays"] {
        arm.post("$ns/configmaps", &map(name, "old")).await;
    }
    control::save(arm).await;

    let rewound = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&rewound);
    let options = outage::options(arm).on_error(move |resource, problem| {
        if matches!(problem, Problem::Server(Report::Rewound { .. })) {
            heard.lock().unwrap().push(resource.to_owned());
        }
    });
    let factory = SharedInformerFactory::with_options(arm.client.clone(), options);
    let (maps, events) = (factory.informer::<ConfigMap>(), factory.informer::<Event>());
    let secrets = factory.metadata::<Secret>();
    let (on, told) = Model::follow_back(&maps);
    let (_also, told_of_secrets) = Model::follow_back(&secrets);
    let (_too, told_of_events) = Model::follow_back(&events);
    factory.start();
    factory.wait_for_sync(PATIENCE).await.unwrap();
    assert!(on.synced().await);
    arm.merge("$ns/configmaps/goes-back", &value("new")).await;
    arm.delete("$ns/configmaps/comes-back").await;
    arm.post("$ns/configmaps", &map("vanishes", "new")).await;
    // Many more versions than a server that starts makes by itself.
    for number in 0..300 {
        arm.merge("$ns/configmaps/vanishes", &value(&number.to_string())).await;
    }
    arm.post("$ns/secrets", &json!({"metadata": {"name": "vanishes"}})).await;
    let about = json!({"kind": "Node", "name": "n", "namespace": arm.namespace});
    arm.post("$ns/events", &json!({"metadata": {"name": "vanishes"}, "involvedObject": about})).await;
    told_of_events.settles(&events, async || arm.list::<Event>().await).await;
    told.settles(&maps, async || arm.list::<ConfigMap>().await).await;
    told_of_secrets.settles(&secrets, async || arm.list::<Secret>().await).await;
    let (before, gone) = (maps.last_version().unwrap(), told.version(&key(arm, "goes-back")).unwrap());
    told.lines();
    let waiting = tokio::spawn({
        let maps = maps.clone();
        async move { maps.wait_for_version(&ResourceVersion::new("999999999"), 10 * PATIENCE).await }
    });

    control::restore(arm).await;
    until("the rewind is noticed", async || maps.status().counters.rewinds == 1).await;
    told.settles(&maps, async || arm.list::<ConfigMap>().await).await;
    told_of_secrets.settles(&secrets, async || arm.list::<Secret>().await).await;
    assert_eq!(told.lines(), ["-vanishes inferred", "+comes-back", "~goes-back"]);
    assert!(maps.last_version().unwrap().is_before(&before));
    let back = told.version(&key(arm, "goes-back")).unwrap();
    assert!(ResourceVersion::new(&back).is_before(&ResourceVersion::new(&gone)), "{back} {gone}");
    assert_eq!(waiting.await.unwrap().unwrap_err().because, NotReached::Rewound);
    told_of_events.settles(&events, async || arm.list::<Event>().await).await;
    assert!(secrets.lister().is_empty() && events.lister().is_empty());
    assert_eq!(rewound.lock().unwrap().len(), 3, "{rewound:?}");

    // It follows again, from where the server is now.
    arm.merge("$ns/configmaps/goes-back", &value("newest")).await;
    arm.delete("$ns/configmaps/stays").await;
    told.settles(&maps, async || arm.list::<ConfigMap>().await).await;
    assert_eq!(told.lines(), ["~goes-back", "-stays"]);
    assert_eq!(maps.status().state, State::Live);
    factory.shutdown(PATIENCE).await.unwrap();
}

fn key(arm: &Arm, name: &str) -> String {
    format!("{}/{name}", arm.namespace)
}
