//! What becomes of a pod, as a test chooses it.
//!
//! An annotation with another value than the names of outcomes has no effect.

use serde_json::Value;

/// The annotation that chooses the [`PodOutcome`] of a pod.
pub const OUTCOME_ANNOTATION: &str = "informer-actors/outcome";

/// What becomes of a pod, chosen by its annotation [`OUTCOME_ANNOTATION`].
///
/// ```
/// use informer_actors::{OUTCOME_ANNOTATION, PodOutcome};
///
/// let annotations = serde_json::json!({OUTCOME_ANNOTATION: PodOutcome::Crash.name()});
/// assert_eq!(annotations, serde_json::json!({"informer-actors/outcome": "crash"}));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum PodOutcome {
    /// The pod becomes ready, or completes if its restart policy is not `Always`. The default.
    Succeed,
    /// The pod fails for good, whatever its restart policy is.
    Fail,
    /// The containers fail after each start and are restarted with increasing delays, until the annotation is
    /// removed. With restart policy `Never`, the pod fails.
    Crash,
    /// The pod runs and does not become ready, nor does it complete.
    NeverReady,
    /// The image cannot be pulled: the pod stays pending with `ImagePullBackOff`, until the annotation is removed.
    NoImage,
}

impl PodOutcome {
    const ALL: [PodOutcome; 5] = [
        PodOutcome::Succeed,
        PodOutcome::Fail,
        PodOutcome::Crash,
        PodOutcome::NeverReady,
        PodOutcome::NoImage,
    ];

    /// Returns the value of the annotation, for example `never-ready`.
    pub fn name(self) -> &'static str {
        match self {
            PodOutcome::Succeed => "succeed",
            PodOutcome::Fail => "fail",
            PodOutcome::Crash => "crash",
            PodOutcome::NeverReady => "never-ready",
            PodOutcome::NoImage => "no-image",
        }
    }

    /// Returns the outcome that the annotation of a pod chooses.
    pub(crate) fn of(pod: &Value) -> Option<Self> {
        let name = pod["metadata"]["annotations"][OUTCOME_ANNOTATION].as_str()?;
        PodOutcome::ALL.into_iter().find(|outcome| outcome.name() == name)
    }
}
