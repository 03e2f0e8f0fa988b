//! Tests of the engine.

use super::*;
use crate::informer::SharedInformer;
use crate::shared::Registration;
use crate::source::{ResponseFuture, Source};
use informer_core::reflector::{InformerState, ListRequest, WatchRequest};
use k8s_openapi::api::core::v1::Pod;

/// A source that never responds.
struct SilentSource;

impl Source for SilentSource {
    fn list(&self, _: ListRequest) -> ResponseFuture {
        Box::pin(std::future::pending())
    }

    fn watch(&self, _: WatchRequest) -> ResponseFuture {
        Box::pin(std::future::pending())
    }
}

#[tokio::test(start_paused = true)]
async fn c9_dead_pump_stops_the_informer() {
    // Regression: the driver noticed the end of the pump only when it had a delta to push, so an idle
    // informer stayed live although no task wrote its cache.
    let pods = SharedInformer::<Pod>::with_source(SilentSource, InformerOptions::default());
    let registration: Registration = pods.on_event(|_| {});
    let run_state = std::mem::replace(&mut *pods.engine().lock_run_state(), RunState::Discarded);
    let RunState::Idle(tasks) = run_state else { unreachable!("the informer was not started") };
    let UnstartedTasks { mut drivers, pump, .. } = *tasks;
    let driver = tokio::spawn(drivers.remove(0).run());
    drop(pump);
    let ended = tokio::time::timeout(Duration::from_secs(3600), driver).await;
    ended.expect("the driver ends with its pump").unwrap();
    assert_eq!(
        pods.wait_for_sync(Duration::MAX).await.unwrap_err().informers[0].state,
        InformerState::Stopped
    );
    assert!(!registration.wait_for_sync().await);
}
