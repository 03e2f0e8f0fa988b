//! Runs every statement on every target, several concurrently, and reports like libtest.
//!
//! It does not depend on Kubernetes and is shared by all suites that use a control plane. A panic or timeout fails
//! only its statement. Statements that disrupt a server run alone, after all others.

use std::cell::RefCell;
use std::future::Future;
use std::panic::{self, AssertUnwindSafe};
use std::pin::{Pin, pin};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use futures::{FutureExt, StreamExt};

/// Number of concurrent statements. The server queues the rest.
const AT_ONCE: usize = 8;

/// Time limit of one statement, sufficient on a busy machine and for statements that start servers.
const DEADLINE: Duration = Duration::from_secs(240);

/// Exit code if no name matches the filter; also known to `cargo xtask control-plane test`.
const NOTHING: u8 = 4;

/// A statement that is expected to fail on the embedded targets.
#[allow(dead_code, reason = "used by one suite only")]
pub(crate) struct Difference {
    /// Name of the statement; prefixed with the name of an target, it applies to that target only.
    pub(crate) statement: &'static str,
    /// Part of the expected failure message. Any other message is a failure.
    pub(crate) says: &'static str,
    /// Reason, for readers.
    pub(crate) why: &'static str,
}

/// What a statement needs besides requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "no suite uses all variants")]
pub(crate) enum Needs {
    Nothing,
    /// Compacts the storage.
    Compaction,
    /// A server without other load, because it depends on the time of a response.
    Quiet,
    /// Stops and starts servers, which no other statement can use meanwhile.
    Control,
}

/// All targets of a suite.
pub(crate) trait Targets {
    /// A server as seen by one statement.
    type Target;

    fn names(&self) -> Vec<&'static str>;

    /// One line for each target that is unavailable.
    fn left_out(&self) -> Option<String>;

    /// Returns why an target cannot run statements with this need, if so.
    fn lacks(&self, target: &str, needs: Needs) -> Option<String>;

    /// Creates an target for one statement.
    async fn target(&self, name: &'static str) -> Self::Target;

    /// Removes what could disturb other statements.
    async fn clean(&self, target: Self::Target);
}

/// One property of the server, as a function.
pub(crate) struct Statement<A> {
    /// Module and function.
    pub(crate) name: &'static str,
    pub(crate) needs: Needs,
    pub(crate) run: for<'a> fn(&'a A) -> Pin<Box<dyn Future<Output = ()> + 'a>>,
}

impl<A> Clone for Statement<A> {
    fn clone(&self) -> Self {
        Self { ..*self }
    }
}

/// Lists the statements of a module.
macro_rules! statements {
    (needs: $needs:expr; $($name:ident),* $(,)?) => {
        pub(crate) const ALL: &[crate::runner::Statement<crate::targets::Target>] = &[$(crate::runner::Statement {
            name: crate::runner::short(concat!(module_path!(), "::", stringify!($name))),
            needs: $needs,
            run: |target| Box::pin($name(target)),
        }),*];
    };
    ($($name:ident),* $(,)?) => { statements!(needs: crate::runner::Needs::Nothing; $($name),*); };
}
pub(crate) use statements;

/// Removes the name of the crate from a path.
pub(crate) const fn short(path: &'static str) -> &'static str {
    let mut at = 0;
    while path.as_bytes()[at] != b':' {
        at += 1;
    }
    path.split_at(at + "::".len()).1
}

enum Verdict {
    Ok,
    /// It fails as listed, for this reason.
    Differs(String),
    Ignored(String),
    Failed(String),
}

thread_local! {
    /// Message of this thread's last panic.
    static PANIC_MESSAGE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs the statements selected by the arguments.
pub(crate) async fn run<S: Targets>(
    targets: S,
    statements: &[Statement<S::Target>],
    differences: &[Difference],
) -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let exact = args.iter().any(|arg| arg == "--exact");
    let filters: Vec<&String> = args.iter().filter(|arg| !arg.starts_with('-')).collect();
    let wanted = |name: &str| {
        filters.is_empty()
            || filters.iter().any(|filter| if exact { *filter == name } else { name.contains(*filter) })
    };
    let cases: Vec<Case<'_, S::Target>> = (targets.names().into_iter())
        .flat_map(|target| statements.iter().map(move |statement| (target, statement)))
        .filter(|(target, statement)| wanted(&full_name(target, statement)))
        .collect();
    if args.iter().any(|arg| arg == "--list") {
        for (target, statement) in &cases {
            println!("{}: test", full_name(target, statement));
        }
        return ExitCode::SUCCESS;
    }
    let left_out = targets.left_out();
    // An target that is unavailable may have a matching statement.
    if cases.is_empty() && !filters.is_empty() && left_out.is_none() {
        println!("no statement matches {filters:?}");
        return ExitCode::from(NOTHING);
    }
    println!("{}\nrunning {} tests", left_out.unwrap_or_default(), cases.len());
    panic::set_hook(Box::new(|info| PANIC_MESSAGE.with_borrow_mut(|message| *message = info.to_string())));
    let begun = Instant::now();
    let (alone, together): (Vec<_>, Vec<_>) = cases
        .into_iter()
        .partition(|(_, statement)| matches!(statement.needs, Needs::Quiet | Needs::Control));
    let check = |(target, statement)| check(&targets, target, statement, differences);
    let together = futures::stream::iter(together).map(check).buffer_unordered(AT_ONCE);
    let mut running = pin!(together.chain(futures::stream::iter(alone).then(check)));
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
        if let Verdict::Failed(message) = verdict {
            failed.push((name, message));
        }
    }
    for (name, message) in &failed {
        println!("\n---- {name} ----\n{message}");
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

/// A statement and the name of its target.
type Case<'a, A> = (&'static str, &'a Statement<A>);

fn full_name<A>(target: &str, statement: &Statement<A>) -> String {
    format!("{target}::{}", statement.name)
}

async fn check<S: Targets>(
    targets: &S,
    target: &'static str,
    statement: &Statement<S::Target>,
    differences: &[Difference],
) -> (String, Verdict) {
    let name = full_name(target, statement);
    let difference = differences
        .iter()
        .find(|listed| target != "real" && [statement.name, name.as_str()].contains(&listed.statement));
    if let Some(why) = targets.lacks(target, statement.needs) {
        return (name, Verdict::Ignored(why));
    }
    let verdict = match (attempt(targets, target, statement).await, difference) {
        (Ok(()), None) => Verdict::Ok,
        (Ok(()), Some(_)) => {
            Verdict::Failed("listed as a difference but holds: remove it from the list".to_owned())
        }
        (Err(message), Some(listed)) if message.contains(listed.says) => {
            Verdict::Differs(listed.why.to_owned())
        }
        (Err(message), Some(listed)) => {
            Verdict::Failed(format!("fails, but not with the listed message (`{}`):\n{message}", listed.says))
        }
        (Err(message), None) => Verdict::Failed(message),
    };
    (name, verdict)
}

async fn attempt<S: Targets>(
    targets: &S,
    target: &'static str,
    statement: &Statement<S::Target>,
) -> Result<(), String> {
    let target =
        AssertUnwindSafe(targets.target(target)).catch_unwind().await.map_err(|_| PANIC_MESSAGE.take())?;
    let run = tokio::time::timeout(DEADLINE, AssertUnwindSafe((statement.run)(&target)).catch_unwind());
    let outcome = match run.await {
        Err(_) => Err(format!("timed out after {} seconds", DEADLINE.as_secs())),
        // The panic hook ran on this thread, in this poll.
        Ok(Err(_)) => Err(PANIC_MESSAGE.take()),
        Ok(Ok(())) => Ok(()),
    };
    let cleaned = AssertUnwindSafe(targets.clean(target)).catch_unwind().await;
    outcome.and(cleaned.map_err(|_| format!("cleanup failed: {}", PANIC_MESSAGE.take())))
}
