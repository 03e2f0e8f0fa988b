//! Panics of the program, of actors and of the scenario: recorded instead of printed.
//!
//! Libraries catch panics of handlers and reconciles, so a panic does not show in the result of a task. The panic
//! hook sees all of them.

use std::cell::RefCell;
use std::sync::Once;

thread_local! {
    /// The panics of the simulation on this thread; `None` if there is no simulation.
    static PANICS: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Starts to record the panics of this thread.
pub(crate) fn record() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let is_recorded = PANICS
                .try_with(|panics| match panics.try_borrow_mut().as_deref_mut() {
                    Ok(Some(panics)) => {
                        panics.push(text(info));
                        true
                    }
                    _ => false,
                })
                .unwrap_or(false);
            if !is_recorded {
                previous(info);
            }
        }));
    });
    PANICS.with(|panics| *panics.borrow_mut() = Some(Vec::new()));
}

/// Returns the panics since the last call.
pub(crate) fn take() -> Vec<String> {
    PANICS.with(|panics| panics.borrow_mut().as_mut().map(std::mem::take).unwrap_or_default())
}

fn text(info: &std::panic::PanicHookInfo<'_>) -> String {
    let payload = info.payload();
    let message = payload.downcast_ref::<&str>().copied();
    let message = message.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let message = message.unwrap_or("a value that is not text");
    info.location().map_or_else(|| message.to_owned(), |location| format!("{message} ({location})"))
}
