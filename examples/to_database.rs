//! Keeps a table of a database equal to the pods of a cluster: many changes per transaction, correct after a
//! crash and after changes while the program was not running, patient with a locked file and an absent server.
//!
//!     cargo example to_database -- pods.db [--kubeconfig PATH] [--namespace NAME]
//!     sqlite3 pods.db 'select namespace, name, node, phase from pods'
//!     sqlite3 pods.db "select object ->> '$.spec.serviceAccountName', count(*) from pods group by 1"

use informer::{Event, Object, SharedInformer, Snapshot};
use informer_examples::{program, stop_signal};
use k8s_openapi::api::core::v1::Pod;
use rusqlite::{Connection, ErrorCode, TransactionBehavior, params};
use std::collections::HashSet;
use std::process::ExitCode;
use std::time::Duration;
use tokio::runtime::{Handle, RuntimeFlavor};

const USAGE: &str = "usage: to_database FILE [--kubeconfig PATH] [--namespace NAME]

Keeps the table `pods` of an SQLite database equal to the pods of a cluster and prints changes until Ctrl-C.
Run one program per file.";

/// A transaction costs as much as hundreds of rows.
const MAX_EVENTS_PER_TRANSACTION: usize = 1_000;
/// How long a write waits for other users of the file before it is reported and tried again.
const BUSY_TIMEOUT: Duration = Duration::from_secs(1);

/// Distinguishes the databases of this program from those of others.
const APPLICATION_ID: i64 = 0x706f_6473;
/// Increase it with every change of `SCHEMA`. A program and a table of different versions do not mix.
const SCHEMA_VERSION: i64 = 1;
// ANCHOR: schema
/// Contains the whole objects. Columns for queries are computed from them, so a new one needs no new data.
const SCHEMA: &str = "CREATE TABLE pods (
    uid TEXT PRIMARY KEY, namespace TEXT, name TEXT, version TEXT, object TEXT,
    node TEXT AS (object ->> '$.spec.nodeName'), phase TEXT AS (object ->> '$.status.phase')) STRICT";
/// Versions are not compared: the last delivered state is correct, even after the cluster was restored from a
/// backup.
const PUT: &str = "INSERT OR REPLACE INTO pods VALUES (?1, ?2, ?3, ?4, ?5)";
// ANCHOR_END: schema

type Error = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> ExitCode {
    program(USAGE, async |mut arguments| {
        let (options, file) = (arguments.options()?, arguments.value("FILE")?);
        let pods = SharedInformer::with_options(arguments.client().await?, options);
        // The library's logs show why a server is not reached.
        tracing_subscriber::fmt().with_writer(std::io::stderr).init();
        run(&pods, &file, |line| println!("{line}"), stop_signal()).await
    })
    .await
}

/// Keeps the table equal to the pods until `done`, or until a write fails.
pub(crate) async fn run(
    pods: &SharedInformer<Pod>,
    file: &str,
    print: impl Fn(String),
    done: impl Future<Output = ()>,
) -> Result<(), Box<dyn std::error::Error>> {
    tokio::select! {
        // The table is incomplete after an error; the next start corrects it.
        result = follow(pods, file, print) => result?,
        // A transaction is never interrupted: it contains no await.
        () = done => {}
    }
    pods.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}

// ANCHOR: follow
async fn follow(
    pods: &SharedInformer<Pod>,
    file: &str,
    print: impl Fn(String),
) -> Result<(), Box<dyn std::error::Error>> {
    let opened = when_unlocked(&print, || Table::open(file)).await;
    let mut table = opened.map_err(|error| format!("{file}: {error}"))?;
    // While the file is locked, changes of one pod become one event: the stream does not grow without bound.
    let mut events = pods.handler().name("table").event_stream();
    pods.start();
    // Waits as long as there is no server, and fails at once if the user may not list pods.
    let mut synced = std::pin::pin!(pods.wait_for_sync(Duration::MAX));
    let mut has_synced = false;
    loop {
        let lines = tokio::select! {
            result = &mut synced, if !has_synced => {
                result?;
                has_synced = true;
                let pods = pods.snapshot();
                eprintln!("synced: {} pods", pods.len());
                when_unlocked(&print, || table.delete_others(&pods)).await
            }
            batch = events.next_batch(MAX_EVENTS_PER_TRANSACTION) => {
                if batch.is_empty() {
                    return Ok(()); // the informer has stopped
                }
                when_unlocked(&print, || table.write(&batch)).await
            }
        };
        lines.map_err(|error| format!("the table cannot be written: {error}"))?.into_iter().for_each(&print);
    }
}
// ANCHOR_END: follow

/// Repeats an operation until no other program locks the file.
async fn when_unlocked<T>(
    print: &impl Fn(String),
    mut operation: impl FnMut() -> Result<T, Error>,
) -> Result<T, Error> {
    loop {
        // SQLite blocks, so the other tasks of this thread move to another one, if there is one.
        let has_threads = Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread;
        let result = if has_threads { tokio::task::block_in_place(&mut operation) } else { operation() };
        let error = match result {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        let code = error.downcast_ref::<rusqlite::Error>().and_then(rusqlite::Error::sqlite_error_code);
        if !matches!(code, Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)) {
            return Err(error);
        }
        print("another program locks the database, trying again".to_owned());
        // Programs that stop, and tests, get a turn here.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

pub(crate) struct Table(Connection);

impl Table {
    /// Opens the table, or creates it in a new file. Does not change the database of another program.
    pub(crate) fn open(file: &str) -> Result<Self, Error> {
        let mut connection = Connection::open(file)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let pragma = |name| transaction.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        let tables: i64 =
            transaction.query_row("SELECT count(*) FROM sqlite_schema", (), |row| row.get(0))?;
        match (pragma("application_id")?, pragma("user_version")?, tables) {
            (APPLICATION_ID, SCHEMA_VERSION, _) => {}
            (APPLICATION_ID, version, _) => {
                // Everything in the table comes from the cluster.
                let hint = "delete the file, and it is written anew";
                return Err(format!("schema version {version}, not {SCHEMA_VERSION} ({hint})").into());
            }
            (0, 0, 0) => {
                transaction.execute(SCHEMA, ())?;
                transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
                transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
            }
            _ => return Err("not a database of this program (choose another file)".into()),
        }
        transaction.commit()?;
        // With a write-ahead log, readers and this writer do not wait for each other.
        connection.execute_batch("PRAGMA journal_mode = wal; PRAGMA synchronous = normal")?;
        Ok(Self(connection))
    }
}

// ANCHOR: table
impl Table {
    /// Writes events in one transaction, and describes them. The uid distinguishes a pod from a later one with
    /// the same name.
    fn write(&mut self, events: &[Event<Pod>]) -> Result<Vec<String>, Error> {
        let transaction = self.0.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let (mut put, mut lines) = (transaction.prepare(PUT)?, Vec::new());
        for event in events {
            let pod = event.object();
            let sign = match event {
                Event::Added { .. } => '+',
                Event::Updated { .. } => '~',
                Event::Deleted { .. } => {
                    transaction.execute("DELETE FROM pods WHERE uid = ?1", [pod.uid()])?;
                    lines.push(format!("- {}", pod.key()));
                    continue;
                }
            };
            // A pod that cannot be read keeps its row, without its contents.
            let object = pod.to_json().ok().map(|json| String::from_utf8_lossy(&json).into_owned());
            let (namespace, version) = (pod.namespace(), pod.resource_version().as_str());
            put.execute(params![pod.uid(), namespace, pod.name(), version, object])?;
            lines.push(format!("{sign} {}", pod.key()));
        }
        drop(put);
        transaction.commit()?;
        Ok(lines)
    }

    /// Deletes the rows of pods that do not exist any more: no event reports what happened while the program
    /// was stopped.
    fn delete_others(&mut self, pods: &Snapshot<Pod>) -> Result<Vec<String>, Error> {
        let existing: HashSet<&str> = pods.iter().map(Object::uid).collect();
        let transaction = self.0.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let rows: Vec<(String, String)> = transaction
            .prepare("SELECT uid, namespace || '/' || name FROM pods")?
            .query_map((), |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Result<_, _>>()?;
        let mut lines = Vec::new();
        for (uid, key) in rows.iter().filter(|(uid, _)| !existing.contains(&**uid)) {
            transaction.execute("DELETE FROM pods WHERE uid = ?1", [uid])?;
            lines.push(format!("- {key} (while stopped)"));
        }
        transaction.commit()?;
        Ok(lines)
    }
}
// ANCHOR_END: table
