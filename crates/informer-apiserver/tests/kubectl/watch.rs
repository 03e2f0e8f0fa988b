//! `kubectl get --watch`: lines printed while objects change.

use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::transcript::{comparable, words};
use crate::{Fixture, program};

#[tokio::test]
async fn get_watch_prints_changes() {
    let Some(program) = program::find().await else { return };
    let stage = Fixture::set(program, None).await;
    let kubectl = &stage.kubectl;
    let run = async |command: &str| {
        let output = kubectl.run(&words(command), "").await;
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    };
    run("create namespace seen").await;
    run("create configmap first -n seen").await;
    let mut watch = kubectl.start(&words("get configmaps -n seen --watch --output-watch-events"));
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut next = async || {
        let line = tokio::time::timeout(Duration::from_secs(60), lines.next_line()).await;
        let line = line.expect("no line in time").unwrap().expect("the watch ended");
        comparable(&line, kubectl)
    };
    assert_eq!(next().await, "EVENT   NAME   DATA   AGE\n");
    assert_eq!(next().await, "ADDED   first   0   AGE\n");
    run("create configmap second -n seen --from-literal=a=b").await;
    assert_eq!(next().await, "ADDED   second   1   AGE\n");
    run("label configmap first -n seen a=b").await;
    assert_eq!(next().await, "MODIFIED   first   0   AGE\n");
    run("delete configmap second -n seen").await;
    assert_eq!(next().await, "DELETED   second   1   AGE\n");
    watch.kill().await.unwrap();
}
