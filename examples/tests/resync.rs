//! The resync example against an embedded server.
#![allow(clippy::unwrap_used)]

use crate::common::cluster::{advance_time, pod, until};
use crate::common::{Program, output, server};
use crate::programs::resync;
use informer::SharedInformer;
use serde_json::json;
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn reports_pods_that_stay_pending() {
    let server = server();
    for name in ["starts", "stays"] {
        server.create(&pod("shop", name)).unwrap();
    }
    let pods = SharedInformer::new(server.client());
    let (print, mut lines) = output();
    let watched = pods.clone();
    let program = Program::start(|stopped| async move {
        resync::run(&watched, Duration::from_secs(300), print, async { drop(stopped.await) }).await
    });
    until(|| pods.lister().len() == 2).await;
    advance_time(Duration::from_secs(240)).await;
    let mut started = server.get("v1", "pods", Some("shop"), "starts").unwrap();
    started["status"] = json!({"phase": "Running"});
    server.update_status(&started).unwrap();
    server.create(&pod("shop", "later")).unwrap();
    assert_eq!(lines.take(), [""; 0]);
    advance_time(Duration::from_secs(120)).await;
    assert_eq!(lines.take(), ["shop/stays has been pending for 5 minutes"]);
    // Reported once.
    advance_time(Duration::from_secs(600)).await;
    assert_eq!(lines.take(), ["shop/later has been pending for 5 minutes"]);
    program.stop().await;
}
