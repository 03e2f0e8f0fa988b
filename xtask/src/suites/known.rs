//! The tests that are expected to fail, with the reason.
//!
//! A test that fails on the embedded server and passes on kube-apiserver shows a fault of the embedded server.
//! It is listed only until the fault is fixed.

use super::report::{Known, Server};

const BOTH: &[Server] = &[Server::Embedded, Server::ControlPlane];

/// Neither server has nodes.
const KUBELET: &str = "no kubelet runs the pod";

pub(super) const KNOWN: &[Known] = &[
    Known { suite: "kube-rs", servers: BOTH, test: "kube::test::pod_can_await_conditions", reason: KUBELET },
    Known {
        suite: "kube-rs",
        servers: BOTH,
        test: "kube_client::test::can_get_pod_logs_and_evict",
        reason: KUBELET,
    },
    Known {
        suite: "kube-rs",
        servers: BOTH,
        test: "kube_client::test::pod_can_exec_and_write_to_stdin",
        reason: KUBELET,
    },
    Known {
        suite: "kube-rs",
        servers: &[Server::Embedded],
        test: "kube_runtime::events::test::event_recorder_attaches_events_without_namespace",
        reason: "component statuses are empty",
    },
];
