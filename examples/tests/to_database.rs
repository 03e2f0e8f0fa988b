//! The database example against an embedded server, with restarts. Its handler blocks, so time is real here.
#![allow(clippy::unwrap_used)]

mod common;
#[path = "../to_database.rs"]
#[allow(dead_code)]
mod to_database;

use common::cluster::{pod, until, with};
use common::{Program, server};
use informer::SharedInformer;
use informer_apiserver::ApiServer;
use rusqlite::Connection;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, mpsc};
use to_database::Table;

/// Path of a new database file.
fn new_file(name: &str) -> String {
    let file = format!("{}/{name}", env!("CARGO_TARGET_TMPDIR"));
    for suffix in ["", "-wal", "-shm"] {
        // A previous run may have left it.
        let _ = std::fs::remove_file(format!("{file}{suffix}"));
    }
    file
}

/// Starts the program.
fn start(server: &ApiServer, file: &str, print: impl Fn(String) + Clone + Send + 'static) -> Program {
    let (client, file) = (server.client(), file.to_owned());
    Program::start(|stopped| async move {
        let table = Table::open(&file)?;
        to_database::run(&SharedInformer::new(client), table, print, async { drop(stopped.await) }).await
    })
}

/// Printed lines.
#[derive(Clone, Default)]
struct Printed(Arc<Mutex<Vec<String>>>);

impl Printed {
    fn printer(&self) -> impl Fn(String) + Clone + Send + 'static {
        let lines = self.0.clone();
        move |line| lines.lock().unwrap().push(line)
    }

    /// Sorted, because deleted rows are reported by another task.
    fn sorted(&self) -> Vec<String> {
        let mut lines = self.0.lock().unwrap().clone();
        lines.sort();
        lines
    }
}

type Row = (String, String, String, String, Option<String>, Option<String>);

/// Rows of the table by uid.
fn table(file: &str) -> Vec<Row> {
    let connection = Connection::open(file).unwrap();
    let rows = "SELECT uid, namespace, name, version, node, phase FROM pods ORDER BY uid";
    let mut rows = connection.prepare(rows).unwrap();
    let row = |row: &rusqlite::Row<'_>| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?))
    };
    rows.query_map((), row).unwrap().map(Result::unwrap).collect()
}

/// Expected rows of the table.
fn expected(server: &ApiServer) -> Vec<Row> {
    let text = |pod: &Value, pointer: &str| pod.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let row = |pod: &Value| {
        let meta = |name: &str| text(pod, &format!("/metadata/{name}")).unwrap();
        let (node, phase) = (text(pod, "/spec/nodeName"), text(pod, "/status/phase"));
        (meta("uid"), meta("namespace"), meta("name"), meta("resourceVersion"), node, phase)
    };
    let mut rows: Vec<Row> = server.list("v1", "pods", None).iter().map(row).collect();
    rows.sort();
    rows
}

/// Runs the program until the table is correct, then stops it.
async fn catch_up(server: &ApiServer, file: &str) -> Vec<String> {
    let printed = Printed::default();
    let program = start(server, file, printed.printer());
    until(|| std::fs::exists(file).unwrap() && table_exists(file) && table(file) == expected(server)).await;
    program.stop().await;
    assert_eq!(table(file), expected(server));
    printed.sorted()
}

fn table_exists(file: &str) -> bool {
    Connection::open(file).unwrap().table_exists(None, "pods").unwrap()
}

fn delete(server: &ApiServer, name: &str) {
    server.delete("v1", "pods", Some("shop"), name).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn table_is_correct_after_a_restart() {
    let (server, file) = (server(), new_file("restart.db"));
    for name in ["stays", "changes", "goes", "comes-back"] {
        server.create(&pod("shop", name)).unwrap();
    }
    let printed = Printed::default();
    let program = start(&server, &file, printed.printer());
    let line = |line: &str| printed.sorted().contains(&line.to_owned());
    until(|| printed.sorted().len() == 4).await;
    server.insert_unchecked(&with(pod("shop", "changes"), "/spec/nodeName", "node-a")).unwrap();
    server.create(&pod("shop", "short")).unwrap();
    until(|| line("~ shop/changes") && line("+ shop/short")).await;
    delete(&server, "short");
    until(|| line("- shop/short")).await;
    program.stop().await;
    assert_eq!(table(&file), expected(&server));

    // While the program is stopped, one pod is deleted, one is re-created, one changes, and one is created.
    delete(&server, "goes");
    delete(&server, "comes-back");
    server.create(&pod("shop", "comes-back")).unwrap();
    server.insert_unchecked(&with(pod("shop", "changes"), "/status", json!({"phase": "Running"}))).unwrap();
    server.create(&pod("shop", "new")).unwrap();
    assert_ne!(table(&file), expected(&server));
    let lines = catch_up(&server, &file).await;
    let expected = [
        "+ shop/changes",
        "+ shop/comes-back",
        "+ shop/new",
        "+ shop/stays",
        "- shop/comes-back (while stopped)",
        "- shop/goes (while stopped)",
    ];
    assert_eq!(lines, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn table_is_empty_after_all_pods_were_deleted_while_stopped() {
    let (server, file) = (server(), new_file("empty.db"));
    server.create(&pod("shop", "only")).unwrap();
    assert_eq!(catch_up(&server, &file).await, ["+ shop/only"]);
    delete(&server, "only");
    assert_eq!(catch_up(&server, &file).await, ["- shop/only (while stopped)"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn start_after_a_kill_during_the_initial_list_corrects_the_table() {
    let (server, file) = (server(), new_file("killed.db"));
    for number in 0..20 {
        server.create(&pod("shop", &format!("old-{number:02}"))).unwrap();
    }
    catch_up(&server, &file).await;
    for number in 0..10 {
        delete(&server, &format!("old-{number:02}"));
        server.create(&pod("shop", &format!("new-{number:02}"))).unwrap();
    }

    // The handler blocks after its fifth row, and the program is killed then.
    let (printed, lines) = mpsc::sync_channel(0);
    let program = start(&server, &file, move |line| drop(printed.send(line)));
    let lines = tokio::task::spawn_blocking(move || {
        for _ in 0..5 {
            lines.recv().unwrap();
        }
        lines
    });
    let lines = lines.await.unwrap();
    program.task.abort();
    assert!(program.task.await.unwrap_err().is_cancelled());
    drop(lines);
    let half = table(&file);
    assert!(half.len() > 20, "no row is deleted before the initial list is complete: {half:?}");
    assert_ne!(half, expected(&server));

    delete(&server, "new-00");
    catch_up(&server, &file).await;
    assert_eq!(table(&file).len(), 19);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn write_error_ends_the_program() {
    let (server, file) = (server(), new_file("readonly.db"));
    server.create(&pod("shop", "web")).unwrap();
    drop(Table::open(&file).unwrap());
    Connection::open(&file)
        .unwrap()
        .execute_batch("CREATE TRIGGER no BEFORE INSERT ON pods BEGIN SELECT raise(abort, 'disk full'); END")
        .unwrap();
    let error = start(&server, &file, |_| {}).task.await.unwrap().unwrap_err();
    assert_eq!(error, "the table cannot be written: disk full");
}
