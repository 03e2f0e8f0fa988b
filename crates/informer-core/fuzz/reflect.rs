//! A reflector that is answered with an input, under headers that may be wrong: it comes to the same end however the input is cut.

use crate::check::{Case, pieces};
use crate::seeds::{What, list_of};
use informer_core::reflector::{Action, Config, Reflector, ResponseHead, StreamId, WatchListPolicy};
use informer_core::{Moment, Scope};
use std::time::Duration;

pub(crate) fn check(case: &Case) -> Result<(), String> {
    let whole = answered(case, &[&case.body]);
    let cut = answered(case, &pieces(&case.body, case.cuts));
    if cut == whole {
        Ok(())
    } else {
        Err(format!("a reflector does {cut:?} in pieces, and {whole:?} otherwise"))
    }
}

/// What a reflector does when a request is answered with an input: a list, a watch behind a good list, or a refusal.
fn answered(case: &Case, pieces: &[&[u8]]) -> Vec<String> {
    let mut config = Config::new(case.types.clone(), Scope::All);
    (config.limits, config.field_filter) = (case.limits, case.projection.clone());
    // A watch may also be one that begins with the whole set.
    let streams = case.what == What::Watch && case.cuts.is_multiple_of(3);
    config.watch_list = if streams { WatchListPolicy::Always } else { WatchListPolicy::Never };
    let now = Moment::at(Duration::from_secs(1));
    let mut reflector = Reflector::new(config, case.cuts, None);
    reflector.start(now);
    let mut done = Vec::new();
    if case.what == What::Watch && !streams {
        let Some(id) = drained(&mut reflector, &mut done) else { return done };
        reflector.handle_response(now, id, ResponseHead::new(200));
        reflector.handle_bytes(now, id, &list_of(&case.types, b""));
        reflector.handle_end(now, id);
    }
    let Some(id) = drained(&mut reflector, &mut done) else { return done };
    let mut head = ResponseHead::new(if case.what == What::Status { 410 } else { 200 });
    head.content_type = case.content_type.map(Into::into);
    reflector.handle_response(now, id, head);
    for piece in pieces {
        reflector.handle_bytes(now, id, piece);
        drained(&mut reflector, &mut done);
        reflector.check_invariants();
    }
    reflector.handle_end(now, id);
    drained(&mut reflector, &mut done);
    reflector.check_invariants();
    done.push(format!("{:?} at {:?}", reflector.state(), reflector.position()));
    done
}

/// Takes what is to do; the last request among it.
fn drained(reflector: &mut Reflector, done: &mut Vec<String>) -> Option<StreamId> {
    let mut asked = None;
    while let Some(action) = reflector.poll_action() {
        if let Action::List(id, _) | Action::Watch(id, _) = &action {
            asked = Some(*id);
        }
        done.push(format!("{action:?}"));
    }
    asked
}
