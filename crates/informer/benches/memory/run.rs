//! The main process: starts a server and a client for each mode and prints the results.

use crate::client::{self, Phase};
use crate::process_stats::Reading;
use crate::report::Report;
use crate::world::World;
use crate::{Failure, Mode, Plan, server};
use std::io::{BufRead as _, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};

pub(crate) fn run(plan: &Plan) -> Result<(), Failure> {
    let mut report = Report::new(plan, &World::new(plan.objects).item(0));
    for &mode in &plan.modes {
        eprintln!("{}: {} pods, four phases", mode.name(), plan.objects);
        report.add(mode, &measure(plan, mode)?);
    }
    print!("{report}");
    Ok(())
}

fn measure(plan: &Plan, mode: Mode) -> Result<Vec<Reading>, Failure> {
    let (objects, handlers) = (plan.objects.to_string(), plan.handlers.to_string());
    let compressed = plan.compressed.to_string();
    let mut server = Process::start(&[server::COMMAND, &objects, &plan.paged.to_string()])?;
    let port = server.line()?.ok_or("the server did not start")?;
    let mut client =
        Process::start(&[client::COMMAND, &port, &objects, &handlers, mode.name(), &compressed])?;
    let mut readings = Vec::new();
    for phase in Phase::ALL {
        let line = client.line()?.ok_or_else(|| format!("the client failed in phase {phase:?}"))?;
        readings.push(Reading::parse(&line).ok_or_else(|| format!("`{line}` is not a reading"))?);
    }
    Ok(readings)
}

/// This program in another role; killed when dropped.
struct Process {
    child: Child,
    output: Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn start(args: &[&str]) -> Result<Self, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(args)
            .stdin(Stdio::piped()) // closed when this process ends, which stops the server
            .stdout(Stdio::piped())
            .spawn()?;
        let output = child.stdout.take().ok_or("no stdout of the child process")?;
        Ok(Self { child, output: BufReader::new(output).lines() })
    }

    /// Reads the next line of its output. Returns `None` if it has ended.
    fn line(&mut self) -> Result<Option<String>, Failure> {
        Ok(self.output.next().transpose()?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
