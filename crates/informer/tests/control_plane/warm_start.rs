//! Starts with a saved cache.

use informer::persistence::Persistence;
use informer::{InformerOptions, SharedInformer};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use std::path::{Path, PathBuf};

use crate::model::Model;
use crate::runner::{Needs, statements};
use crate::targets::{TIMEOUT, Target, map, until, value};

statements![
    // The bookmark that confirms a kind without changes arrives up to a second before its watch ends. If a busy server
    // misses that, a list follows.
    needs: Needs::Quiet;
    saved_cache_is_confirmed_without_a_list,
];

fn directory(target: &Target) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(&*target.namespace)
}

fn informer(target: &Target) -> SharedInformer<ConfigMap> {
    let persistence = Persistence::for_cluster(directory(target), "real");
    let options = InformerOptions::default().namespace(target.namespace.clone()).persist(persistence);
    SharedInformer::with_options(target.client.clone(), options)
}

/// A kind without changes is confirmed by the bookmark before the end of the first watch, and changes that were
/// made while no process ran are delivered.
async fn saved_cache_is_confirmed_without_a_list(target: &Target) {
    for name in ["kept", "changed", "deleted"] {
        target.post("$ns/configmaps", &map(name, "1")).await;
    }
    for round in 0..3 {
        let maps = informer(target);
        let (_registration, model) = Model::follow(&maps);
        maps.start();
        maps.wait_for_sync(TIMEOUT).await.unwrap();
        let status = maps.status();
        if round > 0 {
            let counters = &status.reflector;
            assert_eq!((counters.warm_starts, counters.full_lists), (1, 0), "round {round}: {status:?}");
        }
        model.settles(&maps, async || target.list::<ConfigMap>().await).await;
        until("the cache is saved", async || {
            maps.status().persistence.is_some_and(|status| status.saved_at.is_some())
        })
        .await;
        maps.shutdown(TIMEOUT).await.unwrap();
        // The second start has changes to receive. The third has none, but the version of the server has increased.
        if round == 1 {
            target.post("$ns/secrets", &json!({"metadata": {"name": "other"}})).await;
        }
        if round == 0 {
            target.request("PATCH", "$ns/configmaps/changed", Some(&value("2"))).await.unwrap();
            target.request("DELETE", "$ns/configmaps/deleted", None).await.unwrap();
            target.post("$ns/configmaps", &map("new", "1")).await;
        }
    }
    std::fs::remove_dir_all(directory(target)).unwrap();
}
