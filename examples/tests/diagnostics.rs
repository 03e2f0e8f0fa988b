//! The diagnostics example against an embedded server.
#![allow(clippy::unwrap_used)]

use crate::common::cluster::{EventLog, TIMEOUT, advance_time, inject_from_first_frame, pod, with};
use crate::common::{Program, output, rest, server};
use crate::programs::diagnostics;
use informer::InformerOptions;
use informer_apiserver::{ApiServer, faults};
use serde_json::{Value, json};
use std::time::Duration;

fn start(server: &ApiServer) -> (Program, EventLog) {
    let (client, (print, lines)) = (server.client(), output());
    let options = InformerOptions::default().prefer_protobuf(false); // one of the tests inserts JSON
    let program =
        Program::start(|stopped| diagnostics::run(client, options, print, async { drop(stopped.await) }));
    (program, lines)
}

/// Reads lines until one contains this text, and returns it.
async fn line_with(lines: &mut EventLog, text: &str) -> String {
    loop {
        let line = tokio::time::timeout(TIMEOUT, lines.0.recv()).await.expect("no such line").unwrap();
        if line.contains(text) {
            return line;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn failures_states_and_audits_are_printed() {
    let server = server();
    server.create(&pod("shop", "web")).unwrap();
    let broken = server.inject(faults::respond(500));
    let (program, mut lines) = start(&server);
    let failed = line_with(&mut lines, "WARN").await;
    assert!(failed.contains("pods in all namespaces") && failed.contains("500"), "{failed}");
    line_with(&mut lines, "state: backing off").await;
    drop(broken);
    assert_eq!(line_with(&mut lines, "live").await, "state: live");
    advance_time(Duration::from_secs(1380)).await;
    program.stop().await;
    let last = rest(lines).await;
    assert!(last.contains(&"added 1, updated 0, deleted 0".to_owned()), "{last:?}");
    assert!(last.iter().any(|line| line.ends_with("audits 2, drift 0")), "{last:?}");
}

/// Frames that no server sends: an object whose labels are a number, and one that does not exist.
#[tokio::test(start_paused = true)]
async fn unreadable_objects_and_drift_are_reported() {
    let server = server();
    let web = server.create(&pod("shop", "web")).unwrap();
    let (program, mut lines) = start(&server);
    line_with(&mut lines, "state: live").await;
    let odd = with(with(web.clone(), "/metadata/name", "odd"), "/metadata/labels", 7);
    let ghost = with(with(web, "/metadata/name", "ghost"), "/metadata/uid", "ghost");
    let frame = |object: Value| format!("{}\n", json!({"type": "ADDED", "object": object}));
    let forged = faults::raw_frame(frame(odd) + &frame(ghost)).max_hits(1);
    let _forged = inject_from_first_frame(&server, forged).await;
    let skipped = line_with(&mut lines, "shop/odd").await;
    assert!(skipped.starts_with("WARN pods in all namespaces"), "{skipped}");
    advance_time(Duration::from_secs(660)).await; // the period of audits, and a tenth
    let drift = line_with(&mut lines, "missed").await;
    assert_eq!(drift, "WARN pods in all namespaces: the cache missed changes: 1 (report a bug)");
    program.stop().await;
    let last = rest(lines).await;
    assert!(last.iter().any(|line| line.ends_with("audits 1, drift 1")), "{last:?}");
}
