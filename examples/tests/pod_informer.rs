//! The pod informer example against a server played by the test.
#![allow(clippy::unwrap_used)]

use crate::programs::pod_informer;
use crate::script::{pod, script};
use informer::{InformerOptions, SharedInformer};
use tokio::sync::{mpsc, oneshot};

#[tokio::test(start_paused = true)]
async fn prints_changes_of_pods_until_stopped() {
    let (source, mut server) = script();
    let pods = SharedInformer::with_source(source, InformerOptions::default());
    let (sender, mut lines) = mpsc::unbounded_channel();
    let (stop, stopped) = oneshot::channel::<()>();
    let program = tokio::spawn(async move {
        let print = move |line| drop(sender.send(line));
        pod_informer::run(&pods, print, async { drop(stopped.await) }).await.unwrap();
    });
    let watch = server.sync(&[pod("web", 1)], 5).await;
    assert_eq!(lines.recv().await.unwrap(), "New Pod Added to Store: web");
    watch.frame("MODIFIED", &pod("web", 6));
    assert_eq!(lines.recv().await.unwrap(), "web Pod Updated to web");
    watch.frame("DELETED", &pod("web", 7));
    assert_eq!(lines.recv().await.unwrap(), "Pod Deleted from Store: web");
    stop.send(()).unwrap();
    program.await.unwrap();
    assert_eq!(lines.recv().await, None);
}

#[tokio::test(start_paused = true)]
async fn fails_with_the_reason_if_pods_are_forbidden() {
    let (source, mut server) = script();
    let pods = SharedInformer::with_source(source, InformerOptions::default());
    let answers = async {
        let status = r#"{"kind":"Status","code":403,"reason":"Forbidden","message":"pods is forbidden"}"#;
        server.next().await.reply(403, status);
        server.next().await.reply(403, status);
    };
    let (result, ()) = tokio::join!(pod_informer::run(&pods, |_| {}, std::future::pending()), answers);
    let error = result.unwrap_err().to_string();
    assert_eq!(error, "wait for sync: pods in all namespaces: forbidden: 403 Forbidden: pods is forbidden");
}
