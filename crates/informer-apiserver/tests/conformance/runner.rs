//! Runs every statement on every arm, several at a time, and tells it as libtest does.
//!
//! It knows nothing about Kubernetes, and is shared by all suites that want a real server. A panic fails its statement alone, and so does
//! a statement that takes too long. What harms a server runs alone, after everything else.

use std::cell::RefCell;
use std::future::Future;
use std::panic::{self, AssertUnwindSafe};
use std::pin::{Pin, pin};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use futures::{FutureExt, StreamExt};

/// How many run at a time. The real server queues what is too much for it.
const AT_ONCE: usize = 8;

/// How long one may take, also on a machine that is busy and when servers are started in it.
const DEADLINE: Duration = Duration::from_mins(4);

/// The exit code when nothing has the wanted words in its name. `cargo xtask real test` knows it too.
const NOTHING: u8 = 4;

/// A statement that is expected to fail on the embedded arms.
#[allow(dead_code, reason = "only one suite has some")]
pub(crate) struct Difference {
    /// Its name; with the name of an arm in front of it, it is for that arm alone.
    pub(crate) statement: &'static str,
    /// What its failure says, in part. Any other failure is one.
    pub(crate) says: &'static str,
    /// The reason, for people.
    pub(crate) why: &'static str,
}

/// What a statement must be able to do to a server, besides asking it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "no suite needs everything")]
pub(crate) enum Needs {
    Nothing,
    /// To make the storage forget its history.
    Compaction,
    /// To end servers and start them again. Nobody else can use them meanwhile.
    Control,
}

/// Every server there is.
pub(crate) trait Arms {
    /// A server, as one statement sees it.
    type Arm;

    fn names(&self) -> Vec<&'static str>;

    /// A line for each arm that is not there.
    fn left_out(&self) -> Option<String>;

    /// Why statements that need this cannot be held against an arm, if so.
    fn lacks(&self, arm: &str, needs: Needs) -> Option<String>;

    /// One arm for one statement.
    async fn arm(&self, name: &'static str) -> Self::Arm;

    /// Takes away what would be in the way of others.
    async fn clean(&self, arm: Self::Arm);
}

/// One sentence about the server, as a function.
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
        pub(crate) const ALL: &[crate::runner::Statement<crate::arm::Arm>] = &[$(crate::runner::Statement {
            name: crate::runner::short(concat!(module_path!(), "::", stringify!($name))),
            needs: $needs,
            run: |arm| Box::pin($name(arm)),
        }),*];
    };
    ($($name:ident),* $(,)?) => { statements!(needs: crate::runner::Needs::Nothing; $($name),*); };
}
pub(crate) use statements;

/// A path without the name of the crate.
pub(crate) const fn short(path: &'static str) -> &'static str {
    let mut at = 0;
    while path.as_bytes()[at] != b':' {
        at += 1;
    }
    path.split_at(at + "::".len()).1
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

/// Runs what the arguments ask for.
pub(crate) async fn run<S: Arms>(
    arms: S,
    statements: &[Statement<S::Arm>],
    differences: &[Difference],
) -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let exact = args.iter().any(|arg| arg == "--exact");
    let filters: Vec<&String> = args.iter().filter(|arg| !arg.starts_with('-')).collect();
    let wanted = |name: &str| {
        filters.is_empty()
            || filters.iter().any(|filter| if exact { *filter == name } else { name.contains(*filter) })
    };
    let cases: Vec<Case<'_, S::Arm>> = (arms.names().into_iter())
        .flat_map(|arm| statements.iter().map(move |statement| (arm, statement)))
        .filter(|(arm, statement)| wanted(&full_name(arm, statement)))
        .collect();
    if args.iter().any(|arg| arg == "--list") {
        for (arm, statement) in &cases {
            println!("{}: test", full_name(arm, statement));
        }
        return ExitCode::SUCCESS;
    }
    let left_out = arms.left_out();
    // Where an arm is left out, it may have what was asked for.
    if cases.is_empty() && !filters.is_empty() && left_out.is_none() {
        println!("nothing has {filters:?} in its name");
        return ExitCode::from(NOTHING);
    }
    println!("{}\nrunning {} tests", left_out.unwrap_or_default(), cases.len());
    panic::set_hook(Box::new(|info| SAID.with_borrow_mut(|said| *said = info.to_string())));
    let begun = Instant::now();
    let (alone, together): (Vec<_>, Vec<_>) =
        cases.into_iter().partition(|(_, statement)| statement.needs == Needs::Control);
    let check = |(arm, statement)| check(&arms, arm, statement, differences);
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

/// A statement and the name of its arm.
type Case<'a, A> = (&'static str, &'a Statement<A>);

fn full_name<A>(arm: &str, statement: &Statement<A>) -> String {
    format!("{arm}::{}", statement.name)
}

async fn check<S: Arms>(
    arms: &S,
    arm: &'static str,
    statement: &Statement<S::Arm>,
    differences: &[Difference],
) -> (String, Verdict) {
    let name = full_name(arm, statement);
    let difference = differences
        .iter()
        .find(|listed| arm != "real" && [statement.name, name.as_str()].contains(&listed.statement));
    if let Some(why) = arms.lacks(arm, statement.needs) {
        return (name, Verdict::Ignored(why));
    }
    let verdict = match (attempt(arms, arm, statement).await, difference) {
        (Ok(()), None) => Verdict::Ok,
        (Ok(()), Some(_)) => {
            Verdict::Failed("it is listed as a difference and holds: take it off".to_owned())
        }
        (Err(said), Some(listed)) if said.contains(listed.says) => Verdict::Differs(listed.why.to_owned()),
        (Err(said), Some(listed)) => {
            Verdict::Failed(format!("it differs, but not as listed (`{}`):\n{said}", listed.says))
        }
        (Err(said), None) => Verdict::Failed(said),
    };
    (name, verdict)
}

async fn attempt<S: Arms>(arms: &S, arm: &'static str, statement: &Statement<S::Arm>) -> Result<(), String> {
    let arm = AssertUnwindSafe(arms.arm(arm)).catch_unwind().await.map_err(|_| SAID.take())?;
    let run = tokio::time::timeout(DEADLINE, AssertUnwindSafe((statement.run)(&arm)).catch_unwind());
    let outcome = match run.await {
        Err(_) => Err(format!("it takes longer than {} seconds", DEADLINE.as_secs())),
        // The hook ran on this thread, in this very poll.
        Ok(Err(_)) => Err(SAID.take()),
        Ok(Ok(())) => Ok(()),
    };
    let cleaned = AssertUnwindSafe(arms.clean(arm)).catch_unwind().await;
    outcome.and(cleaned.map_err(|_| format!("what it made cannot be removed: {}", SAID.take())))
}
