//! The custom resource example against an embedded server whose definitions are created and deleted.
#![allow(clippy::unwrap_used)]

use crate::common::{Program, output, rest, server};
use crate::programs::custom_resource;
use crate::programs::custom_resource::{Backup, BackupSpec};
use informer::SharedInformer;
use informer_apiserver::ApiServer;
use kube::CustomResourceExt as _;
use serde_json::json;

fn backup(name: &str, keep: u32) -> Backup {
    let mut backup = Backup::new(name, BackupSpec { schedule: "0 3 * * *".to_owned(), keep });
    backup.metadata.namespace = Some("shop".to_owned());
    backup
}

fn undefine(server: &ApiServer) {
    server.delete("apiextensions.k8s.io/v1", "customresourcedefinitions", None, Backup::crd_name()).unwrap();
}

#[tokio::test(start_paused = true)]
async fn waits_for_the_kind_follows_it_and_waits_again() {
    let server = server();
    let backups = SharedInformer::<Backup>::new(server.client());
    let (print, mut lines) = output();
    let program = Program::start(|stopped| async move {
        custom_resource::run(&backups, print, async { drop(stopped.await) }).await
    });
    lines.expect(&["waiting for the kind Backup to be defined"]).await;

    server.create(&Backup::crd()).unwrap();
    lines.expect(&["following the kind Backup"]).await;
    server.create(&backup("db", 7)).unwrap();
    lines.expect(&["+ shop/db: at 0 3 * * *, keep 7"]).await;
    let mut changed = server.get("informer.example/v1", "backups", Some("shop"), "db").unwrap();
    changed["spec"]["keep"] = json!(9);
    server.update(&changed).unwrap();
    lines.expect(&["~ shop/db: at 0 3 * * *, keep 9"]).await;

    // A definition is deleted with its objects.
    undefine(&server);
    lines.expect(&["- shop/db", "waiting for the kind Backup to be defined"]).await;

    server.create(&Backup::crd()).unwrap();
    server.create(&backup("db", 1)).unwrap();
    // The order depends on which task runs first.
    let mut again = [lines.0.recv().await.unwrap(), lines.0.recv().await.unwrap()];
    again.sort();
    assert_eq!(again, ["+ shop/db: at 0 3 * * *, keep 1", "following the kind Backup"]);
    program.stop().await;
    assert_eq!(rest(lines).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn undecodable_object_is_reported_and_affects_no_other() {
    let server = server();
    server.create(&Backup::crd()).unwrap();
    let odd = json!({
        "apiVersion": "informer.example/v1", "kind": "Backup",
        "metadata": {"namespace": "shop", "name": "odd"}, "spec": {"schedule": "now", "keep": "all"},
    });
    server.insert_unchecked(&odd).unwrap();
    server.create(&backup("tidy", 2)).unwrap();
    let backups = SharedInformer::<Backup>::new(server.client());
    let (print, lines) = output();
    let program = Program::start(|stopped| async move {
        custom_resource::run(&backups, print, async { drop(stopped.await) }).await
    });
    crate::common::cluster::until(|| lines.0.len() == 3).await;
    program.stop().await;
    let lines = rest(lines).await;
    let odd = lines.iter().find(|line| line.contains("odd")).unwrap();
    assert!(odd.contains("at spec.keep: invalid type: string \"all\", expected u32"), "{odd}");
    assert!(lines.contains(&"+ shop/tidy: at 0 3 * * *, keep 2".to_owned()), "{lines:?}");
}
