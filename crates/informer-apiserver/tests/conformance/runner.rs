//! Runs every statement on every arm, several at a time, and tells it as libtest does.
//!
//! It knows nothing about Kubernetes. A panic fails its statement alone, and so does a statement that takes too long.

use std::cell::RefCell;
use std::future::Future;
use std::panic::{self, AssertUnwindSafe};
use std::pin::Pin;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use futures::{FutureExt, StreamExt};

use crate::arm::{Arm, Arms};

/// How many run at a time. The real server queues what is too much for it.
const AT_ONCE: usize = 8;

/// How long one may take, also on a machine that is busy.
const DEADLINE: Duration = Duration::from_mins(1);

/// One sentence about the server, as a function.
#[derive(Clone, Copy)]
pub(crate) struct Statement {
    /// Module and function.
    pub(crate) name: &'static str,
    /// Whether it makes the storage forget its history, for which the arm must have a way.
    pub(crate) compacts: bool,
    pub(crate) run: for<'a> fn(&'a Arm) -> Pin<Box<dyn Future<Output = ()> + 'a>>,
}

/// Lists the statements of a module.
macro_rules! statements {
    (compacts: $compacts:expr; $($name:ident),* $(,)?) => {
        pub(crate) const ALL: &[crate::runner::Statement] = &[$(crate::runner::Statement {
            name: crate::runner::short(concat!(module_path!(), "::", stringify!($name))),
            compacts: $compacts,
            run: |arm| Box::pin($name(arm)),
        }),*];
    };
    ($($name:ident),* $(,)?) => { statements!(compacts: false; $($name),*); };
}
pub(crate) use statements;

/// A path without the name of the crate.
pub(crate) const fn short(path: &'static str) -> &'static str {
    path.split_at("conformance::".len()).1
}

enum Verdict {
    Ok,
    /// It fails where that is known, for this reason.
    Differs(String),
    Ignored(String),
    Failed(String),
}

thread_local! {
    /// What the last panic of this thread said.
    static SAID: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs what the arguments ask for. `differences` are expected to fail on the embedded arms, each for its reason.
pub(crate) async fn run(statements: &[Statement], differences: &[(&str, &str)]) -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let exact = args.iter().any(|arg| arg == "--exact");
    let filters: Vec<&String> = args.iter().filter(|arg| !arg.starts_with('-')).collect();
    let wanted = |name: &str| {
        filters.is_empty()
            || filters.iter().any(|filter| if exact { *filter == name } else { name.contains(*filter) })
    };
    let arms = Arms::open().await;
    let cases: Vec<(&'static str, Statement)> = (arms.names().into_iter())
        .flat_map(|arm| statements.iter().map(move |statement| (arm, *statement)))
        .filter(|(arm, statement)| wanted(&full_name(arm, statement)))
        .collect();
    if args.iter().any(|arg| arg == "--list") {
        for (arm, statement) in &cases {
            println!("{}: test", full_name(arm, statement));
        }
        return ExitCode::SUCCESS;
    }
    println!("{}\nrunning {} tests", arms.left_out().unwrap_or_default(), cases.len());
    panic::set_hook(Box::new(|info| SAID.with_borrow_mut(|said| *said = info.to_string())));
    let begun = Instant::now();
    let mut running = futures::stream::iter(cases)
        .map(|(name, statement)| check(&arms, name, statement, differences))
        .buffer_unordered(AT_ONCE);
    let (mut passed, mut differ, mut ignored, mut failed) = (0, 0, 0, Vec::new());
    while let Some((name, verdict)) = running.next().await {
        let (count, line) = match &verdict {
            Verdict::Ok => (&mut passed, "ok".to_owned()),
            Verdict::Differs(why) => (&mut differ, format!("differs as listed, {why}")),
            Verdict::Ignored(why) => (&mut ignored, format!("ignored, {why}")),
            Verdict::Failed(_) => (&mut 0, "FAILED".to_owned()),
        };
        *count += 1;
        println!("test {name} ... {line}");
        if let Verdict::Failed(said) = verdict {
            failed.push((name, said));
        }
    }
    for (name, said) in &failed {
        println!("\n---- {name} ----\n{said}");
    }
    let outcome = if failed.is_empty() { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {outcome}. {passed} passed; {} failed; {ignored} ignored; {differ} differ as listed; \
         finished in {:.2}s\n",
        failed.len(),
        begun.elapsed().as_secs_f64()
    );
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(101) }
}

fn full_name(arm: &str, statement: &Statement) -> String {
    format!("{arm}::{}", statement.name)
}

async fn check(
    arms: &Arms,
    arm: &'static str,
    statement: Statement,
    differences: &[(&str, &str)],
) -> (String, Verdict) {
    let name = full_name(arm, &statement);
    let difference = differences
        .iter()
        .find(|(listed, _)| arm != "real" && (*listed == statement.name || *listed == name));
    if statement.compacts && !arms.can_compact(arm) {
        return (name, Verdict::Ignored("INFORMER_REAL_ETCD does not say where its etcd is".to_owned()));
    }
    let verdict = match (attempt(arms, arm, statement).await, difference) {
        (Ok(()), None) => Verdict::Ok,
        (Ok(()), Some(_)) => {
            Verdict::Failed("it is listed as a difference and holds: take it off".to_owned())
        }
        (Err(_), Some((_, why))) => Verdict::Differs((*why).to_owned()),
        (Err(said), None) => Verdict::Failed(said),
    };
    (name, verdict)
}

async fn attempt(arms: &Arms, arm: &'static str, statement: Statement) -> Result<(), String> {
    let arm = AssertUnwindSafe(arms.arm(arm)).catch_unwind().await.map_err(|_| SAID.take())?;
    let run = tokio::time::timeout(DEADLINE, AssertUnwindSafe((statement.run)(&arm)).catch_unwind());
    let outcome = match run.await {
        Err(_) => Err(format!("it takes longer than {} seconds", DEADLINE.as_secs())),
        // The hook ran on this thread, in this very poll.
        Ok(Err(_)) => Err(SAID.take()),
        Ok(Ok(())) => Ok(()),
    };
    arm.clean().await;
    outcome
}
