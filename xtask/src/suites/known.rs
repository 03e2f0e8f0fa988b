//! The tests that are expected to fail, with the reason.
//!
//! A test that fails on the embedded server and passes on kube-apiserver does not belong here: it shows a
//! fault, which is fixed.

use super::report::{Known, Server};

/// kube-apiserver has the flags of the recorded server, see `control_plane/config.rs`.
const PRIVILEGED: &str = "privileged containers are not allowed without --allow-privileged";

pub(super) const KNOWN: &[Known] = &[
    Known {
        suite: "controller",
        servers: &[Server::ControlPlane],
        test: "controller controller should reconcile with controller warmup enabled",
        reason: PRIVILEGED,
    },
    Known {
        suite: "controller",
        servers: &[Server::ControlPlane],
        test: "controller controller should reconcile with controller warmup not enabled",
        reason: PRIVILEGED,
    },
];
