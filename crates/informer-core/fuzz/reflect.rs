//! A reflector that receives an input as a response, possibly with wrong headers: neither its deltas nor its
//! actions depend on how the input is split. Only the order between the two does, because the deltas of a
//! chunk are taken before its actions.

use crate::check::{Case, pieces};
use crate::seeds::{BodyKind, list_of};
use informer_core::reflector::{Action, Config, Reflector, ResponseHead, StreamId, WatchListPolicy};
use informer_core::{Moment, Scope};
use std::time::Duration;

pub(crate) fn check(case: &Case) -> Result<(), String> {
    let whole = run_reflector(case, &[&case.body]);
    let split = run_reflector(case, &pieces(&case.body, case.split_seed));
    if split == whole {
        Ok(())
    } else {
        Err(format!("the reflector's output is {split:?} in pieces and {whole:?} for the whole body"))
    }
}

/// The deltas and the actions of a reflector, each in order.
#[derive(Debug, Default, PartialEq, Eq)]
struct Output {
    deltas: Vec<String>,
    actions: Vec<String>,
}

/// Returns the output of a reflector that receives an input: as a list, as a watch after a valid list, or as
/// an error response.
fn run_reflector(case: &Case, pieces: &[&[u8]]) -> Output {
    let mut config = Config::new(case.type_meta.clone(), Scope::All);
    (config.limits, config.field_filter) = (case.limits, case.field_filter.clone());
    // A third of the watches are watch-lists.
    let uses_watch_list = case.kind == BodyKind::Watch && case.split_seed.is_multiple_of(3);
    config.watch_list = if uses_watch_list { WatchListPolicy::Always } else { WatchListPolicy::Never };
    let now = Moment::at(Duration::from_secs(1));
    let mut reflector = Reflector::new(config, case.split_seed, None);
    reflector.start(now);
    let mut output = Output::default();
    if case.kind == BodyKind::Watch && !uses_watch_list {
        let Some(id) = drain(&mut reflector, &mut output) else { return output };
        reflector.handle_response(now, id, ResponseHead::new(200));
        reflector.handle_bytes(now, id, &list_of(&case.type_meta, b""));
        reflector.handle_end(now, id);
    }
    let Some(id) = drain(&mut reflector, &mut output) else { return output };
    let mut head = ResponseHead::new(if case.kind == BodyKind::Status { 410 } else { 200 });
    head.content_type = case.content_type.map(Into::into);
    reflector.handle_response(now, id, head);
    for piece in pieces {
        reflector.handle_bytes(now, id, piece);
        drain(&mut reflector, &mut output);
        reflector.check_invariants();
    }
    reflector.handle_end(now, id);
    drain(&mut reflector, &mut output);
    reflector.check_invariants();
    output.actions.push(format!("{:?} at {:?}", reflector.state(), reflector.position()));
    output
}

/// Appends the pending deltas and actions to `output`; returns the id of the last request among them.
fn drain(reflector: &mut Reflector, output: &mut Output) -> Option<StreamId> {
    let mut request = None;
    output.deltas.extend(reflector.deltas().drain(..).map(|delta| format!("{delta:?}")));
    while let Some(action) = reflector.poll_action() {
        if let Action::List(id, _) | Action::Watch(id, _) = &action {
            request = Some(*id);
        }
        output.actions.push(format!("{action:?}"));
    }
    request
}
