//! The database example against an embedded server, with restarts. Writes block, so time is real here.
#![allow(clippy::unwrap_used)]

use crate::common::cluster::{pod, until, with};
use crate::common::{Program, server};
use crate::programs::to_database;
use crate::programs::to_database::Table;
use informer::SharedInformer;
use informer_apiserver::{ApiServer, faults};
use rusqlite::Connection;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

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
fn start(server: &ApiServer, file: &str, print: impl Fn(String) + Send + Sync + 'static) -> Program {
    let (client, file) = (server.client(), file.to_owned());
    Program::start(|stopped| async move {
        to_database::run(&SharedInformer::new(client), &file, print, async { drop(stopped.await) }).await
    })
}

/// Printed lines.
#[derive(Clone, Default)]
struct Printed(Arc<Mutex<Vec<String>>>);

impl Printed {
    fn printer(&self) -> impl Fn(String) + Send + Sync + 'static {
        let lines = self.0.clone();
        move |line| lines.lock().unwrap().push(line)
    }

    /// Sorted, because the rows of deleted pods are deleted before or after the first events.
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
    // More than one transaction.
    for number in 0..1_500 {
        server.create(&pod("shop", &format!("new-{number:04}"))).unwrap();
    }
    for number in 0..10 {
        delete(&server, &format!("old-{number:02}"));
    }

    // The program ends when it prints the first line, after its first transaction.
    let program = start(&server, &file, |_| std::panic::resume_unwind(Box::new("killed")));
    assert!(program.task.await.unwrap_err().is_panic());
    assert_ne!(table(&file), expected(&server));

    delete(&server, "new-0000");
    catch_up(&server, &file).await;
    assert_eq!(table(&file).len(), 1_509);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whole_objects_are_stored() {
    let (server, file) = (server(), new_file("whole.db"));
    server.create(&pod("shop", "web")).unwrap();
    catch_up(&server, &file).await;
    let connection = Connection::open(&file).unwrap();
    let object: String = connection.query_row("SELECT object FROM pods", (), |row| row.get(0)).unwrap();
    let mut expected = server.get("v1", "pods", Some("shop"), "web").unwrap();
    // The only part that an informer does not keep.
    expected["metadata"].as_object_mut().unwrap().remove("managedFields");
    assert_eq!(serde_json::from_str::<Value>(&object).unwrap(), expected);
}

/// Regression: the program ended with "database is locked" when another program wrote to the file. No test
/// used the file meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locked_file_delays_the_table() {
    let (server, file) = (server(), new_file("locked.db"));
    server.create(&pod("shop", "before")).unwrap();
    catch_up(&server, &file).await;
    let other = Connection::open(&file).unwrap();
    let printed = Printed::default();
    let locked =
        || printed.0.lock().unwrap().iter().filter(|line| line.starts_with("another program")).count();

    // The file is locked at the start, and again while the program runs.
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let program = start(&server, &file, printed.printer());
    until(|| locked() > 0).await;
    other.execute_batch("COMMIT").unwrap();
    until(|| printed.sorted().contains(&"+ shop/before".to_owned())).await;
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let before = locked();
    server.create(&pod("shop", "after")).unwrap();
    until(|| locked() > before).await;
    delete(&server, "before");
    other.execute_batch("COMMIT").unwrap();
    until(|| table(&file) == expected(&server)).await;

    // A program that waits for the file can be stopped.
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let before = locked();
    server.create(&pod("shop", "last")).unwrap();
    until(|| locked() > before).await;
    program.stop().await;
    other.execute_batch("COMMIT").unwrap();
    catch_up(&server, &file).await;
}

/// Regression: the program ended with an error if the server was not reachable at its start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_may_appear_after_the_program() {
    let (server, file) = (server(), new_file("absent.db"));
    server.create(&pod("shop", "web")).unwrap();
    let absent = server.inject(faults::drop_connection());
    let program = start(&server, &file, |_| {});
    until(|| absent.hits() > 1).await;
    drop(absent);
    until(|| table_exists(&file) && table(&file) == expected(&server)).await;
    program.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn file_of_another_schema_is_rejected() {
    let (server, file) = (server(), new_file("schema.db"));
    let start_error = async || start(&server, &file, |_| {}).task.await.unwrap().unwrap_err();
    drop(Table::open(&file).unwrap());
    Connection::open(&file).unwrap().pragma_update(None, "user_version", 7).unwrap();
    let expected = "schema version 7, not 1 (delete the file, and it is written anew)";
    assert_eq!(start_error().await, format!("{file}: {expected}"));
    std::fs::write(&file, "this is not a database, but a text that is long enough to look like a file")
        .unwrap();
    assert_eq!(start_error().await, format!("{file}: file is not a database"));
}

/// Regression: the database of another program got another journal mode, and the error advised to delete it.
/// The journal mode was set before the file was checked, and the only foreign file in a test was a text.
#[test]
fn database_of_another_program_is_rejected_and_stays_unchanged() {
    for (name, contents) in [
        ("table", "CREATE TABLE bills (id)"),
        ("version", "CREATE TABLE pods (uid); PRAGMA user_version = 1"),
        ("only-version", "PRAGMA user_version = 1"),
        ("only-id", "PRAGMA application_id = 5"),
    ] {
        let file = new_file(&format!("other-{name}.db"));
        Connection::open(&file).unwrap().execute_batch(contents).unwrap();
        let before = std::fs::read(&file).unwrap();
        let error = Table::open(&file).err().unwrap().to_string();
        assert_eq!(error, "not a database of this program (choose another file)", "{name}");
        assert!(std::fs::read(&file).unwrap() == before, "{name}: the file has changed");
    }
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
