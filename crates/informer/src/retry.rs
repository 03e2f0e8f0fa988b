//! Repeating a change that conflicts with another writer.

use crate::error::Error;
use crate::workqueue::seed;
use informer_core::random::Random;
use std::future::Future;
use std::time::Duration;

/// Maximum number of attempts.
const MAX_ATTEMPTS: u32 = 5;

/// The delay after the first conflict, before jitter. It doubles with each further conflict.
const INITIAL_DELAY: Duration = Duration::from_millis(10);

/// Calls `operation` until it succeeds or fails with another error than a
/// [conflict](Error::is_conflict), at most five times.
///
/// The operation reads the object, changes it and writes it back: a conflict means that the object has been
/// changed in between, so that each attempt must read again. Read from the server, not from a cache: the
/// cache may not show the other change yet. The delay between attempts grows from 10 to 80 ms, plus jitter of
/// up to as much. Corresponds to client-go's `retry.RetryOnConflict`.
///
/// A reconcile seldom needs this: it can return the conflict, and is retried with the cache's newer object.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kube::api::{Api, PostParams};
///
/// async fn count(maps: &Api<ConfigMap>, name: &str) -> Result<ConfigMap, informer::Error> {
///     informer::retry_on_conflict(|| async {
///         let mut map = maps.get(name).await?;
///         let count = map.data.get_or_insert_default().entry("count".to_owned()).or_default();
///         *count = (count.parse::<u64>().unwrap_or(0) + 1).to_string();
///         maps.replace(name, &PostParams::default(), &map).await
///     })
///     .await
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = informer_apiserver::ApiServer::new();
/// # server.create(&serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap",
/// #     "metadata": {"name": "a", "namespace": "default"}}))?;
/// # let api = Api::default_namespaced(server.client());
/// # count(&api, "a").await?;
/// # assert_eq!(count(&api, "a").await?.data.unwrap()["count"], "2");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// Returns the error of the last attempt.
///
/// # Cancel safety
///
/// As cancel safe as `operation`: dropping the future drops the attempt in progress and starts no other.
pub async fn retry_on_conflict<T, E, F, R>(mut operation: F) -> Result<T, Error>
where
    E: Into<Error>,
    F: FnMut() -> R,
    R: Future<Output = Result<T, E>>,
{
    let mut random = Random::new(seed());
    let mut delay = INITIAL_DELAY;
    for _ in 1..MAX_ATTEMPTS {
        match operation().await.map_err(Into::into) {
            Err(error) if error.is_conflict() => {}
            result => return result,
        }
        tokio::time::sleep(random.jittered(delay)).await;
        delay *= 2;
    }
    operation().await.map_err(Into::into)
}
