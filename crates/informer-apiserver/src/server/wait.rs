//! Waiting for a condition on the server, for tests.
//!
//! A condition is evaluated at the start and whenever something changes that [`ApiServer`] shows, not
//! periodically: under tokio's paused clock, no virtual time passes between a change and the end of a wait.

use std::fmt;
use std::time::Duration;

use kube::Resource;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::ApiServer;

/// A condition did not hold in time, from [`ApiServer::wait_until`] and [`ApiServer::wait_for`].
///
/// The message contains the last state of the object.
#[derive(Clone, thiserror::Error)]
#[error("{message}")]
pub struct WaitError {
    message: String,
}

/// Shows the message as it is, because a test prints the error with `unwrap`.
impl fmt::Debug for WaitError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.message)
    }
}

impl ApiServer {
    /// Waits until `condition` returns `true`.
    ///
    /// The condition is evaluated immediately, again after every write, request, start or end of a watch, and
    /// hit of a fault rule, and for the last time at the timeout. It may use everything that the server shows:
    /// objects, [`ApiServer::recorded_requests`], [`ApiServer::open_watches`],
    /// [`FaultGuard::hits`](crate::faults::FaultGuard::hits).
    ///
    /// # Errors
    ///
    /// [`WaitError`] after `timeout`, on tokio's clock.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = informer_apiserver::ApiServer::new();
    /// let map = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    /// let writer = server.clone();
    /// tokio::spawn(async move {
    ///     tokio::time::sleep(Duration::from_secs(20)).await;
    ///     writer.create(&map)
    /// });
    /// let count = |server: &informer_apiserver::ApiServer| server.list("v1", "configmaps", None).len();
    /// server.wait_until(Duration::from_secs(30), |server| count(server) == 1).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn wait_until(
        &self,
        timeout: Duration,
        mut condition: impl FnMut(&ApiServer) -> bool,
    ) -> Result<(), WaitError> {
        let waited = self.wait(timeout, || condition(self).then_some(())).await;
        waited.ok_or_else(|| WaitError {
            message: format!(
                "wait for a condition: timed out after {timeout:?} (the condition is still false)"
            ),
        })
    }

    /// Waits until an object exists and `condition` returns `true` for it, and returns the object.
    ///
    /// `key` is `namespace/name`, or the name only: of an object without a namespace, or in the namespace
    /// `default`. The condition is evaluated immediately, after every write, and at the timeout.
    ///
    /// # Errors
    ///
    /// [`WaitError`] after `timeout`, on tokio's clock. Its message contains the object.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use k8s_openapi::api::core::v1::Pod;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = informer_apiserver::ApiServer::new();
    /// server.create(&serde_json::json!({
    ///     "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
    ///     "spec": {"containers": [{"name": "web", "image": "web:1"}]},
    /// }))?;
    /// let timeout = Duration::from_secs(30);
    /// let pod = server.wait_for("default/web", timeout, |pod: &Pod| pod.metadata.uid.is_some()).await?;
    /// assert_eq!(pod.status.unwrap().phase.as_deref(), Some("Pending"));
    ///
    /// let error = server.wait_for("web", timeout, |pod: &Pod| pod.metadata.labels.is_some()).await.unwrap_err();
    /// assert!(error.to_string().starts_with("wait for pods web: timed out after 30s (last state: {"));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn wait_for<K>(
        &self,
        key: &str,
        timeout: Duration,
        mut condition: impl FnMut(&K) -> bool,
    ) -> Result<K, WaitError>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let (api_version, plural) = (K::api_version(&()), K::plural(&()));
        let mut last = LastState::Missing;
        let waited = self.wait(timeout, || {
            let Some(object) = self.get_by_key(&api_version, &plural, key) else {
                last = LastState::Missing;
                return None;
            };
            match serde_json::from_value::<K>(object.clone()) {
                Ok(typed) if condition(&typed) => return Some(typed),
                Ok(_) => last = LastState::Object(object),
                Err(error) => last = LastState::Unreadable(error.to_string(), object),
            }
            None
        });
        let waited = waited.await;
        waited.ok_or_else(|| WaitError {
            message: format!("wait for {plural} {key}: timed out after {timeout:?} ({last})"),
        })
    }

    /// Evaluates `condition` until it returns a value; `None` if it returns none at the timeout either.
    async fn wait<T>(&self, timeout: Duration, mut condition: impl FnMut() -> Option<T>) -> Option<T> {
        let holds = async {
            loop {
                let mut activity = std::pin::pin!(self.shared.activity.notified());
                activity.as_mut().enable();
                if let Some(value) = condition() {
                    return value;
                }
                activity.await;
            }
        };
        match tokio::time::timeout(timeout, holds).await {
            Ok(value) => Some(value),
            Err(_) => condition(),
        }
    }

    fn get_by_key(&self, api_version: &str, plural: &str, key: &str) -> Option<Value> {
        let (namespace, name) = match key.split_once('/') {
            Some((namespace, name)) => (Some(namespace), name),
            None => (None, key),
        };
        let found = self.get(api_version, plural, namespace, name);
        // An object without a namespace is found by its name only.
        found.or_else(|| self.get(api_version, plural, Some("default"), name).filter(|_| namespace.is_none()))
    }
}

/// What a wait for an object found last.
enum LastState {
    Missing,
    Object(Value),
    Unreadable(String, Value),
}

impl fmt::Display for LastState {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LastState::Missing => out.write_str("there is no such object"),
            LastState::Object(object) => write!(out, "last state: {object}"),
            LastState::Unreadable(error, object) => {
                write!(out, "the object does not match the type: {error}: {object}")
            }
        }
    }
}
