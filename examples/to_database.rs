//! Writes pods to a database and corrects it at every start: also after a crash, and also for pods deleted
//! while the program was not running.
//!
//!     cargo run --example to_database -- pods.db [--kubeconfig PATH] [--namespace NAME]
//!     sqlite3 pods.db 'select namespace, name, node, phase from pods'

use informer::{Event, SharedInformer};
use informer_examples::{program, stop_signal};
use k8s_openapi::api::core::v1::Pod;
use rusqlite::{Connection, params};
use std::error::Error;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;

const USAGE: &str = "usage: to_database FILE [--kubeconfig PATH] [--namespace NAME]

Keeps the table `pods` of an SQLite database equal to the pods of a cluster and prints changes until Ctrl-C.
Run one program per file.";

/// A row contains the number of the last run that saw its pod.
const TABLE: &str = "PRAGMA journal_mode = wal; PRAGMA synchronous = normal;
    CREATE TABLE IF NOT EXISTS pods (uid TEXT PRIMARY KEY, namespace TEXT, name TEXT, version TEXT, node TEXT, phase TEXT,
        run INTEGER) STRICT";
/// Versions are not compared: the last delivered state is correct, even after the cluster was restored from a
/// backup.
const PUT: &str = "INSERT OR REPLACE INTO pods VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";

#[tokio::main]
async fn main() -> ExitCode {
    program(USAGE, async |mut arguments| {
        let (options, file) = (arguments.options()?, arguments.value("FILE")?);
        let pods = SharedInformer::with_options(arguments.client().await?, options);
        let table =
            Table::open(&file).map_err(|error| format!("{file}: {error} (is the file a database?)"))?;
        run(&pods, table, |line| println!("{line}"), stop_signal()).await
    })
    .await
}

/// Keeps the table equal to the pods until `done`, or until a write fails.
pub(crate) async fn run(
    pods: &SharedInformer<Pod>,
    table: Table,
    print: impl Fn(String) + Clone + Send + 'static,
    done: impl Future<Output = ()>,
) -> Result<(), Box<dyn Error>> {
    let table = Arc::new(Mutex::new(table));
    let (failed, mut failure) = mpsc::unbounded_channel();
    let (rows, report) = (Arc::clone(&table), print.clone());
    let writing = pods.handler().name("table").blocking().on_event(move |event| {
        let written = lock(&rows).write(&event);
        // A handler cannot return an error, the program can. Sending fails only if it has returned one
        // already.
        written.map_or_else(|error| drop(failed.send(error)), &report);
    });
    pods.start();
    let work = async {
        pods.wait_for_sync(Duration::from_secs(30)).await?;
        // Every existing pod has its row now. Rows that no event of this run touched belong to deleted pods.
        if writing.wait_for_sync().await {
            let swept = tokio::task::spawn_blocking(move || lock(&table).sweep()).await??;
            swept.into_iter().for_each(print);
            eprintln!("synced: {} pods", pods.lister().len());
        }
        done.await;
        Ok::<_, Box<dyn Error>>(())
    };
    tokio::select! {
        // The table is incomplete then; the next start corrects it.
        Some(error) = failure.recv() => return Err(format!("the table cannot be written: {error}").into()),
        result = work => result?,
    }
    pods.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}

/// Each statement is independent, so a panic leaves the table consistent.
fn lock(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The table, and the number of this run: higher than any in it, so that an aborted run needs no cleanup.
pub(crate) struct Table {
    connection: Connection,
    run: i64,
}

impl Table {
    pub(crate) fn open(file: &str) -> rusqlite::Result<Self> {
        let connection = Connection::open(file)?;
        connection.execute_batch(TABLE)?;
        let run = connection.query_row("SELECT coalesce(max(run), 0) + 1 FROM pods", (), |row| row.get(0))?;
        Ok(Self { connection, run })
    }

    /// Writes an event. The uid distinguishes a pod from a later one with the same name.
    fn write(&self, event: &Event<Pod>) -> rusqlite::Result<String> {
        let pod = event.object();
        if matches!(event, Event::Deleted { .. }) {
            self.connection.execute("DELETE FROM pods WHERE uid = ?1", [pod.uid()])?;
            return Ok(format!("- {}", pod.key()));
        }
        // A pod that does not decode keeps its row, without the columns that need decoding.
        let typed = pod.typed().ok();
        let node = typed.as_ref().and_then(|pod| pod.spec.as_ref()?.node_name.as_deref());
        let phase = typed.as_ref().and_then(|pod| pod.status.as_ref()?.phase.as_deref());
        let (namespace, version) = (pod.namespace(), pod.resource_version().as_str());
        self.connection
            .execute(PUT, params![pod.uid(), namespace, pod.name(), version, node, phase, self.run])?;
        Ok(format!("{} {}", if matches!(event, Event::Added { .. }) { '+' } else { '~' }, pod.key()))
    }

    /// Deletes the rows that this run has not seen.
    fn sweep(&self) -> rusqlite::Result<Vec<String>> {
        let gone = "DELETE FROM pods WHERE run < ?1 RETURNING namespace || '/' || name";
        let mut gone = self.connection.prepare(gone)?;
        gone.query_map([self.run], |row| Ok(format!("- {} (while stopped)", row.get::<_, String>(0)?)))?
            .collect()
    }
}
